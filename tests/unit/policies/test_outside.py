"""A policy is a function: by name, as `module:function`, or itself."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import railopt
from railopt import Chunks, Fabric, Plan, plan, workloads
from railopt.base.errors import InputError
from railopt.cli.main import main
from railopt.policies import POLICIES, policy_code, policy_named, policy_names
from railopt.sweep import spec

FABRIC = Fabric.uniform(3, 4)
CHUNKS = workloads.zipf(FABRIC, seed=1).chunks("64KiB")

MINE = """
import numpy as np
import railopt
from helper_of_mine import FIRST

def by_receiver(fabric, chunks):
    return railopt.Plan(fabric, chunks, (FIRST + chunks.dst) % fabric.rails)

def drawn(fabric, chunks, seed=0):
    return railopt.Plan(fabric, chunks, (chunks.dst + seed) % fabric.rails)

def nothing(fabric, chunks):
    return chunks

def fails(fabric, chunks):
    return 1 // 0

def leaves(fabric, chunks):
    raise SystemExit(0)

def other_chunks(fabric, chunks):
    return railopt.plan(fabric, chunks.take(np.arange(3)))

def one_rail_too_many(fabric, chunks):
    return railopt.Plan(fabric, chunks, np.full(len(chunks), fabric.rails))

number = 3
"""


@pytest.fixture(autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """A current folder with a module of policies; each test its own name, as imports are kept."""
    path = tmp_path_factory.mktemp("mine")
    (path / "policies_of_mine.py").write_text(MINE)
    (path / "helper_of_mine.py").write_text("FIRST = 1\n")
    (path / "broken_of_mine.py").write_text("def f(:\n")
    (path / "needs_of_mine.py").write_text("import not_installed_anywhere\n")
    patch = request.getfixturevalue("monkeypatch")
    patch.chdir(path)
    patch.setattr("sys.path", ["", *__import__("sys").path])
    return path


def by_receiver(fabric: Fabric, chunks: Chunks) -> Plan:
    return Plan(fabric, chunks, np.asarray((1 + chunks.dst) % fabric.rails, np.int16))


def test_a_module_of_the_current_folder() -> None:
    made = plan(FABRIC, CHUNKS, "policies_of_mine:by_receiver")
    assert made.policy == "policies_of_mine:by_receiver"
    assert np.array_equal(made.rail, (1 + CHUNKS.dst) % 4)
    assert np.array_equal(policy_named("policies_of_mine:drawn")(FABRIC, CHUNKS).rail, CHUNKS.dst)


def test_a_function_itself() -> None:
    made = plan(FABRIC, CHUNKS, by_receiver)
    assert made.policy == f"{__name__}:by_receiver"
    assert made.rail.tolist() == plan(FABRIC, CHUNKS, "policies_of_mine:by_receiver").rail.tolist()
    assert plan(FABRIC, CHUNKS, POLICIES["lpt-global"]).policy == "lpt-global"


@pytest.mark.slow
def test_a_seed_goes_to_policies_that_draw_and_to_no_other() -> None:
    assert plan(FABRIC, CHUNKS, "policies_of_mine:drawn", seed=2).rail.tolist() == (
        ((CHUNKS.dst + 2) % 4).tolist()
    )
    for name in ("policies_of_mine:by_receiver", "pxn", "equitable"):
        with pytest.raises(InputError, match="does not draw"):
            plan(FABRIC, CHUNKS, name, seed=2)
    for name in ("lpt", "hash", "random"):
        assert plan(FABRIC, CHUNKS, name, seed=2).policy == name


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lpt-locl", "unknown policy 'lpt-locl'.*did you mean 'lpt-local'"),
        ("", "unknown policy"),
        ("policy_of_mine:f", "no module 'policy_of_mine'"),
        ("policies_of_mine.deeper:f", "no module 'policies_of_mine.deeper'"),
        ("policies_of_mine:by_receivr", "no function 'by_receivr'; did you mean 'by_receiver'"),
        ("policies_of_mine:number", "no function 'number'"),
        ("policies_of_mine:", "no function ''"),
        (":f", "expected module:function"),
        ("../up:f", "expected module:function"),
        ("a b:f", "expected module:function"),
        ("broken_of_mine:f", "raised SyntaxError"),
        ("needs_of_mine:f", "failed: No module named 'not_installed_anywhere'"),
    ],
)
def test_names_that_name_nothing(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        policy_named(text)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nothing", "returned Chunks, expected a railopt.Plan"),
        ("fails", "raised ZeroDivisionError"),
        ("leaves", "raised SystemExit"),
        ("other_chunks", "another fabric or other chunks"),
        ("one_rail_too_many", "rail"),
    ],
)
def test_functions_that_are_no_policies(name: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        plan(FABRIC, CHUNKS, f"policies_of_mine:{name}")


def test_lists_of_policies() -> None:
    assert policy_names(" lpt, policies_of_mine:drawn,") == ["lpt", "policies_of_mine:drawn"]
    with pytest.raises(InputError, match="no policy"):
        policy_names(" , ")


COMMANDS = [
    "plan zipf --nodes 3 --rails 4 --policy MINE --json",
    "gap zipf --nodes 3 --rails 4 --policy lpt,MINE --chunk 64KiB --limit 0s --json",
    "simulate zipf --nodes 3 --rails 4 --policy MINE --json",
    "bench zipf -b 64KiB -e 64KiB -n 1 -w 0 --policy MINE --nodes 3 --rails 4 --json",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_takes_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = "policies_of_mine:by_receiver"
    assert main(command.replace("MINE", name).split()) == 0
    assert name in json.dumps(json.loads(capsys.readouterr().out))
    assert main(command.replace("MINE", "policies_of_mine:by").split()) == 1
    assert "no function 'by'" in capsys.readouterr().err


def test_sweeps_take_it_and_know_its_code(folder: Path) -> None:
    name = "policies_of_mine:by_receiver"
    sweep = spec.parse({"grid": {"nodes": [3], "rails": [4], "policy": ["lpt", name]}})
    keys = [instance.key for instance in sweep.instances]
    assert [instance.policy for instance in sweep.instances] == ["lpt", name]
    assert policy_code("lpt") == ""
    assert policy_code(name) != ""
    assert len(set(keys)) == 2
    with pytest.raises(InputError, match="no function"):
        spec.parse({"grid": {"nodes": [3], "policy": ["policies_of_mine:by"]}})


def test_a_sweep_is_checked_by_a_dry_run(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sweep.toml").write_text('[grid]\npolicy = ["policies_of_mine:drawn"]\n')
    assert main(["sweep", "sweep.toml", "-o", "results", "--dry-run"]) == 0
    (folder / "sweep.toml").write_text('[grid]\npolicy = ["policies_of_mine:draw"]\n')
    assert main(["sweep", "sweep.toml", "-o", "results", "--dry-run"]) == 1
    assert "did you mean 'drawn'" in capsys.readouterr().err


def test_a_plan_file_never_imports(folder: Path) -> None:
    """Replanning after a fault takes the plan's policy by name only where it is railopt's own."""
    from railopt.runtime.senders.replan import replan

    made = railopt.Plan(FABRIC, CHUNKS, np.zeros(len(CHUNKS), np.int16), "broken_of_mine:f")
    rows = np.flatnonzero((CHUNKS.src == 0) & (CHUNKS.dst == 1))
    assert replan(made, rows, 0, 1, [1, 2])[1] == "lpt"
