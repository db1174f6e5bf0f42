"""railopt weigh TRACE: what each mechanism is worth on recorded routing, and what nothing beats."""

from __future__ import annotations

import argparse
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from railopt.base.units import PS_PER_S, Quantity, duration
from railopt.cli import common
from railopt.cli.progress import stage

if TYPE_CHECKING:
    from railopt.moe.weigh import Weighed, Worth

EPILOG = """examples:
  railopt weigh experiments/traces/fine-kinds.npz --nodes 4 --gpus 8 --model deepseek-v2-lite
  railopt weigh trace.npz --nodes 8 --gpus 8 --link 200Gb/s --order placement,rails --figure x.svg
  railopt weigh drift:steps=40 --model mixtral-8x7b --nodes 2 --gpus 8 --each-alone

Mechanisms are added from row to row: rails (RailS), stages (FAST), placement of copies planned on
earlier steps (Pro-Prophet, EPLB), split of every micro-batch, experts instead of tokens (HybridEP).
"exchange" is dispatch and combine of all layers, simulated on steps that no plan saw; "bound" is
what no method with the same freedom beats: any rails and stages for these experts, then any split
over these copies; of NICs alone, as if scale-up were free.  "its bound" adds compute: that of the
row, or an even share where copies may change it.  Copies are sent and their gradients added up in
every iteration of training, beside the compute.  What loses on the last step that plans see is left
out of the rows after it.
"experts" is not held to the slots; the last line is.  In all of this exchanges and compute take
turns, and a token is sent once for each of its experts: whoever overlaps the two, or sends a token
once per node, may take less."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from railopt.moe.weigh import MECHANISMS, MOST_STEPS

    parser.add_argument("trace", metavar="TRACE", help="routing trace, or generated routing")
    parser.add_argument(
        "--order",
        type=common.listed,
        help=f"mechanisms, in the order to add them: {', '.join(MECHANISMS)} (default: all)",
    )
    parser.add_argument(
        "--each-alone",
        action="store_true",
        help="each mechanism by itself; their gains overlap and do not add up",
    )
    common.add_policy_argument(parser, "even-excess")
    parser.add_argument(
        "--spare", type=common.integer, default=1, help="slots for copies on every GPU"
    )
    parser.add_argument(
        "--steps",
        type=common.positive,
        default=MOST_STEPS,
        help="held-out steps to simulate, at most",
    )
    parser.add_argument(
        "--held-out",
        type=common.integer,
        help="how many last steps are held out from planning (default a quarter)",
    )
    parser.add_argument("--model", help="a model whose dimensions count, e.g. deepseek-v2-lite")
    common.add_trace_arguments(parser)
    parser.add_argument(
        "--certificate",
        metavar="DIR",
        help="save all bounds, one per kind, step, layer and direction, for check",
    )
    common.add_figure_arguments(parser, "draw it")
    common.add_output_arguments(parser, "figure", "certificate")
    common.add_fabric_arguments(parser, nic_per_gpu=True)


def run(args: argparse.Namespace) -> int:
    """Weigh, print, draw; the exit code."""
    from railopt.moe.weigh import MECHANISMS, WeighQuestion, weigh

    width = common.figure_width(args, "figure")
    common.check_folder(args.certificate, force=args.force)
    question = WeighQuestion(
        order=args.order,
        each_alone=args.each_alone,
        policy=args.policy,
        spare=args.spare,
        steps=args.steps,
        held_out=args.held_out,
        model=args.model,
    )
    fabric = common.fabric_from(args)
    found = weigh(common.trace_of(args, args.trace, fabric), fabric, question, tell=stage)
    if not args.order and len(found.rows) <= len(MECHANISMS):
        common.note("stages are left out: schedules need as many NICs for each GPU, near it")
    if args.format == "json":
        common.print_json(found.as_dict())
    else:
        print_weighed(found, common.output_of(args))
    if args.figure:
        from railopt.report.waterfall import waterfall

        title = common.title_of(args, f"{Path(args.trace).name}: what each mechanism is worth")
        common.save_drawing(args, "figure", waterfall(found, title, width=width))
    if args.certificate:
        _save_certificates(found, Path(args.certificate), force=args.force)
    return 0


def _save_certificates(found: Weighed, folder: Path, *, force: bool) -> None:
    """All bounds, each checked before it is saved."""
    made = found.certificates()
    folder.mkdir(parents=True, exist_ok=True)
    for name, certificate in made.items():
        certificate.require().save(folder / name, force=force)
    common.note(f"saved {len(made)} certificates: railopt check {folder}/*.json")


def print_weighed(found: Weighed, out: common.Output, *, beside: bool = False) -> None:
    """The table of all mechanisms."""
    columns = ["mechanism", "how", "exchange", "gain %", "bound"]
    columns += ["iteration", "its gain %", "its bound"]
    out.table(columns, _rows(found), left=2, beside=beside)
    if found.each_alone:
        out.say("\nGains overlap: they do not add up.")
    if found.weakness:
        out.say(f"\n{found.weakness}")


def _rows(found: Weighed) -> list[list[str | Quantity]]:
    """A row per mechanism, and what nothing beats."""
    rows = [_cells(row, before, found.each_alone) for row, before in found.beside()]
    together = ["best found", "each step's own placement; NICs alone", _time(found.found_ps)]
    least = ["nothing beats", "any placement in the slots", _time(found.exchange_bound_ps), "", ""]
    return [
        *rows,
        [*together, *[""] * 5],
        [*least, _time(found.iteration_bound_ps), "", ""],
    ]


def _cells(row: Worth, before: Worth, alone: bool) -> list[str | Quantity]:
    """One row, its gains over the last row that was kept."""
    first = not row.added
    sign = "" if first or alone else "+ "
    return [
        f"{sign}{row.added or 'as it is'}",
        row.how(before),
        _time(row.exchange_ps),
        "" if first else _gain(before.exchange_ps, row.exchange_ps),
        _time(row.bound_ps),
        _time(row.iteration_ps),
        "" if first else _gain(before.iteration_ps, row.iteration_ps),
        _time(row.iteration_bound_ps),
    ]


def _time(picoseconds: int) -> Quantity:
    return duration(Fraction(picoseconds, PS_PER_S))


def _gain(before: int, after: int) -> Quantity:
    gain = 100 * (before - after) / before if before else 0.0
    return Quantity(f"{gain:.1f}", gain)
