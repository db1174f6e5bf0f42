"""What every value type shares: read-only integer arrays, digests, and files that are whole or
absent.

A railopt `.npz` is a zip of `.npy` members plus one member `header.json`
`{"railopt": kind, "version": 1, "digest": hex, ...}`.  The digest is blake2b over each array's
name, dtype, shape and bytes, in name order, after the rest of the header in canonical JSON.
Nothing is ever unpickled, and `railopt.base.archive` has the limits that a file has to keep to.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from types import UnionType
from typing import Any, BinaryIO, Self

import numpy as np
import numpy.typing as npt

from railopt.base import archive
from railopt.base.errors import FormatError, InputError, printable, say
from railopt.base.units import quoted

# The array types of railopt, each defined here and nowhere else.
Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Int32s = npt.NDArray[np.int32]
Words = npt.NDArray[np.uint64]
Rails = npt.NDArray[np.int16]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

VERSION = 1
SAVED = {"plan": (".npz", ".cm"), "schedule": (".npz",)}  # the suffixes of their files
MAX_TOTAL = 1 << 62  # bytes: all chunks together stay below it, so that sums of loads never wrap
MUCH = 2e9  # bytes of memory that nothing takes before that was said
MAX_TEXT = 1 << 28  # bytes of a text file that is read


def whole_number(value: Any, name: str, low: int, high: int) -> int:
    """`value` as an int from `low` to `high`; True and False are refused."""
    number = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not number or not low <= value <= high:
        raise InputError(f"{name} = {quoted(value)}: expected a whole number from {low} to {high}")
    return int(value)


def require_type(value: object, kind: type | UnionType, name: str, expected: str) -> None:
    """Refuse a value that is not a `kind`; `expected` says in words what that is."""
    if not isinstance(value, kind):
        raise InputError(f"{name} is of type {type(value).__name__}: expected {expected}")


@dataclass(frozen=True, eq=False)
class Value:
    """A frozen dataclass whose constructor validates: nothing in it changes, so a copy is itself;
    from a pickle it is made by its constructor, so that it is valid and its arrays are read-only.
    """

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[Any, ...]]:
        return type(self), tuple(getattr(self, field.name) for field in fields(self))


@dataclass(frozen=True, eq=False)
class Digested(Value):
    """A value that equals those of its class with the same digest."""

    @cached_property
    def digest(self) -> str:
        """Of all that makes two values equal."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


def frozen(array: npt.ArrayLike, dtype: npt.DTypeLike, name: str, ndim: int) -> Array:
    """`array` as a read-only C-contiguous array of an integer `dtype`; never rounds, never wraps,
    copies if it must.
    """
    try:
        given = np.asarray(array)
    except (ValueError, OverflowError) as error:
        raise InputError(
            f"{name} is not a {ndim}-dimensional array of integers ({error})"
        ) from error
    if given.dtype.kind not in "iu" and given.size:
        raise InputError(f"{name} holds {_not_integer(given)}: expected integers")
    if given.ndim != ndim:
        raise InputError(f"{name} has {given.ndim} dimensions: expected {ndim}")
    flags = given.flags
    if given.dtype == dtype and flags.c_contiguous and never_changes(given):
        return given
    wanted = np.dtype(dtype)
    if given.dtype != wanted and given.size and not np.can_cast(given.dtype, wanted):
        info = np.iinfo(wanted)
        low, high = int(given.min()), int(given.max())
        if low < info.min or high > info.max:
            raise InputError(
                f"{name} holds {low if low < info.min else high}: beyond the range of {wanted}"
            )
    result = np.array(given, dtype=wanted, order="C")
    result.setflags(write=False)
    return result


def check_range(array: Array, name: str, end: int) -> None:
    """Refuse whole numbers other than 0 to `end` - 1."""
    if array.size and (array.min() < 0 or array.max() >= end):
        raise InputError(
            f"{name} goes from {array.min()} to {array.max()}: expected 0 to {end - 1}"
        )


def never_changes(array: Array) -> bool:
    """Whether an array and the array that it is a view of are both read-only."""
    part: Any = array
    while isinstance(part, np.ndarray):
        if part.flags.writeable:
            return False
        part = part.base
    return True


def _not_integer(given: Array) -> str:
    if given.dtype.kind != "f":
        return f"{printable(given.dtype, 40)} values"
    odd = given[given != np.floor(given)]
    return (
        f"{odd.flat[0]}"
        if odd.size
        else "floating-point numbers (convert whole ones with .astype(np.int64))"
    )


def total(array: Array) -> int:
    """Exact sum of a non-negative int64 array, as a Python int: never wraps."""
    if not array.size or int(array.max()) < 2**63 // array.size:
        return int(array.sum())
    low, high = array & np.int64(0xFFFFFFFF), array >> np.int64(32)
    return int(low.sum(dtype=np.uint64)) + (int(high.sum(dtype=np.uint64)) << 32)


def check_total(sizes: Ints) -> None:
    """Refuse sizes (bytes, none negative) whose sum is `MAX_TOTAL` or more."""
    if (found := total(sizes)) >= MAX_TOTAL:
        raise InputError(
            f"{found} bytes in all: expected less than 2**62; count in a larger unit than bytes"
        )


def by_key(keys: Ints) -> Ints:
    """Stable ascending order of non-negative keys; below 2**32 by numpy's radix sort of 16 bits,
    once or twice, which takes a fifth or less than half of the time.
    """
    most = int(keys.max(initial=0))
    if most >= 1 << 32:
        return np.argsort(keys, kind="stable")
    order = np.argsort((keys & 0xFFFF).astype(np.uint16), kind="stable")
    if most >= 1 << 16:
        order = order[np.argsort((keys[order] >> 16).astype(np.uint16), kind="stable")]
    return order


def ranks(group: Ints, groups: int) -> tuple[Ints, Ints]:
    """How many elements of the same group precede each one, and how many elements each of the
    groups 0, 1, ... has.
    """
    count = np.bincount(group, minlength=groups)
    rank = np.empty(len(group), np.int64)
    first = np.repeat(np.cumsum(count) - count, count)
    rank[by_key(group)] = np.arange(len(group)) - first
    return rank, count


def groups(keys: Ints) -> tuple[Ints, Ints]:
    """`by_key`, and where in it the rows of each key begin, and the last end."""
    order = by_key(keys)
    return order, np.append(np.flatnonzero(np.diff(keys[order], prepend=-1)), len(order))


def digest(header: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """blake2b-128 of a value: its header in canonical JSON, then name, dtype, shape and bytes of
    each array.
    """
    state = hashlib.blake2b(digest_size=16)
    state.update(json.dumps(header, sort_keys=True, separators=(",", ":")).encode())
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        state.update(f"{name}|{array.dtype.str}|{array.shape}|".encode())
        state.update(array.data.cast("B") if array.size else b"")
    return state.hexdigest()


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, force: bool = False) -> Iterator[BinaryIO]:
    """A binary file that appears under its name whole or not at all; an existing one is replaced
    only with `force`.

    A link stays and what it points to is written; a pipe or a terminal gets the bytes at the end,
    in one go; folders, disks and sockets are refused.  What the system refuses is an InputError.
    """
    target, mode, name = _aimed(path)
    try:
        if stat.S_ISFIFO(mode) or stat.S_ISCHR(mode):
            with _through(path) as file:
                yield file
        else:
            _check_target(target, name, mode, force)
            with _beside(target) as file:
                yield file
    except OSError as error:
        if error.filename is not None and not _ours(error.filename, path, target):
            raise
        raise InputError(f"{name}: can't be written: {error.strerror or error}") from error


def _aimed(path: str | os.PathLike[str]) -> tuple[Path, int, str]:
    """(the file that a name leads to, its mode, the name to show); what is not there will be a
    plain file.
    """
    name = printable(path)
    if name in ("", "-"):
        raise InputError(f"{name!r}: expected the name of a file (./- for one that is called so)")
    try:
        target = Path(os.path.realpath(path))
        mode = os.stat(path).st_mode  # of /dev/stdout, a pipe, the target can't be looked at
    except (FileNotFoundError, NotADirectoryError):
        mode = stat.S_IFREG
    except OSError as error:
        raise InputError(f"{name}: can't be written: {error.strerror or error}") from error
    except ValueError as error:  # a name with a NUL in it
        raise InputError(f"{name}: not the name of a file") from error
    return target, mode, name


def _ours(filename: object, *paths: str | os.PathLike[str]) -> bool:
    """Whether an OSError is about a file beside these, not about another."""
    beside = [Path(path).parent for path in paths]
    return isinstance(filename, str | os.PathLike) and Path(filename).parent in beside


def _check_target(target: Path, name: str, mode: int, force: bool) -> None:
    if stat.S_ISDIR(mode):
        raise InputError(f"{name}: a folder: give the name of a file in it")
    if not stat.S_ISREG(mode):
        raise InputError(f"{name}: neither a file nor a pipe: give another name")
    if target.exists() and not force:
        raise InputError(f"{name} exists: give another name, or --force (force=True) to replace it")
    if not target.parent.is_dir():
        raise InputError(f"{name}: the folder {printable(target.parent)} does not exist")


def check_targets(*paths: str | os.PathLike[str] | None, force: bool = False) -> None:
    """Refuse what `atomic_file` would refuse, and one file for two things, before anything is
    computed or written; None is no file.
    """
    seen = set[Path]()
    for path in paths:
        if path is not None:
            target, mode, name = _aimed(path)
            if not stat.S_ISFIFO(mode) and not stat.S_ISCHR(mode):
                _check_target(target, name, mode, force)
                if target in seen:
                    raise InputError(f"{name} is to be written twice: expected a file of its own")
                seen.add(target)


def check_suffix(path: str | os.PathLike[str] | None, kind: str) -> None:
    """Refuse a name that promises another format than those of SAVED; one without a suffix promises
    none, None is no file.
    """
    suffix = "" if path is None else Path(path).suffix.lower()
    if suffix not in ("", *SAVED[kind]):
        more = "; railopt convert makes .et of a plan" if suffix == ".et" else ""
        raise InputError(
            f"{printable(path)}: a {kind} is saved as {' or '.join(SAVED[kind])}{more}"
        )


@contextmanager
def _beside(target: Path) -> Iterator[BinaryIO]:
    """A new file in the folder of `target` that takes its place at the end, or is gone."""
    temporary = target.parent / f".railopt-{secrets.token_hex(8)}"
    try:
        with open(temporary, "xb") as file:
            yield file
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def _through(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A scratch file whose bytes are copied into the pipe or device at the end; a pipe that nobody
    reads is an error, not a wait.
    """
    with tempfile.TemporaryFile() as scratch:
        yield scratch
        scratch.seek(0)
        handle = os.open(path, os.O_WRONLY | os.O_NONBLOCK)
        os.set_blocking(handle, True)
        with os.fdopen(handle, "wb") as file:
            shutil.copyfileobj(scratch, file)


def write_atomic(path: str | os.PathLike[str], data: bytes | str, *, force: bool = False) -> None:
    """Write bytes or text through `atomic_file`."""
    with atomic_file(path, force=force) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def read_text(path: str | os.PathLike[str], limit: int = MAX_TEXT) -> str:
    """The text of a file of at most `limit` bytes, with errors that a user understands."""
    name = printable(path)
    try:
        with open(path, "rb") as file:
            data = file.read(limit + 1)
        if len(data) > limit:
            raise InputError(f"{name}: more than {limit} bytes of text; railopt's .npz holds more")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name}: not a text file ({error.reason}); railopt's own files end in .npz"
        ) from error
    except ValueError as error:
        raise InputError(f"{name}: not the name of a file ({error})") from error


def saved_digest(kind: str, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> str:
    """The digest that a value carries once it is saved: its file's kind and version count too."""
    return digest(_named(kind, header), arrays)


def _named(kind: str, header: Mapping[str, Any]) -> dict[str, Any]:
    return {"railopt": kind, "version": VERSION, **header}


def save_npz(
    path: str | os.PathLike[str],
    kind: str,
    header: Mapping[str, Any],
    arrays: Mapping[str, Array],
    *,
    force: bool = False,
    packing: int = zipfile.ZIP_STORED,
) -> None:
    """Save a value as a railopt `.npz` (see the module's docstring), compressed as `zipfile` calls
    it.
    """
    full = {**_named(kind, header), "digest": saved_digest(kind, header, arrays)}
    with (
        atomic_file(path, force=force) as file,
        zipfile.ZipFile(file, "w", packing) as archive,
    ):
        dated = zipfile.ZipInfo("header.json")  # 1980, as numpy's: same content, same bytes
        text = json.dumps(full, sort_keys=True, separators=(",", ":"))
        archive.writestr(dated, text, packing)
        for name in sorted(arrays):
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(
                    member, np.ascontiguousarray(arrays[name]), allow_pickle=False
                )


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """What a railopt `.npz` says it holds ("plan", "traffic", ...); None if it is not one or can't
    be read.
    """
    try:
        with archive.opened(path) as members:
            kind = _header(members).get("railopt")
    except InputError:
        return None
    return printable(kind) if isinstance(kind, str) else None


def say_large(path: str | os.PathLike[str]) -> None:
    """Say that a file takes much memory, before it is read."""
    size = os.path.getsize(path)
    if size > MUCH / 3:
        say(f"{printable(path)} has {size / 1e9:.1f} GB: it takes 3 to 5 times as much memory")


def read_npz(
    path: str | os.PathLike[str], kind: str, content: str | None = None
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of a railopt `.npz` of this kind, its digest verified, and compared with
    `content` where that is given; anything else is a FormatError.

    The header's values are JSON of any type: who asked for them checks them.
    """
    with archive.opened(path) as members:
        say_large(path)
        header = _header(members)
        if header.get("railopt") != kind:
            found = printable(repr(header.get("railopt")), 40)
            raise FormatError(f"holds a {found}, expected a {kind!r}")
        if header.get("version") != VERSION:
            found = printable(repr(header.get("version")), 40)
            raise FormatError(f"format version {found}, this railopt reads {VERSION}")
        arrays = {}
        for member in members.names:
            if member == "header.json":
                continue
            if not member.endswith(".npy"):
                raise FormatError(f"unknown member {printable(member)!r}")
            arrays[member.removesuffix(".npy")] = members.array(member)
        claimed = header.pop("digest", None)
        if claimed != digest(header, arrays):
            raise FormatError(
                "its content does not match its digest: the file was changed or damaged"
            )
        if content is not None and claimed != content:
            raise FormatError("the file was changed while it was read")
    del header["railopt"], header["version"]
    return header, arrays


def read_npy(path: str | os.PathLike[str]) -> Array:
    """The array of a `.npy` file, mapped and not read: a shape that the file has no bytes for is
    refused by its length.
    """
    name = printable(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python 2's headers: they are read
            found = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except Exception as error:  # whatever numpy's reader of literals makes of hostile text
        raise FormatError(f"{name}: not a plain array ({printable(error, 100)})") from error
    if not isinstance(found, np.ndarray):
        raise FormatError(f"{name}: not a plain array but an archive of several")
    return found


def _header(members: archive.Archive) -> dict[str, Any]:
    if "header.json" not in members.names:
        raise FormatError(
            "no header.json inside: not a railopt file (railopt convert reads foreign formats)"
        )
    try:
        header = json.loads(members.text("header.json"), parse_constant=_no_constant)
    except RecursionError as error:
        raise FormatError("header.json is nested too deeply") from error
    if not isinstance(header, dict):
        raise FormatError("header.json is not an object")
    return header


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} in header.json")
