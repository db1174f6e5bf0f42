"""perftest's reports (`ib_write_bw --out_json`, or what it prints) -> the measured rate of each NIC
-> a Fabric.

perftest 4.5 writes keys without quotes and a comma after the last one; newer releases write JSON.
Both are read here as lines of `key: value`. The unit is not in the file: MB/s (2**20 bytes) or,
with --report_gbits, Gb/s; it follows from the message rate, which is always millions of messages
per second: rate = MsgRate * 1e6 * MsgSize.  What perftest prints has a line of five numbers for
each size below `#bytes #iterations BW peak[...] BW average[...] MsgRate[Mpps]`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import FormatError, InputError, printable
from railopt.base.units import parse_number, parse_rate, quoted
from railopt.model.fabric import MAX_NICS, SIDES, Fabric
from railopt.runtime.naming import SIDE_NAMES, Naming, NicSide

_PAIR = re.compile(r'"?(MsgSize|BW_average|MsgRate)"?\s*:\s*"?([0-9.eE+-]+)"?')
_LINE = re.compile(
    r"[ \t]*(\d{1,18})[ \t]+\d+[ \t]+\S+[ \t]+([0-9.eE+-]+)[ \t]+([0-9.eE+-]+)[ \t]*"
)
_HEAD = "#bytes"
_PLACES = [  # with the words "node" and "rail", or with two numbers alone
    re.compile(rf"{places}(?:[._-]?(tx|rx))?\.(?:json|txt|log|out)\Z", re.ASCII | re.IGNORECASE)
    for places in (r".*node(\d{1,6})(?!\d).*rail(\d{1,6})", r"\D*(\d{1,6})\D+(\d{1,6})")
]
_SUFFIX = re.compile(r"\.(?:json|txt|log|out)\Z", re.IGNORECASE)
MAX_REPORT = 1 << 20
MAX_NUMBER = Fraction(10**15)
_UNITS = (Fraction(2**20), Fraction(10**9, 8))  # MB/s, Gb/s
CALM_STEPS = ("1%", "2%", "5%")


class Measured(NamedTuple):
    """A NIC's rate in bytes per second, 0 where nothing was measured; `side` is "send", "recv" or
    "" for both.
    """

    node: int
    rail: int
    side: str
    rate: int


def measured_rate(text: str, name: str = "report") -> int:
    """Bytes per second: the best average of the report's message sizes."""
    best = 0
    found: dict[str, Fraction] = {}
    for key, value in _PAIR.findall(text) or _printed(text):
        found[key] = _number(key, value, name)
        if len(found) == 3:
            best = max(best, _rate(found, name))
            found = {}
    if not best:
        raise FormatError(
            f"{name}: no MsgSize, BW_average and MsgRate: expected a report of ib_write_bw "
            f"--out_json, or all that it prints"
        )
    return best


def _printed(text: str) -> Iterator[tuple[str, str]]:
    """The same pairs from what perftest prints."""
    _, head, lines = text.partition(_HEAD)
    for line in lines.splitlines()[1:] if head else ():
        if match := _LINE.fullmatch(line):
            yield from zip(("MsgSize", "BW_average", "MsgRate"), match.groups(), strict=True)


def _number(key: str, value: str, name: str) -> Fraction:
    try:
        number = parse_number(value)
    except InputError:
        number = MAX_NUMBER
    if not -MAX_NUMBER < number < MAX_NUMBER:
        raise FormatError(
            f"{name}: {key} is {quoted(value)}, expected a number below 1e15"
        ) from None
    return number


def _rate(found: dict[str, Fraction], name: str) -> int:
    bandwidth, counted = found["BW_average"], found["MsgRate"] * 10**6 * found["MsgSize"]
    if bandwidth <= 0 or counted <= 0:
        raise FormatError(
            f"{name}: BW_average {float(bandwidth):g} and MsgRate {float(found['MsgRate']):g}: "
            f"nothing was measured (very slow links need larger --iters: MsgRate has 6 digits)"
        )
    unit = min(_UNITS, key=lambda u: max(bandwidth * u / counted, counted / (bandwidth * u)))
    factor = max(bandwidth * unit / counted, counted / (bandwidth * unit))
    if factor > 2:
        raise FormatError(
            f"{name}: BW_average {float(bandwidth):g} fits MsgRate neither as MB/s nor as Gb/s"
        )
    return int(bandwidth * unit)


def place_of(path: str) -> NicSide:
    """From a file name with two numbers, the node's and the rail's, as in `node3_rail5.json` or
    `3-5-tx.json`; where there are more, the words "node" and "rail" must say which.
    """
    tried = [pattern.match(Path(path).name) for pattern in _PLACES]
    match = tried[0] or tried[1]
    if match is None:
        raise InputError(
            f"{printable(path)}: expected a name with the node's and the rail's number, e.g. "
            f"node3_rail5.json (node3_rail5_tx.json and _rx.json where the directions differ); "
            f"names by host and device, e.g. gpu01-mlx5_0.json, need the hosts (--hosts)"
        )
    return int(match[1]), int(match[2]), SIDE_NAMES[match[3]]


class Gathered(NamedTuple):
    """What the reports of a fabric say.

    measured  one entry a report; a rate of 0 where it failed
    failed    in words, why, for each report that did
    names     hosts and devices, where reports are named by them; else there are as many nodes and
              rails as reports speak of
    """

    measured: list[Measured]
    failed: tuple[str, ...] = ()
    names: Naming | None = None


def read(
    paths: Sequence[str], naming: Naming | None = None, *, missing_dead: bool = False
) -> Gathered:
    """The NICs that these reports measured, by numbers in their names or by hosts and devices.  A
    report that is missing or of nothing is refused, or with `missing_dead` a dead NIC.
    """
    if naming is None:
        places = [place_of(path) for path in paths]
    else:
        stems = [_SUFFIX.sub("", Path(path).name) for path in paths]
        naming = naming.completed(stems)
        places = naming.places(stems)
    measured, failed = [], []
    for path, place in zip(paths, places, strict=True):
        try:
            rate = _read_rate(path)
        except FormatError as error:
            if not missing_dead:
                raise FormatError(f"{error}; --missing dead counts it as a dead NIC") from error
            rate = 0
            failed.append(str(error))
        measured.append(Measured(*place, rate))
    return Gathered(measured, tuple(failed), naming)


def _read_rate(path: str) -> int:
    """The rate of one report."""
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_REPORT + 1)
    except (OSError, ValueError) as error:
        words = error.strerror if isinstance(error, OSError) else error
        kind = FormatError if isinstance(error, FileNotFoundError) else InputError
        raise kind(f"{printable(path)}: {words}") from error
    name = printable(Path(path).name)
    if len(data) > MAX_REPORT:
        raise FormatError(
            f"{name}: more than {MAX_REPORT} bytes: expected a report of ib_write_bw --out_json"
        )
    return measured_rate(data.decode("utf-8", errors="replace"), name)


def fabric_from(
    gathered: Gathered, gpus: int | None = None, *, missing_dead: bool = False
) -> Fabric:
    """A fabric with these rates, each direction measured once; a NIC without a report is refused,
    or with `missing_dead` dead, if at least half of them have one in each direction.
    """
    measured = gathered.measured
    if not measured:
        raise InputError(
            "no reports: expected one per NIC, e.g. node0_rail0.json node0_rail1.json ..."
        )
    rates: dict[tuple[int, int, str], int] = {}
    for m in measured:
        for side in [m.side] if m.side else SIDES:
            if (m.node, m.rail, side) in rates:
                raise InputError(f"node {m.node} rail {m.rail} was measured twice ({side})")
            rates[m.node, m.rail, side] = m.rate
    hosts, devices = gathered.names or ((), ())
    nodes = len(hosts) or 1 + max(m.node for m in measured)
    rails = len(devices) or 1 + max(m.rail for m in measured)
    if missing_dead:
        _require_half([side for (_, _, side), rate in rates.items() if rate > 0], nodes, rails)
    for place in itertools.product(range(nodes), range(rails), SIDES):
        if place not in rates and not missing_dead:  # found before more were tried than given
            node, rail, side = place
            raise InputError(
                f"no report for node {node} rail {rail} ({side}): {nodes} nodes x {rails} rails "
                f"are expected, the most that names speak of; --missing dead counts it as dead"
            )
    tx, rx = (
        np.array(
            [[rates.get((k, n, side), 0) for n in range(rails)] for k in range(nodes)], np.int64
        )
        for side in SIDES
    )
    made = Fabric(nodes, rails, rails if gpus is None else gpus, tx, rx)
    return replace(made, hosts=hosts, devices=devices)


def _require_half(measured: list[str], nodes: int, rails: int) -> None:
    """Refuse to call most of a fabric dead, one way or both: names were read wrongly, or reports
    left out. `measured` has the side of each rate.
    """
    for side in SIDES:
        count = measured.count(side)
        if nodes * rails > MAX_NICS or 2 * count < nodes * rails:
            raise InputError(
                f"{side} rates of {count} of the {nodes * rails} NICs of {nodes} nodes x {rails} "
                f"rails: expected at least half of them, before the others are called dead"
            )


def rounded(fabric: Fabric, step: str) -> Fabric:
    """The fabric with every rate at the nearest multiple of a step: `"1%"` of the middle of all
    rates, or a rate such as `"5Gb/s"`.  A NIC that lives stays alive.
    """
    alive = np.concatenate([rates[rates > 0] for rates in (fabric.tx, fabric.rx)])
    if not len(alive):
        return fabric
    middle = int(np.sort(alive)[len(alive) // 2])
    try:
        percent = parse_number(step[:-1], "percentage") / 100 if step.endswith("%") else None
        width = Fraction(parse_rate(step)) if percent is None else percent * middle
    except InputError as error:
        raise InputError(f"{error} (a step: 1% of the middle rate, or a rate: 5Gb/s)") from error
    if not 0 < width <= middle:
        raise InputError(f"a step of {quoted(step)}: expected above 0, and at most the middle rate")
    return replace(fabric, tx=_nearest(fabric.tx, width), rx=_nearest(fabric.rx, width))


def calm_step(fabric: Fabric) -> str:
    """The smallest of 1, 2 and 5 % of the middle rate that makes three of four living NICs alike;
    1 % where none does, since that is no noise.
    """
    for step in CALM_STEPS:
        calm = rounded(fabric, step)
        rates = np.concatenate([calm.tx, calm.rx])
        counts = np.unique(rates[rates > 0], return_counts=True)[1]
        if 4 * counts.max(initial=0) >= 3 * counts.sum():
            return step
    return CALM_STEPS[0]


def _nearest(rates: Ints, width: Fraction) -> Ints:
    """int64 [nodes, rails]: multiples of `width` in whole bytes per second, at least one where the
    rate is not 0.
    """
    values, place = np.unique(rates, return_inverse=True)
    near = [int(max(round(rate / width), 1) * width) if rate else 0 for rate in values.tolist()]
    return np.array(near, np.int64)[place].reshape(rates.shape)
