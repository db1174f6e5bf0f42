"""`railopt results`: list, filter, merge and export the results of sweeps."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from railopt.base.errors import InputError
from railopt.base.tables import duration, percent
from railopt.base.units import parse_number, quoted
from railopt.cli.common import (
    Idle,
    Output,
    add_format_arguments,
    note,
    output_of,
    print_json,
)
from railopt.sweep import results

EPILOG = """example:
  railopt results results
  railopt results results --where policy=lpt --where chunk=1MiB
  railopt results results --failed
  railopt results node1 node2 --export all.parquet"""

SHOWN = 40
FAILED = ("nodes", "traffic", "chunk", "policy", "seed")
GOOD = ("nodes", "rails", "traffic", "chunk", "policy", "seed")
IF_SEVERAL = ("gpus", "link", "degrade", "limit_s", "threads", "simulate", "commit")
"""Shown where the rows differ in them."""


IDLE = (
    Idle("force", without=["export"]),
    Idle("format all", beside=["export"]),
    Idle("all", beside=["failed"]),  # which shows every row, as these formats do
    Idle("all", beside=["format!=text"]),
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
    parser.add_argument(
        "--all", action="store_true", help=f"list every row, not only the first {SHOWN}"
    )
    add_format_arguments(parser)
    parser.add_argument("--force", action="store_true", help="replace files that exist")


def run(args: argparse.Namespace) -> int:
    out = output_of(args)
    found = results.load(*args.places)
    if not found.rows and not (args.failed and found.failed):
        raise InputError(
            f"{quoted(', '.join(args.places))}: no good row in {found.files} files: "
            f"{len(found.failed)} failed (--failed says why), {found.torn} torn lines"
        )
    chosen = found.failed if args.failed else found.rows
    conditions = [_condition(text) for text in args.where]
    wanted = dict(conditions)
    if len(wanted) < len(conditions):
        raise InputError("--where names a column twice: expected one value of each")
    rows = list(results.where(chosen, wanted))
    if args.export:
        results.export(rows, args.export, force=args.force)
        note(f"saved {len(rows)} rows in {args.export}")
    elif args.format == "json":
        print_json([results.flat(row) for row in rows])
    elif args.failed:
        names = (*FAILED, *_several(rows))
        out.table([*names, "error"], [[*_instance(row, names), row["error"]] for row in rows])
    else:
        _print(rows, SHOWN if out.form == "text" and not args.all else None, out)
    note(
        f"{len(found.rows)} good rows, {len(found.failed)} failed, {found.torn} torn lines "
        f"dropped, in {found.files} files"
    )
    return 0


def _print(rows: list[results.Row], most: int | None, out: Output) -> None:
    shown = rows[:most]
    names = (*GOOD, *_several(shown))
    out.table(
        [*names, "time", "gap %", "optimum", "worst"],
        [
            [
                *_instance(row, names),
                duration(parse_number(row["value"])),
                percent(parse_number(row["gap"])),
                row.get("optimum", ""),
                row.get("worst_side", ""),
            ]
            for row in shown
        ],
    )
    if len(shown) < len(rows):
        note(f"... and {len(rows) - len(shown)} more (--all)")


def _several(rows: list[results.Row]) -> list[str]:
    """Columns without which rows could not be told apart."""
    return [
        name for name in IF_SEVERAL if len({str(results.flat(row).get(name)) for row in rows}) > 1
    ]


def _instance(row: results.Row, names: Sequence[str]) -> list[Any]:
    columns = results.flat(row)
    return [columns.get(name, "") for name in names]


def _condition(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"--where {quoted(text)}: expected COLUMN=VALUE")
    return name, value
