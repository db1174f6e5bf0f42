"""Hostile and damaged files: the checker refuses each with one sentence, in bounded time and
memory.

Each file is checked by a process of its own that may use 1 GiB, and 15 seconds of a processor that
others may share.  These processes are forks of one that has loaded the checker and nothing else.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import struct
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import railopt
from railopt import Chunks, Fabric, Plan
from railopt.answers.gap import gap
from railopt.base.arrays import digest
from railopt.checker import need_plain_zip
from railopt.evidence.certificate import certify

kernel = railopt.checker
SECONDS, BYTES = 15, 1 << 30


# For each line FILE, as `python -S checker.py FILE > FILE.out 2> FILE.err` does; prints exit codes.
ALONE = f"""import os, resource, sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("checker", sys.argv[1])
sys.modules["checker"] = checker = module_from_spec(spec)
spec.loader.exec_module(checker)
for line in sys.stdin:
    child = os.fork()
    if not child:
        resource.setrlimit(resource.RLIMIT_AS, ({BYTES}, {BYTES}))
        resource.setrlimit(resource.RLIMIT_CPU, ({SECONDS}, {SECONDS}))
        for stream, end in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(line[:-1] + end, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
        sys.exit(checker.main([line[:-1]]))
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)"""


class Done(NamedTuple):
    """What the checker answered about a file."""

    code: int
    out: str
    err: str


Alone = Callable[[Path], Done]


@pytest.fixture(scope="module")
def alone() -> Iterator[Alone]:
    """Check a file in a process of its own."""
    command = [sys.executable, "-S", "-I", "-c", ALONE, str(kernel.__file__)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as loaded:
        assert loaded.stdin is not None
        assert loaded.stdout is not None
        given, codes = loaded.stdin, loaded.stdout

        def run(path: Path) -> Done:
            print(path, file=given, flush=True)
            code = int(codes.readline())
            return Done(code, *(Path(f"{path}{end}").read_text() for end in (".out", ".err")))

        yield run


def assert_refused(path: Path, alone: Alone) -> None:
    done = alone(path)
    said = (done.out + done.err).strip()
    assert done.code in (1, 4), said[-300:]
    assert "Traceback" not in said
    assert len(said.splitlines()) == 1, said
    assert len(said) < 600
    assert said.isprintable(), repr(said)


def certificate(
    problem: dict[str, Any], witness: Any, bound: str = "5", **more: Any
) -> dict[str, Any]:
    claim = {"bound": bound, "optimal": False, "optimum": "open"}
    return {
        "railopt": "certificate",
        "version": 2,
        "problem": problem,
        "claim": claim,
        "witness": witness,
        **more,
    }


def local(sizes: list[int], witness: Any, bound: object = 5, rails: int = 2) -> dict[str, Any]:
    return certificate({"kind": "local", "sizes": sizes, "rails": rails}, witness, str(bound))


def coupled(
    nodes: int, rates: list[int], chunks: dict[str, list[int]], witness: Any, bound: str = "5000"
) -> dict[str, Any]:
    problem = {
        "kind": "coupled",
        "nodes": nodes,
        "rails": len(rates),
        "tx": [rates] * nodes,
        "rx": [rates] * nodes,
        "chunks": chunks,
    }
    return certificate(problem, witness, bound)


AVERAGE = {"kind": "average"}
SPREAD = [10**6 + 7919 * i * i % 99991 for i in range(300)]
LONG = {"src": [0] * 40, "dst": [1] * 40, "size": list(range(3000, 3040))}


CERTIFICATES: dict[str, Callable[[], Any]] = {
    "30,000 nodes": lambda: coupled(
        30_000,
        [1],
        {"src": [0], "dst": [1], "size": [1]},
        {"kind": "joint", "send": [0], "recv": []},
    ),
    "60,000 sizes in a cover": lambda: local(
        [10**9 + 7 * i for i in range(60_000)], {"kind": "cover"}, bound=30_000 * 10**9 + 10**12
    ),
    "60,000 equal sizes in a cover": lambda: local([3] * 60_000 + [2], {"kind": "cover"}, 90_004),
    "sets without end in a cover": lambda: local(
        SPREAD[:80], {"kind": "cover"}, sum(SPREAD[:80]) // 2 + 9
    ),
    "weights without end in a dual": lambda: local(
        SPREAD,
        {"kind": "dual", "weights": [[size, size // 2 + size % 977] for size in set(SPREAD)]},
        sum(SPREAD) // 2 + 5000,
    ),
    "3,000 rails in a joint witness": lambda: coupled(
        2, [1] * 3000, LONG, {"kind": "joint", "send": [0], "recv": [1]}
    ),
    "1,000 different rails in a joint witness": lambda: coupled(
        2, [*range(600, 1600)], LONG, {"kind": "joint", "send": [0], "recv": [1]}, "8"
    ),
    "a side named 50,000 times": lambda: coupled(
        2, [1] * 8, LONG, {"kind": "joint", "send": [0] * 50_000, "recv": [1]}, "20000"
    ),
    "chunks of 2^4000 in a joint witness": lambda: coupled(
        2,
        [1] * 8,
        {"src": [0] * 40, "dst": [1] * 40, "size": [2**4000 + i * i for i in range(40)]},
        {"kind": "joint", "send": [0], "recv": [1]},
        str(5 * 2**4000 + 2569),
    ),
    "3,000 rails in prices of whole chunks": lambda: coupled(
        2, [1] * 3000, LONG, {"kind": "whole", "send": [[1] * 3000] * 2, "recv": [[0] * 3000] * 2}
    ),
    "300 far ends with sums of their own": lambda: coupled(
        300,
        [1] * 40,
        {
            "src": [0] * 8970,
            "dst": [1 + i % 299 for i in range(8970)],
            "size": [997 + i for i in range(8970)],
        },
        {"kind": "whole", "send": [[1] * 40] * 300, "recv": [[0] * 40] * 300},
        "200000",
    ),
    "chunks of 2^4000 in prices of whole chunks": lambda: coupled(
        2,
        [1, 1],
        {"src": [0, 0], "dst": [1, 1], "size": [2**4000, 1]},
        {"kind": "whole", "send": [[1, 1]] * 2, "recv": [[0, 0]] * 2},
        str(2**4000),
    ),
    "many GPUs on many rails, by a solver's word": lambda: certificate(
        {
            "kind": "moved",
            "time": "1000000",
            "tx": [[1] * 20_000] * 2,
            "rx": [[1] * 20_000] * 2,
            "gpus": 4096,
            "near": [[]] * 20_000,
            "units": {
                "src_gpu": list(range(4096)),
                "dst": [1] * 4096,
                "size": [1] * 4096,
                "targets": [[]] * 4096,
            },
        },
        {"kind": "claimed", "by": "x"},
        "0",
        assignment=[0] * 4096,
    ),
    "as many speeds as jobs, which weigh nothing": lambda: certificate(
        {"kind": "local", "sizes": [3] * 20_000 + [2], "speeds": list(range(10, 20_010))},
        {"kind": "dual", "weights": [[3, 0]]},
        "1",
    ),
    "as many speeds as jobs": lambda: certificate(
        {"kind": "local", "sizes": [3] * 20_000 + [2], "speeds": list(range(10, 20_010))},
        {"kind": "cover"},
        "1",
    ),
    "a bound of 1,300 digits for many speeds": lambda: certificate(
        {"kind": "local", "sizes": [1, 2], "speeds": list(range(1, 300_000))},
        {"kind": "average"},
        f"{'9' * 1300}/{'7' * 1299}1",
    ),
    "a million rails": lambda: local([3, 2, 2], {"kind": "cover"}, rails=1 << 20),
    "more rails than may be": lambda: local([3, 2, 2], AVERAGE, rails=1 << 40),
    "a number with an exponent": lambda: local([3, 2, 2], AVERAGE, bound="1e999999999"),
    "a denominator of 0": lambda: local([3, 2, 2], AVERAGE, bound="1/0"),
    "a plan elsewhere": lambda: certificate(
        {
            "kind": "coupled",
            "nodes": 1,
            "rails": 1,
            "tx": [[1]],
            "rx": [[1]],
            "plan": {"file": "../../../etc/passwd", "digest": ""},
        },
        AVERAGE,
    ),
    "a forged line": lambda: (
        local(
            [3, 2, 2], {"kind": "claimed", "by": "x\n\x1b[1mc.json: optimal, average, bound 9"}, 10
        )
        | {"assignment": [0, 1, 9]}
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_hostile_certificate_is_refused(name: str, tmp_path: Path, alone: Alone) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(CERTIFICATES[name]()))
    assert_refused(path, alone)


TEXTS = {
    "nested lists": b"[" * 200_000,
    "nested objects": b'{"a":' * 200_000,
    "a number of 5,000 digits": b'{"railopt": "certificate", "version": ' + b"9" * 5000 + b"}",
    "a number of 5,000,000 digits": b"9" * 5_000_000,
    "a number with a huge exponent": b'{"railopt": "certificate", "version": 1e999999999}',
    "no number": b'{"railopt": "certificate", "version": NaN}',
    "a key twice": b'{"railopt": "certificate", "railopt": "certificate", "version": 1}',
    "20,000,000 empty lists": b"[" + b"[]," * 20_000_000 + b"[]]",
    "nothing": b"",
    "not UTF-8": b'{"railopt": "\xff\xfe"}',
    "a zip's two letters": b"PK",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", TEXTS)
def test_a_hostile_text_is_refused(name: str, tmp_path: Path, alone: Alone) -> None:
    path = tmp_path / "c.json"
    path.write_bytes(TEXTS[name])
    assert_refused(path, alone)


def test_what_a_terminal_can_not_print_is_escaped(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps(local([3, 2, 2], {"kind": "claimed", "by": "\u00e9\u4e2d"}, 3)))
    done = subprocess.run(
        [sys.executable, "-S", str(kernel.__file__), str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert r"claimed by \xe9\u4e2d" in done.stdout


def test_what_a_certificate_says_is_printed_as_one_line(tmp_path: Path, alone: Alone) -> None:
    record = local([3, 2, 2], {"kind": "claimed", "by": "x\nc.json: optimal\x1b[2J\u202e"}, 4)
    path = tmp_path / "c.json"
    path.write_text(json.dumps(record))
    done = alone(path)
    assert done.code == 0
    assert len(done.out.splitlines()) == 1
    assert done.out.strip().isprintable()
    assert "claimed by x\\nc.json: optimal\\x1b[2J\\u202e" in done.out


# ---------------------------------------------------------------- plan files


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    fabric = Fabric.uniform(3, 2, link="8Gb/s")
    chunks = Chunks.from_arrays(src=[0, 0, 1, 2], dst=[1, 2, 2, 0], size=[10, 20, 30, 40], nodes=3)
    Plan(fabric, chunks, np.array([0, 1, 0, 1])).save(tmp_path / "plan.npz")
    return tmp_path / "plan.npz"


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewrite(path: Path, parts: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(path, "w", compression, compresslevel=1) as archive:
        for name, data in parts.items():
            archive.writestr(name, data)


def npy(shape: str, data: bytes = b"", descr: str = "<i8") -> bytes:
    text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


def with_header(path: Path, **changes: Any) -> None:
    """The same plan with other values in its header, under a digest that is right for them."""
    parts = members(path)
    header = {**json.loads(parts["header.json"]), **changes}
    del header["digest"]
    arrays = {
        name[:-4]: np.load(io.BytesIO(data)) for name, data in parts.items() if name[-4:] == ".npy"
    }
    header["digest"] = digest(header, arrays)
    rewrite(path, {**parts, "header.json": json.dumps(header).encode()})


def replaced(name: str, data: bytes) -> Callable[[Path], None]:
    return lambda path: rewrite(path, {**members(path), name: data})


def encrypted(path: Path) -> None:
    data = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        at = data.find(signature)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(signature, at + 4)
    path.write_bytes(data)


def duplicated(path: Path) -> None:
    with (
        zipfile.ZipFile(path, "a") as archive,
        pytest.warns(UserWarning, match="Duplicate"),
    ):
        archive.writestr("tx.npy", npy("(1,)", bytes(8)))


def many_members(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for i in range(2000):
            archive.writestr(f"{i}.npy", b"")


def unknown_compression(path: Path) -> None:
    data = bytearray(path.read_bytes())
    at = data.find(b"PK\x01\x02")
    data[at + 10] = 77
    path.write_bytes(data)


PLANS: dict[str, Callable[[Path], None]] = {
    "a shape of 10^12": replaced("tx.npy", npy("(1000000000000,)")),
    "a shape of 10^24": replaced("tx.npy", npy("(1000000000000, 1000000000000)")),
    "a shape with an operator": replaced("tx.npy", npy("(2**99,)")),
    "an object array": replaced("tx.npy", npy("(1,)", bytes(8), descr="|O")),
    "a header of brackets": replaced("tx.npy", npy("(" * 60_000)),
    "a zip bomb": lambda path: rewrite(
        path, {**members(path), "bomb.npy": bytes(300 << 20)}, zipfile.ZIP_DEFLATED
    ),
    "LZMA": lambda path: rewrite(path, members(path), zipfile.ZIP_LZMA),
    "BZ2": lambda path: rewrite(path, members(path), zipfile.ZIP_BZIP2),
    "an encrypted member": encrypted,
    "an unknown compression": unknown_compression,
    "a member twice": duplicated,
    "2,000 members": many_members,
    "no header": lambda path: rewrite(path, {"tx.npy": npy("(1,)", bytes(8))}),
    "a header that is a list": replaced("header.json", b"[]"),
    "a header of nested lists": replaced("header.json", b"[" * 100_000),
    "a makespan that is a list": lambda path: with_header(path, makespan=[1]),
    "another kind": lambda path: with_header(path, railopt="\n\x1b[2Jplan"),
    "another version": lambda path: with_header(path, version={"a": 1}),
    "half a file": lambda path: path.write_bytes(path.read_bytes()[:700]),
    "a damaged member": lambda path: path.write_bytes(
        path.read_bytes().replace(np.array([10, 20], np.int64).tobytes(), bytes(16))
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANS)
def test_a_hostile_plan_is_refused(name: str, plan_file: Path, alone: Alone) -> None:
    PLANS[name](plan_file)
    assert_refused(plan_file, alone)


@pytest.mark.parametrize("fabric", [None, 7, "x", {"nodes": 10**12, "rails": -1}, {"nodes": []}])
def test_a_plans_header_under_a_right_digest_can_not_lie(fabric: Any, plan_file: Path) -> None:
    with_header(plan_file, fabric=fabric)
    assert not kernel.check(plan_file).ok
    assert not railopt.check(plan_file).ok


# ---------------------------------------------------------------- fuzz

CASES = 300


def mutated(data: bytes, dice: random.Random) -> bytes:
    """`data` with bytes changed, cut out, or doubled, at up to four places."""
    damaged = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        at = dice.randrange(len(damaged))
        action = dice.randrange(4)
        if action == 0:
            damaged[at] = dice.randrange(256)
        elif action == 1:
            damaged[at] ^= 1 << dice.randrange(8)
        elif action == 2:
            del damaged[at : at + dice.randrange(1, 30)]
        else:
            damaged[at:at] = damaged[at : at + dice.randrange(1, 30)]
    return bytes(damaged)


def refused_by_both(path: Path) -> bool:
    """Whether the checker refuses the file, by a verdict or an error of its own; the library, too,
    raises nothing but its own errors.
    """
    try:
        refused = not kernel.check(path, work=200_000).ok
    except (OSError, ValueError):
        refused = True
    with contextlib.suppress(railopt.errors.RailoptError):
        railopt.check(path)
    return refused


@pytest.mark.slow
def test_damaged_plans_are_refused(plan_file: Path, tmp_path: Path) -> None:
    dice, whole, refused = random.Random(5), plan_file.read_bytes(), 0
    path = tmp_path / "damaged.npz"
    for _ in range(CASES):
        path.write_bytes(mutated(whole, dice))
        refused += refused_by_both(path)
    assert refused > 0.9 * CASES


@pytest.mark.slow
def test_damaged_certificates_are_refused(plan_file: Path, tmp_path: Path) -> None:
    plan = Plan.read(plan_file)
    report = gap(plan, limit_s=0)
    texts = [
        certify(plan, report.bracket).to_json(),
        json.dumps(local([6, 6, 6, 4, 4], {"kind": "cover", "capacity": 13}, 14)),
    ]
    dice, refused, path = random.Random(6), 0, tmp_path / "damaged.json"
    for i in range(CASES):
        path.write_bytes(mutated(texts[i % len(texts)].encode(), dice))
        refused += refused_by_both(path)
    assert refused > 0.8 * CASES


@pytest.mark.parametrize("broken", ["list", "member"])
def test_members_under_another_name_are_refused(tmp_path: Path, broken: str) -> None:
    path = tmp_path / "plan.npz"
    fabric = Fabric.uniform(2, 2)
    railopt.plan(fabric, railopt.workloads.moe(fabric, seed=1), "lpt").save(path)
    data = bytearray(path.read_bytes())
    need_plain_zip(io.BytesIO(data))
    if broken == "list":  # the last name reaches beyond the list
        data[data.rindex(b"PK\1\2") + 29] = 8
    else:
        data[data.index(b"tx.npy")] = ord("r")
    with pytest.raises(ValueError, match="a member under another name"):
        need_plain_zip(io.BytesIO(data))
