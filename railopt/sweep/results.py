"""Results: append-only JSON Lines in one folder, one file per writer, flushed after each row.

A row is one line that ends in a checksum and a newline.  A writer that could not finish a line (a
full disk, a kill) leaves a torn one, which it cuts off before it goes on.  Readers see by the
checksum that a line is torn, also where it was glued to another row: they drop and count it, so
that its instance is computed again.  Writers never share a file, so any number of clients can use
one folder.  Of several rows with one key the first good one counts.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import re
import secrets
import threading
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railopt.base.arrays import write_atomic
from railopt.base.errors import InputError, printable
from railopt.base.extras import need
from railopt.base.units import parse_number, quoted
from railopt.model.workloads import parameters

Row = dict[str, Any]
LARGEST = 10**300  # of a number that is shown as a float, as 100 times it can be
# a key as it is written, and a number (or loads of NICs) that is not as it is written
_KEY = re.compile(rb'"key":"([0-9a-f]+)"')
_ODD = re.compile(
    rb'"(?:value|bound|gap|send|recv|completion)":(?!\[\[|"[0-9]{1,300}(?:/[1-9][0-9]{0,300})?")'
)
_SEAL = b',"~crc32":"%08x"}'
_SEAL_LENGTH = len(_SEAL % 0)


def encode(row: Row) -> bytes:
    """A row as one line of JSON whose last field is a checksum of all that stands before it."""
    body = json.dumps(row, sort_keys=True, separators=(",", ":")).encode()
    return body[:-1] + _SEAL % zlib.crc32(body[:-1])


def _sealed(line: bytes) -> bool:
    """Whether the line ends in the checksum of what stands before it."""
    body = line[:-_SEAL_LENGTH]
    return len(body) > 1 and line[-_SEAL_LENGTH:] == _SEAL % zlib.crc32(body)


def decode(line: bytes) -> Row | None:
    """The row of a line, its checksum left out; None where it is torn, changed, or not a row that
    can be listed.
    """
    try:
        row = json.loads(line) if _sealed(line) else {}
        del row["~crc32"]
        sound = isinstance(row["key"], str) and isinstance(row["instance"], dict)
        needed = ("value", "bound", "gap") if row["status"] == "ok" else ("error",)
        sound = sound and all(name in row for name in needed)
        sound = sound and isinstance(row.get("started", 0), int | float)
        _with_floats(flat(row))  # which refuses what is no number
    except (ValueError, RecursionError, KeyError, TypeError, OverflowError, InputError):
        return None
    return row if sound else None


class Writer:
    """Appends rows to a new file of its own in the folder, from any number of threads."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.path = (
            Path(folder) / f"{os.uname().nodename}-{os.getpid()}-{secrets.token_hex(4)}.jsonl"
        )
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644)
        self._lock = threading.Lock()
        self._torn = False

    def append(self, row: Row) -> None:
        """One row, whole: if it does not fit on the disk, the file is as it was before and OSError
        is raised.
        """
        line = encode(row) + b"\n"
        with self._lock:
            length = os.fstat(self._file).st_size
            try:
                # what could not be cut off the last time must not run into this row
                view = memoryview(b"\n" + line if self._torn else line)
                while view:
                    view = view[os.write(self._file, view) :]
                self._torn = False
            except OSError as error:
                self._torn = True
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, length)
                    self._torn = False
                raise OSError(error.errno, error.strerror, str(self.path)) from error


@dataclass(frozen=True)
class Results:
    """All rows of a folder or of files: good ones by key, failures that no good row followed, and
    torn lines dropped; `older` rows were left out by a reader for newer ones.
    """

    rows: tuple[Row, ...]
    failed: tuple[Row, ...]
    torn: int
    files: int
    older: int = 0


def _files(place: Path) -> list[Path]:
    if place.is_dir():
        found = sorted(path for path in place.iterdir() if path.match("*.jsonl"))
        return [path for path in found if path.is_file()]
    if place.is_file():
        return [place]
    raise InputError(f"{place}: no such file or folder; expected a results folder or a .jsonl file")


def read(*places: str | os.PathLike[str]) -> Results:
    """Read results from folders and files, in any order."""
    good: dict[str, Row] = {}
    bad: dict[str, Row] = {}
    torn = files = 0
    for path in (path for place in places for path in _files(Path(place))):
        files += 1
        lines = [line for line in path.read_bytes().split(b"\n") if line]
        rows = [row for row in map(decode, lines) if row is not None]
        if not rows and path.suffix.lower() != ".jsonl":
            raise InputError(
                f"{printable(path)}: no results in it; expected a folder or a .jsonl file of "
                f"railopt sweep"
            )
        torn += len(lines) - len(rows)
        for row in rows:
            if row["status"] == "ok":
                good.setdefault(row["key"], row)
            elif row.get("started", 0) >= bad.get(row["key"], row).get("started", 0):
                bad[row["key"]] = row
    return Results(
        tuple(good.values()), tuple(row for key, row in bad.items() if key not in good), torn, files
    )


def good_keys(folder: str | os.PathLike[str]) -> set[str]:
    """Keys of finished rows, which a resumed sweep skips: those that `load` would list, but what
    this package writes is only held against its checksum.
    """
    found = set()
    for path in _files(Path(folder)) if Path(folder).exists() else []:
        for line in path.read_bytes().split(b"\n"):
            if b'"status":"ok"' not in line:
                continue
            if (key := _KEY.search(line)) and not _ODD.search(line) and _sealed(line):
                found.add(key[1].decode())
            elif (row := decode(line)) and row["status"] == "ok":
                found.add(row["key"])
    return found


# ---------------------------------------------------------------- looking at them
def flat(row: Row) -> dict[str, Any]:
    """A row as one level of columns: instance, parameters of its workload and simulated values
    beside the rest, lists and provenance left out.
    """
    out: dict[str, Any] = {**row["instance"], **given(row)}
    for name in (
        "sweep",
        "key",
        "status",
        "chunks",
        "bytes",
        "value",
        "bound",
        "gap",
        "optimum",
        "optimal",
        "send",
        "recv",
        "worst_side",
        "solve_s",
        "error",
        "commit",
        "seconds",
    ):
        if name in row:
            out[name] = row[name]
    for name in ("completion", "algbw", "busbw"):
        if name in row.get("simulated", {}):
            out[f"simulated_{name}"] = row["simulated"][name]
    return out


def given(row: Row) -> dict[str, Any]:
    """The parameters that a row's workload was given: `moe:skew=0.8` has the column skew."""
    instance = row["instance"]
    if instance.get("content"):
        return {}
    found = parameters(str(instance.get("traffic", "")))
    return {name: value for name, value in found.items() if name not in instance}


def where(rows: Iterable[Row], conditions: Mapping[str, str]) -> list[Row]:
    """Rows whose column (see `flat`) has this value as text; a row without the column is not one,
    and a column that no row has is refused.
    """
    found = [(row, flat(row)) for row in rows]
    known = dict.fromkeys(name for _, columns in found for name in columns)
    unknown = [name for name in conditions if name not in known and name != "error"]
    if unknown and found:
        raise InputError(f"no column {unknown[0]!r}; columns: {', '.join(known)}")
    return [
        row
        for row, columns in found
        if all(name in columns and str(columns[name]) == conditions[name] for name in conditions)
    ]


def export(rows: Iterable[Row], path: str | os.PathLike[str], *, force: bool = False) -> None:
    """Write `.jsonl` (rows as they are), `.csv` or `.parquet` (flat columns; exact rationals as
    text, beside floats of them).
    """
    chosen = list(rows)
    suffix = Path(path).suffix.lower()
    if suffix == ".jsonl":
        write_atomic(
            path,
            "".join(encode(row).decode() + "\n" for row in chosen),
            force=force,
        )
        return
    table = [_with_floats(flat(row)) for row in chosen]
    columns = list(dict.fromkeys(name for row in table for name in row))
    if suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(table)
        write_atomic(path, text.getvalue().encode(errors="backslashreplace"), force=force)
    elif suffix == ".parquet":
        write_atomic(path, _parquet(table, columns), force=force)
    else:
        raise InputError(f"{path}: results are written as .jsonl, .csv or .parquet")


def _with_floats(row: dict[str, Any]) -> dict[str, Any]:
    exact = {
        name: row[name]
        for name in ("value", "bound", "gap", "send", "recv", "simulated_completion")
        if name in row
    }
    return {**row, **{f"{name}_float": _float(value) for name, value in exact.items()}}


def _float(value: Any) -> float:
    """The float of an exact number; OverflowError where it, or it in percent, is beyond a float."""
    number = parse_number(value)
    if abs(number) > LARGEST:
        raise OverflowError
    return float(number)


def _parquet(table: list[dict[str, Any]], columns: list[str]) -> bytes:
    need("pyarrow", "Parquet", ", or export .csv")
    import pyarrow
    import pyarrow.parquet

    made = {}
    for name in columns:
        values = [row.get(name) for row in table]
        try:
            if any(isinstance(value, dict | list) for value in values):
                raise TypeError("a list or an object")
            made[name] = pyarrow.array(values)
        except (pyarrow.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise InputError(
                f"column {quoted(name)} does not fit Parquet, where a column has values of one "
                f"type ({printable(error)}): export .csv"
            ) from error
    sink = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(made), sink)
    return bytes(sink.getvalue())
