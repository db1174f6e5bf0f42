"""railopt schedule: a two-level schedule of an all-to-all(v), its cost against the bound, its
files.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from railopt.arrays import write_atomic
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
from railopt.schedule.certify import certificate
from railopt.schedule.kinds import KINDS, ORDERS
from railopt.schedule.model import LINKS, modelled
from railopt.schedule.report import Cost, compare, cost
from railopt.schedule.synthesis import DEFAULT_EPS
from railopt.schedule.value import Schedule
from railopt.units import format_bytes, format_time

HELP = "schedule an all-to-all in few incast-free stages (FAST, SpreadOut, ours)"
EPILOG = (
    """kinds:
"""
    + "\n".join(f"  {name:13} {kind.help}" for name, kind in KINDS.items())
    + """

examples:
  railopt schedule zipf:skew=0.8 --nodes 4 -o schedule.npz      ours, saved
  railopt schedule zipf:skew=0.8 --nodes 16 --compare           every kind side by side
  railopt schedule matrix.txt --nodes 4 --kind fast --cm fast.cm --plan fast.npz
  railopt schedule schedule.npz                                 look at (and re-check) a saved schedule"""
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `railopt schedule`."""
    parser.add_argument("traffic", metavar="TRAFFIC", help=f"{TRAFFIC_HELP}; or a saved schedule")
    parser.add_argument(
        "--kind", default="compact", choices=list(KINDS), help="default compact; see below"
    )
    parser.add_argument(
        "--order", choices=ORDERS, help="of the stages, by length (default: that of the kind)"
    )
    parser.add_argument(
        "--eps",
        default=str(DEFAULT_EPS),
        help="compact: the stages may last 1 + EPS times the bound (default 1/50)",
    )
    parser.add_argument(
        "--startup",
        metavar="SIZE",
        default="256KiB",
        help="compact: what two servers could exchange while a stage starts; no shorter parts "
        "(default 256KiB)",
    )
    parser.add_argument(
        "--links",
        default="h100-400g",
        choices=list(LINKS),
        help="constants of the alpha-beta model",
    )
    parser.add_argument("--compare", action="store_true", help="every kind side by side")
    parser.add_argument(
        "--stages", action="store_true", help="list the stages: who sends how much to whom"
    )
    parser.add_argument("-o", "--output", metavar="FILE.npz", help="save the schedule")
    parser.add_argument(
        "--plan", metavar="FILE.npz", help="save it as a plan, for railopt check, simulate and send"
    )
    parser.add_argument(
        "--chunk",
        metavar="SIZE",
        help="largest chunk of the plan (default: whole pieces; pipelined: 256KiB)",
    )
    parser.add_argument(
        "--cm", metavar="FILE.cm", help="export for htsim, a barrier trigger between stages"
    )
    parser.add_argument(
        "--certificate",
        metavar="FILE.json",
        help="save the proof that L / (m B2) is the optimum, for railopt check",
    )
    add_fabric_arguments(parser)
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Make, load or compare; print; write what was asked for."""
    links = LINKS[args.links]
    if _is_schedule(args.traffic):
        loaded = Schedule.load(args.traffic)
        costs = [Cost(loaded, modelled(loaded, links), 0.0)]
    else:
        fabric = fabric_from(args)
        traffic = traffic_from(args.traffic, fabric)
        costs = (
            compare(fabric, traffic, KINDS, links)
            if args.compare
            else [
                cost(
                    fabric,
                    traffic,
                    args.kind,
                    order=args.order,
                    eps=args.eps,
                    startup=args.startup,
                    links=links,
                )
            ]
        )
    made = next(c.schedule for c in costs if c.schedule.kind == args.kind or len(costs) == 1)
    _write(args, made)
    if args.json:
        data = [
            {**c.as_dict(), **({"transfers": _transfers(c.schedule)} if args.stages else {})}
            for c in costs
        ]
        print_json(data if args.compare else data[0])
        return 0
    _print_costs(costs)
    if args.stages:
        print()
        rows = [[s, format_bytes(int(made.lengths[s])), _line(made, s)] for s in range(made.stages)]
        table(["stage", "length", "transfers"], rows)
    return 0


def _is_schedule(text: str) -> bool:
    """A railopt .npz that says it is a schedule; anything else is left to the traffic readers and
    their errors.
    """
    if Path(text).suffix != ".npz" or not Path(text).is_file():
        return False
    import json
    import zipfile

    try:
        with zipfile.ZipFile(text) as archive:
            return bool(json.loads(archive.read("header.json")).get("railopt") == "schedule")
    except (zipfile.BadZipFile, KeyError, ValueError, AttributeError):
        return False


def _write(args: argparse.Namespace, made: Schedule) -> None:
    if args.output:
        made.save(args.output, force=args.force)
        note(f"wrote {args.output}")
    if args.certificate:
        certificate(made).require().save(args.certificate, force=args.force)
        note(f"wrote {args.certificate}")
    if args.plan:
        plan = made.plan(args.chunk)
        plan.save(args.plan, force=args.force)
        note(f"wrote {args.plan}: {len(plan.chunks)} chunks")
    if args.cm:
        write_atomic(args.cm, made.to_cm(), force=args.force)
        note(f"wrote {args.cm}")


def _print_costs(costs: list[Cost]) -> None:
    made = costs[0].schedule
    side = "sends" if made.bound.side == "send" else "receives"
    print(
        f"{made.fabric.nodes} servers x {made.fabric.gpus} GPUs; server {made.bound.node} {side} "
        f"{format_bytes(made.line_sum)}: no schedule is faster than {format_time(made.bound.value)}"
    )
    rows = [
        [
            c.schedule.kind,
            c.schedule.stages if KINDS[c.schedule.kind].barriers else "-",
            percent(c.schedule.excess),
            f"{c.parts.wire:.1f}",
            f"{c.parts.startup:.1f}",
            f"{c.parts.balance:.1f}",
            f"{c.parts.redistribution:.1f}",
            f"{c.parts.total:.1f}",
            f"{c.parts.ratio:.3f}",
            f"{c.synthesis:.0f}" if c.synthesis else "-",
        ]
        for c in costs
    ]
    table(
        [
            "kind",
            "stages",
            "excess %",
            "wire us",
            "start-up",
            "balance",
            "redistr.",
            "total us",
            "/bound",
            "synthesis us",
        ],
        rows,
    )


def _transfers(made: Schedule) -> list[list[list[int]]]:
    """[source, target, bytes] of each transfer of each stage."""
    return [
        [
            [i, int(made.peer[s, i]), int(made.sent[s, i])]
            for i in range(made.fabric.nodes)
            if made.sent[s, i]
        ]
        for s in range(made.stages)
    ]


def _line(made: Schedule, stage: int) -> str:
    sent = made.sent[stage].tolist()
    busy = [
        f"{i}->{made.peer[stage, i]} {format_bytes(size)}" for i, size in enumerate(sent) if size
    ]
    return ", ".join(busy[:8]) + (f", ... {len(busy) - 8} more" if len(busy) > 8 else "")
