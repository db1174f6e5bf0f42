"""Planners by name: what each keeps to, and what is left when the user stops one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.base.processes import ChildOutput, Ended
from railopt.evidence.bracket import Status
from railopt.model.fabric import Fabric
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement import optimum, planners
from railopt.moe.placement.optimum import LayerOptimum
from railopt.moe.placement.placement import Placement
from railopt.moe.placement.planners import PLANNERS, Placed, PlacementProblem, place
from railopt.moe.placement.prophet import evaluate

MODEL = TimeModel.rails(
    Fabric.uniform(2, 2, "100Gb/s", scaleup="50GB/s"),
    token_bytes=2000,
    expert_bytes=10**6,
    tokens_per_s=5e6,
    overlap=False,
)
COUNTS = np.random.default_rng(0).multinomial(900, np.arange(8, 0, -1) / 36, (3, 4))
PROBLEM = PlacementProblem(MODEL, COUNTS, limit_s=0.5)


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("planner", PLANNERS)
@pytest.mark.parametrize("limits", [{"replicas": 13}, {"slots": 3}, {"replicas": 9, "slots": 4}])
def test_every_planner_keeps_to_replicas_and_slots(planner: str, limits: dict[str, int]) -> None:
    placed = place(replace(PROBLEM, counts=COUNTS[:1], **limits), planner).placement
    total, most = limits.get("replicas", 99), limits.get("slots", 99)
    if planner == "replicate" and "replicas" in limits:
        assert (placed.holds.sum(axis=(1, 2)) == total).all()
    assert placed.holds.sum(axis=(1, 2)).max() <= total
    assert placed.holds.sum(axis=2).max() <= most


@pytest.mark.slow
def test_only_optimal_says_what_is_known() -> None:
    for planner in PLANNERS:
        placed = place(replace(PROBLEM, counts=COUNTS[:2]), planner)
        assert isinstance(placed, Placed)
        assert len(placed.optima) == (2 if planner == "optimal" else 0)
    for layer, known in enumerate(placed.optima):
        placement = placed.placement
        total = evaluate(MODEL, COUNTS[layer], placement.holds[layer]).total
        assert known.value == total >= known.bound


def test_problems_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="known planners: contiguous, replicate"):
        place(PROBLEM, "nobody")
    with pytest.raises(InputError, match="counts of no layer"):
        PlacementProblem(MODEL, COUNTS[:0])
    with pytest.raises(InputError, match="2 nodes x 2 GPUs = 4"):
        PlacementProblem(MODEL, COUNTS[:, :3])
    with pytest.raises(InputError, match="previous placement has shape"):
        replace(PROBLEM, previous=Placement.contiguous(3, 7, 2, 2))
    with pytest.raises(InputError, match="more than"):
        PlacementProblem(MODEL, COUNTS * 10**12)


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_optimal_refuses_copies_that_it_would_count_as_sent() -> None:
    before = place(replace(PROBLEM, replicas=12), "replicate").placement
    with pytest.raises(InputError, match="use pro-prophet"):
        place(replace(PROBLEM, previous=before), "optimal")
    homes = Placement.contiguous(1, 8, 2, 2)
    one = replace(PROBLEM, counts=COUNTS[:1], previous=homes)
    kept = place(one, "optimal").placement
    np.testing.assert_array_equal(kept.home, homes.home)


@pytest.mark.slow
@pytest.mark.parametrize("by_child", [True, False])
def test_ctrl_c_leaves_the_best_so_far(by_child: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def ask(*_: object) -> ChildOutput:
        asked.append(1)
        if len(asked) == 1:
            return ChildOutput([], Ended(0, False, False), "")
        if not by_child:
            raise KeyboardInterrupt
        return ChildOutput([b'{"chosen": null, "bound": 1.0}\n'], Ended(-9, False, True), "")

    monkeypatch.setattr(optimum, "ask", ask)
    placed = place(PROBLEM, "optimal")
    assert len(asked) == 2
    assert placed.interrupted
    assert len(placed.optima) == 3
    for layer, known in enumerate(placed.optima):
        assert known.status is Status.OPEN
        assert known.value == evaluate(MODEL, COUNTS[layer], placed.placement.holds[layer]).total
        assert known.value <= evaluate(MODEL, COUNTS[layer]).total


def test_what_a_solver_names_must_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    everywhere = ", ".join(map(str, range(32)))
    lines = [
        f'{{"chosen": [{everywhere}], "bound": null}}\n'.encode(),  # more than the slots
        b'{"chosen": [1, 2, 3], "bound": null}\n',  # not at home
    ]
    said = ChildOutput(lines, Ended(0, False, False), "")
    monkeypatch.setattr(optimum, "ask", lambda *_: said)
    found = optimum.optimal(MODEL, COUNTS[0], slots=3)
    assert isinstance(found, LayerOptimum)
    assert found.holds.sum(axis=1).max() <= 3
    assert found.bracket.status is Status.OPEN


def test_a_planner_is_a_function_and_an_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    def everywhere(problem: PlacementProblem) -> Placed:
        return Placed(problem.with_copies([np.ones((4, 8), bool)] * problem.layers))

    monkeypatch.setattr(planners, "PLANNERS", {**PLANNERS, "everywhere": everywhere})
    assert place(PROBLEM, "everywhere").placement.holds.all()
    assert place(PROBLEM, everywhere).placement.holds.all()


def test_a_server_sends_a_copy_once_and_no_gradients() -> None:
    training, serving = MODEL.over(10), MODEL.over(10, serving=True)
    np.testing.assert_array_equal(training.copy_ps, 10 * MODEL.copy_ps)
    np.testing.assert_array_equal(serving.copy_ps, MODEL.copy_ps)
    copied = Placement.contiguous(1, 8, 2, 2).holds[0].copy()
    copied[:, 0] = True
    terms = evaluate(serving, COUNTS[0], copied)
    assert terms.trans > 0
    assert terms.agg == 0
    assert evaluate(training, COUNTS[0], copied).trans == 10 * terms.trans
