"""`railopt bench`: an nccl-tests-shaped table of a sender's times over sizes and policies."""

from __future__ import annotations

import argparse
from functools import partial

from railopt.base.errors import CheckFailed, InputError
from railopt.base.units import parse_bytes, parse_integer
from railopt.cli import common, launching
from railopt.model.fabric import Fabric
from railopt.runtime.benchmark import COLUMNS, Benchmark, measure, sizes
from railopt.runtime.rendezvous.launch import Launch
from railopt.runtime.senders import SENDERS

EPILOG = """examples:
  railopt bench -b 1MiB -e 64MiB -f 4 --nodes 4 --rails 4 --policy own-nic,lpt
  RAILOPT_SECRET=... railopt bench -b 64MiB -e 1GiB --hosts node1,node2 --ib-dev mlx5_0,mlx5_1

bound% is the least time of any plan on the fabric (--fabric, --link) over the time measured. On
loopback the bytes move through memory, so bound% only says how this machine's memory compares with
that fabric."""

NCCL_ONLY = ("count", "type", "redop", "root")
"""The same in every row: they are shown with --wide and in csv."""
_WIDTHS = [max(len(name), 10) for name in COLUMNS]


IDLE = launching.IDLE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "workload",
        nargs="?",
        default="moe:skew=0.8",
        metavar="TRAFFIC",
        help=f"the pattern, scaled to each size: {common.BYTES_HELP}",
    )
    for short, name, kind, usual, words in (
        ("-b", "--minbytes", parse_bytes, "1MiB", "smallest size"),
        ("-e", "--maxbytes", parse_bytes, "16MiB", "largest size"),
        ("-f", "--stepfactor", partial(parse_integer, low=2), 2, "from size to size"),
        ("-n", "--iters", common.positive, 20, "runs that count"),
        ("-w", "--warmup_iters", common.natural, 3, "runs before"),
    ):
        parser.add_argument(short, name, type=kind, default=usual, help=words)
    parser.add_argument(
        "-c", "--check", type=int, choices=[0, 1], default=1, help="verify payloads"
    )
    common.add_policies_argument(parser, ["lpt"])
    common.add_chunk_argument(parser, "64KiB")
    parser.add_argument(
        "--sender",
        choices=[name for name, kind in SENDERS.items() if kind.moves],
        help="how plans are carried out (default: verbs with a launcher or --hosts)",
    )
    common.add_format_arguments(parser)
    common.add_fabric_arguments(
        parser, nodes="4, or the number of ranks", rails="4, or as many as --ib-dev"
    )
    launching.add_launch_arguments(parser)
    launching.add_rail_arguments(parser)
    launching.add_metrics_arguments(parser)


def run(args: argparse.Namespace) -> int:
    sender, launch = launching.choose_sender(args)
    fabric = _fabric(args, launch, sender)
    benchmark = Benchmark(
        fabric,
        common.traffic_from(args.workload, fabric),
        sizes(args.minbytes, args.maxbytes, args.stepfactor),
        tuple(args.policy),
        args.chunk,
        args.warmup_iters,
        args.iters,
    )
    rows = []
    out = common.output_of(args)
    chosen = out.columns_to_print(COLUMNS, NCCL_ONLY)  # refused before anything runs
    show = launch.rank == 0 and out.form == "text"
    if show:
        _print("# ", COLUMNS, chosen)
    with launching.metered(args, launch.rank) as seen:
        config = launching.config_of(
            args,
            sender,
            launch,
            f"bench {args.workload} {args.minbytes} {args.maxbytes} {args.stepfactor} "
            f"{','.join(args.policy)} {args.chunk} {args.iters} {args.warmup_iters} {args.check}",
            room=benchmark.room,
            rails=fabric.rails,
            verify=bool(args.check),
            seen=seen,
        )
        for row in measure(benchmark, sender, config):
            rows.append(row)
            if show:
                _print("  ", row.row(), chosen)
    if launch.rank == 0 and out.form == "json":
        size = {"nodes": fabric.nodes, "rails": fabric.rails}
        about = {"sender": sender, "workload": args.workload, **size}
        common.print_json({**about, "rows": [row.as_dict() for row in rows]})
    elif launch.rank == 0 and not show:
        out.table(COLUMNS, [row.row() for row in rows], left=2, more=NCCL_ONLY)
    if any(row.wrong for row in rows):
        raise CheckFailed(f"{sender}: chunks arrived with wrong bytes: see #wrong")
    return 0


def _print(mark: str, cells: tuple[str, ...] | list[str], chosen: list[int]) -> None:
    print(mark + " ".join(cells[i].rjust(_WIDTHS[i]) for i in chosen), flush=True)


def _fabric(args: argparse.Namespace, launch: Launch, sender: str) -> Fabric:
    devices = launching.devices_of(args)
    nodes = launch.size if sender == "verbs" else 4
    rails = len(devices) if devices else 4
    fabric = common.described_by(args, {"nodes": nodes, "rails": rails}).fabric
    if sender == "verbs" and fabric.nodes != launch.size:
        raise InputError(
            f"the fabric has {fabric.nodes} nodes, this run has {launch.size} ranks (one process "
            f"a node)"
        )
    return fabric
