"""The command line as a user meets it: output, exit codes, messages, nothing written on failure."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from railopt import Fabric, Plan, Traffic
from railopt.cli.main import COMMANDS

Cli = Callable[..., object]


def test_help_names_every_command(railopt_cli: Cli) -> None:
    ran = railopt_cli("--help")
    assert ran.code == 0
    for name in COMMANDS:
        assert name in ran.out


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(railopt_cli: Cli, command: str) -> None:
    ran = railopt_cli(command, "--help")
    assert ran.code == 0
    assert "example" in ran.out.lower()
    assert f"railopt {command}" in ran.out


def test_usage_errors_are_exit_code_1(railopt_cli: Cli) -> None:
    for arguments in ([], ["nonsense"], ["plan"], ["plan", "moe", "--colour"]):
        ran = railopt_cli(*arguments)
        assert ran.code == 1
        assert ran.out == ""


def test_plan_and_convert(railopt_cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "plan.npz"
    ran = railopt_cli(
        "plan",
        "moe:seed=1,tokens=64",
        "--nodes",
        4,
        "--rails",
        4,
        "--chunk",
        "16KiB",
        "-o",
        out,
        "--json",
    )
    assert ran.code == 0
    data = json.loads(ran.out)
    assert Plan.load(out).makespan == Fraction(data["value"])
    assert Fraction(data["gap"]) == Fraction(data["value"]) / Fraction(data["bound"]) - 1
    assert railopt_cli("convert", out, tmp_path / "plan.cm").code == 0
    assert (tmp_path / "plan.cm").read_text().startswith("Nodes 16\n")
    assert (
        railopt_cli(
            "plan", "moe:seed=1,tokens=64", "--nodes", 4, "--rails", 4, "-o", tmp_path / "direct.cm"
        ).code
        == 0
    )
    matrix = tmp_path / "matrix.txt"
    assert (
        railopt_cli("convert", "moe:seed=1,tokens=64", matrix, "--nodes", 4, "--rails", 4).code == 0
    )
    assert railopt_cli("convert", matrix, tmp_path / "t.npz", "--nodes", 4, "--rails", 4).code == 0
    assert Traffic.load(tmp_path / "t.npz").nodes == 4


def test_convert_fabrics(railopt_cli: Cli, tmp_path: Path) -> None:
    toml, topo, back = tmp_path / "f.toml", tmp_path / "f.topo", tmp_path / "g.toml"
    toml.write_text('nodes = 4\nrails = 2\nlink = "400Gb/s"\n[spine]\nuplinks = 4\n')
    assert railopt_cli("convert", toml, topo).code == 0
    assert railopt_cli("convert", topo, back).code == 0
    assert Fabric.read(back) == Fabric.read(toml)
    toml.write_text(
        'nodes = 4\nrails = 2\nlink = "400Gb/s"\n[[nic]]\nnode = 0\nrail = 0\nfraction = "0.5"\n'
    )
    ran = railopt_cli("convert", toml, tmp_path / "slow.topo")
    assert ran.code == 1
    assert "one link rate" in ran.err


def test_check_a_plan_against_its_traffic(railopt_cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "plan.npz"
    railopt_cli(
        "plan", "zipf:mean=64KiB,seed=3", "--nodes", 3, "--rails", 2, "--chunk", "16KiB", "-o", out
    )
    ran = railopt_cli("check", out, "--traffic", "zipf:mean=64KiB,seed=3")
    assert (ran.code, "sends every byte" in ran.out) == (0, True)
    ran = railopt_cli("check", out, "--traffic", "zipf:mean=64KiB,seed=4")
    assert (ran.code, "the traffic has" in ran.out) == (4, True)
    made = Plan.load(out)
    twice = Plan(
        made.fabric,
        made.chunks.take(np.r_[0, np.arange(len(made.chunks))]),
        np.r_[made.rail[0], made.rail],
    )
    assert "again" in twice.misses(Traffic.from_chunks(made.chunks))
    short = Plan(made.fabric, made.chunks.take(np.arange(1, len(made.chunks))), made.rail[1:])
    assert "leaves bytes out" in short.misses(Traffic.from_chunks(made.chunks))
    (tmp_path / "torn.npz").write_bytes(out.read_bytes()[:500])
    assert railopt_cli("check", tmp_path / "torn.npz").code == 1


def test_check_a_schedule(railopt_cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "schedule.npz"
    assert railopt_cli("schedule", "zipf", "--nodes", 3, "--rails", 2, "-o", out).code == 0
    ran = railopt_cli("check", out)
    assert (ran.code, "schedule" in ran.out) == (0, True)


BAD = [
    (["plan", "missing.txt"], "missing.txt"),
    (["plan", "nothing"], "known workloads: uniform"),
    (["plan", "moe", "--policy", "best"], "known policies: own-nic"),
    (["plan", "moe", "--chunk", "0B"], "at least 1 byte"),
    (["plan", "moe", "--chunk", "3parsecs"], "unknown unit"),
    (["plan", "moe", "--nodes", "0"], "whole number"),
    (["plan", "moe", "--link", "0Gb/s"], "above zero"),
    (["plan", "moe", "--degrade", "1=2"], "NODE:RAIL=FRACTION"),
    (["plan", "moe", "--degrade", "99:0=0.5"], "node below 8"),
    (["plan", "moe", "--fabric", "f.toml", "--nodes", "4"], "contradict"),
    (["plan", "moe", *[w for n in range(8) for w in ("--degrade", f"2:{n}=0")]], "node 2"),
    (["convert", "moe", "fabric.toml"], "a fabric comes from"),
]


@pytest.mark.parametrize(("arguments", "complaint"), BAD)
def test_bad_input_is_exit_code_1_and_writes_nothing(
    railopt_cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = railopt_cli(*arguments, *(["-o", "out.npz"] if arguments[0] == "plan" else []))
    assert ran.code == 1
    assert complaint in ran.err
    assert ran.err.startswith("railopt: error: ")
    assert ran.out == ""
    assert list(tmp_path.iterdir()) == []


def test_an_existing_output_is_kept(railopt_cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "plan.npz"
    out.write_text("precious")
    arguments = ["plan", "uniform:size=1KiB", "--nodes", 2, "--rails", 2, "-o", out]
    ran = railopt_cli(*arguments)
    assert (ran.code, out.read_text()) == (1, "precious")
    assert "--force" in ran.err
    assert railopt_cli(*arguments, "--force").code == 0
    assert Plan.load(out).policy == "lpt"


def test_demo(railopt_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = railopt_cli("demo")
    assert ran.code == 0
    assert (tmp_path / "railopt-demo.svg").read_text().startswith("<?xml")
    assert "picture: railopt-demo.svg" in ran.out
    assert [
        line.split()[3]
        for line in ran.out.splitlines()
        if line.split()[:1] in (["2"], ["4"], ["8"])
    ] == ["2", "4", "8"]
    data = json.loads(railopt_cli("demo", "--json").out)
    assert len(data["healthy"]) == len(data["slow NIC"]) == 10
    assert all(
        Fraction(row["value"]) >= Fraction(row["bound"])
        for row in data["healthy"] + data["slow NIC"]
    )
    gaps = {row["policy"]: Fraction(row["gap"]) for row in data["healthy"]}
    assert gaps["lpt-global"] <= gaps["lpt-local"] < gaps["lpt"] < gaps["pxn"]


def test_a_closed_pipe_is_not_a_traceback() -> None:
    ran = subprocess.run(
        f"{sys.executable} -m railopt plan uniform:size=1KiB --nodes 2 --rails 2 --json | true",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ran.stderr
