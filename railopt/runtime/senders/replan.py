"""Planning again after a fault: the chunks that did not arrive, over the rails that still live,
with the same policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from railopt.arrays import Ints
from railopt.errors import BackendError
from railopt.plans import Plan

FALLBACK = "lpt"


def replan(plan: Plan, rows: Ints, node: int, peer: int, alive: Sequence[int]) -> tuple[Ints, str]:
    """Rails, one a chunk of `rows` (all from `node` to `peer`), among those of `alive` that the
    fabric has at both ends; and the policy that chose them: the plan's own, or LPT where that is
    not a policy by name (a solver's plan).
    """
    from railopt.policies import POLICIES

    fabric = plan.fabric
    living = np.array(
        [n for n in alive if fabric.tx[node, n] > 0 and fabric.rx[peer, n] > 0], np.int64
    )
    if not len(living):
        raise BackendError(f"no living rail is left from node {node} to node {peer}")
    smaller = replace(fabric, rails=len(living), tx=fabric.tx[:, living], rx=fabric.rx[:, living])
    policy = plan.policy if plan.policy in POLICIES else FALLBACK
    again = POLICIES[policy](smaller, plan.chunks.take(rows))
    return living[again.rail], policy
