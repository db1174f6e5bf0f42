"""The report's view of one node: what each of its NICs sends and receives, under a plan that the
reader chooses.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from fractions import Fraction
from html import escape
from typing import Any

import numpy as np

from railopt.base.arrays import Floats
from railopt.report.heatmap import of_row
from railopt.report.rows import problem
from railopt.sweep.results import Row

MAX_NUMBERS = 120_000  # NIC times that a page carries; the rest is in the results
CHOICES = {"problem": "instance", "policy": "policy", "node": "node"}


def node_view(rows: Sequence[Row]) -> str:
    """Three choices and an empty table that page.js fills; nothing where no row has loads."""
    with_loads = [row for row in rows if "loads" in row and Fraction(row["bound"])]
    carried = list(_carried(with_loads))
    if not carried:
        return ""
    names = {problem(row): _called(row) for row in carried}
    place = {key: number for number, key in enumerate(names)}
    data = {
        "problems": list(names.values()),
        "plans": [_plan(row, place[problem(row)]) for row in carried],
    }
    left = len(with_loads) - len(carried)
    note = f" {left} plans more are in the results alone." if left else ""
    choices = "".join(
        f'<label>{text} <select id="view-{name}"></select></label>'
        for name, text in CHOICES.items()
    )
    return (
        "<p>Time of each NIC as a multiple of the lower bound: above 1 the NIC makes the plan "
        f"slower than the bound.{note}</p>"
        f'<div class="filters" role="group" aria-label="choose a plan and a node">{choices}</div>'
        '<p id="view-slowest" aria-live="polite"></p>'
        '<div class="scroll" tabindex="0" role="region" aria-label="NICs of a node">'
        '<table id="view"><thead><tr><th scope="col">rail</th><th scope="col">sent</th>'
        '<th scope="col">received</th></tr></thead><tbody></tbody></table></div>'
        "<noscript><p>This view needs JavaScript; the table of rail loads does not.</p></noscript>"
        f'<script type="application/json" id="view-data">{_json(data)}</script>'
    )


def _carried(rows: Sequence[Row]) -> Iterator[Row]:
    """Rows in order, as many as MAX_NUMBERS allows."""
    room = MAX_NUMBERS
    for row in rows:
        room -= 2 * row["instance"]["nodes"] * row["instance"]["rails"]
        if room < 0:
            return
        yield row


def _called(row: Row) -> str:
    given = row["instance"]
    slow = f", NICs {given['degrade']}" if given["degrade"] else ""
    return (
        f"{given['nodes']} nodes x {given['rails']} rails of {given['link']}{slow}, "
        f"{given['traffic']}, chunks of {given['chunk']}, seed {given['seed']}"
    )


def _plan(row: Row, number: int) -> dict[str, Any]:
    loads = of_row(row)
    return {
        "problem": number,
        "policy": loads.policy,
        "sent": _rounded(loads.sent),
        "received": _rounded(loads.received),
    }


def _rounded(over: Floats) -> list[list[float | None]]:
    """Three decimals; None for a dead NIC."""
    return [[None if np.isnan(x) else round(x, 3) for x in line] for line in over.tolist()]


def _json(data: Any) -> str:
    """JSON that can't end the element that holds it."""
    return json.dumps(data, separators=(",", ":")).replace("<", "\\u003c")


def filters(columns: Sequence[str], rows: Sequence[Sequence[Any]], names: Sequence[str]) -> str:
    """A choice for each named column of a table that has several values: page.js hides the rows of
    the table after it that differ.
    """
    found = []
    for name in names:
        column = columns.index(name)
        values = list(dict.fromkeys(str(row[column]) for row in rows))
        if len(values) > 1:
            options = "".join(f"<option>{escape(value)}</option>" for value in values)
            found.append(
                f'<label>{escape(name)} <select data-column="{column}">'
                f'<option value="">all</option>{options}</select></label>'
            )
    if not found:
        return ""
    return (
        '<div class="filters" role="group" aria-label="filter the table" data-filters>'
        f'{"".join(found)}<output aria-live="polite"></output></div>'
    )
