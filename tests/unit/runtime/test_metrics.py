"""Metrics of runs: they add up to what was carried, whoever asks for them."""

from __future__ import annotations

import json
import re
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Plan, plan, workloads
from railopt.base.errors import InputError
from railopt.files.openmetrics import CONTENT_TYPE, parse
from railopt.runtime import Layout, LinkReport, Metrics, Report, SenderConfig, carry, served
from tests.openmetrics import families

Cli = Callable[..., Any]
FABRIC = Fabric.uniform(3, 2, "1Gb/s")
PLAN = plan(FABRIC, workloads.moe(FABRIC, tokens=16, skew=0.5, seed=2).chunks("16KiB"), "lpt")


@pytest.fixture(scope="module")
def carried() -> list[tuple[Plan, Report]]:
    """Three runs in this process."""
    runs: list[tuple[Plan, Report]] = []
    config = SenderConfig(Layout.packed(PLAN.chunks), 2, seen=lambda *run: runs.append(run))
    carry(PLAN, "loopback", config, iters=3)
    return runs


def _by_nic(text: str, name: str) -> dict[tuple[int, int], float]:
    """Sums over peers."""
    sums: dict[tuple[int, int], float] = {}
    for labels, value in parse(text, {name})[name]:
        nic = int(labels["node"]), int(labels["rail"])
        sums[nic] = sums.get(nic, 0) + float(value)
    return sums


def test_runs_add_up_to_what_was_carried(carried: list[tuple[Plan, Report]]) -> None:
    metrics = Metrics()
    assert metrics.text() == "# EOF\n"
    for made, report in carried:
        metrics.seen(made, report)
    text = metrics.text()
    found = families(text)
    assert len(found) == 7 + 7 + 2
    assert found["railopt_runs"] == {'railopt_runs_total{sender="loopback",policy="lpt"}': 3}
    assert found["railopt_plans"] == {"railopt_plans_total": 1}
    seconds = sum(report.seconds for _, report in carried)
    assert sum(found["railopt_run_seconds"].values()) == pytest.approx(seconds)
    sent = _by_nic(text, "railopt_link_sent_bytes_total")
    planned = _by_nic(text, "railopt_link_planned_bytes_per_second")
    for nic in np.ndindex(3, 2):
        assert sent[nic] == 3 * PLAN.send[nic]
        assert planned[nic] == pytest.approx(int(PLAN.send[nic]) / float(PLAN.makespan))
    assert max(planned.values()) <= 1e9 / 8 * (1 + 1e-9), "no NIC is planned above its rate"
    assert min(found["railopt_link_achieved_bytes_per_second"].values()) > 0


def test_faults_are_counted_by_link() -> None:
    died = LinkReport(0, 1, 0, 0, 0, 0.0, 0.0, retries=5, faults=1, replans=1)
    back = LinkReport(0, 1, 0, 10, 1, 0.5, 1.0, readmissions=1)
    metrics = Metrics()
    for link in (died, back):
        metrics.seen(PLAN, Report("verbs", "lpt", 10, 1, 1.0, (), links=(link,)))
    found = families(metrics.text())
    for name, value in (
        ("retries", 5),
        ("faults", 1),
        ("replans", 1),
        ("readmissions", 1),
        ("sent_bytes", 10),
        ("chunks", 1),
        ("busy_seconds", 0.5),
    ):
        assert list(found[f"railopt_link_{name}"].values()) == [value]
    assert list(found["railopt_link_achieved_bytes_per_second"].values()) == [20]


def test_a_link_that_the_plan_leaves_has_no_rate() -> None:
    metrics = Metrics()
    for rails in ([0, 1], [0]):
        links = tuple(LinkReport(0, 1, rail, 10, 1, 0.0, 0.5) for rail in rails)
        made = plan(FABRIC.degraded({(0, 1): "0"}), PLAN.chunks) if rails == [0] else PLAN
        metrics.seen(made, Report("verbs", "lpt", 10, 1, 1.0, (), links=links))
    found = families(metrics.text())
    for name in ("achieved", "planned"):
        used, left = found[f"railopt_link_{name}_bytes_per_second"].values()
        assert used > left == 0


def test_the_file_is_replaced_and_nobody_elses(
    tmp_path: Path, carried: list[tuple[Plan, Report]]
) -> None:
    path = tmp_path / "railopt.prom"
    metrics = Metrics(str(path))
    assert path.read_text() == "# EOF\n"
    metrics.seen(*carried[0])
    once = families(path.read_text())
    metrics.seen(*carried[1])
    assert families(path.read_text()) != once
    Metrics(str(path))  # a second process begins anew
    path.write_text("mine\n")
    with pytest.raises(InputError, match="no file of railopt's metrics"):
        Metrics(str(path))
    assert path.read_text() == "mine\n"
    with pytest.raises(InputError, match="does not exist"):
        Metrics(str(tmp_path / "none" / "a.prom"))
    gone = tmp_path / "gone"
    gone.mkdir()
    metrics = Metrics(str(gone / "a.prom"))
    (gone / "a.prom").unlink()
    gone.rmdir()
    metrics.seen(*carried[0])  # a run goes on
    assert "does not exist" in metrics.unwritten


def test_they_are_served_on_this_host(carried: list[tuple[Plan, Report]]) -> None:
    metrics = Metrics()
    with served(metrics, 0) as port:
        metrics.seen(*carried[0])
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"] == CONTENT_TYPE
            assert answer.read().decode() == metrics.text()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/etc/passwd", timeout=10)
        with pytest.raises(InputError, match=f"port {port} of 127.0.0.1"), served(metrics, port):
            pass
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=10)


def test_the_commands_write_them(tmp_path: Path, railopt_cli: Cli) -> None:
    saved, file = tmp_path / "plan.npz", tmp_path / "m.prom"
    PLAN.save(saved)
    ran = railopt_cli("send", saved, "--iters", 2, "--metrics", file, "--metrics-port", 0)
    assert ran.code == 0
    assert "metrics at http://127.0.0.1:" in ran.err
    sent = families(file.read_text())["railopt_link_sent_bytes"]
    assert sum(sent.values()) == 2 * PLAN.chunks.total
    line = ["bench", "-b", "64KiB", "-e", "64KiB", "-n", "2", "-w", "1", "--policy", "lpt,pxn"]
    ran = railopt_cli(*line, "--nodes", 2, "--rails", 2, "--metrics", file)
    assert ran.code == 0
    runs = families(file.read_text())["railopt_runs"]
    assert [*runs.values()] == [3, 3]
    ran = railopt_cli("send", saved, "--sender", "record", "--metrics", file)
    assert ran.code == 1
    assert "--metrics can't do anything" in ran.err
    ran = railopt_cli("send", saved, "--metrics", saved)
    assert ran.code == 1
    assert "no file of railopt's metrics" in ran.err


def test_the_dashboard_asks_for_metrics_that_are_there(carried: list[tuple[Plan, Report]]) -> None:
    metrics = Metrics()
    metrics.seen(*carried[0])
    known = set(re.findall(r"^(\w+)(?:\{.*)? ", metrics.text(), re.MULTILINE))
    root = Path(__file__).parents[3]
    dashboard = json.loads((root / "docs" / "assets" / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(asked) >= 8
    assert {name for expr in asked for name in re.findall(r"railopt_\w+", expr)} <= known
    places = [panel["gridPos"] for panel in dashboard["panels"]]
    assert len({(place["x"], place["y"]) for place in places}) == len(places)
