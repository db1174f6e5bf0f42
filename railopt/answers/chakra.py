"""A plan as Chakra execution traces, one file per NIC, and what ASTRA-sim needs beside them.

A trace is a row of messages of Chakra's `et_def.proto` in protobuf's wire format, each after its
length as a varint: one GlobalMetadata, then a Node per chunk that the NIC sends (COMM_SEND_NODE) or
receives (COMM_RECV_NODE).  A rank is a NIC, node * rails + rail.  The attributes of a node are
`is_cpu_op` (bool, false), `comm_src`, `comm_dst` (int32, ranks), `comm_tag` (int32, the chunk's
number: the same at both ends) and `comm_size` (int64, bytes).

A send waits for the one before it (ctrl_deps): ASTRA-sim has one under way per NIC, and would else
look through all of them.  A NIC that carries nothing has a COMP_NODE of no duration.

Stages: before those of its next stage a rank waits, in a COMP_NODE of no duration, for all that it
sends and receives in the stage before; Chakra has no barrier between ranks outside of collectives.
What moves inside a node, from a GPU to the NIC that sends for it, is not part of the trace.

Beside them, for the analytical network of ASTRA-sim that knows congestion: `NAME.system.json`,
`NAME.network.json`, `NAME.memory.json`, and `NAME.md`, which runs them.  Its network is one switch
whose ports are the NICs: rails share no link, so it is the same as a switch per rail.  It has one
rate, so a fabric whose NICs differ, or whose rails have several leaves, has no network file.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from railopt.base.arrays import check_targets, write_atomic
from railopt.base.errors import InputError, printable
from railopt.base.units import format_time
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan

VERSION = "0.0.4"  # of the schema, as Chakra's own generators write it
COMP, SEND, RECV = 4, 5, 6  # NodeType
MAX_RANKS = 1 << 13
MAX_CHUNKS = 1 << 31  # numbers of chunks are int32 tags
GIB, PS_PER_NS = 1 << 30, 1000  # ASTRA-sim's GB/s are GiB/s; its latency is of a hop, of which
# a path through a switch has two
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all")
README = """# {name}: a plan for ASTRA-sim

{nodes} nodes x {rails} NICs, policy {policy}.  {name}.0.et to {name}.{last}.et are Chakra execution
traces, one per NIC: rank = node * {rails} + rail.
"""
RUN = """
Build ASTRA-sim 2 with its analytical network (build/astra_analytical/build.sh), then, in this
folder, whose traces you must be allowed to write:

    ASTRA=path/to/astra-sim
    $ASTRA/build/astra_analytical/build/bin/AstraSim_Analytical_Congestion_Aware \\
        --workload-configuration={name} \\
        --system-configuration={name}.system.json \\
        --network-configuration={name}.network.json \\
        --remote-memory-configuration={name}.memory.json | grep finished

"sys[K] finished, C cycles" is when NIC K was done, in nanoseconds.  A NIC sends one chunk at a time
there, in the order of their numbers, and the next begins when the last has arrived; the switch
passes a chunk on once it has all of it.  So a chunk takes twice its bytes over the rate, and the
latency: the largest time is at least the plan's makespan, {makespan} (bytes over rates, without
latency), and about twice that where senders are the limit.  AstraSim_Analytical_Congestion_Unaware,
with the same options, counts the bytes once, but lets a NIC receive from all at once.

Such files were run in a partial rebuild of ASTRA-sim's sources (feeder, point-to-point workload,
analytical network), not in all of ASTRA-sim.
"""
NO_NETWORK = """
ASTRA-sim's analytical network is one switch with ports of one rate.  This fabric is not, so there
is no network file for it.
"""


def varint(value: int) -> bytes:
    """A number of at least 0, seven bits per byte, the lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """An integer field; a bool or an enum too."""
    return varint(field << 3) + varint(value)


def block(field: int, data: bytes) -> bytes:
    """A field of a text or a message."""
    return varint(field << 3 | 2) + varint(len(data)) + data


_INT32, _INT64, _BOOL = 7, 9, 27  # fields of AttributeProto's value


def _attribute(name: str, field: int, value: int) -> bytes:
    return block(10, block(1, name.encode()) + number(field, value))


_ON_GPU = _attribute("is_cpu_op", _BOOL, 0)


def _node(
    identity: int,
    name: str,
    kind: int,
    waits: list[int],
    rest: bytes,
    turn: list[int] | None = None,
) -> bytes:
    """A Node: id, name, type, ctrl_deps, data_deps (packed), attributes.  What it waits for is in
    both, since older feeders of ASTRA-sim look at data_deps alone; whose `turn` is first only in
    ctrl_deps.
    """
    head = number(1, identity) + block(2, name.encode()) + number(3, kind)
    deps = ((4, waits + (turn or [])), (5, waits))
    after = (block(field, b"".join(map(varint, nodes))) for field, nodes in deps if nodes)
    return _message(head + b"".join(after) + rest)


def _message(data: bytes) -> bytes:
    return varint(len(data)) + data


def traces(plan: Plan) -> Iterator[bytes]:
    """The execution trace of each NIC, in the order of ranks."""
    chunks, rails = plan.chunks, plan.fabric.rails
    count = len(chunks)
    src, dst = (end.astype(np.int64) * rails + plan.rail for end in (chunks.src, chunks.dst))
    stage = np.zeros(count, np.int64) if plan.stage is None else plan.stage
    ends = np.concatenate([src, dst])
    order = np.lexsort((np.tile(np.arange(count), 2), np.tile(stage, 2), ends))
    cuts = np.searchsorted(ends[order], np.arange(1, plan.fabric.nodes * rails))
    for mine in np.split(order, cuts):
        chunk = mine % max(count, 1)
        columns = (mine < count, chunk, src[chunk], dst[chunk], chunks.size[chunk], stage[chunk])
        yield _trace(zip(*(column.tolist() for column in columns), strict=True))


def _trace(transfers: Iterable[tuple[bool, int, int, int, int, int]]) -> bytes:
    """One NIC's transfers: (sends, chunk, source, destination, bytes, stage), stage by stage."""
    out = [_message(block(1, VERSION.encode()))]
    barrier: list[int] = []
    current: list[int] = []
    last_send: list[int] = []
    before = None
    for sends, chunk, src, dst, size, stage in transfers:
        if before not in (None, stage):
            out.append(_node(len(out) - 1, f"stage {stage}", COMP, current, _ON_GPU))
            barrier, current, last_send = [len(out) - 2], [], []
        before = stage
        rest = (
            _ON_GPU
            + _attribute("comm_src", _INT32, src)
            + _attribute("comm_dst", _INT32, dst)
            + _attribute("comm_tag", _INT32, chunk)
            + _attribute("comm_size", _INT64, size)
        )
        name, kind = ("send", SEND) if sends else ("receive", RECV)
        identity, turn = len(out) - 1, last_send if sends else []
        out.append(_node(identity, f"{name} chunk {chunk}", kind, barrier, rest, turn))
        current.append(identity)
        if sends:
            last_send = [identity]
    if len(out) == 1:  # ASTRA-sim refuses a trace without nodes
        out.append(_node(0, "idle", COMP, [], _ON_GPU))
    return b"".join(out)


def save(plan: Plan, path: str | os.PathLike[str], *, force: bool = False) -> list[Path]:
    """Write `NAME.0.et`, `NAME.1.et`, ... for `NAME.et`, one file per NIC, and what ASTRA-sim
    needs beside them; the paths.
    """
    ranks = plan.fabric.nodes * plan.fabric.rails
    if ranks > MAX_RANKS or len(plan.chunks) >= MAX_CHUNKS:
        raise InputError(
            f"{printable(path)}: {ranks} NICs and {len(plan.chunks)} chunks: at most {MAX_RANKS} "
            f"files and fewer than 2**31 chunks are written"
        )
    name = Path(path)
    files = [name.with_name(f"{name.stem}.{rank}.et") for rank in range(ranks)]
    beside = {name.with_name(f"{name.stem}.{end}"): text for end, text in astra(plan, name.stem)}
    check_targets(*files, *beside, force=force)
    for file, data in zip(files, traces(plan), strict=True):
        write_atomic(file, data, force=force)
    for file, text in beside.items():
        write_atomic(file, text.encode(), force=force)
    return [*files, *beside]


def astra(plan: Plan, name: str) -> Iterator[tuple[str, str]]:
    """Endings of names and texts of what ASTRA-sim is given beside the traces `name`.K.et."""
    fabric = plan.fabric
    direct = {f"{each}-implementation": ["direct"] for each in COLLECTIVES}
    system = {"scheduling-policy": "FIFO", "endpoint-delay": 1, "active-chunks-per-dimension": 1}
    system |= {"preferred-dataset-splits": 1, **direct, "local-mem-bw": 1, "boost-mode": 0}
    yield "system.json", _json(system)
    yield "memory.json", _json({"memory-type": "NO_MEMORY_EXPANSION"})
    if _is_one_switch(fabric):
        network = {
            "topology": ["Switch"],
            "npus_count": [fabric.nodes * fabric.rails],
            "bandwidth": [int(fabric.tx[0, 0]) / GIB],
            "latency": [fabric.latency_ps / 2 / PS_PER_NS],
        }
        yield "network.json", _json(network)
    yield "md", _readme(plan, name)


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=2) + "\n"


def _is_one_switch(fabric: Fabric) -> bool:
    """Whether rails are like one switch whose ports have one rate."""
    return fabric.is_uniform and fabric.leaves is None


def _readme(plan: Plan, name: str) -> str:
    fabric = plan.fabric
    text = README + (RUN if _is_one_switch(fabric) else NO_NETWORK)
    return text.format(
        name=name,
        policy=plan.policy,
        nodes=fabric.nodes,
        rails=fabric.rails,
        last=fabric.nodes * fabric.rails - 1,
        makespan=format_time(plan.makespan),
    )
