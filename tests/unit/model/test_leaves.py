"""Leaves of a fabric: read, written, refused."""

from __future__ import annotations

import tomllib
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Plan, plan, workloads
from railopt.base.errors import InputError
from railopt.model.fabric import Spine
from railopt.model.leaves import Leaves

PLAIN = 'nodes = 8\nrails = 4\nlink = "400Gb/s"\n'
LINE = 50 * 10**9


def test_they_are_read_with_what_is_usual() -> None:
    fabric = Fabric.from_toml(tomllib.loads(f"{PLAIN}[leaves]\nnodes = 4\n"))
    assert fabric.leaves == Leaves(4, 4, LINE, "ecmp", 1)
    tree = Fabric.from_toml(tomllib.loads(f"{PLAIN}[leaves]\nnodes = 2\nrails = 4\n"))
    assert tree.leaves == Leaves(2, 8, LINE, "ecmp", 4)


@pytest.mark.parametrize("way", ["ecmp", "adaptive", "spray"])
def test_they_come_back(way: str, tmp_path: Path) -> None:
    fabric = replace(Fabric.uniform(8, 4), leaves=Leaves(3, 2, 12345, way, 2))
    assert Fabric.from_toml(tomllib.loads(fabric.to_toml())) == fabric
    assert Fabric.from_header(fabric.header(), fabric.tx, fabric.rx) == fabric
    made = plan(fabric, workloads.moe(fabric, tokens=8, seed=1).chunks("flow"))
    made.save(tmp_path / "plan.npz")
    assert Plan.read(tmp_path / "plan.npz").fabric.leaves == fabric.leaves


def test_they_are_part_of_what_makes_fabrics_equal() -> None:
    plain = Fabric.uniform(8, 4)
    made = [replace(plain, leaves=Leaves(4, 4, LINE, way)) for way in ("ecmp", "spray")]
    assert len({plain, *made}) == 3
    assert "leaves" not in plain.header()


def test_nics_hang_on_leaves_by_rails_and_groups() -> None:
    node, rail = np.arange(7), np.arange(5)
    leaf = Leaves(3, 1, 1, rails=2).of(node[:, None], rail, 7)
    assert leaf[:, 0].tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert leaf[0].tolist() == [0, 0, 3, 3, 6]
    assert leaf.max() + 1 == Leaves(3, 1, 1, rails=2).count(7, 5)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("uplinks = 4", r"\[leaves\] has no 'nodes'"),
        ("nodes = 0", "leaves nodes = 0: expected a whole number from 1"),
        ("nodes = 9", "leaves of 9 nodes and 1 rails: the fabric has 8 and 4"),
        ("nodes = 4\nrails = 5", "leaves of 4 nodes and 5 rails"),
        ("nodes = 4\nuplinks = 0", "leaves uplinks = 0"),
        ('nodes = 4\nway = "sprays"', "leaves way 'sprays': expected ecmp, adaptive, spray"),
        ("nodes = 4\nrate = 7", "rate = 7: expected a text with a unit"),
        ("nodes = 4\nuplink = 7", r"\[leaves\]: unknown key 'uplink'"),
        ('nodes = 4\n[spine]\nrate = "1Gb/s"', "a spine beside leaves"),
    ],
)
def test_what_makes_no_sense_is_refused(table: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Fabric.from_toml(tomllib.loads(f"{PLAIN}[leaves]\n{table}\n"))


@pytest.mark.parametrize("wrong", [{"nodes": 2}, 3, {**asdict(Leaves(2, 2, 2)), "more": 1}])
def test_headers_of_another_form_are_refused(wrong: Any) -> None:
    fabric = Fabric.uniform(4, 2)
    with pytest.raises(InputError, match="expected Leaves of nodes, uplinks"):
        Fabric.from_header({**fabric.header(), "leaves": wrong}, fabric.tx, fabric.rx)


def test_the_tier_of_a_fabric_without_leaves_is_its_spine() -> None:
    assert Fabric.uniform(4, 2).tier == Leaves(4, 4, LINE)
    assert Fabric.uniform(4, 2, spine=Spine(3, 5)).tier == Leaves(4, 3, 5)


def test_htsim_has_leaves_of_one_rail_and_as_many_nics_each() -> None:
    fabric = replace(Fabric.uniform(8, 2), leaves=Leaves(4, 2, LINE))
    lines = fabric.to_topo().splitlines()
    assert [line for line in lines if line.startswith(("Nodes", "Radix"))] == [
        "Nodes 16",
        "Radix_Down 4",
        "Radix_Up 2",
        "Radix_Down 4",
    ]
    for leaves, message in (
        (Leaves(4, 2, LINE, rails=2), "all of one rail"),
        (Leaves(3, 2, LINE), "as many NICs each"),
        (Leaves(4, 2, LINE // 2), "uplinks as fast as the NICs"),
    ):
        with pytest.raises(InputError, match=message):
            replace(fabric, leaves=leaves).to_topo()
