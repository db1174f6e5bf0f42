"""Work requests as numpy structured arrays: linked lists built once, refilled, posted with one
call.
"""

from __future__ import annotations

import ctypes
import errno
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Bools
from railopt.runtime.verbs import structs as s
from railopt.runtime.verbs.objects import Qp

SEND_WR, RECV_WR, SGE = (s.dtype(name) for name in ("ibv_send_wr", "ibv_recv_wr", "ibv_sge"))
KIND_WRITE, KIND_IMM, KIND_RECV = 0, 1, 2
_KIND_SHIFT = 48


def work_id(kind: int, link: int) -> int:
    """The wr_id of every request of one kind on one link: queue pairs complete in order, so no more
    is needed.
    """
    return kind << _KIND_SHIFT | link


def split_id(wr_id: int) -> tuple[int, int]:
    """(kind, link) of a `work_id`."""
    return wr_id >> _KIND_SHIFT, wr_id & ((1 << _KIND_SHIFT) - 1)


class Writes(NamedTuple):
    """Columns of consecutive RDMA WRITEs, one row per request: addresses uint64 [W], bytes and
    keys uint32 [W].
    """

    local: Array
    remote: Array
    length: Array
    lkey: Array
    rkey: Array

    def take(self, rows: Bools | slice) -> Writes:
        """The requests of a mask or a slice."""
        return Writes._make(column[rows] for column in self)


class WriteRing:
    """`slots` linked lists of `batch` RDMA WRITEs on one queue pair; the last of each list is
    signalled.

    At most `slots` lists are in flight, so the send queue never overflows: the caller counts
    completions.
    """

    def __init__(self, qp: Qp, slots: int, batch: int, wr_id: int) -> None:
        self.slots, self.batch = slots, batch
        self.wr = np.zeros((slots, batch), SEND_WR)
        self.sge = np.zeros((slots, batch), SGE)
        index = np.arange(slots * batch, dtype=np.uint64).reshape(slots, batch)
        self.wr["wr_id"], self.wr["num_sge"], self.wr["opcode"] = wr_id, 1, s.IBV_WR_RDMA_WRITE
        self.wr["sg_list"] = self.sge.ctypes.data + index * SGE.itemsize
        self._next = self.wr.ctypes.data + (index + 1) * SEND_WR.itemsize
        self._next[:, -1] = 0
        self.wr["next"] = self._next
        self.wr["send_flags"][:, -1] = s.IBV_SEND_SIGNALED
        self._columns: list[tuple[Array, ...]] = [
            (
                self.sge["addr"][i],
                self.wr["remote_addr"][i],
                self.sge["length"][i],
                self.sge["lkey"][i],
                self.wr["rkey"][i],
            )
            for i in range(slots)
        ]
        self._cut = [batch] * slots
        self._lists = [
            ctypes.c_void_p(self.wr.ctypes.data + i * batch * SEND_WR.itemsize)
            for i in range(slots)
        ]
        self._bad = ctypes.c_void_p()
        self._post, self._qp, self._bad_at = qp.device.post_send, qp, ctypes.addressof(self._bad)

    def post(self, slot: int, writes: Writes, start: int) -> tuple[int, int]:
        """Refill list `slot` with `writes[start:start + batch]` and post it: (requests posted,
        errno or 0).
        """
        count = min(self.batch, len(writes.local) - start)
        if count != self._cut[slot]:
            self._resize(slot, count)
        stop, columns = start + count, self._columns[slot]
        if count < self.batch:
            columns = tuple(column[:count] for column in columns)
        local, remote, length, lkey, rkey = columns
        local[:], remote[:] = writes.local[start:stop], writes.remote[start:stop]
        length[:] = writes.length[start:stop]
        lkey[:], rkey[:] = writes.lkey[start:stop], writes.rkey[start:stop]
        if not self._qp.pointer:
            return count, errno.EBADF
        return count, self._post(self._qp.pointer, self._lists[slot], self._bad_at)  # type: ignore[arg-type]

    def _resize(self, slot: int, count: int) -> None:
        """End list `slot` after `count` requests, undoing where it ended before."""
        flags, following, before = (
            self.wr["send_flags"][slot],
            self.wr["next"][slot],
            self._cut[slot] - 1,
        )
        flags[before], following[before] = 0, self._next[slot, before]
        flags[count - 1], following[count - 1] = s.IBV_SEND_SIGNALED, 0
        self._cut[slot] = count


class Parcel(NamedTuple):
    """Bytes that travel with an immediate: local and remote address, bytes, the two keys."""

    local: int
    remote: int
    length: int
    lkey: int
    rkey: int


class ImmRing:
    """WRITE_WITH_IMMs on one queue pair, empty or with a parcel: they tell the receiver that all
    writes before them have landed.
    """

    def __init__(self, qp: Qp, slots: int, wr_id: int, remote: int, rkey: int) -> None:
        self.slots = slots
        self.wr, self.sge = np.zeros(slots, SEND_WR), np.zeros(slots, SGE)
        self.wr["wr_id"], self.wr["opcode"] = wr_id, s.IBV_WR_RDMA_WRITE_WITH_IMM
        self.wr["send_flags"] = s.IBV_SEND_SIGNALED
        self.wr["sg_list"] = self.sge.ctypes.data + np.arange(slots, dtype=np.uint64) * SGE.itemsize
        self.wr["remote_addr"], self.wr["rkey"] = remote, rkey
        self._imm = self.wr["imm_data"].view(">u4")
        self._empty = Parcel(0, remote, 0, 0, rkey)
        self._at = [
            ctypes.c_void_p(self.wr.ctypes.data + i * SEND_WR.itemsize) for i in range(slots)
        ]
        self._bad = ctypes.c_void_p()
        self._post, self._qp, self._bad_at = qp.device.post_send, qp, ctypes.addressof(self._bad)

    def post(self, slot: int, value: int, parcel: Parcel | None = None) -> int:
        """Post one with the 32-bit `value`: errno or 0."""
        self._imm[slot] = value
        if parcel is not None or self.wr["num_sge"][slot]:
            self._load(slot, parcel)
        if not self._qp.pointer:
            return errno.EBADF
        return self._post(self._qp.pointer, self._at[slot], self._bad_at)  # type: ignore[arg-type]

    def _load(self, slot: int, parcel: Parcel | None) -> None:
        """Put a parcel into a slot, or take the last one out."""
        wr, held = self.wr[slot], parcel or self._empty
        wr["num_sge"], wr["remote_addr"], wr["rkey"] = parcel is not None, held.remote, held.rkey
        self.sge[slot] = held.local, held.length, held.lkey


class Receives:
    """`depth` receive requests without memory, enough for immediates."""

    def __init__(self, qp: Qp, depth: int, wr_id: int) -> None:
        self.wr = np.zeros(depth, RECV_WR)
        self.wr["wr_id"] = wr_id
        self.wr["next"][:-1] = (
            self.wr.ctypes.data + np.arange(1, depth, dtype=np.uint64) * RECV_WR.itemsize
        )
        self._last = ctypes.c_void_p(self.wr.ctypes.data + (depth - 1) * RECV_WR.itemsize)
        self._qp, self._bad = qp, ctypes.c_void_p()
        self._post, self._bad_at = qp.device.post_recv, ctypes.addressof(self._bad)

    def fill(self) -> int:
        """Post all `depth` receives: errno or 0."""
        if not self._qp.pointer:
            return errno.EBADF
        return self._post(self._qp.pointer, self.wr.ctypes.data, self._bad_at)

    def replace(self) -> int:
        """Post one receive for one that was used: errno or 0."""
        if not self._qp.pointer:
            return errno.EBADF
        return self._post(self._qp.pointer, self._last, self._bad_at)  # type: ignore[arg-type]
