"""What `send` and `bench` share: which sender, who the other ranks are, which devices are the
rails.
"""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from railopt.cli.common import note
from railopt.errors import BackendError, InputError
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.handshake import read_secret
from railopt.runtime.rendezvous.join import DEFAULT_PORT, join
from railopt.runtime.rendezvous.launch import VARIABLES, Launch, detect, from_hosts
from railopt.runtime.rendezvous.mpi import join_mpi
from railopt.runtime.verbs.devices import list_devices, rail_map
from railopt.runtime.verbs.objects import Patience
from railopt.runtime.verbs.rails import Options
from railopt.units import parse_bytes

MTUS = (256, 512, 1024, 2048, 4096)


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Ranks and the rendezvous."""
    group = parser.add_argument_group(
        "launch (one process a node: mpirun, srun or torchrun, or the same command on each)"
    )
    group.add_argument("--hosts", help="the nodes in rank order, e.g. node1,node2 or node[1-8]")
    group.add_argument(
        "--rank", type=int, help="this node's place in --hosts (default: found by name and address)"
    )
    group.add_argument(
        "--launcher", choices=sorted(VARIABLES), help="believe this launcher's environment alone"
    )
    group.add_argument(
        "--secret-file",
        metavar="FILE",
        help="the shared secret of the rendezvous (default: RAILOPT_SECRET)",
    )
    group.add_argument(
        "--port",
        type=int,
        default=DEFAULT_PORT,
        help=f"TCP port on rank 0 (default {DEFAULT_PORT})",
    )
    group.add_argument(
        "--join",
        metavar="SECONDS",
        type=float,
        default=60.0,
        help="wait this long for all ranks (default 60)",
    )


def add_rail_arguments(parser: argparse.ArgumentParser, *names: str) -> None:
    """Devices (under `names` too) and queue pairs, by perftest's names where it has one."""
    group = parser.add_argument_group("rails (verbs)")
    group.add_argument(
        *names,
        "--ib-dev",
        dest="devices",
        metavar="DEV,DEV,...",
        help="devices in rail order, e.g. mlx5_0,mlx5_1 (default: active ones in PCI order)",
    )
    group.add_argument("--ib-port", type=int, default=1, help="port of every device (default 1)")
    group.add_argument(
        "--gid-index", type=int, help="GID table entry (default: the IPv4 RoCE v2 one)"
    )
    group.add_argument(
        "--mtu", type=int, choices=MTUS, help="largest packet (default: what the ports have)"
    )
    group.add_argument(
        "--sl", type=int, default=0, help="InfiniBand service level, 0 to 15 (default 0)"
    )
    group.add_argument(
        "--tclass", type=int, default=0, help="RoCE traffic class, 0 to 255, DSCP * 4 (default 0)"
    )
    group.add_argument("--qp", type=int, default=1, help="queue pairs a (peer, rail): 1")
    group.add_argument(
        "--size",
        default="1GiB",
        help="largest work request; larger chunks are split (default 1GiB)",
    )
    group.add_argument(
        "--depth", type=int, default=512, help="work requests in flight a queue pair (default 512)"
    )
    group.add_argument(
        "--batch", type=int, default=64, help="work requests a list and a signal (default 64)"
    )
    group.add_argument(
        "--ib-timeout", type=int, default=16, help="a try takes 4.096 us * 2**N (default 16)"
    )
    group.add_argument(
        "--ib-retry", type=int, default=6, help="tries before a rail is dead (default 6)"
    )
    group.add_argument(
        "--stall",
        metavar="SECONDS",
        type=float,
        default=30.0,
        help="give up without progress (default 30)",
    )


def choose_sender(args: argparse.Namespace) -> tuple[str, Launch]:
    """The sender's name and the launch: loopback unless a launcher or --hosts says that there are
    other ranks.
    """
    launch = from_hosts(args.hosts, args.rank) if args.hosts else detect(os.environ, args.launcher)
    sender = args.sender or ("loopback" if launch is None else "verbs")
    if sender == "verbs" and launch is None:
        raise InputError(
            "--sender verbs needs the other ranks: start it with mpirun, srun or torchrun, or "
            "with --hosts"
        )
    if launch is None:
        launch = Launch("none", 0, 1)
    note(f"{launch} sender={sender}")
    return sender, launch


def join_group(args: argparse.Namespace, launch: Launch, run: str) -> Group:
    """Meet the other ranks: through MPI where it launched us and mpi4py is there, else through the
    TCP rendezvous.
    """
    comm = _mpi(launch)
    if comm is not None:
        return join_mpi(comm, run=run, join_s=args.join)
    return join(
        launch, read_secret(os.environ, args.secret_file), run=run, port=args.port, join_s=args.join
    )


def _mpi(launch: Launch) -> Any:
    """mpi4py's world if MPI launched us without --hosts; None without mpi4py where a host list is
    known.
    """
    if launch.launcher not in ("mpirun", "pmi"):
        return None
    try:
        from mpi4py import MPI
    except (
        ImportError,
        RuntimeError,
    ) as error:  # RuntimeError: mpi4py is there, its MPI library is not
        if launch.hosts:
            return None
        raise BackendError(
            f"{launch.launcher} launched this process, but mpi4py can't be used "
            f"({str(error).splitlines()[0]}): "
            "pip install 'railopt[mpi]', or name the nodes with --hosts"
        ) from error
    if (MPI.COMM_WORLD.Get_rank(), MPI.COMM_WORLD.Get_size()) != (launch.rank, launch.size):
        raise InputError(
            f"the environment says rank {launch.rank}/{launch.size}, mpi4py says "
            f"{MPI.COMM_WORLD.Get_rank()}/{MPI.COMM_WORLD.Get_size()}: mpi4py is built for "
            f"another MPI; "
            "use the mpirun it was built for, or --hosts"
        )
    return MPI.COMM_WORLD


def options_of(args: argparse.Namespace) -> Options:
    """The queue pairs' options."""
    if args.qp != 1:
        raise InputError(
            f"--qp {args.qp}: this sender keeps one queue pair a (peer, rail), as the plan counts "
            f"on"
        )
    if not 1 <= args.batch <= args.depth:
        raise InputError(f"--batch {args.batch} --depth {args.depth}: expected 1 <= batch <= depth")
    if not (0 <= args.ib_retry <= 7 and 1 <= args.ib_timeout <= 31):
        raise InputError(
            f"--ib-timeout {args.ib_timeout} --ib-retry {args.ib_retry}: expected 1 to 31 and 0 "
            f"to 7"
        )
    if not (0 <= args.sl <= 15 and 0 <= args.tclass <= 255):
        raise InputError(f"--sl {args.sl} --tclass {args.tclass}: expected 0 to 15 and 0 to 255")
    return Options(
        port=args.ib_port,
        gid_index=args.gid_index,
        mtu=args.mtu,
        depth=args.depth,
        batch=args.batch,
        max_message=parse_bytes(args.size),
        sl=args.sl,
        tclass=args.tclass,
        patience=Patience(args.ib_timeout, args.ib_retry),
        stall_s=args.stall,
    )


def devices_of(args: argparse.Namespace, rails: int) -> list[str]:
    """This node's device of each rail of the plan."""
    named = args.devices.split(",") if args.devices else None
    return rail_map(named, list_devices(gids=False), args.ib_port, rails)


def talk(sender: str, text: str) -> None:
    """A line of talk that names the sender."""
    print(f"# {sender}: {text}", file=sys.stderr)
