"""Rows on the device by index: copied, or added up in a fixed order (kernels/rows.cu)."""

from __future__ import annotations

import ctypes
from math import gcd
from typing import NamedTuple

from railopt.base.errors import InputError
from railopt.cuda.driver import Arguments, Gpu, Kernel

__all__ = ["NUMBERS", "RowMover", "RowsAt"]

NUMBERS = {"float32": 0, "float64": 1, "bfloat16": 2, "float16": 3}  # enum Type of rows.cu
_THREADS, _BLOCKS = 256, 2048


class RowsAt(NamedTuple):
    """Rows that lie `step` bytes apart from an address on."""

    address: int
    step: int


class _RowArguments(ctypes.Structure):
    _fields_ = (
        ("in", ctypes.c_void_p),
        ("in_step", ctypes.c_int64),
        ("out", ctypes.c_void_p),
        ("out_step", ctypes.c_int64),
        ("index", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("width", ctypes.c_int32),
        ("many", ctypes.c_int32),
        ("fill", ctypes.c_int32),
    )


class RowMover:
    """Moves rows on one GPU; each kind of row has its kernel, compiled when it first comes."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._kernels: dict[tuple[int, ...], Kernel] = {}

    def copy(
        self, of: RowsAt, to: RowsAt, width: int, index: int, rows: int, stream: int, fill: int = 0
    ) -> None:
        """Row i of `to` becomes row index[i] of `of`, `width` bytes of it; index int32 [rows] at an
        address, 0 for the same order; `fill` in every byte where it is -1.
        """
        unit = gcd(16, width, of.step, to.step, of.address, to.address)
        self._launch(
            (unit,), {"UNIT": unit}, (*of, *to, index, rows, width // unit, 0, fill), stream
        )

    def add(
        self,
        of: RowsAt,
        to: RowsAt,
        width: int,
        kinds: tuple[str, str],
        index: int,
        many: int,
        rows: int,
        stream: int,
    ) -> None:
        """Row i of `to` becomes the sum of rows index[i, m] of `of`, `width` numbers of the two
        `kinds` each; index int32 [rows, many], -1 for none.
        """
        unknown = [kind for kind in kinds if kind not in NUMBERS]
        if unknown:
            raise InputError(
                f"rows of {unknown[0]} can't be added up: expected {', '.join(NUMBERS)}"
            )
        types = tuple(NUMBERS[kind] for kind in kinds)
        macros = {"IN": types[0], "OUT": types[1]}
        self._launch(types, macros, (*of, *to, index, rows, width, many, 0), stream)

    def _launch(
        self, key: tuple[int, ...], macros: dict[str, int], values: tuple[int, ...], stream: int
    ) -> None:
        given = _RowArguments(*values)
        items = given.rows * given.width
        if not items:
            return
        if key not in self._kernels:
            self._kernels[key] = self._gpu.kernel("rows", {**macros, "THREADS": _THREADS})[0]
        blocks = min(_BLOCKS, -(-items // _THREADS))
        step = ctypes.c_int64(blocks * _THREADS)
        arguments = Arguments(given, ctypes.c_int64(0), step)
        self._kernels[key].launch(blocks, _THREADS, arguments.address, stream)
