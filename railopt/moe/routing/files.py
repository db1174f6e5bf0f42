"""Foreign routing records: sglang's expert recorder, EPLB-style load tensors, vLLM's routed
experts, and railopt's own traces.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.base import archive
from railopt.base.arrays import Array, Int32s, frozen, read_npy
from railopt.base.errors import FormatError, InputError, about, printable
from railopt.files import tabular
from railopt.moe.routing.trace import LOADS, MAX_EXPERTS, MAX_LAYERS, SERVING, Trace

MAX_COUNTS = 1 << 28  # entries [step, layer, rank, expert] of a trace that is made here
MAX_PICKS = 1 << 27  # (token, expert) pairs of per-token records
RUNS = 16  # steps that a sequence of tokens is cut into
BLOCK = 1 << 20  # entries of a load tensor that are split at a time
LEAST_LOAD = 100  # what the largest of fractional loads has to be: they are rounded
OF_TOKENS = {
    "sources": "assumed: tokens of a step in equal runs, one per rank",
    "records": SERVING,
}
KNOWN_TOP_K = "--top-k can't do anything with a trace that knows it"
FEWEST_TOKENS, MOST_CHOSEN, MOST_EXPERTS = 32, 16, 1024  # of what is taken for tokens' experts


def read_trace(
    path: str | os.PathLike[str],
    *,
    ranks: int,
    top_k: int | None = None,
    usual_top_k: int | None = None,
    routed_experts: int | None = None,
) -> Trace:
    """Read by suffix: `.npz` a railopt trace or one plain array, `.pt` sglang's recorder or one
    plain tensor, `.npy` a plain array.  Only railopt's traces and plain arrays of four dimensions,
    [steps, layers, ranks, experts], know source ranks.

    top_k           experts per token, where the file does not say; `usual_top_k` in its place
                    where it is not known but likely, as a model's is; else 1 is assumed
    routed_experts  the plain tensor holds ids of so many experts, see `from_routed`; without it, it
                    holds loads
    """
    suffix, name = Path(path).suffix.lower(), printable(path)
    if suffix not in READERS:
        raise InputError(
            f"{name}: unknown kind of trace; expected .npz (railopt, or one array), .pt (sglang "
            f"recorder, or one tensor) or .npy (one array)"
        )
    data = READERS[suffix](path)
    with about(f"{name}: "):
        plain = isinstance(data, np.ndarray)
        if routed_experts is not None and not plain:
            raise InputError("--routed-experts can't do anything with what is no plain tensor")
        if top_k is not None and (isinstance(data, Trace) or routed_experts is not None):
            raise InputError(KNOWN_TOP_K)
        if isinstance(data, Trace):
            return data
        if routed_experts is not None:
            return from_routed(data, routed_experts, ranks=ranks)
        if not plain:
            return from_sglang(data, ranks=ranks, top_k=top_k, usual_top_k=usual_top_k)
        chosen, meta = _top_k(top_k, usual_top_k)
        if data.ndim == 4:
            return from_counts(data, top_k=chosen, meta=meta)
        if top_k is None and _like_ids(data):
            raise InputError(
                f"shape {data.shape}, whole numbers up to {data.max()}, none twice in a row: these "
                f"look like ids of experts, as vLLM's routed_experts; give --routed-experts N if "
                f"they are of N experts, or --top-k K if they are loads of {data.shape[2]} experts"
            )
        return from_load(data, ranks=ranks, top_k=chosen, meta=meta)


def _top_k(given: int | None, usual: int | None) -> tuple[int, dict[str, Any]]:
    """Experts per token, and what a trace notes of them where they are assumed."""
    assumed = usual or 1
    return (given, {}) if given is not None else (assumed, {"top_k": f"assumed {assumed}"})


def _like_ids(data: Array) -> bool:
    """Whether a plain tensor looks like tokens' experts [length, layers, top_k] and not like loads
    [steps, layers, experts].  A token has few experts and none twice; their ids do not add up to
    the same number in every layer, as loads of a step do.
    """
    if data.ndim != 3 or data.dtype.kind not in "iu" or 0 in data.shape:
        return False
    length, layers, top_k = data.shape
    if length * layers < FEWEST_TOKENS or top_k > MOST_CHOSEN:
        return False
    if data.min() < 0 or not top_k <= data.max() < MOST_EXPERTS:
        return False
    ordered, sums = np.sort(data, axis=2), data.sum(axis=2, dtype=np.int64)
    distinct = bool((ordered[:, :, 1:] > ordered[:, :, :-1]).all())
    return distinct and not (layers > 1 and bool((sums == sums[:, :1]).all()))


def _npz(path: str | os.PathLike[str]) -> Trace | Array:
    """A railopt trace, or the only array of a foreign archive."""
    with archive.opened(path) as members:
        if "header.json" not in members.names and members.names:
            if len(members.names) > 1 or not members.names[0].endswith(".npy"):
                found = printable(sorted(members.names))
                raise FormatError(f"holds {found}; expected a railopt trace, or one array")
            return members.array(members.names[0])
    return Trace.read(path)


def _pt(path: str | os.PathLike[str]) -> Any:
    """What torch.save wrote, plain values and tensors alone; a bare tensor as an array."""
    name = printable(path)
    try:
        import torch
    except ImportError as error:
        raise InputError(
            f"{name}: reading .pt files needs PyTorch (pip install torch); or save the tensor as "
            f".npy"
        ) from error
    try:
        data = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror or error}") from error
    except Exception as error:  # whatever torch makes of a hostile file
        why = printable(str(error).strip().partition("\n")[0], 100)
        raise FormatError(
            f"{name}: damaged or foreign, not a .pt file of plain values and tensors ({why})"
        ) from error
    return _array(data, "the tensor") if isinstance(data, torch.Tensor) else data


READERS: dict[str, Callable[[str | os.PathLike[str]], Any]] = {
    ".npz": _npz,
    ".pt": _pt,
    ".npy": read_npy,
}


def from_routed(chosen: npt.ArrayLike, experts: int, *, ranks: int) -> Trace:
    """The experts of each token in order, int [length, layers, top_k], as vLLM returns them
    (`routed_experts`): RUNS steps of as many tokens, each step's in equal runs on `ranks` ranks.
    """
    given: Array = np.asarray(chosen)
    if given.ndim != 3 or given.dtype.kind not in "iu" or 0 in given.shape:
        raise InputError(
            f"routed experts of shape {given.shape} and type {printable(given.dtype, 40)}: "
            f"expected whole numbers [length, layers, top_k]"
        )
    if given.size > MAX_PICKS:
        raise FormatError(f"more than {MAX_PICKS} (token, expert) pairs: record fewer tokens")
    low, high = int(given.min()), int(given.max())
    if low < 0 or high >= experts:
        raise InputError(f"routed experts from {low} to {high}: expected 0 to {experts - 1}")
    steps = np.array_split(given.swapaxes(0, 1), min(RUNS, len(given)), axis=1)
    counts = _counted(steps, ranks, experts)
    meta = {"source": "vLLM, routed_experts", **OF_TOKENS}
    return Trace(counts, int(given.shape[2]), meta=meta)


def from_counts(
    counts: npt.ArrayLike, *, top_k: int = 1, meta: dict[str, Any] | None = None
) -> Trace:
    """Whole numbers [steps, layers, source ranks, experts] of (token, expert) pairs as a trace of
    training iterations 0, 1, ...
    """
    given: Array = np.asarray(counts)
    if given.ndim != 4 or given.dtype.kind not in "iuf" or 0 in given.shape:
        raise InputError(
            f"counts of shape {given.shape} and type {printable(given.dtype, 40)}: expected whole "
            f"numbers [steps, layers, ranks, experts]"
        )
    steps, layers, ranks, experts = given.shape
    _check_size(steps, layers, ranks, experts)
    whole = tabular.as_integers(np.array(given), "counts")  # a copy: the file may change
    return Trace(frozen(whole, np.int32, "counts", 4), top_k, meta=meta or {})


def from_load(
    load: npt.ArrayLike, *, ranks: int, top_k: int = 1, meta: dict[str, Any] | None = None
) -> Trace:
    """An EPLB-style load tensor, [layers, experts] or [steps, layers, experts], as a trace of
    `ranks` equal source ranks.

    The tensor does not say where tokens come from: they are spread evenly, which `meta["sources"]`
    notes.  Steps without tokens are left out: a recorder's ring that is not full has them.
    """
    given: Array = np.asarray(load)
    if given.ndim == 2:
        given = given[None]
    if given.ndim != 3 or given.dtype.kind not in "iuf" or 0 in given.shape:
        raise InputError(
            f"a load tensor of shape {given.shape} and type {printable(given.dtype, 40)}: expected "
            f"numbers [layers, experts] or [steps, layers, experts], or with source ranks [steps, "
            f"layers, ranks, experts]"
        )
    steps, layers, experts = given.shape
    _check_size(steps, layers, ranks, experts)
    if given.dtype.kind == "f" and not np.isfinite(given).all():
        raise InputError("the load tensor holds infinities or NaN")
    low, high = given.min(), given.max()
    if low < 0:
        raise InputError(f"the load tensor holds {low}: a count can't be negative")
    if float(high) / ranks >= np.iinfo(np.int32).max:
        raise InputError(f"a load of {high}: beyond int32 a rank; divide the tensor first")
    if high < LEAST_LOAD and given.dtype.kind == "f" and (given % 1).any():
        raise InputError(
            f"the load tensor holds fractions, the largest load is {high:g}: expected tokens; "
            f"multiply it until that is {LEAST_LOAD} or more, since loads are rounded"
        )
    busy = np.flatnonzero(given.any(axis=(1, 2)))
    if not len(busy):
        raise InputError("the load tensor holds no tokens at all")
    counts = _spread(given[busy].reshape(-1, experts), ranks)
    counts = counts.reshape(len(busy), layers, ranks, experts)
    counts.flags.writeable = False
    noted = {"sources": "assumed even: the load tensor has no source ranks", "records": LOADS}
    return Trace(counts, top_k, iterations=busy, meta={**noted, **(meta or {})})


def _spread(loads: Array, ranks: int) -> Int32s:
    """int32 [row, rank, expert] of loads [row, expert]: equal whole shares, what is left over to
    ranks that differ from expert to expert.
    """
    rows, experts = loads.shape
    turn = (np.arange(ranks)[:, None] + np.arange(experts)[None, :]) % ranks
    counts = np.empty((rows, ranks, experts), np.int32)
    block = max(1, BLOCK // experts)
    for start in range(0, rows, block):
        some = np.rint(loads[start : start + block]).astype(np.int64)
        share, rest = np.divmod(some, ranks)
        for rank in range(ranks):
            counts[start : start + block, rank] = share + (turn[rank] < rest)
    return counts


def from_sglang(
    data: Any, *, ranks: int, top_k: int | None = None, usual_top_k: int | None = None
) -> Trace:
    """The content of an sglang recorder file: statistics (`logical_count`), of `top_k` experts per
    token, or per-token records (`records`), which say it themselves.
    """
    if isinstance(data, dict) and "logical_count" in data:
        chosen, assumed = _top_k(top_k, usual_top_k)
        return from_load(
            _array(data["logical_count"], "logical_count"),
            ranks=ranks,
            top_k=chosen,
            meta={"source": "sglang recorder, statistics", "records": SERVING, **assumed},
        )
    if isinstance(data, dict) and "records" in data:
        if top_k is not None:
            raise InputError(KNOWN_TOP_K)
        return _from_records(data["records"], data.get("last_physical_to_logical_map"), ranks)
    found = printable(list(data)[:8]) if isinstance(data, dict) else type(data).__name__
    raise FormatError(
        f"not an sglang recorder file: found {found}, expected 'logical_count' or 'records'"
    )


def _from_records(records: Any, slots: Any, ranks: int) -> Trace:
    """slots  int [layer, slot], the expert in each, where ids are of slots, as sglang's are; None:
    ids are of experts
    """
    if not isinstance(records, list) or not records:
        raise FormatError("sglang records: expected a list with at least one record")
    if not all(isinstance(record, dict) for record in records):
        raise FormatError("sglang records: expected a dict each")
    passes = [_array(r.get("topk_ids_of_layer"), "topk_ids_of_layer") for r in records]
    first = passes[0].shape
    if any(p.ndim != 3 or p.dtype.kind not in "iu" or p.shape[::2] != first[::2] for p in passes):
        raise FormatError(
            f"topk_ids_of_layer of shapes {[p.shape for p in passes[:3]]}: expected whole numbers "
            f"[layers, tokens, k], alike"
        )
    if sum(p.size for p in passes) > MAX_PICKS:
        raise FormatError(f"more than {MAX_PICKS} (token, expert) pairs: record fewer steps")
    if slots is not None:
        slots = _array(slots, "last_physical_to_logical_map")
        passes = [_logical(p, slots) for p in passes]
    named = passes if slots is None else [slots]
    experts = 1 + max((int(p.max()) for p in named if p.size), default=-1)
    busy = [step for step, ids in enumerate(passes) if (ids >= 0).any()]
    if not busy:
        raise FormatError("topk_ids_of_layer: no token chose an expert in any record")
    counts = _counted([passes[step] for step in busy], ranks, experts)
    top_k = max(int((passes[step] >= 0).sum(axis=2).max()) for step in busy)
    meta = {"source": "sglang recorder, per token", **OF_TOKENS}
    return Trace(counts, top_k, iterations=np.array(busy), meta=meta)


def _logical(ids: Array, slots: Array) -> Array:
    """Experts of ids [layer, token, k] of slots, by the expert of each slot [layer, slot]; -1 stays
    -1.
    """
    if slots.ndim != 2 or slots.dtype.kind not in "iu" or len(slots) != len(ids) or not slots.size:
        raise FormatError(
            f"last_physical_to_logical_map of shape {slots.shape}: expected whole numbers [layers, "
            f"slots], {len(ids)} layers as topk_ids_of_layer has"
        )
    if slots.min() < 0:
        raise FormatError(f"last_physical_to_logical_map holds {slots.min()}: expected experts")
    if ids.size and ids.max() >= slots.shape[1]:
        raise FormatError(
            f"topk_ids_of_layer holds {ids.max()}: expected slots 0 to {slots.shape[1] - 1}, which "
            f"last_physical_to_logical_map has"
        )
    layer = np.arange(len(ids))[:, None, None]
    return np.where(ids < 0, -1, slots[layer, np.maximum(ids, 0)])


def _counted(steps: list[Array], ranks: int, experts: int) -> Int32s:
    """int32 [step, layer, rank, expert]: how often ids [layer, token, k] of each step name an
    expert, tokens in equal runs on the ranks; sglang pads with -1.
    """
    layers = len(steps[0])
    _check_size(len(steps), layers, ranks, experts)
    counts = np.zeros((len(steps), layers, ranks, experts), np.int32)
    for step, ids in enumerate(steps):
        rank = np.arange(ids.shape[1]) * ranks // ids.shape[1]
        for layer, chosen in enumerate(ids):
            key = rank[:, None] * experts + chosen.astype(np.int64)
            found = np.bincount(key[chosen >= 0], minlength=ranks * experts)
            counts[step, layer] = found.reshape(ranks, experts)
    counts.flags.writeable = False
    return counts


def _check_size(steps: int, layers: int, ranks: int, experts: int) -> None:
    if ranks < 1:
        raise InputError(f"{ranks} source ranks: expected at least 1")
    if experts > MAX_EXPERTS or layers > MAX_LAYERS:
        raise FormatError(
            f"{layers} layers of {experts} experts: at most {MAX_LAYERS} of {MAX_EXPERTS} are read"
        )
    if steps * layers * ranks * experts > MAX_COUNTS:
        raise FormatError(
            f"{steps} steps x {layers} layers x {ranks} ranks x {experts} experts: more than "
            f"{MAX_COUNTS} counts; keep the last {MAX_COUNTS // (layers * ranks * experts)} steps"
        )


def _array(value: Any, name: str) -> Array:
    """An array of numbers, which may be a tensor of PyTorch."""
    if not isinstance(value, np.ndarray) and hasattr(value, "numpy"):
        try:
            value = value.numpy()
        except (TypeError, RuntimeError) as error:
            raise FormatError(f"{name}: {printable(error, 100)}") from error
    if not isinstance(value, np.ndarray):
        raise FormatError(f"{name}: found {type(value).__name__}, expected a tensor")
    return value
