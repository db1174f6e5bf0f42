"""Gap reports: bounds, what is known of the optimum, and rows of many plans."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Chunks, Fabric, Outcome, Plan, check, gap, plan, workloads
from railopt.answers.gap import GapRow, gap_lines, gaps, policy_gaps, save_certificates
from railopt.base.arrays import Rails
from railopt.base.errors import CheckFailed, InputError, NotProved
from railopt.evidence.bracket import Status
from railopt.solver.coupled.race import Race
from railopt.solver.moving.bound import MovedBounds
from tests.moved import least_moved

FABRIC = Fabric.uniform(nodes=4, rails=4)
CHUNKS = workloads.moe(FABRIC, skew=0.5, seed=2, tokens=512).chunks("256KiB")
# node 0 sends 5, 5 and 4 over two rails: nothing is faster than 9; all on one rail takes 14
THREE = Chunks.from_arrays(src=[0, 0, 0], dst=[1, 2, 1], size=[5, 5, 4], nodes=3)
TWO_RAILS = Fabric.uniform(3, 2, 1, gpus=1)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[Rails]:
    """The plans' rails with which the solver was asked, in order."""
    from railopt.solver.coupled import solve as coupled

    plans: list[Rails] = []

    def remember(race: Race) -> Outcome:
        assert race.rail is not None
        plans.append(race.rail)
        return whole(race)

    whole = coupled.run_race
    monkeypatch.setattr(coupled, "run_race", remember)
    return plans


def on_rails(*rail: int) -> Plan:
    return Plan(TWO_RAILS, THREE, np.array(rail, np.int16), "by hand")


def test_the_solver_is_asked_once_for_plans_of_the_same_chunks(asked: list[Rails]) -> None:
    slow, slower = on_rails(0, 0, 1), on_rails(0, 0, 0)
    reports = gap([slower, slow], limit_s=60)
    assert [rail.tolist() for rail in asked] == [[0, 0, 1]]  # the fastest, to start from
    assert [report.value for report in reports] == [14, 10]
    for report in reports:
        assert (report.bound, report.bracket.value, report.best.makespan) == (9, 9, 9)
        assert report.optimum is Status.KNOWN
        assert not report.optimal
    assert [report.gap for report in reports] == [Fraction(5, 9), Fraction(1, 9)]


def test_the_solver_is_asked_for_each_set_of_chunks(asked: list[Rails]) -> None:
    other = Plan(TWO_RAILS, THREE.take(np.array([0, 1])), np.array([0, 0], np.int16))
    reports = gap([on_rails(0, 0, 0), other], limit_s=60)
    assert len(asked) == 2
    assert [report.bound for report in reports] == [9, 5]


def test_the_solver_is_not_asked_where_a_plan_meets_the_closed_forms(asked: list[Rails]) -> None:
    """The bound is 9, by the pigeonhole of 5, 5 and 4 on two rails."""
    reports = gap([on_rails(0, 0, 0), on_rails(0, 1, 0)], limit_s=60)
    assert asked == []
    assert [report.optimal for report in reports] == [False, True]
    assert {report.optimum for report in reports} == {Status.KNOWN}
    assert reports[0].best is reports[1].plan


def test_the_solver_is_not_asked_without_time(asked: list[Rails]) -> None:
    report = gap(on_rails(0, 0, 0), limit_s=0)
    assert asked == []
    assert (report.value, report.bound, report.bracket.value) == (14, 9, 14)
    assert report.optimum is Status.OPEN
    assert report.best is report.plan


def test_the_certificate_holds_the_plan_and_the_bound() -> None:
    report = gap(on_rails(0, 0, 0), limit_s=60)
    verdict = report.certificate.check()
    assert verdict.ok
    assert not verdict.optimal
    assert (verdict.bound, verdict.value) == (9, 14)
    assert report._better is report.best
    assert gap(on_rails(0, 1, 0), limit_s=0)._better is None


def test_two_facts_have_two_words() -> None:
    row = gap(on_rails(0, 0, 0), limit_s=60).as_dict()
    assert (row["optimal"], row["optimum"]) == (False, "known")
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

    monkeypatch.setattr(coupled, "run_race", fails)
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

    monkeypatch.setattr(coupled, "run_race", contradicts)
    with pytest.raises(CheckFailed):
        gap(on_rails(0, 0, 0), limit_s=60)


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


def test_lpt_is_as_far_off_as_graham_says() -> None:
    """4/3 - 1/(3N) on N rails.  Sizes 2N - 1, 2N - 1, ..., N + 1, N + 1, N, N, N: LPT takes 4N - 1,
    the optimum 3N.
    """
    rails = 3
    sizes = [s for s in range(2 * rails - 1, rails, -1) for _ in range(2)] + [rails] * 3
    chunks = Chunks.from_arrays(src=[0] * len(sizes), dst=[1] * len(sizes), size=sizes, nodes=2)
    report = gap(plan(Fabric.uniform(2, rails, 1), chunks, "lpt"), limit_s=60)
    assert report.value / report.bound == Fraction(4, 3) - Fraction(1, 3 * rails)


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
    sizes = ["1MiB", "flow"]
    found = policy_gaps(
        FABRIC,
        traffic,
        ["pxn", "lpt"],
        sizes,
        limit_s=60,
        report=lambda size, progress: told.append(size),
    )
    for size, (first, second) in zip(sizes, found, strict=True):
        assert (first.chunk, second.chunk) == (size, size)
        assert (first.report.plan.policy, second.report.plan.policy) == ("pxn", "lpt")
        assert first.report.bracket is second.report.bracket
        assert first.report.plan.chunks == traffic.chunks(size)
    assert set(told) <= set(sizes)


def test_what_is_listed_twice_is_compared_once() -> None:
    traffic = workloads.moe(FABRIC, skew=0.5, tokens=256)
    (rows,) = policy_gaps(FABRIC, traffic, ["lpt", "pxn", "lpt"], ["flow", "flow"], limit_s=0)
    assert [row.name for row in rows] == ["lpt-flow", "pxn-flow"]


def test_rows_end_where_ctrl_c_struck(monkeypatch: pytest.MonkeyPatch) -> None:
    from railopt.solver.coupled import solve as coupled

    def interrupted(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(coupled, "run_race", interrupted)
    (rows,) = policy_gaps(FABRIC, workloads.moe(FABRIC, skew=0.5, tokens=256), ["pxn", "hash"])
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
    assert all(check(path).optimal for path in saved)


def test_points_of_a_figure() -> None:
    rows = [GapRow("5", "a", gap(on_rails(*rails), limit_s=0)) for rails in ((0, 0, 0), (0, 1, 0))]
    assert gap_lines(rows) == {"by hand": [(5, pytest.approx(500 / 9)), (5, 0.0)]}


def moved(row: GapRow, bounds: MovedBounds | None = None, limit_s: float = 60) -> GapRow:
    """The row with the least bytes that plans as fast as its own move."""
    return row._replace(moved=(bounds or MovedBounds()).of(row.report.plan, limit_s=limit_s))


def row_of(made: Plan) -> GapRow:
    return GapRow("256KiB", made.policy, gap(made, limit_s=0))


def test_moved_bytes_are_held_against_plans_as_fast(tmp_path: Path) -> None:
    own, spread = (moved(row_of(plan(FABRIC, CHUNKS, name))) for name in ("own-nic", "lpt"))
    assert own.moved is not None
    assert spread.moved is not None
    assert own.moved.exact
    assert own.moved_gap == 0
    assert own.report.plan.moved == own.moved.bytes < spread.report.plan.moved
    assert spread.moved_gap == Fraction(spread.report.plan.moved, spread.moved.bytes) - 1
    (path,) = save_certificates([own], tmp_path)
    assert check(path.with_suffix(".moved.json")).optimal
    quick = moved(spread, limit_s=0)
    assert quick.moved is not None
    assert quick.moved.bytes <= spread.moved.bytes


def test_chunks_that_name_no_gpus_have_no_bound_on_moved_bytes(tmp_path: Path) -> None:
    fabric = Fabric.uniform(3, 2, gpus=2)
    row = moved(row_of(Plan(fabric, THREE, np.zeros(3, np.int16))))
    assert (row.moved, row.moved_gap) == (None, None)
    assert "moved" not in row.as_dict()
    save_certificates([row], tmp_path)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[Fraction]:
    """The times of which the least bytes moved were sought, in order."""
    from railopt.solver.moving import bound

    sought: list[Fraction] = []

    def counted(*args: Any, **options: Any) -> bound.MovedBound:
        sought.append(args[2])
        return whole(*args, **options)

    whole = bound.moved_within
    monkeypatch.setattr(bound, "moved_within", counted)
    return sought


def test_what_is_moved_is_sought_once_where_it_holds_for_all(times: list[Fraction]) -> None:
    one_gpu = Chunks.from_units(FABRIC, src_gpu=[0] * 12, dst=[1] * 12, size=[2] * 12)
    for chunks in (CHUNKS, one_gpu):
        times.clear()
        plans = [plan(FABRIC, chunks, policy) for policy in ("hash", "lpt", "own-nic")]
        plans.sort(key=lambda made: made.makespan)
        bounds = MovedBounds()
        found = [bounds.of(made, limit_s=60) for made in plans]
        sought = list(times)
        for made, each in zip(plans, found, strict=True):
            assert each is not None
            assert each.exact
            alone = least_moved(FABRIC, chunks, made.makespan)
            assert (each.time, each.bound) == (made.makespan, alone.bound)
        costs_time = bool(least_moved(FABRIC, chunks, plans[0].makespan).earned)
        assert sought[0] == plans[0].makespan
        assert costs_time == (chunks is one_gpu)
        assert len(sought) == (len({made.makespan for made in plans}) if costs_time else 1)


@pytest.mark.parametrize("sizes", [("64KiB", "256KiB", "1MiB"), ("1MiB", "64KiB")])
def test_what_one_chunk_size_shows_of_moved_bytes_serves_the_others(
    times: list[Fraction], sizes: tuple[str, ...]
) -> None:
    traffic = workloads.moe(FABRIC, skew=0.5, seed=2, tokens=512)
    plans = [plan(FABRIC, traffic.chunks(size), "lpt") for size in sizes]
    bounds = MovedBounds()
    found = [bounds.of(made, limit_s=60) for made in plans]
    fastest = [made.makespan for made in plans]
    assert fastest[0] != fastest[1]
    assert times == [each for i, each in enumerate(fastest) if each < min(fastest[:i], default=9)]
    for made, each in zip(plans, found, strict=True):
        alone = least_moved(FABRIC, made.chunks, made.makespan)
        assert each is not None
        assert (each.time, each.bound, each.value) == (made.makespan, alone.bound, alone.value)


def test_what_other_traffic_moves_does_not_serve(times: list[Fraction]) -> None:
    half = CHUNKS.take(np.arange(0, len(CHUNKS), 2))
    bounds, plans = MovedBounds(), [plan(FABRIC, chunks, "lpt") for chunks in (half, CHUNKS)]
    for made in plans:
        assert bounds.of(made, limit_s=0) is not None
    assert times == [made.makespan for made in plans]
