"""`railopt place`: a routing trace -> an expert placement, and what it does to GPUs and links."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from railopt.base.arrays import check_targets
from railopt.base.errors import InputError, printable
from railopt.base.units import (
    Quantity,
    duration,
    format_bytes,
    parse_bytes,
    parse_integer,
    parse_number,
    percent,
    seconds,
    size,
)
from railopt.cli import common
from railopt.cli.progress import stage

if TYPE_CHECKING:
    from railopt.base.arrays import Bools
    from railopt.model.fabric import Fabric
    from railopt.moe.comparison import MovesCurve, PlacementReport
    from railopt.moe.presets import Preset
    from railopt.moe.question import PlacementQuestion

EPILOG = """examples:
  railopt place experiments/traces/fine-kinds.npz --nodes 4 --gpus 8 --replicas 96
  railopt place trace.npz --nodes 4 --gpus 8 --planner replicate --replicas 96 --rolling 1
  railopt place trace.npz --nodes 4 --gpus 8 --planner replicate --replicas 96 \\
      --sglang location.json --vllm-ascend map.json
  railopt place trace.npz --nodes 4 --gpus 8 --planner replicate --active 0-6,8-31 \\
      --previous location.json --aim link
  railopt place recorder.pt --model deepseek-v3 --nodes 4 --gpus 8 \\
      --planner replicate --replicas 288 --groups 8

TRACE is a railopt trace (.npz), a file of sglang's expert recorder in either form (.pt), or a
plain tensor (.npy, .pt, or alone in an .npz): counts [steps, layers, ranks, experts], loads
[layers, experts] or [steps, layers, experts], or with --routed-experts N what vLLM returns as
routed_experts, [length, layers, top_k] with ids of N experts.  Only railopt's traces and counts say
where tokens come from: those of the others are spread over the GPUs."""


_SERVERS = ("sglang", "tensorrt_llm", "vllm", "vllm_ascend")
IDLE = (
    common.Idle("groups costs aim moves repair", beside=["planner!=replicate"]),
    common.Idle("moves repair", without=["previous"]),
    common.Idle("moves repair", beside=["active"]),
    common.Idle("repair", beside=["aim"]),
    common.Idle("repair", beside=["costs"]),
    common.Idle("move_weight decay", beside=["planner=contiguous"]),
    common.Idle("move_weight", beside=["planner=replicate"], without=["previous", "aim=time"]),
    common.Idle("rail_policy", without=["aim=link"]),
    common.Idle("limit", beside=["planner!=optimal"]),
    common.Idle("window decay held_out rolling", beside=["iteration"]),
    common.Idle("replicas", beside=["planner=contiguous"], without=_SERVERS),
    common.Idle("model_dim ffn", beside=["model"]),
    common.Idle("model_dim", without=["ffn"]),
    common.Idle("ffn", without=["model_dim"]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace",
        metavar="TRACE",
        help="recorded routing: .npz, .pt or .npy, see below; or generated: drift:steps=40",
    )
    _add_planner(parser)
    _add_topology(parser)
    _add_steps(parser)
    _add_iteration(parser)
    _add_files(parser)
    common.add_output_arguments(parser, *_SERVERS, "gantt")
    common.add_fabric_arguments(parser, nic_per_gpu=True)


def _add_planner(parser: argparse.ArgumentParser) -> None:
    from railopt.moe.placement.planners import PLANNERS

    parser.add_argument(
        "--planner", default="pro-prophet", choices=PLANNERS, help="who places the experts"
    )
    parser.add_argument(
        "--replicas",
        type=common.integer,
        help="physical experts per layer, homes included (at most, but for replicate; default: one "
        "slot more on every GPU than the experts need)",
    )
    parser.add_argument(
        "--memory",
        metavar="BYTES",
        type=parse_bytes,
        help="memory a GPU has for one layer's experts, e.g. 512MiB",
    )
    parser.add_argument(
        "--groups",
        type=common.integer,
        default=1,
        help="expert groups that replicate keeps on one node",
    )
    parser.add_argument(
        "--move-weight", type=float, default=1.0, help="what sending a copy weighs when planning"
    )
    parser.add_argument(
        "--limit",
        metavar="SECONDS",
        type=common.time_s,
        default="30s",
        help="time per layer for optimal, e.g. 10s; exit code 2 if the optimum of a "
        "layer stays unknown",
    )


def _add_topology(parser: argparse.ArgumentParser) -> None:
    from railopt.moe.aim import AIMS
    from railopt.policies import POLICIES

    group = parser.add_argument_group("topology and faults")
    group.add_argument(
        "--active",
        metavar="GPUS",
        type=common.listed,
        help="GPUs that are neither dead nor draining, e.g. 0-6,8-31: only they get experts, and "
        "they read the other ranks' tokens",
    )
    group.add_argument(
        "--costs",
        metavar="FILE|fabric",
        help="cost of a token between ranks [source, destination] (.npy, .csv, text), or the "
        "fabric's own: which GPU is which, for replicate",
    )
    group.add_argument(
        "--aim",
        choices=AIMS,
        default="gpu",
        help="what replicate names GPUs for: even GPUs, the busiest NIC, or the layer's time",
    )
    group.add_argument(
        "--rail-policy",
        metavar="POLICY",
        choices=POLICIES,
        default="equitable",
        help="with --aim link: the policy whose busiest NIC counts",
    )


def _add_steps(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what a plan sees, and what it is scored on")
    group.add_argument(
        "--window",
        metavar="N|all",
        type=_steps_seen,
        help="plan on the last N steps before the held-out ones, or on all of them (default all)",
    )
    group.add_argument(
        "--decay",
        metavar="D|auto",
        type=_decay,
        help="a step weighs D times the one after it, 1 is the plain sum; auto (default): of a few "
        "the one that would have predicted the last steps best",
    )
    group.add_argument(
        "--held-out",
        metavar="N",
        type=common.integer,
        help="last steps for the scores, by a plan on those before (default a quarter); the "
        "placement that is saved is planned on all steps; 0: score on what was planned on",
    )
    group.add_argument(
        "--rolling",
        metavar="N",
        type=common.integer,
        help="plan anew after every N held-out steps, as a server does",
    )
    group.add_argument(
        "--iteration",
        type=common.integer,
        help="plan and score on this recorded iteration alone, -1 the last",
    )


def _add_iteration(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", help="model whose dimensions count (default: the trace's own), e.g. deepseek-v3"
    )
    parser.add_argument(
        "--model-dim",
        metavar="N",
        type=common.positive,
        help="width of a token, instead of --model",
    )
    parser.add_argument(
        "--ffn",
        metavar="N",
        type=common.positive,
        help="hidden width of an expert (with --model-dim)",
    )
    parser.add_argument(
        "--gpu-tflops", type=float, default=400.0, help="what a GPU reaches, TFLOP/s"
    )
    parser.add_argument(
        "--tokens", type=common.positive, help="tokens per rank, where the trace does not say"
    )
    common.add_trace_arguments(parser)
    parser.add_argument(
        "--rule",
        choices=("home", "near", "even"),
        help="which replica a token goes to (default: home; even for replicate)",
    )
    parser.add_argument(
        "--chunk",
        help="largest chunk on the rails (default 256KiB, more where a step has millions of them)",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--previous",
        metavar="MAP.json",
        help="placement before, in sglang's or vLLM's format: its copies move nothing (default: "
        "contiguous)",
    )
    parser.add_argument(
        "--moves",
        action="store_true",
        help="with --previous: repair it with budgets of moves, and print moves against balance",
    )
    parser.add_argument(
        "--repair",
        metavar="HOW",
        help="with --previous: change that placement alone, e.g. tolerance=1.05 (of the mean: what "
        "the fullest GPU may have, default 1.02), stays=1.1 (a layer below is left as it is, "
        "default 1.05) or moves=20 (per layer at most, for the best balance)",
    )
    parser.add_argument(
        "--vllm",
        metavar="FILE.json",
        help="write the placement as vLLM's initial expert map, a list per layer",
    )
    parser.add_argument(
        "--sglang",
        metavar="FILE.json",
        help="write the placement for sglang's --init-expert-location",
    )
    parser.add_argument(
        "--tensorrt-llm",
        metavar="FILE.yaml",
        help="write the placement for TensorRT-LLM's moe_config: load_balancer:",
    )
    parser.add_argument(
        "--vllm-ascend", metavar="FILE.json", help="write the placement as vllm-ascend's expert map"
    )
    common.add_figure_arguments(parser, "draw the iteration's timeline before and after", "--gantt")


def run(args: argparse.Namespace) -> int:
    """Place, save, print; the exit code."""
    from railopt.moe.comparison import compare
    from railopt.moe.routing.trace import TRAINING

    common.figure_width(args, "gantt")
    check_targets(*_saved(args), args.gantt, force=args.force)
    fabric = common.fabric_from(args)
    trace = common.trace_of(args, args.trace, fabric)
    if trace.tokens_per_rank and common.given(args, "tokens"):
        common.refuse_idle("tokens", f"with a trace of {trace.tokens_per_rank} tokens per rank")
    if args.gantt and trace.records != TRAINING:
        raise InputError(f"--gantt draws a training iteration: the trace has {trace.records}")
    question = _question(args, fabric, trace.experts, len(trace.layers))
    made = compare(trace, fabric, question, stage)
    _save(args, made, trace.layers.tolist())
    if args.format == "json":
        common.print_json(made.as_dict())
    else:
        _print(made, common.output_of(args))
    if made.placed.interrupted:
        common.note("railopt: interrupted: the best so far")
        return 130
    return 0 if all(known.optimum_known for known in made.placed.optima) else 2


def _question(
    args: argparse.Namespace, fabric: Fabric, experts: int, layers: int
) -> PlacementQuestion:
    """What the options ask."""
    import numpy as np

    from railopt.moe.placement.files import read_costs, read_location, read_map
    from railopt.moe.placement.naming import fabric_costs
    from railopt.moe.placement.repair import FewMoves
    from railopt.moe.question import (
        ExpertRoom,
        GpuNaming,
        JobSize,
        PlacementBefore,
        PlacementQuestion,
        StepChoice,
    )
    from railopt.moe.routing.window import Window

    nodes, gpus = fabric.nodes, fabric.gpus
    costs = previous = slots = None
    if args.costs is not None:
        own = args.costs == "fabric"
        costs = fabric_costs(fabric) if own else read_costs(args.costs, nodes * gpus)
    if args.previous is not None:
        previous = read_location(args.previous, nodes, gpus, experts, layers)
        slots = np.array(read_map(args.previous, layers), np.int32)
    return PlacementQuestion(
        args.planner,
        ExpertRoom(
            args.replicas, even_slots=bool(_saved(args)), memory=args.memory, groups=args.groups
        ),
        StepChoice(Window(args.window, args.decay), args.held_out, args.rolling, args.iteration),
        PlacementBefore(
            previous,
            move_weight=args.move_weight,
            few=None if args.repair is None else FewMoves.parse(args.repair, "--repair"),
            curve=args.moves,
            slots=slots,
        ),
        JobSize(args.model or _dimensions(args), args.gpu_tflops * 1e12, args.tokens),
        GpuNaming(costs, args.aim, args.rail_policy),
        active=None if args.active is None else _active(args.active, nodes * gpus),
        rule=args.rule,
        chunk=args.chunk,
        limit_s=args.limit,
    )


def _dimensions(args: argparse.Namespace) -> Preset | None:
    """The model that --model-dim and --ffn describe; layers and experts are the trace's."""
    from railopt.moe.presets import Preset

    if args.model_dim is None or args.ffn is None:
        return None
    width = args.model_dim
    return Preset(f"{width} x {args.ffn}", 1, 1, 1, width, args.ffn, 4 * width * width)


def _active(parts: list[str], devices: int) -> Bools:
    """`["0-6", "8"]` as bool [GPU]."""
    import numpy as np

    active = np.zeros(devices, np.bool_)
    for part in parts:
        first, dash, last = part.partition("-")
        start = parse_integer(first, "GPU", low=0)
        end = parse_integer(last, "GPU", low=0) if dash else start
        if not start <= end < devices:
            raise InputError(
                f"--active {printable(part, 40)}: expected GPUs from 0 to {devices - 1}, e.g. 0-2,5"
            )
        active[start : end + 1] = True
    return active


def _saved(args: argparse.Namespace) -> list[str]:
    """The files for servers."""
    return [path for name in _SERVERS if (path := getattr(args, name)) is not None]


def _steps_seen(text: str) -> int | None:
    return None if text == "all" else parse_integer(text, low=1)


def _decay(text: str) -> float | None:
    return None if text == "auto" else float(parse_number(text))


def _save(args: argparse.Namespace, made: PlacementReport, layers: list[int]) -> None:
    """The files that were asked for."""
    from railopt.moe.placement.files import SERVERS, save_map, sglang_options

    placement = made.placed.placement
    if args.gantt:
        from railopt.report.gantt import gantt

        lines = [side.timeline for side in made.sides.values()]
        names = ("before:\nnothing overlaps", f"after: {made.question.planner},\ncopies sent ahead")
        width = common.figure_width(args, "gantt")
        figure = gantt(lines, names, title=common.title_of(args), width=width)
        common.save_drawing(args, "gantt", figure)
    most = int(placement.holds.sum(axis=2).max())
    slots = max(most, -(-(args.replicas or 0) // placement.devices))
    options = {
        "sglang": ": python -m sglang.launch_server ... "
        + sglang_options(placement, args.sglang, slots),
        "tensorrt-llm": f": moe_config: {{load_balancer: {args.tensorrt_llm}}} with --ep_size "
        f"{placement.devices}",
    }
    for server in SERVERS:
        if path := getattr(args, server.replace("-", "_")):
            save_map(placement, path, server, slots, layers=layers, force=args.force)
            common.note(f"saved {path}{options.get(server, '')}")
    more = slots * placement.devices * placement.layers - int(placement.copies.sum())
    if _saved(args) and more:
        common.note(
            f"files for servers have {more} further copies, which are in no score: {slots} slots "
            f"on every GPU"
        )


def _print(made: PlacementReport, out: common.Output) -> None:
    placement = made.placed.placement
    out.say(
        f"{made.question.planner}: {int(placement.copies.sum())} copies of experts in "
        f"{placement.layers} layers of {placement.experts}, at most "
        f"{int(placement.holds.sum(axis=2).max())} per GPU and layer; model: {made.model}"
    )
    for line in _steps(made):
        out.say(line)
    if optima := made.placed.optima:
        number = {
            name: sum(known.status == name for known in optima)
            for name in ("known", "claimed", "open")
        }
        out.say(
            f"layers' optima: {', '.join(f'{count} {name}' for name, count in number.items())}; "
            f"values at most {percent(max(known.gap for known in optima))} % above their bounds "
            f"({'; '.join(sorted({known.by for known in optima}))})"
        )
    out.table(["max/mean of GPUs", "mean", "best step", "worst step", "worst layer"], _scores(made))
    for what, rows in _rows(made).items():
        columns = [f"{what} on step {made.steps.scored_on[-1]}", "before", "after", "gain"]
        print()
        out.table(columns, rows, beside=True)
    moves = made.moves
    out.say(
        f"experts moved: {format_bytes(int(moves.traffic.bytes.sum()))} in all, "
        f"{format_bytes(int(moves.traffic.node_matrix.sum()))} between nodes; {moves.new_copies} "
        f"new copies, at least {moves.least_new_copies} for as many copies of each expert"
    )
    if made.curve is not None:
        columns = ["moves per layer", "moves", "at least", "max/mean", "worst layer"]
        print()
        out.table(columns, _curve(made.curve), beside=True)
    if moves.orphans:
        out.say(
            f"{moves.orphans} experts were on no active GPU: they come from one that drains, or "
            f"from storage, and their tokens are not in the row before"
        )


def _curve(curve: MovesCurve) -> list[list[str]]:
    """Rows of moves against balance, on the loads that the plan sees."""
    return [
        [
            f"at most {point.budget}",
            str(point.moves),
            str(point.least),
            f"{point.balance:.4f}",
            f"{point.worst:.4f}",
        ]
        for point in curve.points
    ]


# when `replicate` keeps groups together
GROUPS = (
    "they do where groups divide the experts, nodes divide the groups, GPUs divide the replicas, "
    "and a node has room for as many copies of its experts, one per GPU"
)


def _steps(made: PlacementReport) -> Iterator[str]:
    """What was planned on and scored on, in words."""
    from railopt.moe.assess import CHUNK

    steps = made.steps
    unit, seen, scored_on = steps.records, steps.seen, steps.scored_on
    if steps.held_out and set(scored_on) <= set(seen):
        plans = "a plan" if steps.replans == 1 else f"{steps.replans} plans, each"
        yield (
            f"scores: {len(scored_on)} {unit} ({_span(scored_on)}), by {plans} on the "
            f"steps before; this placement: planned on {len(seen)} ({_span(seen)})"
        )
    else:
        apart = "which it did not see" if steps.held_out else "the same: nothing was held out"
        what = unit.removesuffix("s") if len(seen) == 1 else unit
        yield (
            f"planned on {len(seen)} {what} ({_span(seen)}), scored on "
            f"{len(scored_on)} ({_span(scored_on)}), {apart}"
        )
    if steps.decay < 1:
        yield f"a step weighs {steps.decay:g} times the one after it"
    if made.assumed is not None:
        yield (
            f"assumed: room for {made.assumed.slots} experts per GPU and layer, "
            f"{format_bytes(made.assumed.bytes)} of bf16 weights per GPU in all; --replicas or "
            f"--memory says otherwise"
        )
    placed = int(made.placed.placement.copies.sum(axis=1).max())
    asked, groups = made.question.room.replicas, made.question.room.groups
    if asked is not None and placed > asked:
        yield (f"{asked} replicas per layer asked, {placed} placed: the same number on every GPU")
    if isinstance(made.chunk, int) and made.chunk > CHUNK:  # not asked for
        yield f"links in chunks of {format_bytes(made.chunk)}: smaller ones would be millions"
    kept = made.placed.placement.layers_keeping(groups)
    layers = made.placed.placement.layers
    if groups > 1 and kept < layers:
        yield f"expert groups stay on one node each in {kept} of {layers} layers: {GROUPS}"


def _span(iterations: list[int]) -> str:
    first, last = iterations[0], iterations[-1]
    return str(first) if first == last else f"{first} to {last}"


def _scores(made: PlacementReport) -> list[list[str]]:
    split = "" if made.rule == "even" else ", tokens even"  # as EPLB's tokens always are
    names = {
        "before": "before",
        "eplb": f"eplb, {made.eplb_replicas} replicas{split}",
        "after": made.question.planner,
    }
    return [
        [label, *(f"{value:.3f}" for value in (score.mean, *score.steps, score.worst))]
        for label, score in ((names[name], score) for name, score in made.scores.items())
    ]


def _rows(made: PlacementReport) -> dict[str, list[list[str]]]:
    """Rows of bytes and rows of times, each a table, whose columns have one unit."""

    def row(name: str, old: Any, new: Any, text: Any) -> list[str]:
        gain = float(old) / float(new) if new else 0.0
        return [
            name,
            text(old),
            text(new),
            Quantity(f"{gain:.2f}x", round(gain, 2)) if new else "-",
        ]

    before, after = made.sides["before"], made.sides["after"]
    volumes, times = [row("between nodes", before.internode, after.internode, size)], []
    for name in before.links:
        (old, slow), (new, fast) = before.links[name], after.links[name]
        volumes.append(row(f"busiest NIC, {name}", old, new, size))
        times.append(row(f"dispatch, {name}", slow, fast, duration))
    if made.steps.timed:
        start, end = (seconds(side.timeline.total_ps) for side in (before, after))
        times.append(row("iteration", start, end, duration))
    return {"bytes": volumes, "time": times}
