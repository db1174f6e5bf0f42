"""Where traffic and tokens come from: a file, or a generated workload."""

from __future__ import annotations

import os
from pathlib import Path

from railopt.base.arrays import require_type
from railopt.base.errors import InputError, did_you_mean
from railopt.base.units import quoted
from railopt.model.fabric import Fabric
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
    """A traffic file, or a workload by its spec (`"moe:skew=0.8,seed=1"`); a file wins where both
    exist.
    """
    require_type(text, str | os.PathLike, "traffic", "a file's name or a workload's spec")
    require_type(fabric, Fabric, "fabric", "a Fabric")
    text = os.fspath(text)
    if is_file(text):
        return Traffic.read(text, fabric)
    if text.partition(":")[0] in WORKLOADS:
        return from_spec(text, fabric)
    if not Path(text).suffix:
        raise InputError(
            f"{quoted(text)} is neither a file nor a workload; known workloads: "
            f"{', '.join(WORKLOADS)}{did_you_mean(text.partition(':')[0], WORKLOADS)}"
        )
    return Traffic.read(text, fabric)


def is_file(text: str) -> bool:
    """Whether something lies under this name; what can't be a name is none."""
    return os.path.exists(text)
