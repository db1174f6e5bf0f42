"""What a certificate repeats of the plan that it names is what the plan says: fields changed alone
and in pairs, and certificates linked to other plans, are never a falsehood that is accepted.
"""

from __future__ import annotations

import contextlib
import importlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import railopt
from railopt import Fabric, Plan
from railopt.base.arrays import save_npz
from railopt.evidence.certificate import plan_digest
from railopt.model.inside import Inside
from tests.damage import saved
from tests.forged import (
    PLANS,
    RAILS,
    contradictions,
    falsehood,
    forgeries,
    plan_of,
    true_ones,
)

kernel: Any = importlib.import_module("railopt.checker")


@pytest.mark.slow
def test_no_forged_link_is_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan files stay as they are, so that each is read once."""
    read = kernel.read_plan
    known: dict[str, Any] = {}
    monkeypatch.setattr(
        kernel,
        "read_plan",
        lambda file: known.get(file.name) or known.setdefault(file.name, read(file)),
    )
    verdicts: Counter[bool] = Counter()
    for record in forgeries(tmp_path, values=1, pairs=4, seed=1):
        verdict = kernel.check_certificate(record, tmp_path, 200_000)
        assert falsehood(record, verdict, tmp_path) == "", json.dumps(record)
        verdicts[verdict.ok] += 1
    true = len(PLANS) * len(RAILS)
    assert verdicts[True] > true
    assert verdicts[False] > 600


def test_true_links_are_accepted(tmp_path: Path) -> None:
    records = true_ones(tmp_path)
    kinds = Counter(record["problem"]["kind"] for record in records)
    assert kinds == {"coupled": 16, "moved": 14}
    for record in records:
        verdict = kernel.check_certificate(record, tmp_path)
        assert verdict.ok, verdict.message


def test_a_plan_that_says_nothing_of_its_nodes_means_the_usual_order(tmp_path: Path) -> None:
    """The certificate of the report: every GPU near every NIC, so that nothing is moved."""
    records = true_ones(tmp_path)
    record = next(each for each in records if each["problem"]["kind"] == "moved")
    record["problem"]["near"] = [[0, 1], [0, 1]]
    record["claim"] = {"bound": "0", "value": "0", "optimal": True, "optimum": "proved"}
    assert kernel.check_certificate(record, tmp_path).message == (
        "gpus, near: not those of the plan"
    )
    path = tmp_path / "c.json"
    path.write_text(json.dumps(record))
    assert not railopt.check(path).ok


@pytest.mark.parametrize("gpus", range(1, 14))
def test_the_usual_order_is_the_models(gpus: int) -> None:
    for rails in range(1, 14):
        header = {"fabric": {"gpus": gpus}, "chunk_gpus": gpus}
        file = kernel.PlanFile([[1] * rails], [[1] * rails], [], 0, "", header, {})
        near = Inside.usual(gpus, rails).near
        sets = [sum(1 << gpu for gpu in np.flatnonzero(column).tolist()) for column in near.T]
        assert kernel.inside_of(file) == kernel.InsideNode(gpus, sets)


@pytest.mark.slow
def test_a_plan_that_contradicts_itself_is_none(tmp_path: Path) -> None:
    """Nor does a certificate that names it hold, of either kind."""
    tried = 0
    for file, records in contradictions(tmp_path):
        assert not any(kernel.check_certificate(each, tmp_path).ok for each in records), file.name
        with contextlib.suppress(ValueError):
            assert not kernel.check(file).ok, file.name
        tried += len(records)
    assert tried > 200


@pytest.mark.parametrize("inside", [None, {}, {"near": [[0.0], [True]]}, {"near": [[0], [2]]}])
def test_a_plan_of_an_odd_inside_backs_no_certificate(tmp_path: Path, inside: Any) -> None:
    records = true_ones(tmp_path)
    record = next(each for each in records if each["problem"]["kind"] == "moved")
    header, arrays = saved(plan_of("a", "0"), tmp_path / "true.npz")
    fabric = {**header["fabric"], "inside": inside}
    save_npz(tmp_path / "odd.npz", "plan", {**header, "fabric": fabric}, arrays)
    digest = plan_digest(tmp_path / "odd.npz")
    record["problem"]["plan"] = {"file": "odd.npz", "digest": digest}
    assert not kernel.check_certificate(record, tmp_path).ok


def test_a_best_plan_of_other_bytes_is_refused(tmp_path: Path) -> None:
    """The same bytes between nodes, from other GPUs."""
    records = true_ones(tmp_path)
    slow = plan_of("a", "1")
    (record,) = (
        each
        for each in records
        if each["problem"]["plan"]["file"] == "a1.npz" and each["problem"]["kind"] == "coupled"
    )
    record["claim"].update(optimal=False, optimum="open", bound="0")
    for name, holds in (("a0", True), ("b0", False)):
        file = tmp_path / f"{name}.npz"
        record["best"] = {"file": file.name, "digest": plan_digest(file)}
        record["claim"]["best"] = str(Plan.read(file).makespan)
        assert kernel.check_certificate(record, tmp_path).ok == holds
    assert slow.makespan > plan_of("b", "0").makespan
    assert isinstance(slow.fabric, Fabric)
