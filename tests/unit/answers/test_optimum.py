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
from railopt.answers.optimum import STARTUP, best_schedule
from railopt.base.errors import InputError
from railopt.checker import check
from railopt.model.workloads import from_spec
from railopt.solver.epochs.exchange import ChunkExchange, bound
from tests.drawn import exchange

Cli = Callable[..., Any]


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
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


@pytest.mark.parametrize("seed", [11, 12, 13, 14])
def test_few_chunks_are_scheduled_close_to_the_line(seed: int) -> None:
    """34 to 36 chunks per NIC, of odd numbers between servers: one of them is 3 %."""
    fabric = Fabric.uniform(3, 2)
    traffic = from_spec(f"moe:seed={seed},tokens=512", fabric)
    found = best_schedule(fabric, ChunkExchange.of(fabric, traffic, 1 << 18, STARTUP), limit_s=0)
    assert found.kinds["compact"].time <= bound(found.exchange).value * found.exchange.unit * 1.03


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
    with pytest.raises(InputError, match="a time limit of 'x'"):
        best_schedule(fabric, asked, limit_s="x")  # type: ignore[arg-type]
    found = best_schedule(fabric, asked, limit_s=0)
    assert (found.witness["kind"], found.witness["chunks"]) == (kind, chunks)
    made = found.certificate(fabric, 50_000).require()
    assert made.bound == Fraction(us, 10**6)
    assert not replace(made, bound=made.bound + Fraction(1, 10**12)).check().ok
    assert made.bound <= found.found.bracket.bound


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
    assert "variables (15360 pairs x 8 rails, 16 servers, 5 periods): too large" in large.err
    assert railopt_cli(*words, "--epoch", "5us").code == 1
    none = railopt_cli(*words, "--kind", "pipelined", "--epoch", "0us")
    assert none.code == 1
    assert "--epoch must be more than 0" in none.err


@pytest.mark.parametrize(("servers", "gpus", "most"), [(3, 2, 9), (4, 1, 17)])
@pytest.mark.parametrize("startup_us", [5, 20])
def test_compact_counts_start_ups(servers: int, gpus: int, most: int, startup_us: int) -> None:
    """Few chunks, each as long as a start-up or half as long: no other kind is faster."""
    fabric, chunk = Fabric.uniform(servers, gpus), 1 << 17
    for seed in range(12):
        matrix = np.random.default_rng(seed).integers(0, most, (servers * gpus,) * 2)
        np.fill_diagonal(matrix, 0)
        traffic = Traffic.from_matrix(matrix * chunk, fabric)
        asked = ChunkExchange.of(fabric, traffic, chunk, Fraction(startup_us, 10**6))
        kinds = best_schedule(fabric, asked, limit_s=0).kinds
        assert kinds["compact"].time == min(k.time for k in kinds.values())
