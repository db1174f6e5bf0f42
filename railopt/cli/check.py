"""railopt check FILE...: re-check what railopt wrote with the trusted checker."""

from __future__ import annotations

import argparse

from railopt.answers.check import check, word
from railopt.base.errors import CheckFailed, InputError, printable
from railopt.base.tables import wrapped
from railopt.checker import Verdict
from railopt.cli.common import add_format_arguments, note, output_of, print_json

EPILOG = """\
examples:
  railopt check plan.npz certificate.json
  railopt check plan.npz certificate.json --traffic matrix.txt
  railopt check proofs/counterexamples/*.json
  railopt check --json certificates/*.json
  railopt check --verified certificate.json        by a checker that is proved in Coq
  python3 -S railopt/checker.py certificate.json     the same checker, without railopt installed

optimal is said of a file's own plan: it meets a bound whose witness was checked.  optimum is said
of its problem: known if some plan in the file does, claimed on a solver's word, else open.
exit codes: 0 every file checks, 4 some check failed, 1 none failed but some file can't be read"""


_COLUMNS = ("kind", "optimal", "optimum", "bound", "value", "best")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="certificates and counterexamples (.json), plans and schedules (.npz)",
    )
    parser.add_argument(
        "--traffic",
        metavar="TRAFFIC",
        help="check too that each plan sends every byte of this traffic (a file or a workload) "
        "exactly once, and that each certificate is about it",
    )
    parser.add_argument(
        "--verified",
        action="store_true",
        help="check with railopt-verified, the checker that is proved in Coq and extracted (make "
        "verified builds it): certificates, plans and counterexamples",
    )
    add_format_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """One line or JSON object per file; the exit code."""
    results, codes = [], {0}
    for path in args.files:
        try:
            verdict = check(path, args.traffic, verified=args.verified)
        except InputError as error:
            note(f"railopt: error: {error}")
            unknown = dict.fromkeys(_COLUMNS)
            results.append({"file": path, "ok": False, **unknown, "message": printable(error)})
            codes.add(error.exit_code)
            continue
        codes.add(0 if verdict.ok else CheckFailed.exit_code)
        names = ("ok", *_COLUMNS, "message")
        results.append({"file": path, **{name: getattr(verdict, name) for name in names}})
        if args.format in (None, "text"):
            line = _line(path, verdict)
            print(line if args.wide else wrapped(line))
    if args.format == "json":
        print_json(results)
    elif args.format not in (None, "text"):
        columns = ["file", "ok", *_COLUMNS, "message"]
        rows = [[_cell(found.get(name)) for name in columns] for found in results]
        output_of(args).table(columns, rows)
    return max(codes)


def _cell(value: object) -> object:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else value


def _line(path: str, verdict: Verdict) -> str:
    figures = [verdict.kind]
    for name in ("bound", "value", "best"):
        figure = getattr(verdict, name)
        if figure is not None and not (name == "best" and figure == verdict.value):
            figures.append(f"{name} {figure}")
    if verdict.bound is not None:
        figures.append(f"optimum {verdict.optimum}")
    return f"{printable(path)}: {word(verdict)} ({', '.join(figures)}): {verdict.message}"
