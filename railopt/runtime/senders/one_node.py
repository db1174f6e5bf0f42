"""One plan of what each node has to send: ranks tell each other their rows, and all make the same
plan of them.

A receiver's memory is laid out by what all nodes send, and a sender has to know where in it to
write.  Bytes from GPU to GPU say that: no chunk and no rail travels.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from typing import Any

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import BackendError, InputError
from railopt.model.plan import Plan
from railopt.policies.planner import Planner, planned_by
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.wire import MAX_FRAME

__all__ = ["gather_plan"]

NUMBER = np.dtype("<i8")


def gather_plan(group: Group, planner: Planner, row: Any) -> Plan:
    """The plan of all nodes, the same on every rank, from this node's `row` [gpus, nodes * gpus],
    bytes from its GPUs, by a planner of all nodes (`node` None); every rank calls this.

    >>> planner = Planner(fabric, None, policy="even-excess")
    >>> report = sender.run(gather_plan(group, planner, row)).wait()
    """
    fabric = planner.fabric
    if fabric.nodes != group.size:
        raise InputError(f"the fabric has {fabric.nodes} nodes, this run {group.size} ranks")
    if planner.node is not None:
        raise InputError(f"a planner of node {planner.node} alone: expected one of all nodes, None")
    shape = (fabric.gpus, fabric.nodes * fabric.gpus)
    data = packed(planner.taken(row, shape))
    if len(data) * group.size > MAX_FRAME // 2:
        raise InputError(
            f"{group.size} nodes of {fabric.gpus} GPUs: too many rows to be sent to all; plan once "
            f"and give all ranks the file"
        )
    setup = {"fabric": fabric.digest, "policy": planner.policy, "cap": planner.cap}
    rows = []
    for node, answer in enumerate(group.allgather({**setup, "row": data})):
        said = answer if isinstance(answer, dict) else {}
        if {name: said.get(name) for name in setup} != setup:
            raise InputError(
                f"{group.names[node]} plans for another fabric, with another policy or cap than "
                f"this node: give all ranks the same"
            )
        rows.append(unpacked(said.get("row"), shape, group.names[node]))
    return planned_by(planner, np.concatenate(rows))


def packed(row: Ints) -> str:
    """A row as text."""
    return base64.b64encode(zlib.compress(row.astype(NUMBER).tobytes(), 1)).decode()


def unpacked(text: Any, shape: tuple[int, int], name: str) -> Ints:
    """The way back; whatever the text is, a row or a BackendError that says who sent it."""
    size = shape[0] * shape[1] * NUMBER.itemsize
    try:
        inflate = zlib.decompressobj()
        data = inflate.decompress(base64.b64decode(text, validate=True), size)
        fine = len(data) == size and inflate.eof and not inflate.unused_data
    except (TypeError, ValueError, binascii.Error, zlib.error):
        fine = False
    if not fine:
        raise BackendError(f"{name} sent no row of bytes: run the same version on all nodes")
    return np.frombuffer(data, NUMBER).reshape(shape).astype(np.int64)
