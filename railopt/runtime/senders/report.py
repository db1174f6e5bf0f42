"""What a run says of itself: bytes, times and faults of the run, its rails and its links."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from typing import Any, TypeVar

import numpy as np

from railopt.base.arrays import Array, Ints, groups
from railopt.base.errors import printable
from railopt.model.plan import Plan
from railopt.runtime.rendezvous.wire import read_list, read_number, understood


@dataclass(frozen=True)
class LinkFault:
    """A link that died: seen from `node`, towards `peer`, on `rail`; `moved` chunks were planned
    again.
    """

    node: int
    peer: int
    rail: int
    cause: str
    moved: int
    after_s: float

    def __str__(self) -> str:
        return (
            f"rail {self.rail} between node {self.node} and node {self.peer} died after "
            f"{self.after_s:.3f} s ({self.cause}); {self.moved} chunks planned again on the living "
            f"rails"
        )


@dataclass(frozen=True)
class Readmission:
    """A link that had died and was admitted again before this run, `down_s` seconds after its
    death, by the last of `probes` probes.
    """

    node: int
    peer: int
    rail: int
    down_s: float
    probes: int

    def __str__(self) -> str:
        return (
            f"rail {self.rail} between node {self.node} and node {self.peer} is back after "
            f"{self.down_s:.3f} s (probes: {self.probes})"
        )


@dataclass(frozen=True)
class RailReport:
    """What one rail of this process carried: bytes and chunks sent, its device, and whether any
    link of it lives.
    """

    rail: int
    device: str
    bytes: int
    chunks: int
    alive: bool = True


@dataclass(frozen=True)
class LinkReport:
    """What a run did on one link, from `node` to `peer` on `rail`.

    bytes, chunks    that it carried
    first_s, last_s  its first post and its last completion, in seconds since the run began; equal
                     where it carried nothing
    retries          chunks that were sent again on other links because it died
    faults, replans  how often it died, and how often chunks of it were planned again
    readmissions     how often it was admitted again before this run
    alive            whether it lived at the end of the run
    """

    node: int
    peer: int
    rail: int
    bytes: int
    chunks: int
    first_s: float
    last_s: float
    retries: int = 0
    faults: int = 0
    replans: int = 0
    readmissions: int = 0
    alive: bool = True

    @property
    def seconds(self) -> float:
        """Seconds from its first post to its last completion."""
        return self.last_s - self.first_s

    @property
    def rate(self) -> float | None:
        """Bytes per second that it achieved; None where it carried nothing."""
        return self.bytes / self.seconds if self.seconds > 0 else None


@dataclass(frozen=True)
class Report:
    """How a run went: bytes and chunks sent by this process, seconds, and, where payloads were
    verified, wrong chunks.

    links         those of this process that carried something, came back or are dead, in order of
                  (node, peer, rail)
    readmissions  links that were admitted again before this run
    failed        whether the run came to no end; it then has events and dead links alone, and
                  stays in its process
    """

    sender: str
    policy: str
    bytes: int
    chunks: int
    seconds: float
    rails: tuple[RailReport, ...]
    wrong: int | None = None
    faults: tuple[LinkFault, ...] = ()
    readmissions: tuple[Readmission, ...] = ()
    links: tuple[LinkReport, ...] = field(default=(), repr=False)
    failed: bool = False

    def as_dict(self, *, links: bool = True) -> dict[str, Any]:
        """As JSON values; each link as a list, in the order of LinkReport's fields."""
        return {
            "sender": self.sender,
            "policy": self.policy,
            "bytes": self.bytes,
            "chunks": self.chunks,
            "seconds": self.seconds,
            "wrong": self.wrong,
            "rails": [vars(r) for r in self.rails],
            "faults": [vars(f) for f in self.faults],
            "readmissions": [vars(r) for r in self.readmissions],
            "links": [list(astuple(link)) for link in self.links] if links else [],
        }

    @classmethod
    def from_dict(cls, data: Any) -> Report:
        """The way back from what a rank sent; anything else is a BackendError."""
        with understood("a rank", "a report"):
            return _record(cls, data)


_T = TypeVar("_T")


def _record(cls: type[_T], row: Any) -> _T:
    """A dataclass from a dict of its fields, read by their types."""
    kinds = {f.name: str(f.type) for f in fields(cls) if f.name != "failed"}  # type: ignore[arg-type]
    if not isinstance(row, dict) or set(row) != set(kinds):
        raise ValueError("other keys than a record's")
    return cls(**{name: _READERS[kind](row[name]) for name, kind in kinds.items()})


def _records(cls: type[_T], rows: Any) -> tuple[_T, ...]:
    return tuple(_record(cls, row) for row in read_list(rows))


def _links(rows: Any) -> tuple[LinkReport, ...]:
    names = [f.name for f in fields(LinkReport)]
    named = [dict(zip(names, read_list(row), strict=True)) for row in read_list(rows)]
    return _records(LinkReport, named)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a text")
    return printable(value)


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ValueError("expected seconds")
    return float(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError("expected true or false")
    return value


_READERS: dict[str, Callable[[Any], Any]] = {
    "str": _text,
    "int": read_number,
    "int | None": lambda value: None if value is None else read_number(value),
    "float": _seconds,
    "bool": _flag,
    "tuple[LinkReport, ...]": _links,
    "tuple[RailReport, ...]": lambda rows: _records(RailReport, rows),
    "tuple[LinkFault, ...]": lambda rows: _records(LinkFault, rows),
    "tuple[Readmission, ...]": lambda rows: _records(Readmission, rows),
}


def rail_reports(
    devices: Sequence[str], rail: Array, size: Ints, dead: Container[int] = ()
) -> tuple[RailReport, ...]:
    """Bytes and chunks per rail, of chunks with this rail and size [C]."""
    return tuple(
        RailReport(n, device, int(size[rail == n].sum()), int((rail == n).sum()), n not in dead)
        for n, device in enumerate(devices)
    )


Place = tuple[int, int, int]


def link_loads(plan: Plan, rows: Ints, rail: Array) -> dict[Place, tuple[int, int]]:
    """(node, peer, rail) -> bytes and chunks, of the chunks `rows` [R] on rails [R]."""
    chunks, rails = plan.chunks, plan.fabric.rails
    pair = chunks.src[rows].astype(np.int64) * chunks.nodes + chunks.dst[rows]
    link = pair * rails + rail
    order, bounds = groups(link)
    places, total = link[order[bounds[:-1]]], np.add.reduceat(chunks.size[rows[order]], bounds[:-1])
    loads = zip(total.tolist(), np.diff(bounds).tolist(), strict=True)
    return {
        (*divmod(place // rails, chunks.nodes), place % rails): load
        for place, load in zip(places.tolist(), loads, strict=True)
    }


def link_reports(
    plan: Plan,
    rows: Ints,
    rail: Array,
    times: Mapping[Place, tuple[float, float]],
    events: tuple[Sequence[LinkFault], Sequence[Readmission]] = ((), ()),
    dead: Iterable[Place] = (),
) -> tuple[LinkReport, ...]:
    """One record per link that carried something, has an event or is dead.

    rows, rail  chunks that went, and the rail that each took, int64 [R]
    times       (node, peer, rail) -> first post and last completion, seconds since the run began
    """
    carried, gone = link_loads(plan, rows, rail), set(dead)
    faults, readmissions = (_by_place(found) for found in events)
    found = []
    for place in sorted({*carried, *faults, *readmissions, *gone}):
        moved = [fault.moved for fault in faults.get(place, ())]
        load, seconds = carried.get(place, (0, 0)), times.get(place, (0.0, 0.0))
        replans, back = sum(number > 0 for number in moved), len(readmissions.get(place, ()))
        counts = sum(moved), len(moved), replans, back
        found.append(LinkReport(*place, *load, *seconds, *counts, alive=place not in gone))
    return tuple(found)


def _by_place(events: Iterable[Any]) -> dict[Place, list[Any]]:
    found: dict[Place, list[Any]] = {}
    for event in events:
        found.setdefault((event.node, event.peer, event.rail), []).append(event)
    return found
