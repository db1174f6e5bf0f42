"""What a dispatch and a combine must give, in plain PyTorch without any process group: all ranks'
tokens in one place.  Tests compare `TokenDispatcher` with it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

__all__ = ["Routed", "combine", "dispatch"]


class Routed(NamedTuple):
    """As `Dispatched`, of one rank; `token` [P] is the row of each in all ranks' tokens."""

    tokens: Any
    tokens_per_expert: Any
    weights: Any
    token: Any


def dispatch(
    x: list[Any], topk_idx: list[Any], topk_weights: list[Any], experts: int
) -> list[Routed]:
    """What each rank's experts work on; lists have an entry a rank: [T, H], [T, K], [T, K]."""
    every, index, weights = torch.cat(x), torch.cat(topk_idx), torch.cat(topk_weights)
    chosen = [(index == expert).nonzero(as_tuple=True) for expert in range(experts)]
    each = experts // len(x)
    found = []
    for first in range(0, experts, each):
        own = chosen[first : first + each]
        token, choice = torch.cat([t for t, _ in own]), torch.cat([k for _, k in own])
        per_expert = torch.tensor([len(t) for t, _ in own])
        found.append(Routed(every[token], per_expert, weights[token, choice], token))
    return found


def combine(y: list[Any], routed: list[Routed], tokens: list[int]) -> list[Any]:
    """[T, H] of each rank: the weighted sum of its tokens' experts."""
    rows = torch.cat([own * r.weights[:, None] for own, r in zip(y, routed, strict=True)])
    target = torch.cat([r.token for r in routed])
    total = rows.new_zeros((sum(tokens), rows.shape[1])).index_add(0, target, rows)
    return list(total.split(tokens))
