"""Flags that could do nothing are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SPEC = (
    '[grid]\nnodes = 2\nrails = 2\ntraffic = "uniform"\nchunk = "1MiB"\npolicy = "lpt"\nseed = 0\n'
)
Cli = Callable[..., Any]


@pytest.mark.parametrize("more", [["--shard", "9/4"], ["--workers", "-3"], ["--cluster", "x"]])
def test_a_dry_run_runs_nowhere(tmp_path: Path, more: list[str], railopt_cli: Cli) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC)
    command = ["sweep", str(spec), "-o", str(tmp_path / "results"), "--dry-run"]
    assert railopt_cli(*command).code == 0
    ran = railopt_cli(*command, *more)
    assert ran.code == 1
    assert "can't do anything with --dry-run" in ran.err


def test_a_cluster_has_its_own_workers(tmp_path: Path, railopt_cli: Cli) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC)
    ran = railopt_cli(
        "sweep", spec, "-o", tmp_path / "r", "--cluster", "tcp://127.0.0.1:1", "--workers", "3"
    )
    assert ran.code == 1
    assert "--workers can't do anything with --cluster" in ran.err


@pytest.mark.parametrize("more", [["--link", "100Gb/s"], ["--degrade", "0:0=0.5"]])
def test_a_split_has_no_links(more: list[str], railopt_cli: Cli) -> None:
    command = ["split", "routing:tokens=16,steps=2", "--nodes", "2", "--gpus", "2", "--spare", "1"]
    ran = railopt_cli(*command, *more)
    assert ran.code == 1
    assert "no byte crosses a link" in ran.err


def test_a_column_has_one_value(tmp_path: Path, railopt_cli: Cli) -> None:
    spec, results = tmp_path / "spec.toml", str(tmp_path / "results")
    spec.write_text(SPEC)
    assert railopt_cli("sweep", str(spec), "-o", results, "--shard", "0/1").code == 0
    once = ["results", results, "--where", "policy=lpt"]
    assert railopt_cli(*once).code == 0
    ran = railopt_cli(*once, "--where", "policy=lpt-local")
    assert ran.code == 1
    assert "names a column twice" in ran.err
