"""Random numbers of kernels: even, permutations, and far apart for near seeds."""

from __future__ import annotations

import numpy as np

from railopt.base.draws import below, seeded, shuffle


def test_numbers_are_spread_evenly() -> None:
    draws = seeded(3)
    counts = np.bincount([below(draws, 6) for _ in range(6000)], minlength=6)
    assert counts.size == 6
    assert np.abs(counts - 1000).max() < 150


def test_near_seeds_give_other_numbers() -> None:
    firsts = [below(seeded(seed), 1 << 20) for seed in range(200)]
    assert len(set(firsts)) > 190
    assert abs(np.mean(firsts) / (1 << 20) - 0.5) < 0.1


def test_a_shuffle_is_a_permutation_of_the_first_items() -> None:
    items = np.arange(20)
    shuffle(seeded(1), items, 15)
    assert sorted(items[:15]) == list(range(15))
    assert items[:15].tolist() != list(range(15))
    assert items[15:].tolist() == list(range(15, 20))
