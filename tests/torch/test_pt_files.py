"""`.pt` files of routing records: what torch.save writes is read, anything else is refused in one
sentence, and nothing in a file is run.
"""

from __future__ import annotations

import pickle
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from railopt.base.errors import FormatError, InputError
from railopt.moe.routing.files import read_trace
from railopt.moe.routing.trace import Trace
from tests.damage import damaged

P = pickle
LOAD = np.arange(12).reshape(2, 2, 3)


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


def good(path: Path) -> Path:
    torch.save({"logical_count": torch.from_numpy(LOAD)}, path)
    return path


def records(path: Path) -> Path:
    ids = torch.arange(12).remainder(4).reshape(2, 3, 2)
    misc = [{"num_tokens_per_rank": torch.tensor([2, 1])}]
    record = {"topk_ids_of_layer": ids, "misc_objects": misc, "rank": 0}
    torch.save({"records": [record, record]}, path)
    return path


def test_what_torch_writes_is_read(tmp_path: Path) -> None:
    stat = read_trace(good(tmp_path / "x.pt"), ranks=4, top_k=2)
    np.testing.assert_array_equal(stat.load, LOAD)
    assert "assumed even" in stat.meta["sources"]
    with pytest.raises(InputError, match="--routed-experts can't do anything"):
        read_trace(tmp_path / "x.pt", ranks=1, routed_experts=12)
    torch.save(torch.from_numpy(LOAD), tmp_path / "bare.pt")
    np.testing.assert_array_equal(read_trace(tmp_path / "bare.pt", ranks=2).load, LOAD)
    torch.save(torch.from_numpy(LOAD).to(torch.bfloat16), tmp_path / "odd.pt")
    with pytest.raises(FormatError, match="the tensor: "):
        read_trace(tmp_path / "odd.pt", ranks=2)
    tokens = read_trace(records(tmp_path / "r.pt"), ranks=2)
    assert (tokens.top_k, tokens.experts) == (2, 4)
    torch.save({"weights": 1}, tmp_path / "other.pt")
    with pytest.raises(FormatError, match="expected 'logical_count' or 'records'"):
        read_trace(tmp_path / "other.pt", ranks=2)


def test_a_tensor_is_no_larger_than_its_data(tmp_path: Path) -> None:
    for shape, stride in (
        ((10**9,), (0,)),
        ((10**6, 10**6), (0, 0)),
        ((4, 4), (3, 1)),
        ((13,), (1,)),
    ):
        tensor = Tensor("0", shape, stride, 12)
        file = pt({"logical_count": tensor}, tmp_path / "x.pt", **{"0": LOAD})
        with pytest.raises(InputError):
            read_trace(file, ranks=2)


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
    with pytest.raises(FormatError) as error:
        read_trace(pt(code, tmp_path / "x.pt"), ranks=2)
    assert "\n" not in str(error.value)


def test_code_in_a_file_does_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "ran",)

    torch.save({"logical_count": Evil()}, tmp_path / "x.pt")
    with pytest.raises(FormatError, match=r"not a \.pt file of plain values and tensors"):
        read_trace(tmp_path / "x.pt", ranks=2)
    assert not (tmp_path / "ran").exists()


def test_files_that_are_not_there_or_folders(tmp_path: Path) -> None:
    (tmp_path / "folder.pt").mkdir()
    for name in ("none", "folder"):
        with pytest.raises(InputError, match=name):
            read_trace(tmp_path / f"{name}.pt", ranks=2)


@pytest.mark.parametrize("write", [good, records])
def test_damaged_files_are_read_or_refused(write: Any, tmp_path: Path) -> None:
    path, dice, refusals = tmp_path / "x.pt", random.Random(15), []
    whole = write(path).read_bytes()
    assert isinstance(read_trace(path, ranks=2), Trace)
    for _ in range(150):
        path.write_bytes(damaged(whole, dice))
        try:
            assert isinstance(read_trace(path, ranks=2), Trace)
        except InputError as error:
            refusals.append(str(error))
    assert len(refusals) > 30
    assert "\n" not in "".join(refusals)
