"""Steps that even a packing: beside all exchanges and other copies, tried one by one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from railopt.moe.placement import improve as steps
from railopt.moe.placement.improve import FREE, RELIEF, improve
from railopt.moe.placement.placement import slot_gpus

EXPERTS, GPUS, SLOTS = 9, 4, 14
OWNER = slot_gpus(SLOTS, GPUS)


def drawn(seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(slots, loads, what was held before): every expert somewhere, none twice on a GPU."""
    rng = np.random.default_rng(seed)
    while True:
        slots = rng.permutation([*range(EXPERTS), *rng.integers(0, EXPERTS, SLOTS - EXPERTS)])
        if not twins(slots):
            break
    before = held(slots) if seed % 2 else rng.random((EXPERTS, GPUS)) < 0.4
    return slots.astype(np.int32), rng.pareto(1.2, EXPERTS) + 0.1, before


def held(slots: np.ndarray) -> np.ndarray:
    found = np.zeros((EXPERTS, GPUS), bool)
    found[slots, OWNER] = True
    return found


def twins(slots: np.ndarray) -> bool:
    return len({*zip(slots.tolist(), OWNER.tolist(), strict=True)}) < SLOTS


def totals(slots: np.ndarray, load: np.ndarray) -> np.ndarray:
    share = load / np.bincount(slots, minlength=EXPERTS)
    return np.bincount(OWNER, weights=share[slots], minlength=GPUS)


def moves(slots: np.ndarray, before: np.ndarray) -> int:
    return int((~before[slots, OWNER]).sum())


def neighbours(slots: np.ndarray) -> Iterator[np.ndarray]:
    """Every map that one exchange or one other copy makes."""
    for s in range(SLOTS):
        for t in range(s):
            other = slots.copy()
            other[s], other[t] = slots[t], slots[s]
            yield other
        for expert in range(EXPERTS):
            other = slots.copy()
            other[s] = expert
            yield other


def best_worth(slots: np.ndarray, load: np.ndarray, before: np.ndarray) -> float:
    """The largest relief of the fullest GPU per move, looking at everything."""
    start, top, best = totals(slots, load), int(np.argmax(totals(slots, load))), 0.0
    for other in neighbours(slots):
        if twins(other) or len(set(other.tolist())) < EXPERTS:
            continue
        after = totals(other, load)
        changed = np.abs(after - start) > 1e-12
        changed[top] = True
        relief = start[top] - after[changed].max()
        more = moves(other, before) - moves(slots, before)
        if relief > RELIEF * start[top]:
            best = max(best, relief / max(more, FREE))
    return best


def step(slots: np.ndarray, load: np.ndarray, before: np.ndarray, goal: float, budget: int) -> int:
    """`improve` of one row."""
    aim = np.array([goal]), np.array([budget])
    return int(improve(slots[None], OWNER, load[None], before[None], *aim)[0])


@pytest.mark.parametrize("seed", range(12))
def test_a_step_is_the_best_of_all(seed: int) -> None:
    slots, load, before = drawn(seed)
    start, best = totals(slots, load), best_worth(slots, load, before)
    made = slots.copy()
    # a goal just below the fullest GPU ends the walk after the first step that relieves it
    step(made, load, before, float(start.max() * (1 - RELIEF / 2)), 100)
    if best == 0:
        np.testing.assert_array_equal(made, slots)
        return
    top, after = int(np.argmax(start)), totals(made, load)
    changed = np.abs(after - start) > 1e-12
    changed[top] = True
    more = moves(made, before) - moves(slots, before)
    assert (start[top] - after[changed].max()) / max(more, FREE) == pytest.approx(best)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("budget", [0, 1, 3, 100])
def test_the_peak_falls_within_the_budget(seed: int, budget: int) -> None:
    slots, load, before = drawn(seed)
    made = slots.copy()
    used = step(made, load, before, 0.0, budget)
    assert used == moves(made, before) - moves(slots, before) <= budget
    assert totals(made, load).max() <= totals(slots, load).max() * (1 + 1e-12)
    assert not twins(made)
    assert set(made.tolist()) == set(range(EXPERTS))
    if budget == 100:
        assert best_worth(made, load, before) == 0, "nothing is left to do"


def test_a_goal_that_is_met_changes_nothing() -> None:
    slots, load, before = drawn(1)
    made = slots.copy()
    assert step(made, load, before, float(totals(slots, load).max()), 100) == 0
    np.testing.assert_array_equal(made, slots)


@pytest.mark.parametrize("seed", range(6))
def test_experts_of_other_nodes_stay_away(seed: int) -> None:
    """They have no load here, and no slot: to hold one would relieve a GPU."""
    slots, load, before = drawn(seed)
    load, before = np.append(load, 0.0), np.append(before, np.zeros((1, GPUS), bool), axis=0)
    made = slots.copy()
    step(made, load, before, 0.0, 100)
    assert set(made.tolist()) == set(range(EXPERTS))


@pytest.mark.parametrize("seed", range(12))
def test_loops_find_what_numpy_finds(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole loads too, of which many are equal: the first of equal steps is taken."""
    slots, load, before = drawn(seed)
    load = load if seed % 3 else np.ceil(load)
    made, again = slots.copy(), slots.copy()
    loops = {name: getattr(steps, name).plain for name in ("_summed", "_exchange", "_other_copy")}
    for name in ("_advance", "_exchanges", "_other_copies"):
        monkeypatch.setattr(steps, name, getattr(steps, name).plain)
    step(made, load, before, 0.0, 5)
    for name, plain in loops.items():
        monkeypatch.setattr(steps, name, plain)
    step(again, load, before, 0.0, 5)
    np.testing.assert_array_equal(made, again)


def test_rows_do_not_touch_each_other() -> None:
    drawings = [drawn(seed) for seed in range(9)]
    slots, loads, before = (np.stack(part) for part in zip(*drawings, strict=True))
    goals = np.linspace(0.0, 0.5, 9) * loads.sum(axis=1)
    budgets = np.arange(9)
    alone = slots.copy()
    used = [
        step(row, load, was, goal, budget)
        for row, load, was, goal, budget in zip(
            alone, loads, before, goals.tolist(), budgets.tolist(), strict=True
        )
    ]
    assert improve(slots, OWNER, loads, before, goals, budgets).tolist() == used
    np.testing.assert_array_equal(slots, alone)
