"""A small mixture-of-experts model of text that is made up, in numpy: its loss is exact to the last
bits of a float64, on any machine that adds in the same order.

Text: every sequence has one of `topics` Markov chains over `vocabulary` letters.  Model: the
embeddings of the last two letters, one layer of experts (the best of them per letter, weighed by
its probability) beside a residual connection, a softmax over the next letter.  Adam, no balance
loss.

Workers are data centres: each reads its own part of a batch and is home to some experts; the
others' experts are there as copies, which migration may have compressed.  Gradients of a copy are
taken at the copy, and return whole to its home.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Copies = Callable[[Array], Array]
"""What other data centres compute with, from experts [experts, parameters]."""


@dataclass(frozen=True)
class Size:
    """Of a model and its text."""

    vocabulary: int = 48
    topics: int = 8
    width: int = 24
    experts: int = 8
    ffn: int = 48
    centres: int = 4
    batch: int = 768
    rate: float = 0.004


class Text:
    """Letters of Markov chains, a chain per topic."""

    def __init__(self, size: Size, seed: int) -> None:
        self.size, self.dice = size, np.random.default_rng([seed, 1])
        chains = self.dice.dirichlet(np.full(size.vocabulary, 0.08), (size.topics, size.vocabulary))
        self.ends = chains.cumsum(axis=2)

    def letters(self, number: int) -> Array:
        """int64 [number, 3]: two letters and the next one."""
        topic = self.dice.integers(self.size.topics, size=number)
        found = [self.dice.integers(self.size.vocabulary, size=number)]
        for _ in range(4):
            drawn = self.dice.random(number)[:, None]
            after = (self.ends[topic, found[-1]] < drawn).sum(axis=1)
            found.append(after.clip(max=self.size.vocabulary - 1))
        return np.stack(found[-3:], axis=1)


class Model:
    """Parameters by name; `experts` float64 [experts, 2 x width x ffn] holds both matrices."""

    def __init__(self, size: Size, seed: int) -> None:
        self.size, dice = size, np.random.default_rng([seed, 2])
        v, w = size.vocabulary, size.width
        self.parameters = {
            "last": dice.normal(0, 0.3, (v, w)),
            "before": dice.normal(0, 0.3, (v, w)),
            "router": dice.normal(0, w**-0.5, (w, size.experts)),
            "experts": dice.normal(0, w**-0.5, (size.experts, 2 * w * size.ffn)),
            "out": dice.normal(0, w**-0.5, (w, v)),
        }
        self.moments = {
            name: (np.zeros_like(each), np.zeros_like(each))
            for name, each in self.parameters.items()
        }
        self.steps = 0

    def loss(self, letters: Array, copies: Copies | None = None) -> tuple[float, dict[str, Array]]:
        """Cross entropy in nats, and gradients by name.  Letter i is read by data centre i mod
        centres; expert e is at home at e mod centres, `copies` are elsewhere.
        """
        size, own = self.size, self.parameters
        rows, place = np.arange(len(letters)), np.arange(len(letters)) % size.centres
        x = own["last"][letters[:, 1]] + own["before"][letters[:, 0]]
        routed = softmax(x @ own["router"])
        chosen = routed.argmax(axis=1)
        weight = routed[rows, chosen]
        y, hidden = np.zeros_like(x), np.zeros((len(x), size.ffn))
        elsewhere = own["experts"] if copies is None else copies(own["experts"])
        groups = []
        for expert in range(size.experts):
            mine = chosen == expert
            for held, at_home in ((own["experts"], True), (elsewhere, False)):
                which = np.flatnonzero(mine & ((place == expert % size.centres) == at_home))
                up, down = self.matrices(held[expert])
                hidden[which] = np.maximum(x[which] @ up, 0)
                y[which] = hidden[which] @ down
                groups.append((expert, which, up, down))
        z = x + weight[:, None] * y
        told = softmax(z @ own["out"])
        loss = -np.log(told[rows, letters[:, 2]]).mean()

        told[rows, letters[:, 2]] -= 1
        told /= len(letters)
        slope = {name: np.zeros_like(each) for name, each in own.items()}
        slope["out"] = z.T @ told
        dz = told @ own["out"].T
        dx, dy = dz.copy(), weight[:, None] * dz
        for expert, which, up, down in groups:
            active = (dy[which] @ down.T) * (hidden[which] > 0)
            parts = x[which].T @ active, hidden[which].T @ dy[which]
            slope["experts"][expert] += np.concatenate([part.ravel() for part in parts])
            dx[which] += active @ up.T
        gate = -routed * ((dz * y).sum(axis=1) * weight)[:, None]
        gate[rows, chosen] += (dz * y).sum(axis=1) * weight
        slope["router"] = x.T @ gate
        dx += gate @ own["router"].T
        np.add.at(slope["last"], letters[:, 1], dx)
        np.add.at(slope["before"], letters[:, 0], dx)
        return float(loss), slope

    def matrices(self, expert: Array) -> tuple[Array, Array]:
        """[width, ffn] and [ffn, width]."""
        w, f = self.size.width, self.size.ffn
        return expert[: w * f].reshape(w, f), expert[w * f :].reshape(f, w)

    def learn(self, slope: dict[str, Array]) -> None:
        """One step of Adam."""
        self.steps += 1
        for name, gradient in slope.items():
            first, second = self.moments[name]
            first += 0.1 * (gradient - first)
            second += 0.01 * (gradient**2 - second)
            scale = self.size.rate / (1 - 0.9**self.steps)
            root = np.sqrt(second / (1 - 0.99**self.steps)) + 1e-8
            self.parameters[name] = self.parameters[name] - scale * first / root


def softmax(x: Array) -> Array:
    """Over the last axis."""
    raised = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))
