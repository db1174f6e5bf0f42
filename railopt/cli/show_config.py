"""`railopt config`: what a configuration file sets."""

from __future__ import annotations

import argparse

from railopt.cli.common import add_format_arguments, note, output_of, print_json
from railopt.cli.config import NAME, VARIABLE

EPILOG = f"""a {NAME}:
  policy = "lpt-local"
  chunk = "256KiB"
  [fabric]
  nodes = 8
  rails = 8
  link = "400Gb/s"

It is looked for in the current folder; {VARIABLE}, and before it --config FILE, name another.  What
the command line says wins.

examples:
  railopt config
  railopt --config cluster.toml config --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_format_arguments(parser)


def run(args: argparse.Namespace) -> int:
    found = args.settings
    rows = [] if found is None else found.rows()
    if args.format == "json":
        print_json({"file": None if found is None else found.path, "sets": dict(rows)})
        return 0
    output_of(args).table(["key", "value"], rows, left=2)
    note("no configuration file" if found is None else f"from {found.path}")
    return 0
