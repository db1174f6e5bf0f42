"""Split and bound of a micro-batch: against brute force, and as the kernel sees it."""

from __future__ import annotations

import copy
import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt.base.arrays import Bools, Ints
from railopt.base.dice import Dice
from railopt.base.errors import InputError
from railopt.evidence.certificate import Certificate
from railopt.moe.micro.flow import evened
from railopt.moe.micro.room import Case, best_of, bound_of, closed_bound, relaxed
from railopt.moe.micro.slots import SpareSlots
from railopt.moe.micro.solve import Greedy, split
from railopt.symbolic.statements import spare

kernel = importlib.import_module("railopt.checker")
Record = dict[str, Any]


def drawn(case: int, *, most: int = 30) -> tuple[SpareSlots, Ints]:
    """A small case: 2 to 4 GPUs, 3 to 5 experts, some held twice, some copies confined to nodes."""
    dice = Dice(case, "micro", "small")
    nodes, gpus = (2, 2) if case % 3 == 0 else (1, 2 + case % 2)
    experts = 3 + case % 3
    holds = dice.unit((nodes * gpus, experts)) < 0.1
    holds[dice.below(nodes * gpus, experts), np.arange(experts)] = True
    slots = SpareSlots(nodes, gpus, holds, dice.below(3, nodes * gpus), case % 2 == 0)
    return slots, dice.below(most, experts)


def least(slots: SpareSlots, counts: Ints) -> int:
    """By trying every choice of copies."""
    able = [set(np.flatnonzero(row).tolist()) for row in slots.holds | slots.may]
    holds = [set(np.flatnonzero(row).tolist()) for row in slots.holds]
    return spare.least_of(counts.tolist(), holds, able, slots.spare.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("block", range(3))
def test_small_cases_are_solved_and_the_kernel_agrees(block: int) -> None:
    for case in range(20 * block, 20 * (block + 1)):
        slots, counts = drawn(case)
        exact = split(slots, counts, "exact", limit_s=60)
        assert exact.bracket.optimum_known
        assert exact.split.largest == least(slots, counts) == exact.bracket.bound
        verdict = exact.certificate().check()
        assert verdict.ok, verdict.message
        assert verdict.optimal
        for solver in ("greedy", "flow"):
            other = split(slots, counts, solver)
            assert other.certificate().check().ok
            assert exact.split.largest <= other.split.largest <= exact.before


def test_the_best_split_over_given_copies_is_exact() -> None:
    """By Hall's condition, over every set of experts."""
    for case in range(60):
        slots, counts = drawn(case)
        start = np.zeros(slots.holds.shape, np.int64)
        start[slots.holds.argmax(axis=0), np.arange(slots.experts)] = counts
        tokens, tight = evened(start, slots.holds)
        bare = Case(slots.holds, np.zeros_like(slots.holds), np.zeros_like(slots.spare))
        best = max(
            bound_of(bare, counts, np.isin(np.arange(slots.experts), chosen))
            for chosen in spare.subsets(slots.experts)
        )
        assert (tokens.sum(axis=0) == counts).all()
        assert not tokens[~slots.holds].any()
        assert tokens.sum(axis=1).max() == best == bound_of(bare, counts, tight)


def confined(case: Case, counts: Ints) -> list[Bools]:
    """As `_of_gpus`, set by set."""
    able = case.holds | case.may
    order = np.argsort(-np.where(case.holds, counts, 0).sum(axis=1), kind="stable")
    sets = [order[:k] for k in range(1, len(order))]
    sets += [np.flatnonzero(column) for column in np.unique(able, axis=1).T[: len(order)]]
    return [~np.delete(able, gpus, axis=0).any(axis=0) for gpus in sets]


@pytest.mark.slow
def test_sets_are_those_of_the_plain_loop() -> None:
    dice = np.random.default_rng(39)
    for _ in range(200):
        gpus, experts = (int(most) for most in dice.integers(1, 12, 2))
        has = dice.random((gpus, experts)) < dice.random()
        has[dice.integers(gpus, size=experts), np.arange(experts)] = True
        may, counts = (dice.random(has.shape) < 0.3) & ~has, dice.integers(0, 9, experts)
        case = Case(has, may, dice.integers(0, 3, gpus).astype(np.int32))
        every = [np.ones(experts, np.bool_), *confined(case, counts)]
        assert closed_bound(case, counts) == best_of(case, counts, every)


@pytest.mark.parametrize("solver", ["greedy", "flow", "exact"])
def test_a_limit_leaves_a_split_and_a_bound_that_hold(solver: str) -> None:
    for case in range(12):
        slots, counts = drawn(case, most=300)
        late = split(slots, counts, solver, limit_s=0)
        verdict = late.certificate().check()
        assert verdict.ok, verdict.message
        assert late.bracket.bound <= least(slots, counts) <= late.split.largest


@pytest.mark.slow
def test_a_bound_is_that_of_the_kernel() -> None:
    for case in range(40):
        slots, counts = drawn(case)
        case = Case.of(slots)
        solved = relaxed(case, counts)
        assert solved is not None
        bound = max(closed_bound(case, counts), best_of(case, counts, solved[1]))
        record = split(slots, counts, "greedy").certificate().as_dict()
        del record["assignment"], record["claim"]["value"]
        record["claim"].update(optimal=False, optimum="open")
        record["witness"] = bound.witness
        for tokens in (bound.tokens, bound.tokens + 1):
            record["claim"]["bound"] = str(tokens)
            assert kernel.check_certificate(record).ok == (tokens == bound.tokens)


def _set(*path: Any) -> Callable[[Record], None]:
    *way, key, value = path

    def change(record: Record) -> None:
        at: Any = record
        for step in way:
            at = at[step]
        at[key] = value

    return change


def cases() -> Record:
    """A certificate whose witness makes a case: GPU 2 has one slot, and two large experts."""
    slots = SpareSlots(1, 3, np.eye(3, 4, dtype=bool) | (np.eye(3, 4, 3) > 0), np.array([0, 0, 1]))
    found = split(slots, np.array([9, 9, 0, 0]), "exact")
    assert found.bracket.witness["kind"] == "cases"
    return found.certificate().as_dict()


def test_cases_are_made_where_no_set_is_enough() -> None:
    record = cases()
    assert kernel.check_certificate(record).optimal
    assert record["claim"]["bound"] == "9"


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        _set("claim", "bound", "10"),
        _set("claim", "value", "8"),
        _set("claim", "optimum", "claimed"),
        _set("problem", "spare", [0, 0, 2]),
        _set("problem", "spare", [0, 1, 1]),
        _set("problem", "spare", [0, 0]),
        _set("problem", "spare", [0, 0, -1]),
        _set("problem", "counts", [9, 9, 0]),
        _set("problem", "counts", [9, 8, 0, 0]),
        _set("problem", "counts", [9, 9, 1, 0]),
        _set("problem", "holds", [[0], [1], [2]]),
        _set("problem", "holds", [[0], [1], [2, 4]]),
        _set("problem", "holds", [[0, 1], [1], [2, 3]]),
        _set("problem", "holds", []),
        _set("problem", "node", [0, 0]),
        _set("problem", "node", [0, 1, 2]),
        _set("problem", "more", 1),
        _set("witness", "copy", [3, 2]),
        _set("witness", "copy", [0, 1]),
        _set("witness", "copy", [4, 2]),
        _set("witness", "copy", [0, 3]),
        _set("witness", "copy", [0]),
        _set("witness", "with", {"kind": "room", "experts": []}),
        _set("witness", "with", {"kind": "room", "experts": [0]}),
        _set("witness", "with", {"kind": "room", "experts": [4]}),
        _set("witness", "without", {"kind": "average"}),
        _set("witness", "without", {"kind": "room", "experts": [2, 3]}),
        _set("witness", "without", None),
        _set("witness", "kind", "room"),
        _set("witness", "more", 1),
        _set("assignment", [[0, 0, 9], [1, 1, 8]]),
        _set("assignment", [[0, 0, 9], [1, 1, 9], [2, 0, 0]]),
        _set("assignment", [[0, 0, 9], [1, 1, 8], [1, 2, 1], [0, 2, 0]]),
        _set("assignment", [[0, 0, 9], [1, 3, 9]]),
        _set("assignment", [[0, 0, 9], [1, 1]]),
        _set("assignment", []),
        _set("best", {"assignment": [[0, 0, 9], [1, 1, 9]]}),
        _set("flow", {}),
    ],
)
def test_false_certificates_are_rejected(change: Callable[[Record], None]) -> None:
    record = cases()
    change(record)
    verdict = kernel.check_certificate(record)
    assert not verdict.ok
    assert not verdict.optimal
    assert verdict.message


def test_copies_outside_their_node_are_rejected() -> None:
    slots = SpareSlots(2, 1, np.eye(2, dtype=bool), np.array([1, 1]), within_node=True)
    record = split(slots, np.array([8, 0]), "exact").certificate().as_dict()
    assert kernel.check_certificate(record).optimal
    record["assignment"], record["claim"]["value"] = [[0, 0, 4], [0, 1, 4]], "4"
    assert "no copy of 0 may lie on GPU 1" in kernel.check_certificate(record).message
    record["claim"].update(bound="4", optimal=True)
    del record["problem"]["node"]
    assert kernel.check_certificate(record).optimal


def test_a_solvers_word_is_no_proof_and_nesting_has_an_end() -> None:
    record = cases()
    record["witness"] = {"kind": "claimed", "by": "solver 1"}
    record["claim"].update(optimal=False, optimum="claimed")
    verdict = kernel.check_certificate(record)
    assert (verdict.ok, verdict.optimal, verdict.optimum) == (True, False, "claimed")
    deep: Any = {"kind": "room", "experts": [0]}
    for _ in range(5000):
        deep = {"kind": "cases", "copy": [0, 2], "with": deep, "without": deep}
    record = {**cases(), "witness": deep}
    assert not kernel.check_certificate(record).ok
    few = kernel.check_certificate(cases(), work=10)
    assert "more than 10 steps" in few.message


def test_noise_is_refused() -> None:
    """200 certificates with one value replaced: the kernel says no, or the same as before."""
    dice, text = Dice(3, "noise"), json.dumps(cases())
    noise = [None, -1, 1.5, True, "x", [], {}, 10**40, [[[]]], [None]]
    for _ in range(200):
        record = json.loads(text)
        at: Any = record
        while isinstance(at, dict | list) and len(at):
            keys = list(at) if isinstance(at, dict) else list(range(len(at)))
            key = keys[int(dice.below(len(keys))[0])]
            if not isinstance(at[key], dict | list) or dice.below(4)[0] == 0:
                at[key] = copy.deepcopy(noise[int(dice.below(len(noise))[0])])
                break
            at = at[key]
        verdict = kernel.check_certificate(record)
        assert not verdict.ok or verdict.bound <= 9


def test_certificates_are_files(tmp_path: Path) -> None:
    found = split(SpareSlots(1, 2, np.eye(2, dtype=bool), np.ones(2, int)), [5, 0])
    found.save(tmp_path / "a.json")
    assert kernel.check(tmp_path / "a.json").optimal
    read = Certificate.read(tmp_path / "a.json")
    assert (read.bound, read.optimum) == (found.bracket.bound, found.bracket.status)
    assert kernel.main([str(tmp_path / "a.json")]) == 0
    nothing = split(SpareSlots(1, 2, np.eye(2, dtype=bool), np.ones(2, int)), [0, 0], "exact")
    assert nothing.certificate().check().ok


def test_a_certificate_too_large_to_be_checked_is_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = split(*drawn(7), "flow")
    check = kernel.check_certificate
    monkeypatch.setattr(
        "railopt.evidence.certificate.check_certificate", lambda record, _: check(record, work=3)
    )
    with pytest.raises(InputError, match=r"is saved.*needs more than 3 steps; split fewer") as why:
        found.save(tmp_path / "a.json")
    assert "\n" not in str(why.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_greedy_is_never_worse_than_before() -> None:
    """Experts held twice, no spare slots or few: full GPUs can't give straight to empty ones."""
    worse = 0
    for case in range(200):
        dice = Dice(case, "held twice")
        holds = dice.unit((8, 12)) < 0.25
        holds[dice.below(8, 12), np.arange(12)] = True
        slots = SpareSlots(1, 8, holds, np.full(8, case % 2))
        counts = dice.below(100, 12)
        found = split(slots, counts, "greedy")
        assert found.split.largest <= found.before
        assert split(slots, counts, "flow").split.largest <= found.split.largest
        worse += Greedy(slots).largest(counts) > found.before
    assert worse > 0


def test_small_cases_are_solved_exactly_without_being_asked() -> None:
    slots, counts = drawn(7)
    assert split(slots, counts).solver == "exact"
    assert split(slots, counts, slack=10).solver == "flow"
    wide = SpareSlots(1, 2, np.arange(300) % 2 == np.arange(2)[:, None], np.array([1, 0]))
    assert split(wide, np.arange(300)).solver == "flow"


def test_what_is_refused() -> None:
    slots = SpareSlots(1, 2, np.eye(2, dtype=bool), np.ones(2, int))
    with pytest.raises(InputError, match="expected auto, greedy, flow, exact"):
        split(slots, [1, 2], "gredy")
    with pytest.raises(InputError, match="slack"):
        split(slots, [1, 2], slack=-1)
    for wrong in (["a", "b"], [1.5, 2.0], [1, 2, 3], None):
        with pytest.raises(InputError):
            split(slots, wrong)  # type: ignore[arg-type]
    late = split(slots, [9, 0], "exact", limit_s=0)
    assert late.split.largest == 5


def test_slack_is_for_fewer_copies() -> None:
    """By flow, too: a linear program's split is evener than need be, with more copies."""
    dice = Dice(7, "slack")
    for case in range(12):
        slots = SpareSlots(
            2,
            2,
            np.eye(4, 12, dtype=bool) | (np.arange(12) % 4 == np.arange(4)[:, None]),
            np.full(4, 2),
        )
        counts = 1 + dice.below(400, 12) * (dice.below(3, 12) == 0)
        tight, loose = (split(slots, counts, "flow", slack=slack) for slack in (0, 200))
        assert loose.split.copies.sum() <= tight.split.copies.sum(), case
        assert loose.split.largest <= max(tight.split.largest * 1.2 + 1, loose.before)


@pytest.mark.parametrize("solver", ["greedy", "flow", "exact"])
def test_no_copy_is_made_that_gains_nothing(solver: str) -> None:
    held = np.array([[1, 0, 1, 1], [0, 1, 1, 0], [1, 0, 0, 1], [0, 0, 0, 1]], bool)
    made = split(SpareSlots(2, 2, held, np.ones(4, np.int64)), [27, 12, 28, 22], solver)
    assert made.before == made.split.largest == 23
    assert made.split.copies.sum() == 0


def test_slack_never_costs_copies_at_the_same_load() -> None:
    held = np.array([[0, 0, 0, 0], [1, 0, 1, 1], [1, 1, 1, 0], [0, 1, 0, 0]], bool)
    slots, counts = SpareSlots(2, 2, held, np.ones(4, np.int64)), [19, 29, 29, 6]
    tight, loose = (split(slots, counts, "flow", slack=slack).split for slack in (0, 10))
    assert (tight.largest, loose.largest) == (21, 21)
    assert loose.copies.sum() <= tight.copies.sum() == 1
