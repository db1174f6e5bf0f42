"""Bytes that candidates have in common, against a plan and flows made anew for each."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import pytest

from railopt import Chunks, Fabric, Plan, plan, workloads
from railopt.answers import dispatches
from railopt.answers.candidates import crossed
from railopt.answers.dispatches import DIRECT, NICS_ALONE, Dispatches, direct_ends
from railopt.answers.size import ROUNDING
from railopt.policies.fixed import own_nic
from railopt.sim.direct import flows_between
from railopt.sim.from_plan import flows_of_plan

NODES, GPUS, SEED = 3, 2, 5
CANDIDATES = crossed(
    rails=[2],
    link=["200Gb/s", "400Gb/s"],
    planes=[1, 2],
    kind=["rail-only", "spine", "fat-tree"],
    oversubscription=[2],
    scaleup=["450GB/s", "9GB/s"],
)
WAYS = ("lpt-local", "even-excess", "spill", "own-nic", DIRECT)
SKEWED = workloads.moe(Fabric.uniform(NODES, GPUS), tokens=64, skew=0.6, seed=2).chunks("64KiB")
EVEN = workloads.uniform(Fabric.uniform(NODES, GPUS), size="300KiB").chunks("64KiB")


CHUNKS = [SKEWED, EVEN]


@cache
def plainly(candidate: int, dead: tuple[tuple[int, int], ...], place: int, way: str) -> Fraction:
    """Seconds of the busiest port."""
    fabric, chunks = CANDIDATES[candidate].fabric(NODES, GPUS, dead), CHUNKS[place]
    if way == DIRECT:
        ends = direct_ends(fabric, chunks)
        return flows_between(fabric, ends, "ecmp", NICS_ALONE, seed=SEED).bound
    made = plan(fabric, chunks, way)
    if fabric.leaves is None:
        return made.time_with_scaleup
    return max(flows_of_plan(made, NICS_ALONE, seed=SEED)[0].bound, made.scaleup_time)


@pytest.mark.slow
@pytest.mark.parametrize("room", [1 << 28, 4000])
def test_times_are_those_of_plans_made_anew(room: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatches, "ROOM", room)
    work = Dispatches(CHUNKS, SEED)
    kinds = set()
    for candidate, one in enumerate(CANDIDATES):
        for dead in ((), ((0, 1), (2, 1))):
            fabric = one.fabric(NODES, GPUS, dead)
            for way in WAYS:
                for place in range(len(CHUNKS)):
                    found = work.carried(fabric, place, way)
                    plain = plainly(candidate, dead, place, way)
                    assert found.time == plain, (one.name, dead, way)
                    kinds.add(found.limit)
    assert kinds == {"NICs", "uplinks", "scale-up"}


@pytest.mark.slow
def test_nothing_is_simulated_faster_than_its_busiest_port() -> None:
    work = Dispatches([SKEWED], SEED)
    for one in CANDIDATES:
        fabric = one.fabric(NODES, GPUS)
        for way in WAYS:
            found = work.carried(fabric, 0, way)
            assert found.simulated() * (1 + ROUNDING) >= found.time


def test_a_policy_from_outside_is_asked_for_every_candidate() -> None:
    """It may look at rates."""
    work = Dispatches([EVEN], SEED)
    slow, fast = (Fabric.uniform(NODES, 2, link, gpus=GPUS) for link in ("200Gb/s", "400Gb/s"))
    times = [work.carried(fabric, 0, f"{__name__}:by_rate").time for fabric in (slow, fast)]
    assert times[0] == 4 * times[1], "half the rate, and twice the bytes on one rail"


def by_rate(fabric: Fabric, chunks: Chunks) -> Plan:
    """All on one rail where NICs are slow."""
    made = own_nic(fabric, chunks)
    slow = fabric.tx[0, 0] < 50 * 10**9
    return Plan(fabric, chunks, made.rail * 0 if slow else made.rail, "by rate")
