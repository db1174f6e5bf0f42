"""Fluid optimum: known values, any rates, and that the proof is a proof."""

from __future__ import annotations

import copy
import os
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from railopt import Chunks, Fabric
from railopt.base.errors import InputError, NotProved
from railopt.checker import check_certificate
from railopt.evidence.bracket import Status
from railopt.solver.fluid import Fluid, least_time, solve_fluid

EVEN = np.full((4, 4), 24_000)
SPEEDS = ["0", "0.5", "0.25", "1/3", "0.9"]
INSTANCES = int(os.environ.get("RAILOPT_INSTANCES", "300")) // 2


def test_healthy_rails_split_evenly() -> None:
    fabric = Fabric.uniform(4, 8, 1000)
    fluid = solve_fluid(fabric, EVEN)
    assert fluid.value == 9
    assert set(fluid.split.values()) == {Fraction(3000)}
    assert fluid.certificate.check().optimal
    assert fluid.bracket.status is Status.KNOWN
    assert fluid.bracket.gap == 0


@pytest.mark.parametrize("rails", [2, 4, 8, 16])
def test_one_nic_at_half_speed_costs_2n_over_2n_minus_1(rails: int) -> None:
    fabric = Fabric.uniform(4, rails, 1000)
    slow = fabric.degraded({(1, 0): "0.5"})
    healthy = solve_fluid(fabric, EVEN).value
    assert solve_fluid(slow, EVEN).value / healthy == Fraction(2 * rails, 2 * rails - 1)


@pytest.mark.parametrize("rails", [2, 4, 8])
def test_a_dead_nic_costs_n_over_n_minus_1_where_its_node_is_the_bottleneck(rails: int) -> None:
    fabric = Fabric.uniform(4, rails, 1000)
    dead = fabric.degraded({(2, rails - 1): "0"})
    healthy = solve_fluid(fabric, EVEN).value
    assert solve_fluid(dead, EVEN).value / healthy == Fraction(rails, rails - 1)
    light = EVEN.copy()
    light[2], light[:, 2] = 1000, 1000
    assert solve_fluid(dead, light).value == solve_fluid(fabric, light).value


@pytest.mark.parametrize("seed", range(6))
def test_any_rates_are_proved_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rates = rng.integers(1, 50, (2, 5, 4)) * (rng.random((2, 5, 4)) > 0.15)
    rates[:, :, 0] += rates[:, :, 0] == 0
    fabric, demand = (
        Fabric(5, 4, 4, rates[0], rates[1]),
        rng.integers(0, 1000, (5, 5)) * (rng.random((5, 5)) > 0.3),
    )
    fluid = solve_fluid(fabric, demand)
    verdict = fluid.certificate.check()
    assert verdict.optimal
    assert verdict.bound == verdict.value == fluid.value
    assert_carried(fluid, demand)


def assert_carried(fluid: Fluid, demand: np.ndarray) -> None:
    """All bytes between nodes, and no others."""
    carried = np.zeros(demand.shape, object)
    for (k, f, _), amount in fluid.split.items():
        carried[k, f] += amount
    np.fill_diagonal(carried, demand.diagonal())
    assert (carried == demand).all()


def degraded_fabric(rng: np.random.Generator) -> tuple[Fabric, np.ndarray]:
    """A small fabric with slow and, but for rail 0, dead NICs, and flows of a byte to 16 GiB."""
    nodes, rails = int(rng.integers(2, 7)), int(rng.integers(2, 9))
    nics = {}
    for _ in range(int(rng.integers(1, 6))):
        node, rail = int(rng.integers(nodes)), int(rng.integers(rails))
        nics[node, rail] = str(rng.choice(SPEEDS if rail else SPEEDS[1:]))
    sizes = np.exp(rng.uniform(0, np.log(16 << 30), (nodes, nodes))).astype(np.int64)
    demand = sizes * (rng.random((nodes, nodes)) < 0.8)
    return Fabric.uniform(nodes, rails, "400Gb/s").degraded(nics), demand


@pytest.mark.slow
def test_degraded_fabrics_with_flows_of_any_size_are_proved_exactly() -> None:
    for seed in range(INSTANCES):
        fabric, demand = degraded_fabric(np.random.default_rng([seed, 15]))
        fluid = solve_fluid(fabric, demand)
        assert fluid.certificate.check().optimal, seed
        assert_carried(fluid, demand)


def test_a_small_flow_beside_a_large_one() -> None:
    """Below what a solver in floats can see, and still exact."""
    fabric = Fabric.uniform(2, 2).degraded({(1, 1): "0", (0, 0): "0.5"})
    fluid = solve_fluid(fabric, [[0, 40], [12_412_683_176, 0]])
    assert fluid.value == Fraction(12_412_683_176, 25 * 10**9)


def test_sizes_and_rates_as_large_as_they_come() -> None:
    rng = np.random.default_rng(3)
    rates = rng.integers(1, 1 << 40, (2, 3, 3))
    demand = rng.integers(0, 1 << 60, (3, 3))
    fluid = solve_fluid(Fabric(3, 3, 3, rates[0], rates[1]), demand)
    assert fluid.certificate.check().optimal
    assert_carried(fluid, demand)


def test_a_limit_holds() -> None:
    with pytest.raises(NotProved, match="time was up"):
        solve_fluid(*degraded_fabric(np.random.default_rng(1)), limit_s=-1)


@pytest.mark.parametrize("limit_s", ["10s", 10**400, float("nan")])
def test_a_limit_that_is_none_is_refused(limit_s: Any) -> None:
    with pytest.raises(InputError, match="expected seconds, a number"):
        solve_fluid(Fabric.uniform(4, 4), EVEN, limit_s=limit_s)


def test_sums_beyond_int64_do_not_wrap() -> None:
    fabric, demand = Fabric.uniform(5, 2), np.full((5, 5), 1 << 62)
    assert solve_fluid(fabric, demand).value == Fraction(4 << 62, 2 * int(fabric.tx[0, 0]))


def test_the_least_time_of_equal_rails_needs_no_program() -> None:
    for seed in range(20):
        rng = np.random.default_rng(seed)
        rates = np.repeat(rng.integers(1, 9, (2, 4, 1)), 3, axis=2)
        fabric, ends = Fabric(4, 3, 1, rates[0], rates[1]), rng.integers(0, 4, (2, 9))
        src, dst = ends[:, ends[0] != ends[1]]
        size = rng.integers(1, 99, len(src))
        chunks = Chunks.from_arrays(src=src, dst=dst, size=size, nodes=4)
        assert least_time(fabric, chunks) == solve_fluid(fabric, chunks.node_matrix).value


def test_coupling_makes_the_fluid_bound_better_than_any_node() -> None:
    """Node 0 sends on rails 0, 1 and node 1 receives on rails 1, 2: their traffic has rail 1
    alone.
    """
    fabric = Fabric.uniform(3, 3, 10).degraded({(0, 2): "0", (1, 0): "0"})
    demand = np.zeros((3, 3), np.int64)
    demand[0, 1] = 60
    assert solve_fluid(fabric, demand).value == 6


def test_a_changed_price_or_flow_is_rejected() -> None:
    certificate = solve_fluid(
        Fabric.uniform(4, 4, 1000).degraded({(1, 0): "0.5"}), EVEN
    ).certificate
    assert check_certificate(certificate.as_dict()).optimal
    for change in range(4):
        record = copy.deepcopy(certificate.as_dict())
        if change == 0:
            record["claim"]["bound"] = record["claim"]["value"] = str(
                certificate.bound * Fraction(999, 1000)
            )
        elif change == 1:
            record["flow"]["amount"][0] += 1
        elif change == 2:
            record["problem"]["demand"][0][1] += 1
        else:
            record["claim"]["bound"] = str(certificate.bound * Fraction(1001, 1000))
        assert not check_certificate(record).ok


def test_nothing_to_send() -> None:
    assert solve_fluid(Fabric.uniform(2, 2), np.zeros((2, 2), np.int64)).value == 0


@pytest.mark.parametrize("demand", [np.zeros((2, 3), np.int64), np.array([[0, -1], [0, 0]])])
def test_bad_demand_is_refused(demand: np.ndarray) -> None:
    with pytest.raises(InputError, match="expected bytes"):
        solve_fluid(Fabric.uniform(2, 2), demand)


def test_no_living_rail_is_refused() -> None:
    fabric = Fabric.uniform(2, 2).degraded({(0, 0): "0", (1, 1): "0"})
    with pytest.raises(InputError, match="no living rail from node 0 to node 1"):
        solve_fluid(fabric, np.array([[0, 5], [0, 0]]))
