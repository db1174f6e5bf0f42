"""Policies and planners where NICs are slow, dead or very slow, and where numbers are large."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import railopt
from railopt.base.errors import Infeasible, InputError


@pytest.mark.parametrize("flow", [1 << 62, 1 << 60])
def test_more_chunks_than_there_may_be_are_refused(flow: int) -> None:
    planner = railopt.Planner(railopt.Fabric.uniform(2, 2), 0, cap=1024, policy="own-nic")
    row = np.zeros((2, 4), np.int64)
    row[:, 2:] = flow
    with pytest.raises(InputError, match=r"more than 33554432 chunks; use larger ones"):
        planner.plan(row)


def test_a_refusal_says_which_of_two_things_is_wrong() -> None:
    fabric = railopt.Fabric.uniform(2, 2).degraded({(0, 0): "0", (0, 1): "0"})
    row = np.ones((2, 4), np.int64)
    with pytest.raises(Infeasible, match="no living rail from node 0 to node 1"):
        railopt.Planner(fabric, 0).plan(row)
    with pytest.raises(InputError, match="a negative number of bytes from node 0 to node 1"):
        railopt.Planner(railopt.Fabric.uniform(2, 2), 0).plan(-row)
    with pytest.raises(InputError, match="node = True: expected a whole number"):
        railopt.Planner(fabric, True)


@pytest.mark.slow
def test_a_hurried_plan_does_not_depend_on_those_before() -> None:
    """Where a NIC is very slow, a step of many bytes changed the plans of all later ones."""
    slow = {(0, 0): "1/1000000", (1, 2): "0.61", (2, 1): "0.83"}
    fabric = railopt.Fabric.uniform(4, 4).degraded(slow)
    matrix = np.random.default_rng(0).integers(0, 64 << 20, (16, 16))
    new, used = (railopt.Planner(fabric, None, "64MiB", "spill", fast=True) for _ in range(2))
    used.plan(np.full((16, 16), 1 << 34))
    assert (new.plan(matrix).rail == used.plan(matrix).rail).all()


def test_a_hopeless_nic_does_not_blur_the_others() -> None:
    """Beside a NIC of 1 B/s the rates of the others stay apart."""
    slow = {(node, rail): "0.5" for node in range(4) for rail in (1, 2)}
    fabric = railopt.Fabric.uniform(4, 4).degraded({**slow, (0, 0): "1/50000000000"})
    dead = railopt.Fabric.uniform(4, 4).degraded({**slow, (0, 0): "0"})
    traffic = railopt.workloads.moe(fabric, skew=0.5, seed=1)
    times = [
        railopt.plan(one, traffic.chunks("256KiB"), "spill").makespan for one in (fabric, dead)
    ]
    assert times[0] <= times[1] * Fraction(101, 100)


@pytest.mark.slow
def test_rates_stay_apart_where_there_are_very_many_bytes() -> None:
    fabric = railopt.Fabric.uniform(2, 2).degraded({(0, 1): "1/3"})
    matrix = np.zeros((4, 4), np.int64)
    matrix[0, 2] = 4000 << 45
    made = railopt.plan(fabric, railopt.Traffic(matrix, 2).chunks(1 << 45), "spill")
    best = railopt.plan(fabric, made.chunks, "lpt-global")
    assert made.makespan <= best.makespan * Fraction(101, 100)


def test_a_rail_counts_only_as_far_as_others_can_take_from_it() -> None:
    slow = {(0, 0): "0", (1, 1): "1/10", (1, 2): "1/10"}
    fabric = railopt.Fabric.uniform(2, 4).degraded(slow)
    matrix = railopt.workloads.moe(fabric, tokens=4096, skew=0.5, seed=1).bytes
    planner = railopt.Planner(fabric, None, "16KiB", "spill", fast=True)
    made = planner.plan(matrix)
    chunks = railopt.Traffic(matrix, 2).chunks("16KiB")
    fast = railopt.Plan(fabric, chunks, made.rail.copy())
    assert fast.makespan <= railopt.plan(fabric, chunks, "spill").makespan * Fraction(102, 100)


@pytest.mark.parametrize("rate", ["1/16", "1/100"])
def test_lpt_local_avoids_a_slow_nic(rate: str) -> None:
    """What a chunk itself takes counts as often as what lies on the rail for its receiver."""
    fabric = railopt.Fabric.uniform(8, 8).degraded({(0, 0): rate})
    traffic = railopt.workloads.moe(fabric, tokens=4096, top_k=2, skew=0.5, seed=1)
    made = railopt.plan(fabric, traffic.chunks("1MiB"), "lpt-local")
    assert railopt.gap(made, limit_s=0).gap < Fraction(5, 100)


@pytest.mark.parametrize("policy", ["lpt", "lpt-local", "lpt-global", "equitable", "spill"])
def test_rates_that_are_very_far_apart(policy: str) -> None:
    fabric = railopt.Fabric.uniform(3, 2, link=1 << 60).degraded({(0, 0): f"1/{1 << 60}"})
    made = railopt.plan(fabric, railopt.workloads.uniform(fabric).chunks("1MiB"), policy)
    assert made.loads("send")[0, 0] == 0
