"""Conversion between formats from Python, and where traffic comes from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import railopt
from railopt import Fabric, Spine, Traffic
from railopt.base.errors import InputError
from tests.topologies import usual_dump

FABRIC = Fabric.uniform(nodes=2, rails=2)


def test_traffic_from_a_file_or_a_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    generated = railopt.traffic_from("uniform:size=1KiB", FABRIC)
    assert generated == railopt.workloads.uniform(FABRIC, size="1KiB")
    railopt.workloads.incast(FABRIC).save("uniform")
    assert railopt.traffic_from("uniform", FABRIC) == railopt.workloads.incast(FABRIC)
    for text, complaint in (
        ("nothing", "known workloads"),
        ("nothing.txt", "No such file"),
        ("x" * 5000, "neither a file nor a workload"),
        ("a\0b", "neither a file"),
    ):
        with pytest.raises(InputError, match=complaint):
            railopt.traffic_from(text, FABRIC)


def test_traffic_keeps_its_own_size(tmp_path: Path) -> None:
    traffic = railopt.workloads.zipf(FABRIC, mean="3KiB")
    traffic.save(tmp_path / "t.npz")
    railopt.convert(tmp_path / "t.npz", tmp_path / "t.txt")
    assert Traffic.read(tmp_path / "t.txt", FABRIC) == traffic
    railopt.convert(tmp_path / "t.txt", tmp_path / "back.npz", FABRIC)
    assert Traffic.read(tmp_path / "back.npz") == traffic
    with pytest.raises(InputError, match="give no fabric"):
        railopt.convert(tmp_path / "t.npz", tmp_path / "u.txt", FABRIC)
    with pytest.raises(InputError, match="exists"):
        railopt.convert(tmp_path / "t.npz", tmp_path / "t.txt")
    railopt.convert(tmp_path / "t.npz", tmp_path / "t.txt", force=True)


def test_what_does_not_become_what(tmp_path: Path) -> None:
    FABRIC.save(tmp_path / "f.toml")
    plan = railopt.plan(FABRIC, railopt.workloads.uniform(FABRIC).chunks("1MiB"))
    plan.save(tmp_path / "p.npz")
    for source, target, complaint in (
        (tmp_path / "f.toml", "t.npz", "written as .toml or .topo"),
        ("uniform", "f.topo", "a fabric comes from"),
        ("uniform", "x.html", "traffic is written as"),
        ("uniform", "x.yaml", "traffic is written as"),
        ("uniform", "x.jsonl", "traffic is written as"),
        (tmp_path / "p.npz", "p.txt", "a plan is written as .cm or .et"),
    ):
        with pytest.raises(InputError, match=complaint):
            railopt.convert(source, tmp_path / target)
        assert not (tmp_path / target).exists()
    railopt.convert(tmp_path / "p.npz", tmp_path / "p.cm")
    assert (tmp_path / "p.cm").read_text() == plan.to_cm()


def test_topo_says_what_it_can_and_refuses_the_rest(tmp_path: Path) -> None:
    fabric = Fabric.uniform(4, 2, spine=Spine(4, 50 * 10**9))
    fabric.save(tmp_path / "f.topo")
    assert Fabric.read(tmp_path / "f.topo") == fabric
    for odd, complaint in (
        (Fabric.uniform(4, 2, spine=Spine(4, 10**9)), "as fast as the NICs"),
        (Fabric.uniform(4, 2, latency="1ns"), "whole nanoseconds"),
        (Fabric.uniform(4, 2, "1.5Gb/s"), "whole Gb/s"),
        (fabric.degraded({(0, 0): "0"}), "dead"),
    ):
        with pytest.raises(InputError, match=complaint):
            odd.to_topo()


def test_what_a_format_has_no_place_for_is_said(tmp_path: Path) -> None:
    Fabric.uniform(4, 2, gpus=4).save(tmp_path / "f.toml")
    said = railopt.convert(tmp_path / "f.toml", tmp_path / "f.topo").assumed
    assert said[0].startswith("gpus left out")
    assert said[1].startswith("a spine added")
    Fabric.uniform(4, 2, spine=Spine(4, 50 * 10**9)).save(tmp_path / "s.toml")
    assert railopt.convert(tmp_path / "s.toml", tmp_path / "s.topo").assumed == ()
    Traffic(np.full((4, 4), 512), 2).save(tmp_path / "t.npz")
    said = railopt.convert(tmp_path / "t.npz", tmp_path / "t.cm").assumed
    assert said == ("4KiB inside nodes left out: a .cm has NICs alone",)
    assert railopt.convert(tmp_path / "t.npz", tmp_path / "t.csv").assumed == ()


def test_htsim_connections_become_traffic(tmp_path: Path) -> None:
    railopt.workloads.zipf(FABRIC, mean="3KiB").save(tmp_path / "t.cm")
    railopt.convert(tmp_path / "t.cm", tmp_path / "t.npz", FABRIC)
    crossed = railopt.workloads.zipf(FABRIC, mean="3KiB").node_matrix
    assert np.array_equal(Traffic.read(tmp_path / "t.npz").node_matrix, crossed)


def test_a_nodes_topology_becomes_a_fabric(tmp_path: Path) -> None:
    (tmp_path / "topo.xml").write_text(usual_dump(2))
    said = railopt.convert(tmp_path / "topo.xml", tmp_path / "f.toml", nodes=5, link="200Gb/s")
    assert said.assumed[-1] == "every node is like this one"
    fabric = Fabric.read(tmp_path / "f.toml")
    assert (fabric.nodes, fabric.gpus, int(fabric.tx.max())) == (5, 2, 25 * 10**9)
    said = railopt.convert(tmp_path / "f.toml", tmp_path / "f.topo")
    assert said.assumed[0].startswith("inside left out")
    for source, target, options, complaint in (
        ("topo.xml", "g.toml", {}, "say how many"),
        ("topo.xml", "g.npz", {"nodes": 2}, "a fabric is written as"),
        ("topo.xml", "g.toml", {"fabric": FABRIC}, "give no fabric"),
        ("f.toml", "g.toml", {"nodes": 2}, "says its own nodes"),
    ):
        with pytest.raises(InputError, match=complaint):
            railopt.convert(tmp_path / source, tmp_path / target, **options)  # type: ignore[arg-type]
        assert not (tmp_path / target).exists()
    with pytest.raises(InputError, match="for the topology of one node"):
        railopt.convert("uniform", tmp_path / "t.npz", nodes=2)


def test_suffixes_in_upper_case_say_the_same(tmp_path: Path) -> None:
    FABRIC.save(tmp_path / "F.TOML")
    railopt.convert(tmp_path / "F.TOML", tmp_path / "F.TOPO")
    assert Fabric.read(tmp_path / "F.TOPO").nodes == FABRIC.nodes
    plan = railopt.plan(FABRIC, railopt.workloads.uniform(FABRIC).chunks("1MiB"))
    plan.save(tmp_path / "P.NPZ")
    railopt.convert(tmp_path / "P.NPZ", tmp_path / "P.CM")
    assert (tmp_path / "P.CM").read_text() == plan.to_cm()
    traces = railopt.convert(tmp_path / "P.NPZ", tmp_path / "P.ET").paths
    assert sum(path.suffix == ".et" for path in traces) == 4
    railopt.convert("uniform", tmp_path / "T.NPZ", FABRIC)
    assert Traffic.read(tmp_path / "T.NPZ") == railopt.workloads.uniform(FABRIC)
