"""Certificates of links above leaves: what is accepted, what is refused, and what they come to."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from railopt import Fabric, check, plan, workloads
from railopt.checker import check_certificate
from railopt.evidence.bounds import uplink_bound
from railopt.evidence.certificate import Certificate
from railopt.model.leaves import Leaves

LINE = 50 * 10**9
FABRIC = replace(Fabric.uniform(7, 4), leaves=Leaves(2, 1, LINE // 2, "spray"))
TRAFFIC = workloads.moe(FABRIC, skew=0.3, tokens=64, seed=4)


def made(fabric: Fabric = FABRIC) -> Certificate:
    planned = plan(fabric, TRAFFIC.chunks("256KiB"), policy="lpt-local")
    cut = uplink_bound(fabric, planned.chunks)
    assert cut is not None
    return Certificate.leaves(planned, cut)


def test_the_certificate_of_a_plan_holds_and_is_about_its_traffic(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    made().save(path)
    verdict = check(path)
    assert (verdict.ok, verdict.kind) == (True, "leaf")
    assert check(path, TRAFFIC).ok
    assert not check(path, workloads.moe(FABRIC, skew=0.3, tokens=64, seed=5)).ok
    assert verdict.value is not None
    assert verdict.bound is not None
    assert verdict.bound < verdict.value


@pytest.mark.parametrize("rails", [1, 3, 4])
def test_more_than_the_cut_is_not_believed(rails: int) -> None:
    one = made(replace(FABRIC, leaves=Leaves(2, 3, LINE // 4, "spray", rails)))
    assert one.check().ok
    more = replace(one, bound=one.bound * Fraction(10**9 + 1, 10**9))
    assert "the cut shows" in more.check().message


def changed(**changes: Any) -> dict[str, Any]:
    record: dict[str, Any] = json.loads(made().to_json())
    for key, value in changes.items():
        at, _, name = key.rpartition("__")
        place = record
        for part in at.split("__") if at else ():
            place = place[part]
        place[name] = value
    return record


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (changed(problem__leaf__rate=LINE // 4), "the value attained is"),
        (changed(problem__leaf__nodes=0), "leaf nodes: 0 is not a whole number"),
        (changed(problem__leaf__uplinks=1 << 21), "more uplinks"),
        (changed(problem__leaf={"nodes": 2}), "leaf: expected the fields"),
        (changed(witness__group=4), "group: 4 is not a whole number in its range"),
        (changed(witness__side="up"), "side: expected send or recv"),
        (changed(witness__kind="cut"), "expected leaf"),
        (changed(assignment=[0]), "expected a rail, or [rail, link], per chunk"),
        (changed(best={"assignment": []}), "an assignment alone"),
    ],
)
def test_what_does_not_fit_is_refused(record: dict[str, Any], said: str) -> None:
    verdict = check_certificate(record)
    assert not verdict.ok
    assert said in verdict.message


def test_a_chunk_may_name_its_link() -> None:
    """Two flows of one leaf: apart, on one link, and on a link that is not there."""
    leaf = {"nodes": 2, "rails": 1, "uplinks": 2, "rate": 1}
    problem = {
        "kind": "leaves",
        **{side: [[1]] * 4 for side in ("tx", "rx")},
        "leaf": leaf,
        "chunks": {"src": [0, 1], "dst": [2, 3], "size": [3, 3]},
    }
    witness = {"kind": "leaf", "group": 0, "side": "send"}
    for links, value in (([[0, 0], [0, 1]], 3), ([[0, 1], [0, 1]], 6), ([0, 0], 3)):
        one = Certificate(problem, Fraction(3), witness, Fraction(value), {"assignment": links})
        verdict = one.check()
        assert (verdict.ok, verdict.optimal) == (True, value == 3)
    wrong = Certificate(problem, Fraction(3), witness, Fraction(3), {"assignment": [[0, 2]] * 2})
    assert "expected one of 2 links" in wrong.check().message


def test_what_bounds_nics_bounds_plans_on_leaves() -> None:
    one = made()
    witness = {"kind": "node", "node": 0, "side": "send", "witness": {"kind": "average"}}
    assert replace(one, bound=Fraction(1, 10**9), witness=witness).check().kind == "node average"
