"""`.pt` files as torch.save writes them, without PyTorch: plain values and tensors, nothing else.

Such a file is a zip with a pickle and raw arrays.  Python's own unpickler would trust it with more
than values: calls, attributes of whatever a name stands for, a memo as long as the file says.  Here
the opcodes are read by a small machine instead, which knows plain values, lists, dicts with keys of
text or whole numbers, and tensors; everything else is refused, and nothing is called.

    members    stored as they are, each name once, not encrypted; together no larger than the file
    data       at most MAX_DATA bytes of arrays, each read once however often it is named
    tensors    views of these arrays; no more entries than the array behind them has
"""

from __future__ import annotations

import io
import os
import pickletools
import struct
import warnings
import zipfile
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Array
from railopt.base.errors import FormatError, InputError, printable

MAX_DATA = 1 << 29  # bytes of arrays
MAX_PICKLE = 1 << 24  # bytes of the pickle
MAX_OPCODES = 1 << 20  # of it: some 30,000 tensors
MAX_NUMBER = 1 << 63  # what a size or a stride of torch is less than
MAX_DIRECTORY = 1 << 22  # bytes of the zip's list of members: some 50,000 of them
STORAGES = {
    "ByteStorage": "|u1",
    "CharStorage": "|i1",
    "ShortStorage": "<i2",
    "IntStorage": "<i4",
    "LongStorage": "<i8",
    "BoolStorage": "|b1",
    "HalfStorage": "<f2",
    "FloatStorage": "<f4",
    "DoubleStorage": "<f8",
}


def load_pt(path: str | os.PathLike[str]) -> Any:
    """The plain values and arrays (read-only) of a `.pt` file; a FormatError for anything else."""
    name = printable(path)
    try:
        with open(path, "rb") as file:
            return _Machine(_Members(file)).run()
    except FormatError as error:
        raise FormatError(f"{name}: {error}") from error
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except (
        zipfile.BadZipFile,
        NotImplementedError,  # a zip of a later version
        RuntimeError,
        ValueError,  # pickletools on damaged opcodes, names that are no text
        EOFError,
        struct.error,
        IndexError,  # an opcode that finds less on the stack than it needs
        OverflowError,  # numbers beyond those of numpy
    ) as error:
        raise FormatError(
            f"{name}: damaged or foreign, not a readable .pt file ({printable(error, 100)})"
        ) from error


class _Members:
    """The zip's members, checked before any is read."""

    def __init__(self, file: Any) -> None:
        size = file.seek(0, io.SEEK_END)
        if _directory_bytes(file, size) > MAX_DIRECTORY:
            raise FormatError(
                f"damaged .pt file: a list of members of more than {MAX_DIRECTORY} bytes"
            )
        self._zip = zipfile.ZipFile(file)
        members = self._zip.infolist()
        self._sizes = {member.filename: member.file_size for member in members}
        if len(self._sizes) < len(members):
            raise FormatError("damaged .pt file: a member is there twice")
        for member in members:
            if member.compress_type != zipfile.ZIP_STORED or member.flag_bits & 0x61:
                raise FormatError(
                    f"not a file of torch.save: member {printable(member.filename, 60)!r} is "
                    f"packed or encrypted"
                )
        if sum(self._sizes.values()) > size:
            raise FormatError("damaged .pt file: its members are larger than the file")
        found = [name for name in self._sizes if name.endswith("/data.pkl")]
        if len(found) != 1:
            raise FormatError("no data.pkl inside: not a file of torch.save")
        self.pickle = found[0]
        self.root = found[0].removesuffix("/data.pkl")

    def read(self, name: str, limit: int) -> bytes:
        """A member of at most `limit` bytes."""
        if name not in self._sizes:
            raise FormatError(f"damaged .pt file: no member {printable(name, 60)!r}")
        if self._sizes[name] > limit:
            raise FormatError(
                f"member {printable(name, 60)!r} has {self._sizes[name]} bytes, more than the "
                f"{limit} that are read"
            )
        return self._zip.read(name)


def _directory_bytes(file: Any, size: int) -> int:
    """Bytes of the zip's list of members, by the end record at the file's end."""
    file.seek(max(0, size - 22))
    record = file.read(22)
    if len(record) < 22 or record[:4] != b"PK\5\6":
        raise zipfile.BadZipFile("no zip's end record at its end")
    length = int.from_bytes(record[12:16], "little")
    if length < 0xFFFFFFFF:
        return length
    file.seek(max(0, size - 42))
    locator = file.read(20)
    file.seek(int.from_bytes(locator[8:16], "little"))
    return int.from_bytes(file.read(48)[40:48], "little")


class _Name(NamedTuple):
    """A name that the pickle asks for, one of those known here."""

    module: str
    name: str


class _Mark:
    """Where a sequence of values begins on the stack."""


REBUILD = _Name("torch._utils", "_rebuild_tensor_v2")
ORDERED = _Name("collections", "OrderedDict")
MARK = _Mark()


class _Machine:
    """Runs the opcodes of one pickle: a stack, a memo, and a step for each kind."""

    def __init__(self, members: _Members) -> None:
        self._members = members
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._storages: dict[str, Array] = {}
        self._left = MAX_DATA
        self._steps: dict[str, Callable[[Any], None]] = {
            **dict.fromkeys(("PROTO", "FRAME", "STOP"), lambda _: None),
            **dict.fromkeys(VALUES, self._stack.append),
            "NONE": lambda _: self._stack.append(None),
            "NEWTRUE": lambda _: self._stack.append(True),
            "NEWFALSE": lambda _: self._stack.append(False),
            "EMPTY_LIST": lambda _: self._stack.append([]),
            "EMPTY_DICT": lambda _: self._stack.append({}),
            "EMPTY_TUPLE": lambda _: self._stack.append(()),
            "MARK": lambda _: self._stack.append(MARK),
            "TUPLE": lambda _: self._stack.append(tuple(self._since_mark())),
            "TUPLE1": lambda _: self._tuple(1),
            "TUPLE2": lambda _: self._tuple(2),
            "TUPLE3": lambda _: self._tuple(3),
            "APPEND": lambda _: self._extend([self._stack.pop()]),
            "APPENDS": lambda _: self._extend(self._since_mark()),
            "SETITEM": lambda _: self._update([self._stack.pop(-2), self._stack.pop()]),
            "SETITEMS": lambda _: self._update(self._since_mark()),
            **dict.fromkeys(("BINPUT", "LONG_BINPUT"), self._put),
            "MEMOIZE": lambda _: self._put(len(self._memo)),
            **dict.fromkeys(("BINGET", "LONG_BINGET"), self._get),
            "GLOBAL": lambda text: self._named(*text.partition(" ")[::2]),
            "STACK_GLOBAL": lambda _: self._named(self._stack.pop(-2), self._stack.pop()),
            "BINPERSID": lambda _: self._stack.append(self._storage(self._stack.pop())),
            "REDUCE": lambda _: self._reduce(self._stack.pop(-2), self._stack.pop()),
        }

    def run(self) -> Any:
        data = self._members.read(self._members.pickle, MAX_PICKLE)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in names, which are then refused
            for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
                if number == MAX_OPCODES:
                    raise FormatError(f"more than {MAX_OPCODES} opcodes: record fewer steps")
                if opcode.name not in self._steps:
                    raise FormatError(
                        f"unsafe .pt file: opcode {opcode.name}; only tensors and plain values are "
                        f"read, nothing is executed"
                    )
                self._steps[opcode.name](argument)
        if len(self._stack) != 1:
            raise FormatError(f"damaged .pt file: it ends with {len(self._stack)} values")
        return self._stack[0]

    def _since_mark(self) -> list[Any]:
        at = len(self._stack) - 1
        while self._stack[at] is not MARK:
            at -= 1
            if at < 0:
                raise FormatError("damaged .pt file: values without their beginning")
        values = self._stack[at + 1 :]
        del self._stack[at:]
        return values

    def _tuple(self, count: int) -> None:
        if len(self._stack) < count:
            raise FormatError("damaged .pt file: a tuple of values that are not there")
        values = tuple(self._stack[-count:])
        del self._stack[-count:]
        self._stack.append(values)

    def _extend(self, values: list[Any]) -> None:
        if not isinstance(self._stack[-1], list):
            raise FormatError("damaged .pt file: values added to what is no list")
        self._stack[-1].extend(values)

    def _update(self, values: list[Any]) -> None:
        target = self._stack[-1]
        keys = values[::2]
        if not isinstance(target, dict) or len(values) % 2:
            raise FormatError("damaged .pt file: items set in what is no dict")
        if not all(isinstance(key, str | int) for key in keys):
            raise FormatError("a dict with keys that are neither text nor whole numbers")
        target.update(zip(keys, values[1::2], strict=True))

    def _put(self, number: int) -> None:
        self._memo[number] = self._stack[-1]

    def _get(self, number: int) -> None:
        if number not in self._memo:
            raise FormatError("damaged .pt file: a value that was not noted")
        self._stack.append(self._memo[number])

    def _named(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise FormatError("damaged .pt file: it asks for a name that is no text")
        asked = _Name(module, name)
        if asked not in (REBUILD, ORDERED) and not (
            asked.module == "torch" and asked.name in STORAGES
        ):
            raise FormatError(
                f"unsafe .pt file: it asks for {printable(asked.module, 60)}."
                f"{printable(asked.name, 60)}; only tensors and plain values are read, nothing is "
                f"executed"
            )
        self._stack.append(asked)

    def _reduce(self, what: Any, arguments: Any) -> None:
        if what == ORDERED and arguments == ():
            self._stack.append({})
        elif what == REBUILD and isinstance(arguments, tuple) and len(arguments) >= 4:
            self._stack.append(_tensor(*arguments[:4]))
        else:
            raise FormatError("unsafe .pt file: it calls something; nothing is executed")

    def _storage(self, given: Any) -> Array:
        """The array of a (kind, storage type, key, place, entries)."""
        if not isinstance(given, tuple) or len(given) != 5:
            raise FormatError("unsafe .pt file: unknown storage")
        kind, type_, key, _, count = given
        known = isinstance(type_, _Name) and type_.name in STORAGES
        if kind != "storage" or not known or not isinstance(key, str) or not key.isalnum():
            raise FormatError("unsafe .pt file: unknown storage")
        if key not in self._storages:
            raw = self._members.read(f"{self._members.root}/data/{key}", self._left)
            self._left -= len(raw)
            self._storages[key] = np.frombuffer(raw, np.uint8)
        dtype, raw_bytes = np.dtype(STORAGES[type_.name]), self._storages[key]
        if type(count) is not int or not 0 <= count * dtype.itemsize <= len(raw_bytes):
            said = printable(count, 40) if isinstance(count, int) else type(count).__name__
            raise FormatError(
                f"damaged .pt file: storage {printable(key, 40)} has {len(raw_bytes)} bytes, "
                f"expected {said} entries of {dtype.itemsize}"
            )
        return raw_bytes[: count * dtype.itemsize].view(dtype)


VALUES = (
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
    "BINUNICODE",
    "SHORT_BINUNICODE",
)


def _tensor(storage: Any, offset: Any, size: Any, stride: Any) -> Array:
    """A view of a storage's entries, from `offset`, by strides in entries; that of a dimension of
    size 1 says nothing.
    """
    numbers = (
        (offset, *size, *stride) if isinstance(size, tuple) and isinstance(stride, tuple) else ()
    )
    whole = bool(numbers) and all(type(n) is int and 0 <= n < MAX_NUMBER for n in numbers)
    if not isinstance(storage, np.ndarray) or not whole or len(size) != len(stride):
        raise FormatError(
            "damaged .pt file: a tensor without data, or whose shape and strides are no whole "
            "numbers below 2**63"
        )
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else -1
    if len(size) > 16 or last >= len(storage) or prod(size) > len(storage):
        raise FormatError(
            f"damaged .pt file: a tensor of shape {printable(size, 60)} beyond its storage"
        )
    if not prod(size):
        return np.empty(size, storage.dtype) if max(size) <= len(storage) else np.empty(0)
    item = storage.dtype.itemsize
    steps = [s * item if n > 1 else 0 for n, s in zip(size, stride, strict=True)]
    return np.lib.stride_tricks.as_strided(storage[offset:], size, steps, writeable=False)
