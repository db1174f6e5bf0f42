"""`railopt fabric show` and topology files on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from railopt import Fabric
from tests.topologies import bridge, dump, gpu, nic, smi, usual_dump

Cli = Callable[..., Any]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of descriptions, and the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "topo.xml").write_text(usual_dump(2))
    (tmp_path / "topo.txt").write_text(smi(["X NV18 PIX NODE", "NV18 X NODE PIX"]))
    Fabric.uniform(3, 2, gpus=4).save("fabric.toml")
    Fabric.uniform(4, 2).save("fabric.topo")
    return tmp_path


@pytest.mark.slow
def test_show_draws_and_says(here: Path, railopt_cli: Cli) -> None:
    ran = railopt_cli("fabric", "show", "topo.xml", "--figure", "node.svg")
    assert (ran.code, ran.err) == (0, "saved node.svg\n")
    assert ran.out.splitlines()[:4] == [
        "nodes: 1, GPUs per node: 2, rails: 2",
        "scale-up: 450GB/s per GPU, any pair at that rate",
        "  GPU 0 ----- rail 0 mlx5_0  400Gb/s",
        "  GPU 1 ----- rail 1 mlx5_1  400Gb/s",
    ]
    assert "  rail 1 is mlx5_1, near GPU 1 (PIX)\n" in ran.out
    assert (here / "node.svg").read_text().startswith("<?xml")
    assert railopt_cli("fabric", "show", "topo.xml", "--figure", "node.svg").code == 1
    assert railopt_cli("fabric", "show", "topo.xml", "--figure", "node.svg", "--force").code == 0


@pytest.mark.parametrize(
    ("arguments", "nodes", "near", "assumed"),
    [
        (["topo.txt", "--nodes", "4", "--link", "200Gb/s"], 4, [[0], [1]], "as given"),
        (["fabric.toml"], 3, [[0, 1], [2, 3]], "inside is not given"),
        (["fabric.topo"], 4, [[0], [1]], "scaleup is not given: 450GB/s per GPU assumed"),
        (["--fabric", "fabric.toml"], 3, [[0, 1], [2, 3]], "inside is not given"),
        (["--rails", "4", "--gpus", "2"], 8, [[0], [0], [1], [1]], "nodes is not given: 8 nodes"),
        ([], 8, [[n] for n in range(8)], "rails is not given: 8 rails assumed"),
    ],
)
def test_show_takes_every_form(
    arguments: list[str], nodes: int, near: object, assumed: str, here: Path, railopt_cli: Cli
) -> None:
    ran = railopt_cli("fabric", "show", *arguments, "--json")
    assert (ran.code, ran.err) == (0, "")
    data = json.loads(ran.out)
    assert (data["nodes"], data["inside"]["near"]) == (nodes, near)
    assert len(data["tx"]) == len(near)  # type: ignore[arg-type]
    assert any(assumed in text for text in data["assumed"])


def test_another_node_is_shown(here: Path, railopt_cli: Cli) -> None:
    ran = railopt_cli("fabric", "show", "fabric.toml", "--degrade", "1:0=0", "--node", "1")
    assert "rail 0  dead" in ran.out
    assert "rates are those of node 1" in ran.out


@pytest.mark.slow
def test_a_topology_is_a_fabric_for_other_commands(here: Path, railopt_cli: Cli) -> None:
    ran = railopt_cli("plan", "uniform", "--fabric", "topo.xml", "--nodes", "4", "--json")
    assert ran.code == 0
    assert "topo.xml: railopt fabric show says what is assumed of it" in ran.err
    assert railopt_cli("convert", "topo.txt", "f.toml", "--nodes", "3").code == 0
    assert Fabric.read("f.toml").nodes == 3


ALONE = dump([bridge(0, gpu(0))])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["fabric", "show", "missing.toml"], "missing.toml: No such file"),
        (["fabric", "show", "missing.xml"], "missing.xml: No such file"),
        (["fabric", "show", "odd.xml"], "odd.xml: of unknown form"),
        (["fabric", "show", "odd.txt"], "nor a node's topology: XML, or a matrix from GPU0 on"),
        (["fabric", "show", "alone.xml"], "alone.xml: no NIC in it"),
        (["fabric", "show", "laughs.xml"], "laughs.xml: declares types or entities"),
        (["fabric", "show", "long.xml"], "long.xml: more than 4194304 bytes"),
        (["fabric", "show", "no-nic.toml"], "no-nic.toml: GPU 1 has no NIC"),
        (["fabric", "show", "no-gpu.toml"], "no-gpu.toml: rail 1 belongs to no GPU"),
        (["convert", "no-gpu.toml", "f.toml"], "no-gpu.toml: rail 1 belongs to no GPU"),
        (["fabric", "show", "."], "Is a directory"),
        (
            ["fabric", "show", "topo.xml", "--fabric", "fabric.toml"],
            "--fabric can't do anything with FABRIC",
        ),
        (["fabric", "show", "topo.xml", "--rails", "4"], "--fabric and --rails contradict"),
        (["fabric", "show", "fabric.toml", "--nodes", "4"], "--fabric and --nodes contradict"),
        (["fabric", "show", "topo.xml", "--node", "1"], "node = 1: expected"),
        (["fabric", "show", "topo.xml", "--force"], "--force can't do anything"),
        (["fabric", "show", "topo.xml", "--figure", "node.gif"], "a figure is written as"),
        (["fabric", "show", "--rails", "129", "--figure", "node.svg"], "at most 128 of each"),
        (["fabric", "draw"], "invalid choice: 'draw'"),
        (["fabric"], "required"),
        (["plan", "moe", "--fabric", "topo.xml"], "describes one node: say how many"),
        (["convert", "topo.xml", "f.toml"], "describes one node: say how many"),
        (["convert", "topo.xml", "f.toml", "--rails", "2"], "--rails can't do anything"),
        (["convert", "odd.xml", "f.toml", "--nodes", "2"], "of unknown form"),
        (["convert", "topo.xml", "f.npz", "--nodes", "2"], "a fabric is written as"),
    ],
)
def test_mistakes(arguments: list[str], complaint: str, here: Path, railopt_cli: Cli) -> None:
    (here / "odd.xml").write_text("hello\n")
    (here / "odd.txt").write_text("hello\n")
    (here / "alone.xml").write_text(ALONE)
    (here / "laughs.xml").write_text('<!DOCTYPE s [<!ENTITY a "ha">]><system>&a;</system>')
    (here / "long.xml").write_text("<system>" + " " * (1 << 22))
    base = 'nodes = 2\nrails = 2\ngpus = 2\nlink = "1Gb/s"\n[inside]\n'
    (here / "no-nic.toml").write_text(f"{base}near = [[0], [0]]\n")
    (here / "no-gpu.toml").write_text(f"{base}near = [[0, 1], []]\n")
    before = sorted(path.name for path in here.iterdir())
    ran = railopt_cli(*arguments)
    assert (ran.code, ran.out) == (1, "")
    assert complaint in ran.err
    assert sorted(path.name for path in here.iterdir()) == before


def test_nics_of_two_rates_are_written_once_a_rail(here: Path, railopt_cli: Cli) -> None:
    (here / "two.xml").write_text(dump([bridge(0, gpu(0), nic(0), nic(1, 100_000))]))
    assert railopt_cli("convert", "two.xml", "two.toml", "--nodes", "100").code == 0
    assert (here / "two.toml").read_text().count("[[nic]]") == 1
    assert Fabric.read("two.toml") == Fabric.read("two.xml", nodes=100)
