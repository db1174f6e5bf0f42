"""Generated traffic, each a pure function of the fabric, its parameters and a seed.

    uniform, permutation, incast, hot-node     the classic patterns
    zipf, dirichlet                            receivers of unequal popularity
    sparse                                     a share of the pairs is without bytes
    birkhoff                                   sparse, every GPU sends and receives the same
    moe                                        tokens x top-k x hidden bytes over experts placed on
                                               GPUs
    fast-zipf, fast-random, prophet,           as papers publish them (`railopt.model.published`)
    rails-sparse
    routing, megatron, maxvio, drift           the same token by token, so that a token is sent once
                                               per node (`railopt.model.routed`): units, where the
                                               others are traffic

All but those of papers are railopt's own.  A seed always gives the same bytes
(`railopt.base.dice`).
`from_spec("moe:skew=0.8,seed=1", fabric)` is how the command line names them; `demand_from` takes a
file, too.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from railopt.base.arrays import MAX_TOTAL, Floats, Ints, require_type
from railopt.base.dice import Dice, exp, falling, ln
from railopt.base.errors import InputError, about, did_you_mean
from railopt.base.units import INT64_MAX, parse_bytes, parse_integer, parse_number, quoted
from railopt.model.fabric import Fabric
from railopt.model.published import fast_random, fast_zipf, prophet
from railopt.model.routed import (
    MAX_EXPERTS,
    Drift,
    MaxVio,
    Megatron,
    Routed,
    Routing,
    row_blocks,
    seen_weights,
    typed,
)
from railopt.model.routed import count_gpus as _count
from railopt.model.routed import within as _share
from railopt.model.running import PREFIX, running_job
from railopt.model.tokens import Tokens
from railopt.model.traffic import Traffic, trace_file

_MAX_SHARE = 1 << 61


def _traffic(fabric: Fabric, matrix: Ints) -> Traffic:
    """The matrix as traffic, not copied: the caller uses it no more.  No GPU sends to itself."""
    np.fill_diagonal(matrix, 0)
    matrix.flags.writeable = False  # so that it is not copied
    return Traffic.from_matrix(matrix, fabric)


def _flow(bytes_: float) -> float:
    """A flow's bytes, if they are not too many."""
    if bytes_ >= MAX_TOTAL:
        raise InputError(f"a flow of {bytes_:.3g} bytes: expected less than 2**62")
    return bytes_


@typed
def uniform(fabric: Fabric, *, size: str | int = "1MiB", seed: int = 0) -> Traffic:
    """Every GPU sends `size` to every other GPU.  The seed is not used."""
    return _traffic(fabric, np.full((_count(fabric),) * 2, _flow(parse_bytes(size)), np.int64))


@typed
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
    return _traffic(fabric, matrix)


@typed
def incast(fabric: Fabric, *, size: str | int = "1MiB", target: int = 0, seed: int = 0) -> Traffic:
    """Every GPU sends `size` to GPU `target`."""
    count = _count(fabric)
    if not 0 <= target < count:
        raise InputError(f"target = {target}: expected a GPU from 0 to {count - 1}")
    matrix = np.zeros((count, count), np.int64)
    matrix[:, target] = _flow(parse_bytes(size))
    return _traffic(fabric, matrix)


@typed
def hot_node(
    fabric: Fabric, *, size: str | int = "1MiB", node: int = 0, factor: float = 4.0, seed: int = 0
) -> Traffic:
    """Uniform, but the GPUs of one node receive `factor` times as much."""
    _share("factor", factor, 0, 1e6)
    if not 0 <= node < fabric.nodes:
        raise InputError(f"node = {node}: expected 0 to {fabric.nodes - 1}")
    usual, hot = (round(_flow(float(parse_bytes(size)) * times)) for times in (1.0, factor))
    matrix = np.full((_count(fabric),) * 2, usual, np.int64)
    matrix[:, node * fabric.gpus : (node + 1) * fabric.gpus] = hot
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
    matrix = np.empty((count, count), np.int64)
    for rows in row_blocks(count, count):
        words = dice.words(matrix[rows].size).reshape(-1, count)
        factor = (words >> np.uint64(33)).astype(np.int64) + (1 << 30)
        # share * factor >> 31, in two parts so that neither passes 63 bits
        matrix[rows] = (share >> 31) * factor + ((share & ((1 << 31) - 1)) * factor >> 31)
    return _traffic(fabric, matrix)


@typed
def zipf(
    fabric: Fabric, *, mean: str | int = "256KiB", skew: float = 0.8, seed: int = 0
) -> Traffic:
    """Receivers' popularity falls as rank ** -skew, in a random order."""
    dice, count = Dice(seed, "zipf"), _count(fabric)
    popularity = falling(count, _share("skew", skew, 0, 10))
    return _popular(fabric, popularity[dice.permutation(count)], mean, dice)


@typed
def dirichlet(
    fabric: Fabric, *, mean: str | int = "256KiB", concentration: float = 1.0, seed: int = 0
) -> Traffic:
    """Receivers' popularity is drawn from a symmetric Dirichlet distribution; small concentrations
    are skewed.
    """
    dice = Dice(seed, "dirichlet")
    alike = np.full(_count(fabric), float(_share("concentration", concentration, 1e-3, 1e6)))
    return _popular(fabric, dice.dirichlet(alike), mean, dice)


@typed
def sparse(
    fabric: Fabric,
    *,
    mean: str | int = "1MiB",
    zeros: float = 0.5,
    skew: float = 0.0,
    seed: int = 0,
) -> Traffic:
    """As `zipf`, but a share `zeros` of the pairs, chosen at random, is without bytes."""
    matrix = zipf(fabric, mean=mean, skew=skew, seed=seed).bytes.copy()
    dice, share = Dice(seed, "sparse"), _share("zeros", zeros, 0, 1)
    for rows in row_blocks(*matrix.shape):
        matrix[rows][dice.unit(matrix[rows].shape) < share] = 0
    return _traffic(fabric, matrix)


@typed
def rails_sparse(
    fabric: Fabric,
    *,
    sparsity: float = 0.5,
    skew: float = 0.0,
    per_gpu: str | int = "64MiB",
    seed: int = 0,
) -> Traffic:
    """A share `sparsity` of the pairs of GPUs is without bytes, and a GPU has `per_gpu` bytes on
    average whatever that share is: it keeps one of R parts, of R GPUs, for itself and sends the
    others.

    RailS reports sparse traffic and not its generator: that receivers' popularity falls as rank **
    -skew in random order and pairs vary by a factor from 0.5 to 1.5 (`sparse`) is ours.
    """
    _share("sparsity", sparsity, 0, 0.99)
    mean = max(int(parse_bytes(per_gpu) / _count(fabric) / (1 - sparsity)), 1)
    return sparse(fabric, mean=mean, zeros=sparsity, skew=skew, seed=seed)


@typed
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

    Experts (one per GPU by default) lie on the GPUs in order.  Their popularity falls as rank **
    -skew in a random order, and each source sees it through its own gamma noise (shape `jitter`),
    as different text does.
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
    seen = seen_weights(dice, popularity, count, _share("jitter", jitter, 1e-3, 1e9))
    counts = dice.counts(seen, tokens * top_k)
    matrix = np.zeros((count, count), np.int64)
    np.add.at(matrix.T, np.arange(number) * count // number, counts.T)
    return Traffic.from_matrix(matrix * parse_bytes(hidden), fabric)


@typed
def birkhoff(
    fabric: Fabric,
    *,
    size: str | int = "64MiB",
    sparsity: float = 0.5,
    spread: float = 3.0,
    seed: int = 0,
) -> Traffic:
    """Every GPU sends and receives exactly `size`, what it keeps for itself included: a weighted
    sum of random permutations (Birkhoff, von Neumann), the form that rccl-tests' alltoallv has.

    sparsity   the share of pairs without bytes: so many permutations are drawn that (1 - 1/n)^k is
               about that, 4 n of them for 0
    spread     weights are spread^u with a uniform u: the largest is up to so many times the least
    """
    matrix = doubly_even(_count(fabric), parse_bytes(size), (sparsity, spread), seed)
    return _traffic(fabric, matrix)


def doubly_even(count: int, size: int, shape: tuple[float, float], seed: int) -> Ints:
    """int64 [count, count] whose rows and columns each add up to `size`; shape: the sparsity and
    spread of `birkhoff`.
    """
    sparsity, spread = _share("sparsity", shape[0], 0, 0.95), _share("spread", shape[1], 1, 1e6)
    dice, terms = Dice(seed, "birkhoff"), 4 * count
    if sparsity > 0 and count > 1:
        terms = max(1, round(float(ln(sparsity) / ln(1.0 - 1.0 / count))))
    raw = np.rint(exp(dice.unit(terms) * ln(spread)) * 2.0**20).astype(np.int64).tolist()
    weights = [size * weight // sum(raw) for weight in raw]
    for term in range(size - sum(weights)):
        weights[term] += 1
    matrix = np.zeros((count, count), np.int64)
    for weight in weights:
        matrix[np.arange(count), dice.permutation(count)] += weight
    return matrix


WORKLOADS: dict[str, Callable[..., Traffic | Routed]] = {
    "uniform": uniform,
    "permutation": permutation,
    "incast": incast,
    "hot-node": hot_node,
    "zipf": zipf,
    "dirichlet": dirichlet,
    "sparse": sparse,
    "birkhoff": birkhoff,
    "moe": moe,
    "fast-zipf": fast_zipf,
    "fast-random": fast_random,
    "prophet": prophet,
    "rails-sparse": rails_sparse,
    "routing": Routing,
    "megatron": Megatron,
    "maxvio": MaxVio,
    "drift": Drift,
}
ROUTED = tuple(name for name, made in WORKLOADS.items() if isinstance(made, type))
BYTES = tuple(name for name in WORKLOADS if name not in ROUTED)


def known_workloads(text: str) -> str:
    """The end of a complaint about a text that names none of them."""
    meant = did_you_mean(text.partition(":")[0], WORKLOADS)
    return f"known workloads: {', '.join(WORKLOADS)}{meant}"


def from_spec(spec: str, fabric: Fabric, **more: Any) -> Traffic | Tokens:
    """`"moe:skew=0.8,seed=1"` -> the workload of that name; unknown names and keys are errors.

    `more` are further options of the workload, which the spec must not give.
    """
    found = workload(spec, fabric, **more)
    return found.made() if isinstance(found, Routed) else found


def parameters(spec: str) -> dict[str, Any]:
    """Parameters that a spec gives, by name, numbers as numbers; none where it names no workload
    (a file), and without those that the workload does not know.
    """
    name, _, rest = spec.partition(":")
    if name not in WORKLOADS:
        return {}
    known, items = _known(name), (item.partition("=") for item in rest.split(","))
    return {key: _read(text) for key, equals, text in items if equals and key in known}


def default(spec: str, name: str) -> Any:
    """What a parameter is where a spec does not give it; None where its workload has none."""
    workload = spec.partition(":")[0]
    found = _known(workload).get(name) if workload in WORKLOADS else None
    return _read(found) if isinstance(found, str) else found


def _known(name: str) -> dict[str, Any]:
    """The parameters of a workload and their defaults."""
    return {
        key: p.default
        for key, p in inspect.signature(WORKLOADS[name]).parameters.items()
        if p.kind is p.KEYWORD_ONLY
    }


def _read(text: str) -> int | float | str:
    """A value of a spec: a number where it is one, else text."""
    try:
        number = parse_number(text)
    except InputError:
        return text
    if abs(number) > INT64_MAX:
        return text
    return number.numerator if number.denominator == 1 else float(number)


def workload(spec: str, fabric: Fabric, **more: Any) -> Traffic | Routed:
    """As `from_spec`, but routing stays routing: which tokens choose which experts."""
    name, _, rest = spec.partition(":")
    if name not in WORKLOADS:
        raise InputError(f"unknown workload {quoted(name)}; {known_workloads(name)}")
    known = _known(name)
    options: dict[str, Any] = {}
    for item in filter(None, rest.split(",")):
        key, equals, text = item.partition("=")
        if key in known and not equals:
            raise InputError(f"{quoted(spec)}: found {quoted(item)}, expected {key}=VALUE")
        if key not in known:
            raise InputError(
                f"{quoted(spec)}: unknown option {quoted(item)}; {name} takes "
                f"{', '.join(f'{k}={v}' for k, v in known.items())}{did_you_mean(key, known)}"
            )
        if key in options:
            raise InputError(f"{quoted(spec)}: {key} is given twice")
        options[key] = _value(text, known[key], f"{quoted(spec)}: {key}")
    twice = sorted(set(options) & set(more))
    if twice:
        raise InputError(f"{quoted(spec)}: {twice[0]} is not for the spec to give")
    return WORKLOADS[name](fabric, **options, **more)


def _value(text: str, default: Any, where: str) -> Any:
    if isinstance(default, str):
        return text
    with about(f"{where}: "):
        if isinstance(default, float):
            return float(parse_number(text))
        return parse_integer(text, "number", low=0)


def traffic_from(text: str | os.PathLike[str], fabric: Fabric) -> Traffic:
    """Bytes between GPUs, as `demand_from` finds them."""
    found = demand_from(text, fabric)
    if isinstance(found, Tokens):
        raise InputError(
            f"{quoted(text)} is tokens, which go once to several GPUs: expected bytes between "
            f"GPUs, a file or a workload such as moe"
        )
    return found


def demand_from(text: str | os.PathLike[str], fabric: Fabric) -> Traffic | Tokens:
    """A traffic file, a job that ran (`"inspector:DIR"`, see `railopt.model.running`), or a
    workload by its spec (`"moe:skew=0.8,seed=1"`); a file wins where both exist.
    """
    require_type(text, str | os.PathLike, "traffic", "a file's name or a workload's spec")
    require_type(fabric, Fabric, "fabric", "a Fabric")
    text = os.fspath(text)
    if trace_file(text) is not None:
        raise InputError(
            f"{quoted(text)} is a routing trace: railopt convert makes a file of traffic of it"
        )
    if os.path.exists(text):
        return Traffic.read(text, fabric)
    if text.startswith(PREFIX):
        return running_job(text, fabric).traffic
    if text.partition(":")[0] in WORKLOADS:
        return from_spec(text, fabric)
    if not Path(text.partition(":")[0]).suffix:
        raise InputError(
            f"{quoted(text)} is neither a file nor a workload; {known_workloads(text)}"
        )
    return Traffic.read(text, fabric)
