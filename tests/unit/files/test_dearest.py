"""The dearest file that each reader accepts or refuses, read by a process of its own that may use
20 seconds of a processor (others may share it: alone it takes a quarter of that) and 2 GiB.  Each
is a fork of one process that has railopt loaded.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import railopt
from railopt.base.arrays import saved_digest
from railopt.files import formats
from railopt.model import traffic
from railopt.sweep import spec

SECONDS, BYTES = 20, 2 << 30

READ = "from railopt import Fabric, Traffic; Traffic.read('{path}', Fabric.uniform({nodes}, 8))"
FABRIC = "from railopt import Fabric; Fabric.read('{path}')"
SWEEP = "from railopt.sweep import spec; spec.read('{path}')"
TRACE = "from railopt.moe.routing.files import read_trace; read_trace('{path}', ranks=1)"
LOCATION = "from railopt.moe.placement.files import read_location; read_location('{path}', 1, 1, 9)"
CHECK = "import railopt; railopt.check('{path}')"
CONVERT = "from railopt.answers.convert import convert; convert('{path}', '{path}.cm')"


# A line is a command for a fork, whose limits and seconds are its own; the answer is how it ended.
FORKS = f"""
import os, resource, sys, traceback
import railopt.answers.convert, railopt.moe.placement.files, railopt.moe.routing.files
import railopt.sweep.spec
from railopt.base.errors import RailoptError
print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if child:
        print(os.waitpid(child, 0)[1], flush=True)
        continue
    try:
        resource.setrlimit(resource.RLIMIT_AS, ({BYTES}, {BYTES}))
        resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
        try: exec(line)
        except RailoptError: pass
        os._exit(0)
    finally:
        traceback.print_exc()
        os._exit(1)
"""


def local(sizes: str, witness: str, bound: int) -> str:
    return (
        '{"railopt":"certificate","version":2,'
        f'"problem":{{"kind":"local","sizes":{sizes},"rails":2}},'
        f'"claim":{{"bound":"{bound}","optimal":false,"optimum":"open"}},"witness":{witness}}}'
    )


def dual(sizes: list[int], slack: int) -> str:
    pairs = [[size, size // 2 + size % 977] for size in set(sizes)]
    witness = json.dumps({"kind": "dual", "weights": pairs})
    return local(str(sizes), witness, sum(sizes) // 2 + slack)


def many_sizes() -> str:
    return local("[" + "1," * 5_400_000 + "1]", '{"kind":"average"}', 5)


def many_kinds() -> str:
    sizes = [10 + i * 7 % 90 for i in range(20)] * 2
    return local(str(sizes), '{"kind":"cover"}', sum(sizes) // 2 + 100)


def connections() -> str:
    line = "0->1 start 0 size 10\n"
    count = traffic.MAX_CM // len(line) - 10
    return f"Nodes 64\nConnections {count}\n" + line * count


def matrix(entry: str) -> str:
    return (f"{entry} " * (formats.MAX_RANKS - 1) + "1\n") * formats.MAX_RANKS


def grid() -> str:
    seeds = spec.MAX_INSTANCES // 100
    return f"[grid]\nnodes = {[*range(1, 101)]}\nseed = {[*range(seeds)]}\n"


def dotted() -> str:
    return "".join(".".join("a" * 62) + f".k{i}=1\n" for i in range(7_500))


def texts_within_texts() -> bytes:
    """A pickle whose name to look up is a pair of pairs of pairs ...: 2^60 of them as text."""
    pairs = b"".join(b"h" + bytes([i]) + b"h" + bytes([i]) + b"\x86\x94" for i in range(60))
    return b"\x80\x04)\x94" + pairs + b"\x8c\x01a\x93."


TEXTS: dict[str, tuple[str, str, Callable[[], str]]] = {
    "dual of 4,000 bits": ("c.json", CHECK, lambda: dual([3**2500 + 7**i for i in range(60)], 5)),
    "cover": ("c.json", CHECK, many_kinds),
    "certificate of many sizes": ("c.json", CHECK, many_sizes),
    "matrix": ("t.txt", READ.replace("{nodes}", "512"), lambda: matrix("1")),
    "matrix with signs": ("t.txt", READ.replace("{nodes}", "512"), lambda: matrix("+1")),
    ".cm": ("t.cm", READ.replace("{nodes}", "8"), connections),
    ".cm of one line": (
        "t.cm",
        READ.replace("{nodes}", "8"),
        lambda: "Nodes 64\nConnections 1\n0->1 start 0 size 1" + " a b" * 4_000_000 + "!\n",
    ),
    ".topo": ("f.topo", FABRIC, lambda: "".join(f"K{i} {i}\n" for i in range(70_000))),
    "fabric": ("f.toml", FABRIC, dotted),
    "sweep": ("s.toml", SWEEP, grid),
    "expert location": (
        "l.json",
        LOCATION,
        lambda: '{"physical_to_logical_map":[[' + "0," * 4_000_000 + "0]]}",
    ),
}


Answered = Callable[[str, Path], None]


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answered]:
    """Assert that a reader answers, with a value or an error of railopt's own."""
    words = tmp_path_factory.mktemp("forks") / "stderr"
    with (
        words.open("w") as said,
        subprocess.Popen(
            [sys.executable, "-c", FORKS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
        ) as forks,
    ):
        assert forks.stdin is not None
        assert forks.stdout is not None
        assert forks.stdout.readline() == "ready\n", words.read_text()[-500:]

        def answers(command: str, path: Path) -> None:
            assert forks.stdin is not None
            assert forks.stdout is not None
            before = words.stat().st_size
            print(command.replace("{path}", str(path)), file=forks.stdin, flush=True)
            assert forks.stdout.readline() == "0\n", words.read_text()[before:][-500:]

        yield answers


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_the_dearest_text_is_answered(name: str, answered: Answered, tmp_path: Path) -> None:
    file, command, text = TEXTS[name]
    path = tmp_path / file
    path.write_text(text())
    answered(command, path)


@pytest.mark.slow
def test_the_dearest_loads_are_answered(answered: Answered, tmp_path: Path) -> None:
    load = tmp_path / "load.npy"
    np.save(load, np.ones((1, 1024, 32768), np.int8))
    answered(TRACE, load)


@pytest.mark.slow
def test_the_dearest_traffic_is_answered(answered: Answered, tmp_path: Path) -> None:
    packed, matrix = tmp_path / "packed.npz", np.zeros((5790, 5790), np.int64)
    header = {"railopt": "traffic", "version": 1, "nodes": 1}
    digest = saved_digest("traffic", {"nodes": 1}, {"bytes": matrix})
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("header.json", json.dumps({**header, "digest": digest}))
        with archive.open("bytes.npy", "w") as member:
            np.save(member, matrix)
    answered("from railopt import Traffic; Traffic.read('{path}')", packed)


@pytest.mark.slow
def test_a_pickle_can_not_ask_for_a_text_without_end(answered: Answered, tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", texts_within_texts())
    answered(TRACE, path)


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "size"), [(2, 1 << 59), (1504, 1)])
def test_a_traffic_of_too_many_connections_is_refused(
    gpus: int, size: int, answered: Answered, tmp_path: Path
) -> None:
    path = tmp_path / "t.npz"
    railopt.Traffic(np.full((gpus, gpus), size), 2).save(path)
    answered(CONVERT, path)
    assert not (tmp_path / "t.npz.cm").exists()


@pytest.mark.slow
def test_a_plan_of_rates_that_all_differ_is_read(answered: Answered, tmp_path: Path) -> None:
    rates = np.arange(1, (1 << 17) + 1).reshape(-1, 4)
    fabric = railopt.Fabric(len(rates), 4, 4, rates, rates)
    chunks = railopt.Chunks.from_arrays(src=[0], dst=[1], size=[9], nodes=len(rates))
    railopt.Plan(fabric, chunks, np.array([0])).save(tmp_path / "p.npz")
    answered("from railopt import Plan; Plan.read('{path}')", tmp_path / "p.npz")
