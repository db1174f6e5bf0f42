"""`railopt report`: one page to read."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from railopt.arrays import write_atomic
from railopt.cli.common import note

EPILOG = """example:
  railopt report results -o report.html
  railopt report results --experiments out -o report.html --figures figures"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "results",
        metavar="RESULTS",
        nargs="+",
        help="results folders or .jsonl files of railopt sweep",
    )
    parser.add_argument(
        "-o",
        "--output",
        default="report.html",
        metavar="FILE.html",
        help="the page (default report.html)",
    )
    parser.add_argument(
        "--experiments",
        metavar="DIR",
        help="folder with the experiments' results, to show papers beside ours",
    )
    parser.add_argument(
        "--figures", metavar="DIR", help="write the figures as files too, SVG and PDF"
    )
    parser.add_argument("--title", default="railopt report")
    parser.add_argument(
        "--json", action="store_true", help="print the data behind the figures as JSON too"
    )
    parser.add_argument("--force", action="store_true", help="replace files that exist")


def run(args: argparse.Namespace) -> int:
    from railopt.report import figures, page
    from railopt.sweep import results
    from railopt.symbolic import registry

    found = results.load(*args.results)
    experiments = page.read_experiments(Path(args.experiments)) if args.experiments else None
    command = shlex.join(
        [
            "railopt",
            "report",
            *args.results,
            *(["--experiments", args.experiments] if args.experiments else []),
        ]
    )
    text = page.build(found, tuple(registry.load().values()), experiments, command, args.title)
    write_atomic(args.output, text, force=args.force)
    drawn = figures.all_figures(found.rows) if args.figures or args.json else []
    if args.figures:
        from railopt.report.heatmap import save_figure

        Path(args.figures).mkdir(parents=True, exist_ok=True)
        for figure in drawn:
            for suffix in ("svg", "pdf"):
                save_figure(
                    figure.drawing, Path(args.figures) / f"{figure.name}.{suffix}", force=args.force
                )
    if args.json:
        from railopt.cli.common import print_json

        print_json(
            {figure.name: {"columns": figure.columns, "rows": figure.rows} for figure in drawn}
        )
    note(f"saved {args.output} ({len(text.encode()) / 1e6:.2f} MB)")
    return 0
