"""Whether a staged plan keeps the rule of stages: one peer per NIC, stage and direction."""

from __future__ import annotations

import numpy as np

from railopt.model.plan import Plan


def conflicts(plan: Plan) -> list[str]:
    """Where a staged plan breaks the rule: in a stage each NIC sends to at most one node and
    receives from at most one.

    One line a broken (stage, node, rail, side), at most ten; none for a plan without stages.
    """
    if plan.stage is None or not len(plan.chunks):
        return []
    found, nodes, chunks = [], plan.fabric.nodes, plan.chunks
    nic = plan.stage.astype(np.int64) * plan.fabric.rails + plan.rail
    for side, here, there in (
        ("sends to", chunks.src, chunks.dst),
        ("receives from", chunks.dst, chunks.src),
    ):
        pairs = np.unique((nic * nodes + here) * nodes + there)
        ends, peers = np.unique(pairs // nodes, return_counts=True)
        for end, count in zip(ends[peers > 1].tolist(), peers[peers > 1].tolist(), strict=True):
            stage, rail = divmod(end // nodes, plan.fabric.rails)
            found.append(f"stage {stage}: NIC {rail} of node {end % nodes} {side} {count} nodes")
    return found[:10]
