"""Who decides where experts live: the planners by name, what one is asked, and what it answers.

A planner is a function of a `Problem` that returns a `Placed`.  To add one is to write the function
and one entry of `PLANNERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from railopt.arrays import Bools, Int32s, Ints, frozen
from railopt.bracket import Bracket
from railopt.errors import InputError
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.optimal import hurried, optimal
from railopt.moe.placement.placement import Placement, contiguous_home
from railopt.moe.placement.prophet import measure, pro_prophet, shadow
from railopt.moe.placement.repair import repaired
from railopt.moe.placement.replicate import replicate
from railopt.moe.routing.dispatch import split
from railopt.moe.routing.trace import Trace
from railopt.units import shown


@dataclass(frozen=True, eq=False)
class Problem:
    """Experts to be placed on the GPUs of a time model, layer by layer.

    counts    int64 [layer, source GPU, expert], tokens that a planner may plan on
    replicas  physical experts a layer, homes included (at most, for the planners that copy only
              what pays; exactly, for `replicate`)
    slots     experts a GPU may hold: its memory
    groups    expert groups that `replicate` keeps on one node
    previous  the placement before, up to date on its GPUs (serving)
    limit_s   seconds a layer that `optimal` may take
    """

    model: TimeModel
    counts: Ints = field(repr=False)
    replicas: int | None = None
    slots: int | None = None
    groups: int = 1
    previous: Placement | None = None
    limit_s: float = 30.0

    def __post_init__(self) -> None:
        counts = frozen(self.counts, np.int64, "counts", 3)
        object.__setattr__(self, "counts", counts)
        if not len(counts):
            raise InputError("counts of no layer: expected at least one")
        for layer in counts:
            self.model.counts(layer)
        self._check_replicas()
        before = None if self.previous is None else self.previous.holds.shape
        if before is not None and before != counts.shape:
            raise InputError(f"the previous placement has shape {before}, expected {counts.shape}")

    def _check_replicas(self) -> None:
        experts, devices = self.experts, self.model.devices
        least = -(-experts // devices)
        if self.replicas is not None and not experts <= self.replicas <= experts * devices:
            raise InputError(
                f"{self.replicas} replicas of {experts} experts on {devices} GPUs: the smallest "
                f"feasible number is {experts}, the largest {experts * devices}"
            )
        if self.slots is not None and self.slots < least:
            raise InputError(
                f"{self.slots} experts a GPU: {experts} experts on {devices} GPUs need at least "
                f"{least}"
            )
        if self.replicas is not None and self.slots is not None:
            wanted = -(-self.replicas // devices)
            if self.slots < wanted:
                raise InputError(
                    f"{self.replicas} replicas on {devices} GPUs of {self.slots} slots: at most "
                    f"{self.slots * devices} fit; the smallest feasible number of slots is {wanted}"
                )

    @classmethod
    def of_trace(
        cls,
        trace: Trace,
        model: TimeModel,
        iteration: int = -1,
        *,
        replicas: int | None = None,
        slots: int | None = None,
        groups: int = 1,
        previous: Placement | None = None,
        limit_s: float = 30.0,
    ) -> Problem:
        """The layers of one recorded iteration; -1 is the last."""
        trace.expect(ranks=model.devices)
        counts = trace.counts[trace.row(iteration)].astype(np.int64)
        return cls(model, counts, replicas, slots, groups, previous, limit_s)

    @property
    def layers(self) -> int:
        return int(self.counts.shape[0])

    @property
    def experts(self) -> int:
        return int(self.counts.shape[2])

    @property
    def most(self) -> int | None:
        """Experts that a GPU may hold: `slots`, else what `replicas` spread evenly need."""
        if self.slots is not None or self.replicas is None:
            return self.slots
        return -(-self.replicas // self.model.devices)

    @property
    def limit(self) -> int | None:
        """Copies beyond the homes that a layer may have."""
        return None if self.replicas is None else self.replicas - self.experts

    @property
    def home(self) -> Int32s:
        """int32 [layer, expert]: the homes before, else contiguous ones."""
        if self.previous is not None:
            return self.previous.home
        one = contiguous_home(self.experts, self.model.devices)
        return np.broadcast_to(one, (self.layers, self.experts))

    def with_copies(self, holds: list[Bools]) -> Placement:
        """The homes, and copies bool [GPU, expert] of each layer."""
        model = self.model
        return Placement.from_home(self.home, model.nodes, model.gpus, np.stack(holds))


@dataclass(frozen=True)
class Placed:
    """What a planner answers.

    optima       what is known of each layer's optimum, picoseconds; empty where the planner says
                 nothing of it
    interrupted  whether the user stopped it: the placement is the best so far
    """

    placement: Placement
    optima: tuple[Bracket, ...] = ()
    interrupted: bool = False

    def over(self, steps: int) -> Placed:
        """The same, its optima those of one of the `steps` iterations that the problem is for."""
        shares = tuple(
            replace(
                known,
                value=None if known.value is None else known.value / steps,
                bound=known.bound / steps,
            )
            for known in self.optima
        )
        return replace(self, optima=shares)


def place(problem: Problem, planner: str | Callable[[Problem], Placed] = "pro-prophet") -> Placed:
    """A placement of every layer by the planner of this name, or by a function of one's own."""
    if callable(planner):
        return planner(problem)
    if planner not in PLANNERS:
        raise InputError(f"unknown planner {shown(planner)}; known planners: {', '.join(PLANNERS)}")
    return PLANNERS[planner](problem)


def contiguous(problem: Problem) -> Placed:
    """Every expert at home and nowhere else."""
    model = problem.model
    return Placed(Placement.from_home(problem.home, model.nodes, model.gpus))


def by_load(problem: Problem) -> Placed:
    """Replicas by load.  After a placement before, layer by layer what is cheapest with its moves:
    no change, a repair, or a new placement whose GPUs are named so that least moves.
    """
    model, previous = problem.model, problem.previous
    experts, devices = problem.experts, model.devices
    room = experts + devices if problem.slots is None else problem.slots * devices
    wanted = problem.replicas or min(room, experts * devices)
    load = problem.counts.sum(axis=1)
    made = replicate(load, wanted, model.nodes, model.gpus, problem.groups, previous)
    if previous is None or np.any(previous.holds.sum(axis=(1, 2)) != wanted):
        return Placed(made)
    fixed = repaired(load, previous, problem.groups)
    choices = [previous, *([] if fixed is None else [fixed]), made]
    return Placed(_cheapest(problem, previous, choices))


def _cheapest(problem: Problem, previous: Placement, made: list[Placement]) -> Placement:
    """Layer by layer the placement of least time, moves from `previous` included; the first of
    those that are equal.
    """
    holds, home = made[0].holds.copy(), made[0].home.copy()
    for layer, tokens in enumerate(problem.counts):
        there, totals = previous.holds[layer], []
        for one in made:
            here, owner = one.holds[layer], one.home[layer]
            shares = split(tokens, here, owner, one.gpus, "even")
            totals.append(measure(problem.model, shares, here, home=owner, have=there).total)
        best = made[int(np.argmin(totals))]
        holds[layer], home[layer] = best.holds[layer], best.home[layer]
    return Placement(previous.nodes, previous.gpus, holds, home)


def shadowed(problem: Problem) -> Placed:
    """FasterMoE's choice of copies; homes stay."""
    model, slots, limit = problem.model, problem.most, problem.limit
    layers = zip(problem.counts, problem.home, strict=True)
    copies = [shadow(model, counts, home=home, slots=slots, limit=limit) for counts, home in layers]
    return Placed(problem.with_copies(copies))


def prophet(problem: Problem) -> Placed:
    """The greedy path and its search; homes stay, and copies that are there need no transfer."""
    before = problem.previous
    have = [None] * problem.layers if before is None else list(before.holds)
    model, slots, limit = problem.model, problem.most, problem.limit
    layers = zip(problem.counts, problem.home, have, strict=True)
    return Placed(
        problem.with_copies(
            [
                pro_prophet(model, counts, home=home, have=there, slots=slots, limit=limit)
                for counts, home, there in layers
            ]
        )
    )


def least(problem: Problem) -> Placed:
    """The optimum of each layer, or the best found and how far it may be from it; homes stay.

    Ctrl-C ends the search: the layers that are left get the greedy path's copies.
    """
    before = problem.previous
    if before is not None and before.holds.sum() > before.home.size:
        raise InputError(
            "optimal counts every copy as sent anew, and the previous placement holds copies "
            "already: use pro-prophet, which pays for new copies only"
        )
    options = {"slots": problem.most, "limit": problem.limit}
    found, interrupted = [], False
    for counts, home in zip(problem.counts, problem.home, strict=True):
        if not interrupted:
            try:
                best = optimal(problem.model, counts, home=home, **options, limit_s=problem.limit_s)
                interrupted = best.interrupted
            except KeyboardInterrupt:
                interrupted = True
                best = hurried(problem.model, counts, home=home, **options)
        else:
            best = hurried(problem.model, counts, home=home, **options)
        found.append(best)
    placement = problem.with_copies([best.holds for best in found])
    return Placed(placement, tuple(best.bracket for best in found), interrupted)


PLANNERS: Mapping[str, Callable[[Problem], Placed]] = MappingProxyType(
    {
        "contiguous": contiguous,
        "replicate": by_load,
        "shadow": shadowed,
        "pro-prophet": prophet,
        "optimal": least,
    }
)
