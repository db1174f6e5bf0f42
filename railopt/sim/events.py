"""The event loop: flows start, share the ports, finish, and open the groups that wait for them.

Times are int64 picoseconds, sizes bytes; rates are float64 bytes per picosecond, and a completion
is rounded up to the next picosecond.  While fewer than `2 << shift` flows move, rates are
recomputed after every completion: exact.  With more, after every `flows >> shift` completions,
or when the first of them would be put off by more than one in `2**stretch` of its time: those few
that end inside a step are slowed so that they end with it, and what they leave goes to the others
at once, so no port carries more than it can.  A step over n flows costs O(n) and ends a fixed share
of them, or moves the clock by a fixed share: a run costs a fixed number of passes, not one a
completion.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.kernels import kernel_part, njit
from railopt.sim.fill import Net, Ports, enter, fill, leave

NEVER = 2**62
_START, _DELIVERED = 0, 1
_ROUNDS, _EARLY = 6, 1.0 - 1.0 / 128


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


class SimState(NamedTuple):
    """What a run writes."""

    left: Array  # float64 [flows], bytes still to send
    rate: Array  # float64 [flows]
    finish: Array  # int64 [flows], delivered; NEVER while not
    begun: Array  # int64 [flows], first byte; NEVER while not
    mark_time: Array  # int64 [marks]
    mark_next: Array  # int64 [flows]
    waits: Array  # int64 [groups], groups it still waits for
    group_left: Array  # int64 [groups], flows of it not yet delivered
    active: Array  # int32 [flows], a list
    ending: Array  # int32 [flows], a list
    is_ending: Array  # bool [flows], whether it is on that list
    until_done: Array  # float64 [flows], as `active`: picoseconds at its rate
    sorting: Array  # float64 [flows], a buffer
    moved: Array  # float64 [tracks], bytes of the current step


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

    shift     rates are recomputed when one in 2**shift of the active flows is done
    stretch   and when a completion would be put off by one in 2**stretch of its time
    until     picoseconds; NEVER: to the end
    """

    shift: int
    stretch: int
    until: int


@kernel_part()
def _open(group: int, now: int, work: Work, state: SimState, events: Any) -> None:
    """The group may start: push its flows' starts; a group without flows is over at once and opens
    those behind it.
    """
    ready: Any = [group]
    while len(ready):
        g = ready.pop()
        state.waits[g] = -1
        for i in range(work.group_first[g], work.group_first[g + 1]):
            f = work.group_flow[i]
            heappush(events, (max(now, work.start[f]), _START, np.int64(f)))
        if state.group_left[g] == 0:
            for i in range(work.next_first[g], work.next_first[g + 1]):
                h = work.next_group[i]
                state.waits[h] -= 1
                if state.waits[h] == 0:
                    ready.append(np.int64(h))


@kernel_part()
def _deliver(f: int, now: int, work: Work, state: SimState, events: Any) -> None:
    g = work.group[f]
    state.group_left[g] -= 1
    if state.group_left[g] == 0:
        for i in range(work.next_first[g], work.next_first[g + 1]):
            h = work.next_group[i]
            state.waits[h] -= 1
            if state.waits[h] == 0:
                _open(np.int64(h), now, work, state, events)


@kernel_part()
def _ceil(picoseconds: float) -> int:
    """Up to the next whole picosecond, at least 1; a part in 2**47 above a whole one is rounding,
    not time.
    """
    return max(int(np.ceil(picoseconds * (1.0 - 2.0**-47))), 1)


@kernel_part()
def _smallest(values: Array, rank: int, buffer: Array) -> float:
    """The value that `rank` others come before (quickselect in the buffer; numba's np.partition
    compiles for ages).
    """
    low, high = 0, values.size - 1
    for i in range(values.size):
        buffer[i] = values[i]
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


@kernel_part()
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
    late = _smallest(state.until_done[: active.size], batch - 1, state.sorting)
    longest = min(room, first + ((now + first) >> limits.stretch))
    last = longest if late >= longest else _ceil(late)
    return last, last > first


@kernel_part()
def _advance(
    active: Array,
    now: int,
    step: int,
    net: Net,
    work: Work,
    state: SimState,
    ports: Ports,
    events: Any,
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
        state.moved[work.track[f]] += gone
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
                heappush(events, (state.finish[f], _DELIVERED, np.int64(f)))
        else:
            state.left[f] -= gone
            active[kept] = f
            kept += 1
    return kept


@kernel_part()
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


@kernel_part()
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


@kernel_part()
def _begin(flows: Array, net: Net, work: Work, state: SimState, ports: Ports, events: Any) -> int:
    """Start what starts at once, queue the rest; the number of active flows."""
    count = 0
    if work.next_group.size > 0:
        for g in range(state.waits.size):
            if state.waits[g] == 0:
                _open(g, np.int64(0), work, state, events)
        return count
    for i in range(flows.size):
        f = flows[i]
        if work.start[f] == 0:
            enter(f, net, ports)
            state.active[count] = f
            state.begun[f] = 0
            count += 1
        else:
            heappush(events, (work.start[f], _START, np.int64(f)))
    return count


@kernel_part()
def _happen(
    now: int, count: int, net: Net, work: Work, state: SimState, ports: Ports, events: Any
) -> int:
    """Starts and deliveries that are due; the number of active flows."""
    while len(events) and events[0][0] <= now:
        _, kind, f = heappop(events)
        if kind == _START:
            enter(f, net, ports)
            state.active[count] = f
            state.begun[f] = now
            count += 1
        else:
            _deliver(f, now, work, state, events)
    return count


@kernel_part()
def _run(
    c: int,
    parts: Components,
    net: Net,
    work: Work,
    state: SimState,
    ports: Ports,
    limits: Limits,
    curve: Steps,
) -> Steps:
    """Run component c to the end, to `limits.until`, or until nothing can move any more; the curve,
    which has grown.
    """
    flows = parts.flows[parts.flow_first[c] : parts.flow_first[c + 1]]
    changes = parts.changes[parts.change_first[c] : parts.change_first[c + 1]]
    among = parts.ports[parts.port_first[c] : parts.port_first[c + 1]]
    events: Any = [(np.int64(0), 0, np.int64(0)) for _ in range(0)]
    count = _begin(flows, net, work, state, ports, events)
    now, change = 0, 0
    while now < limits.until:
        count = _happen(now, count, net, work, state, ports, events)
        while change < changes.size and work.change_time[changes[change]] <= now:
            net.capacity[work.change_port[changes[change]]] = work.change_capacity[changes[change]]
            change += 1
        if count == 0 and len(events) == 0:
            break
        following = min(limits.until, events[0][0]) if len(events) else limits.until
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
        count = _advance(active, now, step, net, work, state, ports, events)
        curve = _note(now, step, state.moved, curve)
        now += step
    return curve


@kernel_part()
def _steps(room: int, used: Array) -> Steps:
    return Steps(
        np.zeros(room, np.int32),
        np.zeros(room, np.int64),
        np.zeros(room, np.int64),
        np.zeros(room),
        used,
    )


@kernel_part()
def _note(now: int, step: int, moved: Array, curve: Steps) -> Steps:
    """Append each track's bytes of this step to the curve; the curve, which may have had to
    grow.
    """
    used = curve.used[0]
    if used + moved.size > curve.track.size:
        larger = _steps(2 * (used + moved.size), curve.used)
        for i in range(used):
            larger.track[i], larger.bytes[i] = curve.track[i], curve.bytes[i]
            larger.since[i], larger.till[i] = curve.since[i], curve.till[i]
        curve = larger
    for track in range(moved.size):
        if moved[track] > 0.0:
            curve.track[used], curve.bytes[used] = track, moved[track]
            curve.since[used], curve.till[used] = now, now + step
            moved[track] = 0.0
            used += 1
    curve.used[0] = used
    return curve


@njit(cache=True, nogil=True)
def run(
    parts: Components, net: Net, work: Work, state: SimState, ports: Ports, limits: Limits
) -> tuple[Array, Array, Array, Array]:
    """Run each component on its own, one after the other; the columns of the curve: track, since,
    till, bytes.
    """
    curve = _steps(4 * state.moved.size + 1024, np.zeros(1, np.int64))
    for c in range(parts.flow_first.size - 1):
        curve = _run(c, parts, net, work, state, ports, limits, curve)
    used = curve.used[0]
    return curve.track[:used], curve.since[:used], curve.till[:used], curve.bytes[:used]
