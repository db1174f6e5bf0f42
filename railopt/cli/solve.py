"""railopt solve TRAFFIC|PLAN: the best plan, and whether it is optimal."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

from railopt.base.arrays import check_suffix, check_targets, kind_of
from railopt.base.errors import BackendError, NotProved
from railopt.base.units import Quantity, duration, percent, size
from railopt.cli import common
from railopt.cli.progress import show, stage
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.solver.coupled.race import Outcome
from railopt.solver.program.backends import BACKENDS

EPILOG = """examples:
  railopt solve moe:skew=0.8,seed=1 --nodes 4 --chunk 4MiB -o best.npz --certificate best.json
  railopt solve matrix.txt --nodes 4 --backend cpsat --limit 1min
  railopt solve moe:seed=1 --nodes 4 --chunk flow --write-model model.mps

The native solver is the default; the others are given the plain integer program.  "optimum" says
what is known of the best possible: known (the plan attains a bound whose witness the checker
re-checks), claimed (optimal on the back-end's word, which is the "bound"; the certificate holds the
best one that has a witness), open.
exit codes: 0 the plan is optimal, 2 the optimum is not known or there is no plan, 3 the back-end is
missing, crashed, hung or returned nonsense, 130 interrupted (the best so far is printed)"""


IDLE = (
    common.Idle(f"chunk {' '.join(common.FABRIC_FLAGS)}", beside=[common.plan_given("traffic")]),
    common.Idle(
        "backend limit seed format", beside=["write_model"], without=["output", "certificate"]
    ),
    common.Idle("seed", beside=["backend!=native"]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traffic",
        metavar="TRAFFIC|PLAN",
        help=f"{common.TRAFFIC_HELP}; or a plan, whose chunks are taken",
    )
    common.add_chunk_argument(parser)
    parser.add_argument(
        "--backend", default="native", help=f"solver: native, {', '.join(BACKENDS)}"
    )
    parser.add_argument(
        "--limit", type=common.time_s, default="10s", help="time limit, e.g. 500ms, 10s, 2min"
    )
    parser.add_argument(
        "--seed", type=common.natural, default=0, help="random seed of the native search"
    )
    parser.add_argument(
        "-o", "--output", metavar="PLAN.npz", help="where to save the plan; .cm exports it to htsim"
    )
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
    common.add_background_argument(parser, plans="")
    common.add_output_arguments(parser, "output", "certificate", "write_model")
    common.add_fabric_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Solve, print, save; the exit code."""
    from railopt.solver.coupled.solve import solve
    from railopt.solver.program.files import write_model

    check_suffix(args.output, "plan")
    fabric, left, chunks = _problem(args)
    check_targets(args.output, args.certificate, args.write_model, force=args.force)
    if args.write_model:
        write_model(left, chunks, args.write_model, force=args.force)
        common.note(f"saved {args.write_model}")
        if not (args.output or args.certificate):
            return 0
    report = partial(show, args.backend)
    outcome = solve(left, chunks, args.limit, args.backend, seed=args.seed, report=report)
    for text in outcome.notes:
        common.note(f"railopt: {text}")
    _print(outcome, chunks, args)
    _save(outcome, fabric, args)
    if outcome.interrupted:
        return 130
    if args.backend != "native" and outcome.notes:
        return BackendError.exit_code
    return 0 if outcome.optimal else NotProved.exit_code


def _save(outcome: Outcome, fabric: Fabric, args: argparse.Namespace) -> None:
    if args.output:
        # as of railopt plan: simulate takes the background off the whole fabric
        common.save(args, "output", replace(outcome.plan, fabric=fabric))
    if args.certificate:
        for path in outcome.save_certificate(args.certificate, force=args.force):
            common.note(f"saved {path}")


def _print(outcome: Outcome, chunks: Chunks, args: argparse.Namespace) -> None:
    """What was found, printed first, so that a failed write loses nothing."""
    if args.format == "json":
        more = {"backend": args.backend, "output": args.output}
        common.print_json({**outcome.as_dict(), **more})
    else:
        common.output_of(args).table(
            ["optimum", "chunks", "largest", "value", "bound", "gap %", "time", "by"],
            [
                [
                    outcome.optimum,
                    len(chunks),
                    size(chunks.largest),
                    duration(outcome.value),
                    duration(outcome.bound),
                    percent(outcome.gap),
                    Quantity(f"{outcome.time_s:.3g}s", outcome.time_s, "s"),
                    outcome.bracket.by,
                ]
            ],
        )


def _problem(args: argparse.Namespace) -> tuple[Fabric, Fabric, Chunks]:
    """The fabric, what a background leaves of it, and the chunks: of a plan file, or of traffic and
    the fabric options.
    """
    if kind_of(args.traffic) == "plan":
        plan = Plan.read(args.traffic)
        left = common.left_of(args, plan.fabric, common.background_of(args, plan.fabric))
        return plan.fabric, left, plan.chunks
    fabric = common.fabric_from(args)
    stage("traffic")
    demand = common.demand_from(args.traffic, fabric)
    left = common.left_of(args, fabric, common.background_of(args, fabric))
    return fabric, left, demand.chunks(args.chunk)
