"""The kernels against a slow simulator in exact fractions, and laws that every run obeys."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import railopt
from railopt import Fabric
from railopt.base.kernels import compile_mode
from railopt.sim import BALANCERS, Assumptions, Fault, Flows, simulate
from railopt.sim.run import run_flows

PS = 10**12


def shares(paths: list[list[int]], active: list[int], capacity: list[int]) -> dict[int, Fraction]:
    """Max-min fair rates by the definition: raise all, freeze the flows of the port that fills
    first.
    """
    left = {p: Fraction(c) for p, c in enumerate(capacity)}
    rising, rates = set(active), {}
    while rising:
        level, port = min(
            (left[p] / sum(p in paths[f] for f in rising), p)
            for p in left
            if any(p in paths[f] for f in rising)
        )
        for f in [f for f in rising if port in paths[f]]:
            rates[f] = level
            rising.remove(f)
            for p in paths[f]:
                left[p] -= level
    return rates


def oracle(
    paths: list[list[int]], sizes: list[int], starts: list[int], capacity: list[int]
) -> list[Fraction]:
    """Finish times in picoseconds."""
    now, left, finish = Fraction(0), [Fraction(s) for s in sizes], [Fraction(-1)] * len(sizes)
    while any(f < 0 for f in finish):
        active = [f for f in range(len(sizes)) if finish[f] < 0 and starts[f] <= now]
        coming = [Fraction(starts[f]) for f in range(len(sizes)) if starts[f] > now]
        rates = shares(paths, active, capacity)
        ends = [now + left[f] / rates[f] * PS for f in active]
        then = min(ends + coming)
        for f in active:
            left[f] -= rates[f] * (then - now) / PS
            if left[f] == 0:
                finish[f] = then
        now = then
    return finish


@st.composite
def jobs(draw: st.DrawFn) -> tuple[list[list[int]], list[int], list[int], list[int]]:
    ports, flows = draw(st.integers(1, 6)), draw(st.integers(1, 12))
    capacity = draw(
        st.lists(st.integers(1, 50).map(lambda c: c * 10**9), min_size=ports, max_size=ports)
    )
    paths = [
        draw(st.lists(st.integers(0, ports - 1), min_size=1, max_size=min(3, ports), unique=True))
        for _ in range(flows)
    ]
    sizes = draw(st.lists(st.integers(1, 10**7), min_size=flows, max_size=flows))
    starts = draw(
        st.lists(st.sampled_from([0, 0, 0, 10**6, 5 * 10**7]), min_size=flows, max_size=flows)
    )
    return paths, sizes, starts, capacity


def build(
    paths: list[list[int]], sizes: list[int], starts: list[int], capacity: list[int]
) -> Flows:
    first = np.concatenate([[0], np.cumsum([len(path) for path in paths])])
    path = np.array([port for path in paths for port in path], np.int32)
    return Flows(np.array(capacity), first, path, np.array(sizes), start_ps=np.array(starts))


@settings(max_examples=120, deadline=None)
@given(jobs())
def test_the_kernel_agrees_with_exact_fractions(
    case: tuple[list[list[int]], list[int], list[int], list[int]],
) -> None:
    timeline = simulate(build(*case))
    expected = oracle(*case)
    # each event is rounded up to a picosecond, so that n events move a time by at most about n of
    # them
    room = 4 * len(expected) + 1e-9 * float(max(expected))
    assert timeline.finish_ps.tolist() == [
        pytest.approx(float(time), abs=room) for time in expected
    ]


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_bytes_are_conserved_and_no_port_is_overrun(
    case: tuple[list[list[int]], list[int], list[int], list[int]],
) -> None:
    timeline = simulate(build(*case))
    assert timeline.curve.bytes.sum() == pytest.approx(sum(case[1]), rel=1e-9)
    assert Fraction(timeline.completion_ps + 1, PS) >= timeline.bound
    assert np.all(timeline.left == 0)


fabrics = st.builds(Fabric.uniform, st.integers(2, 10), st.integers(1, 6))


@settings(max_examples=40, deadline=None)
@given(
    fabrics,
    st.integers(0, 99),
    st.sampled_from([0.0, 0.7, 1.2]),
    st.sampled_from(["lpt", "own-nic", "random", "equitable"]),
)
def test_plans_obey_bound_scaling_and_determinism(
    fabric: Fabric, seed: int, skew: float, policy: str
) -> None:
    traffic = railopt.workloads.zipf(fabric, mean="64KiB", skew=skew, seed=seed)
    plan = railopt.plan(fabric, traffic.chunks("16KiB"), policy)
    timeline = simulate(plan)
    assert Fraction(timeline.completion_ps + 1, PS) >= plan.makespan
    assert np.array_equal(simulate(plan).chunk_ps, timeline.chunk_ps)
    assert timeline.chunk_ps.max() == timeline.completion_ps
    tripled = railopt.Traffic(traffic.bytes * 3, traffic.nodes)
    triple = simulate(railopt.plan(fabric, tripled.chunks("48KiB"), policy))
    assert triple.completion_ps == pytest.approx(
        3 * timeline.completion_ps, abs=3 * len(timeline.flows) + 3
    )


@settings(max_examples=2 if compile_mode() == "never" else 16, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([*BALANCERS, "plan"]),
    st.sampled_from([0.0, 0.9]),
    st.booleans(),
)
def test_long_steps_stay_close_to_exact_ones(
    seed: int, how: str, skew: float, faulty: bool
) -> None:
    """8 x 4 with 896 flows takes long steps; exact=True recomputes after every completion."""
    fabric = Fabric.uniform(8, 4)
    traffic = railopt.workloads.sparse(fabric, mean="64KiB", zeros=0.1, skew=skew, seed=seed)
    faults = [Fault(10**7, 1, 2, Fraction(1, 4)), Fault(2 * 10**7, 5, 0, Fraction(1, 2))]
    runs = []
    for exact in (False, True):
        options: dict[str, Any] = {
            "assumptions": Assumptions(exact=exact),
            "faults": faults if faulty else [],
        }
        if how == "plan":
            plan = railopt.plan(
                Fabric.uniform(8, 4, scaleup="199GB/s"), traffic.chunks("16KiB"), "lpt"
            )
            runs.append(simulate(plan, **options))
        else:
            runs.append(simulate(traffic, fabric=fabric, balancer=how, seed=seed, **options))
    assert len(runs[0].flows) > 512
    room = 2e-2 if faulty else 4e-3
    assert runs[0].completion_ps == pytest.approx(runs[1].completion_ps, rel=room)
    assert np.median(runs[0].finish_ps) == pytest.approx(np.median(runs[1].finish_ps), rel=2e-2)
    assert Fraction(runs[0].completion_ps + 1, PS) >= runs[0].bound


@settings(max_examples=25, deadline=None)
@given(st.integers(2, 6), st.integers(1, 4), st.integers(0, 999), st.integers(1, 6))
def test_stages_take_at_most_their_sum_and_nodes_never_wait_longer_than_barriers(
    nodes: int, rails: int, seed: int, stages: int
) -> None:
    """One-to-one stages: a node that waits only for its own stages is never later than behind a
    barrier.
    """
    rng = np.random.default_rng(seed)
    fabric = Fabric.uniform(nodes, rails)
    src = np.tile(np.arange(nodes), stages)
    dst = np.concatenate(
        [(np.arange(nodes) + rng.integers(1, nodes)) % nodes for _ in range(stages)]
    )
    size = rng.integers(1, 10**6, len(src))
    plan = railopt.Plan(
        fabric,
        railopt.Chunks.from_arrays(src=src, dst=dst, size=size, nodes=nodes),
        np.zeros(len(src), np.int16),
        stage=np.repeat(np.arange(stages), nodes),
    )
    barrier, chained = simulate(plan), simulate(plan, assumptions=Assumptions(stages="node"))
    assert barrier.completion_ps == pytest.approx(
        sum(size.reshape(stages, nodes).max(axis=1)) * 20, abs=2 * stages
    )
    assert np.all(chained.chunk_ps <= barrier.chunk_ps + 2 * stages)
    assert Fraction(chained.completion_ps + 2 * stages, PS) >= plan.makespan


def test_components_run_apart_give_what_they_give_together() -> None:
    """Two rails in one job, and the same flows joined by a port that never fills."""
    rng = np.random.default_rng(5)
    paths = [
        [int(a), 4 + int(b)] if side == 0 else [8 + int(a), 12 + int(b)]
        for a, b, side in zip(
            rng.integers(0, 4, 80), rng.integers(0, 4, 80), rng.integers(0, 2, 80), strict=True
        )
    ]
    sizes, capacity = rng.integers(1, 10**6, 80).tolist(), [50 * 10**9] * 16
    apart = run_flows(build(paths, sizes, [0] * 80, capacity))
    joined = run_flows(build([[*path, 16] for path in paths], sizes, [0] * 80, [*capacity, 10**15]))
    assert np.abs(apart.finish_ps - joined.finish_ps).max() <= 160
