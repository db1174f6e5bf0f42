"""Rounds in which each node decides alone: counts inside the node, sizes inside the rail group.
Nothing is of size R x R.

    1  node    [R] counts of each of its GPUs
    2  rail    what this node sends there: [rails + 2 * G * G] rows

All GPUs of a node make the same plan, so each can tell the same GPU of another node both what that
has to pass on and what it gets.

An error of one rank is an error of all.  What a rank calls, with which rows, all have compared
before (`railopt.torch.agree`).  A plan that fails fails at all GPUs of its node, which say so in
round 2.  Splits that don't fit (one rank sends what another does not expect) show in a sum: each
rank adds up what it sends to and expects from every other, times a random number of that pair, the
one with a minus.  Over all ranks the sum is 0 modulo 2**64 if all fit, and else but once in about
2**50.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from railopt.base.arrays import Array
from railopt.base.errors import InputError
from railopt.torch.agree import Offer, raise_any, raise_unlike_splits
from railopt.torch.groups import Groups
from railopt.torch.routes import Route, Router
from railopt.torch.talk import exchanged, gathered

HEAD = 2  # numbers before those of `Router.decide`: whether the plan failed, what adds up to 0


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
        message = np.append(offer.send, self._weighed(offer))
        every = gathered(self._groups.node, message, self._limit_s)
        fabric, problem = self._router.fabric, ""
        message = np.zeros((fabric.nodes, HEAD + fabric.rails + 2 * fabric.gpus**2), np.int64)
        message[:, 1] = every[:, -1].sum()
        try:
            message[:, HEAD:] = self._router.decide(np.ascontiguousarray(every[:, :-1]))
        except InputError as error:
            if self._trusts:
                raise
            problem, message[:, 0] = str(error), 1
        every = exchanged(self._groups.rail, message, self._limit_s)
        if not self._trusts and every[:, 0].any():
            raise_any(self._groups.all, problem)
        if not self._trusts and every[:, 1].sum() != 0:
            raise_unlike_splits(self._groups.all, offer)
        return self._router.finish(every[:, HEAD:], to_nodes=to_nodes)

    def _weighed(self, offer: Offer) -> Any:
        """What the rank sends minus what it expects, each times its pair's number, as int64; 0
        where it does not know what to expect.
        """
        if offer.recv is None:
            return 0
        return (offer.send * self._out - offer.recv * self._in).sum()


def mixed(number: Array) -> Array:
    """uint64: splitmix64 of each; odd, so that no power of 2 is lost in a product."""
    number = (number + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    number = (number ^ (number >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    number = (number ^ (number >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (number ^ (number >> np.uint64(31))) | np.uint64(1)
