"""How long one MoE layer takes: Pro-Prophet's performance model (arXiv 2411.10003, eq. 6 and 8) on
nodes and rails.

    T = 4 A2A + 3 FEC + Trans + Agg                                               (eq. 6)
    T = 4 A2A + 3 FEC + max(0, Trans - FEC - FNEC) + max(0, Agg - 2 FEC - BNEC)   (eq. 8)

one after the other (eq. 6), or overlapped (eq. 8).

A2A    all-to-all: the busiest of every node's tokens in, tokens out, and every GPU's tokens from
       its node-mates
FEC    expert compute, forward: the busiest GPU;  backward takes twice as long
Trans  parameters of the copies to their GPUs;  Agg  their gradients back home
FNEC, BNEC  the layer's other compute, forward and backward

Two differences from the paper.  Tokens out count as well as tokens in, because the combine sends
them back.  Where nodes are modelled an expert enters each node that needs it once and leaves its
home's node once, as in a pipelined broadcast.

Times are integer picoseconds, so that a comparison of two placements is exact.  A token counts once
for each of its experts.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Ints, frozen, total
from railopt.base.errors import InputError
from railopt.base.units import PS_PER_S, parse_rate, quoted
from railopt.model.fabric import Fabric

MAX_PS = 1 << 56  # a time of one thing: 20 hours
MAX_SUM_PS = 1 << 59  # any sum of times in one term: 6 days, so that 4 A2A + 3 FEC fits int64


class Terms(NamedTuple):
    """The terms of one layer's time, picoseconds; `total` is eq. 6 or 8, `copies` the expert copies
    that have to be sent, which after a placement before are the new ones.  `trans` and `agg` are
    theirs alone: gradients of copies that stay are not counted.
    """

    a2a: int
    fec: int
    trans: int
    agg: int
    total: int
    copies: int


@dataclass(frozen=True, eq=False)
class TimeModel:
    """Picoseconds per token and per copy on `nodes` nodes of `gpus` GPUs.

    node_ps      int64 [nodes]: a token in or out of the node, over all its NICs
    up_ps        a token that a GPU receives from a node-mate, over scale-up
    token_ps     forward compute of one token in one expert
    copy_ps      int64 [nodes]: one expert's parameters in or out of the node
    copy_up_ps   the same over scale-up
    copy_mean_ps added for every copy: the paper's s (D - n) size / (D B); zero where nodes and
    rails are modelled
    grad_ratio   gradient bytes over parameter bytes, as (numerator, denominator)
    fnec_ps      other compute of the layer, forward; backward takes twice as long
    overlap      eq. 8 instead of eq. 6
    steps        iterations that copies, other compute and counts are summed over
    """

    nodes: int
    gpus: int
    node_ps: Ints = field(repr=False)
    up_ps: int
    token_ps: int
    copy_ps: Ints = field(repr=False)
    copy_up_ps: int
    copy_mean_ps: int = 0
    grad_ratio: tuple[int, int] = (1, 1)
    fnec_ps: int = 0
    overlap: bool = True
    steps: int = 1

    def __post_init__(self) -> None:
        for name in ("node_ps", "copy_ps"):
            rates = frozen(getattr(self, name), np.int64, name, 1)
            if len(rates) != self.nodes or rates.min() < 0:
                raise InputError(
                    f"{name} = {rates.tolist()}: expected {self.nodes} times of at least 0 ps, "
                    f"one per node"
                )
            object.__setattr__(self, name, rates)
            if rates.max() > MAX_PS:
                raise InputError(f"{name} has {rates.max()} ps: at most {MAX_PS} are possible")
        for name in ("up_ps", "token_ps", "copy_up_ps", "copy_mean_ps", "fnec_ps"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} = {getattr(self, name)}: a time can't be negative")
            if getattr(self, name) > MAX_PS:
                raise InputError(
                    f"{name} = {quoted(getattr(self, name))}: at most {MAX_PS} ps are possible"
                )

    @property
    def bnec_ps(self) -> int:
        """Other compute of the layer, backward."""
        return 2 * self.fnec_ps

    @property
    def devices(self) -> int:
        """GPUs in all."""
        return self.nodes * self.gpus

    @classmethod
    def flat(
        cls,
        devices: int,
        *,
        bandwidth: str | int,
        token_bytes: int,
        expert_bytes: int,
        tokens_per_s: float,
        fnec_ps: int = 0,
        overlap: bool = True,
    ) -> TimeModel:
        """The paper's own model: one mean bandwidth a device and direction, devices alike, no
        nodes.
        """
        rate = parse_rate(bandwidth)
        zero = np.zeros(devices, np.int64)
        return cls(
            devices,
            1,
            zero + _ps(token_bytes, rate),
            0,
            _token_ps(tokens_per_s),
            zero,
            0,
            _ps(expert_bytes, rate * devices),
            fnec_ps=fnec_ps,
            overlap=overlap,
        )

    @classmethod
    def rails(
        cls,
        fabric: Fabric,
        *,
        token_bytes: int,
        expert_bytes: int,
        tokens_per_s: float,
        fnec_ps: int = 0,
        overlap: bool = True,
    ) -> TimeModel:
        """Nodes that use all their NICs evenly (L / (N R2), what good rail policies reach) and
        scale-up inside.
        """
        pool = np.minimum(fabric.tx.sum(axis=1), fabric.rx.sum(axis=1))
        if pool.min() == 0 and fabric.nodes > 1:
            raise InputError(
                f"node {int(pool.argmin())} has no NIC that is alive: its experts can't be reached"
            )
        node = [_ps(token_bytes, int(r)) if r else 0 for r in pool]
        copy = [_ps(expert_bytes, int(r)) if r else 0 for r in pool]
        return cls(
            fabric.nodes,
            fabric.gpus,
            np.array(node, np.int64),
            _ps(token_bytes, fabric.scaleup),
            _token_ps(tokens_per_s),
            np.array(copy, np.int64),
            _ps(expert_bytes, fabric.scaleup),
            fnec_ps=fnec_ps,
            overlap=overlap,
        )

    def weighing_moves(self, weight: float) -> TimeModel:
        """A copy in which every transfer of parameters costs `weight` times as much, e.g. 0.01
        where a copy serves 100 iterations.
        """
        if not 0 <= weight < inf:
            raise InputError(f"a weight of {weight} on moves: expected at least 0, and finite")
        most = max(int(self.copy_ps.max()), self.copy_up_ps, self.copy_mean_ps)
        if most * weight > MAX_PS:
            raise InputError(
                f"a weight of {weight:g} on moves: a copy would take {most * weight:g} ps, at most "
                f"{MAX_PS} are possible"
            )
        copy = np.rint(self.copy_ps * weight).astype(np.int64)
        return replace(
            self,
            copy_ps=copy,
            copy_up_ps=round(self.copy_up_ps * weight),
            copy_mean_ps=round(self.copy_mean_ps * weight),
        )

    def over(self, steps: int, *, serving: bool = False) -> TimeModel:
        """The model of `steps` iterations together, for counts that are summed over them: copies
        and other compute come again in each; but `serving`, a copy is sent once and has no
        gradients.
        """
        sent = 1 if serving else steps
        if max(self._longest[1] * sent, self.bnec_ps * steps) > MAX_PS:
            raise InputError(
                f"a copy of {self._longest[1]} ps, other compute of {self.bnec_ps} ps: a plan over "
                f"several iterations takes at most {MAX_PS // steps} ps of each"
            )
        return replace(
            self,
            copy_ps=self.copy_ps * sent,
            copy_up_ps=self.copy_up_ps * sent,
            copy_mean_ps=self.copy_mean_ps * sent,
            fnec_ps=self.fnec_ps * steps,
            grad_ratio=(0, 1) if serving else self.grad_ratio,
            steps=steps,
        )

    @cached_property
    def vectors(self) -> tuple[Ints, tuple[int, ...]]:
        """What the kernels read: int64 [2, nodes] (node_ps, copy_ps), and the scalars."""
        scalars = (
            self.up_ps,
            self.token_ps,
            self.copy_up_ps,
            self.copy_mean_ps,
            *self.grad_ratio,
            self.fnec_ps,
            self.bnec_ps,
            int(self.overlap),
            self.gpus,
            self.nodes,
        )
        return np.stack([self.node_ps, self.copy_ps]), scalars

    def counts(self, counts: npt.ArrayLike) -> Ints:
        """Tokens int64 [source GPU, expert], checked against this model's GPUs."""
        tokens = frozen(counts, np.int64, "counts", 2)
        if tokens.shape[0] != self.devices or tokens.shape[1] < 1:
            raise InputError(
                f"counts of {tokens.shape[0]} source ranks and {tokens.shape[1]} experts; the "
                f"model has "
                f"{self.nodes} nodes x {self.gpus} GPUs = {self.devices}, one rank a GPU"
            )
        most = int(tokens.view(np.uint64).max())  # a negative one is above 2**63
        token_ps, copy_ps = self._longest
        if (most * token_ps + copy_ps) * tokens.size > MAX_SUM_PS:
            self._check_sums(tokens)
        return tokens

    @cached_property
    def _longest(self) -> tuple[int, int]:
        """Picoseconds that one token, and one copy, can take anywhere."""
        token = max(int(self.node_ps.max()), self.up_ps, self.token_ps)
        return token, max(int(self.copy_ps.max()), self.copy_up_ps) + self.copy_mean_ps

    def _check_sums(self, tokens: Ints) -> None:
        """Refuse counts whose times may not fit the kernels' int64."""
        if tokens.min() < 0:
            raise InputError(f"counts hold {int(tokens.min())}: a count can't be negative")
        token_ps, copy_ps = self._longest
        most = total(tokens) * token_ps + tokens.size * copy_ps
        if most > MAX_SUM_PS:
            raise InputError(
                f"{total(tokens) // self.steps} tokens per iteration of up to {token_ps} ps, and "
                f"{tokens.size} copies: more than {MAX_SUM_PS // self.steps} ps, which is all that "
                "is computed with"
            )


def _token_ps(tokens_per_s: float) -> int:
    """Picoseconds of one token, to the nearest."""
    if not 0 < tokens_per_s < inf:
        raise InputError(f"{tokens_per_s} tokens per second: expected more than 0, and finite")
    return round(PS_PER_S / tokens_per_s)


def _ps(size: int, rate: int) -> int:
    """Picoseconds for `size` bytes at `rate` bytes per second, to the nearest, at least 1."""
    if size < 1:
        raise InputError(f"{size} bytes: expected at least 1")
    return max(1, (2 * size * PS_PER_S + rate) // (2 * rate))
