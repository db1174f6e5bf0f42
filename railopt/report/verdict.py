"""What a report answers first: what was asked, and the verdict in one sentence, both computed from
the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction
from typing import Any

from railopt.policies import POLICIES
from railopt.report.rows import problem
from railopt.report.swept import order
from railopt.sweep.results import Row

ASKED = {
    "nodes": "nodes",
    "rails": "rails",
    "gpus": "GPUs per node",
    "link": "rate of a NIC",
    "degrade": "slow or dead NICs",
    "traffic": "traffic",
    "chunk": "largest chunk",
    "policy": "policies",
    "seed": "seeds",
}
"""Columns of an instance and what they are called."""
MAX_VALUES = 16  # of a column that are listed
WATCHED = "lpt"
"""The policy that the verdict holds beside the closest one: RailS's own.  So it does with policies
from outside railopt, up to MAX_OWN of them."""
MAX_OWN = 3


def names(rows: Sequence[Row]) -> list[str]:
    """The names of the sweeps that the rows are of, where these have names."""
    return list(dict.fromkeys(row["sweep"] for row in rows if row.get("sweep")))


def asked(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The grid as (name, values); a column that is empty everywhere is left out."""
    listed = [("sweep", names(rows))]
    listed += [(name, [str(v) for v in order(rows, column)]) for column, name in ASKED.items()]
    return [(name, _listed(values)) for name, values in listed if any(values)]


def _listed(values: Sequence[str]) -> str:
    shown = [value or "none" for value in values[:MAX_VALUES]]
    more = len(values) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def verdict(rows: Sequence[Row]) -> str:
    """One sentence about rows of `rows.newest`.  "Closest" is said only of policies that answered
    every problem: its largest gap is the smallest.
    """
    if not rows:
        return "No instance has a result: nothing can be said."
    by: dict[str, list[Row]] = {name: [] for name in order(rows, "policy")}
    for row in rows:
        by[row["instance"]["policy"]].append(row)
    problems = {problem(row) for row in rows}
    whole = [name for name in by if {problem(row) for row in by[name]} == problems]
    if len(whole) > 1:
        closest = min(whole, key=lambda name: (_largest(by[name]), whole.index(name)))
        words = f"{closest} is the closest of {len(whole)} policies: it is"
    else:
        closest = WATCHED if WATCHED in by else next(iter(by))
        words = f"{closest} is"
    found = [f"{words} {_within(by[closest])}"]
    others = [WATCHED] if WATCHED in by else []
    others += [name for name in by if name not in POLICIES][:MAX_OWN]
    found += [f"{name} is {_within(by[name])}" for name in others if name != closest]
    return "; ".join([*found, _unknown(rows)]) + "."


def _within(rows: Sequence[Row]) -> str:
    """How far rows of one policy are from the best possible, and how many are optimal."""
    optimal, count = sum(row["optimal"] for row in rows), len(rows)
    if optimal == count:
        return f"optimal in its {count} instances"
    largest = at_most(_largest(rows))
    return (
        f"at most {largest} % above the best possible plan in its {count} instances and "
        f"optimal in {optimal}"
    )


def _unknown(rows: Sequence[Row]) -> str:
    """What is known of the best possible itself, problem by problem."""
    best: dict[str, set[str]] = {}
    for row in rows:
        best.setdefault(problem(row), set()).add(row["optimum"])
    unknown = [known for known in best.values() if "known" not in known]
    claimed = sum("claimed" in known for known in unknown)
    text = f"the best possible time itself is open in {len(unknown) - claimed} of {len(best)}"
    solver = f", and a solver's word in {claimed}" if claimed else ""
    return f"{text} problems{solver}"


def _largest(rows: Sequence[Row]) -> Fraction:
    return max(Fraction(row["gap"]) for row in rows)


def at_most(gap: Fraction) -> str:
    """A gap in %, three digits, never rounded down."""
    context = Context(prec=3, rounding=ROUND_CEILING)
    value: Any = context.divide(Decimal(gap.numerator * 100), Decimal(gap.denominator))
    return f"{value:f}" if value else "0"
