"""Sweeps: specs, results that survive, boxes with limits, resuming, shards."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from railopt.base.errors import BackendError, InputError
from railopt.sweep import box, client, instance, results, spec

GRID = {
    "nodes": [2],
    "rails": [2],
    "traffic": ["zipf:mean=4KiB"],
    "chunk": ["1KiB"],
    "policy": ["lpt", "equitable"],
    "seed": [0, 1],
}


def test_grid_and_keys() -> None:
    sweep = spec.parse(
        {"grid": GRID, "instance": [{"policy": "pxn"}], "limit": "2s", "memory": "1GiB"}
    )
    assert len(sweep.instances) == 5
    assert sweep.instances[0].limit_s == 2.0
    assert len({point.key for point in sweep.instances}) == 5
    assert replace(sweep.instances[0], seed=7).key != sweep.instances[0].key
    assert replace(sweep.instances[0]).key == sweep.instances[0].key


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        ({}, "0 instances"),
        ({"grid": {**GRID, "seed": []}}, "list of seed is empty"),
        ({"grid": {**GRID, "speed": [1]}}, "unknown key 'speed'"),
        ({"gird": GRID}, "unknown key 'gird'"),
        ({"grid": {**GRID, "policy": ["best"]}}, "unknown policy"),
        (
            {
                "grid": {
                    "nodes": list(range(1, 1001)),
                    "rails": list(range(1, 1001)),
                    "seed": list(range(1000)),
                }
            },
            "1000000000 instances",
        ),
        ({"grid": {**GRID, "chunk": ["0B"]}}, "at least 1 byte"),
        ({"grid": {**GRID, "nodes": ["four"]}}, "whole number"),
        ({"grid": {**GRID, "traffic": ["moe:seed=1"]}}, "axis of its own"),
        ({"grid": GRID, "threads": 0}, "a whole number from 1"),
        ({"grid": GRID, "simulate": "yes"}, "true or false"),
        ({"grid": GRID, "instance": [{"x": 1}]}, "unknown key 'x'"),
    ],
)
def test_bad_specs(data: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        spec.parse(data)


def test_a_row_is_exact_and_says_where_it_comes_from() -> None:
    point = replace(spec.parse({"grid": GRID}).instances[0], simulate=True, degrade="1:0=0.5")
    row = instance.run(point)
    assert Fraction(row["gap"]) == Fraction(row["value"]) / Fraction(row["bound"]) - 1
    assert max(Fraction(row["send"]), Fraction(row["recv"])) == Fraction(row["value"])
    assert Fraction(row["simulated"]["completion"]) >= Fraction(row["value"])
    assert {"commit", "versions", "machine", "seconds"} <= set(row)
    assert json.loads(json.dumps(row)) == row


# ---------------------------------------------------------------- results
def row_of(key: str, status: str = "ok", **more: object) -> dict[str, object]:
    return {
        "key": key,
        "status": status,
        "instance": {"nodes": 2, "policy": "lpt"},
        "value": "1/3",
        "bound": "1/4",
        "gap": "1/3",
        **more,
    }


def test_rows_are_appended_and_torn_lines_dropped_and_counted(tmp_path: Path) -> None:
    first, second = results.Writer(tmp_path), results.Writer(tmp_path)
    assert first.path != second.path
    first.append(row_of("a"))
    second.append(row_of("b", "failed", error="no"))
    second.append(row_of("c", "failed", error="no"))
    first.append(row_of("c"))
    second.append(row_of("a", value="9"))  # a second client did it too: the first row counts
    with first.path.open("ab") as file:
        file.write(b'{"key":"d","status":"ok","inst')
    found = results.read(tmp_path)
    assert {row["key"] for row in found.rows} == {"a", "c"}
    assert [row["key"] for row in found.failed] == ["b"]
    assert (found.torn, found.files) == (1, 2)
    assert results.good_keys(tmp_path) == {"a", "c"}


def test_a_full_disk_loses_no_finished_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = results.Writer(tmp_path)
    writer.append(row_of("a"))
    real, calls = os.write, []

    def full(descriptor: int, data: memoryview) -> int:
        calls.append(1)
        if len(calls) == 1:
            return real(descriptor, bytes(data[:10]))  # ten bytes fit
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space") as caught:
        writer.append(row_of("b"))
    assert caught.value.filename == str(writer.path)
    monkeypatch.undo()
    writer.append(row_of("c"))
    found = results.read(tmp_path)
    assert [row["key"] for row in found.rows] == ["a", "c"]
    assert found.torn == 0


@pytest.mark.slow
def test_exports(tmp_path: Path) -> None:
    rows = [row_of("a"), row_of("b")]
    for name in ("r.csv", "s.CSV"):
        results.export(rows, tmp_path / name)
        assert (tmp_path / name).read_text().splitlines()[1].endswith(str(1 / 3))
    results.export(rows, tmp_path / "r.jsonl")
    assert len(results.read(tmp_path / "r.jsonl").rows) == 2
    results.export(rows, tmp_path / "r.parquet")
    import pyarrow.parquet

    assert pyarrow.parquet.read_table(tmp_path / "r.parquet").column("gap").to_pylist() == [
        "1/3",
        "1/3",
    ]
    with pytest.raises(InputError, match=r"\.csv"):
        results.export(rows, tmp_path / "r.xlsx")
    with pytest.raises(InputError, match="no such"):
        results.read(tmp_path / "nowhere")


@pytest.mark.slow
@pytest.mark.parametrize("value", ["x", [1], {}, 10**400, "\ud800"])
def test_a_column_that_parquet_can_not_hold_is_one_sentence(
    railopt_cli: Any, tmp_path: Path, value: object
) -> None:
    path = tmp_path / "r.jsonl"
    rows = [row_of("a", seconds=1.5), row_of("b", seconds=value)]
    path.write_bytes(b"\n".join(map(results.encode, rows)) + b"\n")
    ran = railopt_cli("results", path, "--export", tmp_path / "r.parquet")
    assert (ran.code, len(ran.err.splitlines())) == (1, 1)
    assert "column 'seconds' does not fit Parquet" in ran.err
    assert railopt_cli("results", path, "--export", tmp_path / "r.csv").code == 0


def test_a_column_that_some_rows_have() -> None:
    rows = [row_of("a"), row_of("b", optimum="open")]
    assert results.where(rows, {"optimum": "open"}) == rows[1:]
    assert results.where(rows, {"error": "None"}) == []
    with pytest.raises(InputError, match=r"no column 'colour'; columns: .*optimum"):
        results.where(rows, {"colour": "red"})


def test_only_files_are_read(tmp_path: Path) -> None:
    """Nobody ever writes into the pipe."""
    os.mkfifo(tmp_path / "a.jsonl")
    (tmp_path / "b.jsonl").write_bytes(results.encode(row_of("b")) + b"\n")
    found = results.read(tmp_path)
    assert ([row["key"] for row in found.rows], found.files) == (["b"], 1)
    assert results.good_keys(tmp_path) == {"b"}


@pytest.mark.slow
def test_ten_thousand_rows_resume_quickly(tmp_path: Path) -> None:
    writer = results.Writer(tmp_path)
    for number in range(10_000):
        writer.append(row_of(f"{number:024x}", loads=[[number] * 8] * 8))
    assert len(results.good_keys(tmp_path)) == 10_000


# ---------------------------------------------------------------- boxes, shards, commands
@pytest.mark.slow
def test_a_box_survives_what_its_instances_do() -> None:
    points = spec.parse({"grid": GRID}).instances
    mine = box.Box(memory=4 << 30, threads=1)
    try:
        assert mine.run(points[0], 120)["status"] == "ok"
        with pytest.raises(box.Failed, match="no living rail"):
            mine.run(replace(points[0], degrade="0:0=0,0:1=0"), 120)
        with pytest.raises(box.Failed, match="given up"):
            mine.run(
                replace(points[0], nodes=64, rails=8, traffic="moe:tokens=100000", chunk="4KiB"),
                0.05,
            )
        mine.run(points[1], 120)
        assert mine.pid is not None
        os.kill(mine.pid, signal.SIGKILL)
        os.waitid(os.P_PID, mine.pid, os.WEXITED | os.WNOWAIT)
        assert mine.run(points[0], 120)["status"] == "ok"  # a new process, not an error
    finally:
        mine.close()


@pytest.mark.slow
def test_memory_is_limited() -> None:
    small = spec.parse({"grid": GRID}).instances[0]
    point = replace(small, nodes=64, rails=8, traffic="uniform:size=1MiB", chunk="8KiB")
    mine = box.Box(memory=512 << 20, threads=1)
    try:
        assert mine.run(small, 120)["status"] == "ok"
        with pytest.raises(box.Failed, match=r"out of|memory|Unable to allocate"):
            mine.run(point, 120)
    finally:
        mine.close()


@pytest.mark.slow
def test_shards_resume_and_cover_everything(
    tmp_path: Path, railopt_cli: Callable[..., object]
) -> None:
    path, folder = tmp_path / "s.toml", tmp_path / "results"
    path.write_text(
        '[grid]\nnodes = [2]\nrails = [2]\ntraffic = ["zipf:mean=4KiB"]\nchunk = ["1KiB"]\npolicy '
        '= ["lpt", "equitable"]\nseed = [0, 1]\n'
    )
    ran = railopt_cli("sweep", path, "-o", folder, "--shard", "0/2", "--workers", "1", "--json")
    assert ran.code == 0
    assert json.loads(ran.out) == {
        "total": 2,
        "skipped": 0,
        "done": 2,
        "failed": 0,
        "interrupted": False,
        "reasons": {},
    }
    sweep = spec.read(path)
    assert client.run(sweep, folder, shard=(1, 2), workers=1).done == 2
    assert client.run(sweep, folder, workers=1) == (4, 4, 0, 0, False, {})
    assert json.loads(railopt_cli("sweep", path, "-o", folder, "--dry-run").out) == {
        "instances": 4,
        "left": 0,
    }
    rows = json.loads(railopt_cli("results", folder, "--json", "--where", "policy=lpt").out)
    assert [row["policy"] for row in rows] == ["lpt", "lpt"]
    assert "equitable" in railopt_cli("results", folder).out
    assert railopt_cli("results", folder, "--where", "colour=red").code == 1
    assert railopt_cli("results", folder, "--export", tmp_path / "all.csv").code == 0
    for arguments in (
        ["--shard", "2/2"],
        ["--shard", "x"],
        ["--workers", "0"],
    ):
        assert railopt_cli("sweep", path, "-o", folder, *arguments).code == 1


@pytest.mark.parametrize("more", [["--dry-run"], ["--shard", "0/1"]])
def test_results_go_into_a_folder(
    tmp_path: Path, railopt_cli: Callable[..., Any], more: list[str]
) -> None:
    path = tmp_path / "s.toml"
    path.write_text("[grid]\nnodes = [2]\nrails = [2]\n")
    for output in ("", str(path)):
        ran = railopt_cli("sweep", path, "-o", output, *more)
        assert (ran.code, ran.out) == (1, "")
        assert "expected the name of a folder" in ran.err


def test_no_part_of_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="shard 0/0: expected I/N, I from 0 to N - 1"):
        client.run(spec.parse({"grid": GRID}), tmp_path, shard=(0, 0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "content", [None, "{}", "null", "[1]", '{"address": 1}', "limit = 3", "[" * 100_000]
)
def test_a_schedulers_file_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.setattr(client, "WAIT_S", 0.2)
    file = tmp_path / "scheduler.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InputError, match="no scheduler's file; expected a JSON object"):
        client.run(spec.parse({"grid": GRID}), tmp_path / "r", cluster=str(file))


@pytest.mark.slow
def test_an_address_that_dask_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="no scheduler answers at foo://bar:1: "):
        client.run(spec.parse({"grid": GRID}), tmp_path, cluster="foo://bar:1")


def test_a_sweep_on_a_full_disk_says_where(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, railopt_cli: Callable[..., Any]
) -> None:
    def one(task: client.Task) -> str:
        raise OSError(28, "No space left on device", f"{task.folder}/x.jsonl")

    monkeypatch.setattr(client, "run_one", one)
    (tmp_path / "s.toml").write_text("[grid]\nnodes = [2]\nrails = [2]\n")
    ran = railopt_cli("sweep", tmp_path / "s.toml", "-o", tmp_path / "r", "--workers", "1")
    assert ran.code == 1
    assert ran.err.endswith("r/x.jsonl: No space left on device\n")


def test_a_row_glued_to_a_torn_one_is_computed_again(tmp_path: Path) -> None:
    whole = results.encode(row_of("b"))
    (tmp_path / "x.jsonl").write_bytes(
        results.encode(row_of("a")) + b"\n" + results.encode(row_of("t"))[:40] + whole + b"\n"
    )
    assert results.good_keys(tmp_path) == {"a"}
    found = results.read(tmp_path)
    assert ([row["key"] for row in found.rows], found.torn) == (["a"], 1)


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_no_changed_or_cut_line_passes_for_a_row(tmp_path: Path, cut: int) -> None:
    line = results.encode(row_of("a"))
    place = len(line) * cut // 40
    damaged = [
        line[:place],
        line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :],
        line[place:],
    ]
    (tmp_path / "x.jsonl").write_bytes(b"\n".join(damaged) + b"\n")
    assert results.good_keys(tmp_path) == set()
    assert results.read(tmp_path).rows == ()


def test_rows_that_are_no_text_or_no_objects_are_torn_lines(tmp_path: Path) -> None:
    lines = [b"\xff\xfe{", b"[1, 2]", b'{"key": 7, "status": "ok"}', b"[" * 100_000, b"null"]
    (tmp_path / "x.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    assert results.read(tmp_path).torn == len(lines)
    assert results.good_keys(tmp_path) == set()


def test_threads_that_share_a_writer_lose_nothing_on_a_disk_around_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, real, dice = results.Writer(tmp_path), os.write, threading.local()

    def around_full(descriptor: int, data: memoryview) -> int:
        dice.count = getattr(dice, "count", 0) + 1
        if dice.count % 3 == 1:
            return real(descriptor, bytes(data[: len(data) // 2]))
        if dice.count % 3 == 2:
            raise OSError(28, "No space left on device")
        return real(descriptor, bytes(data))

    monkeypatch.setattr(os, "write", around_full)
    written: list[str] = []

    def work(name: int) -> None:
        for number in range(200):
            try:
                writer.append(row_of(f"{name}-{number}"))
                written.append(f"{name}-{number}")
            except OSError:
                continue

    threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written) == 600
    assert results.good_keys(tmp_path) == set(written)
    assert results.read(tmp_path).torn == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; only root can make one."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    made = subprocess.run(mount, capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted: {made.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


SIX_WRITERS = """
import os, sys, threading
from railopt.sweep import client
def work(name):
    for number in range(100):
        row = {"key": f"{name}-{number}", "status": "ok", "instance": {}, "pad": "x" * 900}
        row |= {"value": "1", "bound": "1", "gap": "0"}
        try:
            client.write(sys.argv[1], row)
            os.write(1, (row["key"] + "\\n").encode())
        except OSError:
            pass
for turn in sys.stdin:
    if os.fork():
        os.wait()
        print("over", flush=True)
        continue
    print(os.getpid(), flush=True)
    threads = [threading.Thread(target=work, args=(f"{turn.strip()}-{n}",)) for n in range(6)]
    [thread.start() for thread in threads]; [thread.join() for thread in threads]
    os._exit(0)
"""


@pytest.mark.slow
def test_six_writers_on_a_full_disk_killed_in_the_middle(small_disk: Path) -> None:
    """A process a turn, each a fork of one that has railopt loaded."""
    said: set[str] = set()
    command = [sys.executable, "-c", SIX_WRITERS, str(small_disk)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as forks:
        assert forks.stdin is not None
        assert forks.stdout is not None
        for turn in range(4):
            print(turn, file=forks.stdin, flush=True)
            child = int(forks.stdout.readline())
            for count, line in enumerate(forks.stdout):
                if line == "over\n":
                    break
                said.add(line.strip())
                if turn % 2 and count == 20:
                    with suppress(ProcessLookupError):
                        os.kill(child, signal.SIGKILL)
            for full in small_disk.glob("*.jsonl"):  # makes room for the next turn
                (small_disk.parent / full.name).write_bytes(full.read_bytes())
                full.unlink()
    found = results.good_keys(small_disk.parent)
    assert len(said) > 100
    assert said <= found  # what was reported as written is there


@pytest.mark.slow
def test_a_sweep_in_which_all_fail_says_why_and_fails(
    tmp_path: Path, railopt_cli: Callable[..., Any]
) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[grid]\nnodes = [2]\nrails = [1]\ndegrade = ["0:0=0"]\nseed = [0, 1]\n')
    ran = railopt_cli("sweep", path, "-o", tmp_path / "r", "--shard", "0/1", "--workers", "1")
    assert ran.code == 2
    assert "failed 2 x: no living rail from node 0 to node 1" in ran.err
    assert len(results.read(tmp_path / "r").failed) == 2


def _good_row() -> dict[str, Any]:
    return {
        "key": "k",
        "status": "ok",
        "instance": {"nodes": 2},
        "value": "1/2",
        "bound": "1/2",
        "gap": "0",
        "optimum": "known",
        "worst_side": "send",
    }


HOSTILE = {
    "no UTF-8": b'{"key": "\xff"}',
    "no object": b"[1, 2]",
    "a number": b"7",
    "deep": b"[" * 100_000,
    "5000 digits": b"9" * 5000,
    "a key that is a list": results.encode({**_good_row(), "key": []}),
    "no instance": results.encode({**_good_row(), "instance": 3}),
    "an exponent": results.encode({**_good_row(), "value": "1e-999999999"}),
    "divides by zero": results.encode({**_good_row(), "gap": "1/0"}),
    "nan": results.encode({**_good_row(), "bound": "nan"}),
    "an exponent of a side": results.encode({**_good_row(), "send": "1e999999999"}),
    "a side that is none": results.encode({**_good_row(), "recv": None}),
    "a time of a simulation": results.encode({**_good_row(), "simulated": {"completion": "1/0"}}),
    "a simulation that is a text": results.encode({**_good_row(), "simulated": "completion"}),
    "a gap beyond a float": results.encode({**_good_row(), "gap": "9" * 308}),
    "started as a text": results.encode({**_good_row(), "started": "now"}),
    "failed without a reason": results.encode({"key": "x", "status": "failed", "instance": {}}),
}


def test_rows_that_nobody_wrote_so_are_counted_as_torn(railopt_cli: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\n".join([*HOSTILE.values(), results.encode(_good_row())]) + b"\n")
    found = results.read(path)
    assert (len(found.rows), len(found.failed), found.torn) == (1, 0, len(HOSTILE))
    assert results.good_keys(tmp_path) == {"k"}  # the others are computed again
    for flags in ([], ["--json"], ["--failed"], ["--export", tmp_path / "x.csv"]):
        ran = railopt_cli("results", path, *flags)
        assert ran.code == 0
        assert f"{len(HOSTILE)} torn lines" in ran.err


def test_a_file_of_something_else_is_no_results(railopt_cli: Any, tmp_path: Path) -> None:
    (tmp_path / "plan.npz").write_bytes(b"PK\x03\x04\nno rows\n")
    for command in (["results"], ["report", "-o", str(tmp_path / "r.html")]):
        ran = railopt_cli(command[0], tmp_path / "plan.npz", *command[1:])
        assert (ran.code, ran.out) == (1, "")
        assert "no results in it" in ran.err


def test_rows_that_differ_in_their_nics_alone_can_be_told_apart(
    railopt_cli: Any, tmp_path: Path
) -> None:
    rows = [_good_row(), _good_row()]
    for number, (row, degrade) in enumerate(zip(rows, ("", "0:1=0.5"), strict=True)):
        row["key"] = f"{number}"
        row["instance"] = {**row["instance"], "degrade": degrade, "link": "400Gb/s"}
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(map(results.encode, rows)) + b"\n")
    _, head, _, *lines = railopt_cli("results", tmp_path / "rows.jsonl").out.splitlines()
    assert "degrade" in head
    assert "link" not in head
    assert "0:1=0.5" not in lines[0]
    assert "0:1=0.5" in lines[1]


@pytest.mark.parametrize("name", ["limit_s", "simulate", "commit"])
def test_rows_of_other_limits_or_other_code_can_be_told_apart(
    railopt_cli: Any, tmp_path: Path, name: str
) -> None:
    rows = [{**_good_row(), "key": "a"}, {**_good_row(), "key": "b"}]
    for row, value in zip(rows, ("first", "second"), strict=True):
        (row if name == "commit" else row["instance"])[name] = value
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(map(results.encode, rows)) + b"\n")
    _, head, _, *lines = railopt_cli("results", tmp_path / "rows.jsonl").out.splitlines()
    assert name in head
    assert ["first" in line for line in lines] == [True, False]


def test_foreign_text_in_rows_stays_in_its_line(railopt_cli: Any, tmp_path: Path) -> None:
    row = {**_good_row(), "worst_side": "send\nproved\x1b[2J"}
    row["instance"] = {**row["instance"], "traffic": "moe\x1b[2J", "chunk": "a\nb"}
    rows = [row, {**row, "key": "b"}]
    (tmp_path / "rows.jsonl").write_bytes(b"\n".join(map(results.encode, rows)) + b"\n")
    ran = railopt_cli("results", tmp_path / "rows.jsonl")
    assert len(ran.out.splitlines()) == 5
    assert "\x1b" not in ran.out


# ---------------------------------------------------------------- files beside the spec
SPEC = """
[grid]
nodes = [2]
rails = [1]
traffic = ["mine.csv", "uniform:size=1KiB"]
chunk = ["1KiB"]
policy = ["lpt", "of_the_spec:first"]
seed = [0, 1]
"""
POLICY = """
import numpy as np
from railopt import Plan

def first(fabric, chunks):
    return Plan(fabric, chunks, np.zeros(len(chunks), np.int16), policy="first")
"""


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A spec with its traffic and its policy in a folder that is not the current one."""
    folder, elsewhere = tmp_path / "spec", tmp_path / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "spec.toml").write_text(SPEC)
    (folder / "mine.csv").write_text("0,5000\n7000,0\n")
    (folder / "of_the_spec.py").write_text(POLICY)
    monkeypatch.chdir(elsewhere)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield folder
    sys.modules.pop("of_the_spec", None)


@pytest.mark.slow
def test_files_and_policies_beside_the_spec(beside: Path, tmp_path: Path) -> None:
    sweep = spec.read(beside / "spec.toml")
    assert len(sweep.instances) == 2 + 4  # a file has no seeds
    summary = client.run(sweep, tmp_path / "results", shard=(0, 1), workers=1)
    assert (summary.done, summary.failed) == (6, 0)
    rows = results.read(tmp_path / "results").rows
    mine = [row for row in rows if row["instance"]["traffic"] == "mine.csv"]
    assert [row["bytes"] for row in mine] == [12_000, 12_000]
    assert str(beside) not in json.dumps(rows)


def test_a_file_is_known_by_its_content(beside: Path) -> None:
    first = spec.read(beside / "spec.toml").instances[0]
    (beside / "mine.csv").write_text("0,1\n7000,0\n")
    second = spec.read(beside / "spec.toml").instances[0]
    assert first.key != second.key
    with pytest.raises(InputError, match="changed since"):
        instance.run(first)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('traffic = ["other.csv"]', "neither a file in"),
        ('traffic = ["unifrom"]', "neither a file in"),
        ('traffic = ["mine.csv"]\nrails = [2]', "2 x 2, expected 4 x 4"),
        ('traffic = ["broken.csv"]', "negative"),
        ('traffic = ["mine.csv"]\nseed = [0, 1]', "can't do anything"),
        ('traffic = ["uniform:size=0B"]', "at least 1 byte"),
        ('traffic = ["moe:skw=1"]', "unknown option"),
        ('traffic = ["incast:target=64"]', "expected a GPU"),
        ('link = ["400"]', "has no unit"),
        ('degrade = ["9:9=0.5"]', "9"),
        ('policy = ["of_the_spec:second"]', "no function 'second'"),
        ("seed = [99999999999999999999]", "whole number"),
    ],
)
def test_a_spec_that_can_not_run_is_refused(beside: Path, line: str, complaint: str) -> None:
    (beside / "broken.csv").write_text("0,-1\n1,0\n")
    grid = f"[grid]\nnodes = [2]\n{line}\n" + ("rails = [1]\n" if "rails" not in line else "")
    (beside / "spec.toml").write_text(grid)
    with pytest.raises(InputError, match=complaint):
        spec.read(beside / "spec.toml")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"timeout": "40000min"}, "at most 1000000 s"),
        ({"timeout": "3s", "limit": "20s"}, "more than the solver's limit of 20 s"),
        ({"timeout": "0s"}, "expected more than"),
        ({"instance": 5}, "expected .* tables"),
        ({"threads": True}, "expected a whole number"),
        ({"name": 5}, "expected a text"),
        ({"memory": "1KiB"}, "at least 64MiB"),
    ],
)
def test_options_that_can_not_be(more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        spec.parse({"grid": GRID, **more})
