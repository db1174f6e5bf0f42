"""The binding: committed layouts, linked lists, and owners that close in the right order. No
libibverbs needed.
"""

from __future__ import annotations

import ctypes
import errno

import numpy as np
import pytest

from railopt.base.errors import BackendError
from railopt.runtime.verbs import structs as s
from railopt.runtime.verbs.lib import SharedLibrary, VerbsError
from railopt.runtime.verbs.objects import (
    Address,
    Cq,
    Device,
    Mr,
    Patience,
    Pd,
    Qp,
    device_names,
    open_device,
)
from railopt.runtime.verbs.work import (
    SEND_WR,
    ImmRing,
    Receives,
    WriteRing,
    Writes,
    split_id,
    work_id,
)
from tests.doubles.null_verbs import NullLibrary

U8, U16, U32, U64, I32, P = (
    ctypes.c_uint8,
    ctypes.c_uint16,
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_int32,
    ctypes.c_void_p,
)


class Sge(ctypes.Structure):
    _fields_ = (("addr", U64), ("length", U32), ("lkey", U32))


class Rdma(ctypes.Structure):
    _fields_ = (("remote_addr", U64), ("rkey", U32))


class SendWr(ctypes.Structure):
    _fields_ = (
        ("wr_id", U64),
        ("next", P),
        ("sg_list", P),
        ("num_sge", I32),
        ("opcode", I32),
        ("send_flags", U32),
        ("imm_data", U32),
        ("rdma", Rdma),
    )


class RecvWr(ctypes.Structure):
    _fields_ = (("wr_id", U64), ("next", P), ("sg_list", P), ("num_sge", I32))


class Wc(ctypes.Structure):
    _fields_ = (
        ("wr_id", U64),
        ("status", I32),
        ("opcode", I32),
        ("vendor_err", U32),
        ("byte_len", U32),
        ("imm_data", U32),
        ("qp_num", U32),
        ("src_qp", U32),
        ("wc_flags", U32),
    )


class QpInitAttr(ctypes.Structure):
    _fields_ = (
        ("qp_context", P),
        ("send_cq", P),
        ("recv_cq", P),
        ("srq", P),
        ("max_send_wr", U32),
        ("max_recv_wr", U32),
        ("max_send_sge", U32),
        ("max_recv_sge", U32),
        ("max_inline_data", U32),
        ("qp_type", I32),
        ("sq_sig_all", I32),
    )


class Mr_(ctypes.Structure):
    _fields_ = (
        ("context", P),
        ("pd", P),
        ("addr", P),
        ("length", U64),
        ("handle", U32),
        ("lkey", U32),
        ("rkey", U32),
    )


@pytest.mark.parametrize(
    ("name", "mirror"),
    [
        ("ibv_sge", Sge),
        ("ibv_send_wr", SendWr),
        ("ibv_recv_wr", RecvWr),
        ("ibv_wc", Wc),
        ("ibv_qp_init_attr", QpInitAttr),
        ("ibv_mr", Mr_),
    ],
)
def test_layouts_follow_the_alignment_of_this_machine(
    name: str, mirror: type[ctypes.Structure]
) -> None:
    dtype = s.dtype(name)
    for field, *_ in mirror._fields_:
        if field not in dtype.fields:  # of no use here
            continue
        offset, part = getattr(mirror, field).offset, dtype.fields[field]
        assert (part[1], part[0].itemsize) == (offset, getattr(mirror, field).size), field
    assert dtype.itemsize >= ctypes.sizeof(mirror)


def test_the_rdma_union_lies_behind_the_immediate() -> None:
    base = SendWr.rdma.offset
    assert SEND_WR.fields["remote_addr"][1] == base + Rdma.remote_addr.offset
    assert SEND_WR.fields["rkey"][1] == base + Rdma.rkey.offset
    assert SEND_WR.itemsize == 128


def test_statuses_are_named() -> None:
    assert s.WC_STATUS[s.IBV_WC_RETRY_EXC_ERR] == "RETRY_EXC_ERR"
    assert sorted(s.WC_STATUS) == list(range(24))


def test_a_missing_library_says_what_to_install() -> None:
    with pytest.raises(BackendError, match="apt-get install libibverbs1"):
        SharedLibrary("libibverbs-of-nowhere.so.1")


def test_an_error_names_its_verb_and_errno() -> None:
    error = VerbsError("ibv_reg_mr", errno.ENOMEM)
    assert (error.verb, error.errno, error.exit_code) == ("ibv_reg_mr", errno.ENOMEM, 3)
    assert "ulimit -l" in str(error)


def make_pair(
    lib: NullLibrary, memory: np.ndarray
) -> tuple[Device, Cq, Qp, Mr, Device, Cq, Qp, Mr]:
    ends = []
    for name in ("a", "b"):
        device = open_device(lib, name)
        cq = Cq(device, 2048)
        pd = Pd(device)
        mr = Mr(pd, memory.ctypes.data, memory.nbytes, memory)
        ends.append((device, cq, Qp(pd, cq, 1024, 32), mr))
    (a, _, qa, _), (b, _, qb, _) = ends
    qa.connect(qb.number, qb.psn, a.address(), b.address(), Patience())
    qb.connect(qa.number, qa.psn, b.address(), a.address(), Patience())
    return (*ends[0], *ends[1])


@pytest.fixture
def lib() -> NullLibrary:
    return NullLibrary(["a", "b"])


@pytest.mark.parametrize("counts", [[8, 8], [3], [1, 8, 2, 8, 8, 5], [8, 1, 1]])
def test_lists_are_refilled_cut_and_mended(lib: NullLibrary, counts: list[int]) -> None:
    memory = np.zeros(4096, np.uint8)
    memory[:2048] = np.random.default_rng(1).integers(0, 256, 2048)
    _, cq, qp, mr, _, _, _, peer = make_pair(lib, memory)
    ring = WriteRing(qp, 2, 8, work_id(0, 7))
    for slot, count in enumerate(counts):
        memory[2048:] = 0
        offset = np.arange(count, dtype=np.uint64) * 16
        keys = np.full(count, mr.lkey, np.uint32), np.full(count, peer.rkey, np.uint32)
        writes = Writes(
            mr.address + offset, mr.address + 2048 + offset, np.full(count, 16, np.uint32), *keys
        )
        assert ring.post(slot % 2, writes, 0) == (count, 0)
        assert cq.poll() == 1, "one signal a list"
        assert split_id(int(cq.wc["wr_id"][0])) == (0, 7)
        assert np.array_equal(memory[2048 : 2048 + 16 * count], memory[: 16 * count])
        assert not memory[2048 + 16 * count :].any(), "nothing of an earlier, longer list is posted"


def test_an_immediate_arrives_behind_the_writes(lib: NullLibrary) -> None:
    memory = np.zeros(4096, np.uint8)
    _, cq, qp, mr, _, peer_cq, peer_qp, peer = make_pair(lib, memory)
    imms = ImmRing(qp, 4, work_id(1, 0), peer.address, peer.rkey)
    assert imms.post(0, 0xC0FFEE01) == 0
    assert cq.poll() == 1
    assert cq.wc["status"][0] == s.IBV_WC_RNR_RETRY_EXC_ERR, "no receive was posted"
    lib2 = NullLibrary(["a", "b"])
    _, cq, qp, mr, _, peer_cq, peer_qp, peer = make_pair(lib2, memory)
    assert Receives(peer_qp, 8, work_id(2, 3)).fill() == 0
    assert ImmRing(qp, 4, work_id(1, 0), peer.address, peer.rkey).post(1, 0xC0FFEE01) == 0
    assert peer_cq.poll() == 1
    assert split_id(int(peer_cq.wc["wr_id"][0])) == (2, 3)
    assert int(peer_cq.wc["imm_data"].view(">u4")[0]) == 0xC0FFEE01
    del mr


@pytest.mark.parametrize(
    ("lkey", "rkey", "status"), [(1, 0, s.IBV_WC_LOC_PROT_ERR), (0, 1, s.IBV_WC_REM_ACCESS_ERR)]
)
def test_the_null_driver_checks_keys(lib: NullLibrary, lkey: int, rkey: int, status: int) -> None:
    memory = np.zeros(64, np.uint8)
    _, cq, qp, mr, _, _, _, peer = make_pair(lib, memory)
    at = np.full(1, mr.address, np.uint64)
    writes = Writes(
        at,
        at,
        np.full(1, 64, np.uint32),
        np.full(1, mr.lkey + 1000 * lkey, np.uint32),
        np.full(1, peer.rkey + 1000 * rkey, np.uint32),
    )
    WriteRing(qp, 1, 4, 0).post(0, writes, 0)
    assert cq.poll() == 1
    assert cq.wc["status"][0] == status


def test_closing_a_device_closes_what_hangs_on_it_in_order(lib: NullLibrary) -> None:
    memory = np.zeros(64, np.uint8)
    device, _, qp, *_ = make_pair(lib, memory)
    lib.calls.clear()
    with device:
        pass
    assert lib.calls == [
        "ibv_destroy_qp",
        "ibv_dereg_mr",
        "ibv_dealloc_pd",
        "ibv_destroy_cq",
        "ibv_close_device",
    ]
    device.close()
    assert len(lib.calls) == 5, "closing twice is harmless"
    assert Receives(qp, 4, 0).fill() == errno.EBADF, "a closed queue pair is never handed to C"


def test_no_rdma_in_the_kernel_is_no_device() -> None:
    class Nothing:
        def ibv_get_device_list(self, count: object) -> None:
            return None

    assert device_names(Nothing()) == []
    with pytest.raises(BackendError, match="no RDMA device 'mlx5_0'; found: none"):
        open_device(Nothing(), "mlx5_0")


def test_the_gid_is_the_ipv4_one_whatever_its_index(lib: NullLibrary) -> None:
    device = open_device(lib, "b")
    assert device.address() == Address(
        0, bytes(10) + b"\xff\xff\x0a\x00\x00\x01", 1, True, s.IBV_MTU_4096
    )
    assert device.address(0).gid[:2] == b"\xfe\x80"
    with pytest.raises(BackendError, match="no RoCE v2 GID"):
        device.address(roce_v2=lambda index: False)
