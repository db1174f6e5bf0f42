"""`railopt bench`: an nccl-tests-shaped table of a sender's times over sizes and policies."""

from __future__ import annotations

import argparse
from dataclasses import replace

from railopt.base.errors import CheckFailed, InputError
from railopt.base.units import parse_bytes
from railopt.cli import common, launching
from railopt.model.fabric import Fabric
from railopt.policies import KNOWN, policy_names
from railopt.runtime.benchmark import COLUMNS, Benchmark, Measurement, measure, sizes
from railopt.runtime.rendezvous.launch import Launch
from railopt.runtime.senders import SENDERS, SenderConfig

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
        help=f"the pattern, scaled to each size (default moe:skew=0.8): {common.BYTES_HELP}",
    )
    parser.add_argument("-b", "--minbytes", default="1MiB", help="smallest size (default 1MiB)")
    parser.add_argument("-e", "--maxbytes", default="16MiB", help="largest size (default 16MiB)")
    for short, name, low, default, words in (
        ("-f", "--stepfactor", 2, 2, "from size to size"),
        ("-n", "--iters", 1, 20, "runs that count"),
        ("-w", "--warmup_iters", 0, 3, "runs before"),
    ):
        parser.add_argument(
            short,
            name,
            type=launching.number_from(low),
            default=default,
            help=f"{words} (default {default})",
        )
    parser.add_argument(
        "-c", "--check", type=int, choices=[0, 1], default=1, help="verify payloads (default 1)"
    )
    parser.add_argument(
        "--policy", default="lpt", help=f"policies, with commas between them: {KNOWN} (default lpt)"
    )
    parser.add_argument(
        "--chunk", default="64KiB", help='largest chunk, or "flow" for whole flows (default 64KiB)'
    )
    parser.add_argument(
        "--sender",
        choices=[name for name, kind in SENDERS.items() if kind.moves],
        help="how plans are carried out (default: verbs with a launcher or --hosts)",
    )
    common.add_format_arguments(parser)
    _add_fabric_arguments(parser)
    launching.add_launch_arguments(parser)
    launching.add_rail_arguments(parser)
    launching.add_metrics_arguments(parser)


def _add_fabric_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("fabric (what bound% is about)")
    group.add_argument(
        "--fabric", metavar="FILE.toml", help="fabric description, instead of the next four options"
    )
    group.add_argument(
        "--nodes", type=launching.number_from(1), help="nodes (default 4, or the number of ranks)"
    )
    group.add_argument(
        "--rails", type=launching.number_from(1), help="rails (default 4, or as many as --ib-dev)"
    )
    group.add_argument(
        "--gpus", type=launching.number_from(1), help="GPUs per node (default: as many as rails)"
    )
    group.add_argument("--link", help="rate of a NIC (default 400Gb/s)")


def run(args: argparse.Namespace) -> int:
    sender, launch = launching.choose_sender(args)
    fabric = _fabric(args, launch, sender)
    benchmark = Benchmark(
        fabric,
        common.traffic_from(args.workload, fabric),
        sizes(parse_bytes(args.minbytes), parse_bytes(args.maxbytes), args.stepfactor),
        tuple(policy_names(args.policy)),
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
        config = replace(_config(args, sender, launch, benchmark), seen=seen)
        for row in measure(benchmark, sender, config):
            rows.append(row)
            if show:
                _print("  ", row.row(), chosen)
    if launch.rank == 0 and out.form == "json":
        common.print_json(_as_dict(args, sender, fabric, rows))
    elif launch.rank == 0 and not show:
        out.table(COLUMNS, [row.row() for row in rows], left=2, more=NCCL_ONLY)
    if any(row.wrong for row in rows):
        raise CheckFailed(f"{sender}: chunks arrived with wrong bytes: see #wrong")
    return 0


def _print(mark: str, cells: tuple[str, ...] | list[str], chosen: list[int]) -> None:
    print(mark + " ".join(cells[i].rjust(_WIDTHS[i]) for i in chosen), flush=True)


def _as_dict(
    args: argparse.Namespace, sender: str, fabric: Fabric, rows: list[Measurement]
) -> dict[str, object]:
    return {
        "sender": sender,
        "workload": args.workload,
        "nodes": fabric.nodes,
        "rails": fabric.rails,
        "rows": [row.as_dict() for row in rows],
    }


def _fabric(args: argparse.Namespace, launch: Launch, sender: str) -> Fabric:
    devices = launching.devices_of(args)
    nodes = launch.size if sender == "verbs" else 4
    rails = len(devices) if devices else 4
    fabric = common.described_fabric(args, {"nodes": nodes, "rails": rails}).fabric
    if sender == "verbs" and fabric.nodes != launch.size:
        raise InputError(
            f"the fabric has {fabric.nodes} nodes, this run has {launch.size} ranks (one process "
            f"a node)"
        )
    return fabric


def _config(
    args: argparse.Namespace, sender: str, launch: Launch, benchmark: Benchmark
) -> SenderConfig:
    return SenderConfig(
        room=benchmark.room,
        rails=benchmark.fabric.rails,
        run=(
            f"bench {args.workload} {args.minbytes} {args.maxbytes} {args.stepfactor} "
            f"{args.policy} {args.chunk} {args.iters} {args.warmup_iters} {args.check}"
        ),
        verify=bool(args.check),
        checksums=False,
        launch=launch,
        meeting=launching.meeting_of(args),
        devices=launching.devices_of(args),
        options=launching.options_of(args),
        say=lambda text: launching.talk(sender, text),
    )
