"""Learning a fabric from runs: slow NICs are found and left again, healthy ones are not blamed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from railopt import Chunks, Fabric, Plan, workloads
from railopt import plan as make_plan
from railopt.base.errors import InputError
from railopt.evidence.bounds import lower_bound
from railopt.runtime.adapt import STEPS, Adapter, dead_nics
from railopt.runtime.senders.report import LinkReport, Report

RUNS = 5


def shared(ends: list[tuple[int, int]], tx: list[int], rx: list[int]) -> list[float]:
    """Max-min fair rates of flows between the NICs of one rail."""
    rates, left = [0.0] * len(ends), {("tx", k): float(r) for k, r in enumerate(tx)}
    left |= {("rx", k): float(r) for k, r in enumerate(rx)}
    active = set(range(len(ends)))
    while active:
        users = {nic: [i for i in active if ends[i][nic[0] == "rx"] == nic[1]] for nic in left}
        nic = min((n for n in left if users[n]), key=lambda n: left[n] / len(users[n]))
        rate = left[nic] / len(users[nic])
        for i in users[nic]:
            rates[i] = rate
            active.discard(i)
            left["tx", ends[i][0]] -= rate
            left["rx", ends[i][1]] -= rate
    return rates


def carried(plan: Plan, true: Fabric, noise: Iterator[float]) -> Report:
    """What a run of `plan` says when the NICs do what `true` has."""
    loads: dict[tuple[int, int, int], list[int]] = {}
    places = zip(
        plan.rail.tolist(), plan.chunks.src, plan.chunks.dst, plan.chunks.size, strict=True
    )
    for rail, src, dst, size in places:
        loads.setdefault((rail, int(src), int(dst)), []).append(int(size))
    links = []
    for rail in range(true.rails):
        left = {place[1:]: float(sum(s)) for place, s in loads.items() if place[0] == rail}
        now = 0.0
        while left:
            ends = list(left)
            rates = shared(ends, true.tx[:, rail].tolist(), true.rx[:, rail].tolist())
            step = min(left[end] / rate for end, rate in zip(ends, rates, strict=True))
            now += step
            for end, rate in zip(ends, rates, strict=True):
                left[end] -= rate * step
                if left[end] < 1:
                    sizes = loads[rail, *end]
                    del left[end]
                    time = now * next(noise)
                    links.append(LinkReport(*end, rail, sum(sizes), len(sizes), 0.0, time))
    seconds = max(link.last_s for link in links)
    return Report("verbs", "lpt", plan.chunks.total, 1, seconds, (), links=tuple(links))


def noisy(seed: int, width: float) -> Iterator[float]:
    dice = random.Random(seed)
    while True:
        yield 1 + dice.uniform(0, width)


def slowed(fabric: Fabric, node: int, rail: int, side: str) -> Fabric:
    """One NIC at a third, one way or both."""
    tx, rx = fabric.tx.copy(), fabric.rx.copy()
    for name, rates in (("tx", tx), ("rx", rx)):
        if name in side:
            rates[node, rail] //= 3
    return replace(fabric, tx=tx, rx=rx)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["tx", "rx", "tx rx"])
@pytest.mark.parametrize(("nodes", "rails", "seed"), [(2, 4, 1), (4, 3, 3)])
def test_a_slow_nic_is_planned_around_within_five_runs(
    nodes: int, rails: int, seed: int, side: str
) -> None:
    fabric = Fabric.uniform(nodes, rails)
    true = slowed(fabric, 1, 0, side)
    chunks = workloads.zipf(fabric, mean="64MiB", seed=seed).chunks("1MiB")
    plan = make_plan(fabric, chunks, "lpt")
    adapter, noise = Adapter(fabric), noisy(seed, 0.04)
    times = []
    for _ in range(RUNS):
        report = carried(plan, true, noise)
        times.append(report.seconds)
        if adapter.learn(plan, [report]):
            plan = adapter.plan(plan)
    bound = float(lower_bound(true, chunks).value)
    assert times[-1] <= 1.15 * bound, [t / bound for t in times]
    if nodes > 2:  # with two, the ends of a link can't be told apart
        healthy = np.stack([true.tx, true.rx]) == np.stack([fabric.tx, fabric.rx])
        learnt = np.stack([adapter.fabric.tx, adapter.fabric.rx])
        assert (learnt[healthy] >= 0.85 * fabric.tx[0, 0]).all()
    times = []
    for _ in range(30):  # and back
        report = carried(plan, fabric, noise)
        times.append(report.seconds)
        if adapter.learn(plan, [report]):
            plan = adapter.plan(plan)
    bound = float(lower_bound(fabric, chunks).value)
    assert times[-1] <= 1.15 * bound, [t / bound for t in times]
    assert adapter.seen() == fabric


def test_noise_changes_nothing() -> None:
    fabric = Fabric.uniform(4, 4)
    chunks = workloads.zipf(fabric, mean="64MiB", seed=4).chunks("1MiB")
    plan, adapter, noise = make_plan(fabric, chunks, "lpt"), Adapter(fabric), noisy(1, 0.08)
    assert not any(adapter.learn(plan, [carried(plan, fabric, noise)]) for _ in range(10))
    assert adapter.fabric is fabric
    assert adapter.changes() == "all NICs as first planned"


def test_a_nic_without_a_living_link_is_dead_until_it_is_back() -> None:
    fabric = Fabric.uniform(3, 2)
    plan = make_plan(fabric, workloads.uniform(fabric, size="1MiB").chunks("64KiB"), "lpt")

    def said(*dead: tuple[int, int]) -> list[Report]:
        links = tuple(
            LinkReport(*ends, 0, 0, 0, 0.0, 0.0, alive=False)
            for ends in (*dead, *map(_turned, dead))
        )
        return [Report("verbs", "lpt", 0, 0, 0.0, (), links=links)]

    for mode in ("failures", "rates"):
        adapter = Adapter(fabric, mode)
        assert not adapter.learn(plan, said((0, 1))), "one dead link of three is no dead NIC"
        assert adapter.learn(plan, said((0, 1), (0, 2)))
        assert adapter.fabric.tx.tolist() == [[0, 50 * 10**9]] + [[50 * 10**9] * 2] * 2
        assert adapter.changes() == "0:0 dead"
        again = adapter.plan(plan)
        assert again.policy == "lpt"
        assert set(again.rail[again.chunks.src == 0].tolist()) == {1}
        assert adapter.learn(again, said())
        assert adapter.fabric is fabric
    off = Adapter(fabric, "off")
    assert not off.learn(plan, said((0, 1), (0, 2)))
    assert off.seen().tx[0].tolist() == [0, 50 * 10**9], "measured, not acted on"
    assert not dead_nics(fabric, []).any()


def _turned(ends: tuple[int, int]) -> tuple[int, int]:
    return ends[1], ends[0]


def test_rates_are_whole_steps_of_the_first_plans() -> None:
    fabric = Fabric.uniform(2, 2, "32GB/s")
    plan = make_plan(fabric, workloads.uniform(fabric, size="64MiB").chunks("1MiB"), "lpt")
    adapter = Adapter(fabric)
    slow = carried(plan, slowed(fabric, 0, 0, "tx"), noisy(0, 0.0))
    assert not adapter.learn(plan, [slow]), "once is no reason to plan again"
    assert adapter.measured[0, 0, 0] == pytest.approx(1 / 3, rel=1e-3)
    assert adapter.seen().tx[0, 0] == round(STEPS / 3) * 10**9
    assert adapter.learn(plan, [slow])
    assert adapter.fabric.tx[0, 0] == round(STEPS / 3) * 10**9
    assert "0:0 sends 11/32, receives 1" in adapter.changes()


@pytest.mark.parametrize("rate", ["63B/s", "12345678901B/s", "391.47Gb/s", "1e18B/s"])
def test_a_nic_as_first_planned_keeps_its_rate_beside_a_dead_one(rate: str) -> None:
    fabric = Fabric.uniform(2, 2, rate)
    plan = make_plan(fabric, workloads.uniform(fabric, size="1KiB").chunks("1KiB"), "lpt")
    links = tuple(LinkReport(k, 1 - k, 1, 0, 0, 0.0, 0.0, alive=False) for k in range(2))
    adapter = Adapter(fabric, "failures")
    assert adapter.learn(plan, [Report("verbs", "lpt", 0, 0, 0.0, (), links=links)])
    assert adapter.fabric.tx.tolist() == [[int(fabric.tx[0, 0]), 0]] * 2


def test_a_rate_follows_an_average_in_which_the_last_runs_count_most() -> None:
    fabric = Fabric.uniform(2, 2, "32GB/s")
    plan = make_plan(fabric, workloads.uniform(fabric, size="64MiB").chunks("1MiB"), "lpt")
    adapter = Adapter(fabric)
    adapter.learn(plan, [carried(plan, fabric, noisy(0, 0.0))])
    slow = carried(plan, slowed(fabric, 0, 0, "tx"), noisy(0, 0.0))
    assert not adapter.learn(plan, [slow])
    assert adapter.learn(plan, [slow])
    share = 1 - 0.8 * (1 - 1 / 3)
    assert adapter.measured[0, 0, 0] == pytest.approx(share, rel=1e-3)
    assert adapter.fabric.tx[0, 0] == round(share * STEPS) * 10**9


@pytest.mark.parametrize("seed", range(4))
def test_disturbed_runs_do_not_make_the_plan_swing(seed: int) -> None:
    """One rail at a third between two nodes; in every other run one link takes twice its time."""
    fabric = Fabric.uniform(2, 3)
    true = slowed(fabric, 0, 0, "tx")
    ends = np.zeros(100, np.int64)
    chunks = Chunks.from_arrays(src=ends, dst=ends + 1, size=ends + (1 << 23), nodes=2)
    plan, adapter = make_plan(fabric, chunks, "lpt"), Adapter(fabric)
    dice, noise = random.Random(seed), noisy(seed, 0.05)
    bound, late = float(lower_bound(true, chunks).value), []
    for run in range(24):
        late.append(float((plan.send[0] / true.tx[0]).max()) / bound)
        report = carried(plan, true, noise)
        if run % 2:
            hit = dice.randrange(len(report.links))
            link = report.links[hit]
            links = list(report.links)
            links[hit] = replace(link, last_s=2 * link.last_s)
            report = replace(report, links=tuple(links))
        if adapter.learn(plan, [report]):
            plan = adapter.plan(plan)
    assert max(late[:2]) > 2
    assert max(late[3:]) <= 1.15, late


def test_what_can_not_be_is_refused() -> None:
    fabric = Fabric.uniform(2, 2)
    with pytest.raises(InputError, match="expected off, failures, rates"):
        Adapter(fabric, "sometimes")
    plan = make_plan(fabric, workloads.uniform(fabric, size="1MiB").chunks("64KiB"), "lpt")
    stage = np.zeros(len(plan.chunks), np.int32)
    staged = Plan(fabric, plan.chunks, plan.rail, "lpt", stage)
    with pytest.raises(InputError, match="plan with stages"):
        Adapter(fabric).plan(staged)
    Adapter(fabric, "off").check(staged)
