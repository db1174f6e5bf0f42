"""Tokens: what a dispatcher has to send, by source GPU, destination node and the GPUs there that
need it.

A token of GPU g whose experts lie on several GPUs goes to every other node that has one of them:

    "node"   once per node, with the set of GPUs there that need it (de-duplicated)
    "gpu"    once per GPU that needs it
    None     once per expert

Tokens of one source, node and set are alike, so a row counts them; `chunks` cuts rows at whole
tokens into units.

The combine sends the same tokens back.  Each GPU of the set moves its partial sum, `token_bytes` of
the output's type, to the GPU at the NIC, which adds them up.  One sum crosses the rail, and moves
on to the token's GPU where that one is not near the NIC.  A combine is therefore planned as the
dispatch `way_back` on the fabric `turned`, on which NICs send at the rate at which they receive.
Its NIC time and its scale-up time are those of the plan.  Bytes that the plan calls staged are
passed on, and those that it calls passed on are staged, from the second GPU of a pair to the first.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import (
    MAX_TOTAL,
    Array,
    Bools,
    Digested,
    Int32s,
    Ints,
    check_range,
    digest,
    frozen,
    whole_number,
)
from railopt.base.errors import InputError
from railopt.base.units import format_bytes, parse_bytes, quoted
from railopt.model.chunks import Chunks
from railopt.model.fabric import MAX_GPUS, MAX_NODES, Fabric

DEDUP = (None, "gpu", "node")
_BITS = 62  # of a word of targets, and of a key


@dataclass(frozen=True, eq=False)
class Tokens(Digested):
    """Tokens between `nodes` nodes of `gpus` GPUs each, one row per source GPU, node and
    set of GPUs.

    token_bytes   bytes of one token
    src_gpu       int32 [rows], GPU ids (node * gpus + local index)
    dst           int32 [rows], node indices, never the source's own
    number        int64 [rows], how many tokens there are of this kind
    targets       bool [rows, gpus]: the GPUs of node dst that need them
    """

    nodes: int
    gpus: int
    token_bytes: int
    src_gpu: Int32s = field(repr=False)
    dst: Int32s = field(repr=False)
    number: Ints = field(repr=False)
    targets: Bools = field(repr=False)

    def __post_init__(self) -> None:
        for name, most in (("nodes", MAX_NODES), ("gpus", MAX_GPUS), ("token_bytes", MAX_TOTAL)):
            object.__setattr__(self, name, whole_number(getattr(self, name), name, 1, most))
        object.__setattr__(self, "number", frozen(self.number, np.int64, "number", 1))
        most = int(self.number.max(initial=0))
        if self.number.min(initial=1) < 1 or most * self.token_bytes >= MAX_TOTAL:
            raise InputError(
                f"{self.number.min()} to {most} tokens of {self.token_bytes} bytes per row: "
                f"expected at least 1 token and less than 2**62 bytes"
            )
        whole = self.chunks("flow")  # which checks the rest
        for name in ("src_gpu", "dst", "targets"):
            object.__setattr__(self, name, getattr(whole, name))

    def __len__(self) -> int:
        return len(self.number)

    def chunks(self, cap: str | int) -> Chunks:
        """Units of at most `cap` ("256KiB", or bytes), each of whole tokens; "flow" keeps each row
        whole.
        """
        most = None
        if cap != "flow":
            most = parse_bytes(cap) // self.token_bytes * self.token_bytes
            if not most:
                raise InputError(
                    f"chunks of at most {quoted(cap)}: smaller than a token of "
                    f"{format_bytes(self.token_bytes)}, which is not cut; use larger chunks"
                )
        return Chunks.from_units(
            Fabric.uniform(self.nodes, 1, gpus=self.gpus),
            src_gpu=self.src_gpu,
            dst=self.dst,
            size=self.number * self.token_bytes,
            targets=self.targets,
            cap=most,
        )

    def way_back(self, token_bytes: int) -> Tokens:
        """The combine of these tokens, for a plan on the fabric `turned`; bytes of an output."""
        return replace(self, token_bytes=token_bytes)

    @classmethod
    def from_targets(
        cls,
        fabric: Fabric,
        source: npt.ArrayLike,
        target: npt.ArrayLike,
        *,
        token_bytes: int,
        dedup: str | None = "node",
    ) -> Tokens:
        """The tokens, from the GPU of each, [tokens], and the GPUs of its experts, [tokens, top_k],
        by id; those in the token's own node touch no rail and are left out.

        dedup  "node": a token goes once to a node; "gpu": once to a GPU; None: once for each expert
        """
        if dedup not in DEDUP:
            raise InputError(
                f"unknown de-duplication {quoted(dedup)}: expected None, 'gpu' or 'node'"
            )
        own, needs = frozen(source, np.int32, "source", 1), frozen(target, np.int32, "target", 2)
        everywhere = fabric.nodes * fabric.gpus
        if len(own) != len(needs):
            raise InputError(f"{len(own)} sources for {len(needs)} tokens: expected one per token")
        for name, gpu in (("source", own), ("target", needs)):
            check_range(gpu, name, everywhere)
        pair, sets = _sent(fabric, own, needs, dedup)
        pair, sets, number = _distinct(pair, sets, fabric)
        src_gpu, dst = np.divmod(pair, fabric.nodes)
        bits = [sets[gpu // _BITS] >> (gpu % _BITS) & 1 for gpu in range(fabric.gpus)]
        targets = np.stack(bits, axis=1).astype(np.bool_)
        return cls(fabric.nodes, fabric.gpus, token_bytes, src_gpu, dst, number, targets)

    @classmethod
    def joined(cls, parts: list[Tokens]) -> Tokens:
        """The rows of several, which are of one fabric and token size, after each other."""
        first = parts[0]
        columns = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in ("src_gpu", "dst", "number", "targets")
        }
        return cls(first.nodes, first.gpus, first.token_bytes, **columns)

    @cached_property
    def digest(self) -> str:
        """The digest of every row, in order."""
        header = {"nodes": self.nodes, "gpus": self.gpus, "token_bytes": self.token_bytes}
        columns: dict[str, Array] = {
            "src_gpu": self.src_gpu,
            "dst": self.dst,
            "number": self.number,
            "targets": np.packbits(self.targets, axis=1),
        }
        return digest(header, columns)


def turned(fabric: Fabric) -> Fabric:
    """The fabric on which a combine is planned: its NICs send at the rate at which they receive."""
    return replace(fabric, tx=fabric.rx, rx=fabric.tx)


def _sent(
    fabric: Fabric, source: Int32s, target: Int32s, dedup: str | None
) -> tuple[Ints, list[Ints]]:
    """What is sent, token by token: (source GPU * nodes + node, int64 [sent]; the set of GPUs there
    as bits, a list of int64 [sent], _BITS GPUs per word).
    """
    target = np.sort(target, axis=1)
    node = target // fabric.gpus
    away = node != (source // fabric.gpus)[:, None]
    begins = away.copy()
    if dedup is not None:
        seen = node if dedup == "node" else target
        begins[:, 1:] &= seen[:, 1:] != seen[:, :-1]
    first = np.flatnonzero(begins[away])
    pair = (source.astype(np.int64)[:, None] * fabric.nodes + node)[begins]
    word, bit = np.divmod(target[away] % fabric.gpus, _BITS)
    bits = np.left_shift(np.int64(1), bit.astype(np.int64))
    words = range(-(-fabric.gpus // _BITS))
    if not len(first):
        return pair, [np.zeros(0, np.int64) for _ in words]
    return pair, [np.bitwise_or.reduceat(np.where(word == w, bits, 0), first) for w in words]


def _distinct(pair: Ints, sets: list[Ints], fabric: Fabric) -> tuple[Ints, list[Ints], Ints]:
    """The same without repetition, in order, and how often each was there."""
    if (fabric.nodes**2 * fabric.gpus).bit_length() + fabric.gpus <= _BITS:  # both fit into a key
        key, number = np.unique(pair << fabric.gpus | sets[0], return_counts=True)
        return key >> fabric.gpus, [key & ((1 << fabric.gpus) - 1)], number
    order = np.lexsort((*sets, pair))
    columns = [column[order] for column in (pair, *sets)]
    new = np.ones(len(pair), np.bool_)
    if len(pair):
        new[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    first = np.flatnonzero(new)
    number = np.diff(np.append(first, len(pair)))
    return columns[0][first], [column[first] for column in columns[1:]], number
