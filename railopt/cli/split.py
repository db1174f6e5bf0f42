"""`railopt split`: every micro-batch of a trace over spare slots, and what no copies can beat."""

from __future__ import annotations

import argparse
from typing import Any

from railopt.base.arrays import check_targets
from railopt.base.errors import InputError, printable
from railopt.base.units import Quantity, parse_bytes, parse_number, parse_time, seconds, size
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
    common.Idle("force", without=["certificate"]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from railopt.moe.micro.solve import SOLVERS

    parser.add_argument("trace", metavar="TRACE", help="routing trace, or generated routing")
    parser.add_argument(
        "--spare",
        type=common.integer,
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
    parser.add_argument(
        "--solver",
        default="auto",
        choices=SOLVERS,
        help="greedy: microseconds; flow: good copies, the best split over them; exact: the best "
        "copies, for small cases; auto (default): exact where GPUs x experts are at most 256 and "
        "no slack is given, else flow",
    )
    parser.add_argument(
        "--slack",
        metavar="SHARE",
        help="what the fullest GPU may lie above the least possible, e.g. 0.01: fewer copies",
    )
    parser.add_argument(
        "--limit",
        metavar="SECONDS",
        help="time per micro-batch (default: 10 for exact, none for the others); exit code 2 if "
        "an optimum stays unknown with exact",
    )
    parser.add_argument(
        "--expert", metavar="BYTES", help="an expert's weights, e.g. 44MiB: counts what copies send"
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
    common.add_output_arguments(parser)
    common.add_fabric_arguments(parser, nic_per_gpu=True)


def run(args: argparse.Namespace) -> int:
    """Split, save, print; the exit code."""
    from railopt.moe.micro.batches import SplitOptions, batches, summary
    from railopt.moe.placement.files import read_location
    from railopt.moe.placement.placement import Placement
    from railopt.moe.routing.sources import trace_from

    choice = _choice(args)
    fabric = common.fabric_from(args)
    nodes, gpus = fabric.nodes, fabric.gpus
    trace = trace_from(
        args.trace, ranks=nodes * gpus, top_k=args.top_k, routed_experts=args.routed_experts
    )
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
    rows, rule = summary(done), []
    if args.moonep:
        most = int(placement.holds.sum(axis=2).max())
        slots = SplitOptions(most, "greedy", expert_bytes=choice.expert_bytes)
        rule = summary(list(batches(trace, placement, slots, **which)))
    if args.format == "json":
        one = {"batch": done[0].answer.as_dict()} if len(done) == 1 else {}
        beside = {"moonep": rule} if rule else {}
        found = {"solver": choice.solver, "spare": choice.spare, "layers": rows}
        common.print_json({**found, **beside, **one})
    else:
        _print(args, rows, rule)
    if args.certificate:
        stage("checking the certificate")
        done[0].answer.save(args.certificate, force=args.force)
        common.note(f"saved {args.certificate}: railopt check {args.certificate}")
    missed = any(b.answer.solver == "exact" and not b.answer.bracket.optimum_known for b in done)
    return 2 if missed else 0


def _print(args: argparse.Namespace, rows: list[Any], rule: list[Any]) -> None:
    """The table: a row per layer, and MoonEP's below them."""
    columns = ["layer", "batches", "before", "before worst", "after", "after worst", "gap %"]
    columns += ["optima known", "copies"] + ["copied", "between nodes"] * bool(args.expert)
    sent = bool(args.expert)
    cells = [_cells(row, sent) for row in rows] + [_cells(row, sent, " MoonEP") for row in rule]
    common.output_of(args).table(columns, cells, more=("copied",))


def _choice(args: argparse.Namespace) -> Any:
    """The options as the library has them."""
    from railopt.moe.micro.batches import SplitOptions

    check_targets(args.certificate, force=args.force)
    if args.spare < 0:
        raise InputError(f"--spare {args.spare}: expected at least 0")
    slack = parse_number("0" if args.slack is None else args.slack, "slack")
    if not 0 <= slack <= 1:
        raise InputError(f"--slack {printable(args.slack)}: expected a share from 0 to 1")
    if 0 < 1024 * slack < 1:
        raise InputError(
            f"--slack {printable(args.slack)}: expected 0 or at least 1/1024, the least that counts"
        )
    return SplitOptions(
        args.spare,
        args.solver,
        args.within == "node",
        int(slack * 1024),
        None if args.limit is None else float(seconds(parse_time(args.limit))),
        None if args.expert is None else parse_bytes(args.expert),
    )


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
