"""`railopt bench`: an nccl-tests-shaped table of a sender's times over sizes and policies."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import numpy as np

from railopt.bounds import lower_bound
from railopt.cli.common import TRAFFIC_HELP, add_output_arguments, print_json, traffic_from
from railopt.cli.launching import (
    add_launch_arguments,
    add_rail_arguments,
    choose_sender,
    devices_of,
    join_group,
    options_of,
    talk,
)
from railopt.errors import CheckFailed, InputError
from railopt.fabric import Fabric
from railopt.plans import Plan
from railopt.policies import KNOWN, plan, policy_names
from railopt.runtime.benchmark import COLUMNS, Measurement, scaled, sizes, timed
from railopt.runtime.payload.layout import Layout
from railopt.runtime.rendezvous.launch import Launch
from railopt.units import parse_bytes

EPILOG = """examples:
  railopt bench -b 1MiB -e 64MiB -f 4 --nodes 4 --rails 4 --policy own-nic,lpt
  RAILOPT_SECRET=... railopt bench -b 64MiB -e 1GiB --hosts node1,node2 --ib-dev mlx5_0,mlx5_1 --link 400Gb/s

bound% is the least time of any plan on the fabric (--fabric, --link) over the time measured. On loopback the bytes move
through memory, so bound% only says how this machine's memory compares with that fabric."""

Once = Callable[[Plan, Layout, int], tuple[float, int | None]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workload",
        nargs="?",
        default="moe:skew=0.8",
        metavar="TRAFFIC",
        help=f"the pattern, scaled to each size (default moe:skew=0.8): {TRAFFIC_HELP}",
    )
    parser.add_argument("-b", "--minbytes", default="1MiB", help="smallest size (default 1MiB)")
    parser.add_argument("-e", "--maxbytes", default="16MiB", help="largest size (default 16MiB)")
    parser.add_argument(
        "-f", "--stepfactor", type=int, default=2, help="from size to size (default 2)"
    )
    parser.add_argument("-n", "--iters", type=int, default=20, help="runs that count (default 20)")
    parser.add_argument("-w", "--warmup_iters", type=int, default=3, help="runs before (default 3)")
    parser.add_argument(
        "-c", "--check", type=int, choices=[0, 1], default=1, help="verify payloads (default 1)"
    )
    parser.add_argument("--policy", default="lpt", help=f"one or several of {KNOWN} (default lpt)")
    parser.add_argument("--chunk", default="64KiB", help='largest chunk, or "flow" (default 64KiB)')
    parser.add_argument(
        "--sender", choices=["loopback", "verbs"], help="default: verbs with a launcher or --hosts"
    )
    parser.add_argument(
        "--fabric",
        metavar="FILE.toml",
        help="the fabric that bound%% is about; instead of the next four",
    )
    parser.add_argument("--nodes", type=int, help="nodes (default 4, or the number of ranks)")
    parser.add_argument("--rails", type=int, help="rails (default 4, or the number of --ib-dev)")
    parser.add_argument("--gpus", type=int, help="GPUs a node (default: as many as rails)")
    parser.add_argument("--link", default="400Gb/s", help="rate of a NIC (default 400Gb/s)")
    add_output_arguments(parser)
    add_launch_arguments(parser)
    add_rail_arguments(parser)


def run(args: argparse.Namespace) -> int:
    if args.iters < 1 or args.warmup_iters < 0:
        raise InputError(f"-n {args.iters} -w {args.warmup_iters}: expected at least 1 and 0")
    sender, launch = choose_sender(args)
    fabric = _fabric(args, launch, sender)
    rows = list(_loopback(args, fabric) if sender == "loopback" else _verbs(args, fabric, launch))
    if args.json and launch.rank == 0:
        print_json(
            {
                "sender": sender,
                "workload": args.workload,
                "nodes": fabric.nodes,
                "rails": fabric.rails,
                "rows": [row.as_dict() for row in rows],
            }
        )
    if any(row.wrong for row in rows):
        raise CheckFailed(f"{sender}: chunks arrived with wrong bytes: see #wrong")
    return 0


def _fabric(args: argparse.Namespace, launch: Launch, sender: str) -> Fabric:
    devices = len(args.devices.split(",")) if args.devices else None
    if args.fabric:
        fabric = Fabric.read(args.fabric)
    else:
        nodes = args.nodes or (launch.size if sender == "verbs" else 4)
        fabric = Fabric.uniform(nodes, args.rails or devices or 4, args.link, gpus=args.gpus)
    if sender == "verbs" and fabric.nodes != launch.size:
        raise InputError(
            f"the fabric has {fabric.nodes} nodes, this run has {launch.size} ranks (one process "
            f"a node)"
        )
    return fabric


def _cases(args: argparse.Namespace, fabric: Fabric) -> Iterator[tuple[int, Plan]]:
    policies = policy_names(args.policy)
    pattern = traffic_from(args.workload, fabric)
    for size in sizes(parse_bytes(args.minbytes), parse_bytes(args.maxbytes), args.stepfactor):
        chunks = scaled(pattern, size, fabric).chunks(args.chunk)
        for name in policies:
            yield size, plan(fabric, chunks, name)


def _measure(
    args: argparse.Namespace, fabric: Fabric, sender: str, once: Once, *, show: bool
) -> Iterator[Measurement]:
    """Time every case; print a row as soon as it is there."""
    widths = [max(len(name), 10) for name in COLUMNS]
    if show and not args.json:
        print("# " + " ".join(name.rjust(w) for name, w in zip(COLUMNS, widths, strict=True)))
    for size, made in _cases(args, fabric):
        layout = Layout.packed(made.chunks)

        def run_once(
            i: int, made: Plan = made, layout: Layout = layout
        ) -> tuple[float, int | None]:
            return once(made, layout, i)

        seconds, wrong = timed(run_once, args.warmup_iters, args.iters)
        bound = lower_bound(fabric, made.chunks).value
        measured = Measurement(sender, made.policy, size, fabric.nodes, seconds, bound, wrong)
        if show and not args.json:
            print(
                "  "
                + " ".join(cell.rjust(w) for cell, w in zip(measured.row(), widths, strict=True)),
                flush=True,
            )
        yield measured


def _loopback(args: argparse.Namespace, fabric: Fabric) -> Iterator[Measurement]:
    from railopt.runtime.senders.loopback import Loopback

    sender = Loopback(verify=bool(args.check))

    def once(made: Plan, layout: Layout, i: int) -> tuple[float, int | None]:
        report = sender.run(made).wait()
        return report.seconds, report.wrong

    yield from _measure(args, fabric, "loopback", once, show=True)


def _verbs(args: argparse.Namespace, fabric: Fabric, launch: Launch) -> Iterator[Measurement]:
    """Every rank measures; a run takes as long as its slowest rank. Buffers are registered once,
    for the largest case.
    """
    from railopt.runtime.payload import verify
    from railopt.runtime.senders.verbs import Verbs

    rank, options = launch.rank, options_of(args)
    largest = [Layout.packed(made.chunks) for _, made in _cases(args, fabric)][-1]
    run = (
        f"bench {args.workload} {args.minbytes} {args.maxbytes} {args.stepfactor} "
        f"{args.policy} {args.chunk}"
    )
    with join_group(args, launch, run) as group:
        devices = devices_of(args, fabric.rails)
        send, recv = (
            np.zeros(int(side[rank, 0]), np.uint8)
            for side in (largest.send_bytes, largest.recv_bytes)
        )
        with Verbs(group, devices, send, recv, options=options) as sender:

            def once(made: Plan, layout: Layout, i: int) -> tuple[float, int | None]:
                if args.check:
                    verify.fill(made, layout, rank, sender.send, i)
                group.allgather("start")
                report = sender.run(made).wait()
                wrong = (
                    len(verify.wrong(made, layout, rank, sender.recv, i)) if args.check else None
                )
                for fault in report.faults:
                    talk("verbs", str(fault))
                everyone = group.allgather([report.seconds, wrong])
                return max(t for t, _ in everyone), sum(
                    w for _, w in everyone
                ) if args.check else None

            yield from _measure(args, fabric, "verbs", once, show=rank == 0)
