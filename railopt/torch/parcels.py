"""Tensors of experts as rows of bytes, from homes to copies and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from railopt.base.arrays import Bools, Int32s, Ints
from railopt.torch.carry import as_bytes

ROW = 1 << 16  # bytes: so finely parameters are divided between rails


def make_of(module: Any) -> str:
    """What a module's parameters are, in words that ranks compare."""
    kinds = [f"{str(p.dtype)[6:]}{list(p.shape)}" for p in module.parameters()] if module else []
    return f"experts of {len(kinds)} parameters: {' '.join(kinds)}"


class Parcels:
    """What each home sends to each copy: an expert's parameters, or their gradients on the way
    back, as rows of one width, experts in ascending order.

    home    int32 [expert]        holds   bool [rank, expert]
    like    a module whose parameters are as every expert's
    counts  int64 [R, R]: rows from rank to rank, of homes to copies
    """

    def __init__(self, home: Int32s, holds: Bools, rank: int, like: Any) -> None:
        self._like = [(p.shape, p.dtype, p.device) for p in like.parameters()]
        size = sum(p.numel() * p.element_size() for p in like.parameters())
        self._width = max(1, min(ROW, size))
        self._rows = -(-size // self._width)
        ranks = len(holds)
        away = holds & (np.arange(ranks)[:, None] != home[None, :])
        self.counts: Ints = np.zeros((ranks, ranks), np.int64)
        for target, expert in np.argwhere(away).tolist():
            self.counts[home[expert], target] += self._rows
        # (other rank, expert) in the order of rows: to copies from here, and to here from homes
        self._out = [(t, e) for t, e in np.argwhere(away).tolist() if home[e] == rank]
        mine = np.flatnonzero(away[rank]).tolist()
        self._in = sorted((int(home[e]), e) for e in mine)

    def packed(self, tensors: dict[int, list[Any]], *, back: bool = False) -> Any:
        """uint8 [rows, width]: what goes to each rank; `tensors` of an expert, None for zeros."""
        parts = [self._flat(tensors[expert]) for _, expert in (self._in if back else self._out)]
        if parts:
            return torch.cat(parts)
        return torch.empty((0, self._width), dtype=torch.uint8, device=self._like[0][2])

    def unpacked(self, rows: Any, *, back: bool = False) -> Iterator[tuple[int, list[Any]]]:
        """The expert and the tensors of every parcel that has arrived, in order of ranks."""
        parcels = self._out if back else self._in
        for place, (_, expert) in enumerate(parcels):
            flat = rows[place * self._rows : (place + 1) * self._rows].reshape(-1)
            tensors, first = [], 0
            for shape, dtype, device in self._like:
                new = torch.empty(shape, dtype=dtype, device=device)
                size = new.numel() * new.element_size()
                as_bytes(new.view(-1)).view(-1).copy_(flat[first : first + size])
                tensors.append(new)
                first += size
            yield expert, tensors

    def _flat(self, tensors: list[Any]) -> Any:
        """uint8 [rows of an expert, width]."""
        whole = [
            torch.zeros(shape, dtype=dtype, device=device) if one is None else one
            for one, (shape, dtype, device) in zip(tensors, self._like, strict=True)
        ]
        flat = torch.cat([as_bytes(one.detach().contiguous().view(-1)).view(-1) for one in whole])
        padded = flat.new_zeros(self._rows * self._width)
        padded[: len(flat)] = flat
        return padded.view(self._rows, self._width)
