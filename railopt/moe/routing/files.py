"""Foreign routing records: sglang's expert recorder (.pt), EPLB-style load tensors (.npy), and
railopt's own traces.

A `.pt` file is a zip with a pickle and raw arrays.  It is read here without PyTorch by an unpickler
that knows plain values and tensors and refuses everything else, so that no code in the file can
run.
"""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.arrays import Array
from railopt.errors import FormatError, InputError
from railopt.moe.routing.trace import Trace

_STORAGES = {
    "ByteStorage": "u1",
    "CharStorage": "i1",
    "ShortStorage": "i2",
    "IntStorage": "i4",
    "LongStorage": "i8",
    "BoolStorage": "?",
    "HalfStorage": "f2",
    "FloatStorage": "f4",
    "DoubleStorage": "f8",
}


def read_any(path: str | os.PathLike[str], *, ranks: int, top_k: int | None = None) -> Trace:
    """Read by suffix: `.npz` a railopt trace, `.pt` sglang's recorder, `.npy` a load tensor; the
    last two know no source ranks.
    """
    suffix = Path(path).suffix
    if suffix == ".npz":
        return Trace.read(path)
    if suffix == ".pt":
        return from_sglang(load_pt(path), ranks=ranks, top_k=top_k)
    if suffix == ".npy":
        try:
            return from_load(np.load(path, allow_pickle=False), ranks=ranks, top_k=top_k or 1)
        except FileNotFoundError:
            raise InputError(f"{path}: no such file") from None
        except (ValueError, EOFError) as error:
            raise FormatError(f"{path}: not a plain array ({error})") from error
    raise InputError(
        f"{path}: unknown kind of trace; expected .npz (railopt), .pt (sglang recorder) or .npy "
        f"(load tensor)"
    )


def from_load(
    load: npt.ArrayLike, *, ranks: int, top_k: int = 1, meta: dict[str, Any] | None = None
) -> Trace:
    """An EPLB-style load tensor, [layers, experts] or [steps, layers, experts], as a trace of
    `ranks` equal source ranks.

    The tensor does not say where tokens come from: they are spread evenly, which `meta["sources"]`
    notes.
    """
    given: Array = np.asarray(load)
    if given.ndim == 2:
        given = given[None]
    if given.ndim != 3 or given.dtype.kind not in "iuf" or 0 in given.shape:
        raise InputError(
            f"a load tensor of shape {given.shape} and type {given.dtype}: expected numbers "
            f"[layers, experts] or "
            "[steps, layers, experts]"
        )
    if given.dtype.kind == "f":
        if not np.isfinite(given).all():
            raise InputError("the load tensor holds infinities or NaN")
        given = np.rint(given)
    if given.min() < 0:
        raise InputError(f"the load tensor holds {given.min()}: a count can't be negative")
    whole = given.astype(np.int64)
    share, rest = np.divmod(whole, ranks)
    turn = (np.arange(ranks)[:, None] + np.arange(whole.shape[2])[None, :]) % ranks
    counts = share[:, :, None, :] + (turn[None, None] < rest[:, :, None, :])
    return Trace(
        _narrow(counts),
        top_k,
        meta={"sources": "assumed even: the load tensor has no source ranks", **(meta or {})},
    )


def from_sglang(data: Any, *, ranks: int, top_k: int | None = None) -> Trace:
    """The content of an sglang recorder file: statistics (`logical_count`) or per-token records
    (`records`).
    """
    if isinstance(data, dict) and "logical_count" in data:
        return from_load(
            _array(data["logical_count"], "logical_count"),
            ranks=ranks,
            top_k=top_k or 1,
            meta={"source": "sglang recorder, statistics"},
        )
    if isinstance(data, dict) and "records" in data:
        return _from_records(data["records"], ranks, data.get("last_physical_to_logical_map"))
    keys = sorted(data) if isinstance(data, dict) else type(data).__name__
    raise FormatError(
        f"not an sglang recorder file: found {keys}, expected 'logical_count' or 'records'"
    )


def _from_records(records: Any, ranks: int, physical: Any) -> Trace:
    if not isinstance(records, list) or not records:
        raise FormatError("sglang records: expected a list with at least one record")
    passes = [
        _array(r.get("topk_ids_of_layer") if isinstance(r, dict) else None, "topk_ids_of_layer")
        for r in records
    ]
    if any(p.ndim != 3 or p.shape[::2] != passes[0].shape[::2] for p in passes):
        raise FormatError(
            f"topk_ids_of_layer of shapes {[p.shape for p in passes[:3]]}: expected [layers, "
            f"tokens, k], alike"
        )
    experts = 1 + max(int(p.max()) for p in passes if p.size)
    layers, _, top_k = passes[0].shape
    counts = np.zeros((len(passes), layers, ranks, experts), np.int64)
    for step, ids in enumerate(passes):
        rank = np.arange(ids.shape[1]) * ranks // max(ids.shape[1], 1)
        valid = ids >= 0  # sglang pads with -1
        layer = np.broadcast_to(np.arange(layers)[:, None, None], ids.shape)[valid]
        np.add.at(
            counts[step],
            (layer, np.broadcast_to(rank[None, :, None], ids.shape)[valid], ids[valid]),
            1,
        )
    rows = [
        misc["num_tokens_per_rank"]
        for r in records
        for misc in r.get("misc_objects") or []
        if "num_tokens_per_rank" in misc
    ]
    meta: dict[str, Any] = {
        "source": "sglang recorder, per token",
        "sources": "assumed: tokens of a step in equal runs, one a rank",
    }
    if rows:
        meta["num_tokens_per_rank"] = [
            _array(row, "num_tokens_per_rank").reshape(-1).tolist() for row in rows
        ]
    return Trace(counts.astype(np.int32), int(top_k), meta=meta)


def _narrow(counts: Array) -> npt.NDArray[np.int32]:
    if counts.max() > np.iinfo(np.int32).max:
        raise InputError(f"a count of {counts.max()} a rank: beyond int32; divide the tensor first")
    return counts.astype(np.int32)


def _array(value: Any, name: str) -> Array:
    if not isinstance(value, np.ndarray):
        raise FormatError(f"{name}: found {type(value).__name__}, expected a tensor")
    return value


class _Plain(pickle.Unpickler):
    """An unpickler for tensors and plain values; every other name in the file is refused."""

    def __init__(self, file: io.BytesIO, archive: zipfile.ZipFile, root: str) -> None:
        super().__init__(file)
        self._archive, self._root = archive, root

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("torch._utils", "_rebuild_tensor_v2"):
            return _tensor
        if module == "torch" and name in _STORAGES:
            return np.dtype("<" + _STORAGES[name] if _STORAGES[name] != "?" else "?")
        if (module, name) == ("collections", "OrderedDict"):
            return dict
        raise FormatError(
            f"unsafe .pt file: it asks for {module}.{name}; only tensors and plain values are "
            f"read, nothing is executed"
        )

    def persistent_load(self, pid: Any) -> Array:
        kind, dtype, key, _, count = pid
        if kind != "storage" or not isinstance(dtype, np.dtype) or not str(key).isalnum():
            raise FormatError(f"unsafe .pt file: unknown storage {pid!r}")
        raw = self._archive.read(f"{self._root}/data/{key}")
        if len(raw) < count * dtype.itemsize:
            raise FormatError(
                f"damaged .pt file: storage {key} has {len(raw)} bytes, expected "
                f"{count * dtype.itemsize}"
            )
        return np.frombuffer(raw, dtype, count)


def _tensor(
    storage: Array, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: Any
) -> Array:
    last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True)) if all(size) else -1
    if (
        not isinstance(storage, np.ndarray)
        or offset < 0
        or min(stride, default=0) < 0
        or min(size, default=0) < 0
        or last >= len(storage)
    ):
        raise FormatError(f"damaged .pt file: a tensor of shape {size} beyond its storage")
    item = storage.dtype.itemsize
    return np.lib.stride_tricks.as_strided(
        storage[offset:], size, [s * item for s in stride]
    ).copy()


def load_pt(path: str | os.PathLike[str]) -> Any:
    """The plain values and arrays of a `.pt` file (torch.save's zip format); a FormatError for
    anything else.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            found = [name for name in archive.namelist() if name.endswith("/data.pkl")]
            if len(found) != 1:
                raise FormatError(f"{path}: no data.pkl inside: not a file of torch.save")
            root = found[0].removesuffix("/data.pkl")
            return _Plain(io.BytesIO(archive.read(found[0])), archive, root).load()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error
    except (
        zipfile.BadZipFile,
        pickle.UnpicklingError,
        EOFError,
        KeyError,
        ValueError,
        TypeError,
        IndexError,
        AttributeError,
    ) as error:
        raise FormatError(
            f"{path}: damaged or foreign, not a readable .pt file ({error})"
        ) from error
