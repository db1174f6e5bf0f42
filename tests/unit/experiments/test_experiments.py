"""The experiments' comparisons: rows are had as they are labelled, none is left out of a verdict,
and only a paper's figures are called a paper's.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from experiments.__main__ import write_not_tried
from experiments.common import (
    HELD,
    MISSED,
    ORIGINS,
    arguments,
    claim,
    differences,
    finish,
    goal,
    headlines,
    not_tried,
    recorded,
)
from experiments.fast_ablation.run import ablation_claims, bandwidth_claims
from experiments.fast_common import run_phases, spreadout_phases
from experiments.fast_synthesis.run import compared
from experiments.hybridep_migration.model import Model, Size, Text
from experiments.hybridep_scale.run import speedup, stream
from experiments.hybridep_table4 import run as table4
from railopt import Fabric, Traffic
from railopt.report.page import read_experiments

EXPERIMENTS = Path(__file__).resolve().parents[3] / "experiments"


def expected_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((EXPERIMENTS / name / "expected.json").read_text("utf-8"))
    return found


@pytest.mark.parametrize("centres", [10, 50, 100, 1000])
def test_a_ratio_of_data_sent_saves_no_more_than_the_rest(centres: int) -> None:
    spec = tomllib.loads((EXPERIMENTS / "hybridep_scale" / "spec.toml").read_text("utf-8"))["fixed"]
    block = stream(spec, centres, 10)
    for ratio in map(Fraction, spec["ratio"]):
        found = speedup(block, (1 - ratio) * centres)
        assert found is None or not ratio or 1 < found <= 1 / ratio


@pytest.mark.parametrize(("centres", "size"), [(1000, 750), (10, 50), (10, Fraction(5, 2))])
def test_domains_that_the_data_centres_cannot_have_have_no_speed_up(
    centres: int, size: int | Fraction
) -> None:
    spec = tomllib.loads((EXPERIMENTS / "hybridep_scale" / "spec.toml").read_text("utf-8"))["fixed"]
    assert speedup(stream(spec, centres, 10), size) is None


def test_every_number_of_servers_counts_for_fasts_distance_from_the_bound() -> None:
    rows = [{"servers": 3, "fast ratio": 1.25}, {"servers": 41, "fast ratio": 1.05}]
    *_, last = compared(rows, expected_of("fast_synthesis"))
    assert (last["ours"], last["verdict"]) == ([1.25, 1.05], "not reached")


def test_every_measured_figure_of_fasts_ablation_is_compared() -> None:
    rates = {"FAST": 3.0, "ablation": 2.0, "SpreadOut": 1.0}
    row = {**rates, "FAST wire": 1.06, "ablation wire": 1.0}
    sizes, expected = [8, 33, 130, 520, 2080], expected_of("fast_ablation")
    by_size, by_skew = dict.fromkeys(sizes, row), dict.fromkeys((0.1, 0.5, 0.9), row)
    claims = bandwidth_claims(expected, by_size, by_skew)
    claims += ablation_claims(expected, sizes, by_size, by_skew)
    assert {claim["name"] for claim in claims} == set(expected["figures"])
    longer = next(claim for claim in claims if claim["name"].startswith("stages lengthen"))
    assert longer["ours"] == pytest.approx([6.0] * 5)


@pytest.mark.parametrize("name", ["rails_chunk_size", "rails_faults", "rails_packet_level"])
def test_what_no_paper_says_is_not_called_a_papers(name: str) -> None:
    expected = expected_of(name)
    assert "figures" not in expected
    assert expected["own"]


THEIRS, MIXED = {"paper": "all of it"}, {"paper": "sizes", "ours": "rates"}


@pytest.mark.parametrize(
    ("entry", "ours", "inputs", "verdict", "distance"),
    [
        ({"paper": 10.0}, [10.5], THEIRS, "reproduced", 0.05),
        ({"paper": 10.0, "fitted": True}, [10.5], THEIRS, "fitted", 0.05),
        ({"paper": 10.0}, [10.5, 12.0], MIXED, "not reached", 0.2),
        ({"paper": 10.0}, [12.0], THEIRS, "contradicted", 0.2),
        ({"paper": 10.0, "always": True}, [12.0], MIXED, "contradicted", 0.2),
        ({"paper": 10.0, "fitted": True}, [12.0], MIXED, "not reached", 0.2),
        ({"paper": [10.0, 20.0]}, [10.0, 15.0, 20.0], MIXED, "in range", 0.0),
        ({"paper": [10.0, 20.0]}, [10.0, 20.1], MIXED, "not reached", 0.005),
        ({"paper": [10.0, 20.0]}, [9.5, 15.0], THEIRS, "contradicted", 0.05),
        ({"paper": [10.0, 20.0]}, [15.0, 30.0], MIXED, "not reached", 0.5),
        ({"paper": [10.0, 20.0]}, [5.0, 30.0], THEIRS, "contradicted", 0.5),
        ({"paper": [None, 20.0]}, [-5.0], THEIRS, "in range", 0.0),
        ({"paper": [20.0, None]}, [16.0], MIXED, "not reached", 0.2),
        ({"paper": 10.0, "up_to": True}, [1.0, 30.0], MIXED, "reached", 0.0),
        ({"paper": 10.0, "up_to": True}, [1.0, 8.0], MIXED, "not reached", 0.2),
        ({"paper": 10.0, "up_to": True}, [1.0, 8.0], THEIRS, "contradicted", 0.2),
        ({"paper": 0.0}, [0.0], THEIRS, "reproduced", 0.0),
        ({"paper": -10.0}, [-10.5], THEIRS, "reproduced", 0.05),
    ],
)
def test_a_verdict_is_decided_by_the_data(
    entry: dict[str, Any],
    ours: list[float],
    inputs: dict[str, str],
    verdict: str,
    distance: float,
) -> None:
    expected = {"inputs": inputs, "figures": {"it": {"tolerance": 0.1, "source": "a", **entry}}}
    found = claim(expected, "it", ours)
    assert found["verdict"] == verdict
    assert found["distance"] == pytest.approx(distance)
    assert found["inputs_text"].startswith("paper: ")


def test_a_claim_without_the_origin_of_its_inputs_is_refused() -> None:
    entry = {"paper": 1.0, "tolerance": 0.1, "source": "a"}
    for inputs in (None, {}, {"theirs": "sizes"}):
        with pytest.raises(ValueError, match="inputs by origin"):
            claim({"inputs": inputs, "figures": {"it": entry}}, "it", 1.0)


def test_how_many_of_ours_lie_inside_is_said() -> None:
    entry = {"paper": [1.0, 2.0], "tolerance": 0.0, "source": "a"}
    found = claim({"inputs": MIXED, "figures": {"it": entry}}, "it", [1.5, 3.0, 4.0])
    assert found["ours_text"] == "1.5 .. 4 (1 of 3 inside)"


def finished(folder: Path, ours: float, *flags: str, machine: bool = False) -> int:
    """An experiment of one figure of 10."""
    entry = {
        "paper": 10.0,
        "tolerance": 0.1,
        "source": "a",
        "machine": machine,
        "headline": True,
    }
    size = next((flag for flag in flags if flag != "record"), "small")
    args = argparse.Namespace(out=folder / "out", size=size, record="record" in flags)
    expected = {"inputs": MIXED, "figures": {"it": entry}}
    (folder / "expected.json").write_text(json.dumps(expected))
    return finish(folder, args, [], [claim(expected, "it", ours)])


def test_a_verdict_that_changes_fails_the_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert finished(tmp_path, 10.5, "record") == 0
    assert recorded(tmp_path)["small"]["it"]["verdict"] == "reproduced"
    assert finished(tmp_path, 9.5) == 0
    assert finished(tmp_path, 15.0) == 4
    assert "it: not reached, recorded was: reproduced" in capsys.readouterr().err
    assert finished(tmp_path, 15.0, machine=True) == 0
    assert finished(tmp_path, 15.0, "record", "full") == 0
    assert finished(tmp_path, 9.5, "full") == 4
    assert finished(tmp_path, 9.5) == 0


def test_headlines_are_those_of_the_full_size_where_it_is_recorded(tmp_path: Path) -> None:
    finished(tmp_path, 10.5, "record")
    assert [(row["size"], row["verdict"]) for row in headlines(tmp_path)] == [
        ("small", "reproduced")
    ]
    finished(tmp_path, 15.0, "record", "full")
    assert [(row["size"], row["verdict"]) for row in headlines(tmp_path)] == [
        ("full", "not reached")
    ]


def missed(folder: Path, *flags: str) -> int:
    """An experiment of one goal of 10 that is not reached."""
    size = next((flag for flag in flags if flag != "record"), "small")
    args = argparse.Namespace(out=folder / "out", size=size, record="record" in flags)
    entry = {"expected": 10.0, "tolerance": 0.1, "source": "a"}
    return finish(folder, args, [], [], [goal({"own": {"it": entry}}, "it", 15.0)])


def test_a_size_without_recorded_verdicts_has_none_that_change(tmp_path: Path) -> None:
    assert missed(tmp_path) == 4  # nothing is recorded at all: goals have to hold
    assert missed(tmp_path, "record") == 0
    assert missed(tmp_path, "full") == 0


def test_inputs_name_their_rows_where_these_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = {"paper": 10.0, "tolerance": 0.1, "source": "a"}
    figures = {"this": entry, "that": {**entry, "inputs": THEIRS}, "third": entry}
    expected = {"inputs": MIXED, "figures": figures}
    args = argparse.Namespace(out=tmp_path, size="small", record=True)
    claims = [claim(expected, name, 10.0) for name in figures]
    finish(tmp_path, args, [], claims)
    said = capsys.readouterr().out
    assert "  inputs of this; third: paper: sizes; ours: rates\n" in said
    assert "  inputs of that: paper: all of it\n" in said
    finish(tmp_path, args, [], claims[:1])
    assert "  inputs: paper: sizes; ours: rates\n" in capsys.readouterr().out


def test_a_figure_that_is_dropped_or_new_fails_the_experiment(tmp_path: Path) -> None:
    finished(tmp_path, 10.0, "record")
    assert differences([], recorded(tmp_path)["small"]) != []
    entry = {"paper": 10.0, "tolerance": 0.1, "source": "a"}
    new = claim({"inputs": MIXED, "figures": {"that": entry}}, "that", 10.0)
    assert len(differences([new], recorded(tmp_path)["small"])) == 2


FOLDERS = sorted(path.parent for path in EXPERIMENTS.glob("*/expected.json"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_figure_says_what_it_rests_on(folder: Path) -> None:
    expected = expected_of(folder.name)
    for name, entry in expected.get("figures", {}).items():
        inputs = entry.get("inputs", expected["inputs"])
        assert inputs, name
        assert set(inputs) <= set(ORIGINS), name
        assert all(inputs.values()), name
        assert entry["source"], name
        assert entry["tolerance"] <= 0.1, name
    for known in (expected, expected.get("small", {}), expected.get("full", {})):
        for entry in (*known.get("figures", {}).values(), *known.get("own", {}).values()):
            said = entry.get("paper", entry.get("expected"))
            assert not (isinstance(said, list) and entry["tolerance"]), entry


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_recorded_verdicts_are_those_of_the_recorded_values(folder: Path) -> None:
    if tomllib.loads((folder / "spec.toml").read_text("utf-8")).get("by_hand"):
        return
    expected, sizes = expected_of(folder.name), recorded(folder)
    assert "small" in sizes
    for size, seen in sizes.items():
        known = expected.get(size, expected)
        names = set(known.get("figures", {})) | set(known.get("own", {}))
        assert set(seen) <= names
        assert {row["verdict"] for row in seen.values()} <= {*HELD, *MISSED}
        for name, row in seen.items():
            compare = claim if name in known.get("figures", {}) else goal
            assert row["verdict"] == compare(known, name, row["values"])["verdict"], (size, name)


def test_the_headlines_of_all_four_papers_are_there() -> None:
    found = {folder.name.split("_")[0]: headlines(folder) for folder in FOLDERS}
    for paper in ("rails", "fast", "hybridep", "pro"):
        assert any(headlines(f) for f in FOLDERS if f.name.startswith(paper)), found
    rows = [row for folder in FOLDERS for row in headlines(folder)]
    assert all(row["distance"].endswith(" %") and row["inputs"] for row in rows)


@pytest.mark.slow
def test_an_experiment_of_other_figures_has_other_verdicts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HybridEP's Table IV, with one figure of the paper changed."""

    def changed(here: str, text: str | None) -> Any:
        folder, spec, expected, args = arguments(here, text)
        expected["figures"]["p, 2.35 MB, 128Gb/s read as 128GB/s"]["paper"] += 0.3
        return folder, spec, expected, args

    monkeypatch.setattr(table4, "arguments", changed)
    monkeypatch.setattr(sys, "argv", ["run", "--out", str(tmp_path)])
    assert table4.main() == 4


def test_the_model_of_migration_has_the_slopes_of_its_loss() -> None:
    size = Size(vocabulary=7, topics=2, width=4, experts=3, ffn=5, centres=2)
    model, letters = Model(size, 0), Text(size, 0).letters(40)

    def moved(name: str, where: Any, by: float) -> float:
        model.parameters[name][where] += by
        loss = model.loss(letters)[0]
        model.parameters[name][where] -= by
        return loss

    for name, slope in model.loss(letters)[1].items():
        where = np.unravel_index(np.abs(slope).argmax(), slope.shape)
        measured = (moved(name, where, 1e-6) - moved(name, where, -1e-6)) / 2e-6
        assert measured == pytest.approx(slope[where], rel=1e-5)
    # copies that are all the mean expert give another loss than the experts
    assert model.loss(letters, lambda all_: 0 * all_)[0] != model.loss(letters)[0]


CHEAP = ("hybridep_table4", "hybridep_testbed", "pro_prophet_prediction")
"""Experiments whose small size takes at most about 3 s of CPU, imports left out."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CHEAP)
def test_cheap_experiments_run_again_have_their_recorded_verdicts(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["run", "--out", str(tmp_path)])
    assert importlib.import_module(f"experiments.{name}.run").main() == 0
    assert_results(tmp_path)


def assert_results(folder: Path) -> None:
    """An experiment has written rows, and what they say."""
    found = json.loads((folder / "results.json").read_text())
    assert found["rows"]
    assert found["comparison"] or found["own"]


def test_spreadout_without_a_barrier_waits_for_its_own_peers_alone() -> None:
    """One slow pair of 8 GPUs: with a barrier everyone waits for it in its step, without one only
    those that meet its ends.
    """
    fabric = Fabric.uniform(4, 2, "1GB/s", scaleup="1GB/s")
    matrix = np.full((8, 8), 1_000_000)
    np.fill_diagonal(matrix, 0)
    matrix[0, 1] = 9_000_000
    traffic = Traffic.from_matrix(matrix, fabric)
    free, barrier = (
        run_phases(spreadout_phases(fabric, traffic, 0, wait), fabric, Fraction(0))
        for wait in (False, True)
    )
    assert barrier.completion == Fraction(15, 1000)
    assert free.completion <= barrier.completion
    done = [np.count_nonzero(run.finish_ps <= 2 * 10**9) for run in (free, barrier)]
    assert done == [7 + 4, 7]


def test_claims_that_were_not_tried_are_rows_of_the_report(tmp_path: Path) -> None:
    write_not_tried(tmp_path / "not_tried")
    rows = read_experiments(tmp_path)["not_tried"]
    assert {row["name"].split(":")[0] for row in rows} <= {
        "RailS",
        "FAST",
        "HybridEP",
        "Pro-Prophet",
    }
    assert len(rows) == len(not_tried()) > 10
    for row in rows:
        assert row["headline"]
        assert row["verdict"] == "not tried"
        assert row["said"]
        assert row["inputs_text"]


TINY: dict[str, dict[str, Any]] = {
    "fast_ablation": {
        "servers": 3,
        "gpus": 2,
        "sizes_mb": [8, 33, 130, 520, 2080],
        "seeds": 1,
        "incast_servers": [4],
    },
    "fast_bandwidth": {"servers": 3, "gpus": 2, "sizes_mb": [520], "skews": [0.8], "seeds": 1},
    "fast_optimum": {"shapes": [[2, 2]], "most_stages": 6, "most_epochs": 1},
    "fast_synthesis": {"servers": [2, 4], "seeds": 1},
    "fast_training": {"cases": [[2, 2]], "seeds": 1},
    "hybridep_migration": {"seeds": [100, 101], "steps": 2, "every": 1, "unseen": 64},
    "hybridep_scale": {"centres": [10, 1000], "gbps": [10]},
    "joint_gap": {"seeds": [9100, 9102], "experts": [4], "skews": [0.8], "every": 12},
    "lpt_gap": {"nodes": [4], "seeds": 1, "limit_s": 0.01, "tokens": 64, "skews": [0.5]},
    "pro_prophet_gap": {"layers": [[2, 1, 2, 2], [2, 2, 4, 2]]},
    "pro_prophet_rails": {"traces": ["mixtral-kinds"], "rows": 1},
    "pro_prophet_speedup": {
        "sizes": ["S"],
        "rows": 1,
        "alphas": [4],
        "traces": {"naive": ["gpt16-top1", "gpt16-top2"], "balance loss": ["gpt16-top1-aux"]},
    },
    "rails_balance": {
        "nodes": [3],
        "rails": 4,
        "skew": [0.4],
        "seeds": 1,
        "chunks": ["256KiB", "flow"],
        "policies": ["pxn", "lpt", "equitable"],
    },
    "rails_bandwidth": {"nodes": [4], "sparsity": [0.5], "skew": [0.4], "hash_seeds": 1},
    "rails_chunk_size": {"nodes": 4, "chunks": ["1MiB", "4MiB", "flow"]},
    "rails_faults": {"nodes": [4]},
    "rails_mixtral": {
        "tokens": [64],
        "overlap": [0.0],
        "skew": [0.4],
        "links": ["400Gb/s"],
        "hash_seeds": 1,
        "sampled_layers": 1,
    },
    "rails_packet_level": {"seeds": 1},
    "where_rails_pay": {
        "nodes": [2],
        "tokens": 16,
        "dedup": ["node"],
        "batches": {"equal": "ragged=0", "own": "own=1"},
    },
    "which_paper_pays": {"traces": ["gpt16-top1"], "links": ["800Gb/s"]},
}


def test_every_experiment_is_cheap_or_has_a_tiny_size() -> None:
    runs = {path.parent.name for path in EXPERIMENTS.glob("*/run.py")}
    assert runs == {*TINY, *CHEAP, "emulated_fabric"}  # which needs root, see its spec


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_every_experiment_runs_to_its_end(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a size at which its verdicts mean nothing."""
    run = importlib.import_module(f"experiments.{name}.run")

    def tiny(here: str, text: str | None, **flags: str) -> Any:
        folder, spec, expected, args = arguments(here, text, **flags)
        return folder, {**spec, **TINY[name]}, expected, args

    monkeypatch.setattr(run, "arguments", tiny)
    monkeypatch.setattr(sys, "argv", ["run", "--out", str(tmp_path)])
    assert run.main() in (0, 4)
    assert_results(tmp_path)
