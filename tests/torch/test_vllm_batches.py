"""Batches of a migration beside vLLM's own scheduler, where its file is (`make test-vllm`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from railopt.base.arrays import Int32s
from railopt.moe.migration.batches import busiest, first_fit, schedule_migration_batches
from railopt.moe.migration.copies import needed_copies
from railopt.moe.migration.holders import by_position

RANKS, LOCAL = 8, 6


def drawn(seed: int) -> tuple[Int32s, Int32s]:
    """Two maps of 20 experts in 48 slots, some of them twice on a rank, some slots empty."""
    rng = np.random.default_rng(seed)
    rows = [np.append(np.arange(20), rng.integers(0, 20, 28)) for _ in range(2)]
    rows[1][rng.integers(20, 48, 2)] = -1  # every expert keeps a slot
    old, new = (rng.permutation(row).astype(np.int32) for row in rows)
    return old, new


@pytest.mark.parametrize("seed", range(20))
def test_their_rule_is_ours_of_the_same_name(seed: int) -> None:
    theirs: Any = pytest.importorskip("vllm.distributed.eplb.migration_scheduler")
    old, new = drawn(seed)
    found = {
        (flow.src_rank, flow.dst_rank, expert): place
        for place, batch in enumerate(theirs.schedule_migration_batches(LOCAL, old, new))
        for flow in batch
        for expert in flow.expert_ids
    }
    copies, _ = needed_copies(old[None], new[None], RANKS)
    chosen = by_position(copies)
    batch = first_fit(chosen, copies.to_rank)
    ends = zip(chosen.tolist(), copies.to_rank.tolist(), copies.expert.tolist(), strict=True)
    assert dict(zip(ends, batch.tolist(), strict=True)) == found


@pytest.mark.parametrize("seed", range(20))
def test_ours_has_their_copies_in_no_more_time(seed: int) -> None:
    theirs: Any = pytest.importorskip("vllm.distributed.eplb.migration_scheduler")
    old, new = drawn(seed)
    plans = (
        theirs.schedule_migration_batches(LOCAL, old, new),
        schedule_migration_batches(LOCAL, old, new),
    )
    copies = [
        sorted(
            (expert, flow.dst_rank)
            for batch in plan
            for flow in batch
            for expert in flow.expert_ids
        )
        for plan in plans
    ]
    assert copies[0] == copies[1]
    other, mine = (
        sum(max(len(flow.expert_ids) for flow in batch) for batch in plan) for plan in plans
    )
    ends = [(flow.src_rank, flow.dst_rank) for batch in plans[1] for flow in batch]
    assert mine == busiest(*np.array(ends).T) <= other
    assert plans[1][0][0]._fields == tuple(theirs.MigrationFlow.__slots__)
