"""Placements as the files of servers: sglang's expert location, vLLM's initial expert map,
TensorRT-LLM's load balancer, vllm-ascend's expert map.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from railopt.base.arrays import Floats, read_npy, read_text, write_atomic
from railopt.base.errors import FormatError, InputError, about, printable
from railopt.base.units import quoted
from railopt.files.formats import parse_matrix
from railopt.files.tabular import parse_csv
from railopt.moe.placement.placement import Placement
from railopt.moe.routing.trace import MAX_LAYERS

LARGEST = 8 << 20  # bytes of a location file: 256 layers of 5,000 slots fill it
KEY = "physical_to_logical_map"
Rows = dict[int, list[int]]  # the expert of each slot, by the number of a layer


def read_location(
    path: str | os.PathLike[str], nodes: int, gpus: int, experts: int, layers: int = 1
) -> Placement:
    """A placement of `experts` on nodes x gpus GPUs from JSON: what sglang's --init-expert-location
    reads, or vLLM's map, a list per layer of each slot's expert, or one list for all `layers`.  Two
    slots of an expert on one GPU, as EPLB may leave them, are one copy; -1 is an empty slot.
    """
    rows = read_map(path, layers)
    with about(f"{printable(path)}: ", FormatError):
        if rows and len(rows[0]) % (nodes * gpus):
            raise InputError(
                f"{len(rows[0])} slots per layer on {nodes * gpus} GPUs: expected as many on each"
            )
        return Placement.from_phy2log(rows, nodes, gpus, experts, twins=True)


def read_map(path: str | os.PathLike[str], layers: int = 1) -> list[list[int]]:
    """The experts of each slot, a list per layer, from the same files; one list is all layers."""
    data = read_json(path)
    with about(f"{printable(path)}: ", FormatError):
        if isinstance(data, dict) and set(data) == {KEY}:
            return _rows(data[KEY])
        if not isinstance(data, list):
            raise InputError(f"expected the one key {KEY!r}, or a list of experts per layer")
        return _rows(data if data and isinstance(data[0], list) else [data] * layers)


def read_json(path: str | os.PathLike[str]) -> Any:
    """What a JSON file has, of at most `LARGEST` bytes."""
    try:
        return json.loads(read_text(path, LARGEST))
    except (ValueError, RecursionError) as error:
        raise FormatError(f"{printable(path)}: not JSON ({printable(error, 100)})") from error


def read_costs(path: str | os.PathLike[str], devices: int) -> Floats:
    """Costs between ranks, float64 [source, destination]: a `.npy` of any numbers, or a matrix of
    whole numbers as text, with commas (`.csv`) or blanks between them.
    """
    name, suffix = printable(path), Path(path).suffix.lower()
    if suffix == ".npy":
        costs = read_npy(path)
    else:
        text = read_text(path, LARGEST)
        with about(f"{name}: ", FormatError):
            costs = parse_csv(text, devices) if suffix == ".csv" else parse_matrix(text)
    if costs.shape != (devices, devices) or costs.dtype.kind not in "iuf":
        raise FormatError(
            f"{name}: costs of shape {costs.shape}: expected numbers [{devices}, {devices}], "
            f"[source, destination]"
        )
    return np.array(costs, np.float64)


def _rows(table: Any) -> list[list[int]]:
    """Rows of integers, all as long as the first: what numpy would guess at is refused here."""
    if isinstance(table, list) and len(table) > MAX_LAYERS:
        raise InputError(f"{len(table)} layers: at most {MAX_LAYERS} are read")
    good = isinstance(table, list) and all(
        isinstance(row, list) and len(row) == len(table[0]) and all(type(x) is int for x in row)
        for row in table
    )
    if not good:
        raise InputError(f"{KEY} is no table of whole numbers [layer, slot]")
    rows: list[list[int]] = table
    return rows


def save_map(
    placement: Placement,
    path: str | os.PathLike[str],
    server: str,
    slots: int | None = None,
    *,
    layers: Sequence[int] | None = None,
    force: bool = False,
) -> None:
    """Write the file of one of `SERVERS`, `slots` experts per GPU (see `Placement.phy2log`).

    sglang        what --init-expert-location reads
    vllm          the initial expert map, a list per layer of each slot's expert
    vllm-ascend   the experts of each device, layer by layer
    tensorrt-llm  the YAML that `moe_config: load_balancer:` names, its experts fixed; `layers` are
                  the model's numbers of the placement's layers (None: from 0 on)
    """
    if server not in SERVERS:
        raise InputError(f"unknown server {quoted(server)}: expected {', '.join(SERVERS)}")
    numbers = range(placement.layers) if layers is None else layers
    if len(numbers) != placement.layers:
        raise InputError(f"{len(numbers)} layer numbers for a placement of {placement.layers}")
    rows = dict(zip(numbers, placement.phy2log(slots).tolist(), strict=True))
    write_atomic(path, SERVERS[server](placement, rows) + "\n", force=force)


def _ascend(placement: Placement, rows: Rows) -> str:
    each = len(next(iter(rows.values()))) // placement.devices
    layers = [
        {
            "layer_id": number,
            "device_count": placement.devices,
            "device_list": [
                {"device_id": gpu, "device_expert": row[gpu * each : (gpu + 1) * each]}
                for gpu in range(placement.devices)
            ],
        }
        for number, row in enumerate(rows.values())
    ]
    return json.dumps({"moe_layer_count": placement.layers, "layer_list": layers})


def _tensorrt(_: Placement, rows: Rows) -> str:
    slots = len(next(iter(rows.values())))
    head = [f"num_slots: {slots}", "layer_updates_per_iter: 0", "initial_global_assignments:"]
    return "\n".join([*head, *(f"  {layer}: {json.dumps(row)}" for layer, row in rows.items())])


SERVERS: Mapping[str, Callable[[Placement, Rows], str]] = {
    "sglang": lambda _, rows: json.dumps({KEY: [*rows.values()]}),
    "vllm": lambda _, rows: json.dumps([*rows.values()]),
    "tensorrt-llm": _tensorrt,
    "vllm-ascend": _ascend,
}


def sglang_options(placement: Placement, path: str | os.PathLike[str], slots: int) -> str:
    """What sglang must be started with beside its model, for a location of `slots` per GPU."""
    spare = slots * placement.devices - placement.experts
    return (
        f"--ep-size {placement.devices} --ep-num-redundant-experts {spare} "
        f"--init-expert-location {path}"
    )
