"""Experts that live on several ranks: which copy each choice of a token goes to.

A rank's experts, in ascending order, are its *slots*; slot j of rank r is number r * S + j, S being
the slots of the fullest rank.  A dispatch goes to slots as it would to experts without copies.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import torch

from railopt.base.arrays import Ints, whole_number
from railopt.base.errors import InputError
from railopt.base.units import INT64_MAX
from railopt.model.fabric import Fabric
from railopt.moe.micro.files import read_split
from railopt.moe.placement.placement import Placement
from railopt.moe.routing.dispatch import RULES, eligible_gpus
from railopt.torch.talk import gathered, mark, texts


@dataclass(frozen=True, eq=False)
class Copies:
    """One layer of a placement, and how tokens are split over its copies.

    shares   "near": the own GPU, else holders in the node evenly, else all holders evenly; "even":
             all holders evenly; "home": own GPU, node's first holder, home; or int [GPU, expert],
             tokens that each GPU should compute, as `railopt.moe.micro` splits a micro-batch: every
             source divides its tokens in these proportions
    """

    placement: Placement
    layer: int = 0
    shares: str | Ints = "near"

    @classmethod
    def of_split(cls, path: str | os.PathLike[str], before: Placement, layer: int = 0) -> Copies:
        """The copies and shares of one micro-batch, from what `railopt split --json` prints of it;
        it was made of layer `layer` of the placement `before`.
        """
        placement, tokens = read_split(path, before, layer)
        return cls(placement, 0, tokens)

    def check(self) -> None:
        """Raise what is wrong; not where this is made, so that all ranks hear of it."""
        if not isinstance(self.placement, Placement):
            raise InputError(
                f"placement is of type {type(self.placement).__name__}: expected a Placement"
            )
        whole_number(self.layer, "layer", 0, self.placement.layers - 1)
        if isinstance(self.shares, str):
            if self.shares not in RULES:
                raise InputError(f"shares {self.shares!r}: expected {', '.join(RULES)}, or numbers")
            return
        given, holds = np.array(self.shares), self.placement.holds[self.layer]
        if given.shape != holds.shape or given.dtype.kind not in "iu" or given.min() < 0:
            raise InputError(
                f"shares are {given.dtype} of shape {given.shape}: expected whole numbers of at "
                f"least 0, {holds.shape} = [GPU, expert]"
            )
        for gpu, expert in np.argwhere((given > 0) & ~holds)[:1].tolist():
            raise InputError(
                f"shares give GPU {gpu} {given[gpu, expert]} tokens of expert {expert}, which it "
                f"does not hold"
            )
        object.__setattr__(self, "shares", given.astype(np.int64))

    @property
    def digest(self) -> str:
        """What ranks compare."""
        home = self.placement.home[self.layer].tobytes()
        how = self.shares.encode() if isinstance(self.shares, str) else self.shares.tobytes()
        return sha256(self.placement.holds[self.layer].tobytes() + home + how).hexdigest()[:16]

    def words(self, expert: int) -> str:
        """Where an expert is, and how its tokens are split."""
        holders = np.flatnonzero(self.placement.holds[self.layer, :, expert])
        home = self.placement.home[self.layer, expert]
        shares = self.shares if isinstance(self.shares, str) else self.shares[holders, expert]
        return f"expert {expert} at home on GPU {home}, on GPUs {holders}, shares {shares}"

    def weights(self, rank: int) -> Ints:
        """int64 [expert, GPU]: in which proportions tokens of a source rank go to GPUs."""
        holds, home = self.placement.holds[self.layer], self.placement.home[self.layer]
        if isinstance(self.shares, str):
            ways = eligible_gpus(holds, home, self.placement.gpus, self.shares)
            return np.stack([way[rank] for way in ways]).astype(np.int64)
        evenly = self.shares.sum(axis=0) == 0  # nothing is said of such an expert
        return np.where(evenly, holds, self.shares).T.astype(np.int64)


class ExpertSlots(NamedTuple):
    """The experts of a layer: how many, and their copies if they have any; without, expert e is on
    rank e // (experts / ranks).
    """

    experts: int
    copies: Any = None  # whatever it is: `problem` says so

    def problem(self, fabric: Fabric) -> str:
        """Why they can't be on the ranks of a fabric, in words; "" if they can."""
        ranks = fabric.nodes * fabric.gpus
        experts = whole_number(self.experts, "experts", 1, INT64_MAX)
        if self.copies is None:
            return f"{experts} experts do not divide over {ranks} ranks" if experts % ranks else ""
        if not isinstance(self.copies, Copies):
            return (
                f"placement is of type {type(self.copies).__name__}: expected Copies, or a "
                f"Placement of one layer"
            )
        self.copies.check()
        placed = self.copies.placement
        if (placed.nodes, placed.gpus) != (fabric.nodes, fabric.gpus):
            return (
                f"a placement for {placed.nodes} nodes x {placed.gpus} GPUs, the fabric has "
                f"{fabric.nodes} x {fabric.gpus}"
            )
        if placed.experts != experts:
            return f"a placement of {placed.experts} experts, the layer has {experts}"
        return ""

    def __str__(self) -> str:
        return f"{self.experts} experts{'' if self.copies is None else ', placed'}"

    def table(self, fabric: Fabric, rank: int) -> SlotTable:
        """As a source rank uses them."""
        if self.copies is not None:
            return SlotTable(self.copies, rank)
        return SlotTable(
            Copies(Placement.contiguous(1, self.experts, fabric.nodes, fabric.gpus)), rank
        )


def same_copies(group: Any, copies: Copies) -> None:
    """Raise on every rank for which expert the copies of two differ."""
    marks = gathered(group, np.array([mark(copies.digest)]))
    if (marks == marks[0]).all():
        return
    numbers = [mark(copies.words(expert)) for expert in range(copies.placement.experts)]
    every = gathered(group, np.array(numbers))
    rank, expert = np.argwhere(every != every[0])[0].tolist()
    words = texts(group, copies.words(expert))
    raise InputError(
        f"rank {rank} has {words[rank]}, rank 0 {words[0]}: expected the same placement everywhere"
    )


class SlotTable:
    """The slots of all ranks as one source rank uses them.

    slots     of the fullest rank
    held      experts of this rank, ascending: its slots
    """

    def __init__(self, copies: Copies, rank: int) -> None:
        holds = copies.placement.holds[copies.layer]
        self.rank, self.experts = rank, holds.shape[1]
        self.slots = int(holds.sum(axis=1).max())
        self.held: list[int] = np.flatnonzero(holds[rank]).tolist()
        weights = copies.weights(rank)
        slot = (np.cumsum(holds, axis=1) - 1 + np.arange(len(holds))[:, None] * self.slots).T
        most = int((weights > 0).sum(axis=1).max())
        order = np.argsort(weights == 0, axis=1, kind="stable")[:, :most]  # GPUs that are used
        self.weights = np.take_along_axis(weights, order, axis=1)
        self.slot = np.take_along_axis(slot, order, axis=1)
        self._number = (self.weights > 0).sum(axis=1)
        turn = np.arange(most)[None, :] + rank + np.arange(self.experts)[:, None]
        self.turn = turn % np.maximum(self._number, 1)[:, None]

    def quotas(self, counts: Ints) -> Ints:
        """int64 [expert, copy]: how many of the rank's `counts` [expert] go to each copy; what is
        left over goes to copies that differ from source to source.
        """
        whole = np.maximum(self.weights.sum(axis=1), 1)
        share = counts[:, None] * self.weights // whole[:, None]
        rest = counts - share.sum(axis=1)
        return share + ((self.weights > 0) & (self.turn < rest[:, None]))

    def chosen(self, idx: Any) -> Any:
        """[T, K] slot numbers of the choices `idx` [T, K], -1 where that is -1: an expert's tokens,
        in order, first to its first copy.
        """
        flat = idx.reshape(-1).long()
        counts = torch.bincount(flat[flat >= 0], minlength=self.experts).cpu().numpy()
        slots = np.repeat(self.slot.reshape(-1), self.quotas(counts).reshape(-1))
        order = torch.argsort(torch.where(flat < 0, self.experts, flat), stable=True)
        found = torch.full_like(flat, -1)
        found[order[: len(slots)]] = torch.from_numpy(slots).to(flat.device)
        return found.view(idx.shape)
