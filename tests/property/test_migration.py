"""Holders and batches against brute force on small maps."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from railopt.moe.migration.batches import busiest, coloured
from railopt.moe.migration.copies import NeededCopies, needed_copies
from railopt.moe.migration.holders import by_position, least_busy, least_busy_ranks

RANKS, SIZE = 4, 2


@st.composite
def copies_of_small_maps(draw: st.DrawFn) -> NeededCopies:
    """Copies between two maps of four ranks with two slots each, every expert somewhere."""
    experts = draw(st.integers(2, 5))
    row = st.permutations([e % experts for e in range(RANKS * SIZE)])
    maps = [np.array(draw(st.lists(row, min_size=1, max_size=1)), np.int32) for _ in range(2)]
    return needed_copies(*maps, RANKS)[0]


def busiest_node(
    copies: NeededCopies, chosen: tuple[int, ...], rates: list[int]
) -> Fraction | None:
    """The largest of sends / rate; None where a node without a rate sends."""
    node = RANKS // len(rates)
    sends = [0] * len(rates)
    for rank, to_rank in zip(chosen, copies.to_rank.tolist(), strict=True):
        sends[rank // node] += rank // node != to_rank // node
    if any(n and not rate for n, rate in zip(sends, rates, strict=True)):
        return None
    return max(
        Fraction(n, rate) if rate else Fraction(0) for n, rate in zip(sends, rates, strict=True)
    )


@given(copies_of_small_maps(), st.sampled_from([[1, 1], [2, 3], [1, 1, 1, 1], [3, 1, 2, 2]]))
def test_no_other_holders_keep_the_busiest_node_less_busy(
    copies: NeededCopies, rates: list[int]
) -> None:
    made = least_busy(copies, RANKS, rates)
    every = [busiest_node(copies, chosen, rates) for chosen in product(*copies.holders)]
    best = min(time for time in every if time is not None)
    assert made.time == busiest_node(copies, tuple(made.from_rank.tolist()), rates) == best
    theirs = busiest_node(copies, tuple(by_position(copies).tolist()), rates)
    assert theirs is not None
    assert theirs >= best


@given(copies_of_small_maps())
def test_among_these_no_others_have_a_busiest_rank_that_sends_less(copies: NeededCopies) -> None:
    rates = [1] * RANKS  # every rank a node: the busiest node is the busiest rank
    made = least_busy(copies, RANKS, rates).from_rank
    most = min(
        max(np.bincount(chosen, minlength=RANKS)) if chosen else 0
        for chosen in product(*copies.holders)
    )
    assert np.bincount(made, minlength=RANKS).max(initial=0) == most
    for others in (least_busy(copies, RANKS, [1]).from_rank, least_busy_ranks(copies, RANKS)):
        assert np.bincount(others, minlength=RANKS).max(initial=0) == most


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=40))
def test_batches_are_as_few_as_the_busiest_rank_s_copies(pairs: list[tuple[int, int]]) -> None:
    edges = np.array(pairs, np.int64).reshape(-1, 2)
    batch = coloured(edges[:, 0], edges[:, 1], 6)
    assert len(set(batch.tolist())) <= busiest(edges[:, 0], edges[:, 1])
    assert batch.max(initial=-1) < busiest(edges[:, 0], edges[:, 1]) or not pairs
    for side in (0, 1):
        ends = list(zip(batch.tolist(), edges[:, side].tolist(), strict=True))
        assert len(set(ends)) == len(ends)
