"""Foreign formats as text <-> plain arrays; nothing here knows railopt's value types.

nccl-tests matrix   whitespace-separated square matrix of bytes, `[i][j]` from rank i to rank j
                    (what NCCL_TESTS_ALLTOALLV_MATRIX_FILE reads)
htsim `.cm`         `Nodes n` / `Connections c` / optional `Triggers t`, then the connections
htsim `.topo`       two tiers, one leaf per rail

A rail fabric in htsim: one htsim node is one NIC, id = rail * M + node, so same-rail flows stay on
their leaf.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Ints, check_total
from railopt.base.errors import FormatError, InputError
from railopt.base.units import parse_integer, quoted

INT32_MAX = 2**31 - 1
MAX_RANKS = 1 << 12  # GPUs of a matrix that is text
MAX_LINE, MAX_LINES = 24 * MAX_RANKS, 4 * MAX_RANKS
MAX_ODD = 1 << 18  # entries that are not plain: signs, or beyond 9 * 10^18
MAX_CONNECTIONS = 1 << 20  # of a `.cm`
MAX_NICS = 1 << 13  # of a `.cm` that is read as a matrix, which takes 512 MiB then

_NOT_PLAIN = re.compile(r"[^0-9 \t]|[0-9]{19}")  # else numbers that fit int64


def parse_matrix(text: str) -> Ints:
    """Text of an nccl-tests alltoallv matrix -> int64 [ranks, ranks]."""
    rows: list[Ints] = []
    odd = 0
    if text.count("\n") + text.count("\r") > MAX_LINES:
        raise FormatError(f"more than {MAX_LINES} lines, not a matrix of bytes")
    for found in re.finditer(r"[^\r\n]+", text):
        where = f"row {len(rows)}"
        if len(found[0]) > MAX_LINE:
            raise FormatError(f"{where}: {len(found[0])} characters, at most {MAX_LINE}")
        plain = not found[0].isspace() and _NOT_PLAIN.search(found[0]) is None
        row = np.fromstring(found[0], np.int64, sep=" ") if plain else _row(found[0], where)
        if len(row) == 0:
            continue
        odd += 0 if plain else len(row)
        if len(row) > MAX_RANKS or odd > MAX_ODD:
            raise FormatError(
                f"{where}: more than {MAX_RANKS} columns, or than {MAX_ODD} entries in all with "
                f"signs or of more than 18 digits"
            )
        width = len(rows[0]) if rows else len(row)
        if len(row) != width or len(rows) == width:
            raise FormatError(
                f"{where}: {len(row)} columns, expected "
                f"{width if len(row) != width else 'no more rows'} (the matrix must be square)"
            )
        rows.append(row)
    if not rows:
        raise FormatError("no rows; expected a square matrix of bytes")
    if len(rows) != len(rows[0]):
        raise FormatError(f"{len(rows)} rows of {len(rows[0])} columns (the matrix must be square)")
    return np.stack(rows)


def _row(line: str, where: str) -> Ints:
    """The entries of a line, one by one; none if it is blank or a comment."""
    entries = [] if line.lstrip().startswith("#") else line.split()
    return np.array(
        [_entry(entry, f"{where} column {j}") for j, entry in enumerate(entries)], np.int64
    )


def _entry(text: str, where: str) -> int:
    if not re.fullmatch(r"[+-]?\d+", text, re.ASCII):
        commas = "; a file with commas needs a name that ends in .csv" if "," in text else ""
        raise FormatError(f"{where}: {quoted(text)} is not a whole number of bytes{commas}")
    if text.startswith("-"):
        raise FormatError(f"{where}: {quoted(text)} is negative; bytes are 0 or more")
    try:
        return parse_integer(text, "number of bytes", low=0)
    except InputError:
        raise FormatError(f"{where}: {quoted(text)} is beyond int64") from None


def check_ranks(matrix: Ints) -> None:
    """Refuse to write a matrix of more GPUs than `parse_matrix` reads."""
    if len(matrix) > MAX_RANKS:
        raise InputError(
            f"a matrix of {len(matrix)} GPUs: text and .npy have at most {MAX_RANKS}, railopt's "
            f".npz more"
        )


def format_matrix(matrix: Ints) -> str:
    """int64 [ranks, ranks] -> nccl-tests text."""
    check_ranks(matrix)
    return "\n".join(" ".join(map(str, row)) for row in matrix.tolist()) + "\n"


def format_stages(
    nodes: int, src: Array, dst: Array, size: Ints, stage: Array | None = None
) -> str:
    """Text of a `.cm` of these columns: what is in a stage (from 0 on) waits for all of the one
    before; without stages all starts at once.  Flows over int32 are split.
    """
    pieces = -(-size // INT32_MAX)
    if int(pieces.sum()) > MAX_CONNECTIONS:
        raise InputError(
            f"a .cm of more than {MAX_CONNECTIONS} connections of at most 2 GiB: use larger chunks "
            f"or less traffic, or keep railopt's .npz"
        )
    flow = np.repeat(np.arange(len(size)), pieces)
    before = (np.arange(len(flow)) - (np.cumsum(pieces) - pieces)[flow]) * INT32_MAX
    turn = (np.zeros(len(size), np.int64) if stage is None else stage)[flow]
    columns = (src[flow], dst[flow], np.minimum(size[flow] - before, INT32_MAX), turn)
    last = int(turn.max(initial=0))
    lines = [f"Nodes {nodes}", f"Connections {len(flow)}", *([f"Triggers {last}"] if last else [])]
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for number, (source, target, size_, now) in enumerate(rows, 1):
        start = f"trigger {now}" if now else "start 0"
        done = f" send_done_trigger {now + 1}" if now < last else ""
        lines.append(f"{source}->{target} id {number} {start} size {size_}{done}")
    counts = np.bincount(turn, minlength=last)[:last].tolist()
    lines += [f"trigger id {t} barrier count {count}" for t, count in enumerate(counts, 1)]
    return "\n".join(lines) + "\n"


MAX_CM_LINE = 1000
_N = r"(\d{1,18})"  # fits int64
_CM_HEAD = re.compile(rf"(Nodes|Connections|Triggers)\s+{_N}", re.ASCII)
_CM_LINE = re.compile(
    rf"{_N}->{_N}(?:\s+id\s+\d+)?\s+(?:start|trigger)\s+\d{{1,18}}\s+size\s+{_N}"
    rf"(?:\s+send_done_trigger\s+\d{{1,18}})?(?:\s+\w+\s+\w+)*\s*\Z",
    re.ASCII,
)


class Connection(NamedTuple):
    """One line of a `.cm` file: htsim nodes and bytes."""

    src: int
    dst: int
    size: int


def parse_cm(text: str) -> tuple[int, Iterator[Connection]]:
    """Text of a `.cm` -> (htsim nodes, connections one by one: a million need not be held)."""
    if text.count("\n") + text.count("\r") > 4 * MAX_CONNECTIONS:
        raise FormatError(f"more than {4 * MAX_CONNECTIONS} lines, not a .cm of flows")
    stripped = (found[0].strip() for found in re.finditer(r"[^\r\n]+", text))
    lines = [line for line in stripped if line and not line.startswith("#")]
    head: dict[str, int] = {}
    for line in lines[:3]:
        match = _CM_HEAD.fullmatch(line)
        if match is None:
            break
        if match[1] in head:
            raise FormatError(f"two lines '{match[1]} n' at its head")
        head[match[1]] = int(match[2])
    lines = lines[len(head) :]
    for key in ("Nodes", "Connections"):
        if key not in head:
            raise FormatError(f"no '{key} n' line at its head; not an htsim connection matrix")
    flows, triggers = lines[: head["Connections"]], lines[head["Connections"] :]
    if len(flows) != head["Connections"] or len(triggers) != head.get("Triggers", 0):
        raise FormatError(
            f"{len(lines)} lines after the head, expected {head['Connections']} "
            f"connections "
            f"and {head.get('Triggers', 0)} triggers"
        )
    if len(flows) > MAX_CONNECTIONS:
        raise FormatError(f"{len(flows)} connections, at most {MAX_CONNECTIONS} are read")
    return head["Nodes"], (_connection(line, head["Nodes"]) for line in flows)


def _connection(line: str, nodes: int) -> Connection:
    match = _CM_LINE.match(line) if len(line) <= MAX_CM_LINE else None
    if match is None:
        raise FormatError(
            f"{quoted(line)} is not 'src->dst [id k] (start PS | trigger T) size BYTES'"
        )
    src, dst, size = map(int, match.groups())
    if src >= nodes or dst >= nodes:
        raise FormatError(f"{quoted(line)} names a node beyond Nodes {nodes}")
    return Connection(src, dst, size)


def cm_to_matrix(text: str, nodes: int, gpus: int) -> Ints:
    """A `.cm` over NICs (id = rail * nodes + node) as GPU traffic, GPU r of a node owning NIC r ->
    int64 [gpus, gpus].
    """
    nics, connections = parse_cm(text)
    if nics != nodes * gpus:
        raise FormatError(
            f"{nics} htsim nodes, expected {nodes * gpus} = {nodes} nodes x {gpus} GPUs "
            f"(one NIC per GPU)"
        )
    if nics > MAX_NICS:
        raise FormatError(f"{nics} htsim nodes, at most {MAX_NICS} are read as a matrix")
    src, dst, size = np.array([one[:3] for one in connections], np.int64).reshape(-1, 3).T
    check_total(size)
    matrix = np.zeros((nics, nics), np.int64)
    here, there = (end % nodes * gpus + end // nodes for end in (src, dst))
    np.add.at(matrix, (here, there), size)
    return matrix


def matrix_to_cm(matrix: Ints, nodes: int) -> str:
    """GPU traffic sent directly (own NIC to the target's NIC), traffic inside a node left out ->
    `.cm`.
    """
    gpus = len(matrix) // nodes
    node = np.arange(len(matrix)) // gpus
    src, dst = np.nonzero((node[:, None] != node) & (matrix != 0))
    here, there = (gpu % gpus * nodes + gpu // gpus for gpu in (src, dst))
    return format_stages(len(matrix), here, there, matrix[src, dst])


def format_topo(
    nodes: int, rails: int, gbps: int, latency_ns: int, uplinks: int | None = None
) -> str:
    """A rail fabric as an htsim topology: one leaf per rail, `uplinks` (default `nodes`) links up
    from each.
    """

    def tier(number: int, radix: list[str]) -> list[str]:
        return [
            f"Tier {number}",
            f"Downlink_speed_Gbps {gbps}",
            *radix,
            f"Downlink_Latency_ns {latency_ns}",
            "Switch_Latency_ns 0",
        ]

    lines = [
        f"Nodes {nodes * rails}",
        "Tiers 2",
        f"Podsize {nodes * rails}",
        *tier(0, [f"Radix_Down {nodes}", f"Radix_Up {uplinks or nodes}"]),
        *tier(1, [f"Radix_Down {rails}"]),
    ]
    return "\n".join(lines) + "\n"


class Topology(NamedTuple):
    """What a two-tier `.topo` says of a rail fabric; `uplink_gbps` is tier 1's speed."""

    nodes: int
    rails: int
    gbps: int
    latency_ns: int
    uplinks: int
    uplink_gbps: int


_TIER = ("Tier", "Downlink_speed_Gbps", "Radix_Down", "Downlink_Latency_ns", "Switch_Latency_ns")
_TOPO_KEYS = {
    "": ("Nodes", "Tiers", "Podsize"),
    "tier 0 ": (*_TIER, "Radix_Up"),
    "tier 1 ": _TIER,
}


def parse_topo(text: str) -> Topology:
    """Text of a two-tier `.topo`, one leaf per rail."""
    values: dict[str, int] = {}
    tier = ""
    for line in text.splitlines():
        parts = line.split()
        if not parts or parts[0].startswith("#"):
            continue
        if len(parts) != 2 or not re.fullmatch(_N, parts[1], re.ASCII):
            raise FormatError(f"{quoted(line.strip())} is not 'Key number'")
        if parts[0] == "Tier":
            tier = f"tier {int(parts[1])} "
        key = tier + parts[0]
        if parts[0] not in _TOPO_KEYS.get(tier, ()):
            raise FormatError(
                f"{quoted(key)} is no key that is read here: expected tiers 0 and 1, and "
                f"of a tier {', '.join(_TOPO_KEYS['tier 0 '])} (no Radix_Up in tier 1)"
            )
        if key in values:
            raise FormatError(f"two lines {key!r}: expected one")
        values[key] = int(parts[1])
    needed = [
        "Nodes",
        "Tiers",
        *(f"tier 0 {key}" for key in ("Radix_Down", "Radix_Up")),
        *(f"tier 0 Downlink_{key}" for key in ("speed_Gbps", "Latency_ns")),
    ]
    missing = [key for key in needed if key not in values]
    if missing:
        raise FormatError(f"{missing[0]!r} is missing; expected a two-tier htsim topology")
    nics, tiers, nodes, uplinks, gbps, latency_ns = (values[key] for key in needed)
    if tiers != 2 or nodes == 0 or nics % nodes:
        raise FormatError(
            f"{tiers} tiers, {nics} NICs under leaves of {nodes}: not one leaf per rail"
        )
    rails = nics // nodes
    if (down := values.get("tier 1 Radix_Down", rails)) != rails:
        raise FormatError(
            f"tier 1 Radix_Down {down}: expected {rails}, a link to the leaf of each rail"
        )
    for key in ("tier 0 Switch_Latency_ns", "tier 1 Switch_Latency_ns"):
        if values.get(key, 0):
            raise FormatError(
                f"{key} {values[key]}: expected 0; a fabric has the latency of links "
                f"alone, so add it to Downlink_Latency_ns"
            )
    uplink_gbps = values.get("tier 1 Downlink_speed_Gbps", gbps)
    return Topology(nodes, rails, gbps, latency_ns, uplinks, uplink_gbps)
