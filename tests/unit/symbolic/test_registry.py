"""The registry is complete: what the code, the README and the reports rely on is in it, and
everything in it runs.
"""

from __future__ import annotations

import inspect
import re
import runpy
import tomllib
from pathlib import Path
from typing import get_origin, get_type_hints

import pytest

from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.symbolic import applies, registry, run
from railopt.symbolic.coq import build as coq
from railopt.symbolic.result import Result
from railopt.symbolic.search import counterexamples

ROOT = Path(__file__).resolve().parents[3]
USED = re.compile(r"\b[Tt]heorem [A-Z]\d{1,2}[a-z]?\b|\bT\d{1,2}[a-z]?\b")


@pytest.fixture(scope="module")
def kernel() -> run.CoqKernel:
    return run.CoqKernel("pinned")


@pytest.mark.slow
@pytest.mark.parametrize("name", registry.read())
def test_everything_in_the_registry_runs_and_holds(name: str, kernel: run.CoqKernel) -> None:
    outcome = run.run(registry.get(name), kernel, quick=True)
    assert outcome.ok, [
        (by, result.detail) for by, result in outcome.results if result.ok is not True
    ]
    assert outcome.results or outcome.theorem.status == "open"
    assert all(result.assumed for _, result in outcome.results if result.method == "symbolic"), (
        "a symbolic result says what it assumed"
    )


def used_ids() -> dict[str, set[str]]:
    """id -> the files that name it."""
    files = [
        ROOT / "README.md",
        *(
            p
            for folder in ("railopt", "docs", "experiments", "proofs/notes", "tests/bench")
            for p in sorted((ROOT / folder).rglob("*"))
            if p.suffix in (".py", ".md", ".toml") and "_proofs" not in p.parts
        ),
    ]
    found: dict[str, set[str]] = {}
    for path in files:
        for match in USED.findall(path.read_text(encoding="utf-8")):
            found.setdefault(match.split()[-1], set()).add(path.name)
    return found


def test_every_id_in_use_is_registered() -> None:
    known, used = registry.read(), used_ids()
    assert len(used) > 20
    assert not {name: files for name, files in used.items() if name not in known}


def test_coq_and_the_registry_name_the_same_theorems() -> None:
    numbered = {name for names in coq.theorems(coq.theory()).values() for name in names}
    listed = {name: theorem.id for theorem in registry.read().values() for name in theorem.coq}
    assert set(listed) == numbered
    for name, identity in listed.items():
        assert re.match(r"T\d+", identity)[0] == re.search(r"\.(T\d+)_", name)[1], name  # type: ignore[index]


@pytest.mark.slow
def test_every_counterexample_is_registered_and_refutes_its_claim() -> None:
    listed = {name for theorem in registry.read().values() for name in theorem.counterexamples}
    files = {path.name: counterexamples.read(path) for path in counterexamples.files()}
    assert set(files) == listed
    for name, record in files.items():
        assert record["theorem"] in registry.read(), name
        assert counterexamples.replay(record) == [], name


def test_every_theorem_has_its_page() -> None:
    for theorem in registry.read().values():
        page = (ROOT / "proofs" / "notes" / theorem.note).read_text(encoding="utf-8")
        assert re.search(rf"^#+ {theorem.id}\b", page, re.M), theorem.id
        for picture in re.findall(r"\]\((\S+\.svg)\)", page):
            assert (ROOT / "proofs" / "notes" / picture).is_file(), picture


def test_the_pictures_are_what_the_script_draws() -> None:
    drawn = runpy.run_path(str(ROOT / "proofs" / "notes" / "draw.py"))["pictures"]()
    assert drawn == {
        path.name: path.read_text(encoding="utf-8")
        for path in (ROOT / "proofs" / "notes").glob("*.svg")
    }


NEEDS = {  # status -> what an entry must have
    "proved-kernel": ("coq",),
    "proved-symbolic": ("checks",),
    "checked-exhaustively": ("range", "checks"),
    "cited": (),
    "refuted": ("counterexamples",),
    "open": ("known", "settled_by"),
}


def test_every_entry_has_what_its_status_needs() -> None:
    for theorem in registry.read().values():
        assert re.fullmatch(r"[A-Z]\d{1,2}[a-z]?", theorem.id)
        assert all(getattr(theorem, name) for name in NEEDS[theorem.status]), theorem.id
        runs = theorem.checks or theorem.coq or theorem.counterexamples
        assert runs or theorem.status == "open", theorem.id
        assert (theorem.status == "open") == bool(theorem.known or theorem.settled_by), theorem.id


def test_applicability_names_registered_theorems() -> None:
    fabrics = [
        Fabric.uniform(4, 4),
        Fabric.uniform(4, 4).degraded({(1, 2): "0.5"}),
        Fabric.uniform(4, 4).degraded({(1, 2): "0"}),
    ]
    known = registry.read()
    assert {entry.id for fabric in fabrics for entry in applies.applicability(fabric)} <= set(known)


GOOD = {
    "id": "T1",
    "title": "t",
    "statement": "s",
    "symbols": "x",
    "source": "here",
    "status": "proved-symbolic",
    "checks": ["balance.uniform_split"],
}


def test_an_id_occurs_once_and_every_field_is_of_its_kind() -> None:
    entries = tomllib.loads((ROOT / "proofs" / "THEOREMS.toml").read_text())["theorem"]
    assert [entry["id"] for entry in entries] == list(registry.read())
    for theorem in registry.read().values():
        for name, kind in get_type_hints(registry.Theorem).items():
            assert isinstance(getattr(theorem, name), get_origin(kind) or kind), (theorem.id, name)


def test_an_open_statement_runs_nothing(kernel: run.CoqKernel) -> None:
    entry = {**GOOD, "status": "open", "checks": (), "known": "1 to 2", "settled_by": "a proof"}
    assert run.run(registry.Theorem(**entry), kernel, quick=True).ok  # type: ignore[arg-type]


def test_unknown_names_are_errors() -> None:
    with pytest.raises(InputError, match="known: T0"):
        registry.get("T99")
    for name in ("balance.nothing", "nowhere.at_all", "json"):
        with pytest.raises((ImportError, AttributeError)):
            registry.checker(name)


def test_a_check_that_is_undecided_or_raises_is_not_a_yes(
    kernel: run.CoqKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    theorem = registry.Theorem(**GOOD)  # type: ignore[arg-type]
    for answer in (Result(None, "symbolic", ""), Result(False, "symbolic", "", (), "no")):
        monkeypatch.setattr(run, "checker", lambda name, answer=answer: lambda quick: answer)
        assert not run.run(theorem, kernel, quick=True).ok

    def raising(quick: bool) -> Result:
        raise ZeroDivisionError("1/0")

    monkeypatch.setattr(run, "checker", lambda name: raising)
    outcome = run.run(theorem, kernel, quick=True)
    assert not outcome.ok
    assert "ZeroDivisionError" in outcome.results[0][1].detail


def test_a_coq_theorem_that_is_not_pinned_fails(kernel: run.CoqKernel) -> None:
    assert kernel.result(["Balance.T1_balance"]).ok
    assert not kernel.result(["Balance.T1_balance", "Balance.T1_invented"]).ok


def test_every_checker_lets_a_hypothesis_be_dropped() -> None:
    for theorem in registry.read().values():
        for name in theorem.checks:
            parameters = inspect.signature(registry.checker(name)).parameters
            assert any(p.kind is p.KEYWORD_ONLY for p in parameters.values()), name
