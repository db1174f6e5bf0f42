"""The node inside the plan: `spill` and `even-excess` against the certified bounds and against
`lpt` on the same units; the exact optimum of divisible traffic.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial

import numpy as np

from railopt import Chunks, Fabric, Planner, plan, workloads
from railopt.evidence.bounds import lower_bound
from tests.bench import Row, in_turns, judged, judged_once, ratio
from tests.moved import least_moved

NODES = (4, 8, 16, 32, 64, 128)
RAGGED = (0, 0.3, 0.6)
SEEDS = (1001, 1002)
MOVED_MOST = 32  # nodes up to which the bound on moved bytes is looked for


def routed(fabric: Fabric, ragged: float, seed: int, *, own: int = 0) -> Chunks:
    """Tokens once a node: 256 experts or one a GPU, top-8, lognormal popularity, batches that
    differ by +-`ragged`; tokens of one GPU, node and set of targets are one unit, up to 256 KiB.
    """
    experts = max(256, fabric.nodes * fabric.gpus)
    tokens = 2048 if fabric.nodes <= 32 else 512
    drawn = workloads.Routing(
        fabric, experts=experts, tokens=tokens, ragged=ragged, own=own, seed=seed
    )
    return drawn.made().chunks("256KiB")


def rows() -> Iterator[Row]:
    yield from spill_rows()
    yield from even_excess_rows()
    yield from optimum_rows()


def spill_rows() -> Iterator[Row]:
    """The worst of the grid, a row a number of nodes."""
    for nodes in NODES:
        fabric = Fabric.uniform(nodes, 8)
        late, above, slower, count = 0.0, 0.0, 0.0, 0
        for ragged in RAGGED:
            for seed in SEEDS:
                chunks = routed(fabric, ragged, seed, own=seed % 2)
                made = plan(fabric, chunks, "spill")
                late = max(late, float(made.makespan / lower_bound(fabric, chunks).value - 1))
                if nodes <= MOVED_MOST:
                    least = least_moved(fabric, chunks, made.makespan).bound
                    above = max(above, float(made.moved / least - 1))
                ours, theirs = in_turns(
                    [partial(plan, fabric, chunks, policy) for policy in ("spill", "lpt")]
                ).T
                slower, count = max(slower, ratio(ours, theirs)), max(count, len(chunks))
        note = f"worst of {len(RAGGED) * len(SEEDS)}, up to {count} units"
        yield Row(f"spill {nodes} x 8: NIC time above the bound", late * 100, "%", 0.05, note=note)
        if nodes <= MOVED_MOST:
            yield Row(f"spill {nodes} x 8: moved above the bound", above * 100, "%", 5, note=note)
        yield Row(f"spill {nodes} x 8: railopt's lpt, times", slower, "x", 20, note=note)


def even_excess_rows() -> Iterator[Row]:
    fabric = Fabric.uniform(8, 8)
    row = np.ascontiguousarray(workloads.moe(fabric, skew=0.8, seed=1001).bytes[:8])
    planner = Planner(fabric, 0, "1MiB", "even-excess")
    count = len(planner.plan(row).size)
    name = "even-excess, one node of 8 x 8, a call"
    yield from judged(name, [lambda: planner.plan(row)], "us", 60e-6, f"{count} chunks")


def optimum_rows() -> Iterator[Row]:
    from tests.moved import least_moved

    healthy = Fabric.uniform(16, 8)
    hurt = healthy.degraded({(0, 3): "0", (1, 5): "0.5", (2, 2): "0.25"})
    for name, fabric in (("healthy", healthy), ("one NIC dead, two slow", hurt)):
        for seed in SEEDS:
            chunks = routed(fabric, 0.3, seed)
            began = time.process_time()
            found = least_moved(fabric, chunks)
            took_s = time.process_time() - began
            note = f"{'exact' if found.exact else 'NOT exact'}, {len(chunks)} units"
            text = f"exact optimum, 16 x 8, {name}, seed {seed}"
            yield from judged_once(text, took_s, "s", 2, note)
