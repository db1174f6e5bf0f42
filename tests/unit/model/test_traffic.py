"""Traffic, its generators, and every format it is read from and written to."""

from __future__ import annotations

import io
import json
import random
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from railopt import Fabric, Traffic, plan, traffic_from, workloads
from railopt.base.errors import FormatError, InputError
from railopt.files.formats import format_topo
from railopt.model.fabric import Spine
from railopt.runtime.senders.loopback import Loopback
from tests.damage import damaged, damaged_text

FABRIC = Fabric.uniform(nodes=2, rails=2)


def some_traffic() -> Traffic:
    return workloads.zipf(FABRIC, mean="3KiB", seed=4)


@pytest.mark.parametrize("name", ["t.npz", "t.npy", "t.csv", "t.txt", "t"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    traffic = some_traffic()
    traffic.save(tmp_path / name)
    assert Traffic.read(tmp_path / name, FABRIC) == traffic


def test_cm_round_trip_keeps_what_crosses_nodes(tmp_path: Path) -> None:
    traffic = some_traffic()
    traffic.save(tmp_path / "t.cm")
    back = Traffic.read(tmp_path / "t.cm", FABRIC)
    assert np.array_equal(back.node_matrix, traffic.node_matrix)
    assert back == Traffic.from_chunks(traffic.chunks("flow"))


def test_comments_tabs_signs_and_large_entries(tmp_path: Path) -> None:
    path = tmp_path / "m.txt"
    path.write_text("# bytes\r\n0\t1 2 3\r\n\n +1 0 0 0\n0 0 0 999999999999999999\n  0 0 0 0")
    assert Traffic.read(path, FABRIC).bytes.tolist() == [
        [0, 1, 2, 3],
        [1, 0, 0, 0],
        [0, 0, 0, 10**18 - 1],
        [0, 0, 0, 0],
    ]


def test_the_spine_of_a_topo_has_the_speed_of_its_tier() -> None:
    text = format_topo(8, 4, 400, 500)
    at = text.rindex("Downlink_speed_Gbps 400")
    fabric = Fabric.from_topo(text[:at] + text[at:].replace("Gbps 400", "Gbps 100"))
    assert fabric.tx.tolist() == [[50 * 10**9] * 4] * 8
    assert fabric.spine == Spine(8, 12_500_000_000)


@pytest.mark.parametrize("suffix", [".npz", ".npy", ".csv", ".cm"])
def test_a_suffix_in_upper_case_is_the_same(tmp_path: Path, suffix: str) -> None:
    traffic = Traffic(np.array([[0, 5], [7, 0]]), 2)
    for name in (f"t{suffix}", f"T{suffix.upper()}"):
        traffic.save(tmp_path / name)
        assert Traffic.read(tmp_path / name, Fabric.uniform(2, 1)) == traffic
    same = (tmp_path / f"t{suffix}").read_bytes(), (tmp_path / f"T{suffix.upper()}").read_bytes()
    assert same[0] == same[1]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1 2\n3", "row 1: 1 columns, expected 2"),
        ("1 2 3\n4 5 6\n", "square"),
        ("", "no rows"),
        ("0 -1\n1 0", "negative"),
        ("0 1.5\n1 0", "whole number"),
        ("0 x\n1 0", "whole number"),
        ("0 1\n1 0", "expected 4 x 4"),
        ("0 99999999999999999999\n1 0", "beyond int64"),
        ("0 9223372036854775808\n1 0", "beyond int64"),
        (f"0 {'9' * 5000}\n1 0", "beyond int64"),
        ("0 1\n1 0\n1 1", "row 2: 2 columns, expected no more rows"),
        ("0 1\0\n1 0", "whole number"),
        ("0 ²\n1 0", "whole number"),
        ("0 nan\n1 0", "whole number"),
        ("0,1\n1,0", r"column 0: '0,1' is not .*; a file with commas needs .* ends in \.csv"),
        ("1 " * 9_000, "more than 4096 columns"),
        ("1 " * 300_000, "600000 characters"),
        ("\n \n\t\n# nothing", "no rows"),
        ("\n" * 100_000, "more than 16384 lines"),
    ],
)
def test_bad_matrix(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "matrix.txt"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        Traffic.read(path, FABRIC)


@pytest.mark.parametrize(
    ("matrix", "complaint"),
    [
        (np.zeros((4, 3), int), "4 x 3"),
        (np.full((4, 4), -1), "negative"),
        (np.full((4, 4), 0.5), "0.5"),
        (np.array([["a"] * 4] * 4), "expected integers"),
        (np.zeros((6, 6), int), "expected 4 x 4"),
        (np.full((4, 4), 2**60), "expected less than 2"),
        (np.zeros(4, int), "dimensions"),
    ],
)
def test_bad_arrays(matrix: np.ndarray, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Traffic.from_matrix(matrix, FABRIC)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("hello", "Nodes"),
        ("Nodes 4\nConnections 2\n0->1 start 0 size 5", "expected 2 connections"),
        ("Nodes 4\nConnections 1\n0->9 start 0 size 5", "beyond Nodes"),
        ("Nodes 4\nConnections 1\n0 1 5", "is not 'src->dst"),
        ("Nodes 9\nConnections 1\n0->1 start 0 size 5", "expected 4"),
        ("Nodes 4\nNodes 4\nConnections 0", "two lines"),
        (f"Nodes {'9' * 5000}\nConnections 0", "no 'Nodes n' line"),
        ("Nodes 4\nConnections 999999999999", "expected 999999999999 connections"),
        (f"Nodes 4\nConnections 1\n0->1 start 0 size {'9' * 30}", "is not 'src->dst"),
    ],
)
def test_bad_cm(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "t.cm"
    path.write_text(text)
    with pytest.raises(FormatError, match=complaint):
        Traffic.read(path, FABRIC)


def _archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return buffer.getvalue()


def _npy(array: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def test_bad_npz(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    some_traffic().save(path)
    whole = path.read_bytes()
    header = json.dumps({"railopt": "traffic", "version": 1, "nodes": 2, "digest": "00"}).encode()
    cases = {
        "truncated": whole[: len(whole) // 2],
        "not a zip": b"nothing",
        "flipped byte": whole[:-200] + bytes([whole[-200] ^ 1]) + whole[-199:],
        "two of numpy's": _archive(
            {f"{name}.npy": _npy(np.zeros((4, 4), np.int64)) for name in "ab"}
        ),
        "a pickle": _archive(
            {"header.json": header, "bytes.npy": _npy(np.array([{1: 2}], object))}
        ),
        "wrong digest": _archive(
            {"header.json": header, "bytes.npy": _npy(np.zeros((4, 4), np.int64))}
        ),
        "another kind": _archive({"header.json": header.replace(b"traffic", b"plan")}),
        "later version": _archive(
            {"header.json": header.replace(b'"version": 1', b'"version": 7')}
        ),
    }
    for data in cases.values():
        path.write_bytes(data)
        with pytest.raises(FormatError):
            Traffic.read(path, FABRIC)


def test_existing_files_are_kept_without_force(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    path.write_text("precious")
    with pytest.raises(InputError, match="exists"):
        some_traffic().save(path)
    assert path.read_text() == "precious"
    assert [file.name for file in tmp_path.iterdir()] == ["t.npz"]
    some_traffic().save(path, force=True)
    assert Traffic.read(path) == some_traffic()


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(workloads.WORKLOADS))
def test_workloads_are_seeded_and_silent_on_the_diagonal(name: str) -> None:
    fabric = Fabric.uniform(4, 2, gpus=4 if name == "prophet" else 3)  # which splits a batch evenly
    first, again, other = (
        workloads.from_spec(f"{name}:seed={seed}", fabric).chunks("1MiB") for seed in (5, 5, 6)
    )
    assert first == again
    assert first.node_matrix.sum() > 0
    if name not in ("uniform", "incast", "hot-node", "megatron"):  # without draws
        assert first != other


def test_moe_conserves_tokens() -> None:
    fabric = Fabric.uniform(2, 2)
    traffic = workloads.moe(fabric, tokens=100, top_k=2, hidden=16, experts=7, seed=3)
    assert traffic.bytes.sum(axis=1).tolist() == [100 * 2 * 16] * 4


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("mo:skew=1", "known workloads"),
        ("moe:skw=1", "unknown option"),
        ("moe:skew=x", "not a number"),
        ("moe:skew=nan", "not a number"),
        ("moe:skew=1e-999999999", "not a number"),
        ("moe:skew=1/0", "divides by zero"),
        ("moe:seed=1.5", "whole number"),
        ("moe:seed=-1", "whole number from 0"),
        ("moe:seed=9223372036854775808", "whole number from 0"),
        (f"moe:seed={'9' * 5000}", "whole number from 0"),
        ("moe:seed=1,seed=2", "given twice"),
        ("moe:tokens=4000000000000000000", "or more"),
        ("moe:experts=1000000000000", "experts"),
        ("hot-node:size=4611686018427387903,factor=1000", "less than 2"),
        ("moe:skew=-1", "expected 0"),
        ("uniform:size=0B", "at least 1 byte"),
        ("sparse:zeros=1.5", "expected 0"),
        ("moe:top_k=9,experts=4", "top_k"),
        ("incast:target=64", "expected a GPU"),
    ],
)
def test_bad_specs(spec: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        workloads.from_spec(spec, FABRIC)


def test_traffic_by_its_name_is_a_text_or_a_path(tmp_path: Path) -> None:
    some_traffic().save(tmp_path / "t.csv")
    assert traffic_from(tmp_path / "t.csv", FABRIC) == some_traffic()
    for odd in (None, 5, b"moe", np.zeros((4, 4))):
        with pytest.raises(InputError, match="expected a file's name or a workload's spec"):
            traffic_from(odd, FABRIC)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a Fabric"):
        traffic_from("moe", some_traffic())  # type: ignore[arg-type]
    for name in ("", "a\0b", "x" * 5000):
        with pytest.raises(InputError, match="neither a file nor a workload"):
            traffic_from(name, FABRIC)


def test_a_whole_number_is_a_number_too() -> None:
    assert workloads.from_spec("zipf:skew=1", FABRIC) == workloads.zipf(FABRIC, skew=1.0)
    assert workloads.zipf(FABRIC, skew=1) == workloads.zipf(FABRIC, skew=1.0)


def test_more_gpus_than_a_matrix_has_are_refused() -> None:
    with pytest.raises(InputError, match="at most 8192"):
        workloads.uniform(Fabric.uniform(nodes=100_000, rails=8))


def _save(traffic: Traffic, path: Path) -> None:
    if path.name.endswith("long.csv"):
        rows = [f"{i},{j},{traffic.bytes[i, j]}" for i, j in np.argwhere(traffic.bytes)]
        path.write_text("\n".join(["src,dst,bytes", *rows]))
    elif path.name.endswith("numpy.npz"):
        np.savez(path, traffic.bytes)
    else:
        traffic.save(path)


def _damaged_words(text: str, suffix: str, dice: random.Random) -> bytes:
    mark = "," if suffix == ".csv" else " "
    return damaged_text(text.replace(mark, " "), dice).replace(" ", mark).encode()


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".txt", ".csv", "long.csv", ".npy", "numpy.npz", ".cm"])
def test_fuzzed_files_are_read_or_refused(tmp_path: Path, suffix: str) -> None:
    dice = random.Random(suffix)
    path = tmp_path / f"t{suffix}"
    _save(some_traffic(), path)
    binary = path.suffix in (".npy", ".npz")
    whole, refused = path.read_bytes(), []
    for _ in range(1000):
        data = whole if binary else _damaged_words(whole.decode(), path.suffix, dice)
        path.write_bytes(damaged(data, dice) if data is whole or dice.random() < 0.3 else data)
        try:
            Traffic.read(path, FABRIC)
        except InputError as error:
            refused.append(str(error))
    assert 200 < len(refused) < 1000
    assert all(line.isprintable() and len(line) < 500 for line in refused)


def test_fuzzed_specs_are_read_or_refused() -> None:
    dice = random.Random(3)
    specs = ["moe:skew=0.8,seed=1,tokens=64", "zipf:mean=4KiB,skew=1", "incast:target=1,size=1KiB"]
    made, refused = 0, []
    for _ in range(1000):
        spec = dice.choice(specs)
        for mark in (",", "=", ":"):
            if dice.random() < 0.5:
                spec = damaged_text(spec.replace(mark, " "), dice).replace(" ", mark)
        try:
            workloads.from_spec(spec, FABRIC)
            made += 1
        except InputError as error:
            refused.append(str(error))
    assert made > 100
    assert all(line.isprintable() and len(line) < 500 for line in refused)


def test_flows_are_those_between_nodes() -> None:
    traffic = workloads.zipf(Fabric.uniform(4, 2, gpus=3), skew=1.5, seed=1)
    bytes_ = traffic.bytes.copy()
    bytes_[::2, 1] = 0
    traffic = Traffic(bytes_, 4)
    node = np.arange(12) // 3
    expected = [
        (i, j, bytes_[i, j])
        for i in range(12)
        for j in range(12)
        if node[i] != node[j] and bytes_[i, j]
    ]
    assert list(zip(*traffic.flows(), strict=True)) == expected
    assert len(traffic.chunks("flow")) == len(expected)


def test_much_memory_is_said_before_it_is_taken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    traffic = workloads.uniform(FABRIC)
    traffic.save(tmp_path / "t.npz")
    traffic.chunks("flow")
    Traffic.read(tmp_path / "t.npz")
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("railopt.base.errors._commands", 1)
    monkeypatch.setattr("railopt.model.chunks.CHUNK_BYTES", 10**9)
    monkeypatch.setattr("railopt.base.arrays.MUCH", 300)
    flows = len(traffic.chunks("flow"))
    assert capsys.readouterr().err == f"railopt: {flows} chunks take about {flows} GB of memory\n"
    Traffic.read(tmp_path / "t.npz")
    assert "t.npz has 0.0 GB: it takes 3 to 5 times" in capsys.readouterr().err
    monkeypatch.setattr("railopt.model.routed.PAIR_BYTES", 10**9)
    gpus = FABRIC.nodes * FABRIC.gpus
    workloads.uniform(FABRIC)
    taken = f"traffic between {gpus} GPUs takes up to {gpus**2} GB of memory"
    assert capsys.readouterr().err == f"railopt: {taken}\n"
    monkeypatch.setattr("railopt.runtime.senders.loopback.MUCH", 300)
    Loopback().run(plan(FABRIC, traffic.chunks("flow"), "lpt")).wait(30)
    said = f"railopt: loopback: {flows} chunks take about 0.0 GB of buffers\n"
    assert capsys.readouterr().err == said


def test_a_cm_of_many_nics_and_one_flow_is_refused_before_there_is_room_for_it(
    tmp_path: Path,
) -> None:
    file = tmp_path / "one.cm"
    file.write_text("Nodes 60000\nConnections 1\n0->59999 id 1 start 0 size 1000\n")
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="60000 htsim nodes, at most 8192"):
            Traffic.read(file, Fabric.uniform(30000, 2))
        assert tracemalloc.get_traced_memory()[1] < 10**9
    finally:
        tracemalloc.stop()
