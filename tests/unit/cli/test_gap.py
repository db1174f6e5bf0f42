"""The commands gap and solve: what they print and save, flags that could do nothing, and Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Plan, check, plan, workloads
from railopt.cli import progress
from railopt.solver.coupled.race import Progress
from tests.bench import trace

Cli = Callable[..., Any]
SMALL = ["--nodes", "3", "--rails", "4"]
FABRIC = Fabric.uniform(nodes=4, rails=4)
CHUNKS = workloads.moe(FABRIC, skew=0.5, seed=2, tokens=512).chunks("256KiB")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A plan by lpt, as a file."""
    path = tmp_path / "plan.npz"
    plan(FABRIC, CHUNKS, "lpt").save(path)
    return path


@pytest.mark.slow
def test_gap(tmp_path: Path, railopt_cli: Cli) -> None:
    certificates, figure = tmp_path / "certs", tmp_path / "gap.svg"
    arguments = ["gap", "moe:skew=0.5,tokens=256", *SMALL, "--chunk", "64KiB,1MiB", "--json"]
    arguments += ["--limit", "20s", "--moved", "--certificate", certificates, "--figure", figure]
    ran = railopt_cli(*arguments)
    assert ran.code == 0
    rows = json.loads(ran.out)["rows"]
    assert [(row["policy"], row["chunk"]) for row in rows] == [
        (policy, cap)
        for cap in ("64KiB", "1MiB")
        for policy in ("lpt", "lpt-local", "equitable", "even-excess", "spill")
    ]
    for row in rows:
        verdict = check(row["certificate"])
        assert verdict.ok
        assert verdict.bound == Fraction(row["certified_bound"])
        assert verdict.value == Fraction(row["value"])
        assert row["optimum"] in ("known", "claimed", "open")
        assert row["optimal"] == (row["optimum"] == "known" and row["gap"] == "0")
        moved = check(Path(row["certificate"]).with_suffix(".moved.json"))
        assert moved.ok
        assert moved.value == row["moved"]["bytes"]
        assert moved.bound == row["moved"]["least"]
        assert row["moved"]["bytes"] == row["moved"]["staged"] + row["moved"]["passed_on"]
        assert Fraction(row["moved"]["above"]) == moved.value / moved.bound - 1
        assert row["moved"]["is_least"] == moved.optimal
    assert figure.read_text().startswith("<?xml")
    again = railopt_cli(*arguments)
    assert again.code == 1
    assert "--force" in again.err
    assert [row["value"] for row in json.loads(again.out)["rows"]] == [row["value"] for row in rows]


def test_gap_of_every_step_of_a_trace(tmp_path: Path, railopt_cli: Cli) -> None:
    counts = np.random.default_rng(3).integers(1, 400, (3, 2, 4, 8))
    np.save(tmp_path / "counts.npy", counts)
    trace, small = (
        f"{tmp_path / 'counts.npy'}:layer=1,hidden=4KiB",
        ["--nodes", "2", "--rails", "2"],
    )
    options = ["--policy", "own-nic,lpt", "--chunk", "1MiB", "--limit", "0s", "--json"]
    ran = railopt_cli("gap", f"{trace},step=all", *small, *options)
    assert ran.code == 0
    found = json.loads(ran.out)
    names = [f"step {step}, layer 1" for step in range(3) for _ in range(2)]
    assert [row["dispatch"] for row in found["rows"]] == names
    one = [
        json.loads(railopt_cli("gap", f"{trace},step={step}", *small, *options).out)["rows"]
        for step in range(3)
    ]
    assert [row["value"] for row in found["rows"]] == [row["value"] for rows in one for row in rows]
    for total, policy in zip(found["totals"], ("own-nic", "lpt"), strict=True):
        rows = [row for row in found["rows"] if row["policy"] == policy]
        value, bound = (sum(Fraction(row[name]) for row in rows) for name in ("value", "bound"))
        assert (total["policy"], total["traffics"]) == (policy, 3)
        assert (Fraction(total["value"]), Fraction(total["bound"])) == (value, bound)
        assert Fraction(total["gap"]) == (value - bound) / bound
    text = railopt_cli("gap", f"{trace},step=all", *small, *options[:-1]).out
    assert "step 2, layer 1" in text
    assert "own-nic, 1MiB: 3 dispatches take" in text
    refused = railopt_cli("gap", f"{trace},step=all", *small, "--figure", tmp_path / "gap.svg")
    assert refused.code == 1
    assert "3 dispatches: expected one" in refused.err


@pytest.mark.parametrize(
    "command",
    [
        ["plan"],
        ["solve", "--limit", "1s"],
        ["frontier", "--limit", "0s"],
        ["schedule"],
        ["simulate"],
        ["compare", "--degrade", "0:1=0.5", "--policy", "lpt"],
    ],
    ids=lambda words: words[0],
)
def test_commands_take_one_dispatch_of_a_trace(
    command: list[str], tmp_path: Path, railopt_cli: Cli
) -> None:
    np.save(tmp_path / "counts.npy", np.random.default_rng(3).integers(1, 400, (3, 2, 4, 8)))
    name, *options = command
    small = ["--nodes", "2", "--rails", "2", *options]
    ran = railopt_cli(name, f"{tmp_path / 'counts.npy'}:step=1,layer=0,hidden=4KiB", *small)
    assert ran.code in (0, 2), ran.err  # 2: the optimum is not known
    assert ran.out
    if name in ("frontier", "compare"):  # they take several, see below
        return
    refused = railopt_cli(name, f"{tmp_path / 'counts.npy'}:layer=all", *small)
    assert refused.code == 1
    assert "2 dispatches: expected one; choose step=" in refused.err


def test_compare_and_frontier_have_the_rows_of_every_dispatch(
    tmp_path: Path, railopt_cli: Cli
) -> None:
    path = tmp_path / "counts.npy"
    np.save(path, np.random.default_rng(3).integers(1, 400, (1, 2, 4, 8)))
    small = ["--nodes", "2", "--rails", "2", "--policy", "lpt,own-nic"]
    for name, options in (("compare", ["--degrade", "0:1=0.5"]), ("frontier", ["--limit", "0s"])):
        line = [*small, *options]
        apart = [railopt_cli(name, f"{path}:layer={i}", *line, "--json").out for i in range(2)]
        ran = railopt_cli(name, f"{path}:layer=all", *line, "--json")
        found = json.loads(ran.out)["dispatches"]
        assert [one.pop("dispatch") for one in found] == ["step 0, layer 0", "step 0, layer 1"]
        assert found == list(map(json.loads, apart))
        text = railopt_cli(name, f"{path}:layer=all", *line).out
        assert "step 0, layer 1  lpt" in text
        refused = railopt_cli(name, f"{path}:layer=all", *line, "--figure", tmp_path / "x.svg")
        assert refused.code == 1
        assert "2 dispatches: expected one" in refused.err
        if name == "compare":
            lpt, _, bound = json.loads(ran.out)["totals"]
            both = [one["policies"][0] for one in found]
            assert Fraction(lpt["degraded"]) == sum(Fraction(one["degraded"]) for one in both)
            least = sum(Fraction(one["degraded_bound"]) for one in found)
            assert (bound["policy"], Fraction(bound["degraded"])) == ("bound", least)
            assert "all              bound" in text


def test_convert_writes_a_file_per_dispatch(tmp_path: Path, railopt_cli: Cli) -> None:
    path, out = tmp_path / "counts.npy", tmp_path / "bytes.csv"
    np.save(path, np.random.default_rng(3).integers(1, 400, (1, 2, 4, 8)))
    small = ["--nodes", "2", "--rails", "2"]
    ran = railopt_cli("convert", f"{path}:layer=all", out, *small)
    assert ran.code == 0, ran.err
    made = [tmp_path / f"bytes.step-0.layer-{i}.csv" for i in range(2)]
    for i, file in enumerate(made):
        assert railopt_cli("convert", f"{path}:layer={i}", out, *small, "--force").code == 0
        assert file.read_text() == out.read_text()
    made[0].unlink()
    assert railopt_cli("convert", f"{path}:layer=all", out, *small).code == 1
    assert not made[0].exists()  # the second is in the way: none is written


def test_gap_of_plans_prints_a_table_that_keeps_two_facts_apart(
    saved: Path, railopt_cli: Cli
) -> None:
    ran = railopt_cli("gap", saved, "--limit", "20s", "--wide")
    assert ran.code == 0
    head, _, row = ran.out.splitlines()
    start = head.index("gap %")
    assert head[start:].split() == ["gap", "%", "plan", "optimum", "best", "%", "time"]
    assert row.startswith("lpt")
    assert "known" in row
    assert "optimal" not in row


def test_the_table_fits_100_columns_and_has_what_is_moved_only_if_asked(railopt_cli: Cli) -> None:
    line = ["gap", "moe:skew=0.5", "--policy", "lpt-global,even-excess", "--chunk", "64KiB,flow"]
    ran = railopt_cli(*line, "--limit", "0s")
    assert ran.code == 0
    assert max(map(len, ran.out.splitlines())) <= 100
    assert "moved" not in ran.out
    more = railopt_cli(*line, "--limit", "0s", "--moved")
    assert more.out.splitlines()[0].split()[-4:] == ["moved", "least", "above", "%"]
    assert max(map(len, more.out.splitlines())) <= 100
    assert [" optimal " in row for row in more.out.splitlines()[2:]] == [
        " optimal " in row for row in ran.out.splitlines()[2:]
    ]
    assert " optimal " in more.out
    rows = json.loads(railopt_cli(*line, "--limit", "0s", "--json").out)["rows"]
    assert not any("moved" in row for row in rows)


def test_gap_passes_through_few_modules(tmp_path: Path) -> None:
    traffic = str(tmp_path / "traffic.npz")
    assert trace.run(["convert", "moe:skew=0.8", traffic, *SMALL]) == 0
    asked = ["gap", traffic, *SMALL, "--limit", "60s"]
    assert trace.run(asked) == 0
    assert len(trace.traced(asked).calls) <= 32


def test_solve(tmp_path: Path, railopt_cli: Cli) -> None:
    best, proof, model = (tmp_path / name for name in ("best.npz", "c.json", "m.lp"))
    arguments = ["solve", "moe:tokens=256", *SMALL, "--chunk", "1MiB", "-o", best, "--json"]
    arguments += ["--certificate", proof, "--write-model", model]
    ran = railopt_cli(*arguments)
    assert ran.code == 0
    data = json.loads(ran.out)
    assert (data["optimum"], data["optimal"]) == ("known", True)
    assert not {"status", "proved"} & set(data)
    assert check(proof).optimal
    assert Plan.read(best).makespan == Fraction(data["value"])
    assert model.read_text().startswith("\\ t is in units of")
    again = railopt_cli(*arguments)
    assert again.code == 1
    assert "--force" in again.err


@pytest.mark.slow
def test_solve_writes_the_model_of_a_plan(tmp_path: Path, saved: Path, railopt_cli: Cli) -> None:
    for name in ("m.mps", "N.MPS"):
        assert railopt_cli("solve", saved, "--write-model", tmp_path / name).code == 0
        assert "NAME railopt" in (tmp_path / name).read_text()


def test_a_plan_that_cannot_be_saved_is_printed_all_the_same(
    tmp_path: Path, railopt_cli: Cli
) -> None:
    ran = railopt_cli("solve", "moe:tokens=256", *SMALL, "-o", "/dev/full", "--json")
    assert ran.code == 1
    assert json.loads(ran.out)["optimum"] == "known"
    (tmp_path / "best.npz").touch()  # what is known before is said before
    ran = railopt_cli("solve", "moe:tokens=256", *SMALL, "-o", tmp_path / "best.npz", "--json")
    assert (ran.code, ran.out) == (1, "")


@pytest.mark.parametrize("other", ["--certificate", "--write-model"])
def test_solve_refuses_one_file_for_two_things(
    other: str, tmp_path: Path, railopt_cli: Cli
) -> None:
    path = tmp_path / "m.npz"
    line = ["solve", "moe:tokens=64", *SMALL, "-o", path, other, path, "--force"]
    ran = railopt_cli(*line)
    assert (ran.code, ran.out, path.exists()) == (1, "", False)
    assert "is to be written twice" in ran.err


def test_a_figure_of_nothing_is_refused_after_the_table(tmp_path: Path, railopt_cli: Cli) -> None:
    line = ["gap", "uniform", "--nodes", "1", "--chunk", "1MiB", "--limit", "0s"]
    ran = railopt_cli(*line, "--figure", tmp_path / "f.svg")
    assert ran.code == 1
    assert "there is nothing to draw" in ran.err
    assert "lpt" in ran.out


def test_solve_without_a_living_rail_is_infeasible(tmp_path: Path, railopt_cli: Cli) -> None:
    dead = [f"--degrade={nic}=0" for nic in ("0:0", "0:1", "0:2", "1:3")]
    ran = railopt_cli("solve", "moe", *SMALL, *dead)
    assert ran.code == 2
    assert "no living rail" in ran.err
    assert "saved" not in ran.err
    files = ["-o", tmp_path / "best.npz", "--certificate", tmp_path / "best.json"]
    ran = railopt_cli("solve", "moe", *SMALL, *dead, *files, "--json")
    assert (ran.code, ran.out) == (2, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gap", "moe", "--policy", "best"], "unknown policy 'best'"),
        (["gap", "moe", "--policy", ","], "no policy in"),
        (["gap", "moe", "zipf"], "expected one"),
        (["gap", "PLAN", "moe"], "either plans or one traffic"),
        (
            ["gap", "PLAN", "--policy", "lpt"],
            "--policy can't do anything with a plan, which has its own",
        ),
        (["gap", "PLAN", "--chunk", "1MiB", "--nodes", "4"], "--chunk can't do anything"),
        (["gap", "PLAN", "--degrade", "0:0=0"], "--degrade can't do anything"),
        (["gap", "moe", "--seed", "0", "--limit", "0s"], "--seed can't do anything"),
        (["gap", "moe", "--force", "--limit", "0s"], "--force can't do anything"),
        (["solve", "moe", "--backend", "gurobi"], "unknown back-end"),
        (["solve", "moe", "--limit", "0s"], "time limit"),
        (["solve", "moe", "--write-model", "model.txt", *SMALL], ".lp or .mps"),
        (["solve", "PLAN", "--chunk", "1MiB"], "--chunk can't do anything with a plan"),
        (["solve", "PLAN", "--link", "100Gb/s"], "--link can't do anything"),
        (["solve", "moe", "--backend", "highs", "--seed", "0"], "--seed can't do anything"),
        (["solve", "moe", "--write-model", "m.lp", "--limit", "5s"], "--limit can't do anything"),
        (["solve", "moe", "--force"], "--force can't do anything"),
    ],
)
def test_bad_usage(arguments: list[str], message: str, saved: Path, railopt_cli: Cli) -> None:
    ran = railopt_cli(*(saved if word == "PLAN" else word for word in arguments))
    assert ran.code == 1
    assert message in ran.err
    assert ran.out == "" or arguments[0] == "gap"


def test_ctrl_c_prints_the_rows_so_far(
    tmp_path: Path, railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 130, and the best value and bound of what was at work."""

    def interrupts(label: str, now: Progress) -> None:
        if now.value is not None and now.stage != "hash":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)

    monkeypatch.setattr("railopt.cli.gap.show", interrupts)
    path = tmp_path / "slow.npz"
    plan(FABRIC, CHUNKS, "hash").save(path)
    began = time.monotonic()
    ran = railopt_cli("gap", path, path, "--limit", "10min", "--json")
    assert ran.code == 130
    assert time.monotonic() - began < 60
    data = json.loads(ran.out)
    assert data["interrupted"]
    (row,) = data["rows"]
    assert row["notes"] == ["interrupted"]
    assert 0 < Fraction(row["bound"]) <= Fraction(row["best"]) <= Fraction(row["value"])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_before_the_first_row(railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from railopt.answers import gap as gaps

    def interrupted(*args: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(gaps, "policy_named", lambda name: interrupted)
    ran = railopt_cli("gap", "moe:tokens=64", *SMALL, "--json")
    assert ran.code == 130
    assert json.loads(ran.out) == {"interrupted": True, "rows": []}


@pytest.mark.parametrize(
    ("value", "bound", "said"),
    [
        (None, None, "1MiB  search"),
        (None, Fraction(1, 125), "1MiB  bound 8ms  search"),
        (Fraction(1, 100), Fraction(0), "1MiB  value 10ms  search"),
        (Fraction(1, 100), Fraction(1, 125), "1MiB  value 10ms  bound 8ms  gap 25 %  search"),
    ],
)
def test_progress_shows_value_and_bound_once_there_are_any(
    value: Fraction | None,
    bound: Fraction | None,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stages: list[Callable[[], str]] = []
    monkeypatch.setattr(progress, "stage", stages.append)
    progress.show("1MiB", Progress(value, bound, "search"))
    assert [say() for say in stages] == [said]


def test_a_bound_is_shown_before_the_first_plan(
    railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And from there on, whatever is at work."""
    seen: list[Progress] = []
    monkeypatch.setattr("railopt.cli.gap.show", lambda label, now: seen.append(now))
    line = ["gap", "moe:tokens=64", *SMALL, "--policy", "hash,lpt", "--chunk", "1MiB"]
    assert railopt_cli(*line).code == 0
    assert [now.stage for now in seen[:3]] == ["chunks", "hash", "lpt"]
    assert seen[1].value is None
    assert seen[2].value is not None
    assert all(now.bound for now in seen[1:])
