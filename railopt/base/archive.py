"""A zip of `.npy` members, read within limits: nothing is allocated, unpacked or unpickled before
its size was checked.

    members     at most MAX_MEMBERS, each name once, not encrypted
    stored      their sizes add up to no more than the file
    packed      (deflated, LZMA) they unpack to at most MAX_UNPACKED bytes in all, and LZMA may ask
                for MAX_DICTIONARY bytes
    arrays      whole numbers, floats or truth values; as many bytes as their shape says

Anything else raises FormatError.
"""

from __future__ import annotations

import io
import lzma
import math
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from railopt.base.errors import FormatError, InputError, printable

MAX_MEMBERS = 64
MAX_UNPACKED = 1 << 28
MAX_DICTIONARY = 1 << 26
MAX_DIRECTORY = 1 << 16  # bytes of the zip's list of members
MAX_TEXT = 1 << 20

_DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    struct.error,
    ValueError,  # a member's name or text that is no UTF-8, numbers that no zip has
    NotImplementedError,  # a zip of a later version
    RuntimeError,
)


class Archive:
    """An open zip whose list of members was checked.  Every method may raise FormatError."""

    def __init__(self, file: BinaryIO) -> None:
        size = file.seek(0, io.SEEK_END)
        if _directory_size(file, size) > MAX_DIRECTORY:
            raise FormatError(f"more members than the {MAX_MEMBERS} that it may have")
        self._file = file
        self._zip = zipfile.ZipFile(file)
        self._check(size)

    def _check(self, size: int) -> None:
        members = self._zip.infolist()
        self.names = [member.filename for member in members]
        if len(members) > MAX_MEMBERS:
            raise FormatError(f"{len(members)} members, at most {MAX_MEMBERS} expected")
        twice = next((name for name in self.names if self.names.count(name) > 1), None)
        if twice is not None:
            raise FormatError(f"member {printable(twice)!r} is there twice")
        stored = unpacked = 0
        for member in members:
            if member.flag_bits & 0x61:
                raise FormatError(f"member {printable(member.filename)!r} is encrypted or a patch")
            if member.compress_type == zipfile.ZIP_STORED:
                stored += member.file_size
            elif member.compress_type in (zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA):
                unpacked += member.file_size
            else:
                raise FormatError(
                    f"member {printable(member.filename)!r} is packed by method "
                    f"{member.compress_type}, expected stored, deflated or LZMA"
                )
            if member.compress_type == zipfile.ZIP_LZMA:
                self._check_dictionary(member)
        if stored > size or unpacked > MAX_UNPACKED:
            raise FormatError(
                f"a file of {size} bytes that unpacks to {stored + unpacked}, more than the "
                f"{MAX_UNPACKED} that are read"
            )

    def _check_dictionary(self, member: zipfile.ZipInfo) -> None:
        """LZMA's properties: version, their length (5), one byte, then the dictionary's bytes,
        which a decoder allocates before it has seen any data.
        """
        self._file.seek(member.header_offset + 26)
        name, extra = struct.unpack("<HH", self._file.read(4))
        self._file.seek(name + extra, io.SEEK_CUR)
        _, length, _, dictionary = struct.unpack("<HHBI", self._file.read(9))
        if length != 5 or dictionary > MAX_DICTIONARY:
            raise FormatError(
                f"member {printable(member.filename)!r} needs an LZMA dictionary of {dictionary} "
                f"bytes, at most {MAX_DICTIONARY} are given"
            )

    def text(self, name: str) -> str:
        """A member of at most `MAX_TEXT` bytes as text."""
        size = self._zip.getinfo(name).file_size
        if size > MAX_TEXT:
            raise FormatError(f"{name} has {size} bytes, at most {MAX_TEXT}")
        return self._zip.read(name).decode("utf-8")

    def array(self, name: str) -> npt.NDArray[Any]:
        """A `.npy` member, read-only."""
        with self._zip.open(name) as member:
            shape, fortran, dtype = self._npy_header(member, name)
            head, size = member.tell(), self._zip.getinfo(name).file_size
            count = math.prod(shape)
            if count * dtype.itemsize != size - head:
                raise FormatError(
                    f"member {printable(name)!r} has {size - head} bytes of data, "
                    f"expected {printable(count, 20)} entries of {dtype.itemsize} as its shape says"
                )
            array = np.empty(count, dtype)
            _fill(array.view(np.uint8), member)
        array = array.reshape(shape[::-1]).T if fortran else array.reshape(shape)
        array.flags.writeable = False
        return array

    def _npy_header(self, member: Any, name: str) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
        """(shape, Fortran order, dtype) of a plain array."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of Python 2's headers: they are read
                version = np.lib.format.read_magic(member)
                read = {
                    (1, 0): np.lib.format.read_array_header_1_0,
                    (2, 0): np.lib.format.read_array_header_2_0,
                }[version]
                shape, fortran, dtype = read(member)
        except Exception as error:  # whatever numpy's reader of literals makes of hostile text
            raise FormatError(
                f"member {printable(name)!r} is not a plain array ({printable(error, 80)})"
            ) from error
        if dtype.kind not in "iufb" or dtype.itemsize > 8 or min(shape, default=0) < 0:
            raise FormatError(
                f"member {printable(name)!r} is not a plain array: "
                f"{printable(dtype, 40)} of shape {printable(shape, 40)}"
            )
        return shape, fortran, dtype


def _fill(target: npt.NDArray[np.uint8], member: Any) -> None:
    """Read exactly as many bytes as there is room for, piece by piece, and the member's end, where
    its checksum is compared.
    """
    filled = 0
    while filled < len(target):
        piece = member.read(min(1 << 20, len(target) - filled))
        if not piece:
            raise EOFError("a member ends early")
        target[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
        filled += len(piece)
    member.read(1)


def _directory_size(file: BinaryIO, size: int) -> int:
    """Bytes of the zip's list of members, from its end record.

    The record has to be the file's last 22 bytes: no comment, nothing behind it.
    """
    file.seek(max(0, size - 42))
    end = file.read(42)
    record = end[-22:]
    if len(record) < 22 or record[:4] != b"PK\5\6" or record[20:] != b"\0\0":
        raise zipfile.BadZipFile("no zip's end record at its end")
    length = int.from_bytes(record[12:16], "little")
    if length == 0xFFFFFFFF and end[:4] == b"PK\6\7":
        file.seek(int.from_bytes(end[8:16], "little"))
        length = int.from_bytes(file.read(48)[40:48], "little")
    return length


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Archive]:
    """The archive at `path`.  Raises InputError if it can't be opened, FormatError if something in
    it can't be read inside the `with`; what else is refused there gets its name, too.
    """
    name = printable(path)
    try:
        with open(path, "rb") as file:
            yield Archive(file)
    except InputError as error:
        raise type(error)(f"{name}: {error}") from error
    except FileNotFoundError:
        raise InputError(f"{name}: no such file") from None
    except IsADirectoryError:
        raise InputError(f"{name}: a folder, expected a railopt .npz file") from None
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except _DAMAGED as error:
        raise FormatError(
            f"{name}: damaged or truncated, not a readable .npz ({printable(error, 100)})"
        ) from error
