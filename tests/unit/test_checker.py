"""The checker accepts what is true, rejects what is not, refuses what is too large, and runs
alone.
"""

from __future__ import annotations

import ast
import copy
import importlib
import json
import subprocess
import sys
import tomllib
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.symbolic.registry import proofs_folder

kernel = importlib.import_module("railopt.checker")
KERNEL = Path(str(kernel.__file__))


def local(sizes: list[int], bound: object, witness: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A certificate about rails=2 unless `rails` or `speeds` is given."""
    shape = {key: more.pop(key) for key in ("rails", "speeds") if key in more} or {"rails": 2}
    return certificate({"kind": "local", "sizes": sizes, **shape}, bound, witness, **more)


def certificate(
    problem: dict[str, Any], bound: object, witness: dict[str, Any], **more: Any
) -> dict[str, Any]:
    claim = {
        "bound": str(bound),
        "proved": False,
        **{key: more.pop(key) for key in ("proved", "value") if key in more},
    }
    return {
        "railopt": "certificate",
        "version": 1,
        "problem": problem,
        "claim": claim,
        "witness": witness,
        **more,
    }


TRUE = [
    local([7, 5, 4], 8, {"kind": "pigeonhole", "jobs": 3, "rails": 2}),
    local([7, 5, 4], 9, {"kind": "pigeonhole", "jobs": 3, "rails": 1}),
    local(
        [7, 5, 4],
        9,
        {"kind": "pigeonhole", "jobs": 3, "rails": 1},
        value="9",
        proved=True,
        assignment=[0, 1, 1],
    ),
    local([6, 6, 6], 12, {"kind": "average"}),  # 9 bytes a rail, rounded up to a multiple of 6
    local([7, 5, 4], "16/3", {"kind": "average"}, speeds=[2, 1, 0]),
    local([5, 5, 5], "5/2", {"kind": "count", "jobs": 2}, speeds=[2, 2]),
    local([5, 5, 5], 5, {"kind": "count", "jobs": 3}, speeds=[2, 1]),
    local([6, 6, 6, 4, 4], 14, {"kind": "dual", "weights": [[6, 1], [4, 1]], "capacity": 13}),
    local([6, 6, 6, 4, 4], 14, {"kind": "cover", "capacity": 13}),
    local([6, 6, 6, 4, 4], 14, {"kind": "cover"}),
    local([6, 6, 6, 4, 4], "14/5", {"kind": "cover"}, speeds=[5, 5, 0]),
    local([3, 3, 3], 3, {"kind": "cover"}, speeds=[2, 1]),
    local([7, 5, 4], 9, {"kind": "claimed", "by": "solver 1.0"}),
    local([], 0, {"kind": "average"}, value="0", proved=True, assignment=[]),
]

FALSE = [
    local([7, 5, 4], 9, {"kind": "pigeonhole", "jobs": 3, "rails": 2}),
    local([7, 5, 4], 10, {"kind": "pigeonhole", "jobs": 3, "rails": 1}),
    local([7, 5, 4], 9, {"kind": "pigeonhole", "jobs": 4, "rails": 1}),
    local([7, 5, 4], 9, {"kind": "pigeonhole", "jobs": 3, "rails": 1}, speeds=[2, 1]),
    local([6, 6, 6], 13, {"kind": "average"}),
    local([7, 5, 4], 6, {"kind": "average"}, speeds=[2, 1, 0]),
    local([5, 5, 5], 6, {"kind": "count", "jobs": 3}, speeds=[2, 1]),
    local([6, 6, 6, 4, 4], 15, {"kind": "dual", "weights": [[6, 1], [4, 1]], "capacity": 14}),
    local([6, 6, 6, 4, 4], 14, {"kind": "dual", "weights": [[6, 1], [4, 1]], "capacity": 11}),
    local([6, 6, 6, 4, 4], 14, {"kind": "dual", "weights": [[6, 1], [4, 2]]}),
    local([6, 6, 6, 4, 4], 14, {"kind": "dual", "weights": [[6, 1], [4, 1], [4, 1]]}),
    local([6, 6, 6, 4, 4], 14, {"kind": "dual", "weights": [[6, 1], [4, 1], [3, 1]]}),
    local([6, 6, 6, 4, 4], 15, {"kind": "cover"}),
    local([3, 3, 3], 4, {"kind": "cover"}, speeds=[2, 1]),
    local(
        [7, 5, 4],
        9,
        {"kind": "claimed", "by": "solver 1.0"},
        value="9",
        proved=True,
        assignment=[0, 1, 1],
    ),
    local([7, 5, 4], 9, {"kind": "claimed", "by": ""}),
    local(
        [7, 5, 4],
        8,
        {"kind": "pigeonhole", "jobs": 3, "rails": 2},
        value="9",
        proved=True,
        assignment=[0, 1, 1],
    ),
    local(
        [7, 5, 4], 8, {"kind": "pigeonhole", "jobs": 3, "rails": 2}, value="8", assignment=[0, 1, 1]
    ),
    local(
        [7, 5, 4], 8, {"kind": "pigeonhole", "jobs": 3, "rails": 2}, value="9", assignment=[0, 1, 2]
    ),
    local([7, 5, 4], 8, {"kind": "pigeonhole", "jobs": 3, "rails": 2}, value="9"),
    local([7, 5, 4], 8, {"kind": "average"}, value="9/1", assignment=[0, 1, 1], speeds=[1, 0]),
    local([7, 5, 4], 1, {"kind": "average"}, speeds=[0, 0]),
    local([], 1, {"kind": "average"}),
    local([7, 0, 4], 8, {"kind": "average"}),
    local([7, True, 4], 1, {"kind": "average"}),
    local([7, 5.0, 4], 1, {"kind": "average"}),
    local([7, 5, 4], "-1", {"kind": "average"}),
    local([7, 5, 4], "1/0", {"kind": "average"}),
    local([7, 5, 4], 1, {"kind": "magic"}),
    local([7, 5, 4], 1, {"kind": "average", "more": 1}),
    local([7, 5, 4], 1, {}),
]


@pytest.mark.parametrize("record", TRUE, ids=lambda record: record["witness"].get("kind"))
def test_true_certificates_are_accepted(record: dict[str, Any]) -> None:
    verdict = kernel.check_certificate(record)
    assert verdict.ok, verdict.message
    assert verdict.optimal == record["claim"]["proved"]
    assert verdict.bound == Fraction(record["claim"]["bound"])


@pytest.mark.parametrize("record", FALSE, ids=lambda record: record["witness"].get("kind"))
def test_false_certificates_are_rejected(record: dict[str, Any]) -> None:
    verdict = kernel.check_certificate(record)
    assert not verdict.ok
    assert not verdict.optimal
    assert verdict.message


COUPLED = {
    "kind": "coupled",
    "nodes": 2,
    "rails": 2,
    "tx": [[2, 2], [2, 2]],
    "rx": [[2, 2], [2, 0]],
    "chunks": {"src": [0, 0, 1], "dst": [1, 1, 0], "size": [4, 4, 3]},
}


def coupled(bound: str, witness: dict[str, Any], **more: Any) -> dict[str, Any]:
    return certificate(copy.deepcopy(COUPLED), bound, witness, **more)


def test_coupled_bounds_come_from_one_node_or_from_prices() -> None:
    receive = {"kind": "node", "node": 1, "side": "recv", "witness": {"kind": "average"}}
    send = {
        "kind": "node",
        "node": 0,
        "side": "send",
        "witness": {"kind": "pigeonhole", "jobs": 2, "rails": 2},
    }
    prices = {"kind": "fluid", "send": [[0, 0], [0, 0]], "recv": [[0, 0], [1, 0]]}
    best = coupled("4", receive, value="4", proved=True, assignment=[0, 0, 1])
    for record in (best, coupled("2", send), coupled("4", prices)):
        assert kernel.check_certificate(record).ok, kernel.check_certificate(record).message
    assert kernel.check_certificate(best).optimal
    for record in (
        coupled("3", send),
        coupled("9/2", prices),
        coupled("5", receive),
        coupled("4", {**receive, "node": 0}),
        coupled("4", {**receive, "side": "send"}),
        coupled("4", {**receive, "side": "both"}),
        coupled("4", receive, value="4", assignment=[0, 1, 1]),
        coupled("4", receive, value="4", assignment=[0, 0]),
    ):
        assert not kernel.check_certificate(record).ok


def fluid(bound: str, **more: Any) -> dict[str, Any]:
    """Two nodes, rail 1 of node 0 at half speed: 12 bytes each way."""
    rates = [[2, 1], [2, 2]]
    prices = {"kind": "fluid", "send": [[1, 1], [0, 0]], "recv": [[0, 0], [0, 0]]}
    return certificate(
        {"kind": "fluid", "tx": rates, "rx": rates, "demand": [[0, 12], [12, 0]]},
        bound,
        prices,
        **more,
    )


def test_fluid_dual_and_flow_meet() -> None:
    flow = {
        "unit": 1,
        "src": [0, 0, 1, 1],
        "dst": [1, 1, 0, 0],
        "rail": [0, 1, 0, 1],
        "amount": [8, 4, 8, 4],
    }
    record = fluid("4", value="4", proved=True, flow=flow)
    assert kernel.check_certificate(record).optimal
    assert not kernel.check_certificate(fluid("5")).ok
    record["flow"] = {**flow, "amount": [8, 4, 8, 3]}
    assert not kernel.check_certificate(record).ok


def test_oversized_work_is_refused_not_run() -> None:
    sizes = sorted((10**6 + 7919 * i * i % 99991 for i in range(80)), reverse=True)
    record = local(sizes, sum(sizes) // 2 + 9, {"kind": "cover"})
    verdict = kernel.check_certificate(record, work=100_000)
    assert not verdict.ok
    assert "refused" in verdict.message


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    fabric = Fabric.uniform(3, 2, link="8Gb/s")
    chunks = Chunks.from_arrays(src=[0, 0, 1, 2], dst=[1, 2, 2, 0], size=[10, 20, 30, 40], nodes=3)
    Plan(fabric, chunks, np.array([0, 1, 0, 1])).save(tmp_path / "plan.npz")
    return tmp_path / "plan.npz"


def test_plans_are_recomputed(plan_file: Path) -> None:
    verdict = kernel.check(plan_file)
    assert verdict.ok, verdict.message
    assert verdict.value == Plan.read(plan_file).makespan
    data = bytearray(plan_file.read_bytes())
    at = data.index(np.array([10, 20, 30, 40], np.int64).tobytes())
    data[at] = 11
    plan_file.write_bytes(data)
    with pytest.raises(ValueError, match="readable plan"):  # the zip's own checksum
        kernel.check(plan_file)


@pytest.mark.slow
def test_runs_alone_without_site_packages(plan_file: Path, tmp_path: Path) -> None:
    good, bad, junk = tmp_path / "good.json", tmp_path / "bad.json", tmp_path / "junk.json"
    good.write_text(json.dumps(TRUE[2]))
    bad.write_text(json.dumps(FALSE[0]))
    junk.write_text("{")

    def run(*files: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-S", "-I", str(KERNEL), *map(str, files)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = run(good, plan_file)
    assert (done.returncode, done.stderr) == (0, "")
    assert "optimal" in done.stdout
    assert run(good, bad, junk).returncode == 4
    assert run(good, junk).returncode == 1
    assert run().returncode == 1


def test_the_kernel_imports_only_the_standard_library() -> None:
    imported = set()
    for statement in ast.walk(ast.parse(KERNEL.read_text())):
        if isinstance(statement, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0
            imported.add(str(statement.module).split(".")[0])
    assert imported
    assert imported <= {"__future__", *sys.stdlib_module_names}


THEOREMS = {
    theorem["id"]: theorem
    for theorem in tomllib.loads((proofs_folder() / "THEOREMS.toml").read_text())["theorem"]
}
CHECKERS = [
    *((f"LOCAL[{kind}]", rule.checker) for kind, rule in kernel.LOCAL.items()),
    *((f"COUPLED[{kind}]", checker) for kind, checker in kernel.COUPLED.items()),
    *((f"PROBLEMS[{kind}]", checker) for kind, checker in kernel.PROBLEMS.items()),
]


@pytest.mark.parametrize(("where", "checker"), CHECKERS, ids=[where for where, _ in CHECKERS])
def test_every_checker_is_headed_by_its_theorem_in_the_registrys_words(
    where: str, checker: Any
) -> None:
    """ "T7b, pigeonhole: Of the l largest chunks ..." """
    text = " ".join((checker.__doc__ or "").split())
    named, _, rest = text.partition(", ")
    assert named in THEOREMS, f"{where}: {text[:40]!r} names no theorem of the registry"
    theorem = THEOREMS[named]
    assert theorem["status"].startswith("proved"), f"{where}: {named} is not proved"
    assert rest.startswith(f"{theorem['title']}: {theorem['statement']}"), where
