"""The kernel on bytes moved inside nodes: it accepts what is true, in full and by plan file, and
rejects what is not.
"""

from __future__ import annotations

import copy
import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import railopt
from railopt import Chunks, Fabric, Plan, plan
from railopt.base.arrays import save_npz
from railopt.base.errors import InputError
from railopt.evidence import certificate as certificates
from railopt.evidence.certificate import Certificate, save_moved
from railopt.model.inside import Inside
from railopt.model.traffic import Traffic
from tests.damage import saved
from tests.drawn import random_units
from tests.moved import least_moved

kernel = importlib.import_module("railopt.checker")
Record = dict[str, Any]

# two GPUs with a NIC each; GPU 0 of node 0 has 8 bytes for node 1: within 2 s half must move
FABRIC = Fabric(2, 2, 2, np.full((2, 2), 2), np.full((2, 2), 2))
CHUNKS = Chunks.from_units(FABRIC, src_gpu=[0, 0], dst=[1, 1], size=[4, 4])
EVEN = Plan(FABRIC, CHUNKS, np.array([0, 1], np.int16))
PRICES = {"kind": "moved", "unit": 1, "send": [[1, 0], [0, 0]], "recv": [[0, 0], [0, 0]]}


def even(bound: int = 4) -> Record:
    return Certificate.moved(EVEN, Fraction(2), bound, PRICES).as_dict()


def test_a_true_certificate_is_accepted_and_its_plan_optimal() -> None:
    verdict = kernel.check_certificate(even())
    assert verdict.ok, verdict.message
    assert (verdict.kind, verdict.optimal, verdict.bound, verdict.value) == ("moved", True, 4, 4)
    open_one = kernel.check_certificate(even(3))
    assert (open_one.ok, open_one.optimal, open_one.optimum) == (True, False, "open")
    bare = even()
    del bare["assignment"], bare["claim"]["value"]
    bare["claim"].update(optimal=False, optimum="open")
    assert kernel.check_certificate(bare).value is None
    assert kernel.check_certificate(bare).ok


def test_fractions_of_prices_and_bounds_are_rounded_up() -> None:
    """At 7/4 s NIC 0 carries 3.5 bytes: at least 4.5 of 8 move, so 5 whole ones."""
    record = even()
    record["problem"]["time"], record["claim"]["bound"] = "7/4", "5"
    del record["assignment"], record["claim"]["value"]
    record["claim"].update(optimal=False, optimum="open")
    assert kernel.check_certificate(record).ok
    record["witness"].update(unit=3, send=[[3, 0], [0, 0]])
    assert kernel.check_certificate(record).ok
    record["claim"]["bound"] = "6"
    assert not kernel.check_certificate(record).ok


def _set(*path: Any) -> Callable[[Record], None]:
    """A change: the last of `path` is put where the others lead."""
    *way, key, value = path

    def change(record: Record) -> None:
        at: Any = record
        for step in way:
            at = at[step]
        at[key] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        _set("claim", "bound", "5"),
        _set("claim", "value", "3"),
        _set("claim", "optimum", "claimed"),
        _set("problem", "time", "3"),
        _set("problem", "time", "-2"),
        _set("problem", "time", "1"),  # its plan takes longer
        _set("problem", "gpus", 1),
        _set("problem", "gpus", 0),
        _set("problem", "near", [[0], [0, 1]]),
        _set("problem", "near", [[0], [2]]),
        _set("problem", "near", [[0]]),
        _set("problem", "tx", [[3, 2], [2, 2]]),
        _set("problem", "rx", [[2, 2], [0, 2]]),
        _set("problem", "units", "size", [4, 3]),
        _set("problem", "units", "src_gpu", [0, 1]),
        _set("problem", "units", "src_gpu", [0, 4]),
        _set("problem", "units", "dst", [1, 0]),
        _set("problem", "units", "targets", [[], [0]]),
        _set("problem", "units", "targets", [[], [2]]),
        _set("problem", "units", "targets", [[]]),
        _set("problem", "plan", {"file": "x", "digest": "y"}),
        _set("witness", "send", [[0, 0], [0, 0]]),
        _set("witness", "send", [[-1, 0], [0, 0]]),
        _set("witness", "send", [[1, 0]]),
        _set("witness", "recv", [[1, 0], [0, 0]]),
        _set("witness", "unit", 2),
        _set("witness", "unit", 0),
        _set("witness", "kind", "fluid"),
        _set("witness", "more", 1),
        _set("assignment", [0, 0]),
        _set("assignment", [0, 2]),
        _set("assignment", [0]),
        _set("best", {"assignment": [0, 1]}),
        _set("flow", {}),
    ],
)
def test_false_certificates_are_rejected(change: Callable[[Record], None]) -> None:
    record = even()
    change(record)
    verdict = kernel.check_certificate(record)
    assert not verdict.ok
    assert not verdict.optimal
    assert verdict.message


def test_a_solvers_word_is_no_proof() -> None:
    record = Certificate.moved(EVEN, Fraction(2), 4, {"kind": "claimed", "by": "solver 1"})
    verdict = record.check()
    assert (verdict.ok, verdict.optimal, verdict.optimum) == (True, False, "claimed")


ODD = Inside(np.array([[1, 0, 0, 1], [1, 1, 0, 0], [0, 0, 1, 0]], np.bool_))


@pytest.mark.parametrize(
    "fabric",
    [
        Fabric.uniform(3, 4, gpus=4),
        Fabric.uniform(3, 4, gpus=3, inside=ODD),
        Fabric.uniform(2, 12, gpus=12),
        Fabric.uniform(3, 2, gpus=4),
    ],
)
def test_plans_in_full_and_by_file_are_those_of_the_library(
    fabric: Fabric, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, chunks in enumerate([random_units(fabric, 60, 0), random_units(fabric, 9, 1)]):
        made = plan(fabric, chunks, "lpt")
        found = least_moved(fabric, chunks, made.makespan)
        claim = made.makespan, found.bytes, found.witness
        (inline,) = save_moved(made, *claim, tmp_path / f"{number}.json")
        monkeypatch.setattr(certificates, "INLINE", 3)
        named, file = save_moved(made, *claim, tmp_path / f"{number}-plan.json")
        monkeypatch.undo()
        assert file.suffix == ".npz"
        for path in (inline, named):
            verdict = railopt.check(path)
            assert verdict.ok, verdict.message
            assert verdict.bound == found.bytes
            assert verdict.value == made.moved
            assert Certificate.read(path).as_dict() == json.loads(path.read_text())
        with pytest.raises(InputError, match="exists"):
            save_moved(made, *claim, inline)


def test_a_plan_file_of_another_inside_is_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "INLINE", 0)
    shared = replace(FABRIC, inside=Inside(np.array([[1, 1], [0, 1]], np.bool_)))
    made = Plan(shared, CHUNKS, EVEN.rail)
    free = {**PRICES, "send": PRICES["recv"]}
    path, _ = save_moved(made, Fraction(2), 0, free, tmp_path / "c.json")
    assert railopt.check(path).ok
    record = json.loads(path.read_text())
    record["problem"]["near"] = [[0], [1]]
    path.write_text(json.dumps(record))
    assert "near" in kernel.check(path).message
    record["problem"].update(near=[[0], [0, 1]], gpus=4)
    path.write_text(json.dumps(record))
    assert not kernel.check(path).ok


def test_held_against_traffic(tmp_path: Path) -> None:
    matrix = np.zeros((4, 4), np.int64)
    matrix[0, 2] = matrix[0, 3] = 4
    traffic = Traffic(matrix, 2)
    chunks = traffic.chunks("flow")
    made = plan(FABRIC, chunks, "own-nic")
    found = least_moved(FABRIC, chunks, made.makespan)
    proof = Certificate.moved(made, made.makespan, found.bytes, found.witness)
    assert railopt.check(proof, traffic).ok
    assert not railopt.check(proof, Traffic(matrix * 2, 2)).ok
    assert not railopt.check(Certificate.from_dict(even()), traffic).ok


def test_work_is_limited() -> None:
    verdict = kernel.check_certificate(copy.deepcopy(even()), work=10)
    assert not verdict.ok
    assert "refused" in verdict.message


ODD_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1.5,
    10**30,
    "1/0",
    "x",
    [],
    [[]],
    {},
    [None],
    [[10**9]],
    {"kind": "moved"},
]


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) inside a JSON value."""
    found = []
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        found.append((node, key))
        if isinstance(value, dict | list):
            found += places(value)
    return found


@pytest.mark.slow
def test_whatever_stands_in_a_certificate_it_gets_a_verdict() -> None:
    """Every value in turn replaced by odd ones, or left out."""
    start = even()
    count = len(places(start))
    for place in range(count):
        for odd in (*ODD_VALUES, "left out"):
            record = copy.deepcopy(start)
            node, key = places(record)[place]
            if odd == "left out":
                del node[key]
            else:
                node[key] = copy.deepcopy(odd)
            verdict = kernel.check_certificate(record, work=10**6)
            assert len(verdict.message) < 400
            if verdict.optimal:  # what is left says the same, or a harmless other thing
                assert verdict.value == verdict.bound


def test_arrays_of_a_plan_file_that_do_not_fit_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "INLINE", 0)
    fabric = Fabric.uniform(3, 4, gpus=4)
    made = plan(fabric, random_units(fabric, 20, 0), "lpt")
    found = least_moved(fabric, made.chunks, made.makespan)
    path, file = save_moved(made, made.makespan, found.bytes, found.witness, tmp_path / "c.json")
    header, arrays = saved(made, tmp_path / "true.npz")
    changes: list[tuple[str, Any]] = [
        ("targets", arrays["targets"][:-1]),
        ("targets", arrays["targets"].astype(np.int64)),
        ("targets", np.hstack([arrays["targets"], arrays["targets"]])),
        ("src_gpu", arrays["src_gpu"] + 4),
        ("src_gpu", arrays["src_gpu"][:-1]),
        ("dst_gpu", -arrays["dst_gpu"]),
        ("src_gpu", None),
    ]
    for name, value in changes:
        other = {key: array for key, array in arrays.items() if key != name}
        if value is not None:
            other[name] = value
        save_npz(file, "plan", header, other, force=True)
        record = json.loads(path.read_text())
        record["problem"]["plan"]["digest"] = certificates.plan_digest(file)
        path.write_text(json.dumps(record))
        verdict = kernel.check(path)
        assert not verdict.ok, name
        assert verdict.message
