"""What a run says of itself: bytes, times and faults of the run, its rails and its links."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import BackendError, printable
from railopt.model.plan import Plan


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
            f"{self.after_s:.3f} s "
            f"({self.cause}); {self.moved} chunks planned again on the living rails"
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
        try:
            if set(data) != set(cls.__dataclass_fields__) - {"failed"}:
                raise ValueError("other keys than a report's")
            return cls(
                _text(data["sender"]),
                _text(data["policy"]),
                whole_count(data["bytes"]),
                whole_count(data["chunks"]),
                _seconds(data["seconds"]),
                _records(RailReport, data["rails"]),
                None if data["wrong"] is None else whole_count(data["wrong"]),
                _records(LinkFault, data["faults"]),
                _records(Readmission, data["readmissions"]),
                _records(LinkReport, [_row(LinkReport, row) for row in data["links"]]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BackendError(
                f"a rank sent a report that this railopt does not understand "
                f"({printable(error, 80)}): run the same version on all nodes"
            ) from error


_T = TypeVar("_T")


def _row(cls: type[Any], row: Any) -> dict[str, Any]:
    if not isinstance(row, list):
        raise TypeError("expected one list per link")
    return dict(zip((f.name for f in fields(cls)), row, strict=True))


def _records(cls: type[_T], rows: Any) -> tuple[_T, ...]:
    """Records of a dataclass, whose fields are texts, counts, seconds and flags, from dicts."""
    if not isinstance(rows, list):
        raise TypeError("expected a list")
    kinds = {f.name: _READERS[str(f.type)] for f in fields(cls)}  # type: ignore[arg-type]
    return tuple(cls(**_checked(kinds, row)) for row in rows)


def _checked(kinds: Mapping[str, Callable[[Any], Any]], row: Any) -> dict[str, Any]:
    if not isinstance(row, dict) or set(row) != set(kinds):
        raise ValueError("other keys than a record's")
    return {name: read(row[name]) for name, read in kinds.items()}


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a text")
    return printable(value)


def whole_count(value: Any) -> int:
    """Of a peer's message: a whole number from 0."""
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError("expected a count")
    return value


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
    "int": whole_count,
    "float": _seconds,
    "bool": _flag,
}


def rail_reports(
    plan: Plan, device: Callable[[int], str], rows: Ints | None = None
) -> tuple[RailReport, ...]:
    """Bytes and chunks per rail as planned, of all chunks or of `rows`."""
    rail, size = (
        (plan.rail, plan.chunks.size) if rows is None else (plan.rail[rows], plan.chunks.size[rows])
    )
    return tuple(
        RailReport(n, device(n), int(size[rail == n].sum()), int((rail == n).sum()))
        for n in range(plan.fabric.rails)
    )


Place = tuple[int, int, int]


def link_reports(
    plan: Plan,
    rows: Ints,
    rail: Ints,
    times: Mapping[Place, tuple[float, float]],
    events: tuple[Sequence[LinkFault], Sequence[Readmission]] = ((), ()),
    dead: Iterable[Place] = (),
) -> tuple[LinkReport, ...]:
    """One record per link that carried something, has an event or is dead.

    rows, rail  chunks that went, and the rail that each took, int64 [R]
    times       (node, peer, rail) -> first post and last completion, seconds since the run began
    """
    chunks, rails = plan.chunks, plan.fabric.rails
    pair = chunks.src[rows].astype(np.int64) * chunks.nodes + chunks.dst[rows]
    places, link = np.unique(pair * rails + rail, return_inverse=True)
    count = np.bincount(link, minlength=len(places))
    total = np.zeros(len(places), np.int64)
    np.add.at(total, link, chunks.size[rows])
    carried = {
        (*divmod(place // rails, chunks.nodes), place % rails): load
        for place, *load in zip(places.tolist(), total.tolist(), count.tolist(), strict=True)
    }
    faults, readmissions = (_by_place(found) for found in events)
    found = []
    gone = set(dead)
    for place in sorted({*carried, *faults, *readmissions, *gone}):
        load, moved = carried.get(place, [0, 0]), [f.moved for f in faults.get(place, ())]
        node, peer, rail_of = place
        first, last = times.get(place, (0.0, 0.0))
        link = LinkReport(node, peer, rail_of, load[0], load[1], first, last)
        link = replace(link, alive=place not in gone)
        back = len(readmissions.get(place, ()))
        replans = sum(number > 0 for number in moved)
        found.append(
            replace(link, retries=sum(moved), faults=len(moved), replans=replans, readmissions=back)
        )
    return tuple(found)


def _by_place(events: Iterable[Any]) -> dict[Place, list[Any]]:
    found: dict[Place, list[Any]] = {}
    for event in events:
        found.setdefault((event.node, event.peer, event.rail), []).append(event)
    return found
