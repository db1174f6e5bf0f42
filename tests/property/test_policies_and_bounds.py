"""Policies and bounds against brute force on tiny instances."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from railopt import POLICIES, Chunks, Fabric, Planner, Traffic, gap, plan
from railopt.checker import check_certificate
from railopt.evidence.bounds import local_bound, lower_bound
from railopt.policies.longest_first import PAIR_WEIGHT
from tests.property.test_coupled_brute_force import optimum


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
        assert not report.optimal or report.value == best


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
    assert gap(made, limit_s=0).optimal


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


def textbook_lpt(fabric: Fabric, chunks: Chunks, policy: str) -> list[int]:
    """`lpt`, and the part of `lpt-local` and `lpt-global` that follows whole rounds, in fractions:
    the first rail, from the one that wins ties, whose score is lowest.
    """
    sent: dict[tuple[int, int], Fraction] = {}
    received: dict[tuple[int, int], Fraction] = {}
    between: dict[tuple[int, int, int], Fraction] = {}
    rails = [0] * len(chunks)
    for c in sorted(range(len(chunks)), key=lambda c: (-int(chunks.size[c]), c)):
        k, f, size = int(chunks.src[c]), int(chunks.dst[c]), int(chunks.size[c])
        scores = []
        for n in range(fabric.rails):
            tx, rx = int(fabric.tx[k, n]), int(fabric.rx[f, n])
            if not tx or not rx:
                continue
            out, into = sent.get((k, n), Fraction(0)), received.get((f, n), Fraction(0))
            both = between.get((k, f, n), Fraction(0))
            time = Fraction(size, min(tx, rx))
            if policy == "lpt":
                score: tuple[Fraction, ...] = (out + time, Fraction(n))
            elif policy == "lpt-local":
                turn = Fraction((n - k - f) % fabric.rails)
                score = (out + time + PAIR_WEIGHT * (both + time), turn)
            else:
                ends = out + Fraction(size, tx), into + Fraction(size, rx)
                score = (max(ends), sum(ends, Fraction(0)), Fraction(n))
            scores.append((score, n, time))
        _, n, time = min(scores)
        rails[c] = n
        alone = policy != "lpt-global"
        sent[k, n] = sent.get((k, n), Fraction(0)) + (
            time if alone else Fraction(size, int(fabric.tx[k, n]))
        )
        received[f, n] = received.get((f, n), Fraction(0)) + Fraction(size, int(fabric.rx[f, n]))
        between[k, f, n] = between.get((k, f, n), Fraction(0)) + time
    return rails


@given(instances(most=24, rails_most=5), st.sampled_from(["lpt", "lpt-local", "lpt-global"]))
def test_lpt_on_rails_that_differ_is_exact(instance: tuple[Fabric, Chunks], policy: str) -> None:
    """Ties of times are ties of fractions, not of rounded numbers."""
    fabric, chunks = instance
    tx = fabric.tx.copy()
    tx[0, 0] = 5 if tx[0, 0] != 5 else 7  # nodes differ: no whole rounds, no equal rails
    fabric = Fabric(fabric.nodes, fabric.rails, 1, tx, fabric.rx)
    assert plan(fabric, chunks, policy).rail.tolist() == textbook_lpt(fabric, chunks, policy)


@given(instances(most=24, rails_most=5), st.sampled_from(["lpt", "lpt-local", "lpt-global"]))
def test_sums_beyond_63_bits_follow_the_same_rule(
    instance: tuple[Fabric, Chunks], policy: str
) -> None:
    """Sizes a power of two larger, where times need Python's integers: the same rails."""
    fabric, chunks = instance
    tx = fabric.tx.copy()
    tx[0, 0] = 5 if tx[0, 0] != 5 else 7
    fabric = Fabric(fabric.nodes, fabric.rails, 1, tx, fabric.rx)
    if len(chunks):
        huge = chunks.size << (61 - int(chunks.total).bit_length())
        large = Chunks.from_arrays(src=chunks.src, dst=chunks.dst, size=huge, nodes=chunks.nodes)
        assert np.array_equal(plan(fabric, large, policy).rail, plan(fabric, chunks, policy).rail)


@st.composite
def traffics(draw: st.DrawFn) -> tuple[Fabric, Traffic]:
    """Fabrics of every kind, and flows of which some nodes have only small ones."""
    nodes, gpus, rails = draw(st.integers(2, 4)), draw(st.integers(1, 2)), draw(st.integers(1, 4))
    kind = draw(fabrics(nodes, rails))
    fabric = Fabric(nodes, rails, gpus, kind.tx, kind.rx)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    largest = rng.choice([3, 17, 40], nodes * gpus)
    matrix = rng.integers(0, largest[:, None] + 1, (nodes * gpus, nodes * gpus))
    return fabric, Traffic.from_matrix(matrix.astype(np.int64), fabric)


@given(traffics(), st.integers(1, 20), st.sampled_from(["lpt", "lpt-local"]))
def test_a_planner_is_the_plan_restricted_to_its_node(
    given_: tuple[Fabric, Traffic], cap: int, policy: str
) -> None:
    fabric, traffic = given_
    chunks = traffic.chunks(cap)
    whole = plan(fabric, chunks, policy)
    for node in range(fabric.nodes):
        row = traffic.bytes[node * fabric.gpus : (node + 1) * fabric.gpus]
        own = Planner(fabric, node, cap, policy).plan(np.ascontiguousarray(row))
        assert np.array_equal(own.rail, whole.rail[chunks.src == node])
