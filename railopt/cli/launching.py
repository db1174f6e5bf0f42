"""What `send` and `bench` share: the options that say who the other ranks are, where they meet, and
which devices are the rails. None of them has a default here: one that was given and can't act is an
error.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from railopt.base.errors import InputError, printable
from railopt.base.units import parse_bytes, parse_integer
from railopt.cli.common import Idle, given, integer, note, refuse_idle, time_s
from railopt.model.plan import Plan
from railopt.runtime.metrics import Metrics, served
from railopt.runtime.naming import Naming, hosts_from, once
from railopt.runtime.rendezvous.join import DEFAULT_JOIN_S, DEFAULT_PORT
from railopt.runtime.rendezvous.launch import VARIABLES, Launch, detect, from_hosts
from railopt.runtime.rendezvous.meet import Meeting
from railopt.runtime.senders import SENDERS, SenderConfig
from railopt.runtime.senders.config import LAUNCH, MEETING, RAILS
from railopt.runtime.senders.report import Report
from railopt.runtime.verbs.objects import Patience
from railopt.runtime.verbs.rails import MTUS, Options

IDLE = Idle("rank", without=["hosts"]), Idle("launcher", beside=["hosts"])


def add_launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Ranks and the rendezvous."""
    group = parser.add_argument_group(
        "launch (one process per node: mpirun, srun or torchrun, or the same command on each)"
    )
    group.add_argument("--hosts", help="the nodes in rank order, e.g. node1,node2 or node[1-8]")
    group.add_argument(
        "--rank",
        type=integer,
        help="this node's place in --hosts (default: found by name and address)",
    )
    group.add_argument(
        "--launcher", choices=sorted(VARIABLES), help="read the environment of this launcher alone"
    )
    group.add_argument(
        "--secret-file",
        metavar="FILE",
        help="the shared secret of the rendezvous (default: RAILOPT_SECRET)",
    )
    group.add_argument(
        "--port",
        type=partial(parse_integer, low=1, high=65535),
        help=f"TCP port on rank 0 (default {DEFAULT_PORT})",
    )
    group.add_argument(
        "--bind",
        metavar="ADDRESS",
        help="where rank 0 listens (default: the address of its host name; 0.0.0.0: everywhere)",
    )
    group.add_argument(
        "--join",
        metavar="SECONDS",
        type=time_s,
        default=f"{DEFAULT_JOIN_S:g}s",
        help="wait this long for all ranks",
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
    group.add_argument("--mtu", type=int, choices=MTUS, help="largest packet (default: the ports')")
    group.add_argument(
        "--size",
        type=parse_bytes,
        default="1GiB",
        help="largest work request; larger chunks are split",
    )
    group.add_argument(
        "--stall",
        metavar="SECONDS",
        type=time_s,
        default="30s",
        help="give up after this time without progress",
    )
    for flag, usual, words in (
        ("--ib-port", 1, "port of every device"),
        ("--gid-index", None, "GID table entry (default: the IPv4 RoCE v2 one)"),
        ("--sl", 0, "InfiniBand service level, 0 to 15"),
        ("--tclass", 0, "RoCE traffic class, 0 to 255, DSCP * 4"),
        ("--qp", 1, "queue pairs to each peer on each rail"),
        ("--depth", 512, "work requests in flight a queue pair"),
        ("--batch", 64, "work requests a list and a signal"),
        ("--ib-timeout", 16, "a try takes 4.096 us * 2**N"),
        ("--ib-retry", 6, "tries before a rail is dead"),
    ):
        group.add_argument(flag, type=integer, default=usual, help=words)


def add_metrics_arguments(parser: argparse.ArgumentParser) -> None:
    """--metrics and --metrics-port."""
    group = parser.add_argument_group("metrics (OpenMetrics text: what each link did)")
    group.add_argument(
        "--metrics",
        metavar="FILE.prom",
        help="write them there after each run, for node_exporter's textfile collector; {rank} in "
        "the name is this process's rank",
    )
    group.add_argument(
        "--metrics-port",
        metavar="PORT",
        type=partial(parse_integer, low=0, high=65535),
        help="answer http://127.0.0.1:PORT/metrics during the runs (0: a free port)",
    )


def of_rank(path: str, rank: int) -> str:
    """A file's name with this process's rank in the place of {rank}."""
    return path.replace("{rank}", str(rank))


@contextmanager
def metered(args: argparse.Namespace, rank: int) -> Iterator[Callable[[Plan, Report], None] | None]:
    """What is called with each run, where --metrics or --metrics-port ask for it."""
    if args.metrics is None and args.metrics_port is None:
        yield None
        return
    metrics = Metrics(args.metrics and of_rank(args.metrics, rank))
    if args.metrics_port is None:
        yield metrics.seen
    else:
        with served(metrics, args.metrics_port) as port:
            note(f"metrics at http://127.0.0.1:{port}/metrics")
            yield metrics.seen
    if metrics.unwritten:
        note(f"metrics of the last run are not written: {metrics.unwritten}")


def choose_sender(args: argparse.Namespace, *others: str) -> tuple[str, Launch]:
    """The sender's name and the launch: loopback unless a launcher or --hosts says that there are
    other ranks. Refuses options, of these here and of `others`, that can't act on that sender.
    """
    launch = _launch(args)
    sender = args.sender or ("loopback" if launch is None else "verbs")
    for name in sorted(LAUNCH | MEETING | RAILS | set(others)):
        if given(args, name) and name not in SENDERS[sender].takes:
            refuse_idle(name, f"with --sender {sender} ({SENDERS[sender].help})")
    if sender == "verbs" and launch is None:
        raise InputError(
            "--sender verbs needs the other ranks: start it with mpirun, srun or torchrun, or "
            "with --hosts"
        )
    if launch is None or sender == "loopback":  # which is all ranks in this process
        launch = Launch("none", 0, 1)
    note(f"{launch} sender={sender}")
    return sender, launch


def _launch(args: argparse.Namespace) -> Launch | None:
    if args.hosts is None:
        return detect(os.environ, args.launcher)
    return from_hosts(args.hosts, args.rank)


def options_of(args: argparse.Namespace) -> Options:
    """The queue pairs' options."""
    return Options(
        port=args.ib_port,
        gid_index=args.gid_index,
        mtu=args.mtu,
        depth=args.depth,
        batch=args.batch,
        max_message=args.size,
        sl=args.sl,
        tclass=args.tclass,
        patience=Patience(args.ib_timeout, args.ib_retry),
        stall_s=args.stall,
        queue_pairs=args.qp,
    )


def require_toml(flag: str, path: str | None) -> None:
    """Refuse to save a fabric under a name that means something else."""
    if path is not None and Path(path).suffix.lower() != ".toml":
        raise InputError(f"{flag} {printable(path)}: expected a name that ends in .toml")


def devices_of(args: argparse.Namespace) -> tuple[str, ...] | None:
    """The devices that were named, in rail order."""
    if args.devices is None:
        return None
    names = tuple(args.devices.split(","))
    if not all(names):
        raise InputError(
            f"--ib-dev {args.devices!r}: expected devices in rail order, e.g. mlx5_0,mlx5_1"
        )
    return names


def naming_of(args: argparse.Namespace) -> Naming | None:
    """Nodes and rails by the names of --hosts and --ib-dev."""
    if args.hosts is None and args.devices is None:
        return None
    hosts = () if args.hosts is None else hosts_from(args.hosts)
    return Naming(hosts, once(devices_of(args) or (), "device"))


def say_of(sender: str, text: str) -> None:
    """Print a line to stderr that names the sender."""
    print(f"# {sender}: {text}", file=sys.stderr)


def config_of(
    args: argparse.Namespace, sender: str, launch: Launch, run: str, **more: Any
) -> SenderConfig:
    """How plans are carried out: what the options here say, the run's name, and `more`."""
    return SenderConfig(
        run=run,
        launch=launch,
        meeting=Meeting(args.secret_file, args.port, args.join, args.bind),
        devices=devices_of(args),
        options=options_of(args),
        say=lambda text: say_of(sender, text),
        **more,
    )
