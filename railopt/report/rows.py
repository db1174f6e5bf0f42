"""Result rows as the report needs them: every value that a figure or a table uses is checked.

Rows come from files that anybody may have written.  A row that lacks something, or holds it in
another type, is one sentence; texts are cleaned of what does not print.

A problem is an instance without its policy, however long and however it was solved: rows of one
problem share the best possible plan.  Of several rows of one problem and policy the last that was
started counts, in every part of the report.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from railopt.base.errors import FormatError, InputError, printable
from railopt.base.units import parse_bytes, parse_number, parse_rate
from railopt.evidence.bracket import gap_between
from railopt.sweep import results
from railopt.sweep.instance import QUANTILES
from railopt.sweep.results import Results, Row
from railopt.sweep.spec import fabric_of

TEXTS = ("traffic", "chunk", "policy", "link")
NUMBERS = ("nodes", "rails", "seed")
EXACT = ("value", "bound", "gap")
MAX_NICS = 1 << 16
SMALL = Fraction(1, 10**30)


def read(*places: str | os.PathLike[str]) -> Results:
    """The results of folders and files, as `checked` leaves them."""
    return checked(results.read(*places))


def checked(found: Results) -> Results:
    """Every row checked, and of each problem and policy the newest alone; FormatError for a row
    that can't be shown.
    """
    rows = newest([_good(row) for row in found.rows])
    failed = tuple(map(_failed, found.failed))
    return replace(found, rows=tuple(rows), failed=failed, older=len(found.rows) - len(rows))


def problem(row: Row) -> str:
    """A key that the rows of one problem share."""
    how = ("policy", "limit_s", "threads", "simulate")
    return repr(sorted((key, value) for key, value in row["instance"].items() if key not in how))


def newest(rows: Sequence[Row]) -> list[Row]:
    """One row per problem and policy, the last that was started, held against the best bound that
    any of them, older ones too, knows of its problem.
    """
    ordered = [(problem(row), row) for row in sorted(rows, key=lambda row: row["started"])]
    kept = {(of, row["instance"]["policy"]): row for of, row in ordered}
    best: dict[str, tuple[bool, Fraction]] = {}  # any checked bound precedes a solver's claim
    for of, row in ordered:
        known = row["optimum"] != "claimed", Fraction(row["bound"])
        best[of] = max(best.get(of, known), known)
    reached = {of for of, row in ordered if best[of] == (True, Fraction(row["value"]))}
    # rows of older versions say "proved"
    known_of = reached | {of for of, row in ordered if row["optimum"] in ("known", "proved")}
    return [
        {
            **row,
            "bound": str(best[of][1]),
            "gap": str(gap_between(Fraction(row["value"]), best[of][1])),
            "optimal": row["optimal"] or best[of] == (True, Fraction(row["value"])),
            "optimum": "known" if of in known_of else row["optimum"],
        }
        for (of, _), row in kept.items()
    ]


def _good(row: Row) -> Row:
    name = printable(row.get("key"), 40)
    try:
        instance = _instance(row)
        for column in EXACT:
            _check_exact(row[column], column)
        made = {
            **row,
            "instance": instance,
            "sweep": _text(row.get("sweep", "")),
            "optimum": _text(row["optimum"]),
            "worst_side": _text(row["worst_side"]),
            "optimal": _of(row["optimal"], bool),
        }
        parse_rate(instance["link"])
        if instance["chunk"] != "flow":
            parse_bytes(instance["chunk"])
        if "loads" in row:
            _check_loads(row["loads"], instance)
        if "simulated" in row:
            _check_simulated(row["simulated"])
        if not 0 <= _of(row["started"], float) < 2**63:
            raise InputError("started is no time")
    except (KeyError, TypeError, AttributeError, InputError) as error:
        raise FormatError(
            f"results row {name}: not a row that railopt sweep writes ({printable(error)})"
        ) from error
    return made


def _failed(row: Row) -> Row:
    try:
        return {**row, "instance": _instance(row), "error": printable(row["error"], 1000)}
    except (KeyError, TypeError, AttributeError, InputError) as error:
        name = printable(row.get("key"), 40)
        raise FormatError(
            f"results row {name}: not a failure that railopt sweep writes ({printable(error)})"
        ) from error


def _instance(row: Row) -> dict[str, Any]:
    given = _of(row["instance"], dict)
    gpus = given["rails"] if given.get("gpus") is None else given["gpus"]
    return {
        **given,
        **{column: _text(given[column]) for column in TEXTS},
        **{column: _of(given[column], int) for column in NUMBERS},
        "degrade": _text(given.get("degrade", "")),
        "gpus": _of(gpus, int),
    }


def _check_loads(loads: Any, instance: Mapping[str, Any]) -> None:
    nodes, rails = instance["nodes"], instance["rails"]
    if nodes * rails > MAX_NICS:
        raise InputError(f"loads of more than {MAX_NICS} NICs")
    fabric_of(instance)  # which refuses what is none
    for side in ("send", "recv"):
        matrix = _of(loads[side], list)
        if len(matrix) != nodes or any(len(_of(line, list)) != rails for line in matrix):
            raise InputError(f"loads of {side} are not {nodes} x {rails}")
        for line in matrix:
            for load in line:
                if not 0 <= _of(load, int) < 2**63:
                    raise InputError(f"a load of {side} beyond int64")


def _check_simulated(simulated: Any) -> None:
    _check_exact(simulated["completion"], "completion")
    if len(_of(simulated["delivered_ps"], list)) not in (0, QUANTILES):
        raise InputError(f"delivered_ps does not have {QUANTILES} entries")
    for time in simulated["delivered_ps"]:
        if not -1 <= _of(time, int) < 2**63:
            raise InputError("a time of delivery beyond int64")


def _check_exact(value: Any, what: str) -> None:
    """A number that is far from the edges of float64."""
    number = parse_number(_of(value, str), what)
    if number and not SMALL <= number <= 1 / SMALL:
        raise InputError(f"{what} is negative, or out of all proportion")


def _text(value: Any) -> str:
    return printable(_of(value, str))


def _of(value: Any, kind: type) -> Any:
    """The value if it is of this type (an integer is no truth value)."""
    if type(value) is not kind:
        raise InputError(f"found a {type(value).__name__}, expected a {kind.__name__}")
    return value
