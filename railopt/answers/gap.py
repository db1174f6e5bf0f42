"""How far a plan is from the best possible: value, bound, gap, whether this plan is optimal, and
whether the optimum is known.

A closed-form bound is asked for once, for all plans of the same chunks; where it leaves a gap, the
solver gets its time and starts from that bound.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from railopt.base.arrays import require_type, whole_number
from railopt.base.errors import CheckFailed
from railopt.base.units import INT64_MAX, format_bytes, format_time
from railopt.evidence.bounds import Bound, lower_bound
from railopt.evidence.bracket import Bracket, Status, bytes_above, gap_between
from railopt.evidence.certificate import Certificate, certify, save_certificate, save_moved
from railopt.model.fabric import Fabric
from railopt.model.plan import Bottleneck, Plan
from railopt.model.tokens import Tokens
from railopt.model.traffic import Traffic
from railopt.policies import plan as make_plan
from railopt.policies.common import check_alive

if TYPE_CHECKING:
    from railopt.solver.coupled.race import Progress
    from railopt.solver.moving.bound import MovedBound

DEFAULT_POLICIES = ("lpt", "lpt-local", "equitable", "even-excess", "spill")
DEFAULT_SIZES = ("64KiB", "256KiB", "1MiB", "4MiB")
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class GapReport:
    """A plan against a lower bound.  Times in seconds, exact.

    bracket  what is known of the optimum of the plan's chunks: it lies from `bound`, whose witness
             the checker re-checks, unless a solver claims it, to the time of `best`
    best     the fastest plan known, maybe this one
    time_s   seconds spent on this plan's chunks
    notes    what went wrong on the way, e.g. a back-end that crashed, or "interrupted"
    """

    plan: Plan
    bracket: Bracket
    best: Plan = field(repr=False)
    time_s: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def value(self) -> Fraction:
        """The plan's makespan, re-evaluated from its chunks."""
        return self.plan.makespan

    @property
    def bound(self) -> Fraction:
        """No plan is faster."""
        return self.bracket.bound

    @property
    def gap(self) -> Fraction:
        """(value - bound) / bound, of this plan; `bracket.gap` is that of the best one."""
        return gap_between(self.value, self.bound)

    @property
    def optimal(self) -> bool:
        """This plan is optimal: value == bound, by a witness."""
        return self.bracket.status is Status.KNOWN and self.plan.makespan == self.bracket.bound

    @property
    def optimum(self) -> Status:
        """Whether the optimum is known, by whichever plan: then the gap is exact."""
        return self.bracket.status

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the solve; the best bound so far is what this has."""
        return INTERRUPTED in self.notes

    @property
    def bottleneck(self) -> Bottleneck:
        """The NIC that finishes last under this plan."""
        return self.plan.bottleneck

    @cached_property
    def certificate(self) -> Certificate:
        """The record of value and bound that `railopt check` re-checks, with the best plan where
        that is another; built on first use.
        """
        return certify(self.plan, self.bracket, self._better)

    def save_certificate(self, path: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
        """Write the certificate, with plans beside it where they are large; the files written."""
        return save_certificate(self.plan, self.bracket, path, best=self._better, force=force)

    @property
    def _better(self) -> Plan | None:
        return None if self.best.makespan == self.value else self.best

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: exact times and ratios as "p/q"; "optimal" is said of this plan,
        "optimum" of the problem.
        """
        certified = self.bracket.certified_bound
        return {
            "policy": self.plan.policy,
            "chunks": len(self.plan.chunks),
            "largest_chunk": self.plan.chunks.largest,
            "value": str(self.value),
            "bound": str(self.bound),
            "certified_bound": None if certified is None else str(certified),
            "gap": str(self.gap),
            "optimal": self.optimal,
            "optimum": str(self.optimum),
            "best": str(self.bracket.value),
            "best_gap": str(self.bracket.gap),
            "by": self.bracket.by,
            "time_s": round(self.time_s, 6),
            "max_send": int(self.plan.send.max()),
            "max_recv": int(self.plan.recv.max()),
            "bottleneck": {**self.bottleneck._asdict(), "name": self.plan.slowest},
            "witness": dict(self.bracket.witness),
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        state = "optimal" if self.optimal else f"{float(self.gap) * 100:.3g} % above the bound"
        return (
            f"{self.plan.policy}: {format_time(self.value)} against {format_time(self.bound)}, "
            f"{state}; slowest: {self.plan.slowest}"
        )


@overload
def gap(plans: Plan, *, limit_s: float = ..., seed: int = ...) -> GapReport: ...
@overload
def gap(plans: Sequence[Plan], *, limit_s: float = ..., seed: int = ...) -> list[GapReport]: ...


def gap(
    plans: Plan | Sequence[Plan], *, limit_s: float = 10.0, seed: int = 0
) -> GapReport | list[GapReport]:
    """Compare a plan, or several, with the best lower bound that `limit_s` seconds a set of chunks
    can find.

    `limit_s=0` asks the closed-form bounds alone.
    """
    if isinstance(plans, Plan):
        return next(gaps([plans], limit_s=limit_s, seed=seed))
    return list(gaps(plans, limit_s=limit_s, seed=seed))


def gaps(
    plans: Sequence[Plan],
    *,
    limit_s: float = 10.0,
    seed: int = 0,
    report: Callable[[Progress], None] | None = None,
) -> Iterator[GapReport]:
    """As `gap`, one report at a time, in the order given; plans of the same fabric and chunks share
    one bound and one solve.

    An interrupt (Ctrl-C) ends the solve at work: its reports carry the best bound so far and the
    note "interrupted".
    """
    from railopt.solver.local.deadline import time_limit

    plans = list(plans) if isinstance(plans, Iterable) else [plans]
    for each in plans:
        require_type(each, Plan, "plan", "a Plan, or a list of them")
    limit_s, seed = time_limit(limit_s, 0), whole_number(seed, "seed", 0, INT64_MAX)
    known: dict[tuple[str, str], GapReport] = {}
    for plan in plans:
        key = plan.fabric.digest, plan.chunks.digest
        if key not in known:
            same = [p for p in plans if (p.fabric.digest, p.chunks.digest) == key]
            bound = lower_bound(plan.fabric, plan.chunks)
            known[key] = _fastest_report(same, bound, limit_s, seed, report)
        yield replace(known[key], plan=plan)


def _fastest_report(
    plans: Sequence[Plan],
    bound: Bound,
    limit_s: float,
    seed: int,
    report: Callable[[Progress], None] | None,
) -> GapReport:
    """The report of the fastest of several plans of the same chunks, of which `bound` is known.
    Whatever happens to the solver, that bound stays.
    """
    began = time.perf_counter()
    fastest = min(plans, key=lambda plan: plan.makespan)
    notes: tuple[str, ...] = ()
    if fastest.makespan != bound.value and limit_s > 0:
        try:
            return _solved(fastest, bound, limit_s, seed, report)
        except CheckFailed:
            raise  # a bound above a plan: nothing may be said before that is understood
        except KeyboardInterrupt:
            notes = (INTERRUPTED,)
        except Exception as error:
            notes = (f"the solver failed, so the bound is a closed form: {error or repr(error)}",)
    took_s = time.perf_counter() - began
    return GapReport(fastest, _closed_form(fastest, bound), fastest, took_s, notes)


def _closed_form(best: Plan, first: Bound) -> Bracket:
    """What a closed form says of the optimum, beside the best plan known."""
    met = best.makespan == first.value
    return Bracket(
        best.makespan,
        first.value,
        Status.KNOWN if met else Status.OPEN,
        first.lifted,
        f"{best.policy} {'=' if met else '>'} {first.witness['kind']}",
    )


def _solved(
    start: Plan,
    first: Bound,
    limit_s: float,
    seed: int,
    report: Callable[[Progress], None] | None,
) -> GapReport:
    """What the solver finds in its time, beginning with a plan and a bound."""
    from railopt.solver.coupled.race import Race
    from railopt.solver.coupled.solve import run_race

    race = Race(start.fabric, start.chunks, limit_s, seed, report=report)
    race.lift_closed(first)
    outcome = run_race(race, start=start)
    found = outcome.plan
    best = start if found is None or found.makespan == start.makespan else found
    return GapReport(start, outcome.bracket, best, outcome.time_s, outcome.notes)


class GapRow(NamedTuple):
    """A report, and what it is called: the chunk size as it was given, and a name for its files;
    where it was asked for, the least bytes that plans as fast as this one move; where there are
    several, the traffic's name.
    """

    chunk: str
    name: str
    report: GapReport
    moved: MovedBound | None = None
    traffic: str = ""

    @property
    def moved_gap(self) -> Fraction | None:
        """(bytes moved - bound) / bound; None where that was not asked for, or where the bound is 0
        and bytes are moved.
        """
        return None if self.moved is None else bytes_above(self.report.plan.moved, self.moved.bytes)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values; what the plan moves inside nodes, in bytes, only where it was asked
        for.
        """
        row, plan = {"chunk": self.chunk, **self.report.as_dict()}, self.report.plan
        if self.traffic:
            row["traffic"] = self.traffic
        if self.moved is not None:
            row["moved"] = {
                "bytes": plan.moved,
                "staged": plan.staged,
                "passed_on": plan.passed_on,
                "least": self.moved.bytes,
                "above": None if self.moved_gap is None else str(self.moved_gap),
                "is_least": plan.moved == self.moved.bytes,
                "witness": self.moved.witness,
            }
        return row


def policy_gaps(
    fabric: Fabric,
    traffic: Traffic | Tokens,
    policies: Sequence[str] = DEFAULT_POLICIES,
    sizes: Sequence[str] = DEFAULT_SIZES,
    *,
    limit_s: float = 10.0,
    seed: int = 0,
    report: Callable[[str, Progress], None] | None = None,
) -> Iterator[GapRow]:
    """Every policy at every chunk size ("flow": whole flows), each once, one row at a time, size by
    size; they end with the size during which Ctrl-C came.  `report` gets the size and where its
    solve stands.
    """
    from railopt.solver.local.deadline import time_limit

    limit_s, seed = time_limit(limit_s, 0), whole_number(seed, "seed", 0, INT64_MAX)
    policies = list(dict.fromkeys(policies))
    for size in dict.fromkeys(sizes):
        sized = None if report is None else partial(report, size)
        bound, plans = _planned(fabric, traffic, policies, size, sized)
        shared = _fastest_report(plans, bound, limit_s, seed, sized)
        for plan in plans:
            yield GapRow(size, f"{plan.policy}-{size}", replace(shared, plan=plan))
        if shared.interrupted:
            return


def _planned(
    fabric: Fabric,
    traffic: Traffic | Tokens,
    policies: Sequence[str],
    size: str,
    report: Callable[[Progress], None] | None,
) -> tuple[Bound, list[Plan]]:
    """The closed-form bound of the chunks, and a plan by each policy; `report` gets the bound
    before the first of them.
    """
    from railopt.solver.coupled.race import Progress

    began, value, plans = time.perf_counter(), None, list[Plan]()

    def tell(bound: Fraction | None, stage: str) -> None:
        if report is not None:
            report(Progress(time.perf_counter() - began, value, bound, stage))

    tell(None, "chunks")
    chunks = traffic.chunks(size)
    check_alive(fabric, chunks)
    bound = lower_bound(fabric, chunks)
    for policy in policies:
        tell(bound.value or None, policy)
        plans.append(make_plan(fabric, chunks, policy))
        value = plans[-1].makespan if value is None else min(value, plans[-1].makespan)
    return bound, plans


class Total(NamedTuple):
    """A policy over several traffics, one after the other: seconds, exact."""

    policy: str
    chunk: str
    traffics: int
    value: Fraction
    bound: Fraction

    @property
    def gap(self) -> Fraction:
        """(value - bound) / bound, of the sums."""
        return gap_between(self.value, self.bound)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: times and the gap as "p/q"."""
        exact = {name: str(getattr(self, name)) for name in ("value", "bound", "gap")}
        return {**self._asdict(), **exact}


def totals(rows: Sequence[GapRow]) -> list[Total]:
    """Of each policy and chunk size, the times and bounds of all rows added up."""
    found: dict[tuple[str, str], Total] = {}
    for row in rows:
        key = row.report.plan.policy, row.chunk
        before = found.get(key, Total(*key, 0, Fraction(0), Fraction(0)))
        value, bound = before.value + row.report.value, before.bound + row.report.bound
        found[key] = Total(*key, before.traffics + 1, value, bound)
    return list(found.values())


def file_gaps(
    paths: Sequence[str],
    *,
    limit_s: float = 10.0,
    seed: int = 0,
    report: Callable[[str, Progress], None] | None = None,
) -> Iterator[GapRow]:
    """As `policy_gaps`, for saved plans."""
    for path in paths:
        loaded = Plan.read(path)
        sized = None if report is None else partial(report, str(path))
        (found,) = gaps([loaded], limit_s=limit_s, seed=seed, report=sized)
        yield GapRow(format_bytes(loaded.chunks.largest), Path(path).stem, found)
        if found.interrupted:
            return


def save_certificates(
    rows: Sequence[GapRow], folder: str | os.PathLike[str], *, force: bool = False
) -> list[Path]:
    """A certificate of each row, as NAME.json in the folder, which is made, and NAME.moved.json of
    what its plan moves, where that was asked for; names that repeat are numbered.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    used: set[str] = set()
    saved = []
    for row in rows:
        plain = name = re.sub(r"[^\w.,=+-]+", "-", row.name)
        for number in itertools.count(2):
            if used.isdisjoint((name, f"{name}.moved")):
                break
            name = f"{plain}-{number}"
        used |= {name, f"{name}.moved"}
        saved.append(Path(folder, f"{name}.json"))
        row.report.save_certificate(saved[-1], force=force)
        if row.moved is not None:
            path, plan = moved_file(saved[-1]), row.report.plan
            save_moved(plan, plan.makespan, row.moved.bytes, row.moved.witness, path, force=force)
    return saved


def moved_file(certificate: Path) -> Path:
    """Where the certificate of what a plan moves lies beside that of its time."""
    return certificate.with_suffix(".moved.json")


def gap_lines(rows: Sequence[GapRow]) -> dict[str, list[tuple[int, float]]]:
    """For a figure: each policy's (bytes of the largest chunk, gap in %)."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if not len(row.report.plan.chunks):
            continue  # no chunk, no place on the axis
        point = row.report.plan.chunks.largest, float(row.report.gap) * 100
        lines.setdefault(row.report.plan.policy, []).append(point)
    return lines
