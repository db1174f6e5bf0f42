"""Traffic as tables that other programs make: CSV text, DataFrames, tensors -> plain arrays.

square      one row per source, one column per destination, `[source GPU, destination GPU]`, in
            bytes; a row of labels above and a column of labels before it may be there or not
long form   columns `src`, `dst`, `bytes` in any order, named in the first row, or in a comment
            above it as numpy.savetxt writes them; pairs that are not listed send nothing, pairs
            that are listed twice are added up

Lines that begin with # are comments.  Labels that are numbers have to count from 0; labels of both
sides have to be the same, so that a table that was sorted by name is noticed.
"""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from railopt.base.arrays import Array, Ints, check_range, check_total, frozen
from railopt.base.errors import FormatError, InputError, about, printable
from railopt.base.units import INT64_MAX, parse_integer, parse_number, quoted
from railopt.files.formats import MAX_LINE, MAX_RANKS, check_ranks

LONG = ("src", "dst", "bytes")
MAX_ROWS = 1 << 23  # of a CSV in long form
MAX_HEAD = 200  # characters of a comment that may name the columns
EXACT = 1 << 53  # below it every whole number has a float of its own

_NUMBERS = re.compile(r"[0-9]{1,18}(?:,[0-9]{1,18})*+")  # that fit int64
_TRIPLES = re.compile(r"(?:[0-9]{1,18},[0-9]{1,18},[0-9]{1,18}\n)*+")


def parse_csv(text: str, ranks: int) -> Ints:
    """Text of a CSV, square or in long form -> int64 [ranks, ranks] if it is in long form, else
    of its own size.
    """
    if text.count("\n") + text.count("\r") > 2 * MAX_ROWS:
        raise FormatError(f"more than {MAX_ROWS} rows; add up the rows of a pair first")
    lines = [line for line in text.removeprefix("\ufeff").splitlines() if line.strip(" ,\t")]
    rows = [line for line in lines if not line.lstrip().startswith("#")]
    head = _cells(rows[0], "row 0") if rows else []
    columns = [cell.lower() for cell in head]
    if sorted(columns) == sorted(LONG):
        return _long(rows[1:], columns, ranks)
    if set(LONG) <= set(columns):
        raise FormatError(
            f"{len(head)} columns, src,dst,bytes among them: long form has these three "
            f"alone; leave out an index and other columns"
        )
    if (named := _named_above(lines)) is not None:
        return _long(rows, named, ranks)
    if not rows:
        raise FormatError("no rows; expected a square matrix, or src,dst,bytes")
    if len(rows) > MAX_RANKS + 1:
        raise FormatError(f"{len(rows)} rows, at most {MAX_RANKS} and one of labels")
    return _square(rows, head)


def _named_above(lines: list[str]) -> list[str] | None:
    """The columns of long form as the last comment above the rows names them, if one does."""
    found = None
    for line in itertools.takewhile(lambda line: line.lstrip().startswith("#"), lines):
        if len(line) <= MAX_HEAD:
            columns = [cell.lower() for cell in _cells(line.lstrip("# \t"), line)]
            found = columns if sorted(columns) == sorted(LONG) else found
    return found


def _cells(line: str, where: str) -> list[str]:
    if len(line) > MAX_LINE:
        raise FormatError(f"{where}: {len(line)} characters, at most {MAX_LINE}")
    try:
        return [cell.strip() for cell in next(csv.reader([line], skipinitialspace=True))]
    except (csv.Error, StopIteration) as error:
        raise FormatError(f"{where}: not a line of CSV ({printable(error, 80)})") from error


def _square(lines: list[str], head: list[str]) -> Ints:
    """The matrix, and its labels checked and taken off."""
    odd = [cell for cell in head if not _is_number(cell)]
    above = head if odd and not (_labelled(head) and _starts_labelled(lines[1:2])) else None
    try:
        return _unlabelled(lines, above)
    except FormatError as error:
        if above is None or len(odd) == len(head):
            raise
        raise FormatError(
            f"{error}; row 0 was taken for labels, since {quoted(odd[-1])} in it is no number"
        ) from error


def _labelled(cells: list[str]) -> bool:
    """Whether these are a label and numbers: a row, or labels that are numbers and a corner."""
    return len(cells) > 1 and _is_label(cells[0]) and all(map(_is_number, cells[1:]))


def _starts_labelled(lines: list[str]) -> bool:
    return any(_is_label(_cells(line[:MAX_LINE], "row 1")[0]) for line in lines)


def _unlabelled(lines: list[str], above: list[str] | None) -> Ints:
    """The matrix below the labels `above` it, and after those before it."""
    rows: list[Ints] = []
    before: list[str | None] = []
    for number, line in enumerate(lines[above is not None :], int(above is not None)):
        label, row = _row(line, f"row {number}")
        if rows and len(row) != len(rows[0]):
            raise FormatError(f"row {number}: {len(row)} numbers, the first row has {len(rows[0])}")
        rows.append(row)
        before.append(label)
    if not rows:
        raise FormatError("labels and no numbers; expected a square matrix of bytes")
    matrix: Ints = np.stack(rows)
    if matrix.shape[0] == matrix.shape[1] + 1 and above is None:
        above, matrix = [str(n) for n in matrix[0].tolist()], matrix[1:]
        del before[0]
    for number, label in enumerate(before):
        if (label is None) != (before[0] is None):
            raise FormatError(
                f"of its rows of numbers, row {number} has "
                f"{'no label' if label is None else f'a label, {quoted(label)}'}, unlike the "
                f"first: expected a label before each row, or before none"
            )
    left = None if before[0] is None else [str(label) for label in before]
    if matrix.shape[1] == matrix.shape[0] + 1 and left is None:
        left, matrix = [str(n) for n in matrix[:, 0].tolist()], matrix[:, 1:]
    if matrix.shape[0] != matrix.shape[1]:
        raise FormatError(
            f"{matrix.shape[0]} x {matrix.shape[1]} numbers: expected a square matrix "
            f"[source, destination] with commas between its cells, or columns src,dst,bytes"
        )
    if above is not None and len(above) - len(matrix) not in (0, 1):
        raise FormatError(f"{len(above)} labels above {len(matrix)} columns")
    check_labels(above and above[-len(matrix) :], left)
    return np.ascontiguousarray(matrix)


def _row(line: str, where: str) -> tuple[str | None, Ints]:
    """The label of a row, if its first cell is no number, and its numbers."""
    if len(line) <= MAX_LINE:
        if _NUMBERS.fullmatch(line):
            return None, np.fromstring(line, np.int64, sep=",")
        label, _, rest = line.partition(",")
        if _NUMBERS.fullmatch(rest) and not _is_number(label.strip()):
            return label.strip(' "'), np.fromstring(rest, np.int64, sep=",")
    entries = _cells(line, where)
    named = not _is_number(entries[0])
    numbers = [_bytes(cell, f"{where} column {j}") for j, cell in enumerate(entries[named:])]
    return entries[0] if named else None, np.array(numbers, np.int64)


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9.][0-9.eE+-]*|[+-]?(?:nan|inf)", cell, re.I | re.A) is not None


def _is_label(cell: str) -> bool:
    return bool(cell) and not _is_number(cell)


def _bytes(cell: str, where: str) -> int:
    """A cell as a whole number of bytes; `1024.0` and `1e6` are whole."""
    if not cell:
        raise FormatError(f"{where}: an empty cell: write 0 where nothing is sent")
    try:
        value = parse_number(cell, "number of bytes")
    except InputError as error:
        raise FormatError(f"{where}: {error}; cells stand between commas") from None
    if value.denominator != 1 or not 0 <= value <= INT64_MAX:
        raise FormatError(
            f"{where}: {quoted(cell)} is "
            + ("negative; bytes are 0 or more" if value < 0 else "not a whole number below 2**63")
        )
    return int(value)


def check_labels(above: Sequence[str] | None, left: Sequence[str] | None) -> None:
    """Refuse numeric labels other than 0, 1, 2, ... and labels that differ between the sides."""
    for labels, side in ((above, "columns"), (left, "rows")):
        if labels and all(re.fullmatch(r"[0-9]{1,18}", label, re.ASCII) for label in labels):
            odd = [i for i, label in enumerate(labels) if int(label) != i]
            if odd:
                raise FormatError(
                    f"{side} are labelled {printable(labels[odd[0]], 40)!r} where "
                    f"{odd[0]} was expected: GPUs count from 0, in order"
                )
    if above and left:
        pairs = zip(above, left, strict=True)
        for column, row in pairs:
            if column != row:
                raise FormatError(
                    f"column {printable(column, 40)!r} where row {printable(row, 40)!r} "
                    f"is: rows and columns must name the same GPUs in the same order"
                )


def _long(lines: list[str], columns: list[str], ranks: int) -> Ints:
    body = "\n".join(lines) + "\n" if lines else ""
    if _TRIPLES.fullmatch(body):
        table = np.fromstring(body.replace("\n", ","), np.int64, sep=",").reshape(-1, 3)
    else:
        cells = (cell for i, line in enumerate(lines, 1) for cell in _triple(line, f"row {i}"))
        table = np.fromiter(cells, np.int64).reshape(-1, 3)
    src, dst, size = (table[:, columns.index(column)] for column in LONG)
    return scatter(src, dst, size, ranks)


def _triple(line: str, where: str) -> list[int]:
    entries = _cells(line, where)
    if len(entries) != len(LONG):
        raise FormatError(f"{where}: {len(entries)} cells, expected {len(LONG)}")
    return [_bytes(cell, f"{where} column {j}") for j, cell in enumerate(entries)]


def scatter(src: Ints, dst: Ints, size: Ints, ranks: int) -> Ints:
    """Long form, one entry per pair -> int64 [ranks, ranks]; the same pair twice is added up."""
    parse_integer(ranks, "number of GPUs", low=1, high=MAX_RANKS)
    for side, column in (("src", src), ("dst", dst)):
        check_range(column, side, ranks)
    if len(size) and size.min() < 0:
        raise InputError(f"{int(size.min())} bytes: bytes can't be negative")
    check_total(size)
    matrix = np.zeros((ranks, ranks), np.int64)
    np.add.at(matrix, (src, dst), size)
    return matrix


def plain(given: Any, ranks: int) -> Array:
    """As a numpy array; takes DataFrames (square or in long form, labels checked) and tensors, also
    on a device, with a gradient or with a negative bit.  Neither pandas nor torch is imported.
    """
    if hasattr(given, "columns") and hasattr(given, "to_numpy"):
        return _from_frame(given, ranks)
    if np.ma.is_masked(given):
        raise InputError(
            "traffic is an array with masked entries: expected a number of bytes in each; fill "
            "them first, for instance with matrix.filled(0)"
        )
    try:
        if hasattr(given, "detach") and hasattr(given, "cpu"):
            given = given.detach().cpu()
            given = given.resolve_conj().resolve_neg() if hasattr(given, "resolve_neg") else given
        return np.asarray(given)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        # ragged, of a type that numpy lacks, or a tensor that has no numbers
        raise InputError(
            f"traffic is not a 2-dimensional array of integers ({printable(error, 100)})"
        ) from error


def _from_frame(frame: Any, ranks: int) -> Array:
    columns = [str(column) for column in frame.columns]
    lower = [column.lower() for column in columns]
    if sorted(lower) == sorted(LONG):
        named = {low: frame[column] for low, column in zip(lower, frame.columns, strict=True)}
        src, dst, size = (
            frozen(as_integers(named[column].to_numpy(), column), np.int64, column, 1)
            for column in LONG
        )
        return scatter(src, dst, size, ranks)
    index = getattr(frame, "index", None)
    left = None if index is None else [str(label) for label in index]
    if left is not None and len(left) == len(columns):
        with about("traffic: "):
            check_labels(columns, left)
    return np.asarray(frame.to_numpy())


def as_integers(array: Array, name: str) -> Array:
    """Floats that are whole numbers as int64; other floats are refused, other types kept."""
    if array.dtype.kind != "f":
        return array
    floats = array.astype(np.float64)
    fine = np.isfinite(floats) & (floats == np.floor(floats)) & (np.abs(floats) < EXACT)
    if not fine.all():
        raise InputError(
            f"{name} holds {floats[~fine].flat[0]}: expected integers (whole numbers below 2**53 "
            f"where they are floats)"
        )
    return floats.astype(np.int64)


def format_csv(matrix: Ints) -> str:
    """int64 [ranks, ranks] -> a square CSV without labels."""
    check_ranks(matrix)
    return "\n".join(",".join(map(str, row)) for row in matrix.tolist()) + "\n"
