"""The report without a browser: its size, its numbers, its input."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from railopt.report import figures
from railopt.sweep import instance, results, spec


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("results")
    sweep = spec.parse(
        {
            "simulate": True,
            "grid": {
                "nodes": [2, 4],
                "rails": [2],
                "traffic": ["moe:tokens=32"],
                "chunk": ["16KiB", "flow"],
                "policy": ["lpt", "equitable"],
                "seed": [0],
            },
        }
    )
    writer = results.Writer(place)
    for point in sweep.instances:
        writer.append(instance.run(point))
    writer.close()
    return place


def test_page_and_figures(folder: Path, tmp_path: Path, railopt_cli: Callable[..., object]) -> None:
    out, experiments = tmp_path / "report.html", tmp_path / "out"
    (experiments / "sample").mkdir(parents=True)
    claim = {
        "name": "<claim>",
        "paper_text": "2x",
        "ours_text": "1x",
        "verdict": "contradicted",
        "source": "s",
        "note": "because",
    }
    (experiments / "sample" / "results.json").write_text(json.dumps({"comparison": [claim]}))
    ran = railopt_cli(
        "report",
        folder,
        "-o",
        out,
        "--experiments",
        experiments,
        "--figures",
        tmp_path / "figures",
        "--json",
    )
    assert ran.code == 0
    text = out.read_text()
    assert len(text) < 2_000_000
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)
    assert "&lt;claim&gt;" in text
    for row in results.load(folder).rows:
        for scale, name in ((10**6, "value"), (10**6, "bound"), (100, "gap")):
            assert f'title="{Fraction(row[name]) * scale}"' in text
    assert {path.name for path in (tmp_path / "figures").iterdir()} == {
        f"{name}.{kind}"
        for name in ("gap-by-policy", "gap-by-nodes", "rail-loads", "completion-times")
        for kind in ("svg", "pdf")
    }
    data = json.loads(ran.out)
    assert data["gap-by-nodes"]["columns"] == ["policy", "nodes", "instances", "median %"]
    assert railopt_cli("report", folder, "-o", out).code == 1  # it exists
    assert railopt_cli("report", tmp_path / "none", "-o", tmp_path / "r.html").code == 1
    assert (
        railopt_cli(
            "report", folder, "-o", tmp_path / "r.html", "--experiments", tmp_path / "none"
        ).code
        == 1
    )
    (experiments / "sample" / "results.json").write_text("{}")
    assert (
        railopt_cli("report", folder, "-o", tmp_path / "r.html", "--experiments", experiments).code
        == 1
    )
    assert not (tmp_path / "r.html").exists()


def test_figures_show_the_rows_numbers(folder: Path) -> None:
    rows = results.load(folder).rows
    by_policy = figures.gap_by_policy(rows)
    assert by_policy is not None
    for policy, chunk, count, *quartiles in by_policy.rows:
        gaps = [
            float(Fraction(r["gap"])) * 100
            for r in rows
            if (r["instance"]["policy"], r["instance"]["chunk"]) == (policy, chunk)
        ]
        assert (count, quartiles[0], quartiles[-1]) == (len(gaps), min(gaps), max(gaps))
    loads = figures.rail_loads(rows)
    assert loads is not None
    assert {row[0] for row in loads.rows} == {"lpt", "equitable"}
    text = figures.svg(loads.drawing)
    assert "currentColor" in text
    assert figures.INK not in text


def test_an_empty_folder_still_makes_a_page(
    tmp_path: Path, railopt_cli: Callable[..., object]
) -> None:
    (tmp_path / "empty").mkdir()
    assert railopt_cli("report", tmp_path / "empty", "-o", tmp_path / "r.html").code == 0
    assert "0 instances" in (tmp_path / "r.html").read_text()
