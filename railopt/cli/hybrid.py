"""`railopt hybrid`: experts or data across slow links: which domains, how much faster, how sure."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from railopt.base.arrays import read_npy, write_atomic
from railopt.base.units import (
    Quantity,
    duration,
    format_bytes,
    format_time,
    parse_integer,
    parse_number,
    percent,
    rate,
    size,
)
from railopt.cli import common
from railopt.cli.progress import stage
from railopt.moe.hybrid import migrate, spec
from railopt.moe.hybrid.answer import HybridAnswer, answer
from railopt.moe.hybrid.domains import BlockTraffic, fabric_of, held, traffic

if TYPE_CHECKING:
    from railopt.model.fabric import Fabric
    from railopt.moe.hybrid.recorded import Followed, FollowedLayer

EPILOG = """examples:
  railopt hybrid
  railopt hybrid spec.toml --figure latency.pdf --width column
  railopt hybrid spec.toml --sizes 4,1 --json
  railopt hybrid --nodes 4 --gpus 8 --link 5Gb/s --export domains/
  railopt hybrid trace.npz --nodes 4 --gpus 8 --link 10Gb/s --model deepseek-v2-lite
  railopt hybrid spec.toml --weights experts.npy

SPEC.toml: gating is even; a fabric's nodes and GPUs are levels below those of the spec, the link of
a node is all of its NICs.  TRACE: copies expert by expert, a node is a data centre.  "data": all
tokens travel; "domains": HybridEP's, of the size that was best on the step before; then copies one
by one: "fixed" on the step before the first scored one, "followed" on the step before each, "known"
on the step itself; "bound" is what no copies beat, "regret" what following loses to knowing.
--export writes domains.json (the experts of each GPU), experts.npz and dispatch.npz (traffic), and
plan.npz for simulate and send: experts, dispatch and combine as stages; of a trace, the newest
step, one of each per layer.  --weights: what compressed migration loses, as differences from the
mean expert and without it."""


def _of_trace(args: argparse.Namespace) -> str:
    return "a trace" if _is_trace(args.spec) else ""


def _of_spec(args: argparse.Namespace) -> str:
    return "" if _is_trace(args.spec) else "a spec: gating is even"


def _is_trace(name: str | None) -> bool:
    return name is not None and Path(name).suffix.lower() != ".toml"


RATIOS = (1, 2, 5, 10, 20, 50)
"""By which --weights are compressed."""
IDLE = (
    common.Idle("sizes simulate figure weights", beside=[_of_trace]),
    common.Idle("model top_k routed_experts steps compression merge_ranks", beside=[_of_spec]),
    common.Idle("policy chunk", without=["export"]),
    common.Idle("sizes simulate figure export", beside=["weights"]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "spec",
        metavar="SPEC.toml|TRACE",
        nargs="?",
        help="sizes or preset, levels, options (default: the bundled one, four data centres of "
        "eight GPUs on 10 Gb/s); or a routing trace, or generated routing",
    )
    parser.add_argument(
        "--sizes",
        type=_sizes,
        help="evaluate these domain sizes, one per level, instead of searching, e.g. 4,1",
    )
    parser.add_argument(
        "--simulate", action="store_true", help="run the block in the flow simulator too"
    )
    recorded = parser.add_argument_group("trace")
    recorded.add_argument("--model", help="a model whose dimensions count, e.g. deepseek-v2-lite")
    common.add_trace_arguments(recorded)
    recorded.add_argument(
        "--steps", type=common.positive, default=4, help="last steps to score, at most"
    )
    recorded.add_argument(
        "--compression",
        type=parse_number,
        default="1",
        help="how many times smaller copies travel; of a spec its key says it",
    )
    sent = parser.add_argument_group("export and migration")
    sent.add_argument("--export", metavar="DIR", help="write domain map, traffic and plan (below)")
    common.add_policy_argument(sent)
    common.add_chunk_argument(sent)
    sent.add_argument(
        "--weights",
        metavar="FILE.npy",
        help="expert weights [experts, ...]: error, bytes and time by compression ratio",
    )
    common.add_figure_arguments(parser, "what a block waits for, by domain size and ratio")
    common.add_output_arguments(parser, "figure", "export")
    common.add_fabric_arguments(parser, nic_per_gpu=True)


def run(args: argparse.Namespace) -> int:
    """Answer, draw, export, print; the exit code."""
    width = common.figure_width(args, "figure")
    common.check_folder(args.export, force=args.force)
    if _is_trace(args.spec):
        return _run_trace(args)
    fabric = common.fabric_from(args) if common.fabric_given(args) else None
    inside = None if fabric is None else spec.levels_of(fabric)
    question = spec.read(args.spec, inside)
    if args.weights:
        return _run_weights(args, question)
    found = answer(question, args.sizes, simulate=args.simulate)
    if args.export:
        fabric = fabric or fabric_of(found.stream)
        sent = {"": traffic(found.stream, found.domains, fabric)}
        _export(args, fabric, sent, {"experts": [held(found.stream, found.domains)]})
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


def _run_trace(args: argparse.Namespace) -> int:
    """Copies expert by expert on recorded routing."""
    from railopt.moe.hybrid.recorded import TIMES, FollowQuestion, follow

    question = FollowQuestion(args.model, args.compression, args.steps)
    fabric = common.fabric_from(args)
    found = follow(common.trace_of(args, args.spec, fabric), fabric, question, tell=stage)
    if args.export:
        _export_trace(args, found)
    if args.format == "json":
        common.print_json(found.as_dict())
        return 0
    rows = [_layer_cells(str(one.layer), one) for one in found.layers]
    rows.append(_layer_cells("all", found.total))
    columns = ["layer", *TIMES, "regret %", "copies"]
    common.output_of(args).table(columns, rows)
    open_ = found.scored * len(found.layers) - found.total.optimal
    if open_:
        common.note(f"{open_} choices of known may not be optimal: see bound")
    return 0


def _layer_cells(name: str, one: FollowedLayer) -> list[Any]:
    from railopt.moe.hybrid.recorded import TIMES

    times = [duration(getattr(one, time)) for time in TIMES]
    return [name, *times, percent(one.regret), int(one.copies.sum())]


def _export_trace(args: argparse.Namespace, found: Followed) -> None:
    names = found.trace.layers.tolist()
    sent = {f"{name}-": found.traffic(number) for number, name in enumerate(names)}
    holds = found.placement.holds
    experts = [[gpu.nonzero()[0].tolist() for gpu in layer] for layer in holds]
    _export(args, found.fabric, sent, {"layers": names, "experts": experts})


def _export(
    args: argparse.Namespace,
    fabric: Fabric,
    sent: Mapping[str, BlockTraffic],
    domains: Mapping[str, Any],
) -> None:
    """The files of --export, by their prefix; domains has experts [layer][GPU]."""
    folder = Path(args.export)
    plans = {name: each.plan(fabric, args.policy, args.chunk) for name, each in sent.items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_atomic(folder / "domains.json", json.dumps(domains) + "\n", force=args.force)
    for name, each in sent.items():
        each.experts.save(folder / f"{name}experts.npz", force=args.force)
        each.dispatch.save(folder / f"{name}dispatch.npz", force=args.force)
        plans[name].save(folder / f"{name}plan.npz", force=args.force)
    first = folder / f"{next(iter(sent))}plan.npz"
    common.note(f"saved {folder}: railopt simulate {first}, railopt send {first}")


def _run_weights(args: argparse.Namespace, question: spec.HybridQuestion) -> int:
    """What compressed migration loses, and the time that it buys."""
    rows = migrate.curve(read_npy(args.weights), [Fraction(ratio) for ratio in RATIOS], question)
    if args.format == "json":
        common.print_json({"weights": args.weights, "rows": [row.as_dict() for row in rows]})
        return 0
    names = ["compression", "sent per expert", "error", "without the mean", "domains", "block"]
    common.output_of(args).table(
        names,
        [
            [
                Quantity(f"{float(row.compression):g}", float(row.compression)),
                size(row.sent_bytes),
                *(Quantity(f"{error:.4f}", error) for error in (row.error, row.error_alone)),
                ",".join(map(str, row.domains)),
                duration(row.block),
            ]
            for row in rows
        ],
    )
    return 0


def _sizes(text: str) -> list[int]:
    """A `type`: whole numbers with commas."""
    return [parse_integer(word, "size", low=1) for word in text.split(",")]


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
        ["level", "members", "domain", "p", "bandwidth per worker"],
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
