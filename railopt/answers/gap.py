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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from railopt.base.arrays import require_type, whole_number
from railopt.base.errors import CheckFailed
from railopt.base.units import INT64_MAX, exact, format_bytes, time_limit
from railopt.evidence.bounds import Bound, LeafCut, lower_bound, uplink_bound
from railopt.evidence.bracket import Bracket, Status, bytes_above
from railopt.evidence.certificate import Certificate, save_moved
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.model.tokens import Tokens
from railopt.model.traffic import Traffic
from railopt.policies import Policy, policy_named
from railopt.policies.common import check_alive
from railopt.solver.coupled.race import INTERRUPTED, Outcome, Progress, Race

if TYPE_CHECKING:
    from railopt.solver.moving.bound import MovedBound

DEFAULT_POLICIES = ("lpt", "lpt-local", "equitable", "even-excess", "spill")
DEFAULT_SIZES = ("64KiB", "256KiB", "1MiB", "4MiB")


@overload
def gap(plans: Plan, *, limit_s: float = ..., seed: int = ...) -> Outcome: ...
@overload
def gap(plans: Sequence[Plan], *, limit_s: float = ..., seed: int = ...) -> list[Outcome]: ...


def gap(
    plans: Plan | Sequence[Plan], *, limit_s: float = 10.0, seed: int = 0
) -> Outcome | list[Outcome]:
    """Compare a plan, or several, with the best lower bound that is found in `limit_s` seconds per
    set of chunks.

    `limit_s=0` asks the closed-form bounds alone.

        >>> from railopt import Fabric, gap, plan, workloads
        >>> fabric = Fabric.uniform(nodes=4, rails=2)
        >>> chunks = workloads.moe(fabric, skew=0.8, seed=1).chunks("4MiB")
        >>> print(gap(plan(fabric, chunks, policy="lpt"), limit_s=0))
        lpt: 2.048ms against 2.031ms, 0.839 % above the bound; slowest: node 3 recv rail 0
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
) -> Iterator[Outcome]:
    """As `gap`, one report at a time, in the order given; plans of the same fabric and chunks share
    one bound and one solve.

    An interrupt (Ctrl-C) ends the solve at work: its reports carry the best bound so far and the
    note "interrupted".
    """
    plans = list(plans) if isinstance(plans, Iterable) else [plans]
    for each in plans:
        require_type(each, Plan, "plan", "a Plan, or a list of them")
    limit_s, seed = time_limit(limit_s, 0), whole_number(seed, "seed", 0, INT64_MAX)
    known: dict[tuple[str, str], Outcome] = {}
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
) -> Outcome:
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
    return Outcome(fastest, _closed_form(fastest, bound), fastest, took_s, notes)


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
) -> Outcome:
    """What the solver finds in its time, beginning with a plan and a bound."""
    from railopt.solver.coupled.solve import run_race

    race = Race(
        start.fabric,
        start.chunks,
        limit_s,
        seed,
        report=report,
        rail=start.rail,
        value=start.makespan,
        plan_by=start.policy,
        bound=first.value,
        witness=first.lifted,
        bound_by=first.witness["kind"],
    )
    found = run_race(race)
    best = start if found.value == start.makespan else found.plan
    return replace(found, plan=start, best=best)


class GapRow(NamedTuple):
    """A report, and what it is called.

    chunk    the chunk size as it was given
    name     of its files
    cut      what no plan beats because of the links above leaves; None where there are none
    moved    the least bytes that plans as fast as this one move; None where it was not asked for
    traffic  its name, where there are several
    """

    chunk: str
    name: str
    report: Outcome
    cut: LeafCut | None = None
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
        for; what its uplinks take, in seconds as "p/q", where the fabric has leaves.
        """
        row, plan = {"chunk": self.chunk, **self.report.as_dict()}, self.report.plan
        if cut := self.cut:
            row["uplinks"] = {"value": plan.uplink_time, **cut.as_dict()}
        if self.traffic:
            row["dispatch"] = self.traffic
        if self.moved is not None:
            row["moved"] = {
                "bytes": plan.moved,
                "staged": plan.staged,
                "passed_on": plan.passed_on,
                "least": self.moved.bytes,
                "above": self.moved_gap,
                "is_least": plan.moved == self.moved.bytes,
                "witness": self.moved.witness,
            }
        return exact(row)


def policy_gaps(
    fabric: Fabric,
    traffic: Traffic | Tokens,
    policies: Sequence[str] = DEFAULT_POLICIES,
    sizes: Sequence[str] = DEFAULT_SIZES,
    *,
    limit_s: float = 10.0,
    seed: int = 0,
    report: Callable[[str, Progress], None] | None = None,
) -> Iterator[list[GapRow]]:
    """Every policy at every chunk size ("flow": whole flows), each once, the rows of one size at a
    time; they end with the size during which Ctrl-C came.  `report` gets the size and where its
    solve stands.
    """
    limit_s, seed = time_limit(limit_s, 0), whole_number(seed, "seed", 0, INT64_MAX)
    chosen = {name: policy_named(name) for name in policies}
    for size in dict.fromkeys(sizes):
        sized = None if report is None else partial(report, size)
        bound, plans = _planned(fabric, traffic, chosen, size, sized)
        shared = _fastest_report(plans, bound, limit_s, seed, sized)
        cut = uplink_bound(fabric, shared.plan.chunks)
        yield [
            GapRow(size, f"{plan.policy}-{size}", replace(shared, plan=plan), cut) for plan in plans
        ]
        if shared.interrupted:
            return


def _planned(
    fabric: Fabric,
    traffic: Traffic | Tokens,
    policies: Mapping[str, Policy],
    size: str,
    report: Callable[[Progress], None] | None,
) -> tuple[Bound, list[Plan]]:
    """The closed-form bound of the chunks, and a plan by each policy; `report` gets the bound
    before the first of them.
    """
    if report is not None:
        report(Progress(None, None, "chunks"))
    chunks = traffic.chunks(size)
    check_alive(fabric, chunks)
    bound, value, plans = lower_bound(fabric, chunks), None, list[Plan]()
    for name, policy in policies.items():
        if report is not None:
            report(Progress(value, bound.value or None, name))
        plans.append(policy(fabric, chunks))
        value = plans[-1].makespan if value is None else min(value, plans[-1].makespan)
    return bound, plans


class GapTotal(NamedTuple):
    """A policy over several traffics, one after the other: times and bounds added up."""

    policy: str
    chunk: str
    traffics: int
    bracket: Bracket

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: times and the gap as "p/q"."""
        times = {name: getattr(self.bracket, name) for name in ("value", "bound", "gap")}
        return exact(
            {"policy": self.policy, "chunk": self.chunk, "traffics": self.traffics, **times}
        )


def totals(rows: Sequence[GapRow]) -> list[GapTotal]:
    """The times and bounds of all rows added up, per policy and chunk size."""
    found: dict[tuple[str, str], list[Outcome]] = {}
    for row in rows:
        found.setdefault((row.report.plan.policy, row.chunk), []).append(row.report)
    sums = []
    for key, reports in found.items():
        value = sum((each.value for each in reports), Fraction(0))
        bound = sum((each.bound for each in reports), Fraction(0))
        sums.append(GapTotal(*key, len(reports), Bracket(value, bound, Status.OPEN)))
    return sums


def file_gaps(
    plans: Iterable[Plan],
    paths: Sequence[str],
    *,
    limit_s: float = 10.0,
    seed: int = 0,
    report: Callable[[str, Progress], None] | None = None,
) -> Iterator[GapRow]:
    """A row per plan of these files; they end with the one during which Ctrl-C came."""
    for loaded, path in zip(plans, paths, strict=True):
        sized = None if report is None else partial(report, str(path))
        (found,) = gaps([loaded], limit_s=limit_s, seed=seed, report=sized)
        cut = uplink_bound(loaded.fabric, loaded.chunks)
        yield GapRow(format_bytes(loaded.chunks.largest), Path(path).stem, found, cut)
        if found.interrupted:
            return


def save_certificates(
    rows: Sequence[GapRow], folder: str | os.PathLike[str], *, force: bool = False
) -> list[Path]:
    """A certificate of each row, as NAME.json in the folder, which is made, NAME.moved.json of what
    its plan moves, where that was asked for, and NAME.uplinks.json where the fabric has leaves;
    names that repeat are numbered.
    """
    Path(folder).mkdir(parents=True, exist_ok=True)
    used: set[str] = set()
    saved = []
    for row in rows:
        plain = name = re.sub(r"[^\w.=+-]+", "-", row.name)
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
        if cut := row.cut:
            made = Certificate.leaves(row.report.plan, cut)
            made.save(uplinks_file(saved[-1]), force=force)
    return saved


def moved_file(certificate: Path) -> Path:
    """Where the certificate of what a plan moves lies beside that of its time."""
    return certificate.with_suffix(".moved.json")


def uplinks_file(certificate: Path) -> Path:
    """Where the certificate of a plan's uplinks lies beside that of its time."""
    return certificate.with_suffix(".uplinks.json")


def gap_lines(rows: Sequence[GapRow]) -> dict[str, list[tuple[int, float]]]:
    """For a figure: each policy's (bytes of the largest chunk, gap in %)."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if not len(row.report.plan.chunks):
            continue  # no chunk, no place on the axis
        point = row.report.plan.chunks.largest, float(row.report.gap) * 100
        lines.setdefault(row.report.plan.policy, []).append(point)
    return lines
