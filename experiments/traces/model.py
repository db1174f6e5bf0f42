"""A small causal language model whose feed-forward layers are mixtures of experts (PyTorch)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Shape:
    """Dimensions of one model. `aux` is the weight of the Switch-style balance loss E * sum_e f_e
    P_e.
    """

    layers: int
    width: int
    heads: int
    experts: int
    top_k: int
    ffn: int
    shared: int = 0
    aux: float = 0.0
    vocabulary: int = 4096
    context: int = 512


class Experts(nn.Module):
    """Router and `experts` gated feed-forward networks; tokens are sorted by expert, none is
    dropped.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        scale = shape.width**-0.5
        self.router = nn.Linear(shape.width, shape.experts, bias=False)
        self.up = nn.Parameter(torch.randn(shape.experts, shape.width, 2 * shape.ffn) * scale)
        self.down = nn.Parameter(
            torch.randn(shape.experts, shape.ffn, shape.width) * shape.ffn**-0.5
        )
        self.shared_up = (
            nn.Linear(shape.width, 2 * shape.ffn * shape.shared, bias=False)
            if shape.shared
            else None
        )
        self.shared_down = (
            nn.Linear(shape.ffn * shape.shared, shape.width, bias=False) if shape.shared else None
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [tokens, width] -> (output [tokens, width], balance loss, chosen experts [tokens,
        k]).
        """
        E, k = self.shape.experts, self.shape.top_k
        probability = torch.softmax(self.router(x).float(), dim=-1)
        weight, chosen = probability.topk(k, dim=-1)
        if k > 1:
            weight = weight / weight.sum(dim=-1, keepdim=True)
        computing, up, down = self.held(chosen)
        order = computing.flatten().argsort(stable=True)
        held = torch.bincount(computing.flatten(), minlength=len(up))
        token = order // k
        ends = held.cumsum(0).to(torch.int32)
        up, down = up.to(torch.bfloat16), down.to(torch.bfloat16)
        hidden = _gated(torch._grouped_mm(x[token].to(torch.bfloat16), up, offs=ends))
        outputs = torch._grouped_mm(hidden, down, offs=ends) * weight.flatten()[order].unsqueeze(
            1
        ).to(torch.bfloat16)
        out = torch.zeros_like(x).index_add(0, token, outputs.to(x.dtype))
        if self.shared_up is not None and self.shared_down is not None:
            out = out + self.shared_down(_gated(self.shared_up(x)))
        share = held.view(-1, E).sum(dim=0).float() / held.sum()
        return out, E * (share * probability.mean(dim=0)).sum(), chosen

    def held(self, chosen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Which weights compute each choice [tokens, k], and these weights [held, ...], whose
        number is a multiple of the experts': expert e is held as e, e + experts, ...
        """
        return chosen, self.up, self.down


def _gated(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, dim=-1)
    return F.silu(gate) * value


class Block(nn.Module):
    """Attention, then experts, both with a residual connection."""

    def __init__(self, shape: Shape, experts: type[Experts]) -> None:
        super().__init__()
        self.heads = shape.heads
        self.norm1, self.norm2 = nn.LayerNorm(shape.width), nn.LayerNorm(shape.width)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)
        self.experts = experts(shape)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        batch, length, width = x.shape
        q, k, v = (
            self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        y, aux, chosen = self.experts(self.norm2(x).view(-1, width))
        return x + y.view_as(x), aux, chosen


class Model(nn.Module):
    """Token and position embeddings, blocks, and a head that shares the token embedding."""

    def __init__(self, shape: Shape, experts: type[Experts] = Experts) -> None:
        super().__init__()
        self.shape = shape
        self.token = nn.Embedding(shape.vocabulary, shape.width)
        self.position = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape, experts) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        nn.init.normal_(self.token.weight, std=0.02)
        nn.init.normal_(self.position.weight, std=0.02)

    def forward(self, ids: Tensor, target: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """ids, target [batch, context] -> (cross entropy, mean balance loss, chosen experts of each
        layer).
        """
        x = self.token(ids) + self.position.weight[: ids.shape[1]]
        auxes, choices = [], []
        for block in self.blocks:
            x, aux, chosen = block(x)
            auxes.append(aux)
            choices.append(chosen)
        logits = F.linear(self.norm(x), self.token.weight)
        return (
            F.cross_entropy(logits.flatten(0, 1).float(), target.flatten()),
            torch.stack(auxes).mean(),
            choices,
        )
