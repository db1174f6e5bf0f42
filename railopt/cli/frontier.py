"""railopt frontier TRAFFIC: time against bytes moved inside nodes."""

from __future__ import annotations

import argparse

from railopt.answers.frontier import DEFAULT_POLICIES, Frontier, frontier
from railopt.base.units import Quantity, duration, percent, size
from railopt.cli import common

EPILOG = """examples:
  railopt frontier moe:skew=0.5,seed=1 --nodes 4 --figure front.svg
  railopt frontier moe:skew=0.5,seed=1 --degrade 3:5=0 --policy own-nic,lpt --json

"moved" is what a plan moves between GPUs of a node, before and after the rails; "least" is a
certified bound on what plans as fast as it move, "above %" how far it is above that ("-" where
that is nothing, and the plan moves something).  The rows "front" are that bound at times from the
least that divisible traffic takes to that of own NICs, but for times that a policy above has, whose
"least" it is.
Of a routing trace with layer=all or step=all, every dispatch has its rows."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traffic", metavar="TRAFFIC", help=common.TRAFFIC_HELP)
    common.add_chunk_argument(parser)
    common.add_policies_argument(parser, DEFAULT_POLICIES)
    parser.add_argument(
        "--limit",
        type=common.time_s,
        default="10s",
        help="time for each bound; 0s: what plans of any time move",
    )
    common.add_figure_arguments(parser, "draw it")
    common.add_output_arguments(parser, "figure")
    common.add_fabric_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """The policies and the front, as a table or JSON; the exit code."""
    width = common.figure_width(args, "figure")
    fabric = common.fabric_from(args)
    demands = common.one_figure(common.demands_from(args.traffic, fabric), args)
    fronts = {
        name: frontier(fabric, demand.chunks(args.chunk), args.policy, limit_s=args.limit)
        for name, demand in demands.items()
    }
    if args.format == "json":
        common.print_json(
            common.by_dispatch({name: found.as_dict() for name, found in fronts.items()})
        )
    else:
        columns = ["policy", "time", "moved", "least", "above %"]
        common.output_of(args).by_dispatch(
            columns, {name: _rows(one) for name, one in fronts.items()}
        )
    if args.figure:
        from railopt.report.frontier import moved_against_time

        title = common.title_of(args, f"{args.traffic}: time against bytes moved inside nodes")
        figure = moved_against_time(next(iter(fronts.values())), title, width=width)
        common.save_drawing(args, "figure", figure)
    return 0


def _rows(found: Frontier) -> list[list[str | Quantity]]:
    """The policies, then the front at other times than theirs."""
    rows: list[list[str | Quantity]] = [
        [
            stand.plan.policy,
            duration(stand.plan.makespan),
            size(stand.plan.moved),
            size(stand.least),
            percent(stand.gap),
        ]
        for stand in found.stands
    ]
    own = {stand.plan.makespan for stand in found.stands}
    return rows + [
        ["front", duration(bound.time), "", size(bound.bytes), ""]
        for bound in found.bounds
        if bound.time not in own
    ]
