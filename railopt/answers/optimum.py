"""How far a schedule is from the best one: both in the time-expanded model of
`railopt.solver.epochs`, on the same chunks.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import InputError
from railopt.base.units import exact, time_limit
from railopt.evidence.bracket import gap_between
from railopt.evidence.certificate import Certificate
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.schedule import KINDS, Schedule, synthesise
from railopt.solver.epochs.best import BestTimetable, best, paced, refuse_large, seconds
from railopt.solver.epochs.exchange import ChunkExchange, Timetable
from railopt.solver.epochs.lists import in_epochs

STARTUP = Fraction(7, 10**7)
"""Of a stage, in seconds: FAST's."""


class KindTime(NamedTuple):
    """What a kind of schedule takes in the model, in seconds, in how many stages (0 without), and
    how long it took to synthesise.
    """

    time: Fraction
    stages: int
    synthesis_s: float


class ScheduleOptimum(NamedTuple):
    """The best timetable that was found, with what is known of the optimum, and kinds beside it."""

    exchange: ChunkExchange
    found: BestTimetable
    kinds: dict[str, KindTime]

    @property
    def stages(self) -> int:
        """Stages of the best timetable; 0 without stages."""
        if self.found.table is None or self.exchange.epoch:
            return 0
        return int(self.found.table.wire.any(axis=(1, 2)).sum())

    @property
    def witness(self) -> Mapping[str, Any]:
        """The lines that show the best bound that is not claimed."""
        bracket = self.found.bracket
        return bracket.witness if bracket.certified is None else bracket.certified[1]

    def certificate(self, fabric: Fabric, chunk: int) -> Certificate:
        """That the chunks of the line, of so many bytes, need as long as it says: what bounds the
        schedule but for its start-ups.
        """
        line = self.witness
        if not line["chunks"]:
            raise InputError("nothing is sent: a bound of 0 has no certificate")
        port = line["kind"] == "port"
        node = line["gpu"] // fabric.gpus if port else line["node"]
        rates = fabric.rates(line["side"])[node, line["nics"]].tolist()
        return Certificate.local(
            [chunk] * line["chunks"],
            Fraction(line["needs"]),
            {"kind": "count", "jobs": line["chunks"]},
            speeds=[*rates, *([fabric.scaleup] if port else [])],
        )

    def distance(self, kind: str) -> Fraction:
        """(time of the kind - best time) / best time."""
        value = self.found.bracket.value
        return gap_between(self.kinds[kind].time, value or Fraction(0))

    def as_dict(self) -> dict[str, Any]:
        """For JSON: exact numbers as "p/q", seconds."""
        unit = self.exchange.unit
        return exact(
            {
                **self.found.bracket.as_dict(),
                "witness": self.witness,
                "stages": self.stages,
                "epoch": self.exchange.epoch * unit,
                "startup": self.exchange.startup * unit,
                "time_s": self.found.time_s,
                "kinds": {
                    name: {
                        "value": made.time,
                        "distance": self.distance(name),
                        "stages": made.stages,
                        "synthesis_s": made.synthesis_s,
                    }
                    for name, made in self.kinds.items()
                },
            }
        )


def best_schedule(
    fabric: Fabric,
    exchange: ChunkExchange,
    *,
    backend: str = "cpsat",
    limit_s: float = 60.0,
    report: Callable[[str], None] = lambda text: None,
) -> ScheduleOptimum:
    """The best schedule of an exchange, and those of railopt's kinds (with stages those that have
    them, else the pipelined one) beside it.

        >>> import railopt
        >>> from railopt.answers.optimum import best_schedule
        >>> from railopt.solver.epochs.exchange import ChunkExchange
        >>> fabric = railopt.Fabric.uniform(3, 1)
        >>> traffic = railopt.workloads.from_spec("uniform:size=1MiB", fabric)
        >>> exchange = ChunkExchange.of(fabric, traffic, 2**18, "700ns")
        >>> best = best_schedule(fabric, exchange)
        >>> str(best.found.bracket.status), best.stages, float(best.distance("fast"))
        ('known', 2, 0.0)
    """
    limit_s = time_limit(limit_s)
    refuse_large(exchange)
    demand = exchange.demand.copy()
    np.fill_diagonal(demand, 0)
    traffic = Traffic.from_matrix(demand, fabric)
    tables: dict[str, Timetable] = {}
    kinds: dict[str, KindTime] = {}
    shared = fabric.rails % fabric.gpus  # several GPUs per NIC: kinds have no schedule for it
    for name, kind in KINDS.items():
        if shared or kind.barriers == bool(exchange.epoch) or not (kind.barriers or kind.chunked):
            continue
        began = time.perf_counter()
        made = synthesise(fabric, traffic, name, startup=startup_of(exchange, name))
        spent_s = time.perf_counter() - began
        tables[name] = _timetable(exchange, made)
        takes = seconds(exchange, tables[name])
        stages = int(tables[name].wire.any(axis=(1, 2)).sum()) if kind.barriers else 0
        kinds[name] = KindTime(takes, stages, spent_s)
    first = min(kinds, key=lambda name: kinds[name].time, default=None)
    known = None if first is None else tables[first]
    return ScheduleOptimum(exchange, best(exchange, backend, limit_s, known, report), kinds)


def startup_of(exchange: ChunkExchange, kind: str) -> int | None:
    """Chunks that two servers could exchange while a stage starts: whole ones, up from 3/4."""
    if not KINDS[kind].tunable:
        return None
    rate = max(sum(Fraction(1, int(t)) for t in times if t) for times in exchange.send)
    return int(exchange.startup * rate + Fraction(1, 4))


def _timetable(exchange: ChunkExchange, made: Schedule) -> Timetable:
    """A schedule whose bytes are chunks as a timetable, its hops where its kind has them."""
    stage, rail, source, target, _, size = made.pieces()
    kind, number = KINDS[made.kind], _numbers(exchange)
    wire = np.zeros((made.stages, len(exchange.pairs), exchange.rails), np.int64)
    np.add.at(wire, (stage, number[source, target], rail), size)
    if kind.barriers:
        return paced(exchange, wire, early=kind.overlap != "both")
    return in_epochs(exchange, wire.sum(axis=0))


def _numbers(exchange: ChunkExchange) -> Ints:
    """int64 [GPUs, GPUs]: which pair it is."""
    number = np.full(exchange.demand.shape, -1, np.int64)
    number[tuple(exchange.pairs.T)] = np.arange(len(exchange.pairs))
    return number
