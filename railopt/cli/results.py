"""`railopt results`: list, filter, merge, draw and export the results of sweeps."""

from __future__ import annotations

import argparse

from railopt.base.errors import InputError, did_you_mean, printable
from railopt.base.units import Quantity, duration, parse_number, percent, quoted
from railopt.cli import common
from railopt.report.rows import checked
from railopt.report.swept import columns_that_differ, ordered, swept
from railopt.report.verdict import names
from railopt.sweep import results

EPILOG = """example:
  railopt results results
  railopt results results --where policy=lpt --where chunk=1MiB
  railopt results results --plot gap.pdf --width column
  railopt results results --plot gap.pdf --against chunk --where skew=0.8 --format latex
  railopt results results --failed
  railopt results node1 node2 --export all.parquet"""

SHOWN = 40


IDLE = (
    common.Idle("against", without=["plot"]),
    common.Idle("failed export", beside=["plot"]),
    common.Idle("format", beside=["export"]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "places",
        metavar="DIR|FILE",
        nargs="+",
        help="results folders or .jsonl files; several are merged",
    )
    parser.add_argument(
        "--where",
        metavar="COLUMN=VALUE",
        type=_condition,
        action="append",
        default=[],
        help="list only rows with this value; may be repeated",
    )
    parser.add_argument(
        "--failed", action="store_true", help="list the instances that failed, and why"
    )
    parser.add_argument(
        "--export", metavar="FILE", help="write the rows: .jsonl (as they are), .csv or .parquet"
    )
    common.add_figure_arguments(
        parser,
        "draw the gap against the parameter that was swept, median and range over seeds",
        "--plot",
        also="; the table is then that of the figure",
    )
    parser.add_argument(
        "--against",
        metavar="COLUMN",
        help="the parameter that --plot draws (default: the one with the most values)",
    )
    common.add_output_arguments(parser, "export", "plot")


def run(args: argparse.Namespace) -> int:
    out = common.output_of(args)
    width = common.figure_width(args, "plot")
    found = results.read(*args.places)
    if not found.rows and not (args.failed and found.failed):
        raise InputError(
            f"{quoted(', '.join(args.places))}: no good row in {found.files} files: "
            f"{len(found.failed)} failed (--failed says why), {found.torn} torn lines"
        )
    if args.plot:
        found = checked(found)
    chosen = found.failed if args.failed else found.rows
    wanted = dict(args.where)
    if len(wanted) < len(args.where):
        raise InputError("--where names a column twice: expected one value of each")
    rows = _sorted(list(results.where(chosen, wanted)))
    if args.plot:
        _plot(rows, args, width, out)
    elif args.export:
        results.export(rows, args.export, force=args.force)
        common.note(f"saved {len(rows)} rows in {args.export}")
    elif args.format == "json":
        common.print_json([results.flat(row) for row in rows])
    elif args.failed:
        columns, cells = columns_that_differ(rows)
        errors = [[*shown, row["error"]] for shown, row in zip(cells, rows, strict=True)]
        out.table([*columns, "error"], errors)
    else:
        _print(rows, out)
    common.note(
        f"{len(found.rows)} good rows, {len(found.failed)} failed, {found.torn} torn lines "
        f"dropped, in {found.files} files"
    )
    return 0


def _plot(
    rows: list[results.Row], args: argparse.Namespace, width: float, out: common.Output
) -> None:
    """Draw the gap against a parameter, and print what the figure shows."""
    from railopt.report.gaps import gap_against
    from railopt.report.saving import save_figure

    varied = {parameter.name: parameter for parameter in swept(rows)}
    if args.against is not None and args.against not in varied:
        raise InputError(
            f"--against {quoted(args.against)}: these rows differ in "
            f"{', '.join(varied) or 'no parameter'}{did_you_mean(args.against, varied)}"
        )
    if not varied:
        raise InputError(
            f"--plot: {len(rows)} rows that differ in no parameter, but in policy and seed at "
            "most: there is nothing to draw a gap against"
        )
    parameter = varied[args.against] if args.against else next(iter(varied.values()))
    title = common.title_of(args, ", ".join(names(rows)))
    made = gap_against(rows, parameter, width=width, title=title)
    save_figure(made.drawing, args.plot, force=args.force)
    others = [name for name in varied if name != parameter.name]
    cells = [[*row[:3], *(Quantity(f"{gap:.3g}", gap) for gap in row[3:])] for row in made.rows]
    out._replace(caption=made.caption).table(made.columns, cells, left=1)
    common.note(f"saved {args.plot}: {made.title[0].lower()}{made.title[1:]}. {made.caption}")
    if others:
        fixed = f"--where {others[0]}=VALUE keeps one value, --against {others[0]} draws it"
        common.note(f"the rows differ in {', '.join(others)} too: {fixed}")


def _print(rows: list[results.Row], out: common.Output) -> None:
    """The rows, as text the first of them; columns in which none differ only with --wide."""
    columns, cells = columns_that_differ(rows)
    same = [name for i, name in enumerate(columns) if len({str(row[i]) for row in cells}) == 1]
    hidden = [name for name in same if name != "policy"] if len(rows) > 1 else []
    if hidden and out.names is None and not out.wide and out.form != "csv":
        values = {name: printable(cells[0][columns.index(name)]) for name in hidden}
        said = ", ".join(f"{name} {value}" for name, value in values.items() if value)
        out.say(f"in every row: {said}")
    found = [
        [
            duration(parse_number(row["value"])),
            percent(parse_number(row["gap"])),
            row.get("optimum", ""),
            row.get("worst_side", ""),
        ]
        for row in rows
    ]
    table = [[*shown, *more] for shown, more in zip(cells, found, strict=True)]
    table = table[: SHOWN if out.form == "text" else None]
    out.table([*columns, "time", "gap %", "optimum", "worst"], table, more=hidden)
    if len(table) < len(rows):
        common.note(f"... and {len(rows) - len(table)} more (--format csv lists all)")


def _sorted(rows: list[results.Row]) -> list[results.Row]:
    """By what tells them apart, each column in its natural order."""
    columns, cells = columns_that_differ(rows)
    places: list[list[int]] = [[] for _ in rows]
    for name, column in zip(columns, zip(*cells, strict=True), strict=False):
        plain = [cell if isinstance(cell, str | int | float) else str(cell) for cell in column]
        rank = {value: place for place, value in enumerate(ordered(plain, name))}
        for place, cell in zip(places, plain, strict=True):
            place.append(rank[cell])
    return [rows[i] for i in sorted(range(len(rows)), key=places.__getitem__)]


def _condition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"{quoted(text)}: expected COLUMN=VALUE")
    return name, value
