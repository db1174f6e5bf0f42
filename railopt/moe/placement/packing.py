"""Replicas by load, packed on GPUs and nodes, and how even that is.

As EPLB (github.com/deepseek-ai/EPLB) packs them, but two replicas of one expert never share a GPU,
replica counts that the GPUs do not divide are served (GPUs then differ by one slot), and exchanges
follow the greedy packing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Array, Bools, Floats, Int32s, Ints, whole_number
from railopt.base.errors import InputError
from railopt.base.kernels import kernel, part
from railopt.base.units import INT64_MAX
from railopt.moe.placement.improve import improve
from railopt.moe.placement.placement import slot_gpus

WORTH = 1 - 1e-4  # of the fullest GPU's load: what an exchange must reach
ROUGH = 1.02  # of the mean: a packing whose fullest GPU is above it is improved further
LARGEST = 1e280  # a load: sums of them stay finite
PARTNERS = 8  # GPUs that the fullest one asks for an exchange before it gives up


def hierarchical(experts: int, replicas: int, groups: int, nodes: int, gpus: int) -> bool:
    """Whether expert groups stay on one node each: EPLB's hierarchical policy, used where the
    numbers allow it, and a node's GPUs hold none of its experts twice.
    """
    fits = experts % groups == 0 and groups % nodes == 0 and replicas % gpus == 0
    return nodes > 1 and groups > 1 and fits and replicas * nodes <= experts * gpus


def packed(loads: Floats, replicas: int, groups: int, nodes: int, gpus: int) -> Int32s:
    """phy2log int32 [layers, replicas], slots in GPU order, of checked loads [layers, experts] and
    checked numbers, as `railopt.moe.placement.replicate.rebalance` has them.
    """
    by_node = hierarchical(loads.shape[1], replicas, groups, nodes, gpus)
    parts = nodes if by_node else 1
    phy2log, uneven = _packed(loads, replicas, groups if by_node else 1, parts, gpus)
    if uneven.any():
        _improve_uneven(phy2log, loads, uneven, gpus)
    return phy2log


def loads_of(weight: npt.ArrayLike) -> Floats:
    """Checked loads, float64 [layers, experts]."""
    given: npt.NDArray[Any] = np.asarray(weight)
    if given.ndim != 2 or given.dtype.kind not in "iuf" or 0 in given.shape:
        raise InputError(
            f"weight has shape {given.shape} and type {given.dtype}: expected numbers [layers, "
            f"experts]"
        )
    loads = np.ascontiguousarray(given, dtype=np.float64) + 0.0  # no -0.0
    if not np.isfinite(loads).all() or loads.min() < 0 or loads.max() > LARGEST:
        raise InputError(
            f"weight holds negative numbers, infinities or NaN: a load is 0 to {LARGEST:.0e}"
        )
    return loads


def _improve_uneven(phy2log: Int32s, loads: Floats, uneven: Bools, gpus: int) -> None:
    """Improve the packings, in place, of nodes that are `uneven`, bool [layers, nodes]: which
    experts get the copies decides there.
    """
    nodes = uneven.shape[1]
    experts, size, own = loads.shape[1], phy2log.shape[1] // nodes, gpus // nodes
    layer, node = np.nonzero(uneven)
    rows = phy2log.reshape(len(loads), nodes, size)[layer, node]
    inside = np.zeros((len(rows), experts))
    np.put_along_axis(inside, rows, np.take_along_axis(loads[layer], rows, axis=1), axis=1)
    nowhere = np.zeros((len(rows), experts, own), np.bool_)
    goals = ROUGH * inside.sum(axis=1) / own
    any_number = np.full(len(rows), INT64_MAX)
    improve(rows, slot_gpus(size, own), inside, nowhere, goals, any_number)
    phy2log.reshape(len(loads), nodes, size)[layer, node] = rows


def check(experts: int, replicas: int, groups: int, nodes: int, gpus: int) -> None:
    """Refuse numbers that no map of replicas has."""
    for name, number in (("groups", groups), ("nodes", nodes), ("gpus", gpus)):
        whole_number(number, name, 1, INT64_MAX)
    if gpus % nodes:
        raise InputError(
            f"{gpus} GPUs on {nodes} nodes: expected the same number of GPUs on every node"
        )
    if whole_number(replicas, "replicas", 0, INT64_MAX) < experts:
        raise InputError(
            f"{replicas} replicas for {experts} experts: the smallest feasible number is "
            f"{experts}, one per expert"
        )


def _packed(
    loads: Floats, replicas: int, groups: int, nodes: int, gpus: int
) -> tuple[Int32s, Bools]:
    """phy2log, and bool [layers, nodes]: whether a node's fullest GPU is above `ROUGH` of its mean,
    and of what the GPU with the heaviest replica has at least.
    """
    layers, experts = loads.shape
    inside: Ints = np.arange(experts)
    if nodes > 1:
        group = np.argsort(_grouped(loads, groups, nodes), axis=1, kind="stable")
        inside = group[:, :, None] * (experts // groups) + inside[: experts // groups]
    first = experts * np.arange(layers)[:, None]
    chosen = _heaviest_first(np.take(loads, inside.reshape(-1, experts) + first), inside, nodes)
    load = np.take(loads, chosen.reshape(layers, -1) + first).reshape(chosen.shape)
    owner = slot_gpus(replicas // nodes, gpus // nodes)
    start = np.searchsorted(owner, np.arange(gpus // nodes + 1)).astype(np.int32)
    slots, share, total = _spread(load, chosen, start)
    least = share.max(axis=1) + (replicas // gpus - 1) * share.min(axis=1)
    uneven = total.max(axis=1) > np.maximum(total.mean(axis=1), least) * ROUGH
    return slots.reshape(layers, replicas), uneven.reshape(layers, nodes)


def _heaviest_first(loads: Floats, inside: Ints, nodes: int) -> Int32s:
    """int32 [layers * nodes, experts / nodes]: the experts of each node, `inside`, in falling order
    of their `loads` [layers, experts].

    numpy sorts whole numbers in an eighth of the time of a stable `argsort`.  So a number is a load
    whose last bits are the expert's: loads that differ in these alone (a part of 10**13 with 256
    experts) count as equal.
    """
    last = (1 << int(inside.max()).bit_length()) - 1
    falling = (INT64_MAX - loads.view(np.int64)) & ~last | inside.reshape(-1, loads.shape[1])
    falling = falling.reshape(len(loads) * nodes, -1)
    falling.sort(axis=1)
    return (falling & last).astype(np.int32)


@kernel
def _grouped(loads: Floats, groups: int, nodes: int) -> Int32s:
    """int32 [layers, groups]: the node of each expert group."""
    node_of = np.empty((len(loads), groups), np.int32)
    for layer in range(len(loads)):
        found = _pack_groups(loads[layer], groups, nodes, loads.shape[1] // groups)
        for g in range(groups):
            node_of[layer, g] = found[g]
    return node_of


@kernel
def _spread(load: Floats, chosen: Int32s, start: Int32s) -> tuple[Int32s, Floats, Floats]:
    """Slots int32 [units, replicas], a copy's loads [units, experts] and the GPUs' loads, of units
    whose experts `chosen`, load float64 [units, experts], fall.
    """
    units, experts = load.shape
    replicas, gpus = start[-1], len(start) - 1
    slots, count = np.empty((units, replicas), np.int32), np.empty(experts, np.int32)
    share, total = np.empty((units, experts)), np.zeros((units, gpus))
    for unit in range(units):
        _extra(load[unit], share[unit], replicas, gpus, count)
        _pack(share[unit], count, start, slots[unit], total[unit])
        _exchanges(slots[unit], start, total[unit], share[unit], count)
        for s in range(replicas):
            slots[unit, s] = chosen[unit, slots[unit, s]]
    return slots, share, total


@part
def _fullest(total: Floats) -> int:
    """np.argmax, in less time."""
    top = 0
    for g in range(len(total)):
        if total[g] > total[top]:
            top = g
    return top


@part
def _pack_groups(weight: Floats, groups: int, nodes: int, size: int) -> Int32s:
    """Groups to nodes, the same number on each: heaviest first to the lightest open node, then
    swaps while they help.
    """
    node_of = np.zeros(groups, np.int32)
    if nodes == 1:
        return node_of
    total = np.zeros(groups)
    for g in range(groups):
        for e in range(g * size, (g + 1) * size):
            total[g] += weight[e]
    load = np.zeros(nodes)
    held = np.zeros(nodes, np.int32)
    for g in _descending(total):
        best = -1
        for n in range(nodes):
            if held[n] < groups // nodes and (best < 0 or load[n] < load[best]):
                best = n
        node_of[g] = best
        load[best] += total[g]
        held[best] += 1
    improved = True
    while improved:
        improved = False
        top = _fullest(load)
        best_peak = load[top]
        best_a = best_b = -1
        for a in range(groups):
            if node_of[a] != top:
                continue
            for b in range(groups):
                n = node_of[b]
                if n == top or total[b] >= total[a]:
                    continue
                shift = total[a] - total[b]
                peak = max(load[top] - shift, load[n] + shift)
                if peak < best_peak * (1 - 1e-12):
                    best_peak, best_a, best_b = peak, a, b
        if best_a >= 0:
            n = node_of[best_b]
            shift = total[best_a] - total[best_b]
            load[top] -= shift
            load[n] += shift
            node_of[best_a], node_of[best_b] = n, top
            improved = True
    return node_of


@kernel
def _descending(values: Floats) -> Int32s:
    """int32: the order of falling values, equal ones as they are; fast where little is to do."""
    order = np.empty(len(values), np.int32)
    for i in range(len(values)):
        k = i
        while k > 0 and values[order[k - 1]] < values[i]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = i
    return order


@part
def _extra(load: Floats, share: Floats, replicas: int, gpus: int, count: Int32s) -> None:
    """Each further replica of experts, heaviest first, goes to the one with the largest load a
    replica, `share`, at most one per GPU.
    """
    experts = len(load)
    for e in range(experts):
        count[e], share[e] = 1, load[e]
    reach = 1  # the experts with several replicas, and the heaviest of the others
    for _ in range(replicas - experts):
        best = -1
        for e in range(reach):
            if count[e] < gpus and (best < 0 or share[e] > share[best]):
                best = e
        count[best] += 1
        share[best] = load[best] / count[best]
        if best == reach - 1 and reach < experts and count[best] == 2:
            reach += 1


@part
def _holds(slots: Int32s, start: int, used: int, expert: int) -> bool:
    for s in range(start, start + used):  # noqa: SIM110  numba has no any() of a generator
        if slots[s] == expert:
            return True
    return False


@part
def _pack(share: Floats, count: Int32s, start: Int32s, slots: Int32s, total: Floats) -> None:
    """Replicas to slots, int32 [replicas], those of GPU g from start[g] on: heaviest first to the
    lightest GPU that lacks the expert; the GPUs' loads.
    """
    gpus = len(total)
    used = np.zeros(gpus, np.int32)
    heap = np.empty(gpus, np.int32)
    size = _open(heap, start, used, total)
    for e in _descending(share):
        copies, added = count[e], share[e]
        for _ in range(copies):
            at = 0
            if copies > 1:
                at = _lacking(heap, size, slots, start, used, total, e)
            found = heap[at] if at >= 0 else _make_room(slots, start, used, total, share, e)
            gpu = np.uint64(found)
            slots[np.uint64(start[gpu] + used[gpu])] = e
            used[gpu] += 1
            total[gpu] += added
            full = used[gpu] == start[np.uint64(found + 1)] - start[gpu]
            if at < 0 or (at > 0 and full):
                size = _open(heap, start, used, total)
                continue
            if full:
                size -= 1
                heap[0] = heap[size]
            _sift(heap, size, at, total)


@part
def _open(heap: Int32s, start: Int32s, used: Int32s, total: Floats) -> int:
    """Fill the heap with the GPUs that have a free slot, the lightest on top; how many they are."""
    size = 0
    for g in range(len(used)):
        if used[g] < start[g + 1] - start[g]:
            heap[size] = g
            size += 1
    for at in range(size // 2 - 1, -1, -1):
        _sift(heap, size, at, total)
    return size


@part
def _sift(heap: Int32s, size: int, at: int, total: Floats) -> None:
    """Let a GPU that became heavier sink to its place."""
    g = heap[np.uint64(at)]  # unsigned: numba does not ask whether it counts from the end
    load = total[np.uint64(g)]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        lighter = heap[np.uint64(child)]
        least = total[np.uint64(lighter)]
        if child + 1 < size:
            other = heap[np.uint64(child + 1)]
            if total[np.uint64(other)] < least:
                child, lighter, least = child + 1, other, total[np.uint64(other)]
        if least >= load:
            break
        heap[np.uint64(at)] = lighter
        at = child
    heap[np.uint64(at)] = g


@part
def _lacking(
    heap: Int32s,
    size: int,
    slots: Int32s,
    start: Int32s,
    used: Int32s,
    total: Floats,
    expert: int,
) -> int:
    """The place in the heap of the lightest GPU without `expert`; -1 where all have it."""
    best = -1
    for at in range(size):
        g = heap[at]
        if (best < 0 or total[g] < total[heap[best]]) and not _holds(
            slots, start[g], used[g], expert
        ):
            best = at
            if at == 0:
                break
    return best


@part
def _make_room(
    slots: Int32s, start: Int32s, used: Int32s, total: Floats, share: Floats, expert: int
) -> int:
    """A GPU without `expert` that gets a free slot by handing one of its experts to a GPU that has
    one.

    It exists: an open GPU g holds `expert` and is no fuller than any full GPU h, so h without
    `expert` holds something g lacks.
    """
    for g in range(len(used)):
        if used[g] == start[g + 1] - start[g]:
            continue
        for h in range(len(used)):
            if used[h] < start[h + 1] - start[h] or _holds(slots, start[h], used[h], expert):
                continue
            for s in range(start[h], start[h] + used[h]):
                moved = slots[s]
                if _holds(slots, start[g], used[g], moved):
                    continue
                slots[start[g] + used[g]] = moved
                used[g] += 1
                total[g] += share[moved]
                used[h] -= 1
                total[h] -= share[moved]
                slots[s] = slots[start[h] + used[h]]
                return h
    raise ValueError("unreachable: an exchange always exists")


@part
def _exchanges(slots: Int32s, start: Int32s, total: Floats, share: Floats, count: Int32s) -> None:
    """Exchange one expert of the fullest GPU for a lighter one of another while the higher of the
    two loads falls.

    The emptiest GPU is asked first, then the others in ascending order until one helps.
    """
    gpus = len(total)
    asked, held = np.empty(gpus, np.bool_), np.empty(len(slots))
    for s in range(len(slots)):
        held[s] = share[slots[s]]
    mean = 0.0  # numpy's own adds in another order interpreted than compiled
    for load in total:
        mean += load / gpus
    for _ in range(4 * gpus):
        top = _fullest(total)
        if total[top] * WORTH <= mean:
            return
        for g in range(gpus):
            asked[g] = g == top
        found = False
        for _ in range(min(gpus - 1, PARTNERS)):
            low: Any = np.int64(-1)
            for g in range(gpus):
                if not asked[g] and (low < 0 or total[g] < total[low]):
                    low = g
            asked[low] = True
            s, t = _exchange(top, low, slots, start, total, held, count)
            if s >= 0:
                shift = held[s] - held[t]
                slots[s], slots[t] = slots[t], slots[s]
                held[s], held[t] = held[t], held[s]
                total[top] -= shift
                total[low] += shift
                found = True
                break
        if not found:
            return


@part
def _exchange(
    top: int, low: int, slots: Int32s, start: Int32s, total: Floats, held: Floats, count: Int32s
) -> tuple[int, int]:
    """The slots, of loads `held`, of two GPUs whose exchange makes the higher load least, at most
    `WORTH` of what it was; (-1, -1) for none.
    """
    high, light = total[top], total[low]
    peak = high * WORTH
    best_s = best_t = -1
    for s in range(start[top], start[top + 1]):
        a, given = slots[s], held[s]
        if count[a] > 1 and _holds(slots, start[low], start[low + 1] - start[low], a):
            continue
        for t in range(start[low], start[low + 1]):
            shift = given - held[np.uint64(t)]
            higher = max(light + shift, high - shift)
            if higher < peak and not (
                count[slots[t]] > 1
                and _holds(slots, start[top], start[top + 1] - start[top], slots[t])
            ):
                peak, best_s, best_t = higher, s, t
    return best_s, best_t


def balance(weight: npt.ArrayLike, phy2log: Int32s, gpus: int) -> Floats:
    """max/mean GPU load of each layer, float64 [layers], an expert's load split evenly over its
    replicas; 1 where there is no load.
    """
    return evenness(loads_of(weight), phy2log, gpus)


def evenness(loads: Floats, rows: Int32s, gpus: int) -> Floats:
    """`balance` of checked loads [layer, expert] and slots as in `map_loads`."""
    total = map_loads(loads, rows, gpus)
    mean = total.mean(axis=1)
    return np.where(mean > 0, total.max(axis=1) / np.where(mean > 0, mean, 1.0), 1.0)


def map_loads(loads: Floats | Ints, rows: Int32s, gpus: int) -> Floats:
    """float64 [layer, GPU]: loads [layer, expert] split evenly over the slots rows [layer, slot] of
    each, -1 for an empty one.
    """
    layers, experts = loads.shape
    first = np.arange(layers)[:, None]
    key = np.where(rows < 0, experts, rows) + first * (experts + 1)
    copies = np.bincount(key.ravel(), minlength=layers * (experts + 1))
    share = np.zeros((layers, experts + 1))
    share[:, :experts] = loads
    share /= np.maximum(copies, 1).reshape(share.shape)
    owner = slot_gpus(rows.shape[1], gpus) + first * gpus
    total: Array = np.bincount(owner.ravel(), share.ravel()[key].ravel(), layers * gpus)
    return total.reshape(layers, gpus)
