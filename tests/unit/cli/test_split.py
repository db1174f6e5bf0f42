"""The command split: what it prints and saves, and what it refuses."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt.checker import Verdict
from railopt.moe.micro import solve

Cli = Callable[..., Any]
SMALL = ["megatron:w=1,experts=16,top=2,tokens=64,steps=2", "--nodes", "2", "--gpus", "2"]


def test_a_table_and_json(railopt_cli: Cli) -> None:
    ran = railopt_cli("split", *SMALL, "--spare", "2", "--expert", "1MiB", "--within", "node")
    assert ran.code == 0
    assert "between nodes" in ran.out
    ran = railopt_cli("split", *SMALL, "--spare", "2", "--json")
    [row] = json.loads(ran.out)["layers"]
    assert row["batches"] == 2
    assert 1 <= row["after_mean"] <= row["after_worst"] < 1.01 < row["before_mean"]
    assert row["copies_mean"] >= 1


def test_json_of_one_micro_batch_has_its_copies_and_tokens(railopt_cli: Cli) -> None:
    ran = railopt_cli("split", *SMALL, "--spare", "2", "--iteration", "1", "--json")
    batch = json.loads(ran.out)["batch"]
    loads = [0] * 4
    for _, gpu, tokens in batch["assignment"]:
        loads[gpu] += tokens
    assert max(loads) == batch["largest"]
    assert sum(loads) == 4 * 2 * 64
    there = {(expert, gpu) for expert, gpu, _ in batch["assignment"]}
    assert there >= {(copy["expert"], copy["gpu"]) for copy in batch["copies"]}


def test_ids_of_experts_are_read(railopt_cli: Cli, tmp_path: Path) -> None:
    ids = np.random.default_rng(0).random((64, 2, 16)).argsort(axis=2)[:, :, :2]
    np.save(tmp_path / "ids.npy", ids)
    words = [tmp_path / "ids.npy", "--nodes", "2", "--gpus", "2", "--spare", "1"]
    assert "--routed-experts N" in railopt_cli("split", *words).err
    ran = railopt_cli("split", *words, "--routed-experts", "16", "--json")
    assert [row["layer"] for row in json.loads(ran.out)["layers"]] == [0, 1]
    assert railopt_cli("split", *words, "--top-k", "0").code == 1


@pytest.mark.slow
def test_a_case_beyond_linear_programs_stays_open(
    railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of them could take longer than the limit."""

    def asked(*_: Any) -> None:
        raise AssertionError("a linear program of 65,536 shares")

    monkeypatch.setattr(solve, "within", asked)
    large = "megatron:w=1,experts=1024,top=8,tokens=512,steps=1"
    words = ["--spare", "1", "--solver", "exact", "--limit", "1s"]
    assert railopt_cli("split", large, "--nodes", "8", "--gpus", "8", *words).code == 2


def test_a_certificate_is_checked(railopt_cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "split.json"
    words = ["--spare", "1", "--solver", "exact", "--iteration", "0", "--certificate", path]
    assert railopt_cli("split", *SMALL, *words).code == 0
    assert railopt_cli("check", path).code == 0
    again = railopt_cli("split", *SMALL, *words)
    assert again.code == 1
    assert "exists" in again.err


def test_a_certificate_that_no_check_accepts_leaves_the_result(
    railopt_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = Verdict(False, False, "room", "refused: the check needs more than 3 steps")
    monkeypatch.setattr("railopt.evidence.certificate.check_certificate", lambda *_: refused)
    words = ["--spare", "1", "--iteration", "0", "--certificate", tmp_path / "a.json"]
    ran = railopt_cli("split", *SMALL, *words)
    assert ran.code == 1
    assert "before worst" in ran.out
    assert "more than 3 steps" in ran.err
    assert not list(tmp_path.iterdir())


def test_a_target_that_can_not_be_written_is_refused_before_the_solve(
    railopt_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: Any, **__: Any) -> None:
        raise AssertionError("solved")

    monkeypatch.setattr("railopt.moe.micro.batches.split", asked)
    words = ["--spare", "1", "--iteration", "0", "--certificate"]
    ran = railopt_cli("split", *SMALL, *words, tmp_path / "none" / "a.json")
    assert (ran.code, "does not exist" in ran.err) == (1, True)
    ran = railopt_cli("split", *SMALL, *words, tmp_path)
    assert (ran.code, "a folder" in ran.err) == (1, True)


def test_csv_has_plain_numbers_under_names_of_their_own(railopt_cli: Cli) -> None:
    ran = railopt_cli("split", *SMALL, "--spare", "1", "--expert", "44MiB", "--format", "csv")
    names, *rows = csv.reader(ran.out.splitlines())
    assert len(set(names)) == len(names)
    assert all(float(cell) >= 0 for row in rows for cell in row)
    found = dict(zip(names, rows[0], strict=True))
    assert int(found["copied"]) == pytest.approx(float(found["copies"]) * (44 << 20))


def test_progress_is_said_on_the_heartbeats_line(
    railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    monkeypatch.setattr("railopt.cli.split.stage", said.append)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    ran = railopt_cli("split", *SMALL, "--spare", "1")
    assert said == ["layer 0, iteration 0", "layer 0, iteration 1"]
    assert "iteration" not in ran.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--spare", "-1"], "a whole number from 0"),
        (["--spare", "1", "--slack", "2"], "from 1/1024 to 1"),
        (["--spare", "1", "--slack", "x"], "slack"),
        (["--spare", "1", "--slack", "0.1", "--solver", "exact"], "--solver exact"),
        (["--spare", "1", "--force"], "without --certificate"),
        (["--spare", "1", "--layer", "7"], "layer 7 is not in the trace"),
        (["--spare", "1", "--iteration", "9"], "9"),
        (["--spare", "1", "--top-k", "2"], "top="),
        (["--spare", "1", "--certificate", "c.json"], "--iteration and --layer"),
        (["--spare", "1", "--placement", "none.json"], "none.json"),
        (["--spare", "99"], "16"),
        (["--spare", "1", "--expert", "many"], "many"),
    ],
)
def test_what_is_refused(
    railopt_cli: Cli,
    words: list[str],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    ran = railopt_cli("split", *SMALL, *words)
    assert ran.code == 1
    assert why in ran.err
    assert not list(tmp_path.iterdir())


def test_bytes_of_copies_are_unknown_without_a_size_of_experts(railopt_cli: Cli) -> None:
    rows = json.loads(railopt_cli("split", *SMALL, "--spare", "2", "--json").out)["layers"]
    assert {row["copied_bytes_mean"] for row in rows} == {None}
    assert {row["copied_between_nodes_mean"] for row in rows} == {None}


def test_a_slack_too_small_to_count_is_refused(railopt_cli: Cli) -> None:
    ran = railopt_cli("split", *SMALL, "--spare", "2", "--slack", "0.0005")
    assert ran.code == 1
    assert "from 1/1024 to 1" in ran.err


def test_moonep_s_rule_is_a_row_beside(railopt_cli: Any) -> None:
    ran = railopt_cli("split", *SMALL, "--spare", "0", "--moonep")
    assert any(line.split()[:2] == ["0", "MoonEP"] for line in ran.out.splitlines())
    found = json.loads(railopt_cli("split", *SMALL, "--spare", "0", "--moonep", "--json").out)
    for row, rule in zip(found["layers"], found["moonep"], strict=True):
        assert row["copies_mean"] == 0 < rule["copies_mean"]
        assert rule["gap_worst"] == 0, "the mean, rounded up"
        assert rule["optima_known"] == rule["batches"]
