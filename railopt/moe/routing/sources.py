"""Where routing traces come from: a file, or generated routing, step after step."""

from __future__ import annotations

import os
from dataclasses import replace

import numpy as np

from railopt.base.errors import InputError, did_you_mean
from railopt.base.units import parse_integer, quoted
from railopt.model.fabric import MAX_GPUS, Fabric
from railopt.model.routed import Routed
from railopt.model.workloads import ROUTED, WORKLOADS, workload
from railopt.moe.routing.files import read_trace
from railopt.moe.routing.trace import Trace

MAX_COUNTS = 1 << 25  # entries [step, rank, expert] of a generated trace
STEPS = 16  # of a generated trace, where its spec does not say


def trace_from(
    text: str,
    *,
    ranks: int,
    top_k: int | None = None,
    usual_top_k: int | None = None,
    routed_experts: int | None = None,
) -> Trace:
    """A trace file (`read_trace`), or generated routing by its spec, e.g. "drift:sigma=1,steps=40";
    a file wins where both exist.
    """
    name = text.partition(":")[0]
    if os.path.exists(text) or name not in WORKLOADS:
        return read_trace(
            text, ranks=ranks, top_k=top_k, usual_top_k=usual_top_k, routed_experts=routed_experts
        )
    if name not in ROUTED:
        raise InputError(
            f"{quoted(text)} is bytes between GPUs: expected a trace file or routing, one of "
            f"{', '.join(ROUTED)}{did_you_mean(name, ROUTED)}"
        )
    if top_k is not None or routed_experts is not None:
        raise InputError(
            f"{quoted(text)} says itself how many experts there are and a token chooses: "
            f"experts=..., top=..."
        )
    return generated(text, ranks)


def generated(spec: str, ranks: int) -> Trace:
    """A trace of one layer: `steps` steps of a workload, from the spec's `step` on."""
    if ranks > MAX_GPUS:
        raise InputError(f"{quoted(spec)} on {ranks} GPUs: traces of at most {MAX_GPUS} are made")
    name, _, rest = spec.partition(":")
    options = [item for item in rest.split(",") if item]
    given = [item.partition("=")[2] for item in options if item.startswith("steps=")]
    others = ",".join(item for item in options if not item.startswith("steps="))
    made = workload(f"{name}:{others}", Fabric.uniform(1, 1, gpus=ranks))
    assert isinstance(made, Routed)
    steps = parse_integer(given[-1], "steps", low=1) if given else STEPS
    if len(given) > 1 or steps * ranks * made.experts > MAX_COUNTS:
        raise InputError(
            f"{quoted(spec)}: expected steps once, and at most {MAX_COUNTS} counts of steps x "
            f"{ranks} GPUs x {made.experts} experts"
        )
    replace(made, step=made.step + steps - 1)  # refused before the others are made
    counts = [replace(made, step=made.step + k).counts() for k in range(steps)]
    return Trace(
        np.stack(counts)[:, None].astype(np.int32),
        made.top,
        tokens_per_rank=int(made.batches().max()),
        iterations=made.step + np.arange(steps),
        meta={"source": "generated", "workload": spec},
    )
