"""railopt schedule: tables, JSON, files, errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from railopt import Plan
from railopt.cli.main import main
from railopt.schedule import KINDS, Schedule


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["schedule", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_one_schedule(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "zipf:skew=0.8", "--nodes", "4", "--stages")
    assert code == 0
    assert "no schedule is faster than" in out
    assert "compact" in out
    assert "->" in out


def test_compare_lists_every_kind(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "zipf:skew=0.8", "--nodes", "4", "--compare", "--json")
    rows = json.loads(out)
    assert code == 0
    assert [row["kind"] for row in rows] == list(KINDS)
    assert all(row["modelled_us"]["ratio"] >= 1 and row["synthesis_us"] > 0 for row in rows)
    assert len({row["line_sum"] for row in rows}) == 1


def test_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
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
        "--stages",
    )
    code, out, err = run(capsys, *words)
    data = json.loads(out)
    assert code == 0
    assert err.count("wrote") == 3
    schedule, plan = Schedule.load(names["s.npz"]), Plan.load(names["p.npz"])
    assert (schedule.kind, schedule.order) == ("fast", "ascending")
    assert plan.chunks.largest == 65536
    assert Path(names["c.cm"]).read_text() == schedule.to_cm()
    assert sum(size for stage in data["transfers"] for _, _, size in stage) == plan.chunks.total
    again = json.loads(run(capsys, names["s.npz"], "--json")[1])
    assert {key: again[key] for key in ("stages", "total", "bound", "modelled_us")} == {
        key: data[key] for key in ("stages", "total", "bound", "modelled_us")
    }
    code, _, err = run(capsys, *words)
    assert code == 1
    assert "exists" in err
    assert run(capsys, *words, "--force")[0] == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("nothing", "--nodes", "4"), "neither a file nor a workload"),
        (("uniform", "--nodes", "4", "--eps", "huge"), "eps = 'huge'"),
        (("uniform", "--nodes", "4", "--degrade", "1:1=0.5"), "NICs of different rate"),
        (("uniform", "--nodes", "4", "--rails", "4", "--gpus", "8"), "one NIC a GPU"),
        (("uniform", "--nodes", "4", "--plan", "/nowhere/p.npz"), "does not exist"),
    ],
)
def test_bad_input(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    code, out, err = run(capsys, *words)
    assert code == 1
    assert out == ""
    assert message in err


def test_servers_that_differ_in_gpus(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "matrix.txt"
    path.write_text("\n".join(" ".join("1" for _ in range(7)) for _ in range(7)) + "\n")
    code, _, err = run(capsys, str(path), "--nodes", "2", "--rails", "4")
    assert code == 1
    assert "7 x 7" in err


def test_nothing_to_send(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "zero.txt"
    np.savetxt(path, np.zeros((8, 8), np.int64), fmt="%d")
    code, out, _ = run(capsys, str(path), "--nodes", "2", "--rails", "4", "--json", "--stages")
    data = json.loads(out)
    assert code == 0
    assert (data["stages"], data["total"], data["transfers"]) == (0, 0, [])
    assert run(capsys, str(path), "--nodes", "2", "--rails", "4", "--stages", "--compare")[0] == 0
