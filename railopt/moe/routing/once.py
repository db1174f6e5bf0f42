"""Choices + placement -> Tokens: what goes once to each node, with the GPUs there that need it.

Ranks may have different numbers of tokens: each token has its rank, or each rank its count.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Ints, frozen, total
from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.model.tokens import Tokens
from railopt.moe.placement.placement import Placement
from railopt.moe.routing.dispatch import require_rule, target_gpus


def tokens_of_choices(
    chosen: npt.ArrayLike,
    placement: Placement,
    column: int = 0,
    *,
    token_bytes: int,
    rank: npt.ArrayLike | None = None,
    counts: npt.ArrayLike | None = None,
    rule: str = "home",
    dedup: str | None = "node",
) -> Tokens:
    """The dispatch of one layer from each token's experts, integers [tokens, top_k].

    column   of the placement: which of its layers
    rank     int [tokens], the GPU that each token is on; or
    counts   int [GPUs], how many tokens each has, in the order of `chosen`
    rule     which copy of an expert is used (`dispatch.split`)
    dedup    "node": a token goes once to a node; "gpu": once to a GPU; None: once for each expert
    """
    experts = frozen(chosen, np.int16, "chosen", 2)
    if not 0 <= column < placement.layers:
        raise InputError(f"layer {column} of a placement of {placement.layers}")
    require_rule(rule)
    if experts.size and (experts.min() < 0 or experts.max() >= placement.experts):
        raise InputError(
            f"chosen goes from {experts.min()} to {experts.max()}: expected experts 0 to "
            f"{placement.experts - 1}"
        )
    source = _ranks(len(experts), placement.devices, rank, counts)
    holds, home = placement.holds[column], placement.home[column]
    target = target_gpus(source, experts, holds, home, placement.gpus, rule)
    fabric = Fabric.uniform(placement.nodes, 1, gpus=placement.gpus)
    return Tokens.from_targets(fabric, source, target, token_bytes=token_bytes, dedup=dedup)


def _ranks(
    tokens: int, devices: int, rank: npt.ArrayLike | None, counts: npt.ArrayLike | None
) -> Ints:
    """int64 [tokens]: the rank of each token, from the ranks or the counts that were given."""
    if (rank is None) == (counts is None):
        raise InputError("whose tokens these are: expected rank or counts, one of them")
    if counts is not None:
        given = frozen(counts, np.int64, "counts", 1)
        if len(given) != devices or given.min() < 0 or total(given) != tokens:
            raise InputError(
                f"counts of {len(given)} ranks, {total(given)} tokens in all: expected counts of "
                f"at least 0 for {devices} ranks, and the {tokens} tokens of the choices"
            )
        return np.arange(devices).repeat(given)
    assert rank is not None
    source: Ints = frozen(rank, np.int64, "rank", 1)
    if len(source) != tokens:
        raise InputError(f"ranks of {len(source)} tokens, choices of {tokens}: expected one each")
    if tokens and (source.min() < 0 or source.max() >= devices):
        raise InputError(
            f"ranks from {source.min()} to {source.max()}: expected 0 to {devices - 1}"
        )
    return source
