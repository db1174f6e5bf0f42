"""`railopt plan`: traffic -> chunks -> a policy -> a plan file."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial
from typing import Any

from railopt.answers.gap import gap
from railopt.base.arrays import check_suffix, check_targets
from railopt.base.units import duration, format_time, percent, size
from railopt.cli import common
from railopt.model.background import beside, both_bound, both_plans
from railopt.model.plan import Plan
from railopt.policies import plan
from railopt.policies.spilling import SCALE_UP
from railopt.symbolic.applies import warnings_for

EPILOG = """example:
  railopt plan moe:skew=0.8,seed=1 --nodes 8 --rails 8 --chunk 256KiB --policy lpt -o plan.npz
  railopt plan matrix.txt --fabric fabric.toml --chunk flow --policy equitable -o plan.npz
  railopt plan moe:skew=0.8,seed=1 --policy spill --scale-up in-time
  railopt plan moe:seed=2 --policy spill --background plan.npz -o second.npz"""


MORE = ("max send", "max receive", "staged", "passed on", "scale-up")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traffic", metavar="TRAFFIC", help=common.TRAFFIC_HELP)
    common.add_chunk_argument(parser)
    common.add_policy_argument(parser)
    parser.add_argument(
        "--scale-up",
        choices=SCALE_UP,
        default="beside",
        help="whether bytes between the GPUs of a node take time too; spill heeds it; beside: the "
        "time is that of the NICs",
    )
    parser.add_argument(
        "--seed", type=common.natural, help="random seed of hash and random, and of the ties of lpt"
    )
    parser.add_argument(
        "-o", "--output", metavar="PLAN.npz", help="where to save the plan; .cm exports it to htsim"
    )
    common.add_background_argument(parser)
    common.add_output_arguments(parser, "output")
    common.add_fabric_arguments(parser)


def run(args: argparse.Namespace) -> int:
    check_suffix(args.output, "plan")
    check_targets(args.output, force=args.force)
    fabric = common.fabric_from(args)
    demand = common.demand_from(args.traffic, fabric)
    chunks, other = demand.chunks(args.chunk), common.background_of(args, fabric)
    options = {"seed": args.seed, "scale_up": args.scale_up}
    both: dict[str, Any] = {}
    if isinstance(other, Plan):
        made = beside(fabric, other, chunks, partial(plan, policy=args.policy, **options))
        times = both_plans(made, other, fabric).makespan, both_bound(fabric, other, chunks)
        both = dict(zip(("both", "both_bound"), times, strict=True))
    else:
        made = plan(common.left_of(args, fabric, other), chunks, args.policy, **options)
    if args.output:
        # a plan's fabric is the whole one: simulate takes the background off it
        common.save(args, "output", replace(made, fabric=fabric))
    report = gap(made, limit_s=0)
    if args.format == "json":
        node = {
            "staged": made.staged,
            "passed_on": made.passed_on,
            "scaleup_time": made.scaleup_time,
            "time_with_scaleup": made.time_with_scaleup,
        }
        common.print_json({**report.as_dict(), **node, **both, "output": args.output})
    else:
        cells = {
            "policy": made.policy,
            "chunks": len(chunks),
            "max send": size(int(made.send.max())),
            "max receive": size(int(made.recv.max())),
            "time": duration(report.value),
            "bound": duration(report.bound),
            "gap %": percent(report.gap),
            "slowest": made.slowest,
            "staged": size(made.staged),
            "passed on": size(made.passed_on),
            "scale-up": duration(made.scaleup_time),
        }
        if args.scale_up == "in-time":
            cells["time with scale-up"] = duration(made.time_with_scaleup)
        common.output_of(args).table(list(cells), [list(cells.values())], more=MORE)
    if both:
        common.note(
            f"this plan and {args.background} are both done after {format_time(both['both'])}, no "
            f"plan and it before {format_time(both['both_bound'])}"
        )
    for line in warnings_for(made.fabric, args.policy):
        common.note(f"warning: {line}")
    return 0
