"""What `railopt.moe.comparison.compare` is asked, in parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from railopt.base.arrays import Bools, Floats, Int32s
from railopt.base.errors import InputError
from railopt.moe.placement.placement import Placement
from railopt.moe.placement.repair import FewMoves
from railopt.moe.presets import Preset
from railopt.moe.routing.trace import Trace
from railopt.moe.routing.window import WHOLE, Window, held_out


class ExpertRoom(NamedTuple):
    """How many experts fit where.

    replicas    physical experts per layer, homes included; where neither this nor `memory` is
                given, every GPU has one slot more than the experts need, or as many as the
                placement before fills
    even_slots  round replicas of `replicate` up until every GPU has the same number, as servers
                want it
    memory      bytes a GPU has for one layer's experts
    groups      expert groups that stay on one node each, see `PlacementProblem`
    """

    replicas: int | None = None
    even_slots: bool = False
    memory: int | None = None
    groups: int = 1


class Fold(NamedTuple):
    """Rows of a trace: those that a plan may see, and those it is scored on."""

    seen: range
    scored: range


class StepChoice(NamedTuple):
    """Which recorded steps are planned on, and which are scored.

    window        what a plan sees of the steps before it
    held_out      last steps that are scored on and not planned on (None: a quarter of them)
    rolling       held-out steps after which to plan anew (None: one plan for all of them)
    only          plan and score on this recorded iteration alone, -1 the last
    """

    window: Window = WHOLE
    held_out: int | None = None
    rolling: int | None = None
    only: int | None = None

    def folds(self, trace: Trace) -> list[Fold]:
        """Which plans are made, and what each is scored on."""
        if self.only is not None:
            row = trace.row(self.only)
            return [Fold(range(row, row + 1), range(row, row + 1))]
        steps = len(trace.iterations)
        held = held_out(steps, self.held_out)
        if held == 0:
            if self.rolling is not None:
                raise InputError("planning anew after held-out steps: none are held out")
            return [Fold(range(steps), range(steps))]
        apart = held if self.rolling is None else self.rolling
        if apart < 1:
            raise InputError(f"planning anew after {apart} steps: expected at least 1")
        starts = range(steps - held, steps, apart)
        return [Fold(range(at), range(at, min(at + apart, steps))) for at in starts]


class JobSize(NamedTuple):
    """How large a step is.

    model      a preset or the name of one whose dimensions count; None: the trace's own
    gpu_flops  FLOP/s that a GPU reaches
    tokens     tokens per rank, where the trace does not say
    """

    model: str | Preset | None = None
    gpu_flops: float = 400e12
    tokens: int | None = None


class GpuNaming(NamedTuple):
    """Which GPU gets which bundle of experts, for `replicate`.

    costs  of a token, float64 [source GPU, GPU]
    aim    what GPUs are named for, see `railopt.moe.aim.aimed`; with `rail_policy`
    """

    costs: Floats | None = None
    aim: str = "gpu"
    rail_policy: str = "equitable"


class PlacementBefore(NamedTuple):
    """The placement that is there (None: contiguous), and how it may change.

    slots        int32 [layers, slots]: its slots where they matter, with experts that a GPU holds
                 twice and -1 for empty ones, for `few` and `curve` (None: as `phy2log` has them)
    move_weight  what sending a copy weighs when planning
    few          how far `replicate` repairs it; None: see `PlacementProblem`
    curve        whether to repair it with budgets of moves, too
    """

    placement: Placement | None = None
    move_weight: float = 1.0
    few: FewMoves | None = None
    curve: bool = False
    slots: Int32s | None = None


@dataclass(frozen=True, eq=False)
class PlacementQuestion:
    """What `compare` is asked.

    planner  who places, a name of `PLANNERS`
    active   bool [GPU]: those that are neither dead nor draining (None: all); the tokens of the
             other ranks are read by these
    rule     which replica a token goes to; None: "even" for `replicate`, else "home"
    chunk    largest chunk on the rails; None: see `usual_chunk`
    limit_s  see `PlacementProblem`
    """

    planner: str = "pro-prophet"
    room: ExpertRoom = field(default_factory=ExpertRoom)
    steps: StepChoice = field(default_factory=StepChoice)
    before: PlacementBefore = field(default_factory=PlacementBefore)
    job: JobSize = field(default_factory=JobSize)
    naming: GpuNaming = field(default_factory=GpuNaming, repr=False)
    active: Bools | None = None
    rule: str | None = None
    chunk: str | int | None = None
    limit_s: float = 30.0

    @property
    def token_rule(self) -> str:
        """`rule`, or the planner's own."""
        return self.rule or ("even" if self.planner == "replicate" else "home")
