"""railopt check FILE...: re-check plans and certificates with the trusted kernel."""

from __future__ import annotations

import argparse
from dataclasses import replace

from railopt.arrays import kind_of
from railopt.check import Verdict, check
from railopt.cli.common import note, print_json, traffic_from
from railopt.errors import InputError

HELP = "re-check plans and certificates with the trusted kernel"
EPILOG = """\
examples:
  railopt check plan.npz certificate.json
  railopt check plan.npz --traffic matrix.txt
  railopt check --json certificates/*.json
  python3 -S railopt/check.py certificate.json     the same kernel, without railopt installed

exit codes: 0 every file checks, 4 some check failed, 1 some file can't be read"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files", nargs="+", metavar="FILE", help="certificates (.json), plans and schedules (.npz)"
    )
    parser.add_argument(
        "--traffic",
        metavar="TRAFFIC",
        help="also: each plan sends every byte of this traffic (a file or a workload) exactly once",
    )
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document instead of lines"
    )


def run(args: argparse.Namespace) -> int:
    """One line or JSON object a file; the exit code."""
    results, codes = [], {0}
    for path in args.files:
        try:
            verdict = _schedule(path) or check(path)
            if verdict.ok and verdict.kind == "plan":
                verdict = _as_meant(path, args.traffic, verdict)
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


def _schedule(path: str) -> Verdict | None:
    """A staged schedule is validated by its own constructor: stages, peers and bytes; None if the
    file is something else.
    """
    if kind_of(path) != "schedule":
        return None
    from railopt.schedule import Schedule

    try:
        made = Schedule.load(path)
    except InputError as error:
        return Verdict(False, False, "schedule", str(error))
    return Verdict(
        True,
        False,
        "schedule",
        f"{made.kind}, {made.stages} stages: one peer a GPU and stage, every byte arrives",
    )


def _as_meant(path: str, traffic: str | None, verdict: Verdict) -> Verdict:
    """The verdict on a plan, given what it has to send, and that stages of a schedule are free of
    incast.
    """
    from railopt.plans import Plan
    from railopt.schedule import KINDS, conflicts

    made = Plan.load(path)
    said, wrong = [verdict.message], []
    if made.stage is not None and made.policy in KINDS and KINDS[made.policy].barriers:
        wrong += conflicts(made)
        said += wrong or ["in each stage every NIC has one peer"]
    if traffic is not None:
        missed = made.misses(traffic_from(traffic, made.fabric))
        wrong += [missed] if missed else []
        said.append(missed or f"sends every byte of {traffic} once")
    return replace(
        verdict, ok=not wrong, proved=verdict.proved and not wrong, message="; ".join(said)
    )


def _figures(verdict: Verdict) -> dict[str, object]:
    return {
        "ok": verdict.ok,
        "proved": verdict.proved,
        "kind": verdict.kind,
        "message": verdict.message,
        "bound": verdict.bound,
        "value": verdict.value,
    }


def _line(path: str, verdict: Verdict) -> str:
    word = "proved" if verdict.proved else "ok" if verdict.ok else "FAILED"
    named = (("bound", verdict.bound), ("value", verdict.value))
    figures = [f"{name} {figure}" for name, figure in named if figure is not None]
    return f"{path}: {word} ({', '.join([verdict.kind, *figures])}): {verdict.message}"
