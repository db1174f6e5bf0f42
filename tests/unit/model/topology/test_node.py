"""Whose NIC is which: from distances to the inside of a node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from railopt import Fabric, plan, workloads
from railopt.base.errors import InputError
from railopt.model.topology import describes_node, parse_node
from railopt.model.topology.node import DISTANCES, nearest
from tests.topologies import smi, usual_dump


def near(*rows: str) -> list[list[int]]:
    """The NICs that each GPU is near, from words a GPU."""
    distance = np.array([[DISTANCES.index(word) for word in row.split()] for row in rows], np.int64)
    return [np.flatnonzero(row).tolist() for row in nearest(distance)]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (["PIX NODE", "NODE PIX"], [[0], [1]]),
        (["PIX PXB", "PXB PIX"], [[0], [1]]),  # PIX before PXB
        (["PXB PXB SYS", "PXB PXB SYS", "SYS SYS PIX"], [[0, 1], [0, 1], [2]]),  # a switch of two
        (["PIX NODE", "PIX NODE", "NODE PIX"], [[0], [0], [1]]),  # shared
        (["PIX PIX SYS", "SYS SYS PIX"], [[0, 1], [2]]),  # several, or planes
        (["PIX PXB", "PIX SYS"], [[0, 1], [0]]),  # a NIC below the bridge is nobody's else
        (["PIX NODE NODE", "NODE PIX NODE"], [[0], [1]]),  # the third is for storage
        (["PIX NODE SYS", "NODE NODE SYS"], [[0], [1]]),  # no NIC on its switch: a free one
        (["PIX SYS", "SYS PIX", "NODE SYS", "NODE SYS"], [[0], [1], [0], [0]]),
        (["PHB PHB", "PHB PHB"], [[0], [1]]),  # every NIC across the bridge: one each
        (["PHB PHB PHB PHB", "PHB PHB PHB PHB"], [[0, 2], [1, 3]]),
        (["SYS"], [[0]]),
    ],
)
def test_the_near_nics(rows: list[str], expected: list[list[int]]) -> None:
    assert near(*rows) == expected


def test_no_gpu_is_without_a_nic_and_no_kept_nic_without_a_gpu() -> None:
    rng = np.random.default_rng(1)
    for _ in range(300):
        distance = rng.integers(0, len(DISTANCES), rng.integers(1, 7, 2))
        made = nearest(distance)
        assert made.any(axis=1).all()
        left_out = ~made.any(axis=0)
        assert (distance[:, left_out] > 1).all()


def test_what_is_found_and_assumed_is_said() -> None:
    said = parse_node(
        smi(["X NV18 PIX NODE NODE", "NV18 X NODE PIX NODE"], names=["a_bond_0", "b", "c"])
    ).assumed
    assert said == (
        "rail 0 is a_bond_0, near GPU 0 (PIX)",
        "a_bond_0 is a bond: one rail at the rate of its members together",
        "rail 1 is b, near GPU 1 (PIX)",
        "c: left out, across a host bridge from every GPU",
        "the rate of a_bond_0, b is not in the file: 400Gb/s assumed",
        "18 NVLinks per GPU at 25GB/s each (the matrix does not say which: 50GB/s for Blackwell), "
        "from GPU to GPU, at least 18 a pair",
        "latency is not in the file: 1us assumed",
    )
    bridged = parse_node(smi(["X SYS PHB", "SYS X SYS"]), link="100Gb/s")
    assert bridged.rates.tolist() == [12_500_000_000]
    words = "\n".join(bridged.assumed)
    assert "every NIC at 100Gb/s, as given" in words
    assert "GPU 1 has no NIC on its own switch" in words
    assert "every GPU is across a host bridge from rail 0" in words
    assert "PCIe at 32GB/s assumed" in words


def test_a_node_becomes_a_fabric_that_plans(tmp_path: Path) -> None:
    path = tmp_path / "topo.xml"
    path.write_text(usual_dump(4))
    fabric = Fabric.read(path, nodes=3)
    assert fabric == Fabric.read(path, nodes=3)
    assert fabric.node.as_dict() == {"near": [[0], [1], [2], [3]], "pair": None}
    assert (fabric.nodes, fabric.gpus, fabric.scaleup) == (3, 4, 450 * 10**9)
    assert (fabric.tx == 50 * 10**9).all()
    fabric.save(tmp_path / "fabric.toml")
    assert Fabric.read(tmp_path / "fabric.toml") == fabric
    traffic = workloads.uniform(fabric, size="1MiB")
    assert plan(fabric, traffic.chunks("1MiB"), "own-nic").staged == 0
    assert (Fabric.read(path, nodes=2, link="200Gb/s").tx == 25 * 10**9).all()


def test_nodes_and_link_are_for_a_nodes_topology_alone(tmp_path: Path) -> None:
    (tmp_path / "topo.xml").write_text(usual_dump(2))
    Fabric.uniform(2, 2).save(tmp_path / "fabric.toml")
    for path, options, words in (
        ("topo.xml", {}, "describes one node: say how many"),
        ("topo.xml", {"nodes": 0}, "nodes = 0: expected a whole number"),
        ("topo.xml", {"nodes": 1 << 20, "link": "fast"}, "'fast' is not a rate"),
        ("fabric.toml", {"nodes": 2}, "says its own nodes"),
        ("fabric.toml", {"link": "1Gb/s"}, "says its own nodes"),
    ):
        with pytest.raises(InputError, match=words):
            Fabric.read(tmp_path / path, **options)  # type: ignore[arg-type]


def test_which_files_describe_a_node(tmp_path: Path) -> None:
    texts = {
        "topo.xml": "anything",
        "TOPO.XML": "anything",
        "dump.txt": usual_dump(2),
        "topo.txt": "$ nvidia-smi topo -m\n" + smi(["X PIX"]),
        "matrix.txt": "1 2\n3 4\n",
        "fabric.toml": "GPU0 = 1\n",
        "FABRIC.TOML": "GPU0 = 1\n",
        "binary": "\0\1\2",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = {name for name in texts if describes_node(tmp_path / name)}
    assert found == {"topo.xml", "TOPO.XML", "dump.txt", "topo.txt"}
    assert not describes_node(tmp_path)
    assert not describes_node(tmp_path / "missing")
    assert not describes_node("a\0b")


@pytest.mark.parametrize("text", ["", "hello", "GPU1 GPU2", "nodes = 2", "\ufeff", "{}"])
def test_an_unknown_form(text: str, tmp_path: Path) -> None:
    (tmp_path / "topo.xml").write_text(text)
    with pytest.raises(InputError, match="of unknown form: expected the XML of NCCL_TOPO"):
        Fabric.read(tmp_path / "topo.xml", nodes=2)
