"""A split of one micro-batch as `railopt split --json` prints it, read back."""

from __future__ import annotations

import os

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import FormatError, printable
from railopt.base.units import INT64_MAX
from railopt.moe.placement.files import read_json
from railopt.moe.placement.placement import Placement

__all__ = ["read_split"]


def read_split(
    path: str | os.PathLike[str], before: Placement, layer: int = 0
) -> tuple[Placement, Ints]:
    """The placement of one layer with the copies of a split, and the tokens int64 [GPU, expert]
    that each GPU computes; the split was made of layer `layer` of `before`, whose homes it keeps.
    """
    name, data = printable(path), read_json(path)
    try:
        copies = [(copy["gpu"], copy["expert"]) for copy in data["batch"]["copies"]]
        rows = [(gpu, expert, tokens) for expert, gpu, tokens in data["batch"]["assignment"]]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(
            f"{name}: expected what railopt split --json prints of one micro-batch, --iteration "
            f"and --layer"
        ) from error
    ends = before.devices, before.experts, INT64_MAX
    for row in (*copies, *rows):
        if not all(type(n) is int and 0 <= n < end for n, end in zip(row, ends, strict=False)):
            raise FormatError(
                f"{name}: GPU {printable(row[0])} and expert {printable(row[1])}: expected whole "
                f"numbers, of {before.devices} GPUs and {before.experts} experts"
            )
    holds, tokens = before.holds[layer].copy(), np.zeros(before.holds[layer].shape, np.int64)
    for gpu, expert in copies:
        holds[gpu, expert] = True
    for gpu, expert, number in rows:
        tokens[gpu, expert] = number
    for gpu, expert in np.argwhere((tokens > 0) & ~holds)[:1].tolist():
        raise FormatError(
            f"{name}: GPU {gpu} has tokens of expert {expert}, which it does not hold: expected "
            f"the placement that the split was made of"
        )
    placed = Placement(before.nodes, before.gpus, holds[None], before.home[layer][None])
    return placed, tokens
