"""Gap reports: bounds, what is known of the optimum, guarantees, and rows of many plans."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Chunks, Fabric, Outcome, Plan, check, gap, plan, workloads
from railopt.answers.gap import GapRow, gap_lines, gaps, policy_gaps, save_certificates
from railopt.base.errors import CheckFailed, InputError, NotProved
from railopt.evidence.bracket import Status

FABRIC = Fabric.uniform(nodes=4, rails=4)
CHUNKS = workloads.moe(FABRIC, skew=0.5, seed=2, tokens=512).chunks("256KiB")
# node 0 sends 5, 5 and 4 over two rails: nothing is faster than 9; all on one rail takes 14
THREE = Chunks.from_arrays(src=[0, 0, 0], dst=[1, 2, 1], size=[5, 5, 4], nodes=3)
TWO_RAILS = Fabric.uniform(3, 2, 1, gpus=1)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans with which the solver was asked, in order."""
    from railopt.solver.coupled import solve as coupled

    plans: list[Plan] = []

    def remember(*args: Any, start: Plan, **options: Any) -> Outcome:
        plans.append(start)
        return whole(*args, start=start, **options)

    whole = coupled.solve
    monkeypatch.setattr(coupled, "solve", remember)
    return plans


def on_rails(*rail: int) -> Plan:
    return Plan(TWO_RAILS, THREE, np.array(rail, np.int16), "by hand")


def test_the_solver_is_asked_once_for_plans_of_the_same_chunks(asked: list[Plan]) -> None:
    slow, slower = on_rails(0, 0, 1), on_rails(0, 0, 0)
    reports = gap([slower, slow], limit_s=60)
    assert [start.rail.tolist() for start in asked] == [[0, 0, 1]]  # the fastest, to start from
    assert [report.value for report in reports] == [14, 10]
    for report in reports:
        assert (report.bound, report.bracket.value, report.best.makespan) == (9, 9, 9)
        assert report.optimum is Status.PROVED
        assert not report.proved
    assert [report.gap for report in reports] == [Fraction(5, 9), Fraction(1, 9)]


def test_the_solver_is_asked_for_each_set_of_chunks(asked: list[Plan]) -> None:
    other = Plan(TWO_RAILS, THREE.take(np.array([0, 1])), np.array([0, 0], np.int16))
    reports = gap([on_rails(0, 0, 0), other], limit_s=60)
    assert len(asked) == 2
    assert [report.bound for report in reports] == [9, 5]


def test_the_solver_is_not_asked_where_a_plan_meets_the_closed_forms(asked: list[Plan]) -> None:
    """The bound is 9, by the pigeonhole of 5, 5 and 4 on two rails."""
    reports = gap([on_rails(0, 0, 0), on_rails(0, 1, 0)], limit_s=60)
    assert asked == []
    assert [report.proved for report in reports] == [False, True]
    assert {report.optimum for report in reports} == {Status.PROVED}
    assert reports[0].best is reports[1].plan


def test_the_solver_is_not_asked_without_time(asked: list[Plan]) -> None:
    report = gap(on_rails(0, 0, 0), limit_s=0)
    assert asked == []
    assert (report.value, report.bound, report.bracket.value) == (14, 9, 14)
    assert report.optimum is Status.OPEN
    assert report.best is report.plan


def test_the_certificate_holds_the_plan_and_the_bound() -> None:
    report = gap(on_rails(0, 0, 0), limit_s=60)
    verdict = report.certificate.check()
    assert verdict.ok
    assert not verdict.proved
    assert (verdict.bound, verdict.value) == (9, 14)
    assert report._better is report.best
    assert gap(on_rails(0, 1, 0), limit_s=0)._better is None


def test_two_facts_have_two_words() -> None:
    row = gap(on_rails(0, 0, 0), limit_s=60).as_dict()
    assert (row["optimal"], row["optimum"]) == (False, "proved")
    assert (row["gap"], row["best_gap"]) == ("5/9", "0")
    assert not {"proved", "status"} & set(row)


@pytest.mark.parametrize(
    "error", [NotProved("no exact answer"), MemoryError(), OverflowError("too large")]
)
def test_a_solver_that_fails_loses_no_bound(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    from railopt.solver.coupled import solve as coupled

    def fails(*args: Any, **options: Any) -> None:
        raise error

    monkeypatch.setattr(coupled, "solve", fails)
    report = gap(on_rails(0, 0, 0), limit_s=60)
    assert (report.value, report.bound) == (14, 9)
    assert report.optimum is Status.OPEN
    assert "the solver failed" in report.notes[0]
    assert str(error) in report.notes[0]
    assert report.certificate.check().ok


def test_a_bound_above_a_plan_is_never_hushed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from railopt.solver.coupled import solve as coupled

    def contradicts(*args: Any, **options: Any) -> None:
        raise CheckFailed("a bound above a plan")

    monkeypatch.setattr(coupled, "solve", contradicts)
    with pytest.raises(CheckFailed):
        gap(on_rails(0, 0, 0), limit_s=60)


def test_textbook_guarantees_hold_for_lpt_and_only_there() -> None:
    report = gap(plan(FABRIC, CHUNKS, "lpt"), limit_s=0)
    known = report.guarantee
    assert known is not None
    k = known.chunks_on_critical
    assert known.apriori == Fraction(4, 3) - Fraction(1, 12)
    assert known.aposteriori == Fraction(k + 1, k) - Fraction(1, 4 * k)
    assert 1 <= known.measured <= min(known.apriori, known.aposteriori)
    assert gap(plan(FABRIC, CHUNKS, "equitable"), limit_s=0).guarantee is None
    slow = FABRIC.degraded({(node, 0): "0.5" for node in range(4)})
    assert gap(plan(slow, CHUNKS, "lpt"), limit_s=0).guarantee is None


def test_no_guarantee_where_a_receiver_is_slower() -> None:
    """There `lpt` goes by the far end too: 7/4 of the bound, where the textbook says 7/6."""
    fabric = Fabric.uniform(2, 2, "80B/s").degraded({(0, 1): "0.25"})
    chunks = Chunks.from_arrays(src=[1] * 8, dst=[0] * 8, size=[1] * 8)
    assert gap(plan(fabric, chunks, "lpt"), limit_s=0).guarantee is None
    fast = Fabric(2, 2, 2, fabric.rx, np.full((2, 2), 80))  # one that sends slowly is no other
    back = Chunks.from_arrays(src=[1] * 8, dst=[0] * 8, size=[1] * 8)
    known = gap(plan(fast, back, "lpt"), limit_s=0).guarantee
    assert known is not None
    assert known.measured <= known.apriori


def test_a_limit_below_zero_is_refused() -> None:
    with pytest.raises(InputError, match="a time limit of -1 s: expected 0 or more"):
        gap(plan(FABRIC, CHUNKS, "lpt"), limit_s=-1)


@pytest.mark.parametrize("odd", [5, "lpt", CHUNKS, [on_rails(0, 0, 0), 5]])
def test_what_is_no_plan_is_refused(odd: Any) -> None:
    with pytest.raises(InputError, match="expected a Plan, or a list of them"):
        gap(odd)


@pytest.mark.parametrize("seed", [-1, "x", 0.5, 2**63])
def test_a_seed_is_looked_at_even_where_nothing_is_searched(seed: Any) -> None:
    with pytest.raises(InputError, match="seed"):
        gap(on_rails(0, 1, 0), seed=seed)


def test_guarantee_of_grahams_instance_is_tight() -> None:
    """Sizes 2N - 1, 2N - 1, ..., N + 1, N + 1, N, N, N on N rails: LPT takes 4N - 1, the optimum
    3N.
    """
    rails = 3
    sizes = [s for s in range(2 * rails - 1, rails, -1) for _ in range(2)] + [rails] * 3
    chunks = Chunks.from_arrays(src=[0] * len(sizes), dst=[1] * len(sizes), size=sizes, nodes=2)
    report = gap(plan(Fabric.uniform(2, rails, 1), chunks, "lpt"), limit_s=60)
    assert (
        report.value / report.bound
        == report.guarantee.apriori
        == Fraction(4, 3) - Fraction(1, 3 * rails)
    )


def test_certificates_of_moved_bytes_have_names_of_their_own(tmp_path: Path) -> None:
    report = gap(plan(FABRIC, CHUNKS, "lpt"), limit_s=0)
    rows = [GapRow("1MiB", name, report) for name in ("a", "a.moved", "a")]
    saved = [path.name for path in save_certificates(rows, tmp_path / "c")]
    assert saved == ["a.json", "a.moved-2.json", "a-2.json"]


def test_gaps_come_one_at_a_time() -> None:
    first = next(gaps([plan(FABRIC, CHUNKS, "lpt"), plan(FABRIC, CHUNKS, "pxn")], limit_s=0))
    assert first.plan.policy == "lpt"


def test_every_policy_at_every_chunk_size() -> None:
    traffic = workloads.moe(FABRIC, skew=0.5, tokens=256)
    told: list[str] = []
    rows = list(
        policy_gaps(
            FABRIC,
            traffic,
            ["pxn", "lpt"],
            ["1MiB", "flow"],
            limit_s=60,
            report=lambda size, progress: told.append(size),
        )
    )
    assert [(row.chunk, row.report.plan.policy) for row in rows] == [
        (size, policy) for size in ("1MiB", "flow") for policy in ("pxn", "lpt")
    ]
    assert set(told) <= {"1MiB", "flow"}
    for size, (first, second) in {"1MiB": rows[:2], "flow": rows[2:]}.items():
        assert first.report.bracket is second.report.bracket
        assert first.report.plan.chunks == traffic.chunks(size)


def test_what_is_listed_twice_is_compared_once() -> None:
    traffic = workloads.moe(FABRIC, skew=0.5, tokens=256)
    rows = list(policy_gaps(FABRIC, traffic, ["lpt", "pxn", "lpt"], ["flow", "flow"], limit_s=0))
    assert [row.name for row in rows] == ["lpt-flow", "pxn-flow"]


def test_rows_end_where_ctrl_c_struck(monkeypatch: pytest.MonkeyPatch) -> None:
    from railopt.solver.coupled import solve as coupled

    def interrupted(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(coupled, "solve", interrupted)
    rows = list(policy_gaps(FABRIC, workloads.moe(FABRIC, skew=0.5, tokens=256), ["pxn", "hash"]))
    assert [(row.chunk, row.report.plan.policy) for row in rows] == [
        ("64KiB", "pxn"),
        ("64KiB", "hash"),
    ]
    assert all(row.report.interrupted for row in rows)
    assert all(0 < row.report.bound <= row.report.value for row in rows)


def test_certificates_of_rows_have_plain_names_of_their_own(tmp_path: Path) -> None:
    report = gap(on_rails(0, 1, 0), limit_s=0)
    names = ["mine:lpt-1 MiB", "../../plan", "plan", "plan", "plan-2"]
    saved = save_certificates(
        [GapRow("1MiB", name, report) for name in names], tmp_path / "new" / "folder"
    )
    assert [path.name for path in saved] == [
        "mine-lpt-1-MiB.json",
        "..-..-plan.json",
        "plan.json",
        "plan-2.json",
        "plan-2-2.json",
    ]
    assert {path.parent for path in saved} == {tmp_path / "new" / "folder"}
    assert all(check(path).proved for path in saved)


def test_points_of_a_figure() -> None:
    rows = [GapRow("5", "a", gap(on_rails(*rails), limit_s=0)) for rails in ((0, 0, 0), (0, 1, 0))]
    assert gap_lines(rows) == {"by hand": [(5, pytest.approx(500 / 9)), (5, 0.0)]}


def test_moved_bytes_are_held_against_plans_as_fast(tmp_path: Path) -> None:
    own, spread = (gap(plan(FABRIC, CHUNKS, name), limit_s=60) for name in ("own-nic", "lpt"))
    assert own.moving is not None
    assert spread.moving is not None
    assert own.moving.exact
    assert own.moved_gap == 0
    assert own.plan.moved == own.moving.bytes < spread.plan.moved
    assert spread.moved_gap == Fraction(spread.plan.moved, spread.moving.bytes) - 1
    (path,) = own.save_moved(tmp_path / "own.json")
    assert check(path).optimal
    quick = gap(plan(FABRIC, CHUNKS, "lpt"), limit_s=0)
    assert quick.moving is not None
    assert quick.moving.bytes <= spread.moving.bytes


def test_chunks_that_name_no_gpus_have_no_bound_on_moved_bytes(tmp_path: Path) -> None:
    fabric = Fabric.uniform(3, 2, gpus=2)
    report = gap(Plan(fabric, THREE, np.zeros(3, np.int16)), limit_s=0)
    assert report.moving is None
    assert report.moved_gap is None
    assert report.as_dict()["moved"] is None
    assert report.save_moved(tmp_path / "none.json") == []


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[Fraction]:
    """The times of which the least bytes moved were sought, in order."""
    from railopt.solver.moving import bound

    sought: list[Fraction] = []

    def counted(*args: Any, **options: Any) -> bound.MovingBound:
        sought.append(args[2])
        return whole(*args, **options)

    whole = bound.moved_within
    monkeypatch.setattr(bound, "moved_within", counted)
    return sought


def least(chunks: Chunks, time: Fraction) -> Any:
    """Of one time alone."""
    from railopt.solver.moving.bound import least_moved

    return least_moved(FABRIC, chunks, time)


def test_what_rivals_move_is_found_once_where_it_holds_for_all(times: list[Fraction]) -> None:
    one_gpu = Chunks.from_units(FABRIC, src_gpu=[0] * 12, dst=[1] * 12, size=[2] * 12)
    for chunks in (CHUNKS, one_gpu):
        times.clear()
        reports = gap([plan(FABRIC, chunks, policy) for policy in ("hash", "lpt", "own-nic")])
        bounds = [report.moving for report in reports]
        sought = list(times)
        for report, found in zip(reports, bounds, strict=True):
            assert found is not None
            assert found.exact
            alone = least(chunks, report.value)
            assert (found.time, found.bound) == (report.value, alone.bound)
        fastest = min(report.value for report in reports)
        costs_time = bool(least(chunks, fastest).earned)
        assert sought[0] == fastest
        assert costs_time == (chunks is one_gpu)
        assert len(sought) == (len({report.value for report in reports}) if costs_time else 1)


@pytest.mark.parametrize("sizes", [("64KiB", "256KiB", "1MiB"), ("1MiB", "64KiB")])
def test_what_one_chunk_size_shows_of_moved_bytes_serves_the_others(
    times: list[Fraction], sizes: tuple[str, ...]
) -> None:
    traffic = workloads.moe(FABRIC, skew=0.5, seed=2, tokens=512)
    rows = list(policy_gaps(FABRIC, traffic, ("lpt", "own-nic"), sizes, limit_s=0))
    bounds = [replace(row.report, limit_s=60).moving for row in rows]
    fastest = [
        min(lpt.report.value, own.report.value)
        for lpt, own in zip(rows[::2], rows[1::2], strict=True)
    ]
    assert fastest[0] != fastest[1]
    assert times == [each for i, each in enumerate(fastest) if each < min(fastest[:i], default=9)]
    for row, found in zip(rows, bounds, strict=True):
        alone = least(row.report.plan.chunks, row.report.value)
        assert found is not None
        assert (found.time, found.bound, found.value) == (
            row.report.value,
            alone.bound,
            alone.value,
        )


def test_what_other_traffic_moves_does_not_serve(times: list[Fraction]) -> None:
    half = CHUNKS.take(np.arange(0, len(CHUNKS), 2))
    reports = gap([plan(FABRIC, chunks, "lpt") for chunks in (half, CHUNKS)], limit_s=0)
    for report in reports:
        assert report.moving is not None
    assert times == [report.value for report in reports]
