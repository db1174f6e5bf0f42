"""Least bytes moved within a time: by hand, against a plain program in floats, and at its edges."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog

from railopt import Chunks, Fabric, plan
from railopt.base.errors import InputError
from railopt.model.inside import Inside
from railopt.model.plan import rail_costs
from railopt.model.workloads import from_spec
from railopt.solver.fluid import solve_fluid
from railopt.solver.moving import bound as moving
from railopt.solver.moving.bound import BytePrices, price_bound
from railopt.solver.moving.classes import classes_of
from tests.moved import least_moved

HEALTHY = Fabric.uniform(3, 4, gpus=4)
SHARED = Fabric.uniform(3, 2, gpus=4)
ODD = Fabric.uniform(
    3, 4, gpus=3, inside=Inside(np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 0]], np.bool_))
)
RATES = np.array([[4, 4, 0, 4], [4, 2, 4, 4], [3, 4, 4, 4]])
DEGRADED = Fabric(3, 4, 4, RATES, RATES[::-1].copy())


def units(fabric: Fabric, count: int, seed: int, targets: bool = True) -> Chunks:
    rng = np.random.default_rng(seed)
    src_gpu = rng.integers(0, fabric.nodes * fabric.gpus, count)
    dst = (src_gpu // fabric.gpus + rng.integers(1, fabric.nodes, count)) % fabric.nodes
    needed = rng.random((count, fabric.gpus)) < 0.3 * targets
    size = rng.integers(1, 1000, count)
    return Chunks.from_units(fabric, src_gpu=src_gpu, dst=dst, size=size, targets=needed)


def in_floats(fabric: Fabric, chunks: Chunks, time: Fraction) -> float:
    """The program as it is written, chunk by chunk, by another solver."""
    cost, rails, count = rail_costs(fabric, chunks), fabric.rails, len(chunks)
    carried = np.zeros((2, fabric.nodes, rails, count, rails))
    for c, (k, f) in enumerate(zip(chunks.src, chunks.dst, strict=True)):
        for n in range(rails):
            carried[0, k, n, c, n] = carried[1, f, n, c, n] = 1
    room = float(time) * np.concatenate([fabric.tx.ravel(), fabric.rx.ravel()])
    found = linprog(
        cost.ravel(),
        carried.reshape(len(room), -1),
        room,
        np.kron(np.eye(count), np.ones(rails)),
        chunks.size,
    )
    return float(found.fun)


@pytest.mark.slow
@pytest.mark.parametrize("fabric", [HEALTHY, SHARED, ODD, DEGRADED])
def test_the_bound_is_the_optimum_of_the_program_as_written(fabric: Fabric) -> None:
    for seed in range(6):
        chunks = units(fabric, 40, seed, targets=bool(seed % 2))
        least = solve_fluid(fabric, chunks.node_matrix).value
        for time in (None, least * Fraction(21, 20), least * 3):
            found = least_moved(fabric, chunks, time)
            assert found.exact
            assert found.time == (least if time is None else time)
            assert float(found.bound) == pytest.approx(in_floats(fabric, chunks, found.time))
            assert found.bytes - 1 < found.bound <= found.bytes


def test_classes_made_loose_bit_by_bit_lead_to_the_same_optimum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for seed in range(4):
        chunks = units(DEGRADED, 300, seed)
        at_once = least_moved(DEGRADED, chunks)
        monkeypatch.setattr(moving, "LOOSE", 7)
        step_by_step = least_moved(DEGRADED, chunks)
        monkeypatch.undo()
        assert at_once.exact
        assert step_by_step.exact
        assert at_once.bound == step_by_step.bound


def test_by_hand() -> None:
    """GPU 0 of node 0 has 8 bytes for node 1, alone: an even split leaves 2 on its own NIC."""
    chunks = Chunks.from_units(HEALTHY, src_gpu=[0], dst=[1], size=[8])
    assert least_moved(HEALTHY, chunks).bound == 6
    own = plan(HEALTHY, chunks, "own-nic").makespan
    assert least_moved(HEALTHY, chunks, own).bound == 0
    assert least_moved(HEALTHY, chunks, own / 2).bound == 4
    dead = np.full((3, 4), 4)
    dead[0, 0] = 0  # what is near dead NICs alone must be staged
    assert least_moved(Fabric(3, 4, 4, dead, dead), chunks, 100).bound == 8


def test_prices_of_floats_and_of_nothing_prove_something() -> None:
    chunks = units(HEALTHY, 50, 0)
    best, classes = least_moved(HEALTHY, chunks), classes_of(HEALTHY, chunks)
    rng = np.random.default_rng(0)
    for _ in range(50):
        some = BytePrices(rng.integers(0, 9, (3, 4)), rng.integers(0, 9, (3, 4)), 3)
        assert price_bound(HEALTHY, classes, best.time, some) <= best.bound
    assert price_bound(HEALTHY, classes, best.time, best.prices) == best.bound
    hurried = least_moved(HEALTHY, chunks, limit_s=0)
    assert hurried.bound <= best.bound
    assert hurried.value is None
    assert not hurried.exact


@pytest.mark.parametrize("fabric", [HEALTHY, SHARED, ODD, DEGRADED])
def test_classes_cost_what_their_chunks_cost(fabric: Fabric) -> None:
    for chunks in (units(fabric, 80, 3), from_spec("moe:tokens=64", fabric).chunks("64KiB")):
        cost, classes = rail_costs(fabric, chunks).astype(np.int64), classes_of(fabric, chunks)
        live = (fabric.tx[chunks.src] > 0) & (fabric.rx[chunks.dst] > 0)
        least = np.where(live, cost, 99).min(axis=1)
        beyond = np.where(live, cost - least[:, None], 0)
        assert classes.floor == (least * chunks.size).sum()
        rows = np.column_stack([chunks.src, chunks.dst, beyond])
        kinds, inverse = np.unique(rows, axis=0, return_inverse=True)
        size = np.bincount(inverse.ravel(), chunks.size).astype(np.int64)
        found = np.column_stack([classes.src, classes.dst, classes.cost, classes.size])
        wanted = np.column_stack([kinds, size])
        assert sorted(found.tolist()) == sorted(wanted.tolist())
        assert np.array_equal(
            classes.live, (fabric.tx[classes.src] > 0) & (fabric.rx[classes.dst] > 0)
        )


def test_of_too_many_classes_it_is_what_every_plan_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    chunks = units(HEALTHY, 50, 0)
    best, floor = least_moved(HEALTHY, chunks), classes_of(HEALTHY, chunks).floor
    monkeypatch.setattr(moving, "MOST", 0)
    few = least_moved(HEALTHY, chunks)
    assert few.bound == floor < best.bound
    assert price_bound(HEALTHY, classes_of(HEALTHY, chunks), few.time, few.prices) == floor
    assert few.at(few.time * 2) == floor
    assert not few.exact


def test_no_plan_beats_it() -> None:
    for fabric in (HEALTHY, SHARED, ODD, DEGRADED):
        chunks = units(fabric, 60, 1)
        for policy in ("lpt", "lpt-global"):
            made = plan(fabric, chunks, policy)
            assert made.moved >= least_moved(fabric, chunks, made.makespan).bytes


def test_edges() -> None:
    none = Chunks.from_units(HEALTHY, src_gpu=[], dst=[], size=[])
    assert least_moved(HEALTHY, none).bound == least_moved(HEALTHY, none).value == 0
    chunks = units(HEALTHY, 10, 0)
    with pytest.raises(InputError, match="name theirs"):
        least_moved(HEALTHY, Chunks.from_arrays(src=[0], dst=[1], size=[5], nodes=3))
    cut = RATES.copy()
    cut[0] = 0
    with pytest.raises(InputError, match="no living rail from node"):
        least_moved(Fabric(3, 4, 4, cut, cut), chunks)


def test_traffic_counts_as_units_of_one_target() -> None:
    fabric = Fabric.uniform(4, 8)
    chunks = from_spec("moe:skew=0.8,seed=1", fabric).chunks("flow")
    found = least_moved(fabric, chunks)
    assert found.exact
    assert found.bytes <= plan(fabric, chunks, "own-nic").moved
