"""Hostile and damaged `.npz`: refused in one sentence, before memory is taken; and fuzzed."""

from __future__ import annotations

import io
import json
import random
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Plan, Traffic, plan, workloads
from railopt.base.archive import opened
from railopt.base.arrays import digest, kind_of, read_npz
from railopt.base.errors import FormatError, InputError
from tests.damage import damaged

FABRIC = Fabric.uniform(nodes=2, rails=2)
GOOD = np.arange(16, dtype=np.int64).reshape(4, 4)


def npy(array: Any) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def header(arrays: dict[str, np.ndarray], **fields: Any) -> bytes:
    """A header whose digest is right, whatever its fields are."""
    full = {"railopt": "traffic", "version": 1, **fields}
    return json.dumps({**full, "digest": digest(full, arrays)}).encode()


def zipped(
    members: dict[str, bytes],
    method: int = zipfile.ZIP_STORED,
    change: Callable[[list[zipfile.ZipInfo]], None] | None = None,
) -> bytes:
    """A zip; `change` may lie in the list of members, which is written last."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
        if change:
            change(archive.infolist())
    return buffer.getvalue()


def of_shape(shape: str, dtype: str = "<i8", data: bytes = b"") -> bytes:
    text = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}"
    text += " " * (-(len(text) + 11) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + data


def _says(size: int) -> Callable[[list[zipfile.ZipInfo]], None]:
    def change(members: list[zipfile.ZipInfo]) -> None:
        members[-1].file_size = size

    return change


def _flag(members: list[zipfile.ZipInfo]) -> None:
    members[-1].flag_bits |= 1


def _method(members: list[zipfile.ZipInfo]) -> None:
    members[-1].compress_type = 97


def _twice(members: list[zipfile.ZipInfo]) -> None:
    members.append(members[-1])


def _traffic(**changed: bytes) -> dict[str, bytes]:
    head = header({"bytes": GOOD}, nodes=2)
    return {"header.json": head, "bytes.npy": npy(GOOD), **changed}


def _with(array: bytes) -> dict[str, bytes]:
    return {"header.json": header({"bytes": GOOD}, nodes=2), "bytes.npy": array}


def _lzma_dictionary() -> bytes:
    data = bytearray(zipped(_traffic(), zipfile.ZIP_LZMA))
    at = data.find(b"bytes.npy") + len(b"bytes.npy")
    data[at + 5 : at + 9] = b"\xff\xff\xff\xff"
    return bytes(data)


HOSTILE: dict[str, tuple[bytes, str]] = {
    "shape of 10**12": (zipped(_with(of_shape("(1000000, 1000000)"))), "its shape says"),
    "shape of 10**36": (zipped(_with(of_shape(f"({10**18}, {10**18})"))), "shape"),
    "negative shape": (zipped(_with(of_shape("(-4, -4)"))), "not a plain array"),
    "shape of texts": (zipped(_with(of_shape("('4', 4)"))), "not a plain array"),
    "deep header": (zipped(_with(of_shape("(" * 5000 + ")" * 5000))), "not a plain array"),
    "objects": (zipped(_with(npy(np.array([{1: 2}], object)))), "not a plain array"),
    "texts": (zipped(_with(npy(np.array(["x"])))), "not a plain array"),
    "records": (zipped(_with(npy(np.zeros(2, "i8,i8")))), "not a plain array"),
    "no npy": (zipped(_with(b"hello")), "not a plain array"),
    "short data": (zipped(_with(npy(GOOD)[:-8])), "its shape says"),
    "long data": (zipped(_with(npy(GOOD) + b"x")), "its shape says"),
    "3 GB in a few bytes": (
        zipped(_traffic(), zipfile.ZIP_DEFLATED, _says(3 << 30)),
        "unpacks to",
    ),
    "stored beyond the file": (zipped(_traffic(), change=_says(3 << 30)), "unpacks to"),
    "encrypted": (zipped(_traffic(), change=_flag), "encrypted"),
    "unknown method": (zipped(_traffic(), change=_method), "packed by method 97"),
    "bzip2": (zipped(_traffic(), zipfile.ZIP_BZIP2), "packed by method 12"),
    "dictionary of 4 GiB": (_lzma_dictionary(), "LZMA dictionary"),
    "twice": (zipped(_traffic(), change=_twice), "twice"),
    "unknown member": (zipped(_traffic(**{"x\n\x1b.txt": b""})), "unknown member"),
    "many members": (zipped({f"{i}.npy": b"" for i in range(100)}), "members"),
    "very many members": (zipped({f"{i}.npy": b"" for i in range(3000)}), "members"),
    "no header, two arrays": (zipped({"a.npy": npy(GOOD), "b.npy": npy(GOOD)}), "one array"),
    "no header, a pickle": (zipped({"a.npy": npy(np.array([{1: 2}], object))}), "plain array"),
    "no header, no bytes": (zipped({"a.npy": of_shape("(99999999, 99999999)")}), "shape says"),
    "header no JSON": (zipped(_traffic(**{"header.json": b"{"})), "damaged"),
    "header no UTF-8": (zipped(_traffic(**{"header.json": b"\xff\xfe"})), "damaged"),
    "header a list": (zipped(_traffic(**{"header.json": b"[]"})), "not an object"),
    "header deep": (zipped(_traffic(**{"header.json": b"[" * 100000})), "nested too deeply"),
    "header NaN": (zipped(_traffic(**{"header.json": b'{"nodes": NaN}'})), "damaged"),
    "header 5000 digits": (zipped(_traffic(**{"header.json": b"9" * 5000})), "damaged"),
    "header of 2 MB": (zipped(_traffic(**{"header.json": b" " * (2 << 20)})), "at most"),
    "a comment": (zipped(_traffic()) + b"x", "damaged"),
    "empty": (b"", "damaged"),
    "text": (b"0 1\n1 0\n" * 10, "damaged"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_archives_are_one_sentence_and_little_memory(tmp_path: Path, name: str) -> None:
    data, complaint = HOSTILE[name]
    path = tmp_path / "t.npz"
    path.write_bytes(data)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError) as found:
            Traffic.read(path, FABRIC)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert complaint in str(found.value)
    assert str(found.value).startswith(str(path))
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 500
    assert peak < 64 << 20
    kind_of(path)  # never raises


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_sound_archives_are_read_however_they_are_packed(tmp_path: Path, method: int) -> None:
    path = tmp_path / "t.npz"
    path.write_bytes(zipped(_traffic(), method))
    assert np.array_equal(Traffic.read(path).bytes, GOOD)
    assert kind_of(path) == "traffic"


def test_numpys_own_archive_is_not_loaded_as_railopts(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    path.write_bytes(zipped({"bytes.npy": npy(GOOD)}))
    assert np.array_equal(Traffic.read(path, FABRIC).bytes, GOOD)
    with pytest.raises(FormatError, match=r"no header\.json"):
        Traffic.read(path)


def test_arrays_in_columns_first_order_and_of_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    path.write_bytes(
        zipped({"a.npy": npy(np.asfortranarray(GOOD)), "b.npy": npy(np.zeros((0, 3)))})
    )
    with opened(path) as members:
        assert np.array_equal(members.array("a.npy"), GOOD)
        assert members.array("b.npy").shape == (0, 3)
        assert not members.array("a.npy").flags.writeable


WRONG: dict[str, dict[str, Any]] = {
    "nodes": {"nodes": "2"},
    "nodes of 2.0": {"nodes": 2.0},
    "nodes true": {"nodes": True},
    "no nodes": {"nodes": None},
    "nodes of 10**30": {"nodes": 10**30},
    "more": {"nodes": 2, "gpus": 2},
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_types_under_a_right_digest(tmp_path: Path, name: str) -> None:
    path = tmp_path / "t.npz"
    path.write_bytes(
        zipped({"header.json": header({"bytes": GOOD}, **WRONG[name]), "bytes.npy": npy(GOOD)})
    )
    with pytest.raises(FormatError, match="nodes"):
        Traffic.read(path)


def _plan_with(path: Path, fields: dict[str, Any], arrays: dict[str, np.ndarray]) -> None:
    """A saved plan with other fields and arrays under a digest that is right."""
    made = plan(FABRIC, workloads.zipf(FABRIC, mean="3KiB", seed=4).chunks("1KiB"), "lpt")
    made.save(path, force=True)
    head, columns = read_npz(path, "plan")
    columns |= arrays
    text = header(columns, **{"railopt": "plan", **head, **fields})
    path.write_bytes(
        zipped({"header.json": text, **{f"{name}.npy": npy(a) for name, a in columns.items()}})
    )


FABRIC_HEADER = FABRIC.header()


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"policy": 5},
        {"policy": None},
        {"policy": ["lpt"]},
        {"policy": "lpt\nproved"},
        {"policy": "\x1b[2J"},
        {"policy": "x" * 201},
        {"chunk_gpus": "2"},
        {"chunk_gpus": 0},
        {"chunk_gpus": 10**30},
        {"chunk_gpus": [2]},
        {"makespan": 3},
        {"makespan": "1/0"},
        {"fabric": 3},
        {"fabric": []},
        {"fabric": {}},
        {"fabric": {**FABRIC_HEADER, "nodes": "2"}},
        {"fabric": {**FABRIC_HEADER, "gpus": 10**30}},
        {"fabric": {**FABRIC_HEADER, "scaleup": "fast"}},
        {"fabric": {**FABRIC_HEADER, "latency_ps": None}},
        {"fabric": {**FABRIC_HEADER, "latency_ps": 2**63}},
        {"fabric": {**FABRIC_HEADER, "spine": 4}},
        {"fabric": {**FABRIC_HEADER, "spine": {"uplinks": 1}}},
        {"fabric": {**FABRIC_HEADER, "spine": {"uplinks": "1", "rate": 1}}},
        {"fabric": {**FABRIC_HEADER, "colour": 1}},
    ],
)
def test_plans_with_wrong_types_under_a_right_digest(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    path = tmp_path / "p.npz"
    _plan_with(path, fields, {})
    with pytest.raises(FormatError) as found:
        Plan.read(path)
    assert str(found.value).isprintable()


@pytest.mark.parametrize(
    "arrays",
    [
        {"rail": np.zeros(3, np.int16)},
        {"rail": np.zeros((2, 2), np.int16)},
        {"rail": np.full(1, 0.5)},
        {"size": np.array([2**62, 2**62])},
        {"tx": np.zeros((2, 2))},
        {"tx": np.full((2, 2), 2**62)},
        {"tx": np.zeros((0, 0), np.int64)},
        {"stage": np.array([-1])},
        {"offset": np.full(1, 2**63 - 1)},
    ],
)
def test_plans_with_wrong_arrays_under_a_right_digest(
    tmp_path: Path, arrays: dict[str, np.ndarray]
) -> None:
    path = tmp_path / "p.npz"
    _plan_with(path, {}, arrays)
    with pytest.raises(FormatError):
        Plan.read(path)


@pytest.mark.slow
@pytest.mark.parametrize("packed", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_fuzzed_archives_are_read_or_refused(tmp_path: Path, packed: int) -> None:
    dice = random.Random(packed)
    path = tmp_path / "f.npz"
    whole = zipped(_traffic(), packed)
    refused = []
    for _ in range(400):
        path.write_bytes(damaged(whole, dice))
        kind_of(path)
        try:
            assert np.array_equal(Traffic.read(path).bytes, GOOD)
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > 200
    assert all(map(str.isprintable, refused))


@pytest.mark.slow
def test_fuzzed_plans_are_read_or_refused(tmp_path: Path) -> None:
    dice = random.Random(7)
    path = tmp_path / "p.npz"
    made = plan(FABRIC, workloads.zipf(FABRIC, mean="3KiB", seed=4).chunks("1KiB"), "lpt")
    made.save(path)
    whole, refused = path.read_bytes(), []
    for _ in range(400):
        path.write_bytes(damaged(whole, dice))
        try:
            assert Plan.read(path) == made
        except InputError as error:
            refused.append(str(error))
    assert len(refused) > 200
    assert all(map(str.isprintable, refused))


def test_what_can_not_be_opened_is_one_sentence(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.npz", tmp_path / ("x" * 300), "a\0b.npz"):
        with pytest.raises(InputError) as found:
            read_npz(path, "traffic")
        assert str(found.value).isprintable()
        assert kind_of(path) is None
