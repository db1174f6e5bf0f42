"""What a new map needs that an old one does not have: copies that travel, and copies inside a GPU.

A map is int [layers, slots], the expert of each slot, -1 for none, slots in rank order, as many on
each rank.  A rank that lacks an expert gets one copy of it, however many of its slots want it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Int32s, whole_number
from railopt.base.errors import InputError
from railopt.moe.placement.placement import checked_map

MAX_RANKS = 1 << 12


class NeededCopies(NamedTuple):
    """Copies that travel between ranks, in the order of layer, expert and rank.

    layer, expert, to_rank  int32 [C]
    to_slots                of each, the slots that want it, counted over all ranks
    holders                 of each, the ranks that have it in the old map, ascending
    """

    layer: Int32s
    expert: Int32s
    to_rank: Int32s
    to_slots: list[list[int]]
    holders: list[list[int]]


class LocalCopy(NamedTuple):
    """A copy from a slot to others of the same rank."""

    layer: int
    expert: int
    rank: int
    from_slot: int
    to_slots: list[int]


def checked_maps(old: npt.ArrayLike, new: npt.ArrayLike, ranks: int) -> tuple[Int32s, Int32s]:
    """Both maps as int32 [layers, slots], or one sentence why they are none."""
    whole_number(ranks, "ranks", 1, MAX_RANKS)
    before = checked_map(old, ranks, name="the old map")
    after = checked_map(new, ranks, name="the new map")
    if before.shape != after.shape:
        raise InputError(
            f"an old map of {before.shape} and a new one of {after.shape} [layers, slots]: "
            f"expected the same slots"
        )
    return before, after


def needed_copies(old: Int32s, new: Int32s, ranks: int) -> tuple[NeededCopies, list[LocalCopy]]:
    """The copies from checked maps old to new."""
    size = old.shape[1] // ranks
    columns: list[tuple[int, int, int]] = []
    slots: list[list[int]] = []
    holders: list[list[int]] = []
    local: list[LocalCopy] = []
    for layer, (before, after) in enumerate(zip(old.tolist(), new.tolist(), strict=True)):
        held, wants = _slots_of(before, size), _slots_of(after, size)
        _need_supply(layer, set(held), set(wants))
        for expert, wanted in sorted(wants.items()):
            for rank, places in wanted.items():
                changed = [slot for slot in places if before[slot] != expert]
                if not changed:
                    continue
                if rank in held[expert]:
                    source = kept_slot(held[expert][rank], after, expert)
                    local.append(LocalCopy(layer, expert, rank, source, changed))
                    continue
                columns.append((layer, expert, rank))
                slots.append(changed)
                holders.append(sorted(held[expert]))
    table = np.array(columns, np.int32).reshape(-1, 3)
    return NeededCopies(table[:, 0], table[:, 1], table[:, 2], slots, holders), local


def _need_supply(layer: int, held: set[int], wanted: set[int]) -> None:
    """Every expert is in a slot before and after."""
    for expert in sorted(wanted - held)[:1]:
        raise InputError(
            f"expert {expert} of layer {layer} is in no slot of the old map: no rank can supply it"
        )
    for expert in sorted(held - wanted)[:1]:
        raise InputError(f"expert {expert} of layer {layer} is in no slot of the new map")


def _slots_of(row: list[int], size: int) -> dict[int, dict[int, list[int]]]:
    """expert -> rank -> its slots there, ranks ascending."""
    found: dict[int, dict[int, list[int]]] = {}
    for slot, expert in enumerate(row):
        if expert >= 0:
            found.setdefault(expert, {}).setdefault(slot // size, []).append(slot)
    return found


def kept_slot(places: list[int], after: list[int], expert: int) -> int:
    """Of the slots that hold an expert on a rank, one that keeps it if there is one."""
    return next((slot for slot in places if after[slot] == expert), places[0])
