"""Schedules on NICs that differ, are slow or are dead, and on several NICs per GPU."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from experiments.fast_phases import phases
from railopt import Fabric, Traffic, synthesise
from railopt.schedule import KINDS, Schedule
from railopt.schedule.rates import equal_bytes, pair_rates, real_bytes
from railopt.sim import simulate


def drawn(seed: int) -> tuple[Fabric, Traffic]:
    """Up to five servers with one or two NICs per GPU, of rates from 0 to 4 GB/s."""
    rng = np.random.default_rng([44, 2, seed])
    nodes, gpus = int(rng.integers(2, 6)), int(rng.integers(1, 5))
    rails = gpus * int(rng.integers(1, 3))
    tx, rx = rng.choice([0, 1, 3, 4], (2, nodes, rails), p=[0.1, 0.2, 0.2, 0.5]) * 10**9
    tx[:, 0], rx[:, 0] = 4 * 10**9, 3 * 10**9
    fabric = Fabric(nodes, rails, gpus, tx, rx)
    matrix = rng.integers(0, 10**6, (nodes * gpus,) * 2) * (rng.random((nodes * gpus,) * 2) < 0.7)
    return fabric, Traffic.from_matrix(matrix, fabric)


def stage_seconds(made: Schedule) -> list[Fraction]:
    """What each stage takes, from the bytes that each NIC has in it."""
    stage, rail, source, target, _, size = made.pieces()
    fabric = made.fabric
    times = [Fraction(0)] * made.stages
    for ends, rates in ((source, fabric.tx), (target, fabric.rx)):
        loads = np.zeros((made.stages, fabric.nodes, fabric.rails), np.int64)
        np.add.at(loads, (stage, ends // fabric.gpus, rail), size)
        for s, node, nic in np.argwhere(loads).tolist():
            takes = Fraction(int(loads[s, node, nic]), int(rates[node, nic]))  # dead: divides by 0
            times[s] = max(times[s], takes)
    return times


def nic_seconds(made: Schedule) -> Fraction:
    """What the busiest NIC takes for all its bytes."""
    _, rail, source, target, _, size = made.pieces()
    fabric, most = made.fabric, Fraction(0)
    for ends, rates in ((source, fabric.tx), (target, fabric.rx)):
        loads = np.zeros((fabric.nodes, fabric.rails), np.int64)
        np.add.at(loads, (ends // fabric.gpus, rail), size)
        for node, nic in np.argwhere(loads).tolist():
            most = max(most, Fraction(int(loads[node, nic]), int(rates[node, nic])))
    return most


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(8))
def test_the_total_is_what_the_nics_take(seed: int, kind: str) -> None:
    fabric, traffic = drawn(seed)
    made = synthesise(fabric, traffic, kind)
    rates = pair_rates(fabric)
    _, _, source, target, _, size = made.pieces()
    carried = np.zeros_like(traffic.bytes)
    np.add.at(carried, (source, target), size)
    node = np.arange(len(carried)) // fabric.gpus
    assert (carried == np.where(node[:, None] != node, traffic.bytes, 0)).all()
    slack = Fraction(fabric.rails + 1, 10**9)  # bytes that rounding puts on one NIC
    for took, length in zip(stage_seconds(made), made.lengths.tolist(), strict=True):
        assert took <= Fraction(length, rates.fastest) + slack
    assert nic_seconds(made) <= Fraction(made.total, rates.fastest) + made.stages * slack
    if kind == "compact":
        matrix = equal_bytes(traffic.node_matrix.copy(), rates.up, rates.down)
        np.fill_diagonal(matrix, 0)
        longest = max(matrix.sum(axis=0).max(), matrix.sum(axis=1).max())
        assert made.total <= longest * Fraction(51, 50) + made.stages


def test_equal_bytes_and_back() -> None:
    rng = np.random.default_rng(7)
    matrix = rng.integers(0, 1000, (3, 3))
    up, down = rng.integers(1, 9, (2, 3, 3))
    worth = equal_bytes(matrix, up, down)
    assert (worth == np.ceil(matrix * up / down)).all()
    peer = np.array([[1, 2, 0]] * 4, np.int32)
    sent = np.array([[worth[i, (i + 1) % 3] * (s + 1) // 4 for i in range(3)] for s in range(4)])
    sent = np.diff(sent, axis=0, prepend=0)
    _, real = real_bytes(matrix, peer, sent, up, down)
    assert real.sum(axis=0).tolist() == [matrix[i, (i + 1) % 3] for i in range(3)]


@pytest.mark.slow
@pytest.mark.parametrize(("share", "within"), [("1/2", "1.05"), ("0", "1.05")])
def test_compact_beside_a_slow_nic_stays_near_the_bound(share: str, within: str) -> None:
    fabric = Fabric.uniform(16, 8).degraded({(3, 5): share})
    matrix = np.random.default_rng(5).integers(0, 10**7, (128, 128))
    made = synthesise(fabric, Traffic.from_matrix(matrix, fabric))
    took = simulate(phases(made)).completion
    assert sum(stage_seconds(made)) <= Fraction(within) * made.bound.value
    assert took <= Fraction(within) * made.bound.value


def test_a_rail_that_is_dead_at_the_other_end_is_no_help() -> None:
    """Servers 1 and 2 receive on rail 0 alone, server 2 at half its rate."""
    fabric = Fabric.uniform(3, 2, "8Gb/s")
    rx = fabric.rx.copy()
    rx[1:, 1], rx[2, 0] = 0, 5 * 10**8
    fabric = Fabric(3, 2, 2, fabric.tx, rx)
    for first, second, seconds in ((6, 1, 7), (1, 6, 12)):
        matrix = np.zeros((6, 6), np.int64)
        matrix[0, 2], matrix[1, 4] = first * 10**9, second * 10**9
        made = synthesise(fabric, Traffic.from_matrix(matrix, fabric))
        assert made.bound.value == seconds
        assert sum(stage_seconds(made)) >= seconds
