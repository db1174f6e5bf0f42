"""`railopt-verified` and the checker say the same of every certificate of the test-suite, of
mutants of them, and of damaged files; what is dear to one may be refused by the other.

The certificates are those that `make test RECORD=FOLDER` has left in $RAILOPT_RECORD; without it,
those of the checker's own tests, recorded first.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Certificate, Chunks, Fabric, check, plan
from railopt.base.errors import BackendError, FormatError, InputError, printable
from railopt.evidence import verified
from railopt.evidence.certificate import plan_digest
from railopt.moe.joint import Demand, NodePrices
from railopt.symbolic.search import counterexamples
from tests.forged import contradictions, falsehood, forgeries
from tests.proofs.saying import said
from tests.unit.test_checker_hostile import CERTIFICATES

kernel = importlib.import_module("railopt.checker")
ROOT = Path(__file__).resolve().parents[2]
# whose certificates and plans are recorded where $RAILOPT_RECORD has none of all tests
RECORDED = [
    "test_checker.py",
    "test_checker_moved.py",
    "test_checker_staged.py",
    "evidence/test_certificate.py",
    "answers/test_check.py",
    "moe/micro/test_solve.py",
    "moe/test_joint.py",
]
MUTANTS = 2400  # at most: three of each certificate where that is fewer, else one of so many
KINDS = {"local", "coupled", "fluid", "moved", "staged", "split", "layer"}
LEAVES = b'"leaf"'  # links above leaves, which the program does not know
DAMAGED = 150  # files of each sort
FIGURES = {"rails", "scale_up", "nic", "gpus", "scale_out"}  # that decide what a hot GPU takes


@pytest.fixture(scope="module")
def program(theory: Path) -> str:
    """The program, built from the theory as it is."""
    made = subprocess.run(
        ["make", "-C", str(theory.parent / "verified")], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stdout + made.stderr
    return verified.program()


@pytest.fixture(scope="module")
def recorded(program: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Every certificate and plan that tests hand to the checker, in folders."""
    if left := os.environ.get("RAILOPT_RECORD"):
        found = sorted(Path(left).glob("*/recorded.*"))
        assert found, f"nothing in {left}: run `make test RECORD={left}` first"
        return [file for file in found if LEAVES not in file.read_bytes()]
    folder = tmp_path_factory.mktemp("recorded")
    environ = {**os.environ, "RAILOPT_RECORD": str(folder)}
    tests = [str(ROOT / "tests" / "unit" / name) for name in RECORDED]
    plugins = ["-p", "tests.proofs.recording", "-p", "no:cacheprovider", "-p", "no:xdist"]
    line = [sys.executable, "-m", "pytest", "-q", *plugins, *tests]
    done = subprocess.run(line, env=environ, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    found = sorted(folder.glob("*/recorded.*"))
    return [file for file in found if LEAVES not in file.read_bytes()]


def by_program(files: list[Path]) -> list[dict[str, Any]]:
    """What the program says of each file."""
    said: list[dict[str, Any]] = []
    for i in range(0, len(files), 400):
        line = [verified.program(), "--json", "--seconds", "5", *map(str, files[i : i + 400])]
        done = subprocess.run(line, capture_output=True, text=True, check=False)
        assert done.stderr == ""
        said += [json.loads(answer) for answer in done.stdout.splitlines()]
    assert [answer["file"] for answer in said] == [str(file) for file in files]
    return said


def differ(verdict: dict[str, Any], answer: dict[str, Any]) -> str:
    """How the checker's verdict differs from the program's; "" if it does not, or if neither
    accepts the file, or one of them refuses it as too dear.
    """
    if "error" in answer:
        return f"{verdict}, the program can't: {answer['error']}" if verdict["ok"] else ""
    if "refused" in verdict["message"] or "refused" in answer["message"]:
        return ""
    ours, theirs = (
        [said[name] for name in ("ok", "optimal", "optimum")]
        + [printable(said["kind"])]  # a solver's name is foreign text
        + [said[name] and Fraction(said[name]) for name in ("bound", "value", "best")]
        for said in (verdict, answer)
    )
    if ours == theirs or not (verdict["ok"] or answer["ok"]):
        return ""
    return f"the checker {ours} {verdict['message']}, the program {theirs} {answer['message']}"


def disagreement(file: Path, answer: dict[str, Any]) -> str:
    """As `differ`, with the file's name.  A verdict that was recorded is asked again only if it
    differs: a test may have planted a fault in the checker.
    """
    recorded = file.with_name("verdict")
    if recorded.is_file() and not differ(json.loads(recorded.read_bytes()), answer):
        return ""
    try:
        verdict = said(kernel.check(file, work=2_000_000))
    except (OSError, ValueError) as error:
        return f"{file}: unreadable ({error}), the program: {answer}" if answer.get("ok") else ""
    found = differ(verdict, answer)
    return f"{file}: {found}" if found else ""


def assert_agreed(files: list[Path]) -> int:
    """No disagreement on any of the files; how many the program accepts."""
    said = by_program(files)
    found = [disagreement(file, answer) for file, answer in zip(files, said, strict=True)]
    assert [text for text in found if text] == []
    return sum(answer.get("ok", False) for answer in said)


def problem_kind(file: Path) -> str:
    """Of a certificate; "" of anything else."""
    record = json.loads(file.read_bytes()) if file.suffix == ".json" else None
    problem = record.get("problem") if isinstance(record, dict) else None
    return str(problem.get("kind")) if isinstance(problem, dict) else ""


def test_every_certificate_of_the_test_suite(recorded: list[Path]) -> None:
    assert len(recorded) > 400
    assert {problem_kind(file) for file in recorded} >= KINDS
    assert assert_agreed(recorded) > 80


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The path of every number, text, list and object in a record."""
    found = [path] if path else []
    inner = enumerate(value) if isinstance(value, list) else ()
    for key, item in value.items() if isinstance(value, dict) else inner:
        found += places(item, (*path, key))
    return found


def changed(value: Any, dice: random.Random) -> Any:
    """Another value of the same sort, or one of another."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        real = float(value % 2**53)  # some certificates hold numbers that no float reaches
        return dice.choice([value + 1, value - 1, 0, -value, 2 * value, real, str(value)])
    if isinstance(value, str):
        if dice.random() < 0.5 and re.fullmatch(r"[0-9]{1,400}(/[1-9][0-9]{0,400})?", value):
            return str(Fraction(value) + Fraction(dice.choice([-2, 1, 2]), 2))
        return dice.choice(
            ["", value + "0", "average", "cover", "joint", "whole", "open", "proved", 7]
        )
    if isinstance(value, list):
        return dice.choice([value[1:], value + value[:1], value[::-1], [], [value]])
    return {} if isinstance(value, dict) else 1


def mutant(record: Any, dice: random.Random) -> Any:
    """The record with one thing in it changed, or one key dropped."""
    copy = json.loads(json.dumps(record))
    *way, last = dice.choice(places(copy))
    at = copy
    for key in way:
        at = at[key]
    if isinstance(at, dict) and dice.random() < 0.1:
        del at[last]
    else:
        at[last] = changed(at[last], dice)
    return copy


def own_dice(file: Path, turn: int = 0) -> random.Random:
    """Of a recorded file: what is done to it depends on no other file, so that it is done again in
    the next run, whatever other tests recorded.  (Folders are named after what is in them.)
    """
    return random.Random(f"{file.parent.name} {turn}")


def test_mutants_of_every_certificate(recorded: list[Path], tmp_path: Path) -> None:
    files = []
    each = 3 if 3 * len(recorded) <= MUTANTS else 1
    for file in recorded[:MUTANTS]:
        dice = own_dice(file)
        record = json.loads(file.read_bytes()) if file.suffix == ".json" else None
        if not isinstance(record, dict) or not record or len(file.read_bytes()) > 100_000:
            continue
        for i in range(each):
            folder = shutil.copytree(file.parent, tmp_path / f"{file.parent.name}-{i}")
            (folder / "verdict").unlink(missing_ok=True)
            files.append(folder / file.name)
            files[-1].write_text(json.dumps(mutant(record, dice)), encoding="utf-8")
    assert len(files) > 400
    assert assert_agreed(files) > 20


def mutated(data: bytes, dice: random.Random) -> bytes:
    """`data` with bytes changed, cut out, or doubled, at up to four places."""
    damaged = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        if not damaged:
            break
        at = dice.randrange(len(damaged))
        action = dice.randrange(3)
        if action == 0:
            damaged[at] = dice.randrange(256)
        elif action == 1:
            del damaged[at : at + dice.randrange(1, 30)]
        else:
            damaged[at:at] = damaged[at : at + dice.randrange(1, 30)]
    return bytes(damaged)


def test_no_forged_link_is_believed(program: str, tmp_path: Path) -> None:
    """Certificates of one plan that name another, every field changed alone and in pairs: none is
    accepted that says something false, and the checker says the same of each.
    """
    records = list(forgeries(tmp_path, values=6, pairs=20, seed=2))
    files = [tmp_path / f"{number}.json" for number in range(len(records))]
    for file, record in zip(files, records, strict=True):
        file.write_text(json.dumps(record))
    for file, record, answer in zip(files, records, by_program(files), strict=True):
        verdict = said(kernel.check(file, work=2_000_000))
        assert differ(verdict, answer) == "", file.read_text()
        if answer["ok"]:
            found = falsehood(record, verified.verdict_of(answer), tmp_path)
            assert found == "", file.read_text()


def test_a_plan_that_contradicts_itself_is_none(program: str, tmp_path: Path) -> None:
    files = []
    for plan_file, records in contradictions(tmp_path):
        files.append(plan_file)
        for record in records:
            files.append(tmp_path / f"{len(files)}.json")
            files[-1].write_text(json.dumps(record))
    assert len(files) > 300
    assert [
        file.name for file, a in zip(files, by_program(files), strict=True) if a.get("ok")
    ] == []


@pytest.mark.parametrize("gpus", range(1, 14))
def test_the_usual_order_is_the_kernels(program: str, tmp_path: Path, gpus: int) -> None:
    """Of a plan that says nothing of its nodes, for up to 13 GPUs and rails."""
    files = []
    for rails in range(1, 14):
        fabric = Fabric.uniform(2, rails, gpus=gpus)
        chunks = Chunks.from_units(fabric, src_gpu=range(gpus), dst=[1] * gpus, size=[1] * gpus)
        made = plan(fabric, chunks, "own-nic")
        made.save(tmp_path / f"{rails}.npz")
        named = {"file": f"{rails}.npz", "digest": plan_digest(tmp_path / f"{rails}.npz")}
        proof = Certificate.moved(made, made.makespan, 0, {"kind": "claimed", "by": "nobody"})
        record = proof.as_dict()
        del record["assignment"], record["problem"]["units"]
        record["problem"]["plan"] = named
        files.append(tmp_path / f"{rails}.json")
        files[-1].write_text(json.dumps(record))
    assert assert_agreed(files) == len(files)


@pytest.mark.parametrize("name", CERTIFICATES)
def test_a_hostile_certificate_ends_in_time(program: str, tmp_path: Path, name: str) -> None:
    """With one line, and refused."""
    file = tmp_path / "hostile.json"
    file.write_text(json.dumps(CERTIFICATES[name]()))
    line = [program, "--seconds", "1", str(file)]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in (1, 4)
    assert (done.stderr, len(done.stdout.splitlines())) == ("", 1)


@pytest.mark.parametrize("tokens", [1, 10**7, 2**1000])
def test_a_split_of_any_number_of_tokens(program: str, tmp_path: Path, tokens: int) -> None:
    """Two experts, of which one can go to the second GPU's slot: numbers are not counted down."""
    claim = {"bound": str(tokens), "value": str(tokens), "optimal": True, "optimum": "proved"}
    holds, spare = [[0, 1], []], [0, 1]
    record = {
        "railopt": "certificate",
        "version": 2,
        "problem": {"kind": "split", "counts": [tokens] * 2, "holds": holds, "spare": spare},
        "claim": claim,
        "witness": {"kind": "room", "experts": [1, 0, 1]},
        "assignment": [[0, 0, tokens], [1, 1, tokens]],
    }
    file = tmp_path / "split.json"
    for least in (str(tokens), str(tokens + 1)):
        file.write_text(json.dumps({**record, "claim": {**claim, "bound": least}}))
        assert check(file, verified=True).optimal == check(file).optimal == (least == str(tokens))


def test_bounds_of_any_placement(program: str, tmp_path: Path) -> None:
    """Both checkers say the same of prices as they are, of more than they show, and of others."""
    files = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        nodes, experts = int(rng.integers(2, 5)), int(rng.integers(1, 7))
        slots, rates = np.full(nodes, experts), rng.integers(1, 9, (2, nodes))
        demand = Demand(rng.integers(0, 99, (nodes, experts)), slots, *rates, 8)
        free = NodePrices(*(rng.integers(0, 9, nodes) + 1 for _ in range(3)))
        held = demand.holding(rng.random((nodes, experts)) < 0.4, slots // 2 + 1)
        for layer, prices in product((demand, held), (demand.prices(), free)):
            made = layer.certificate(prices)
            for more in (0, Fraction(1, 7)):
                files.append(tmp_path / f"{len(files)}.json")
                replace(made, bound=made.bound + more).save(files[-1])
    assert [check(file).ok for file in files] == [True, False] * (len(files) // 2)
    assert assert_agreed(files) == len(files) // 2


def test_counterexamples(program: str, tmp_path: Path) -> None:
    """Every one is accepted; with another number in them they are not."""
    found, files = counterexamples.files(), []
    assert {counterexamples.read(file)["kind"] for file in found} == {"plan", "flow", "fast"}
    unknown = [file for file in found if LEAVES in file.read_bytes()]
    assert len(unknown) == 2
    for file in unknown:
        with pytest.raises(InputError, match="does not know links above leaves"):
            check(file, verified=True)
    for file in (file for file in found if file not in unknown):
        theirs, ours = check(file, verified=True), check(file)
        assert theirs.ok
        assert replace(theirs, message="") == replace(ours, message="")
        record = counterexamples.read(file)
        changes = [{name: str(Fraction(record[name]) + 1)} for name in ("value", "optimum")]
        changes.append({"at_most": record["value"]})
        if record["kind"] != "plan":  # whose certificates have their own mutants
            best = record["best"]
            changes += [{"best": {**best, key: best[key] + 1}} for key in best if key in FIGURES]
        for i, change in enumerate(changes):
            files.append(tmp_path / f"{i}-{file.name}")
            files[-1].write_text(json.dumps({**record, **change}))
    assert [answer["ok"] for answer in by_program(files)] == [False] * len(files)


def test_traffic_is_refused_with_the_remedy(program: str) -> None:
    file = str(counterexamples.files()[0])
    for line in (["--traffic", "moe:seed=1", file], [file, "--traffic", "moe:seed=1"]):
        done = subprocess.run([program, *line], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert "railopt check --verified --traffic" in done.stderr


@pytest.mark.parametrize("suffix", [".npz", ".json"])
def test_damaged_files(recorded: list[Path], tmp_path: Path, suffix: str) -> None:
    files = []
    whole = [file for file in recorded if file.suffix == suffix and file.stat().st_size < 50_000]
    for i in range(DAMAGED):
        turn, at = divmod(i, len(whole))
        file = tmp_path / f"{i}{suffix}"
        file.write_bytes(mutated(whole[at].read_bytes(), own_dice(whole[at], turn)))
        files.append(file)
    assert_agreed(files)


def test_a_verdict_in_python(tmp_path: Path, program: str, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "c.json"
    with pytest.raises(FormatError, match="No such file"):
        verified.check(file)
    file.write_text("[")
    with pytest.raises(FormatError, match="ends early"):
        verified.check(file)
    monkeypatch.setenv("RAILOPT_VERIFIED", str(tmp_path / "absent"))
    with pytest.raises(BackendError, match="make verified"):
        verified.check(file)
