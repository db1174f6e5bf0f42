"""railopt solve TRAFFIC|PLAN: the best plan, and whether it is proved optimal."""

from __future__ import annotations

import argparse
import json
import zipfile

from railopt.chunks import Chunks
from railopt.cli.common import (
    TRAFFIC_HELP,
    add_fabric_arguments,
    add_output_arguments,
    fabric_from,
    note,
    percent,
    print_json,
    table,
    traffic_from,
)
from railopt.fabric import Fabric
from railopt.plans import Plan
from railopt.solver.program.backends import BACKENDS
from railopt.units import format_bytes, format_time, parse_time, seconds

HELP = "find the best plan and prove it optimal"
EPILOG = """examples:
  railopt solve moe:skew=0.8,seed=1 --nodes 4 --chunk 4MiB -o best.npz --certificate best.json
  railopt solve matrix.txt --nodes 4 --backend cpsat --limit 1min
  railopt solve moe:seed=1 --nodes 4 --chunk flow --write-model model.mps

The native solver is the default and asks CP-SAT only at last; the others are given the plain integer program.
status: proved (a plan and a bound whose witness the kernel re-checks), claimed (optimal on the back-end's word), open.
exit codes: 0 proved, 2 not proved or infeasible, 3 the back-end is missing, crashed, hung or returned nonsense, 130 interrupted"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traffic", metavar="TRAFFIC|PLAN", help=f"{TRAFFIC_HELP}; or a plan, whose chunks are taken"
    )
    parser.add_argument(
        "--chunk",
        default=None,
        help='largest chunk, e.g. 256KiB, or "flow" for whole flows (default 1MiB)',
    )
    parser.add_argument(
        "--backend", default="native", help=f"native (default), {', '.join(BACKENDS)}"
    )
    parser.add_argument(
        "--limit", default="10s", help="time limit, e.g. 500ms, 10s, 2min (default 10s)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the search (default 0)")
    parser.add_argument("-o", "--output", metavar="PLAN.npz", help="where to save the plan")
    parser.add_argument(
        "--certificate",
        metavar="FILE.json",
        help="where to save the certificate (railopt check re-checks it)",
    )
    parser.add_argument(
        "--write-model",
        metavar="FILE.lp|.mps",
        help="write the integer program for other solvers; solves only if -o or --certificate is "
        "given too",
    )
    add_output_arguments(parser)
    add_fabric_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Solve, save, print; the exit code."""
    from railopt.cli.progress import Ticker
    from railopt.solver.coupled.solve import solve
    from railopt.solver.program.files import write_model

    limit_s = float(seconds(parse_time(args.limit)))
    fabric, chunks = problem_from(args)
    if args.write_model:
        write_model(fabric, chunks, args.write_model, force=args.force)
        note(f"wrote {args.write_model}")
        if not (args.output or args.certificate):
            return 0
    with Ticker() as ticker:
        ticker.label = args.backend
        outcome = solve(fabric, chunks, limit_s, args.backend, seed=args.seed, report=ticker)
    for text in outcome.notes:
        note(f"railopt: {text}")
    if outcome.plan is not None and args.output:
        outcome.plan.save(args.output, force=args.force)
        note(f"saved {args.output}")
    if outcome.plan is not None and args.certificate:
        for path in outcome.save_certificate(args.certificate, force=args.force):
            note(f"saved {path}")
    if args.json:
        print_json(
            {
                **outcome.as_dict(),
                "backend": args.backend,
                "chunks": len(chunks),
                "output": args.output,
            }
        )
    elif outcome.value is None:
        note(f"railopt: infeasible: {outcome.method}")
    else:
        table(
            ["status", "chunks", "largest", "value", "bound", "gap %", "time", "by"],
            [
                [
                    outcome.status,
                    len(chunks),
                    format_bytes(chunks.largest),
                    format_time(outcome.value),
                    format_time(outcome.bound),
                    percent(outcome.gap),
                    f"{outcome.time:.3g}s",
                    outcome.method,
                ]
            ],
        )
    if "interrupted" in outcome.notes:
        return 130
    if args.backend != "native" and outcome.notes:
        return 3
    return 0 if outcome.proved else 2


def problem_from(args: argparse.Namespace) -> tuple[Fabric, Chunks]:
    """The fabric and chunks of a plan file, or of traffic and the fabric options."""
    if is_plan(args.traffic):
        plan = Plan.load(args.traffic)
        return plan.fabric, plan.chunks
    fabric = fabric_from(args)
    return fabric, traffic_from(args.traffic, fabric).chunks(args.chunk or "1MiB")


def is_plan(path: str) -> bool:
    """Whether a file is a railopt plan, by the header inside."""
    try:
        with zipfile.ZipFile(path) as archive:
            return bool(json.loads(archive.read("header.json")).get("railopt") == "plan")
    except (OSError, zipfile.BadZipFile, KeyError, ValueError, AttributeError):
        return False
