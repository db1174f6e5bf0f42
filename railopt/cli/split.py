"""`railopt split`: every micro-batch of a trace over spare slots, and what no copies can beat."""

from __future__ import annotations

import argparse
from fractions import Fraction
from typing import Any

from railopt.base.arrays import check_targets
from railopt.base.errors import InputError, printable
from railopt.base.units import Quantity, parse_bytes, parse_number, size
from railopt.cli import common
from railopt.cli.progress import stage

EPILOG = """examples:
  railopt split routing:sigma=1,steps=8 --nodes 8 --gpus 8 --spare 2
  railopt split megatron:w=6,steps=12 --nodes 2 --gpus 8 --spare 1 --within node --expert 44MiB
  railopt split trace.npz --nodes 4 --gpus 8 --placement location.json --spare 2 \\
      --iteration -1 --layer 3 --solver exact --certificate split.json

Each recorded iteration of a layer is a micro-batch with exact counts: spare slots take copies of
experts, tokens split over the copies.  "before" is the fullest GPU over the mean GPU without
copies, "after" with them; "gap" how far the fullest GPU lies above a certified bound that no copies
beat.  TRACE is a trace file as for place, or generated: routing, megatron, maxvio or drift.  With
--json, one micro-batch alone (--iteration, --layer) has its copies and tokens too."""


IDLE = (
    common.Idle("link degrade", beside=[lambda args: "a split: no byte crosses a link"]),
    common.Idle("slack", beside=["solver=exact"]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", metavar="TRACE", help="routing trace, or generated routing")
    parser.add_argument(
        "--spare",
        type=common.natural,
        required=True,
        help="slots on every GPU that take a copy each",
    )
    parser.add_argument(
        "--moonep",
        action="store_true",
        help="print MoonEP's rule beside it: as many spare slots as a GPU has experts, and exactly "
        "the mean on every GPU, rounded up",
    )
    parser.add_argument(
        "--placement",
        metavar="LOCATION.json",
        help="where experts live, in sglang's format (default: contiguous)",
    )
    parser.add_argument(
        "--within", choices=("node",), help="make copies only on nodes that hold the expert already"
    )
    _add_solver(parser)
    parser.add_argument(
        "--expert",
        metavar="BYTES",
        type=parse_bytes,
        help="an expert's weights, e.g. 44MiB: counts what copies send",
    )
    parser.add_argument(
        "--iteration", type=common.integer, help="one recorded iteration (default: all)"
    )
    parser.add_argument("--layer", type=common.integer, help="one layer (default: all)")
    common.add_trace_arguments(parser)
    parser.add_argument(
        "--certificate",
        metavar="FILE.json",
        help="write the certificate of the micro-batch, for railopt check; needs --iteration and "
        "--layer where there are several",
    )
    common.add_output_arguments(parser, "certificate")
    common.add_fabric_arguments(parser, nic_per_gpu=True)


def _add_solver(parser: argparse.ArgumentParser) -> None:
    from railopt.moe.micro.solve import SOLVERS

    parser.add_argument(
        "--solver",
        default="auto",
        choices=SOLVERS,
        help="greedy: microseconds; flow: good copies, the best split over them; exact: the best "
        "copies, for small cases; auto: exact where GPUs x experts are at most 256 and "
        "no slack is given, else flow",
    )
    parser.add_argument(
        "--slack",
        metavar="SHARE",
        type=_slack,
        default=0,
        help="what the fullest GPU may lie above the least possible, e.g. 0.01: fewer copies",
    )
    parser.add_argument(
        "--limit",
        metavar="SECONDS",
        type=common.time_s,
        help="time per micro-batch (default: 10 for exact, none for the others); exit code 2 if "
        "an optimum stays unknown with exact",
    )


def run(args: argparse.Namespace) -> int:
    """Split, save, print; the exit code."""
    from railopt.moe.micro.batches import SplitOptions, batches, summary
    from railopt.moe.placement.files import read_location
    from railopt.moe.placement.placement import Placement

    check_targets(args.certificate, force=args.force)
    within = args.within == "node"
    choice = SplitOptions(args.spare, args.solver, within, args.slack, args.limit)
    fabric = common.fabric_from(args)
    nodes, gpus = fabric.nodes, fabric.gpus
    trace = common.trace_of(args, args.trace, fabric)
    several = (args.iteration is None and len(trace.iterations) > 1) or (
        args.layer is None and len(trace.layers) > 1
    )
    if args.certificate and several:
        raise InputError("a certificate is of one micro-batch: choose --iteration and --layer")
    if args.placement:
        placement = read_location(args.placement, nodes, gpus, trace.experts)
    else:
        placement = Placement.contiguous(len(trace.layers), trace.experts, nodes, gpus)
    which = {"iteration": args.iteration, "layer": args.layer}
    done = list(batches(trace, placement, choice, **which, tick=stage))
    rows, rule = summary(done, args.expert), []
    if args.moonep:
        most = int(placement.holds.sum(axis=2).max())
        slots = SplitOptions(most, "greedy")
        rule = summary(list(batches(trace, placement, slots, **which)), args.expert)
    if args.format == "json":
        one = {"batch": done[0].answer.as_dict()} if len(done) == 1 else {}
        beside = {"moonep": rule} if rule else {}
        found = {"solver": choice.solver, "spare": choice.spare, "layers": rows}
        common.print_json({**found, **beside, **one})
    else:
        _print(args, rows, rule)
    if args.certificate:
        stage("checking the certificate")
        common.save(args, "certificate", done[0].answer)
    missed = any(b.answer.solver == "exact" and not b.answer.bracket.optimum_known for b in done)
    return 2 if missed else 0


def _print(args: argparse.Namespace, rows: list[Any], rule: list[Any]) -> None:
    """The table: a row per layer, and MoonEP's below them."""
    columns = ["layer", "batches", "before", "before worst", "after", "after worst", "gap %"]
    columns += ["optima known", "copies"] + ["copied", "between nodes"] * bool(args.expert)
    sent = bool(args.expert)
    cells = [_cells(row, sent) for row in rows] + [_cells(row, sent, " MoonEP") for row in rule]
    common.output_of(args).table(columns, cells, more=("copied",))


def _slack(text: str) -> int:
    """A `type`: a share in 1/1024."""
    slack = parse_number(text, "share")
    if not (slack == 0 or Fraction(1, 1024) <= slack <= 1):
        raise InputError(f"{printable(text)}: expected 0, or a share from 1/1024 to 1")
    return int(slack * 1024)


def _cells(row: dict[str, Any], sent: bool, rule: str = "") -> list[str]:
    """A row of the table, of another rule by its name."""
    cells = [
        f"{row['layer']}{rule}",
        str(row["batches"]),
        f"{row['before_mean']:.4f}",
        f"{row['before_worst']:.4f}",
        f"{row['after_mean']:.4f}",
        f"{row['after_worst']:.4f}",
        f"{100 * row['gap_worst']:.3f}",
        Quantity(f"{row['optima_known']} of {row['batches']}", row["optima_known"]),
        f"{row['copies_mean']:.1f}",
    ]
    if sent:
        cells += [
            size(round(row["copied_bytes_mean"])),
            size(round(row["copied_between_nodes_mean"])),
        ]
    return cells
