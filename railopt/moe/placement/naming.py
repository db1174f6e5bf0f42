"""Which GPU is which: loads alone do not say, so names are free to serve a second aim.

A packing puts experts into bundles, one per GPU.  What a name is worth is a table [layer, bundle,
GPU]; the names of a layer that are worth most together are an assignment problem, solved exactly.
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Bools, Floats, Ints
from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.moe.placement.placement import assigned


def kept(bundles: Bools, before: Bools) -> Floats:
    """Copies that need not move, float64 [layer, bundle, GPU]; both bool [layer, GPU, expert]."""
    return bundles.astype(np.float64) @ before.astype(np.float64).swapaxes(1, 2)


def carriage(bundles: Bools, counts: Ints, costs: Floats) -> Floats:
    """What the tokens of a bundle cost on each GPU, float64 [layer, bundle, GPU]: tokens
    counts [layer, source, expert], spread evenly over an expert's copies, times costs [source,
    GPU].
    """
    shares = counts / np.maximum(bundles.sum(axis=1), 1)[:, None, :]
    return bundles.astype(np.float64) @ (shares.swapaxes(1, 2) @ costs)


def named(bundles: Bools, worth: Floats, together: int) -> Bools:
    """The bundles bool [layer, GPU, expert] in the places that are worth most, `together` of them
    as one block.
    """
    result = np.empty_like(bundles)
    for layer, table in enumerate(worth):
        result[layer, assigned(table, together)] = bundles[layer]
    return result


def least_moved(copies: Ints, before: Bools, active: Bools) -> int:
    """Copies that any placement with so many of each expert, int [layer, expert], must send to
    GPUs that lack them, after `before` bool [layer, GPU, expert]: those of an expert beyond its
    holders that are active.
    """
    return int(np.maximum(copies - before[:, active].sum(axis=1), 0).sum())


def fabric_costs(fabric: Fabric) -> Floats:
    """float64 [GPU, GPU]: picoseconds a byte takes, 0 on its own GPU, else over scale-up or over
    the slower of the two nodes' NICs, used evenly.
    """
    node = np.arange(fabric.nodes * fabric.gpus) // fabric.gpus
    pool = np.minimum(fabric.tx.sum(axis=1), fabric.rx.sum(axis=1))[node].astype(np.float64)
    if fabric.nodes > 1 and pool.min() <= 0:
        raise InputError(f"node {int(node[pool.argmin()])} has no NIC that is alive")
    slower = np.minimum(pool[:, None], pool[None, :])
    far = 1e12 / np.where(slower > 0, slower, 1.0)
    costs = np.where(node[:, None] == node[None, :], 1e12 / fabric.scaleup, far)
    np.fill_diagonal(costs, 0.0)
    return costs
