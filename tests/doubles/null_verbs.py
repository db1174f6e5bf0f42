"""A driver without hardware: the functions of libibverbs and an `ops` table of compiled functions,
in this process.

Writes are memory copies between queue pairs of one `NullLibrary`; keys and bounds are checked; any
completion status can be injected. It measures what Python costs on the data path and drives the
engine through faults a NIC shows only rarely.

State of the fake objects lies behind their public structs, as 64-bit words: see the `Q_*` and `C_*`
offsets.
"""

from __future__ import annotations

import ctypes
import errno
import itertools
import threading
from typing import Any

import numpy as np
from numba import carray, cfunc, njit, types
from numba.extending import intrinsic

from railopt.runtime.verbs import structs as s


def _access(type_: Any) -> tuple[Any, Any]:
    """(load, store) of one integer type at any address."""
    pointer = types.CPointer(type_)

    @intrinsic
    def at(typing: Any, address: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            return builder.inttoptr(args[0], context.get_value_type(pointer))

        return pointer(types.int64), codegen

    return (
        njit(lambda address: carray(at(address), 1)[0]),
        njit(lambda address, value: carray(at(address), 1).fill(value)),
    )


_i64_at, _set_i64 = _access(types.int64)
_i32_at, _set_i32 = _access(types.int32)
_byte_at, _set_byte = _access(types.uint8)


@njit
def _copy(target, source, length):  # type: ignore[no-untyped-def]
    for i in range(length):
        _set_byte(target + i, _byte_at(source + i))


_L = {
    name: {field: at for field, (_, at) in fields.items()}
    for name, (_, fields) in s.LAYOUTS.items()
}
PUBLIC = 512  # bytes kept for the public struct in front of the words below
# queue pair: state, peer's address, completion queue, completions until the injected status, that
# status, posted receives
Q_STATE, Q_PEER, Q_CQ, Q_FUSE, Q_STATUS, Q_RECVS, Q_RECV_ID, Q_COPY, Q_KEYS = range(9)
# completion queue: entries ever pushed, entries ever polled, capacity; then the entries
C_PUSHED, C_POLLED, C_DEPTH, C_ENTRIES = range(4)
MAX_KEYS = 4096
GONE = -1  # Q_PEER of a queue pair whose peer was destroyed

_WR, _SGE, _WC, _RECV = _L["ibv_send_wr"], _L["ibv_sge"], _L["ibv_wc"], _L["ibv_recv_wr"]
_WC_SIZE = s.LAYOUTS["ibv_wc"][0]
_WR_ID, _WR_NEXT, _WR_SG, _WR_NUM, _WR_OP, _WR_FLAGS, _WR_IMM, _WR_REMOTE, _WR_RKEY = (
    _WR[f]
    for f in (
        "wr_id",
        "next",
        "sg_list",
        "num_sge",
        "opcode",
        "send_flags",
        "imm_data",
        "remote_addr",
        "rkey",
    )
)
_SGE_ADDR, _SGE_LENGTH, _SGE_LKEY = (_SGE[f] for f in ("addr", "length", "lkey"))
_WC_ID, _WC_STATUS, _WC_OP, _WC_BYTES, _WC_IMM = (
    _WC[f] for f in ("wr_id", "status", "opcode", "byte_len", "imm_data")
)
_RECV_ID, _RECV_NEXT = _RECV["wr_id"], _RECV["next"]
_ERR, _RTS = s.IBV_QPS_ERR, s.IBV_QPS_RTS
_FLUSH, _RETRY, _RNR = s.IBV_WC_WR_FLUSH_ERR, s.IBV_WC_RETRY_EXC_ERR, s.IBV_WC_RNR_RETRY_EXC_ERR
_REM_ACCESS, _LOC_PROT = s.IBV_WC_REM_ACCESS_ERR, s.IBV_WC_LOC_PROT_ERR
_WITH_IMM, _SIGNALED = s.IBV_WR_RDMA_WRITE_WITH_IMM, s.IBV_SEND_SIGNALED
_WC_WRITE, _WC_RECV_IMM = s.IBV_WC_RDMA_WRITE, s.IBV_WC_RECV_RDMA_WITH_IMM


@njit(inline="always")
def _word(pointer, index):  # type: ignore[no-untyped-def]
    return pointer + PUBLIC + 8 * index


@njit
def _push(cq, wr_id, status, opcode, length, imm):  # type: ignore[no-untyped-def]
    pushed, depth = _i64_at(_word(cq, C_PUSHED)), _i64_at(_word(cq, C_DEPTH))
    entry = _word(cq, C_ENTRIES) + (pushed % depth) * _WC_SIZE
    _set_i64(entry + _WC_ID, wr_id)
    _set_i32(entry + _WC_STATUS, types.int32(status))
    _set_i32(entry + _WC_OP, types.int32(opcode))
    _set_i32(entry + _WC_BYTES, types.int32(length))
    _set_i32(entry + _WC_IMM, imm)
    _set_i64(_word(cq, C_PUSHED), pushed + 1)
    return pushed + 1 - _i64_at(_word(cq, C_POLLED)) > depth


@njit
def _covered(keys, key, address, length):  # type: ignore[no-untyped-def]
    """Whether `key` is registered for the range: rows of (key, first, last + 1), a counter in
    front.
    """
    for i in range(_i64_at(keys)):
        row = keys + 8 + 24 * i
        if _i64_at(row) == key:
            return _i64_at(row + 8) <= address and address + length <= _i64_at(row + 16)
    return False


@njit
def _execute(qp, wr):  # type: ignore[no-untyped-def]
    """Carry out one request: its completion status."""
    peer = _i64_at(_word(qp, Q_PEER))
    fuse = _i64_at(_word(qp, Q_FUSE))
    if fuse >= 0:
        _set_i64(_word(qp, Q_FUSE), fuse - 1)
        if fuse == 0:
            return _i64_at(_word(qp, Q_STATUS))
    if peer == GONE or _i64_at(_word(peer, Q_STATE)) != _RTS:
        return types.int64(_RETRY)
    if _i64_at(_word(qp, Q_COPY)):
        for i in range(_i32_at(wr + _WR_NUM)):
            sge = _i64_at(wr + _WR_SG) + 16 * i
            source, length = (
                _i64_at(sge + _SGE_ADDR),
                types.int64(_i32_at(sge + _SGE_LENGTH)) & 0xFFFFFFFF,
            )
            lkey, rkey = types.int64(_i32_at(sge + _SGE_LKEY)), types.int64(_i32_at(wr + _WR_RKEY))
            if not _covered(_i64_at(_word(qp, Q_KEYS)), lkey, source, length):
                return types.int64(_LOC_PROT)
            if not _covered(_i64_at(_word(peer, Q_KEYS)), rkey, _i64_at(wr + _WR_REMOTE), length):
                return types.int64(_REM_ACCESS)
            _copy(_i64_at(wr + _WR_REMOTE), source, length)
    if _i32_at(wr + _WR_OP) == _WITH_IMM:
        recvs = _i64_at(_word(peer, Q_RECVS))
        if recvs == 0:
            return types.int64(_RNR)
        _set_i64(_word(peer, Q_RECVS), recvs - 1)
        _push(
            _i64_at(_word(peer, Q_CQ)),
            _i64_at(_word(peer, Q_RECV_ID)),
            0,
            _WC_RECV_IMM,
            0,
            _i32_at(wr + _WR_IMM),
        )
    return types.int64(0)


@cfunc("int32(int64, int64, int64)", cache=True)
def _post_send(qp, wr, bad):  # type: ignore[no-untyped-def]
    overflow = False
    while wr != 0:
        status = types.int64(_FLUSH)
        if _i64_at(_word(qp, Q_STATE)) == _RTS:
            status = _execute(qp, wr)
        if status != 0:
            _set_i64(_word(qp, Q_STATE), _ERR)
        if status != 0 or _i32_at(wr + _WR_FLAGS) & _SIGNALED:
            overflow |= _push(
                _i64_at(_word(qp, Q_CQ)), _i64_at(wr + _WR_ID), status, _WC_WRITE, 0, types.int32(0)
            )
        wr = _i64_at(wr + _WR_NEXT)
    return types.int32(errno.EOVERFLOW if overflow else 0)


@cfunc("int32(int64, int64, int64)", cache=True)
def _post_recv(qp, wr, bad):  # type: ignore[no-untyped-def]
    while wr != 0:
        _set_i64(_word(qp, Q_RECVS), _i64_at(_word(qp, Q_RECVS)) + 1)
        _set_i64(_word(qp, Q_RECV_ID), _i64_at(wr + _RECV_ID))
        wr = _i64_at(wr + _RECV_NEXT)
    return types.int32(0)


@cfunc("int32(int64, int32, int64)", cache=True)
def _poll_cq(cq, most, wc):  # type: ignore[no-untyped-def]
    polled, depth = _i64_at(_word(cq, C_POLLED)), _i64_at(_word(cq, C_DEPTH))
    count = min(types.int64(most), _i64_at(_word(cq, C_PUSHED)) - polled)
    for i in range(count):
        _copy(wc + i * _WC_SIZE, _word(cq, C_ENTRIES) + ((polled + i) % depth) * _WC_SIZE, _WC_SIZE)
    _set_i64(_word(cq, C_POLLED), polled + count)
    return types.int32(count)


class NullLibrary:
    """The functions of lib.py over fake objects: device names are given, queue pairs find each
    other by number.
    """

    def __init__(
        self, devices: list[str], *, copy: bool = True, max_message: int = 1 << 30
    ) -> None:
        self.copy, self.max_message = copy, max_message
        self.down: set[str] = set()  # devices whose port is not active
        self.calls: list[str] = []  # destructors, in the order they came
        self.gpu: tuple[int, int] = (0, 0)  # addresses that plain registration refuses
        self.dmabufs: dict[int, int] = {}  # file descriptor -> address of what it stands for
        self._memory: dict[int, Any] = {}  # address -> the array that owns it
        self._names = devices
        self._contexts: dict[int, str] = {}
        self._qps: dict[int, int] = {}
        self._numbers = itertools.count(1000)
        self._lock = threading.Lock()
        self._keys = self._allocate(8 + 24 * MAX_KEYS)

    def _allocate(self, size: int) -> int:
        array = np.zeros((size + 7) // 8, np.int64)
        self._memory[array.ctypes.data] = array
        return int(array.ctypes.data)

    def _struct(self, words: int, **public: tuple[int, int]) -> int:
        """A fake object; `public` maps a field name to (offset, 32-bit value)."""
        pointer = self._allocate(PUBLIC + 8 * words)
        for offset, value in public.values():
            ctypes.c_uint32.from_address(pointer + offset).value = value
        return pointer

    def word(self, pointer: int, index: int) -> ctypes.c_int64:
        """One private word of an object (`Q_*`, `C_*`), readable and writable through `.value`."""
        return ctypes.c_int64.from_address(pointer + PUBLIC + 8 * index)

    def inject(self, qp: int, status: int, after: int = 0) -> None:
        """The request `after` the next one on this queue pair completes with `status`."""
        self.word(qp, Q_STATUS).value, self.word(qp, Q_FUSE).value = status, after

    def ibv_get_device_list(self, count: Any) -> Any:
        count._obj.value = len(self._names)
        return list(range(1, len(self._names) + 1))

    def ibv_free_device_list(self, devices: Any) -> None:
        self.calls.append("ibv_free_device_list")

    def ibv_get_device_name(self, device: int) -> bytes:
        return self._names[device - 1].encode()

    def ibv_open_device(self, device: int) -> int:
        pointer = self._struct(8, async_fd=(_L["ibv_context"]["async_fd"], 0xFFFFFFFF))
        ops = pointer + _L["ibv_context"]["ops"]
        for name, function in (
            ("post_send", _post_send),
            ("post_recv", _post_recv),
            ("poll_cq", _poll_cq),
        ):
            ctypes.c_uint64.from_address(ops + _L["ibv_context_ops"][name]).value = function.address
        self._contexts[pointer] = self._names[device - 1]
        return pointer

    def ibv_query_port(self, context: int, port: int, attr: int) -> int:
        memory = (ctypes.c_char * s.LAYOUTS["ibv_port_attr"][0]).from_address(attr)
        raw = np.frombuffer(memoryview(memory), s.dtype("ibv_port_attr"))
        active = self._contexts[context] not in self.down
        raw["state"] = s.IBV_PORT_ACTIVE if active else s.IBV_PORT_DOWN
        raw["active_mtu"], raw["gid_tbl_len"], raw["max_msg_sz"] = (
            s.IBV_MTU_4096,
            2,
            self.max_message,
        )
        raw["link_layer"] = s.IBV_LINK_LAYER_ETHERNET
        return 0

    def ibv_query_gid(self, context: int, port: int, index: int, gid: int) -> int:
        number = self._names.index(self._contexts[context])
        local, ipv4 = (
            b"\xfe\x80" + number.to_bytes(14),
            bytes(10) + b"\xff\xff\x0a\x00" + number.to_bytes(2),
        )
        ctypes.memmove(gid, ipv4 if index else local, 16)
        return 0

    def ibv_alloc_pd(self, context: int) -> int:
        return self._struct(1)

    def ibv_reg_mr(self, pd: int, address: int, length: int, access: int) -> int:
        if self.gpu[0] <= address < self.gpu[1]:
            ctypes.set_errno(errno.EFAULT)
            return 0
        return self._region(address, length)

    def ibv_reg_dmabuf_mr(
        self, pd: int, offset: int, length: int, iova: int, fd: int, access: int
    ) -> int:
        if self.dmabufs.get(fd, -1) + offset != iova:
            ctypes.set_errno(errno.EOPNOTSUPP)
            return 0
        return self._region(iova, length)

    def _region(self, address: int, length: int) -> int:
        table = ctypes.c_int64.from_address(self._keys)
        with self._lock:
            if table.value == MAX_KEYS:
                ctypes.set_errno(errno.ENOMEM)
                return 0
            key = 100 + table.value
            row = self._keys + 8 + 24 * table.value
            for index, value in enumerate((key, address, address + length)):
                ctypes.c_int64.from_address(row + 8 * index).value = value
            table.value += 1
        return self._struct(1, lkey=(_L["ibv_mr"]["lkey"], key), rkey=(_L["ibv_mr"]["rkey"], key))

    def ibv_create_cq(
        self, context: int, depth: int, cq_context: Any, channel: Any, vector: int
    ) -> int:
        pointer = self._struct(C_ENTRIES + depth * _WC_SIZE // 8)
        self.word(pointer, C_DEPTH).value = depth
        return pointer

    def ibv_create_qp(self, pd: int, attr: int) -> int:
        number = next(self._numbers)
        pointer = self._struct(16, qp_num=(_L["ibv_qp"]["qp_num"], number))
        self._qps[number] = pointer
        self.word(pointer, Q_CQ).value = ctypes.c_int64.from_address(
            attr + _L["ibv_qp_init_attr"]["send_cq"]
        ).value
        self.word(pointer, Q_PEER).value, self.word(pointer, Q_FUSE).value = GONE, -1
        self.word(pointer, Q_COPY).value, self.word(pointer, Q_KEYS).value = (
            int(self.copy),
            self._keys,
        )
        return pointer

    def ibv_modify_qp(self, qp: int, attr: int, mask: int) -> int:
        fields = _L["ibv_qp_attr"]
        state = ctypes.c_int32.from_address(attr + fields["qp_state"]).value
        if mask & s.IBV_QP_DEST_QPN:
            number = ctypes.c_uint32.from_address(attr + fields["dest_qp_num"]).value
            if number not in self._qps:
                return errno.EINVAL
            self.word(qp, Q_PEER).value = self._qps[number]
        self.word(qp, Q_STATE).value = state
        return 0

    def ibv_query_qp(self, qp: int, attr: int, mask: int, made: int) -> int:
        state = ctypes.c_int32.from_address(attr + _L["ibv_qp_attr"]["qp_state"])
        state.value = self.word(qp, Q_STATE).value
        return 0

    def ibv_destroy_qp(self, qp: int) -> int:
        self.calls.append("ibv_destroy_qp")
        self.word(qp, Q_STATE).value = _ERR
        return 0

    def __getattr__(self, name: str) -> Any:
        if name not in ("ibv_dealloc_pd", "ibv_dereg_mr", "ibv_destroy_cq", "ibv_close_device"):
            raise AttributeError(name)

        def destroy(pointer: int) -> int:
            self.calls.append(name)
            return 0

        return destroy
