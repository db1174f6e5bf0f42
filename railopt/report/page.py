"""One self-contained HTML page: what was asked and the verdict, figures with their data, one node's
NICs, tables, papers' numbers beside ours, theorems.

No network, no framework: inline SVG, one style sheet, a short script that sorts and filters tables,
shows a node and switches the theme.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from html import escape
from importlib.resources import files
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from railopt import __version__
from railopt.answers.check import Checked, check_all, word
from railopt.base.arrays import read_text
from railopt.base.errors import FormatError, InputError, printable
from railopt.moe.weigh import Weighed
from railopt.report.captioned import Figure, svg
from railopt.report.figures import all_figures
from railopt.report.nodes import filters, node_view
from railopt.report.style import WIDTHS
from railopt.report.swept import columns_that_differ, of_column, order, swept
from railopt.report.verdict import asked, names, verdict
from railopt.report.waterfall import worth_figure
from railopt.sweep.results import LARGEST, Results, Row
from railopt.symbolic.registry import Theorem

COMPARED = {"comparison": "paper_text", "own": "expected_text"}
"""Lists of an experiment's results.json, and what each holds ours against."""
MAX_ROWS = 400  # instances listed one by one; the rest is in the results


def build(
    results: Results,
    theorems: Sequence[Theorem] = (),
    experiments: Mapping[str, Sequence[Mapping[str, Any]]] | None = None,
    certificates: Checked | None = None,
    command: str = "railopt report",
    title: str = "",
    weighed: Weighed | None = None,
) -> str:
    """The page's text.  `experiments`: by name, the comparisons of its results.json;
    `certificates`: what a checker said of files; `title`: the sweep's name if none is given;
    `weighed`: what each mechanism is worth on a trace.
    """
    parts = []
    if results.files:
        parts.append(("asked", "What was asked", _asked(results)))
        parts.append(("verdict", "Verdict", _verdict(results)))
    parts += _figures(results.rows, command)
    if weighed:
        parts.append(_worth(weighed, command))
    if shown := node_view(results.rows):
        parts.append(("node", "One node", shown))
    if results.rows:
        parts.append(("summary", "Table of gaps", _summary(results.rows)))
    if experiments:
        compared = "".join(_comparison(name, claims) for name, claims in experiments.items())
        parts.append(("papers", "Papers beside ours", _headlines(experiments) + compared))
    if certificates:
        parts.append(("certificates", "Certificates", _certificates(certificates)))
    if theorems:
        parts.append(("theorems", "Theorems", _theorems(theorems)))
    if results.rows:
        parts.append(("instances", "Instances", _instances(results.rows)))
    if results.failed:
        parts.append(("failed", "Failed instances", _failed(results.failed)))
    links = "".join(f'<li><a href="#{name}">{escape(text)}</a></li>' for name, text, _ in parts)
    body = "".join(
        f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(text)}</h2>{content}</section>'
        for name, text, content in parts
    )
    assets = {
        name: files("railopt.report").joinpath(name).read_text() for name in ("page.css", "page.js")
    }
    heading = title or ", ".join(names(results.rows)) or "railopt report"
    name, made_by = escape(printable(heading)), escape(printable(command, 1000))
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{name}</title><style>{assets['page.css']}</style></head>"
        f"<body><header><h1>{name}</h1>"
        '<button id="theme" type="button" aria-pressed="false">light / dark</button></header>'
        f'<p class="soft">Made by <code>{made_by}</code>, railopt {__version__}.</p>'
        f'<nav aria-label="contents"><ul>{links}</ul></nav><main>{body}</main>'
        f"<script>{assets['page.js']}</script></body></html>\n"
    )


def read_experiments(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The comparisons of every `*/results.json` below a folder."""
    if not folder.is_dir():
        raise InputError(
            f"{folder}: no such folder; run `make experiments`, or leave --experiments out"
        )
    files = (each / "results.json" for each in sorted(folder.iterdir()) if each.is_dir())
    return {printable(path.parent.name): _claims(path) for path in files if path.exists()}


def check_certificates(folder: Path) -> Checked:
    """Every certificate (.json) of a folder, as `railopt gap --certificate` writes it, checked."""
    inside = folder.iterdir() if folder.is_dir() else ()
    files = sorted(path for path in inside if path.match("*.json"))
    if not files:
        raise InputError(
            f"{printable(folder)}: no certificates (.json) in it; railopt gap --certificate DIR "
            "writes some"
        )
    return check_all(files)


def _claims(path: Path) -> list[dict[str, Any]]:
    """What one experiment compared, with papers and with what no paper says: texts, cleaned of what
    does not print.
    """
    try:
        record = json.loads(read_text(path))
        size = {True: "full", False: "small"}.get(record.get("full"), "")
        return [
            {
                **{name: printable(claim[name], 1000) for name in ("name", "ours_text")},
                **{
                    name: printable(claim.get(name, ""), 4000)
                    for name in ("source", "note", "inputs_text")
                },
                "distance": _percent(claim.get("distance")),
                "headline": claim.get("headline") is True,
                "size": size,
                "said": printable(claim[said], 1000),
                "paper": place == "comparison",
                "verdict": Marked(printable(claim["verdict"], 1000)),
            }
            for place, said in COMPARED.items()
            for claim in (record[place] if place == "comparison" else record.get(place, []))
        ]
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"{printable(path)}: not the results of an experiment (no readable 'comparison')"
        ) from error


def _percent(distance: Any) -> str:
    """A distance, a share, in per cent; nothing where a record has none."""
    return "" if distance is None else f"{100 * float(distance):.3g} %"


# ---------------------------------------------------------------- parts
def _cell(value: Any) -> str:
    """A table cell: exact fractions and floats keep their full value in data-value, so that sorting
    and tests see it.
    """
    if isinstance(value, bool) or value is None:
        return f'<td class="text">{"" if value is None else "yes" if value else "no"}</td>'
    if isinstance(value, Fraction) and abs(value) <= LARGEST:
        return f'<td data-value="{float(value)!r}" title="{value}">{float(value):.5g}</td>'
    if isinstance(value, float | np.floating):
        return f'<td data-value="{float(value)!r}">{float(value):.5g}</td>'
    if isinstance(value, int | np.integer):
        return f'<td data-value="{int(value)}">{int(value)}</td>'
    return f'<td class="text">{escape(str(value))}</td>'


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], caption: str) -> str:
    """A sortable table that scrolls inside itself on a narrow screen."""
    text = [all(isinstance(row[i], str) for row in rows) for i in range(len(columns))]
    head = "".join(
        f'<th scope="col"{" class=text" if text[i] else ""}>'
        f'<button type="button">{escape(name)}</button></th>'
        for i, name in enumerate(columns)
    )
    body = "".join(
        "<tr>"
        + "".join(_marked(cell) if isinstance(cell, Marked) else _cell(cell) for cell in row)
        + "</tr>"
        for row in rows
    )
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}">'
        f'<table class="sortable"><caption>{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


class Marked(str):
    """A word that is coloured by its meaning: reproduced, in range, proved-kernel, ..."""

    __slots__ = ()


def _marked(word: Marked) -> str:
    kind = word.split("-")[0].replace(" ", "-")
    return f'<td class="text"><span class="{escape(kind)}">{escape(word)}</span></td>'


def _asked(results: Results) -> str:
    """The grid, and how many of its instances have an answer."""
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd>{escape(values)}</dd>" for name, values in asked(results.rows)
    )
    older = (
        f" {results.older} rows left out: a newer one has their problem and policy."
        if results.older
        else ""
    )
    return (
        "<p>How far is each policy's plan from the best possible one, on the bytes of every NIC?"
        f"</p><dl>{listed}</dl>"
        f"<p>{len(results.rows)} instances, {len(results.failed)} failed, {results.torn} torn "
        f"lines dropped, from {results.files} files.{older}</p>"
    )


def _verdict(results: Results) -> str:
    return (
        f'<p class="verdict">{escape(verdict(results.rows))}</p>'
        '<p class="soft">The gap is (value - bound) / bound, so the best possible plan is at most '
        "that far away. Values are re-evaluated from their chunks; bounds have a witness that the "
        "trusted checker, railopt/checker.py, re-checks, except where the optimum is said to be "
        "claimed: that is a solver's word.</p>"
    )


def _figures(rows: Sequence[Row], command: str) -> list[tuple[str, str, str]]:
    """Sections, each with its figure twice: wide, and for a phone."""
    pairs = zip(all_figures(rows), all_figures(rows, width=WIDTHS["column"]), strict=True)
    return [(wide.name, wide.title, _figure(wide, narrow, command)) for wide, narrow in pairs]


def _worth(found: Weighed, command: str) -> tuple[str, str, str]:
    """The waterfall, and its table in the open."""
    wide, narrow = worth_figure(found), worth_figure(found, width=WIDTHS["column"])
    shown = table(wide.columns, wide.rows, wide.title)
    weak = f"<p>{escape(found.weakness)}.</p>" if found.weakness else ""
    return wide.name, wide.title, _figure(wide, narrow, command) + shown + weak


def read_weighed(path: Path) -> Weighed:
    """What `railopt weigh --json` printed into a file."""
    text = read_text(path)
    try:
        return Weighed.from_dict(json.loads(text))
    except (InputError, ValueError, RecursionError) as error:
        raise FormatError(f"{printable(path)}: {printable(error, 200)}") from error


def _summary(given: Sequence[Row]) -> str:
    """By policy, and by the parameter that has the most values."""
    varied = swept(given)
    main = varied[0] if varied else of_column([""] * len(given), "")
    groups: dict[tuple[str, Any], list[Row]] = {}
    for row, value in zip(given, main.of, strict=True):
        groups.setdefault((row["instance"]["policy"], value), []).append(row)
    keys = [(policy, value) for policy in order(given, "policy") for value in [*main.values, None]]
    rows: list[list[Any]] = []
    for policy, value in (key for key in keys if key in groups):
        mine = groups[policy, value]
        gaps = sorted(Fraction(row["gap"]) for row in mine)
        rows.append(
            [
                policy,
                *([value] if varied else []),
                len(mine),
                float(median(gaps)) * 100,
                float(gaps[-1]) * 100,
                sum(row["optimal"] for row in mine),
                sum(row["worst_side"] == "recv" for row in mine),
            ]
        )
    found = ["instances", "median gap %", "largest gap %", "optimal"]
    return table(
        ["policy", *([main.name] if varied else []), *found, "receive is the worse side"],
        rows,
        f"Gap by policy and {main.called}" if varied else "Gap by policy",
    )


def _figure(figure: Figure, narrow: Figure, command: str) -> str:
    label = f"{figure.name}-caption"
    pictures = "".join(
        svg(drawn).replace("<svg", f'<svg class="{kind}" role="img" aria-labelledby="{label}"', 1)
        for kind, drawn in (("wide", figure), ("narrow", narrow))
    )
    data = table(figure.columns, figure.rows, f"Data: {figure.title}")
    return (
        f'<figure>{pictures}<figcaption id="{label}">{escape(figure.caption)}</figcaption>'
        "<details><summary>data and command</summary>"
        f"<p><code>{escape(printable(command, 1000))}</code></p>{data}</details></figure>"
    )


def _headlines(experiments: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """One table of every headline claim of the papers: verdict, distance, whose the inputs are."""
    columns = {"claim": "name", "paper": "said", "ours": "ours_text", "size": "size"}
    columns |= {"verdict": "verdict", "distance": "distance", "inputs": "inputs_text"}
    rows = [
        [name, *(claim[key] for key in columns.values())]
        for name, claims in experiments.items()
        for claim in claims
        if claim["headline"]
    ]
    title = "All headline claims: make experiments"
    return table(["experiment", *columns], rows, title) if rows else ""


def _comparison(name: str, claims: Sequence[Mapping[str, Any]]) -> str:
    """One table of a paper's figures beside ours, and one of goals and runs of our own."""
    tables = []
    for paper, said, title in ((True, "paper", ""), (False, "expected", ", what no paper says")):
        columns = {"claim": "name", said: "said", "ours": "ours_text", "verdict": "verdict"}
        columns |= {"distance": "distance", "source": "source", "inputs": "inputs_text"}
        columns |= {"note": "note"}
        mine = [claim for claim in claims if claim["paper"] == paper]
        rows = [[claim[key] for key in columns.values()] for claim in mine]
        if rows:
            command = f"python -m experiments.{name}.run"
            tables.append(table(list(columns), rows, f"{name}{title}: {command}"))
    return "".join(tables)


def _certificates(checked: Checked) -> str:
    """Which checker accepted how many, and its verdict on each."""
    rows = [
        [
            printable(Path(file).name),
            Marked(word(verdict)),
            verdict.kind,
            verdict.bound,
            verdict.value,
            Marked(verdict.optimum),
            verdict.message,
        ]
        for file, verdict in list(checked.verdicts.items())[:MAX_ROWS]
    ]
    columns = ["file", "verdict", "kind", "bound", "value", "optimum", "message"]
    return f'<p class="verdict">{escape(str(checked))}.</p>' + table(
        columns, rows, f"Certificates, re-checked by {checked.by} for this page"
    )


def _theorems(theorems: Sequence[Theorem]) -> str:
    rows = [
        [theorem.id, theorem.title, theorem.statement, Marked(theorem.status), theorem.source]
        for theorem in theorems
    ]
    return table(
        ["id", "title", "statement", "status", "source"],
        rows,
        "The registry of theorems: railopt prove",
    )


def _instances(rows: Sequence[Row]) -> str:
    columns, told = columns_that_differ(rows)
    listed = [
        [
            *cells,
            Fraction(row["value"]) * 10**6,
            Fraction(row["bound"]) * 10**6,
            Fraction(row["gap"]) * 100,
            Marked(row["optimum"]),
            row["worst_side"],
        ]
        for row, cells in zip(rows[:MAX_ROWS], told, strict=False)
    ]
    caption = (
        "All instances"
        if len(rows) <= MAX_ROWS
        else f"The first {MAX_ROWS} of {len(rows)} instances; railopt results lists all"
    )
    chosen = filters(columns, listed, columns)
    found = ["time us", "bound us", "gap %", "optimum", "worst side"]
    return chosen + table([*columns, *found], listed, caption)


def _failed(rows: Sequence[Row]) -> str:
    columns, told = columns_that_differ(rows)
    listed = [[*cells, row["error"]] for row, cells in zip(rows, told, strict=True)]
    return table([*columns, "error"], listed, "Failed instances")
