"""The dearest file that each reader accepts or refuses, read by a process of its own that may use
20 seconds of a processor (others may share it: alone it takes a quarter of that) and 2 GiB.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import railopt
from railopt.base.arrays import save_npz
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


LIMITED = (
    "import resource\n"
    f"resource.setrlimit(resource.RLIMIT_AS, ({BYTES}, {BYTES}))\n"
    f"resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))\n"
)


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


def answered(command: str, path: Path) -> None:
    """The reader answers, with a value or an error of railopt's own."""
    code = LIMITED + (
        "from railopt.base.errors import RailoptError\n"
        f"try: {command.replace('{path}', str(path))}\nexcept RailoptError: pass"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_the_dearest_text_is_answered(name: str, tmp_path: Path) -> None:
    file, command, text = TEXTS[name]
    path = tmp_path / file
    path.write_text(text())
    answered(command, path)


@pytest.mark.slow
def test_the_dearest_arrays_are_answered(tmp_path: Path) -> None:
    load = tmp_path / "load.npy"
    np.save(load, np.ones((1, 1024, 32768), np.int8))
    answered(TRACE, load)
    packed = tmp_path / "packed.npz"
    save_npz(packed, "traffic", {"nodes": 1}, {"bytes": np.zeros((5790, 5790), np.int64)})
    with zipfile.ZipFile(packed) as stored:
        parts = {name: stored.read(name) for name in stored.namelist()}
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as again:
        for name, data in parts.items():
            again.writestr(name, data)
    answered("from railopt import Traffic; Traffic.read('{path}')", packed)


@pytest.mark.slow
def test_a_pickle_can_not_ask_for_a_text_without_end(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a/data.pkl", texts_within_texts())
    answered(TRACE, path)


@pytest.mark.slow
@pytest.mark.parametrize(("gpus", "size"), [(2, 1 << 59), (1504, 1)])
def test_a_traffic_of_too_many_connections_is_refused(gpus: int, size: int, tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    railopt.Traffic(np.full((gpus, gpus), size), 2).save(path)
    answered(CONVERT, path)
    assert not (tmp_path / "t.npz.cm").exists()


@pytest.mark.slow
def test_a_plan_of_rates_that_all_differ_is_read(tmp_path: Path) -> None:
    rates = np.arange(1, (1 << 17) + 1).reshape(-1, 4)
    fabric = railopt.Fabric(len(rates), 4, 4, rates, rates)
    chunks = railopt.Chunks.from_arrays(src=[0], dst=[1], size=[9], nodes=len(rates))
    railopt.Plan(fabric, chunks, np.array([0])).save(tmp_path / "p.npz")
    answered("from railopt import Plan; Plan.read('{path}')", tmp_path / "p.npz")
