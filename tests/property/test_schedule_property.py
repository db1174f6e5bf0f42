"""Schedules of arbitrary small matrices: always valid, never below the bound, as short as
promised.
"""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from railopt import Fabric, Traffic
from railopt.schedule import KINDS, Schedule, conflicts, modelled, synthesise
from railopt.schedule.compact import compact
from railopt.schedule.decompose import longest_line

SIZES = st.one_of(
    st.just(0), st.integers(1, 20), st.integers(1, 10**9), st.integers(1, 2**62 // 200)
)


@st.composite
def traffics(draw: st.DrawFn) -> tuple[Fabric, Traffic]:
    nodes, gpus = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    count = nodes * gpus
    flat = draw(st.lists(SIZES, min_size=count * count, max_size=count * count))
    fabric = Fabric.uniform(nodes, gpus)
    return fabric, Traffic.from_matrix(np.array(flat, np.int64).reshape(count, count), fabric)


def moved(schedule: Schedule) -> np.ndarray:
    """Bytes between GPUs that the pieces carry."""
    _, _, source, target, _, size = schedule.pieces()
    matrix = np.zeros(schedule.traffic.bytes.shape, np.int64)
    np.add.at(matrix, (source, target), size)
    return matrix


@settings(max_examples=150, deadline=None)
@given(
    traffics(), st.sampled_from(list(KINDS)), st.sampled_from(["ascending", "descending", "built"])
)
def test_every_schedule_is_valid(case: tuple[Fabric, Traffic], kind: str, order: str) -> None:
    fabric, traffic = case
    schedule = synthesise(fabric, traffic, kind, order=order)
    node = np.arange(len(traffic.bytes)) // traffic.gpus
    assert np.array_equal(moved(schedule), np.where(node[:, None] == node, 0, traffic.bytes))
    plan = schedule.plan(2**62)
    assert conflicts(plan) == []
    assert schedule.total >= schedule.line_sum
    assert plan.makespan >= schedule.bound.value
    if kind == "fast":
        assert schedule.total == schedule.line_sum
        assert schedule.stages <= max(0, fabric.nodes**2 - 2 * fabric.nodes + 2)
    if kind == "compact":
        assert 50 * (schedule.total - schedule.line_sum) <= schedule.line_sum
    parts = modelled(schedule)
    assert parts.total >= parts.bound * (1 - 1e-9)


@settings(max_examples=100, deadline=None)
@given(traffics())
def test_without_start_ups_rails_lose_nothing_between_stages(case: tuple[Fabric, Traffic]) -> None:
    """Each NIC has one peer per stage, and the busiest ones together as much as even rails have.
    Without `eps` few servers have whatever lasts shortest, scale-up included.
    """
    fabric, traffic = case
    schedule = synthesise(fabric, traffic, eps="1/50", startup=0)
    assert conflicts(schedule.plan(2**62)) == []
    stage, rail, source, target, _, size = schedule.pieces()
    loads = np.zeros((2, schedule.stages, fabric.nodes, fabric.rails), np.int64)
    for side, end in enumerate((source, target)):
        np.add.at(loads[side], (stage, end // fabric.gpus, rail), size)
    assert loads.max(axis=(0, 2, 3), initial=0).sum() == -(-schedule.total // fabric.rails)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(2, 9),
    st.integers(0, 2**32 - 1),
    st.floats(0, 3),
    st.floats(0, 1),
    st.integers(0, 100),
)
def test_compact_on_skewed_and_sparse_matrices(
    n: int, seed: int, skew: float, zeros: float, percent: int
) -> None:
    rng = np.random.default_rng(seed)
    matrix = np.where(
        rng.random((n, n)) < zeros, 0, rng.lognormal(10, skew, (n, n)).astype(np.int64)
    )
    np.fill_diagonal(matrix, 0)
    line = longest_line(matrix)
    spare = line * percent // 100
    peer, sent = compact(matrix, spare)
    total = int(sent.max(axis=1).sum()) if len(sent) else 0
    assert line <= total <= line + spare
    if spare:
        assert len(peer) <= 3 * n + n // 8 + max(3 * n, (n - 1) * (1 + line / spare))
    else:
        assert len(peer) <= n * n + n
