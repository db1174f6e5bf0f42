"""Foreign and hostile routing records: read, or refused in one sentence, in bounded memory."""

from __future__ import annotations

import json
import random
import struct
import sys
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
from railopt.moe.routing.files import from_load, from_routed, from_sglang, read_trace
from railopt.moe.routing.trace import ARRAYS, Trace
from tests.damage import damaged

MEMORY = 256 << 20  # bytes that a refusal may take


@pytest.fixture(autouse=True)
def _in_bounded_memory() -> Iterator[None]:
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY


LOAD = np.arange(12).reshape(2, 2, 3)


def test_plain_tensors_are_loads_or_routed_experts(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", LOAD)
    np.savez(tmp_path / "x.npz", load=LOAD)
    (tmp_path / "Y.NPZ").write_bytes((tmp_path / "x.npz").read_bytes())
    for file in (tmp_path / "x.npy", tmp_path / "x.npz", tmp_path / "Y.NPZ"):
        np.testing.assert_array_equal(read_trace(file, ranks=2).load, LOAD)
        routed = read_trace(file, ranks=1, routed_experts=12)  # 2 tokens, 2 layers, top-3
        assert (routed.top_k, routed.experts, routed.records) == (3, 12, "serving steps")
        for token, layer in np.ndindex(2, 2):
            chosen = np.flatnonzero(routed.counts[token, layer, 0])
            np.testing.assert_array_equal(chosen, LOAD[token, layer])
    with pytest.raises(InputError, match="from 0 to 11: expected 0 to 9"):
        read_trace(tmp_path / "x.npy", ranks=1, routed_experts=10)
    with pytest.raises(InputError, match="--top-k can't do anything"):
        read_trace(tmp_path / "x.npy", ranks=1, routed_experts=12, top_k=3)
    np.savez(tmp_path / "two.npz", a=LOAD, b=LOAD)
    with pytest.raises(FormatError, match="expected a railopt trace, or one array"):
        read_trace(tmp_path / "two.npz", ranks=1)
    with pytest.raises(InputError, match="unknown kind of trace"):
        read_trace(tmp_path / "x.bin", ranks=1)


def test_ids_of_experts_are_not_taken_for_loads(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    ids = rng.random((40, 3, 64)).argsort(axis=2)[:, :, :6]
    np.save(tmp_path / "ids.npy", ids)
    with pytest.raises(InputError, match=r"\(40, 3, 6\).*--routed-experts N.*--top-k K") as error:
        read_trace(tmp_path / "ids.npy", ranks=2)
    assert "\n" not in str(error.value)
    assert read_trace(tmp_path / "ids.npy", ranks=2, routed_experts=64).experts == 64
    assert read_trace(tmp_path / "ids.npy", ranks=2, top_k=2).experts == 6, "loads, it was said"
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
        assert read_trace(tmp_path / "load.npy", ranks=2).experts == 6, why


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


def test_experts_and_layers_have_limits() -> None:
    for top in (2**28, 2**62):
        ids = {"records": [{"topk_ids_of_layer": np.array([[[0], [top]]])}]}
        with pytest.raises(FormatError, match="at most 4096 of 32768"):
            from_sglang(ids, ranks=4)
    with pytest.raises(FormatError, match="at most 4096 of 32768"):
        from_load(np.zeros((5000, 1)), ranks=2)
    with pytest.raises(FormatError, match="keep the last 282 steps"):
        from_load(np.broadcast_to(np.zeros(1), (300, 58, 256)), ranks=64)
    with pytest.raises(InputError, match="beyond int32"):
        from_load([[2.0**40]], ranks=2)
    with pytest.raises(InputError, match="beyond int32"):
        from_load(np.array([[2**64 - 1]], np.uint64), ranks=2)


@pytest.mark.slow
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
        read_trace(tmp_path / "x.npy", ranks=2)


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


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize(
    ("write", "suffix", "cases"),
    [(_npz, "npz", 250), (_npy, "npy", 400)],
)
def test_damaged_files_are_read_or_refused(
    write: Callable[[Path], Any], suffix: str, cases: int, tmp_path: Path
) -> None:
    path, dice = tmp_path / f"x.{suffix}", random.Random(15)
    write(path)
    whole = path.read_bytes()
    assert isinstance(read_trace(path, ranks=2), Trace)
    refusals = []
    for _ in range(cases):
        path.write_bytes(damaged(whole, dice))
        try:
            assert isinstance(read_trace(path, ranks=2), Trace)
        except InputError as error:
            refusals.append(str(error))
    assert len(refusals) > cases // 5
    assert "\n" not in "".join(refusals)


def test_files_that_are_not_there_or_folders(tmp_path: Path) -> None:
    for suffix in ("npz", "npy"):
        (tmp_path / f"folder.{suffix}").mkdir()
        for name in ("none", "folder"):
            with pytest.raises(InputError, match=name):
                read_trace(tmp_path / f"{name}.{suffix}", ranks=2)


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


def slots_and_tokens(slots: np.ndarray, ids: np.ndarray) -> dict[str, Any]:
    """A file of sglang's per-token recorder: one pass, ids of slots."""
    return {"records": [{"topk_ids_of_layer": ids}], "last_physical_to_logical_map": slots}


def test_per_token_records_name_slots_not_experts() -> None:
    """sglang records ids after it mapped experts to slots, in columns padded with -1."""
    slots = np.array([[0, 1, 2, 3, 1, 0], [3, 2, 1, 0, 3, 3]])  # expert 4 of each layer: nowhere
    ids = np.array([[[0, 4, -1], [5, 2, -1]], [[0, 1, -1], [4, 5, -1]]])  # [layer, token, k]
    trace = from_sglang(slots_and_tokens(slots, ids), ranks=1)
    assert (trace.experts, trace.top_k) == (4, 2)
    np.testing.assert_array_equal(trace.load, [[[2, 1, 1, 0], [0, 0, 1, 3]]])
    with pytest.raises(FormatError, match="holds 8: expected slots 0 to 5"):
        from_sglang(slots_and_tokens(slots, ids + 3), ranks=1)
    with pytest.raises(FormatError, match=r"shape \(1, 6\): expected whole numbers"):
        from_sglang(slots_and_tokens(slots[:1], ids), ranks=1)
    with pytest.raises(FormatError, match="no token chose an expert"):
        from_sglang(slots_and_tokens(slots, np.full_like(ids, -1)), ranks=1)


def test_records_of_other_shapes_are_refused() -> None:
    flat, cube = np.zeros(2, np.int64), np.zeros((1, 2, 1), np.int64)
    for records in (
        [],
        {},
        [1],
        [{}],
        [{"topk_ids_of_layer": 3}],
        [{"topk_ids_of_layer": flat}],
        [{"topk_ids_of_layer": cube}, {"topk_ids_of_layer": flat}],
        [{"topk_ids_of_layer": cube[:, :0]}],
    ):
        with pytest.raises(InputError):
            from_sglang({"records": records}, ranks=2)
    with pytest.raises(FormatError, match="expected 'logical_count' or 'records'"):
        from_sglang({"weights": 1}, ranks=2)


@pytest.mark.slow
def test_a_record_named_many_times_is_refused() -> None:
    record = {"topk_ids_of_layer": np.zeros((1, 1000, 12), np.int64)}
    with pytest.raises(FormatError, match="record fewer steps"):
        from_sglang({"records": [record] * 20_000}, ranks=2)


def test_pt_files_need_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"x\.pt: reading \.pt files needs PyTorch"):
        read_trace(tmp_path / "x.pt", ranks=2)


def test_records_know_how_many_experts_a_token_has() -> None:
    records = {"records": [{"topk_ids_of_layer": np.zeros((1, 2, 1), np.int64)}]}
    with pytest.raises(InputError, match="--top-k can't do anything with a trace that knows it"):
        from_sglang(records, ranks=1, top_k=8)
