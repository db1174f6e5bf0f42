"""Routing that is generated token by token: which experts each token of each GPU chooses.

    routing    experts of lognormal popularity
    megatron   the eight workloads W0 to W7 of Megatron's benchmark of token imbalance
    maxvio     lognormal popularity whose most popular expert is a given factor above the mean
    drift      lognormal popularity that changes from step to step

Experts lie on the GPUs in order.  A seed and a step always give the same tokens, for any cut of
so many GPUs into nodes.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass, fields
from functools import cached_property, lru_cache, wraps
from numbers import Integral, Real
from typing import Any, ClassVar, ParamSpec

import numpy as np

from railopt.base.arrays import MUCH, Floats, Ints
from railopt.base.dice import Dice, exp
from railopt.base.errors import InputError, say
from railopt.base.units import parse_bytes, quoted
from railopt.model.fabric import Fabric
from railopt.model.tokens import Tokens
from railopt.model.traffic import Traffic

P = ParamSpec("P")
PAIR_BYTES = 40  # of memory per pair of GPUs while a command works on them, at most, as measured
MOST_GPUS = 1 << 13  # 512 MiB, and more flows than a plan may have chunks
MAX_EXPERTS = 1 << 16
MAX_SEEN = 1 << 24  # GPUs x experts whose popularity each GPU sees through noise of its own
BLOCK = 1 << 22  # entries of a matrix that are drawn together
MAX_CHOICES = 1 << 27  # tokens x top of all GPUs
MAX_TABLE = 1 << 24  # choices that lie in memory at once
WIDE = 64  # experts of a token that make exchanging choices slow
MAX_STEP = 1 << 14
MAX_WALK = 1 << 26  # steps x experts of a popularity that drifts: some ten seconds
OFF = 0.02  # of the most popular expert's number: how far it may be from the target
ROUNDS = 4  # in which tokens exchange choices
GPUS_SORTED = 64  # GPUs whose tokens are sorted together
_HALVINGS = 28  # of a number that is looked for between two others
_APART = 2.0**-30  # how far the second most popular expert lies below the first, at least


def count_gpus(fabric: Fabric) -> int:
    """GPUs of the fabric: a matrix has that many rows and columns."""
    count = fabric.nodes * fabric.gpus
    if count > MOST_GPUS:
        raise InputError(f"traffic between {count} GPUs: at most {MOST_GPUS} are generated")
    taken = count**2 * PAIR_BYTES
    if taken > MUCH:
        say(f"traffic between {count} GPUs takes up to {taken / 1e9:.0f} GB of memory")
    return count


def row_blocks(rows: int, columns: int) -> Iterator[slice]:
    """The rows of a matrix in blocks, so that what is computed from them takes little memory."""
    step = max(1, BLOCK // columns)
    return (slice(first, min(first + step, rows)) for first in range(0, rows, step))


def within(name: str, value: float, low: float, high: float) -> float:
    """An option as a number from `low` to `high`."""
    if not low <= value <= high:
        raise InputError(f"{name} = {value}: expected {low} to {high}")
    return float(value)


_KINDS: dict[str, tuple[Any, str]] = {
    "int": (Integral, "a whole number"),
    "int | None": (Integral | None, "a whole number"),
    "float": (Real, "a number"),
    "str": (str, "text"),
    "str | int": (str | Integral, "a size, as '1MiB', or whole bytes"),
}
"""By annotation, what an option of a workload may be, and in words."""


def check_kind(name: str, value: object, annotation: str) -> None:
    """Refuse an option of a workload whose type is not the one of its annotation."""
    kind, words = _KINDS[annotation]
    if isinstance(value, bool) or not isinstance(value, kind):
        raise InputError(f"{name} = {quoted(value)}: expected {words}")


def typed(make: Callable[P, Traffic]) -> Callable[P, Traffic]:
    """A workload that refuses options of the wrong type."""
    kinds = {
        name: p.annotation
        for name, p in inspect.signature(make).parameters.items()
        if p.kind is p.KEYWORD_ONLY
    }

    @wraps(make)
    def checked(*args: P.args, **options: P.kwargs) -> Traffic:
        for name in kinds.keys() & options.keys():
            check_kind(name, options[name], kinds[name])
        return make(*args, **options)

    return checked


@dataclass(frozen=True)
class Routed:
    """A layer's routing, token by token: each token chooses `top` different experts.

    experts   lie on the GPUs in order; `top` are at most half of them
    tokens    per GPU; with `ragged` above 0 from (1 - ragged) to (1 + ragged) times as many
    dedup     node: a token goes once to a node, gpu: once to a GPU, none: once for each expert
    hidden    bytes of a token
    step      of training or serving: the same seed, other tokens
    """

    fabric: Fabric
    _: KW_ONLY
    experts: int = 256
    top: int = 8
    tokens: int = 2048
    ragged: float = 0.0
    dedup: str = "node"
    hidden: str | int = "7KiB"
    step: int = 0
    seed: int = 0

    name: ClassVar[str]

    def __post_init__(self) -> None:
        for field in fields(self)[1:]:
            check_kind(field.name, getattr(self, field.name), str(field.type))
        if not (2 <= self.experts <= MAX_EXPERTS and 1 <= self.top <= self.experts // 2):
            raise InputError(
                f"top = {self.top} of {self.experts} experts: expected 2 to {MAX_EXPERTS} experts "
                f"and 1 <= top <= experts / 2"
            )
        within("ragged", self.ragged, 0, 1)
        if self.dedup not in ("node", "gpu", "none"):
            raise InputError(f"dedup = {quoted(self.dedup)}: expected node, gpu or none")
        if not 0 <= self.step <= MAX_STEP:
            raise InputError(f"step = {self.step}: expected 0 to {MAX_STEP}")
        count = count_gpus(self.fabric)
        if self.tokens < 1 or 2 * self.tokens * self.top * count > MAX_CHOICES:
            raise InputError(
                f"{self.tokens} tokens x {self.top} of {count} GPUs: expected at least 1 token and "
                f"at most {MAX_CHOICES // 2} choices in all"
            )

    def chosen(self, gpu: int, tokens: int) -> Ints:
        """int64 [tokens, top]: the experts that the tokens of one GPU choose."""
        raise NotImplementedError

    def dice(self, *place: int | str) -> Dice:
        """The dice of a place at this step."""
        now = ("step", self.step) if self.step else ()
        return Dice(self.seed, self.name, *place, *now)

    def batches(self) -> Ints:
        """int64 [GPUs]: the tokens of each."""
        low = int(np.ceil(self.tokens * (1 - self.ragged)))
        high = int(np.floor(self.tokens * (1 + self.ragged)))
        return low + Dice(self.seed, self.name, "batches").below(
            high - low + 1, count_gpus(self.fabric)
        )

    def counts(self) -> Ints:
        """int64 [GPU, expert]: how often the tokens of each GPU choose each expert."""
        return np.stack(
            [
                np.bincount(self.chosen(gpu, tokens).ravel(), minlength=self.experts)
                for gpu, tokens in enumerate(self.batches().tolist())
            ]
        )

    def made(self) -> Tokens:
        """The tokens as they are sent: GPU by GPU, each with dice of its own."""
        home = np.arange(self.experts) * count_gpus(self.fabric) // self.experts
        batches, parts = self.batches(), []
        for first in range(0, len(batches), GPUS_SORTED):
            block = np.arange(first, min(first + GPUS_SORTED, len(batches)))
            chosen = [self.chosen(gpu, int(batches[gpu])) for gpu in block.tolist()]
            parts.append(
                Tokens.from_targets(
                    self.fabric,
                    block.repeat(batches[block]),
                    home[np.concatenate(chosen)],
                    token_bytes=parse_bytes(self.hidden),
                    dedup=None if self.dedup == "none" else self.dedup,
                )
            )
        return Tokens.joined(parts)


def _weights(popularity: Floats) -> Ints:
    """Popularity in whole numbers, none of them 0."""
    return np.rint(popularity * 2.0**30).astype(np.int64) + 1


def seen_weights(dice: Dice, popularity: Floats, gpus: int, jitter: float) -> Ints:
    """int64 [gpus, experts]: the popularity of experts in whole numbers, as each GPU sees it
    through its own gamma noise of shape `jitter` and mean 1.
    """
    experts = len(popularity)
    if gpus * experts > MAX_SEEN:
        raise InputError(
            f"{experts} experts as {gpus} GPUs see them: expected at most {MAX_SEEN} pairs"
        )
    seen = dice.gamma(jitter, (gpus, experts))
    weights = np.empty(seen.shape, np.int64)
    for rows in row_blocks(gpus, experts):
        weights[rows] = _weights(popularity * (seen[rows] / jitter))
    return weights


@dataclass(frozen=True, kw_only=True)
class Routing(Routed):
    """Experts are chosen one after the other, each as likely as its popularity, e^(sigma x) with a
    standard normal x, the same at every step.

    own   0: one popularity for all; 1: every GPU draws its own
    """

    sigma: float = 1.0
    own: int = 0

    name: ClassVar[str] = "routing"

    def __post_init__(self) -> None:
        super().__post_init__()
        within("sigma", self.sigma, 0, 3)
        if self.own not in (0, 1):
            raise InputError(f"own = {quoted(self.own)}: expected 0 or 1")

    def chosen(self, gpu: int, tokens: int) -> Ints:
        dice = Dice(self.seed, self.name, gpu)
        popularity = self._drawn(dice) if self.own else self.popularity
        return (self.dice(gpu) if self.step else dice).distinct(popularity, tokens, self.top)

    @cached_property
    def popularity(self) -> Ints:
        """int64 [experts]: the weights of the draw, where GPUs do not have their own."""
        return self._drawn(Dice(self.seed, self.name, "popularity"))

    def _drawn(self, dice: Dice) -> Ints:
        return _weights(exp(self.sigma * dice.normal(self.experts)))


@dataclass(frozen=True, kw_only=True)
class Megatron(Routed):
    """The workloads of Megatron's benchmark of token imbalance (NVIDIA/Megatron-LM 7488), by what
    they isolate; a quarter of the experts are hot, and three of four tokens choose among these.

    w   0  balanced: in turn, GPU after GPU       4  GPUs with unequal numbers of tokens
        1  hot experts, the first quarter         5  the first half of the experts is never chosen
        2  the same, other tokens: a hot GPU      6  hot experts that move on every three steps
        3  hot experts, every second one          7  every fourth step is a burst: two of four
           (half of them)                            tokens choose hot experts, else all alike

    In the benchmark, too, 1 and 2 have the same hot experts: the placement decides which GPU is
    hot.
    """

    w: int = 0

    name: ClassVar[str] = "megatron"

    def __post_init__(self) -> None:
        if self.w not in range(8):
            raise InputError(f"w = {quoted(self.w)}: expected 0 to 7")
        if self.w == 4 and not self.ragged:
            object.__setattr__(self, "ragged", 0.5)
        super().__post_init__()

    def hot(self) -> Ints:
        """The experts that hot tokens choose among."""
        number = max(self.top, self.experts // 4)
        if self.w == 3:
            return np.arange(0, 2 * max(self.top, self.experts // 2), 2) % self.experts
        if self.w == 5:
            return np.arange(self.experts // 2, self.experts)
        start = self.step // 3 * number if self.w == 6 else 0
        return (start + np.arange(number)) % self.experts

    def chosen(self, gpu: int, tokens: int) -> Ints:
        token = np.arange(tokens)
        if self.w == 0:
            turn = int(self.batches()[:gpu].sum()) + token
            return (turn[:, None] * self.top + np.arange(self.top)) % self.experts
        hot = {4: token < 0, 5: token >= 0, 7: (token % 2 == 0) & (self.step % 4 == 3)}.get(
            self.w, token % 4 > 0
        )
        dice = self.dice(self.w, gpu)
        result = dice.distinct(np.ones(self.experts, np.int64), tokens, self.top)
        among = np.bincount(self.hot(), minlength=self.experts)
        result[hot] = dice.distinct(np.minimum(among, 1), int(hot.sum()), self.top)
        return result


@dataclass(frozen=True, kw_only=True)
class MaxVio(Routed):
    """Lognormal popularity whose most popular expert is chosen (1 + vio) times as often as the mean
    expert: MaxVio, as training logs and inference benchmarks have it (vLLM 57598, DeepEP 393).

    The spread of the logarithms is found by halving.  Experts are chosen as often as that says, in
    whole numbers, so that small batches hit the target as near as these allow.  Tokens start with
    choices in turn and exchange them at random as long as no token has an expert twice.
    """

    vio: float = 2.0

    name: ClassVar[str] = "maxvio"

    def __post_init__(self) -> None:
        super().__post_init__()
        most = self.experts / self.top - 1.0
        if not 0 <= self.vio <= most:
            raise InputError(
                f"vio = {self.vio}: expected 0 to {most:.4g}, since a token chooses an expert once "
                f"at most"
            )
        most_choices = MAX_TABLE * WIDE // max(WIDE, self.top)
        if self.tokens * self.top * count_gpus(self.fabric) > most_choices:
            raise InputError(
                f"{self.tokens} tokens x {self.top} of {count_gpus(self.fabric)} GPUs: expected at "
                f"most {most_choices} choices in all"
            )

    def chosen(self, gpu: int, tokens: int) -> Ints:
        start = int(self.batches()[:gpu].sum())
        return self._choices[start : start + tokens]

    @cached_property
    def numbers(self) -> Ints:
        """int64 [experts]: how often each expert is chosen, in all."""
        x = Dice(self.seed, self.name, "popularity").normal(self.experts)
        first = int(x.argmax())
        x = np.minimum(x - x[first], -_APART)
        x[first] = 0.0  # the most popular expert weighs 1, however steep

        def too_even(sigma: float) -> bool:
            return float(exp(sigma * x).mean()) * (1.0 + self.vio) > 1.0

        low, high = 0.0, 40.0
        while too_even(high):
            low, high = high, 2.0 * high
        for _ in range(_HALVINGS):
            sigma = (low + high) / 2.0
            low, high = (sigma, high) if too_even(sigma) else (low, sigma)
        weights = _weights(exp(low * x)).tolist()
        tokens = int(self.batches().sum())
        numbers = [min(tokens, tokens * self.top * each // sum(weights)) for each in weights]
        roomy = [e for e in np.argsort(-x, kind="stable").tolist() if numbers[e] < tokens]
        for expert in roomy[: tokens * self.top - sum(numbers)]:
            numbers[expert] += 1
        mean = tokens * self.top / self.experts
        most = max(round((1.0 + self.vio) * mean), math.ceil(mean))
        if abs(numbers[first] - most) > OFF * most:
            numbers = _at_most(numbers, min(most, tokens))
        return np.array(numbers, np.int64)

    @cached_property
    def _choices(self) -> Ints:
        """int64 [tokens of all GPUs, top]."""
        dice, tokens = self.dice("choices"), int(self.batches().sum())
        order = dice.permutation(self.experts)
        choices = np.repeat(order, self.numbers[order]).reshape(self.top, tokens).T
        choices = choices[dice.permutation(tokens)]
        for column in [*range(self.top)] * ROUNDS:
            one, other = dice.permutation(tokens)[: tokens // 2 * 2].reshape(2, -1)
            given, taken = choices[one, column], choices[other, column]
            free = ~(choices[one] == taken[:, None]).any(axis=1)
            free &= ~(choices[other] == given[:, None]).any(axis=1)
            choices[one[free], column], choices[other[free], column] = taken[free], given[free]
        return choices


def _at_most(numbers: list[int], most: int) -> list[int]:
    """The same sum with none above `most`, which is at least the mean: what is too much goes one by
    one to the others, the largest first.
    """
    made = [min(number, most) for number in numbers]
    left = sum(numbers) - sum(made)
    while left:
        open_ = [e for e in sorted(range(len(made)), key=lambda e: -made[e]) if made[e] < most]
        for expert in open_[:left]:
            made[expert] += 1
        left -= min(left, len(open_))
    return made


@lru_cache(8)
def _way(seed: int, experts: int, drift: float) -> list[tuple[int, Floats]]:
    """(step, x) of the step that was asked for last, and of step 0: a later step is drawn from the
    former.
    """
    # drift is a key of the cache alone: x depends on it from step 1 on
    start = 0, Dice(seed, Drift.name, "popularity").normal(experts)
    return [start, start]


@dataclass(frozen=True, kw_only=True)
class Drift(Routed):
    """Popularity e^(sigma x) whose x changes at random: x' = (1 - drift) x + sqrt(1 - (1 -
    drift)^2) y with a standard normal y at every step, so that it is as skewed at any time.

    drift   0: the same popularity at all steps; 1: a new one at every step
    """

    sigma: float = 1.0
    drift: float = 0.1

    name: ClassVar[str] = "drift"

    def __post_init__(self) -> None:
        super().__post_init__()
        within("sigma", self.sigma, 0, 3)
        within("drift", self.drift, 0, 1)
        if self.step * self.experts > MAX_WALK:
            raise InputError(
                f"step {self.step} of {self.experts} experts: a popularity that drifts is drawn "
                f"step by step, at most {MAX_WALK // self.experts} steps for so many experts"
            )

    def chosen(self, gpu: int, tokens: int) -> Ints:
        return self.dice(gpu).distinct(self.popularity, tokens, self.top)

    @cached_property
    def popularity(self) -> Ints:
        """int64 [experts]: the weights of the draw at this step."""
        kept, way = 1.0 - self.drift, _way(self.seed, self.experts, self.drift)
        last, start = way
        step, x = last if last[0] <= self.step else start
        for number in range(step + 1, self.step + 1):
            new = Dice(self.seed, self.name, "popularity", number).normal(self.experts)
            x = kept * x + np.sqrt(1.0 - kept * kept) * new
        way[0] = self.step, x
        return _weights(exp(self.sigma * x))
