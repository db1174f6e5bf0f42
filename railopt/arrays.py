"""What every value type shares: read-only integer arrays, digests, and files that are whole or
absent.

A railopt `.npz` is a zip of `.npy` members plus one member `header.json`
`{"railopt": kind, "version": 1, "digest": hex, ...}`; the digest is blake2b over each array's name,
dtype,
shape and bytes, in name order, after the rest of the header in canonical JSON.  Nothing is ever
unpickled.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from railopt.errors import FormatError, InputError

Ints = npt.NDArray[np.int64]
Array = npt.NDArray[Any]

VERSION = 1


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
    wanted = np.dtype(dtype)
    if given.dtype == wanted and given.flags.c_contiguous and not given.flags.writeable:
        return given
    if given.size and not np.can_cast(given.dtype, wanted):
        info = np.iinfo(wanted)
        low, high = int(given.min()), int(given.max())
        if low < info.min or high > info.max:
            raise InputError(
                f"{name} holds {low if low < info.min else high}: beyond the range of {wanted}"
            )
    result = np.array(given, dtype=wanted, order="C")
    result.flags.writeable = False
    return result


def _not_integer(given: Array) -> str:
    if given.dtype.kind != "f":
        return f"{given.dtype} values"
    odd = given[given != np.floor(given)]
    return (
        f"{odd.flat[0]}"
        if odd.size
        else "floating-point numbers (convert whole ones with .astype(np.int64))"
    )


def total(array: Array) -> int:
    """Exact sum of a non-negative int64 array, as a Python int: never wraps."""
    low, high = array & np.int64(0xFFFFFFFF), array >> np.int64(32)
    return int(low.sum(dtype=np.uint64)) + (int(high.sum(dtype=np.uint64)) << 32)


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
    """
    target = Path(path)
    if target.exists() and not force:
        raise InputError(
            f"{target} exists: give another name, or --force (force=True) to replace it"
        )
    if not target.parent.is_dir():
        raise InputError(f"{target}: the folder {target.parent} does not exist")
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, target)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_atomic(path: str | os.PathLike[str], data: bytes | str, *, force: bool = False) -> None:
    """Write bytes or text through `atomic_file`."""
    with atomic_file(path, force=force) as file:
        file.write(data.encode() if isinstance(data, str) else data)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def save_npz(
    path: str | os.PathLike[str],
    kind: str,
    header: Mapping[str, Any],
    arrays: Mapping[str, Array],
    *,
    force: bool = False,
) -> None:
    """Save a value as a railopt `.npz` (see the module's docstring)."""
    full = {"railopt": kind, "version": VERSION, **header}
    full["digest"] = digest(full, arrays)
    with (
        atomic_file(path, force=force) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
    ):
        archive.writestr("header.json", json.dumps(full, sort_keys=True, separators=(",", ":")))
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
        with zipfile.ZipFile(path) as archive:
            header = json.loads(archive.read("header.json"))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, zlib.error):
        return None
    return str(header.get("railopt")) if isinstance(header, dict) else None


def load_npz(path: str | os.PathLike[str], kind: str) -> tuple[dict[str, Any], dict[str, Array]]:
    """Header and arrays of a railopt `.npz` of this kind, its digest verified; anything else is a
    FormatError.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            if "header.json" not in names:
                raise FormatError(
                    f"{path}: no header.json inside: not a railopt file (railopt convert reads "
                    f"foreign formats)"
                )
            header = json.loads(archive.read("header.json"))
            arrays = {
                name.removesuffix(".npy"): _read_array(archive, name, path)
                for name in names
                if name != "header.json"
            }
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path}: a folder, expected a railopt .npz file") from None
    except (
        zipfile.BadZipFile,
        EOFError,
        zlib.error,
        json.JSONDecodeError,
        UnicodeDecodeError,
    ) as error:
        raise FormatError(f"{path}: damaged or truncated, not a readable .npz ({error})") from error
    if not isinstance(header, dict) or header.get("railopt") != kind:
        found = header.get("railopt") if isinstance(header, dict) else type(header).__name__
        raise FormatError(f"{path}: holds a {found!r}, expected a {kind!r}")
    if header.get("version") != VERSION:
        raise FormatError(
            f"{path}: format version {header.get('version')!r}, this railopt reads {VERSION}"
        )
    claimed = header.pop("digest", None)
    if claimed != digest(header, arrays):
        raise FormatError(
            f"{path}: its content does not match its digest: the file was changed or damaged"
        )
    del header["railopt"], header["version"]
    return header, arrays


def _read_array(archive: zipfile.ZipFile, name: str, path: str | os.PathLike[str]) -> Array:
    if not name.endswith(".npy"):
        raise FormatError(f"{path}: unknown member {name!r}")
    with archive.open(name) as member:
        try:
            array = np.lib.format.read_array(member, allow_pickle=False)
        except ValueError as error:
            raise FormatError(f"{path}: member {name!r} is not a plain array ({error})") from error
    array.flags.writeable = False
    return array
