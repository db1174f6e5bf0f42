"""What the Coq driver reads and writes, without coqc: sources, names, pinned statements,
certificate terms.
"""

import json
import re
from pathlib import Path

import pytest

from railopt.base.errors import BackendError, CheckFailed
from railopt.symbolic.coq import build as coq


def test_comments_nest(tmp_path: Path) -> None:
    path = tmp_path / "A.v"
    path.write_text("Lemma a. (* one (* two *) Admitted *) Qed. (** Axiom *)")
    assert coq.source_text(path).split() == ["Lemma", "a.", "Qed."]


def test_dependencies_build_in_order(tmp_path: Path) -> None:
    (tmp_path / "A.v").write_text("From Rails Require Import B C.\n")
    (tmp_path / "B.v").write_text("From Rails Require Import C.\n")
    (tmp_path / "C.v").write_text("From Coq Require Import List.\n")
    assert list(coq.dependencies(tmp_path)) == ["C", "B", "A"]
    (tmp_path / "C.v").write_text("From Rails Require Import A.\n")
    with pytest.raises(CheckFailed, match="circle"):
        coq.dependencies(tmp_path)


def test_names_are_qualified_by_module_not_by_section(tmp_path: Path) -> None:
    (tmp_path / "A.v").write_text(
        "Section S.\n  Definition d := 1.\nEnd S.\nModule In <: T.\n  Definition t := 1.\nEnd "
        "In.\nModule Out := F In.\n"
        "Theorem T1_x : True.\nLemma unlisted : True.\nFixpoint f (n : nat) := n.\nRecord r := { "
        "a : nat }.\n"
    )
    assert coq.declared(tmp_path, ["A"]) == [
        ("A.d", "definition"),
        ("A.In.t", "definition"),
        ("A.T1_x", "theorem"),
        ("A.f", "definition"),
        ("A.r", "definition"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "Admitted.",
        "Axiom a : False.",
        "Parameter p : nat.",
        "admit.",
        "Unset Guard Checking.",
        "Conjecture c : False.",
        "Local Set Universe Checking.",
    ],
)
def test_words_that_weaken_the_kernel_are_seen(tmp_path: Path, text: str) -> None:
    (tmp_path / "A.v").write_text(f"Lemma l : True. Proof. {text}\n(* Admitted *)\n")
    assert len(coq.forbidden(tmp_path, ["A"])) == 1


def test_the_committed_theory_has_nothing_forbidden_and_every_name_pinned() -> None:
    folder = coq.theory()
    modules = list(coq.dependencies(folder))
    assert coq.forbidden(folder, modules) == []
    pinned = json.loads((folder / coq.STATEMENTS).read_text(encoding="utf-8"))
    assert set(pinned) == {name for name, _ in coq.declared(folder, modules)}
    named = coq.theorems(folder)
    assert [f"T{i}" for i in range(19) if i != 11] == list(named)
    assert all(
        pinned[name].split(" :")[0].lstrip("@") == name
        for names in named.values()
        for name in names
    )


def test_readme_lists_exactly_the_numbered_theorems() -> None:
    folder = coq.theory()
    listed = re.findall(r"`(T\d+_\w+)`", (folder / "README.md").read_text(encoding="utf-8"))
    declared = [name.split(".")[1] for names in coq.theorems(folder).values() for name in names]
    assert sorted(listed) == sorted(declared)


def test_a_missing_theory_or_coqc_names_the_remedy(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAILOPT_COQ", str(tmp_path))
    with pytest.raises(BackendError, match="RAILOPT_COQ"):
        coq.theory()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BackendError, match="apt-get install"):
        coq.coqc()
