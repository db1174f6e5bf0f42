"""Fabrics as NCCL's topology files, and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from railopt import Candidate, Fabric
from railopt.base.errors import FormatError, InputError
from railopt.model.inside import Inside
from railopt.model.topology import parse_node
from railopt.model.topology.writing import format_dump, with_speeds
from tests.topologies import bridge, dump, gpu, net, nic, usual_dump

NEAR = np.array([[1, 1, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 1, 0, 0], [0, 0, 0, 1, 1]], bool)


def unequal() -> Fabric:
    made = Fabric.uniform(2, 3, gpus=3)
    return replace(made, tx=made.tx // np.array([1, 2, 4]), rx=made.rx // np.array([1, 2, 4]))


@pytest.mark.parametrize(
    "fabric",
    [
        Fabric.uniform(2, 8),
        Fabric.uniform(2, 4, "200Gb/s", gpus=8, scaleup="900GB/s"),
        Fabric.uniform(2, 16, gpus=8, scaleup="300GB/s"),
        Fabric.uniform(2, 2, gpus=2, scaleup="14GB/s"),
        Fabric.uniform(2, 5, gpus=4, inside=Inside(NEAR)),
        Fabric.uniform(
            2, 4, gpus=4, scaleup="150GB/s", inside=Inside(np.eye(4, dtype=bool), 50 * 10**9)
        ),
        unequal(),
        Candidate("planes", rails=4, planes=2, link="800Gb/s").fabric(2, 4),
        Candidate("planes of shared NICs", rails=2, planes=3, link="600Gb/s").fabric(2, 4),
    ],
    ids=["usual", "shared", "two-each", "slow", "near", "pairs", "unequal", "planes", "few-planes"],
)
def test_there_and_back(fabric: Fabric) -> None:
    rates = fabric.tx[0].tolist()
    devices = tuple(f"rdma{rail}" for rail in range(fabric.rails, 0, -1))
    made = format_dump(fabric.node, rates, fabric.scaleup, devices)
    assert [text.split(":")[0] for text in made.lost] == ["PCI addresses"]
    again = Fabric.from_node(parse_node(made.text), 2)
    assert again == replace(fabric, inside=fabric.node)
    assert again.node.planes == fabric.node.planes
    assert again.devices == devices


def test_devices_have_names_where_the_file_names_each_alone() -> None:
    for names in (["a", "a"], ["a", "b+c"], ["a", "net 1"], ["NIC0", "b"]):
        pairs = [bridge(n, gpu(n), nic(n, name=name)) for n, name in enumerate(names)]
        assert Fabric.from_node(parse_node(dump(pairs)), 2).devices == ()


def test_what_nccl_can_not_say_is_said() -> None:
    fabric = Fabric.uniform(1, 4, scaleup="451GB/s").degraded({(0, 2): "0"})
    made = format_dump(fabric.node, fabric.tx[0].tolist(), fabric.scaleup)
    lost = ["scale-up of 3.608Tb/s", "PCI addresses", "names of NICs", "mlx5_2"]
    assert [text.split(":")[0] for text in made.lost] == lost
    found = parse_node(made.text)
    assert [one.rail for one in found.nics] == [0, 1, 3]
    crossed = np.array([[1, 1, 0], [0, 1, 1]], bool)
    with pytest.raises(InputError, match="share a part of their NICs"):
        format_dump(Inside(crossed), [1, 1, 1], 10**9)


def test_measured_speeds_go_into_the_dump_of_a_node() -> None:
    inside, devices = Inside.usual(2, 2), ["mlx5_1", "mlx5_0"]
    rates = [50 * 10**9, 25 * 10**9]
    made = with_speeds(usual_dump(2), "topo.xml", inside, rates, devices)
    found = parse_node(made.text)
    assert [one.name for one in found.nics] == ["mlx5_1", "mlx5_0"], "in the order of their rails"
    assert found.rates.tolist() == [50 * 10**9, 25 * 10**9]
    assert found.inside.near.tolist() == [[False, True], [True, False]]
    assert "mlx5_1 is dead" in with_speeds(usual_dump(2), "t", inside, [0, 1], devices).lost[0]
    with pytest.raises(InputError, match="no NIC named 'mlx5_7'"):
        with_speeds(usual_dump(2), "topo.xml", inside, rates, ["mlx5_0", "mlx5_7"])
    with pytest.raises(FormatError, match="not valid XML"):
        with_speeds("<system", "topo.xml", inside, rates, devices)


def test_a_dead_nic_may_be_missing_and_a_slow_one_keeps_a_speed() -> None:
    text = dump([bridge(0, gpu(0), nic(0, more='gdr="1" rail="3" plane="1"'))])
    inside = Inside(np.ones((1, 2), bool))
    made = with_speeds(text, "topo.xml", inside, [7, 0], ["mlx5_0", "mlx5_1"])
    (found,) = parse_node(made.text).nics
    assert (found.rate, found.rail, found.plane) == (10**6 // 8, 0, None)
    (found,) = parse_node(format_dump(inside, [7, 0], 10**9).text).nics
    assert found.rate == 10**6 // 8


def test_planes_go_into_the_dump_of_a_node() -> None:
    text = dump([bridge(0, gpu(0), nic(0), nic(1))])
    inside = Inside(np.ones((1, 2), bool), planes=2)
    made = with_speeds(text, "topo.xml", inside, [25 * 10**9] * 2, ["mlx5_1", "mlx5_0"])
    found = parse_node(made.text)
    said = [(one.name, one.rail, one.plane) for one in found.nics]
    assert said == [("mlx5_1", 0, 0), ("mlx5_0", 0, 1)]
    assert found.inside.planes == 2


def test_planes_are_those_that_every_rail_has_near_the_same_gpus() -> None:
    """One rail with two planes beside one with a single plane; planes near different GPUs."""
    numbers = [(0, 0), (0, 1), (1, 0)]
    nics = [nic(n, more=f'rail="{r}" plane="{p}"') for n, (r, p) in enumerate(numbers)]
    assert parse_node(dump([bridge(0, gpu(0), *nics)])).inside.planes == 1
    apart = [bridge(n, gpu(n), nics[n]) for n in range(2)]
    assert parse_node(dump(apart)).inside.planes == 1
    for rails, planes in ((4, 3), (2, 2)):
        with pytest.raises(InputError, match=f"planes = {planes} of {rails} rails"):
            Inside(np.eye(2, rails, dtype=bool) | (np.arange(rails) > 1), planes=planes)


@pytest.mark.parametrize(
    ("more", "names", "said"),
    [
        (['rail="3"', 'rail="1"'], ["mlx5_1", "mlx5_0"], "in the order of the file's rail"),
        (['rail="0" plane="1"', 'rail="0" plane="0"'], ["mlx5_1", "mlx5_0"], "in the order"),
        (['rail="1"', ""], ["mlx5_0", "mlx5_1"], "1 NICs have no rail in the file"),
        (['rail="2"', 'rail="2"'], ["mlx5_0", "mlx5_1"], "1 NICs share the rail of another"),
        (['rail="-1"', ""], ["mlx5_0", "mlx5_1"], ""),
    ],
)
def test_rails_and_planes_of_the_file_count(more: list[str], names: list[str], said: str) -> None:
    pairs = [bridge(g, gpu(g), nic(g, more=text)) for g, text in enumerate(more)]
    found = parse_node(dump(pairs))
    assert [one.name for one in found.nics] == names
    assert any(said in text for text in found.assumed)


@pytest.mark.parametrize("wrong", ['rail="x"', 'plane="1e9"', 'rail="99999999999"'])
def test_a_rail_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(FormatError, match="of a <net>"):
        parse_node(dump([bridge(0, gpu(0), nic(0, more=wrong), net(1))]))


@pytest.mark.parametrize("seed", range(20))
def test_any_node_of_whole_switches_goes_there_and_back(seed: int) -> None:
    """GPUs and NICs below switches of any sizes, NICs of any whole Mb/s, links of any number."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(1, 4, (int(rng.integers(1, 5)), 2))
    gpus, rails = blocks.sum(axis=0)
    near = np.zeros((gpus, rails), bool)
    owner = np.repeat(np.arange(len(blocks)), blocks[:, 0])[rng.permutation(gpus)]
    switch = np.repeat(np.arange(len(blocks)), blocks[:, 1])[rng.permutation(rails)]
    near[owner[:, None] == switch] = True
    rates = rng.integers(1, 10**6, rails) * 125_000
    scaleup = int(rng.integers(1, 40)) * int(rng.choice([14, 20, 25, 50])) * 10**9
    made = format_dump(Inside(near), rates.tolist(), scaleup)
    found = parse_node(made.text)
    assert len(made.lost) == 2, "addresses and names"
    assert found.inside.near.tolist() == near.tolist()
    assert found.rates.tolist() == rates.tolist()
    assert found.scaleup == scaleup
