"""The verbs sender on the real libibverbs and rdma_rxe (make test-rdma)."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from railopt import Fabric, workloads
from railopt import plan as make_plan
from railopt.policies import POLICIES
from tests.hardware import vm
from tests.hardware.conftest import Scenarios
from tests.hardware.inside import uneven
from tests.openmetrics import families

pytestmark = pytest.mark.rdma
nightly = pytest.mark.nightly
FAULTS = [
    "own link down",
    "all packets lost",
    "peer queue pair gone",
    pytest.param("peer link down", marks=nightly),
    pytest.param("peer queue pair in error", marks=nightly),
]


@pytest.mark.parametrize("shape", ["2x4", pytest.param("4x2", marks=nightly)])
@pytest.mark.parametrize("policy", [*POLICIES, "staged"])
def test_every_byte_of_every_policy_arrives(scenarios: Scenarios, shape: str, policy: str) -> None:
    nodes = scenarios[shape]
    assert len(nodes) == int(shape[0])
    assert [node["right"][policy] for node in nodes] == [True] * len(nodes), nodes


@pytest.mark.scenario("rows alone")
def test_rows_that_nodes_plan_alone_from_memory_that_no_dma_buf_reaches(
    scenarios: Scenarios, figures: list[str]
) -> None:
    for node, found in enumerate(scenarios["rows alone"]):
        assert found.get("right") == [True, True], found
        loads = [(1 - node, rail, size) for rail, size in enumerate(found["planned"])]
        assert found["loads"] == [list(load) for load in loads]
        assert len(found["refusals"]) == 2, "send and recv, on the first rail"
        assert all("ibv_reg_dmabuf_mr: " in words for words in found["refusals"])
    figures.append(f"dma-buf on Soft-RoCE: {found['refusals'][0]}")


@pytest.mark.parametrize("fault", FAULTS)
def test_a_rail_cut_in_the_middle_is_survived_and_comes_back(
    scenarios: Scenarios, fault: str, figures: list[str]
) -> None:
    nodes = scenarios[fault]
    for node in nodes:
        assert node.get("right") is True, node
        assert node["alive"] == [False, True, True]
        assert len(node["faults"]) == 1, node
        assert len(node["back"]) == 1, node
        assert node["bytes"] > 0, "the rail is used again"
        assert node["back_s"] - node["run_s"] < 2.0 * scenarios.slowness, node
    assert sum(node["moved"] for node in nodes) > 0
    late, run = max((node["back_s"], node["run_s"]) for node in nodes)
    figures.append(f"{fault}: bytes on the rail {late:.1f} s after its return (a run: {run:.1f} s)")


@nightly
@pytest.mark.scenario("slow rail")
def test_a_rail_at_a_third_is_planned_around(scenarios: Scenarios, figures: list[str]) -> None:
    first, second = scenarios["slow rail"]
    assert first.get("right") is second.get("right") is True, (first, second)
    before, *runs = (seconds / first["bound_s"] for seconds in first["runs_s"])
    plans = [seconds / first["bound_s"] for seconds in first["plans_s"][1:]]
    ratios = ", ".join(f"{ratio:.2f}" for ratio in runs)
    figures.append(f"rail 0 at a third, --adapt rates: run by run {ratios} of the bound")
    assert runs[0] > 1.5, "the plan for a healthy fabric"
    assert min(runs[:5]) <= 1.15, (before, runs, first["changes"])
    assert max(plans[4:]) <= 1.15, (plans, first["rates"])


@pytest.mark.parametrize(
    ("fault", "cause"), [("own link down", "LOC_QP_OP_ERR"), ("all packets lost", "RETRY_EXC_ERR")]
)
def test_the_report_says_why(scenarios: Scenarios, fault: str, cause: str) -> None:
    assert cause in scenarios[fault][0]["faults"][0]
    assert "rail 0 between node 0 and node 1" in scenarios[fault][0]["faults"][0]


@nightly
@pytest.mark.scenario("peer killed")
def test_a_killed_peer_ends_the_run_everywhere_and_is_named(scenarios: Scenarios) -> None:
    nodes = scenarios["peer killed"]
    assert nodes[1] == {"error": "killed", "status": 9}
    for rank in (0, 2, 3):
        assert nodes[rank]["exit_code"] == 3, nodes[rank]
        assert "node 1" in nodes[rank]["text"]
        assert nodes[rank]["seconds"] < 60


@nightly
@pytest.mark.scenario("bad keys")
def test_a_wrong_key_is_refused_and_ends_the_run(scenarios: Scenarios) -> None:
    first, second = scenarios["bad keys"]
    assert first["exit_code"] == second["exit_code"] == 3
    assert "REM_ACCESS_ERR" in first["text"]


@nightly
@pytest.mark.scenario("interrupted")
def test_ctrl_c_cleans_up_and_tells_the_others(scenarios: Scenarios) -> None:
    first, second = scenarios["interrupted"]
    assert second["error"] == "KeyboardInterrupt", second
    assert first["exit_code"] == 3, first
    assert "node 1" in first["text"]


@pytest.mark.scenario("command line")
def test_the_command_line(scenarios: Scenarios) -> None:
    first, second = scenarios["command line"]
    assert first["codes"] == [0, 0, 0, 1, 0], first
    assert second["codes"] == [0, 0, 0, 1], second
    lines = first["output"].splitlines()
    assert sum(line.startswith("verbs ") for line in lines) == 2 * (4 + 1)
    assert sum(line.split()[:2] in (["verbs", "lpt"], ["verbs", "pxn"]) for line in lines) == 4
    assert "::ffff:10.10.0.1 (RoCE v2)" in first["output"]


@pytest.mark.scenario("command line")
def test_metrics_of_a_staged_run_on_two_queue_pairs_a_link(scenarios: Scenarios) -> None:
    plan = make_plan(*uneven(), "even-excess")
    assert plan.moved > 0, "something is staged"
    nodes = scenarios["command line"]
    for k, node in enumerate(nodes):
        found = families(node["metrics"])
        assert sum(found["railopt_link_sent_bytes"].values()) == plan.send[k].sum()
        assert min(found["railopt_link_achieved_bytes_per_second"].values()) > 0
        assert sum(found["railopt_wrong_chunks"].values()) == 0


@nightly
@pytest.mark.scenario("side by side")
def test_side_by_side_with_perftest(scenarios: Scenarios, figures: list[str]) -> None:
    both = scenarios["side by side"][0]
    assert both["railopt"] > 0
    figures.append(
        f"64 KiB writes, one queue pair: ib_write_bw {both['ib_write_bw']:.1f} MB/s, railopt "
        f"{both['railopt']:.1f} MB/s "
        f"({both['ratio'] * 100:.0f} %)"
    )


@nightly
def test_two_guests_joined_by_one_nic_a_rail(tmp_path: Path, figures: list[str]) -> None:
    fabric = Fabric.uniform(2, 4)
    plan = make_plan(fabric, workloads.zipf(fabric, mean="2KiB", seed=5).chunks("1KiB"), "lpt")
    railopt = f"{sys.executable} -m railopt"
    guests = []
    for k in range(2):
        out = tmp_path / f"node{k}"
        out.mkdir()
        plan.save(out / "plan.npz")
        nics = [
            f"dgram,local.type=unix,local.path={tmp_path}/r{r}.{k},"
            f"remote.type=unix,remote.path={tmp_path}/r{r}.{1 - k}"
            for r in range(4)
        ]
        command = (
            f"tests/hardware/guest/rails.sh nics 4 {k + 1} && {railopt} send /out/plan.npz "
            f"--hosts 10.20.0.1,10.20.0.2 "
            "--ib-timeout 18 --iters 2 --join 300 --json > /out/report.json"
        )
        environment = {"RAILOPT_SECRET": "a secret for two guests"}
        guests.append(
            vm.boot(command, out, name=f"node{k}", cpus=1, nics=nics, environment=environment)
        )
    for guest in guests:
        assert guest.wait(timeout=600) == 0, guest.words()
    report = json.loads((tmp_path / "node0" / "report.json").read_text())
    assert report["sender"] == "verbs"
    assert [[run["wrong"] for run in runs] for runs in report["nodes"]] == [[0, 0], [0, 0]]
    assert sum(runs[0]["bytes"] for runs in report["nodes"]) == plan.chunks.total
    for runs in report["nodes"]:
        assert [rail["device"] for rail in runs[0]["rails"]] == ["rxe0", "rxe1", "rxe2", "rxe3"]
    figures.append(
        f"two guests, 4 rails: {plan.chunks.total} bytes in "
        f"{max(r[1]['seconds'] for r in report['nodes']):.2f} s; "
        f"{sum(guest.cpu_s for guest in guests):.0f} s of the host's CPUs"
    )


@pytest.mark.soak
@pytest.mark.scenario("soak")
def test_a_soak_of_random_faults(scenarios: Scenarios, figures: list[str]) -> None:
    """`make soak`: SOAK_FAULTS faults, seeded with SOAK_SEED; nothing lost, nothing left."""
    for k, node in enumerate(scenarios["soak"]):
        assert node.get("wrong") == 0, node
        before, half, after = node["before"], node["half"], node["after"]
        figures.append(
            f"soak, node {k}: {node['strikes']} strikes, {node['faults']} links died, "
            f"{node['readmissions']} came back, after {node['median_back_s']:.1f} s in the median, "
            f"{node['longest_back_s']:.1f} s at most; memory "
            f"{before['memory_kib']} KiB before, {half['memory_kib']} KiB after half of them, "
            f"{after['memory_kib']} KiB after all"
        )
        assert node["faults"] > 0
        assert node["threads"] == [], "a thread is left"
        assert after["threads"] <= before["threads"] + 1, "the one that probes"
        assert after["links"] <= before["links"] + 8, (before, after)
        assert after["files"] <= before["files"] + 1, (before, after)
        assert after["memory_kib"] <= before["memory_kib"] + 8192, (before, after)
        assert after["memory_kib"] <= half["memory_kib"] + 2048, (half, after)
        assert after["objects"] <= half["objects"] + 100, (half, after)
