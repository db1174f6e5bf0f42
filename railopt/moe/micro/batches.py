"""The micro-batches of a trace, one after the other: what spare slots make of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

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
    """

    spare: int
    solver: str = "auto"
    within_node: bool = False
    slack: int = 0
    limit_s: float | None = None


class Batch(NamedTuple):
    """One micro-batch: its layer in the model, and what was made of it."""

    layer: int
    answer: SplitAnswer


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
    for place in range(len(trace.layers)) if layer is None else [trace.column(layer)]:
        held = min(place, placement.layers - 1)
        slots = SpareSlots.of(placement, held, choice.spare, within_node=choice.within_node)
        for row in rows:
            tick(f"layer {trace.layers[place]}, iteration {trace.iterations[row]}")
            counts = trace.counts[row, place].sum(axis=0, dtype=np.int64)
            made = split(slots, counts, choice.solver, slack=choice.slack, limit_s=choice.limit_s)
            yield Batch(int(trace.layers[place]), made)


def summary(done: list[Batch], expert_bytes: int | None = None) -> list[dict[str, Any]]:
    """JSON values of each layer: ratios are loads over the mean load; bytes of copies are None
    where an expert's are.
    """
    rows = []
    for layer in sorted({batch.layer for batch in done}):
        mine = [batch.answer for batch in done if batch.layer == layer]
        before = [_over_mean(answer, answer.before) for answer in mine]
        after = [_over_mean(answer, answer.split.largest) for answer in mine]
        known = [answer.bracket for answer in mine]
        copies = [int(answer.split.copies.sum()) for answer in mine]
        sent = [] if expert_bytes is None else [_copied(answer, expert_bytes) for answer in mine]
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
                "copied_bytes_mean": _mean([each for each, _ in sent]),
                "copied_between_nodes_mean": _mean([far for _, far in sent]),
            }
        )
    return rows


def _over_mean(answer: SplitAnswer, largest: int) -> Fraction:
    """A load over the mean load; 1 where there is nothing to do."""
    total = int(answer.split.counts.sum())
    return Fraction(largest * answer.split.slots.ranks, total) if total else Fraction(1)


def _copied(answer: SplitAnswer, expert_bytes: int) -> tuple[int, int]:
    """Bytes that copies send, in all and between nodes."""
    sent = answer.split.copy_traffic(expert_bytes)
    return int(sent.bytes.sum()), int(sent.node_matrix.sum())


def _mean(known: list[int]) -> float | None:
    return sum(known) / len(known) if known else None
