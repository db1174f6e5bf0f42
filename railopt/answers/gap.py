"""How far a plan is from the best possible: value, certified bound, gap, and whether the optimum is
known.

Bounds are asked first; where they leave a gap, the solver gets its time, once for all plans of the
same chunks.
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

import numpy as np

from railopt.base.arrays import require_type, whole_number
from railopt.base.errors import CheckFailed
from railopt.base.units import INT64_MAX, format_bytes, format_time
from railopt.evidence.bounds import Bound, local_bound, lower_bound, node_sizes
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
    from railopt.solver.moving.bound import MovingBound
    from railopt.solver.moving.classes import Classes

DEFAULT_POLICIES = ("lpt", "lpt-local", "equitable")
DEFAULT_SIZES = ("64KiB", "256KiB", "1MiB", "4MiB")
INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Guarantee:
    """What is known of `lpt` on the send side, as ratios to the slowest sender's own optimum (it
    knows no receivers).

    apriori     4/3 - 1/(3N), for any sizes (Graham 1969)
    aposteriori (k + 1)/k - 1/(kN) with k chunks on the rail that finishes last (Coffman, Sethi
                1976)
    measured    its time over that sender's lower bound
    """

    chunks_on_critical: int
    apriori: Fraction
    aposteriori: Fraction
    measured: Fraction

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: exact ratios as "p/q"."""
        return {
            "chunks_on_critical": self.chunks_on_critical,
            "apriori": str(self.apriori),
            "aposteriori": str(self.aposteriori),
            "measured": str(self.measured),
        }


class Rivals:
    """Plans of the same chunks, and the least bytes that plans as fast as one of them move.

    before   of other chunks: what is known of them may hold for these
    """

    def __init__(self, fastest: Plan, before: Rivals | None = None) -> None:
        from railopt.solver.moving.bound import Answers

        self._fastest = fastest
        self._answers: Answers = Answers() if before is None else before._answers

    def moved(self, time: Fraction, limit_s: float) -> MovingBound:
        """Of plans of at most `time` seconds, found in `limit_s` seconds.  The fastest plan is
        asked for first: what holds for it may hold for all.
        """
        self._within(self._fastest.makespan, limit_s)
        return self._within(time, limit_s)

    def _within(self, time: Fraction, limit_s: float) -> MovingBound:
        return self._answers.within(self._fastest.fabric, self._classes, time, limit_s=limit_s)

    @cached_property
    def _classes(self) -> Classes:
        from railopt.solver.moving.classes import classes_of

        return classes_of(self._fastest.fabric, self._fastest.chunks)


@dataclass(frozen=True)
class GapReport:
    """A plan against a lower bound.  Times in seconds, exact.

    bracket  what is known of the optimum of the plan's chunks: it lies from `bound`, whose witness
             the kernel re-checks, unless a solver claims it, to the time of `best`
    best     the fastest plan known, maybe this one
    time_s   seconds spent on this plan's chunks
    notes    what went wrong on the way, e.g. a back-end that crashed, or "interrupted"
    limit_s  seconds for the bound on moved bytes, when it is asked for
    rivals   what is known of the bytes that plans of the same chunks move
    """

    plan: Plan
    bracket: Bracket
    best: Plan = field(repr=False)
    time_s: float = 0.0
    notes: tuple[str, ...] = ()
    limit_s: float = field(default=10.0, repr=False)
    rivals: Rivals | None = field(default=None, repr=False)

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
    def proved(self) -> bool:
        """This plan is optimal: value == bound, by a witness."""
        return self.bracket.proved and self.value == self.bound

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
    def guarantee(self) -> Guarantee | None:
        """LPT's textbook guarantees beside what was measured; None for other policies and unequal
        rails.
        """
        return (
            _guarantee(self.plan) if self.plan.policy == "lpt" and len(self.plan.chunks) else None
        )

    @cached_property
    def moving(self) -> MovingBound | None:
        """The least bytes that plans as fast as this one move inside nodes; None where chunks do
        not name their GPUs.  Found on first use.
        """
        if self.plan.chunks.gpus != self.plan.fabric.gpus:
            return None
        rivals = Rivals(self.plan) if self.rivals is None else self.rivals
        return rivals.moved(self.value, self.limit_s)

    @property
    def moved_gap(self) -> Fraction | None:
        """(bytes moved - bound) / bound, of this plan; None where no bound is known, or where it is
        0 and bytes are moved.
        """
        return None if self.moving is None else bytes_above(self.plan.moved, self.moving.bytes)

    @cached_property
    def certificate(self) -> Certificate:
        """The record of value and bound that `railopt check` re-checks, with the best plan where
        that is another; built on first use.
        """
        return certify(self.plan, self.bracket, self._better)

    def save_certificate(self, path: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
        """Write the certificate, with plans beside it where they are large; the files written."""
        return save_certificate(self.plan, self.bracket, path, best=self._better, force=force)

    def save_moved(self, path: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
        """Write the certificate of what the plan moves, and of the least that plans as fast move;
        the files written, none where chunks do not name their GPUs.
        """
        if self.moving is None:
            return []
        bound, witness = self.moving.bytes, self.moving.witness
        return save_moved(self.plan, self.value, bound, witness, path, force=force)

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
            "optimal": self.proved,
            "optimum": str(self.optimum),
            "best": str(self.bracket.value),
            "best_gap": str(self.bracket.gap),
            "by": self.bracket.by,
            "time_s": round(self.time_s, 6),
            "max_send": int(self.plan.send.max()),
            "max_recv": int(self.plan.recv.max()),
            "bottleneck": self.bottleneck._asdict(),
            "send_guarantee": None if self.guarantee is None else self.guarantee.as_dict(),
            "witness": dict(self.bracket.witness),
            "notes": list(self.notes),
            "moved": None if self.moving is None else self._moved(self.moving),
        }

    def _moved(self, least: MovingBound) -> dict[str, Any]:
        """What the plan moves inside nodes, in bytes, and the least that plans as fast move."""
        return {
            "bytes": self.plan.moved,
            "staged": self.plan.staged,
            "passed_on": self.plan.passed_on,
            "least": least.bytes,
            "above": None if self.moved_gap is None else str(self.moved_gap),
            "is_least": self.plan.moved == least.bytes,
            "witness": least.witness,
        }

    def __str__(self) -> str:
        worst = self.bottleneck
        state = "optimal" if self.proved else f"{float(self.gap) * 100:.3g} % above the bound"
        return (
            f"{self.plan.policy}: {format_time(self.value)} against {format_time(self.bound)}, "
            f"{state}; slowest: node {worst.node} {worst.side} rail {worst.rail}"
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
    before: Rivals | None = None,
) -> Iterator[GapReport]:
    """As `gap`, one report at a time, in the order given; plans of the same fabric and chunks share
    one solve, and what is known of moved bytes serves all, those of reports `before` included.

    An interrupt (Ctrl-C) ends the solve at work: its reports carry the best bound so far and the
    note "interrupted".
    """
    from railopt.solver.local.deadline import time_limit

    plans = list(plans) if isinstance(plans, Iterable) else [plans]
    for each in plans:
        require_type(each, Plan, "plan", "a Plan, or a list of them")
    limit_s, seed = time_limit(limit_s, 0), whole_number(seed, "seed", 0, INT64_MAX)
    known: dict[tuple[str, str], tuple[GapReport, Rivals]] = {}
    for plan in plans:
        key = plan.fabric.digest, plan.chunks.digest
        if key not in known:
            same = [p for p in plans if (p.fabric.digest, p.chunks.digest) == key]
            settled = _settle(same, limit_s, seed, report)
            before = Rivals(settled.plan, before)
            known[key] = settled, before
        shared, rivals = known[key]
        yield replace(shared, plan=plan, limit_s=limit_s, rivals=rivals)


def _settle(
    plans: Sequence[Plan], limit_s: float, seed: int, report: Callable[[Progress], None] | None
) -> GapReport:
    """The report of the fastest of several plans of the same chunks.  Whatever befalls the solver,
    the bound that was known before stays.
    """
    began = time.perf_counter()
    fastest = min(plans, key=lambda plan: plan.makespan)
    first = lower_bound(fastest.fabric, fastest.chunks)
    notes: tuple[str, ...] = ()
    if fastest.makespan != first.value and limit_s > 0:
        try:
            return _solved(fastest, first, limit_s, seed, report)
        except CheckFailed:
            raise  # a bound above a plan: nothing may be said before that is understood
        except KeyboardInterrupt:
            notes = (INTERRUPTED,)
        except Exception as error:
            notes = (f"the solver failed, so the bound is a closed form: {error or repr(error)}",)
    took_s = time.perf_counter() - began
    return GapReport(fastest, _closed_form(fastest, first), fastest, took_s, notes)


def _closed_form(best: Plan, first: Bound) -> Bracket:
    """What a closed form says of the optimum, beside the best plan known."""
    met = best.makespan == first.value
    return Bracket(
        best.makespan,
        first.value,
        Status.PROVED if met else Status.OPEN,
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
    """What the solver makes of a plan's chunks, in its time, and of a bound that is known."""
    from railopt.solver.coupled.solve import solve

    outcome = solve(start.fabric, start.chunks, limit_s, seed=seed, start=start, report=report)
    better = outcome.plan is not None and outcome.plan.makespan < start.makespan
    best = outcome.plan if better and outcome.plan is not None else start
    bracket = _closed_form(best, first) if outcome.bound < first.value else outcome.bracket
    return GapReport(start, bracket, best, outcome.time_s, outcome.notes)


class GapRow(NamedTuple):
    """A report, and what it is called: the chunk size as it was given, and a name for its files."""

    chunk: str
    name: str
    report: GapReport

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {"chunk": self.chunk, **self.report.as_dict()}


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
    size; they end with the size at which Ctrl-C struck.  `report` is told the size and where its
    solve stands.
    """
    before: Rivals | None = None
    policies = list(dict.fromkeys(policies))
    for size in dict.fromkeys(sizes):
        told = None if report is None else partial(report, size)
        plans = _planned(fabric, traffic, policies, size, told)
        interrupted = False
        for found in gaps(plans, limit_s=limit_s, seed=seed, report=told, before=before):
            yield GapRow(size, f"{found.plan.policy}-{size}", found)
            interrupted, before = found.interrupted, found.rivals
        if interrupted:
            return


def _planned(
    fabric: Fabric,
    traffic: Traffic | Tokens,
    policies: Sequence[str],
    size: str,
    told: Callable[[Progress], None] | None,
) -> list[Plan]:
    """A plan by each policy; `told` hears of a bound before the first of them."""
    if told is None:
        chunks = traffic.chunks(size)
        return [make_plan(fabric, chunks, policy) for policy in policies]
    from railopt.solver.coupled.fallback import first_bound
    from railopt.solver.coupled.race import Progress

    began = time.perf_counter()
    told(Progress(0.0, None, None, "chunks"))
    chunks, plans = traffic.chunks(size), list[Plan]()
    check_alive(fabric, chunks)
    bound = first_bound(fabric, chunks)[0] if len(chunks) else None
    for policy in policies:
        value = min((plan.makespan for plan in plans), default=None)
        told(Progress(time.perf_counter() - began, value, bound, policy))
        plans.append(make_plan(fabric, chunks, policy))
    return plans


def file_gaps(
    paths: Sequence[str],
    *,
    limit_s: float = 10.0,
    seed: int = 0,
    report: Callable[[str, Progress], None] | None = None,
) -> Iterator[GapRow]:
    """As `policy_gaps`, for saved plans."""
    for path in paths:
        loaded = Plan.load(path)
        told = None if report is None else partial(report, str(path))
        (found,) = gaps([loaded], limit_s=limit_s, seed=seed, report=told)
        yield GapRow(format_bytes(loaded.chunks.largest), Path(path).stem, found)
        if found.interrupted:
            return


def save_certificates(
    rows: Sequence[GapRow], folder: str | os.PathLike[str], *, force: bool = False
) -> list[Path]:
    """A certificate of each row, as NAME.json in the folder, which is made, and NAME.moved.json of
    what its plan moves, where that is known; names that repeat are numbered.
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
        row.report.save_moved(saved[-1].with_suffix(".moved.json"), force=force)
    return saved


def gap_lines(rows: Sequence[GapRow]) -> dict[str, list[tuple[int, float]]]:
    """For a figure: each policy's (bytes of the largest chunk, gap in %)."""
    lines: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        if not len(row.report.plan.chunks):
            continue  # no chunk, no place on the axis
        point = row.report.plan.chunks.largest, float(row.report.gap) * 100
        lines.setdefault(row.report.plan.policy, []).append(point)
    return lines


def _guarantee(plan: Plan) -> Guarantee | None:
    """For the sender that finishes last, where its rails are alive and of one rate, and no NIC
    receives more slowly: else `lpt` does not go by the sender's loads alone.
    """
    tx, rails = plan.fabric.tx, plan.fabric.rails
    times = (plan.send / np.maximum(tx, 1)).max(axis=1)
    node = int(times.argmax())
    if len(set(tx[node].tolist())) > 1 or tx[node, 0] == 0 or plan.fabric.rx.min() < tx[node, 0]:
        return None
    rail = int(plan.send[node].argmax())
    k = int(np.count_nonzero((plan.chunks.src == node) & (plan.rail == rail)))
    bound, _ = local_bound(node_sizes(plan.fabric, plan.chunks, "send", node), tx[node].tolist())
    measured = Fraction(int(plan.send[node, rail]), int(tx[node, rail])) / bound
    return Guarantee(
        k,
        Fraction(4, 3) - Fraction(1, 3 * rails),
        Fraction(k + 1, k) - Fraction(1, k * rails),
        measured,
    )
