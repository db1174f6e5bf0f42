"""Copies in batches: in a batch a rank sends at most one copy and receives at most one.

No fewer batches do than the most that a rank sends or receives; colouring the edges of the graph
(sender, receiver) needs no more (Koenig).

`first_fit` is the rule of vLLM's `schedule_migration_batches`: copies of one pair of ranks travel
together, in the first batch that uses neither of them in either direction.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import MUCH, Array, Int32s, Ints, whole_number
from railopt.base.errors import InputError, say
from railopt.base.kernels import kernel
from railopt.base.units import INT64_MAX
from railopt.moe.migration.copies import MAX_RANKS, checked_maps, needed_copies
from railopt.moe.migration.holders import least_busy_ranks
from railopt.policies.colouring import alternate


def busiest(from_rank: Array, to_rank: Array) -> int:
    """The most copies that a rank sends or receives."""
    sides = (np.bincount(side).max(initial=0) for side in (from_rank, to_rank))
    return int(max(sides))


def coloured(from_rank: Array, to_rank: Array, ranks: int) -> Ints:
    """int64 [C]: the batch of each copy, as few batches as `busiest`."""
    edges = from_rank.astype(np.int64), to_rank.astype(np.int64)
    number = busiest(*edges)
    if (taken := 16 * ranks * number) > MUCH:
        say(f"{number} batches of {ranks} ranks take {taken / 1e9:.1f} GB of memory")
    found: Ints = _coloured(*edges, ranks, number)
    return found


@kernel
def _coloured(left: Array, right: Array, ranks: int, colours: int) -> Array:
    result, edges = np.zeros(left.size, np.int64), np.empty(left.size, np.int64)
    for i in range(left.size):
        edges[i] = i
    alternate(edges, left, right, ranks, ranks, np.int64(0), colours, result)
    return result


def first_fit(from_rank: Array, to_rank: Array) -> Ints:
    """int64 [C]: the batch of each copy by vLLM's rule, pairs in the order of their first copy."""
    used: list[set[int]] = []
    batch_of: dict[tuple[int, int], int] = {}
    result = np.zeros(len(from_rank), np.int64)
    for copy, pair in enumerate(zip(from_rank.tolist(), to_rank.tolist(), strict=True)):
        if pair not in batch_of:
            free = (b for b, ends in enumerate(used) if ends.isdisjoint(pair))
            batch = next(free, len(used))
            if batch == len(used):
                used.append(set())
            used[batch].update(pair)
            batch_of[pair] = batch
        result[copy] = batch_of[pair]
    return result


class MigrationFlow(NamedTuple):
    """Experts that a rank sends to another in a batch, with the names that vLLM gives them."""

    src_rank: int
    dst_rank: int
    expert_ids: tuple[int, ...]


def schedule_migration_batches(
    num_local_experts: int, old_indices: npt.ArrayLike, new_indices: npt.ArrayLike
) -> list[list[MigrationFlow]]:
    """Batches for one layer, in the shape of vLLM's function: maps int [slots], slots in rank
    order, `num_local_experts` on each rank.

    The copies are those of vLLM's function.  Holders are chosen so that the busiest rank sends
    least, and a rank may send one copy and receive another at once.  vLLM lands what arrives in
    buffers of the layer, so nothing is overwritten before it was read.
    """
    local = whole_number(num_local_experts, "num_local_experts", 1, INT64_MAX)
    row: list[Any] = [old_indices, new_indices]
    maps = checked_maps(row[:1], row[1:], 1)
    ranks, rest = divmod(maps[0].size, local)
    if rest or ranks > MAX_RANKS:
        raise InputError(
            f"{maps[0].size} slots: expected {local} on each rank, at most {MAX_RANKS} ranks"
        )
    copies, _ = needed_copies(*maps, ranks)
    chosen = least_busy_ranks(copies, ranks)
    batch = coloured(chosen, copies.to_rank, ranks)
    flows: list[list[MigrationFlow]] = [[] for _ in range(busiest(chosen, copies.to_rank))]
    for place, src, dst, expert in zip(
        batch.tolist(),
        chosen.tolist(),
        copies.to_rank.tolist(),
        copies.expert.tolist(),
        strict=True,
    ):
        flows[place].append(MigrationFlow(src, dst, (expert,)))
    return flows


def by_layer(layer: Int32s, from_rank: Array, to_rank: Array, ranks: int | None) -> Ints:
    """int64 [C]: batches of one layer after the other, coloured on `ranks`, or None: first fit."""
    result, first = np.zeros(len(layer), np.int64), 0
    for each in np.unique(layer):
        mine = np.flatnonzero(layer == each)
        edges = from_rank[mine], to_rank[mine]
        found = first_fit(*edges) if ranks is None else coloured(*edges, ranks)
        result[mine] = first + found
        first += int(found.max()) + 1
    return result
