"""Replicas by load that stay where they are: a map repaired for other loads instead of made anew.

Packing afresh moves most replicas even where loads changed a little.  `repaired_map` changes single
slots until a layer is even enough (`railopt.moe.placement.improve`).  `repaired` goes further:
replica counts follow the loads as in a new packing, surplus replicas leave the fullest GPUs,
missing ones fill the slots that became free, and exchanges with the fullest GPU follow.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Bools, Floats, Int32s, Ints, whole_number
from railopt.base.errors import InputError
from railopt.base.kernels import kernel, part
from railopt.base.units import INT64_MAX, parse_integer, parse_number, parse_options
from railopt.moe.placement.improve import improve
from railopt.moe.placement.old_map import in_place, least_change
from railopt.moe.placement.packing import (
    _descending,
    _exchanges,
    _extra,
    _grouped,
    _holds,
    hierarchical,
    loads_of,
    packed,
)
from railopt.moe.placement.placement import Placement, homes_near, slot_gpus


class FewMoves(NamedTuple):
    """How far a map that is there is repaired, layer by layer.

    tolerance  of the mean GPU load: what the fullest GPU may have, reached with as few moves as
               are found
    stays      of the mean: a layer whose fullest GPU has no more, or is within the tolerance, is
               left as it is
    moves      copies that a layer may move at most (None: any number), for the best balance: then
               `tolerance` and `stays` are not asked

    Slots that are empty are filled, and experts without a slot placed, whatever that takes; an
    expert that a GPU holds twice may stay so.
    """

    tolerance: float = 1.02
    stays: float = 1.05
    moves: int | None = None

    @classmethod
    def parse(cls, text: str, where: str) -> FewMoves:
        """From "tolerance=1.05,stays=1.1" or "moves=20"; `where` names it in messages."""
        given = parse_options(text, cls._fields, where)
        shares: dict[str, Any] = {name: given[name] for name in given if name != "moves"}
        if shares and "moves" in given:
            raise InputError(f"{where}: {', '.join(shares)} can't do anything beside moves=...")
        if "moves" in given:
            return cls(moves=parse_integer(given["moves"], "number of moves", low=0))
        shares = {name: float(parse_number(shares[name], name)) for name in shares}
        return cls(**shares).checked()

    def checked(self) -> FewMoves:
        """This aim, if there is such a one."""
        for name, value in (("tolerance", self.tolerance), ("stays", self.stays)):
            if not isinstance(value, int | float) or not 1 <= value < np.inf:
                raise InputError(f"{name} = {value}: expected a share of the mean of at least 1")
        if self.moves is not None:
            whole_number(self.moves, "moves", 0, INT64_MAX)
        return self


FEW = FewMoves()


def repaired_map(
    loads: Floats, old: npt.ArrayLike, sizes: tuple[int, int, int, int], few: FewMoves = FEW
) -> Int32s:
    """The map old int [layers, replicas], -1 for an empty slot, for other loads float64 [layers,
    experts]; sizes are (replicas, groups, nodes, GPUs) as in `rebalance`.

    What stays on its GPU stays in its slot, unless a step on the way took that.  A layer that
    single steps do not bring within the tolerance is repaired further or packed anew, whichever is
    first within it, else whichever is evenest.

    Expert groups that are on one node each stay there: shares of the mean are then shares of the
    fullest node's mean, and a layer is packed anew only where that is evener by more than the
    factor `stays`.  Groups that are not on one node each are packed anew, or, with a budget of
    moves, not regarded.
    """
    few = few.checked()
    replicas, groups, nodes, gpus = sizes
    before = checked_map(old, (len(loads), replicas), loads.shape[1], gpus)
    result, by_node = before.copy(), hierarchical(loads.shape[1], *sizes)
    on_node = _nodes_of_groups(before, loads, (groups, nodes, gpus) if by_node else (1, 1, gpus))
    apart: Bools = (on_node.sum(axis=2) == 1).all(axis=1)
    if few.moves is not None and not apart.all():
        one = replicas, 1, 1, gpus
        result[~apart] = repaired_map(loads[~apart], before[~apart], one, few)
    floor = np.where(apart, _fullest_node(loads, on_node), 1.0)
    must, peaks = ~_is_whole(before, loads.shape[1]), _peaks(loads, before, gpus)
    stays = max(few.stays, few.tolerance)
    uneven = must | (peaks > (stays * floor if few.moves is None else 1.0))
    steps = np.flatnonzero(uneven & apart)
    made = _stepwise(loads[steps], before[steps], on_node[steps], gpus, few)
    reached = _peaks(loads[steps], made, gpus)
    if few.moves is not None:  # the moves may not have helped
        better = must[steps] | (reached < peaks[steps])
        steps, made, reached = steps[better], made[better], reached[better]
    result[steps], peaks[steps] = made, reached
    if few.moves is not None:
        return result
    if by_node:
        least = _fullest_node(loads, _grouped_anew(loads, groups, nodes))
        rough = np.where(apart, peaks > few.stays * least, uneven)
    else:
        rough = uneven & (peaks > few.tolerance)
    for layer in np.flatnonzero(rough).tolist():
        known = result[layer] if apart[layer] else None
        result[layer] = _further(loads[layer], before[layer], sizes, few, known)
    return result


def _nodes_of_groups(rows: Int32s, loads: Floats, parts: tuple[int, int, int]) -> Bools:
    """bool [layer, group, node]: which nodes hold some expert of a group; parts are (groups, nodes,
    GPUs).
    """
    groups, nodes, gpus = parts
    layers, experts = loads.shape
    if groups == 1:
        return np.ones((layers, 1, 1), np.bool_)
    found = np.zeros((layers, groups, nodes), np.bool_)
    layer, slot = np.nonzero(rows >= 0)
    node = slot_gpus(rows.shape[1], gpus)[slot] // (gpus // nodes)
    found[layer, rows[layer, slot] // (experts // groups), node] = True
    return found


def _grouped_anew(loads: Floats, groups: int, nodes: int) -> Bools:
    """bool [layer, group, node] of a new packing."""
    node_of = _grouped(loads.reshape(len(loads), groups, -1).sum(axis=2), groups, nodes)
    return np.asarray(node_of[:, :, None] == np.arange(nodes))


def _fullest_node(loads: Floats, on_node: Bools) -> Floats:
    """float64 [layer]: max/mean load of the nodes, whose groups are on_node bool [layer, group,
    node].
    """
    layers, groups, nodes = on_node.shape
    load = loads.reshape(layers, groups, -1).sum(axis=2)
    total, most = load.sum(axis=1), (load[:, :, None] * on_node).sum(axis=1).max(axis=1)
    return np.where(total > 0, nodes * most / np.where(total > 0, total, 1.0), 1.0)


def checked_map(old: npt.ArrayLike, shape: tuple[int, int], experts: int, gpus: int) -> Int32s:
    """A map before, int32 [layers, replicas] with experts or -1, or one sentence why it is none."""
    given: npt.NDArray[Any] = np.asarray(old)
    if given.shape != shape or given.dtype.kind not in "iu" or shape[1] % gpus:
        raise InputError(
            f"a map of shape {given.shape} and type {given.dtype} on {gpus} GPUs: expected whole "
            f"numbers {shape}, as many slots on each GPU"
        )
    if given.min() < -1 or given.max() >= experts:
        raise InputError(
            f"a map with experts from {given.min()} to {given.max()}: expected 0 to {experts - 1}, "
            f"or -1 for an empty slot"
        )
    if shape[1] > experts * gpus:
        raise InputError(
            f"{shape[1] // gpus} slots per GPU for {experts} experts: no GPU holds one twice"
        )
    return given.astype(np.int32)


def _is_whole(rows: Int32s, experts: int) -> Bools:
    """bool [layer]: whether every expert is in some slot and no slot is empty."""
    there = np.zeros((len(rows), experts + 1), np.bool_)
    there[np.arange(len(rows))[:, None], rows] = True  # -1 is the last column
    return there[:, :experts].all(axis=1) & ~there[:, experts]


def _gpu_loads(loads: Floats, rows: Int32s, gpus: int) -> Floats:
    """float64 [row, GPU], empty slots without any."""
    number, experts = loads.shape
    first = np.arange(number)[:, None] * (experts + 1)
    key = np.where(rows < 0, experts, rows) + first
    copies = np.bincount(key.ravel(), minlength=number * (experts + 1))
    share = np.zeros((number, experts + 1))
    share[:, :experts] = loads
    share /= np.maximum(copies, 1).reshape(share.shape)
    return share.ravel()[key].reshape(number, gpus, rows.shape[1] // gpus).sum(axis=2)


def _peaks(loads: Floats, rows: Int32s, gpus: int) -> Floats:
    """float64 [layer]: max/mean GPU load."""
    total = _gpu_loads(loads, rows, gpus)
    mean = total.mean(axis=1)
    return np.where(mean > 0, total.max(axis=1) / np.where(mean > 0, mean, 1.0), 1.0)


def _peak(load: Floats, row: Int32s, gpus: int) -> float:
    """max/mean GPU load of one layer."""
    return float(_peaks(load[None], row[None], gpus)[0])


def _stepwise(loads: Floats, before: Int32s, on_node: Bools, gpus: int, few: FewMoves) -> Int32s:
    """Layers with single steps, each inside a node; on_node bool [layer, group, node]."""
    if not len(loads):
        return before
    (layers, experts), (groups, nodes) = loads.shape, on_node.shape[1:]
    rows, owner = before.reshape(layers * nodes, -1).copy(), slot_gpus(before.shape[1], gpus)
    held = _held(before, experts, owner)
    good = _is_whole(before, experts) & (held.sum(axis=(1, 2)) == len(owner))
    held = held.reshape(layers, experts, nodes, -1).transpose(0, 2, 1, 3)
    held = np.ascontiguousarray(held).reshape(len(rows), experts, -1)
    known = np.repeat(on_node.transpose(0, 2, 1), experts // groups, axis=2)
    inside = np.where(known, loads[:, None], 0.0)
    full, inside = inside.sum(axis=2), inside.reshape(len(rows), experts)
    owner = owner[: rows.shape[1]]
    left = np.full(layers, INT64_MAX if few.moves is None else few.moves)
    for layer in np.flatnonzero(~good).tolist():
        good[layer] = True
        for node in np.argsort(-full[layer], kind="stable").tolist():
            row = layer * nodes + node
            here = inside[row], known[layer, node], held[row]
            used, twins = _complete(rows[row], owner, here, int(left[layer]))
            left[layer] -= used
            good[layer] &= not twins
    if few.moves is None:
        goals = np.repeat(few.tolerance * nodes * full.max(axis=1) / gpus, nodes)
        improve(rows, owner, inside, held, goals, np.full(len(rows), INT64_MAX))
    elif good.any():
        some = np.repeat(good, nodes)
        made = rows[some]
        _spend(made, owner, inside[some], held[some], left[good])
        rows[some] = made
    return rows.reshape(before.shape)


def _spend(rows: Int32s, owner: Int32s, loads: Floats, held: Bools, left: Ints) -> None:
    """Give the moves that are left, int64 [layer], to the fullest node of each layer, in place, as
    long as that helps.
    """
    layers, gpus = len(left), held.shape[2]
    nodes, busy = len(rows) // layers, np.arange(layers)
    mean = loads.reshape(layers, -1).sum(axis=1) / nodes / gpus
    while len(busy):
        peaks = _gpu_loads(loads, rows, gpus).max(axis=1).reshape(layers, nodes)[busy]
        top = peaks.argmax(axis=1)
        peaks[np.arange(len(busy)), top] = 0.0
        goals = np.maximum(mean[busy], np.nextafter(peaks.max(axis=1), 0.0))
        one = busy * nodes + top
        made = rows[one]
        budgets = np.maximum(left[busy], 0)
        left[busy] -= improve(made, owner, loads[one], held[one], goals, budgets)
        changed = (made != rows[one]).any(axis=1)
        rows[one], busy = made, busy[changed]


def _held(rows: Int32s, experts: int, owner: Int32s) -> Bools:
    """bool [layer, expert, GPU] of slots, -1 for none."""
    held = np.zeros((len(rows), experts + 1, int(owner[-1]) + 1), np.bool_)
    held[np.arange(len(rows))[:, None], rows, owner] = True
    return held[:, :experts]


def _complete(
    slots: Int32s, owner: Int32s, here: tuple[Floats, Bools, Bools], budget: int
) -> tuple[int, bool]:
    """Fill slots, in place, that are empty, place experts that no slot holds and, within the
    budget, give slots that hold an expert twice on their GPU to others.  Returns how many copies
    moved, and whether there still are such slots.

    here  load float64 [expert], whether it is on this node, bool [expert], and what was there
    """
    load, known, before = here
    held = np.zeros_like(before)
    free = []
    for slot, (expert, gpu) in enumerate(zip(slots.tolist(), owner.tolist(), strict=True)):
        if expert < 0 or held[expert, gpu]:
            free.append(slot)
        else:
            held[expert, gpu] = True
    orphans = np.flatnonzero(known & ~held.any(axis=1))
    orphans = orphans[np.argsort(-load[orphans], kind="stable")].tolist()
    changed, twins = 0, False
    while orphans or free:
        if not orphans and changed >= budget:
            empty = [slot for slot in free if slots[slot] < 0]
            free, twins = empty, twins or len(empty) < len(free)
            if not free:
                break
        copies = held.sum(axis=1)
        share = load / np.maximum(copies, 1)
        if not free:  # of experts with several copies, the one whose others then have least
            least = np.where(copies > 1, load / np.maximum(copies - 1, 1), np.inf)
            given = int(least.argmin())
            slot = int(np.flatnonzero(slots == given)[0])
            held[given, owner[slot]] = False
            free = [slot]
        total = np.bincount(owner, weights=np.where(slots >= 0, share[slots], 0.0))
        slot = min(free, key=lambda s: float(total[owner[s]]))
        free.remove(slot)
        gpu = owner[slot]
        if orphans:
            expert = orphans.pop(0)
        else:
            expert = int(np.where(known & ~held[:, gpu], share, -1.0).argmax())
        slots[slot], held[expert, gpu] = expert, True
        changed += not before[expert, gpu]
    return changed, twins


def _further(
    load: Floats,
    before: Int32s,
    sizes: tuple[int, int, int, int],
    few: FewMoves,
    made: Int32s | None,
) -> Int32s:
    """One layer that single steps did not make even enough: the first that is even enough of what
    they made, a repair and a new packing, else the evenest.  With groups on nodes a new packing is
    taken only where it is evener by more than the factor `stays`.
    """
    replicas, _, nodes, gpus = sizes
    by_node = hierarchical(len(load), *sizes)
    known = [] if made is None else [made]
    if made is not None and not by_node:
        slots = made.copy()
        order = np.argsort(-load, kind="stable")
        place = np.argsort(order).astype(np.int32)
        start = np.arange(gpus + 1, dtype=np.int32) * (replicas // gpus)
        ranked = place[slots]
        if _repair(load[order], ranked, start):
            known.append(order[ranked].astype(np.int32))
    for one in known[1:]:
        if _peak(load, one, gpus) <= few.tolerance:
            return _in_place(one, before, gpus)
    fresh = packed(load[None], *sizes)
    even = few.stays * _peak(load, fresh[0], gpus)
    if made is not None and by_node and _peak(load, made, gpus) <= even:
        return made
    known.append(least_change(fresh, before[None], gpus, gpus // nodes if by_node else gpus)[0])
    best = min(known, key=lambda one: _peak(load, one, gpus))
    return _in_place(best, before, gpus)


def _in_place(row: Int32s, before: Int32s, gpus: int) -> Int32s:
    """The slots of one layer, those that stay on their GPU where they were."""
    rows = in_place(row.reshape(gpus, -1), before.reshape(gpus, -1))
    return rows.reshape(-1)


def repaired(
    weight: npt.ArrayLike, previous: Placement, groups: int = 1, on: Ints | None = None
) -> Placement | None:
    """`previous` for the loads weight [layers, experts], with the same slots on every GPU; on the
    GPUs `on` alone, if given, without regard to groups.

    None where its expert groups are not on one node each, or a missing replica finds no slot on a
    GPU that lacks its expert.
    """
    loads = loads_of(weight)
    gpus = np.arange(previous.devices) if on is None else on
    replicas = int(previous.holds[0, gpus].sum())
    groups = whole_number(groups, "groups", 1, INT64_MAX)
    sizes = (previous.experts, replicas, groups, previous.nodes, previous.devices)
    by_node = on is None and hierarchical(*sizes)
    parts, groups = (previous.nodes, groups) if by_node else (1, 1)
    size = len(gpus) // parts
    holds = np.zeros_like(previous.holds)
    for layer, before in enumerate(previous.holds[:, gpus]):
        node_of_group = before.reshape(parts, size, groups, -1).any(axis=(1, 3))
        if by_node and np.any(node_of_group.sum(axis=0) != 1):
            return None
        for node in range(parts):
            mine = before[node * size : (node + 1) * size]
            experts = np.flatnonzero(mine.any(axis=0) | (not by_node))
            experts = experts[np.argsort(-loads[layer, experts], kind="stable")]
            slots = np.nonzero(mine[:, experts])[1].astype(np.int32)
            start = np.concatenate([[0], np.cumsum(mine.sum(axis=1))]).astype(np.int32)
            if not _repair(loads[layer, experts], slots, start):
                return None
            owner = gpus[node * size + np.repeat(np.arange(size), np.diff(start))]
            holds[layer, owner, experts[slots]] = True
    return Placement(previous.nodes, previous.gpus, holds, homes_near(holds, previous))


def left_over(weight: npt.ArrayLike, previous: Placement, on: Ints) -> Placement | None:
    """What is left of `previous` on the GPUs `on`.  Nothing moves but experts that none of these
    holds, each into the slot of one whose other copies then have the least load; None where every
    expert left has one copy alone.
    """
    holds = np.zeros_like(previous.holds)
    holds[:, on] = previous.holds[:, on]
    for load, held in zip(loads_of(weight), holds, strict=True):
        for expert in np.argsort(-load, kind="stable"):
            copies = held.sum(axis=0)
            if copies[expert]:
                continue
            share = np.where(copies > 1, load / np.maximum(copies - 1, 1), np.inf)
            given = int(np.argmin(share))
            if copies[given] < 2:
                return None
            loads = held @ (load / np.maximum(copies, 1))
            gpu = int(np.argmin(np.where(held[:, given], loads, np.inf)))
            held[gpu, given], held[gpu, expert] = False, True
    return Placement(previous.nodes, previous.gpus, holds, homes_near(holds, previous))


def resized(
    weight: npt.ArrayLike, previous: Placement, replicas: int, on: Ints
) -> Placement | None:
    """`previous` with so many replicas on the GPUs `on`, which hold every expert, none of them with
    more slots than their even share, rounded up; nothing else moves.

    Where there are too many, those leave whose experts' other copies then have the least load;
    where too few, the expert with the most load a copy gets one on the emptiest GPU with room that
    lacks it.  None where that is not enough.
    """
    most = -(-replicas // len(on))
    holds = np.zeros_like(previous.holds)
    holds[:, on] = previous.holds[:, on]
    for load, held in zip(loads_of(weight), holds, strict=True):
        mine = held[on]
        while mine.sum() > replicas or mine.sum(axis=1).max() > most:
            copies, slots = mine.sum(axis=0), mine.sum(axis=1)
            gives = mine & (copies > 1) & (slots == slots.max())[:, None]
            if not gives.any():
                return None
            share = np.where(gives, load / np.maximum(copies - 1, 1), np.inf)
            mine[np.unravel_index(int(share.argmin()), share.shape)] = False
        while mine.sum() < replicas:
            copies, room = mine.sum(axis=0), mine.sum(axis=1) < most
            share = load / np.maximum(copies, 1)
            lacking = (~mine & room[:, None]).any(axis=0)
            if not lacking.any():
                return None
            expert = int(np.where(lacking, share, -1.0).argmax())
            loads = np.where(room & ~mine[:, expert], mine @ share, np.inf)
            mine[int(loads.argmin()), expert] = True
        held[on] = mine
    return Placement(previous.nodes, previous.gpus, holds, homes_near(holds, previous))


@kernel
def _repair(load: Floats, slots: Int32s, start: Int32s) -> bool:
    """Replicas slots int32 [replicas] of experts, heaviest first, those of GPU g from start[g],
    changed in place; False where one finds no slot.
    """
    experts, gpus = len(load), len(start) - 1
    count = np.empty(experts, np.int32)
    _extra(load, len(slots), gpus, count)
    share, more, total = np.empty(experts, np.float64), np.empty(experts, np.int32), np.zeros(gpus)
    for e in range(experts):
        share[e], more[e] = load[e] / count[e], count[e]
    for g in range(gpus):
        for s in range(start[g], start[g + 1]):
            more[slots[s]] -= 1
            total[g] += share[slots[s]]
    for e in range(experts):
        while more[e] < 0:
            _drop(e, slots, start, total, share)
            more[e] += 1
    for e in _descending(share):
        while more[e] > 0:
            if not _fill(e, slots, start, total, share):
                return False
            more[e] -= 1
    _exchanges(slots, start, total, share, count)
    return True


@part
def _drop(expert: int, slots: Int32s, start: Int32s, total: Floats, share: Floats) -> None:
    """Free the slot of an expert on the fullest GPU that has it."""
    top, slot = -1, -1
    for g in range(len(total)):
        for s in range(start[g], start[g + 1]):
            if slots[s] == expert and (top < 0 or total[g] > total[top]):
                top, slot = g, s
    slots[slot] = -1
    total[top] -= share[expert]


@part
def _fill(expert: int, slots: Int32s, start: Int32s, total: Floats, share: Floats) -> bool:
    """Put an expert into a free slot of the emptiest GPU that lacks it, or let such a GPU hand one
    to a GPU with a free slot.
    """
    low, slot, free, hole = -1, -1, -1, -1
    for g in range(len(total)):
        for s in range(start[g], start[g + 1]):
            if slots[s] >= 0:
                continue
            free, hole = g, s
            if (low < 0 or total[g] < total[low]) and not _holds(
                slots, start[g], start[g + 1] - start[g], expert
            ):
                low, slot = g, s
    if low < 0:
        low, slot = _hand_over(expert, free, slots, start, total)
        if low < 0:
            return False
        moved = slots[slot]
        slots[hole] = moved
        total[free] += share[moved]
        total[low] -= share[moved]
    slots[slot] = expert
    total[low] += share[expert]
    return True


@part
def _hand_over(
    expert: int, free: int, slots: Int32s, start: Int32s, total: Floats
) -> tuple[int, int]:
    """(GPU, slot) of something that the GPU `free` lacks, on the emptiest GPU that lacks `expert`;
    (-1, -1) without one.
    """
    low, slot = -1, -1
    for g in range(len(total)):
        if (low >= 0 and total[g] >= total[low]) or _holds(
            slots, start[g], start[g + 1] - start[g], expert
        ):
            continue
        for s in range(start[g], start[g + 1]):
            if slots[s] >= 0 and not _holds(
                slots, start[free], start[free + 1] - start[free], slots[s]
            ):
                low, slot = g, s
    return low, slot
