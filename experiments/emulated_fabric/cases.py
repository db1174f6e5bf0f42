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
from railopt.moe.placement.placement import Placement
from railopt.moe.placement.replicate import rebalance
from railopt.torch.ways import Exchange

STAGES = " in stages"  # after a policy: exchange 2 goes peer after peer
WHOLE = ", whole call"  # after a policy: each node decides alone, and that is timed too
PARAMETERS, GRADIENTS, TOKENS = "parameters", "gradients", "tokens"  # of a layer of experts
COPIES = "with copies"
PLAIN = "all_to_all_single"  # PyTorch's own, instead of a policy
DIRECT = "direct"  # the same, each GPU to each GPU on their NICs, every receive posted first
OWN = (PLAIN, DIRECT)
ROW = 1 << 16  # bytes of a row of parameters
FRAME, FRAME_HEADERS = MTU + 14, HEADERS  # of what is on the wire, headers of Ethernet to TCP


class Call(NamedTuple):
    """An all-to-all of `counts` [R, R] rows of `width` bytes, `runs` times after one that warms up:
    PLAIN, DIRECT, or along a policy's rails. Or what a layer of experts does: PARAMETERS to copies,
    GRADIENTS of copies back, TOKENS to experts.
    """

    fabric: Fabric
    how: str
    counts: Ints
    width: int
    runs: int
    layer: LayerCall | None = None

    @property
    def policy(self) -> str:
        return self.how.removesuffix(STAGES).removesuffix(WHOLE)


class LayerCall(NamedTuple):
    """A layer of experts.

    what       PARAMETERS, GRADIENTS or TOKENS
    policy     how its rails are chosen
    holds      bool [R, experts]: which ranks have which        home   int32 [experts]
    chosen     int64 [R, tokens, 1]: each token's expert, of TOKENS
    """

    what: str
    policy: str
    holds: Any
    home: Any
    chosen: Any


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
            if chosen["traffic"] in (PARAMETERS, GRADIENTS, TOKENS):
                call = of_layer(chosen["traffic"], how, used, spec)
            else:
                call = Call(used, how, counts(chosen["traffic"], fabric, spec), spec["row"], 5)
            yield Case(chosen["traffic"], fault, share, call, loads(call))


def of_layer(what: str, how: str, fabric: Fabric, spec: dict[str, Any]) -> Call:
    """What a layer of two experts per GPU does, whose popularity falls as rank ** -skew: experts in
    order, or one copy more per GPU, where EPLB puts it.
    """
    ranks, dice = fabric.nodes * fabric.gpus, Dice(spec["seed"], "experts")
    experts = 2 * ranks
    popular = np.arange(1.0, experts + 1) ** -spec["skew"]
    popular /= popular.sum()
    home = np.arange(experts, dtype=np.int32) // 2
    if what != TOKENS or how == COPIES:
        slots, _, _ = rebalance(popular[None], 3 * ranks, 1, fabric.nodes, ranks)
        holds = np.zeros((ranks, experts), np.bool_)
        holds[np.arange(3 * ranks) // 3, slots[0]] = True
        home = holds.argmax(axis=0).astype(np.int32)
    else:
        holds = np.arange(ranks)[:, None] == home
    if what != TOKENS:
        copies = holds & (np.arange(ranks)[:, None] != home)
        rows = np.zeros((ranks, ranks), np.int64)
        for target, expert in np.argwhere(copies).tolist():
            rows[home[expert], target] += spec["parameter_rows"]
        layer = LayerCall(what, how, holds, home, None)
        return Call(fabric, how, rows.T.copy() if what == GRADIENTS else rows, ROW, 5, layer)
    tokens = int(spec["seconds"] * goodput(spec["rate"]) / spec["row"])
    edges = np.cumsum(popular)[:-1]
    chosen = np.searchsorted(edges, dice.uniform(0.0, 1.0, (ranks, tokens, 1)))
    layer = LayerCall(what, "even-excess", holds, home, chosen)
    width = spec["row"] + 12  # a token's numbers, its weight, its slot, its number
    return Call(fabric, how, units(fabric, layer), width, 5, layer)


def units(fabric: Fabric, layer: LayerCall) -> Ints:
    """int64 [R, R]: tokens to nodes, as a `TokenDispatcher` counts them."""
    import torch

    from railopt.torch.copies import ExpertSlots

    gpus, ranks = fabric.gpus, fabric.nodes * fabric.gpus
    found = np.zeros((ranks, fabric.nodes, gpus), np.int64)
    for rank in range(ranks):
        table = ExpertSlots(len(layer.home), copies_of(fabric, layer)).table(fabric, rank)
        slot = table.chosen(torch.from_numpy(layer.chosen[rank])).numpy().reshape(-1)
        found[rank, :, rank % gpus] = np.bincount(slot // table.slots // gpus, None, fabric.nodes)
    return found.reshape(ranks, ranks)


def copies_of(fabric: Fabric, layer: LayerCall) -> Any:
    """The placement of a layer, tokens split evenly over copies."""
    from railopt.torch import Copies

    placed = Placement(fabric.nodes, fabric.gpus, layer.holds[None], layer.home[None])
    return Copies(placed, shares="even")


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
        policy = call.policy if call.layer is None else call.layer.policy
        to_nodes = call.layer is not None and call.layer.what == TOKENS
        made = [
            Router(fabric, rank, policy).route(call.counts, to_nodes=to_nodes) for rank in firsts
        ]
        sent, received = np.stack([r.sent for r in made]), np.stack([r.received for r in made])
        return Loads(sent * call.width, received * call.width)
    gpus = (fabric.nodes, fabric.gpus)
    rows = call.counts.reshape(*gpus, *gpus) * call.width
    own = np.arange(fabric.nodes)
    rows[own, :, own] = 0
    return Loads(rows.sum(axis=(2, 3)), rows.sum(axis=(0, 1)))


def seconds(case: Case, spec: dict[str, Any]) -> float:
    """The busiest NIC's bytes over its rate, in stages that of its stages; the exchanges inside
    nodes are left out.
    """
    rates = np.full((case.call.fabric.nodes, case.call.fabric.rails), goodput(spec["rate"]))
    if case.share:
        rates[tuple(spec["nic"])] *= case.share
    if case.call.how.endswith(STAGES):
        return in_stages(case.call, rates)
    return float(max((side / rates).max() for side in case.loads))


def in_stages(call: Call, rates: Any) -> float:
    """Seconds of exchange 2 where each GPU sends to the next node, then to the one after it: a
    stage of a GPU ends when what it sends and receives is there, each as soon as both ends come to
    it.
    """
    from railopt.torch.routes import Router

    fabric, ended = call.fabric, np.zeros((call.fabric.nodes, call.fabric.gpus))
    moved = np.zeros((fabric.nodes, fabric.nodes, fabric.gpus))  # from, to, rail
    for rank in range(fabric.nodes * fabric.gpus):
        way = Router(fabric, rank, call.policy).route(call.counts).way
        send = [step.send for step in way if isinstance(step, Exchange) and step.within == "rail"]
        moved[rank // fabric.gpus, :, rank % fabric.gpus] = np.array(send[0]) * call.width
    node = np.arange(fabric.nodes)
    for turn in range(1, fabric.nodes):
        after, before = (node + turn) % fabric.nodes, (node - turn) % fabric.nodes
        took = moved[node, after] / np.minimum(rates[node], rates[after])
        there = np.maximum(ended[node], ended[after]) + took
        ended = np.maximum(there, there[before])
    return float(ended.max())


def check_bounds(chosen: list[Case], spec: dict[str, Any]) -> None:
    """Refuse what would take too long or move too much."""
    took = sum((case.call.runs + 1) * seconds(case, spec) for case in chosen)
    moved = sum((case.call.runs + 1) * int(case.loads.sent.sum()) for case in chosen)
    if took > spec["most_seconds"] or moved > spec["most_bytes"]:
        raise InputError(
            f"these cases would take {took:.0f} s and move {moved / 1e9:.2f} GB: at most "
            f"{spec['most_seconds']} s and {spec['most_bytes'] / 1e9:g} GB"
        )
