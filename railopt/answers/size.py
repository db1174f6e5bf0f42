"""What fabric to buy: one workload on candidates of several rails, rates and spines.

A candidate is judged by what is simulated on it with the best planned policy and with what is done
today, and by a bound that no policy beats.  Today traffic goes from its GPU's own NIC.  On rails
alone it goes to the same NIC of the other node, where it is passed on; over a spine or a fat tree
to the target's own NIC, on a hashed path (ECMP).  The median of some draws of paths counts.

Dead NICs are drawn, beside those of busy nodes and NICs, and planned anew.  Times of these cases
are those of the port that needs longest; of the worst case it is simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from railopt.answers.candidates import RAILS, TREE, Candidate, Dead
from railopt.answers.dispatches import DIRECT, CarriedDispatch, Dispatches
from railopt.base.arrays import require_type, whole_number
from railopt.base.dice import Dice
from railopt.base.errors import Infeasible, InputError, about, say
from railopt.base.units import exact, quoted
from railopt.evidence.bounds import lower_bound, uplink_bound
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.policies import policy_named

PLANNED = ("lpt-local", "equitable", "even-excess", "spill")
DRAWS = 5
"""Seeds of hashed paths, of which the median one counts."""
PLAN_S, LONG_S = 3e-7, 60  # CPU seconds of a plan per chunk; many
ALIKE = Fraction(1, 100)
"""Times that differ by less are as good as each other."""
ROUNDING = Fraction(1, 10**6)
"""Simulated times are above the busiest port's by this share less."""


@dataclass(frozen=True)
class SizeQuestion:
    """How candidates are judged.

    policies  that may be planned; what is done today may win, too
    chunk     largest chunk
    cases     draws of one and of two dead NICs, beside those of busy nodes and NICs
    seed      of these draws, and the first of those of hashed paths
    experts   seconds of the experts' compute per dispatch, behind which an exchange is hidden
    within    seconds in which the workload must be over, or None
    """

    policies: Sequence[str] = PLANNED
    chunk: str | int = "1MiB"
    cases: int = 16
    seed: int = 0
    experts: Fraction = Fraction(0)
    within: Fraction | None = None

    def __post_init__(self) -> None:
        for policy in self.policies:
            policy_named(policy)
        object.__setattr__(self, "cases", whole_number(self.cases, "cases", 1, 10**6))


class Loss(NamedTuple):
    """What dead NICs cost, as a share of the healthy time; None: no time is enough.

    worst  simulated, of the case whose busiest port needs longest
    mean   of the cases drawn, by their busiest ports
    """

    worst: Fraction | None
    mean: Fraction | None


@dataclass(frozen=True)
class Sized:
    """A candidate's answer; times are seconds, and `time` and `bound` those of the whole workload.

    times, policy  of each dispatch, simulated with the best policy
    today          of the whole workload, simulated as it is done today
    bounds         of each dispatch: no policy of these chunks is faster
    link           bytes of the busiest link under the best policy
    limit          what decides the time: "NICs", "uplinks", "scale-up" or "experts"
    lost           by one and by two dead NICs, planned anew
    lost_today     the same, as it is done today
    cost           its price, or the rate of all NICs where a candidate has no price
    front          whether no other candidate is as fast for less, or faster for as much
    verdict        "fastest", "no policy" (its bound is above the fastest, by more than 1 %, each
                   dispatch behind the experts),
                   "wasted" (scale-up or experts are the limit, and a cheaper one is as good),
                   "too slow" (no policy is over in time), or ""
    witness        of each dispatch, what bounds it: as in a certificate, or "gpu" or "scale-up"
    """

    candidate: Candidate
    times: tuple[Fraction, ...]
    policy: str
    today: Fraction
    bounds: tuple[Fraction, ...]
    link: int
    limit: str
    lost: tuple[Loss, Loss]
    lost_today: tuple[Loss, Loss]
    cost: Fraction = Fraction(0)
    front: bool = False
    verdict: str = ""
    witness: tuple[dict[str, Any], ...] = ()

    @property
    def time(self) -> Fraction:
        return _total(self.times)

    @property
    def bound(self) -> Fraction:
        return _total(self.bounds)

    def as_dict(self) -> dict[str, Any]:
        """JSON values; times in seconds and shares as "p/q"."""
        losses = {
            f"{way}_{count}_{name}": share
            for way, lost in (("lost", self.lost), ("lost_today", self.lost_today))
            for count, loss in zip(("one", "two"), lost, strict=True)
            for name, share in loss._asdict().items()
        }
        names = ("time", "today", "bound", "cost", "policy", "witness", "link", "limit", "front")
        plain = {name: getattr(self, name) for name in names}
        return exact(
            {"candidate": asdict(self.candidate), **plain, **losses, "verdict": self.verdict}
        )


def size(
    workload: Sequence[Traffic],
    candidates: Sequence[Candidate],
    question: SizeQuestion | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Sized]:
    """Every candidate on the same dispatches, one after the other; `tell` hears which is next."""
    asked = question or SizeQuestion()
    if not workload or not candidates:
        raise InputError("expected at least one traffic and one candidate")
    for traffic in workload:
        require_type(traffic, Traffic, "workload", "Traffic values")
        if (traffic.nodes, traffic.gpus) != (workload[0].nodes, workload[0].gpus):
            raise InputError("expected traffic of as many nodes and GPUs each time")
    names = [one.name for one in candidates]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two candidates are named {quoted(name)}")
    chunks = [traffic.chunks(asked.chunk) for traffic in workload]
    chunks = [each for each in chunks if len(each)]
    if not chunks:
        raise InputError("no bytes cross between nodes: any fabric will do")
    _say_long(sum(map(len, chunks)), len(candidates), asked)
    found, work = [], Dispatches(chunks, asked.seed)
    for one in candidates:
        tell(one.name)
        with about(f"candidate {quoted(one.name)}: "):
            found.append(Site(one, work, asked).sized())
    return _judged(found, asked, chunks[0].nodes)


def _say_long(chunks: int, candidates: int, asked: SizeQuestion) -> None:
    """Say before it begins that much is planned: by each policy, healthy and for each case."""
    plans = candidates * 2 * (asked.cases + 4) * (len(asked.policies) + 1)
    if (seconds := plans * chunks * PLAN_S) > LONG_S:
        say(
            f"size: up to {plans} plans of {chunks} chunks take up to {seconds / 60:.0f} minutes: "
            f"fewer cases (--cases) or larger chunks (--chunk) take less"
        )


@dataclass(frozen=True)
class Site:
    """A candidate with its work; `seeds` of hashed paths by way are those of `draw`."""

    candidate: Candidate
    work: Dispatches
    asked: SizeQuestion
    seeds: dict[str, int] = field(default_factory=dict)

    @property
    def chunks(self) -> list[Chunks]:
        """Of each dispatch."""
        return self.work.chunks

    @property
    def today(self) -> str:
        """How the chunks go where nobody plans."""
        return "own-nic" if self.candidate.kind == RAILS else DIRECT

    def fabric(self, dead: Dead = ()) -> Fabric:
        """The candidate with these NICs dead."""
        return self.candidate.fabric(self.chunks[0].nodes, self.chunks[0].gpus, dead)

    def sized(self) -> Sized:
        """Times, bounds and losses; without cost, front and verdict."""
        fabric = self.fabric()
        ways = list(dict.fromkeys([*self.asked.policies, "own-nic", self.today]))
        self.draw(fabric, ways)
        runs = {way: self.carried(fabric, way) for way in ways}
        known = {way: _total(one.time for one in run) for way, run in runs.items()}
        each = {self.today: _simulated(runs[self.today])}
        times = {self.today: _total(each[self.today])}
        for way in sorted(ways, key=known.__getitem__):
            if way not in times and known[way] <= min(times.values()) * (1 + ROUNDING):
                each[way] = _simulated(runs[way])
                times[way] = _total(each[way])
        best = min((way for way in ways if way in times), key=times.__getitem__)
        busy = max(runs[best], key=lambda one: one.time)
        lost = self.losses(ways, known, times[best])
        lost_today = self.losses([self.today], known, times[self.today])
        bounds = [self.bound(fabric, chunks) for chunks in self.chunks]
        hidden = max(each[best]) <= self.asked.experts
        return Sized(
            self.candidate,
            each[best],
            best,
            times[self.today],
            tuple(bound for bound, _ in bounds),
            max(one.link for one in runs[best]),
            "experts" if hidden else busy.limit,
            lost,
            lost_today,
            witness=tuple(why for _, why in bounds),
        )

    def draw(self, fabric: Fabric, ways: list[str]) -> None:
        """Choose for each way whose paths are hashed the seed that makes its median time."""
        for way in ways:
            if self.candidate.kind == TREE or way == DIRECT:
                times = {}
                for seed in range(self.asked.seed, self.asked.seed + DRAWS):
                    self.seeds[way] = seed
                    times[seed] = _total(one.time for one in self.carried(fabric, way))
                self.seeds[way] = sorted(times, key=times.__getitem__)[DRAWS // 2]

    def carried(self, fabric: Fabric, way: str) -> list[CarriedDispatch]:
        """Each dispatch on the way."""
        work = replace(self.work, seed=self.seeds.get(way, self.work.seed))
        return [work.carried(fabric, place, way) for place in range(len(self.chunks))]

    def bound(self, fabric: Fabric, chunks: Chunks) -> tuple[Fraction, dict[str, Any]]:
        """Seconds that no policy beats, and why: the chunks of a node on its NICs (certified), or
        what a GPU gets through its own NICs and scale-up.  In a fat tree it may be the uplinks of a
        switch, on rails alone what must change its GPU.
        """
        nics = lower_bound(fabric, chunks)
        found = [(nics.value, nics.lifted)]
        rate, gpus = int(fabric.tx[0, 0]), fabric.nodes * fabric.gpus
        room = np.tile(fabric.node.near.sum(axis=1) * rate + fabric.scaleup, fabric.nodes).tolist()
        for side, gpu in (("send", chunks.src_gpu), ("recv", chunks.dst_gpu)):
            loads = np.zeros(gpus, np.int64)
            np.add.at(loads, gpu, chunks.size)
            times = [Fraction(load, each) for load, each in zip(loads.tolist(), room, strict=True)]
            worst = max(range(gpus), key=times.__getitem__)
            found.append((times[worst], {"kind": "gpu", "gpu": worst, "side": side}))
        cut = uplink_bound(fabric, chunks)
        found += [(cut.value, cut.witness)] if cut else []
        found += [scale_up_bound(fabric, chunks)] if self.candidate.kind == RAILS else []
        return max(found, key=lambda one: one[0])

    def cases(self, count: int) -> tuple[list[Dead], list[Dead]]:
        """(cases drawn evenly of all that there are, or all; cases that hit the busiest nodes, and
        the NICs that carry most today).
        """
        nodes, rails = self.chunks[0].nodes, self.candidate.rails
        nics = [(node, nic) for node in range(nodes) for nic in range(rails)]
        every = len(nics) if count == 1 else len(nics) * (len(nics) - 1) // 2
        if every <= self.asked.cases:
            return list(combinations(nics, count)), []
        dice, drawn = Dice(self.asked.seed, f"{count} dead"), dict[Dead, None]()
        while len(drawn) < self.asked.cases:
            some = dice.below(len(nics), count).tolist()
            if len(set(some)) == count:
                drawn[tuple(nics[place] for place in sorted(some))] = None
        sides = np.zeros((2, nodes), np.int64)
        for each in self.chunks:
            for side, ends in zip(sides, (each.src, each.dst), strict=True):
                np.add.at(side, ends, each.size)
        load = sides.max(axis=0)
        first, then = np.argsort(-load, kind="stable")[:2].tolist() if nodes > 1 else (0, 0)
        hot = self.hot(count)
        if count == 1:
            return list(drawn), [((first, 0),), *hot]
        others = [(first, 1)] if rails > 1 else []
        others += [(then, nic) for nic in range(min(2, rails)) if then != first]
        return list(drawn), [*(((first, 0), other) for other in others), *hot]

    def hot(self, count: int) -> list[Dead]:
        """So many NICs that carry most today; and those in a row of a node that carry most with the
        next one, to which their bytes go when they are dead.
        """
        rails, planes, fabric = self.candidate.rails, self.candidate.planes, self.fabric()
        places = range(len(self.chunks))
        ports = sum(self.work.nic_bytes(fabric, place, self.today) for place in places)
        loads = np.asarray(ports).reshape(2, -1, rails, planes).sum(axis=3)
        most = np.argsort(-loads.max(axis=0), axis=None, kind="stable")[:count]
        found = [tuple(sorted(divmod(nic, rails) for nic in most.tolist()))]
        if rails > count:
            rows = sum(np.roll(loads, -step, axis=2) for step in range(count + 1))
            node, nic = divmod(int(np.asarray(rows).max(axis=0).argmax()), rails)
            found.append(tuple(sorted((node, (nic + step) % rails) for step in range(count))))
        return found

    def losses(
        self, ways: list[str], healthy: dict[str, Fraction], simulated: Fraction
    ) -> tuple[Loss, Loss]:
        """What one and what two dead NICs cost, each case with the best of these ways; `healthy` is
        the busiest port's time of each way, `simulated` that of the best one.
        """
        found, before = [], min(healthy[way] for way in ways)
        for count in (1, 2):
            drawn, dreaded = self.cases(count)
            cases = {dead: self.degraded(dead, ways) for dead in (*drawn, *dreaded)}
            times = {dead: min(after.values(), default=None) for dead, after in cases.items()}
            known = {dead: time for dead, time in times.items() if time is not None}
            worst = None
            if len(known) == len(times):
                dead = max(known, key=known.__getitem__)
                way = min(cases[dead], key=cases[dead].__getitem__)
                worst = _lost(_total(_simulated(self.carried(self.fabric(dead), way))), simulated)
            mean = _mean(_lost(times[dead], before) for dead in drawn)
            found.append(Loss(worst, mean))
        return found[0], found[1]

    def degraded(self, dead: Dead, ways: list[str]) -> dict[str, Fraction]:
        """Seconds by way, where NICs are dead; a way that carries nothing then is left out."""
        fabric, found = self.fabric(dead), {}
        for way in ways:
            with suppress(Infeasible):
                found[way] = _total(one.time for one in self.carried(fabric, way))
        return found


def scale_up_bound(fabric: Fabric, chunks: Chunks) -> tuple[Fraction, dict[str, Any]]:
    """Seconds that scale-up takes where nothing joins rails, and the nodes that decide.

    A chunk between GPUs that are near no rail in common leaves a GPU over scale-up at its sender's
    or its receiver's node.  So what goes between some nodes takes all their scale-up ports so long.
    Tried are all nodes, then all but the one that has least to do with the others, and so on.
    """
    near = fabric.node.near.astype(np.int64)
    apart = (near @ near.T == 0)[chunks.src_gpu % fabric.gpus, chunks.dst_gpu % fabric.gpus]
    between = np.zeros((fabric.nodes, fabric.nodes), np.int64)
    np.add.at(between, (chunks.src[apart], chunks.dst[apart]), chunks.size[apart])
    mine = between.sum(axis=0) + between.sum(axis=1)
    nodes, left, best = list(range(fabric.nodes)), int(between.sum()), (Fraction(0), list[int]())
    while left:
        time = Fraction(left, len(nodes) * fabric.gpus * fabric.scaleup)
        best = max(best, (time, sorted(nodes)), key=lambda one: one[0])
        least = min(nodes, key=mine.__getitem__)
        nodes.remove(least)
        left -= int(mine[least])
        mine -= between[least] + between[:, least]
    return best[0], {"kind": "scale-up", "nodes": best[1]}


def _simulated(run: Iterable[CarriedDispatch]) -> tuple[Fraction, ...]:
    return tuple(one.simulated() for one in run)


def _total(times: Iterable[Fraction]) -> Fraction:
    return sum(times, Fraction(0))


def _lost(time: Fraction | None, healthy: Fraction) -> Fraction | None:
    """Share of the healthy time, None where no time is enough; 0 where a spare makes up for it."""
    return None if time is None else max(Fraction(0), time / healthy - 1)


def _mean(shares: Iterable[Fraction | None]) -> Fraction | None:
    known = list(shares)
    if any(share is None for share in known):
        return None
    return _total(share for share in known if share is not None) / len(known)


def _judged(found: list[Sized], asked: SizeQuestion, nodes: int) -> list[Sized]:
    """The candidates with cost, front and verdict."""
    prices = [one.candidate.price for one in found]
    if None in prices:
        prices = [one.candidate.nic_rate(nodes) for one in found]
    found = [
        replace(one, cost=Fraction(price or 0)) for one, price in zip(found, prices, strict=True)
    ]
    enough = min(_with_experts(one.times, asked) for one in found)
    return [
        replace(one, front=_on_front(one, found), verdict=_verdict(one, found, enough, asked))
        for one in found
    ]


def _with_experts(times: Iterable[Fraction], asked: SizeQuestion) -> Fraction:
    """Seconds of dispatches that each last as long as the experts at least."""
    return _total(max(asked.experts, time) for time in times)


def _on_front(one: Sized, found: list[Sized]) -> bool:
    return not any(
        other.cost <= one.cost
        and other.time <= one.time
        and (other.cost < one.cost or other.time < one.time)
        for other in found
    )


def _verdict(one: Sized, found: list[Sized], enough: Fraction, asked: SizeQuestion) -> str:
    """The verdict in a word; `enough` is the fastest time, dispatches behind the experts."""
    if asked.within is not None and one.bound > asked.within:
        return "too slow"
    cheaper = [other for other in found if other.cost < one.cost]
    if one.limit == "experts" and any(other.limit == "experts" for other in cheaper):
        return "wasted"
    alike = one.time * (1 + ALIKE)
    if one.limit == "scale-up" and any(other.time <= alike for other in cheaper):
        return "wasted"
    if _with_experts(one.bounds, asked) > enough * (1 + ALIKE):
        return "no policy"
    return "fastest" if one.time == min(other.time for other in found) else ""
