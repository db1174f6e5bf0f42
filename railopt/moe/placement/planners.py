"""Who decides where experts live: the planners by name, what one is asked, and what it answers.

A planner is a function of a `PlacementProblem` that returns a `Placed`.  To add one is to write the
function and one entry of `PLANNERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from railopt.base.arrays import Bools, Floats, Int32s, Ints, frozen
from railopt.base.errors import InputError
from railopt.base.units import quoted
from railopt.evidence.bracket import Bracket
from railopt.moe.iteration.timemodel import Terms, TimeModel
from railopt.moe.placement import optimum, prophet
from railopt.moe.placement.naming import carriage, kept, named
from railopt.moe.placement.packing import hierarchical, loads_of
from railopt.moe.placement.placement import (
    Placement,
    contiguous_home,
    homes_near,
    homes_without,
)
from railopt.moe.placement.repair import FEW, FewMoves, repaired_map, resized, stepped
from railopt.moe.placement.replicate import rebalance
from railopt.moe.routing.dispatch import flows


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """Experts to be placed on the GPUs of a time model, layer by layer.

    counts    int64 [layer, source GPU, expert], tokens that a planner may plan on
    replicas  physical experts per layer, homes included (at most, for the planners that copy only
              what pays; exactly, for `replicate`)
    slots     experts a GPU may hold: its memory
    groups    expert groups that `replicate` keeps on one node
    previous  the placement before, up to date on its GPUs (serving)
    limit_s   seconds per layer that `optimal` may take
    active    bool [GPU]: GPUs that may hold experts (None: all); `contiguous`, `replicate` and
              `pro-prophet` know it
    costs     float64 [source GPU, GPU], of a token: which GPU is which under `replicate`, after
              `previous`
    few       how far `replicate` repairs `previous` (None: what is cheapest, moves included)
    slots_before  int32 [layer, slot] of `previous`, see `PlacementBefore`
    """

    model: TimeModel
    counts: Ints = field(repr=False)
    replicas: int | None = None
    slots: int | None = None
    groups: int = 1
    previous: Placement | None = None
    limit_s: float = 30.0
    active: Bools | None = None
    costs: Floats | None = field(default=None, repr=False)
    few: FewMoves | None = None
    slots_before: Int32s | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        counts = frozen(self.counts, np.int64, "counts", 3)
        object.__setattr__(self, "counts", counts)
        self._check_gpus()
        if not len(counts):
            raise InputError("counts of no layer: expected at least one")
        for layer in counts:
            self.model.counts(layer)
        self._check_replicas()
        before = None if self.previous is None else self.previous.holds.shape
        if before is not None and before != counts.shape:
            raise InputError(f"the previous placement has shape {before}, expected {counts.shape}")

    def _check_gpus(self) -> None:
        devices = self.model.devices
        if self.active is not None and (
            self.active.shape != (devices,) or not self.active.any() or self.active.dtype != bool
        ):
            raise InputError(f"active GPUs: expected {devices} truths, one of them at least true")
        if self.costs is not None and (
            self.costs.shape != (devices, devices)
            or not np.isfinite(self.costs).all()
            or self.costs.min() < 0
        ):
            raise InputError(
                f"costs of shape {self.costs.shape}: expected {devices} x {devices} finite "
                f"numbers of at least 0, [source, destination]"
            )

    def _check_replicas(self) -> None:
        experts, devices = self.experts, len(self.on)
        if self.replicas is not None and not experts <= self.replicas <= experts * devices:
            raise InputError(
                f"{self.replicas} replicas of {experts} experts on {devices} GPUs: the smallest "
                f"feasible number is {experts}, the largest {experts * devices}"
            )
        wanted = self.replicas or experts
        if self.slots is not None and self.slots * devices < wanted:
            raise InputError(
                f"{self.slots} experts per GPU: {wanted} on {devices} GPUs need at least "
                f"{-(-wanted // devices)}"
            )

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
        return -(-self.replicas // len(self.on))

    @property
    def on(self) -> Ints:
        """int64: the GPUs that may hold experts."""
        return np.arange(self.model.devices) if self.active is None else np.flatnonzero(self.active)

    @property
    def grid(self) -> tuple[int, int]:
        """(nodes, GPUs per node) of the active ones; one node where nodes differ."""
        each = np.bincount(self.on // self.model.gpus, minlength=self.model.nodes)
        each = each[each > 0]
        return (len(each), int(each[0])) if np.all(each == each[0]) else (1, len(self.on))

    @property
    def limit(self) -> int | None:
        """Copies beyond the homes that a layer may have."""
        return None if self.replicas is None else self.replicas - self.experts

    @property
    def home(self) -> Int32s:
        """int32 [layer, expert]: the homes before, else contiguous ones; for homes that are not
        active see `homes_without`.
        """
        if self.previous is not None:
            known = self.previous
            return known.home if self.active is None else homes_without(known, self.active)
        one = self.on[contiguous_home(self.experts, len(self.on))].astype(np.int32)
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


def place(
    problem: PlacementProblem, planner: str | Callable[[PlacementProblem], Placed] = "pro-prophet"
) -> Placed:
    """A placement of every layer by the planner of this name, or by a function of one's own."""
    if callable(planner):
        return planner(problem)
    if planner not in PLANNERS:
        raise InputError(
            f"unknown planner {quoted(planner)}; known planners: {', '.join(PLANNERS)}"
        )
    if problem.active is not None and planner not in KNOW_ACTIVE:
        raise InputError(
            f"{planner} places on all GPUs, and some are not active: use one of "
            f"{', '.join(KNOW_ACTIVE)}, which can leave GPUs out"
        )
    return PLANNERS[planner](problem)


def contiguous(problem: PlacementProblem) -> Placed:
    """Every expert at home and nowhere else."""
    model = problem.model
    return Placed(Placement.from_home(problem.home, model.nodes, model.gpus))


def one_more(experts: int, gpus: int) -> int:
    """The default number of replicas: one more for each GPU, if there can be so many."""
    return min(experts + gpus, experts * gpus)


def replicate(problem: PlacementProblem) -> Placed:
    """Replicas by load.  After a placement before, layer by layer what is cheapest with its moves:
    no change (but for experts whose GPUs are not active), a repair, or a new placement whose GPUs
    are named so that least moves.
    """
    model, previous, on = problem.model, problem.previous, problem.on
    experts = problem.experts
    room = one_more(experts, len(on)) if problem.slots is None else problem.slots * len(on)
    wanted = problem.replicas or min(room, experts * len(on))
    load = problem.counts.sum(axis=1)
    nodes, gpus = problem.grid
    sizes = wanted, problem.groups, nodes, len(on)
    if problem.few is not None:
        return Placed(_asked_moves(problem, load, sizes, problem.few))
    phy2log = rebalance(load, *sizes)[0]
    bundles = Placement.from_phy2log(phy2log, nodes, gpus, experts).holds
    together = gpus if hierarchical(experts, *sizes) else len(on)
    worth = _worth(problem, bundles)
    holds = np.zeros(problem.counts.shape, np.bool_)
    holds[:, on] = bundles if worth is None else named(bundles, worth, together)
    made = Placement(model.nodes, model.gpus, holds, homes_near(holds, previous))
    if previous is None:
        return Placed(made)
    if together == len(on):
        base = resized(load, previous, wanted, on)
        choices = [base, stepped(load, base, previous, on), made]
    else:  # groups stay on their nodes
        old, choices = slots_of(previous), [made]
        if old is not None and problem.active is None and old.shape[1] == wanted:
            choices = [previous, _few_moves(load, previous, old, sizes), made]
    return Placed(cheapest(problem, previous, choices))


def slots_of(previous: Placement | None, known: Int32s | None = None) -> Int32s | None:
    """int32 [layer, slot]: the slots of a placement, in its experts' order where they are not
    known; None where GPUs hold different numbers of experts then.
    """
    if known is not None or previous is None:
        return known
    return None if np.ptp(previous.holds.sum(axis=2)) else previous.phy2log()


def _asked_moves(
    problem: PlacementProblem, load: Ints, sizes: tuple[int, int, int, int], few: FewMoves
) -> Placement:
    """The placement before, repaired as far as was asked for."""
    previous = problem.previous
    old = slots_of(previous, problem.slots_before)
    if previous is None or old is None or problem.active is not None or old.shape[1] != sizes[0]:
        raise InputError(
            f"a repair: expected a placement before of {sizes[0]} replicas per layer, as many on "
            f"every GPU"
        )
    return _few_moves(load, previous, old, sizes, few)


def _few_moves(
    load: Ints,
    previous: Placement,
    old: Int32s,
    sizes: tuple[int, int, int, int],
    few: FewMoves = FEW,
) -> Placement:
    """The placement before, its slots `old` changed one by one until it is even enough."""
    rows = repaired_map(loads_of(load), old, sizes, few)
    shape = previous.nodes, previous.gpus, previous.experts
    holds = Placement.from_phy2log(rows, *shape, twins=True).holds
    return Placement(previous.nodes, previous.gpus, holds, homes_near(holds, previous))


def _worth(problem: PlacementProblem, bundles: Bools) -> Floats | None:
    """What names are worth, float64 [layer, bundle, GPU]: copies that stay, then, for less than one
    of them in all, costs; None where no name is better than another.
    """
    on, before = problem.on, problem.previous
    if before is None and problem.costs is None:
        return None
    worth = np.zeros((problem.layers, len(on), len(on)))
    if before is not None:
        worth += kept(bundles, before.holds[:, on])
    if problem.costs is not None:
        most = max(1.0, problem.costs.max())  # so that no sum of costs overflows
        dear = carriage(bundles, problem.counts, problem.costs[:, on] / most)
        worth -= dear / (1 + dear.max(axis=2).sum(axis=1)[:, None, None])
    return worth


def cheapest(
    problem: PlacementProblem, previous: Placement | None, made: list[Placement]
) -> Placement:
    """Layer by layer the placement of least time, moves from `previous` included; the first of
    those that are equal.
    """
    holds, home = made[0].holds.copy(), made[0].home.copy()
    for layer in range(problem.layers):
        totals = [layer_terms(problem, layer, one, previous).total for one in made]
        best = made[int(np.argmin(totals))]
        holds[layer], home[layer] = best.holds[layer], best.home[layer]
    return Placement(made[0].nodes, made[0].gpus, holds, home)


def layer_terms(
    problem: PlacementProblem, layer: int, one: Placement, previous: Placement | None
) -> Terms:
    """The time of one layer under a placement.  After another one every expert that a GPU did not
    have is sent to it, homes included, from a GPU that had it; one that no active GPU had comes
    from its new home.
    """
    here, owner = one.holds[layer], one.home[layer]
    counts = problem.counts[layer]
    flow = flows(counts, here, owner, one.gpus, "even")
    if previous is None:
        return prophet.measure(problem.model, flow, counts, here, home=owner)
    there = previous.holds[layer]
    left = there if problem.active is None else there & problem.active[:, None]
    stays = left & here
    source = np.where(left.any(axis=0), left.argmax(axis=0), owner)
    source = np.where(stays.any(axis=0), stays.argmax(axis=0), source)
    held = here.copy()
    held[source, np.arange(len(source))] = True
    return prophet.measure(problem.model, flow, counts, held, home=source, have=there)


def shadow(problem: PlacementProblem) -> Placed:
    """FasterMoE's choice of copies; homes stay."""
    model, slots, limit = problem.model, problem.most, problem.limit
    layers = zip(problem.counts, problem.home, strict=True)
    copies = [
        prophet.shadow(model, counts, home=home, slots=slots, limit=limit)
        for counts, home in layers
    ]
    return Placed(problem.with_copies(copies))


def pro_prophet(problem: PlacementProblem) -> Placed:
    """Pro-Prophet's greedy path; homes stay, and copies that are there need no transfer."""
    before = problem.previous
    have = [None] * problem.layers if before is None else list(before.holds)
    model, slots, limit, on = problem.model, problem.most, problem.limit, problem.active
    layers = zip(problem.counts, problem.home, have, strict=True)
    copies = [
        prophet.pro_prophet(
            model, counts, home=home, have=there, slots=slots, limit=limit, active=on
        )
        for counts, home, there in layers
    ]
    return Placed(problem.with_copies(copies))


def optimal(problem: PlacementProblem) -> Placed:
    """The optimum of each layer, or the best found and how far it may be from it; homes stay.

    Ctrl-C ends the search: the layers that are left get the greedy path's copies.
    """
    before = problem.previous
    if before is not None and before.holds.sum() > before.home.size:
        raise InputError(
            "optimal counts every copy as sent anew, and the previous placement holds copies "
            "already: use pro-prophet, which pays for new copies only"
        )
    model, options = problem.model, {"slots": problem.most, "limit": problem.limit}
    found = []
    limit_s: float | None = problem.limit_s
    for counts, home in zip(problem.counts, problem.home, strict=True):
        try:
            best = optimum.optimal(model, counts, home=home, **options, limit_s=limit_s)
        except KeyboardInterrupt:
            best = optimum.optimal(model, counts, home=home, **options, limit_s=None)
            best = best._replace(interrupted=True)
        if best.interrupted:
            limit_s = None
        found.append(best)
    placement = problem.with_copies([best.holds for best in found])
    return Placed(placement, tuple(best.bracket for best in found), limit_s is None)


KNOW_ACTIVE = ("contiguous", "replicate", "pro-prophet")
PLANNERS: Mapping[str, Callable[[PlacementProblem], Placed]] = MappingProxyType(
    {
        "contiguous": contiguous,
        "replicate": replicate,
        "shadow": shadow,
        "pro-prophet": pro_prophet,
        "optimal": optimal,
    }
)
