"""One traffic on a healthy and a degraded fabric."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import POLICIES, Fabric, Spine, Traffic, plan, workloads
from railopt.answers.compare import changes_text, compare, nic_text, time_on
from railopt.base.errors import InputError

Cli = Callable[..., Any]
FABRIC = Fabric.uniform(3, 4, "8Gb/s")
SLOW = FABRIC.degraded({(1, 2): "0.5"})
DEAD = FABRIC.degraded({(1, 2): "0"})
CHUNKS = workloads.moe(FABRIC, tokens=256, skew=0.5, seed=3).chunks("256KiB")


def test_costs_are_those_of_plans_made_for_each_fabric() -> None:
    found = compare(FABRIC, DEAD, CHUNKS)
    assert [cost.policy for cost in found.costs] == list(POLICIES)
    for cost in found.costs:
        assert cost.healthy == plan(FABRIC, CHUNKS, cost.policy).makespan >= found.healthy.value
        assert cost.degraded == plan(DEAD, CHUNKS, cost.policy).makespan >= found.degraded.value
        assert cost.kept is None
        assert cost.cost == cost.degraded / cost.healthy - 1
    best = found.best("degraded")
    assert best is not None
    assert best.degraded == min(cost.degraded for cost in found.costs if cost.degraded)
    assert found.nics == [(1, 2)]


def test_even_traffic_pays_what_the_theorem_says() -> None:
    """T9b: one NIC of N at phi makes the bound of its node N / (N - 1 + phi) of the healthy one."""
    matrix = np.full((12, 12), 1 << 20, np.int64)
    chunks = Traffic.from_matrix(matrix, FABRIC).chunks("1KiB")
    found = compare(FABRIC, SLOW, chunks, ["lpt", "lpt"])
    assert [cost.policy for cost in found.costs] == ["lpt"], "listed twice, compared once"
    assert abs(1 + found.least_cost - Fraction(8, 7)) < Fraction(1, 100)


def test_a_kept_plan_takes_what_its_loads_take() -> None:
    made = plan(FABRIC, CHUNKS, "lpt")
    times = [load / rate for load, rate in zip(made.send.flat, SLOW.tx.flat, strict=True)]
    times += [load / rate for load, rate in zip(made.recv.flat, SLOW.rx.flat, strict=True)]
    kept = time_on(SLOW, made)
    assert kept is not None
    assert float(kept) == pytest.approx(max(times))
    assert time_on(FABRIC, made) == made.makespan
    assert time_on(DEAD, made) is None


def test_what_can_not_be_compared_is_one_sentence() -> None:
    with pytest.raises(
        InputError, match="the fabrics differ in nodes: expected other rails or NIC rates"
    ):
        compare(FABRIC, Fabric.uniform(4, 4), CHUNKS)
    with pytest.raises(InputError, match="unknown policy 'lpd'"):
        compare(FABRIC, DEAD, CHUNKS, ["lpd"])


@pytest.mark.parametrize(
    ("dead", "bound"),
    [({(1, n): "0" for n in range(4)}, None), ({(0, 0): "0", (1, 1): "0"}, "some")],
)
def test_a_fabric_without_a_plan_keeps_the_healthy_column_and_exits_2(
    dead: dict[tuple[int, int], str], bound: str | None, tmp_path: Path, railopt_cli: Cli
) -> None:
    fabric = FABRIC if bound is None else Fabric.uniform(2, 2)
    fabric.save(tmp_path / "f.toml")
    nics = [word for (n, r), share in dead.items() for word in ("--degrade", f"{n}:{r}={share}")]
    line = ["compare", "uniform", "--healthy", tmp_path / "f.toml", *nics, "--policy", "lpt"]
    ran = railopt_cli(*line)
    assert ran.code == 2
    assert "no plan" in ran.out
    assert ("no time is enough" in ran.out) == (bound is None)
    found = json.loads(railopt_cli(*line, "--json").out)
    assert (found["degraded_bound"] is None) == (found["least_cost"] is None) == (bound is None)
    assert found["policies"][0]["healthy"] is not None
    assert found["best"] == {"healthy": "lpt", "degraded": None}


def test_nics_in_words() -> None:
    assert nic_text(FABRIC, DEAD, (1, 2)) == "node 1 rail 2 dead"
    assert nic_text(FABRIC, SLOW, (1, 2)) == "node 1 rail 2 at 50%"
    half = Fabric(3, 4, 4, SLOW.tx, FABRIC.rx)
    assert nic_text(FABRIC, half, (1, 2)) == "node 1 rail 2 sends at 50%, receives at 100%"


@pytest.mark.slow
def test_the_command_prints_and_draws(tmp_path: Path, railopt_cli: Cli) -> None:
    healthy, degraded, figure = (tmp_path / name for name in ("f.toml", "d.toml", "c.svg"))
    FABRIC.save(healthy)
    DEAD.save(degraded)
    line = ["compare", "moe:tokens=64", "--healthy", healthy, "--policy", "lpt,spill"]
    ran = railopt_cli(*line, "--degraded", degraded, "--figure", figure)
    assert ran.code == 0, ran.err
    assert "node 1 rail 2 dead: the bound rises by" in ran.out
    assert "best, degraded: " in ran.out
    assert "never" in ran.out
    assert "<svg" in figure.read_text()
    by_file = json.loads(railopt_cli(*line, "--degraded", degraded, "--json").out)
    assert by_file == json.loads(railopt_cli(*line, "--degrade", "1:2=0", "--json").out)
    assert by_file["best"]["degraded"] in ("lpt", "spill")
    for wrong, words in (
        ([], "expected --degraded, the fabric as it is now, or --degrade"),
        (
            ["--degraded", degraded, "--degrade", "1:2=0"],
            "--degrade can't do anything",
        ),
        (["--degrade", "9:9=0"], "--degrade NIC node = 9: expected a whole number from 0 to"),
        (["--degraded", tmp_path / "none.toml"], "No such file"),
        (["--degrade", "1:2=0", "--force"], "--force can't do anything"),
        (["--degrade", "1:2=0", "--figure", figure], "exists"),
    ):
        ran = railopt_cli(*line, *wrong)
        assert ran.code == 1
        assert words in ran.err


def test_fabrics_that_differ_inside_nodes_are_refused() -> None:
    healthy = Fabric.uniform(2, 2)
    other = replace(healthy, inside=replace(healthy.node, near=healthy.node.near[::-1]))
    with pytest.raises(InputError, match="differ in which NICs are near which GPU"):
        compare(healthy, other, workloads.uniform(healthy).chunks("1MiB"), ["lpt"])


@pytest.mark.parametrize(("rate", "text"), [("0.004", "at 0.4%"), ("0.997", "at 99.7%")])
def test_a_rate_is_neither_none_nor_whole(rate: str, text: str) -> None:
    healthy = Fabric.uniform(2, 2)
    assert nic_text(healthy, healthy.degraded({(0, 1): rate}), (0, 1)) == f"node 0 rail 1 {text}"


def test_fabrics_that_differ_in_more_than_nics_are_refused() -> None:
    healthy = Fabric.uniform(2, 2)
    chunks = workloads.uniform(healthy).chunks("1MiB")
    for other, words in (
        (replace(healthy, scaleup=10**9), "the rate of scale-up"),
        (replace(healthy, latency_ps=7), "latency"),
        (replace(healthy, spine=Spine(2, 10**9)), "the spine"),
        (replace(healthy, inside=replace(healthy.node, pair=10**9)), "which NICs are near .*"),
    ):
        with pytest.raises(
            InputError, match=f"the fabrics differ in {words}: expected other rails"
        ):
            compare(healthy, other, chunks, ["lpt"])
    compare(healthy, replace(healthy, inside=healthy.node), chunks, ["lpt"])


def test_nics_that_lost_most_come_first_by_name() -> None:
    healthy = Fabric.uniform(3, 4)
    slow = healthy.degraded({(0, 0): "0.9", (2, 3): "0.5", (1, 1): "0", (2, 0): "0.7"})
    found = compare(healthy, slow, workloads.uniform(healthy).chunks("1MiB"), ["lpt"])
    assert found.nics == [(1, 1), (2, 3), (2, 0), (0, 0)]
    named = replace(slow, hosts=("a", "b", "c"), devices=("m0", "m1", "m2", "m3"))
    assert changes_text(healthy, named, 2) == "b m1 dead, c m3 at 50% and 2 more"
    again = compare(healthy, named, workloads.uniform(healthy).chunks("1MiB"), ["lpt"])
    assert again.as_dict()["names"] == ["b m1", "c m3", "c m0", "a m0"]
    assert found.as_dict()["names"] == []
    assert changes_text(healthy, healthy, 2) == "no NIC differs"


def test_fabrics_of_different_rails_are_compared() -> None:
    eight, four = Fabric.uniform(3, 8, gpus=8), Fabric.uniform(3, 4, "800Gb/s", gpus=8)
    chunks = workloads.moe(eight, tokens=128, skew=0.5, seed=1).chunks("64KiB")
    found = compare(eight, four, chunks, ["lpt", "own-nic"])
    for cost in found.costs:
        assert cost.degraded == plan(four, chunks, cost.policy).makespan
        assert cost.kept is None, "rails that are gone have bytes to carry"
    assert found.rails == (8, 4)
    assert changes_text(eight, four, 8) == "8 rails become 4, every NIC at 200%"
    assert found.degraded is not None
    assert found.healthy is not None
    assert found.degraded.value == found.healthy.value, "a node has the same rate in all"
    more = compare(four, eight, chunks, ["lpt"])
    assert more.costs[0].kept == 2 * plan(four, chunks, "lpt").makespan


def test_the_healthy_fabric_may_be_flags(tmp_path: Path, railopt_cli: Cli) -> None:
    line = ["compare", "moe:tokens=64", "--policy", "lpt", "--json"]
    flags = ["--nodes", "3", "--rails", "4", "--link", "8Gb/s"]
    FABRIC.save(tmp_path / "f.toml")
    named = replace(SLOW, latency_ps=2_000_000, hosts=("a", "b", "c"))
    named.save(tmp_path / "d.toml")
    by_file = railopt_cli(*line, "--healthy", tmp_path / "f.toml", "--degrade", "1:2=0.5")
    by_flags = railopt_cli(*line, *flags, "--degrade", "1:2=0.5")
    assert by_file.code == 0, by_file.err
    assert by_flags.out == by_file.out
    nameless = json.loads(by_file.out)
    for some in (flags, flags[:2], []):  # the rest is the degraded fabric's, at its median
        ran = railopt_cli(*line, *some, "--degraded", tmp_path / "d.toml")
        assert json.loads(ran.out) == {**nameless, "names": ["b rail 2"]}, ran.err
    text = railopt_cli(*line[:-1], "--degraded", tmp_path / "d.toml").out
    assert "b rail 2 at 50%: the bound rises by" in text
    wrong = railopt_cli(*line, "--healthy", tmp_path / "f.toml", *flags, "--degrade", "1:2=0")
    assert (wrong.code, "--nodes contradict" in wrong.err) == (1, True)
    more = railopt_cli(*line, "--rails", "6", "--gpus", "4", "--degrade", "0:5=0")
    assert more.code == 0, more.err
