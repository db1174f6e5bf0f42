"""A planner whose counts, chunks and rails stay on the GPU: no host sync, one kernel a call."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from railopt.arrays import Array, whole_number
from railopt.cuda.cut import CAPACITY, NEGATIVE, UNJOINED, Made, Shape, Work
from railopt.errors import BackendError, InputError, did_you_mean, printable
from railopt.fabric import Fabric
from railopt.policies.even_excess import EvenSenders
from railopt.units import parse_bytes

__all__ = ["DevicePlan", "Planner"]

POLICIES = ("rotate", "even-excess", "lpt", "lpt-local")
_MAX_CAP = 2**31
_MAX_THREADS = {"rotate": 1024}  # of a block; others, which keep loads in registers, have 512
_SHARED_BYTES = 48 << 10
_MAX_BYTES = 1 << 55  # of one node: what is left of a word when a rail is packed into it


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


class Planner:
    """Plans what `node` sends, or with None what all nodes send, chunks of at most `cap` bytes,
    with `policy` "rotate", "even-excess", "lpt" or "lpt-local".

    capacity   chunks that a node's columns hold: flows + bytes / cap is always enough

    >>> planner = Planner(fabric, cap="1MiB", policy="lpt", node=3, capacity=8192)
    >>> plan = planner.plan(counts)   # int64 [gpus, nodes * gpus] on the GPU, bytes
    """

    def __init__(
        self,
        fabric: Fabric,
        cap: str | int = "1MiB",
        policy: str = "lpt",
        node: int | None = None,
        *,
        capacity: int,
    ) -> None:
        if policy not in POLICIES:
            raise InputError(
                f"policy {printable(policy)!r} has no GPU kernel; a cuda.Planner takes "
                f"{', '.join(POLICIES)}{did_you_mean(policy, POLICIES)}"
            )
        if policy != "even-excess" and not fabric.is_uniform:
            raise InputError(
                f"{policy} on the GPU is for NICs of one rate, all alive: take even-excess, or "
                f"railopt.Planner, which plans on the host"
            )
        if node is not None:
            whole_number(node, "node", 0, fabric.nodes - 1)
        self.fabric, self.policy, self.node, self.cap = fabric, policy, node, parse_bytes(cap)
        self._senders = fabric.nodes if node is None else 1
        self._shape = _shape(fabric, self.cap, capacity, _MAX_THREADS.get(policy, 512))
        self._launches: dict[int, Callable[..., None]] = {}
        self._prepare()

    def _prepare(self) -> None:
        """Everything that allocates, compiles or waits, so that `plan` does none of it."""
        cuda = _device()
        shape, senders, first = self._shape, self._senders, self.node or 0
        fabric, own = self.fabric, slice(first, first + senders)
        joined = (fabric.tx[own, None] > 0) & (fabric.rx[None] > 0)
        self._made = _made(cuda, shape, senders)
        self._plan = DevicePlan(*self._made[:6])
        fixed = [cuda.to_device(joined.any(axis=2)), np.int64(first), _work(cuda, shape, senders)]
        self._kernel, tables = _kernel(self.policy, shape, fabric, self.node)
        more = [type(table)(*map(cuda.to_device, table)) for table in tables]
        self._arguments = (*fixed, self._made, *more)
        zeros = cuda.to_device(np.zeros((senders, shape.flows), np.int64))
        self._launch(0)(zeros, *self._arguments)
        cuda.synchronize()

    def _launch(self, stream: int) -> Callable[..., None]:
        """The kernel on a stream, by its address."""
        if stream not in self._launches:
            cuda = _device()
            on = cuda.external_stream(stream) if stream else 0
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # few blocks are what is wanted here
                self._launches[stream] = self._kernel[self._senders, self._shape.threads, on]
        return self._launches[stream]

    def plan(self, counts: Any, stream: int | None = None) -> DevicePlan:
        """Chunks and rails for the bytes `counts`, int64 on the device, [gpus, nodes * gpus] from
        the node's GPUs, or [nodes * gpus, nodes * gpus] from all; also with a first axis of nodes
        (1 or all) of its own.  Bytes to the own node are left out.

        counts   a torch, CuPy or numba array, or anything else with `__cuda_array_interface__`;
                 read where it lies when the kernel runs, so a CUDA graph that captured this call
                 plans what stands there when it is replayed
        stream   the address of a CUDA stream (torch: `stream.cuda_stream`); None is the current
                 one of torch or CuPy where the counts are theirs, else the default stream
        """
        flat = _view(counts, (self._senders, self._shape.gpus, self._shape.ranks))
        self._launch(_current(counts) if stream is None else stream)(flat, *self._arguments)
        return self._plan

    def check(self) -> None:
        """Wait for the device, and raise an InputError that says what was wrong with the counts of
        the last plan; where a node's counts were wrong, its `count` is 0.
        """
        _device().synchronize()
        status = self._made.status.copy_to_host()
        for row in np.flatnonzero(status).tolist():
            sender = row if self.node is None else self.node
            raise InputError(f"counts of node {sender}: {self._meaning(int(status[row]))}")

    def _meaning(self, status: int) -> str:
        return {
            CAPACITY: f"more than {self._shape.capacity} chunks of {self.cap} bytes; make the "
            f"planner with a larger capacity",
            NEGATIVE: "a negative number of bytes",
            UNJOINED: "bytes for a node to which no living rail leads",
        }[status]


def _shape(fabric: Fabric, cap: int, capacity: int, most_threads: int) -> Shape:
    """The shape of a fabric's kernels, or an InputError where they can't have it."""
    flows = fabric.gpus * fabric.nodes * fabric.gpus
    if cap >= _MAX_CAP:
        raise InputError(f"chunks of {cap} bytes: a cuda.Planner cuts below {_MAX_CAP} bytes")
    most = min((2**31 - 1) // flows, (_MAX_BYTES - 1) // cap)
    whole_number(capacity, "capacity", 1, most)
    threads = min(most_threads, max(64, -(-flows // 32) * 32))
    shape = Shape(fabric.nodes, fabric.gpus, fabric.rails, cap, capacity, threads)
    shared = 8 * flows + 8 * threads + 12 * fabric.nodes * fabric.rails + 128
    if shared > _SHARED_BYTES:
        raise InputError(
            f"{fabric.nodes} nodes of {fabric.gpus} GPUs need {shared} bytes of shared memory, a "
            f"block has {_SHARED_BYTES}: plan on the host with railopt.Planner"
        )
    return shape


def _made(cuda: Any, shape: Shape, senders: int) -> Made:
    kinds = (np.int32, np.int32, np.int64, np.int64, np.int16)
    columns = (cuda.device_array((senders, shape.capacity), kind) for kind in kinds)
    return Made(*columns, *(cuda.device_array(senders, np.int32) for _ in range(2)))


def _work(cuda: Any, shape: Shape, senders: int) -> Work:
    flows, rounds = shape.flows, shape.nodes * shape.rails

    def room(*size: int, kind: Any = np.int32) -> Any:
        return cuda.device_array((senders, *size), kind)

    return Work(
        base=room(flows + 1),
        turn=room(flows + 1),
        order=room(flows),
        keys=room(flows + 8, kind=np.int64),
        left=room(shape.nodes + 1),
        slot=room(rounds),
        got=room(rounds),
        excess=room(2, flows, 6),
    )


def _kernel(policy: str, shape: Shape, fabric: Fabric, node: int | None) -> tuple[Any, list[Any]]:
    """The kernel of a policy, and tables that it reads besides."""
    from railopt.cuda import even, in_turn, largest_first

    if policy == "even-excess":
        senders = EvenSenders.of(fabric, node)
        near = fabric.node.near
        nics = even.Nics(*(np.ascontiguousarray(x) for x in (*senders.shares, *senders.near)))
        return even.even_excess(shape, bool((near.sum(axis=0) <= 1).all())), [nics]
    made = {
        "rotate": in_turn.rotate,
        "lpt": largest_first.lpt,
        "lpt-local": largest_first.lpt_local,
    }
    return made[policy](shape), []


def _device() -> Any:
    """numba's CUDA module, where there is a GPU (or its simulator)."""
    from numba import cuda

    if not cuda.is_available():
        raise BackendError(
            "no GPU that numba can use: install railopt[cuda] and NVIDIA's driver, or set "
            "NUMBA_ENABLE_CUDASIM=1 to simulate one"
        )
    return cuda


def _view(counts: Any, shape: tuple[int, int, int]) -> Array:
    """The counts as int64 [senders, flows], without a copy; an InputError for all else."""
    senders, gpus, ranks = shape
    found = getattr(counts, "__cuda_array_interface__", None)
    if found is None:
        raise InputError(
            f"counts are a {type(counts).__name__}, which is not on a GPU: expected an int64 array "
            f"with __cuda_array_interface__ (torch, CuPy, numba)"
        )
    if found["typestr"] != "<i8" or found["shape"] not in (shape, (senders * gpus, ranks)):
        raise InputError(
            f"counts are {found['typestr']} {found['shape']}, expected int64 (<i8) "
            f"{(senders * gpus, ranks)} or {shape}"
        )
    strides, dense = found.get("strides"), (8 * gpus * ranks, 8 * ranks, 8)
    if strides is not None and tuple(strides) != dense[-len(strides) :]:
        raise InputError(
            f"counts have strides {tuple(strides)}, expected {dense[-len(strides) :]}: make them "
            f"contiguous"
        )
    return _device().as_cuda_array(counts, sync=False).reshape(senders, gpus * ranks)


def _current(counts: Any) -> int:
    """The address of the stream on which the counts' library works now."""
    library = type(counts).__module__.partition(".")[0]
    if library == "torch":
        return int(sys.modules["torch"].cuda.current_stream(counts.device).cuda_stream)
    if library == "cupy":
        return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return 0
