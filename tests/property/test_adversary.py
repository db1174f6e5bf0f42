"""What the searches find, not only that they run; and that a doctored counterexample does not
replay.
"""

from __future__ import annotations

import copy
import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs import find
from railopt.symbolic.search import counterexamples, oracle
from railopt.symbolic.search.adversary import smallest_gap, worst_lpt, worst_receive
from railopt.symbolic.statements.scheduling import graham_family


@pytest.mark.parametrize("rails", [2, 3, 4])
def test_listing_finds_graham_s_family(rails: int) -> None:
    found = worst_lpt(rails)
    assert found.ratio == Fraction(4, 3) - Fraction(1, 3 * rails)
    assert found.instance == graham_family(rails)


@pytest.mark.parametrize("rails", [2, 3, 4, 5])
def test_climbing_finds_the_factor_n_for_receivers(rails: int) -> None:
    found = worst_receive(rails)
    assert found.ratio == rails
    assert len(found.instance) == rails**2  # no smaller one has N full senders


def test_unit_chunks_have_no_coupled_gap() -> None:
    assert smallest_gap(most_chunks=4, largest=1) is None


def test_the_committed_files_are_what_the_search_writes() -> None:
    committed = {
        path.name: json.loads(path.read_text(encoding="utf-8")) for path in counterexamples.files()
    }
    assert dict(find.build()) == committed


@pytest.mark.parametrize("path", counterexamples.files(), ids=lambda path: path.stem)
def test_a_doctored_counterexample_does_not_replay(path: object) -> None:
    record = counterexamples.read(path)  # type: ignore[arg-type]
    for change in _changes(record):
        doctored = copy.deepcopy(record)
        change(doctored)
        assert counterexamples.replay(doctored), change


def _changes(record: counterexamples.Record) -> list[object]:
    def value(r: counterexamples.Record) -> None:
        r["value"] = str(Fraction(r["value"]) + 1)

    def optimum(r: counterexamples.Record) -> None:
        r["optimum"] = str(Fraction(r["optimum"]) / 2)

    def allowed(r: counterexamples.Record) -> None:
        r["at_most"] = r["value"]

    def assignment(r: counterexamples.Record) -> None:
        r["bad"]["assignment"][-1] = (r["bad"]["assignment"][-1] + 1) % 2

    return [value, optimum, allowed, *([assignment] if "policy" in record["bad"] else [])]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=1, max_size=6), st.integers(1, 3))
def test_the_two_oracles_agree(sizes: list[int], rails: int) -> None:
    assert oracle.best_local(sizes, rails) == oracle.best_unequal(sizes, [1] * rails)
    one_receiver = tuple((0, 1, size) for size in sizes)
    assert oracle.best_coupled(one_receiver, rails)[0] == oracle.best_local(sizes, rails)
