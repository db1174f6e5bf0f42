"""Policies and bounds against brute force on tiny instances."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from railopt import POLICIES, Chunks, Fabric, gap, plan
from railopt.bounds import local_bound, lower_bound
from railopt.check import check_certificate


@st.composite
def fabrics(draw: st.DrawFn, nodes: int, rails: int) -> Fabric:
    rate = st.sampled_from([0, 1, 2, 3, 4]) if draw(st.booleans()) else st.just(2)
    rates = st.lists(
        st.lists(rate, min_size=rails, max_size=rails).filter(any), min_size=nodes, max_size=nodes
    )
    tx, rx = np.array(draw(rates)), np.array(draw(rates))
    tx[:, 0], rx[:, 0] = np.maximum(tx[:, 0], 1), np.maximum(rx[:, 0], 1)  # rail 0 joins everybody
    return Fabric(nodes, rails, 1, tx, rx)


@st.composite
def instances(draw: st.DrawFn, most: int = 6, rails_most: int = 3) -> tuple[Fabric, Chunks]:
    nodes, rails = draw(st.integers(2, 4)), draw(st.integers(1, rails_most))
    count = draw(st.integers(0, most))
    src = np.array(
        draw(st.lists(st.integers(0, nodes - 1), min_size=count, max_size=count)), np.int64
    )
    hop = np.array(
        draw(st.lists(st.integers(1, nodes - 1), min_size=count, max_size=count)), np.int64
    )
    size = draw(st.lists(st.integers(1, 12), min_size=count, max_size=count))
    return draw(fabrics(nodes, rails)), Chunks.from_arrays(
        src=src, dst=(src + hop) % nodes, size=np.array(size, np.int64), nodes=nodes
    )


def optimum(fabric: Fabric, chunks: Chunks) -> Fraction:
    """The best makespan of all assignments to living rails."""
    alive = [
        [n for n in range(fabric.rails) if fabric.tx[k, n] and fabric.rx[f, n]]
        for k, f in zip(chunks.src, chunks.dst, strict=True)
    ]
    best = None
    for rails in product(*alive):
        send, recv = np.zeros((2, fabric.nodes, fabric.rails), np.int64)
        np.add.at(send, (chunks.src, rails), chunks.size)
        np.add.at(recv, (chunks.dst, rails), chunks.size)
        time = max(
            (
                Fraction(int(load), int(rate))
                for loads, rates in ((send, fabric.tx), (recv, fabric.rx))
                for load, rate in zip(loads.flat, rates.flat, strict=True)
                if load
            ),
            default=Fraction(0),
        )
        best = time if best is None else min(best, time)
    assert best is not None
    return best


@given(instances())
def test_every_policy_conserves_bytes_and_none_beats_the_optimum(
    instance: tuple[Fabric, Chunks],
) -> None:
    fabric, chunks = instance
    best, bound = optimum(fabric, chunks), lower_bound(fabric, chunks).value
    assert bound <= best
    for policy in POLICIES:
        made = plan(fabric, chunks, policy)
        assert made.send.sum() == made.recv.sum() == chunks.total
        assert np.array_equal(made.send.sum(axis=1), chunks.node_matrix.sum(axis=1))
        assert np.array_equal(made.recv.sum(axis=1), chunks.node_matrix.sum(axis=0))
        report = gap(made, limit_s=0)
        assert report.value >= best >= report.bound
        assert not report.proved or report.value == best


@given(
    st.lists(st.integers(1, 15), min_size=1, max_size=6),
    st.lists(st.integers(0, 3), min_size=1, max_size=3).filter(any),
)
def test_local_bounds_are_below_the_optimum_and_their_witnesses_check(
    sizes: list[int], speeds: list[int]
) -> None:
    ordered = np.array(sorted(sizes, reverse=True), np.int64)
    bound, witness = local_bound(ordered, speeds)
    live = [n for n, speed in enumerate(speeds) if speed]
    best = min(
        max(
            Fraction(sum(s for s, r in zip(sizes, rails, strict=True) if r == n), speeds[n])
            for n in live
        )
        for rails in product(live, repeat=len(sizes))
    )
    assert bound <= best
    assert bound >= Fraction(sum(sizes), sum(speeds))
    record = {
        "railopt": "certificate",
        "version": 1,
        "problem": {"kind": "local", "sizes": ordered.tolist(), "speeds": speeds},
        "claim": {"bound": str(bound), "proved": False},
        "witness": witness,
    }
    assert check_certificate(record).ok
    record["claim"] = {"bound": str(bound + Fraction(1, 100)), "proved": False}
    assert not check_certificate(record).ok


@given(st.integers(2, 7), st.integers(1, 9), st.integers(0, 2**32), st.integers(1, 300))
def test_equitable_is_optimal_for_equal_chunks(
    nodes: int, rails: int, seed: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    src = rng.integers(0, nodes, count)
    chunks = Chunks.from_arrays(
        src=src,
        dst=(src + rng.integers(1, nodes, count)) % nodes,
        size=np.full(count, 7),
        nodes=nodes,
    )
    fabric = Fabric.uniform(nodes, rails)
    made = plan(fabric, chunks, "equitable")
    for loads, degree in (
        (made.send, chunks.node_matrix.sum(axis=1) // 7),
        (made.recv, chunks.node_matrix.sum(axis=0) // 7),
    ):
        assert np.array_equal(
            loads.max(axis=1), -(-degree // rails) * 7
        )  # the ceiling, at every node and side at once
        assert np.array_equal(loads.min(axis=1), degree // rails * 7)
    assert gap(made, limit_s=0).proved


@given(
    st.integers(2, 6), st.integers(1, 9), st.integers(0, 2**32), st.integers(1, 120), st.booleans()
)
def test_equitable_spreads_any_sizes_within_the_largest_chunk(
    nodes: int, rails: int, seed: int, count: int, cut: bool
) -> None:
    rng = np.random.default_rng(seed)
    src, size = rng.integers(0, nodes, count), rng.integers(1, 100, count)
    dst = (src + rng.integers(1, nodes, count)) % nodes
    chunks = Chunks.from_arrays(
        src=src, dst=dst, size=np.minimum(size, 40) if cut else size, nodes=nodes
    )
    made = plan(Fabric.uniform(nodes, rails), chunks, "equitable")
    for loads in (made.send, made.recv):
        assert (loads.max(axis=1) - loads.min(axis=1)).max() <= chunks.largest
