"""railopt simulate, its picture and its export."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest

import railopt
from railopt import Fabric, Plan
from railopt.cli.main import main
from railopt.errors import InputError
from railopt.formats import parse_cm, parse_topo
from railopt.sim import Assumptions, Fault, simulate
from railopt.sim.draw import timeline_svg
from railopt.sim.export import export_htsim

SMALL = ["--nodes", "4", "--rails", "4"]


@pytest.fixture
def plan() -> Plan:
    fabric = Fabric.uniform(4, 4)
    return railopt.plan(fabric, railopt.workloads.zipf(fabric, seed=1).chunks("64KiB"), "lpt")


def run_json(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, object]:
    assert main(["simulate", *words, "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_saved_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: Plan) -> None:
    plan.save(tmp_path / "plan.npz")
    found = run_json(capsys, str(tmp_path / "plan.npz"))
    assert found["policy"] == "lpt"
    assert found["completion_ps"] == simulate(plan).completion_ps
    assert found["bound_ps"] == pytest.approx(float(plan.makespan) * 1e12)
    assert found["any_plan_bound_ps"] <= found["bound_ps"]  # type: ignore[operator]
    assert set(found["flow_completion_ps"]) == {"p50", "p90", "p99", "p100"}  # type: ignore[call-overload]


def test_traffic_by_policy_and_by_balancer(capsys: pytest.CaptureFixture[str]) -> None:
    planned = run_json(capsys, "zipf:seed=1", "--policy", "lpt", "--chunk", "64KiB", *SMALL)
    direct = run_json(capsys, "zipf:seed=1", "--balancer", "ecmp", *SMALL)
    assert planned["bytes"] == direct["bytes"]
    assert planned["busbw_GBps"] > direct["busbw_GBps"]  # type: ignore[operator]
    packets = run_json(
        capsys, "zipf:seed=1", "--policy", "lpt", "--chunk", "64KiB", "--packets", *SMALL
    )
    assert packets["completion_ps"] == pytest.approx(
        planned["completion_ps"] * 4150 / 4086 + 1e6, rel=1e-6
    )  # type: ignore[operator]
    slow = run_json(
        capsys,
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
    assert slow["completion_ps"] > packets["completion_ps"]  # type: ignore[operator]


def test_the_table_says_what_matters(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "uniform", *SMALL]) == 0
    text = capsys.readouterr().out
    for word in (
        "completion",
        "bound, this run",
        "bound, any plan",
        "algbw",
        "busbw",
        "rail utilisation",
        "p99",
    ):
        assert word in text


def test_a_stuck_run_exits_2_with_its_partial_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "run.svg"
    assert (
        main(
            [
                "simulate",
                "uniform",
                "--fault",
                "20us:1:2=0",
                "--timeline",
                str(picture),
                "--json",
                *SMALL,
            ]
        )
        == 2
    )
    out, err = capsys.readouterr()
    stuck = json.loads(out)["stuck"]
    assert stuck
    assert f"{len(stuck)} of 192 chunks can't be delivered" in err
    assert f"{len(stuck)} chunks stuck" in picture.read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["uniform", "--balancer", "spray", "--policy", "lpt"], "give one of them"),
        (["uniform", "--balancer", "luck"], "unknown balancer 'luck'"),
        (["uniform", "--fault", "soon"], "expected TIME:NODE:RAIL=FRACTION"),
        (["uniform", "--incast", "much"], "is not a number"),
        (["uniform", "--degrade", "0:0=0", "--balancer", "ecmp"], "which has a rate of zero"),
        (["nowhere.npz"], "no such file"),
    ],
)
def test_bad_usage_exits_1(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *words, *SMALL]) == 1
    assert message in capsys.readouterr().err


def test_a_plan_brings_its_own_fabric(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: Plan
) -> None:
    plan.save(tmp_path / "plan.npz")
    assert main(["simulate", str(tmp_path / "plan.npz"), "--nodes", "4"]) == 1
    assert "leave out --nodes" in capsys.readouterr().err


def test_the_picture_is_svg_with_a_row_a_rail(plan: Plan) -> None:
    root = ElementTree.fromstring(timeline_svg(simulate(plan)))
    texts = [element.text or "" for element in root.iter() if element.tag.endswith("text")]
    assert [text for text in texts if text.startswith("rail ")] == [f"rail {n}" for n in range(4)]
    assert len([element for element in root.iter() if element.tag.endswith("polygon")]) == 4


def test_the_export_is_the_same_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], plan: Plan
) -> None:
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
    assert (
        main(
            [
                "simulate",
                "uniform",
                "--balancer",
                "ecmp",
                "--export",
                str(tmp_path / "direct"),
                *SMALL,
            ]
        )
        == 0
    )
    assert len(parse_cm((tmp_path / "direct" / "run.cm").read_text())[1]) == 16 * 12


def test_stages_are_exported_as_barriers(tmp_path: Path, plan: Plan) -> None:
    staged = Plan(plan.fabric, plan.chunks, plan.rail, stage=np.arange(len(plan.chunks)) % 3)
    export_htsim(simulate(staged), tmp_path)
    connections = parse_cm((tmp_path / "run.cm").read_text())[1]
    assert {connection.trigger for connection in connections} == {None, 1, 2}
    with pytest.raises(InputError, match="a barrier a stage"):
        export_htsim(simulate(staged, assumptions=Assumptions(stages="node")), tmp_path, force=True)


def test_what_htsim_cannot_express_is_refused(tmp_path: Path, plan: Plan) -> None:
    with pytest.raises(InputError, match="without faults"):
        export_htsim(simulate(plan, faults=[Fault(0, 0, 0)], partial=True), tmp_path)
    slow = Plan(plan.fabric.degraded({(0, 0): "0.5"}), plan.chunks, plan.rail)
    with pytest.raises(InputError, match="one link rate"):
        export_htsim(simulate(slow), tmp_path)
    assert not list(tmp_path.iterdir())
