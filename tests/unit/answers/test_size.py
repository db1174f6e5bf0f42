"""Which fabric to buy: times as simulated, bounds that hold, verdicts, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Candidate, Fabric, Plan, Traffic, plan, simulate, size, workloads
from railopt.answers.candidates import candidates_from, crossed
from railopt.answers.dispatches import DIRECT, Dispatches
from railopt.answers.size import (
    DRAWS,
    PLANNED,
    Loss,
    Site,
    Sized,
    SizeQuestion,
    scale_up_bound,
)
from railopt.base.errors import InputError
from railopt.report.sizing import sizing_figure

FABRIC = Fabric.uniform(4, 4)
TRAFFIC = workloads.moe(FABRIC, tokens=256, skew=0.6, seed=2)
QUICK = SizeQuestion(chunk="256KiB", cases=2)
RAILS_OF_SIX = list(product(range(2), repeat=6))
LINE = ("size", "moe:skew=0.6,tokens=64,seed=2", "--nodes", "3", "--gpus", "2", "--cases", "1")


@pytest.mark.slow
def test_the_ranking_is_that_of_a_full_simulation() -> None:
    """Every policy on every candidate, and what is done today, simulated one by one."""
    traffic = workloads.moe(Fabric.uniform(3, 2), tokens=64, skew=0.6, seed=2)
    chunks = traffic.chunks("256KiB")
    candidates = crossed(rails=[1, 2], link=["200Gb/s", "400Gb/s"], kind=["rail-only", "spine"])
    found = size([traffic], candidates, QUICK)
    full = {}
    for one, mine in zip(candidates, found, strict=True):
        fabric = one.fabric(3, 2)
        plans = [plan(fabric, chunks, policy) for policy in (*PLANNED, "own-nic")]
        times = [simulate(made).completion for made in plans]
        if one.kind == "spine":
            drawn = (
                simulate(traffic, fabric=fabric, balancer="ecmp", seed=seed).completion
                for seed in range(DRAWS)
            )
            times.append(sorted(drawn)[DRAWS // 2])
            assert mine.today == times[-1]
        full[one.name] = min(times)
        assert mine.time == full[one.name]
        assert mine.bound <= mine.time <= mine.today
    mine_first = sorted(found, key=lambda one: one.time)
    assert [one.candidate.name for one in mine_first] == sorted(full, key=lambda name: full[name])


def test_a_fat_tree_of_one_uplink_is_bound_by_it() -> None:
    """Two nodes, a switch each: all bytes of a node cross its one uplink."""
    matrix = np.zeros((4, 4), np.int64)
    matrix[:2, 2:] = 1 << 20
    tree = Candidate("tree", rails=2, kind="fat-tree", oversubscription=2)
    [found] = size([Traffic(matrix, 2)], [tree], QUICK)
    assert found.bound == found.time == Fraction(4 << 20, 50 * 10**9)
    assert found.limit == "uplinks"
    assert found.link == 4 << 20


def test_of_hashed_paths_the_median_draw_counts() -> None:
    chunks = TRAFFIC.chunks("256KiB")
    tree = Candidate("tree", rails=4, kind="fat-tree", oversubscription=2)
    runs = [
        Dispatches([chunks], seed).carried(tree.fabric(4, 4), 0, DIRECT) for seed in range(DRAWS)
    ]
    median = sorted(runs, key=lambda run: run.time)[DRAWS // 2]
    assert median.time != runs[0].time
    [found] = size([TRAFFIC], [tree], replace(QUICK, policies=("own-nic",), cases=1))
    assert found.today == median.simulated()


@pytest.mark.slow
def test_a_dead_nic_costs_what_the_theorem_says_and_a_spare_makes_up_for_it() -> None:
    """T9b: of N even NICs, one dead leaves N - 1; two of one node leave N - 2."""
    even = Traffic.from_matrix(np.full((16, 16), 1 << 20, np.int64), FABRIC)
    some = [Candidate("4", rails=4), Candidate("4+1", rails=4, spares=1)]
    some.append(Candidate("1", rails=1))
    question = SizeQuestion(policies=("lpt-local",), chunk="16KiB", cases=3)
    plain, spared, single = size([even], some, question)
    one, two = (loss.worst for loss in plain.lost)
    assert one is not None
    assert two is not None
    assert abs(one - Fraction(1, 3)) < Fraction(1, 50)
    assert abs(two - 1) < Fraction(1, 20)
    assert spared.lost[0].worst == 0
    assert plain.lost_today[0].worst == 1, "another NIC carries twice as much"
    assert single.lost[0] == (None, None), "no time is enough"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rail-only", "spine"])
def test_the_worst_dead_nics_of_today_are_among_the_cases(kind: str) -> None:
    """GPU 2 of a node that is not the busiest one sends most: as bad with one draw as with all."""
    matrix = np.full((16, 16), 1000, np.int64)
    matrix[6, 8:] += 50_000  # node 1
    matrix[:4, 4:] += 10_000  # all of node 0
    traffic = Traffic.from_matrix(matrix, FABRIC)
    offer = [Candidate("offer", rails=4, kind=kind)]
    few, every = (
        size([traffic], offer, SizeQuestion(policies=("own-nic",), cases=cases))[0].lost_today
        for cases in (1, 120)
    )
    assert [loss.worst for loss in few] == [loss.worst for loss in every]


def test_a_spine_joins_nodes_whose_living_nics_are_on_other_rails() -> None:
    dead = ((0, 0), (1, 1))
    matrix = np.zeros((4, 4), np.int64)
    matrix[:2, 2:] = 1 << 20
    chunks = [Traffic(matrix, 2).chunks("flow")]
    for kind, lost in (("rail-only", None), ("spine", 1), ("fat-tree", 1)):
        drawn = replace(QUICK, seed=4)  # hashed apart while all NICs live
        work = Dispatches(chunks, drawn.seed)
        site = Site(Candidate(kind, rails=2, kind=kind), work, drawn)
        ways = ["lpt-local", site.today]
        healthy = min(work.carried(site.fabric(), 0, way).time for way in ways)
        times = site.degraded(dead, ways).values()
        assert (min(times) / healthy - 1 if times else None) == lost


@pytest.mark.slow
def test_what_scale_up_or_experts_limit_is_wasted() -> None:
    slow = [
        Candidate("less", rails=4, link="400Gb/s", scaleup="5GB/s"),
        Candidate("more", rails=4, link="800Gb/s", scaleup="5GB/s"),
    ]
    less, more = size([TRAFFIC], slow, QUICK)
    assert less.limit == more.limit == "scale-up"
    assert more.verdict == "wasted"
    assert less.verdict != "wasted"
    fast = [Candidate("less", rails=4), Candidate("more", rails=4, link="800Gb/s")]
    hidden = SizeQuestion(chunk="256KiB", cases=1, experts=Fraction(1))
    assert [one.verdict for one in size([TRAFFIC], fast, hidden)] == ["", "wasted"]
    shown = size([TRAFFIC], fast, QUICK)
    assert [one.verdict for one in shown] == ["no policy", "fastest"]
    assert [one.front for one in shown] == [True, True]


def between_two(size: int) -> Traffic:
    """So many bytes from each GPU of two nodes of two to each of the other node."""
    return Traffic(np.kron(1 - np.eye(2, dtype=np.int64), np.full((2, 2), size, np.int64)), 2)


def test_experts_hide_a_dispatch_not_what_is_left_of_another() -> None:
    """4 ms and some ns are less than twice 3 ms, yet 1 ms of the first is seen."""
    some = [Candidate("less", rails=2, link="200Gb/s"), Candidate("more", rails=2)]
    asked = SizeQuestion(policies=("own-nic",), cases=1, experts=Fraction(3, 1000))
    less, more = size([between_two(50_000_000), between_two(1000)], some, asked)
    assert (less.limit, less.verdict) == ("NICs", "no policy")
    assert (more.limit, more.verdict) == ("experts", "fastest")


def test_neither_rounding_nor_what_chunks_leave_over_is_no_policys_fault() -> None:
    """191 chunks on three planes each of two NICs end 0.7 % later than on two NICs."""
    traffic, asked = between_two(50_000_000), SizeQuestion(policies=("lpt-local",), cases=1)
    planes = [Candidate(str(planes), rails=2, planes=planes) for planes in (1, 3)]
    one, three = size([traffic], planes, asked)
    assert one.time < three.bound
    assert three.verdict == ""
    narrow = Candidate("narrow", rails=2, kind="fat-tree", oversubscription=10**6)
    [alone] = size([traffic], [narrow], asked)
    assert alone.time < alone.bound, "by rounding"
    assert alone.verdict == "fastest"


def test_on_rails_alone_no_policy_saves_a_slow_scale_up() -> None:
    """Half of all bytes change their GPU: 200 MB on four ports of 5 GB/s.  A spine needs none."""
    some = [Candidate("rails", rails=2, scaleup="5GB/s")]
    some.append(Candidate("spine", rails=2, scaleup="5GB/s", kind="spine"))
    asked = SizeQuestion(policies=("own-nic",), cases=1)
    rails, spine = size([between_two(50_000_000)], some, asked)
    assert rails.bound == Fraction(1, 100)
    assert rails.verdict == "no policy"
    assert rails.witness == ({"kind": "scale-up", "nodes": [0, 1]},)
    assert spine.time < Fraction(3, 1000)


@pytest.mark.parametrize("gpus", [2, 3])
def test_no_choice_of_rails_changes_gpus_faster_than_the_bound(gpus: int) -> None:
    """All plans of six chunks among three nodes, against the bound of their cuts."""
    dice = np.random.default_rng(gpus)
    fabric = Fabric.uniform(3, 2, gpus=gpus, scaleup="1GB/s")
    for _ in range(20):
        matrix = np.zeros((3 * gpus, 3 * gpus), np.int64)
        while np.count_nonzero(matrix) < 6:
            start, end = dice.integers(0, 3 * gpus, 2)
            if start // gpus != end // gpus:
                matrix[start, end] = dice.integers(1, 9) * 1000
        chunks = Traffic(matrix, 3).chunks("flow")
        plans = (Plan(fabric, chunks, np.array(rail, np.int16), "x") for rail in RAILS_OF_SIX)
        assert scale_up_bound(fabric, chunks)[0] <= min(one.scaleup_time for one in plans)


def test_planes_are_rails_of_their_own_near_the_same_gpus() -> None:
    fabric = Candidate("planes", rails=2, planes=2, link="800Gb/s").fabric(3, 2)
    assert fabric.rails == 4
    assert int(fabric.tx[0, 0]) == 50 * 10**9
    assert fabric.node.near.tolist() == [[True, True, False, False], [False, False, True, True]]


@pytest.mark.slow
def test_a_table_json_and_a_figure(railopt_cli: Callable[..., Any], tmp_path: Path) -> None:
    offers = tmp_path / "offers.toml"
    offers.write_text(
        '[[candidate]]\nname = "a"\nrails = 2\nprice = 10\n'
        '[[candidate]]\nname = "b"\nrails = 2\nkind = "spine"\noversubscription = 2\nprice = 12.5\n'
    )
    drawn = tmp_path / "buy.svg"
    ran = railopt_cli(*LINE, "--candidates", str(offers), "--json", "--figure", str(drawn))
    assert ran.code == 0
    a, b = json.loads(ran.out)["candidates"]
    assert (a["cost"], b["cost"], a["front"], b["front"]) == ("10", "25/2", True, False)
    assert a["time"] == b["time"], "its plan stays on the rails"
    assert [one["kind"] for one in a["witness"]] == ["node"]
    assert drawn.read_text().startswith("<?xml")


def test_what_ranks_is_said_where_a_price_is_missing(
    railopt_cli: Callable[..., Any], tmp_path: Path
) -> None:
    offers = tmp_path / "offers.toml"
    for prices, said in ((("price = 1", "price = 2"), ""), (("price = 1", ""), "'b' has none")):
        offers.write_text(
            "".join(
                f'[[candidate]]\nname = "{name}"\nrails = 2\n{price}\n'
                for name, price in zip("ab", prices, strict=True)
            )
        )
        ran = railopt_cli(*LINE, "--policy", "own-nic", "--candidates", str(offers))
        assert said in ran.err
        assert ("the rate of all NICs, is the cost" in ran.err) == bool(said)


def test_a_priced_candidate_is_drawn_at_its_price() -> None:
    lost = (Loss(Fraction(0), Fraction(0)),) * 2
    tree, rails = (
        Sized(one, (time,), "spill", time, (time,), 1, "NICs", lost, lost, cost=Fraction(100))
        for time in (Fraction(1, 1000),)
        for one in (Candidate("a", kind="fat-tree", price=100), Candidate("b", price=100))
    )
    axis = sizing_figure([tree, rails]).axes[0]
    assert {x for line in axis.lines for x in line.get_xdata()} == {100.0}


def test_exit_code_2_where_none_is_in_time(tmp_path: Path, railopt_cli: Callable[..., Any]) -> None:
    figure = tmp_path / "buy.svg"
    ran = railopt_cli(*LINE, "--rails", "1,2", "--within", "1ns", "--figure", str(figure))
    assert ran.code == 2
    assert not figure.exists()
    assert "no candidate carries it within 1ns" in ran.err
    assert railopt_cli(*LINE, "--rails", "2", "--within", "1s").code == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--rails", "0"), "rails = 0"),
        (("--kind", "fat-tee"), "did you mean"),
        (("--oversubscription", "-1", "--kind", "spine"), "expected more than 0"),
        (("--candidates", "none.toml"), "No such file"),
        (("--candidates", "x.toml", "--rails", "4"), "--rails can't do anything"),
        (("--link", "400"), "no unit"),
        (("--figure", "buy.bmp"), "buy.bmp"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    railopt_cli: Callable[..., Any], wrong: tuple[str, ...], message: str
) -> None:
    ran = railopt_cli(*LINE, *wrong)
    assert ran.code == 1
    assert message in ran.err


def test_a_question_that_takes_long_says_so_first(
    railopt_cli: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "minutes" not in railopt_cli(*LINE).err
    monkeypatch.setattr("railopt.answers.size.PLAN_S", 10.0)
    assert "size: up to 50 plans of" in railopt_cli(*LINE).err


def test_wrong_candidates_are_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.toml"
    for text, message in (
        ("[[candidate]]\nrail = 2\n", "unknown key 'rail'"),
        ("[[candidate]]\noversubscription = 2\n", "candidate.. 1: oversubscription"),
        ("candidate = 3\n", "expected tables"),
    ):
        bad.write_text(text)
        with pytest.raises(InputError, match=message):
            candidates_from(bad)
    with pytest.raises(InputError, match="two candidates are named 'x'"):
        size([TRAFFIC], [Candidate("x"), Candidate("x")], QUICK)
