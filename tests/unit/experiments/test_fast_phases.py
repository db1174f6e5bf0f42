"""Schedules on the simulator: store-and-forward phases by hand."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.fast_phases import phases
from railopt import Fabric, Traffic
from railopt.base.errors import InputError
from railopt.model.workloads import zipf
from railopt.schedule import KINDS, synthesise
from railopt.sim import simulate

MB = 10**6
US = 10**6


def completion_us(schedule, **alpha: int) -> float:
    return simulate(phases(schedule, **alpha)).completion_ps / US


def one_way() -> tuple[Fabric, Traffic]:
    """GPU 0 holds 6 MB and GPU 1 holds 2 MB for GPU 2; NICs 1 GB/s, scale-up 4 GB/s."""
    fabric = Fabric.uniform(2, 2, "1GB/s", scaleup="4GB/s")
    return fabric, Traffic.from_matrix(
        np.array([[0, 0, 6, 0], [0, 0, 2, 0], [0, 0, 0, 0], [0, 0, 0, 0]]) * MB, fabric
    )


def test_balance_wire_and_redistribution_one_after_the_other() -> None:
    fabric, traffic = one_way()
    for kind in ("fast", "fast-nostage"):
        schedule = synthesise(fabric, traffic, kind)
        assert completion_us(schedule) == pytest.approx(500 + 4000 + 1000, rel=1e-6)
        assert completion_us(schedule, alpha_out_ps=7 * US) == pytest.approx(
            500 + 4000 + 7 + 1000, rel=1e-6
        )


def test_a_tapered_schedule_hides_both_ends() -> None:
    fabric, traffic = one_way()
    # no balance at the start, 1/16 redistributed at the end
    assert completion_us(synthesise(fabric, traffic, "compact", startup=1)) == pytest.approx(
        4000 + 1000 / 16, rel=1e-3
    )


def test_pipelined_plans_run_at_the_bound() -> None:
    fabric, traffic = one_way()
    schedule = synthesise(fabric, traffic, "pipelined")
    assert simulate(schedule.plan("10KB")).completion_ps / US == pytest.approx(4000, rel=1e-3)
    with pytest.raises(InputError, match="no phases"):
        phases(schedule)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "pipelined"])
def test_phases_carry_every_byte(kind: str) -> None:
    fabric = Fabric.uniform(5, 4)
    traffic = zipf(fabric, skew=0.9, seed=4)
    schedule = synthesise(fabric, traffic, kind)
    found = phases(schedule)
    wire = found.path[::2] < 20
    assert found.size[wire].sum() == traffic.node_matrix.sum()
    inside = traffic.bytes.sum() - traffic.node_matrix.sum()
    local = found.size[~wire].sum() - inside
    _, rail, src, dst, _, size = schedule.pieces()
    assert local == size[src % 4 != rail].sum() + size[dst % 4 != rail].sum()
    timeline = simulate(found)
    assert timeline.completion >= schedule.bound.value
    assert timeline.completion <= 2 * schedule.bound.value
    if KINDS[kind].barriers:
        begun = [
            timeline.begun_ps[wire & (found.group == schedule.stages + s)].min()
            for s in range(schedule.stages)
        ]
        ended = [
            timeline.finish_ps[wire & (found.group == schedule.stages + s)].max()
            for s in range(schedule.stages)
        ]
        assert all(b >= e for b, e in zip(begun[1:], ended, strict=False)), (
            "a stage starts before the one before ends"
        )


def test_nothing_to_send() -> None:
    fabric = Fabric.uniform(3, 2)
    for kind in ("fast", "compact", "fast-nostage"):
        empty = phases(
            synthesise(fabric, Traffic.from_matrix(np.zeros((6, 6), np.int64), fabric), kind)
        )
        assert len(empty.size) == 0
        local = Traffic.from_matrix(np.kron(np.eye(3, dtype=np.int64), np.full((2, 2), MB)), fabric)
        assert completion_us(synthesise(fabric, local, kind)) > 0
