"""Tokens that go once to a node: against a plain loop, by hand, and what is refused."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Plan, Tokens
from railopt.base.errors import InputError
from railopt.model.tokens import turned

FABRIC = Fabric.uniform(3, 4)


def random_targets(fabric: Fabric, seed: int, tokens: int = 200, top: int = 5) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    count = fabric.nodes * fabric.gpus
    return rng.integers(0, count, tokens), rng.integers(0, count, (tokens, top))


def plain(fabric: Fabric, source: Any, target: Any, dedup: str | None) -> Counter[Any]:
    """The definition, token by token."""
    found: Counter[Any] = Counter()
    for own, gpus in zip(source.tolist(), target.tolist(), strict=True):
        away = [gpu for gpu in gpus if gpu // fabric.gpus != own // fabric.gpus]
        if dedup == "node":
            for node in {gpu // fabric.gpus for gpu in away}:
                there = {gpu % fabric.gpus for gpu in away if gpu // fabric.gpus == node}
                found[own, node, frozenset(there)] += 1
        else:
            for gpu in set(away) if dedup == "gpu" else away:
                found[own, gpu // fabric.gpus, frozenset([gpu % fabric.gpus])] += 1
    return found


def rows(tokens: Tokens) -> dict[Any, int]:
    found = {
        (int(src), int(dst), frozenset(np.flatnonzero(needs).tolist())): int(number)
        for src, dst, needs, number in zip(
            tokens.src_gpu, tokens.dst, tokens.targets, tokens.number, strict=True
        )
    }
    assert len(found) == len(tokens)  # alike tokens share a row
    return found


@pytest.mark.parametrize("dedup", [None, "gpu", "node"])
@pytest.mark.parametrize("fabric", [FABRIC, Fabric.uniform(2, 1, gpus=70), Fabric.uniform(5, 1)])
def test_against_a_plain_loop(fabric: Fabric, dedup: str | None) -> None:
    for seed in range(5):
        source, target = random_targets(fabric, seed)
        made = Tokens.from_targets(fabric, source, target, token_bytes=10, dedup=dedup)
        assert rows(made) == plain(fabric, source, target, dedup)


def test_once_a_node_by_hand() -> None:
    """GPU 0 of node 0; experts on GPUs 1 (own node), 4 and 6 (node 1), 9 (node 2)."""
    made = Tokens.from_targets(FABRIC, [0, 0], [[6, 1, 9, 4], [4, 9, 6, 2]], token_bytes=100)
    assert rows(made) == {(0, 1, frozenset([0, 2])): 2, (0, 2, frozenset([1])): 2}
    assert made.chunks("flow").total == 400
    assert made.chunks("flow").targets is not None
    twice = Tokens.from_targets(FABRIC, [0], [[4, 4, 1, 1]], token_bytes=7, dedup=None)
    assert rows(twice) == {(0, 1, frozenset([0])): 2}


def test_units_are_cut_at_whole_tokens() -> None:
    made = Tokens.from_targets(FABRIC, [0] * 7, [[4]] * 7, token_bytes=100)
    assert made.chunks(350).size.tolist() == [300, 300, 100]
    assert made.chunks("100B").size.tolist() == [100] * 7
    with pytest.raises(InputError, match="smaller than a token"):
        made.chunks(99)


def test_no_token_leaves_its_node() -> None:
    made = Tokens.from_targets(FABRIC, [0, 5], [[1], [6]], token_bytes=1)
    assert len(made) == 0
    assert len(made.chunks("1MiB")) == 0


def test_the_way_back_is_the_dispatch_turned_round() -> None:
    """By hand: GPU 0 of node 0 gets sums of GPUs 0 and 2 of node 1 over rail 1, of GPU 1 there."""
    made = Tokens.from_targets(FABRIC, [0], [[4, 6]], token_bytes=7).way_back(14)
    fabric = FABRIC.degraded({(1, 1): "0.5"})
    back = turned(fabric)
    assert back.tx.tolist() == fabric.rx.tolist()
    on_rail_1 = Plan(back, made.chunks("flow"), np.array([1], np.int16))
    # partial sums of GPUs 4 and 6 to GPU 5 (the plan's passed on), the sum from GPU 1 to GPU 0
    assert (on_rail_1.passed_on, on_rail_1.staged) == (28, 14)
    assert on_rail_1.makespan == Fraction(14, 25 * 10**9)
    assert on_rail_1.moves.pairs[1].T[[0, 2], 1].tolist() == [14, 14]


@pytest.mark.parametrize(
    ("source", "target", "rest", "message"),
    [
        ([12], [[0]], {}, "source goes from 12"),
        ([0], [[-1]], {}, "target goes from -1"),
        ([0, 1], [[5]], {}, "2 sources for 1 tokens"),
        ([0], [[5]], {"dedup": "rack"}, "'rack': expected None, 'gpu' or 'node'"),
        ([0], [[5]], {"token_bytes": 0}, "token_bytes = 0"),
        ([0], [[5]], {"token_bytes": 2**62}, "less than 2\\*\\*62"),
        ([0.5], [[5]], {}, "source"),
    ],
)
def test_refused(source: Any, target: Any, rest: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Tokens.from_targets(FABRIC, source, target, **{"token_bytes": 1, **rest})


def test_rows_are_checked() -> None:
    good = Tokens(2, 2, 5, [0], [1], [3], np.array([[True, False]]))  # type: ignore[arg-type]
    assert good == Tokens.from_targets(Fabric.uniform(2, 2), [0] * 3, [[2]] * 3, token_bytes=5)
    for src, dst, number in (([0], [0], [3]), ([0], [1], [0]), ([4], [1], [1]), ([0], [2], [1])):
        with pytest.raises(InputError):
            Tokens(2, 2, 5, src, dst, number, np.array([[True, False]]))  # type: ignore[arg-type]
