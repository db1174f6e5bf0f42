"""Job: flows over ports, the one thing that the simulator runs.  Plans and direct traffic are
turned into jobs.

Flow f crosses the ports `path[first[f]:first[f+1]]` at once (cut-through) and has `size[f]` bytes.
It starts when its time has come and its group is open; a group opens when every group that it needs
has been delivered.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.arrays import Array, Ints, frozen
from railopt.errors import InputError

Floats = npt.NDArray[np.float64]
_UNSET: Any = None  # __post_init__ puts the default in, so that no reader meets a None


class Change(NamedTuple):
    """At `at_ps` a port's capacity becomes `capacity` bytes per second."""

    at_ps: int
    port: int
    capacity: int


@dataclass(frozen=True, eq=False)
class Job:
    """Flows over ports.

    capacity    int64 [P], bytes per second
    first, path int64 [F + 1] and int32 [first[F]]: the ports of flow f, each at most once
    size        int64 [F], bytes, at least 1
    cost        float64 as `path`: bytes of a port's capacity for each byte of the flow (1)
    weight      float64 [F]: shares of a full port are in proportion to it (1)
    start_ps    int64 [F], earliest start (0);  latency_ps  int64 [F], from the last byte sent to
                delivered (0)
    group       int32 [F] (0);  needs  int32 [E, 2]: group needs[e, 0] opens after group needs[e, 1]
                is delivered
    changes     capacities that change during the run
    mark_first, mark    int64 [F + 1] and [C]: cumulated bytes of a flow at which its pieces are
                        complete (its end)
    track       int32 [F]: the curve a flow adds to, e.g. its rail (0)
    fan_in, goodput     bool [P], float64: such a port keeps `goodput[flows that cross it]` of its
                        capacity (all)
    describe    the name of a port, for messages
    """

    capacity: Ints
    first: Ints
    path: npt.NDArray[np.int32]
    size: Ints
    cost: Floats = _UNSET
    weight: Floats = _UNSET
    start_ps: Ints = _UNSET
    latency_ps: Ints = _UNSET
    group: npt.NDArray[np.int32] = _UNSET
    needs: npt.NDArray[np.int32] = _UNSET
    changes: Sequence[Change] = ()
    mark_first: Ints = _UNSET
    mark: Ints = _UNSET
    track: npt.NDArray[np.int32] = _UNSET
    fan_in: npt.NDArray[np.bool_] = _UNSET
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
        flows, ports = len(self.size), len(self.capacity)
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
        for name, default in defaults.items():
            given = getattr(self, name)
            object.__setattr__(
                self, name, np.ascontiguousarray(default if given is None else given, default.dtype)
            )
        self._check_shapes(flows)
        if flows:
            self._check_values()
        self._check_needs()

    def _check_shapes(self, flows: int) -> None:
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
        for name in ("weight", "start_ps", "latency_ps", "group", "track"):
            if len(getattr(self, name)) != flows:
                raise InputError(f"{name} has {len(getattr(self, name))} entries for {flows} flows")
        if len(self.cost) != len(self.path) or len(self.fan_in) != len(self.capacity):
            raise InputError("cost must have one entry a path entry, fan_in one a port")

    def _check_values(self) -> None:
        if self.path.min() < 0 or self.path.max() >= len(self.capacity):
            raise InputError(
                f"ports from {self.path.min()} to {self.path.max()}: "
                f"expected 0 to {len(self.capacity) - 1}"
            )
        if self.size.min() < 1:
            flow = int(np.argmin(self.size))
            raise InputError(f"flow {flow} has {self.size[flow]} bytes: a flow has at least 1")
        for name in ("weight", "cost"):
            if not np.all(np.isfinite(getattr(self, name))) or getattr(self, name).min() <= 0:
                raise InputError(f"{name} must be finite and above zero everywhere")
        for name in ("start_ps", "latency_ps", "capacity", "group", "track"):
            if getattr(self, name).min() < 0:
                raise InputError(f"{name} holds {getattr(self, name).min()}: expected 0 or more")
        for change in self.changes:
            if change.at_ps < 0 or change.capacity < 0 or not 0 <= change.port < len(self.capacity):
                raise InputError(
                    f"{change}: expected a time and a capacity of at least 0 "
                    f"and a port below {len(self.capacity)}"
                )
        dead = self.best_capacity[self.path] == 0
        if dead.any():
            entry = int(np.argmax(dead))
            flow = int(np.searchsorted(self.first, entry, side="right")) - 1
            raise InputError(
                f"flow {flow} crosses {self.describe(int(self.path[entry]))}, "
                "which has a rate of zero for the whole run: take another path, or let it come back"
            )

    def _check_needs(self) -> None:
        from railopt.sim import graph

        needs = self.needs
        if needs.ndim != 2 or needs.shape[1] != 2 or (needs.size and needs.min() < 0):
            raise InputError(
                f"needs has shape {needs.shape}: expected [E, 2] group numbers of at least 0"
            )
        if len(needs):
            stuck = graph.first_in_circle(self.groups, *self.successors)
            if stuck >= 0:
                raise InputError(
                    f"group (stage) {stuck} waits for itself: "
                    "what each stage needs must not form a circle"
                )

    @cached_property
    def groups(self) -> int:
        """How many groups there are."""
        return 1 + max(int(self.group.max(initial=0)), int(self.needs.max(initial=0)))

    @cached_property
    def successors(self) -> tuple[Ints, npt.NDArray[np.int32]]:
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
    def bound(self) -> Fraction:
        """Seconds that the busiest port needs for its bytes at its best rate: no run is faster."""
        loads = np.zeros(len(self.capacity), np.int64)
        np.add.at(loads, self.path, np.repeat(self.size, np.diff(self.first)))
        best = Fraction(0)
        for rate in np.unique(self.best_capacity[loads > 0]).tolist():
            best = max(best, Fraction(int(loads[self.best_capacity == rate].max()), rate))
        return best

    def __len__(self) -> int:
        return len(self.size)


def bounds_of(labels: Array, count: int) -> Ints:
    """int64 [count + 1]: where each label begins once they are sorted."""
    return np.concatenate([[0], np.cumsum(np.bincount(labels, minlength=count))]).astype(np.int64)
