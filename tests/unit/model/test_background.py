"""A plan beside another collective: what is left of the NICs, and both at once."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import railopt
from railopt import POLICIES
from railopt.cli.main import main
from railopt.model.background import (
    Background,
    background_from,
    beside,
    both_bound,
    both_plans,
    left_by,
    rates_of,
)

FABRIC = railopt.Fabric.uniform(nodes=4, rails=4)


def planned(seed: int, policy: str, fabric: railopt.Fabric = FABRIC) -> railopt.Plan:
    chunks = railopt.workloads.moe(FABRIC, tokens=256, skew=0.8, seed=seed).chunks("64KiB")
    return railopt.plan(fabric, chunks, policy)


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_that_is_as_fast_as_possible_on_what_is_left_is_so_beside_the_other(
    seed: int,
) -> None:
    other = planned(seed, "own-nic")
    blind = planned(seed + 10, "lpt-global")
    bound = both_bound(FABRIC, other, blind.chunks)
    aware = beside(FABRIC, other, blind.chunks, POLICIES["lpt-global"])
    assert aware.fabric == FABRIC
    left = left_by(FABRIC, rates_of(FABRIC, other, blind.chunks))
    both = both_plans(aware, other, FABRIC).makespan
    assert bound <= both <= max(bound, replace(aware, fabric=left).makespan)
    assert both < both_plans(blind, other, FABRIC).makespan


def test_the_bound_of_both_is_a_node_or_the_other_plan() -> None:
    other, mine = planned(1, "own-nic"), planned(2, "lpt")
    loads = other.send.sum(axis=1) + mine.send.sum(axis=1)
    into = other.recv.sum(axis=1) + mine.recv.sum(axis=1)
    rate = int(FABRIC.tx[0].sum())
    nodes = max(Fraction(int(load), rate) for load in [*loads, *into])
    assert both_bound(FABRIC, other, mine.chunks) == max(nodes, other.makespan)
    few = mine.chunks.take(np.arange(1))
    assert both_bound(FABRIC, other, few) == other.makespan


def test_chunks_whose_only_rail_is_busy_wait_for_it() -> None:
    fabric = railopt.Fabric.uniform(nodes=3, rails=2, gpus=1).degraded({(1, 1): 0, (2, 1): 0})
    full = railopt.Chunks.from_arrays(src=[0], dst=[2], size=[8 << 20], nodes=3)
    other = railopt.plan(fabric, full, "lpt")
    mine = railopt.Chunks.from_arrays(src=[0], dst=[1], size=[64 << 10], nodes=3)
    made = beside(fabric, other, mine, POLICIES["lpt"])
    assert made.rail.tolist() == [0]
    both = both_plans(made, other, fabric).makespan
    assert both == other.makespan + made.makespan


def test_both_plans_keep_their_rails_bytes_and_flows() -> None:
    first, second = planned(1, "lpt"), planned(2, "own-nic")
    both = both_plans(first, second, FABRIC)
    assert both.send.tolist() == (first.send + second.send).tolist()
    assert both.staged == first.staged + second.staged
    assert len(set(both.chunks.flow)) == len(set(first.chunks.flow)) + len(set(second.chunks.flow))
    alone = railopt.simulate(first).completion
    assert railopt.simulate(both).completion > alone


def test_tokens_and_traffic_at_once_keep_their_targets() -> None:
    tokens = railopt.demand_from("routing:tokens=64,experts=32,top=2", FABRIC).chunks("64KiB")
    first = railopt.plan(FABRIC, tokens, "own-nic")
    second = planned(2, "own-nic")
    assert both_plans(first, second, FABRIC).passed_on == first.passed_on + second.passed_on


def test_an_all_reduce_takes_its_share_of_the_named_rails() -> None:
    load = background_from("allreduce:size=4MB,time=1ms,rails=1+3", FABRIC)
    assert isinstance(load, Background)
    assert load.tx.tolist() == [[0, 3_000_000_000, 0, 3_000_000_000]] * 4  # 2 x 3/4 x 2 MB
    left = left_by(FABRIC, load)
    assert left.tx[2].tolist() == [50 * 10**9, 47 * 10**9] * 2


def test_rates_of_nics_are_a_fabric_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "busy.toml"
    load = replace(FABRIC, tx=FABRIC.tx // 2, rx=np.zeros_like(FABRIC.rx))
    file.write_text(load.to_toml())
    found = background_from(str(file), FABRIC)
    assert isinstance(found, Background)
    left = left_by(FABRIC, found)
    assert left.tx.max() == FABRIC.tx[0, 0] // 2
    assert left.rx.tolist() == FABRIC.rx.tolist()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("allreduce:size=1GiB", "expected a size and a time"),
        ("allreduce:size=1GiB,time=0", "a time above 0"),
        ("allreduce:size=1GiB,time=1ms", "more than its 400Gb/s"),
        ("allreduce:size=1KiB,time=1ms,rails=4", "a whole number from 0 to 3"),
        ("allreduce:size=1KiB,time=1ms,rail=1", "rail"),
        ("nothing.toml", "No such file"),
    ],
)
def test_what_can_not_be_a_background_is_one_sentence(
    text: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["plan", "uniform", "--nodes", "4", "--rails", "4", "--background", text]
    assert main(command) == 1
    said = capsys.readouterr().err.strip()
    assert complaint in said
    assert "\n" not in said


def test_commands_plan_and_simulate_beside_a_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other, mine = str(tmp_path / "other.npz"), str(tmp_path / "mine.npz")
    planned(1, "own-nic").save(other)
    traffic = ["moe:skew=0.8,seed=2,tokens=256", "--nodes", "4", "--rails", "4"]
    background = ["--background", other]
    assert main(["plan", *traffic, "--policy", "spill", *background, "-o", mine]) == 0
    assert "both done after" in capsys.readouterr().err
    assert main(["simulate", mine, *background]) == 0
    assert "of it, background" in capsys.readouterr().out
    reduce = ["--background", "allreduce:size=4MB,time=1ms"]
    assert main(["simulate", other, *reduce, "--json"]) == 0
    with_load = json.loads(capsys.readouterr().out)["completion_ps"]
    load = background_from(reduce[1], FABRIC)
    assert isinstance(load, Background)
    left = replace(planned(1, "own-nic"), fabric=left_by(FABRIC, load))
    assert with_load == railopt.simulate(left).completion_ps
    for command in (["plan"], ["solve", "--limit", "100ms"]):  # the load counts once, not twice
        made, chunk = str(tmp_path / f"{command[0]}.npz"), ["--chunk", "flow"]
        asked = [*command, *traffic, *chunk, *reduce, "--json", "-o", made]
        assert main(asked) in (0, 2)
        said = Fraction(json.loads(capsys.readouterr().out)["value"])
        stored = railopt.Plan.read(made)
        assert stored.fabric == FABRIC
        assert main(["simulate", made, *reduce, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["bound_ps"] == float(said * 10**12)
        asked = ["gap", made, *reduce, "--limit", "0s", "--json"]  # of a saved plan: the same value
        assert main(asked) in (0, 2)
        (row,) = json.loads(capsys.readouterr().out)["rows"]
        assert Fraction(row["value"]) == said
    assert main(["solve", made, *reduce, "--limit", "100ms", "--json"]) in (0, 2)
    assert Fraction(json.loads(capsys.readouterr().out)["bound"]) <= said
    slow, degraded = str(tmp_path / "slow.npz"), ["--degrade", "0:0=0.5"]
    assert main(["plan", *traffic, *degraded, *background, "-o", slow]) == 0
    assert main(["simulate", slow, *background]) == 0  # on the slow fabric, both of them
    assert main(["simulate", slow, "--background", mine]) == 0
    capsys.readouterr()
    assert main(["plan", *traffic, "--degrade", "0:0=0", *background]) == 1
    assert f"{other}: chunk" in capsys.readouterr().err
    schedule = str(tmp_path / "schedule.npz")
    assert main(["schedule", *traffic, "-o", schedule]) == 0
    assert main(["simulate", mine, "--background", schedule]) == 1
    assert "a schedule, expected a plan" in capsys.readouterr().err
    for command in ("gap", "solve"):  # what they prove is of rates that stay as they are
        assert main([command, *traffic, "--chunk", "1MiB", *background]) == 1
    assert main(["gap", mine, *background]) == 1
    assert railopt.Plan.read(mine).fabric == FABRIC
