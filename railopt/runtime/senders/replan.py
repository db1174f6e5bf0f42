"""Planning again after a fault: the chunks that did not arrive, over the rails that still live,
with the same policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from railopt.base.arrays import Ints
from railopt.model.inside import Inside
from railopt.model.plan import Plan


def replan(plan: Plan, rows: Ints, node: int, peer: int, alive: Sequence[int]) -> tuple[Ints, str]:
    """Rails, one per chunk of `rows` (all from `node` to `peer`), and the policy that chose them.
    Rails are those of `alive` that the fabric has at both ends.  Where it has none of them (they
    were dead when it was planned, and came back), all of `alive` are used as if equal.  The policy
    is the plan's own, or LPT where that is not one of railopt's (a solver's plan, a policy from
    outside).
    """
    from railopt import policies

    fabric = plan.fabric
    known = [n for n in alive if fabric.tx[node, n] > 0 and fabric.rx[peer, n] > 0]
    living = np.array(known or alive, np.int64)
    tx, rx = fabric.tx[:, living], fabric.rx[:, living]
    if not known:
        tx = rx = np.full_like(tx, fabric.tx.max())
    inside = _inside(fabric.inside, living)
    smaller = replace(fabric, rails=len(living), tx=tx, rx=rx, inside=inside, devices=())
    policy = policies.policy_of(plan)
    again = policies.plan(smaller, plan.chunks.take(rows), policy)
    return living[again.rail], policy


def _inside(inside: Inside | None, living: Ints) -> Inside | None:
    """What is near on the living rails; the usual order where a GPU's NICs are all dead."""
    if inside is None or not inside.near[:, living].any(axis=1).all():
        return None
    return replace(inside, near=inside.near[:, living])
