"""perftest's reports (`ib_write_bw --out_json`) -> the measured rate of each NIC -> a Fabric.

perftest 4.5 writes keys without quotes and a comma after the last one; newer releases write JSON.
Both are read here as lines of `key: value`. The unit is not in the file: MB/s (2**20 bytes) or,
with --report_gbits, Gb/s; it follows from the message rate, which is always millions of messages
per second: rate = MsgRate * 1e6 * MsgSize.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from railopt.errors import FormatError, InputError
from railopt.fabric import Fabric

_PAIR = re.compile(r'"?(MsgSize|BW_average|MsgRate)"?\s*:\s*"?([0-9.eE+-]+)"?')
_PLACE = re.compile(r"(\d+)\D+(\d+)(?:[._-]?(tx|rx))?\.json\Z", re.ASCII)
_UNITS = (Fraction(2**20), Fraction(10**9, 8))  # MB/s, Gb/s
_SIDES = {"tx": "send", "rx": "recv", None: ""}


class Measured(NamedTuple):
    """A NIC's rate in bytes per second; `side` is "send", "recv" or "" for both."""

    node: int
    rail: int
    side: str
    rate: int


def measured_rate(text: str, name: str = "report") -> int:
    """Bytes per second: the best average of the report's message sizes."""
    best = 0
    found: dict[str, Fraction] = {}
    for key, value in _PAIR.findall(text):
        try:
            found[key] = Fraction(value)
        except (ValueError, ZeroDivisionError):
            raise FormatError(f"{name}: {key} is {value!r}, expected a number") from None
        if len(found) == 3:
            best = max(best, _rate(found, name))
            found = {}
    if not best:
        raise FormatError(
            f"{name}: no MsgSize, BW_average and MsgRate: expected a report of ib_write_bw "
            f"--out_json"
        )
    return best


def _rate(found: dict[str, Fraction], name: str) -> int:
    bandwidth, counted = found["BW_average"], found["MsgRate"] * 10**6 * found["MsgSize"]
    if bandwidth <= 0 or counted <= 0:
        raise FormatError(
            f"{name}: BW_average {float(bandwidth):g} and MsgRate {float(found['MsgRate']):g}: "
            f"nothing was measured "
            "(for very slow links use larger --iters, MsgRate is rounded to 6 digits)"
        )
    unit = min(_UNITS, key=lambda u: max(bandwidth * u / counted, counted / (bandwidth * u)))
    factor = max(bandwidth * unit / counted, counted / (bandwidth * unit))
    if factor > 2:
        raise FormatError(
            f"{name}: BW_average {float(bandwidth):g} fits MsgRate neither as MB/s nor as Gb/s"
        )
    return int(bandwidth * unit)


def place_of(path: str) -> tuple[int, int, str]:
    """(node, rail, side) from a file name: its last two numbers, as in `node3_rail5.json` or
    `3-5-tx.json`.
    """
    match = _PLACE.search(Path(path).name)
    if match is None:
        raise InputError(
            f"{path}: the name must end in the node's and the rail's number, e.g. node3_rail5.json "
            "(node3_rail5_tx.json and _rx.json where the directions differ)"
        )
    return int(match[1]), int(match[2]), _SIDES[match[3]]


def read(paths: Iterable[str]) -> list[Measured]:
    """The NICs that these reports measured."""
    measured = []
    for path in paths:
        try:
            text = Path(path).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        measured.append(Measured(*place_of(path), measured_rate(text, Path(path).name)))
    return measured


def fabric_from(measured: list[Measured], gpus: int | None = None) -> Fabric:
    """A fabric with these rates; every NIC of every node must have been measured, each direction
    once.
    """
    if not measured:
        raise InputError(
            "no reports: expected one a NIC, e.g. node0_rail0.json node0_rail1.json ..."
        )
    nodes, rails = 1 + max(m.node for m in measured), 1 + max(m.rail for m in measured)
    rates = {side: np.zeros((nodes, rails), np.int64) for side in ("send", "recv")}
    for m in measured:
        for side in [m.side] if m.side else ["send", "recv"]:
            if rates[side][m.node, m.rail]:
                raise InputError(f"node {m.node} rail {m.rail} was measured twice ({side})")
            rates[side][m.node, m.rail] = m.rate
    for side, matrix in rates.items():
        if (matrix == 0).any():
            node, rail = np.argwhere(matrix == 0)[0]
            raise InputError(
                f"no report for node {node} rail {rail} ({side}): {nodes} nodes x {rails} rails "
                f"are expected, "
                "because those are the largest numbers found"
            )
    return Fabric(nodes, rails, rails if gpus is None else gpus, rates["send"], rates["recv"])
