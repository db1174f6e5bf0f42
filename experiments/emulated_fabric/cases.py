"""What is run on the emulated fabric, and how long it should take: numbers alone, no network."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from experiments.emulated_fabric.network import HEADERS, MTU
from railopt import Fabric, workloads
from railopt.base.arrays import Ints
from railopt.base.dice import Dice
from railopt.base.errors import InputError

PLAIN = "all_to_all_single"  # PyTorch's own, instead of a policy
DIRECT = "direct"  # the same, each GPU to each GPU on their NICs, every receive posted first
OWN = (PLAIN, DIRECT)
FRAME, FRAME_HEADERS = MTU + 14, HEADERS  # of what is on the wire, headers of Ethernet to TCP


class Call(NamedTuple):
    """An all-to-all of `counts` [R, R] rows of `width` bytes, `runs` times after one that warms up:
    PLAIN, DIRECT, or along a policy's rails.
    """

    fabric: Fabric
    how: str
    counts: Ints
    width: int
    runs: int


class Loads(NamedTuple):
    """Bytes that each NIC sends and receives: int64 [nodes, rails] each."""

    sent: Ints
    received: Ints


class Case(NamedTuple):
    """A call with its words, and what it should put on each NIC.

    share     what is left of the rate of the NIC with a fault; 1: none has one
    """

    traffic: str
    fault: str
    share: float
    call: Call
    loads: Loads


def cases(spec: dict[str, Any]) -> Iterator[Case]:
    """Every case of a spec."""
    fabric = Fabric.uniform(spec["nodes"], spec["gpus"])
    for chosen in spec["cases"]:
        fault, share = chosen["fault"], spec["faults"][chosen["fault"]]
        used = fabric if share == 1 else fabric.degraded({tuple(spec["nic"]): str(share)})
        for how in chosen["how"]:
            if how in OWN and share == 0:
                continue  # a GPU whose NIC is dead can't take part
            call = Call(used, how, counts(chosen["traffic"], fabric, spec), spec["row"], 5)
            yield Case(chosen["traffic"], fault, share, call, loads(call))


def counts(traffic: str, fabric: Fabric, spec: dict[str, Any]) -> Ints:
    """int64 [R, R]: rows from rank to rank, scaled so that NICs that all carry the same are busy
    for `seconds`.

    even     every GPU the same to every GPU
    skewed   receivers' popularity falls as rank ** -skew
    ragged   every GPU the same to every GPU, but batches from a quarter to 1.75 of the mean
    """
    matrix = workloads.uniform(fabric, size="1MB").bytes.astype(np.float64)
    if traffic == "skewed":
        matrix = workloads.zipf(fabric, mean="1MB", skew=spec["skew"], seed=spec["seed"]).bytes
    elif traffic == "ragged":
        matrix *= Dice(spec["seed"], "ragged").uniform(0.25, 1.75, (len(matrix), 1))
    elif traffic != "even":
        raise InputError(f"traffic {traffic!r}: expected even, skewed or ragged")
    between = matrix.reshape(fabric.nodes, fabric.gpus, fabric.nodes, fabric.gpus).sum(axis=(1, 3))
    np.fill_diagonal(between, 0)
    busiest = max(between.sum(axis=0).max(), between.sum(axis=1).max()) / fabric.rails
    scale = spec["seconds"] * goodput(spec["rate"]) / busiest / spec["row"]
    return np.floor(matrix * scale).astype(np.int64)


def goodput(rate: int) -> float:
    """Bytes of payload a second of a NIC of `rate` bytes a second."""
    return rate * (FRAME - FRAME_HEADERS) / FRAME


def loads(call: Call) -> Loads:
    """What a call should put on each NIC: without a policy what its GPU sends and receives."""
    fabric = call.fabric
    if call.how not in OWN:
        from railopt.torch.routes import Router

        firsts = range(0, fabric.nodes * fabric.gpus, fabric.gpus)
        made = [Router(fabric, rank, call.how).route(call.counts) for rank in firsts]
        sent, received = np.stack([r.sent for r in made]), np.stack([r.received for r in made])
        return Loads(sent * call.width, received * call.width)
    gpus = (fabric.nodes, fabric.gpus)
    rows = call.counts.reshape(*gpus, *gpus) * call.width
    own = np.arange(fabric.nodes)
    rows[own, :, own] = 0
    return Loads(rows.sum(axis=(2, 3)), rows.sum(axis=(0, 1)))


def seconds(case: Case, spec: dict[str, Any]) -> float:
    """The busiest NIC's bytes over its rate; the exchanges inside nodes are left out."""
    rates = np.full((case.call.fabric.nodes, case.call.fabric.rails), goodput(spec["rate"]))
    if case.share:
        rates[tuple(spec["nic"])] *= case.share
    return float(max((side / rates).max() for side in case.loads))


def check_bounds(chosen: list[Case], spec: dict[str, Any]) -> None:
    """Refuse what would take too long or move too much."""
    took = sum((case.call.runs + 1) * seconds(case, spec) for case in chosen)
    moved = sum((case.call.runs + 1) * int(case.loads.sent.sum()) for case in chosen)
    if took > spec["most_seconds"] or moved > spec["most_bytes"]:
        raise InputError(
            f"these cases would take {took:.0f} s and move {moved / 1e9:.2f} GB: at most "
            f"{spec['most_seconds']} s and {spec['most_bytes'] / 1e9:g} GB"
        )
