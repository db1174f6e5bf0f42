"""What each mechanism is worth on recorded routing: the time of a layer's all-to-alls and of an
iteration as mechanisms are added one by one, each beside what no method of its kind can beat.

    rails      chunks on the rails that a policy chooses, instead of every GPU's own NIC (RailS)
    stages     server pairs in stages without incast (FAST)
    placement  copies of experts in spare slots, planned on steps before (Pro-Prophet, EPLB)
    split      copies and tokens anew for every micro-batch, by its own counts
    experts    experts instead of tokens between the nodes of a domain (HybridEP)

Every time is simulated, the node inside, on steps that no plan saw; choices (a domain's size, which
copy a token goes to, whether a mechanism that loses is left out of what follows) are made on the
last step that plans see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
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
from railopt.moe.iteration.timeline import timeline
from railopt.moe.iteration.timemodel import Terms, TimeModel
from railopt.moe.joint import Demand, NodePrices
from railopt.moe.micro.slots import SpareSlots
from railopt.moe.micro.solve import Greedy
from railopt.moe.placement.placement import Placement
from railopt.moe.placement.planners import PlacementProblem, place
from railopt.moe.placement.prophet import measure
from railopt.moe.presets import Preset
from railopt.moe.routing.dispatch import flows
from railopt.moe.routing.trace import TRAINING, Trace
from railopt.moe.routing.window import WHOLE, seen
from railopt.schedule.synthesis import synthesise
from railopt.schedule.value import require_two_levels
from railopt.sim.assumptions import ROCE_INCAST, Assumptions
from railopt.sim.run import simulate

MECHANISMS = ("rails", "stages", "placement", "split", "experts")
ASSUMED = Assumptions(headers=True, latency=True, incast=ROCE_INCAST, stages="node")
MOST_STEPS = 4
"""Held-out steps that are simulated by default, evenly from the first to the last."""

NOTHING = 0.005  # a share of the time: less is no gain
QUICK_PAIRS = 2048  # (node, expert, node) of a linear program that takes a twentieth of a second
ANY_RAILS = "any rails and stages"
ANY_SPLIT = "any split over these copies"


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
    bound_ps     of `exchange_ps`: what no method of this kind beats (None: no bound of this kind)
    bounds       which freedom the bound has
    kept         whether the rows after this one have the mechanism too
    copies       of experts that are sent per layer and step
    """

    added: str
    exchange_ps: int
    iteration_ps: int
    bound_ps: int | None
    bounds: str
    kept: bool
    copies: float
    detail: str = ""

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
            verdict = "; loses"
        else:
            verdict = "; gains nothing" if max(gains) < NOTHING else ""
        return self.detail + verdict + ("" if self.kept else ", left out")

    def as_dict(self) -> dict[str, Any]:
        """JSON values; times in seconds."""
        return {
            "added": self.added or "none",
            "detail": self.detail,
            "exchange_s": self.exchange_ps / PS_PER_S,
            "iteration_s": self.iteration_ps / PS_PER_S,
            "bound_s": None if self.bound_ps is None else self.bound_ps / PS_PER_S,
            "bound_over": self.bounds,
            "kept": self.kept,
            "copies": self.copies,
        }

    @classmethod
    def from_dict(cls, data: Any) -> Worth:
        """The way back from `as_dict`."""
        keys = {"added", "detail", "bound_s", "bound_over", "kept", "exchange_s", "iteration_s"}
        if not isinstance(data, Mapping) or not keys <= set(data):
            raise InputError(f"a row of railopt weigh --json has {', '.join(sorted(keys))}")
        name, bound = data["added"], data["bound_s"]
        if name not in ("none", *MECHANISMS) or not isinstance(data["kept"], bool):
            raise InputError(f"a row for {quoted(name)}: expected one of {', '.join(MECHANISMS)}")
        return cls(
            "" if name == "none" else name,
            _picoseconds(data["exchange_s"]),
            _picoseconds(data["iteration_s"]),
            None if bound is None else _picoseconds(bound),
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
    """What no placement beats in one layer of a scored iteration: its demand, and the prices."""

    iteration: int
    layer: int
    demand: Demand
    prices: NodePrices

    def certificates(self) -> dict[str, Certificate]:
        """Of the dispatch and of the combine, by the name of a file."""
        ways = {"dispatch": self.demand, "combine": self.demand.back}
        start = f"{self.iteration}-{self.layer}"
        return {
            f"{start}-{way}.json": demand.certificate(self.prices) for way, demand in ways.items()
        }

    def as_dict(self) -> dict[str, Any]:
        named = {name: each.tolist() for name, each in self.prices._asdict().items()}
        return {"iteration": self.iteration, "layer": self.layer, **named}


@dataclass(frozen=True)
class Weighed:
    """All rows, the first without any mechanism, and what nothing can beat.

    exchange_bound_ps   dispatch and combine, with any placement in the slots, split, rails, stages
    iteration_bound_ps  the same with experts that are as even as GPUs can be
    scored_on           recorded iterations
    """

    rows: tuple[Worth, ...]
    exchange_bound_ps: int
    iteration_bound_ps: int
    scored_on: tuple[int, ...]
    slots: int
    each_alone: bool
    model: str
    witness: tuple[LayerBound, ...] = field(repr=False, default=())

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

    @property
    def weakness(self) -> str:
        """Which freedom leaves the last bound more than a tenth below the fastest exchange of the
        rows that are held to the slots; "" where it is no more.
        """
        held = [row for row in self.rows if row.added != "experts"]
        best, bound = min(row.exchange_ps for row in held), self.exchange_bound_ps
        if 10 * best <= 11 * bound:
            return ""
        if not bound:
            return "the slots of a node can hold every expert: no token has to leave it"
        given = [row.bound_ps for row in held if row.bound_ps and row.bounds == ANY_SPLIT]
        far = f"the last bound is {1 - bound / best:.0%} below the fastest exchange, most of it by "
        if not given:
            return f"{far}copies, which no row of these has"
        if bound * best <= given[-1] ** 2:
            return (
                f"{far}the freedom of placement: parts of an expert may lie on several nodes, and "
                "copies may be others on every step"
            )
        return f"{far}split, rails and stages: over the copies as placed a bound is nearer"

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
            (),
            0,
            data["each_alone"],
            printable(data.get("model")),
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON values; times in seconds."""
        return {
            "rows": [row.as_dict() for row in self.rows],
            "exchange_bound_s": self.exchange_bound_ps / PS_PER_S,
            "iteration_bound_s": self.iteration_bound_ps / PS_PER_S,
            "weakness": self.weakness,
            "scored_on": list(self.scored_on),
            "slots_per_gpu": self.slots,
            "each_alone": self.each_alone,
            "model": self.model,
            "witness": [each.as_dict() for each in self.witness],
        }


class _Way(NamedTuple):
    """How a layer is run: which mechanisms are on, and what they were told.

    holds, home  bool [layer, GPU, expert] and int32 [layer, expert]: where experts are
    rule         which copy a token goes to
    keep_copies  whether a split of a micro-batch keeps the copies of the placement, or has all
                 spare slots for its own
    """

    on: frozenset[str]
    holds: Bools
    home: Int32s
    rule: str = "home"
    keep_copies: bool = True


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
        start = holds if way.keep_copies else np.arange(len(holds))[:, None] == home[None, :]
        free = self.slots - start.sum(axis=1)
        slots = SpareSlots(self.fabric.nodes, gpus, start, np.maximum(free, 0).astype(np.int32))
        greedy = Greedy(slots)
        made = greedy.split(counts.sum(axis=0))
        return near_first(counts, made.tokens, gpus).sum(axis=1), start | made.copies

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
        """With copies that are sent and added up each time where this is training; else the forward
        pass alone, copies being there.
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
    held = min(max(1, steps // 4), steps - 1) if asked.held_out is None else asked.held_out
    if not 1 <= held < steps:
        raise InputError(f"{held} of {steps} steps held out: expected 1 to {steps - 1}")
    sized = dimensions(trace, asked.model)
    tokens = trace.tokens_per_rank or max(1, int(trace.load.sum(axis=2).mean() / trace.ranks))
    model = sized.model(fabric, tokens, gpu_flops=asked.gpu_flops, overlap=len(trace.layers) > 1)
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
    rows = [_row(weighing, none, "", scored)]
    way, known = none, weighing.step(none, last)[1]
    for name in _order(weighing):
        tell(f"with {name}")
        found, detail = _added(weighing, none if asked.each_alone else way, name, last)
        there = weighing.step(found, last)[1]
        kept = there <= known
        row = _row(weighing, found, name, scored)
        rows.append(replace(row, kept=kept or asked.each_alone, detail=detail))
        if kept and not asked.each_alone:
            way, known = found, there
    tell("what nothing beats")
    exchange, witness = _joint(weighing, scored)
    least = _least_iteration(weighing, exchange, scored)
    return Weighed(
        tuple(rows),
        exchange,
        least,
        tuple(int(trace.iterations[row]) for row in scored),
        weighing.slots,
        asked.each_alone,
        weighing.sized.name,
        witness,
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


def _added(weighing: _Weighing, way: _Way, name: str, last: int) -> tuple[_Way, str]:
    """A way with one mechanism more, and what was chosen for it on step `last`."""
    more = way._replace(on=way.on | {name})
    if name == "rails":
        return more, weighing.question.policy
    if name == "stages":
        return more, weighing.question.schedule
    if name == "split":
        ways = [more._replace(keep_copies=keep) for keep in (False, True)]
        best = min(ways, key=lambda each: weighing.step(each, last)[1])
        return best, "copies as placed" if best.keep_copies else "its own copies"
    if name == "placement":
        made = _placed(weighing, last)
        ways = [
            more._replace(holds=made.holds, home=made.home, rule=rule) for rule in ("even", "near")
        ]
        best = min(ways, key=lambda each: weighing.step(each, last)[1])
        return best, f"copies {best.rule}"
    nodes, gpus = weighing.fabric.nodes, weighing.fabric.gpus
    sizes = [size for size in range(2, nodes + 1) if nodes % size == 0]
    if not sizes:
        return more, "one node"
    start = way.holds if way.keep_copies else in_domains(way.home, nodes, gpus, 1)
    domains = [
        more._replace(
            holds=start | in_domains(way.home, nodes, gpus, size), rule="near", keep_copies=True
        )
        for size in sizes
    ]
    times = [weighing.step(each, last)[1] for each in domains]
    best_size = int(np.argmin(times))
    return domains[best_size], f"domains of {sizes[best_size]} nodes"


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


def _row(weighing: _Weighing, way: _Way, name: str, scored: list[int]) -> Worth:
    """The mean over the scored steps."""
    found = [weighing.step(way, row) for row in scored]
    bound, bounds = _bound(weighing, way, scored)
    return Worth(
        name,
        sum(each[0] for each in found) // len(found),
        sum(each[1] for each in found) // len(found),
        bound,
        bounds,
        True,
        sum(each[2] for each in found) / len(found),
    )


def _bound(weighing: _Weighing, way: _Way, scored: list[int]) -> tuple[int | None, str]:
    """Picoseconds per step that nothing of this kind beats, rounded down, and its freedom."""
    if way.on & {"split", "experts"}:
        return None, ""
    fabric, total = weighing.fabric, Fraction(0)
    for row in scored:
        for layer in range(len(weighing.trace.layers)):
            counts = weighing.trace.counts[row, layer].astype(np.int64)
            demand = Demand.of(fabric, counts, weighing.slots, weighing.sized.token_bytes())
            if "placement" in way.on:
                held = way.holds[layer].reshape(fabric.nodes, fabric.gpus, -1).any(axis=1)
                there, prices = demand.best(held)
                total += there + demand.back.bound(prices, held)
            else:
                flow = weighing.flow(way, counts, layer)[0] * weighing.sized.token_bytes()
                total += _node_bound(fabric, flow) + _node_bound(fabric, flow.T)
    kind = ANY_SPLIT if "placement" in way.on else ANY_RAILS
    return int(total * PS_PER_S / len(scored)), kind


def _node_bound(fabric: Fabric, flow: Ints) -> Fraction:
    """Seconds in which the busiest node can send or receive with all its NICs."""
    matrix = flow.reshape(fabric.nodes, fabric.gpus, fabric.nodes, fabric.gpus).sum(axis=(1, 3))
    np.fill_diagonal(matrix, 0)
    times = [Fraction(0)]
    for load, rate in ((matrix.sum(axis=1), fabric.tx), (matrix.sum(axis=0), fabric.rx)):
        pairs = zip(load.tolist(), rate.sum(axis=1).tolist(), strict=True)
        times += [Fraction(each, speed) for each, speed in pairs if each]
    return max(times)


def _joint(weighing: _Weighing, scored: list[int]) -> tuple[int, tuple[LayerBound, ...]]:
    """Of dispatch and combine, any placement in the slots: picoseconds per step, and the prices.
    Prices that are good for one step give true bounds for the others: where finding them takes
    long, a layer has one set.
    """
    total, witness = Fraction(0), []
    for layer, number in enumerate(weighing.trace.layers.tolist()):
        demands = [
            Demand.of(
                weighing.fabric,
                weighing.trace.counts[row, layer].astype(np.int64),
                weighing.slots,
                weighing.sized.token_bytes(),
            )
            for row in scored
        ]
        if demands[0].tokens.size * weighing.fabric.nodes <= QUICK_PAIRS:
            prices = [demand.prices() for demand in demands]
        else:
            prices = [demands[len(demands) // 2].prices()] * len(demands)
        for row, demand, price in zip(scored, demands, prices, strict=True):
            total += demand.bound(price) + demand.back.bound(price)
            when = int(weighing.trace.iterations[row])
            witness.append(LayerBound(when, number, demand, price))
    return int(total * PS_PER_S / len(scored)), tuple(witness)


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
