"""railopt check FILE...: re-check plans and certificates with the trusted kernel."""

from __future__ import annotations

import argparse

from railopt.check import Verdict, check
from railopt.cli.common import note, print_json

HELP = "re-check plans and certificates with the trusted kernel"
EPILOG = """\
examples:
  railopt check plan.npz certificate.json
  railopt check --json certificates/*.json
  python3 -S railopt/check.py certificate.json     the same kernel, without railopt installed

exit codes: 0 every file checks, 4 some check failed, 1 some file can't be read"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="FILE", help="certificates (.json) and plans (.npz)")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead of lines")


def run(args: argparse.Namespace) -> int:
    """One line or JSON object a file; the exit code."""
    results, codes = [], {0}
    for path in args.files:
        try:
            verdict = check(path)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            note(f"railopt: error: {path}: {reason}")
            results.append({"file": path, "ok": False, "error": reason})
            codes.add(1)
            continue
        codes.add(0 if verdict.ok else 4)
        results.append({"file": path, **_figures(verdict)})
        if not args.json:
            print(_line(path, verdict))
    if args.json:
        print_json(results)
    return max(codes)


def _figures(verdict: Verdict) -> dict[str, object]:
    return {"ok": verdict.ok, "proved": verdict.proved, "kind": verdict.kind, "message": verdict.message,
            "bound": verdict.bound, "value": verdict.value}


def _line(path: str, verdict: Verdict) -> str:
    word = "proved" if verdict.proved else "ok" if verdict.ok else "FAILED"
    named = (("bound", verdict.bound), ("value", verdict.value))
    figures = [f"{name} {figure}" for name, figure in named if figure is not None]
    return f"{path}: {word} ({', '.join([verdict.kind, *figures])}): {verdict.message}"
