"""What each mechanism is worth on recorded routing: the time of a layer's all-to-alls and of an
iteration as mechanisms are added one by one, each beside what no method of its kind can beat.

    rails      chunks on the rails that a policy chooses, instead of every GPU's own NIC (RailS)
    stages     server pairs in stages without incast (FAST)
    placement  copies of experts in spare slots, planned on steps before (Pro-Prophet, EPLB)
    split      copies and tokens anew for every micro-batch, by its own counts
    experts    experts instead of tokens between the nodes of a domain (HybridEP)

Every time is simulated, the node inside, on steps that no plan saw.  Choices (a domain's size,
which copy a token goes to, whether a mechanism that loses is left out of what follows) are made on
the last step that plans see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Bools, Int32s, Ints, whole_number
from railopt.base.errors import InputError, printable
from railopt.base.units import PS_PER_S, quoted
from railopt.evidence.certificate import Certificate
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.moe.aim import rail_plan
from railopt.moe.assess import dimensions, usual_chunk
from railopt.moe.found_placement import FoundPlacement, find_placement
from railopt.moe.iteration.timeline import timeline
from railopt.moe.iteration.timemodel import Terms, TimeModel
from railopt.moe.joint import MOST_CELLS, Demand, NodePrices, Relaxed
from railopt.moe.micro.slots import SpareSlots
from railopt.moe.micro.solve import Greedy
from railopt.moe.placement.placement import Placement
from railopt.moe.placement.planners import PlacementProblem, place
from railopt.moe.placement.prophet import measure
from railopt.moe.presets import Preset
from railopt.moe.routing.dispatch import flows
from railopt.moe.routing.trace import TRAINING, Trace
from railopt.moe.routing.window import WHOLE, held_out, seen
from railopt.schedule.synthesis import synthesise
from railopt.schedule.value import require_two_levels
from railopt.sim.assumptions import ROCE_INCAST, Assumptions
from railopt.sim.run import simulate

MECHANISMS = ("rails", "stages", "placement", "split", "experts")
ASSUMED = Assumptions(headers=True, latency=True, incast=ROCE_INCAST, stages="node")
MOST_STEPS = 4
"""Held-out steps that are simulated by default, evenly from the first to the last."""

NOTHING = 0.005  # a share of the time: less is no gain
MOST_ROUTED = 1 << 24  # (source, expert, GPU) that are held at once
QUICK_CELLS = 256  # (node, expert) of a linear program that takes a twentieth of a second
LEFT_OUT = "left out: lost on the last step planned on"
ANY_RAILS = "any rails and stages"
ANY_SPLIT = "any split over these copies"
ANY_COPIES = "any copies in the free slots"
ANY_PLACEMENT = "any"  # name of the last bound's witness


@dataclass(frozen=True)
class WeighQuestion:
    """What is asked.

    order        mechanisms, in the order in which they are added; None: all that the fabric allows
    each_alone   each mechanism by itself instead, beside none
    policy       of rails
    schedule     kind of schedule of the stages
    spare        slots for copies on every GPU
    steps        held-out steps that are simulated, at most
    held_out     last steps that no plan sees (None: a quarter)
    model        a preset whose dimensions count (None: what the trace says)
    gpu_flops    FLOP/s that a GPU reaches
    """

    order: Sequence[str] | None = None
    each_alone: bool = False
    policy: str = "even-excess"
    schedule: str = "compact"
    spare: int = 1
    steps: int = MOST_STEPS
    held_out: int | None = None
    model: str | None = None
    gpu_flops: float = 400e12

    def __post_init__(self) -> None:
        for name in self.order or ():
            if name not in MECHANISMS:
                raise InputError(
                    f"unknown mechanism {name!r}: expected some of {', '.join(MECHANISMS)}"
                )
        if self.order is not None and len(set(self.order)) < len(self.order):
            raise InputError("a mechanism is named twice: each is added once")
        whole_number(self.spare, "spare", 0, 1 << 16)
        whole_number(self.steps, "steps", 1, 1 << 20)


@dataclass(frozen=True)
class Worth:
    """One row: times are picoseconds per step, the mean of the scored ones, over all layers.

    added        the mechanism, "" for none
    exchange_ps  dispatch and combine, forward
    iteration_ps everything, forward and backward; what a step takes where nothing is trained
    bound_ps     of `exchange_ps`: what no method of this kind beats
    iteration_bound_ps  the same of `iteration_ps`
    bounds       which freedom the bound has
    witness      name of the bound's witness: of the first row that has this bound
    kept         whether the rows after this one have the mechanism too
    copies       of experts that are sent per layer and step
    """

    added: str
    exchange_ps: int
    iteration_ps: int
    bound_ps: int
    iteration_bound_ps: int
    bounds: str
    kept: bool
    copies: float
    detail: str = ""
    witness: str = ""

    def how(self, before: Worth) -> str:
        """What was chosen, and whether it helps beside an earlier row."""
        if not self.added:
            return "own NIC, experts in order"
        gains = [
            1 - mine / max(1, theirs)
            for mine, theirs in (
                (self.exchange_ps, before.exchange_ps),
                (self.iteration_ps, before.iteration_ps),
            )
        ]
        if gains[1] < -NOTHING:
            return f"{self.detail}; loses" + ("" if self.kept else ", left out")
        verdict = "; gains nothing" if max(gains) < NOTHING else ""
        return self.detail + verdict + ("" if self.kept else f"; {LEFT_OUT}")

    def as_dict(self) -> dict[str, Any]:
        """JSON values; times in seconds."""
        return {
            "added": self.added or "none",
            "detail": self.detail,
            "exchange_s": self.exchange_ps / PS_PER_S,
            "iteration_s": self.iteration_ps / PS_PER_S,
            "bound_s": self.bound_ps / PS_PER_S,
            "iteration_bound_s": self.iteration_bound_ps / PS_PER_S,
            "bound_over": self.bounds,
            "witness": self.witness,
            "kept": self.kept,
            "copies": self.copies,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Worth:
        """The way back from `as_dict`."""
        times = ("exchange_s", "iteration_s", "bound_s", "iteration_bound_s")
        keys = {"added", "detail", "bound_over", "kept", *times}
        if not isinstance(data, Mapping) or not keys <= set(data):
            raise InputError(f"a row of railopt weigh --json has {', '.join(sorted(keys))}")
        name = data["added"]
        if name not in ("none", *MECHANISMS) or not isinstance(data["kept"], bool):
            raise InputError(f"a row for {quoted(name)}: expected one of {', '.join(MECHANISMS)}")
        exchange, iteration, bound, least = (_picoseconds(data[each]) for each in times)
        return cls(
            "" if name == "none" else name,
            exchange,
            iteration,
            bound,
            least,
            printable(data["bound_over"]),
            data["kept"],
            0.0,
            printable(data["detail"]),
        )


def _picoseconds(seconds: Any) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < 1e6:
        raise InputError(f"{quoted(seconds)} seconds: expected a number from 0 to a million")
    return round(seconds * PS_PER_S)


class LayerBound(NamedTuple):
    """What nothing of a kind beats in one layer of a scored iteration: its demand, the prices."""

    iteration: int
    layer: int
    demand: Demand
    prices: NodePrices

    def certificates(self) -> dict[str, Certificate]:
        """The certificates of the dispatch and of the combine."""
        ways = {"dispatch": self.demand, "combine": self.demand.back}
        return {way: demand.certificate(self.prices) for way, demand in ways.items()}

    def as_dict(self) -> dict[str, Any]:
        named = {name: each.tolist() for name, each in self.prices._asdict().items()}
        return {"iteration": self.iteration, "layer": self.layer, **named}


@dataclass(frozen=True)
class Weighed:
    """All rows, the first without any mechanism, and what nothing can beat.

    exchange_bound_ps   dispatch and combine, with any placement in the slots, split, rails, stages
    iteration_bound_ps  the same with experts that are as even as GPUs can be
    found_ps            a placement and a split of every step alone, found together: what its NICs
                        take, which the first bound is of
    weakness            which freedom leaves the first bound more than a tenth below the best found
                        within the slots; "" where it is no more
    scored_on           recorded iterations
    witness             of every bound, by name: the prices of each layer and step
    """

    rows: tuple[Worth, ...]
    exchange_bound_ps: int
    iteration_bound_ps: int
    found_ps: int
    scored_on: tuple[int, ...]
    slots: int
    each_alone: bool
    model: str
    weakness: str = ""
    witness: Mapping[str, tuple[LayerBound, ...]] = field(repr=False, default_factory=dict)

    def beside(self) -> list[tuple[Worth, Worth]]:
        """Each row, and the row that its gains are over: the last that was kept before it, or the
        first.
        """
        pairs, before = [], self.rows[0]
        for row in self.rows:
            pairs.append((row, before))
            if row.kept and not self.each_alone:
                before = row
        return pairs

    def certificates(self) -> dict[str, Certificate]:
        """The certificates of every bound, layer, step and direction, by the name of a file."""
        return {
            f"{name}-{each.iteration}-{each.layer}-{way}.json": certificate
            for name, bounds in self.witness.items()
            for each in bounds
            for way, certificate in each.certificates().items()
        }

    @classmethod
    def from_dict(cls, data: Any) -> Weighed:
        """The way back from `as_dict`, as far as it is shown: without the witness."""
        rows = data.get("rows") if isinstance(data, Mapping) else None
        if not isinstance(rows, list) or not rows or not isinstance(data.get("each_alone"), bool):
            raise InputError("not what railopt weigh --json prints: no rows in it")
        return cls(
            tuple(Worth.from_dict(row) for row in rows),
            _picoseconds(data.get("exchange_bound_s")),
            _picoseconds(data.get("iteration_bound_s")),
            _picoseconds(data.get("found_s")),
            (),
            0,
            data["each_alone"],
            printable(data.get("model")),
            printable(data.get("weakness", ""), 400),
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON values; times in seconds."""
        return {
            "rows": [row.as_dict() | {"how": row.how(before)} for row, before in self.beside()],
            "exchange_bound_s": self.exchange_bound_ps / PS_PER_S,
            "iteration_bound_s": self.iteration_bound_ps / PS_PER_S,
            "found_s": self.found_ps / PS_PER_S,
            "weakness": self.weakness,
            "scored_on": list(self.scored_on),
            "slots_per_gpu": self.slots,
            "each_alone": self.each_alone,
            "model": self.model,
            "witness": {
                name: [each.as_dict() for each in bounds] for name, bounds in self.witness.items()
            },
        }


class _Way(NamedTuple):
    """How a layer is run: which mechanisms are on, and what they were told.

    holds, home  bool [layer, GPU, expert] and int32 [layer, expert]: where experts are
    rule         which copy a token goes to
    keep_copies  whether a split of a micro-batch keeps the copies of the placement, or has all
                 spare slots for its own
    domain       nodes that share every expert of theirs, in whichever slots
    """

    on: frozenset[str]
    holds: Bools
    home: Int32s
    rule: str = "home"
    keep_copies: bool = True
    domain: int = 1


@dataclass(frozen=True)
class _Weighing:
    """A trace on a fabric: what each step takes in one way of running it."""

    trace: Trace
    fabric: Fabric
    question: WeighQuestion
    sized: Preset
    model: TimeModel
    chunk: int

    def flow(self, way: _Way, counts: Ints, layer: int) -> tuple[Ints, Bools]:
        """int64 [source, GPU], tokens of one layer's counts, and the copies that compute them."""
        holds, home, gpus = way.holds[layer], way.home[layer], self.fabric.gpus
        if "split" not in way.on:
            return flows(counts, holds, home, gpus, way.rule), holds
        start, free = self.start(way, layer)
        slots = SpareSlots(self.fabric.nodes, gpus, start, free.astype(np.int32))
        made = Greedy(slots).split(counts.sum(axis=0))
        flow, some = np.zeros((len(counts),) * 2, np.int64), -(-MOST_ROUTED // len(counts) ** 2)
        for first in range(0, counts.shape[1], some):  # all experts at once may be gigabytes
            those = slice(first, first + some)
            flow += near_first(counts[:, those], made.tokens[:, those], gpus).sum(axis=1)
        return flow, start | made.copies

    def start(self, way: _Way, layer: int) -> tuple[Bools, Ints]:
        """bool [GPU, expert]: copies that every step has, and int64 [GPU]: slots for its own."""
        holds, home = way.holds[layer], way.home[layer]
        if "split" not in way.on:
            return holds, np.zeros(len(holds), np.int64)
        nodes, gpus = self.fabric.nodes, self.fabric.gpus
        kept = holds if way.keep_copies else in_domains(home[None], nodes, gpus, way.domain)[0]
        return kept, np.maximum(self.slots - kept.sum(axis=1), 0)

    def demands(self, way: _Way | None, layer: int, scored: list[int]) -> list[Demand]:
        """Demands of the scored steps: with the copies of a way, or any placement in the slots."""
        counts = [self.trace.counts[row, layer].astype(np.int64) for row in scored]
        size = self.sized.token_bytes()
        any_placement = [Demand.of(self.fabric, each, self.slots, size) for each in counts]
        if way is None:
            return any_placement
        start, free = self.start(way, layer)
        return [each.holding(start, free) for each in any_placement]

    @property
    def slots(self) -> int:
        """Experts that a GPU can hold."""
        devices = self.fabric.nodes * self.fabric.gpus
        return -(-self.trace.experts // devices) + self.question.spare

    def exchange_ps(self, way: _Way, flow: Ints) -> int:
        """One all-to-all, simulated; flow int64 [GPU, GPU], bytes.  Tokens that stay in a node
        cross scale-up beside what the plan moves there: no port is done sooner than with both.
        """
        fabric, traffic = self.fabric, Traffic(flow, self.fabric.nodes)
        node = np.arange(len(flow)) // fabric.gpus
        inside = np.where((node[:, None] == node) & ~np.eye(len(flow), dtype=bool), flow, 0)
        ports = inside.sum(axis=1), inside.sum(axis=0)
        if not traffic.node_matrix.any():
            return _port_ps(fabric, *ports)
        if "stages" in way.on:
            made = synthesise(self.fabric, traffic, self.question.schedule).plan()
        else:
            policy = self.question.policy if "rails" in way.on else "own-nic"
            found = rail_plan(self.fabric, traffic, policy, self.chunk)
            assert found is not None
            made = found
        moved = made.moves.out.ravel(), made.moves.into.ravel()
        through = _port_ps(fabric, *(own + more for own, more in zip(ports, moved, strict=True)))
        return max(simulate(made, assumptions=ASSUMED).completion_ps, through)

    def step(self, way: _Way, row: int) -> tuple[int, int, float]:
        """Picoseconds of dispatch and combine and of the iteration, and copies sent per layer."""
        terms, exchange = [], 0
        for layer in range(len(self.trace.layers)):
            found, flow = self.measured(way, row, layer)
            both = self.exchange_ps(way, flow) + self.exchange_ps(way, flow.T.copy())
            exchange += both
            terms.append(found._replace(a2a=both // 2))
        copies = sum(each.copies for each in terms) / len(terms)
        return exchange, self.iteration_ps(terms), copies

    def measured(self, way: _Way, row: int, layer: int) -> tuple[Terms, Ints]:
        """The times of one layer beside its exchange, and int64 [GPU, GPU], bytes between GPUs."""
        counts = self.trace.counts[row, layer].astype(np.int64)
        flow, holds = self.flow(way, counts, layer)
        found = measure(self.model, flow, counts, holds, home=way.home[layer])
        np.fill_diagonal(flow, 0)
        return found, flow * self.sized.token_bytes()

    def iteration_ps(self, terms: list[Terms]) -> int:
        """In training: copies are sent and their gradients added up each time.  Else: the forward
        pass alone, with copies in place.
        """
        if self.trace.records == TRAINING:
            style = "ours" if any(each.copies for each in terms) else "deepspeed"
            return timeline(self.model, terms, style).total_ps
        return sum(2 * each.a2a + each.fec + self.model.fnec_ps for each in terms)


def near_first(counts: Ints, tokens: Ints, gpus: int) -> Ints:
    """Which source's tokens are computed where: int64 [source GPU, expert, GPU] with the row sums
    of counts int64 [source GPU, expert] and the column sums of tokens int64 [GPU, expert].  Own GPU
    first, then the node, then what is left in order.
    """
    devices, experts = counts.shape
    routed = np.zeros((devices, experts, devices), np.int64)
    left, room = counts.T.copy(), tokens.T.copy()  # [expert, GPU]
    own = np.minimum(left, room)
    routed[np.arange(devices), :, np.arange(devices)] = own.T
    left, room = left - own, room - own
    nodes = [(slice(None), slice(first, first + gpus)) for first in range(0, devices, gpus)]
    alone = [(slice(expert, expert + 1), slice(None)) for expert in range(experts)]
    for which, part in (*nodes, *alone):  # all experts inside a node, then one among all GPUs
        want, have = left[which, part], room[which, part]
        ends = np.cumsum(want, axis=1)
        places = np.cumsum(have, axis=1)
        moved = np.minimum(ends[:, :, None], places[:, None, :]) - np.maximum(
            (ends - want)[:, :, None], (places - have)[:, None, :]
        )
        moved = np.maximum(moved, 0)  # overlaps of both on one line, so that each is used once
        routed[part, which, part] += moved.transpose(1, 0, 2)
        left[which, part] -= moved.sum(axis=2)
        room[which, part] -= moved.sum(axis=1)
    return routed


def weigh(
    trace: Trace,
    fabric: Fabric,
    question: WeighQuestion | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Weighed:
    """What each mechanism is worth; `tell` hears what is being done."""
    asked = question or WeighQuestion()
    trace.expect(ranks=fabric.nodes * fabric.gpus)
    steps = len(trace.iterations)
    if steps < 2:
        raise InputError(f"{steps} recorded step: expected at least two, one to plan on")
    held = held_out(steps, asked.held_out, 1)
    sized = dimensions(trace, asked.model)
    overlap = len(trace.layers) > 1  # other layers' compute hides transfers
    model = sized.model(fabric, trace.usual_tokens, gpu_flops=asked.gpu_flops, overlap=overlap)
    weighing = _Weighing(
        trace, fabric, asked, sized, model, usual_chunk(trace, sized.token_bytes())
    )
    last = steps - held - 1  # the newest step that a plan sees
    some = np.unique(np.linspace(last + 1, steps - 1, min(asked.steps, held)).astype(int)).tolist()
    return _weighed(weighing, last, some, tell)


def _weighed(
    weighing: _Weighing, last: int, scored: list[int], tell: Callable[[str], None]
) -> Weighed:
    trace, asked = weighing.trace, weighing.question
    plain = Placement.contiguous(
        len(trace.layers), trace.experts, weighing.fabric.nodes, weighing.fabric.gpus
    )
    none = _Way(frozenset(), plain.holds, plain.home)
    tell("as it is")
    bounds = _Bounds(weighing, scored)
    rows = [_row(bounds, none, "")]
    way, known = none, weighing.step(none, last)[1]
    for name in _order(weighing):
        tell(f"with {name}")
        found, there, detail = _added(weighing, none if asked.each_alone else way, name, last)
        kept = there <= known
        row = _row(bounds, found, name)
        rows.append(replace(row, kept=kept or asked.each_alone, detail=detail))
        if kept and not asked.each_alone:
            way, known = found, there
    tell("what nothing beats")
    exchange, found_ps, farthest = bounds.last()
    return Weighed(
        tuple(rows),
        exchange,
        _least_iteration(weighing, exchange, scored),
        found_ps,
        tuple(int(trace.iterations[row]) for row in scored),
        weighing.slots,
        asked.each_alone,
        weighing.sized.name,
        weakness(exchange, found_ps, farthest),
        bounds.witness,
    )


def _order(weighing: _Weighing) -> list[str]:
    """The mechanisms that are asked for; all that the fabric allows where none is named: schedules
    need as many NICs for each GPU.
    """
    asked, fabric = weighing.question.order, weighing.fabric
    if asked is not None:
        return list(asked)
    ranks = fabric.nodes * fabric.gpus
    try:
        require_two_levels(fabric, Traffic(np.zeros((ranks, ranks), np.int64), fabric.nodes))
    except InputError:
        return [name for name in MECHANISMS if name != "stages"]
    return list(MECHANISMS)


def _port_ps(fabric: Fabric, out: Ints, into: Ints) -> int:
    """What the busiest scale-up port needs for int64 [GPU] bytes."""
    return int(max(out.max(), into.max())) * PS_PER_S // fabric.scaleup


def _added(weighing: _Weighing, way: _Way, name: str, last: int) -> tuple[_Way, int, str]:
    """A way with one mechanism more, its time of an iteration on step `last`, and what was chosen
    for it there.
    """
    ways = _candidates(weighing, way._replace(on=way.on | {name}), name, last)
    times = {detail: weighing.step(each, last)[1] for detail, each in ways.items()}
    best = min(times, key=times.__getitem__)
    return ways[best], times[best], best


def _candidates(weighing: _Weighing, way: _Way, name: str, last: int) -> dict[str, _Way]:
    """The ways to add a mechanism, by what is said of each."""
    nodes, gpus = weighing.fabric.nodes, weighing.fabric.gpus
    if name == "rails":
        return {weighing.question.policy: way}
    if name == "stages":
        return {weighing.question.schedule: way}
    if name == "split":
        kept = {"its own copies": False, "copies as placed": True}
        return {detail: way._replace(keep_copies=keep) for detail, keep in kept.items()}
    if name == "placement":
        made = _placed(weighing, last)
        shared = in_domains(made.home, nodes, gpus, way.domain)
        placed = way._replace(holds=made.holds | shared, home=made.home)
        if "split" in way.on:
            kept = {"copies kept": True, "homes alone": False}
            return {detail: placed._replace(keep_copies=keep) for detail, keep in kept.items()}
        return {f"copies {rule}": placed._replace(rule=rule) for rule in ("even", "near")}
    sizes = [size for size in range(2, nodes + 1) if nodes % size == 0]
    start = way.holds if way.keep_copies else in_domains(way.home, nodes, gpus, 1)
    moved = way._replace(rule="near", keep_copies=True)
    return {
        f"domains of {size} nodes": moved._replace(
            holds=start | in_domains(way.home, nodes, gpus, size), domain=size
        )
        for size in sizes
    } or {"one node": way}


def in_domains(home: Int32s, nodes: int, gpus: int, size: int) -> Bools:
    """bool [layer, GPU, expert]: every expert on the GPU of its home's number in every node of its
    home's domain, `size` consecutive nodes.
    """
    gpu = np.arange(nodes * gpus)[None, :, None]
    there = home[:, None, :]
    same = gpu // gpus // size == there // gpus // size
    return np.asarray(same & (gpu % gpus == there % gpus))


def _placed(weighing: _Weighing, last: int) -> Placement:
    """Copies in the spare slots, planned on the steps up to `last`."""
    trace, devices = weighing.trace, weighing.model.devices
    shown = seen(trace.counts[: last + 1], WHOLE)
    wanted = min(weighing.slots * devices, trace.experts * devices)
    problem = PlacementProblem(
        weighing.model.over(shown.weight, serving=trace.records != TRAINING), shown.counts, wanted
    )
    return place(problem, "replicate").placement


class Farthest(NamedTuple):
    """What nothing beats in a layer of a scored iteration, and the placement that was found."""

    bound: LayerBound
    placed: FoundPlacement

    def distance(self) -> Fraction:
        """Seconds from the bound to what was found, dispatch and combine."""
        demand = self.bound.demand
        return self.placed.both_ways(demand) - demand.both_ways(self.bound.prices)

    def parts(self) -> dict[str, Fraction]:
        """The distance by the freedom that makes it, in seconds: the bound rises as its prices
        become this step's own, as the placement becomes the one that was found, and as the split
        does.
        """
        demand = self.bound.demand
        own = demand.relaxed()
        kept = replace(demand, holds=self.placed.holds, slots=0 * demand.slots)
        parts = np.count_nonzero(((own.held > 0.01) & (own.held < 0.99)).any(axis=0))
        whole = f"it holds parts of {parts} experts on several nodes, or " if parts else ""
        steps = {
            "none": demand.both_ways(self.bound.prices),
            "prices: one set serves all steps of a layer": demand.both_ways(own.prices),
            f"placement: {whole}the search missed a better one": kept.both_ways(kept.prices()),
            "split of tokens over the copies that were found": self.placed.both_ways(demand),
        }
        return {name: steps[name] - steps[before] for before, name in pairwise(steps)}


def weakness(bound: int, found: int, farthest: Farthest) -> str:
    """What `Weighed.weakness` says, measured where the bound and what was found are farthest
    apart.
    """
    if 10 * found <= 11 * bound:
        return ""
    behind = f"the last bound is {1 - bound / found:.0%} below the best found"
    nodes, experts = farthest.bound.demand.tokens.shape
    if nodes * experts > MOST_CELLS:
        return (
            f"{behind}: {experts} experts on {nodes} nodes are too many for its linear program, so "
            "its prices are even"
        )
    parts = farthest.parts()
    most = max(parts, key=parts.__getitem__)
    share = float(parts[most] / farthest.distance())
    return (
        f"{behind}; in layer {farthest.bound.layer} of step {farthest.bound.iteration}, where they "
        f"are farthest apart, {share:.0%} of that is the {most}"
    )


class _Bounds:
    """What nothing beats on the scored steps, by the copies that are there; each kind once."""

    def __init__(self, weighing: _Weighing, scored: list[int]) -> None:
        self.weighing, self.scored = weighing, scored
        self.witness: dict[str, tuple[LayerBound, ...]] = {}
        self._known: list[tuple[_Way, str, int]] = []

    def of(self, way: _Way, name: str) -> tuple[int, str]:
        """Picoseconds per step that no method with these copies and slots beats, and the name of
        its witness: `name`, or that of an earlier row with the same.
        """
        for other, known, bound in self._known:
            same = ("split" in way.on) == ("split" in other.on), way.holds is other.holds
            kept = way.keep_copies == other.keep_copies, way.domain == other.domain
            if all(same + kept):
                return bound, known
        bound, _ = self._shown(name, way)
        self._known.append((way, name, bound))
        return bound, name

    def last(self) -> tuple[int, int, Farthest]:
        """Picoseconds per step that nothing in the slots beats, and that the best placement and
        split found take; the layer and step where these are farthest apart.
        """
        bound, relaxed = self._shown(ANY_PLACEMENT, None)
        every = [
            Farthest(each, find_placement(each.demand, near.held))
            for each, near in zip(self.witness[ANY_PLACEMENT], relaxed, strict=True)
        ]
        found = sum(each.placed.both_ways(each.bound.demand) for each in every)
        return bound, self._per_step(found), max(every, key=Farthest.distance)

    def _shown(self, name: str, way: _Way | None) -> tuple[int, list[Relaxed]]:
        """Picoseconds of dispatch and combine per step that nothing beats with a way's copies
        (None: any), shown by a witness of this name; and what its prices come from.
        """
        trace, bounds, relaxed = self.weighing.trace, [], []
        for layer, number in enumerate(trace.layers.tolist()):
            demands = self.weighing.demands(way, layer, self.scored)
            near = _relaxed(demands)
            for row, demand, each in zip(self.scored, demands, near, strict=True):
                when = int(trace.iterations[row])
                bounds.append(LayerBound(when, number, demand, each.prices))
            relaxed += near
        self.witness[name] = tuple(bounds)
        seconds = sum(each.demand.both_ways(each.prices) for each in bounds)
        return self._per_step(seconds), relaxed

    def _per_step(self, seconds: Fraction | int) -> int:
        return int(seconds * PS_PER_S / len(self.scored))


def _relaxed(demands: list[Demand]) -> list[Relaxed]:
    """Good prices of one layer's steps.  Those that are good for one step give true bounds for the
    others: where finding them takes long, a layer has one set.
    """
    if demands[0].tokens.size <= QUICK_CELLS:
        return [demand.relaxed() for demand in demands]
    middle = demands[len(demands) // 2].relaxed()
    return [middle._replace(prices=each.fitted(middle.prices)) for each in demands]


def _row(bounds: _Bounds, way: _Way, name: str) -> Worth:
    """The mean over the scored steps."""
    weighing, freedom = bounds.weighing, _freedom(way)
    found = [weighing.step(way, row) for row in bounds.scored]
    exchange, iteration = sum(each[0] for each in found), sum(each[1] for each in found)
    bound, witness = bounds.of(way, name or "none")
    if freedom == ANY_RAILS:  # nothing but the exchanges can change
        ways = 2 if weighing.trace.records == TRAINING else 1
        least = (iteration - ways * exchange) // len(found) + ways * bound
    else:
        least = _least_iteration(weighing, bound, bounds.scored)
    return Worth(
        name,
        exchange // len(found),
        iteration // len(found),
        bound,
        least,
        freedom,
        True,
        sum(each[2] for each in found) / len(found),
        witness=witness,
    )


def _freedom(way: _Way) -> str:
    """What the bound of a way leaves free."""
    if "split" in way.on:
        return ANY_COPIES
    return ANY_SPLIT if way.on & {"placement", "experts"} else ANY_RAILS


def _least_iteration(weighing: _Weighing, exchange: int, scored: list[int]) -> int:
    """Picoseconds of an iteration whose exchanges take `exchange` and whose GPUs compute equally
    many tokens; copies are sent for nothing.
    """
    model, trace = weighing.model, weighing.trace
    tokens = sum(int(trace.counts[row].sum(dtype=np.int64)) for row in scored)
    even = tokens * model.token_ps // (len(scored) * model.devices)
    rest = len(trace.layers)
    if trace.records == TRAINING:
        return 2 * exchange + 3 * even + rest * (model.fnec_ps + model.bnec_ps)
    return exchange + even + rest * model.fnec_ps
