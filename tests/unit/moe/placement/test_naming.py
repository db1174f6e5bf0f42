"""Names of GPUs, GPUs that are off, and what a change must move at least."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.moe.aim import RailLinks, aimed, busiest
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.files import read_costs
from railopt.moe.placement.naming import carriage, fabric_costs, kept, least_moved, named
from railopt.moe.placement.planners import KNOW_ACTIVE, PlacementProblem, place
from railopt.moe.placement.prophet import measure
from railopt.moe.routing.dispatch import split
from railopt.moe.routing.trace import Trace

FABRIC = Fabric.uniform(2, 2, "100Gb/s", scaleup="50GB/s")
MODEL = TimeModel.rails(FABRIC, token_bytes=2000, expert_bytes=10**6, tokens_per_s=5e6)
RNG = np.random.default_rng(0)
COUNTS = RNG.multinomial(900, RNG.dirichlet(np.ones(8)), (2, 4)).astype(np.int64)
for rank in range(4):
    COUNTS[:, rank, 2 * rank : 2 * rank + 2] += 300  # each rank has favourites
OFF = np.array([True, True, False, True])
PROBLEM = PlacementProblem(MODEL, COUNTS, replicas=12)


def cost(holds: np.ndarray, layer: int, costs: np.ndarray) -> float:
    shares = COUNTS[layer] / holds.sum(axis=0)
    return float(np.einsum("se,ge,sg->", shares, holds, costs))


def test_no_other_names_cost_less() -> None:
    bundles = place(PROBLEM, "replicate").placement.holds
    costs = RNG.random((4, 4))
    best = named(bundles, -carriage(bundles, COUNTS, costs), 4)
    for layer in range(2):
        tried = [
            cost(bundles[layer][list(order)], layer, costs) for order in permutations(range(4))
        ]
        assert cost(best[layer], layer, costs) == pytest.approx(min(tried))
    blocks = named(bundles, -carriage(bundles, COUNTS, costs), 2)
    for layer in range(2):
        pairs = [{tuple(g) for g in part.tolist()} for part in bundles[layer].reshape(2, 2, -1)]
        assert {tuple(g) for g in blocks[layer, :2].tolist()} in pairs


def test_costs_of_a_fabric_are_near_or_far() -> None:
    costs = fabric_costs(FABRIC)
    assert costs[0, 0] == 0
    assert costs[0, 1] == 20  # 50 GB/s
    assert costs[0, 2] == 40  # two NICs of 12.5 GB/s
    near = place(replace(PROBLEM, costs=costs), "replicate").placement
    far = place(PROBLEM, "replicate").placement
    for layer in range(2):
        assert cost(near.holds[layer], layer, costs) <= cost(far.holds[layer], layer, costs)
    np.testing.assert_array_equal(near.copies, far.copies)


@pytest.mark.parametrize("planner", KNOW_ACTIVE)
def test_a_gpu_that_is_off_gets_nothing(planner: str) -> None:
    before = place(PROBLEM, "replicate").placement
    for previous in (None, before):
        problem = replace(PROBLEM, replicas=9, active=OFF, previous=previous)
        made = place(problem, planner).placement
        assert not made.holds[:, 2].any()
        assert made.holds.sum(axis=(1, 2)).max() <= 9
        assert made.holds.sum(axis=2).max() <= 3 or planner == "contiguous"
    for other in ("shadow", "optimal"):
        with pytest.raises(InputError, match="places on all GPUs"):
            place(replace(PROBLEM, active=OFF), other)
    with pytest.raises(InputError, match="one of them at least true"):
        replace(PROBLEM, active=np.zeros(4, bool))
    with pytest.raises(InputError, match="largest 24"):
        replace(PROBLEM, replicas=25, active=OFF)


def test_a_repair_after_a_failure_moves_little_and_never_less_than_the_bound() -> None:
    before = place(PROBLEM, "replicate").placement
    dear = replace(PROBLEM, model=MODEL.weighing_moves(1e6), replicas=9, active=OFF)
    kept_up = place(replace(dear, previous=before), "replicate").placement
    fresh = place(dear, "replicate").placement
    bound = least_moved(kept_up.copies, before.holds, OFF)
    assert bound <= kept_up.moved(before).sum() < fresh.moved(before).sum()
    assert least_moved(before.copies, before.holds, np.ones(4, bool)) == 0
    assert kept(before.holds, before.holds)[0].diagonal().tolist() == [3, 3, 3, 3]


def test_tokens_of_ranks_that_are_off_are_read_by_the_others() -> None:
    trace = Trace(COUNTS[None].astype(np.int32), 2, 1000, 64)
    drained = trace.drained(OFF)
    assert not drained.counts[:, :, 2].any()
    np.testing.assert_array_equal(drained.load, trace.load)
    rows = drained.counts[0, 0].sum(axis=1)
    assert rows[OFF].max() - rows[OFF].min() <= COUNTS[0].sum(axis=1).max() - 900 + 8
    with pytest.raises(InputError, match="expected 4 truths"):
        trace.drained(OFF[:2])


def test_an_aim_is_served_at_least_as_well_as_without_it() -> None:
    links = RailLinks(FABRIC, 2000, "16KiB")
    plain = aimed(PROBLEM, "gpu", links, "lpt", 1).placement
    linked = aimed(PROBLEM, "link", links, "lpt", 1).placement
    timed = aimed(PROBLEM, "time", links, "lpt", 1).placement

    def busy(placed: object, layer: int) -> int:
        return busiest(COUNTS[layer], (placed.holds[layer], placed.home[layer]), 2, links, "lpt")

    def time(placed: object, layer: int) -> int:
        here, home = placed.holds[layer], placed.home[layer]
        flow = split(COUNTS[layer], here, home, 2, "even").sum(axis=1)
        return measure(MODEL, flow, COUNTS[layer], here, home=home).total

    assert all(busy(linked, layer) <= busy(plain, layer) for layer in range(2))
    assert sum(busy(linked, layer) for layer in range(2)) < sum(
        busy(plain, layer) for layer in range(2)
    )
    assert all(time(timed, layer) <= time(plain, layer) for layer in range(2))
    with pytest.raises(InputError, match="expected one of gpu, link, time"):
        aimed(PROBLEM, "both", links, "lpt", 1)


def test_counts_below_a_token_a_step_have_their_say() -> None:
    """The same routing in steps of a thousandth as many tokens: the same names."""
    links = RailLinks(Fabric.uniform(2, 2), 4096, 65536)
    once = aimed(PROBLEM, "link", links, "lpt", 1).placement
    often = aimed(PROBLEM, "link", replace(links, token_bytes=4096, chunk=66), "lpt", 1000)
    np.testing.assert_array_equal(often.placement.holds, once.holds)


def test_costs_are_read_from_tables(tmp_path: Path) -> None:
    table = np.arange(16).reshape(4, 4)
    np.save(tmp_path / "c.npy", table / 3)
    (tmp_path / "c.txt").write_text("\n".join(" ".join(map(str, row)) for row in table))
    (tmp_path / "D.NPY").write_bytes((tmp_path / "c.npy").read_bytes())
    for name in ("c.npy", "D.NPY"):
        np.testing.assert_array_equal(read_costs(tmp_path / name, 4), table / 3)
    np.testing.assert_array_equal(read_costs(tmp_path / "c.txt", 4), table)
    with pytest.raises(InputError, match=r"expected numbers \[5, 5\]"):
        read_costs(tmp_path / "c.npy", 5)
    (tmp_path / "c.txt").write_text("a b\nc d")
    with pytest.raises(InputError):
        read_costs(tmp_path / "c.txt", 2)
    with pytest.raises(InputError, match="No such file"):
        read_costs(tmp_path / "none.csv", 2)
    with pytest.raises(InputError, match="finite numbers of at least 0"):
        replace(PROBLEM, costs=-np.ones((4, 4)))


@pytest.mark.parametrize("seed", range(20))
def test_damaged_tables_are_read_or_refused(seed: int, tmp_path: Path) -> None:
    rng = np.random.default_rng(seed)
    text = bytearray(b"0,1,2\n1,0,3\n2,3,0\n")
    for at in rng.integers(0, len(text), 3):
        text[at] = rng.integers(0, 256)
    for suffix in (".csv", ".txt", ".npy"):
        file = tmp_path / f"c{suffix}"
        file.write_bytes(bytes(text))
        with contextlib.suppress(InputError):
            assert read_costs(file, 3).shape == (3, 3)


def test_costs_of_any_size_name_alike() -> None:
    costs = fabric_costs(FABRIC)
    plain, huge = (
        place(replace(PROBLEM, costs=scale * costs), "replicate").placement.holds
        for scale in (1, 1e300 / costs.max())
    )
    np.testing.assert_array_equal(huge, plain)
