"""The inside of a node: descriptions, files, refusals."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from railopt import Fabric, workloads
from railopt.errors import InputError
from railopt.inside import Inside


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
    from railopt import Plan, plan

    plan(fabric, moe.chunks("1MiB"), "own-nic").save(tmp_path / "plan.npz")
    loaded = Plan.load(tmp_path / "plan.npz")
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
        ("far = 1", "far"),
    ],
)
def test_odd_insides_are_refused(text: str, words: str, tmp_path: Path) -> None:
    path = tmp_path / "fabric.toml"
    path.write_text(BASE + text)
    with pytest.raises(InputError, match=words):
        Fabric.read(path)
