"""One suite that every back-end passes, and back-ends that crash, hang and lie."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import railopt
from railopt import Chunks, Fabric, Plan
from railopt.base.errors import InputError
from railopt.solver.coupled.race import Outcome
from railopt.solver.coupled.solve import solve
from railopt.solver.program.backends import BACKENDS, Backend
from railopt.solver.program.files import write_model
from railopt.solver.program.program import build

ROOT = str(Path(railopt.__file__).parents[1])


def chunks_of(rows: list[tuple[int, int, int]], nodes: int) -> Chunks:
    src, dst, size = zip(*rows, strict=True)
    return Chunks.from_arrays(src=src, dst=dst, size=size, nodes=nodes)


CHUNKS = chunks_of([(0, 1, 7), (0, 1, 5), (0, 2, 5), (1, 2, 6), (1, 0, 4), (2, 0, 9), (2, 1, 3)], 3)
HEALTHY = Fabric.uniform(nodes=3, rails=2, link=1)
FABRICS = {
    "equal": HEALTHY,
    "slow and dead": Fabric(
        3,
        3,
        3,
        np.array([[4, 2, 3], [4, 0, 3], [4, 2, 3]]),
        np.array([[4, 2, 3], [4, 2, 3], [1, 2, 3]]),
    ),
}


def optimum(fabric: Fabric, chunks: Chunks) -> Fraction:
    best = None
    for rail in itertools.product(range(fabric.rails), repeat=len(chunks)):
        try:
            value = Plan(fabric, chunks, np.array(rail, np.int16)).makespan
        except InputError:
            continue
        best = value if best is None or value < best else best
    assert best is not None
    return best


@cache
def optimum_of(name: str) -> Fraction:
    """Of CHUNKS on one of FABRICS."""
    return optimum(FABRICS[name], CHUNKS)


@cache
def solved(backend: str, fabric: str) -> Outcome:
    return solve(FABRICS[fabric], CHUNKS, 60, backend)


def missing(backend: str) -> bool:
    """Whether its library is here but lacks what it needs, as PuLP 4 lacks CBC; it then says what
    to install, and the plan that is known without it stays.
    """
    outcome = solved(backend, "equal")
    if not any("can't run here" in note for note in outcome.notes):
        return False
    assert "pip install" in outcome.notes[0]
    assert outcome.plan is not None
    assert outcome.optimum in ("open", "known")
    return True


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_finds_the_optimum_and_says_on_whose_word(
    backend: str, fabric: str, request: pytest.FixtureRequest
) -> None:
    """On equal rails from a process of its own, as `missing` asks it; on others from this one."""
    if missing(backend):
        return
    request.getfixturevalue("in_this_process")
    outcome = solved(backend, fabric)
    assert outcome.notes == ()
    assert outcome.value == optimum_of(fabric) == outcome.bound
    assert outcome.plan is not None
    assert outcome.plan.makespan == outcome.value
    assert outcome.optimum in ("known", "claimed")
    assert outcome.certificate is not None
    verdict = outcome.certificate.check()
    assert verdict.ok
    assert verdict.optimal == outcome.optimal
    if outcome.optimum == "claimed":
        assert outcome.bracket.witness == {"kind": "claimed", "by": BACKENDS[backend].title}
        assert (verdict.message, verdict.optimum) == ("the bound holds", "open")
        assert verdict.bound == outcome.bracket.certified_bound < outcome.bound


@pytest.mark.usefixtures("in_this_process")
@pytest.mark.parametrize("backend", ["cpsat", "highs"])
def test_rates_without_a_small_common_multiple_are_never_claimed(backend: str) -> None:
    """The integer program then counts time in steps: its optimum is within one, and that is no
    proof.
    """
    rates = np.array([[12345678901, 50 * 10**9 + 7]] * 3)
    fabric = Fabric(3, 2, 2, rates, rates[:, ::-1].copy())
    outcome = solve(fabric, CHUNKS, 60, backend)
    assert outcome.notes == ()
    assert outcome.value == optimum(fabric, CHUNKS)
    assert outcome.optimum == ("known" if outcome.value == outcome.bound else "open")


BY_SCIP = """
import sys
from ortools.linear_solver.python import model_builder

for path in sys.argv[1:]:
    model, solver = model_builder.Model(), model_builder.Solver("scip")
    assert model.import_from_mps_file(path)
    solver.solve(model)
    print(float(solver.objective_value))
"""
BY_CBC = """
import pathlib, subprocess, sys
import pulp

cbc = pulp.PULP_CBC_CMD() if hasattr(pulp, "PULP_CBC_CMD") else pulp.COIN_CMD()
for path in sys.argv[1:]:
    solution = pathlib.Path(path).with_suffix(".txt")
    line = [cbc.path, path, "solve", "solution", str(solution)]
    subprocess.run(line, check=True, stdout=subprocess.DEVNULL)
    word, _, _, _, value = solution.read_text().splitlines()[0].split()
    assert word == "Optimal"
    print(value)
"""


@pytest.mark.parametrize(("suffix", "reader"), [(".lp", BY_CBC), (".mps", BY_SCIP)])
def test_written_models_are_read_back_by_another_solver(
    tmp_path: Path, suffix: str, reader: str
) -> None:
    if reader == BY_CBC and missing("pulp"):
        return
    paths = [tmp_path / f"{name}{suffix}" for name in FABRICS]
    for path, fabric in zip(paths, FABRICS.values(), strict=True):
        write_model(fabric, CHUNKS, path)
    done = subprocess.run(
        [sys.executable, "-c", reader, *paths], capture_output=True, text=True, check=True
    )
    for value, (name, fabric) in zip(done.stdout.split(), FABRICS.items(), strict=True):
        assert round(float(value)) == optimum_of(name) * build(fabric, CHUNKS).second, name


def test_written_model_needs_a_known_suffix(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"\.lp or \.mps"):
        write_model(HEALTHY, CHUNKS, tmp_path / "model.txt")


FAKES = {
    "crashes": "import os, signal\n    os.kill(os.getpid(), signal.SIGSEGV)",
    "raises": "raise RuntimeError('out of licences')",
    "hangs": "import time\n    time.sleep(600)",
    "invents": "emit(Answer([2] * n, 'optimal'))",
    "miscounts": "emit(Answer([1, 0] * (n // 2), 'optimal'))",
    "scribbles": "emit(Answer([[0]] + [0] * n, 'optimal'))",
    "boasts": "emit(Answer([1, 0] * (n // 2) + [0], 'optimal'))",
    "babbles": "open(__import__('sys').argv[2], 'a').write('hello\\n')",
}
LIARS = ("invents", "miscounts", "scribbles", "boasts")  # only what they answer is wrong
SAYS = {
    "crashes": "SIGSEGV",
    "raises": "out of licences",
    "hangs": "was killed",
    "invents": "infeasible plan",
    "miscounts": "infeasible plan",
    "scribbles": "infeasible plan",
    "boasts": "is known",
    "babbles": "no answer",
}


@pytest.mark.parametrize("fake", FAKES)
def test_what_goes_wrong_is_reported_by_name_and_the_best_survives(
    fake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    if fake in LIARS:
        request.getfixturevalue("in_this_process")
        monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / f"fake_{fake}.py").write_text(
        "from railopt.solver.program.backends import Answer\n\n"
        "def solve(program, limit_s, emit):\n"
        f"    n = len(program.cost)\n    {FAKES[fake]}\n"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), ROOT]))
    monkeypatch.setitem(BACKENDS, "fake", Backend("fake", f"fake_{fake}", "railopt", "railopt"))
    known = solve(HEALTHY, CHUNKS, 60).plan
    began = time.monotonic()
    outcome = solve(HEALTHY, CHUNKS, 2 if fake == "hangs" else 60, "fake", start=known)
    assert time.monotonic() - began < 60
    assert any("fake" in note and SAYS[fake] in note for note in outcome.notes)
    assert outcome.value == optimum_of("equal")
    assert outcome.plan is not None
    assert outcome.plan.makespan == outcome.value
    assert outcome.bound <= optimum_of("equal")
    assert outcome.optimum != "claimed"
    alone = solve(HEALTHY, CHUNKS, 60, "fake") if fake in ("raises", "invents") else outcome
    assert alone.plan is not None
    assert alone.value is not None
    assert alone.value >= optimum_of("equal")


def test_a_missing_back_end_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        BACKENDS, "absent", Backend("absent", "no.such.module", "absent-solver", "no_such_module")
    )
    outcome = solve(HEALTHY, CHUNKS, 2, "absent")
    assert outcome.notes == (
        "the back-end absent needs no_such_module: pip install no_such_module",
    )
    assert outcome.plan is not None
    assert outcome.plan.policy == "solve: lpt-global"
    assert outcome.bracket.by.startswith("lpt-global ")
    assert outcome.optimum in ("open", "known")


PULP_WITHOUT_CBC = """
__version__ = "4.2.0"

class PulpSolverError(Exception):
    pass

class COIN_CMD:
    def __init__(self, **options):
        pass

    def available(self):
        return False
"""


def test_pulp_without_cbc_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, railopt_cli: Callable[..., Any]
) -> None:
    (tmp_path / "pulp.py").write_text(PULP_WITHOUT_CBC)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), ROOT]))
    ran = railopt_cli("solve", "moe:tokens=64", "--nodes", 2, "--rails", 2, "--backend", "pulp")
    assert ran.code == 3
    assert "has no CBC for this machine" in ran.err
    assert "pip install 'pulp[cbc]'" in ran.err
    assert "Traceback" not in ran.err
    assert "lpt-global" in ran.out
    assert max(map(len, ran.out.splitlines())) <= 100


@pytest.mark.usefixtures("in_this_process")
def test_a_back_end_that_only_ran_out_of_time_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "idle.py").write_text("def solve(program, limit_s, emit):\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(BACKENDS, "idle", Backend("idle", "idle", "idle", "idle"))
    outcome = solve(HEALTHY, CHUNKS, 60, "idle")
    assert outcome.notes == ()
    assert "found no plan within 60 s" in outcome.bracket.by


@pytest.mark.usefixtures("in_this_process")
def test_a_back_end_is_a_module_and_an_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, railopt_cli: Callable[..., Any]
) -> None:
    """Everything else, the messages included, knows it from there."""
    (tmp_path / "first_rail.py").write_text(
        "from railopt.solver.program.backends import Answer\n\n"
        "def solve(program, limit_s, emit):\n"
        "    emit(Answer([1, 0] * (len(program.cost) // 2) + [0]))\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(BACKENDS, "mine", Backend("mine", "first_rail", "numpy", "numpy"))
    outcome = solve(HEALTHY, CHUNKS, 60, "mine")
    assert outcome.plan is not None
    assert set(outcome.plan.rail.tolist()) == {0}
    assert "mine" in railopt_cli("solve", "--help").out
    with pytest.raises(InputError, match=r"known: native, .*mine"):
        solve(HEALTHY, CHUNKS, 1, "gurobi")


def test_no_time_is_refused() -> None:
    with pytest.raises(InputError, match="time limit"):
        solve(HEALTHY, CHUNKS, 0)


def test_a_model_that_is_too_large_is_refused() -> None:
    many = Chunks.from_arrays(
        src=np.zeros(300_000, np.int32),
        dst=np.ones(300_000, np.int32),
        size=np.arange(1, 300_001),
        nodes=2,
    )
    with pytest.raises(InputError, match="native back-end"):
        solve(Fabric.uniform(nodes=2, rails=8), many, 60, "cpsat")
