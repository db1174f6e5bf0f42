"""Device, protection domain, memory region, completion queue, queue pair: context managers over
their C pointers.

Each object closes its children first, the last one opened first; closing twice is harmless. A
buffer that was registered stays referenced by its `Mr` until the NIC has let go of it.
"""

from __future__ import annotations

import ctypes
import secrets
import select
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from railopt.base.errors import BackendError
from railopt.runtime.verbs import structs as s
from railopt.runtime.verbs.lib import Library, VerbsError, call, made, read_u32

# The GIL stays held: both calls return within a microsecond on a NIC, less than giving it up and
# asking for it back.
_POST = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_POLL = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_OPS = s.LAYOUTS["ibv_context"][1]["ops"][1]
REMOTE_WRITE = s.IBV_ACCESS_LOCAL_WRITE | s.IBV_ACCESS_REMOTE_WRITE
IPV4_PREFIX = bytes(10) + b"\xff\xff"


class Owner:
    """An open C object with children; `destroyed_by` is the verb that destroys it."""

    destroyed_by: str

    def __init__(self, lib: Library, pointer: int, *parents: Owner) -> None:
        self.lib, self.pointer = lib, pointer
        self._children: list[Owner] = []
        self._parents = parents
        for parent in parents:
            parent._children.append(self)

    def close(self) -> None:
        """Close the children, last opened first, then this object."""
        while self._children:
            self._children[-1].close()
        if self.pointer:
            call(self.lib, self.destroyed_by, self.pointer)
            self.pointer = 0
        for parent in self._parents:
            if self in parent._children:
                parent._children.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.close()


@dataclass(frozen=True)
class Port:
    """What `ibv_query_port` says: `mtu` is the verbs enumerator (5 = 4096 bytes)."""

    active: bool
    mtu: int
    lid: int
    gids: int
    max_message: int
    ethernet: bool


@dataclass(frozen=True)
class Address:
    """Where a port is reached: RoCE by its GID, InfiniBand by its LID."""

    lid: int
    gid: bytes
    gid_index: int
    ethernet: bool
    mtu: int


class Device(Owner):
    """An open RDMA device and one of its ports."""

    destroyed_by = "ibv_close_device"

    def __init__(self, lib: Library, name: str, pointer: int, port: int = 1) -> None:
        super().__init__(lib, pointer)
        self.name, self.port = name, port
        self.post_send: Callable[[int, int, Any], int] = _POST(self._op("post_send"))
        self.post_recv: Callable[[int, int, Any], int] = _POST(self._op("post_recv"))
        self.poll_cq: Callable[[int, int, int], int] = _POLL(self._op("poll_cq"))

    def _op(self, name: str) -> int:
        return ctypes.c_uint64.from_address(
            self.pointer + _OPS + s.LAYOUTS["ibv_context_ops"][1][name][1]
        ).value

    def query_port(self) -> Port:
        """State, MTU, LID, GID table length and link layer of the port."""
        # one spare: newer libraries may write a longer struct
        raw = np.zeros(2, s.dtype("ibv_port_attr"))
        call(self.lib, "ibv_query_port", self.pointer, self.port, raw.ctypes.data)
        attr = raw[0]
        return Port(
            int(attr["state"]) == s.IBV_PORT_ACTIVE,
            int(attr["active_mtu"]),
            int(attr["lid"]),
            int(attr["gid_tbl_len"]),
            int(attr["max_msg_sz"]),
            int(attr["link_layer"]) == s.IBV_LINK_LAYER_ETHERNET,
        )

    def gid(self, index: int) -> bytes:
        """16 bytes of the port's GID table."""
        raw = ctypes.create_string_buffer(16)
        call(self.lib, "ibv_query_gid", self.pointer, self.port, index, ctypes.addressof(raw))
        return raw.raw

    def address(
        self, gid_index: int | None = None, roce_v2: Callable[[int], bool] = lambda index: True
    ) -> Address:
        """Where the port is reached. RoCE: the first IPv4 GID for which `roce_v2(index)`, else any
        v2 GID that is not link-local, unless an index is given: the table's order differs between
        drivers.
        """
        port = self.query_port()
        if gid_index is None and port.ethernet:
            gid_index = self._roce_index(port.gids, roce_v2)
        index = gid_index or 0
        return Address(port.lid, self.gid(index), index, port.ethernet, port.mtu)

    def _roce_index(self, count: int, roce_v2: Callable[[int], bool]) -> int:
        second: dict[bool, int] = {}  # link-local? -> its first index
        for index in range(count):
            gid = self.gid(index)
            if not any(gid) or not roce_v2(index):
                continue
            if gid.startswith(IPV4_PREFIX):
                return index
            second.setdefault(gid[:2] == b"\xfe\x80", index)
        if not second:
            raise BackendError(
                f"{self.name} port {self.port} has no RoCE v2 GID: give its network interface an "
                f"IP address (or name an entry with --gid-index)"
            )
        return second.get(False, second.get(True, 0))

    def events(self) -> list[str]:
        """Asynchronous events that have arrived ("port error", ...), acknowledged; never waits."""
        found: list[str] = []
        fd = ctypes.c_int.from_address(
            self.pointer + s.LAYOUTS["ibv_context"][1]["async_fd"][1]
        ).value
        if fd < 0:
            return found
        event, ready = np.zeros(1, s.dtype("ibv_async_event")), select.poll()
        ready.register(fd, select.POLLIN)
        while [happened for _, happened in ready.poll(0) if happened & select.POLLIN]:
            if self.lib.ibv_get_async_event(self.pointer, event.ctypes.data):
                break
            found.append(self.lib.ibv_event_type_str(int(event["event_type"][0])).decode())
            self.lib.ibv_ack_async_event(event.ctypes.data)
        return found


def device_names(lib: Library) -> list[str]:
    """Names of the RDMA devices; none where the kernel has no RDMA."""
    return [name for name, _ in _walk(lib)]


def _walk(lib: Library, wanted: str | None = None) -> list[tuple[str, int]]:
    """(name, 0) of every device, or [(name, open context)] of the wanted one."""
    count = ctypes.c_int()
    devices = lib.ibv_get_device_list(ctypes.byref(count))
    if not devices:  # NULL: no RDMA in the kernel; freeing NULL would crash
        return []
    try:
        found = [
            (lib.ibv_get_device_name(devices[i]).decode(), devices[i]) for i in range(count.value)
        ]
        if wanted is None:
            return [(name, 0) for name, _ in found]
        return [(n, made(lib, "ibv_open_device", p)) for n, p in found if n == wanted]
    finally:
        lib.ibv_free_device_list(devices)


def open_device(lib: Library, name: str, port: int = 1) -> Device:
    """Open a device by name; BackendError lists what there is."""
    found = _walk(lib, name)
    if not found:
        raise BackendError(
            f"no RDMA device {name!r}; found: {', '.join(device_names(lib)) or 'none'} (railopt "
            f"devices)"
        )
    return Device(lib, name, found[0][1], port)


class Pd(Owner):
    """Protection domain of a device."""

    destroyed_by = "ibv_dealloc_pd"

    def __init__(self, device: Device) -> None:
        super().__init__(device.lib, made(device.lib, "ibv_alloc_pd", device.pointer), device)
        self.device = device


class Mr(Owner):
    """Registered memory: `address`, `length` bytes, its keys; holds `keep` until it is
    deregistered. `dmabuf` is a file descriptor of memory of a device, and where the bytes begin.
    """

    destroyed_by = "ibv_dereg_mr"

    def __init__(
        self,
        pd: Pd,
        address: int,
        length: int,
        keep: object = None,
        access: int = REMOTE_WRITE,
        dmabuf: tuple[int, int] | None = None,
    ) -> None:
        if dmabuf is None:
            pointer = made(pd.lib, "ibv_reg_mr", pd.pointer, address, length, access)
        else:
            fd, offset = dmabuf
            given = pd.pointer, offset, length, address, fd, access
            pointer = made(pd.lib, "ibv_reg_dmabuf_mr", *given)
        super().__init__(pd.lib, pointer, pd)
        self.address, self.length, self._keep = address, length, keep
        self.lkey = read_u32(pointer, "ibv_mr", "lkey")
        self.rkey = read_u32(pointer, "ibv_mr", "rkey")

    def close(self) -> None:
        """Deregister it, and only then let the memory go."""
        super().close()
        self._keep = None


class Cq(Owner):
    """Completion queue of `depth` entries with its own completion array: `poll` fills `wc` and
    returns how many.
    """

    destroyed_by = "ibv_destroy_cq"

    def __init__(self, device: Device, depth: int, batch: int = 64) -> None:
        pointer = made(device.lib, "ibv_create_cq", device.pointer, depth, None, None, 0)
        super().__init__(device.lib, pointer, device)
        self.wc = np.zeros(batch, s.dtype("ibv_wc"))
        self._poll, self._batch, self._wc_address = device.poll_cq, batch, self.wc.ctypes.data

    def poll(self) -> int:
        """Number of completions now in `wc[:n]`."""
        count = self._poll(self.pointer, self._batch, self._wc_address)
        if count < 0:
            raise VerbsError("ibv_poll_cq", ctypes.get_errno())
        return count


@dataclass(frozen=True)
class Patience:
    """How long a queue pair tries: `timeout` is 4.096 us * 2**timeout a try; 7 retries would be
    endless on Soft-RoCE.
    """

    timeout: int = 16
    retry: int = 6
    rnr_retry: int = 6


class Qp(Owner):
    """A reliable connected queue pair, in INIT after construction; `connect` takes it to RTS,
    `retire` to ERR.
    """

    destroyed_by = "ibv_destroy_qp"

    def __init__(self, pd: Pd, cq: Cq, send_depth: int, recv_depth: int) -> None:
        attr = np.zeros(1, s.dtype("ibv_qp_init_attr"))
        attr["send_cq"] = attr["recv_cq"] = cq.pointer
        attr["max_send_wr"], attr["max_recv_wr"] = send_depth, recv_depth
        attr["max_send_sge"] = attr["max_recv_sge"] = 1
        attr["qp_type"] = s.IBV_QPT_RC
        pointer = made(pd.lib, "ibv_create_qp", pd.pointer, attr.ctypes.data)
        super().__init__(pd.lib, pointer, pd, cq)
        self.device = pd.device
        self.number = read_u32(pointer, "ibv_qp", "qp_num")
        # a number may have been used before, and packets to its last user be on their way
        self.psn = secrets.randbits(24)
        self.retired = False
        self._modify(
            s.IBV_QP_PKEY_INDEX | s.IBV_QP_PORT | s.IBV_QP_ACCESS_FLAGS,
            qp_state=s.IBV_QPS_INIT,
            port_num=self.device.port,
            qp_access_flags=REMOTE_WRITE,
        )

    def _modify(self, mask: int, **fields: Any) -> None:
        attr = np.zeros(1, s.dtype("ibv_qp_attr"))
        for name, value in fields.items():
            attr[name] = value
        mask |= s.IBV_QP_STATE
        call(self.lib, "ibv_modify_qp", self.pointer, attr.ctypes.data, mask)

    def connect(
        self,
        number: int,
        psn: int,
        here: Address,
        there: Address,
        patience: Patience,
        sl: int = 0,
        tclass: int = 0,
    ) -> None:
        """Change to RTS, towards queue pair `number` at `there`; `sl` and `tclass` are the path's
        service level and traffic class.
        """
        self._modify(
            s.IBV_QP_AV
            | s.IBV_QP_PATH_MTU
            | s.IBV_QP_DEST_QPN
            | s.IBV_QP_RQ_PSN
            | s.IBV_QP_MAX_DEST_RD_ATOMIC
            | s.IBV_QP_MIN_RNR_TIMER,
            qp_state=s.IBV_QPS_RTR,
            path_mtu=min(here.mtu, there.mtu),
            dest_qp_num=number,
            rq_psn=psn,
            max_dest_rd_atomic=1,
            min_rnr_timer=12,
            dlid=there.lid,
            ah_port_num=self.device.port,
            is_global=int(here.ethernet),
            dgid=np.void(there.gid),
            sgid_index=here.gid_index,
            hop_limit=64,
            sl=sl,
            traffic_class=tclass,
        )
        self._modify(
            s.IBV_QP_TIMEOUT
            | s.IBV_QP_RETRY_CNT
            | s.IBV_QP_RNR_RETRY
            | s.IBV_QP_SQ_PSN
            | s.IBV_QP_MAX_QP_RD_ATOMIC,
            qp_state=s.IBV_QPS_RTS,
            timeout=patience.timeout,
            retry_cnt=patience.retry,
            rnr_retry=patience.rnr_retry,
            sq_psn=self.psn,
            max_rd_atomic=1,
        )

    def retire(self) -> None:
        """Change to ERR: nothing more leaves it or lands through it; what was posted is flushed."""
        if not self.retired and self.pointer:
            self.retired = True
            self._modify(0, qp_state=s.IBV_QPS_ERR)

    def lost(self) -> str:
        """Why no completion may come of it any more, in words; "" while it is connected."""
        if not self.pointer:
            return "its queue pair is gone"
        # one spare each: newer libraries may write longer structs
        attr, init = (np.zeros(2, s.dtype(name)) for name in ("ibv_qp_attr", "ibv_qp_init_attr"))
        error = self.lib.ibv_query_qp(
            self.pointer, attr.ctypes.data, s.IBV_QP_STATE, init.ctypes.data
        )
        if error:
            return f"its queue pair can't be asked for its state: errno {error}"
        state = int(attr["qp_state"][0])
        return "" if state == s.IBV_QPS_RTS else f"its queue pair is not connected (state {state})"
