"""Trace + placement -> traffic, against loops over single tokens."""

from __future__ import annotations

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.moe.placement.placement import Placement
from railopt.moe.routing.dispatch import combine, dispatch, flows, split
from railopt.moe.routing.trace import Trace

NODES, GPUS, EXPERTS, TOP_K = 2, 2, 6, 3


def example(seed: int = 0, tokens: int = 7) -> tuple[Trace, Placement]:
    rng = np.random.default_rng(seed)
    ids = np.array(
        [
            [
                [
                    [rng.permutation(EXPERTS)[:TOP_K] for _ in range(tokens)]
                    for _ in range(NODES * GPUS)
                ]
            ]
            for _ in range(2)
        ]
    )
    trace = Trace.from_choices(
        ids, EXPERTS, iterations=np.array([3, 4]), layers=np.array([5], np.int32)
    )
    holds = rng.random((1, NODES * GPUS, EXPERTS)) < 0.3
    return trace, Placement.from_home(
        rng.integers(0, NODES * GPUS, (1, EXPERTS)), NODES, GPUS, holds
    )


def home_rule(source: int, expert: int, placed: Placement) -> int:
    if placed.holds[0, source, expert]:
        return source
    home, node = int(placed.home[0, expert]), source // GPUS
    if home // GPUS == node:
        return home
    return next(
        (d for d in range(node * GPUS, (node + 1) * GPUS) if placed.holds[0, d, expert]), home
    )


def test_the_home_rule_matches_a_loop() -> None:
    for seed in range(5):
        trace, placed = example(seed)
        shares = split(trace.counts[0, 0], placed.holds[0], placed.home[0], GPUS, "home")
        expected = np.zeros_like(shares)
        for source, expert in np.ndindex(NODES * GPUS, EXPERTS):
            expected[source, expert, home_rule(source, expert, placed)] = trace.counts[
                0, 0, source, expert
            ]
        np.testing.assert_array_equal(shares, expected)


@pytest.mark.parametrize("rule", ["home", "near", "even"])
def test_every_rule_sends_every_token_once_to_a_holder(rule: str) -> None:
    trace, placed = example(3)
    shares = split(trace.counts[1, 0], placed.holds[0], placed.home[0], GPUS, rule)
    np.testing.assert_array_equal(shares.sum(axis=2), trace.counts[1, 0])
    summed = flows(trace.counts[1, 0], placed.holds[0], placed.home[0], GPUS, rule)
    np.testing.assert_array_equal(summed, shares.sum(axis=1))
    assert not shares[:, ~placed.holds[0].T].any()


def test_even_shares_differ_by_one_token_at_most() -> None:
    counts = np.array([[10, 0], [7, 1]])
    holds = np.array([[True, True], [True, False]])
    shares = split(counts, holds, np.array([0, 0]), 2, "even")
    assert shares[0, 0].tolist() == [5, 5]
    assert sorted(shares[1, 0].tolist()) == [3, 4]
    near = split(counts, holds, np.array([0, 0]), 2, "near")
    assert near[1, 0].tolist() == [0, 7]


def test_dispatch_and_its_way_back() -> None:
    trace, placed = example(1)
    sent = dispatch(trace, placed, 4, 5, token_bytes=8)
    expected = np.zeros((4, 4), np.int64)
    for source, expert in np.ndindex(4, EXPERTS):
        expected[source, home_rule(source, expert, placed)] += (
            8 * trace.counts[1, 0, source, expert]
        )
    np.fill_diagonal(expected, 0)
    np.testing.assert_array_equal(sent.bytes, expected)
    np.testing.assert_array_equal(combine(sent).bytes, expected.T)


def test_bad_requests_say_why() -> None:
    trace, placed = example()
    with pytest.raises(InputError, match="layer 0 is not in the trace"):
        dispatch(trace, placed, 3, 0, token_bytes=1)
    with pytest.raises(InputError, match="iteration 9 was not recorded"):
        dispatch(trace, placed, 9, 5, token_bytes=1)
    with pytest.raises(InputError, match="unknown rule"):
        dispatch(trace, placed, 3, 5, token_bytes=1, rule="nearest")
    with pytest.raises(InputError, match="for 6 experts, expected 8"):
        dispatch(trace, Placement.contiguous(1, 8, 2, 2), 3, 5, token_bytes=1)
    with pytest.raises(InputError, match="for 4 source ranks, expected 8"):
        dispatch(trace, Placement.contiguous(1, 6, 2, 4), 3, 5, token_bytes=1)
