"""Rows of tensors on one device by index: copied, or added up in a fixed order
(railopt/cuda/kernels/rows.cu).
"""

from __future__ import annotations

from math import gcd
from typing import Any

import torch

from railopt.base.errors import InputError
from railopt.cuda.driver import Arguments, Gpu, Kernel, packed
from railopt.torch.ways import Picked

NUMBERS = {"float32": 0, "float64": 1, "bfloat16": 2, "float16": 3}  # enum Type of rows.cu
_THREADS, _BLOCKS = 256, 2048


class DeviceRows:
    """Moves rows; each kind of row has its kernel, compiled when it first comes."""

    def __init__(self, gpu: Gpu, device: Any) -> None:
        self._gpu, self.device = gpu, device
        self._kernels: dict[tuple[Any, ...], Kernel] = {}

    @property
    def stream(self) -> int:
        """The address of torch's current stream."""
        if self.device.type != "cuda":
            return 0
        return int(torch.cuda.current_stream(self.device).cuda_stream)

    def pick(self, length: int) -> Picked:
        """Room for an index and its inverse."""
        both = torch.empty((2, max(1, length)), dtype=torch.int32, device=self.device)
        return Picked(both[0, :length], both[1, :length], self)

    def copy(self, rows: Any, target: Any, index: Any = None, fill: int = 0) -> None:
        """Row i of `target` [n, w] becomes row index[i] of `rows` [m, w], in bytes; rows may lie
        apart.  None: the same order.  Where an index is -1, every byte is `fill`.
        """
        width = rows.shape[1] * rows.element_size()
        places = *_at(rows), *_at(target)
        unit = gcd(16, width, *places)
        self._launch({"UNIT": unit}, places, index, (len(target), width // unit, 0, fill))

    def add(self, rows: Any, target: Any, index: Any) -> None:
        """Row i of `target` [n, w] becomes the sum of rows index[i] [n, many], -1 for none."""
        kinds = [str(tensor.dtype).removeprefix("torch.") for tensor in (rows, target)]
        for kind in kinds:
            if kind not in NUMBERS:
                raise InputError(f"rows of {kind} can't be added up: expected {', '.join(NUMBERS)}")
        macros = {"IN": NUMBERS[kinds[0]], "OUT": NUMBERS[kinds[1]]}
        sizes = len(target), rows.shape[1], index.shape[1], 0
        self._launch(macros, (*_at(rows), *_at(target)), index, sizes)

    def _launch(
        self,
        macros: dict[str, int],
        places: tuple[int, ...],
        index: Any,
        sizes: tuple[int, int, int, int],
    ) -> None:
        """`sizes` as rows.cu has them: rows, units or numbers of a row, many, fill."""
        items = sizes[0] * sizes[1]
        if not items:
            return
        key = tuple(macros.items())
        if key not in self._kernels:
            self._kernels[key] = self._gpu.kernel("rows", {**macros, "THREADS": _THREADS})[0]
        blocks = min(_BLOCKS, -(-items // _THREADS))
        order = 0 if index is None else index.data_ptr()
        given = packed("pqpqpqiii", *places, order, *sizes)
        arguments = Arguments(given, packed("q", 0), packed("q", blocks * _THREADS))
        self._kernels[key].launch(blocks, _THREADS, arguments.address, self.stream)


def _at(rows: Any) -> tuple[int, int]:
    """The address of rows, and how many bytes they lie apart."""
    return rows.data_ptr(), rows.stride(0) * rows.element_size()
