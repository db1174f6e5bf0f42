"""The micro-batches of a trace, one after the other: what spare slots make of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from railopt.base.errors import InputError
from railopt.evidence.bracket import gap_between
from railopt.moe.micro.slots import SpareSlots
from railopt.moe.micro.solve import SplitAnswer, split
from railopt.moe.placement.placement import Placement
from railopt.moe.routing.trace import Trace


@dataclass(frozen=True)
class SplitOptions:
    """What is asked for.

    spare          slots on every GPU
    solver         of `railopt.moe.micro.solve.SOLVERS`
    within_node    whether copies stay on nodes that hold their expert
    slack          in 1/1024, of greedy and flow
    limit_s        per micro-batch; None: 10 s for exact, no limit for the others
    expert_bytes   of an expert's weights: what a copy sends; None where it is not asked for
    """

    spare: int
    solver: str = "auto"
    within_node: bool = False
    slack: int = 0
    limit_s: float | None = None
    expert_bytes: int | None = None


@dataclass(frozen=True, eq=False)
class Batch:
    """One micro-batch: where in the trace it is, and what was made of it."""

    iteration: int
    layer: int
    answer: SplitAnswer
    copied: int | None
    copied_between_nodes: int | None

    def ratio(self, largest: int) -> Fraction:
        """A load over the mean load; 1 where there is nothing to do."""
        split = self.answer.split
        total = int(split.counts.sum())
        return Fraction(largest * split.slots.ranks, total) if total else Fraction(1)


def batches(
    trace: Trace,
    placement: Placement,
    choice: SplitOptions,
    *,
    iteration: int | None = None,
    layer: int | None = None,
    tick: Callable[[str], None] = lambda _: None,
) -> Iterator[Batch]:
    """Every recorded iteration and layer, or the one of this name."""
    if placement.experts != trace.experts or placement.layers not in (1, len(trace.layers)):
        raise InputError(
            f"a placement of {placement.layers} layers of {placement.experts} experts: the trace "
            f"has {len(trace.layers)} of {trace.experts}"
        )
    rows = range(len(trace.iterations)) if iteration is None else [trace.row(iteration)]
    places = _places(trace, layer)
    for place in places:
        held = min(place, placement.layers - 1)
        slots = SpareSlots.of(placement, held, choice.spare, within_node=choice.within_node)
        for row in rows:
            tick(f"layer {trace.layers[place]}, iteration {trace.iterations[row]}")
            counts = trace.counts[row, place].sum(axis=0, dtype=np.int64)
            made = split(slots, counts, choice.solver, slack=choice.slack, limit_s=choice.limit_s)
            copied: tuple[int, int] | tuple[None, None] = None, None
            if choice.expert_bytes is not None:
                sent = made.split.copy_traffic(choice.expert_bytes)
                copied = int(sent.bytes.sum()), int(sent.node_matrix.sum())
            yield Batch(int(trace.iterations[row]), int(trace.layers[place]), made, *copied)


def _places(trace: Trace, layer: int | None) -> list[int]:
    """Where the layers are: all, or the one of this name."""
    if layer is None:
        return list(range(len(trace.layers)))
    found = np.flatnonzero(trace.layers == layer).tolist()
    if not found:
        raise InputError(
            f"no layer {layer} in the trace: it has {trace.layers.min()} to {trace.layers.max()}"
        )
    return found


def summary(done: list[Batch]) -> list[dict[str, Any]]:
    """JSON values of each layer: ratios are loads over the mean load."""
    rows = []
    for layer in sorted({batch.layer for batch in done}):
        mine = [batch for batch in done if batch.layer == layer]
        before = [batch.ratio(batch.answer.before) for batch in mine]
        after = [batch.ratio(batch.answer.split.largest) for batch in mine]
        known = [batch.answer.bracket for batch in mine]
        copies = [int(batch.answer.split.copies.sum()) for batch in mine]
        rows.append(
            {
                "layer": layer,
                "batches": len(mine),
                "before_mean": float(sum(before) / len(mine)),
                "before_worst": float(max(before)),
                "after_mean": float(sum(after) / len(mine)),
                "after_worst": float(max(after)),
                "gap_worst": float(max(gap_between(each.value, each.bound) for each in known)),
                "optima_known": sum(each.optimum_known for each in known),
                "copies_mean": sum(copies) / len(mine),
                "copied_bytes_mean": _mean([batch.copied for batch in mine]),
                "copied_between_nodes_mean": _mean([b.copied_between_nodes for b in mine]),
            }
        )
    return rows


def _mean(known: list[int | None]) -> float | None:
    """The mean of bytes; None where the size of an expert is not given."""
    found = [each for each in known if each is not None]
    return sum(found) / len(found) if found else None
