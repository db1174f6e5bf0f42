"""`railopt send`: carry out a plan, here (loopback), on paper (record) or on the NICs (verbs)."""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np

from railopt.arrays import atomic_file
from railopt.cli.common import add_output_arguments, print_json, table
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
from railopt.plans import Plan
from railopt.runtime.payload.layout import Layout
from railopt.runtime.rendezvous.launch import Launch
from railopt.units import parse_bytes

EPILOG = """senders:
  loopback   all nodes in this process, real bytes, every payload verified (the default without a launcher)
  record     the work requests that verbs would post, as a table; nothing moves
  verbs      the NICs, one process a node (the default with a launcher or --hosts)

examples:
  railopt send plan.npz
  railopt send plan.npz --sender record -o posts.tsv
  RAILOPT_SECRET=... railopt send plan.npz --hosts node1,node2 --rails mlx5_0,mlx5_1   (the same on each node)
  srun -N 8 --ntasks-per-node 1 railopt send plan.npz --iters 20"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("plan", metavar="PLAN.npz", help="a plan, as `railopt plan -o` saves it")
    parser.add_argument(
        "--sender", choices=["loopback", "record", "verbs"], help="default: see below"
    )
    parser.add_argument("--iters", type=int, default=1, help="how often (default 1)")
    parser.add_argument("--no-verify", action="store_true", help="do not fill and compare payloads")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="record: where the table goes (default: stdout)"
    )
    parser.add_argument("--report_gbits", action="store_true", help="rates in Gb/s instead of GB/s")
    parser.add_argument("--out_json", dest="json", action="store_true", help="as --json")
    add_output_arguments(parser)
    add_launch_arguments(parser)
    add_rail_arguments(parser, "--rails")


def run(args: argparse.Namespace) -> int:
    if args.iters < 1:
        raise InputError(f"--iters {args.iters}: expected at least 1")
    sender, launch = choose_sender(args)
    plan = Plan.load(args.plan)
    if sender == "record":
        return _record(args, plan, launch)
    nodes = _verbs(args, plan, launch) if sender == "verbs" else [_loopback(args, plan)]
    if nodes is None:  # not rank 0
        return 0
    _print(args, plan, sender, nodes)
    wrong = sum(run_["wrong"] or 0 for runs in nodes for run_ in runs)
    if wrong:
        raise CheckFailed(f"{sender}: {wrong} chunks arrived with wrong bytes")
    return 0


def _loopback(args: argparse.Namespace, plan: Plan) -> list[dict[str, Any]]:
    from railopt.runtime.senders.loopback import Loopback

    sender = Loopback(verify=not args.no_verify)
    return [sender.run(plan).wait().as_dict() for _ in range(args.iters)]


def _record(args: argparse.Namespace, plan: Plan, launch: Launch) -> int:
    import io

    from railopt.runtime.senders.record import Record

    if args.json:
        raise InputError(
            "--sender record writes a table of tab-separated rows: --json is for loopback and verbs"
        )
    text = io.StringIO()
    nodes = None if launch.size == 1 else [launch.rank]
    sender = Record(text, nodes=nodes, batch=args.batch, max_message=parse_bytes(args.size))
    for _ in range(args.iters):
        sender.run(plan).wait()
    if args.output:
        with atomic_file(args.output, force=args.force) as file:
            file.write(text.getvalue().encode())
        talk("record", f"wrote {args.output}")
    else:
        sys.stdout.write(text.getvalue())
    return 0


def _verbs(
    args: argparse.Namespace, plan: Plan, launch: Launch
) -> list[list[dict[str, Any]]] | None:
    """Every node's runs on rank 0, None elsewhere."""
    from railopt.runtime.payload import verify
    from railopt.runtime.senders.verbs import Verbs

    if plan.fabric.nodes != launch.size:
        raise InputError(
            f"{args.plan} is for {plan.fabric.nodes} nodes, this run has {launch.size} ranks "
            "(one process a node)"
        )
    options, layout, rank = options_of(args), Layout.packed(plan.chunks), launch.rank
    runs = []
    with join_group(args, launch, plan.digest[:16]) as group:
        devices = devices_of(args, plan.fabric.rails)
        send, recv = (
            np.zeros(int(side[rank, 0]), np.uint8)
            for side in (layout.send_bytes, layout.recv_bytes)
        )
        with Verbs(group, devices, send, recv, options=options) as sender:
            for i in range(args.iters):
                if not args.no_verify:
                    verify.fill(plan, layout, rank, sender.send, i)
                    recv.fill(0)
                group.allgather("start")
                report = sender.run(plan).wait()
                for fault in report.faults:
                    talk("verbs", str(fault))
                wrong = None if args.no_verify else _wrong(sender, plan, layout, i)
                runs.append({**report.as_dict(), "wrong": wrong})
        everything = group.allgather(runs)
    return everything if rank == 0 else None


def _wrong(sender: Any, plan: Plan, layout: Layout, seed: int) -> int:
    """Chunks of this node with wrong bytes, and pairs whose checksum the sender does not
    confirm.
    """
    from railopt.runtime.payload import verify

    rank = sender.group.rank
    wrong = verify.wrong(plan, layout, rank, sender.recv, seed)
    for chunk in wrong[:5].tolist():
        talk(
            "verbs",
            f"chunk {chunk} from {sender.group.names[plan.chunks.src[chunk]]} on rail "
            f"{plan.rail[chunk]} is wrong",
        )
    sent = sender.group.allgather(
        verify.checksums(plan, layout, rank, "send", sender.send).tolist()
    )
    received = verify.checksums(plan, layout, rank, "recv", sender.recv).tolist()
    pairs = sum(received[k] != sent[k][rank] for k in range(len(sent)) if k != rank)
    return max(len(wrong), pairs)


def _print(
    args: argparse.Namespace, plan: Plan, sender: str, nodes: list[list[dict[str, Any]]]
) -> None:
    if args.json:
        print_json(
            {
                "sender": sender,
                "plan": args.plan,
                "policy": plan.policy,
                "digest": plan.digest,
                "makespan": plan.makespan,
                "nodes": nodes,
            }
        )
        return
    unit, scale = ("Gb/s", 8e-9) if args.report_gbits else ("GB/s", 1e-9)
    rows = []
    for node, runs in enumerate(nodes):
        name = "all" if sender == "loopback" else node
        seconds = sum(r["seconds"] for r in runs) / len(runs)
        for rail in runs[-1]["rails"]:
            state = "ok" if rail["alive"] else _cause(runs, rail["rail"])
            rows.append(
                [
                    sender,
                    name,
                    rail["rail"],
                    rail["device"],
                    state,
                    rail["chunks"],
                    rail["bytes"],
                    "",
                    "",
                    "",
                ]
            )
        wrong = "-" if runs[-1]["wrong"] is None else sum(r["wrong"] for r in runs)
        rate = runs[-1]["bytes"] / seconds * scale if seconds else 0.0
        rows.append(
            [
                sender,
                name,
                "all",
                "",
                "",
                runs[-1]["chunks"],
                runs[-1]["bytes"],
                f"{seconds * 1e6:.1f}",
                f"{rate:.3f}",
                wrong,
            ]
        )
    table(
        [
            "sender",
            "node",
            "rail",
            "device",
            "state",
            "chunks",
            "bytes",
            "time(us)",
            unit,
            "#wrong",
        ],
        rows,
    )


def _cause(runs: list[dict[str, Any]], rail: int) -> str:
    causes = [f["cause"] for r in runs for f in r["faults"] if f["rail"] == rail]
    return f"dead: {causes[0]}" if causes else "dead"
