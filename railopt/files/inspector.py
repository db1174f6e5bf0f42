"""What NCCL Inspector writes: JSON lines, one per operation of a communicator's rank.

A line has `header` (communicator, rank in it, number of ranks), `metadata` (host, process, when it
was written) and one of three parts.  These are `p2p_perf` (a Send or Recv: sequence number, peer,
bytes), `coll_perf` (a collective) and `dump_stats` (how many operations were dropped).  Source: the
README of NCCL's plugin `ext-profiler/inspector`, formats v4.0 to v4.2; RCCL's has the same.
"""

from __future__ import annotations

import gzip
import json
import os
import re
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from railopt.base.arrays import Ints
from railopt.base.errors import FormatError, InputError, printable
from railopt.base.units import INT64_MAX, quoted

SUFFIXES = (".log", ".jsonl", ".json", ".log.gz", ".jsonl.gz", ".json.gz")
KINDS = {"Send": 0, "Recv": 1}
MAX_LINE = 1 << 20  # bytes
MAX_RANKS = 1 << 20
MAX_OPERATIONS = 1 << 23  # that are kept, of 48 bytes each
_PARTS = ("p2p_perf", "coll_perf", "dump_stats")


def _object(**fields: str) -> str:
    """A pattern of a JSON object with these keys in this order, each with the pattern of its
    value.
    """
    return r"\{" + ", ?".join(f'"{name}": ?{value}' for name, value in fields.items()) + r"\}"


_TEXT, _DIGITS = r'"[ !#-\[\]-~]*+"', "(?:0|[1-9][0-9]{0,17}+)"
_REAL, _COUNT = _DIGITS + r"(?:\.[0-9]++)?", f"({_DIGITS})"
_HEADER = _object(id=_TEXT, comm_name=_TEXT, rank=_DIGITS, n_ranks=_DIGITS, nnodes=_DIGITS)
_METADATA = _object(
    inspector_output_format_version=_TEXT,
    git_rev=_TEXT,
    rec_mechanism=_TEXT,
    dump_timestamp_us=_COUNT,
    hostname=f"({_TEXT}",
    pid=f"{_DIGITS})",
)


def _trace(unit: str, start: str) -> str:
    """A pattern of the events of an operation, which verbose lines have: their numbers (`sn`) or
    times (`ts`).
    """
    events = (f"kernel_{event}_{unit}" for event in ("start", "stop", "record"))
    kernel = _object(channel_id=_DIGITS, **dict.fromkeys(events, _DIGITS))
    kernels = rf"\[(?:{kernel}(?:, ?{kernel})*+)?\]"
    names = {f"p2p_start_{unit}": start, f"p2p_stop_{unit}": _DIGITS}
    return f'"event_trace_{unit}": ?' + _object(**names, kernel_events=kernels)


_VERBOSE = f"(?:, ?{_trace('sn', _DIGITS)}, ?{_trace('ts', _COUNT)})?"
_PERFORMANCE = _object(
    p2p='"(Send|Recv)"',
    p2p_sn=_COUNT,
    p2p_peer=_COUNT,
    p2p_msg_size_bytes=_COUNT,
    p2p_exec_time_us=_DIGITS,
    p2p_timing_source=_TEXT,
    p2p_algobw_gbs=_REAL,
    p2p_busbw_gbs=_REAL + _VERBOSE,
)
_LINE = _object(header=f"({_HEADER})", metadata=_METADATA, p2p_perf=_PERFORMANCE)
USUAL = re.compile((_LINE + r"\s*").encode())
"""A Send or Recv as the plugin writes it, valid JSON; any other line takes longer to read."""


class Chosen(NamedTuple):
    """Which operations count; None: no limit.

    communicator  its id or its name
    numbers       first and last sequence number
    since, until  microseconds from the first line of all files on; `until` itself is out
    """

    communicator: str | None = None
    numbers: tuple[int, int] | None = None
    since: int | None = None
    until: int | None = None


class Communicator(NamedTuple):
    """One communicator; `process` has, by rank, the number of the process that wrote its lines."""

    id: str
    name: str
    ranks: int
    process: dict[int, int]


class Operations(NamedTuple):
    """Every Send and Recv that counts, one row each.

    communicator, rank, kind, peer, number, size  int64: position in `communicators`, rank and peer
                in it, position in KINDS, sequence number, bytes
    hosts       of each process
    collectives, dropped, foreign  collectives, operations that Inspector dropped for lack
                of room, and lines that are no operation
    doubled     operations that were there twice with the same contents; counted once
    """

    communicator: Ints
    rank: Ints
    kind: Ints
    peer: Ints
    number: Ints
    size: Ints
    communicators: list[Communicator]
    hosts: list[str]
    collectives: int
    dropped: int
    foreign: int
    doubled: int


def read_operations(folder: str | os.PathLike[str], chosen: Chosen | None = None) -> Operations:
    """The operations of all plain files below a folder: `.log`, `.jsonl` or `.json`, also
    compressed with gzip.
    """
    chosen = chosen or Chosen()
    try:
        named = [path for path in Path(folder).rglob("*") if path.name.endswith(SUFFIXES)]
        paths = sorted(path for path in named if path.is_file())
    except OSError as error:
        raise InputError(f"{printable(folder)}: {error.strerror or error}") from error
    reader = _Reader(chosen, 0)
    if chosen.since is not None or chosen.until is not None:
        starts = [start for path in paths if (start := _first_time(path)) is not None]
        reader.start = min(starts, default=0)
    for path in paths:
        with _opened(path) as file:
            for line_number, line in enumerate(_lines(file), 1):
                try:
                    reader.add(line)
                except FormatError as error:
                    raise FormatError(
                        f"{printable(path.name)}, line {line_number}: {error}"
                    ) from error
    if not reader.communicators:
        raise FormatError(
            f"{printable(folder)}: no line of NCCL Inspector in {len(paths)} files that end in "
            f"{', '.join(SUFFIXES[:3])}, also with .gz"
        )
    return reader.operations()


class _Reader:
    """Collects operations line by line."""

    def __init__(self, chosen: Chosen, start: int) -> None:
        self.chosen, self.start = chosen, start
        self.limited = chosen != Chosen()
        self.rows = array("q")  # six numbers per operation
        self.communicators: dict[str, int] = {}
        self.known: list[Communicator] = []
        self.processes: dict[tuple[str, int], int] = {}
        self.drops: dict[tuple[int, int], int] = {}
        self.collectives = self.foreign = 0
        self.senders: dict[tuple[bytes, bytes], tuple[int, int]] = {}

    def add(self, line: bytes) -> None:
        """One line; what is no operation is counted."""
        usual = USUAL.fullmatch(line)
        if usual is None:
            self._add(line)
            return
        header, written, process, kind, *numbers, began = usual.groups()
        whose = self.senders.get((header, process))
        if whose is None:
            record = json.loads(line)
            whose = self._whose(record["header"], record["metadata"])
            self.senders[header, process] = whose
        self._keep(whose, kind == b"Recv", [*map(int, numbers)], int(began or written))

    def _add(self, line: bytes) -> None:
        """The same of any line."""
        try:
            record = json.loads(line)
            header, metadata = record["header"], record["metadata"]
            part = next(part for part in _PARTS if part in record)
            found = record[part]
        except (ValueError, TypeError, KeyError, StopIteration, RecursionError):
            self.foreign += bool(line.strip())
            return
        if not isinstance(header, dict) or not isinstance(metadata, dict):
            raise FormatError("header and metadata are no objects")
        if not isinstance(found, dict):
            raise FormatError(f"{part} is no object")
        communicator, rank = self._whose(header, metadata)
        if part == "dump_stats":
            self.drops[communicator, rank] = max(
                self.drops.get((communicator, rank), 0), _number(found, "p2p_dropped_total")
            )
        elif part == "coll_perf":
            self.collectives += 1
        else:
            kind = KINDS.get(str(found.get("p2p")))
            if kind is None:
                raise FormatError(f"p2p = {quoted(found.get('p2p'))}: expected Send or Recv")
            names = ("p2p_sn", "p2p_peer", "p2p_msg_size_bytes")
            numbers = [_number(found, name) for name in names]
            if "p2p_exec_time_us" in found:
                _number(found, "p2p_exec_time_us")
            self._keep((communicator, rank), kind, numbers, _time(found, metadata))

    def _whose(self, header: dict[str, Any], metadata: dict[str, Any]) -> tuple[int, int]:
        """(communicator, rank in it) of a line, both known from here on."""
        name, ranks = str(header.get("id")), _number(header, "n_ranks", 1, MAX_RANKS)
        position = self.communicators.setdefault(name, len(self.known))
        if position == len(self.known):
            self.known.append(Communicator(name, str(header.get("comm_name", "")), ranks, {}))
        one = self.known[position]
        if one.ranks != ranks:
            raise FormatError(f"communicator {quoted(name)} of {ranks} ranks, before {one.ranks}")
        rank = _number(header, "rank", 0, ranks - 1)
        key = str(metadata.get("hostname")), _number(metadata, "pid")
        process = self.processes.setdefault(key, len(self.processes))
        if one.process.setdefault(rank, process) != process:
            raise FormatError(
                f"rank {rank} of communicator {quoted(name)} is another process than before: two "
                f"jobs in one folder?"
            )
        return position, rank

    def _keep(self, whose: tuple[int, int], kind: int, numbers: list[int], time: int) -> None:
        """An operation, of sequence number, peer and bytes, if it is among those chosen."""
        number, peer, size = numbers
        one = self.known[whose[0]]
        if peer >= one.ranks:
            raise FormatError(f"p2p_peer = {peer}: expected a rank below {one.ranks}")
        if self.limited and not self._is_chosen(one, number, time - self.start):
            return
        if len(self.rows) == 6 * MAX_OPERATIONS:
            raise FormatError(
                f"more than {MAX_OPERATIONS} operations: choose some by from=, to= or sn="
            )
        self.rows.extend((*whose, kind, peer, number, size))

    def _is_chosen(self, one: Communicator, number: int, passed: int) -> bool:
        chosen = self.chosen
        return (
            (chosen.communicator is None or chosen.communicator in (one.id, one.name))
            and (chosen.numbers is None or chosen.numbers[0] <= number <= chosen.numbers[1])
            and (chosen.since is None or passed >= chosen.since)
            and (chosen.until is None or passed < chosen.until)
        )

    def operations(self) -> Operations:
        """Every operation once, ordered by communicator, rank, kind, peer and number."""
        columns = list(np.frombuffer(self.rows, np.int64).reshape(-1, 6).T)
        order = np.lexsort(columns[4::-1])
        columns = [column[order] for column in columns]
        again = np.all([column[1:] == column[:-1] for column in columns[:5]], axis=0)
        other = np.flatnonzero(again & (columns[5][1:] != columns[5][:-1]))
        if len(other):
            place = int(other[0])
            whose, of, what, towards, which, first = (int(column[place]) for column in columns)
            raise FormatError(
                f"communicator {quoted(self.known[whose].id)}, rank {of}: {list(KINDS)[what]} "
                f"{which} with peer {towards} has {first} and {columns[5][place + 1]} bytes"
            )
        kept = np.concatenate([[True], ~again]) if len(order) else np.ones(0, bool)
        communicator, rank, kind, peer, number, size = (column[kept] for column in columns)
        return Operations(
            communicator,
            rank,
            kind,
            peer,
            number,
            size,
            self.known,
            [host for host, _ in self.processes],
            self.collectives,
            sum(self.drops.values()),
            self.foreign,
            int(again.sum()),
        )


def _number(found: dict[str, Any], key: str, low: int = 0, high: int = INT64_MAX) -> int:
    value = found.get(key)
    if type(value) is not int or not low <= value <= high:
        raise FormatError(f"{key} = {quoted(value)}: expected a whole number of {low} to {high}")
    return value


def _time(found: dict[str, Any], metadata: dict[str, Any]) -> int:
    """When an operation began, where Inspector was verbose, else when its line was written; in
    microseconds.
    """
    trace = found.get("event_trace_ts")
    if isinstance(trace, dict) and "p2p_start_ts" in trace:
        return _number(trace, "p2p_start_ts")
    return _number(metadata, "dump_timestamp_us")


def _first_time(path: Path) -> int | None:
    """The time of a file's first Send or Recv."""
    with _opened(path) as file:
        for line in _lines(file):
            try:
                record = json.loads(line)
                return _time(record["p2p_perf"], record["metadata"])
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError, FormatError):
                continue
    return None


def _opened(path: Path) -> gzip.GzipFile | IO[bytes]:
    try:
        return gzip.open(path) if path.suffix == ".gz" else path.open("rb")
    except OSError as error:
        raise InputError(f"{printable(path)}: {error.strerror or error}") from error


def _lines(file: gzip.GzipFile | IO[bytes]) -> Iterator[bytes]:
    """Lines of at most MAX_LINE bytes; a longer one counts as several, none of which is JSON."""
    try:
        while line := file.readline(MAX_LINE):
            yield line
    except (OSError, EOFError) as error:  # gzip's, too
        raise InputError(f"{printable(getattr(file, 'name', ''))}: {printable(error)}") from error
