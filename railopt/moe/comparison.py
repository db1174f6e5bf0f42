"""From a trace to a placement and what it changes on steps that it did not see: balance, bytes
moved, the busiest link under each rail policy, time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Floats, Int32s, Ints
from railopt.base.errors import InputError
from railopt.base.units import parse_bytes
from railopt.evidence.bracket import Status
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.moe.aim import RailLinks, aimed
from railopt.moe.assess import (
    Score,
    StepReport,
    assess,
    dimensions,
    scored,
    scored_map,
    usual_chunk,
)
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.eplb import eplb
from railopt.moe.placement.moves import CurvePoint, moves_curve
from railopt.moe.placement.naming import least_moved
from railopt.moe.placement.placement import Placement
from railopt.moe.placement.planners import Placed, PlacementProblem, one_more, place, slots_of
from railopt.moe.presets import Preset
from railopt.moe.question import Fold, PlacementBefore, PlacementQuestion
from railopt.moe.routing.trace import TRAINING, Trace
from railopt.moe.routing.window import SeenSteps, seen


class AssumedSlots(NamedTuple):
    """Experts that a GPU may hold of a layer, and the bytes of their weights in all layers, in
    bf16.
    """

    slots: int
    bytes: int


class StepsUsed(NamedTuple):
    """Which recorded steps a report rests on.

    records    what a step is, see `Trace`
    seen       recorded iterations that the placement was planned on, and with which decay
    scored_on  recorded iterations of the scores; where `held_out`, each was scored by a plan on
               steps before it
    replans    plans that were made for the scores
    """

    records: str
    seen: list[int]
    decay: float
    scored_on: list[int]
    held_out: bool
    replans: int

    @property
    def timed(self) -> bool:
        """Whether a step is a training iteration, so that the iteration's time means something."""
        return self.records == TRAINING

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        data = self._asdict()
        return {"records": data.pop("records"), "planned_on": data.pop("seen"), **data}


class ExpertMoves(NamedTuple):
    """What the change sends between GPUs.  Layers without tokens, as dense ones are, move nothing.

    traffic  bytes of `new_copies` copies; no placement with as many copies of each expert needs
             fewer than `least_new_copies`
    orphans  experts, over all other layers, that no active GPU held before: they come from one
             that drains, or, if it is dead, from storage; their tokens are not in "before"
    """

    traffic: Traffic
    new_copies: int
    least_new_copies: int
    orphans: int

    def as_dict(self) -> dict[str, int]:
        """JSON values."""
        return {
            "moved_bytes": int(self.traffic.bytes.sum()),
            "moved_internode_bytes": int(self.traffic.node_matrix.sum()),
            "new_copies": self.new_copies,
            "least_new_copies": self.least_new_copies,
            "orphans": self.orphans,
        }


class MovesCurve(NamedTuple):
    """Moves against balance after the placement before, for `loads` [layer, expert]."""

    points: tuple[CurvePoint, ...]
    loads: list[list[int]]


@dataclass(frozen=True, eq=False)
class PlacementReport:
    """A placement beside the one before (the question's, else contiguous on active GPUs) and plain
    EPLB.

    model, rule  name of the model whose dimensions count; which replica a token goes to
    assumed      what was assumed of a GPU's room for experts; None where that was given, or where
                 nothing is copied
    placed       the placement that is saved: planned on all steps where steps are held out, unless
                 Ctrl-C struck before
    scores       of "before", "eplb" (plain, on the sum of the same steps, with `eplb_replicas`) and
                 "after"
    sides        links and time of "before" and "after", as it was scored, on the last step that
                 is scored
    """

    question: PlacementQuestion
    model: str
    rule: str
    assumed: AssumedSlots | None
    steps: StepsUsed
    placed: Placed
    scores: dict[str, Score]
    eplb_replicas: int
    sides: dict[str, StepReport]
    moves: ExpertMoves
    curve: MovesCurve | None = None

    @property
    def optimum(self) -> Status | None:
        """The optimum's status over all layers, where the planner says something of it."""
        found = {known.status for known in self.placed.optima}
        for status in (Status.OPEN, Status.CLAIMED, Status.KNOWN):
            if status in found:
                return status
        return None

    @property
    def chunk(self) -> str | int:
        """Largest chunk on the rails of `sides`."""
        return self.sides["after"].chunk

    def as_dict(self) -> dict[str, Any]:
        """JSON values; `optima` are picoseconds per iteration, one per layer."""
        placement, optima = self.placed.placement, self.placed.optima
        data: dict[str, Any] = {
            "planner": self.question.planner,
            "layers": placement.layers,
            "experts": placement.experts,
            "copies": int(placement.copies.sum()),
            "replicas_asked": self.question.room.replicas,
            "slots_assumed": None if self.assumed is None else self.assumed.slots,
            "experts_per_gpu": int(placement.holds.sum(axis=2).max()),
            "rule": self.rule,
            "model": self.model,
            "chunk": "flow" if self.chunk == "flow" else parse_bytes(self.chunk),
            **self.steps.as_dict(),
            "eplb": {
                **self.scores["eplb"].as_dict(),
                "replicas": self.eplb_replicas,
                "rule": "even",
            },
        }
        if (groups := self.question.room.groups) > 1:
            data["layers_keeping_groups"] = placement.layers_keeping(groups)
        for name, side in self.sides.items():
            data[name] = {**self.scores[name].as_dict(), **side.as_dict()}
            if self.steps.timed:
                data[name]["iteration_s"] = side.timeline.total_ps / 1e12
        data |= self.moves.as_dict()
        if self.curve is not None:
            data["moves"] = [point.as_dict() for point in self.curve.points]
            data["moves_loads"] = self.curve.loads
        if optima:
            data["optimal"] = self.optimum is Status.KNOWN
            data["optimum"] = str(self.optimum)
            data["optima"] = [known.as_dict() for known in optima]
        return data


class _Planning(NamedTuple):
    """What every plan of one comparison shares."""

    trace: Trace
    question: PlacementQuestion
    model: TimeModel
    expert_bytes: int
    replicas: int | None
    links: RailLinks

    @property
    def before(self) -> tuple[Placement, str]:
        """The placement before, and its rule."""
        previous, active = self.question.before.placement, self.question.active
        if previous is not None:
            kept = previous if active is None else previous.without(~active)
            return kept, self.question.token_rule
        model, layers = self.model, len(self.trace.layers)
        sizes = (layers, self.trace.experts, model.nodes, model.gpus)
        return Placement.contiguous(*sizes, active), "home"

    def rows_seen(self, trial: Fold) -> list[int]:
        """The rows of a trial that are within the window."""
        steps = self.question.steps.window.steps
        return list(trial.seen if steps is None else trial.seen[-steps:])

    def planned(self, trial: Fold) -> tuple[Placed, SeenSteps]:
        """The plan that a trial's steps give."""
        asked = self.question
        window = asked.steps.window
        if asked.planner == "contiguous" or (window.decay is None and trial.seen == trial.scored):
            # no step is looked at, or nothing is to be foreseen
            window = replace(window, decay=1.0)
        seen_steps = seen(self.trace.counts[self.rows_seen(trial)], window)
        problem = PlacementProblem(
            self.model.weighing_moves(asked.before.move_weight).over(
                seen_steps.weight, serving=self.trace.records != TRAINING
            ),
            seen_steps.counts,
            self.replicas,
            self.room,
            asked.room.groups,
            asked.before.placement,
            asked.limit_s,
            asked.active,
            asked.naming.costs,
            asked.before.few,
            asked.before.slots,
        )
        if asked.planner == "replicate":
            naming = asked.naming
            made = aimed(problem, naming.aim, self.links, naming.rail_policy, seen_steps.weight)
        else:
            made = place(problem, asked.planner)
        return made.over(seen_steps.weight), seen_steps

    @property
    def room(self) -> int | None:
        """Experts that a GPU may hold of a layer; None: as many as `replicas` need."""
        if (memory := self.question.room.memory) is not None:
            return memory // self.expert_bytes
        if self.replicas is not None:
            return None
        before = self.question.before.placement
        held = 0 if before is None else int(before.holds.sum(axis=2).max())
        return min(max(-(-self.trace.experts // self.on) + 1, held), self.trace.experts)

    @property
    def on(self) -> int:
        """GPUs that may hold experts."""
        active = self.question.active
        return self.model.devices if active is None else int(active.sum())

    def slots(self, placement: Placement) -> int:
        """Physical experts per layer that fill every GPU as the fullest one is."""
        return int(placement.holds.sum(axis=2).max()) * self.on

    def eplb(self, trial: Fold, replicas: int) -> Int32s:
        """Plain EPLB on the sum of the same steps."""
        load = self.trace.load[self.rows_seen(trial)].sum(axis=0)
        nodes = self.model.nodes if self.on == self.model.devices else 1
        return eplb(load, replicas, self.question.room.groups, nodes, self.on)


def compare(
    trace: Trace,
    fabric: Fabric,
    question: PlacementQuestion,
    tell: Callable[[str], None] = lambda _: None,
) -> PlacementReport:
    """Place the experts of a trace on the GPUs of a fabric, one source rank a GPU, and score the
    placement beside the one before and plain EPLB; `tell` hears what is being done.
    """
    trace.expect(ranks=fabric.nodes * fabric.gpus)
    if question.active is not None:
        trace = trace.drained(question.active)
    sized = dimensions(trace, question.job.model)
    planning = _planning(trace, fabric, question, sized)
    made = question.steps.folds(trace)
    scores, placed, seen_steps = _scores(planning, made, tell)
    last, judged = made[-1], placed.placement
    every = range(len(trace.iterations))
    if question.steps.only is None and last.seen != every and not placed.interrupted:
        tell("the plan on all steps")
        last = Fold(every, last.scored)
        placed, seen_steps = planning.planned(last)
    tell("the links")
    common: dict[str, Any] = {"row": last.scored[-1], "previous": question.before.placement}
    (start, first), rule = planning.before, question.token_rule
    model, links = planning.model, planning.links
    loads = seen_steps.counts.sum(axis=1)
    return PlacementReport(
        question,
        sized.name,
        rule,
        _assumed_slots(planning),
        StepsUsed(
            trace.records,
            trace.iterations[planning.rows_seen(last)].tolist(),
            seen_steps.decay,
            [int(trace.iterations[row]) for trial in made for row in trial.scored],
            made[0].seen != made[0].scored,
            len(made),
        ),
        placed,
        scores,
        planning.slots(judged),
        {
            "before": assess(trace, model, start, links, **common, style="deepspeed", rule=first),
            "after": assess(trace, model, judged, links, **common, rule=rule),
        },
        _moves(planning, placed.placement, start),
        _curve(question.before, question.room.groups, loads, model)
        if question.before.curve
        else None,
    )


def _assumed_slots(planning: _Planning) -> AssumedSlots | None:
    given = planning.question.room
    if given.replicas is not None or given.memory is not None:
        return None
    if planning.question.planner == "contiguous":
        return None
    slots = planning.room or -(-(planning.replicas or 0) // planning.on)
    return AssumedSlots(slots, slots * len(planning.trace.layers) * planning.expert_bytes)


def _curve(before: PlacementBefore, groups: int, loads: Ints, model: TimeModel) -> MovesCurve:
    """Budgets of moves for loads int64 [layers, experts] after the placement before."""
    old = slots_of(before.placement, before.slots)
    if old is None:
        raise InputError(
            "moves against balance: expected a placement before with as many experts on every GPU"
        )
    sizes = (old.shape[1], groups, model.nodes, model.devices)
    return MovesCurve(tuple(moves_curve(loads, old, sizes)), loads.tolist())


def _moves(planning: _Planning, placement: Placement, start: Placement) -> ExpertMoves:
    active = planning.question.active
    if active is None:
        active = np.ones(placement.devices, np.bool_)
    some = planning.trace.load.any(axis=(0, 2))
    some |= not some.any()
    after, before = (
        Placement(one.nodes, one.gpus, one.holds[some], one.home[some])
        for one in (placement, start)
    )
    return ExpertMoves(
        after.movement(before, planning.expert_bytes, active),
        int(after.moved(before).sum()),
        least_moved(after.copies, before.holds, active),
        int((~before.holds[:, active].any(axis=1)).sum()),
    )


def _planning(
    trace: Trace, fabric: Fabric, question: PlacementQuestion, sized: Preset
) -> _Planning:
    tokens = question.job.tokens or trace.usual_tokens
    several = len(trace.layers) > 1  # whose compute hides transfers
    model = sized.model(fabric, tokens, gpu_flops=question.job.gpu_flops, overlap=several)
    room, wanted, active = question.room, question.room.replicas, question.active
    on = model.devices if active is None else int(active.sum())
    if wanted is None and question.planner == "replicate" and room.memory is None:
        wanted = one_more(trace.experts, on)
    if wanted is not None and room.even_slots and question.planner == "replicate":
        wanted = -(-wanted // on) * on
    size = sized.token_bytes()
    chunk = usual_chunk(trace, size) if question.chunk is None else question.chunk
    links = RailLinks(fabric, size, chunk)
    return _Planning(trace, question, model, sized.expert_bytes(), wanted, links)


def _scores(
    planning: _Planning, made: list[Fold], tell: Callable[[str], None]
) -> tuple[dict[str, Score], Placed, SeenSteps]:
    """The scores of "before", "eplb" and "after", the steps of all trials one after the other; and
    the last plan.
    """
    ratios: dict[str, list[Floats]] = {"before": [], "eplb": [], "after": []}
    active = planning.question.active
    for number, trial in enumerate(made):
        tell(f"plan {number + 1} of {len(made)} that are scored")
        placed, seen_steps = planning.planned(trial)
        placement = placed.placement
        counts = planning.trace.counts[trial.scored.start : trial.scored.stop]
        plain = planning.eplb(trial, planning.slots(placement))
        for name, score in (
            ("before", scored(counts, *planning.before, active)),
            ("eplb", scored_map(counts, plain, planning.on)),
            ("after", scored(counts, placement, planning.question.token_rule, active)),
        ):
            ratios[name].append(score.ratio)
    return (
        {name: Score(np.concatenate(ratio)) for name, ratio in ratios.items()},
        placed,
        seen_steps,
    )
