"""The inside of a node: descriptions, files, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from railopt import Fabric, Plan, plan, workloads
from railopt.base.errors import InputError
from railopt.model.inside import Inside


def test_the_usual_order() -> None:
    assert Inside.usual(4, 4).near.tolist() == np.eye(4, dtype=bool).tolist()
    assert Inside.usual(4, 2).as_dict()["near"] == [[0, 1], [2, 3]]
    assert Inside.usual(2, 4).as_dict()["near"] == [[0], [0], [1], [1]]
    assert Fabric.uniform(2, 4, gpus=2).node.owner.tolist() == [0, 0, 1, 1]


def test_an_inside_travels(tmp_path: Path) -> None:
    near = np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 0]], np.bool_)
    fabric = Fabric.uniform(3, 4, gpus=3, inside=Inside(near, 123_456_789))
    fabric.save(tmp_path / "fabric.toml")
    assert Fabric.read(tmp_path / "fabric.toml") == fabric
    assert Fabric.from_header(fabric.header(), fabric.tx, fabric.rx) == fabric
    assert fabric != replace(fabric, inside=None)
    assert fabric.degraded({(0, 0): "0.5"}).inside is fabric.inside
    moe = workloads.moe(fabric, seed=1)
    plan(fabric, moe.chunks("1MiB"), "own-nic").save(tmp_path / "plan.npz")
    loaded = Plan.read(tmp_path / "plan.npz")
    assert loaded.fabric == fabric
    assert loaded.staged == 0
    assert plan(fabric, moe.chunks("1MiB"), "lpt").staged > 0


BASE = 'nodes = 2\nrails = 2\ngpus = 2\nlink = "400Gb/s"\n[inside]\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("near = [[0], []]", "rail 1 belongs to no GPU"),
        ("near = [[0], [0]]", "GPU 1 has no NIC"),
        ("near = [[0]]", "for each of 2 rails"),
        ("near = [[0], 1]", "expected a list of GPUs"),
        ("near = [[0], [2]]", "expected a whole number from 0 to 1"),
        ('near = [["0"], [1]]', "expected a whole number"),
        ("pair = 5", "text with a unit"),
        ('pair = "fast"', "fast"),
        ("far = 1", "far = 1: expected a text with a unit"),
        ('far_together = "70Gb/s"', "expected at most far"),
        ('far = "70Gb/s"\nfar_together = "234Gb/s"', "expected at most far"),
        ('bridge = "70Gb/s"', "unknown key 'bridge'"),
    ],
)
def test_odd_insides_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "fabric.toml"
    path.write_text(BASE + text)
    with pytest.raises(InputError, match=words):
        Fabric.read(path)


TABLE = """
nodes = 2
rails = 2
link = "400Gb/s"        # a NIC on the GPU's own PCIe switch, alone
scaleup = "450GB/s"
[inside]
near = [[0], [1]]
far = "234Gb/s"         # a NIC across the host bridge, alone
far_together = "70Gb/s" # each of the two, when a GPU uses both
"""


def test_a_table_of_near_and_far_nics_and_plans_that_use_no_far_one(tmp_path: Path) -> None:
    """One near NIC 400 Gb/s, one far 234, both together 70 each: NCCL's issue 2310."""
    (tmp_path / "fabric.toml").write_text(TABLE)
    fabric = Fabric.read(tmp_path / "fabric.toml")
    node = fabric.node
    assert (node.far, node.far_together) == (29_250_000_000, 8_750_000_000)
    assert Fabric.from_header(fabric.header(), fabric.tx, fabric.rx) == fabric
    fabric.save(tmp_path / "again.toml")
    assert Fabric.read(tmp_path / "again.toml") == fabric
    assert fabric != replace(fabric, inside=Inside(node.near))

    chunks = workloads.zipf(fabric, skew=1.2, mean="4MiB", seed=3).chunks("64KiB")
    gpu = chunks.src_gpu % fabric.gpus
    for policy in ("own-nic", "lpt"):
        made = plan(fabric, chunks, policy)
        far = ~node.near[gpu, made.rail]
        assert made.staged == int(chunks.size[far].sum())
        for source in (0, 1):  # what a GPU has for the other's NIC goes to its owner, byte by byte
            for k in range(fabric.nodes):
                mine = far & (gpu == source) & (chunks.src == k)
                theirs = (chunks.dst == k) & (made.rail == source)
                passed_on = theirs & (chunks.dst_gpu % fabric.gpus == 1 - source)
                moved = int(chunks.size[mine].sum() + chunks.size[passed_on].sum())
                assert made.moves.pairs[k, source, 1 - source] == moved
        assert far.any() == (policy == "lpt")
        assert made.moves.pairs[:, [0, 1], [0, 1]].sum() == 0


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("rails = 4\ngpus = 2", [[0], [0], [1], [1]]),  # two planes, or two NICs, a GPU
        ("rails = 4\ngpus = 8", [[0, 1], [2, 3], [4, 5], [6, 7]]),  # shared
        ("rails = 3\ngpus = 2\n[inside]\nnear = [[0], [1], [0, 1]]", [[0], [1], [0, 1]]),
        ("rails = 4\ngpus = 2\n[inside]\nplanes = 2", [[0], [0], [1], [1]]),
    ],
)
def test_planes_and_shared_nics(text: str, near: list[list[int]], tmp_path: Path) -> None:
    path = tmp_path / "fabric.toml"
    path.write_text(f'nodes = 2\nlink = "400Gb/s"\n{text}')
    fabric = Fabric.read(path)
    assert fabric.node.as_dict()["near"] == near
    fabric.save(tmp_path / "again.toml")
    assert Fabric.read(tmp_path / "again.toml") == fabric
    assert Fabric.from_header(fabric.header(), fabric.tx, fabric.rx) == fabric
    made = plan(fabric, workloads.uniform(fabric, size="1MiB").chunks("64KiB"), "own-nic")
    assert made.staged == 0
    assert (made.send > 0).all()
