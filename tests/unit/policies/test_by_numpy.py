"""What Python runs instead of a kernel's loops, on whole arrays or lists, gives the same."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import numpy as np
import pytest

from railopt.policies import (
    by_size,
    colouring,
    excess,
    rounds,
    spilling,
)
from railopt.policies.by_size import WordLayout
from railopt.policies.common import Columns, Costs


class Case:
    """Chunks of few sizes between nodes, some of whose NICs are dead, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.nodes, self.rails, self.gpus = rng.integers(1, 6, 3).tolist()
        count = int(rng.integers(1, 60))
        self.src, self.dst = rng.integers(0, self.nodes, (2, count)).astype(np.int32)
        self.gpu = rng.integers(0, self.gpus, count).astype(np.int32)
        self.size = rng.choice([1, 5, 5, 8, 8, 8], count).astype(np.int64)
        self.empty = np.full(count, -7, np.int16)
        self.rows = rng.permutation(count)[: int(rng.integers(1, count + 1))]
        self.rail = rng.integers(0, self.rails, count).astype(np.int16)
        self.near = rng.random((self.gpus, self.rails)) < 0.5
        self.needed = rng.random((count, self.gpus)) < 0.4
        self.tx, self.rx = rng.integers(0, 4, (2, self.nodes, self.rails))
        self.tx[:, 0] = self.rx[:, 0] = 1
        self.chunks = Columns(self.src, self.dst, self.size, int(self.size.max()), 10**6)
        self.largest = rounds.largest_of_each.plain(self.src, self.size, self.nodes)
        self.units = spilling.SpillUnits(
            self.src, self.dst, self.size, np.full((count, self.rails), -7, np.int16)
        )

    def layout(self, ends: int, grouped: bool) -> WordLayout:
        return WordLayout.of(self.chunks, self.nodes, ends, grouped)


def even(case: Case) -> tuple[Any, ...]:
    first = 3 * case.gpus
    gpu, pairs = first + case.src * case.gpus + case.gpu, case.nodes**2
    pair = case.src * case.nodes + case.dst
    rows = excess.Rows(case.src, gpu, case.dst, case.size, first, pair, pairs)
    shares = excess.Shares(case.tx, case.rx)
    return rows, shares, excess.near_lists(case.near), case.empty


def split(case: Case) -> tuple[Any, ...]:
    return np.arange(len(case.src)), case.src, case.dst, case.nodes, case.nodes


def begun(case: Case) -> tuple[Any, ...]:
    hosts = spilling.hosts_of(case.near)
    inside = spilling.UnitPlaces(case.needed, case.gpu, case.near, hosts)
    return case.units, Costs(case.tx, case.rx), inside, case.empty


def started(case: Case) -> tuple[Any, ...]:
    return case.chunks, case.largest, case.nodes, np.arange(case.rails)[::-1].copy(), case.empty


def earliest(case: Case) -> tuple[Any, ...]:
    layout = case.layout(2, False)
    words = by_size.largest_in_front.plain(case.chunks, layout)
    return words, layout, (case.rails - 1).bit_length(), case.nodes, case.rails, case.empty


LOOPS: dict[str, tuple[Any, Callable[[Case], tuple[Any, ...]]]] = {
    "all words": (
        by_size.sorted_words,
        lambda case: (case.chunks, None, case.layout(0, True), -1),
    ),
    "words of rows": (
        by_size.sorted_words,
        lambda case: (case.chunks, case.rows, case.layout(1, True), -1),
    ),
    "largest in front": (
        by_size.largest_in_front,
        lambda case: (case.chunks, case.layout(2, False)),
    ),
    "earliest at both ends": (
        by_size.earliest_at_both,
        earliest,
    ),
    "largest in turn": (
        by_size.largest_in_turn,
        lambda case: (case.chunks, case.nodes, case.rails, case.empty),
    ),
    "largest of each sender": (
        rounds.largest_of_each,
        lambda case: (case.src, case.size, case.nodes),
    ),
    "blocks": (
        colouring.vertex_blocks,
        lambda case: (case.src, case.rows, case.nodes, case.rails),
    ),
    "euler split": (colouring.euler_split, split),
    "move excess": (excess._move_excess, even),
    "begin": (spilling.begin, begun),
    "times": (
        spilling.times,
        lambda case: (case.units, Costs(case.tx, case.rx), case.rail),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", LOOPS)
def test_python_does_what_the_loops_do(name: str) -> None:
    loop, arguments = LOOPS[name]
    fast = getattr(loop, "numpy", loop)  # a part is its own
    assert fast is not loop.plain
    for seed in range(30):
        given = arguments(Case(seed))
        ours, theirs = deepcopy(given), deepcopy(given)
        np.testing.assert_equal((fast(*ours), ours), (loop.plain(*theirs), theirs), f"seed {seed}")


def test_whole_rounds_by_numpy() -> None:
    """What stands behind a pair's unfinished round is not written."""
    for seed in range(30):
        ours, theirs = (started(Case(seed)) for _ in range(2))
        turn, places, others = rounds.whole_rounds.numpy(*ours)
        expected = rounds.whole_rounds.plain(*theirs)
        filled = np.arange(places.shape[2]) < turn[:, :, None]
        np.testing.assert_equal((turn, others), (expected[0], expected[2]))
        np.testing.assert_equal(places[filled], expected[1][filled])
        np.testing.assert_equal(ours[-1], theirs[-1])
