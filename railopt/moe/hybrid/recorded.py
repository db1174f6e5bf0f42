"""HybridEP on recorded routing: which expert travels to which node, layer by layer, and what it
costs to choose on the step before.

A node of the fabric is a data centre of `gating`, its link all of its NICs: rails carry what leaves
it, evenly.  Every expert has its home on the GPU of contiguous placement; a copy of it is on the
GPU of the same number of another node.  Times are of one layer's forward pass,

    max(compute before the experts, copies) + dispatch + combine
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Ints, whole_number
from railopt.base.errors import InputError
from railopt.base.units import PS_PER_S
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.moe.assess import dimensions
from railopt.moe.hybrid.domains import BlockTraffic
from railopt.moe.hybrid.gating import Gating, check_tree, choose, held_by, time_with
from railopt.moe.hybrid.stream import check_compression
from railopt.moe.placement.placement import Placement, contiguous_home
from railopt.moe.presets import Preset
from railopt.moe.routing.dispatch import flows
from railopt.moe.routing.trace import Trace


@dataclass(frozen=True)
class FollowQuestion:
    """What is asked.

    model        a preset whose dimensions count (None: what the trace says)
    compression  dense bytes over bytes sent of a copy
    steps        last recorded steps that are scored, at most
    """

    model: str | None = None
    compression: Fraction = Fraction(1)
    steps: int = 4

    def __post_init__(self) -> None:
        whole_number(self.steps, "steps", 1, 1 << 20)
        check_compression(self.compression)


class FollowedLayer(NamedTuple):
    """One layer; times are seconds per scored step, the mean.

    data      every token travels
    domains   every expert of a domain on each of its nodes, the domain's size as was best on the
              step before
    fixed     copies chosen expert by expert on the step before the first scored one
    followed  the same, chosen anew on the step before each
    known     the same, knowing the step; `bound`: what no copies beat
    optimal   scored steps whose choice is optimal, its tree checked
    copies    bool [node, expert]: as chosen on the newest step
    """

    layer: int
    data: Fraction
    domains: Fraction
    fixed: Fraction
    followed: Fraction
    known: Fraction
    bound: Fraction
    optimal: int
    copies: Bools

    @property
    def regret(self) -> Fraction:
        """The regret of following, over knowing the step."""
        return self.followed / self.known - 1 if self.known else Fraction(0)


LIMIT_S = 2.0  # for the choice of one layer and step, after which its bound may be open
TIMES = ("data", "domains", "fixed", "followed", "known", "bound")


@dataclass(frozen=True, eq=False)
class Followed:
    """All layers, and what the newest step sends with the copies chosen on it."""

    trace: Trace = field(repr=False)
    fabric: Fabric
    question: FollowQuestion
    sized: Preset
    layers: tuple[FollowedLayer, ...]
    scored: int

    @property
    def total(self) -> FollowedLayer:
        """All layers one after the other."""
        zero = Fraction(0)
        return FollowedLayer(
            layer=-1,
            **{name: sum((getattr(one, name) for one in self.layers), zero) for name in TIMES},
            optimal=sum(one.optimal for one in self.layers),
            copies=np.concatenate([one.copies for one in self.layers], axis=1),
        )

    @property
    def placement(self) -> Placement:
        """The homes of all experts, and the copies chosen on the newest step."""
        nodes, gpus = self.fabric.nodes, self.fabric.gpus
        home = contiguous_home(self.trace.experts, nodes * gpus)
        gpu = np.arange(nodes * gpus)
        there = (gpu % gpus)[:, None] == home % gpus
        holds = np.stack([one.copies[gpu // gpus] & there for one in self.layers])
        return Placement.from_home(np.stack([home] * len(self.layers)), nodes, gpus, holds)

    def traffic(self, number: int) -> BlockTraffic:
        """What GPUs send in one layer of the newest step."""
        placed, fabric = self.placement, self.fabric
        holds, home = placed.holds[number], placed.home[number]
        counts = self.trace.counts[-1, number].astype(np.int64)
        flow = flows(counts, holds, home, fabric.gpus, "home")
        flow *= self.sized.token_bytes()
        experts: Ints = np.zeros_like(flow)
        gpu, expert = np.nonzero(holds)
        np.add.at(experts, (home[expert], gpu), self.sent_bytes)
        for matrix in (flow, experts):
            np.fill_diagonal(matrix, 0)
        return BlockTraffic(Traffic(experts, fabric.nodes), Traffic(flow, fabric.nodes))

    @property
    def sent_bytes(self) -> int:
        """The bytes of one copy."""
        return sent_bytes(self.sized, self.question)

    def as_dict(self) -> dict[str, Any]:
        """JSON values; exact seconds as "p/q"."""

        def row(one: FollowedLayer) -> dict[str, Any]:
            times = {name: str(getattr(one, name)) for name in TIMES}
            extra = {"regret": str(one.regret), "optimal": one.optimal}
            return {**times, **extra, "copies": int(one.copies.sum())}

        return {
            "model": self.sized.name,
            "compression": str(self.question.compression),
            "scored_steps": self.scored,
            "layers": [{"layer": one.layer, **row(one)} for one in self.layers],
            "total": row(self.total),
        }


def sent_bytes(sized: Preset, question: FollowQuestion) -> int:
    """The bytes of one copy of an expert, compressed."""
    return int(-(-sized.expert_bytes() // question.compression))


def follow(
    trace: Trace,
    fabric: Fabric,
    question: FollowQuestion | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Followed:
    """Choose copies on every step, and score each choice on the step after; `tell` hears what is
    being done.

        >>> from railopt import Fabric
        >>> from railopt.moe.hybrid.recorded import FollowQuestion, follow
        >>> from railopt.moe.routing.sources import trace_from
        >>> trace = trace_from("drift:steps=3,experts=8,top=2", ranks=4)
        >>> found = follow(trace, Fabric.uniform(2, 2, "10Gb/s"), FollowQuestion("mixtral-8x7b"))
        >>> found.total.bound <= found.total.known <= found.total.followed
        True
    """
    asked = question or FollowQuestion()
    trace.expect(ranks=fabric.nodes * fabric.gpus)
    if len(trace.iterations) < 2:
        raise InputError("1 recorded step: expected at least two, one to choose on")
    sized = dimensions(trace, asked.model)
    pre = sized.model(fabric, trace.usual_tokens).fnec_ps
    rows = range(max(0, len(trace.iterations) - asked.steps - 1), len(trace.iterations))
    layers = []
    for number, name in enumerate(trace.layers.tolist()):
        tell(f"layer {name}")
        steps = [_gating(trace.counts[row, number], fabric, sized, asked, pre) for row in rows]
        layers.append(_followed(name, steps))
    return Followed(trace, fabric, asked, sized, tuple(layers), len(rows) - 1)


def _gating(
    counts: Any, fabric: Fabric, sized: Preset, asked: FollowQuestion, pre_ps: int
) -> Gating:
    """One layer of one step: counts int [source GPU, expert]."""
    by_node = counts.reshape(fabric.nodes, fabric.gpus, -1).sum(axis=1, dtype=np.int64)
    experts = by_node.shape[1]
    return Gating(
        by_node * sized.token_bytes(),
        contiguous_home(experts, fabric.nodes * fabric.gpus).astype(np.int64) // fabric.gpus,
        np.full(experts, sent_bytes(sized, asked)),
        np.minimum(fabric.tx.sum(axis=1), fabric.rx.sum(axis=1)),
        Fraction(pre_ps, PS_PER_S),
    )


def _followed(layer: int, steps: list[Gating]) -> FollowedLayer:
    """`steps` are the one before the first scored step, and the scored ones."""
    choices = [choose(step, limit_s=LIMIT_S) for step in steps]
    held = [held_by(step, one.copies) for step, one in zip(steps, choices, strict=True)]
    scored, nothing = steps[1:], np.zeros_like(held[0])
    domains = [_best_domains(step) for step in steps[:-1]]

    def mean(times: list[Fraction]) -> Fraction:
        return sum(times, Fraction(0)) / len(scored)

    return FollowedLayer(
        layer,
        mean([time_with(step, nothing) for step in scored]),
        mean([time_with(step, each) for step, each in zip(scored, domains, strict=True)]),
        mean([time_with(step, held[0]) for step in scored]),
        mean([time_with(step, each) for step, each in zip(scored, held[:-1], strict=True)]),
        mean([time_with(step, each) for step, each in zip(scored, held[1:], strict=True)]),
        mean([one.bracket.bound for one in choices[1:]]),
        sum(check_tree(step, one) for step, one in zip(scored, choices[1:], strict=True)),
        held[-1],
    )


def _best_domains(gating: Gating) -> Bools:
    """bool [node, expert]: every expert on each node of its home's domain; the size of the domains
    is the best divisor of the nodes.
    """
    nodes = np.arange(len(gating.rate))
    sizes = [size for size in range(1, len(nodes) + 1) if len(nodes) % size == 0]
    parted = [(nodes // size)[:, None] == gating.home // size for size in sizes]
    return min(parted, key=lambda each: time_with(gating, each))
