"""`railopt place`: a routing trace -> an expert placement, and what it does to GPUs and links."""

from __future__ import annotations

import argparse
import json
from typing import Any

from railopt.arrays import write_atomic
from railopt.cli.common import (
    add_fabric_arguments,
    add_output_arguments,
    fabric_from,
    note,
    print_json,
    table,
)
from railopt.errors import FormatError, InputError
from railopt.units import format_bytes, format_time, parse_bytes

PLANNERS = ("contiguous", "replicate", "shadow", "pro-prophet", "optimal")
EPILOG = """examples:
  railopt place experiments/traces/fine-kinds.npz --nodes 4 --gpus 8 --replicas 96 --planner pro-prophet
  railopt place trace.npz --nodes 4 --gpus 8 --planner replicate --replicas 96 --sglang location.json --vllm-ascend map.json
  railopt place recorder.pt --top-k 8 --model deepseek-v3 --nodes 4 --gpus 8 --planner replicate --replicas 288 --groups 8

TRACE is a railopt trace (.npz), a file of sglang's expert recorder (.pt) or a load tensor (.npy, [layers, experts] or
[steps, layers, experts]).  The last two do not say where tokens come from: they are spread evenly over the GPUs."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "trace", metavar="TRACE", help="routing trace: .npz, sglang .pt or .npy load tensor"
    )
    parser.add_argument(
        "--planner", default="pro-prophet", choices=PLANNERS, help="(default pro-prophet)"
    )
    parser.add_argument(
        "--replicas",
        type=int,
        help="physical experts a layer, homes included (at most, but for replicate)",
    )
    parser.add_argument(
        "--memory", metavar="BYTES", help="memory a GPU has for one layer's experts, e.g. 512MiB"
    )
    parser.add_argument(
        "--groups",
        type=int,
        default=1,
        help="expert groups that replicate keeps on one node (default 1)",
    )
    parser.add_argument(
        "--iteration",
        type=int,
        default=-1,
        help="recorded iteration to plan on (default: the last)",
    )
    parser.add_argument(
        "--evaluate", type=int, help="recorded iteration to evaluate on (default: the same)"
    )
    parser.add_argument(
        "--merge-ranks",
        action="store_true",
        help="join consecutive source ranks until one a GPU is left",
    )
    parser.add_argument(
        "--model", help="model whose dimensions count (default: the trace's own), e.g. deepseek-v3"
    )
    parser.add_argument(
        "--gpu-tflops", type=float, default=400.0, help="what a GPU reaches, TFLOP/s (default 400)"
    )
    parser.add_argument("--tokens", type=int, help="tokens a rank, where the trace does not say")
    parser.add_argument(
        "--top-k", type=int, help="experts a token, for .pt statistics and .npy (default 1)"
    )
    parser.add_argument(
        "--rule",
        choices=("home", "near", "even"),
        help="which replica a token goes to (default: home; even for replicate)",
    )
    parser.add_argument(
        "--chunk", default="256KiB", help="largest chunk on the rails (default 256KiB)"
    )
    parser.add_argument(
        "--previous",
        metavar="LOCATION.json",
        help="placement before, in sglang's format: its copies move nothing (default: contiguous)",
    )
    parser.add_argument(
        "--move-weight",
        type=float,
        default=1.0,
        help="what sending a copy weighs when planning (default 1)",
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="time a layer for optimal (default 30); exit code 2 if the optimum of a layer is not "
        "proved",
    )
    parser.add_argument(
        "--sglang",
        metavar="FILE.json",
        help="write the placement for sglang's --init-expert-location",
    )
    parser.add_argument(
        "--vllm-ascend", metavar="FILE.json", help="write the placement as vllm-ascend's expert map"
    )
    parser.add_argument(
        "--gantt", metavar="FILE.svg", help="draw the iteration's timeline before and after"
    )
    add_output_arguments(parser)
    add_fabric_arguments(parser)


def run(args: argparse.Namespace) -> int:
    from railopt.moe.assess import assess, dimensions, place
    from railopt.moe.routing.files import read_any

    if args.rails is None and args.gpus is not None and not args.fabric:
        args.rails = args.gpus
    fabric = fabric_from(args)
    devices = fabric.nodes * fabric.gpus
    trace = read_any(args.trace, ranks=devices, top_k=args.top_k)
    if args.merge_ranks and trace.ranks != devices:
        trace = trace.merged(devices)
    trace.expect(ranks=devices)
    model_of = dimensions(trace, args.model)
    tokens = (
        args.tokens or trace.tokens_per_rank or int(trace.counts.sum(axis=3).mean() / trace.top_k)
    )
    model = model_of.model(fabric, tokens, gpu_flops=args.gpu_tflops * 1e12)
    slots = None if args.memory is None else parse_bytes(args.memory) // model_of.expert_bytes()
    previous = None if args.previous is None else _previous(args.previous, fabric, trace.experts)
    options = {
        "iteration": args.iteration,
        "replicas": args.replicas,
        "slots": slots,
        "groups": args.groups,
        "previous": previous,
        "limit_s": args.limit,
    }
    optima: list[Any] = []
    placement = place(
        trace,
        fabric,
        model.weighing_moves(args.move_weight),
        args.planner,
        **options,
        report=optima.append,
    )
    start = place(trace, fabric, model, "contiguous") if previous is None else previous
    when = args.iteration if args.evaluate is None else args.evaluate
    rule = args.rule or ("even" if args.planner == "replicate" else "home")
    token_bytes = model_of.token_bytes()
    common = {
        "iteration": when,
        "token_bytes": token_bytes,
        "chunk": args.chunk,
        "previous": previous,
    }
    before = assess(
        trace,
        fabric,
        model,
        start,
        **common,
        style="deepspeed",
        rule=rule if args.previous else "home",
    )
    after = assess(trace, fabric, model, placement, **common, rule=rule)
    moved = placement.movement(start, model_of.expert_bytes())
    data = {
        "planner": args.planner,
        "layers": placement.layers,
        "experts": placement.experts,
        "copies": int(placement.copies.sum()),
        "experts_per_gpu": int(placement.holds.sum(axis=2).max()),
        "rule": rule,
        "model": model_of.name,
        "before": before.as_dict(),
        "after": after.as_dict(),
        "moved_bytes": int(moved.bytes.sum()),
        "moved_internode_bytes": int(moved.node_matrix.sum()),
    }
    if optima:
        data["optimum"] = _optimum(optima)
    _export(args, placement, before.timeline, after.timeline)
    if args.json:
        print_json(data)
    else:
        _print(data, before, after)
    return 0 if all(optimum.proved for optimum in optima) else 2


def _optimum(optima: list[Any]) -> dict[str, Any]:
    """How many layers' placements are the optimum of the time model, on whose word, and how far the
    others may be from it.
    """
    counts = {
        status: sum(optimum.status == status for optimum in optima)
        for status in ("proved", "claimed", "open")
    }
    return {
        **counts,
        "largest_gap": max(optimum.gap(optimum.value) for optimum in optima),
        "by": sorted({o.by for o in optima}),
    }


def _previous(path: str, fabric: Any, experts: int) -> Any:
    from railopt.moe.placement.placement import Placement

    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise FormatError(f"{path}: not JSON ({error})") from error
    if not isinstance(data, dict) or set(data) != {"physical_to_logical_map"}:
        raise FormatError(f"{path}: expected the one key 'physical_to_logical_map'")
    return Placement.from_phy2log(
        data["physical_to_logical_map"], fabric.nodes, fabric.gpus, experts
    )


def _export(args: argparse.Namespace, placement: Any, before: Any, after: Any) -> None:
    if args.sglang:
        slots = None if args.replicas is None else -(-args.replicas // placement.devices)
        write_atomic(args.sglang, json.dumps(placement.sglang(slots)) + "\n", force=args.force)
        note(f"saved {args.sglang}: sglang --init-expert-location {args.sglang}")
    if args.vllm_ascend:
        write_atomic(args.vllm_ascend, json.dumps(placement.vllm_ascend()) + "\n", force=args.force)
        note(f"saved {args.vllm_ascend}")
    if args.gantt:
        from railopt.moe.iteration.timeline import gantt

        gantt([before, after], args.gantt, title="one iteration before and after")
        note(f"saved {args.gantt}")


def _print(data: dict[str, Any], before: Any, after: Any) -> None:
    print(
        f"{data['planner']}: {data['copies']} experts on GPUs in {data['layers']} layers of "
        f"{data['experts']}, "
        f"at most {data['experts_per_gpu']} a GPU and layer; model: {data['model']}"
    )
    if "optimum" in data:
        known = data["optimum"]
        print(
            f"layers' optima: {known['proved']} proved, {known['claimed']} claimed, "
            f"{known['open']} open, at most "
            f"{100 * known['largest_gap']:.3g} % above the bound ({'; '.join(known['by'])})"
        )
    rows = [
        [
            "balance, max/mean",
            f"{before.balance:.3f}",
            f"{after.balance:.3f}",
            _ratio(before.balance, after.balance),
        ],
        [
            "worst layer",
            f"{before.worst:.3f}",
            f"{after.worst:.3f}",
            _ratio(before.worst, after.worst),
        ],
        [
            "bytes between nodes",
            format_bytes(before.internode),
            format_bytes(after.internode),
            _ratio(before.internode, after.internode),
        ],
    ]
    for name in before.links:
        (old, slow), (new, fast) = before.links[name], after.links[name]
        rows.append(
            [f"busiest NIC, {name}", format_bytes(old), format_bytes(new), _ratio(old, new)]
        )
        rows.append(
            [
                f"dispatch time, {name}",
                format_time(slow),
                format_time(fast),
                _ratio(float(slow), float(fast)),
            ]
        )
    old, new = before.timeline.total_ps, after.timeline.total_ps
    rows.append(["iteration", f"{old / 1e9:.3f}ms", f"{new / 1e9:.3f}ms", _ratio(old, new)])
    table(["", "before", "after", "gain"], rows)
    print(
        f"moved: {format_bytes(data['moved_bytes'])} in all, "
        f"{format_bytes(data['moved_internode_bytes'])} between nodes"
    )


def _ratio(before: float, after: float) -> str:
    return f"{before / after:.2f}x" if after else "-"
