"""railopt schedule: tables, JSON, files, errors."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import astuple
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import railopt.cli.schedule as command
from railopt import Fabric, Plan
from railopt.base.errors import InputError
from railopt.base.units import format_time
from railopt.model.workloads import uniform
from railopt.schedule import KINDS, Schedule, report

Cli = Callable[..., Any]


def test_one_schedule(railopt_cli: Cli) -> None:
    ran = railopt_cli("schedule", "zipf:skew=0.8", "--nodes", 4)
    assert ran.code == 0
    assert "no schedule is faster than" in ran.out
    assert "compact" in ran.out


@pytest.mark.slow
def test_compare_lists_every_kind(railopt_cli: Cli) -> None:
    ran = railopt_cli("schedule", "zipf:skew=0.8", "--nodes", 4, "--compare", "--json")
    rows = json.loads(ran.out)
    assert ran.code == 0
    assert [row["kind"] for row in rows] == list(KINDS)
    assert all(row["modelled_us"]["ratio"] >= 1 and row["synthesis_us"] > 0 for row in rows)
    assert len({row["line_sum"] for row in rows}) == 1


@pytest.mark.slow
def test_the_two_bounds_have_two_names(railopt_cli: Cli) -> None:
    """Each ratio that is printed is the total that is printed over the bound that is named."""
    ran = railopt_cli("schedule", "zipf:skew=0.8", "--nodes", 4, "--compare")
    exact, model, columns, _, *rows = ran.out.splitlines()
    data = json.loads(
        railopt_cli("schedule", "zipf:skew=0.8", "--nodes", 4, "--compare", "--json").out
    )
    seconds = Fraction(data[0]["bound"]["seconds"])
    assert exact.endswith(f"no schedule is faster than {format_time(seconds)}")
    named = float(re.search(r"makes that bound ([\d.]+) us", model)[1])  # type: ignore[index]
    assert named == pytest.approx(data[0]["modelled_us"]["bound"], abs=0.05)
    assert "/model's bound" in columns
    for row in rows:
        *_, total, ratio, _ = row.split()
        assert float(total) / named == pytest.approx(float(ratio), abs=2e-3)


def test_files(railopt_cli: Cli, tmp_path: Path) -> None:
    names = {name: str(tmp_path / name) for name in ("s.npz", "p.npz", "c.cm")}
    words = (
        "uniform",
        "--nodes",
        "3",
        "--rails",
        "4",
        "--kind",
        "fast",
        "--order",
        "ascending",
        "-o",
        names["s.npz"],
        "--plan",
        names["p.npz"],
        "--cm",
        names["c.cm"],
        "--chunk",
        "64KiB",
        "--json",
    )
    code, out, err = astuple(railopt_cli("schedule", *words))
    data = json.loads(out)
    assert code == 0
    assert err.count("saved") == 3
    schedule, plan = Schedule.read(names["s.npz"]), Plan.read(names["p.npz"])
    assert (schedule.kind, schedule.order) == ("fast", "ascending")
    assert plan.chunks.largest == 65536
    assert Path(names["c.cm"]).read_text() == schedule.to_cm()
    again = json.loads(railopt_cli("schedule", names["s.npz"], "--json").out)
    assert {key: again[key] for key in ("stages", "total", "bound", "modelled_us")} == {
        key: data[key] for key in ("stages", "total", "bound", "modelled_us")
    }
    code, _, err = astuple(railopt_cli("schedule", *words))
    assert code == 1
    assert "exists" in err
    assert railopt_cli("schedule", *words, "--force").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing", "--nodes", "4"), "neither a file nor a workload"),
        (("uniform", "--nodes", "4", "--eps", "huge"), "eps = 'huge'"),
        (("uniform", "--nodes", "4", "--rails", "4", "--gpus", "8"), "one NIC per GPU"),
        (("uniform", "--nodes", "4", "--plan", "/nowhere/p.npz"), "does not exist"),
    ],
)
def test_bad_input(railopt_cli: Cli, words: tuple[str, ...], message: str) -> None:
    code, out, err = astuple(railopt_cli("schedule", *words))
    assert code == 1
    assert out == ""
    assert message in err


def test_servers_that_differ_in_gpus(railopt_cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "matrix.txt"
    path.write_text("\n".join(" ".join("1" for _ in range(7)) for _ in range(7)) + "\n")
    code, _, err = astuple(railopt_cli("schedule", path, "--nodes", 2, "--rails", 4))
    assert code == 1
    assert "7 x 7" in err


def test_nothing_to_send(railopt_cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "zero.txt"
    np.savetxt(path, np.zeros((8, 8), np.int64), fmt="%d")
    words = ("schedule", path, "--nodes", 2, "--rails", 4)
    code, out, _ = astuple(railopt_cli(*words, "--json"))
    data = json.loads(out)
    assert code == 0
    assert (data["stages"], data["total"]) == (0, 0)
    assert railopt_cli(*words, "--compare").code == 0


@pytest.mark.parametrize(
    ("words", "flag"),
    [
        (("--chunk", "64KiB"), "--chunk"),
        (("--force",), "--force"),
        (("--compare", "--kind", "fast"), "--kind"),
        (("--compare", "--order", "built"), "--order"),
        (("--compare", "--eps", "0"), "--eps"),
        (("--kind", "fast", "--eps", "0"), "eps"),
        (("--kind", "fast", "--startup", "1MiB"), "startup"),
        (("--order", "built", "--startup", "1MiB"), "startup"),
    ],
)
def test_a_flag_that_can_do_nothing_is_an_error(
    railopt_cli: Cli, words: tuple[str, ...], flag: str
) -> None:
    ran = railopt_cli("schedule", "uniform", "--nodes", 3, "--rails", 2, *words)
    assert (ran.code, ran.out) == (1, "")
    assert f"{flag} can't do anything" in ran.err


@pytest.mark.parametrize(
    "words", [("--kind", "fast"), ("--eps", "0"), ("--nodes", "3"), ("--compare",)]
)
def test_a_saved_schedule_is_not_made_again(
    railopt_cli: Cli, tmp_path: Path, words: tuple[str, ...]
) -> None:
    path = tmp_path / "s.npz"
    assert railopt_cli("schedule", "uniform", "--nodes", 3, "--rails", 2, "-o", path).code == 0
    ran = railopt_cli("schedule", path, *words)
    assert ran.code == 1
    assert f"{words[0]} can't do anything with" in ran.err


@pytest.mark.parametrize("startup", ["30us", "1MiB"])
def test_compare_makes_what_a_kind_alone_makes(railopt_cli: Cli, startup: str) -> None:
    words = ("schedule", "moe:seed=3,tokens=512", "--nodes", 4, "--rails", 4, "--json")
    made = {}
    for more in ((), ("--compare",)):
        rows = json.loads(railopt_cli(*words, "--startup", startup, *more).out)
        first = rows[0] if more else rows
        made[more] = {key: first[key] for key in ("kind", "stages", "total", "modelled_us")}
    assert made[()] == made["--compare",]
    assert made[()]["stages"] < json.loads(railopt_cli(*words).out)["stages"]


def test_nothing_is_written_where_a_certificate_is_refused(
    railopt_cli: Cli, tmp_path: Path
) -> None:
    words = ("schedule", "uniform", "--nodes", 3, "--rails", 2, "--degrade", "0:1=0.5")
    for flag in ("--certificate", "--stages-certificate"):
        files = ("-o", tmp_path / "s.npz", flag, tmp_path / "c.json", "--cm", tmp_path / "c.cm")
        ran = railopt_cli(*words, *files)
        assert (ran.code, list(tmp_path.iterdir())) == (1, [])
        assert "NICs of different rate" in ran.err


def test_one_peer_is_said_so(railopt_cli: Cli) -> None:
    ran = railopt_cli("schedule", "uniform", "--nodes", 2, "--rails", 1, "--optimum")
    assert "server 0 has 1 peer over NIC 0, 1 stage with 700ns start-up" in ran.out


@pytest.mark.parametrize("text", ["1min", "60s", "6e7 us"])
def test_a_start_up_is_any_time(text: str) -> None:
    assert command._startup(text) == 60


def test_one_file_for_two_things_is_refused(railopt_cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    words = ("schedule", "uniform", "--nodes", 3, "--rails", 2, "--plan", path, "-o", path)
    for more in ((), ("--force",)):
        ran = railopt_cli(*words, *more)
        assert (ran.code, ran.out, path.exists()) == (1, "", False)
        assert "is to be written twice" in ran.err


def test_nothing_is_written_where_one_of_the_files_exists(railopt_cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "c.cm").write_text("mine")
    files = ("-o", tmp_path / "s.npz", "--plan", tmp_path / "p.npz", "--cm", tmp_path / "c.cm")
    ran = railopt_cli("schedule", "uniform", "--nodes", 3, "--rails", 2, *files)
    assert ran.code == 1
    assert [path.name for path in tmp_path.iterdir()] == ["c.cm"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--nodes", 8192], "8192 servers: the stages take about 21 min or more, and 4.3 GB; "),
        (["--nodes", 8192, "--compare"], "8192 servers: "),
        (["--nodes", 8192, "--limit", "1s"], "8192 servers: the stages take 4.3 GB\n"),
        (["--nodes", 8192, "--kind", "spreadout"], "8192 servers: the stages take 4.3 GB\n"),
        (["--nodes", 512, "--kind", "fast"], "512 servers: FAST has up to 262144 stages, 5 GB, "),
        (["--nodes", 2048, "--kind", "spreadout"], ""),
        (["--nodes", 64], ""),
    ],
)
def test_a_search_that_takes_long_says_so_before_it_begins(
    railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch, words: list[Any], said: str
) -> None:
    def enough(*_: Any, **__: Any) -> Any:
        raise InputError("enough")

    monkeypatch.setattr("railopt.cli.common.traffic_from", enough)
    ran = railopt_cli("schedule", "uniform", "--rails", 1, *words)
    assert ran.err.startswith("railopt: error: enough"), "what can't be read takes no time"
    monkeypatch.setattr("railopt.cli.common.traffic_from", lambda *_: None)
    monkeypatch.setattr(command, "require_two_levels", lambda *_: None)
    monkeypatch.setattr(command, "cost", enough)
    monkeypatch.setattr(command, "compare", enough)
    ran = railopt_cli("schedule", "uniform", "--rails", 1, *words)
    assert ran.code == 1
    assert ran.err.startswith(said or "railopt: error: enough")


def test_a_search_ends_at_its_limit(railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no stage by then goes as in spreadout: every byte once, the bound below."""
    monkeypatch.setattr("railopt.schedule.synthesis.MANY", 4)
    monkeypatch.setattr("railopt.schedule.compact.ENTRIES", 1)
    words = ["schedule", "zipf:skew=0.8", "--nodes", 8, "--rails", 2, "--json"]
    whole, cut = railopt_cli(*words), railopt_cli(*words, "--limit", "0s")
    assert (whole.code, "--limit" in whole.err, cut.code) == (0, False, 0)
    assert cut.err.count("--limit: ") == 1
    assert "the others go as in spreadout" in cut.err
    early, late = json.loads(cut.out), json.loads(whole.out)
    assert early["line_sum"] == late["line_sum"] <= late["total"] < early["total"]
    refused = railopt_cli(*words, "--limit", "1s", "--kind", "fast")
    assert refused.code == 1
    assert "fast, which is not searched for" in refused.err


def test_a_long_schedule_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are timed three times more."""
    fabric, calls = Fabric.uniform(3, 2), list[int]()
    real = report.synthesise

    def counted(*args: Any, **options: Any) -> Schedule:
        calls.append(1)
        return real(*args, **options)

    monkeypatch.setattr(report, "synthesise", counted)
    for long_s, made in ((1e9, 1 + report.REPEATS), (-1e9, 1)):
        monkeypatch.setattr(report, "LONG_S", long_s)
        calls.clear()
        report.cost(fabric, uniform(fabric), "spreadout")
        assert len(calls) == made


def test_rates_of_the_fabric_and_a_start_up_of_ones_own(railopt_cli: Cli) -> None:
    words = (
        "schedule",
        "zipf:skew=0.8",
        "--nodes",
        4,
        "--degrade",
        "1:2=0.5",
        "--degrade",
        "3:0=0",
    )
    data = json.loads(railopt_cli(*words, "--links", "fabric", "--startup", "3us", "--json").out)
    parts = data["modelled_us"]
    assert parts["startup"] == pytest.approx(3 * data["stages"])
    assert parts["bound"] == pytest.approx(1e6 * data["bound"]["seconds_float"], rel=1e-6)
    assert parts["bound"] + 3 * 3 == pytest.approx(data["least_us"])
    assert parts["total"] >= data["least_us"]
