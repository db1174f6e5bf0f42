"""The coupled race: statuses, tolerance, interrupts, degenerate input, certificates."""

from __future__ import annotations

import resource
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import railopt
from railopt import Chunks, Fabric, Plan, check, workloads
from railopt.base.arrays import MAX_TOTAL
from railopt.base.errors import Infeasible, InputError
from railopt.evidence import certificate
from railopt.solver.coupled import solve as coupled
from railopt.solver.coupled.race import Progress, Race, first_bound
from railopt.solver.coupled.search import Cells, anchor, construct, even_out, improve


@pytest.fixture(scope="module")
def moe() -> tuple[Fabric, Chunks]:
    fabric = Fabric.uniform(nodes=4, rails=8)
    return fabric, workloads.moe(fabric, skew=0.8, seed=1).chunks("4MiB")


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [(15_274_935, 21_038_806), (1_527_493_511, 2_103_880_601), (10**17 + 3, 10**17 + 9)]
)
def test_two_chunks_of_irregular_bytes_are_proved(sizes: tuple[int, int]) -> None:
    """The joint witness counts in bytes: with the sums of small ones, without those of large."""
    fabric = Fabric.uniform(2, 3).degraded({(0, 2): 0, (1, 1): Fraction(1, 4)})
    sent = np.zeros((6, 6), np.int64)
    sent[0, 3], sent[1, 4] = sizes
    chunks = railopt.Traffic(sent, 2).chunks("flow")
    solved = railopt.solve(fabric, chunks, limit_s=20)
    assert solved.optimal
    assert solved.bracket.witness["kind"] == "joint"
    assert solved.certificate.check().optimal


def test_moe_is_proved_and_its_certificate_checks(moe: tuple[Fabric, Chunks]) -> None:
    solved = railopt.solve(*moe, limit_s=20)
    assert solved.optimal
    assert solved.notes == ()
    assert solved.value == solved.bound == solved.plan.makespan
    assert solved.certificate.check().optimal
    assert solved.gap == 0
    assert "optimal" in str(solved)
    assert solved.as_dict()["value"] == str(solved.value)


def test_the_same_seed_gives_the_same_plan(moe: tuple[Fabric, Chunks]) -> None:
    assert coupled.solve(*moe, 20).plan == coupled.solve(*moe, 20).plan


def test_tolerance_ends_the_race_early(moe: tuple[Fabric, Chunks]) -> None:
    quick = coupled.solve(*moe, 20, tolerance=Fraction(1, 10))
    assert quick.gap <= Fraction(1, 10)
    assert quick.certificate.check().ok


def test_no_chunks_take_no_time() -> None:
    none = coupled.solve(Fabric.uniform(2, 2), Chunks.from_arrays(src=[], dst=[], size=[], nodes=2))
    assert (none.optimum, none.value, none.bound) == ("known", 0, 0)
    assert none.certificate.check().optimal


def test_no_living_rail_is_infeasible() -> None:
    fabric = Fabric.uniform(2, 2).degraded({(0, 0): "0", (1, 1): "0"})
    chunks = Chunks.from_arrays(src=[0], dst=[1], size=[5], nodes=2)
    with pytest.raises(Infeasible, match="no living rail from node 0 to node 1"):
        coupled.solve(fabric, chunks)


def test_a_plan_to_start_from_must_fit(moe: tuple[Fabric, Chunks]) -> None:
    fabric, chunks = moe
    other = railopt.plan(fabric, chunks.take(np.arange(5)), "lpt")
    with pytest.raises(InputError, match="other chunks"):
        coupled.solve(fabric, chunks, start=other)


def test_an_interrupt_keeps_the_best_so_far() -> None:
    def interrupted(known: Progress) -> None:
        if known.value is not None:
            raise KeyboardInterrupt

    fabric = Fabric.uniform(3, 2)
    chunks = Chunks.from_arrays(src=[0, 0, 0], dst=[1, 2, 1], size=[6, 5, 4], nodes=3)
    stopped = coupled.solve(fabric, chunks, report=interrupted)
    assert stopped.notes == ("interrupted",)
    assert stopped.plan is not None
    assert stopped.bound <= stopped.value
    assert stopped.certificate.check().ok


def test_progress_tells_ever_better_values_and_bounds(moe: tuple[Fabric, Chunks]) -> None:
    seen: list[Progress] = []
    coupled.solve(*moe, 20, report=seen.append)
    assert seen
    values = [p.value for p in seen if p.value is not None]
    assert values == sorted(values, reverse=True)
    assert seen[0].value is None
    assert len(values) > len(seen) - 2
    bounds = [p.bound for p in seen]
    assert all(bounds)  # before the first plan is made
    assert bounds == sorted(bounds)


def test_large_certificates_name_a_plan_beside_them(
    moe: tuple[Fabric, Chunks], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    solved = coupled.solve(*moe, 20)
    assert [path.name for path in solved.save_certificate(tmp_path / "small.json")] == [
        "small.json"
    ]
    monkeypatch.setattr(certificate, "INLINE", 10)
    written, plan = solved.save_certificate(tmp_path / "c.json")
    assert written.name == "c.json"
    assert plan.name.endswith(".plan.npz")
    assert check(tmp_path / "small.json").optimal
    assert check(tmp_path / "c.json").optimal
    plan.unlink()
    assert not check(tmp_path / "c.json").ok


RATES = np.array([[4, 2, 0], [3, 3, 1], [4, 4, 4]])


@pytest.mark.parametrize(
    "fabric", [Fabric.uniform(3, 3, 4), Fabric(3, 3, 3, RATES, RATES[::-1].copy())]
)
def test_search_never_loses_a_chunk_nor_uses_a_dead_rail(fabric: Fabric) -> None:
    rng = np.random.default_rng(3)
    src = rng.integers(0, 3, 60)
    chunks = Chunks.from_arrays(
        src=src, dst=(src + rng.integers(1, 3, 60)) % 3, size=rng.integers(1, 50, 60), nodes=3
    )
    cells, target = Cells(fabric, chunks), Fraction(1)
    start = construct(cells, target, cells.order)
    assert Plan(fabric, chunks, start).makespan == cells.value(cells.loads(start))
    previous = cells.value(cells.loads(start))
    for steps in (1, 10, 300):
        rail, value = improve(cells, start, target, steps=steps, seed=1)
        assert Plan(fabric, chunks, rail).makespan == value <= previous
    frozen = rng.random(60) < 0.5
    locked, _ = improve(cells, start, target, steps=100, seed=1, locked=frozen)
    assert np.array_equal(locked[frozen], start[frozen])


@pytest.mark.slow
def test_messages_cut_at_a_cap_have_a_plan_within_the_tolerance() -> None:
    """Eight messages per pair of four nodes, cut at 512 units."""
    src, dst = (np.repeat(ends, 8) for ends in np.nonzero(~np.eye(4, dtype=bool)))
    units = np.random.default_rng(7).integers(1500, 2600, len(src))
    pieces = -(-units // 512)
    size = np.full(pieces.sum(), 512)
    size[np.cumsum(pieces) - 1] = units - (pieces - 1) * 512
    chunks = Chunks.from_arrays(
        src=np.repeat(src, pieces), dst=np.repeat(dst, pieces), size=8192 * size, nodes=4
    )
    solved = coupled.solve(Fabric.uniform(4, 8), chunks, 20, tolerance=Fraction(5, 10_000))
    assert solved.gap <= Fraction(5, 10_000)
    assert solved.certificate.check().ok


def test_rails_that_share_their_chunks_anew_meet_the_bound_to_a_millionth() -> None:
    """Sizes with no common divisor, one sender's NIC dead and one receiver's slow."""
    fabric = Fabric.uniform(4, 8).degraded({(1, 2): "0", (3, 5): "0.5"})
    chunks = workloads.zipf(fabric, seed=3).chunks("1MiB")
    cells, (bound, _) = Cells(fabric, chunks), first_bound(fabric, chunks)
    aim = bound * Fraction(1_000_001, 1_000_000)
    start, value = improve(cells, construct(cells, aim, cells.order), aim, steps=64, seed=1)
    even = even_out(cells, start, aim, 2000, 1)
    plan = Plan(fabric, chunks, even)
    assert plan.makespan <= aim < value


def test_an_anchored_node_carries_what_was_asked(moe: tuple[Fabric, Chunks]) -> None:
    fabric, chunks = moe
    cells = Cells(fabric, chunks)
    rows = cells.node_chunks("recv", 2)
    local = np.arange(len(rows)) % 8
    rail, fixed = anchor(cells, Fraction(1, 1000), "recv", 2, local, 1)
    assert fixed.sum() == len(rows)
    wanted = np.zeros(8, np.int64)
    np.add.at(wanted, local, chunks.size[rows])
    assert cells.loads(rail)[1, 2].tolist() == wanted.tolist()


def test_senders_with_dead_rails_choose_their_places_first() -> None:
    """Three senders of four caps each, one of them with two rails: whatever the seed, it is left
    places on these.
    """
    fabric = Fabric.uniform(4, 4).degraded({(0, 2): "0", (0, 3): "0"})
    src = np.repeat([0, 1, 2], 4)
    chunks = Chunks.from_arrays(src=src, dst=[3] * 12, size=[100] * 12, nodes=4)
    cells, even = Cells(fabric, chunks), np.arange(12) % 4
    for seed in range(20):
        rail, fixed = anchor(cells, Fraction(1), "recv", 3, even, seed)
        assert fixed.all()
        assert rail[src == 0].max() < 2
        assert cells.loads(rail)[1, 3].tolist() == [300] * 4


def test_what_dead_rails_keep_from_its_place_is_not_fixed() -> None:
    fabric = Fabric.uniform(2, 2).degraded({(0, 1): "0"})
    chunks = Chunks.from_arrays(src=[0, 0], dst=[1, 1], size=[5, 4], nodes=2)
    rail, fixed = anchor(Cells(fabric, chunks), Fraction(1), "recv", 1, np.array([0, 1]), 0)
    assert rail.tolist() == [0, 0]
    assert not fixed.any()


def test_a_node_that_is_done_within_the_bound_is_not_searched() -> None:
    """Node 0 sends 9 and 5 bytes, node 1 has 8 and 4 on two rails: the best plan is done with them
    at 9, which is the bound, and not with what node 2 receives.
    """
    fabric = Fabric(3, 2, 2, np.ones((3, 2), np.int64), np.ones((3, 2), np.int64))
    chunks = Chunks.from_arrays(src=[0, 0, 1, 1], dst=[2, 1, 2, 0], size=[9, 5, 8, 4], nodes=3)
    race = Race(fabric, chunks, 10.0)
    race.offer(np.array([0, 1, 0, 1], np.int16), Fraction(17), "by hand")
    race.lift(Fraction(9), race.witness, "average")
    assert list(coupled.critical_sides(race)) == [("recv", 2)]
    race.done.add(("recv", 2))
    assert list(coupled.critical_sides(race)) == []


def large_problem(seed: int, bits: int) -> tuple[Fabric, Chunks]:
    """Chunks of up to 2**bits bytes, mostly of one size, as many as stay below 2**62 together."""
    rng = np.random.default_rng([seed, bits])
    count = 90
    src = rng.integers(0, 3, count)
    most = min(1 << bits, (MAX_TOTAL - 1) // count)
    size = np.where(rng.random(count) < 0.8, most, rng.integers(1, most, count))
    chunks = Chunks.from_arrays(src=src, dst=(src + 1 + seed % 2) % 3, size=size, nodes=3)
    fabric = Fabric.uniform(3, 4)
    return fabric.degraded({(0, 0): "0.5", (1, 3): "0"}) if seed % 2 else fabric, chunks


@pytest.mark.slow
@pytest.mark.parametrize("bits", [33, 45, 61])
def test_time_and_memory_hold_whatever_the_sizes(bits: int) -> None:
    """In CPU seconds, so that a busy machine does not decide."""
    limit_s = 0.3
    coupled.solve(*large_problem(0, 20), 2)  # loads the kernels, which no limit covers
    coupled.solve(*large_problem(1, 20), 2)
    for seed in range(4):
        for _ in range(3):  # a kernel may be compiled for arguments of another type
            race = Race(*large_problem(seed, bits), limit_s, seed, clock=time.process_time)
            solved = coupled.run_race(race)
            if race.time_s <= 1.1 * limit_s + 0.2:
                break
        assert race.time_s <= 1.1 * limit_s + 0.2
        expected = ("the step fluid failed", "more than the exact search takes")
        odd = [note for note in solved.notes if not any(text in note for text in expected)]
        assert odd == []
        assert solved.certificate.check().ok
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20  # KiB


def test_loads_beyond_the_limit_are_refused_where_they_are_made() -> None:
    half = MAX_TOTAL // 2
    with pytest.raises(InputError, match=r"expected less than 2\*\*62"):
        Chunks.from_arrays(src=[0, 1], dst=[1, 0], size=[half, half], nodes=2)
    largest = Chunks.from_arrays(src=[0, 1], dst=[1, 0], size=[half, half - 1], nodes=2)
    assert coupled.solve(Fabric.uniform(2, 2), largest, 60).optimal


FAILING = ["_start", "_fluid", "_chunk_sums", "_even_out", "_restart", "_nodes"]


@pytest.mark.slow
@pytest.mark.parametrize("step", [*FAILING, "_joint"])
def test_a_failing_step_loses_nothing(step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(race: Race, *args: object) -> None:
        raise MemoryError

    failing.__name__ = step
    monkeypatch.setattr(coupled, step, failing)
    rates = np.array([[3, 4, 4, 4]] * 4)
    src, dst = (np.repeat(ends, 3) for ends in np.nonzero(~np.eye(4, dtype=bool)))
    size = np.random.default_rng(4).integers(1, 10**6, len(src))
    chunks = Chunks.from_arrays(src=src, dst=dst, size=size, nodes=4)
    # no plan is good enough, so that every step is taken
    fabric, never = Fabric(4, 4, 4, rates, rates), Fraction(-1, 2)
    race = Race(fabric, chunks, 0.3, tolerance=never, clock=time.process_time)
    solved = coupled.run_race(race)
    name = step.strip("_").replace("_", " ")
    assert f"the step {name} failed (MemoryError: it said nothing)" in solved.notes
    assert solved.plan is not None
    assert 0 < solved.bound <= solved.value == solved.plan.makespan
    assert solved.certificate.check().ok


def test_a_claim_loses_no_bound_that_has_a_witness(tmp_path: Path) -> None:
    """7 by the average; a plan takes 9, and a solver, or a bound too hard to check, says no less
    does.
    """
    chunks = Chunks.from_arrays(src=[0, 0, 0], dst=[1, 2, 1], size=[5, 5, 4], nodes=3)
    for by in ("a solver", "a bound"):
        race = Race(Fabric.uniform(3, 2, 1, gpus=1), chunks, 1.0)
        race.lift(*first_bound(race.fabric, chunks), "average")
        race.offer(np.array([0, 1, 0], np.int16), Fraction(9), "a plan")
        if by == "a solver":
            race.claimed_by = by
        else:
            race.lift_unchecked(Fraction(9), by)
        solved = race.outcome()
        assert (solved.optimum, solved.bound, solved.bracket.by) == ("claimed", 9, f"a plan, {by}")
        assert solved.bracket.witness == {"kind": "claimed", "by": by}
        printed = solved.as_dict()
        assert (printed["bound"], printed["certified_bound"]) == ("9", "7")
        solved.save_certificate(tmp_path / f"{by}.json")
        verdict = check(tmp_path / f"{by}.json")
        assert (verdict.ok, verdict.optimal, verdict.optimum) == (True, False, "open")
        assert (verdict.bound, verdict.value, verdict.message) == (7, 9, "the bound holds")


def test_a_tolerance_met_by_a_bound_without_a_witness_is_said() -> None:
    chunks = Chunks.from_arrays(src=[0, 0, 0], dst=[1, 2, 1], size=[5, 5, 4], nodes=3)
    said = ("within the tolerance by a bound",)
    for tolerance, notes in ((0, ()), (Fraction(1, 8), said), (Fraction(1, 5), said)):
        race = Race(Fabric.uniform(3, 2, 1, gpus=1), chunks, 1.0, tolerance=Fraction(tolerance))
        race.lift(*first_bound(race.fabric, chunks), "average")
        race.offer(np.array([0, 1, 0], np.int16), Fraction(9), "a plan")
        race.lift_unchecked(Fraction(8), "a bound")
        assert race.met == bool(tolerance)
        solved = race.outcome()
        assert (solved.optimum, solved.bound, solved.notes) == ("open", 7, notes)


def test_a_bound_above_a_plan_is_not_used_and_said() -> None:
    chunks = Chunks.from_arrays(src=[0, 0, 0], dst=[1, 2, 1], size=[5, 5, 4], nodes=3)
    fabric = Fabric(3, 2, 2, np.ones((3, 2), np.int64), np.ones((3, 2), np.int64))
    race = Race(fabric, chunks, 1.0)
    race.lift(Fraction(9), {"kind": "claimed", "by": "a mistake"}, "a mistake")
    race.offer(np.array([0, 1, 1], np.int16), Fraction(9), "a plan")
    race.offer(np.array([0, 1, 0], np.int16), Fraction(8), "a better plan")
    assert (race.value, race.bound) == (8, 7)
    race.lift(Fraction(10), {"kind": "claimed", "by": "another"}, "another")
    assert race.bound == 7
    assert [note.split(" is not used")[0] for note in race.notes] == [
        "a bound of 9 s by a mistake above a plan of 8 s by a better plan",
        "a bound of 10 s by another above a plan of 8 s by a better plan",
    ]
    assert race.outcome().certificate.check().ok


def test_the_first_bound_and_the_plan_before_the_first_step() -> None:
    rates = np.array([[4, 0, 2], [0, 3, 3], [4, 4, 4]])
    rng = np.random.default_rng(1)
    src = rng.integers(0, 3, 50)
    dst = (src + rng.integers(1, 3, 50)) % 3
    chunks = Chunks.from_arrays(src=src, dst=dst, size=rng.integers(1, 99, 50), nodes=3)
    fabric = Fabric(3, 3, 3, rates, rates)
    plan = Race(fabric, chunks, 1.0).outcome().plan
    assert plan.send[rates == 0].sum() == plan.recv[rates == 0].sum() == 0
    bound, witness = first_bound(fabric, chunks)
    assert witness["kind"] == "node"
    assert 0 < bound <= railopt.solve(fabric, chunks, 60).value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"backend": []}, r"unknown back-end \[\]"),
        ({"start": 5}, "start is of type int: expected a Plan"),
        ({"report": 5}, "report = 5: expected a function"),
    ],
)
def test_arguments_of_another_type_are_refused(
    given: Any, message: str, moe: tuple[Fabric, Chunks]
) -> None:
    with pytest.raises(InputError, match=message):
        coupled.solve(*moe, **given)


@pytest.mark.parametrize("tolerance", [float("nan"), float("inf"), "x", None, -1])
def test_a_tolerance_that_is_none_is_refused(tolerance: Any) -> None:
    fabric = Fabric.uniform(2, 2)
    with pytest.raises(InputError, match="tolerance"):
        railopt.solve(fabric, workloads.moe(fabric).chunks("4MiB"), tolerance=tolerance)
