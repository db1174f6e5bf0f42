"""Dispatches of a routing trace as traffic: `"trace.npz:step=3,layer=2"`.

    step, layer     a recorded one by its number, -1 the last; `all`: each on its own; `sum`: their
                    bytes added up.  Default: the last step, the first layer that has tokens
    hidden          bytes per token, e.g. 14KiB; or
    model           the model whose tokens these are, in bf16, and whose top_k counts where the
                    trace does not know it
    top_k           experts per token, where the trace does not know it
    routed_experts  the file holds ids of so many experts, see `read_trace`
    placement       where experts live, a file of sglang's or vLLM's form; default: in order, as
                    many on every GPU

A token is sent once for each of its experts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import MUCH
from railopt.base.errors import InputError, printable, say
from railopt.base.units import format_bytes, parse_bytes, parse_integer, parse_options, quoted
from railopt.model.fabric import Fabric
from railopt.model.routed import count_gpus
from railopt.model.traffic import Traffic, trace_file
from railopt.moe.placement.files import read_location
from railopt.moe.placement.placement import Placement
from railopt.moe.presets import preset
from railopt.moe.routing.dispatch import sent
from railopt.moe.routing.files import read_trace
from railopt.moe.routing.trace import Trace

OPTIONS = ("step", "layer", "hidden", "model", "top_k", "routed_experts", "placement")
HIDDEN = 8 << 10  # bytes per token where nothing says so, as the workload `moe` has them
VALUE_BYTES = 2  # of a value of a token's hidden vector: bf16


class Dispatch(NamedTuple):
    """The all-to-all of a step and a layer, or the sum of several.

    name  `step 3, layer 2`, `48 steps summed, layer 2`
    """

    name: str
    traffic: Traffic


class Recorded(NamedTuple):
    """What was asked of a trace, and in words what was assumed of it."""

    dispatches: list[Dispatch]
    assumed: tuple[str, ...]


def dispatches_from(text: str, fabric: Fabric) -> Recorded:
    """The dispatches of a trace that `text` names, with options behind a colon: see above."""
    found = trace_file(text)
    if found is None:
        raise InputError(f"{quoted(text)} is no routing trace")
    path, options = found[0], _options(*found)
    model = preset(options["model"]) if "model" in options else None
    trace = read_trace(
        path,
        ranks=count_gpus(fabric),
        top_k=_number(options, "top_k"),
        usual_top_k=None if model is None else model.top_k,
        routed_experts=_number(options, "routed_experts"),
    )
    _check_ranks(trace, fabric, path)
    rows = _chosen(options.get("step", "-1"), trace.iterations.tolist(), "step")
    busy = np.flatnonzero(trace.load[rows[-1]].sum(axis=(0, 2)))
    first = trace.layers[busy[0] if len(busy) else 0]
    columns = _chosen(options.get("layer", str(first)), trace.layers.tolist(), "layer")
    if model is not None:
        size = model.token_bytes()
    else:
        size = parse_bytes(options.get("hidden", trace.model_dim * VALUE_BYTES or HIDDEN))
    sizes = fabric.nodes, fabric.gpus, trace.experts, len(trace.layers)
    if "placement" in options:
        placement = read_location(options["placement"], *sizes)
    else:
        nodes, gpus, experts, layers = sizes
        placement = Placement.contiguous(layers, experts, nodes, gpus)
    taken = 8 * trace.ranks**2 * len(rows) * len(columns)
    if taken > MUCH:
        say(f"{len(rows) * len(columns)} dispatches take {taken / 1e9:.0f} GB of memory or more")
    dispatches = [
        Dispatch(
            f"{_name(row, trace.iterations, 'step')}, {_name(column, trace.layers, 'layer')}",
            _traffic(trace, placement, row, column, size),
        )
        for row in rows
        for column in columns
    ]
    return Recorded(dispatches, _assumed(trace, options, path, size, dispatches))


def _options(path: str, text: str) -> dict[str, str]:
    """The options of `step=3,layer=2`; unknown ones are refused."""
    options = parse_options(text, OPTIONS, printable(path))
    if {"model", "hidden"} <= set(options):
        raise InputError(f"{printable(path)}: model and hidden both say a token's bytes: give one")
    return options


def _number(options: dict[str, str], name: str) -> int | None:
    return parse_integer(options[name], name, low=1) if name in options else None


def _check_ranks(trace: Trace, fabric: Fabric, path: str) -> None:
    gpus = fabric.nodes * fabric.gpus
    if trace.ranks == gpus:
        return
    nodes, rest = divmod(trace.ranks, fabric.gpus)
    hint = f"--nodes {nodes}" if not rest else "a fabric of as many GPUs"
    raise InputError(
        f"{printable(path)} has {trace.ranks} source ranks, the fabric {fabric.nodes} nodes x "
        f"{fabric.gpus} = {gpus} GPUs: expected one rank per GPU, give {hint}"
    )


def _chosen(text: str, known: list[int], name: str) -> list[list[int]]:
    """Positions in `known`, those that are added up together."""
    if text in ("all", "sum"):
        every = list(range(len(known)))
        return [every] if text == "sum" else [[one] for one in every]
    number = parse_integer(text, name, low=-1)
    if number == -1:
        return [[len(known) - 1]]
    if number not in known:
        near = sorted(sorted(known, key=lambda one: abs(one - number))[:4])
        raise InputError(
            f"{name} {number} was not recorded: expected one of {len(known)}, as {near}, or -1, "
            f"the last, all or sum"
        )
    return [[known.index(number)]]


def _name(positions: list[int], numbers: Any, unit: str) -> str:
    several = len(positions) > 1
    return f"{len(positions)} {unit}s summed" if several else f"{unit} {numbers[positions[0]]}"


def _traffic(
    trace: Trace, placement: Placement, rows: list[int], columns: list[int], size: int
) -> Traffic:
    """The bytes of some rows and columns of a trace, added up."""
    added = np.zeros((placement.devices, placement.devices), np.int64)
    for row in rows:
        for column in columns:
            added += sent(trace.counts[row, column], placement, column, "even")
    return Traffic(added * size, placement.nodes)


def _assumed(
    trace: Trace, options: dict[str, str], path: str, size: int, dispatches: list[Dispatch]
) -> tuple[str, ...]:
    """What nobody said."""
    steps, layers = len(trace.iterations), len(trace.layers)
    said = []
    if steps * layers > 1 and not {"step", "layer"} <= set(options) and len(dispatches) == 1:
        said.append(
            f"{dispatches[0].name} of {steps} steps x {layers} layers; another one: "
            f"{path}:step={trace.iterations[0]},layer={trace.layers[-1]}, "
            f"or sum; gap, frontier, compare and convert take all, too"
        )
    if not trace.model_dim and not {"model", "hidden"} & set(options):
        said.append(f"{format_bytes(size)} per token assumed: hidden=..., or model=...")
    if "placement" not in options:
        said.append(f"{trace.experts} experts on {trace.ranks} GPUs in order")
    if str(trace.meta.get("sources", "")).startswith("assumed"):
        said.append(f"source ranks {trace.meta['sources']}")
    return tuple(f"{printable(path)}: {text}" for text in said)
