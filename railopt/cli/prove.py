"""`railopt prove`: run the registry of theorems, or ask which theorems hold on a fabric."""

from __future__ import annotations

import argparse
import time
from typing import Any

from railopt.base.errors import CheckFailed, printable
from railopt.base.extras import need
from railopt.cli import common
from railopt.model.fabric import Fabric

NOT_RUN = "pinned, Coq's kernel not run"
EPILOG = """\
examples:
  railopt prove --quick                 every statement in under half a minute, without Coq's kernel
  railopt prove                         the full ranges, and Coq's kernel where coqc is installed
  railopt prove --id T2                 one theorem and its parts, with what was assumed and found
  railopt prove --fabric fabric.toml    which theorems hold on this fabric, which don't and why
"""


IDLE = (
    common.Idle("id quick kernel", beside=["fabric"]),
    common.Idle("kernel", beside=["quick"]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """--id, --quick, --kernel, --fabric, --format."""
    parser.add_argument(
        "--id",
        metavar="T1",
        action="append",
        default=[],
        help="check only this theorem and its parts; may be repeated",
    )
    parser.add_argument(
        "--quick", action="store_true", help="small ranges, Coq's kernel not run: under 30 s"
    )
    parser.add_argument(
        "--kernel", action="store_true", help="insist on Coq's kernel: exit 3 if coqc is missing"
    )
    parser.add_argument(
        "--fabric", metavar="FABRIC.toml", help="say which theorems apply to this fabric"
    )
    common.add_format_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Exit code 0: all hold; 4: one does not."""
    return _theorems(args) if args.fabric is None else _fabric(args)


def _fabric(args: argparse.Namespace) -> int:
    from railopt.symbolic.applies import applicability

    fabric = Fabric.read(args.fabric)
    found = applicability(fabric)
    if args.format == "json":
        common.print_json({"fabric": args.fabric, "theorems": [vars(entry) for entry in found]})
        return 0
    out = common.output_of(args)
    out.say(f"{printable(args.fabric)}: {fabric.nodes} nodes x {fabric.rails} rails")
    rows = [[e.id, "applies" if e.applies else "does not", e.why] for e in found]
    out.table(["id", "on this fabric", "why"], rows, left=3)
    return 0


def _theorems(args: argparse.Namespace) -> int:
    from railopt.symbolic import registry
    from railopt.symbolic import run as runner

    need("sympy", "railopt prove")
    asked = [theorem for name in args.id for theorem in registry.family(name)]
    chosen = list(dict.fromkeys(asked or registry.read().values()))
    start = time.monotonic()
    needed = any(theorem.coq for theorem in chosen)
    kernel = runner.CoqKernel(
        "pinned" if args.quick or not needed else "run" if args.kernel else "auto"
    )
    kernel_s = time.monotonic() - start
    if needed and not args.quick and not kernel.ran:
        common.note(
            f"railopt prove: the Coq theorems were {kernel.how}; apt-get install "
            f"--no-install-recommends coq, then make proofs"
        )
    outcomes = [runner.run(theorem, kernel, quick=args.quick) for theorem in chosen]
    failed = [outcome for outcome in outcomes if not outcome.ok]
    took = time.monotonic() - start
    if args.format == "json":
        common.print_json(
            {
                "ok": not failed,
                "quick": args.quick,
                "kernel": kernel.how,
                "kernel_seconds": round(kernel_s, 3),
                "seconds": round(took, 3),
                "theorems": [
                    {**outcome.as_dict(), "status": _status(outcome, kernel.ran)}
                    for outcome in outcomes
                ],
            }
        )
    else:
        out = common.output_of(args)
        _print(outcomes, bool(args.id), kernel.ran, out)
        stated = [outcome for outcome in outcomes if outcome.theorem.status != "open"]
        still_open = len(outcomes) - len(stated)
        out.say(
            f"{sum(outcome.ok for outcome in stated)} of {len(stated)} as stated"
            f"{f', {still_open} open' if still_open else ''}, {took:.1f} s"
            f"{f' (Coq {kernel_s:.1f} s)' if kernel.ran else ''}"
        )
    if failed:
        raise CheckFailed(
            "; ".join(f"{outcome.theorem.id} {_why(outcome)}" for outcome in failed[:5])
        )
    return 0


def _status(outcome: Any, kernel_ran: bool) -> str:
    """How the theorem is known by this run: the registry's word, unless it is the kernel's and the
    kernel did not run.
    """
    status = str(outcome.theorem.status)
    return NOT_RUN if status == "proved-kernel" and not kernel_ran else status


def _why(outcome: Any) -> str:
    return (
        "; ".join(
            f"[{name}] {'undecided' if result.ok is None else 'fails'}: {result.detail[:300]}"
            for name, result in outcome.results
            if result.ok is not True
        )
        or "has nothing that runs"
    )


def _print(outcomes: list[Any], details: bool, kernel_ran: bool, out: common.Output) -> None:
    header = ("id", "statement", "status", "range", "s")
    rows = [
        (
            entry.theorem.id,
            entry.theorem.title,
            _status(entry, kernel_ran) if entry.ok else "FAILED",
            entry.range,
            f"{entry.seconds:.2f}",
        )
        for entry in outcomes
    ]
    out.table(header, rows, left=len(header))
    for outcome in outcomes if details else ():
        out.say(
            f"\n{outcome.theorem.id}: {outcome.theorem.statement}\n  {outcome.theorem.symbols}\n  "
            f"source: {outcome.theorem.source}"
        )
        for hypothesis in outcome.theorem.hypotheses:
            out.say(f"  needs: {hypothesis}")
        if outcome.theorem.status == "open":
            out.say(f"  known: {outcome.theorem.known}")
            out.say(f"  would settle it: {outcome.theorem.settled_by}")
        for name, result in outcome.results:
            word = {True: "holds", False: "FAILS", None: "UNDECIDED"}[result.ok]
            said = [text for text in (result.range, result.detail) if text and text != name]
            out.say(f"  {word}  {result.method}  {name}: {'; '.join(said)}")
            for assumed in result.assumed:
                out.say(f"      assumed: {assumed}")
    out.say()
