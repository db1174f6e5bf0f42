"""`railopt hybrid`: which expert domains, which ratio, how much faster, and how sure."""

from __future__ import annotations

import argparse
from fractions import Fraction
from typing import Any

from railopt.cli.common import add_output_arguments, note, print_json, table
from railopt.moe.hybrid import domains as partition
from railopt.moe.hybrid import spec, stream
from railopt.units import format_bytes, format_time

EPILOG = """example:
  railopt hybrid
  railopt hybrid spec.toml --figure latency.svg
  railopt hybrid spec.toml --sizes 4,1 --json"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "spec",
        metavar="SPEC.toml",
        nargs="?",
        help="sizes or preset, levels, options (default: the bundled one, four data centres of "
        "eight GPUs on 10 Gb/s)",
    )
    parser.add_argument(
        "--sizes", help="evaluate these domain sizes, one a level, instead of searching, e.g. 4,1"
    )
    parser.add_argument(
        "--simulate", action="store_true", help="run the block in the flow simulator too"
    )
    parser.add_argument(
        "--figure", metavar="FILE", help="latency against ratio and domain size: .svg, .pdf or .png"
    )
    add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    question = spec.read(args.spec)
    block = question.stream
    best = stream.optimum(block, unequal=question.unequal)
    chosen = best.domains
    if args.sizes is not None:
        chosen = stream.domains_of_sizes(block, _sizes(args.sizes))
    found = stream.latency(block, chosen)
    simulated = None
    if args.simulate:
        from railopt.moe.hybrid.simulated import block_time

        simulated = block_time(block, chosen)
    if args.figure:
        from railopt.report.heatmap import save_figure
        from railopt.report.hybrid_figure import latency_figure

        save_figure(latency_figure(block, best), args.figure, force=args.force)
        note(f"saved {args.figure}")
    data = _answer(question, best, chosen, found, simulated)
    if args.json:
        print_json(data)
    else:
        _show(block, best, chosen, found, data)
    return 0


def _sizes(text: str) -> list[int]:
    from railopt.errors import InputError

    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise InputError(
            f"--sizes {text!r}: expected whole numbers with commas, e.g. 4,1"
        ) from None


def _answer(
    question: spec.Question,
    best: stream.Optimum,
    chosen: tuple[stream.Domain, ...],
    found: stream.Latency,
    simulated: Fraction | None,
) -> dict[str, Any]:
    block = question.stream
    equal = all(domain.equal for domain in chosen)
    counts = partition.message_counts(block, chosen) if equal and block.workers <= 1 << 14 else None
    closed = stream.closed_form(block) if len(block.levels) == 1 else None
    return {
        "workers": block.workers,
        "domains": {
            level.name: str(domain) for level, domain in zip(block.levels, chosen, strict=True)
        },
        "ratio": {
            level.name: str(Fraction(level.count - domain.largest, max(1, level.count - 1)))
            for level, domain in zip(block.levels, chosen, strict=True)
        },
        "latency": vars(found),
        "plain": best.plain.total,
        "speedup": best.plain.total / found.total,
        "optimal": found.total == best.latency.total,
        "tried": best.tried,
        "best": best.latency.total,
        "messages": None if counts is None else {"data": counts[0], "experts": counts[1]},
        "closed_form": None if closed is None else {"p": closed[0], "size": closed[1]},
        "simulated": simulated,
        "sensitivity": {
            name: {
                "domains": [str(d) for d in other.domains],
                "latency": other.latency.total,
                "speedup": other.speedup,
            }
            for name, other in _what_if(question)
        },
    }


def _what_if(question: spec.Question) -> list[tuple[str, stream.Optimum]]:
    outer = question.stream.levels[0].name
    return [
        (
            f"{outer} bandwidth x {factor}",
            stream.optimum(
                stream.scaled(question.stream, bandwidth=factor), unequal=question.unequal
            ),
        )
        for factor in (Fraction(1, 4), Fraction(1, 2), Fraction(2), Fraction(4))
    ]


def _show(
    block: stream.Stream,
    best: stream.Optimum,
    chosen: tuple[stream.Domain, ...],
    found: stream.Latency,
    data: dict[str, Any],
) -> None:
    where = " x ".join(f"{level.count} {level.name}" for level in block.levels)
    print(
        f"{block.workers} workers ({where}), data {format_bytes(block.data)}, expert "
        f"{format_bytes(block.expert)}, "
        f"pre-expert compute {format_time(block.pre)}, compression {block.compression}\n"
    )
    table(
        ["level", "members", "domain", "p", "bandwidth a worker"],
        [
            [
                level.name,
                level.count,
                domain,
                f"{float(Fraction(data['ratio'][level.name])):.3f}",
                f"{float(block.share(i) * 8) / 1e9:.4g}Gb/s",
            ]
            for i, (level, domain) in enumerate(zip(block.levels, chosen, strict=True))
        ],
    )
    print()
    table(
        ["part", "time"],
        [
            ["pre-expert compute", format_time(block.pre)],
            ["expert gather", format_time(found.gather)],
            ["of it hidden", format_time(found.hidden)],
            ["decode", format_time(found.decode)],
            ["encode", format_time(found.encode)],
            ["data exchange", format_time(found.exchange)],
            ["gradients returned", format_time(found.gradients)],
            ["block", format_time(found.total)],
            ["plain expert parallelism", format_time(best.plain.total)],
            *(
                [["simulated", format_time(data["simulated"])]]
                if data["simulated"] is not None
                else []
            ),
        ],
    )
    proof = (
        f"optimal: the best of all {best.tried} domain choices"
        if data["optimal"]
        else f"the optimum is {format_time(best.latency.total)}"
    )
    print(f"\nspeed-up {float(data['speedup']):.3f}x; {proof}")
    if data["closed_form"]:
        print(
            f"closed form (T11): p* = {float(data['closed_form']['p']):.4f}, S* = "
            f"{float(data['closed_form']['size']):.2f}"
        )
    print()
    table(
        ["what if", "domains", "block", "speed-up"],
        [
            [
                name,
                ",".join(other["domains"]),
                format_time(other["latency"]),
                f"{float(other['speedup']):.3f}x",
            ]
            for name, other in data["sensitivity"].items()
        ],
    )
