"""Synthesis time, stages and modelled time of schedules: ours beside our own FAST and FAST's
released scheduler.

The released figures (MangoBoost/FAST 0712d29, uniform random demand, CPU time on a comparable
machine) are quoted, not measured here; `fast` is our implementation of its algorithm, measured in
the same run.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from railopt import Fabric, Traffic
from railopt.schedule import modelled, synthesise
from railopt.workloads import zipf
from tests.bench import Row, best, judged

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
        spent[servers] = us = best(lambda: synthesise(fabric, traffic), repeats, 3, cpu=True) * 1e6  # noqa: B023
        own = best(lambda: synthesise(fabric, traffic).pieces(node=0), repeats, 3, cpu=True) * 1e6  # noqa: B023
        whole = best(lambda: synthesise(fabric, traffic).pieces(), repeats, 3, cpu=True) * 1e6  # noqa: B023
        peer = best(lambda: synthesise(fabric, traffic, "fast"), min(repeats, 5), 2, cpu=True) * 1e6  # noqa: B023
        theirs = best(
            lambda: synthesise(fabric, traffic, "fast").pieces(node=0),  # noqa: B023
            min(repeats, 200),
            3,
            cpu=True,
        )
        yield Row(f"compact {size}: synthesis, stages between servers", us, "us")
        name, goal = f"compact {size}: synthesis with the pieces of", GOAL_S.get(servers)
        yield from judged(f"{name} one server", own * 1e-6, "us", goal, "what a node needs")
        yield Row(
            f"compact {size}, one server: over our own fast with its pieces",
            own / (theirs * 1e6),
            "x",
            at_most=1,
        )
        yield from judged(f"{name} all servers", whole * 1e-6, "us", goal)
        yield Row(f"fast {size}: our implementation of FAST's algorithm", peer, "us")
        for text, spent_us in (("one server", own), ("all servers", whole)):
            yield Row(
                f"FAST as released {size} / compact with pieces of {text}",
                released_us / spent_us,
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
