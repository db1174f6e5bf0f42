"""Fabrics with leaves on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

LEAVES = """nodes = 4
rails = 2
link = "400Gb/s"
[leaves]
nodes = 2
uplinks = 1
way = "{way}"
"""
TRAFFIC = "moe:skew=0.2,seed=1,tokens=64"
Cli = Callable[..., Any]


@pytest.fixture
def leafy(tmp_path: Path) -> Callable[[str], str]:
    def written(way: str) -> str:
        path = tmp_path / f"{way}.toml"
        path.write_text(LEAVES.format(way=way))
        return str(path)

    return written


def test_gap_says_and_certifies_what_uplinks_take(
    railopt_cli: Cli, leafy: Callable[[str], str], tmp_path: Path
) -> None:
    line = ("gap", TRAFFIC, "--fabric", leafy("spray"), "--policy", "lpt-local", "--chunk", "1MiB")
    saved = ("--limit", "0s", "--certificate", str(tmp_path / "c"))
    ran = railopt_cli(*line, *saved, "--json")
    assert ran.code == 0
    assert "1 of uplinks: 1 of 1 accepted by railopt/checker.py" in ran.err
    (row,) = json.loads(ran.out)["rows"]
    uplinks = row["uplinks"]
    assert {"value", "bound", "group", "side", "bytes", "capacity"} <= set(uplinks)
    certificate = json.loads((tmp_path / "c" / "lpt-local-1MiB.uplinks.json").read_text())
    assert certificate["claim"]["bound"] == uplinks["bound"]
    table = railopt_cli(*line, "--limit", "0s").out
    assert table.splitlines()[0].split()[-2:] == ["uplinks", "cut"]


@pytest.mark.parametrize("moved", [(), ("--moved",)], ids=["times", "moved"])
@pytest.mark.parametrize("leaves", [False, True], ids=["one spine", "leaves"])
@pytest.mark.parametrize("traffic", ["moe:skew=0.8,seed=1", "steps"])
def test_tables_of_gap_fit_100_columns_and_say_whether_a_plan_is_optimal(
    traffic: str,
    leaves: bool,
    moved: tuple[str, ...],
    railopt_cli: Cli,
    leafy: Callable[[str], str],
    tmp_path: Path,
) -> None:
    line = ["--policy", "even-excess,lpt-dealt", "--chunk", "64KiB,1023KiB", "--limit", "0s"]
    line += ["--fabric", leafy("spray")] if leaves else ["--nodes", "4", "--rails", "2"]
    if traffic == "steps":
        counts = np.random.default_rng(1).integers(0, 9000, (11, 2, 8, 16))
        np.save(tmp_path / "counts.npy", counts)
        traffic = f"{tmp_path / 'counts.npy'}:step=all,layer=all,model=mixtral-8x7b"
    ran = railopt_cli("gap", traffic, *line, *moved)
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= 100
    head = ran.out.splitlines()[0]
    assert {"plan", "gap"} <= set(head.split())
    assert ("uplinks" in head) == leaves
    assert ("above" in head) == bool(moved)


def test_the_seed_of_a_plan_is_that_of_hashed_links(
    railopt_cli: Cli, leafy: Callable[[str], str], tmp_path: Path
) -> None:
    for way, code in (("ecmp", 0), ("adaptive", 1)):
        made = str(tmp_path / f"{way}.npz")
        planned = railopt_cli("plan", TRAFFIC, "--fabric", leafy(way), "-o", made)
        assert planned.code == 0
        assert "a flow takes one link" in planned.err
        ran = railopt_cli("simulate", made, "--seed", "3")
        assert ran.code == code
        if code:
            assert "a plan whose links are not hashed" in ran.err
        else:
            assert "uplinks, group" in ran.out


def test_a_fabric_shows_its_leaves(railopt_cli: Cli, leafy: Callable[[str], str]) -> None:
    shown = railopt_cli("fabric", "show", leafy("ecmp")).out
    assert "leaves: 4, 2 nodes x 1 rails below each, 1 uplinks of 400Gb/s, ecmp" in shown


def test_htsim_refuses_uplinks_of_another_rate(
    railopt_cli: Cli, tmp_path: Path, leafy: Callable[[str], str]
) -> None:
    slow = tmp_path / "slow.toml"
    slow.write_text(LEAVES.format(way="spray") + 'rate = "100Gb/s"\n')
    folder = tmp_path / "htsim"
    ran = railopt_cli("simulate", TRAFFIC, "--fabric", str(slow), "--export", str(folder))
    assert ran.code == 1
    assert "uplinks as fast as the NICs" in ran.err
    assert not folder.exists()
    ran = railopt_cli("simulate", TRAFFIC, "--fabric", leafy("spray"), "--export", str(folder))
    assert ran.code == 0
    assert "Radix_Down 2" in (folder / "fabric.topo").read_text()


def test_nccl_is_told_of_rates_that_differ_both_ways(railopt_cli: Cli, tmp_path: Path) -> None:
    fabric = tmp_path / "f.toml"
    nic = '[[nic]]\nnode = 1\nrail = 1\ntx = "100Gb/s"\n'
    fabric.write_text(f'nodes = 2\nrails = 2\nlink = "400Gb/s"\n{nic}')
    said = "node 1 rail 1: send and receive rates differ; NCCL has one speed, the lower"
    assert said in railopt_cli("fabric", "nccl", str(fabric), "--node", "1").err
    assert "differ" not in railopt_cli("fabric", "nccl", str(fabric)).err
