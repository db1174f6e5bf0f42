"""What the Coq driver reads and writes, without coqc: sources, names, pinned statements,
certificate terms.
"""

import json
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from railopt.base.errors import BackendError, CheckFailed, FormatError, NotProved
from railopt.evidence.certificate import Certificate
from railopt.symbolic.coq import build as coq
from railopt.symbolic.coq.certificate import (
    certificate_theorem,
    grouped,
    rooms_before,
    witness_kind,
    witness_term,
)


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
    assert [*(f"T{i}" for i in range(11)), "T12", "T13", "T14", "T15"] == list(named)
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


def test_local_theorem_text() -> None:
    certificate = Certificate.local(
        [7, 5, 4], 9, {"kind": "pigeonhole", "jobs": 3, "rails": 1}, rails=2, assignment=[0, 1, 1]
    )
    text = certificate_theorem(certificate.as_dict())
    assert "Definition sizes : list N := [7; 5; 4]%N." in text
    assert "forall a, placed 2 sizes a -> (9 <= makespan 2 sizes a)%N." in text
    assert "apply (T7_local (Pigeonhole 3 1) 2 sizes 9%N)" in text
    assert "(makespan 2 sizes a <= 9)%N" in text
    assert "Admitted" not in text
    without = certificate_theorem(
        Certificate.local([7, 5], 7, {"kind": "average"}, rails=2).as_dict()
    )
    assert "Theorem value" not in without


def test_witness_terms_count_in_units() -> None:
    dual = {"kind": "dual", "weights": [[4, 1], [8, 3]]}
    assert witness_term(dual, [8, 8, 4], [12, 12]) == "(Dual [(2, 3); (1, 1)]%N)"
    assert (
        witness_term({"kind": "subset", "from": 9, "base": {"kind": "average"}}, [7, 7, 3], [9, 9])
        == "(Subset Average)"
    )
    assert (
        witness_term({"kind": "count", "jobs": 2}, [8, 8], [3, 3]) == "Average"
    )  # no rail has room for a job
    assert witness_kind({"kind": "node", "witness": dual}) == "node dual"


def test_chunks_are_written_pair_by_pair_with_their_rails() -> None:
    columns = [[0, 1, 0, 0, 0, 1], [1, 0, 1, 1, 1, 0], [8, 5, 8, 3, 2, 9]]
    chunks, rails = grouped(columns, [1, 0, 0, 2, 0, 0])
    assert chunks == "[(0, 1, [(8, 2)], [2; 3]);\n   (1, 0, [], [5; 9])]"
    assert (
        rails == "[(0, 1); (1, 1); (0, 1); (2, 1); (0, 2)]"
    )  # 8 on 0, 8 on 1, 2 on 0, 3 on 2; 5 and 9 on 0
    assert grouped(columns, [])[0] == chunks


def test_rooms_are_what_a_time_short_of_the_bound_leaves() -> None:
    assert rooms_before(Fraction(9, 2), [4, 3, 0]) == [17, 13, 0]
    assert rooms_before(Fraction(2), [4]) == [7]


def broken(**changes: Any) -> dict[str, Any]:
    return {**Certificate.local([7, 5], 7, {"kind": "average"}, rails=2).as_dict(), **changes}


@pytest.mark.parametrize(
    "record",
    [
        broken(version=3),
        broken(problem={"kind": "other"}),
        broken(problem={"kind": "local", "sizes": [-1], "rails": 2}),
        broken(problem={"kind": "local", "sizes": [True], "rails": 2}),
        broken(problem={"kind": "local", "sizes": ["1"], "rails": 2}),
        broken(claim={"bound": "1/0", "proved": False}),
        broken(witness={"kind": "guess"}),
        broken(witness=None),
        {},
        [],
        broken(problem={"kind": "local", "sizes": ["]. Axiom f : False. ["], "rails": 2}),
    ],
)
def test_what_is_no_certificate_is_refused(record: Any) -> None:
    with pytest.raises(FormatError):
        certificate_theorem(record)


def test_a_solvers_word_is_no_proof() -> None:
    with pytest.raises(NotProved, match="claimed by x"):
        certificate_theorem(broken(witness={"kind": "claimed", "by": "x"}))
