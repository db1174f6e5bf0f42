"""What the simulator's special cases gain, each left out in turn, on traffic whose seeds were drawn
once.  CPU milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from railopt import Fabric, plan, simulate, workloads
from railopt.sim import events, from_plan, graph, run
from railopt.sim.assumptions import Assumptions
from tests.bench import best, drawn_seeds
from tests.bench.ablations import Ablation, source_lines
from tests.bench.ablations_policies import without


def rows(seed: int) -> Iterator[Ablation]:
    command = f"python -m tests.bench ablations sim --seed {seed}"
    first, second, third = drawn_seeds(seed, 3)
    exact = Assumptions(exact=True)
    fabric = Fabric.uniform(8, 8)
    traffic = workloads.zipf(fabric, skew=0.6, seed=first)
    direct = partial(simulate, traffic, fabric=fabric, balancer="ecmp", seed=first)
    fast, slow = direct(), direct(assumptions=exact)
    apart = abs(fast.completion_ps / slow.completion_ps - 1)
    gain = f"{_ms(direct)}, {_ms(partial(direct, assumptions=exact))} exactly; {apart:.1e} apart"
    yield Ablation("rates computed anew now and then", 95, gain, command)

    made = _planned(second)
    whole = partial(simulate, made, assumptions=exact)
    with_it = _ms(whole)
    with without(graph, components=lambda ports, *_: np.zeros(ports, np.int64)):
        gain = f"{with_it}, {_ms(whole)} without"
    lines = source_lines(graph.components, run._parts, events.run)
    yield Ablation("components run apart", lines, gain, command)

    call = partial(simulate, _planned(third))
    with_it = _ms(call)
    with without(from_plan, scaleup_can_fill=lambda *_: True):
        gain = f"{with_it}, {_ms(call)} with all of them"
    lines = source_lines(from_plan.scaleup_can_fill)
    yield Ablation("scale-up ports that can't fill up", lines, gain, command)


def _planned(seed: int) -> Any:
    """16 x 8, 1,920 links between nodes."""
    fabric = Fabric.uniform(16, 8)
    return plan(fabric, workloads.zipf(fabric, skew=0.6, seed=seed), "lpt")


def _ms(call: Any) -> str:
    return f"{1e3 * best(call, 3, cpu=True):.0f} ms"
