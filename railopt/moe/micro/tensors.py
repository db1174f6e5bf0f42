"""`split` on torch tensors: copies in spare slots and the split of a micro-batch's tokens, on the
GPU that has the counts, on torch's current stream (extras `cuda` and `torch`).

    split = TokenSplit(SpareSlots.of(placement, layer=0, spare=2))
    parts = split.plan(counts)          # int64 [experts] on the GPU
    table = split.table(counts)         # int64 [1, GPUs, experts]: tokens that each computes

Nothing waits for the GPU and nothing but torch's own temporaries is allocated, so that a CUDA graph
can capture both; replayed, it plans what then stands in `counts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from railopt.moe.micro.device import DeviceGreedy, DeviceParts
from railopt.moe.micro.slots import SpareSlots

if TYPE_CHECKING:
    import torch

__all__ = ["TokenSplit"]


class TokenSplit:
    """Splits `batches` micro-batches of one layer at once; `slack` as in `Greedy`."""

    def __init__(self, slots: SpareSlots, slack: int = 0, batches: int = 1) -> None:
        import torch

        self.slots = slots
        self._greedy = DeviceGreedy(slots, slack, batches)
        self._parts = DeviceParts._make(
            torch.as_tensor(column, device="cuda") for column in self._greedy.parts
        )
        shape = batches, slots.ranks * slots.experts
        self._table = torch.zeros(shape, dtype=torch.int64, device="cuda")
        self._place = torch.arange(self._parts.expert.shape[1], device="cuda")

    def plan(self, counts: torch.Tensor) -> DeviceParts:
        """Copies and split, as tensors, for tokens int64 [experts] or [batches, experts] on the
        GPU.
        """
        self._greedy.plan(counts)
        return self._parts

    def table(self, counts: torch.Tensor) -> torch.Tensor:
        """int64 [batches, GPUs, experts]: how many tokens of an expert each GPU computes; one
        buffer, valid until the next call.
        """
        expert, rank, tokens, _, used = self.plan(counts)
        live = self._place < used[:, None]
        where = (rank.long() * self.slots.experts + expert).where(live, 0)
        self._table.zero_()
        self._table.scatter_add_(1, where, tokens.where(live, 0))
        return self._table.view(-1, self.slots.ranks, self.slots.experts)

    def check(self) -> None:
        """Wait for the GPU, and raise an InputError that says what was wrong with the counts."""
        self._greedy.check()
