"""From a trace to a placement and what it changes on steps that it did not see: balance, bytes
moved, the busiest link under each rail policy, time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Floats, Int32s, Ints, whole_number
from railopt.base.errors import InputError
from railopt.base.units import parse_bytes
from railopt.evidence.bracket import Status
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.moe.aim import RailLinks, aimed, rail_plan
from railopt.moe.iteration.timeline import IterationTimeline, timeline
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.eplb import eplb
from railopt.moe.placement.moves import CurvePoint, moves_curve
from railopt.moe.placement.naming import least_moved
from railopt.moe.placement.placement import Placement, slot_gpus
from railopt.moe.placement.planners import Placed, PlacementProblem, one_more, place
from railopt.moe.placement.prophet import measure
from railopt.moe.placement.repair import FewMoves
from railopt.moe.presets import Preset, preset
from railopt.moe.routing.dispatch import dispatch, gpu_loads, split
from railopt.moe.routing.trace import MAX_EXPERTS, MAX_WIDTH, TRAINING, Trace
from railopt.moe.routing.window import WHOLE, SeenSteps, Window, seen

RAIL_POLICIES = ("own-nic", "pxn", "lpt", "equitable", "even-excess", "spill")
CHUNK, MOST_CHUNKS = 256 << 10, 1 << 21


def dimensions(trace: Trace, model: str | Preset | None) -> Preset:
    """The model behind a trace: a preset, or one by name, with the trace's experts and top-k, or
    what the trace itself says.
    """
    if model is not None:
        known = preset(model) if isinstance(model, str) else model
        return replace(known, layers=len(trace.layers), experts=trace.experts, top_k=trace.top_k)
    shape = trace.meta.get("model")
    if not isinstance(shape, Mapping) or not trace.model_dim:
        raise InputError(
            "the trace does not say how large its model is: name one, e.g. --model "
            "deepseek-v2-lite, or give its dimensions, e.g. --model-dim 2048 --ffn 1408"
        )
    width, ffn, shared = trace.model_dim, shape.get("ffn"), shape.get("shared", 0)
    ffn = whole_number(ffn, "ffn of the trace's model", 1, MAX_WIDTH)
    shared = whole_number(shared, "shared of the trace's model", 0, MAX_EXPERTS)
    dense = 4 * width * width + 3 * width * ffn * shared
    return Preset(
        "the trace's own", len(trace.layers), trace.experts, trace.top_k, width, ffn, dense
    )


@dataclass(frozen=True, eq=False)
class Score:
    """How even GPUs are: max/mean of the tokens that they compute, float64 [step, layer]; NaN where
    there are none, as in dense layers: these are left out of every mean.
    """

    ratio: Floats = field(repr=False)

    @property
    def mean(self) -> float:
        """Over steps and layers."""
        return float(_mean_of_known(self.ratio.reshape(1, -1))[0])

    @property
    def steps(self) -> tuple[float, float]:
        """The best and the worst step's mean over layers."""
        by_step = _mean_of_known(self.ratio)
        return float(by_step.min()), float(by_step.max())

    @property
    def worst(self) -> float:
        """The worst layer's mean over steps."""
        return float(_mean_of_known(self.ratio.T).max())

    def as_dict(self) -> dict[str, float]:
        """JSON values."""
        best, worst = self.steps
        return {
            "balance": self.mean,
            "balance_best_step": best,
            "balance_worst_step": worst,
            "worst_layer_balance": self.worst,
        }


def scored(
    counts: Ints | Int32s, placement: Placement, rule: str, active: Bools | None = None
) -> Score:
    """A placement on counts int [step, layer, source GPU, expert]; the mean is over `active` GPUs
    (bool [GPU]; None: all).
    """
    loads = [
        gpu_loads(counts[:, layer], holds, placement.home[layer], placement.gpus, rule)
        for layer, holds in enumerate(placement.holds)
    ]
    on = slice(None) if active is None else active
    return Score(_ratio(np.stack(loads, axis=1)[:, :, on]))


def scored_map(counts: Ints | Int32s, phy2log: Int32s, devices: int) -> Score:
    """The same of a map [layer, slot] -> expert that may hold an expert twice on a GPU, tokens
    spread evenly over its slots.
    """
    load = counts.sum(axis=2, dtype=np.int64)
    owner = slot_gpus(phy2log.shape[1], devices)
    loads = np.zeros((*load.shape[:2], devices))
    for layer, row in enumerate(phy2log):
        slots = np.zeros((load.shape[2], devices))
        np.add.at(slots, (row, owner), 1.0)
        loads[:, layer] = load[:, layer] @ (slots / slots.sum(axis=1, keepdims=True))
    return Score(_ratio(loads))


def _ratio(loads: Floats) -> Floats:
    """max/mean over the last axis; NaN where there is no load."""
    mean = loads.mean(axis=-1)
    return loads.max(axis=-1) / np.where(mean > 0, mean, np.nan)


def _mean_of_known(rows: Floats) -> Floats:
    """Each row's mean without its NaNs; of the rows that have nothing else, none."""
    rows = rows[~np.isnan(rows).all(axis=1)]
    return np.nanmean(rows, axis=1) if len(rows) else np.ones(1)  # no tokens at all: even


@dataclass(frozen=True)
class StepReport:
    """One placement on one step: links and time.

    links     by rail policy: (busiest NIC's bytes summed over layers, dispatch time summed over
              layers)
    internode bytes between nodes in one dispatch, all layers
    """

    internode: int
    links: dict[str, tuple[int, Fraction]]
    timeline: IterationTimeline = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """JSON values; times in seconds."""
        return {
            "internode_bytes": self.internode,
            "links": {
                name: {"busiest_nic_bytes": load, "dispatch_s": float(time)}
                for name, (load, time) in self.links.items()
            },
        }


def assess(
    trace: Trace,
    model: TimeModel,
    placement: Placement,
    links: RailLinks,
    *,
    row: int = -1,
    rule: str = "home",
    style: str = "ours",
    previous: Placement | None = None,
) -> StepReport:
    """What a placement does to the links and the time of one recorded step; copies that `previous`
    has need no transfer.
    """
    when = int(trace.iterations[row])
    terms, internode = [], 0
    busy = dict.fromkeys(RAIL_POLICIES, (0, Fraction(0)))
    for column, layer in enumerate(trace.layers.tolist()):
        counts = trace.counts[row, column].astype(np.int64)
        holds, home = placement.holds[column], placement.home[column]
        shares = split(counts, holds, home, placement.gpus, rule)
        there = None if previous is None else previous.holds[column]
        terms.append(measure(model, shares, holds, home=home, have=there))
        traffic = dispatch(trace, placement, when, layer, token_bytes=links.token_bytes, rule=rule)
        internode += int(traffic.node_matrix.sum())
        for name in busy:
            made = rail_plan(links.fabric, traffic, name, links.chunk)
            if made is not None:
                most, time = busy[name]
                busiest = int(max(made.send.max(), made.recv.max()))
                busy[name] = (most + busiest, time + made.makespan)
    return StepReport(internode, busy, timeline(model, terms, style))


@dataclass(frozen=True, eq=False)
class PlacementQuestion:
    """What `compare` is asked.

    planner       who places, a name of `PLANNERS`
    replicas      physical experts per layer, homes included; where neither this nor `memory` is
                  given, every GPU has one slot more than the experts need, or as many as
                  `previous` fills
    groups, previous, limit_s  see `PlacementProblem`
    even_slots    round replicas of `replicate` up until every GPU has the same number, as servers
                  want it
    memory        bytes a GPU has for one layer's experts
    active        bool [GPU]: those that are neither dead nor draining (None: all); the tokens of
                  the other ranks are read by these
    costs         of a token, float64 [source GPU, GPU]: which GPU is which, for `replicate`
    aim           what `replicate` names GPUs for, see `railopt.moe.aim.aimed`; with `rail_policy`
    window        what a plan sees of the steps before it
    held_out      last steps that are scored on and not planned on (None: a quarter of them)
    rolling       held-out steps after which to plan anew (None: one plan for all of them)
    only          plan on this recorded iteration alone, -1 the last, and score on `evaluated_on`
                  (None: the same)
    model         a preset or the name of one whose dimensions count; None: the trace's own
    gpu_flops     FLOP/s that a GPU reaches
    tokens        tokens per rank, where the trace does not say
    rule          which replica a token goes to; None: "even" for `replicate`, else "home"
    chunk         largest chunk on the rails; None: see `usual_chunk`
    move_weight   what sending a copy weighs when planning
    curve         whether to repair `previous` with budgets of moves, too
    few           how far `replicate` repairs `previous`; None: see `PlacementProblem`
    """

    planner: str = "pro-prophet"
    replicas: int | None = None
    even_slots: bool = False
    memory: int | None = None
    groups: int = 1
    previous: Placement | None = None
    active: Bools | None = None
    costs: Floats | None = None
    aim: str = "gpu"
    rail_policy: str = "equitable"
    limit_s: float = 30.0
    window: Window = WHOLE
    held_out: int | None = None
    rolling: int | None = None
    only: int | None = None
    evaluated_on: int | None = None
    model: str | Preset | None = None
    gpu_flops: float = 400e12
    tokens: int | None = None
    rule: str | None = None
    chunk: str | int | None = None
    move_weight: float = 1.0
    curve: bool = False
    few: FewMoves | None = None


class Fold(NamedTuple):
    """Rows of a trace: those that a plan may see, and those it is scored on."""

    seen: range
    scored: range


def trials(trace: Trace, question: PlacementQuestion) -> list[Fold]:
    """Which plans are made, and what each is scored on."""
    if question.only is not None:
        row = trace.row(question.only)
        other = row if question.evaluated_on is None else trace.row(question.evaluated_on)
        return [Fold(range(row, row + 1), range(other, other + 1))]
    steps = len(trace.iterations)
    held = min(max(1, steps // 4), steps - 1) if question.held_out is None else question.held_out
    if not 0 <= held < steps:
        raise InputError(
            f"{held} of {steps} recorded steps held out: expected 0 to {steps - 1}, since a plan "
            f"needs one to see"
        )
    if held == 0:
        if question.rolling is not None:
            raise InputError("planning anew after held-out steps: none are held out")
        return [Fold(range(steps), range(steps))]
    apart = held if question.rolling is None else question.rolling
    if apart < 1:
        raise InputError(f"planning anew after {apart} steps: expected at least 1")
    starts = range(steps - held, steps, apart)
    return [Fold(range(at), range(at, min(at + apart, steps))) for at in starts]


class AssumedSlots(NamedTuple):
    """Experts that a GPU may hold of a layer, and the bytes of their weights in all layers, in
    bf16.
    """

    slots: int
    bytes: int


@dataclass(frozen=True, eq=False)
class PlacementReport:
    """A placement beside the one before (`previous`, else contiguous on active GPUs) and plain
    EPLB.

    placed     the placement that is saved: planned on all steps where steps are held out, unless
               Ctrl-C struck before
    seen       recorded iterations that `placed` was planned on, and with which decay
    scored_on  recorded iterations of the scores; where `held_out`, each was scored by a plan on
               steps before it
    replans    plans that were made for the scores
    assumed    what was assumed of a GPU's room for experts; None where that was given, or where
               nothing is copied
    scores     of "before", "eplb" (plain, on the sum of the same steps, with `eplb_replicas`) and
               "after"
    sides      links and time of "before" and "after", as it was scored, on the last of `scored_on`
    chunk      largest chunk on the rails of `sides`
    groups     expert groups that were to stay on one node each
    moved      what the change sends between GPUs, `new_copies` copies; no placement with as many
               copies of each expert needs fewer than `least_new_copies`.  Layers without tokens, as
               dense ones are, move nothing
    orphans    experts, over all other layers, that no active GPU held before: they come from one
               that drains, or, if it is dead, from storage; their tokens are not in "before"
    curve      moves against balance after the placement before, for `curve_loads` [layer, expert]
    """

    planner: str
    model: str
    rule: str
    records: str
    seen: list[int]
    decay: float
    scored_on: list[int]
    held_out: bool
    replans: int
    asked: int | None
    assumed: AssumedSlots | None
    groups: int
    chunk: str | int
    placed: Placed
    scores: dict[str, Score]
    eplb_replicas: int
    sides: dict[str, StepReport]
    moved: Traffic
    new_copies: int
    least_new_copies: int
    orphans: int
    curve: tuple[CurvePoint, ...] = ()
    curve_loads: list[list[int]] | None = None

    @property
    def optimum(self) -> Status | None:
        """Of all layers together, where the planner says something of it."""
        found = {known.status for known in self.placed.optima}
        for status in (Status.OPEN, Status.CLAIMED, Status.KNOWN):
            if status in found:
                return status
        return None

    @property
    def timed(self) -> bool:
        """Whether a step is a training iteration, so that the iteration's time means something."""
        return self.records == TRAINING

    def as_dict(self) -> dict[str, Any]:
        """JSON values; `optima` are picoseconds per iteration, one per layer."""
        placement, optima = self.placed.placement, self.placed.optima
        data: dict[str, Any] = {
            "planner": self.planner,
            "layers": placement.layers,
            "experts": placement.experts,
            "copies": int(placement.copies.sum()),
            "replicas_asked": self.asked,
            "slots_assumed": None if self.assumed is None else self.assumed.slots,
            "experts_per_gpu": int(placement.holds.sum(axis=2).max()),
            "rule": self.rule,
            "model": self.model,
            "records": self.records,
            "chunk": "flow" if self.chunk == "flow" else parse_bytes(self.chunk),
            "planned_on": self.seen,
            "decay": self.decay,
            "scored_on": self.scored_on,
            "held_out": self.held_out,
            "replans": self.replans,
            "eplb": {
                **self.scores["eplb"].as_dict(),
                "replicas": self.eplb_replicas,
                "rule": "even",
            },
        }
        if self.groups > 1:
            data["layers_keeping_groups"] = placement.layers_keeping(self.groups)
        for name, side in self.sides.items():
            data[name] = {**self.scores[name].as_dict(), **side.as_dict()}
            if self.timed:
                data[name]["iteration_s"] = side.timeline.total_ps / 1e12
        data["moved_bytes"] = int(self.moved.bytes.sum())
        data["moved_internode_bytes"] = int(self.moved.node_matrix.sum())
        data["new_copies"] = self.new_copies
        data["least_new_copies"] = self.least_new_copies
        data["orphans"] = self.orphans
        if self.curve:
            data["moves"] = [point.as_dict() for point in self.curve]
            data["moves_loads"] = self.curve_loads
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
    def rule(self) -> str:
        """Which replica a token goes to."""
        return self.question.rule or ("even" if self.question.planner == "replicate" else "home")

    @property
    def before(self) -> tuple[Placement, str]:
        """The placement before, and its rule."""
        previous, active = self.question.previous, self.question.active
        if previous is not None:
            return previous if active is None else previous.without(~active), self.rule
        model, layers = self.model, len(self.trace.layers)
        sizes = (layers, self.trace.experts, model.nodes, model.gpus)
        return Placement.contiguous(*sizes, active), "home"

    def shown(self, trial: Fold) -> list[int]:
        """The rows of a trial that are within the window."""
        steps = self.question.window.checked().steps
        return list(trial.seen if steps is None else trial.seen[-steps:])

    def planned(self, trial: Fold) -> tuple[Placed, SeenSteps]:
        """The plan that a trial's steps give."""
        asked = self.question
        window = asked.window
        if asked.planner == "contiguous" or (window.decay is None and trial.seen == trial.scored):
            # no step is looked at, or nothing is to be foreseen
            window = window._replace(decay=1.0)
        shown = seen(self.trace.counts[self.shown(trial)], window)
        problem = PlacementProblem(
            self.model.weighing_moves(asked.move_weight).over(
                shown.weight, serving=self.trace.records != TRAINING
            ),
            shown.counts,
            self.replicas,
            self.room,
            asked.groups,
            asked.previous,
            asked.limit_s,
            asked.active,
            asked.costs,
            asked.few,
        )
        if asked.planner == "replicate":
            made = aimed(problem, asked.aim, self.links, asked.rail_policy, shown.weight)
        else:
            made = place(problem, asked.planner)
        return made.over(shown.weight), shown

    @property
    def room(self) -> int | None:
        """Experts that a GPU may hold of a layer; None: as many as `replicas` need."""
        if self.question.memory is not None:
            return self.question.memory // self.expert_bytes
        if self.replicas is not None:
            return None
        before = self.question.previous
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
        load = self.trace.load[self.shown(trial)].sum(axis=0)
        nodes = self.model.nodes if self.on == self.model.devices else 1
        return eplb(load, replicas, self.question.groups, nodes, self.on)


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
    sized = dimensions(trace, question.model)
    setting = _setting(trace, fabric, question, sized)
    made = trials(trace, question)
    scores, placed, shown = _scores(setting, made, tell)
    last, judged = made[-1], placed.placement
    every = range(len(trace.iterations))
    if question.only is None and last.seen != every and not placed.interrupted:
        tell("the plan on all steps")
        last = Fold(every, last.scored)
        placed, shown = setting.planned(last)
    tell("the links")
    links = setting.links
    common: dict[str, Any] = {"row": last.scored[-1], "previous": question.previous}
    start, first = setting.before
    model, rule = setting.model, setting.rule
    active = np.ones(model.devices, np.bool_) if question.active is None else question.active
    return PlacementReport(
        question.planner,
        sized.name,
        rule,
        trace.records,
        trace.iterations[setting.shown(last)].tolist(),
        shown.decay,
        [int(trace.iterations[row]) for trial in made for row in trial.scored],
        made[0].seen != made[0].scored,
        len(made),
        question.replicas,
        _assumed_slots(question, setting, sized),
        question.groups,
        links.chunk,
        placed,
        scores,
        setting.slots(judged),
        {
            "before": assess(trace, model, start, links, **common, style="deepspeed", rule=first),
            "after": assess(trace, model, judged, links, **common, rule=rule),
        },
        *_moves(trace, placed.placement, start, sized.expert_bytes(), active),
        _curve(question, shown.counts.sum(axis=1), model) if question.curve else (),
        shown.counts.sum(axis=1).tolist() if question.curve else None,
    )


def _assumed_slots(
    question: PlacementQuestion, setting: _Planning, sized: Preset
) -> AssumedSlots | None:
    given = question.replicas is not None or question.memory is not None
    if given or question.planner == "contiguous":
        return None
    slots = setting.room or -(-(setting.replicas or 0) // setting.on)
    return AssumedSlots(slots, slots * len(setting.trace.layers) * sized.expert_bytes())


def _curve(question: PlacementQuestion, loads: Ints, model: TimeModel) -> tuple[CurvePoint, ...]:
    """Budgets of 0, 1, 2, 4, ... moves per layer for loads int64 [layers, experts] after the
    placement before, until one more changes nothing.
    """
    before = question.previous
    if before is None or np.ptp(before.holds.sum(axis=2)):
        raise InputError(
            "moves against balance: expected a placement before with as many experts on every GPU"
        )
    old = before.phy2log()
    sizes = (old.shape[1], question.groups, model.nodes, model.devices)
    points: list[CurvePoint] = []
    budgets = [0, *(1 << bit for bit in range(old.shape[1].bit_length() + 1))]
    for budget in budgets:
        points += moves_curve(loads, old, sizes, [budget])
        if len(points) > 2 and points[-1].moves == points[-2].moves:
            return tuple(points[:-1])
    return tuple(points)


def _moves(
    trace: Trace, placement: Placement, start: Placement, expert_bytes: int, active: Bools
) -> tuple[Traffic, int, int, int]:
    """moved, new_copies, least_new_copies and orphans of a `PlacementReport`."""
    some = trace.load.any(axis=(0, 2))
    some |= not some.any()
    after, before = (
        Placement(one.nodes, one.gpus, one.holds[some], one.home[some])
        for one in (placement, start)
    )
    return (
        after.movement(before, expert_bytes, active),
        int(after.moved(before).sum()),
        least_moved(after.copies, before.holds, active),
        int((~before.holds[:, active].any(axis=1)).sum()),
    )


def usual_chunk(trace: Trace, token_bytes: int) -> int:
    """CHUNK, doubled until no step's dispatch in a layer can have more than MOST_CHUNKS beside one
    a pair of GPUs: a load tensor may be the sum of any number of steps.
    """
    largest = int(trace.load.sum(axis=2).max()) * token_bytes
    return CHUNK << (largest // (CHUNK * MOST_CHUNKS)).bit_length()


def _setting(trace: Trace, fabric: Fabric, question: PlacementQuestion, sized: Preset) -> _Planning:
    tokens = question.tokens or trace.tokens_per_rank
    if not tokens:
        rows = trace.counts.size // trace.experts
        tokens = int(trace.counts.sum(dtype=np.int64) / rows / trace.top_k)
    several = len(trace.layers) > 1  # whose compute hides transfers
    model = sized.model(fabric, tokens, gpu_flops=question.gpu_flops, overlap=several)
    wanted, on = question.replicas, model.devices
    if question.active is not None:
        on = int(question.active.sum())
    if wanted is None and question.planner == "replicate" and question.memory is None:
        wanted = one_more(trace.experts, on)
    if wanted is not None and question.even_slots and question.planner == "replicate":
        wanted = -(-wanted // on) * on
    size = sized.token_bytes()
    chunk = usual_chunk(trace, size) if question.chunk is None else question.chunk
    links = RailLinks(fabric, size, chunk)
    return _Planning(trace, question, model, sized.expert_bytes(), wanted, links)


def _scores(
    setting: _Planning, made: list[Fold], tell: Callable[[str], None]
) -> tuple[dict[str, Score], Placed, SeenSteps]:
    """Of "before", "eplb" and "after", the steps of all trials one after the other; and the last
    plan.
    """
    ratios: dict[str, list[Floats]] = {"before": [], "eplb": [], "after": []}
    active = setting.question.active
    for number, trial in enumerate(made):
        tell(f"plan {number + 1} of {len(made)} that are scored")
        placed, shown = setting.planned(trial)
        placement = placed.placement
        counts = setting.trace.counts[trial.scored.start : trial.scored.stop]
        plain = setting.eplb(trial, setting.slots(placement))
        for name, score in (
            ("before", scored(counts, *setting.before, active)),
            ("eplb", scored_map(counts, plain, setting.on)),
            ("after", scored(counts, placement, setting.rule, active)),
        ):
            ratios[name].append(score.ratio)
    return {name: Score(np.concatenate(ratio)) for name, ratio in ratios.items()}, placed, shown
