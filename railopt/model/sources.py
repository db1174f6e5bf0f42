"""Where traffic and tokens come from: a file, a job that ran, or a generated workload."""

from __future__ import annotations

import os
from pathlib import Path

from railopt.base import archive
from railopt.base.arrays import kind_of, read_npy, require_type
from railopt.base.errors import InputError, did_you_mean, printable
from railopt.base.units import quoted
from railopt.model.fabric import Fabric
from railopt.model.running import PREFIX, running_job
from railopt.model.tokens import Tokens
from railopt.model.traffic import Traffic
from railopt.model.workloads import WORKLOADS, from_spec


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
            f"{quoted(text)} is a routing trace: railopt convert makes a file of traffic of it, "
            f"railopt.moe.dispatches_from its dispatches"
        )
    if is_file(text):
        return Traffic.read(text, fabric)
    if text.startswith(PREFIX):
        return running_job(text, fabric).traffic
    if text.partition(":")[0] in WORKLOADS:
        return from_spec(text, fabric)
    if not Path(text.partition(":")[0]).suffix:
        raise InputError(
            f"{quoted(text)} is neither a file nor a workload; known workloads: "
            f"{', '.join(WORKLOADS)}{did_you_mean(text.partition(':')[0], WORKLOADS)}"
        )
    return Traffic.read(text, fabric)


def trace_file(text: str) -> tuple[str, str] | None:
    """(file, options) where the text names a routing trace, alone or with what to take of it, as
    `"trace.npz:step=3,layer=2"`; None for anything else.  A plain array is a trace if it has more
    dimensions than a matrix of bytes, or options.
    """
    if is_file(text):
        return (text, "") if _is_trace(text, plain=3) else None
    path, colon, options = text.rpartition(":")
    if not colon or not is_file(path):
        return None
    if not _is_trace(path, plain=2):
        raise InputError(
            f"{printable(path)} is no routing trace: expected nothing behind it, found "
            f"{quoted(colon + options)}"
        )
    return path, options


def _is_trace(path: str, plain: int) -> bool:
    """Whether a file holds routing: railopt's, PyTorch's, or an array of at least `plain`
    dimensions.
    """
    suffix = Path(path).suffix.lower()
    if suffix == ".npy":
        return read_npy(path).ndim >= plain
    if suffix != ".npz":
        return suffix == ".pt"
    with archive.opened(path) as members:
        if "header.json" in members.names or len(members.names) != 1:
            return kind_of(path) == "trace"
        return members.array(members.names[0]).ndim >= plain


def is_file(text: str) -> bool:
    """Whether something lies under this name; what can't be a name is none."""
    return os.path.exists(text)
