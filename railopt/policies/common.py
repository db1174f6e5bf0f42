"""What every policy does first and last."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from railopt.chunks import Chunks
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.plan import Plan

Rails = npt.NDArray[np.int16]


def check_alive(fabric: Fabric, chunks: Chunks) -> None:
    """Refuse chunks between nodes that no living rail joins, and chunks of another fabric."""
    if chunks.nodes != fabric.nodes:
        raise InputError(f"chunks of {chunks.nodes} nodes, the fabric has {fabric.nodes}")
    if fabric.tx.min() > 0 and fabric.rx.min() > 0:
        return
    joined = (fabric.tx > 0).astype(np.int64) @ (fabric.rx > 0).astype(np.int64).T > 0
    stuck = ~joined[chunks.src, chunks.dst]
    if stuck.any():
        row = int(np.argmax(stuck))
        k, f = int(chunks.src[row]), int(chunks.dst[row])
        raise InputError(f"no living rail from node {k} to node {f}: node {k} can send on rails "
                         f"{np.flatnonzero(fabric.tx[k]).tolist()}, node {f} can receive on rails {np.flatnonzero(fabric.rx[f]).tolist()}; "
                         "repair a NIC or take their traffic away")


def make_plan(fabric: Fabric, chunks: Chunks, rail: npt.NDArray[np.signedinteger[npt.NBitBase]], policy: str) -> Plan:
    """The plan, its rails frozen in place."""
    rails: Rails = rail.astype(np.int16, copy=False)
    rails.flags.writeable = False
    return Plan(fabric, chunks, rails, policy)
