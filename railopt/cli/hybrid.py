"""`railopt hybrid`: which expert domains, which ratio, how much faster, and how sure."""

from __future__ import annotations

import argparse

from railopt.base.errors import InputError
from railopt.base.units import Quantity, duration, format_bytes, format_time, parse_integer, rate
from railopt.cli import common
from railopt.moe.hybrid import spec
from railopt.moe.hybrid.answer import HybridAnswer, answer

EPILOG = """example:
  railopt hybrid
  railopt hybrid spec.toml --figure latency.pdf --width column
  railopt hybrid spec.toml --sizes 4,1 --json"""


IDLE = (common.Idle("force width title", without=["figure"]),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "spec",
        metavar="SPEC.toml",
        nargs="?",
        help="sizes or preset, levels, options (default: the bundled one, four data centres of "
        "eight GPUs on 10 Gb/s)",
    )
    parser.add_argument(
        "--sizes", help="evaluate these domain sizes, one per level, instead of searching, e.g. 4,1"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="run the block in the flow simulator too"
    )
    parser.add_argument(
        "--figure",
        metavar="FILE",
        help=f"what a block waits for, by domain size and ratio: {common.FORMATS_HELP}",
    )
    common.add_figure_arguments(parser)
    common.add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """Answer, draw, print; the exit code."""
    width = common.figure_width(args, "figure")
    sizes = None if args.sizes is None else _sizes(args.sizes)
    found = answer(spec.read(args.spec), sizes, simulate=args.simulate)
    if args.figure:
        from railopt.report.hybrid_figure import latency_figure

        figure = latency_figure(found.stream, found.best, common.title_of(args), width=width)
        common.save_drawing(args, "figure", figure)
    if args.format == "json":
        common.print_json(found.as_dict())
    else:
        out = common.output_of(args)
        _print_domains(found, out)
        _print_parts(found, out)
        _print_what_if(found, out)
    return 0


def _sizes(text: str) -> list[int]:
    try:
        return [parse_integer(word, "size", low=1) for word in text.split(",")]
    except InputError as error:
        raise InputError(f"--sizes takes whole numbers with commas, e.g. 4,1: {error}") from None


def _print_domains(found: HybridAnswer, out: common.Output) -> None:
    block = found.stream
    where = " x ".join(f"{level.count} {level.name}" for level in block.levels)
    out.say(
        f"{block.workers} workers ({where}), data {format_bytes(block.data)}, expert "
        f"{format_bytes(block.expert)}, "
        f"pre-expert compute {format_time(block.pre)}, compression {block.compression}\n"
    )
    rates = [rate(block.share(i)) for i in range(len(block.levels))]
    ratios = [f"{float(ratio):.3f}" for ratio in found.ratios]
    out.table(
        ["level", "members", "domain", "p", "bandwidth a worker"],
        [
            [level.name, level.count, *row]
            for level, *row in zip(block.levels, found.domains, ratios, rates, strict=True)
        ],
    )


def _print_parts(found: HybridAnswer, out: common.Output) -> None:
    """Where the time goes; the block's name says which passes it has."""
    block, parts, best = found.stream, found.latency, found.best
    whole = "block, forward and backward" if block.gradients else "block, forward"
    times = {
        "pre-expert compute": block.pre,
        "expert gather": parts.gather,
        "of it hidden": parts.hidden,
        "decode": parts.decode,
        "encode": parts.encode,
        "data exchange": parts.exchange,
        "gradients returned": parts.gradients,
        whole: parts.total,
        "plain expert parallelism": best.plain.total,
    }
    if found.simulated is not None:
        times[f"{whole}, simulated"] = found.simulated
    print()
    out.table(
        ["part", "time"], [[name, duration(time)] for name, time in times.items()], beside=True
    )
    which = "all domain choices" if block.memory is None else "all domain choices that fit"
    proof = (
        f"optimal: the best of {which} ({best.tried})"
        if found.optimal
        else f"the optimum is {format_time(best.latency.total)}"
    )
    out.say(f"\nspeed-up {float(found.speedup):.3f}x; {proof}")
    if found.closed:
        p, size = found.closed
        out.say(f"closed form (T11): p* = {float(p):.4f}, S* = {float(size):.2f}")


def _print_what_if(found: HybridAnswer, out: common.Output) -> None:
    outer = found.stream.levels[0].name
    print()
    out.table(
        ["what if", "domains", "block", "speed-up"],
        [
            [
                f"{outer} bandwidth x {factor}",
                ",".join(map(str, other.domains)),
                duration(other.latency.total),
                Quantity(f"{float(other.speedup):.3f}x", round(float(other.speedup), 3)),
            ]
            for factor, other in found.what_if.items()
        ],
        beside=True,
    )
