"""The emulated fabric: the plan's bytes on each NIC, the right bits, and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from experiments.emulated_fabric import cases, network
from railopt import Fabric
from railopt.base.errors import InputError

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "experiments.emulated_fabric.run", "--out"]
BUSY = 2  # times that a ratio may be off here: a busy machine is slow, not wrong


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_bytes_bits_and_times_of_a_small_run(tmp_path: Path) -> None:
    ran = subprocess.run(
        [*COMMAND, str(tmp_path)],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert ran.returncode in (0, 4), ran.stderr
    print(ran.stdout)
    data = json.loads((tmp_path / "results.json").read_text())
    ratio, moved, wrong, idle = data["own"]
    assert len(idle["ours"]) == 1
    assert wrong["ours"] == [0.0]
    assert moved["verdict"] == "in range", moved["ours_text"]
    assert 1 / BUSY < min(ratio["ours"]) <= max(ratio["ours"]) < BUSY
    assert (tmp_path / "fabric.svg").stat().st_size > 1000


def children(process: int) -> list[int]:
    """Processes that `process` forked, and not those that have ended."""
    text = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(number) for number in text.split()]


def namespaces() -> set[str]:
    """Network namespaces that some process is in."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        try:
            found.add(os.readlink(path))
        except OSError:
            continue  # it has just ended
    return found


@pytest.mark.parametrize("strike", [signal.SIGINT, signal.SIGKILL])
def test_nothing_is_left_behind(strike: signal.Signals, tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, str(tmp_path)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if "processes in namespaces of their own" in line:
                break
        gpus = children(running.pid)
        own = {os.readlink(f"/proc/{gpu}/ns/net") for gpu in [*gpus, running.pid]}
        assert len(gpus) == 8
        assert len(own) == 9
        running.send_signal(strike)
        said = running.stderr.read()
        code = running.wait(timeout=60)
    if strike == signal.SIGINT:
        assert (code, said.splitlines()[-1][:12]) == (130, "interrupted:")
    end = time.monotonic() + 10
    while own & namespaces() and time.monotonic() < end:
        time.sleep(0.1)
    assert own & namespaces() == set()


def test_a_sentence_where_it_cannot_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(InputError, match="no `ip` on the PATH: install iproute2"):
        network.check_tools()
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match="makes network namespaces: run it as root"):
        network.check_tools()


def test_predictions_by_hand() -> None:
    fabric = Fabric.uniform(2, 2)
    counts = np.zeros((4, 4), np.int64)
    counts[0] = [5, 7, 300, 100]  # 400 rows leave the node, from GPU 0
    spec = {"rate": 1514, "nic": [0, 0], "most_seconds": 1000, "most_bytes": 1_000_000}
    direct = cases.Call(fabric, "direct", counts, 100, 5)
    loads = cases.loads(direct)
    assert loads.sent.tolist() == [[40_000, 0], [0, 0]]
    assert loads.received.tolist() == [[0, 0], [30_000, 10_000]]
    for share, bytes_of_nic in ((1.0, 40_000), (0.5, 80_000)):
        case = cases.Case("even", "none", share, direct, loads)
        assert cases.seconds(case, spec) == pytest.approx(bytes_of_nic / 1448)
    cases.check_bounds([case], spec)
    with pytest.raises(InputError, match=r"would take 331 s and move 0\.00 GB: at most 9 s"):
        cases.check_bounds([case], {**spec, "most_seconds": 9})
    planned = cases.loads(direct._replace(how="even-excess")).sent
    assert planned.sum() == 40_000
    assert planned.max() < 21_000


def test_stages_by_hand() -> None:
    """Three nodes of one GPU: after its 100 rows node 0 waits for nobody, node 1 waits for them."""
    counts = np.array([[0, 100, 10], [70, 0, 50], [10, 5, 0]])
    call = cases.Call(Fabric.uniform(3, 1), f"even-excess{cases.STAGES}", counts, 10, 5)
    assert cases.in_stages(call, np.ones((3, 1))) == 10 * (100 + 70)
    assert cases.in_stages(call, np.array([[0.5], [1.0], [1.0]])) == 10 * (200 + 140)


def test_a_layers_bytes_by_hand() -> None:
    """Copies are where a GPU has an expert of another home; tokens go to one of its holders."""
    fabric = Fabric.uniform(2, 2)
    spec = {"seed": 3, "skew": 1.0, "seconds": 0.1, "rate": 1514 * 1000, "row": 1000}
    spec["parameter_rows"] = 7
    forth = cases.of_layer(cases.PARAMETERS, "own-nic", fabric, spec)
    back = cases.of_layer(cases.GRADIENTS, "own-nic", fabric, spec)
    assert forth.layer is not None
    assert forth.counts.sum() == 7 * (forth.layer.holds.sum() - 8)
    assert forth.counts.T.tolist() == back.counts.tolist()
    for how in ("one copy", cases.COPIES):
        tokens = cases.of_layer(cases.TOKENS, how, fabric, spec)
        assert tokens.layer is not None
        assert tokens.counts.sum(axis=1).tolist() == [len(tokens.layer.chosen[0])] * 4 == [144] * 4
