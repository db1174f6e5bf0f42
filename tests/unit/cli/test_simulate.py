"""railopt simulate, its picture and its export."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import railopt
from railopt import Fabric, Plan
from railopt.base.errors import InputError
from railopt.files.formats import parse_cm, parse_topo
from railopt.report.timeline_figure import timeline_figure
from railopt.sim import BALANCERS, Assumptions, Balancer, Fault, simulate
from railopt.sim.export import export_htsim

Cli = Callable[..., Any]
SMALL = ["--nodes", "4", "--rails", "4"]


@pytest.fixture
def plan() -> Plan:
    fabric = Fabric.uniform(4, 4)
    return railopt.plan(fabric, railopt.workloads.zipf(fabric, seed=1).chunks("64KiB"), "lpt")


def run_json(railopt_cli: Cli, *words: object) -> dict[str, Any]:
    ran = railopt_cli("simulate", *words, "--json")
    assert ran.code == 0, ran.err
    found: dict[str, Any] = json.loads(ran.out)
    return found


def test_a_saved_plan(tmp_path: Path, railopt_cli: Cli, plan: Plan) -> None:
    plan.save(tmp_path / "plan.npz")
    found = run_json(railopt_cli, str(tmp_path / "plan.npz"))
    assert found["policy"] == "lpt"
    assert found["completion_ps"] == simulate(plan).completion_ps
    assert found["bound_ps"] == pytest.approx(float(plan.makespan) * 1e12)
    assert found["any_plan_bound_ps"] <= found["bound_ps"]
    assert set(found["flow_completion_ps"]) == {"p50", "p90", "p99", "p100"}


@pytest.mark.slow
def test_the_inside_of_nodes(tmp_path: Path, railopt_cli: Cli) -> None:
    words = ("routing:tokens=64,ragged=0.5,seed=1", "--policy", "own-nic", *SMALL)
    times = {
        way: run_json(railopt_cli, *words, "--scale-up", way)["completion_ps"]
        for way in ("ignored", "pipelined", "before")
    }
    assert times["ignored"] <= times["pipelined"] < times["before"]
    found = run_json(railopt_cli, *words)
    assert found["staged"] == 0 < found["passed_on"]
    assert 0 < found["scale_up_ps"] <= times["pipelined"]
    assert re.search("staged in nodes +0B\n", railopt_cli("simulate", *words).out)
    assert run_json(railopt_cli, *words)["completion_ps"] == times["pipelined"]
    picture = tmp_path / "run.svg"
    drawn = railopt_cli("simulate", *words, "--scale-up", "before", "--timeline", picture)
    assert drawn.code == 0
    assert "passed on" in picture.read_text()
    for wrong, message in (
        (["--balancer", "ecmp", "--scale-up", "before"], "--scale-up can't do anything"),
        (["--scale-up", "before", "--export", tmp_path / "htsim"], "htsim has no scale-up links"),
    ):
        ran = railopt_cli("simulate", "zipf:seed=1", *wrong, *SMALL)
        assert ran.code == 1
        assert message in ran.err
    assert not (tmp_path / "htsim").exists()


def test_traffic_by_policy_and_by_balancer(railopt_cli: Cli) -> None:
    planned = run_json(railopt_cli, "zipf:seed=1", "--policy", "lpt", "--chunk", "64KiB", *SMALL)
    direct = run_json(railopt_cli, "zipf:seed=1", "--balancer", "ecmp", *SMALL)
    assert planned["bytes"] == direct["bytes"]
    assert planned["busbw_GBps"] > direct["busbw_GBps"]
    packets = run_json(
        railopt_cli, "zipf:seed=1", "--policy", "lpt", "--chunk", "64KiB", "--packets", *SMALL
    )
    assert packets["completion_ps"] == pytest.approx(
        planned["completion_ps"] * 4150 / 4086 + 1e6, rel=1e-6
    )
    slow = run_json(
        railopt_cli,
        "zipf:seed=1",
        "--chunk",
        "64KiB",
        "--alpha",
        "1us",
        "--incast",
        "0.01",
        "--exact",
        *SMALL,
    )
    assert slow["completion_ps"] > packets["completion_ps"]


def test_the_table_says_what_matters(railopt_cli: Cli) -> None:
    text = railopt_cli("simulate", "uniform", *SMALL).out
    for word in (
        "completion",
        "bound by port loads",
        "bound of any plan",
        "algbw",
        "busbw",
        "rails used",
        "p99",
    ):
        assert word in text


def test_csv_has_plain_numbers(railopt_cli: Cli) -> None:
    words = ("simulate", "uniform", *SMALL)
    found = run_json(railopt_cli, *words[1:])
    rows = dict(csv.reader(io.StringIO(railopt_cli(*words, "--format", "csv").out)))
    assert float(rows["completion"]) == pytest.approx(found["completion_ps"] / 1e12)
    assert float(rows["algbw, GB/s"]) == found["algbw_GBps"]
    assert float(rows["above it, %"]) == pytest.approx(100 * found["over_bound"])
    assert [float(rows[f"rail {rail} used, %"]) for rail in range(4)] == pytest.approx(
        [100 * share for share in found["rail_utilisation"]]
    )
    assert all(float(rows[name]) >= 0 for name in ("flows", "bytes", "flows, p99"))


def test_a_run_that_is_stuck_has_no_bandwidth_and_no_gap(railopt_cli: Cli) -> None:
    words = ["uniform", "--fault", "1us:0:0=0", *SMALL]
    ran = railopt_cli("simulate", *words, "--json")
    found = json.loads(ran.out)
    assert (ran.code, bool(found["stuck"])) == (2, True)
    assert [found[name] for name in ("over_bound", "algbw_GBps", "busbw_GBps")] == [None] * 3
    text = railopt_cli("simulate", *words).out
    assert "last delivered" in text
    assert "completion " not in text


@pytest.mark.slow
def test_a_stuck_run_exits_2_with_its_partial_timeline(tmp_path: Path, railopt_cli: Cli) -> None:
    picture = tmp_path / "run.svg"
    fault = ("--fault", "20us:1:2=0", "--timeline", picture, "--json")
    ran = railopt_cli("simulate", "uniform", *fault, *SMALL)
    assert ran.code == 2
    stuck = json.loads(ran.out)["stuck"]
    assert stuck
    assert f"{len(stuck)} of 192 chunks can't be delivered" in ran.err
    assert picture.read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--balancer", "spray", "--policy", "lpt"],
            "--policy can't do anything with --balancer",
        ),
        (["--balancer", "spray", "--chunk", "1MiB"], "--chunk can't do anything with --balancer"),
        (["--balancer", "spray", "--seed", "1"], "--seed can't do anything with --balancer spray"),
        (["--force"], "--force can't do anything"),
        (["--balancer", "luck"], "unknown balancer 'luck'"),
        (["--balancer", "ecmp", "--seed", "-1"], "a seed of -1: expected 0 or more"),
        (["--fault", "soon"], "expected TIME:NODE:RAIL=FRACTION"),
        (["--fault", "1us:0:0=1e-999999999"], "expected TIME:NODE:RAIL=FRACTION"),
        (["--incast", "much"], "--incast: 'much' is not a number"),
        (["--incast", "1/0"], "--incast"),
        (["--incast", "-1"], "incast = -1"),
        (["--degrade", "0:0=0", "--balancer", "ecmp"], "which has a rate of zero"),
        (["--timeline", "run.jpg"], ".svg, .pdf, .png, trace events as .json: give"),
        (["--timeline", "/nowhere/run.svg"], "does not exist"),
        (["--export", "/dev/null/here"], "can't be made"),
        (["--export", "x", "--fault", "1us:0:0=0.5"], "without faults"),
    ],
)
def test_bad_usage_exits_1_and_writes_nothing(
    words: list[str],
    message: str,
    railopt_cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = railopt_cli("simulate", "uniform", *words, *SMALL)
    assert (ran.code, ran.out) == (1, "")
    assert message in ran.err
    assert not list(tmp_path.iterdir())


def test_no_such_file(railopt_cli: Cli) -> None:
    ran = railopt_cli("simulate", "nowhere.npz", *SMALL)
    assert ran.code == 1
    assert "no such file" in ran.err.lower()


@pytest.mark.parametrize(
    "words",
    [
        ("--nodes", 4),
        ("--policy", "lpt"),
        ("--seed", 1),
        ("--balancer", "ecmp"),
    ],
)
def test_a_plan_brings_its_own_fabric(
    tmp_path: Path, railopt_cli: Cli, plan: Plan, words: tuple[object, ...]
) -> None:
    plan.save(tmp_path / "plan.npz")
    ran = railopt_cli("simulate", tmp_path / "plan.npz", *words)
    assert ran.code == 1
    assert f"{words[0]} can't do anything with" in ran.err


def test_the_picture_has_a_row_a_rail(plan: Plan) -> None:
    drawn = timeline_figure(simulate(plan))
    assert [axis.get_ylabel() for axis in drawn.axes] == [f"rail {n}" for n in range(4)]
    assert "transmit rate in use" in drawn.get_suptitle()
    timeline = simulate(plan, faults=[Fault(20_000_000, 1, 2)], partial=True)
    assert f"{len(timeline.stuck)} chunks stuck" in timeline_figure(timeline).get_suptitle()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("suffix", "start"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("svg", b"<?")]
)
def test_the_suffix_decides_what_the_timeline_is(
    tmp_path: Path, railopt_cli: Cli, suffix: str, start: bytes
) -> None:
    path = tmp_path / f"run.{suffix}"
    small = ("--nodes", "2", "--rails", "2")
    assert railopt_cli("simulate", "uniform", "--timeline", path, *small).code == 0
    assert path.read_bytes().startswith(start)


def test_a_balancer_is_one_entry(monkeypatch: pytest.MonkeyPatch, railopt_cli: Cli) -> None:
    """The first spine for everybody: the worst there is, and known to the command line at once."""
    monkeypatch.setitem(BALANCERS, "first", Balancer(lambda flows: np.zeros_like(flows.size)))
    crowded = run_json(railopt_cli, "uniform", "--balancer", "first", *SMALL)
    spread = run_json(railopt_cli, "uniform", "--balancer", "adaptive", *SMALL)
    assert crowded["completion_ps"] > 2 * spread["completion_ps"]


def test_the_export_is_the_same_run(tmp_path: Path, railopt_cli: Cli, plan: Plan) -> None:
    export_htsim(simulate(plan), tmp_path / "htsim")
    nics, connections = parse_cm((tmp_path / "htsim" / "run.cm").read_text())
    assert nics == 16
    sent = np.zeros((4, 4), np.int64)
    for connection in connections:
        rail, src = divmod(connection.src, 4)
        assert connection.dst // 4 == rail
        sent[src, rail] += connection.size
    assert np.array_equal(sent, plan.send)
    assert parse_topo((tmp_path / "htsim" / "fabric.topo").read_text())[:4] == (4, 4, 400, 500)
    export = ("--export", tmp_path / "direct")
    assert railopt_cli("simulate", "uniform", "--balancer", "ecmp", *export, *SMALL).code == 0
    direct = parse_cm((tmp_path / "direct" / "run.cm").read_text())[1]
    assert len(list(direct)) == 16 * 12


def test_stages_are_exported_as_barriers(tmp_path: Path, plan: Plan) -> None:
    staged = Plan(plan.fabric, plan.chunks, plan.rail, stage=np.arange(len(plan.chunks)) % 3)
    export_htsim(simulate(staged), tmp_path)
    text = (tmp_path / "run.cm").read_text()
    waits = re.findall(r"->\d+ id \d+ (start 0|trigger \d+) size", text)
    assert set(waits) == {"start 0", "trigger 1", "trigger 2"}
    assert len(waits) == len(list(parse_cm(text)[1]))
    with pytest.raises(InputError, match="a barrier a stage"):
        export_htsim(simulate(staged, assumptions=Assumptions(stages="node")), tmp_path, force=True)


def test_what_htsim_cannot_express_is_refused(tmp_path: Path, plan: Plan) -> None:
    with pytest.raises(InputError, match="without faults"):
        export_htsim(simulate(plan, faults=[Fault(0, 0, 0)], partial=True), tmp_path)
    slow = Plan(plan.fabric.degraded({(0, 0): "0.5"}), plan.chunks, plan.rail)
    with pytest.raises(InputError, match="one link rate"):
        export_htsim(simulate(slow), tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_export_is_whole_or_absent(tmp_path: Path, plan: Plan) -> None:
    (tmp_path / "fabric.topo").write_text("mine")
    with pytest.raises(InputError, match="exists"):
        export_htsim(simulate(plan), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["fabric.topo"]
