"""Tensors of PyTorch where a sender or a planner takes memory and rows."""

from __future__ import annotations

import pytest
import torch

from railopt import Fabric, Planner
from railopt.base.errors import InputError
from railopt.policies.planner import planned_by
from railopt.runtime.payload.memory import memory_of

FABRIC = Fabric.uniform(2, 2)


def test_rows_and_memory_of_tensors() -> None:
    rows = torch.tensor([[0, 0, 300, 500], [0, 0, 100, 700], [40, 50, 0, 0], [60, 70, 0, 0]])
    for kind in (torch.int64, torch.int32):
        plan = planned_by(Planner(FABRIC, None, 64, "lpt"), rows.to(kind))
        assert plan.send.tolist() == [[800, 800], [110, 110]]
    memory = memory_of(rows, writable=True)
    assert (memory.address, memory.length) == (rows.data_ptr(), rows.numel() * 8)


def test_what_is_no_row() -> None:
    planner = Planner(FABRIC, 0, 64, "lpt")
    with pytest.raises(InputError, match="row is float32"):
        planner.plan(torch.ones(2, 4))
    with pytest.raises(InputError, match="row is complex64"):
        planner.plan(torch.ones(2, 4, dtype=torch.complex64).conj())
    with pytest.raises(InputError, match="not a 2-dimensional array of integers"):
        planner.plan(torch.ones(2, 4, dtype=torch.int64, device="meta"))


def test_rows_that_stand_for_negatives() -> None:
    planner = Planner(FABRIC, 0, 64, "lpt")
    row = torch.tensor([[0, 0, 300, 500], [0, 0, 100, 700]])
    assert planner.plan(torch._neg_view(-row)).size.sum() == 1600
