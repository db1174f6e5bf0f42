"""The timeline of one training iteration: what each layer transfers, exchanges and computes, and
when.

Four ways to run the same layers (a layer here is Pro-Prophet's block: an MoE layer and the non-MoE
layer after it):

    deepspeed    no balancing: all-to-all, expert compute, all-to-all, other compute
    fastermoe    copies are sent before they are used, their gradients reduced right
                 after; nothing overlaps
    pro-prophet  Trans of layer i+1 in two parts under the expert and the other compute of layer i;
                 Agg of layer i+1 likewise under layer i's backward compute (arXiv 2411.10003,
                 section 4.3)
    ours         the same, but a transfer may use any compute before its layer is reached, earliest
                 deadline first

All-to-alls and transfers share the network, so they never run at once.  Times are integer
picoseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from railopt.base.errors import InputError
from railopt.moe.iteration.timemodel import Terms, TimeModel

STYLES = ("deepspeed", "fastermoe", "pro-prophet", "ours")


class Event(NamedTuple):
    """One operation: `stream` is "compute" or "network"; start and end in picoseconds from the
    iteration's start.
    """

    layer: int
    operation: str
    stream: str
    start_ps: int
    end_ps: int


@dataclass(frozen=True)
class IterationTimeline:
    """The events of an iteration in order of their start."""

    style: str
    events: tuple[Event, ...]

    @property
    def total_ps(self) -> int:
        """When the last operation ends."""
        return max((e.end_ps for e in self.events), default=0)


class _Clock:
    """Lays operations out one after the other and lets transfers run on the idle network under
    compute.
    """

    def __init__(self) -> None:
        self.now = 0
        self.events: list[Event] = []

    def run(self, layer: int, operation: str, stream: str, length: int) -> None:
        if length > 0:
            self.events.append(Event(layer, operation, stream, self.now, self.now + length))
            self.now += length

    def compute(self, layer: int, operation: str, length: int, waiting: list[list[Any]]) -> None:
        """Compute, with the transfers in `waiting` ([layer, operation, time left]) under it as far
        as they fit.
        """
        start, free = self.now, length
        for transfer in waiting:
            part = min(free, transfer[2])
            if part > 0:
                begin = start + length - free
                self.events.append(Event(transfer[0], transfer[1], "network", begin, begin + part))
                transfer[2] -= part
                free -= part
        self.run(layer, operation, "compute", length)

    def finish(self, waiting: list[list[Any]], layer: int) -> None:
        """What is left of a layer's transfer when the layer can't wait any longer is exposed."""
        for transfer in waiting:
            if transfer[0] == layer:
                self.run(layer, transfer[1], "network", transfer[2])
                transfer[2] = 0


def timeline(model: TimeModel, layers: Sequence[Terms], style: str) -> IterationTimeline:
    """One iteration, forward and backward, from the terms of each layer; planning takes no time."""
    if style not in STYLES:
        raise InputError(f"unknown style {style!r}; known styles: {', '.join(STYLES)}")
    clock = _Clock()
    if style in ("deepspeed", "fastermoe"):
        _blocking(clock, model, layers)
    else:
        _overlapped(clock, model, layers, ahead=len(layers) if style == "ours" else 1)
    return IterationTimeline(
        style, tuple(sorted(clock.events, key=lambda e: (e.start_ps, e.end_ps)))
    )


def _blocking(clock: _Clock, model: TimeModel, layers: Sequence[Terms]) -> None:
    for i, t in enumerate(layers):
        clock.run(i, "trans", "network", t.trans)
        clock.run(i, "a2a", "network", t.a2a)
        clock.run(i, "fec", "compute", t.fec)
        clock.run(i, "a2a", "network", t.a2a)
        clock.run(i, "fnec", "compute", model.fnec_ps)
    for i, t in reversed(list(enumerate(layers))):
        clock.run(i, "bnec", "compute", model.bnec_ps)
        clock.run(i, "a2a", "network", t.a2a)
        clock.run(i, "bec", "compute", 2 * t.fec)
        clock.run(i, "a2a", "network", t.a2a)
        clock.run(i, "agg", "network", t.agg)


def _overlapped(clock: _Clock, model: TimeModel, layers: Sequence[Terms], ahead: int) -> None:
    """Forward, transfers of up to `ahead` later layers run under compute; backward, gradients of
    layers already done.
    """
    waiting = [[i, "trans", t.trans] for i, t in enumerate(layers)]
    for i, t in enumerate(layers):
        clock.finish(waiting, i)
        clock.run(i, "a2a", "network", t.a2a)
        coming = waiting[i + 1 : i + 1 + ahead]
        clock.compute(i, "fec", t.fec, coming)
        clock.run(i, "a2a", "network", t.a2a)
        clock.compute(i, "fnec", model.fnec_ps, coming)
    returning: list[list[Any]] = []
    for i, t in reversed(list(enumerate(layers))):
        clock.compute(i, "bnec", model.bnec_ps, returning)
        clock.run(i, "a2a", "network", t.a2a)
        clock.compute(i, "bec", 2 * t.fec, returning)
        clock.run(i, "a2a", "network", t.a2a)
        if ahead == 1:  # only the next layer's compute hides a layer's gradients
            for late in returning:
                clock.finish(returning, late[0])
        returning = [r for r in returning if r[2] > 0] + [[i, "agg", t.agg]]
    for late in returning:
        clock.finish(returning, late[0])
