"""`railopt fabric check` and `fabric nccl`: what is wired, and what NCCL is told."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from railopt import Candidate, Fabric, Spine
from railopt.answers.wiring import check_wiring, variables
from railopt.base.errors import InputError
from railopt.model.topology import parse_node
from railopt.model.topology.writing import format_dump
from tests.topologies import bridge, dump, gpu, nic

Cli = Callable[..., Any]
DEVICES = ("mlx5_0", "mlx5_1", "mlx5_2")
PLANNED = replace(Fabric.uniform(3, 3), hosts=("a", "b", "c"), devices=DEVICES)


def wired(rails: list[int], speed: int = 400_000, order: tuple[int, ...] = (0, 1, 2)) -> str:
    """NIC n on rail rails[n], beside GPU order[n]; `speed` is that of the last."""
    speeds = [400_000, 400_000, speed]
    pairs = [
        bridge(n, gpu(order[n]), nic(n, speeds[n], more=f'rail="{rails[n]}"')) for n in range(3)
    ]
    return dump(pairs)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    PLANNED.save("plan.toml")
    for host in "abc":
        (tmp_path / f"{host}.xml").write_text(wired([10, 11, 12]))
    return tmp_path


FILES = ("a.xml", "b.xml", "c.xml")


def test_numbers_of_rails_are_names(here: Path, railopt_cli: Cli) -> None:
    ran = railopt_cli("fabric", "check", "plan.toml", "--wired", *FILES)
    assert (ran.code, ran.out, ran.err) == (0, "wired as planned\n", "")


def test_cables_without_numbers_of_rails_are_not_called_right(here: Path, railopt_cli: Cli) -> None:
    for blind, host in enumerate("cb", 1):
        (here / f"{host}.xml").write_text(re.sub(' rail="..?"', "", wired([10, 11, 12])))
        ran = railopt_cli("fabric", "check", "plan.toml", "--wired", *FILES)
        assert (ran.code, ran.out) == (0, "no difference in what was compared\n")
        assert f"{blind} of 3 files have NICs of no rail: cables not compared" in ran.err


def test_two_rails_have_two_numbers(here: Path, railopt_cli: Cli) -> None:
    for host in "abc":
        (here / f"{host}.xml").write_text(wired([0, 0, 2]))
    ran = railopt_cli("fabric", "check", "plan.toml", "--wired", *FILES)
    assert ran.code == 4
    assert ran.out.splitlines()[:-1] == [f"{h} mlx5_1: on rail 0, planned rail 1" for h in "abc"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            wired([11, 10, 12]),
            [
                "b mlx5_0: cables swapped with mlx5_1, planned rail 0",
                "b mlx5_1: cables swapped with mlx5_0, planned rail 1",
            ],
        ),
        (wired([10, 12, 12]), ["b mlx5_1: on rail 2, planned rail 1"]),
        (wired([10, 11, 99]), ["b mlx5_2: on a rail of no other node, planned rail 2"]),
        (wired([10, 11, 12], 200_000), ["b mlx5_2: its port runs at 200Gb/s, planned 400Gb/s"]),
        (
            wired([10, 11, 12], order=(0, 2, 1)),
            ["b mlx5_1: near GPU 2, planned 1", "b mlx5_2: near GPU 1, planned 2"],
        ),
        (
            wired([10, 11, 12]).replace("mlx5_1", "mlx5_9"),
            ["b mlx5_1: not there", "b mlx5_9: not in the plan"],
        ),
        (
            dump(
                [bridge(0, gpu(0), nic(0, more='rail="10"')), bridge(1, gpu(1))],
                [bridge(2, gpu(2), nic(2, more='rail="12"')), nic(1, more='rail="12"')],
            ),
            [
                "b mlx5_1: far from every GPU, planned near 1",
                "b mlx5_1: on rail 2, planned rail 1",
            ],
        ),
    ],
    ids=["swapped", "other rail", "no rail", "slow", "other GPU", "missing", "far"],
)
def test_what_is_not_as_planned_is_named(
    here: Path, railopt_cli: Cli, text: str, said: list[str]
) -> None:
    (here / "b.xml").write_text(text)
    ran = railopt_cli("fabric", "check", "plan.toml", "--wired", *FILES)
    assert ran.code == 4
    assert ran.out.splitlines()[:-1] == said
    data = json.loads(railopt_cli("fabric", "check", "plan.toml", "--wired", *FILES, "--json").out)
    assert [one["node"] for one in data["mismatches"]] == [1] * len(said)


def test_a_dead_nic_of_the_plan_may_be_missing() -> None:
    pairs = [bridge(n, gpu(n), *([] if n == 1 else [nic(n)])) for n in range(3)]
    wired = {1: parse_node(dump(pairs))}
    assert check_wiring(PLANNED.degraded({(1, 1): "0"}), wired) == []
    assert [one.what for one in check_wiring(PLANNED, wired)] == ["not there"]
    pairs = [bridge(0, gpu(0)), bridge(1, gpu(1), nic(0)), bridge(2, gpu(2), nic(2))]
    found = check_wiring(PLANNED, {1: parse_node(dump(pairs))})
    assert [one.what for one in found] == ["near GPU 1, planned 0", "not there"]


def test_planes_of_a_rail_are_told_apart() -> None:
    planned = Candidate("planes", rails=2, planes=2).fabric(3, 2)
    devices = tuple(f"mlx5_{n}" for n in range(4))
    planned = replace(planned, devices=devices)
    text = format_dump(planned.node, planned.tx[0].tolist(), planned.scaleup, devices).text
    crossed = re.sub(
        r'rail="0" plane="(.)"', lambda m: f'rail="0" plane="{1 - int(m.group(1))}"', text
    )
    wired = {node: parse_node(one) for node, one in enumerate([text, crossed, text])}
    found = [(one.node, one.device, one.what) for one in check_wiring(planned, wired)]
    assert found == [
        (1, "mlx5_0", "cables swapped with mlx5_1, planned rail 0"),
        (1, "mlx5_1", "cables swapped with mlx5_0, planned rail 1"),
    ]
    plain = re.sub(' plane="."', "", text)
    wired = dict.fromkeys(range(3), parse_node(plain))
    assert check_wiring(planned, wired) == [], "without planes, rails alone are compared"
    wired[1] = parse_node(re.sub(r'rail="(.)"', lambda m: f'rail="{1 - int(m.group(1))}"', plain))
    assert [one.what.split(",")[0] for one in check_wiring(planned, wired)] == [
        f"cables swapped with mlx5_{other}" for other in (2, 3, 0, 1)
    ]


def test_measured_rates_below_the_plan_are_named(here: Path, railopt_cli: Cli) -> None:
    PLANNED.degraded({(2, 1): "0.5", (0, 0): "0", (1, 1): "0.97"}).save("today.toml")
    ran = railopt_cli("fabric", "check", "plan.toml", "--measured", "today.toml")
    assert ran.code == 4
    assert ran.out.splitlines() == [
        "a mlx5_0: dead",
        "c mlx5_1: sends at 200Gb/s, planned 400Gb/s",
        "c mlx5_1: receives at 200Gb/s, planned 400Gb/s",
        "3 differences",
    ]


def test_measured_rates_are_found_by_their_names() -> None:
    today = PLANNED.degraded({(0, 1): "0"})
    today = replace(today, hosts=("c", "a", "b"), devices=("mlx5_1", "mlx5_2", "mlx5_0"))
    assert check_wiring(PLANNED, {}, today) == [(2, "mlx5_2", "dead")]
    nameless = replace(today, hosts=(), devices=())
    assert check_wiring(PLANNED, {}, nameless) == [(0, "mlx5_1", "dead")]
    with pytest.raises(InputError, match="'b' is not among the measured hosts"):
        check_wiring(PLANNED, {}, replace(today, hosts=("c", "a", "d")))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (("check", "plan.toml"), "nothing to compare with"),
        (("check", "plan.toml", "--wired", "x.xml"), "expected a file named by a host"),
        (("check", "plan.toml", "--wired", "a.xml", "./a.xml"), "./a.xml: a second file of a"),
        (("check", "--nodes", "3", "--rails", "3", "--measured", "plan.toml"), "names no devices"),
        (("show", "plan.toml", "--wired", "a.xml"), "--wired can't do anything"),
        (("nccl", "plan.toml", "--node", "3"), "expected one of 3 nodes"),
        (("nccl", "plan.toml", "--topology", "plan.toml"), "not valid XML"),
        (("nccl", "plan.toml", "-o", "a.xml"), "a.xml"),
    ],
)
def test_wrong_input_is_one_sentence(
    here: Path, railopt_cli: Cli, line: tuple[str, ...], message: str
) -> None:
    ran = railopt_cli("fabric", *line)
    assert ran.code == 1
    assert message in ran.err


def test_nccl_gets_a_file_and_its_variables(here: Path, railopt_cli: Cli) -> None:
    PLANNED.degraded({(1, 2): "0.5"}).save("today.toml")
    line = ("fabric", "nccl", "today.toml", "--node", "1", "--topology", "b.xml", "-o", "topo.xml")
    ran = railopt_cli(*line)
    assert ran.code == 0, ran.err
    lines = ran.out.splitlines()
    assert lines[1] == "export NCCL_TOPO_FILE=topo.xml"
    assert lines[3] == "export NCCL_IB_HCA==mlx5_0:1:0,mlx5_1:1:1,mlx5_2:1:2"
    assert all(line.startswith("# ") for line in lines[::2]), "each has its reason"
    assert max(map(len, lines)) <= 100
    found = parse_node((here / "topo.xml").read_text())
    assert found.rates.tolist() == [50 * 10**9, 50 * 10**9, 25 * 10**9]
    assert [one.rail for one in found.nics] == [0, 1, 2]


def test_variables_follow_the_fabric() -> None:
    names = {one.name for one in variables(PLANNED)}
    assert "NCCL_P2P_PXN_LEVEL" in names
    assert "NCCL_IB_MERGE_NICS" not in names
    dead = PLANNED.degraded({(1, 0): "0"})
    asked = [variables(dead, node=node)[0] for node in range(2)]
    assert asked[0].value == "=mlx5_0:1:0,mlx5_1:1:1,mlx5_2:1:2"
    assert asked[1].value == "=mlx5_1:1:1,mlx5_2:1:2"
    assert asked[1].why.endswith("; dead: mlx5_0")
    with pytest.raises(InputError, match="a has no living NIC"):
        variables(PLANNED.degraded({(0, rail): "0" for rail in range(3)}))
    planes = Candidate("planes", rails=1, planes=2).fabric(2, 1)
    found = variables(replace(planes, devices=("mlx5_0", "mlx5_1")))
    assert found[0].value == "=mlx5_0:1:0:0,mlx5_1:1:0:1"
    assert "NCCL_IB_MERGE_NICS" in {one.name for one in found}
    spine = replace(Fabric.uniform(2, 4, gpus=2), spine=Spine(2, 10**9))
    names = {one.name for one in variables(spine)}
    assert "NCCL_P2P_PXN_LEVEL" not in names
    assert {"NCCL_IB_MERGE_NICS", "NCCL_CROSS_NIC"} <= names
