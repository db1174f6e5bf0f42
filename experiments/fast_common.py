"""What the FAST experiments share: workloads, and methods on the simulator."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from experiments.fast_phases import phases
from railopt import Fabric, Traffic, plan
from railopt.base.dice import Dice, falling
from railopt.model.workloads import traffic_from
from railopt.schedule import Schedule, synthesise
from railopt.sim import Assumptions, Flows, simulate
from railopt.sim.assumptions import ROCE_INCAST

MB = 1_000_000
STORE_AND_FORWARD = ("fast", "fast-nostage", "compact")
METHODS = (
    *STORE_AND_FORWARD,
    "pipelined",
    "spreadout",
    "spreadout-barrier",
    "direct-ecmp",
    "direct-spray",
    "pxn",
    "lpt",
    "equitable",
)


def workload(name: str, fabric: Fabric, mb_per_gpu: float, seed: int) -> Traffic:
    """fast-random and fast-zipf:s=S, FAST's own (`railopt.model.published`), or one of ours:
    balanced, random (uniform pair sizes), pairs-S (pair sizes rank ** -S in random order),
    receivers-S (popularity).

    Scaled so that a GPU sends `mb_per_gpu` on average, what stays inside its server included.
    """
    dice, count = Dice(seed, "fast", name), fabric.nodes * fabric.gpus
    if name.startswith("fast-"):
        mean = str(round(mb_per_gpu * MB / (count - 1)))
        return traffic_from(f"{name}{',' if ':' in name else ':'}mean={mean},seed={seed}", fabric)
    kind, _, skew = name.partition("-")
    if kind == "balanced":
        weights = np.ones((count, count))
    elif kind == "random":
        weights = dice.unit((count, count))
    elif kind == "pairs":
        falling_off = falling(count * count, float(skew))
        weights = falling_off[dice.permutation(count * count)].reshape(count, count)
    else:
        popular = falling(count, float(skew))[dice.permutation(count)]
        weights = popular * dice.uniform(0.5, 1.5, (count, count))
    np.fill_diagonal(weights, 0)
    return Traffic.from_matrix(
        np.rint(weights * (mb_per_gpu * MB * count / weights.sum())).astype(np.int64), fabric
    )


def run_phases(flows: Flows, fabric: Fabric, incast: Fraction) -> Any:
    """Simulate phases; with an incast penalty on the receive NICs."""
    nics = fabric.nodes * fabric.rails
    if incast:
        fan_in = np.zeros(len(flows.capacity), np.bool_)
        fan_in[nics : 2 * nics] = True
        goodput = Assumptions(incast=incast).goodput(fabric.nodes)
        flows = replace(flows, fan_in=fan_in, goodput=goodput)
    return simulate(flows)


def spreadout_phases(
    fabric: Fabric, traffic: Traffic, alpha_ps: int, barrier: bool = False
) -> Flows:
    """SpreadOut between GPUs: step d sends g -> g + d, own NIC to the target's NIC; inside a server
    over scale-up.

    As FAST's authors released it, a GPU goes on when what it sends and what it receives in a step
    is done, so that a transfer waits for the two steps before of both its ends; with a barrier all
    GPUs wait for each other.
    """
    count, m = len(traffic.bytes), fabric.gpus
    shift = np.repeat(np.arange(1, count), count)
    src = np.tile(np.arange(count), count - 1)
    dst = (src + shift) % count
    group = shift - 1 if barrier else (shift - 1) * count + src
    size = traffic.bytes[src, dst]
    group, src, dst, size = group[size > 0], src[size > 0], dst[size > 0], size[size > 0]
    inside = src // m == dst // m
    path = np.stack(
        [np.where(inside, 2 * count + src, src), np.where(inside, 3 * count + dst, count + dst)],
        axis=1,
    )
    return Flows(
        np.concatenate([fabric.tx.ravel(), fabric.rx.ravel(), np.full(2 * count, fabric.scaleup)]),
        2 * np.arange(len(src) + 1),
        path.ravel().astype(np.int32),
        size,
        latency_ps=np.full(len(src), alpha_ps),
        group=group.astype(np.int32),
        needs=_waits(count, barrier),
        track=(src % m).astype(np.int32),
    )


def _waits(count: int, barrier: bool) -> Any:
    """int32 [E, 2]: which group of SpreadOut waits for which; without a barrier transfer (d, g) is
    group (d - 1) count + g.
    """
    if barrier:
        after = np.arange(1, count - 1)
        return np.stack([after, after - 1], axis=1).astype(np.int32)
    pairs = []
    for step in range(2, count):
        for g in range(count):
            ends = (g, (g + step) % count)
            before = {(step - 2) * count + end for end in ends}
            before |= {(step - 2) * count + (end - step + 1) % count for end in ends}
            pairs += [((step - 1) * count + g, each) for each in sorted(before)]
    return np.array(pairs, np.int32).reshape(-1, 2)


def startup_bytes(fabric: Fabric, alpha_ps: int) -> int:
    """What two servers could exchange while a stage starts."""
    return alpha_ps * fabric.rails * int(fabric.tx[0, 0]) // 10**12


def synthesised(kind: str, fabric: Fabric, traffic: Traffic, alpha_ps: int) -> Schedule:
    """A schedule; a compact one knows what a stage's start-up is worth."""
    startup = startup_bytes(fabric, alpha_ps) if kind == "compact" else None
    return synthesise(fabric, traffic, kind, startup=startup)


def seconds(method: str, fabric: Fabric, traffic: Traffic, alpha_ps: int, incast: bool) -> float:
    """Completion time of a method: store-and-forward phases, chunks that cut through, or direct
    flows.
    """
    penalty = ROCE_INCAST if incast else Fraction(0)
    if method in STORE_AND_FORWARD:
        made = synthesised(method, fabric, traffic, alpha_ps)
        return float(run_phases(phases(made, alpha_out_ps=alpha_ps), fabric, penalty).completion)
    if method.startswith("spreadout"):
        steps = spreadout_phases(fabric, traffic, alpha_ps, barrier=method.endswith("barrier"))
        return float(run_phases(steps, fabric, penalty).completion)
    assumed = Assumptions(incast=penalty)
    if method.startswith("direct-"):
        took = simulate(
            traffic, fabric=fabric, balancer=method.removeprefix("direct-"), assumptions=assumed
        ).completion
    elif method == "pipelined":
        took = simulate(
            synthesise(fabric, traffic, method).plan("1MiB"), assumptions=assumed
        ).completion
    else:
        took = simulate(
            plan(fabric, traffic.chunks("1MiB"), method), assumptions=assumed
        ).completion
    return float(took) + alpha_ps * 1e-12 * (fabric.nodes - 1)


def algbw(traffic: Traffic, took: float) -> float:
    """GB/s a GPU: all bytes over GPUs and time, as FAST counts (what stays inside a server is
    counted too).
    """
    return float(traffic.bytes.sum()) / len(traffic.bytes) / took / 1e9
