"""Bytes moved against brute force: never a bound above what is least, never a false certificate.

RAILOPT_INSTANCES sets how many random instances are tried.
"""

from __future__ import annotations

import os
from fractions import Fraction
from typing import Any

import numpy as np

from railopt import Certificate, Chunks, Fabric, plan
from railopt.base.arrays import Ints
from railopt.base.errors import InputError
from railopt.checker import check_certificate
from railopt.model.inside import Inside
from railopt.model.plan import rail_costs
from tests.moved import least_moved
from tests.property.test_coupled_brute_force import changed

INSTANCES = int(os.environ.get("RAILOPT_INSTANCES", "300"))
MOST = 20_000  # assignments that brute force looks at


def instance(rng: np.random.Generator) -> tuple[Fabric, Chunks]:
    """A tiny fabric of any inside, healthy or not, and units of which brute force sees every
    assignment.
    """
    nodes, rails, gpus = (int(rng.integers(2, 4)) for _ in range(3))
    rates = np.full((2, nodes, rails), 4)
    if rng.random() < 0.5:
        rates = rng.choice([0, 1, 2, 3, 4], rates.shape, p=[0.1, 0.1, 0.2, 0.2, 0.4])
        rates[:, :, 0] = np.maximum(rates[:, :, 0], 1)
    inside = None
    if rng.random() < 0.5:
        near = rng.random((gpus, rails)) < 0.5
        near[np.arange(gpus), rng.integers(0, rails, gpus)] = True
        near[rng.integers(0, gpus, rails), np.arange(rails)] = True
        inside = Inside(near)
    fabric = Fabric(nodes, rails, gpus, rates[0], rates[1], inside=inside)
    count = int(rng.integers(1, 1 + int(np.log(MOST) / np.log(rails))))
    src_gpu = rng.integers(0, nodes * gpus, count)
    return fabric, Chunks.from_units(
        fabric,
        src_gpu=src_gpu,
        dst=(src_gpu // gpus + rng.integers(1, nodes, count)) % nodes,
        size=rng.integers(1, int(rng.choice([2, 4, 10, 100])), count) * int(rng.choice([1, 6])),
        targets=rng.random((count, gpus)) < rng.choice([0.0, 0.3, 0.7]),
    )


def every_plan(fabric: Fabric, chunks: Chunks) -> tuple[Ints, Ints, int]:
    """(time x scale, bytes moved) of every plan on living rails, and the scale."""
    rails, count = fabric.rails, len(chunks)
    chosen = np.indices((rails,) * count).reshape(count, -1).T
    scale = int(np.lcm.reduce(np.concatenate([fabric.tx[fabric.tx > 0], fabric.rx[fabric.rx > 0]])))
    worst, alive = np.zeros(len(chosen), np.int64), np.ones(len(chosen), bool)
    for ends, rates in ((chunks.src, fabric.tx), (chunks.dst, fabric.rx)):
        for node in set(ends.tolist()):
            for rail in range(rails):
                load = ((chosen == rail) & (ends == node)) @ chunks.size
                if rates[node, rail]:
                    worst = np.maximum(worst, load * (scale // rates[node, rail]))
                else:
                    alive &= load == 0
    cost = rail_costs(fabric, chunks).astype(np.int64) * chunks.size[:, None]
    moved = cost[np.arange(count), chosen].sum(axis=1)
    return worst[alive], moved[alive], scale


def test_prices_bound_every_plan_at_every_time() -> None:
    for seed in range(INSTANCES // 8):
        fabric, chunks = instance(np.random.default_rng([18, seed]))
        times, moved, scale = every_plan(fabric, chunks)
        for time in {int(t) for t in (times.min(), np.median(times), times.max())}:
            found = least_moved(fabric, chunks, Fraction(time, scale))
            assert found.exact, f"seed {seed}"
            assert found.bytes <= int(moved[times <= time].min()), f"seed {seed}"


def still_true(record: dict[str, Any]) -> bool:
    """Whether the checker accepts a certificate; if it does, brute force must find all that it says
    to be so.
    """
    verdict = check_certificate(record)
    if not verdict.ok:
        return False
    problem, units = record["problem"], record["problem"]["units"]
    near = np.zeros((problem["gpus"], len(problem["near"])), np.bool_)
    for rail, gpus in enumerate(problem["near"]):
        near[gpus, rail] = True
    tx, rx = np.array(problem["tx"]), np.array(problem["rx"])
    try:
        fabric = Fabric(len(tx), len(tx[0]), problem["gpus"], tx, rx, inside=Inside(near))
    except InputError:
        return True  # of a NIC without a GPU, or the reverse: not railopt's, but well defined
    targets = np.zeros((len(units["size"]), problem["gpus"]), np.bool_)
    for unit, some in enumerate(units["targets"]):
        targets[unit, some] = True
    ends = {name: units[name] for name in ("src_gpu", "dst", "size")}
    times, moved, scale = every_plan(fabric, Chunks.from_units(fabric, targets=targets, **ends))
    in_time = times <= int(Fraction(problem["time"]) * scale)
    assert verdict.bound is not None
    assert verdict.value is not None
    assert verdict.bound <= int(moved[in_time].min()) <= verdict.value, record
    assert verdict.optimal == (verdict.bound == verdict.value), record
    return True


def test_a_changed_certificate_is_rejected_unless_it_is_still_true() -> None:
    rejected = 0
    for seed in range(INSTANCES // 4):
        rng = np.random.default_rng([19, seed])
        fabric, chunks = instance(rng)
        made = plan(fabric, chunks, "own-nic" if seed % 2 else "lpt")
        least = least_moved(fabric, chunks, made.makespan)
        record = Certificate.moved(made, made.makespan, least.bytes, least.witness).as_dict()
        assert still_true(record), f"seed {seed}"
        rejected += not still_true(changed(record, rng))
    assert rejected > INSTANCES // 20
