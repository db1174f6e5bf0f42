"""Fluid optimum: known values, any rates, and that the proof is a proof."""

from __future__ import annotations

import copy
from fractions import Fraction

import numpy as np
import pytest

from railopt import Fabric
from railopt.check import check_certificate
from railopt.errors import InputError
from railopt.solver.fluid import solve_fluid, uniform_split
from railopt.solver.rational import solve_rational

EVEN = np.full((4, 4), 24_000)


def test_healthy_rails_split_evenly() -> None:
    fabric = Fabric.uniform(4, 8, 1000)
    value, split, certificate = solve_fluid(fabric, EVEN)
    assert value == uniform_split(fabric, EVEN) == 9
    assert set(split.values()) == {Fraction(3000)}
    assert certificate.check().proved


@pytest.mark.parametrize("rails", [2, 4, 8, 16])
def test_one_nic_at_half_speed_costs_2n_over_2n_minus_1_an_even_split_twice(rails: int) -> None:
    fabric = Fabric.uniform(4, rails, 1000)
    slow = fabric.degraded({(1, 0): "0.5"})
    healthy = solve_fluid(fabric, EVEN).value
    assert solve_fluid(slow, EVEN).value / healthy == Fraction(2 * rails, 2 * rails - 1)
    assert uniform_split(slow, EVEN) / healthy == 2


@pytest.mark.parametrize("rails", [2, 4, 8])
def test_a_dead_nic_costs_n_over_n_minus_1_where_its_node_is_the_bottleneck(rails: int) -> None:
    fabric = Fabric.uniform(4, rails, 1000)
    dead = fabric.degraded({(2, rails - 1): "0"})
    healthy = solve_fluid(fabric, EVEN).value
    assert solve_fluid(dead, EVEN).value / healthy == Fraction(rails, rails - 1)
    light = EVEN.copy()
    light[2], light[:, 2] = 1000, 1000
    assert solve_fluid(dead, light).value == solve_fluid(fabric, light).value
    with pytest.raises(InputError, match="dead rail"):
        uniform_split(dead, EVEN)


@pytest.mark.parametrize("seed", range(6))
def test_any_rates_are_proved_exactly(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rates = rng.integers(1, 50, (2, 5, 4)) * (rng.random((2, 5, 4)) > 0.15)
    rates[:, :, 0] += rates[:, :, 0] == 0
    fabric, demand = (
        Fabric(5, 4, 4, rates[0], rates[1]),
        rng.integers(0, 1000, (5, 5)) * (rng.random((5, 5)) > 0.3),
    )
    value, split, certificate = solve_fluid(fabric, demand)
    verdict = certificate.check()
    assert verdict.proved
    assert verdict.bound == verdict.value == value
    for k in range(5):
        for f in range(5):
            if k != f:
                assert (
                    sum(amount for (a, b, _), amount in split.items() if (a, b) == (k, f))
                    == demand[k, f]
                )


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
    assert check_certificate(certificate.record()).proved
    for change in range(4):
        record = copy.deepcopy(certificate.record())
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


def test_rational_equations() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        size = int(rng.integers(1, 7))
        matrix, truth = (
            rng.integers(-3, 4, (size, size)),
            [Fraction(int(v), 7) for v in rng.integers(-9, 9, size)],
        )
        rows = [{j: int(v) for j, v in enumerate(row) if v} for row in matrix]
        right = [sum((v * truth[j] for j, v in row.items()), Fraction(0)) for row in rows]
        found = solve_rational(rows, right, size)
        assert found is not None
        assert [sum((v * found[j] for j, v in row.items()), Fraction(0)) for row in rows] == right
    assert solve_rational([{0: 1}, {0: 1}], [1, 2], 1) is None
