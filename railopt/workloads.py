"""Generated traffic, each a pure function of the fabric, its parameters and a seed.

    uniform, permutation, incast, hot-node     the classic patterns
    zipf, dirichlet                            receivers of unequal popularity
    sparse                                     a share of the pairs is silent
    moe                                        tokens x top-k x hidden bytes over experts placed on
                                               GPUs
    routing                                    the same token by token, so that a token is sent once
                                               a node: units, where the others are traffic

A seed gives the same bytes for ever (`railopt.dice`).
`from_spec("moe:skew=0.8,seed=1", fabric)` is how the command line names them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from railopt.arrays import Array, Floats, Ints
from railopt.chunks import MAX_TOTAL
from railopt.dice import Dice, exp, falling
from railopt.errors import InputError, did_you_mean
from railopt.fabric import Fabric
from railopt.tokens import Tokens
from railopt.traffic import Traffic
from railopt.units import parse_bytes, parse_integer, parse_number, shown

MAX_GPUS = 1 << 13  # 512 MiB, and more flows than a plan may have chunks
MAX_EXPERTS = 1 << 16
MAX_CHOICES = 1 << 27  # tokens x top of all GPUs
_MAX_SHARE = 1 << 61
_BLOCK = 64  # GPUs whose tokens are sorted together


def _traffic(fabric: Fabric, matrix: Array) -> Traffic:
    if matrix.max() >= MAX_TOTAL:
        raise InputError(f"a flow of {matrix.max():.3g} bytes: expected less than 2**62")
    matrix = np.rint(matrix).astype(np.int64)
    np.fill_diagonal(matrix, 0)
    return Traffic.from_matrix(matrix, fabric)


def _count(fabric: Fabric) -> int:
    """GPUs of the fabric: a matrix has that many rows and columns."""
    count = fabric.nodes * fabric.gpus
    if count > MAX_GPUS:
        raise InputError(f"traffic between {count} GPUs: at most {MAX_GPUS} are generated")
    return count


def _share(name: str, value: float, low: float, high: float) -> float:
    if not low <= value <= high:
        raise InputError(f"{name} = {value}: expected {low} to {high}")
    return float(value)


def uniform(fabric: Fabric, *, size: str | int = "1MiB", seed: int = 0) -> Traffic:
    """Every GPU sends `size` to every other GPU.  The seed is not used."""
    return _traffic(fabric, np.full((_count(fabric),) * 2, parse_bytes(size)))


def permutation(fabric: Fabric, *, size: str | int = "64MiB", seed: int = 0) -> Traffic:
    """Every GPU sends `size` to exactly one GPU of another node, each receives from exactly one."""
    if fabric.nodes < 2:
        raise InputError("a permutation between nodes needs at least 2 nodes")
    dice = Dice(seed, "permutation")
    shift = 1 + int(dice.below(fabric.nodes - 1)[0])
    matrix = np.zeros((_count(fabric),) * 2, np.int64)
    nodes = dice.permutation(fabric.nodes)
    for position, node in enumerate(nodes):
        target = nodes[(position + shift) % fabric.nodes]
        for gpu, peer in enumerate(dice.permutation(fabric.gpus)):
            matrix[node * fabric.gpus + gpu, target * fabric.gpus + peer] = parse_bytes(size)
    return Traffic.from_matrix(matrix, fabric)


def incast(fabric: Fabric, *, size: str | int = "1MiB", target: int = 0, seed: int = 0) -> Traffic:
    """Every GPU sends `size` to GPU `target`."""
    count = _count(fabric)
    if not 0 <= target < count:
        raise InputError(f"target = {target}: expected a GPU from 0 to {count - 1}")
    matrix = np.zeros((count, count), np.int64)
    matrix[:, target] = parse_bytes(size)
    return _traffic(fabric, matrix)


def hot_node(
    fabric: Fabric, *, size: str | int = "1MiB", node: int = 0, factor: float = 4.0, seed: int = 0
) -> Traffic:
    """Uniform, but the GPUs of one node receive `factor` times as much."""
    _share("factor", factor, 0, 1e6)
    if not 0 <= node < fabric.nodes:
        raise InputError(f"node = {node}: expected 0 to {fabric.nodes - 1}")
    matrix = np.full((_count(fabric),) * 2, float(parse_bytes(size)))
    matrix[:, node * fabric.gpus : (node + 1) * fabric.gpus] *= factor
    return _traffic(fabric, matrix)


def _popular(fabric: Fabric, popularity: Floats, mean: str | int, dice: Dice) -> Traffic:
    """Each pair sends `mean` times the receiver's popularity (over its mean), times a factor from
    0.5 to 1.5.

    In whole numbers: shares of 2**-40, factors of 2**-31, bytes rounded down.
    """
    count, average = _count(fabric), parse_bytes(mean)
    weights = np.rint(popularity * 2.0**40).astype(np.int64).tolist()
    shares = [average * count * weight // sum(weights) for weight in weights]
    if max(shares) >= _MAX_SHARE:
        raise InputError(f"a flow of {max(shares):.3g} bytes: expected less than 2**61")
    share = np.array(shares, np.int64)
    factor = (dice.words(count * count) >> np.uint64(33)).astype(np.int64) + (1 << 30)
    factor = factor.reshape(count, count)
    # share * factor >> 31, in two parts so that neither passes 63 bits
    matrix = (share >> 31) * factor + ((share & ((1 << 31) - 1)) * factor >> 31)
    np.fill_diagonal(matrix, 0)
    return Traffic.from_matrix(matrix, fabric)


def zipf(
    fabric: Fabric, *, mean: str | int = "256KiB", skew: float = 0.8, seed: int = 0
) -> Traffic:
    """Receivers' popularity falls as rank ** -skew, in a random order."""
    dice, count = Dice(seed, "zipf"), _count(fabric)
    popularity = falling(count, _share("skew", skew, 0, 10))
    return _popular(fabric, popularity[dice.permutation(count)], mean, dice)


def dirichlet(
    fabric: Fabric, *, mean: str | int = "256KiB", concentration: float = 1.0, seed: int = 0
) -> Traffic:
    """Receivers' popularity is drawn from a symmetric Dirichlet distribution; small concentrations
    are skewed.
    """
    dice = Dice(seed, "dirichlet")
    alike = np.full(_count(fabric), float(_share("concentration", concentration, 1e-3, 1e6)))
    return _popular(fabric, dice.dirichlet(alike), mean, dice)


def sparse(
    fabric: Fabric,
    *,
    mean: str | int = "1MiB",
    zeros: float = 0.5,
    skew: float = 0.0,
    seed: int = 0,
) -> Traffic:
    """As `zipf`, but a share `zeros` of the pairs, chosen at random, is silent."""
    dense = zipf(fabric, mean=mean, skew=skew, seed=seed).bytes
    silent = Dice(seed, "sparse").unit(dense.shape) < _share("zeros", zeros, 0, 1)
    return Traffic.from_matrix(np.where(silent, 0, dense), fabric)


def moe(
    fabric: Fabric,
    *,
    tokens: int = 4096,
    top_k: int = 2,
    hidden: str | int = "8KiB",
    experts: int | None = None,
    skew: float = 0.8,
    jitter: float = 4.0,
    seed: int = 0,
) -> Traffic:
    """An MoE dispatch: each GPU routes `tokens` tokens to `top_k` experts, `hidden` bytes each.

    Experts (one a GPU by default) lie on the GPUs in order; their popularity falls as rank ** -skew
    in a random order, and each source sees it through its own gamma noise (shape `jitter`), as
    different text does.
    """
    count = _count(fabric)
    number = count if experts is None else experts
    if not (1 <= number <= MAX_EXPERTS and tokens >= 1 and 1 <= top_k <= number):
        raise InputError(
            f"{tokens} tokens to {top_k} of {number} experts: expected at least 1 token and 1 <= "
            f"top_k <= experts <= {MAX_EXPERTS}"
        )
    if tokens * top_k * count * parse_bytes(hidden) >= MAX_TOTAL:
        raise InputError(
            f"{tokens} tokens x {top_k} x {hidden} of {count} GPUs: 2**62 bytes or more"
        )
    dice = Dice(seed, "moe")
    popularity = falling(number, _share("skew", skew, 0, 10))[dice.permutation(number)]
    noise = dice.gamma(_share("jitter", jitter, 1e-3, 1e9), (count, number)) / jitter
    seen = np.rint(popularity * noise * 2.0**30).astype(np.int64) + 1
    counts = dice.counts(seen, tokens * top_k)
    matrix = np.zeros((count, count), np.int64)
    np.add.at(matrix.T, np.arange(number) * count // number, counts.T)
    return Traffic.from_matrix(matrix * parse_bytes(hidden), fabric)


@dataclass(frozen=True)
class Routing:
    """A layer's routing, token by token: each GPU's tokens choose `top` different experts, one
    after the other, each as likely as its popularity, e^(sigma x) with a standard normal x.

    experts   lie on the GPUs in order, as in `moe`; `top` are at most half of them
    tokens    a GPU; with `ragged` above 0 anything from (1 - ragged) to (1 + ragged) times as many
    own       0: one popularity for all; 1: every GPU draws its own
    dedup     node: a token goes once to a node, gpu: once to a GPU, none: once for each expert
    hidden    bytes of a token
    """

    fabric: Fabric
    _: KW_ONLY
    experts: int = 256
    top: int = 8
    sigma: float = 1.0
    tokens: int = 2048
    ragged: float = 0.0
    own: int = 0
    dedup: str = "node"
    hidden: str | int = "7KiB"
    seed: int = 0

    def __post_init__(self) -> None:
        if not (2 <= self.experts <= MAX_EXPERTS and 1 <= self.top <= self.experts // 2):
            raise InputError(
                f"top = {self.top} of {self.experts} experts: expected 2 to {MAX_EXPERTS} experts "
                f"and 1 <= top <= experts / 2"
            )
        _share("sigma", self.sigma, 0, 3)
        _share("ragged", self.ragged, 0, 1)
        if self.own not in (0, 1) or self.dedup not in ("node", "gpu", "none"):
            raise InputError(
                f"own = {shown(self.own)}, dedup = {shown(self.dedup)}: expected own 0 or 1, and "
                f"dedup node, gpu or none"
            )
        count = _count(self.fabric)
        if self.tokens < 1 or 2 * self.tokens * self.top * count > MAX_CHOICES:
            raise InputError(
                f"{self.tokens} tokens x {self.top} of {count} GPUs: expected at least 1 token and "
                f"at most {MAX_CHOICES // 2} choices in all"
            )

    def batches(self) -> Ints:
        """int64 [GPUs]: the tokens of each."""
        low = int(np.ceil(self.tokens * (1 - self.ragged)))
        high = int(np.floor(self.tokens * (1 + self.ragged)))
        return low + Dice(self.seed, "routing", "batches").below(
            high - low + 1, _count(self.fabric)
        )

    def made(self) -> Tokens:
        """Draw the tokens: GPU by GPU, each with dice of its own."""
        home = np.arange(self.experts) * _count(self.fabric) // self.experts
        together = self._popularity(Dice(self.seed, "routing", "popularity"))
        batches, parts = self.batches(), []
        for first in range(0, len(batches), _BLOCK):
            block = np.arange(first, min(first + _BLOCK, len(batches)))
            chosen = [self._chosen(gpu, int(batches[gpu]), together) for gpu in block.tolist()]
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

    def _chosen(self, gpu: int, tokens: int, together: Ints) -> Ints:
        """int64 [tokens, top]: the experts that the tokens of one GPU choose."""
        dice = Dice(self.seed, "routing", gpu)
        popularity = self._popularity(dice) if self.own else together
        return dice.distinct(popularity, tokens, self.top)

    def _popularity(self, dice: Dice) -> Ints:
        return np.rint(exp(self.sigma * dice.normal(self.experts)) * 2.0**30).astype(np.int64) + 1


WORKLOADS: dict[str, Callable[..., Traffic | Routing]] = {
    "uniform": uniform,
    "permutation": permutation,
    "incast": incast,
    "hot-node": hot_node,
    "zipf": zipf,
    "dirichlet": dirichlet,
    "sparse": sparse,
    "moe": moe,
    "routing": Routing,
}


def from_spec(spec: str, fabric: Fabric, **more: Any) -> Traffic | Tokens:
    """`"moe:skew=0.8,seed=1"` -> the workload of that name; unknown names and keys are errors.

    `more` are further options of the workload, which the spec must not give.
    """
    name, _, rest = spec.partition(":")
    if name not in WORKLOADS:
        raise InputError(
            f"unknown workload {shown(name)}; known workloads: {', '.join(WORKLOADS)}"
            f"{did_you_mean(name, WORKLOADS)}"
        )
    known = {
        key: p.default
        for key, p in inspect.signature(WORKLOADS[name]).parameters.items()
        if p.kind is p.KEYWORD_ONLY
    }
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, text = item.partition("=")
        if not equals or key not in known:
            raise InputError(
                f"{shown(spec)}: unknown option {shown(item)}; {name} takes "
                f"{', '.join(f'{k}={v}' for k, v in known.items())}{did_you_mean(key, known)}"
            )
        if key in options:
            raise InputError(f"{shown(spec)}: {key} is given twice")
        options[key] = _value(text, known[key], f"{shown(spec)}: {key}")
    twice = sorted(set(options) & set(more))
    if twice:
        raise InputError(f"{shown(spec)}: {twice[0]} is not for the spec to give")
    found = WORKLOADS[name](fabric, **options, **more)
    return found.made() if isinstance(found, Routing) else found


def _value(text: str, default: Any, where: str) -> Any:
    if isinstance(default, str):
        return text
    try:
        if isinstance(default, float):
            return float(parse_number(text))
        return parse_integer(text, "number", low=0)
    except InputError as error:
        raise InputError(f"{where}: {error}") from error
