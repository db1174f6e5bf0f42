"""`railopt send`: carry out a plan: here, as a table of work requests, or on the NICs."""

from __future__ import annotations

import argparse
import io
import sys
from dataclasses import replace

from railopt.base.arrays import check_targets, write_atomic
from railopt.base.errors import CheckFailed
from railopt.cli import common, launching
from railopt.model.plan import Plan
from railopt.runtime.adapt import MODES, Adapter
from railopt.runtime.carried import Carried, carry
from railopt.runtime.payload.layout import Layout
from railopt.runtime.senders import SENDERS
from railopt.runtime.senders.config import METRICS

EPILOG = f"""senders (default: loopback; verbs with a launcher or --hosts):
{chr(10).join(f"  {name:10} {kind.help}" for name, kind in SENDERS.items())}

examples:
  railopt send plan.npz
  railopt send plan.npz --sender record -o posts.tsv
  srun -N 8 --ntasks-per-node 1 railopt send plan.npz --iters 20
  srun -N 8 --ntasks-per-node 1 railopt send plan.npz --iters 99 --adapt rates
  railopt send plan.npz --save-fabric measured.toml
the same on each node:
  RAILOPT_SECRET=... railopt send plan.npz --hosts node1,node2 --rails mlx5_0,mlx5_1"""


def _one_run(args: argparse.Namespace) -> str:
    alone = args.iters == 1 and args.adapt != "off"
    return "--iters 1: one run leaves none to plan for" if alone else ""


IDLE = (
    *launching.IDLE,
    common.Idle("adapt", beside=[_one_run]),
    common.Idle("report_gbits", beside=["format=json"]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN.npz", help="a plan, as `railopt plan -o` saves it")
    parser.add_argument(
        "--sender", choices=list(SENDERS), help="how the plan is carried out (default: see below)"
    )
    parser.add_argument(
        "--iters", type=common.positive, default=1, help="how often the plan is carried out"
    )
    parser.add_argument("--no-verify", action="store_true", help="do not fill and compare payloads")
    parser.add_argument(
        "--stage",
        action="store_true",
        help="copy inside nodes as planned (spill, even-excess), with the host's memcpy",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="record: where the table goes (default: stdout); {rank} in the name is this process's "
        "rank",
    )
    parser.add_argument(
        "--adapt",
        choices=list(MODES),
        default="off",
        help="from run to run: " + "; ".join(f"{k}: {v}" for k, v in MODES.items()),
    )
    parser.add_argument(
        "--save-fabric",
        metavar="FILE",
        help="save what the NICs did as a fabric, in whole 32nds of the plan's rates",
    )
    parser.add_argument(
        "--report_gbits", action="store_true", help="print rates in Gb/s instead of GB/s"
    )
    common.add_format_arguments(parser, "--out_json")
    common.add_force_argument(parser, "output", "save_fabric")
    launching.add_launch_arguments(parser)
    launching.add_rail_arguments(parser, "--rails")
    launching.add_metrics_arguments(parser)


def run(args: argparse.Namespace) -> int:
    launching.require_toml("--save-fabric", args.save_fabric)
    reported = "no_verify", "format", "report_gbits", "adapt", "save_fabric", "stage", *METRICS
    others = "output", *reported
    sender, launch = launching.choose_sender(args, *others)
    if launch.rank == 0:  # which alone writes it
        check_targets(args.save_fabric, force=args.force)
    plan = Plan.read(args.plan)
    table_of_posts = io.StringIO()
    config = launching.config_of(
        args,
        sender,
        launch,
        f"{plan.digest[:16]} {args.iters} {args.adapt} {not args.no_verify}",
        room=Layout.packed(plan.chunks),
        rails=plan.fabric.rails,
        verify=not args.no_verify,
        stage=args.stage,
        out=table_of_posts,
    )
    adapter = None
    if args.adapt != "off" or args.save_fabric:
        adapter = Adapter(plan.fabric, args.adapt)
    with launching.metered(args, launch.rank) as seen:
        config, every = replace(config, seen=seen), args.format == "json"
        carried = carry(plan, sender, config, args.iters, adapter, every=every)
    if sender == "record":
        _save(args, table_of_posts.getvalue(), launch.rank)
    elif launch.rank == 0:
        _show(args, carried)
    try:
        if adapter is not None and args.save_fabric and launch.rank == 0:
            adapter.seen().save(args.save_fabric, force=args.force)
            launching.say_of(sender, f"wrote {args.save_fabric}")
    finally:
        if carried.wrong:
            raise CheckFailed(f"{carried.sender}: {carried.wrong} chunks arrived with wrong bytes")
    return 0


def _save(args: argparse.Namespace, text: str, rank: int) -> None:
    if args.output is None:
        sys.stdout.write(text)
        return
    path = launching.of_rank(args.output, rank)
    write_atomic(path, text, force=args.force)
    launching.say_of("record", f"wrote {path}")


def _show(args: argparse.Namespace, carried: Carried) -> None:
    if args.format == "json":
        common.print_json({**carried.as_dict(), "plan": args.plan})
    else:
        gbits = args.report_gbits
        common.output_of(args).table(carried.columns(gbits=gbits), carried.rows(gbits=gbits))
