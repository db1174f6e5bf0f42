"""The sender protocol: something that carries out a plan. Three implement it: Loopback, Record,
Verbs.

handle = sender.run(plan)        starts; a sender runs one plan at a time
handle.poll() -> bool            makes progress, never waits; True when done
handle.wait(timeout_s) -> Report  until done; raises what went wrong
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from railopt.arrays import Ints
from railopt.errors import BackendError, printable
from railopt.plans import Plan


@dataclass(frozen=True)
class Fault:
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
class RailReport:
    """What one rail of this process carried: bytes and chunks sent, its device, and whether it is
    alive.
    """

    rail: int
    device: str
    bytes: int
    chunks: int
    alive: bool = True


@dataclass(frozen=True)
class Report:
    """How a run went: bytes and chunks sent by this process, seconds, and, where payloads were
    verified, wrong chunks.
    """

    sender: str
    policy: str
    bytes: int
    chunks: int
    seconds: float
    rails: tuple[RailReport, ...]
    wrong: int | None = None
    faults: tuple[Fault, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "sender": self.sender,
            "policy": self.policy,
            "bytes": self.bytes,
            "chunks": self.chunks,
            "seconds": self.seconds,
            "wrong": self.wrong,
            "rails": [vars(r) for r in self.rails],
            "faults": [vars(f) for f in self.faults],
        }

    @classmethod
    def from_dict(cls, data: Any) -> Report:
        """The way back from what a rank sent; anything else is a BackendError."""
        try:
            if set(data) != set(cls.__dataclass_fields__):
                raise ValueError("other keys than a report's")
            return cls(
                _text(data["sender"]),
                _text(data["policy"]),
                _count(data["bytes"]),
                _count(data["chunks"]),
                _seconds(data["seconds"]),
                tuple(_rail(rail) for rail in data["rails"]),
                None if data["wrong"] is None else _count(data["wrong"]),
                tuple(_fault(fault) for fault in data["faults"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise BackendError(
                f"a rank sent a report that this railopt does not understand "
                f"({printable(error, 80)}): run the same version on all nodes"
            ) from error


def _rail(data: Any) -> RailReport:
    return RailReport(
        _count(data["rail"]),
        _text(data["device"]),
        _count(data["bytes"]),
        _count(data["chunks"]),
        data["alive"] is True,
    )


def _fault(data: Any) -> Fault:
    node, peer, rail, moved = (_count(data[key]) for key in ("node", "peer", "rail", "moved"))
    return Fault(node, peer, rail, _text(data["cause"]), moved, _seconds(data["after_s"]))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("expected a text")
    return printable(value)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise ValueError("expected a count")
    return value


def _seconds(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ValueError("expected seconds")
    return float(value)


class Handle(Protocol):
    """A run under way."""

    def poll(self) -> bool:
        """Make progress without waiting; whether the run is done."""
        ...

    def wait(self, timeout_s: float | None = None) -> Report:
        """Until the run is done; raises what ended it, or `TimeoutError` after `timeout_s` seconds
        (the run goes on).
        """
        ...


class Sender(Protocol):
    """Carries out plans."""

    name: str

    def run(self, plan: Plan) -> Handle:
        """Start carrying out a plan."""
        ...


@dataclass(frozen=True)
class Finished:
    """The handle of a run that was done when it was started."""

    report: Report

    def poll(self) -> bool:
        return True

    def wait(self, timeout_s: float | None = None) -> Report:
        return self.report


def rail_reports(
    plan: Plan, device: Callable[[int], str], rows: Ints | None = None
) -> tuple[RailReport, ...]:
    """Bytes and chunks a rail as planned, of all chunks or of `rows`."""
    rail, size = (
        (plan.rail, plan.chunks.size) if rows is None else (plan.rail[rows], plan.chunks.size[rows])
    )
    return tuple(
        RailReport(n, device(n), int(size[rail == n].sum()), int((rail == n).sum()))
        for n in range(plan.fabric.rails)
    )
