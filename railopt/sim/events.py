"""The event loop: flows start, share the ports, finish, and open the groups that wait for them.

Times are int64 picoseconds, sizes bytes; rates are float64 bytes per picosecond, and a completion
is rounded up to the next picosecond.  While fewer than `2 << shift` flows move, rates are
recomputed after every completion: exact.  With more, that happens after every `flows >> shift`
completions, or when the first of them would be put off by more than one in `2**STRETCH` of its
time.  Those few that end inside a step are slowed so that they end with it, and what they leave
goes to the others at once: no port carries more than it can.  A step over n flows costs O(n) and
ends a fixed share of them, or moves the clock by a fixed share: a run costs a fixed number of
passes, not one per completion.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import PASSES_S, kernel, part
from railopt.sim.fill import Net, Ports, enter, fill, leave, push, sink

NEVER = 2**62
STRETCH = 1
"""A completion is put off by at most one in 2**STRETCH of its time, which a fault can ask for."""
_START, _DELIVERED = 0, 1
_ROUNDS, _EARLY = 6, 1.0 - 1.0 / 128
OVER, PAUSED, FULL = 0, 1, 2  # what `run` returns
# where a run stands: its component; 1 once that one's first flows have started; picoseconds; of the
# component, changes that have happened and flows that are active
_COMPONENT, _BEGUN, _NOW, _CHANGE, _ACTIVE = PLACES = range(5)
_SLICE = 1_000_000  # flows and ports that one call of `run` looks at: tens of milliseconds


class Work(NamedTuple):
    """What the flows are to do.  Marks are cumulated bytes at which a piece (chunk) of flow f is
    complete.
    """

    size: Array  # float64 [flows]
    start: Array  # int64 [flows], earliest start
    latency: Array  # int64 [flows], from the last byte sent to delivered
    track: Array  # int32 [flows], whose curve it adds to
    mark_first: Array  # int64 [flows + 1]
    mark: Array  # float64 [marks]
    group: Array  # int32 [flows]
    group_first: Array  # int64 [groups + 1] into group_flow
    group_flow: Array  # int32 [flows]
    next_first: Array  # int64 [groups + 1] into next_group: the groups that wait for this one
    next_group: Array  # int32 [needs]
    change_time: Array  # int64 [changes], ascending
    change_port: Array  # int32 [changes]
    change_capacity: Array  # float64 [changes], bytes per picosecond


class Steps(NamedTuple):
    """Bytes that each track moved, step by step."""

    track: Array  # int32 [entries]
    since: Array  # int64 [entries], picoseconds
    till: Array  # int64 [entries], picoseconds
    bytes: Array  # float64 [entries]
    used: Array  # int64 [1], how many entries there are
    moved: Array  # float64 [tracks], bytes of the current step


class EventQueue(NamedTuple):
    """Starts and deliveries to come, a binary heap by time, then kind, then flow."""

    time: Array  # int64 [flows]
    what: Array  # int64 [flows], kind * flows + flow
    used: Array  # int64 [1], how many entries there are


class SimState(NamedTuple):
    """What a run writes."""

    left: Array  # float64 [flows], bytes still to send
    rate: Array  # float64 [flows]
    finish: Array  # int64 [flows], delivered; -1 while not
    begun: Array  # int64 [flows], first byte; -1 while not
    mark_time: Array  # int64 [marks]
    mark_next: Array  # int64 [flows]
    waits: Array  # int64 [groups], groups it still waits for
    group_left: Array  # int64 [groups], flows of it not yet delivered
    active: Array  # int32 [flows], a list
    ending: Array  # int32 [flows], a list
    is_ending: Array  # bool [flows], whether it is on that list
    until_done: Array  # float64 [flows], as `active`: picoseconds at its rate
    curve: Steps
    queue: EventQueue
    place: Array  # int64 [PLACES]


class Components(NamedTuple):
    """Flows, changes and ports of each component: what joins flows that share ports, directly or
    through others.  Those of component c are `flows[flow_first[c]:flow_first[c+1]]`, and so on.
    """

    flow_first: Array  # int64 [components + 1]
    flows: Array  # int64 [flows]
    change_first: Array  # int64 [components + 1]
    changes: Array  # int64 [changes]
    port_first: Array  # int64 [components + 1]
    ports: Array  # int64 [ports that are used]


class Limits(NamedTuple):
    """How far to run, and how finely.

    shift   rates are recomputed when one in 2**shift of the active flows is done
    until   picoseconds; NEVER: to the end
    """

    shift: int
    until: int


@part
def _push(queue: EventQueue, time: int, kind: int, flow: int) -> None:
    what = kind * queue.time.size + flow
    queue.used[0] = push(queue.time, queue.what, queue.used[0], time, what)


@part
def _pop(queue: EventQueue) -> int:
    """Remove the first entry: kind * flows + flow."""
    first, last = int(queue.what[0]), queue.used[0] - 1
    queue.used[0] = last
    sink(queue.time, queue.what, last, queue.time[last], queue.what[last])
    return first


@part
def _open(group: int, now: int, work: Work, state: SimState) -> None:
    """The group may start: push its flows' starts; a group without flows is over at once and opens
    those behind it.
    """
    ready: Any = [group]
    while len(ready):
        g = ready.pop()
        state.waits[g] = -1
        for i in range(work.group_first[g], work.group_first[g + 1]):
            f = work.group_flow[i]
            _push(state.queue, max(now, work.start[f]), _START, f)
        if state.group_left[g] == 0:
            for i in range(work.next_first[g], work.next_first[g + 1]):
                h = work.next_group[i]
                state.waits[h] -= 1
                if state.waits[h] == 0:
                    ready.append(np.int64(h))


@part
def _deliver(f: int, now: int, work: Work, state: SimState) -> None:
    g = work.group[f]
    state.group_left[g] -= 1
    if state.group_left[g] == 0:
        for i in range(work.next_first[g], work.next_first[g + 1]):
            h = work.next_group[i]
            state.waits[h] -= 1
            if state.waits[h] == 0:
                _open(np.int64(h), now, work, state)


@part
def _ceil(picoseconds: float) -> int:
    """Up to the next whole picosecond, at least 1; a part in 2**47 above a whole one is rounding,
    not time.
    """
    return max(int(np.ceil(picoseconds * (1.0 - 2.0**-47))), 1)


@part
def _smallest(values: Array, rank: int) -> float:
    """The value that `rank` others come before (quickselect; numba's np.partition compiles for
    ages).
    """
    low, high, buffer = 0, values.size - 1, values.copy()
    while low < high:
        pivot = buffer[(low + high) >> 1]
        i, j = low, high
        while i <= j:
            while buffer[i] < pivot:
                i += 1
            while buffer[j] > pivot:
                j -= 1
            if i <= j:
                buffer[i], buffer[j] = buffer[j], buffer[i]
                i += 1
                j -= 1
        if rank <= j:
            high = j
        elif rank >= i:
            low = i
        else:
            break
    return float(buffer[rank])


@part
def _window(
    active: Array, state: SimState, now: int, limits: Limits, room: int
) -> tuple[int, bool]:
    """Picoseconds of the next step, at most `room` (-1: nothing moves), and whether several ends
    lie apart in it.
    """
    soonest, moving = np.inf, 0
    for i in range(active.size):
        f = active[i]
        state.until_done[i] = state.left[f] / state.rate[f] if state.rate[f] > 0.0 else np.inf
        soonest = min(soonest, state.until_done[i])
        moving += state.until_done[i] < np.inf
    if soonest == np.inf:
        return (-1 if room == NEVER else room), False
    first = _ceil(soonest)
    batch = moving >> limits.shift
    if batch < 2 or first >= room:
        return min(first, room), False
    late = _smallest(state.until_done[: active.size], batch - 1)
    longest = min(room, first + ((now + first) >> STRETCH))
    last = longest if late >= longest else _ceil(late)
    return last, last > first


@part
def _advance(
    active: Array, now: int, step: int, net: Net, work: Work, state: SimState, ports: Ports
) -> int:
    """Move bytes for `step` picoseconds, note what is complete, keep the rest; how many flows are
    still active.
    """
    kept = 0
    for i in range(active.size):
        f = active[i]
        rate, sent = state.rate[f], work.size[f] - state.left[f]
        gone = rate * step
        tiny = 1e-6 + 1e-12 * work.size[f]
        over = state.left[f] - gone <= tiny
        ended = now + step
        if over:
            gone = state.left[f]
            if state.until_done[i] < step:
                ended = now + _ceil(state.until_done[i])
        state.curve.moved[work.track[f]] += gone
        mark, last = state.mark_next[f], work.mark_first[f + 1]
        while mark < last and (over or work.mark[mark] <= sent + gone):
            at = ended
            if work.mark[mark] < sent + gone and rate > 0.0:
                at = min(ended, now + _ceil((work.mark[mark] - sent) / rate))
            state.mark_time[mark] = at + work.latency[f]
            mark += 1
        state.mark_next[f] = mark
        if over:
            leave(f, net, ports)
            state.left[f] = 0.0
            state.finish[f] = ended + work.latency[f]
            if work.next_group.size > 0:
                _push(state.queue, state.finish[f], _DELIVERED, f)
        else:
            state.left[f] -= gone
            active[kept] = f
            kept += 1
    return kept


@part
def _spread(
    active: Array, step: int, among: Array, net: Net, state: SimState, ports: Ports
) -> None:
    """Slow the flows that end inside the step so that they end with it; give what they leave to the
    others.

    Others that are now so much faster that they would end well inside the step, too, join them, a
    few rounds long.
    """
    ending = _mark_ending(active, step, np.int64(0), state)
    for _ in range(_ROUNDS):
        fill(among, state.ending[:ending], net, state.rate, ports)
        soonest = np.inf
        for i in range(active.size):
            f = active[i]
            if not state.is_ending[f]:
                state.until_done[i] = (
                    state.left[f] / state.rate[f] if state.rate[f] > 0.0 else np.inf
                )
                soonest = min(soonest, state.until_done[i])
        if soonest >= step * _EARLY:
            break
        ending = _mark_ending(active, step, ending, state)
    for i in range(ending):
        state.is_ending[state.ending[i]] = False


@part
def _mark_ending(active: Array, step: int, ending: int, state: SimState) -> int:
    """Add the flows that end within the step to the list, at the rate that ends them with it; its
    new length.
    """
    for i in range(active.size):
        f = active[i]
        if state.until_done[i] <= step and not state.is_ending[f]:
            state.is_ending[f] = True
            state.ending[ending] = f
            state.rate[f] = state.left[f] / step
            ending += 1
    return ending


@part
def _begin(flows: Array, net: Net, work: Work, state: SimState, ports: Ports) -> int:
    """Start what starts at once, queue the rest; the number of active flows."""
    count = 0
    if work.next_group.size > 0:
        for g in range(state.waits.size):
            if state.waits[g] == 0:
                _open(g, np.int64(0), work, state)
        return count
    for i in range(flows.size):
        f = flows[i]
        if work.start[f] == 0:
            enter(f, net, ports)
            state.active[count] = f
            state.begun[f] = 0
            count += 1
        else:
            _push(state.queue, work.start[f], _START, f)
    return count


@part
def _happen(now: int, count: int, net: Net, work: Work, state: SimState, ports: Ports) -> int:
    """Starts and deliveries that are due; the number of active flows."""
    queue = state.queue
    while queue.used[0] and queue.time[0] <= now:
        kind, f = divmod(_pop(queue), queue.time.size)
        if kind == _START:
            enter(f, net, ports)
            state.active[count] = f
            state.begun[f] = now
            count += 1
        else:
            _deliver(f, now, work, state)
    return count


@part
def _run(
    c: int, parts: Components, net: Net, work: Work, state: SimState, ports: Ports, limits: Limits
) -> int:
    """Run component c from where it stands to the end, to `limits.until`, or until nothing can move
    any more (OVER), for a slice of work (PAUSED) or until the curve has no room (FULL).
    """
    flows = parts.flows[parts.flow_first[c] : parts.flow_first[c + 1]]
    changes = parts.changes[parts.change_first[c] : parts.change_first[c + 1]]
    among = parts.ports[parts.port_first[c] : parts.port_first[c + 1]]
    place, queue, curve, looked = state.place, state.queue, state.curve, 0
    if not place[_BEGUN]:
        place[_BEGUN], place[_NOW], place[_CHANGE], queue.used[0] = 1, 0, 0, 0
        place[_ACTIVE] = _begin(flows, net, work, state, ports)
    now, change, count = place[_NOW], place[_CHANGE], place[_ACTIVE]
    ended = OVER
    while now < limits.until:
        if looked >= _SLICE or curve.used[0] + curve.moved.size > curve.track.size:
            ended = PAUSED if looked >= _SLICE else FULL
            break
        count = _happen(now, count, net, work, state, ports)
        while change < changes.size and work.change_time[changes[change]] <= now:
            net.capacity[work.change_port[changes[change]]] = work.change_capacity[changes[change]]
            change += 1
        if count == 0 and queue.used[0] == 0:
            break
        following = min(limits.until, queue.time[0]) if queue.used[0] else limits.until
        if change < changes.size:
            following = min(following, work.change_time[changes[change]])
        if count == 0:
            now = following
            continue
        active = state.active[:count]
        fill(among, state.ending[:0], net, state.rate, ports)
        room = following - now if following < NEVER else NEVER
        step, several = _window(active, state, now, limits, room)
        if step < 0:
            break
        if several:
            _spread(active, step, among, net, state, ports)
        looked += count + among.size
        count = _advance(active, now, step, net, work, state, ports)
        _note(now, step, curve)
        now += step
    place[_NOW], place[_CHANGE], place[_ACTIVE] = now, change, count
    return ended


@part
def _note(now: int, step: int, curve: Steps) -> None:
    """Append each track's bytes of this step to the curve, which has room for them."""
    used, moved = curve.used[0], curve.moved
    for track in range(moved.size):
        if moved[track] > 0.0:
            curve.track[used], curve.bytes[used] = track, moved[track]
            curve.since[used], curve.till[used] = now, now + step
            moved[track] = 0.0
            used += 1
    curve.used[0] = used


@kernel(element_s=PASSES_S)
def run(
    parts: Components, net: Net, work: Work, state: SimState, ports: Ports, limits: Limits
) -> int:
    """Run each component on its own, one after the other, from where `state` stands.

    OVER at the end; PAUSED after a slice of work, so that Python can act on Ctrl-C between two
    calls; FULL where the curve needs more room.  It returns no array: numba makes those by calling
    Python, which an interrupt would break.  numba takes 15 s over it, once per machine: each event
    passes through all of the loop.
    """
    place = state.place
    while place[_COMPONENT] < parts.flow_first.size - 1:
        ended = _run(place[_COMPONENT], parts, net, work, state, ports, limits)
        if ended != OVER:
            return ended
        place[_COMPONENT] += 1
        place[_BEGUN] = 0
    return OVER
