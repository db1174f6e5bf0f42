"""Longest processing time first, with three horizons.

    lpt          RailS: each sender alone, largest chunk first to its least loaded rail
    lpt-local    still alone, but each sender also spreads what it sends to every single receiver
    lpt-global   with the whole matrix known: the rail that minimises the later of sender and
                 receiver

`lpt` balances what is sent and nothing else: the receivers' rails may differ by a factor N (theorem
T2). `lpt-local` needs no more information than `lpt` and keeps most of the receivers' balance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.chunks import Chunks
from railopt.fabric import Fabric
from railopt.plans import Plan
from railopt.policies.common import check_alive, costs, make_plan, rail_turns

PAIR_WEIGHT = (
    4  # the best of 1, 2, 4 and 8 on generated MoE traffic (8 to 32 nodes, 64 KiB to 4 MiB)
)


def lpt(fabric: Fabric, chunks: Chunks, *, seed: int | None = None) -> Plan:
    """Each sender alone.  Equal sizes go by chunk index and equal loads by rail index, or, with a
    seed, in random order.
    """
    from railopt.policies import equal_rails, kernels

    check_alive(fabric, chunks)
    rail = np.empty(len(chunks), np.int16)
    shuffle = None if seed is None else np.random.default_rng(seed).permutation(len(chunks))
    size, src, dst = (
        column if shuffle is None else column[shuffle]
        for column in (chunks.size, chunks.src, chunks.dst)
    )
    if rails_equal(fabric) and equal_rails.fits(
        len(chunks), chunks.total, chunks.largest, fabric.nodes, fabric.rails
    ):
        equal_rails.lpt(src, size, chunks.largest, fabric.nodes, fabric.rails, rail)
    else:
        kernels.lpt_unequal(_words(size), src, dst, size, *costs(fabric), rail)
    if shuffle is not None:
        labels = np.stack(
            [
                np.random.default_rng([seed or 0, k]).permutation(fabric.rails)
                for k in range(fabric.nodes)
            ]
        )
        shuffled, rail = rail, np.empty_like(rail)
        rail[shuffle] = labels[src, shuffled] if fabric.is_uniform else shuffled
    return make_plan(fabric, chunks, rail, "lpt")


def lpt_local(fabric: Fabric, chunks: Chunks, *, seed: int = 0) -> Plan:
    """Each sender alone, and each receiver's share spread over the rails too.

    Whole rounds of largest chunks for a receiver go one to each rail; the rest, largest first, to
    the rail with the fewest bytes, those for the same receiver counted `PAIR_WEIGHT` times more.
    """
    from railopt.policies import equal_rails, kernels

    check_alive(fabric, chunks)
    rail = np.empty(len(chunks), np.int16)
    turns, rows = rail_turns(fabric), np.arange(len(chunks))
    if turns is not None and len(chunks):
        rows = kernels.unfinished(
            *kernels.rounds(
                chunks.src,
                chunks.dst,
                chunks.size,
                chunks.largest,
                fabric.nodes,
                fabric.nodes,
                turns,
                rail,
            )
        )
    if (
        len(rows)
        and fabric.is_uniform
        and equal_rails.fits_pairs(
            len(chunks), chunks.total, chunks.largest, fabric.nodes, fabric.rails, PAIR_WEIGHT
        )
    ):
        equal_rails.lpt_local(
            rows,
            chunks.src,
            chunks.dst,
            chunks.size,
            fabric.nodes,
            fabric.nodes,
            fabric.rails,
            0,
            PAIR_WEIGHT,
            rail,
        )
    else:
        kernels.lpt_local_unequal(
            _words(chunks.size[rows]),
            rows,
            chunks.src,
            chunks.dst,
            chunks.size,
            *costs(fabric),
            0,
            PAIR_WEIGHT,
            rail,
        )
    return make_plan(fabric, chunks, rail, "lpt-local")


def lpt_global(fabric: Fabric, chunks: Chunks, *, seed: int = 0) -> Plan:
    """All chunks of all senders, largest first, each to the rail that is done first at both
    ends.
    """
    from railopt.policies import equal_rails, kernels

    check_alive(fabric, chunks)
    rail = np.empty(len(chunks), np.int16)
    if (
        len(chunks)
        and fabric.is_uniform
        and equal_rails.fits_pairs(
            len(chunks), chunks.total, chunks.largest, fabric.nodes, fabric.rails
        )
    ):
        equal_rails.lpt_global(
            chunks.src, chunks.dst, chunks.size, chunks.largest, fabric.nodes, fabric.rails, rail
        )
    else:
        kernels.lpt_global_unequal(
            _words(chunks.size), chunks.src, chunks.dst, chunks.size, *costs(fabric), rail
        )
    return make_plan(fabric, chunks, rail, "lpt-global")


def rails_equal(fabric: Fabric) -> bool:
    """Every sender's NICs alike, and no receiver's NIC slower than any sender's."""
    return bool(np.all(fabric.tx == fabric.tx[:, :1]) and 0 < fabric.tx.max() <= fabric.rx.min())


def _words(size: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Chunk indices in the lower 32 bits of each word: by size, largest first, equal sizes by
    index.
    """
    from railopt.policies import kernels

    if not len(size):
        return np.empty(0, np.int64)
    return kernels.descending(size) if int(size.max()) < 2**31 else np.argsort(-size, kind="stable")
