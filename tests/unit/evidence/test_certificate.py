"""Certificates survive a round trip, refuse to overwrite, and are checked with the plan they
name.
"""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt.answers.gap import gap
from railopt.base.errors import CheckFailed, FormatError, InputError
from railopt.cli.main import main
from railopt.evidence import certificate as certificates
from railopt.evidence.certificate import Certificate
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan

BEST = Certificate.local(
    [7, 5, 4], 9, {"kind": "pigeonhole", "jobs": 3, "rails": 1}, rails=2, assignment=[0, 1, 1]
)


def test_round_trip_is_canonical(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    BEST.save(path)
    text = path.read_text()
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":")) + "\n"
    loaded = Certificate.read(path)
    assert loaded == BEST
    assert loaded.optimal
    assert loaded.check().optimal
    with pytest.raises(InputError, match="exists"):
        BEST.save(path)
    BEST.save(path, force=True)
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.json"]


def test_form_is_checked_on_load(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    for text in (
        "{",
        "[]",
        '{"railopt":"plan","version":1}',
        BEST.to_json().replace('"optimal":true', '"optimal":false'),
        BEST.to_json().replace('"optimum":"proved"', '"optimum":"open"'),
        BEST.to_json().replace('"version":2', '"version":1'),
        BEST.to_json().replace('"version":2', '"version":3'),
        BEST.to_json().replace('"9"', '"9/0"'),
    ):
        path.write_text(text)
        with pytest.raises(FormatError, match=r"c\.json"):
            Certificate.read(path)
    with pytest.raises(InputError, match="No such file"):
        Certificate.read(tmp_path / "absent.json")


def test_a_claim_is_never_proved() -> None:
    word = Certificate.local(
        [7, 5, 4], 9, {"kind": "claimed", "by": "solver 1.0"}, rails=2, assignment=[0, 1, 1]
    )
    assert word.value == word.bound
    assert not word.optimal
    assert word.claimed_by == "solver 1.0"
    assert word.check().ok
    assert not word.check().optimal


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"rails": 2.0}, "rails = 2.0: expected a whole number"),
        ({"speeds": [1, 0.5]}, "speeds"),
        ({"speeds": [1, 0], "assignment": [0, 1]}, "one living rail per size, 2 in all"),
        ({"rails": 2, "assignment": [0]}, "one living rail per size, 2 in all"),
        ({"rails": 2, "assignment": [0, 2]}, "one living rail per size, 2 in all"),
        ({"rails": 2, "assignment": [0, -1]}, "one living rail per size, 2 in all"),
        ({"rails": 2, "assignment": 5}, "assignment = 5: expected whole numbers"),
        ({}, "either rails or speeds"),
    ],
)
def test_a_local_problem_that_is_none_is_refused(given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Certificate.local([3, 4], 7, {"kind": "average"}, **given)


def test_require_raises_on_a_false_one() -> None:
    assert BEST.require() is BEST
    with pytest.raises(CheckFailed, match="pigeonhole"):
        Certificate.local([7, 5, 4], 10, BEST.witness, rails=2).require()


@pytest.fixture
def saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A plan and, beside it, the certificate of its bound, which names it."""
    monkeypatch.setattr(certificates, "INLINE", 0)
    fabric = Fabric.uniform(3, 2, link="8Gb/s")
    chunks = Chunks.from_arrays(src=[0, 0, 1, 2], dst=[1, 2, 2, 0], size=[10, 20, 30, 40], nodes=3)
    certificate, plan = gap(
        Plan(fabric, chunks, np.array([0, 1, 0, 1])), limit_s=0
    ).save_certificate(tmp_path / "c.json")
    return plan, certificate


def test_check_command(saved: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    plan, certificate = map(str, saved)
    assert main(["check", plan, certificate]) == 0
    assert main(["check", "--json", plan, certificate]) == 0
    results = json.loads(capsys.readouterr().out.split("\n", 2)[2])
    assert [result["ok"] for result in results] == [True, True]
    assert Fraction(results[1]["bound"]) <= Fraction(results[1]["value"])
    assert main(["check", plan, "absent.npz"]) == 1


def test_an_unreadable_file_has_every_key_and_a_failed_check_decides(
    saved: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    plan, certificate = map(str, saved)
    made = json.loads(Path(certificate).read_text())
    Path(certificate).write_text(json.dumps({**made, "claim": {**made["claim"], "bound": "1"}}))
    assert main(["check", "--json", plan, "absent.npz", certificate]) == 4
    good, absent, failed = json.loads(capsys.readouterr().out)
    known = {name for name in good if not name.endswith("_float")}
    assert known == set(absent) == {name for name in failed if not name.endswith("_float")}
    assert (absent["ok"], absent["optimal"], absent["bound"]) == (False, None, None)
    assert (failed["ok"], failed["optimal"]) == (False, False)


def test_another_plan_under_the_same_name_is_noticed(saved: tuple[Path, Path]) -> None:
    plan, certificate = saved
    old = Plan.read(plan)
    Plan(old.fabric, old.chunks, 1 - old.rail).save(plan, force=True)
    assert main(["check", str(certificate)]) == 4
    assert main(["check", str(plan)]) == 0


def test_coupled_in_full() -> None:
    fabric = Fabric.uniform(2, 2, link="8Gb/s")
    chunks = Chunks.from_arrays(src=[0, 0, 1], dst=[1, 1, 0], size=[8, 8, 8], nodes=2)
    made = gap(Plan(fabric, chunks, np.array([0, 1, 1])), limit_s=0)
    assert made.certificate.check().optimal
