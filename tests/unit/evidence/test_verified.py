"""How `railopt check --verified` speaks with the program; what the program says is tested in
tests/proofs.
"""

from __future__ import annotations

import json
import re
from fractions import Fraction
from pathlib import Path

import pytest

from railopt import Fabric, check, plan, workloads
from railopt.answers.check import check_all
from railopt.base.errors import BackendError, FormatError, InputError
from railopt.checker import check as read_alone
from railopt.checker import content_of
from railopt.cli.main import main
from railopt.evidence.certificate import Certificate

ROOT = Path(__file__).resolve().parents[3]
ANSWER = {
    "ok": True,
    "optimal": True,
    "optimum": "known",
    "kind": "average",
    "message": "value and bound meet",
    "bound": "9/2",
    "value": "9/2",
    "best": "9/2",
}


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    made = Certificate.local([8, 8], 8, {"kind": "average"}, rails=2, assignment=[0, 1])
    made.save(tmp_path / "c.json")
    return tmp_path / "c.json"


def of(certificate: Path) -> dict[str, object]:
    """ANSWER about what the file holds."""
    return {**ANSWER, "content": content_of(certificate.read_bytes())}


def answering(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that answers this, whatever it is asked."""
    program = folder / "answers"
    program.write_text(f"#!/bin/sh\ncat <<'END'\n{text}\nEND\n")
    program.chmod(0o755)
    monkeypatch.setenv("RAILOPT_VERIFIED", str(program))


def test_its_answer_is_the_verdict(
    certificate: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answering(json.dumps(of(certificate)), tmp_path, monkeypatch)
    verdict = check(certificate, verified=True)
    assert (verdict.ok, verdict.optimal, verdict.bound) == (True, True, Fraction(9, 2))
    assert main(["check", "--verified", str(certificate)]) == 0
    assert "by railopt-verified" in capsys.readouterr().out
    answering(json.dumps({**of(certificate), "ok": False, "optimal": False}), tmp_path, monkeypatch)
    assert main(["check", "--verified", str(certificate)]) == 4


def test_who_accepted_is_said(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(json.dumps(of(certificate)), tmp_path, monkeypatch)
    assert str(check_all([certificate])) == "1 of 1 accepted by railopt-verified"
    monkeypatch.setenv("RAILOPT_VERIFIED", str(tmp_path / "absent"))
    broken = tmp_path / "broken.json"
    broken.write_text(certificate.read_text().replace("average", "count"))
    assert str(check_all([certificate, broken])) == "1 of 2 accepted by railopt/checker.py"


def test_traffic_is_held_against_it_in_python(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Honoured or refused: the program reads none, and what it accepts may be of other traffic."""
    fabric = Fabric.uniform(3, 2)
    mine, other = (workloads.zipf(fabric, seed=seed) for seed in (1, 2))
    path = tmp_path / "plan.npz"
    plan(fabric, mine.chunks("flow"), "lpt").save(path)
    answering(
        json.dumps({**ANSWER, "kind": "plan", "content": read_alone(path).content}),
        tmp_path,
        monkeypatch,
    )
    assert "Python" not in check(tmp_path / "plan.npz", verified=True).message
    held = check(tmp_path / "plan.npz", mine, verified=True)
    assert held.ok
    assert "by railopt-verified; sends every byte" in held.message
    assert held.message.endswith("once (this by Python)")
    assert not check(tmp_path / "plan.npz", other, verified=True).ok
    answering(json.dumps(of(certificate)), tmp_path, monkeypatch)
    with pytest.raises(InputError, match="knows no bytes between nodes"):
        check(certificate, mine, verified=True)


def test_what_is_no_answer_is_an_error(
    certificate: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answering(json.dumps({"error": "it ends\nearly"}), tmp_path, monkeypatch)
    with pytest.raises(FormatError, match=r"it ends\\nearly"):
        check(certificate, verified=True)
    for text in ("", "[]", "{", '{"ok": true}'):
        answering(text, tmp_path, monkeypatch)
        with pytest.raises(BackendError, match="gave no answer"):
            check(certificate, verified=True)
    monkeypatch.setenv("RAILOPT_VERIFIED", str(tmp_path / "absent"))
    with pytest.raises(BackendError, match="make verified") as refused:
        check(certificate, verified=True)
    needed = re.search(r"^COQ := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
    assert needed is not None
    assert all(package in str(refused.value) for package in needed[1].split())


def test_what_it_does_not_know_is_refused(certificate: Path) -> None:
    with pytest.raises(InputError, match="save this Certificate"):
        check(Certificate.read(certificate), verified=True)


def test_the_page_says_how_long_the_trusted_files_are() -> None:
    page = (ROOT / "docs" / "design" / "notes.md").read_text(encoding="utf-8")
    (sentence,) = re.findall(r"^What is trusted beside Coq.*$", page, re.M)
    rows = re.findall(r"((?:`[^`]+`(?: and )?)+) (\d+)", sentence)
    folder = ROOT / "proofs" / "verified"
    listed = []
    for names, lines in rows:
        files = re.findall(r"`([^`]+)`", names)
        listed += files
        assert sum(len((folder / f).read_text().splitlines()) for f in files) == int(lines), names
    assert sorted(listed) == sorted(
        path.name for path in folder.iterdir() if path.suffix in (".ml", ".v")
    )
