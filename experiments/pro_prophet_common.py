"""What the Pro-Prophet experiments share: the shipped traces, and the paper's cluster with the
constants of its released planner (arXiv 2411.10003; king0722/Pro-Prophet).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from railopt.base.arrays import Bools, Ints
from railopt.base.errors import InputError
from railopt.base.units import PS_PER_S
from railopt.moe.iteration.timemodel import Terms, TimeModel
from railopt.moe.placement.layer_times import start
from railopt.moe.placement.prophet import by_expert, evaluate, homes, layer_of
from railopt.moe.presets import Preset
from railopt.moe.routing.trace import Trace

PUBLISHED: dict[str, Any] = {
    "gpu_tflops": 35.7,
    "work": 4,  # the planner's formula counts the experts' operations so many times over
    "copy_gbps": 15,  # of Trans and Agg
    "a2a": [
        [128, 6],
        [256, 16],
        [1024, 42],
        [0, 100],
    ],  # KiB of the busiest receiver (0: any), Gb/s
}
"""The released planner's constants.  That the rest of a layer counts its operations as often as the
experts is our reading."""
EXPERT_WIDTH = 1408 / 512  # over the model's width, as launched
TRACES = Path(__file__).resolve().parent / "traces"


def trace(name: str) -> Trace:
    """A shipped trace by name."""
    return Trace.read(TRACES / f"{name}.npz")


def consecutive(trace: Trace, need: int = 1) -> list[int]:
    """Rows whose `need` predecessors are the iterations right before them."""
    step = trace.iterations
    return [r for r in range(need, len(step)) if step[r] - step[r - need] == need]


def moe_gpt(size: str, experts: int, top_k: int) -> Preset:
    """The paper's MoE-GPT models: 12 or 24 layers, width 512 to 2048 (D: deeper), attention 4 d^2,
    experts of two matrices d x 4d.
    """
    sizes = {"S": (12, 512), "M": (12, 1024), "L": (12, 2048), "DS": (24, 512), "DM": (24, 1024)}
    layers, width = sizes[size]
    dense = 4 * width * width
    return Preset(f"MoE-GPT-{size}", layers, experts, top_k, width, 4 * width, dense, matrices=2)


def loads(model: TimeModel, counts: Ints, holds: Bools) -> Ints:
    """int64 [GPU]: tokens that each GPU computes under a placement, homes contiguous."""
    tokens = model.counts(counts)
    layer = layer_of(replace(model, token_ps=1), tokens, homes(model, tokens, None))
    _, times = start(layer, by_expert(holds))
    return np.asarray(times[: model.devices])


def algorithm1(model: TimeModel, counts: Ints, n: int) -> Bools:
    """Pro-Prophet's algorithm 1 as printed: the heaviest device's experts to all but the n devices
    with fewest inputs.

    Stops when max - min of the computed inputs is below half of inputs / experts, or when the
    heaviest device was used before.
    """
    tokens = model.counts(counts)
    owner = homes(model, tokens, None)
    if not 0 <= n < model.devices:
        raise InputError(f"n = {n}: expected 0 to {model.devices - 1} devices without a copy")
    holds = np.arange(model.devices)[:, None] == owner[None, :]
    best, kept = evaluate(model, tokens, holds, home=owner).total, holds
    used: set[int] = set()
    while True:
        busy = loads(model, tokens, holds)
        heaviest = int(busy.argmax())
        if busy.max() - busy.min() < 0.5 * tokens.sum() / tokens.shape[1] or heaviest in used:
            return kept
        used.add(heaviest)
        holds = holds.copy()
        for expert in np.flatnonzero(owner == heaviest):
            fewest = np.argsort(tokens[:, expert], kind="stable")
            holds[fewest[n:], expert] = True
        total = evaluate(model, tokens, holds, home=owner).total
        if total < best:
            best, kept = total, holds


@dataclass(frozen=True)
class Cluster:
    """One layer of a model on GPUs of the paper's cluster, as its released planner sees it: one
    bandwidth for transfers of experts, one of all-to-alls by the bytes of the busiest receiver.

    tokens         per GPU
    gpu_flops      FLOP/s that experts and the rest reach
    copy_rate      bytes per second of Trans and Agg
    exchange       (bytes of the busiest receiver, bytes per second up to there), rising
    """

    devices: int
    preset: Preset
    tokens: int
    gpu_flops: float
    copy_rate: int
    exchange: tuple[tuple[float, int], ...]

    @classmethod
    def published(
        cls, devices: int, tokens: int, size: str = "S", width: float = EXPERT_WIDTH
    ) -> Cluster:
        """With the published constants and one of the paper's models, its experts `width` times as
        wide as the model.
        """
        plain = moe_gpt(size, devices, 1)
        given = PUBLISHED["a2a"]
        steps = [(kib * 1024 if kib else np.inf, gbps * 10**9 // 8) for kib, gbps in given]
        return cls(
            devices,
            replace(plain, ffn=round(width * plain.hidden)),
            tokens,
            PUBLISHED["gpu_tflops"] * 1e12 / PUBLISHED["work"],
            PUBLISHED["copy_gbps"] * 10**9 // 8,
            tuple(steps),
        )

    def model(self, rate: int, *, overlap: bool = True) -> TimeModel:
        """The time model with one bandwidth of all-to-alls; values are fp32."""
        made = TimeModel.flat(
            self.devices,
            bandwidth=rate,
            token_bytes=self.preset.token_bytes(4),
            expert_bytes=self.preset.expert_bytes(4),
            tokens_per_s=self.gpu_flops / self.preset.expert_flops,
            fnec_ps=round(self.tokens * self.preset.dense_flops * PS_PER_S / self.gpu_flops),
            overlap=overlap,
        )
        copy_ps = self.preset.expert_bytes(4) * PS_PER_S // (self.copy_rate * self.devices)
        return replace(made, copy_mean_ps=copy_ps)

    @cached_property
    def fastest(self) -> TimeModel:
        """With the bandwidth of large messages: what planners that know one bandwidth use."""
        return self.model(self.exchange[-1][1])

    @cached_property
    def eager(self) -> TimeModel:
        """The same without overlap (the paper's equation 6)."""
        return self.model(self.exchange[-1][1], overlap=False)

    @cached_property
    def _by_rate(self) -> dict[int, TimeModel]:
        return {rate: self.model(rate) for _, rate in self.exchange}

    def terms(self, counts: Ints, holds: Bools | None) -> Terms:
        """The layer's time under a placement, the all-to-all's bandwidth by its size."""
        found = evaluate(self.fastest, counts, holds)
        received = found.a2a // int(self.fastest.node_ps[0]) * self.preset.token_bytes(4)
        rate = next(rate for most, rate in self.exchange if received <= most)
        return (
            found if rate == self.exchange[-1][1] else evaluate(self._by_rate[rate], counts, holds)
        )

    def released(self, counts: Ints) -> Bools:
        """The placement of the released planner: at most one device left out of a transfer, no
        further expert once the busiest and the idlest GPU differ by less than three times the mean
        load, or once the busiest GPU's expert has been copied; the prefix of least estimated time.
        """
        none = np.eye(self.devices, dtype=np.bool_)
        best, kept = self.terms(counts, none).total, none
        for left_out in (0, 1):
            holds, used = none, set[int]()
            while True:
                busy = loads(self.fastest, counts, holds)
                first = int(busy.argmax())
                if busy.max() - busy.min() < 3 * busy.mean() or first in used:
                    break
                used.add(first)
                holds = holds.copy()
                holds[np.argsort(counts[:, first], kind="stable")[left_out:], first] = True
                total = self.terms(counts, holds).total
                if total < best:
                    best, kept = total, holds
        return kept
