"""Certificates of staged schedules: every byte in one stage, no server twice, total and bound."""

from __future__ import annotations

import importlib
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import railopt
from railopt import Fabric, workloads
from railopt.base.errors import InputError
from railopt.cli.main import main
from railopt.schedule import staged

kernel = importlib.import_module("railopt.checker")
DEMAND = [[0, 4, 2], [3, 0, 3], [3, 2, 0]]
STAGES = [[[0, 1, 3], [1, 2, 3], [2, 0, 3]], [[0, 2, 2], [2, 1, 2], [1, 0, 3]], [[0, 1, 1]]]
TWO = [[1, 0, 3], [0, 1, 1]]
LINE = {"kind": "line", "side": "send", "node": 0}


def certificate(**more: Any) -> dict[str, Any]:
    claim = {"bound": "6", "value": "7", "optimal": False, "optimum": "open"}
    return {
        "railopt": "certificate",
        "version": 2,
        "problem": {"kind": "staged", "demand": more.pop("demand", DEMAND)},
        "claim": {**claim, **more.pop("claim", {})},
        "witness": more.pop("witness", LINE),
        "stages": STAGES,
        **more,
    }


def test_stages_that_carry_the_demand() -> None:
    verdict = kernel.check_certificate(certificate())
    assert verdict.ok, verdict
    assert (verdict.kind, verdict.value, verdict.bound) == ("line", Fraction(7), Fraction(6))
    column = {"kind": "line", "side": "recv", "node": 1}
    assert kernel.check_certificate(certificate(witness=column)).ok
    claimed = {"kind": "claimed", "by": "nobody 1"}
    assert kernel.check_certificate(certificate(witness=claimed)).kind == "claimed by nobody 1"


@pytest.mark.parametrize(
    "more",
    [
        {"claim": {"bound": "7"}},
        {"claim": {"value": "6"}},
        {"claim": {"optimum": "proved"}},
        {"claim": {"value": "6", "optimal": True, "optimum": "proved"}},
        {"witness": {**LINE, "node": 3}},
        {"witness": {**LINE, "side": "both"}},
        {"witness": {"kind": "average"}},
        {"demand": [[0, 4, 2], [3, 0, 3], [3, 3, 0]]},
        {"demand": [[1, 4, 2], [3, 0, 3], [3, 2, 0]]},
        {"demand": [[0, 4], [3, 0], [3, 2]]},
        {"stages": STAGES[:2]},
        {"stages": [*STAGES, [[0, 1, 1]]]},
        {"stages": [[*STAGES[0], [0, 2, 2]], [[2, 1, 2], [1, 0, 3]], [[0, 1, 1]]]},
        {"stages": [[[0, 1, 3], [2, 1, 2], [1, 2, 3]], [[0, 2, 2], [2, 0, 3]], TWO]},
        {"stages": [[[0, 1, 4], [1, 2, 3], [2, 0, 3]], STAGES[1], [[0, 1, 0]]]},
        {"stages": [[[0, 1]]]},
        {"stages": [7]},
        {"stages": 7},
        {"assignment": [0]},
    ],
)  # fmt: skip
def test_what_is_not_so_is_refused(more: dict[str, Any]) -> None:
    assert not kernel.check_certificate(certificate(**more)).ok


def test_stages_of_another_problem_are_refused() -> None:
    local = {"kind": "local", "sizes": [1], "rails": 1}
    record = {**certificate(), "problem": local, "witness": {"kind": "average"}}
    assert "stages" in kernel.check_certificate(record).message


@pytest.mark.parametrize("kind", ["compact", "fast", "spreadout"])
def test_the_stages_of_schedules(kind: str, tmp_path: Path) -> None:
    fabric = Fabric.uniform(5, 2)
    traffic = workloads.zipf(fabric, seed=3)
    made = railopt.synthesise(fabric, traffic, kind)
    written = staged(made).require()
    assert written.bound == made.line_sum
    assert written.value == sum(int(row.max()) for row in made.sent)
    assert railopt.Certificate.from_dict(json.loads(written.to_json())) == written
    assert railopt.check(written, traffic).ok
    assert not railopt.check(written, workloads.zipf(fabric, seed=4)).ok
    written.save(tmp_path / "stages.json")
    with pytest.raises(InputError, match="how many GPUs"):
        railopt.check(tmp_path / "stages.json", "zipf:skew=1")


def test_the_command_saves_them(tmp_path: Path) -> None:
    file = str(tmp_path / "stages.json")
    assert main(["schedule", "zipf:skew=0.8", "--nodes", "4", "--stages-certificate", file]) == 0
    assert main(["check", file]) == 0
    with pytest.raises(InputError, match="no stages"):
        staged(
            railopt.synthesise(
                Fabric.uniform(3, 2), workloads.zipf(Fabric.uniform(3, 2)), "pipelined"
            )
        )
