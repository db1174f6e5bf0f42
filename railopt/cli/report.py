"""`railopt report`: one page to read."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from railopt.base.arrays import check_targets, write_atomic
from railopt.base.errors import CheckFailed, InputError, printable
from railopt.cli.common import Idle, add_width_argument, note, print_json

EPILOG = """example:
  railopt report results -o report.html
  railopt report results --certificates certs -o report.html
  railopt report --weighed weighed.json -o report.html
  railopt report results --experiments out -o report.html --figures figures --width column"""
PAGES = (".html", ".htm", "")  # suffixes; a pipe has none


IDLE = (Idle("width", without=["figures"]),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `railopt report`."""
    parser.add_argument(
        "results",
        metavar="RESULTS",
        nargs="*",
        help="results folders or .jsonl files of railopt sweep",
    )
    parser.add_argument(
        "-o", "--output", default="report.html", metavar="FILE.html", help="where to save the page"
    )
    parser.add_argument(
        "--experiments",
        metavar="DIR",
        help="folder with the experiments' results, to show papers beside ours",
    )
    parser.add_argument(
        "--certificates",
        metavar="DIR",
        help="folder of certificates (railopt gap --certificate DIR), to check them and to show "
        "which checker accepted them: railopt-verified where it is installed",
    )
    parser.add_argument(
        "--weighed",
        metavar="FILE.json",
        help="what railopt weigh --json printed, to show what each mechanism is worth",
    )
    parser.add_argument(
        "--figures", metavar="DIR", help="write the figures as files too, SVG and PDF"
    )
    add_width_argument(parser)
    parser.add_argument(
        "--title",
        help="title of the page (default: the sweep's name), and of the files of --figures",
    )
    parser.add_argument(
        "--json", action="store_true", help="print the data behind the figures as JSON too"
    )
    parser.add_argument("--force", action="store_true", help="replace files that exist")


def run(args: argparse.Namespace) -> int:
    """Build the page, write it and the figures, print their data."""
    from railopt.report import page, rows
    from railopt.report.captioned import save_all
    from railopt.report.figures import all_figures
    from railopt.report.style import PAGE
    from railopt.report.waterfall import worth_figure
    from railopt.symbolic import registry

    if Path(args.output).suffix.lower() not in PAGES:
        raise InputError(
            f"{printable(args.output)}: a page is written as .html: give such a name (--figures "
            f"writes the figures as SVG and PDF)"
        )
    check_targets(args.output, force=args.force)
    found = rows.read(*args.results)
    if not (found.rows or args.experiments or args.certificates or args.weighed):
        where = printable(", ".join(args.results) or "no RESULTS")
        raise InputError(f"{where}: no good row to make a page of")
    if found.torn:
        note(f"{found.torn} lines of the results are torn, no JSON or no UTF-8: left out")
    if found.older:
        note(f"{found.older} rows left out: a newer one has their problem and policy")
    experiments = page.read_experiments(Path(args.experiments)) if args.experiments else None
    checked = page.check_certificates(Path(args.certificates)) if args.certificates else None
    weighed = page.read_weighed(Path(args.weighed)) if args.weighed else None
    shown = [
        word
        for name in ("experiments", "certificates", "weighed")
        if (folder := getattr(args, name))
        for word in (f"--{name}", folder)
    ]
    command = shlex.join(["railopt", "report", *args.results, *shown])
    theorems = tuple(registry.read().values())
    text = page.build(found, theorems, experiments, checked, command, args.title or "", weighed)
    title, width = args.title or "", args.width or PAGE
    drawn = all_figures(found.rows, width=width, title=title) if args.figures or args.json else []
    if weighed and (args.figures or args.json):
        drawn.append(worth_figure(weighed, width=width))
    if args.figures:
        save_all(drawn, Path(args.figures), force=args.force)
    write_atomic(args.output, text, force=args.force)
    if args.json:
        print_json(
            {figure.name: {"columns": figure.columns, "rows": figure.rows} for figure in drawn}
        )
    said = f", certificates: {checked}" if checked else ""
    note(f"saved {args.output} ({len(text.encode()) / 1e6:.2f} MB){said}")
    failed = checked is not None and not all(v.ok for v in checked.verdicts.values())
    return CheckFailed.exit_code if failed else 0
