"""A planner whose counts, chunks and rails stay on the GPU: no host sync, one kernel per call.

The kernels are CUDA C++ (kernels/), compiled when a planner is made for its fabric's shape.
"""

from __future__ import annotations

import ctypes
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array, whole_number
from railopt.base.errors import InputError, did_you_mean, printable
from railopt.base.units import parse_bytes
from railopt.cuda.driver import Arguments, DeviceArray, Gpu, packed
from railopt.cuda.lent import address_of, current_stream
from railopt.model.fabric import Fabric
from railopt.policies.common import rail_turns
from railopt.policies.excess import DEBT, EvenSenders
from railopt.policies.fixed import own_rails
from railopt.policies.longest_first import PAIR_WEIGHT, Senders
from railopt.policies.planner import MAX_CAP

POLICIES = ("rotate", "even-excess", "lpt", "lpt-local", "own-nic")
_MAX_RAILS = 32  # lanes of a warp
_MAX_THREADS = 1024
_MAX_BYTES = 1 << 55  # of one node: what is left of a word when a rail is packed into it
_MAX_TIME = 1 << 61  # bytes times what a byte costs

# what `status` says of a node (kernels/cut.cuh)
_CAPACITY, _NEGATIVE, _UNJOINED = 1, 2, 3


class _Given(ctypes.Structure):
    """What every kernel reads."""

    _fields_ = (
        ("counts", ctypes.c_void_p),
        ("joined", ctypes.c_void_p),
        ("wide", ctypes.c_void_p),
        ("caps", ctypes.c_void_p),
        ("first", ctypes.c_int32),
    )


class DevicePlan(NamedTuple):
    """The chunks of S senders and their rails, on the device: the planner's own buffers, valid
    until its next call.  Row s holds `count[s]` chunks, flow by flow; what stands behind is not
    meant to be read.

    src_gpu, dst_gpu   int32 [S, capacity], GPU ids
    offset, size       int64 [S, capacity], bytes
    rail               int16 [S, capacity]
    count              int32 [S]
    """

    src_gpu: Any
    dst_gpu: Any
    offset: Any
    size: Any
    rail: Any
    count: Any


class GpuPlanner:
    """Plans what `node` sends, or with None what all nodes send, chunks of at most `cap` bytes, or
    with None of what each sender has in `caps`, with a `policy` of `POLICIES`.

    capacity   chunks that a node's columns hold: flows + bytes / cap is always enough

        >>> planner = GpuPlanner(fabric, cap="1MiB", policy="lpt", node=3, capacity=8192)
        >>> plan = planner.plan(counts)   # int64 [gpus, nodes * gpus] on the GPU, bytes
    """

    def __init__(
        self,
        fabric: Fabric,
        cap: str | int | None = "1MiB",
        policy: str = "lpt",
        node: int | None = None,
        *,
        capacity: int,
    ) -> None:
        if policy not in POLICIES:
            raise InputError(
                f"policy {printable(policy)!r} has no GPU kernel; a cuda.GpuPlanner takes "
                f"{', '.join(POLICIES)}{did_you_mean(policy, POLICIES)}"
            )
        if problem := unplanned(policy, fabric):
            raise InputError(f"{problem}: take even-excess or lpt, or railopt.Planner, on the host")
        if node is not None:
            whole_number(node, "node", 0, fabric.nodes - 1)
        self.fabric, self.policy, self.node = fabric, policy, node
        self.cap = None if cap is None else parse_bytes(cap)
        self.capacity = _checked_capacity(fabric, self.cap or 1, capacity)
        self._senders = fabric.nodes if node is None else 1
        self._gpu = Gpu()
        self._prepare()

    def _prepare(self) -> None:
        """Everything that allocates, compiles or waits, so that `plan` does none of it."""
        fabric, gpu, senders, first = self.fabric, self._gpu, self._senders, self.node or 0
        name, macros, tables = _kernel(self.policy, fabric, self.node)
        if name == "unequal":
            _check_times(tables, self.capacity * (self.cap or 1) * (1 + macros["WEIGHT"]))
        shape = _shape(fabric, self.cap, self.capacity)
        self._kernel, shared = gpu.kernel(name, {**shape, **macros})
        if shared > gpu.shared_limit():
            raise InputError(
                f"{fabric.nodes} nodes of {fabric.gpus} GPUs need {shared} bytes of shared memory, "
                f"a block has {gpu.shared_limit()}: plan on the host with railopt.Planner"
            )
        self._threads, flows = shape["THREADS"], fabric.gpus * fabric.nodes * fabric.gpus
        kinds = (np.int32, np.int32, np.int64, np.int64, np.int16)
        columns = [DeviceArray(gpu, (senders, self.capacity), kind) for kind in kinds]
        ends = [DeviceArray(gpu, (senders,), np.int32) for _ in range(2)]
        self._plan, self.status = DevicePlan._make([*columns, ends[0]]), ends[1]
        joined = (fabric.tx[first : first + senders, None] > 0) & (fabric.rx[None] > 0)
        most = flows + 2 * _MAX_THREADS + fabric.nodes * fabric.rails + self.capacity
        self._joined = gpu.array(np.asarray(joined.any(axis=2)))
        self._wide = DeviceArray(gpu, (senders, most, 2), np.int64)  # WIDE of cut.cuh
        self._ones = gpu.array(np.ones(senders, np.int64))
        self._given = _Given(0, self._joined.pointer, self._wide.pointer, self._ones.pointer, first)
        made = packed("p" * 7, *(array.pointer for array in (*columns, *ends)))
        self._tables = [gpu.array(table) for table in tables]
        pointers = [table.pointer for table in self._tables]
        more = [(ctypes.c_void_p * len(pointers))(*pointers)] if pointers else []
        self._arguments = Arguments(self._given, made, *more)
        zeros = np.zeros((senders * fabric.gpus, fabric.nodes * fabric.gpus), np.int64)
        self.plan(gpu.array(zeros), 0)  # the first launch of a kernel loads it
        gpu.synchronize()

    def plan(self, counts: Any, stream: int | None = None) -> DevicePlan:
        """Chunks and rails for the bytes `counts`, int64 on the device, [gpus, nodes * gpus] from
        the node's GPUs, or [nodes * gpus, nodes * gpus] from all.  They may have a first axis of
        nodes (1 or all) of its own.  Bytes to the own node are left out.

        counts   a torch, CuPy, JAX or numba array, or anything else with `__cuda_array_interface__`
                 or DLPack; read where it lies when the kernel runs, so a CUDA graph that captured
                 this call plans what stands there when it is replayed
        stream   the address of a CUDA stream (torch: `stream.cuda_stream`); None is the current
                 one of torch or CuPy where the counts are theirs, else the default stream
        """
        on = current_stream(counts) if stream is None else stream
        senders, gpus, ranks = self._senders, self.fabric.gpus, self.fabric.nodes * self.fabric.gpus
        shapes = ((senders * gpus, ranks), (senders, gpus, ranks))
        return self.launch(address_of(counts, shapes, on), self._ones.pointer, on)

    def launch(self, counts: int, caps: int, stream: int) -> DevicePlan:
        """The same for counts at an address; with a `cap` of None, `caps` is that of the bytes of
        each sender's largest chunk, int64 [S], at least 1 and below 2**31.
        """
        self._given.counts, self._given.caps = counts, caps
        self._kernel.launch(self._senders, self._threads, self._arguments.address, stream)
        return self._plan

    def check(self) -> None:
        """Wait for the device, and raise an InputError that says what was wrong with the counts of
        the last plan; where a node's counts were wrong, its `count` is 0.
        """
        status = self.status.copy_to_host()
        for row in np.flatnonzero(status).tolist():
            sender = row if self.node is None else self.node
            raise InputError(f"counts of node {sender}: {self._meaning(int(status[row]))}")

    def _meaning(self, status: int) -> str:
        return {
            _CAPACITY: f"more than {self.capacity} chunks of "
            f"{'their' if self.cap is None else self.cap} bytes; make the planner with a larger "
            f"capacity",
            _NEGATIVE: "a negative number of bytes",
            _UNJOINED: "bytes for a node to which no living rail leads",
        }[status]


def unplanned(policy: str, fabric: Fabric) -> str:
    """Why a policy of `POLICIES` has no kernel for a fabric, in words; "" if it has one."""
    if policy == "rotate" and not fabric.is_uniform:
        return "rotate on the GPU is for NICs of one rate, all alive"
    if policy == "lpt-local" and not fabric.is_uniform and rail_turns(fabric) is not None:
        return "lpt-local on the GPU is for rails of one rate, or nodes that differ"
    if policy == "own-nic" and fabric.node.near.sum(axis=1).max() > 1:
        return "own-nic on the GPU is for GPUs with one NIC each"
    return ""


def _checked_capacity(fabric: Fabric, cap: int, capacity: int) -> int:
    """The capacity, or an InputError where kernels can't have it or what belongs to it."""
    flows = fabric.gpus * fabric.nodes * fabric.gpus
    if cap >= MAX_CAP:
        raise InputError(f"chunks of {cap} bytes: a cuda.GpuPlanner cuts below {MAX_CAP} bytes")
    if fabric.rails > _MAX_RAILS:
        raise InputError(
            f"{fabric.rails} rails: a cuda.GpuPlanner takes at most {_MAX_RAILS}; plan on the host "
            f"with railopt.Planner"
        )
    most = min((2**31 - 1) // flows, (_MAX_BYTES - 1) // cap)
    return whole_number(capacity, "capacity", 1, most)


def _check_times(costs: list[Array], most: int) -> None:
    """`lpt` where rails differ adds up bytes times costs in 63 bits."""
    if most * max(int(cost.max()) for cost in costs) >= _MAX_TIME:
        raise InputError(
            f"{most} bytes of a node (capacity times cap) on NICs of these rates need sums of more "
            f"than 63 bits: take a smaller capacity, or plan on the host with railopt.Planner"
        )


def _shape(fabric: Fabric, cap: int | None, capacity: int) -> dict[str, int]:
    """The macros that every kernel has (kernels/block.cuh)."""
    flows = fabric.gpus * fabric.nodes * fabric.gpus
    return {
        "NODES": fabric.nodes,
        "GPUS": fabric.gpus,
        "RAILS": fabric.rails,
        **({} if cap is None else {"CAP": cap}),
        "CAPACITY": capacity,
        "THREADS": min(_MAX_THREADS, max(64, -(-flows // 32) * 32)),
    }


def _kernel(
    policy: str, fabric: Fabric, node: int | None
) -> tuple[str, dict[str, int], list[Array]]:
    """The kernel of a policy, its own macros, and tables that it reads."""
    if policy == "even-excess":
        senders = EvenSenders.of(fabric, node)
        tx, rx = senders.shares
        share = np.minimum(tx[:, None], rx[None])
        whole = np.maximum(share.sum(axis=2), 1)
        common = np.gcd.reduce(np.concatenate([share, whole[..., None]], axis=2), axis=2)
        tables = (share // common[..., None], whole // common, *senders.near)
        apart = bool((fabric.node.near.sum(axis=0) <= 1).all())  # no two GPUs share a NIC
        one = bool((fabric.node.near.sum(axis=1) == 1).all())
        nears = senders.near[0].size
        macros = {"DEBT": DEBT, "APART": int(apart), "ONE": int(one), "NEARS": nears}
        return "even_excess", macros, [table.astype(np.int32) for table in tables]
    if policy == "own-nic":
        own = own_rails(fabric)
        if node is not None:
            own = own[node * fabric.gpus : (node + 1) * fabric.gpus]
        return "own_nic", {}, [own]
    plain = Senders.of(fabric, node)
    alike = {"lpt": plain.equal_nics, "lpt-local": fabric.is_uniform}.get(policy, True)
    if not alike:
        costs, weight = plain.costs, PAIR_WEIGHT if policy == "lpt-local" else 0
        dearest = max(int(cost.max()) for cost in (costs.tx, costs.rx))
        return "unequal", {"WEIGHT": weight, "DEAREST": dearest}, [costs.tx, costs.rx]
    return policy.replace("-", "_"), {"WEIGHT": PAIR_WEIGHT}, []
