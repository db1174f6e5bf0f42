"""Counts of units split evenly among colours."""

from __future__ import annotations

import numpy as np
import pytest

from railopt.policies.colouring import split_counts


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (70, 2), (2, 130), (66, 66)])
@pytest.mark.parametrize("colours", [2, 8, 12])
def test_counts_are_split_evenly_at_every_node(shape: tuple[int, int], colours: int) -> None:
    counts = np.random.default_rng(colours).integers(0, colours, shape).astype(np.int32)
    parts = split_counts(counts, colours)
    assert np.array_equal(parts.sum(axis=0), counts)
    for axis in (1, 2):
        loads, degree = parts.sum(axis=axis), counts.sum(axis=axis - 1)
        assert (loads >= degree // colours).all()
        assert (loads <= -(-degree // colours)).all()
