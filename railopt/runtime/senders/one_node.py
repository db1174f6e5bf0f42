"""Plans of one node in the senders: each rank gives what its planner returned, and all learn what
comes to them.

A receiver's memory is laid out by what all nodes send, and a sender has to know where in it to
write: so the parts of all nodes travel over the rendezvous, and every rank makes the same plan of
them.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np

from railopt.base.errors import BackendError, InputError
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies.planner import NodePlan, joined_plan
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.wire import MAX_FRAME

__all__ = ["gather_plan"]

KINDS = ("<i4", "<i4", "<i8", "<i8", "<i2")  # of a part's columns on the wire
CHUNK = sum(np.dtype(kind).itemsize for kind in KINDS)  # bytes


def gather_plan(group: Group, fabric: Fabric, part: NodePlan, policy: str = "given") -> Plan:
    """The plan of all nodes, the same on every rank, from this node's `part`; every rank of the
    group calls this.

    >>> part = Planner(fabric, group.rank, policy="even-excess").plan(row)
    >>> report = sender.run(gather_plan(group, fabric, part, "even-excess")).wait()
    """
    if fabric.nodes != group.size:
        raise InputError(f"the fabric has {fabric.nodes} nodes, this run {group.size} ranks")
    data = packed(part)
    if len(data) * group.size > MAX_FRAME // 2:
        raise InputError(
            f"{len(part.size)} chunks of this node, {group.size} nodes: too many to be sent "
            f"to the others; use larger chunks"
        )
    gathered = group.allgather({"fabric": fabric.digest, "policy": policy, "part": data})
    parts = []
    for node, answer in enumerate(gathered):
        said = answer if isinstance(answer, dict) else {}
        if said.get("fabric") != fabric.digest or said.get("policy") != policy:
            raise InputError(
                f"{group.names[node]} planned for another fabric or with another policy than this "
                f"node: give all ranks the same"
            )
        parts.append(unpacked(said.get("part"), group.names[node]))
    return joined_plan(fabric, parts, policy)


def packed(part: NodePlan) -> str:
    """A part as text."""
    columns = [np.asarray(c, kind) for c, kind in zip(part, KINDS, strict=True)]
    return base64.b64encode(b"".join(column.tobytes() for column in columns)).decode()


def unpacked(text: Any, name: str) -> NodePlan:
    """The way back; whatever the text is, a part or a BackendError that says who sent it."""
    try:
        data = base64.b64decode(text, validate=True)
    except (TypeError, ValueError, binascii.Error):
        data = b"?"
    if len(data) % CHUNK:
        raise BackendError(f"{name} sent no part of a plan: run the same version on all nodes")
    columns, begin, count = [], 0, len(data) // CHUNK
    for kind in KINDS:
        column = np.frombuffer(data, kind, count, begin)
        begin += column.nbytes
        columns.append(column.astype(column.dtype.newbyteorder("=")))
    return NodePlan(*columns)
