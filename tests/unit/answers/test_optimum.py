"""The best schedule of a small all-to-all, and the kinds beside it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Traffic
from railopt.answers.optimum import best_schedule
from railopt.base import processes
from railopt.base.errors import CheckFailed, Infeasible, InputError
from railopt.checker import check
from railopt.solver.epochs.best import best, one_by_one, paced
from railopt.solver.epochs.exchange import ChunkExchange, bound, lengths
from railopt.solver.epochs.lists import in_epochs
from railopt.solver.epochs.process import WholeAnswer, minimise
from railopt.solver.epochs.program import build
from railopt.solver.epochs.servers import between_gpus, between_servers

Cli = Callable[..., Any]


def exchange(startup: Fraction = Fraction(1, 10**6), **more: Any) -> tuple[Fabric, ChunkExchange]:
    """Three servers x 1 GPU; server 0 sends 5 chunks to 1 and 3 to 2, of 50 kB: 1 us each.  In two
    stages they take 9 us or more, in three 8.
    """
    fabric = Fabric.uniform(3, 1)
    matrix = np.array([[0, 5, 3], [4, 0, 2], [1, 3, 0]]) * 50_000
    traffic = Traffic.from_matrix(matrix, fabric)
    return fabric, ChunkExchange.of(fabric, traffic, 50_000, startup, **more)


@pytest.mark.slow
@pytest.mark.parametrize(("startup", "best_us", "stages"), [("1/2", "19/2", 3), ("2", "13", 2)])
def test_stages_are_weighed_against_their_start_ups(
    startup: str, best_us: str, stages: int
) -> None:
    fabric, asked = exchange(Fraction(startup) / 10**6)
    found = best_schedule(fabric, asked, limit_s=60)
    assert bound(asked).value * asked.unit == (8 + 2 * Fraction(startup)) / 10**6
    assert found.found.bracket.value == Fraction(best_us) / 10**6
    assert str(found.found.bracket.status) == "claimed"
    assert found.stages == stages
    assert found.kinds["spreadout"].time == (9 + 2 * Fraction(startup)) / 10**6
    assert all(found.distance(kind) >= 0 for kind in found.kinds)


def test_without_stages_a_nic_pays_for_each_server_that_it_sends_to() -> None:
    _, asked = exchange(Fraction(2, 10**6), stages=False)
    assert bound(asked).value * asked.unit == Fraction(8 + 2 * 2, 10**6)
    made = in_epochs(asked, asked.demand[tuple(asked.pairs.T)][:, None])
    assert len(lengths(asked, made)) >= 12
    late = made._replace(start=np.roll(made.start, 1, axis=0))
    with pytest.raises(CheckFailed, match="before its start-up is over"):
        lengths(asked, late)


def two_nics(recv: list[list[int]], **more: Any) -> ChunkExchange:
    """One GPU with two NICs in each of three servers; server 0 sends 7 chunks to 1 and 1 to 2."""
    demand = np.zeros((3, 3), np.int64)
    demand[0, 1:] = 7, 1
    ones = np.ones((3, 2), np.int64)
    given = {"startup": 1, "peers": 2, "epoch": 1, "unit": Fraction(1), **more}
    return ChunkExchange(demand, ones, np.array(recv), np.ones((1, 2), np.bool_), 1, **given)


def test_lines_know_whom_a_nic_can_call_and_reach() -> None:
    """In 5 epochs both NICs have 10, two of which are calls: but if both call server 1 and one of
    them server 2, three are, and if one calls server 1 it can't send 7.
    """
    alive = [[1, 1]] * 3
    assert bound(two_nics(alive)).value == 6
    assert bound(two_nics(alive, epoch=0)).value == 4 + 1
    far = [[1, 1], [1, 0], [1, 0]]
    assert bound(two_nics(far)).value == 8 + 2
    assert bound(two_nics(far, epoch=0, peers=1)).value == 8 + 2
    with pytest.raises(Infeasible, match="no rail is alive at both server 0 and server 2"):
        bound(two_nics([[1, 1], [1, 1], [0, 0]]))


@pytest.mark.parametrize("stages", [True, False])
@pytest.mark.parametrize(
    ("scaleup", "kind", "chunks", "us"), [("450GB/s", "lines", 10, 7), ("12.5GB/s", "port", 6, 5)]
)
def test_the_line_that_bounds_a_schedule_has_a_certificate(
    scaleup: str, kind: str, chunks: int, us: int, stages: bool
) -> None:
    """One NIC of server 0 takes 1 us per chunk, the other 2: ten need 7 us.  Its GPU 0 sends 6 over
    the former and a port that takes 4: they need 5.
    """
    fabric = Fabric.uniform(2, 2, scaleup=scaleup).degraded({(0, 1): Fraction(1, 2)})
    matrix = np.zeros((4, 4), np.int64)
    matrix[0, 2:], matrix[1, 2] = (3, 3), 4 if kind == "lines" else 0
    traffic = Traffic.from_matrix(matrix * 50_000, fabric)
    epoch = Fraction(4, 10**6)
    asked = ChunkExchange.of(fabric, traffic, 50_000, Fraction(0), epoch=epoch, stages=stages)
    found = best_schedule(fabric, asked, limit_s=0)
    assert (found.witness["kind"], found.witness["chunks"]) == (kind, chunks)
    made = found.certificate(fabric, 50_000).require()
    assert made.bound == Fraction(us, 10**6)
    assert not replace(made, bound=made.bound + Fraction(1, 10**12)).check().ok
    assert made.bound <= found.found.bracket.bound


@pytest.mark.parametrize(("scaleup", "servers"), [("450GB/s", 3), ("100GB/s", 6)])
def test_servers_stand_for_gpus_where_scale_up_is_never_full(scaleup: str, servers: int) -> None:
    fabric = Fabric.uniform(3, 2, scaleup=scaleup)
    matrix = np.random.default_rng(44).integers(0, 5, (6, 6)) * 50_000
    traffic = Traffic.from_matrix(matrix, fabric)
    asked = ChunkExchange.of(fabric, traffic, 50_000, Fraction(1, 10**6), stages=False)
    smaller = between_servers(asked, 10)
    assert len(smaller.demand) == servers
    load = np.zeros((len(smaller.pairs), 2), np.int64)
    load[:, 0] = smaller.demand[tuple(smaller.pairs.T)] // 2
    load[:, 1] = smaller.demand[tuple(smaller.pairs.T)] - load[:, 0]
    made = in_epochs(smaller, load)
    assert lengths(asked, between_gpus(asked, smaller, made)) == lengths(smaller, made)
    near = replace(asked, demand=np.eye(6, k=1, dtype=np.int64) * [0, 1, 0, 1, 0, 1])
    assert between_servers(near, 10) is near


def test_a_timetable_is_checked() -> None:
    _, asked = exchange()
    good = one_by_one(asked)
    assert sum(lengths(asked, good)) >= bound(asked).value
    with pytest.raises(CheckFailed, match="does not carry the demand"):
        lengths(asked, good._replace(wire=good.wire * 2))
    at_once = paced(asked, good.wire.sum(axis=0, keepdims=True))
    with pytest.raises(CheckFailed, match="more than 1 peers"):
        lengths(asked, at_once)


def test_epochs_that_do_not_divide_and_times_that_can_not_be_are_refused() -> None:
    with pytest.raises(InputError, match="does not divide into epochs of 1us"):
        exchange(Fraction(3, 2 * 10**6), stages=False)
    with pytest.raises(InputError, match="a start-up of -1 s: expected 0 or more"):
        exchange(Fraction(-1))
    fabric = Fabric.uniform(3, 1)
    with pytest.raises(InputError, match="chunk"):
        ChunkExchange.of(fabric, Traffic.from_matrix(np.eye(3, k=1), fabric), 0, Fraction(0))


def scaled(unit: int) -> ChunkExchange:
    """Server 0 sends 8 chunks to 1, of 2 units, and server 2 sends 1 to 0, of 3: one stage."""
    times = np.array([[2], [2], [3]]) * unit
    near = np.ones((1, 1), np.bool_)
    demand = np.array([[0, 8, 0], [0, 0, 0], [1, 0, 0]])
    return ChunkExchange(demand, times, times, near, unit, unit, 1, 0, Fraction(1))


@pytest.mark.slow
def test_a_row_without_an_end_has_none() -> None:
    program, _ = build(scaled(1 << 48), 3, 20 << 48)
    assert minimise(program, "cpsat", 60).status == "optimal"
    program, _ = build(scaled(1 << 58), 3, 20 << 58)
    assert "invalid" in str(minimise(program, "cpsat", 60).failure)


def test_a_backend_that_is_killed_at_its_limit_has_not_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(processes, "GRACE_S", 0.0)
    program, _ = build(scaled(1), 3, 20)
    assert minimise(program, "cpsat", 0.01) == WholeAnswer(None, "", None)


def test_nothing_to_send_takes_no_epoch() -> None:
    _, asked = exchange(stages=False)
    nothing = replace(asked, demand=np.zeros_like(asked.demand))
    assert best(nothing).bracket.value == 0
    with pytest.raises(InputError, match="unknown back-end 'scip'"):
        best(nothing, "scip")


def test_rates_without_a_common_unit_are_named() -> None:
    rates = np.array([[49_173_528_417], [48_912_345_671], [49_000_301_287]])
    fabric = Fabric.uniform(3, 1)
    traffic = Traffic.from_matrix(np.array([[0, 4, 3], [1, 0, 2], [3, 2, 0]]) << 18, fabric)
    for digits, refused in ((0, True), (8, False)):
        rounded = rates // 10**digits * 10**digits
        given = replace(fabric, tx=rounded, rx=rounded), traffic, 1 << 18, Fraction(7, 10**7)
        if refused:
            with pytest.raises(InputError, match=r"48912345671B/s.* rates of fewer digits"):
                ChunkExchange.of(*given)
        else:
            assert bound(ChunkExchange.of(*given)).value > 0


def test_on_the_command_line(railopt_cli: Cli, tmp_path: Path) -> None:
    matrix = np.array([[0, 2, 1], [1, 0, 2], [2, 1, 0]]) * 262_144
    np.savetxt(tmp_path / "m.csv", matrix, fmt="%d", delimiter=",")
    words = ("schedule", tmp_path / "m.csv", "--nodes", 3, "--rails", 1, "--optimum")
    ran = railopt_cli(*words, "--json")
    data = json.loads(ran.out)
    assert (ran.code, data["optimum"], data["stages"]) == (0, "known", 2)
    assert Fraction(data["value"]) == 3 * Fraction(262_144, 50 * 10**9) + Fraction(14, 10**7)
    line = data["witness"]
    assert Fraction(line["needs"]) + line["stages"]["count"] * Fraction(data["startup"]) == (
        Fraction(data["bound"])
    )
    ran = railopt_cli(*words, "--startup", "0", "--certificate", tmp_path / "line.json")
    assert "optimum known" in ran.out
    assert (
        "server 0 sends 3 chunks over NIC 0, 15.73us; server 0 has 2 peers over NIC 0, 2" in ran.out
    )
    assert "spreadout" in ran.out
    shown = check(tmp_path / "line.json")
    assert (shown.ok, shown.kind, shown.bound) == (True, "count", Fraction(line["needs"]))
    large = railopt_cli("schedule", "uniform", "--nodes", 16, "--optimum")
    assert large.code == 1
    assert "variables or more (15360 pairs x 8 rails, 5 periods): too large" in large.err
    assert railopt_cli(*words, "--epoch", "5us").code == 1
    none = railopt_cli(*words, "--kind", "pipelined", "--epoch", "0us")
    assert none.code == 1
    assert "--epoch must be more than 0" in none.err
