"""perftest's reports (`ib_write_bw --out_json`) -> the measured rate of each NIC -> a Fabric.

perftest 4.5 writes keys without quotes and a comma after the last one; newer releases write JSON.
Both are read here as lines of `key: value`. The unit is not in the file: MB/s (2**20 bytes) or,
with --report_gbits, Gb/s; it follows from the message rate, which is always millions of messages
per second: rate = MsgRate * 1e6 * MsgSize.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from railopt.errors import FormatError, InputError, printable
from railopt.fabric import Fabric
from railopt.units import parse_number, shown

_PAIR = re.compile(r'"?(MsgSize|BW_average|MsgRate)"?\s*:\s*"?([0-9.eE+-]+)"?')
_PLACE = re.compile(r"(?<!\d)(\d{1,6})\D+(\d{1,6})(?:[._-]?(tx|rx))?\.json\Z", re.ASCII)
MAX_REPORT = 1 << 20
MAX_NUMBER = Fraction(10**15)
_UNITS = (Fraction(2**20), Fraction(10**9, 8))  # MB/s, Gb/s
SIDES = ("send", "recv")
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
        found[key] = _number(key, value, name)
        if len(found) == 3:
            best = max(best, _rate(found, name))
            found = {}
    if not best:
        raise FormatError(
            f"{name}: no MsgSize, BW_average and MsgRate: expected a report of ib_write_bw "
            f"--out_json"
        )
    return best


def _number(key: str, value: str, name: str) -> Fraction:
    try:
        number = parse_number(value)
    except InputError:
        number = MAX_NUMBER
    if not -MAX_NUMBER < number < MAX_NUMBER:
        raise FormatError(
            f"{name}: {key} is {shown(value)}, expected a number below 1e15"
        ) from None
    return number


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
            f"{printable(path)}: the name must end in the node's and the rail's number, e.g. "
            f"node3_rail5.json (node3_rail5_tx.json and _rx.json where the directions differ)"
        )
    return int(match[1]), int(match[2]), _SIDES[match[3]]


def read(paths: Iterable[str]) -> list[Measured]:
    """The NICs that these reports measured."""
    measured = []
    for path in paths:
        try:
            with Path(path).open("rb") as file:
                data = file.read(MAX_REPORT + 1)
        except (OSError, ValueError) as error:
            words = error.strerror if isinstance(error, OSError) else error
            raise InputError(f"{printable(path)}: {words}") from error
        name = printable(Path(path).name)
        if len(data) > MAX_REPORT:
            raise FormatError(
                f"{name}: more than {MAX_REPORT} bytes: expected a report of ib_write_bw --out_json"
            )
        rate = measured_rate(data.decode("utf-8", errors="replace"), name)
        measured.append(Measured(*place_of(path), rate))
    return measured


def fabric_from(measured: Sequence[Measured], gpus: int | None = None) -> Fabric:
    """A fabric with these rates; every NIC of every node must have been measured, each direction
    once.
    """
    if not measured:
        raise InputError(
            "no reports: expected one a NIC, e.g. node0_rail0.json node0_rail1.json ..."
        )
    rates: dict[tuple[int, int, str], int] = {}
    for m in measured:
        for side in [m.side] if m.side else SIDES:
            if (m.node, m.rail, side) in rates:
                raise InputError(f"node {m.node} rail {m.rail} was measured twice ({side})")
            rates[m.node, m.rail, side] = m.rate
    nodes, rails = 1 + max(m.node for m in measured), 1 + max(m.rail for m in measured)
    for place in itertools.product(range(nodes), range(rails), SIDES):
        if place not in rates:  # found before more places were tried than reports were given
            node, rail, side = place
            raise InputError(
                f"no report for node {node} rail {rail} ({side}): {nodes} nodes x {rails} rails "
                f"are expected, because those are the largest numbers found"
            )
    tx, rx = (
        np.array([[rates[k, n, side] for n in range(rails)] for k in range(nodes)], np.int64)
        for side in SIDES
    )
    return Fabric(nodes, rails, rails if gpus is None else gpus, tx, rx)
