"""What goes once to a node, from traces and from plain choices; ranks with different batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.moe.placement.placement import Placement
from railopt.moe.routing.dispatch import dispatch
from railopt.moe.routing.once import tokens_of_choices
from railopt.moe.routing.trace import Trace

NODES, GPUS, EXPERTS = 3, 2, 12
PLACEMENT = Placement.contiguous(2, EXPERTS, NODES, GPUS)


def ragged(seed: int = 0) -> Trace:
    """Six ranks with 1 to 6 tokens; rows of -1 where a rank has no more."""
    rng = np.random.default_rng(seed)
    choices = rng.integers(0, EXPERTS, (1, 2, 6, 6, 3))
    for rank in range(6):
        choices[:, :, rank, rank + 1 :] = -1
    return Trace.from_choices(choices, EXPERTS)


def test_a_trace_of_ragged_ranks() -> None:
    trace = ragged()
    assert trace.counts.sum(axis=(1, 3)).tolist() == [[6 * n for n in range(1, 7)]]
    rank, chosen = trace.tokens(0, 1)
    assert np.bincount(rank).tolist() == [1, 2, 3, 4, 5, 6]
    assert chosen.min() >= 0
    made = tokens_of_choices(chosen, PLACEMENT, 1, token_bytes=10, rank=rank)
    counts = [1, 2, 3, 4, 5, 6]
    assert made == tokens_of_choices(chosen, PLACEMENT, 1, token_bytes=10, counts=counts)


def test_a_ragged_trace_is_read_as_it_was_written(tmp_path: Path) -> None:
    trace = ragged()
    trace.save(tmp_path / "trace.npz")
    read = Trace.read(tmp_path / "trace.npz")
    np.testing.assert_array_equal(read.choices, trace.choices)
    merged = read.merged(3)
    assert np.bincount(merged.tokens(0, 0)[0]).tolist() == [3, 7, 11]


@pytest.mark.parametrize("seed", range(5))
def test_bytes_between_gpus_are_those_of_the_dispatch(seed: int) -> None:
    """Once for each expert, summed over pairs; experts with copies, every rule."""
    holds = np.random.default_rng(seed).random((2, NODES * GPUS, EXPERTS)) < 0.3
    copied = Placement.from_home(PLACEMENT.home, NODES, GPUS, holds)
    for rule in ("home", "near", "even"):
        for placement in (PLACEMENT, copied):
            kinds: dict[str, Any] = {"token_bytes": 3, "rule": rule}
            rank, chosen = ragged(seed).tokens(0, 0)
            made = tokens_of_choices(chosen, placement, rank=rank, dedup=None, **kinds)
            matrix = np.zeros((NODES * GPUS,) * 2, np.int64)
            target = made.dst * GPUS + made.targets.argmax(axis=1)
            np.add.at(matrix, (made.src_gpu, target), made.number * 3)
            expected = dispatch(ragged(seed), placement, -1, 0, **kinds).bytes.copy()
            node = np.arange(NODES * GPUS) // GPUS
            expected[node[:, None] == node] = 0
            np.testing.assert_array_equal(matrix.sum(axis=1), expected.sum(axis=1))
            if placement is PLACEMENT:
                np.testing.assert_array_equal(matrix, expected)


def test_counts_that_contradict_the_choices() -> None:
    chosen = ragged().tokens(0, 0)[1]
    for wrong, message in (
        ({}, "expected rank or counts"),
        ({"counts": [1, 2, 3, 4, 5, 7]}, "22 tokens in all"),
        ({"counts": [21]}, "counts of 1 ranks"),
        ({"counts": [-1, 4, 3, 4, 5, 6]}, "counts of at least 0"),
        ({"rank": [0] * 20}, "ranks of 20 tokens"),
        ({"rank": [6] * 21}, "ranks from 6 to 6"),
        ({"rank": [0] * 21, "counts": [1, 2, 3, 4, 5, 6]}, "expected rank or counts"),
    ):
        with pytest.raises(InputError, match=message):
            tokens_of_choices(chosen, PLACEMENT, token_bytes=1, **wrong)  # type: ignore[arg-type]


def test_other_refusals() -> None:
    good: dict[str, Any] = {"token_bytes": 1, "counts": [1, 0, 0, 0, 0, 0]}
    for chosen, column, rest, message in (
        ([[12]], 0, {}, "expected experts 0 to 11"),
        ([[-1]], 0, {}, "chosen goes from -1"),
        ([[0]], 2, {}, "layer 2 of a placement of 2"),
        ([[0]], 0, {"rule": "far"}, "unknown rule"),
        ([[0]], 0, {"dedup": "rack"}, "unknown de-duplication"),
    ):
        with pytest.raises(InputError, match=message):
            tokens_of_choices(chosen, PLACEMENT, column, **{**good, **rest})


def test_padding_is_whole_rows() -> None:
    choices = np.zeros((1, 1, 2, 2, 2), np.int16)
    choices[0, 0, 1, 1, 0] = -1
    with pytest.raises(InputError, match=r"choices\[0, 0, 1, 1\] = \[-1, 0\]"):
        Trace.from_choices(choices, 4)
    choices[0, 0, 1, 1, 0] = -2
    with pytest.raises(InputError, match="choices go from -2"):
        Trace.from_choices(choices, 4)
