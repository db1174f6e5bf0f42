"""What a micro-batch finds: one layer's experts on GPUs, free slots beside them; and what is made
of it: copies in slots, and every token at a GPU that has its expert.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Bools, Int32s, Ints, frozen, whole_number
from railopt.base.errors import InputError
from railopt.model.traffic import Traffic
from railopt.moe.micro.greedy import SlotTables
from railopt.moe.placement.placement import Placement

MAX_RANKS = 1 << 12
MAX_PLACES = 1 << 24  # [expert, GPU]
MAX_TOKENS = 1 << 40  # of one expert; sums stay below 2**62


@dataclass(frozen=True, eq=False)
class SpareSlots:
    """One layer's experts on `nodes * gpus` GPUs, and free slots.

    holds         bool [GPU, expert]
    spare         int32 [GPU]: slots that may take a copy each
    within_node   whether a copy may only lie on a node that holds the expert already
    """

    nodes: int
    gpus: int
    holds: Bools = field(repr=False)
    spare: Int32s = field(repr=False)
    within_node: bool = False

    def __post_init__(self) -> None:
        ranks = self.nodes * self.gpus
        holds = np.array(self.holds, dtype=np.bool_, order="C")
        if holds.ndim != 2 or 0 in holds.shape or len(holds) != ranks:
            raise InputError(
                f"holds has shape {holds.shape}: expected [{self.nodes} x {self.gpus} GPUs, "
                f"experts]"
            )
        if ranks > MAX_RANKS or holds.size > MAX_PLACES:
            raise InputError(
                f"{holds.shape[1]} experts on {ranks} GPUs: at most {MAX_RANKS} GPUs and "
                f"{MAX_PLACES} places in all"
            )
        orphans = np.flatnonzero(~holds.any(axis=0))
        if len(orphans):
            raise InputError(f"no GPU holds expert {orphans[0]}: every expert needs at least one")
        spare = frozen(self.spare, np.int32, "spare", 1)
        if spare.shape != (ranks,) or spare.min() < 0:
            raise InputError(
                f"spare has shape {spare.shape} and holds {spare.min(initial=0)}: expected {ranks} "
                f"numbers of at least 0, one per GPU"
            )
        spare = frozen(np.minimum(spare, (~holds).sum(axis=1)), np.int32, "spare", 1)
        holds.flags.writeable = False
        object.__setattr__(self, "holds", holds)
        object.__setattr__(self, "spare", spare)

    @classmethod
    def of(
        cls, placement: Placement, layer: int, spare: int, *, within_node: bool = False
    ) -> SpareSlots:
        """A layer of a placement, with so many spare slots on every GPU."""
        each = whole_number(spare, "spare", 0, placement.experts)
        slots = np.full(placement.devices, each, np.int32)
        return cls(placement.nodes, placement.gpus, placement.holds[layer], slots, within_node)

    @property
    def ranks(self) -> int:
        """GPUs in all."""
        return int(self.holds.shape[0])

    @property
    def experts(self) -> int:
        return int(self.holds.shape[1])

    @cached_property
    def may(self) -> Bools:
        """bool [GPU, expert]: where a copy may lie."""
        free = ~self.holds & (self.spare > 0)[:, None]
        if self.within_node:
            near = self.holds.reshape(self.nodes, self.gpus, -1).any(axis=1)
            free &= np.repeat(near, self.gpus, axis=0)
        return free

    @cached_property
    def layer(self) -> SlotTables:
        """As the kernel wants it."""
        rank, expert = np.nonzero(self.holds)
        near = (self.holds | self.may).reshape(self.nodes, self.gpus, -1).any(axis=1)
        return SlotTables(
            expert.astype(np.int32),
            rank.astype(np.int32),
            np.searchsorted(rank, np.arange(self.ranks + 1)).astype(np.int32),
            self.holds.sum(axis=0, dtype=np.int32),
            np.ascontiguousarray((2 * self.holds + self.may).T, np.uint8),
            self.spare,
            np.where(near.sum(axis=0) == 1, near.argmax(axis=0), -1).astype(np.int32),
            self.gpus,
        )

    def counts(self, counts: npt.ArrayLike) -> Ints:
        """A micro-batch's tokens, checked: int64 [experts]."""
        tokens = frozen(counts, np.int64, "counts", 1)
        if tokens.shape != (self.experts,):
            raise InputError(
                f"counts has shape {tokens.shape}: expected a number for each of {self.experts} "
                f"experts"
            )
        if tokens.min() < 0 or tokens.max() > MAX_TOKENS:
            raise InputError(
                f"counts go from {tokens.min()} to {tokens.max()}: expected 0 to {MAX_TOKENS}"
            )
        return tokens


@dataclass(frozen=True, eq=False)
class Split:
    """A micro-batch's tokens on GPUs; one that breaks a rule can't exist.

    tokens   int64 [GPU, expert]: what each GPU computes
    copies   bool [GPU, expert]: what lies in spare slots
    """

    slots: SpareSlots = field(repr=False)
    counts: Ints = field(repr=False)
    tokens: Ints = field(repr=False)
    copies: Bools = field(repr=False)

    def __post_init__(self) -> None:
        slots, counts = self.slots, self.slots.counts(self.counts)
        tokens = frozen(self.tokens, np.int64, "tokens", 2)
        copies = np.array(self.copies, dtype=np.bool_, order="C")
        if tokens.shape != slots.holds.shape or copies.shape != slots.holds.shape:
            raise InputError(f"a split of shape {tokens.shape}: expected {slots.holds.shape}")
        if np.any(copies & ~slots.may) or np.any(copies.sum(axis=1) > slots.spare):
            raise InputError("copies that lie where none may, or more than there are spare slots")
        if tokens.min() < 0 or np.any((tokens > 0) & ~(slots.holds | copies)):
            raise InputError("tokens below 0, or on a GPU that does not hold their expert")
        if np.any(tokens.sum(axis=0) != counts):
            raise InputError("a split of other tokens than the micro-batch has")
        copies.flags.writeable = False
        object.__setattr__(self, "counts", counts)
        object.__setattr__(self, "tokens", tokens)
        object.__setattr__(self, "copies", copies)

    @cached_property
    def load(self) -> Ints:
        """int64 [GPU], tokens."""
        return np.asarray(self.tokens.sum(axis=1), np.int64)

    @property
    def largest(self) -> int:
        """The largest load of a GPU, tokens: what a split makes least."""
        return int(self.load.max())

    def copy_traffic(self, expert_bytes: int) -> Traffic:
        """What the copies send, each from a GPU of its node that holds the expert, if there is
        one.
        """
        before = self._placement(self.slots.holds)
        return self._placement(self.slots.holds | self.copies).movement(before, expert_bytes)

    def _placement(self, holds: Bools) -> Placement:
        home = self.slots.holds.argmax(axis=0)[None]
        return Placement(self.slots.nodes, self.slots.gpus, holds[None], home)

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        gpu, expert = np.nonzero(self.copies)
        at, of = np.nonzero(self.tokens)
        total = int(self.counts.sum())
        return {
            "largest": self.largest,
            "mean": total / self.slots.ranks,
            "copies": [
                {"expert": e, "gpu": g}
                for e, g in sorted(zip(expert.tolist(), gpu.tolist(), strict=True))
            ],
            "assignment": sorted(np.stack([of, at, self.tokens[at, of]], axis=1).tolist()),
        }
