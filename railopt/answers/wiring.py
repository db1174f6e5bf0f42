"""Is a fabric wired as it was planned, and what makes NCCL keep to its rails?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from railopt.answers.outliers import NOTICED
from railopt.base.errors import InputError
from railopt.base.units import format_rate, quoted
from railopt.model.fabric import Fabric
from railopt.model.topology import Node
from railopt.model.topology.node import Nic

Network = tuple[int, int | None]  # rail and plane, as NCCL numbers them


class Mismatch(NamedTuple):
    """Something that is not as planned: a node, a NIC's device, and what, in words."""

    node: int
    device: str
    what: str

    def as_dict(self) -> dict[str, Any]:
        """JSON values."""
        return self._asdict()


def check_wiring(
    planned: Fabric, wired: Mapping[int, Node], measured: Fabric | None = None
) -> list[Mismatch]:
    """What differs between a fabric that names its devices, the topology files of its nodes (by
    node), and measured rates; node by node.
    """
    if not planned.devices:
        raise InputError("the planned fabric names no devices: add devices = [...] in rail order")
    numbers = _rail_numbers(planned, wired)
    found = []
    for node, file in sorted(wired.items()):
        found += _node_mismatches(planned, node, file, numbers)
    if measured is not None:
        found += _slow(planned, measured)
    return sorted(found, key=lambda one: one.node)


def unnumbered(planned: Fabric, wired: Mapping[int, Node]) -> int:
    """In how many files some planned NIC has no rail, so that its cable can't be compared."""
    return sum(
        any(nic.rail is None for nic in (*file.nics, *file.far) if nic.name in planned.devices)
        for file in wired.values()
    )


def _rail_numbers(planned: Fabric, wired: Mapping[int, Node]) -> dict[Network, Network]:
    """By planned rail and plane, the numbers that most files have for it; no two have the same."""
    seen = Counter(
        (_planned_network(planned, nic, planned.devices.index(nic.name)), (nic.rail, nic.plane))
        for file in wired.values()
        for nic in (*file.nics, *file.far)
        if nic.name in planned.devices and nic.rail is not None
    )
    numbers: dict[Network, Network] = {}
    for (rail, (number, plane)), _ in seen.most_common():
        if number is not None and (number, plane) not in numbers.values():
            numbers.setdefault(rail, (number, plane))
    return numbers


def _planned_network(planned: Fabric, nic: Nic, rail: int) -> Network:
    """The network of a planned rail; without its plane where the file has none for the NIC."""
    number, plane = planned.node.network(rail)
    return number, None if nic.plane is None else plane


def _node_mismatches(
    planned: Fabric, node: int, file: Node, numbers: dict[Network, Network]
) -> list[Mismatch]:
    names = {nic.name: nic for nic in (*file.nics, *file.far)}
    on = {number: network for network, number in numbers.items()}
    found: dict[str, list[str]] = {}
    moved: dict[int, int | None] = {}
    if len(file.inside.near) != planned.gpus:
        return [Mismatch(node, "", f"{len(file.inside.near)} GPUs, planned {planned.gpus}")]
    places = {nic.name: place for place, nic in enumerate(file.nics)}
    for rail, device in enumerate(planned.devices):
        said = found.setdefault(device, [])
        if device not in names:
            dead = not planned.tx[node, rail] and not planned.rx[node, rail]
            said += [] if dead else ["not there"]
            continue
        nic = names[device]
        if nic.rail is not None:
            network = on.get((nic.rail, nic.plane))
            if network != _planned_network(planned, nic, rail):
                moved[rail] = None if network is None else _rail_of(planned, network, rail)
        said += _moved_inside(planned, rail, file, places.get(device))
        rate = max(int(planned.tx[node, rail]), int(planned.rx[node, rail]))
        if nic.rate is not None and nic.rate < rate * (1 - NOTICED):
            said.append(f"its port runs at {format_rate(nic.rate)}, planned {format_rate(rate)}")
    for rail, other in moved.items():
        if other is not None and moved.get(other) == rail:
            text = f"cables swapped with {planned.devices[other]}"
        else:
            text = "on a rail of no other node" if other is None else f"on rail {other}"
        found[planned.devices[rail]].append(f"{text}, planned rail {rail}")
    extra = [(name, ["not in the plan"]) for name in places if name not in planned.devices]
    return [
        Mismatch(node, device, text) for device, said in [*found.items(), *extra] for text in said
    ]


def _rail_of(planned: Fabric, network: Network, rail: int) -> int:
    """The planned rail of these numbers; of the same plane as `rail` where they have none."""
    number, plane = network
    planes = planned.node.planes
    return number * planes + (rail % planes if plane is None else plane)


def _moved_inside(planned: Fabric, rail: int, file: Node, place: int | None) -> list[str]:
    """What is said of a NIC that is near other GPUs than planned; `place` None: it is far from all.
    GPUs that only borrow it, as their own is far or not there, may be planned or not.
    """
    was = np.flatnonzero(planned.node.near[:, rail]).tolist()
    if place is None:
        return [f"far from every GPU, planned near {_some(was)}"]
    near, direct = (
        np.flatnonzero(one[:, place]).tolist() for one in (file.inside.near, file.direct)
    )
    if was in (near, direct):
        return []
    return [f"near GPU {_some(direct or near)}, planned {_some(was)}"]


def _some(gpus: list[int]) -> str:
    return ", ".join(map(str, gpus))


def _slow(planned: Fabric, measured: Fabric) -> list[Mismatch]:
    """NICs that were measured below their plan."""
    if measured.tx.shape != planned.tx.shape:
        raise InputError(
            f"measured {measured.nodes} nodes x {measured.rails} NICs, planned {planned.nodes} x "
            f"{planned.rails}"
        )
    order = np.ix_(
        _order("hosts", planned.hosts, measured.hosts, planned.nodes),
        _order("devices", planned.devices, measured.devices, planned.rails),
    )
    found = []
    for side, was, now in (
        ("sends", planned.tx, measured.tx[order]),
        ("receives", planned.rx, measured.rx[order]),
    ):
        for node, rail in np.argwhere(now < was * float(1 - NOTICED)).tolist():
            rates = format_rate(int(now[node, rail])), format_rate(int(was[node, rail]))
            text = f"{side} at {rates[0]}, planned {rates[1]}" if now[node, rail] else "dead"
            found.append(Mismatch(node, planned.devices[rail], text))
    return list(dict.fromkeys(found))


def _order(what: str, planned: Sequence[str], measured: Sequence[str], count: int) -> list[int]:
    """Where each of the planned is among the measured: by name, or in order where one has none."""
    if not planned or not measured:
        return list(range(count))
    for name in planned:
        if name not in measured:
            raise InputError(
                f"{quoted(name)} is not among the measured {what}: expected the plan's"
            )
    return [measured.index(name) for name in planned]


def _hca(fabric: Fabric, rail: int) -> str:
    """`device:port:rail:plane`, as NCCL_IB_HCA takes it."""
    number, plane = fabric.node.network(rail)
    return f"{fabric.devices[rail]}:1:{number}" + ("" if plane is None else f":{plane}")


class Variable(NamedTuple):
    """An environment variable of NCCL and its reason."""

    name: str
    value: str
    why: str


def variables(fabric: Fabric, topology: str | None = None, node: int = 0) -> list[Variable]:
    """What makes NCCL (2.30.5 or newer) keep to the rails of a fabric at a node; `topology` is the
    file that was written for it.  NICs that are dead there are left out.
    """
    found = []
    if topology is not None:
        why = "NCCL takes speeds and rails from it before what ports say of themselves"
        found.append(Variable("NCCL_TOPO_FILE", topology, why))
    if fabric.devices:
        alive = (fabric.tx[node] > 0) & (fabric.rx[node] > 0)
        if not alive.any():
            raise InputError(f"{fabric.node_name(node)} has no living NIC")
        named = list(enumerate(fabric.devices))
        hcas = ",".join(_hca(fabric, rail) for rail, _ in named if alive[rail])
        numbers = "port and rail" if fabric.node.planes == 1 else "port, rail and plane"
        why = f"these NICs and no others, by their whole names; each with its {numbers}"
        dead = [device for rail, device in named if not alive[rail]]
        if dead:
            why += f"; dead: {', '.join(dead)}"
        found.append(Variable("NCCL_IB_HCA", f"={hcas}", why))
    found.append(
        Variable("NCCL_CROSS_NIC", "0", "rings and trees stay on a rail from node to node")
    )
    found.append(
        Variable(
            "NCCL_NET_MERGE_POLICY", "RAIL", "NICs of different rails are never merged into one"
        )
    )
    if fabric.node.near.sum(axis=1).max() > 1:
        why = "NICs and planes of one GPU stay apart, as the plan counts them"
        found.append(Variable("NCCL_IB_MERGE_NICS", "0", why))
    if fabric.spine is None and fabric.leaves is None:
        why = "no switch joins the rails: bytes for another rail cross scale-up first (PXN)"
        found += [Variable("NCCL_PXN_DISABLE", "0", why), Variable("NCCL_P2P_PXN_LEVEL", "2", why)]
    return found
