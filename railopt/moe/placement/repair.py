"""Replicas by load that stay where they are: a map repaired for other loads instead of made anew.

Packing afresh moves most replicas even where loads changed a little.  `repaired_map` and `stepped`
change single slots until a layer is even enough (`railopt.moe.placement.improve`).  Where that does
not suffice, replica counts follow the loads as in a new packing: surplus replicas leave the fullest
GPUs, missing ones fill the slots that became free, and exchanges with the fullest GPU follow.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Bools, Floats, Int32s, Ints, whole_number
from railopt.base.errors import InputError
from railopt.base.kernels import kernel, part
from railopt.base.units import INT64_MAX, parse_integer, parse_number, parse_options
from railopt.moe.placement.improve import improve
from railopt.moe.placement.packing import (
    _descending,
    _exchanges,
    _extra,
    _grouped,
    _holds,
    evenness,
    hierarchical,
    loads_of,
    map_loads,
    packed,
)
from railopt.moe.placement.placement import (
    Placement,
    assigned,
    checked_map,
    homes_near,
    slot_gpus,
)


@dataclass(frozen=True)
class FewMoves:
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

    def __post_init__(self) -> None:
        for name, value in (("tolerance", self.tolerance), ("stays", self.stays)):
            if not isinstance(value, int | float) or not 1 <= value < np.inf:
                raise InputError(f"{name} = {value}: expected a share of the mean of at least 1")
        if self.moves is not None:
            whole_number(self.moves, "moves", 0, INT64_MAX)

    @classmethod
    def parse(cls, text: str, where: str) -> FewMoves:
        """From "tolerance=1.05,stays=1.1" or "moves=20"; `where` names it in messages."""
        given = parse_options(text, ("tolerance", "stays", "moves"), where)
        shares: dict[str, Any] = {name: given[name] for name in given if name != "moves"}
        if shares and "moves" in given:
            raise InputError(f"{where}: {', '.join(shares)} can't do anything beside moves=...")
        if "moves" in given:
            return cls(moves=parse_integer(given["moves"], "number of moves", low=0))
        shares = {name: float(parse_number(shares[name], name)) for name in shares}
        return cls(**shares)


FEW = FewMoves()


def repaired_map(
    loads: Floats, old: npt.ArrayLike, sizes: tuple[int, int, int, int], few: FewMoves = FEW
) -> Int32s:
    """The map old int [layers, replicas], -1 for an empty slot, for other loads float64 [layers,
    experts]; sizes are (replicas, groups, nodes, GPUs) as in `rebalance`.

    What stays on its GPU stays in its slot, unless an earlier step used that slot.  A layer that
    single steps do not bring within the tolerance is repaired further or packed anew, whichever is
    first within it, else whichever is evenest.

    Expert groups that are on one node each stay there: shares of the mean are then shares of the
    fullest node's mean, and a layer is packed anew only where that is evener by more than the
    factor `stays`.  Groups that are not on one node each are packed anew, or, with a budget of
    moves, not regarded.
    """
    replicas, groups, nodes, gpus = sizes
    before, experts = checked_map(old, gpus, loads.shape[1], "the map before"), loads.shape[1]
    if before.shape != (len(loads), replicas) or replicas > experts * gpus:
        raise InputError(
            f"the map before has shape {before.shape}: expected {(len(loads), replicas)}, at most "
            f"{experts * gpus} slots"
        )
    result, by_node = before.copy(), hierarchical(loads.shape[1], *sizes)
    on_node = _nodes_of_groups(before, loads, (groups, nodes, gpus) if by_node else (1, 1, gpus))
    apart: Bools = (on_node.sum(axis=2) == 1).all(axis=1)
    if few.moves is not None and not apart.all():
        one = replicas, 1, 1, gpus
        result[~apart] = repaired_map(loads[~apart], before[~apart], one, few)
    floor = np.where(apart, _fullest_node(loads, on_node), 1.0)
    must, peaks = ~_is_whole(before, loads.shape[1]), evenness(loads, before, gpus)
    stays = max(few.stays, few.tolerance)
    uneven = must | (peaks > (stays * floor if few.moves is None else 1.0))
    steps = np.flatnonzero(uneven & apart)
    made = _stepwise(loads[steps], before[steps], on_node[steps], gpus, few)
    reached = evenness(loads[steps], made, gpus)
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


def _is_whole(rows: Int32s, experts: int) -> Bools:
    """bool [layer]: whether every expert is in some slot and no slot is empty."""
    there = np.zeros((len(rows), experts + 1), np.bool_)
    there[np.arange(len(rows))[:, None], rows] = True  # -1 is the last column
    return there[:, :experts].all(axis=1) & ~there[:, experts]


def _peak(load: Floats, row: Int32s, gpus: int) -> float:
    """max/mean GPU load of one layer."""
    return float(evenness(load[None], row[None], gpus)[0])


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
        peaks = map_loads(loads, rows, gpus).max(axis=1).reshape(layers, nodes)[busy]
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
    """One layer that single steps did not make even enough: a repair that is even enough, else the
    evenest of what they made, the repair and a new packing.  With groups on nodes there is no such
    repair, and a new packing is taken only where it is evener by more than the factor `stays`.
    """
    replicas, _, nodes, gpus = sizes
    by_node = hierarchical(len(load), *sizes)
    known = [] if made is None else [made]
    if made is not None and not by_node:
        order = np.argsort(-load, kind="stable")
        start = np.arange(gpus + 1, dtype=np.int32) * (replicas // gpus)
        ranked = np.argsort(order).astype(np.int32)[made]
        if _repair(load[order], ranked, start):
            known.append(order[ranked].astype(np.int32))
    best = known[-1] if known else None
    if best is made or best is None or _peak(load, best, gpus) > few.tolerance:
        fresh = packed(load[None], *sizes)
        even = few.stays * _peak(load, fresh[0], gpus)
        if made is not None and by_node and _peak(load, made, gpus) <= even:
            return made
        known.append(least_change(fresh, before[None], gpus, gpus // nodes if by_node else gpus)[0])
        best = min(known, key=lambda one: _peak(load, one, gpus))
    return _in_place(best.reshape(gpus, -1), before.reshape(gpus, -1)).reshape(-1)


def least_change(phy2log: Int32s, before: Int32s, gpus: int, together: int) -> Int32s:
    """The plan phy2log int32 [layers, slots] after the map `before` of the same shape (-1: a slot
    was empty), slots in GPU order, the same number on each; the plan has no expert twice on a GPU.

    GPUs are renamed so that fewest experts are new on theirs, blocks of `together` GPUs as one: the
    loads say nothing about which GPU is which.  An expert that its GPU held keeps its slot there,
    and the others fill what is left in their order.
    """
    experts, owner = int(max(phy2log.max(), before.max())) + 1, slot_gpus(phy2log.shape[1], gpus)
    size = len(owner) // gpus
    renamed = np.empty_like(phy2log.reshape(-1, gpus, size))
    for layer, new in enumerate(phy2log):
        held = _held(before[layer][None], experts, owner)[0]
        worth = held[new].reshape(gpus, size, gpus).sum(axis=1)  # experts that both hold
        renamed[layer, assigned(worth, together)] = new.reshape(gpus, size)
    return _in_place(renamed.reshape(-1, size), before.reshape(-1, size)).reshape(phy2log.shape)


def _in_place(new: Int32s, old: Int32s) -> Int32s:
    """The experts of each GPU, rows [GPU, slot], in the slots of those that were there already."""
    same = old[:, :, None] == new[:, None, :]
    stays, slot = same.any(axis=1), same.argmax(axis=1)
    gpu = np.broadcast_to(np.arange(len(new))[:, None], new.shape)
    result = np.full(new.shape, -1, np.int32)
    result[gpu[stays], slot[stays]] = new[stays]
    result[result < 0] = new[~stays]  # as many of both on each GPU, both row by row
    return result


def stepped(weight: npt.ArrayLike, base: Placement, previous: Placement, on: Ints) -> Placement:
    """`base`, whose GPUs `on` hold every expert, changed slot by slot for the loads weight [layers,
    experts] until no GPU has more than the usual share of the mean; what `previous` has is no move.
    """
    loads = loads_of(weight)
    holds = np.zeros_like(base.holds)
    for load, held, before, made in zip(
        loads, base.holds[:, on], previous.holds[:, on], holds, strict=True
    ):
        owner, slots = (each.astype(np.int32) for each in np.nonzero(held))
        goal, row = FEW.tolerance * load.sum() / len(on), slots[None].copy()
        any_number = np.array([INT64_MAX])
        improve(row, owner, load[None], before.T[None], np.array([goal]), any_number)
        made[on[owner], row[0]] = True
    return Placement(base.nodes, base.gpus, holds, homes_near(holds, previous))


def resized(weight: npt.ArrayLike, previous: Placement, replicas: int, on: Ints) -> Placement:
    """`previous` with so many replicas of all experts on the GPUs `on`, none of which has more
    slots than its even share, rounded up; little else moves.

    Where there are too many, those leave whose experts' other copies then have the least load.
    Slots that are free get the experts that no GPU holds, then those with the most load a copy,
    each on the emptiest GPU that has room and lacks it.
    """
    most = -(-replicas // len(on))
    holds = np.zeros_like(previous.holds)
    for load, before, made in zip(loads_of(weight), previous.holds[:, on], holds, strict=True):
        mine, copies = before.copy(), before.sum(axis=0)
        while np.maximum(copies, 1).sum() > replicas or mine.sum(axis=1).max() > most:
            slots = mine.sum(axis=1)
            gives = mine & (slots == slots.max())[:, None]
            others = np.where(copies > 1, load / np.maximum(copies - 1, 1), load.sum() + load)
            gpu, expert = divmod(int(np.where(gives, others, np.inf).argmin()), len(load))
            mine[gpu, expert] = False
            copies[expert] -= 1
        while copies.sum() < replicas:
            room = (mine.sum(axis=1) < most)[:, None] & ~mine
            share = load / np.maximum(copies, 1)
            wanted = copies == 0 if (copies == 0).any() else room.any(axis=0)
            expert = int(np.where(wanted, share, -1.0).argmax())
            mine[np.where(room[:, expert], mine @ share, np.inf).argmin(), expert] = True
            copies[expert] += 1
        made[on] = mine
    return Placement(previous.nodes, previous.gpus, holds, homes_near(holds, previous))


@kernel
def _repair(load: Floats, slots: Int32s, start: Int32s) -> bool:
    """Replicas slots int32 [replicas] of experts, heaviest first, those of GPU g from start[g],
    changed in place; False where one finds no slot.
    """
    experts, gpus = len(load), len(start) - 1
    count, share, total = np.empty(experts, np.int32), np.empty(experts), np.zeros(gpus)
    _extra(load, share, len(slots), gpus, count)
    more = count.copy()
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
