"""Synthesis time, stages and modelled time of schedules: ours beside our own FAST and FAST's
released scheduler.

The released figures (MangoBoost/FAST 0712d29, uniform random demand, CPU time on a comparable
machine) are quoted, not measured here; `fast` is our implementation of its algorithm, measured in
the same run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import partial

import numpy as np

from railopt import Fabric, Traffic
from railopt.model.workloads import zipf
from railopt.schedule import modelled, synthesise
from tests.bench import Row, in_steps, in_turns, plain_steps, ratio

GPUS = 8
# servers -> (microseconds, stages, modelled time over the bound) of FAST's released scheduler
RELEASED = {
    4: (41, 8, 1.19),
    8: (355, 44, 1.23),
    16: (3_800, 218, 1.26),
    32: (45_000, 935, 1.32),
    64: (725_000, 3_916, 1.35),
    128: (10_400_000, 16_043, 1.36),
}
# servers -> seconds with pieces: FAST's as released at 4, half of it at 8, then a 10th to a 200th
GOAL_S = {4: 41e-6, 8: 180e-6, 32: 45e-3 / 10, 64: 0.725 / 50, 128: 10.4 / 200}


def demand(servers: int) -> tuple[Fabric, Traffic]:
    """Uniform random, 50 MB a GPU pair on average."""
    fabric = Fabric.uniform(servers, GPUS)
    matrix = np.random.default_rng(servers).integers(0, 100_000_000, (servers * GPUS,) * 2)
    return fabric, Traffic.from_matrix(matrix, fabric)


def rows() -> Iterator[Row]:
    spent: dict[int, float] = {}
    for servers, (released_us, released_stages, released_ratio) in RELEASED.items():
        fabric, traffic = demand(servers)
        repeats = 200 if servers <= 16 else 20
        size = f"{servers}x{GPUS}"
        made = synthesise(fabric, traffic)
        compact = partial(synthesise, fabric, traffic)
        fast = partial(synthesise, fabric, traffic, "fast")
        alone, own, whole, peer, theirs, loop = in_turns(
            [
                compact,
                lambda: compact().pieces(node=0),  # noqa: B023
                lambda: compact().pieces(),  # noqa: B023
                fast,
                lambda: fast().pieces(node=0),  # noqa: B023
                plain_steps,
            ],
            repeats,
            3,
        ).T
        spent[servers] = alone.min() * 1e6
        yield Row(f"compact {size}: synthesis, stages between servers", spent[servers], "us")
        pieces = (("one server", own, "what a node needs"), ("all servers", whole, ""))
        for text, took, note in pieces:
            name = f"compact {size}: synthesis with the pieces of {text}"
            yield Row(name, took.min() * 1e6, "us", note=note)
            if servers in GOAL_S:
                yield in_steps(took, loop, GOAL_S[servers])
        yield Row(
            f"compact {size}, one server: over our own fast with its pieces",
            ratio(own, theirs),
            "x",
            at_most=1,
        )
        yield Row(f"fast {size}: our implementation of FAST's algorithm", peer.min() * 1e6, "us")
        for text, took, _ in pieces:
            yield Row(
                f"FAST as released {size} / compact with pieces of {text}",
                released_us / (took.min() * 1e6),
                "x",
                note=f"quoted, not of this run: {released_us / 1e3:g} ms",
            )
        yield Row(
            f"compact {size}: stages a server",
            made.stages / servers,
            "",
            at_most=4,
            note=f"FAST as released: {released_stages} stages, {released_stages / servers:.1f} a "
            f"server",
        )
        yield Row(
            f"compact {size}: total over the line-sum bound",
            1 + float(made.excess),
            "x",
            at_most=1.05,
        )
        yield Row(
            f"compact {size}: modelled time over the bound",
            modelled(made).ratio,
            "x",
            at_most=1.10,
            note=f"FAST as released: {released_ratio}",
        )
    sizes = sorted(spent)
    growth = math.log(spent[sizes[-1]] / spent[sizes[0]]) / math.log(sizes[-1] / sizes[0])
    yield Row(
        f"compact: growth of synthesis from {sizes[0]} to {sizes[-1]} servers, n to the",
        growth,
        "",
        at_most=2.5,
    )
    tail = math.log(spent[128] / spent[32]) / math.log(4)
    yield Row("compact: the same from 32 to 128 servers", tail, "")
    fabric = Fabric.uniform(64, GPUS)
    skewed = synthesise(fabric, zipf(fabric, mean="4MiB", skew=0.9, seed=1))
    yield Row(
        "compact 64x8, Zipf 0.9 receivers: stages a server", skewed.stages / 64, "", at_most=4
    )
    yield Row(
        "compact 64x8, Zipf 0.9 receivers: modelled time over the bound",
        modelled(skewed).ratio,
        "x",
        at_most=1.10,
    )
    fabric, traffic = demand(16)
    slow = fabric.degraded({(3, 5): "1/2"})
    took = in_turns([partial(synthesise, slow, traffic), partial(synthesise, fabric, traffic)], 50)
    yield Row("compact 16x8, a slow NIC: synthesis over the healthy one", ratio(*took.T), "x", 3)
