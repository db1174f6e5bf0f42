"""railopt simulate: run a plan or direct traffic on the fabric, flow by flow."""

from __future__ import annotations

import argparse
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from railopt.arrays import write_atomic
from railopt.cli import common
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.plans import Plan
from railopt.policies import KNOWN, plan
from railopt.sim import BALANCERS, Assumptions, Fault, Stuck, Timeline, simulate
from railopt.sim.assumptions import ROCE_INCAST, STAGES
from railopt.sim.timeline import node_bound
from railopt.traffic import Traffic
from railopt.units import PS_PER_S, format_time, parse_time, seconds

HELP = "run a plan or direct traffic on the fabric, flow by flow"
EPILOG = """examples:
  railopt simulate plan.npz --packets --timeline run.svg
  railopt simulate moe:skew=0.8 --policy lpt --chunk 1MiB --fault 200us:3:5=0
  railopt simulate zipf:skew=0 --balancer ecmp --packets --export htsim/

algbw and busbw are nccl-tests' (all-to-all, bytes between nodes of the busiest rank)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "what", metavar="PLAN|TRAFFIC", help=f"a plan (.npz), or traffic: {common.TRAFFIC_HELP}"
    )
    parser.add_argument(
        "--policy", help=f"put the traffic's chunks on rails: {KNOWN} (default lpt)"
    )
    parser.add_argument(
        "--chunk", metavar="SIZE", help="largest chunk for --policy, or 'flow' (default 1MiB)"
    )
    parser.add_argument(
        "--balancer",
        help="send directly from the own NIC to the target's NIC, paths chosen by: "
        f"{', '.join(BALANCERS)}",
    )
    parser.add_argument(
        "--seed", type=int, help="for hashed and random choices, and for the ties of lpt"
    )
    common.add_fabric_arguments(parser)
    model = parser.add_argument_group("model")
    model.add_argument(
        "--packets",
        action="store_true",
        help="packet headers (4086 of 4150 bytes are payload) and the fabric's latency",
    )
    model.add_argument(
        "--alpha",
        metavar="TIME",
        default="0",
        help="time for which each message holds its transmit NIC, e.g. 2us (default 0)",
    )
    model.add_argument(
        "--incast",
        metavar="LOSS",
        help="receive time lost per sender beyond the first, e.g. "
        f"{float(ROCE_INCAST):g} (fitted to RoCE with PFC); default off",
    )
    model.add_argument(
        "--stages",
        choices=STAGES,
        default="barrier",
        help="how the stages of a plan wait for each other (default barrier)",
    )
    model.add_argument(
        "--fault",
        metavar="TIME:NODE:RAIL=FRACTION",
        action="append",
        default=[],
        help="from TIME on a NIC runs at a fraction of its rate; 0 is dead, 1 is healthy; may be "
        "repeated",
    )
    model.add_argument(
        "--exact", action="store_true", help="recompute rates after every completion"
    )
    parser.add_argument("--timeline", metavar="FILE.svg", help="draw rail by time")
    parser.add_argument(
        "--export", metavar="DIR", help="write the same run for htsim: run.cm and fabric.topo"
    )
    common.add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Simulate, print, and exit 2 with what is stuck where the run can't finish."""
    model = Assumptions.packets() if args.packets else Assumptions()
    model = replace(
        model,
        alpha_ps=parse_time(args.alpha),
        incast=_loss(args.incast),
        exact=args.exact,
        stages=args.stages,
    )
    what, fabric, setting = _subject(args)
    timeline = simulate(
        what,
        fabric=fabric,
        balancer=args.balancer or "ecmp",
        assumptions=model,
        seed=args.seed or 0,
        faults=[Fault.parse(text) for text in args.fault],
        partial=True,
    )
    if args.timeline:
        from railopt.sim.draw import timeline_svg

        write_atomic(args.timeline, timeline_svg(timeline), force=args.force)
        common.note(f"wrote {args.timeline}")
    if args.export:
        from railopt.sim.export import export_htsim

        common.note(
            f"wrote {', '.join(map(str, export_htsim(timeline, args.export, force=args.force)))}"
        )
    summary = {**setting, **_summary(timeline, what)}
    if args.json:
        common.print_json(summary)
    else:
        _print(summary)
    if len(timeline.stuck):
        raise Stuck(timeline)
    return 0


def _loss(text: str | None) -> Fraction:
    try:
        return Fraction(text or 0)
    except (ValueError, ZeroDivisionError) as error:
        raise InputError(
            f"--incast {text!r} is not a number: expected e.g. {float(ROCE_INCAST):g}"
        ) from error


def _subject(args: argparse.Namespace) -> tuple[Plan | Traffic, Fabric, dict[str, Any]]:
    """What runs, on which fabric, and how to call it."""
    if _is_plan(args.what):
        options = (
            "policy",
            "chunk",
            "balancer",
            "seed",
            "fabric",
            "nodes",
            "rails",
            "gpus",
            "link",
            "degrade",
        )
        given = [name for name in options if getattr(args, name) not in (None, [])]
        if given:
            raise InputError(
                f"{args.what} is a plan with its own fabric and rails: leave out --{given[0]}"
            )
        stored = Plan.load(args.what)
        return stored, stored.fabric, {"plan": args.what, "policy": stored.policy}
    fabric = common.fabric_from(args)
    traffic = common.traffic_from(args.what, fabric)
    if args.balancer:
        if args.policy or args.chunk:
            raise InputError(
                "--balancer sends flows directly, --policy and --chunk put chunks on rails: give "
                "one of them"
            )
        return traffic, fabric, {"traffic": args.what, "balancer": args.balancer}
    policy, chunk = args.policy or "lpt", args.chunk or "1MiB"
    return (
        plan(fabric, traffic.chunks(chunk), policy, seed=args.seed),
        fabric,
        {"traffic": args.what, "policy": policy, "chunk": chunk},
    )


def _is_plan(path: str) -> bool:
    """Whether the file is a railopt `.npz` that holds a plan; traffic files hold one array only."""
    import zipfile

    if not (Path(path).suffix == ".npz" and zipfile.is_zipfile(path)):
        return False
    with zipfile.ZipFile(path) as archive:
        return "rail.npy" in archive.namelist()


def _summary(timeline: Timeline, what: Plan | Traffic) -> dict[str, Any]:
    completion = timeline.completion
    matrix = what.chunks.node_matrix if isinstance(what, Plan) else what.node_matrix
    assert timeline.fabric is not None
    return {
        "flows": len(timeline.flows),
        "chunks": len(timeline.chunk_ps),
        "bytes": int(timeline.flows.size.sum()),
        "completion_ps": timeline.completion_ps,
        "bound_ps": float(timeline.bound * PS_PER_S),
        "any_plan_bound_ps": float(node_bound(timeline.fabric, matrix) * PS_PER_S),
        "over_bound": float(completion / timeline.bound - 1) if timeline.bound else 0.0,
        "algbw_GBps": timeline.algbw,
        "busbw_GBps": timeline.busbw,
        "rail_utilisation": [round(float(share), 6) for share in timeline.utilisation()],
        "flow_completion_ps": timeline.percentiles(),
        "stuck": timeline.stuck.tolist(),
    }


def _print(summary: dict[str, Any]) -> None:
    def time(ps: float) -> str:
        return format_time(seconds(round(ps)))

    rows = [
        [name, summary[name]]
        for name in ("plan", "traffic", "policy", "chunk", "balancer")
        if name in summary
    ]
    rows += [[name, f"{summary[name]:,}"] for name in ("flows", "chunks", "bytes")]
    rows += [
        ["completion", time(summary["completion_ps"])],
        [
            "bound, this run",
            f"{time(summary['bound_ps'])} (port loads); completion {summary['over_bound']:+.2%}",
        ],
        ["bound, any plan", f"{time(summary['any_plan_bound_ps'])} (node loads)"],
        ["algbw", f"{summary['algbw_GBps']:.2f} GB/s"],
        ["busbw", f"{summary['busbw_GBps']:.2f} GB/s"],
        ["rail utilisation", " ".join(f"{share:.1%}" for share in summary["rail_utilisation"])],
        [
            "flow completion",
            ", ".join(f"{name} {time(ps)}" for name, ps in summary["flow_completion_ps"].items()),
        ],
    ]
    if summary["stuck"]:
        rows.append(
            [
                "stuck chunks",
                f"{len(summary['stuck'])}: {' '.join(map(str, summary['stuck'][:20]))}",
            ]
        )
    for name, value in rows:
        print(f"{name:<20}{value}")
