"""Tables as other programs write them: CSV, DataFrames, tensors; read, or refused in a sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import railopt
from railopt import Fabric, Traffic
from railopt.base.errors import InputError
from railopt.files.tabular import format_csv, parse_csv

FABRIC = Fabric.uniform(nodes=2, rails=1)
WANTED = [[0, 5], [7, 0]]


@pytest.mark.parametrize(
    "text",
    [
        "0,5\n7,0\n",
        "\ufeff0,5\r\n7,0\r\n\r\n",
        '"0", "5"\n7 ,0',
        "0.0,5e0\n7.00,0",
        "a,b\n0,5\n7,0",
        ",a,b\na,0,5\nb,7,0",
        "from/to,a,b\na,0,5\nb,7,0",
        ",0,1\n0,0,5\n1,7,0",
        "0,1\n0,5\n7,0",
        "0,0,5\n1,7,0",
        '"gpu 0","gpu 1"\n"gpu 0",0,5\n"gpu 1",7,0',
        "src,dst,bytes\n0,1,5\n1,0,7",
        "# a comment\n0,5\n# another\n7,0",
        "# src,dst,bytes\n0,1,5\n1,0,7",
        "# a comment\nsrc,dst,bytes\n0,1,5\n1,0,7",
        "# made by us\n# src,dst,bytes\n0,1,5\n1,0,7",
        "# dst,src,bytes\nsrc,dst,bytes\n0,1,5\n1,0,7",
        "a,0,5\nb,7,0",
        '"gpu 0",0,5\n"gpu 1",7,0',
        "Bytes,Dst,Src\n5,1,0\n7,0,1",
        "src,dst,bytes\n0,1,2\n1,0,7\n0,1,3.0",
    ],
)
def test_a_csv_as_people_write_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    assert Traffic.read(path, FABRIC).bytes.tolist() == WANTED


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "no rows"),
        ("# nothing", "no rows"),
        ("a,b", "labels and no numbers"),
        ("0,5\n7", "1 numbers, the first row has 2"),
        ("0,5,1\n7,0,1\n1,1,1\n1,1,1\n1,1,1", "5 x 3 numbers"),
        ("0,-5\n7,0", "negative"),
        ("0,nan\n7,0", "not a number of bytes"),
        ("0,inf\n7,0", "not a number of bytes"),
        ("0,1.5\n7,0", "not a whole number"),
        ("0,\n7,0", "labelled '7'"),
        ("0,5\n7,", "an empty cell"),
        ("0;5\n7;0", "with commas between"),
        ("0,9223372036854775808\n7,0", "not a whole number below"),
        ("0,1e99\n7,0", "not a whole number below"),
        (f"0,{'9' * 5000}\n7,0", "is not a number of bytes"),
        ("b,a\na,0,5\nb,7,0", "column 'b' where row 'a'"),
        ("1,0\n0,5\n7,0", "labelled '1' where 0"),
        ("0,0x10\n0,0", "'0x10' in it is no number"),
        ("0x10,5\n7,0", "'0x10' in it is no number"),
        ("x,0,1\na,0,5\nb,7,0", "column '0' where row 'a'"),
        ("0,5\nb,7,0", "a label, 'b', unlike the first"),
        ("a,0,5,1\nb,7,0,1\n1,1,0", "row 2 has no label"),
        (",src,dst,bytes\n0,0,1,5\n1,1,0,7", "long form has these three alone"),
        ("src,dst,bytes,n\n0,1,5,1\n1,0,7,1\n0,0,0,0\n0,0,0,0", "these three alone"),
        ("a,b,c,d\n0,5\n7,0", "4 labels above 2 columns"),
        ("0,5,6\n7,0,6\n1,1,1", "expected 2 x 2"),
        ("src,dst,bytes\n0,2,5", "dst goes from 2 to 2: expected 0 to 1"),
        ("src,dst,bytes\n0,1", "2 cells, expected 3"),
        ("src,dst,bytes\n0,1,-5", "negative"),
        ("src,dst,bytes\n0,1,nan", "not a number of bytes"),
        (f"src,dst,bytes\n0,1,{2**61}\n0,1,{2**61}", "expected less than 2"),
        ("0," * 200_000, "400000 characters"),
        ("0\n" * 9_000, "9000 rows"),
        ('"' + "x" * 150_000 + '"\n1', "at most 98304"),
    ],
)
def test_a_csv_that_is_none(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint) as caught:
        Traffic.read(path, FABRIC)
    assert str(caught.value).startswith("t.csv")


def test_long_form_alone_is_empty_traffic() -> None:
    assert not parse_csv("src,dst,bytes\n", 2).any()
    with pytest.raises(InputError, match="from 1 to 4096"):
        parse_csv("src,dst,bytes\n", 10**9)


def test_a_log_of_too_many_rows_is_refused_before_it_is_cut() -> None:
    with pytest.raises(InputError, match="more than 8388608 rows"):
        parse_csv("\n" * (1 << 25), 2)


def test_a_large_csv_is_read_row_by_row() -> None:
    matrix = np.arange(300 * 300, dtype=np.int64).reshape(300, 300)
    assert np.array_equal(parse_csv(format_csv(matrix), 300), matrix)


def test_numpys_files(tmp_path: Path) -> None:
    for name, array in (
        ("whole.npy", np.array(WANTED, np.uint8)),
        ("float.npy", np.array(WANTED, np.float32)),
        ("fortran.npy", np.asfortranarray(np.array(WANTED))),
    ):
        np.save(tmp_path / name, array)
        assert Traffic.read(tmp_path / name, FABRIC).bytes.tolist() == WANTED
    np.savez(tmp_path / "one.npz", np.array(WANTED))
    np.savez_compressed(tmp_path / "packed.npz", bytes=np.array(WANTED))
    for name in ("one.npz", "packed.npz"):
        assert Traffic.read(tmp_path / name, FABRIC).bytes.tolist() == WANTED
        railopt.convert(tmp_path / name, tmp_path / f"{name}.csv", FABRIC)
        assert Traffic.read(tmp_path / f"{name}.csv", FABRIC).bytes.tolist() == WANTED


def test_a_file_that_changes_later_does_not_change_the_traffic(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"
    np.save(path, np.array(WANTED))
    traffic = Traffic.read(path, FABRIC)
    with path.open("r+b") as file:
        file.seek(-8, 2)
        file.write(b"\xff" * 8)
    assert traffic.bytes.tolist() == WANTED


@pytest.mark.parametrize(
    ("array", "complaint"),
    [
        (np.array([[0, np.nan], [7, 0]]), "holds nan"),
        (np.array([[0, np.inf], [7, 0]]), "holds inf"),
        (np.array([[0, 2.0**53], [7, 0]]), "below 2"),
        (np.array([[0, -5], [7, 0]]), "negative"),
        (np.array([0, 5]), "1 dimensions"),
        (np.zeros((2, 2, 2), np.int64), "3 dimensions"),
        (np.zeros((3, 3), np.int64), "expected 2 x 2"),
        (np.array([["a", "b"], ["c", "d"]]), "expected integers"),
        (np.array([[0, 2**64 - 1], [7, 0]], np.uint64), "beyond the range"),
    ],
)
def test_arrays_that_are_no_traffic(tmp_path: Path, array: np.ndarray, complaint: str) -> None:
    np.save(tmp_path / "t.npy", array)
    with pytest.raises(InputError, match=complaint):
        Traffic.read(tmp_path / "t.npy", FABRIC)


def test_hostile_npy(tmp_path: Path) -> None:
    path = tmp_path / "t.npy"
    np.save(path, np.array([{1: 2}], object), allow_pickle=True)
    with pytest.raises(InputError, match="not a plain array"):
        Traffic.read(path, FABRIC)
    np.save(path, np.zeros((2, 2), np.int64))
    path.write_bytes(path.read_bytes().replace(b"(2, 2)", b"(9999,)").replace(b" }", b"}"))
    with pytest.raises(InputError, match="not a plain array"):
        Traffic.read(path, FABRIC)
    with pytest.raises(InputError, match="No such file"):
        Traffic.read(tmp_path / "none.npy", FABRIC)


class Frame:
    """As much of a pandas.DataFrame as is asked for."""

    def __init__(self, columns: dict[Any, list[Any]], index: list[Any] | None = None) -> None:
        self.data = {name: np.array(values) for name, values in columns.items()}
        self.columns = list(columns)
        self.index = range(len(next(iter(self.data.values())))) if index is None else index

    def __getitem__(self, name: Any) -> Any:
        return type("Series", (), {"to_numpy": lambda _: self.data[name]})()

    def to_numpy(self) -> np.ndarray:
        return np.stack(list(self.data.values()), axis=1)


def test_data_frames() -> None:
    for frame in (
        Frame({0: [0, 7], 1: [5, 0]}),
        Frame({"a": [0.0, 7.0], "b": [5.0, 0.0]}, ["a", "b"]),
        Frame({"src": [0, 1, 0], "dst": [1, 0, 1], "bytes": [2, 7, 3]}),
    ):
        assert Traffic.from_matrix(frame, FABRIC).bytes.tolist() == WANTED
    for frame, complaint in (
        (Frame({"b": [0, 7], "a": [5, 0]}, ["a", "b"]), "column 'b' where row 'a'"),
        (Frame({0: [0, 7], 1: [5, np.nan]}), "holds nan"),
        (Frame({"src": [0], "dst": [9], "bytes": [1]}), "dst goes from 9 to 9"),
        (Frame({"src": [0], "dst": [1], "bytes": [-1]}), "negative"),
        (Frame({0: [0, 7], 1: [5, 0], 2: [5, 0]}), "2 x 3"),
    ):
        with pytest.raises(InputError, match=complaint):
            Traffic.from_matrix(frame, FABRIC)


class Tensor:
    """As much of a torch.Tensor on a device as is asked for."""

    def __init__(self, values: Any, where: str = "cuda") -> None:
        self.values, self.where = np.array(values), where

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return Tensor(self.values, "cpu")

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        if self.where != "cpu":
            raise TypeError("can't convert cuda:0 device type tensor to numpy")
        return self.values


def test_tensors() -> None:
    assert Traffic.from_matrix(Tensor(WANTED), FABRIC).bytes.tolist() == WANTED
    assert Traffic.from_matrix(Tensor(np.float32(WANTED)), FABRIC).bytes.tolist() == WANTED


def test_ragged_lists() -> None:
    with pytest.raises(InputError, match="not a 2-dimensional array"):
        Traffic.from_matrix([[0, 5], [7]], FABRIC)


def test_traffic_is_planned_as_its_chunks_are() -> None:
    traffic = Traffic.from_matrix([[0, 5 << 20], [7 << 20, 0]], FABRIC)
    plan = railopt.plan(FABRIC, traffic, chunk="256KiB", policy="lpt")
    assert plan == railopt.plan(FABRIC, traffic.chunks("256KiB"), "lpt")
    assert railopt.plan(FABRIC, traffic) == railopt.plan(FABRIC, traffic.chunks("1MiB"))
    with pytest.raises(InputError, match="cut already"):
        railopt.plan(FABRIC, traffic.chunks("flow"), chunk="1MiB")


@pytest.mark.parametrize("name", ["t.csv", "t.npy", "t.txt", "t.npz"])
def test_certificates_are_held_against_each_kind_of_file(tmp_path: Path, name: str) -> None:
    fabric = Fabric.uniform(nodes=2, rails=1, gpus=2)
    traffic = railopt.workloads.zipf(fabric, mean="3KiB", seed=4)
    traffic.save(tmp_path / name)
    report = railopt.gap(railopt.plan(fabric, traffic), limit_s=0)
    report.certificate.save(tmp_path / "c.json")
    assert railopt.check(tmp_path / "c.json", tmp_path / name).ok
    railopt.workloads.zipf(fabric, mean="3KiB", seed=5).save(tmp_path / name, force=True)
    assert not railopt.check(tmp_path / "c.json", tmp_path / name).ok


def test_masked_entries_are_refused() -> None:
    masked = np.ma.array(WANTED, mask=[[False, True], [False, False]])
    with pytest.raises(InputError, match="masked entries"):
        Traffic.from_matrix(masked, FABRIC)
    assert Traffic.from_matrix(np.ma.array(WANTED), FABRIC).bytes.tolist() == WANTED
