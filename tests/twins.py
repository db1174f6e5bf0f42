"""Replicas of one expert that share a GPU, which plain EPLB may place and railopt does not."""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Int32s
from railopt.moe.placement.placement import slot_gpus


def twins(phy2log: Int32s, gpus: int) -> int:
    """How many of int32 [layers, replicas] share their GPU with another of the same expert."""
    owner = slot_gpus(phy2log.shape[1], gpus)
    experts = int(phy2log.max()) + 1
    return sum(len(row) - len(np.unique(owner * experts + row)) for row in phy2log)
