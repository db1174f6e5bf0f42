"""`railopt migrate`: from one map of experts to another, batch by batch, on a fabric's rails."""

from __future__ import annotations

import argparse
import json
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railopt.base.arrays import check_suffix, check_targets, write_atomic
from railopt.base.units import duration, parse_bytes, size
from railopt.cli import common
from railopt.cli.progress import stage

if TYPE_CHECKING:
    from railopt.model.plan import Plan
    from railopt.moe.migration.migration import Migration

EPILOG = """examples:
  railopt migrate old.json new.json --nodes 4 --gpus 8 --expert 44MiB
  railopt migrate old.json new.json --fabric fabric.toml --expert 44MiB -o moves.json \\
      --plan moves.npz --certificate batches.json --holders-certificate holders.json
  railopt check batches.json holders.json

OLD and NEW are maps as `railopt place --vllm` or `--sglang` writes them.  Each copy of an expert
comes from the holder that keeps the busiest node least busy.  In a batch a rank sends at most
one copy and receives at most one; "at least": fewer batches are impossible.  A
copy lands in a buffer and is put into its slot after the batch `commit`, when nothing reads the old
expert of the slot any more; "buffers" is how many a rank needs.  "least" is what the NICs of the
busiest node take for their bytes; --simulate runs the batches on the fabric, NICs alone."""

_FILES = ("output", "plan", "certificate", "holders_certificate")
ROWS = {"together": "all layers together", "apart": "layer by layer", "first": "vLLM's first fit"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("old", metavar="OLD", help="the map that is there, JSON")
    parser.add_argument("new", metavar="NEW", help="the map that is wanted, with the same slots")
    parser.add_argument(
        "--expert",
        metavar="BYTES",
        type=parse_bytes,
        required=True,
        help="an expert's weights in one layer: 44MiB",
    )
    parser.add_argument(
        "--layers-apart",
        action="store_true",
        help="one layer after the other, as servers with buffers for one layer do",
    )
    common.add_policy_argument(parser)
    common.add_chunk_argument(parser)
    parser.add_argument(
        "--simulate", action="store_true", help="run the batches on the fabric, flow by flow"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE.json", help="write the moves, batch by batch, for a server"
    )
    parser.add_argument(
        "--plan", metavar="FILE.npz", help="save the batches as a plan, for simulate and check"
    )
    parser.add_argument(
        "--certificate",
        metavar="FILE.json",
        help="save a certificate that fewer batches are impossible; with --layers-apart "
        "FILE-0.json, ..., one per layer, whose bounds add up",
    )
    parser.add_argument(
        "--holders-certificate",
        metavar="FILE.json",
        help="save a certificate that no choice of holders lets the busiest node send less",
    )
    common.add_output_arguments(parser, *_FILES)
    common.add_fabric_arguments(parser, nic_per_gpu=True)


def run(args: argparse.Namespace) -> int:
    """Choose holders, batches and rails; save; print."""
    from railopt.moe.migration.migration import migrate, migrate_first_fit

    check_suffix(args.plan, "plan")
    check_targets(*(getattr(args, name) for name in _FILES), force=args.force)
    fabric, weights = common.fabric_from(args), args.expert
    old, new = _maps(args)
    cap = None if args.chunk == "flow" else parse_bytes(args.chunk)
    found = {
        "together": migrate(fabric, old, new, weights),
        "apart": migrate(fabric, old, new, weights, layers_apart=True),
        "first": migrate_first_fit(fabric, old, new, weights),
    }
    plans, rows = {}, {}
    for name, made in found.items():
        stage(f"rails of {ROWS[name]}")
        plans[name], time = made.carried(args.policy, cap)
        rows[name] = _row(made, plans[name], time)
    chosen = "apart" if args.layers_apart else "together"
    moves = found[chosen].as_dict(plans[chosen])
    _save(args, found[chosen], plans[chosen], moves)
    if args.simulate:
        for name, plan in plans.items():
            rows[name]["simulated"] = _simulated(plan)
    if args.format == "json":
        common.print_json({"batches": rows, "migration": moves})
        return 0
    columns = ["batches", "number", "at least", "buffers", "sent", "busiest NIC", "time", "least"]
    columns += ["simulated"] * args.simulate
    common.output_of(args).table(columns, [_cells(*row) for row in rows.items()])
    return 0


def _maps(args: argparse.Namespace) -> tuple[list[list[int]], list[list[int]]]:
    """Both maps; one list alone stands for every layer of the other."""
    from railopt.moe.placement.files import read_map

    old, new = read_map(args.old), read_map(args.new)
    if len(old) == 1:
        old = old * len(new)
    return old, new * len(old) if len(new) == 1 else new


def _save(args: argparse.Namespace, made: Migration, plan: Plan, moves: dict[str, Any]) -> None:
    """The files that were asked for."""
    if args.certificate and args.layers_apart:
        for layer, found in made.certificates().items():
            found.require().save(_of_layer(args.certificate, layer), force=args.force)
        common.note(f"saved {_of_layer(args.certificate, '*')}")
    elif args.certificate:
        common.save(args, "certificate", made.certificate().require())
    if args.holders_certificate:
        common.save(args, "holders_certificate", made.holders_certificate().require())
    if args.plan:
        common.save(args, "plan", plan)
    if args.output:
        write_atomic(args.output, json.dumps(moves) + "\n", force=args.force)
        common.note(f"saved {args.output}")


def _of_layer(path: str, layer: int | str) -> str:
    """The file of one layer's certificate: batches.json -> batches-0.json."""
    file = Path(path)
    return str(file.with_name(f"{file.stem}-{layer}{file.suffix}"))


def _row(made: Migration, plan: Plan, time: Fraction) -> dict[str, Any]:
    """What is printed of one way to migrate; bytes between nodes, and exact times."""
    return {
        "batches": made.batches,
        "at_least": made.bound,
        "buffers": made.buffers,
        "copies": len(made.batch),
        "bytes_between_nodes": plan.chunks.total,
        "busiest_nic_bytes": int(max(plan.send.max(), plan.recv.max())),
        "time": time,
        "least": made.least_time,
        "nic_send_bytes": plan.send.tolist(),
        "nic_recv_bytes": plan.recv.tolist(),
    }


def _simulated(plan: Plan) -> Fraction:
    """Seconds of the plan's stages one after the other."""
    from railopt.sim import simulate

    stage("simulating")
    return simulate(plan).completion if len(plan.chunks) else Fraction(0)


def _cells(name: str, row: dict[str, Any]) -> list[str]:
    return [
        ROWS[name],
        str(row["batches"]),
        str(row["at_least"]),
        str(row["buffers"]),
        size(row["bytes_between_nodes"]),
        size(row["busiest_nic_bytes"]),
        *(duration(row[column]) for column in ("time", "least", "simulated") if column in row),
    ]
