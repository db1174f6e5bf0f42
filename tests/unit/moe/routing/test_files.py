"""Foreign and hostile routing records: read, or refused in one sentence, in bounded memory."""

from __future__ import annotations

import io
import json
import pickle
import random
import struct
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt.base.arrays import digest
from railopt.base.errors import FormatError, InputError
from railopt.moe.routing import torch_file
from railopt.moe.routing.files import from_load, from_routed, from_sglang, read_any
from railopt.moe.routing.torch_file import load_pt
from railopt.moe.routing.trace import ARRAYS, Trace
from tests.damage import damaged

MEMORY = 256 << 20  # bytes that a refusal may take
P = pickle


@pytest.fixture(autouse=True)
def _in_bounded_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY


class Tensor:
    """Stands for a tensor in `pt`: pickled as torch.save pickles one."""

    def __init__(self, key: str, shape: tuple[int, ...], stride: tuple[int, ...], entries: int):
        self.key, self.shape, self.stride, self.entries = key, shape, stride, entries


def text(value: str) -> bytes:
    data = value.encode()
    return P.BINUNICODE + struct.pack("<I", len(data)) + data


def number(value: int) -> bytes:
    if -(2**31) <= value < 2**31:
        return P.BININT + struct.pack("<i", value)
    data = value.to_bytes(16, "little", signed=True)
    return P.LONG1 + bytes([len(data)]) + data


def opcodes(value: Any) -> bytes:
    """A value as the opcodes that torch.save writes."""
    if isinstance(value, bytes):  # opcodes already
        return value
    if isinstance(value, str):
        return text(value)
    if isinstance(value, int):
        return number(value)
    if isinstance(value, list):
        return P.EMPTY_LIST + P.MARK + b"".join(map(opcodes, value)) + P.APPENDS
    if isinstance(value, tuple):
        return P.MARK + b"".join(map(opcodes, value)) + P.TUPLE
    if isinstance(value, dict):
        items = b"".join(opcodes(key) + opcodes(one) for key, one in value.items())
        return P.EMPTY_DICT + P.MARK + items + P.SETITEMS
    storage = ("storage", b"ctorch\nLongStorage\n", value.key, "cpu", value.entries)
    ordered = b"ccollections\nOrderedDict\n" + P.EMPTY_TUPLE + P.REDUCE
    arguments = (opcodes(storage) + P.BINPERSID, 0, value.shape, value.stride, P.NEWFALSE, ordered)
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + opcodes(arguments) + P.REDUCE


def pt(value: Any, path: Path, method: int = zipfile.ZIP_STORED, **storages: np.ndarray) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("a/data.pkl", P.PROTO + b"\2" + opcodes(value) + P.STOP)
        for key, array in storages.items():
            archive.writestr(f"a/data/{key}", array.astype("<i8").tobytes())
    return path


LOAD = np.arange(12).reshape(2, 2, 3)


def good(path: Path) -> Path:
    return pt({"logical_count": Tensor("0", (2, 2, 3), (6, 3, 1), 12)}, path, **{"0": LOAD})


def test_what_torch_writes_is_read(tmp_path: Path) -> None:
    np.testing.assert_array_equal(load_pt(good(tmp_path / "x.pt"))["logical_count"], LOAD)
    turned = {"logical_count": Tensor("0", (3, 2), (1, 3), 12)}
    found = load_pt(pt(turned, tmp_path / "y.pt", **{"0": LOAD}))["logical_count"]
    np.testing.assert_array_equal(found, LOAD.ravel()[:6].reshape(2, 3).T)
    plain = {"a": [1, (2, "x")], 7: -(2**80)}
    assert load_pt(pt(plain, tmp_path / "z.pt")) == plain


def test_plain_tensors_are_loads_or_routed_experts(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", LOAD)
    np.savez(tmp_path / "x.npz", load=LOAD)
    bare = pt(Tensor("0", (2, 2, 3), (6, 3, 1), 12), tmp_path / "x.pt", **{"0": LOAD})
    (tmp_path / "Y.NPZ").write_bytes((tmp_path / "x.npz").read_bytes())
    for file in (bare, tmp_path / "x.npy", tmp_path / "x.npz", tmp_path / "Y.NPZ"):
        np.testing.assert_array_equal(read_any(file, ranks=2).load, LOAD)
        routed = read_any(file, ranks=1, routed_experts=12)  # 2 tokens, 2 layers, top-3
        assert (routed.top_k, routed.experts, routed.records) == (3, 12, "serving steps")
        for token, layer in np.ndindex(2, 2):
            chosen = np.flatnonzero(routed.counts[token, layer, 0])
            np.testing.assert_array_equal(chosen, LOAD[token, layer])
    with pytest.raises(InputError, match="from 0 to 11: expected 0 to 9"):
        read_any(bare, ranks=1, routed_experts=10)
    with pytest.raises(InputError, match="--top-k can't do anything"):
        read_any(bare, ranks=1, routed_experts=12, top_k=3)
    with pytest.raises(InputError, match="--routed-experts can't do anything"):
        read_any(good(tmp_path / "y.pt"), ranks=1, routed_experts=12)
    np.savez(tmp_path / "two.npz", a=LOAD, b=LOAD)
    with pytest.raises(FormatError, match="expected a railopt trace, or one array"):
        read_any(tmp_path / "two.npz", ranks=1)
    with pytest.raises(InputError, match="unknown kind of trace"):
        read_any(tmp_path / "x.bin", ranks=1)


def test_ids_of_experts_are_not_taken_for_loads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = rng.random((40, 3, 64)).argsort(axis=2)[:, :, :6]
    np.save(tmp_path / "ids.npy", ids)
    with pytest.raises(InputError, match=r"\(40, 3, 6\).*--routed-experts N.*--top-k K") as error:
        read_any(tmp_path / "ids.npy", ranks=2)
    assert "\n" not in str(error.value)
    assert read_any(tmp_path / "ids.npy", ranks=2, routed_experts=64).experts == 64
    assert read_any(tmp_path / "ids.npy", ranks=2, top_k=2).experts == 6, "loads, it was said"
    loads = {
        "the same tokens in every layer": rng.multinomial(500, np.full(6, 1 / 6), (40, 3)),
        "a number twice": np.where(np.arange(6) < 2, 7, ids),
        "more tokens than experts": ids + 5000,
        "no whole numbers": 2 * ids + 0.5,
        "few steps": ids[:2],
        "one step": ids[0],
    }
    for why, load in loads.items():
        np.save(tmp_path / "load.npy", load)
        assert read_any(tmp_path / "load.npy", ranks=2).experts == 6, why


@pytest.mark.parametrize("seed", range(3))
def test_routed_experts_keep_every_choice(seed: int) -> None:
    chosen = np.random.default_rng(seed).integers(0, 9, (50 + seed, 3, 2))
    made = from_routed(chosen, 9, ranks=4)
    assert made.counts.shape == (16, 3, 4, 9)
    for layer in range(3):
        np.testing.assert_array_equal(
            made.load[:, layer].sum(axis=0), np.bincount(chosen[:, layer].ravel(), minlength=9)
        )
    for wrong in (chosen[0], chosen.astype(float), chosen[:0], -chosen):
        with pytest.raises(InputError, match="expected"):
            from_routed(wrong, 9, ranks=4)


def test_a_tensor_is_no_larger_than_its_data(tmp_path: Path) -> None:
    for shape, stride in (
        ((10**9,), (0,)),
        ((10**6, 10**6), (0, 0)),
        ((2, 13), (0, 1)),
        ((4, 4), (3, 1)),
        ((13,), (1,)),
        ((-1,), (1,)),
        ((2**80,), (1,)),
        ((0, 10**12), (1, 1)),
    ):
        file = pt(
            {"logical_count": Tensor("0", shape, stride, 12)}, tmp_path / "x.pt", **{"0": LOAD}
        )
        with pytest.raises(InputError):
            read_any(file, ranks=2)
    with pytest.raises(FormatError, match="expected 13 entries"):
        load_pt(pt(Tensor("0", (1,), (1,), 13), tmp_path / "x.pt", **{"0": LOAD}))
    with pytest.raises(FormatError, match="no member"):
        load_pt(pt(Tensor("1", (1,), (1,), 1), tmp_path / "x.pt", **{"0": LOAD}))


def test_the_stride_of_a_dimension_of_one_says_nothing(tmp_path: Path) -> None:
    for stride in (0, 1, 10**6, 2**62):
        tensor = Tensor("0", (4, 3, 1), (3, 1, stride), 12)
        found = load_pt(pt(tensor, tmp_path / "x.pt", **{"0": LOAD}))
        np.testing.assert_array_equal(found, LOAD.reshape(4, 3, 1))
    for stride in (2**63, 10**30):
        tensor = Tensor("0", (4, 3, 1), (3, 1, stride), 12)
        with pytest.raises(FormatError, match=r"whole numbers below 2\*\*63"):
            load_pt(pt(tensor, tmp_path / "x.pt", **{"0": LOAD}))


def _memo(value: Any, times: int) -> bytes:
    """A list that names one value many times."""
    noted, again = opcodes(value) + P.BINPUT + b"\0", P.BINGET + b"\0"
    return P.EMPTY_LIST + P.MARK + noted + again * times + P.APPENDS


def test_a_record_named_many_times_is_refused(tmp_path: Path) -> None:
    ids = Tensor("0", (1, 1000, 12), (0, 0, 1), 12000)
    record = {"topk_ids_of_layer": Tensor("0", (1, 1000, 12), (12000, 12, 1), 12000)}
    many = {"records": _memo(record, 20_000)}
    with pytest.raises(FormatError, match="record fewer steps"):
        read_any(pt(many, tmp_path / "x.pt", **{"0": np.zeros(12000)}), ranks=2)
    assert load_pt(pt(ids, tmp_path / "y.pt", **{"0": np.zeros(12000)})).shape == (1, 1000, 12)
    misc = {**record, "misc_objects": [{"num_tokens_per_rank": Tensor("1", (9000,), (1,), 9000)}]}
    many = {"records": _memo(misc, 2000)}
    with pytest.raises(FormatError, match="million numbers"):
        read_any(
            pt(many, tmp_path / "x.pt", **{"0": np.zeros(12000), "1": np.zeros(9000)}), ranks=2
        )


def test_tuples_of_tuples_cost_nothing(tmp_path: Path) -> None:
    nested = P.EMPTY_TUPLE + (P.BINPUT + b"\0" + P.BINGET + b"\0" + P.TUPLE2) * 60
    assert len(load_pt(pt([nested], tmp_path / "x.pt"))) == 1
    with pytest.raises(FormatError, match="keys that are neither"):
        load_pt(pt({nested: 1}, tmp_path / "y.pt"))
    with pytest.raises(FormatError, match="not an sglang recorder file"):
        read_any(pt([nested], tmp_path / "x.pt"), ranks=2)


@pytest.mark.parametrize(
    "code",
    [
        b"ctorch._utils\n_rebuild_tensor_v2\n" + opcodes({"evil": 1}) + P.BUILD,
        b"ccollections\nOrderedDict\n" + opcodes({"evil": 1}) + P.BUILD,
        b"cos\nsystem\n" + opcodes(("true",)) + P.REDUCE,
        b"cbuiltins\neval\n" + opcodes(("1",)) + P.REDUCE,
        b"ccollections\nOrderedDict\n" + opcodes((1,)) + P.REDUCE,
        b"ctorch\nLongStorage\n" + P.EMPTY_TUPLE + P.REDUCE,
        b"ctorch._utils\n_rebuild_tensor_v2\n" + P.EMPTY_TUPLE + P.REDUCE,
        text("os") + text("system") + P.STACK_GLOBAL,
        P.EMPTY_TUPLE + P.BINPERSID,
        opcodes(("storage", "x", "0", "cpu", 1)) + P.BINPERSID,
        opcodes(("storage", b"ctorch\nLongStorage\n", "../0", "cpu", 1)) + P.BINPERSID,
        b"(ios\nsystem\n",
        b"\x82\1",
        P.EMPTY_SET,
        P.POP,
        P.TUPLE3,
        P.APPENDS,
        P.BINGET + b"\5",
        P.LONG4 + struct.pack("<i", -5),
        b"\x8e" + struct.pack("<Q", 2**60),
        P.INT + b"9" * 5000 + b"\n",
    ],
)
def test_nothing_but_values_is_made(code: bytes, tmp_path: Path) -> None:
    before = set(vars(torch_file._tensor))
    with pytest.raises(FormatError):
        load_pt(pt(code, tmp_path / "x.pt"))
    assert set(vars(torch_file._tensor)) == before == set()


def test_opcodes_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_file, "MAX_OPCODES", 100)
    assert load_pt(pt(_memo("x", 90), tmp_path / "x.pt")) == ["x"] * 91
    with pytest.raises(FormatError, match="more than 100 opcodes"):
        load_pt(pt(_memo("x", 100), tmp_path / "x.pt"))


def test_a_memo_is_as_long_as_what_is_noted(tmp_path: Path) -> None:
    far = opcodes("x") + P.LONG_BINPUT + struct.pack("<I", 2**32 - 1)
    assert load_pt(pt(far, tmp_path / "x.pt")) == "x"


def _with(change: Callable[[zipfile.ZipInfo], None]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("a/data.pkl", P.PROTO + b"\2" + P.NONE + P.STOP)
            archive.writestr("a/data/0", b"\0" * 64)
            change(archive.infolist()[-1])
        path.write_bytes(buffer.getvalue())

    return write


def _larger(member: zipfile.ZipInfo) -> None:
    member.file_size = member.compress_size = 1 << 40


def _encrypted(member: zipfile.ZipInfo) -> None:
    member.flag_bits |= 1


def _unknown(member: zipfile.ZipInfo) -> None:
    member.compress_type = 97


@pytest.mark.parametrize("change", [_larger, _encrypted, _unknown])
def test_zips_that_lie_are_refused(
    change: Callable[[zipfile.ZipInfo], None], tmp_path: Path
) -> None:
    _with(change)(tmp_path / "x.pt")
    with pytest.raises(FormatError):
        load_pt(tmp_path / "x.pt")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_packed_members_are_refused(method: int, tmp_path: Path) -> None:
    file = pt(
        {"x": Tensor("0", (1,), (1,), 1)}, tmp_path / "x.pt", method, **{"0": np.zeros(10**6)}
    )
    with pytest.raises(FormatError, match="packed or encrypted"):
        load_pt(file)


def test_experts_and_layers_have_limits(tmp_path: Path) -> None:
    for top in (2**28, 2**62):
        ids = {"records": [{"topk_ids_of_layer": Tensor("0", (1, 2, 1), (2, 1, 1), 2)}]}
        file = pt(ids, tmp_path / "x.pt", **{"0": np.array([0, top])})
        with pytest.raises(FormatError, match="at most 4096 of 32768"):
            read_any(file, ranks=4)
    with pytest.raises(FormatError, match="at most 4096 of 32768"):
        from_load(np.zeros((5000, 1)), ranks=2)
    with pytest.raises(FormatError, match="keep the last 282 steps"):
        from_load(np.broadcast_to(np.zeros(1), (300, 58, 256)), ranks=64)
    with pytest.raises(InputError, match="beyond int32"):
        from_load([[2.0**40]], ranks=2)
    with pytest.raises(InputError, match="beyond int32"):
        from_load(np.array([[2**64 - 1]], np.uint64), ranks=2)


def test_records_of_other_shapes_are_refused(tmp_path: Path) -> None:
    flat, cube = Tensor("0", (2,), (1,), 2), Tensor("0", (1, 2, 1), (2, 1, 1), 2)
    for records in (
        [],
        {},
        [1],
        [{}],
        [{"topk_ids_of_layer": 3}],
        [{"topk_ids_of_layer": flat}],
        [{"topk_ids_of_layer": cube}, {"topk_ids_of_layer": flat}],
        [{"topk_ids_of_layer": cube, "misc_objects": 3}],
        [{"topk_ids_of_layer": cube, "misc_objects": [{"num_tokens_per_rank": 3}]}],
        [{"topk_ids_of_layer": Tensor("0", (1, 0, 1), (1, 1, 1), 2)}],
    ):
        file = pt({"records": records}, tmp_path / "x.pt", **{"0": np.zeros(2)})
        with pytest.raises(InputError):
            read_any(file, ranks=2)


@pytest.mark.parametrize(
    "shape", ["(10**12,)", "(1000000000000,)", "(2, 1000000000000)", "(-1, 2)", "()", "(" * 500]
)
@pytest.mark.parametrize("dtype", ["<i8", "|O", "<f4", "<M8[s]", "|V8"])
def test_load_tensors_that_lie_are_refused(shape: str, dtype: str, tmp_path: Path) -> None:
    head = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    raw = b"\x93NUMPY\1\0" + struct.pack("<H", len(head)) + head.encode() + b"\0" * 8
    (tmp_path / "x.npy").write_bytes(raw)
    with pytest.raises(InputError):
        read_any(tmp_path / "x.npy", ranks=2)


def saved(path: Path, method: int, **header: Any) -> Path:
    """A trace file whose digest is right, whatever its header says."""
    trace = Trace(np.ones((1, 1, 2, 3), np.int32), 1)
    arrays = {name: getattr(trace, name) for name in ARRAYS}
    full = {"railopt": "trace", "version": 1, "top_k": 1, "tokens_per_rank": 0, "model_dim": 0}
    full |= {"meta": {}, **header}
    full["digest"] = digest(full, arrays)
    with zipfile.ZipFile(path, "w", method) as archive:
        archive.writestr("header.json", json.dumps(full))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.lib.format.write_array(member, array)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
@pytest.mark.parametrize(
    "header",
    [
        {"top_k": "1"},
        {"top_k": 1.5},
        {"top_k": True},
        {"top_k": None},
        {"top_k": 2**70},
        {"tokens_per_rank": -1},
        {"tokens_per_rank": [4]},
        {"model_dim": {}},
        {"model_dim": 10**18},
        {"meta": 3},
        {"meta": None},
        {"more": 1},
    ],
)
def test_headers_of_wrong_types_are_refused(
    header: dict[str, Any], method: int, tmp_path: Path
) -> None:
    assert Trace.read(saved(tmp_path / "good.npz", method)).top_k == 1
    with pytest.raises(InputError):
        Trace.read(saved(tmp_path / "x.npz", method, **header))


def _npz(path: Path) -> None:
    counts = np.random.default_rng(0).integers(0, 9, (2, 2, 2, 4))
    Trace(counts, 2, 40, 8, meta={"model": {"ffn": 8}}).save(path)


def _npy(path: Path) -> None:
    np.save(path, np.random.default_rng(0).integers(0, 9, (2, 2, 4)))


def _records(path: Path) -> None:
    ids = Tensor("0", (2, 3, 2), (6, 2, 1), 12)
    misc = [{"num_tokens_per_rank": Tensor("1", (2,), (1,), 2)}]
    record = {"topk_ids_of_layer": ids, "misc_objects": misc, "rank": 0}
    storages = {"0": np.arange(12) % 4, "1": np.array([2, 1])}
    pt({"records": [record, record]}, path, **storages)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "suffix", "cases"),
    [(_npz, "npz", 250), (_npy, "npy", 400), (good, "pt", 250), (_records, "pt", 400)],
)
def test_damaged_files_are_read_or_refused(
    write: Callable[[Path], Any], suffix: str, cases: int, tmp_path: Path
) -> None:
    path, dice = tmp_path / f"x.{suffix}", random.Random(15)
    write(path)
    whole = path.read_bytes()
    assert isinstance(read_any(path, ranks=2), Trace)
    refusals = []
    for _ in range(cases):
        path.write_bytes(damaged(whole, dice))
        try:
            assert isinstance(read_any(path, ranks=2), Trace)
        except InputError as error:
            refusals.append(str(error))
    assert len(refusals) > cases // 5
    assert "\n" not in "".join(refusals)


@pytest.mark.slow
def test_damaged_pickles_in_sound_zips_are_read_or_refused(tmp_path: Path) -> None:
    """The zip's checksums catch most damage above; here the opcodes themselves are damaged."""
    _records(tmp_path / "x.pt")
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    dice, refusals = random.Random(15), []
    for _ in range(600):
        with zipfile.ZipFile(tmp_path / "y.pt", "w") as archive:
            for name, data in members.items():
                archive.writestr(name, damaged(data, dice) if "pkl" in name else data)
        try:
            assert isinstance(read_any(tmp_path / "y.pt", ranks=2), Trace)
        except InputError as error:
            refusals.append(str(error))
    assert len(refusals) > 300
    assert "\n" not in "".join(refusals)


def test_files_that_are_not_there_or_folders(tmp_path: Path) -> None:
    for suffix in ("npz", "pt", "npy"):
        (tmp_path / f"folder.{suffix}").mkdir()
        for name in ("none", "folder"):
            with pytest.raises(InputError, match=name):
                read_any(tmp_path / f"{name}.{suffix}", ranks=2)


def test_rows_that_a_recorder_has_not_filled_are_no_steps() -> None:
    ring = np.zeros((6, 2, 3), np.int64)
    ring[[0, 1, 4]] = 1 + np.arange(18).reshape(3, 2, 3)
    trace = from_load(ring, ranks=2)
    assert trace.iterations.tolist() == [0, 1, 4]
    np.testing.assert_array_equal(trace.load, ring[[0, 1, 4]])
    with pytest.raises(InputError, match="no tokens at all"):
        from_load(np.zeros((2, 1, 3)), ranks=2)


def test_fractions_are_no_tokens() -> None:
    with pytest.raises(InputError, match=r"fractions, the largest load is 0.75.*multiply"):
        from_load([[0.25, 0.75]], ranks=1)
    assert from_load([[2500.5, 7.0]], ranks=1).load.tolist() == [[[2500, 7]]]
    assert from_load([[3.0, 7.0]], ranks=1).load.tolist() == [[[3, 7]]]


def test_half_precision_loads_are_read_without_a_warning() -> None:
    load = np.array([[1, 65504]], np.float16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert from_load(load, ranks=2).load.tolist() == [[[1, 65504]]]


def slots_and_tokens(slots: np.ndarray, ids: np.ndarray, path: Path) -> Path:
    """A file of sglang's per-token recorder: one pass, ids of slots."""
    tensors = [
        Tensor(key, array.shape, tuple(stride // 8 for stride in array.strides), array.size)
        for key, array in (("0", ids), ("1", slots))
    ]
    data = {
        "records": [{"topk_ids_of_layer": tensors[0]}],
        "last_physical_to_logical_map": tensors[1],
    }
    return pt(data, path, **{"0": ids, "1": slots})


def test_per_token_records_name_slots_not_experts(tmp_path: Path) -> None:
    """sglang records ids after it mapped experts to slots, in columns padded with -1."""
    slots = np.array([[0, 1, 2, 3, 1, 0], [3, 2, 1, 0, 3, 3]])  # expert 4 of each layer: nowhere
    ids = np.array([[[0, 4, -1], [5, 2, -1]], [[0, 1, -1], [4, 5, -1]]])  # [layer, token, k]
    trace = read_any(slots_and_tokens(slots, ids, tmp_path / "x.pt"), ranks=1)
    assert (trace.experts, trace.top_k) == (4, 2)
    np.testing.assert_array_equal(trace.load, [[[2, 1, 1, 0], [0, 0, 1, 3]]])
    beyond = slots_and_tokens(slots, ids + 3, tmp_path / "y.pt")
    with pytest.raises(FormatError, match="holds 8: expected slots 0 to 5"):
        read_any(beyond, ranks=1)
    with pytest.raises(FormatError, match=r"shape \(1, 6\): expected whole numbers"):
        read_any(slots_and_tokens(slots[:1], ids, tmp_path / "z.pt"), ranks=1)
    with pytest.raises(FormatError, match="no token chose an expert"):
        read_any(slots_and_tokens(slots, np.full_like(ids, -1), tmp_path / "e.pt"), ranks=1)


def test_records_know_how_many_experts_a_token_has() -> None:
    records = {"records": [{"topk_ids_of_layer": np.zeros((1, 2, 1), np.int64)}]}
    with pytest.raises(InputError, match="--top-k can't do anything with a trace that knows it"):
        from_sglang(records, ranks=1, top_k=8)
