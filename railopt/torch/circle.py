"""Rounds in which each node decides alone: counts inside the node, sizes inside the rail group and
the node.  Nothing is of size R x R.

    1  node    [R] counts of each of its GPUs
    2  rail    what this node sends there: [rails + G * G] rows
    3  node    what a GPU passes on to each other: [R] rows; not where rows only reach nodes

An error of one rank is an error of all without a round more.  A head goes with rounds 1 and 2:
what the rank calls, with which rows.  After 1 a rank knows whether its node is at one; after 2 it
has the heads of all nodes, the same ones everywhere; if they differ, all gather what is wrong.

Splits that don't fit (one rank sends what another does not expect) show in a sum: each rank adds up
what it sends to and expects from every other, times a random number of that pair, the one with a
minus.  Over all ranks the sum is 0 modulo 2**64 if all fit, and else but once in about 2**50.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from railopt.base.arrays import Array, Ints
from railopt.base.errors import InputError
from railopt.torch.agree import (
    COUNTS,
    NOTHING,
    SENDS,
    SPLITS,
    Offer,
    raise_unlike,
    raise_unlike_counts,
    raise_unlike_splits,
)
from railopt.torch.groups import Groups
from railopt.torch.routes import Route, Router
from railopt.torch.talk import digest_number, exchanged, gathered

__all__ = ["Circle"]

# numbers of a head: those of `Offer.head`, what else is the same everywhere, what adds up to 0
HEAD, SAME, SUM = 6, slice(1, 5), 5


class Circle:
    """The rounds of one rank.

    groups    its node's, its rail's, all ranks
    limit_s   seconds that a round is waited for; None: as the groups do
    trusts    nothing is compared
    """

    def __init__(
        self, groups: Groups, router: Router, limit_s: float | None, *, trusts: bool
    ) -> None:
        self._groups, self._router, self._limit_s, self._trusts = groups, router, limit_s, trusts
        rank = router.rank
        every = np.arange(router.fabric.nodes * router.fabric.gpus, dtype=np.uint64)
        ranks = np.uint64(len(every))
        self._out = mixed(np.uint64(rank) * ranks + every).view(np.int64)
        self._in = mixed(every * ranks + np.uint64(rank)).view(np.int64)

    def route(self, offer: Offer, *, to_nodes: bool = False) -> Route:
        """The route of what every rank offers; see `Router.route`."""
        call = SPLITS if offer.recv is not None else SENDS
        head, rows = self._in_node(offer, call)
        told = None
        if not head[0]:
            try:
                told = self._router.decide(np.ascontiguousarray(rows))
            except InputError as error:
                if self._trusts:
                    raise
                offer, head[0] = offer._replace(problem=str(error)), 1
        heads, told = self._in_rail(head, told)
        self._compare(heads, offer, call)
        passed = self._router.hear(told)
        if to_nodes:
            return self._router.finish(None)
        return self._router.finish(exchanged(self._groups.node, passed, self._limit_s))

    def confirm(self, offer: Offer, counts: Ints | None = None) -> None:
        """Raise on every rank what is wrong at any, that rows of two differ, or that two were
        handed different `counts` [R, R].
        """
        if self._trusts:
            return
        call = NOTHING if counts is None else COUNTS
        known = 0 if counts is None else digest_number(counts.tobytes())
        head, _ = self._in_node(offer._replace(send=offer.send[:0]), call, known)
        heads, _ = self._in_rail(head, None)
        self._compare(heads, offer, call, counts)

    def _in_node(self, offer: Offer, call: int, known: int = 0) -> tuple[Ints, Array]:
        """The head of this node, and the counts [G, R] of its GPUs."""
        message = np.zeros(HEAD + len(self._out), np.int64)
        message[:HEAD] = [*offer.head(call), known, 0]
        if len(offer.send) and not offer.problem:
            message[HEAD:] = offer.send
            if offer.recv is not None:
                message[SUM] = self._weighed(message[HEAD:], offer.recv)
        every = gathered(self._groups.node, message, self._limit_s)
        heads, head = every[:, :HEAD], message[:HEAD].copy()
        head[0] = heads[:, 0].any() or (heads[:, SAME] != head[SAME]).any()
        head[SUM] = heads[:, SUM].sum()
        return head, every[:, HEAD:]

    def _in_rail(self, head: Ints, told: Ints | None) -> tuple[Ints, Ints]:
        """The heads of all nodes, and what each has for this rank: [nodes, rails + G * G]."""
        fabric = self._router.fabric
        message = np.zeros((fabric.nodes, HEAD + fabric.rails + fabric.gpus**2), np.int64)
        message[:, :HEAD] = head
        if told is not None:
            message[:, HEAD:] = told
        every = exchanged(self._groups.rail, message, self._limit_s)
        return every[:, :HEAD], every[:, HEAD:]

    def _compare(self, heads: Ints, offer: Offer, call: int, counts: Ints | None = None) -> None:
        """Raise what is wrong at any node, or how two differ."""
        if self._trusts:
            return
        if heads[:, 0].any() or (heads[:, SAME] != heads[0, SAME]).any():
            raise_unlike(self._groups.all, offer, call)
            if counts is not None:
                raise_unlike_counts(self._groups.all, counts)
        elif heads[:, SUM].sum() != 0:
            raise_unlike_splits(self._groups.all, offer)

    def _weighed(self, send: Ints, recv: Ints) -> Any:
        """What the rank sends minus what it expects, each times its pair's number, as int64."""
        return (send * self._out - recv * self._in).sum()


def mixed(number: Array) -> Array:
    """uint64: splitmix64 of each; odd, so that no power of 2 is lost in a product."""
    number = (number + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (number ^ (number >> np.uint64(31))) | np.uint64(1)
