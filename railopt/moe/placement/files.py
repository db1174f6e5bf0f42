"""Placements as the files of servers: sglang's expert location, vLLM's initial expert map,
TensorRT-LLM's load balancer, vllm-ascend's expert map.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from railopt.base.arrays import Floats, read_npy, write_atomic
from railopt.base.errors import FormatError, InputError, printable
from railopt.files.formats import parse_matrix
from railopt.files.tabular import parse_csv
from railopt.moe.placement.placement import Placement
from railopt.moe.routing.trace import MAX_LAYERS

LARGEST = 8 << 20  # bytes of a location file: 256 layers of 5,000 slots fill it
KEY = "physical_to_logical_map"


def read_location(
    path: str | os.PathLike[str], nodes: int, gpus: int, experts: int, layers: int = 1
) -> Placement:
    """A placement of `experts` on nodes x gpus GPUs from JSON: what sglang's --init-expert-location
    reads, or vLLM's map, a list per layer of each slot's expert, or one list for all `layers`.  Two
    slots of an expert on one GPU, as EPLB may leave them, are one copy; -1 is an empty slot.
    """
    rows = read_map(path, layers)
    try:
        if rows and len(rows[0]) % (nodes * gpus):
            raise InputError(
                f"{len(rows[0])} slots per layer on {nodes * gpus} GPUs: expected as many on each"
            )
        return Placement.from_phy2log(rows, nodes, gpus, experts, twins=True)
    except InputError as error:
        raise FormatError(f"{printable(path)}: {error}") from error


def read_map(path: str | os.PathLike[str], layers: int = 1) -> list[list[int]]:
    """The experts of each slot, a list per layer, from the same files; one list is all layers."""
    data = _listed(path)
    try:
        return _rows(data if data and isinstance(data[0], list) else [data] * layers)
    except InputError as error:
        raise FormatError(f"{printable(path)}: {error}") from error


def _listed(path: str | os.PathLike[str]) -> list[Any]:
    """The list in a location file of sglang or a map of vLLM."""
    data = read_json(path, "an expert location")
    try:
        listed: list[Any] = (
            _rows(data[KEY]) if isinstance(data, dict) and set(data) == {KEY} else data
        )
    except InputError as error:
        raise FormatError(f"{printable(path)}: {error}") from error
    if not isinstance(listed, list):
        raise FormatError(
            f"{printable(path)}: expected the one key {KEY!r}, or a list of experts per layer"
        )
    return listed


def read_json(path: str | os.PathLike[str], what: str) -> Any:
    """What a JSON file has, of at most `LARGEST` bytes."""
    try:
        return json.loads(_text(path, what))
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
        text = _text(path, "a matrix of costs").decode("utf-8", "replace")
        parsed = parse_csv(text, devices, name) if suffix == ".csv" else None
        costs = parse_matrix(text, name) if parsed is None else parsed
    if costs.shape != (devices, devices) or costs.dtype.kind not in "iuf":
        raise FormatError(
            f"{name}: costs of shape {costs.shape}: expected numbers [{devices}, {devices}], "
            f"[source, destination]"
        )
    return np.array(costs, np.float64)


def _text(path: str | os.PathLike[str], what: str) -> bytes:
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise InputError(f"{printable(path)}: {error.strerror or error}") from error
    if len(text) > LARGEST:
        raise FormatError(f"{printable(path)}: more than {LARGEST} bytes, too large for {what}")
    return text


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


def save_location(
    placement: Placement,
    path: str | os.PathLike[str],
    slots: int | None = None,
    *,
    force: bool = False,
) -> None:
    """Write what sglang's --init-expert-location reads, `slots` a GPU (see `phy2log`)."""
    write_atomic(path, json.dumps(placement.sglang(slots)) + "\n", force=force)


def save_vllm_map(
    placement: Placement,
    path: str | os.PathLike[str],
    slots: int | None = None,
    *,
    force: bool = False,
) -> None:
    """Write vLLM's initial expert map, a list per layer of each slot's expert, `slots` per GPU (see
    `phy2log`).
    """
    write_atomic(path, json.dumps(placement.phy2log(slots).tolist()) + "\n", force=force)


def sglang_options(placement: Placement, path: str | os.PathLike[str], slots: int) -> str:
    """What sglang must be started with beside its model, for a location of `slots` a GPU."""
    spare = slots * placement.devices - placement.experts
    return (
        f"--ep-size {placement.devices} --ep-num-redundant-experts {spare} "
        f"--init-expert-location {path}"
    )


def save_load_balancer(
    placement: Placement,
    path: str | os.PathLike[str],
    layers: Sequence[int],
    slots: int | None = None,
    *,
    force: bool = False,
) -> None:
    """Write the YAML that TensorRT-LLM's `moe_config: load_balancer:` names, its experts fixed;
    `layers` are the model's numbers of the placement's layers, `slots` as in `phy2log`.
    """
    table = placement.phy2log(slots)
    if len(layers) != len(table):
        raise InputError(f"{len(layers)} layer numbers for a placement of {len(table)} layers")
    rows = [
        f"  {layer}: {json.dumps(row)}" for layer, row in zip(layers, table.tolist(), strict=True)
    ]
    head = [f"num_slots: {table.shape[1]}", "layer_updates_per_iter: 0"]
    text = "\n".join([*head, "initial_global_assignments:", *rows])
    write_atomic(path, text + "\n", force=force)


def save_expert_map(
    placement: Placement,
    path: str | os.PathLike[str],
    slots: int | None = None,
    *,
    force: bool = False,
) -> None:
    """Write vllm-ascend's expert map, `slots` a GPU (see `phy2log`)."""
    write_atomic(path, json.dumps(placement.vllm_ascend(slots)) + "\n", force=force)
