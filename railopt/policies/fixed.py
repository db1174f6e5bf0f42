"""Policies that look at a chunk alone: whose it is, or a hash, or a die.

    own-nic       the rail of the source GPU: what a plain NIC-per-GPU library does
    pxn           the rail of the target GPU: what NCCL's PXN does
    hash          one rail per flow, by a hash of its GPUs: ECMP over rails
    random        one rail per chunk, at random: spraying
    round-robin   per (sender, receiver), chunk by chunk from rail 0
    rotate        the same from rail (src + dst) mod N

A dead rail is replaced by the next living one, of the GPU's own NICs first; `hash` and `random`
choose a rail in proportion to its rate.
"""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Array, Ints, Rails, by_key, whole_number
from railopt.base.dice import Dice, mixed
from railopt.base.errors import InputError
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies import rounds
from railopt.policies.common import check_alive, costs

__all__ = ["hashed", "own_nic", "own_rails", "pxn", "random", "rotate", "round_robin"]


def own_nic(fabric: Fabric, chunks: Chunks) -> Plan:
    """The rail of the source GPU; one that is near several NICs takes them in turn."""
    return Plan.of(fabric, chunks, _of_gpu(fabric, chunks, chunks.src_gpu), "own-nic")


def pxn(fabric: Fabric, chunks: Chunks) -> Plan:
    """The rail of the target GPU: the source node forwards over scale-up first."""
    return Plan.of(fabric, chunks, _of_gpu(fabric, chunks, chunks.dst_gpu), "pxn")


def hashed(fabric: Fabric, chunks: Chunks, *, seed: int = 0) -> Plan:
    """One rail per flow, by a 64-bit hash of (source GPU, target GPU, seed)."""
    seed = whole_number(seed, "seed", 0, (1 << 64) - 1)
    key = (chunks.src_gpu.astype(np.uint64) << np.uint64(32)) | chunks.dst_gpu.astype(np.uint64)
    if chunks.gpus == 1:  # synthetic chunks: every chunk is a flow of its own
        key = (key << np.uint64(20)) ^ chunks.flow.astype(np.uint64)
    draws = mixed(key + np.uint64((0x9E3779B97F4A7C15 * (2 * seed + 1)) % 2**64))
    return Plan.of(fabric, chunks, _weighted(fabric, chunks, draws), "hash")


def random(fabric: Fabric, chunks: Chunks, *, seed: int = 0) -> Plan:
    """Every chunk to a random rail."""
    draws = Dice(seed, "random").words(len(chunks))
    return Plan.of(fabric, chunks, _weighted(fabric, chunks, draws), "random")


def round_robin(fabric: Fabric, chunks: Chunks) -> Plan:
    """The chunks of each (sender, receiver) in turn, from rail 0."""
    return _in_turn(fabric, chunks, False, "round-robin")


def rotate(fabric: Fabric, chunks: Chunks) -> Plan:
    """The chunks of each (sender, receiver) in turn, from rail (src + dst) mod N."""
    return _in_turn(fabric, chunks, True, "rotate")


def _in_turn(fabric: Fabric, chunks: Chunks, turned: bool, name: str) -> Plan:
    check_alive(fabric, chunks)
    rail = np.empty(len(chunks), np.int16)
    rounds.round_robin(chunks.src, chunks.dst, costs(fabric), turned, rail)
    return Plan.of(fabric, chunks, rail, name)


def _of_gpu(fabric: Fabric, chunks: Chunks, gpu: npt.NDArray[np.int32]) -> Ints:
    check_alive(fabric, chunks)
    if chunks.gpus != fabric.gpus:
        raise InputError(
            "own-nic and pxn need to know the GPUs of each chunk: cut them from a Traffic, not "
            "from_arrays"
        )
    near = fabric.node.near
    counts = near.sum(axis=1)
    owned = np.argsort(~near, axis=1, kind="stable")  # a GPU's own rails come first, in order
    local = gpu.astype(np.int64) % fabric.gpus
    turn = _turns(chunks, gpu) if counts.max() > 1 else np.zeros(len(chunks), np.int64)
    rail = owned[local, turn % counts[local]]
    for step in range(1, int(counts.max())):
        dead = np.flatnonzero(_dead(fabric, chunks.src, chunks.dst, rail))
        rail[dead] = owned[local[dead], (turn[dead] + step) % counts[local[dead]]]
    return _living(fabric, chunks.src, chunks.dst, rail)


def _turns(chunks: Chunks, gpu: npt.NDArray[np.int32]) -> Ints:
    """The place of each chunk's flow among the flows of its `gpu`, nearest node behind it first: so
    the other end, too, sees them spread where all GPUs send to all.
    """
    _, first, which = np.unique(chunks.flow, return_index=True, return_inverse=True)
    apart = (chunks.dst[first] - chunks.src[first]) % chunks.nodes
    other = (chunks.dst_gpu if gpu is chunks.src_gpu else chunks.src_gpu)[first]
    order = np.lexsort((other, apart, gpu[first]))
    begins = np.searchsorted(gpu[first][order], np.arange(chunks.nodes * chunks.gpus))
    turn = np.empty(len(first), np.int64)
    turn[order] = np.arange(len(first)) - begins[gpu[first][order]]
    return turn[which]


def own_rails(fabric: Fabric) -> Rails:
    """int16 [R, nodes]: the rail of `own_nic` for what a GPU sends to a node; of GPUs that are near
    one NIC each.
    """
    node, gpu = np.divmod(np.arange(fabric.nodes * fabric.gpus), fabric.gpus)
    own = np.repeat(fabric.node.near.argmax(axis=1)[gpu, None], fabric.nodes, axis=1)
    return _living(fabric, node[:, None], np.arange(fabric.nodes), own).astype(np.int16)


def _living(fabric: Fabric, src: Array, dst: Array, rail: Ints) -> Ints:
    """Rails from nodes to nodes, a dead one replaced by the next living."""
    for _ in range(fabric.rails):
        dead = _dead(fabric, src, dst, rail)
        if not dead.any():
            break
        rail = np.where(dead, (rail + 1) % fabric.rails, rail)
    return rail


def _dead(fabric: Fabric, src: Array, dst: Array, rail: Ints) -> npt.NDArray[np.bool_]:
    """Whether a rail is dead at either end."""
    return (fabric.tx[src, rail] == 0) | (fabric.rx[dst, rail] == 0)


def _weighted(fabric: Fabric, chunks: Chunks, draws: npt.NDArray[np.uint64]) -> Ints:
    """Draws of 64 bits -> rails, each as likely as its rate (the slower end of it) among the
    living.
    """
    check_alive(fabric, chunks)
    upper = (draws >> np.uint64(32)).astype(np.int64)
    if fabric.is_uniform:
        return upper * fabric.rails >> 32
    rail = np.empty(len(chunks), np.int64)
    pair = chunks.src.astype(np.int64) * fabric.nodes + chunks.dst
    order = by_key(pair)
    for rows in np.split(order, np.flatnonzero(np.diff(pair[order])) + 1) if len(order) else []:
        rates = np.minimum(fabric.tx[chunks.src[rows[0]]], fabric.rx[chunks.dst[rows[0]]]).tolist()
        # a draw below 2**32 * (rates so far) / (all rates): in whole numbers, below its ceiling
        share = [-(-reached * 2**32 // sum(rates)) for reached in accumulate(rates)]
        rail[rows] = np.searchsorted(share, upper[rows], side="right")
    return rail
