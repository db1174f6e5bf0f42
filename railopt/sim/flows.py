"""Flows over ports, the one thing that the simulator runs.  Plans and direct traffic are turned
into them.

Flow f crosses the ports `path[first[f]:first[f+1]]` at once (cut-through) and has `size[f]` bytes.
It starts when its time has come and its group is open; a group opens when every group that it needs
has been delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Array, Bools, Floats, Int32s, Ints, frozen, groups, total
from railopt.base.errors import InputError
from railopt.base.units import quoted

_UNSET: Any = None  # __post_init__ puts the default in, so that no reader meets a None

MOST_BYTES = 2**62
LONGEST_PS = 2**60
"""Of an earliest start, a latency or a change: about 13 days, a quarter of the clock's range."""
MOST_TRACKS = 2**20
SPARE_GROUPS = 1024
"""Groups may be numbered with gaps, as long as there are at most so many empty ones that nothing
names."""
LEAST_FLOAT, MOST_FLOAT = 1e-15, 1e15
"""Of weights and costs: rates stay far from the edges of float64."""


class Change(NamedTuple):
    """At `at_ps` a port's capacity becomes `capacity` bytes per second."""

    at_ps: int
    port: int
    capacity: int


@dataclass(frozen=True, eq=False)
class Flows:
    """Flows over ports; every array is checked, an invalid value can't exist.

    capacity    int64 [P], bytes per second
    first, path int64 [F + 1] and int32 [first[F]]: the ports of flow f, each at most once
    size        int64 [F], bytes, at least 1
    cost        float64 as `path`: bytes of a port's capacity for each byte of the flow (1)
    weight      float64 [F]: shares of a full port are in proportion to it (1)
    start_ps    int64 [F], earliest start (0)
    latency_ps  int64 [F], from the last byte sent to delivered (0)
    group       int32 [F] (0)
    needs       int32 [E, 2]: group needs[e, 0] opens after group needs[e, 1] is delivered
    changes     capacities that change during the run
    mark_first  int64 [F + 1]: the marks of flow f are `mark[mark_first[f]:mark_first[f+1]]`
    mark        int64 [C]: cumulated bytes of a flow at which its pieces are complete, rising, from
                1 to its size (one mark per flow, at its end)
    track       int32 [F]: the curve a flow adds to, e.g. its rail (0)
    fan_in      bool [P]: such a port keeps `goodput[flows that cross it]` of its capacity (none)
    goodput     float64 [K], above 0 and at most 1; the last entry also stands for more flows
    describe    the name of a port, for messages
    """

    capacity: Ints
    first: Ints
    path: Int32s
    size: Ints
    cost: Floats = _UNSET
    weight: Floats = _UNSET
    start_ps: Ints = _UNSET
    latency_ps: Ints = _UNSET
    group: Int32s = _UNSET
    needs: Int32s = _UNSET
    changes: Sequence[Change] = ()
    mark_first: Ints = _UNSET
    mark: Ints = _UNSET
    track: Int32s = _UNSET
    fan_in: Bools = _UNSET
    goodput: Floats = _UNSET
    describe: Callable[[int], str] = field(default=lambda port: f"port {port}", repr=False)

    def __post_init__(self) -> None:
        for name, dtype in (
            ("capacity", np.int64),
            ("first", np.int64),
            ("path", np.int32),
            ("size", np.int64),
        ):
            object.__setattr__(self, name, frozen(getattr(self, name), dtype, name, 1))
        self._check_paths()
        self._set_defaults()
        self._check_values()
        self._check_marks()
        object.__setattr__(self, "changes", tuple(map(self._checked_change, self.changes)))
        self._check_dead_ports()
        self._check_needs()

    def _set_defaults(self) -> None:
        """What was not given; then every array in its own type and shape."""
        flows, ports = len(self), len(self.capacity)
        defaults: dict[str, Any] = {
            "cost": np.ones(len(self.path)),
            "weight": np.ones(flows),
            "start_ps": np.zeros(flows, np.int64),
            "latency_ps": np.zeros(flows, np.int64),
            "group": np.zeros(flows, np.int32),
            "needs": np.zeros((0, 2), np.int32),
            "mark_first": np.arange(flows + 1),
            "mark": self.size,
            "track": np.zeros(flows, np.int32),
            "fan_in": np.zeros(ports, np.bool_),
            "goodput": np.ones(1),
        }
        if (self.mark is None) != (self.mark_first is None):
            raise InputError("mark and mark_first belong together: give both or neither")
        for name, default in defaults.items():
            given = getattr(self, name)
            array = _of_type(default if given is None else given, default.dtype, name, default.ndim)
            if name not in ("needs", "mark", "goodput") and array.shape != default.shape:
                raise InputError(
                    f"{name} has {len(array)} entries: expected {len(default)} for {flows} flows "
                    f"over {ports} ports with {len(self.path)} path entries"
                )
            object.__setattr__(self, name, array)

    def _check_paths(self) -> None:
        flows, ports = len(self.size), len(self.capacity)
        if (
            len(self.first) != flows + 1
            or self.first[0] != 0
            or self.first[-1] != len(self.path)
            or np.any(np.diff(self.first) < 1)
        ):
            raise InputError(
                f"first must rise from 0 to {len(self.path)} in {flows} steps: "
                "every flow crosses at least one port"
            )
        if not flows:
            return
        if self.path.min() < 0 or self.path.max() >= ports:
            raise InputError(
                f"ports from {self.path.min()} to {self.path.max()}: expected 0 to {ports - 1}"
            )
        crossed = np.sort(np.repeat(np.arange(flows) * ports, np.diff(self.first)) + self.path)
        twice = crossed[1:][np.diff(crossed) == 0]
        if len(twice):
            flow = int(twice[0]) // ports
            raise InputError(f"flow {flow} crosses a port twice: expected each at most once")
        if self.size.min() < 1:
            flow = int(np.argmin(self.size))
            raise InputError(f"flow {flow} has {self.size[flow]} bytes: a flow has at least 1")
        if total(self.size) > MOST_BYTES:
            raise InputError(f"{total(self.size)} bytes in all: expected at most 2**62")

    def _check_values(self) -> None:
        for name, most in (
            ("capacity", None),
            ("start_ps", LONGEST_PS),
            ("latency_ps", LONGEST_PS),
            ("group", len(self) + 2 * len(self.needs) + SPARE_GROUPS),
            ("needs", len(self) + 2 * len(self.needs) + SPARE_GROUPS),
            ("track", MOST_TRACKS),
        ):
            _within(name, getattr(self, name), 0, most)
        for name in ("weight", "cost"):
            _within(name, getattr(self, name), LEAST_FLOAT, MOST_FLOAT)
        if not len(self.goodput):
            raise InputError("goodput is empty: expected a share for each number of flows")
        _within("goodput", self.goodput, LEAST_FLOAT, 1)
        if self.needs.ndim != 2 or self.needs.shape[1] != 2:
            raise InputError(f"needs has shape {self.needs.shape}: expected [E, 2] group numbers")

    def _check_marks(self) -> None:
        """Marks of a flow rise from 1 to its size at most."""
        first, mark = self.mark_first, self.mark
        if first[0] != 0 or first[-1] != len(mark) or np.any(np.diff(first) < 0):
            raise InputError(f"mark_first must rise from 0 to the {len(mark)} marks there are")
        if not len(mark):
            return
        flow = np.repeat(np.arange(len(self)), np.diff(first))
        same = flow[1:] == flow[:-1]
        wrong = (mark < 1) | (mark > self.size[flow])
        wrong[1:] |= same & (mark[1:] < mark[:-1])
        if wrong.any():
            place = int(np.argmax(wrong))
            raise InputError(
                f"mark {place} of flow {flow[place]} is at byte {mark[place]}: expected them to "
                f"rise from 1 to the flow's {self.size[flow[place]]} bytes"
            )

    def _checked_change(self, change: Any) -> Change:
        try:
            at_ps, port, capacity = (int(value) for value in change if value == int(value))
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"a change of {quoted(change)}: expected Change(at_ps, port, capacity) in integers"
            ) from None
        if not (
            0 <= at_ps <= LONGEST_PS
            and 0 <= port < len(self.capacity)
            and 0 <= capacity <= np.iinfo(np.int64).max
        ):
            raise InputError(
                f"{Change(at_ps, port, capacity)}: expected a time from 0 to 2**60, "
                f"a port below {len(self.capacity)} and a capacity of at least 0"
            )
        return Change(at_ps, port, capacity)

    def _check_dead_ports(self) -> None:
        dead = self.best_capacity[self.path] == 0
        if dead.any():
            entry = int(np.argmax(dead))
            flow = int(np.searchsorted(self.first, entry, side="right")) - 1
            raise InputError(
                f"flow {flow} crosses {self.describe(int(self.path[entry]))}, "
                "which has a rate of zero for the whole run: take another path, or let it come back"
            )

    def _check_needs(self) -> None:
        order = TopologicalSorter[int]()
        for group, needed in self.needs.tolist():
            order.add(group, needed)
        try:
            order.prepare()
        except CycleError as error:
            raise InputError(
                f"group (stage) {min(error.args[1])} waits for a circle: "
                "what each stage needs must not form one"
            ) from None

    @cached_property
    def groups(self) -> int:
        """How many groups there are."""
        return 1 + max(int(self.group.max(initial=0)), int(self.needs.max(initial=0)))

    @cached_property
    def successors(self) -> tuple[Ints, Int32s]:
        """(int64 [groups + 1], int32 [E]): the groups that wait for group g are
        `second[first[g]:first[g+1]]`.
        """
        needs = self.needs
        order = np.argsort(needs[:, 1], kind="stable")
        return bounds_of(needs[:, 1], self.groups), needs[order, 0]

    @cached_property
    def best_capacity(self) -> Ints:
        """int64 [P]: the highest capacity that each port ever has."""
        best = self.capacity.copy()
        for change in self.changes:
            best[change.port] = max(best[change.port], change.capacity)
        return best

    @cached_property
    def loads(self) -> Ints:
        """int64 [P]: bytes that each port carries, as often as it carries them: by the whole part
        of their cost.
        """
        times = np.floor(self.cost)
        if float(times.max(initial=1.0)) * total(self.size) > MOST_BYTES:
            times = np.minimum(times, 1.0)
        loads = np.zeros(len(self.capacity), np.int64)
        np.add.at(
            loads, self.path, times.astype(np.int64) * np.repeat(self.size, np.diff(self.first))
        )
        return loads

    @cached_property
    def bound(self) -> Fraction:
        """Seconds that the busiest port needs for its bytes at its best rate: no run is faster."""
        best = Fraction(0)
        for rate in np.unique(self.best_capacity[self.loads > 0]).tolist():
            best = max(best, Fraction(int(self.loads[self.best_capacity == rate].max()), rate))
        return best

    def __len__(self) -> int:
        return len(self.size)


def _of_type(array: npt.ArrayLike, dtype: np.dtype[Any], name: str, ndim: int) -> Array:
    """`array` as a read-only array of `dtype`: integers as `frozen` takes them, floats and truth
    values by kind.
    """
    if dtype.kind == "i":
        return frozen(array, dtype, name, ndim)
    kinds, what = ("b", "truth values") if dtype.kind == "b" else ("iuf", "numbers")
    try:
        given = np.asarray(array)
    except (ValueError, OverflowError) as error:
        raise InputError(f"{name} is not an array of {what} ({error})") from error
    if given.dtype.kind not in kinds or given.ndim != ndim:
        raise InputError(
            f"{name} holds {given.dtype} in {given.ndim} dimensions: expected {what} in {ndim}"
        )
    result = np.array(given, dtype, order="C")
    result.flags.writeable = False
    return result


def _within(name: str, array: Array, low: float, most: float | None) -> None:
    """Refuse what lies outside, or is no number."""
    if not array.size:
        return
    least, largest = array.min(), array.max()
    if not least >= low:
        raise InputError(f"{name} holds {least}: expected {low:g} or more everywhere")
    if most is not None and not largest <= most:
        raise InputError(f"{name} holds {largest}: expected at most {most:g}")


def bounds_of(labels: Array, count: int) -> Ints:
    """int64 [count + 1]: where each label begins once they are sorted."""
    return np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=count))]).astype(np.int64)


def joined(key: Ints, size: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    """Rows of equal key as one flow: (rows, those of a flow together; mark_first, mark and size of
    the flows, one mark per row).
    """
    order, first = groups(key)
    sent = np.concatenate([[0], np.cumsum(size[order])])
    mark = sent[1:] - np.repeat(sent[first[:-1]], np.diff(first))
    mark.flags.writeable = False  # so that it is not copied
    return order, first, mark, np.diff(sent[first])
