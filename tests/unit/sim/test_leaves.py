"""Rails of several leaves: who takes which link above, what that costs, and bounds by cuts."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from railopt import Chunks, Fabric, Plan, Traffic, gap, plan, simulate, workloads
from railopt.answers.gap import GapRow
from railopt.base.errors import Infeasible
from railopt.evidence.bounds import uplink_bound
from railopt.model.leaves import Leaves
from railopt.sim import Assumptions, Fault, simulate_replanned
from railopt.sim.from_plan import flows_of_plan
from railopt.sim.summary import summary

MIB, LINE = 2**20, 50 * 10**9
FULL = MIB * 20  # picoseconds for 1 MiB at line rate


def leafy(nodes: int, rails: int, leaves: Leaves) -> Fabric:
    return replace(Fabric.uniform(nodes, rails), leaves=leaves)


def across(fabric: Fabric, src: list[int], dst: list[int], **rest: object) -> Plan:
    chunks = Chunks.from_arrays(src=src, dst=dst, size=[MIB] * len(src), nodes=fabric.nodes)
    return Plan(fabric, chunks, np.zeros(len(src), np.int16), **rest)  # type: ignore[arg-type]


def times(way: str, seeds: range = range(1)) -> set[int]:
    """Of two flows between two leaves of two nodes, each with two uplinks as fast as NICs."""
    made = across(leafy(4, 1, Leaves(2, 2, LINE, way)), [0, 1], [2, 3])
    whole = Assumptions(spray=Fraction(1))
    return {
        simulate(made, assumptions=whole, seed=seed if way == "ecmp" else None).completion_ps
        for seed in seeds
    }


def test_hashed_flows_may_meet_on_a_link_and_others_never_do() -> None:
    assert times("ecmp", range(16)) == {FULL, 2 * FULL}
    assert times("adaptive") == times("spray") == {FULL}


def test_inside_a_leaf_no_link_is_crossed() -> None:
    made = across(leafy(4, 1, Leaves(2, 1, 1)), [0, 2], [1, 3])
    assert simulate(made).completion_ps == FULL
    assert made.uplink_time == 0


def test_narrow_uplinks_take_what_the_cut_says() -> None:
    fabric = leafy(4, 1, Leaves(2, 1, LINE // 2, "adaptive"))
    made = across(fabric, [0, 1], [2, 3])
    cut = uplink_bound(fabric, made.chunks)
    assert cut is not None
    assert (cut.group, cut.side, cut.bytes, cut.capacity) == (0, "send", 2 * MIB, LINE // 2)
    run = simulate(made)
    assert run.completion == run.bound == cut.value == made.uplink_time
    found = summary(run, made)
    assert found["any_plan_bound_ps"] == found["completion_ps"]
    assert found["uplinks"]["bound"] == str(cut.value)


def test_a_cut_counts_no_more_than_the_nics_below_a_leaf() -> None:
    fabric = leafy(4, 2, Leaves(2, 4, LINE)).degraded({(0, 0): 0, (1, 0): "1/2"})
    cut = uplink_bound(fabric, Traffic(np.ones((4, 4), np.int64), 4))
    assert cut is not None
    assert (cut.group, cut.side, cut.bytes) == (0, "send", 4)
    assert cut.capacity == LINE // 2 + 2 * LINE
    dead = fabric.degraded(dict.fromkeys(product((0, 1), (0, 1)), 0))
    with pytest.raises(Infeasible, match="all dead"):
        uplink_bound(dead, Traffic(np.ones((4, 4), np.int64), 4))


@pytest.mark.parametrize("leaves", [Leaves(2, 1, LINE), None])
def test_a_cut_takes_memory_for_what_occurs(leaves: Leaves | None) -> None:
    """A matrix of all nodes would have 128 MB."""
    made = across(replace(leafy(4000, 1, Leaves(2, 1, LINE)), leaves=leaves), [0], [2])
    tracemalloc.start()
    try:
        cut = uplink_bound(made.fabric, made.chunks)
        row = GapRow("flow", "lpt", gap(made, limit_s=0), cut).as_dict()
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()
    assert ("uplinks" in row) == (leaves is not None)


@pytest.mark.parametrize("way", ["ecmp", "adaptive", "spray"])
@pytest.mark.parametrize("rails", [1, 4])
def test_no_run_beats_the_cut_nor_what_its_own_links_carry(way: str, rails: int) -> None:
    fabric = leafy(7, 4, Leaves(2, 3, LINE // 2, way, rails))
    traffic = workloads.moe(fabric, skew=0.2, tokens=128, seed=3)
    cut = uplink_bound(fabric, traffic)
    assert cut is not None
    made = plan(fabric, traffic.chunks("256KiB"), policy="lpt-local")
    assert made.uplink_time >= cut.value
    direct = simulate(traffic, fabric=fabric)
    for run in (simulate(made), direct):
        assert run.completion >= cut.value * Fraction(10**9 - 1, 10**9)
    assert simulate(made).completion >= made.uplink_time * Fraction(10**9 - 1, 10**9)
    assert direct.completion_ps == simulate(traffic, fabric=fabric, balancer=way).completion_ps


def test_a_connection_keeps_its_path_whatever_else_is_sent() -> None:
    """As a queue pair does: in a later stage, and after another chunk is gone."""
    fabric = leafy(8, 1, Leaves(4, 4, LINE))
    src, dst = [0, 1, 2, 3], [4, 5, 6, 7]
    all_four = flows_of_plan(across(fabric, src, dst), Assumptions(), seed=5)[0]
    paths = all_four.path.reshape(4, 4)
    last = flows_of_plan(across(fabric, src[3:], dst[3:]), Assumptions(), seed=5)[0]
    assert last.path.tolist() == paths[3].tolist()
    staged = across(fabric, src * 2, dst * 2, stage=np.repeat([0, 1], 4))
    both = flows_of_plan(staged, Assumptions(), seed=5)[0].path.reshape(8, 4)
    assert both[:4].tolist() == both[4:].tolist() == paths.tolist()


def test_the_flows_of_a_connection_share_its_links_beside_scale_up() -> None:
    fabric = replace(leafy(4, 2, Leaves(2, 8, LINE)), scaleup=LINE // 8)
    traffic = workloads.moe(fabric, skew=0.5, tokens=64, seed=1)
    flows = flows_of_plan(plan(fabric, traffic.chunks("flow")), Assumptions(), seed=2)[0]
    nics, links = 8, range(16, 16 + 2 * 4 * 8)
    taken: dict[tuple[int, int], set[tuple[int, ...]]] = {}
    for first, end in zip(flows.first[:-1], flows.first[1:], strict=True):
        path = flows.path[first:end].tolist()
        over = tuple(port for port in path if port in links)
        apart = path[0] // 2 // 2 != (path[1] - nics) // 2 // 2
        assert len(over) == 2 * apart
        taken.setdefault((path[0], path[1]), set()).add(over)
    assert len(flows) > len(taken)
    assert all(len(over) == 1 for over in taken.values())


def test_adaptive_links_are_chosen_stage_by_stage() -> None:
    """A large flow of a stage before does not drive those of the next onto one link."""
    fabric = leafy(6, 1, Leaves(3, 2, LINE, "adaptive"))
    chunks = Chunks.from_arrays(src=[0, 1, 2], dst=[3, 4, 5], size=[4 * MIB, MIB, MIB], nodes=6)
    made = Plan(fabric, chunks, np.zeros(3, np.int16), stage=np.array([0, 1, 1]))
    assert simulate(made).completion_ps == 5 * FULL


def test_latency_is_twice_between_leaves() -> None:
    made = across(leafy(4, 1, Leaves(2, 2, LINE, "adaptive")), [0, 1], [1, 2])
    late = simulate(made, assumptions=Assumptions(latency=True))
    assert (late.finish_ps - simulate(made).finish_ps).tolist() == [1_000_000, 2_000_000]


def test_links_have_names() -> None:
    made = across(leafy(4, 1, Leaves(2, 2, LINE)), [0], [2])
    flows = flows_of_plan(made, Assumptions())[0]
    assert flows.describe(11) == "link 1 up from the leaf of rail 0, nodes 2 to 3"
    assert flows.describe(12) == "link 0 down to the leaf of rail 0, nodes 0 to 1"
    assert flows.describe(16) == "the scale-up link out of GPU 0"
    sprayed = across(leafy(4, 1, Leaves(2, 2, LINE, "spray")), [0], [2])
    name = flows_of_plan(sprayed, Assumptions())[0].describe(8)
    assert name == "the links up from the leaf of rail 0, nodes 0 to 1"


def test_planning_again_keeps_the_leaves() -> None:
    fabric = leafy(4, 2, Leaves(2, 1, LINE // 4))
    made = plan(fabric, Traffic(np.full((8, 8), MIB), 4).chunks("1MiB"))
    ran = simulate_replanned(made, [Fault(FULL, 0, 0)], seed=3)
    cut = uplink_bound(fabric, made.chunks)
    assert cut is not None
    assert ran.timeline.completion >= cut.value
