"""A checker that can't fail proves nothing: each statement is broken on purpose, and its checker
must notice.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from railopt.checker import Rejected
from railopt.symbolic import registry
from railopt.symbolic.statements import granularity, scheduling

N = scheduling.N


def gullible(*_: Any) -> str:
    """A kernel that accepts everything."""
    return "ok"


def stubborn(*_: Any) -> str:
    """A kernel that refuses everything."""
    raise Rejected("no")


BROKEN: list[tuple[str, dict[str, Any]]] = [
    ("balance.uniform_split", {"deviation": True}),
    ("balance.exact_condition", {"condition": lambda nodes, rails: nodes <= 3 or rails == 1}),
    ("balance.exact_condition", {"condition": lambda nodes, rails: nodes <= 2}),
    ("balance.exact_condition_sparse", {"most_destinations": 2}),
    ("balance.exact_condition_general", {"distinct": False}),
    ("families.lpt_factor", {"policy": "equitable"}),
    ("families.adversary_receive", {"policy": "equitable"}),
    ("granularity.chunk_size", {"factor": granularity.N}),
    ("granularity.round_robin_bound", {"largest": 3}),
    ("granularity.equitable_bound", {"policy": "lpt"}),
    ("granularity.equitable_spread", {"policy": "lpt-global"}),
    ("granularity.ceiling_attained", {"policy": "lpt-global"}),
    ("granularity.ceiling_attained", {"largest": 2}),
    ("chance.hoeffding_tails", {"independent": False}),
    ("chance.hoeffding_tails", {"constant": Fraction(4)}),
    ("chance.all_nics", {"slack": Fraction(1, 8)}),
    ("scheduling.list_family_tight", {"largest_first": True}),
    ("scheduling.lpt_ratio", {"sort": False}),
    ("scheduling.lpt_ratio", {"numerator": 4 * N - 2}),
    ("scheduling.graham_family_run", {"sort": False}),
    ("families.adversary_lpt", {"largest": 2}),
    ("scheduling.posterior_general", {"waits": False}),
    ("scheduling.posterior", {"smallest": False}),
    ("scheduling.posterior_sharper", {"more": 1}),
    ("scheduling.posterior_attained", {"rounds_more": 1}),
    *(
        (f"soundness.{kind}", {"prove": prove})
        for kind in ("average", "pigeonhole", "count", "dual", "cover", "joint", "whole_chunks")
        for prove in (gullible, stubborn)
    ),
    ("families.smallest_coupled_gap", {"largest": 1}),
    ("unequal.same_everywhere_general", {"proportionally": False}),
    ("unequal.least_profile", {"least": False}),
    ("unequal.dead_rail", {"avoided": False}),
    ("unequal.even_split_needs_equal_rates", {"decided_by": "kind"}),
    ("moved.prices", {"prove": gullible}),
    ("moved.prices", {"prove": stubborn}),
    ("moved.own_nic", {"own": False}),
    ("spare.room", {"prove": gullible}),
    ("spare.room", {"prove": stubborn}),
    ("spare.cases", {"prove": gullible}),
    ("spare.cases", {"prove": stubborn}),
    ("layer.prices", {"prove": gullible}),
    ("layer.prices", {"prove": stubborn}),
    ("layer.order", {"within": False}),
    ("layer.rails_last", {"even": False}),
    ("leaves.cut", {"prove": gullible}),
    ("leaves.cut", {"prove": stubborn}),
    ("leaves.even_links", {"deviation": True}),
    ("leaves.exact_condition", {"condition": lambda fabric: fabric.below == 1}),
    ("leaves.exact_condition_general", {"distinct": False}),
    ("leaves.hashing", {"most_nodes": 4}),
    ("locality.owners", {"more": 1}),
    ("locality.turns", {"policy": "round-robin"}),
    ("locality.one_destination", {"more": 1}),
    ("locality.dice", {"least": lambda senders, rails: (senders, *[0] * (rails - 1))}),
    ("locality.columns", {"see": True}),
    ("hybrid.closed_form", {"capped": False}),
    ("fast.phase_bounds", {"one_target": False}),
    ("fast.printed_bound_refuted", {"last_term": 1}),
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dropped"),
    BROKEN,
    ids=[f"{name}-{next(iter(dropped))}-{i}" for i, (name, dropped) in enumerate(BROKEN)],
)
def test_without_its_hypothesis_a_statement_fails(name: str, dropped: dict[str, Any]) -> None:
    result = registry.checker(name)(True, **dropped)
    assert result.ok is not True
    assert result.detail


def test_every_checker_of_the_registry_is_broken_once() -> None:
    named = {check for theorem in registry.read().values() for check in theorem.checks}
    assert named == {name for name, _ in BROKEN}
