"""Time against moved bytes: the front holds for every plan, and is what its prices prove."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Chunks, Fabric, plan, workloads
from railopt.answers.frontier import DEFAULT_POLICIES, frontier
from railopt.base.errors import InputError
from railopt.policies import POLICIES
from tests.moved import least_moved

Cli = Callable[..., Any]
FABRIC = Fabric.uniform(4, 4).degraded({(1, 2): "0", (0, 1): "0.5"})
CHUNKS = workloads.moe(FABRIC, skew=0.8, seed=1, tokens=256).chunks("256KiB")
SMALL = ["--nodes", "4", "--rails", "4", "--degrade", "1:2=0", "--chunk", "256KiB"]


@pytest.mark.slow
def test_no_plan_lies_below_the_front() -> None:
    found = frontier(FABRIC, CHUNKS)
    assert [stand.plan.policy for stand in found.stands] == list(DEFAULT_POLICIES)
    assert all(bound.exact for bound in found.bounds)
    times = [bound.time for bound in found.bounds]
    assert times == sorted(times)
    assert times[0] == least_moved(FABRIC, CHUNKS).time
    assert plan(FABRIC, CHUNKS, "own-nic").makespan in times
    least = [bound.bytes for bound in found.bounds]
    assert least == sorted(least, reverse=True)
    assert least[0] > least[-1]
    for policy in POLICIES:
        made = plan(FABRIC, CHUNKS, policy)
        assert made.moved >= found.least(made.makespan), policy
    for stand in found.stands:
        exact = least_moved(FABRIC, CHUNKS, stand.plan.makespan)
        assert stand.least == exact.bytes
        assert stand.gap == Fraction(stand.plan.moved, stand.least) - 1


def test_between_two_times_the_front_is_what_prices_prove() -> None:
    found = frontier(FABRIC, CHUNKS, ["lpt"])
    curve = found.curve(found.bounds[-1].time)
    assert [bytes_ for _, bytes_ in curve] == sorted((b for _, b in curve), reverse=True)
    for time, bytes_ in curve[::40]:
        assert bytes_ <= least_moved(FABRIC, CHUNKS, time).bound


ALONG_RAILS = "0 0 1000 0\n0 0 0 1000\n1000 0 0 0\n0 1000 0 0\n"  # own NICs move nothing


@pytest.mark.parametrize("command", ["gap", "frontier"])
def test_no_ratio_says_how_far_above_nothing_a_plan_is(
    command: str, tmp_path: Path, railopt_cli: Cli
) -> None:
    traffic = tmp_path / "along.txt"
    traffic.write_text(ALONG_RAILS)
    line = [command, traffic, "--nodes", "2", "--rails", "2", "--chunk", "100B"]
    line += ["--policy", "own-nic,random", "--limit", "1s"]
    line += ["--moved"] if command == "gap" else []
    printed = json.loads(railopt_cli(*line, "--json").out)
    rows = printed["policies"] if command == "frontier" else [r["moved"] for r in printed["rows"]]
    assert [(row["least"], row["above"]) for row in rows] == [(0, "0"), (0, None)]
    text, table = (railopt_cli(*line, "--format", form).out for form in ("text", "csv"))
    own, some = text.splitlines()[2:4]
    assert "-" in some.split()
    assert "-" not in own.split()
    first, second = list(csv.DictReader(io.StringIO(table)))[:2]
    assert (first["above %"], second["above %"]) == ("0.0", "")


def test_chunks_without_gpus_have_no_front() -> None:
    chunks = Chunks.from_arrays(src=[0], dst=[1], size=[5], nodes=4)
    with pytest.raises(InputError, match="need to know the GPUs of each chunk"):
        frontier(FABRIC, chunks)
    with pytest.raises(InputError, match="no bytes cross between nodes"):
        frontier(FABRIC, CHUNKS.take(np.zeros(0, np.int64)))


@pytest.mark.parametrize("limit_s", ["10s", 10**400, float("nan"), -1, None])
def test_a_limit_that_is_none_is_refused(limit_s: Any) -> None:
    with pytest.raises(InputError, match="a time limit of"):
        frontier(FABRIC, CHUNKS, limit_s=limit_s)


def test_without_time_the_front_is_what_plans_of_any_time_move() -> None:
    found = frontier(FABRIC, CHUNKS, ["lpt", "lpt"], limit_s=0)
    assert len(found.stands) == 1
    least = least_moved(FABRIC, CHUNKS, plan(FABRIC, CHUNKS, "own-nic").makespan * 1000).bytes
    assert {bound.bytes for bound in found.bounds} == {least}


@pytest.mark.slow
def test_the_command_prints_and_draws(tmp_path: Path, railopt_cli: Cli) -> None:
    figure = tmp_path / "front.svg"
    line = ["frontier", "moe:skew=0.8,tokens=256", *SMALL, "--policy", "own-nic,lpt"]
    ran = railopt_cli(*line, "--figure", figure)
    assert ran.code == 0
    assert "front" in ran.out
    assert "<svg" in figure.read_text()
    printed = json.loads(railopt_cli(*line, "--json").out)
    assert [entry["policy"] for entry in printed["policies"]] == ["own-nic", "lpt"]
    assert all(entry["moved"] >= entry["least"] for entry in printed["policies"])
    assert printed["front"][0]["exact"]
    assert railopt_cli(*line, "--figure", figure).code == 1  # it exists
    assert railopt_cli(*line, "--figure", tmp_path / "front.txt").code == 1
    assert railopt_cli(*line, "--force").code == 1
