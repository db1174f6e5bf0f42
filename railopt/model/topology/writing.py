"""A node of a fabric as NCCL's topology XML (NCCL_TOPO_FILE): made anew, or a dump of the node with
measured speeds and rails put in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

import numpy as np

from railopt.base.arrays import Bools
from railopt.base.errors import InputError, about
from railopt.base.units import format_rate, quoted
from railopt.model.inside import Inside
from railopt.model.topology.nccl import NVLINK_RATE, NVLINK_RATES, parse_dump
from railopt.model.topology.node import MAX_DEVICES

MEGABIT = 10**6 // 8  # bytes per second of one Mb/s, the unit of `speed`
GENERATIONS = {90: NVLINK_RATE, **NVLINK_RATES}  # GB/s of a link by sm, the commonest first
SWITCH = "0000:ff:00.0"


class WrittenTopology(NamedTuple):
    """The XML, and in words what of the node it has no place for."""

    text: str
    lost: tuple[str, ...]


def format_dump(
    inside: Inside, rates: Sequence[int], scaleup: int, devices: Sequence[str] = ()
) -> WrittenTopology:
    """A node whose NICs have these rates (bytes per second, one per rail; 0: dead) and names.  GPUs
    and the NICs that they are near hang on one PCIe switch.
    """
    gpus, rails = inside.near.shape
    if max(gpus, rails) > MAX_DEVICES:
        raise InputError(f"{gpus} GPUs and {rails} NICs: at most {MAX_DEVICES} of each")
    links, lost = _links(inside, scaleup)
    lost.append("PCI addresses: made up, as a fabric has none; a dump of the node has them")
    names = devices
    if not names:
        names = [f"mlx5_{rail}" for rail in range(rails)]
        lost.append("names of NICs: made up, as the fabric has none")
    lost += [f"{names[rail]}: dead, left out" for rail in range(rails) if not rates[rail]]
    odd = [names[rail] for rail in range(rails) if rates[rail] % MEGABIT]
    lost += [f"{', '.join(odd)}: speed rounded to whole Mb/s"] if odd else []
    parts = []
    for number, (some, theirs) in enumerate(_switches(inside.near)):
        inner = [_pci(f"0001:{gpu:02x}:00.0", "0x030200", links[gpu]) for gpu in some]
        for rail in theirs:
            speed = _speed(rates[rail])
            net = (
                f"<nic><net name={quoteattr(names[rail])} dev={quoteattr(str(rail))} "
                f'speed="{speed}" port="1" gdr="1" {_network(inside, rail)}/></nic>'
            )
            inner += [_pci(f"0002:{rail:02x}:00.0", "0x020700", net)] if speed else []
        parts.append(_pci(f"0000:{number:02x}:00.0", "0x060400", "\n".join(inner)))
    body = "\n".join(parts)
    text = f'<system version="1">\n<cpu numaid="0" arch="x86_64">\n{body}\n</cpu>\n</system>\n'
    return WrittenTopology(text, tuple(lost))


def _speed(rate: int) -> int:
    """Mb/s of a rate, 0 for a dead NIC alone."""
    return max(int(rate) // MEGABIT, min(rate, 1))


def _network(inside: Inside, rail: int) -> str:
    number, plane = inside.network(rail)
    return f'rail="{number}"' + ("" if plane is None else f' plane="{plane}"')


def _pci(busid: str, kind: str, inner: str) -> str:
    return f'<pci busid="{busid}" class="{kind}" link_width="16">\n{inner}\n</pci>'


def _switches(near: Bools) -> list[tuple[list[int], list[int]]]:
    """(GPUs, rails) of each PCIe switch."""
    groups: dict[bytes, list[int]] = {}
    for gpu, row in enumerate(near):
        groups.setdefault(row.tobytes(), []).append(gpu)
    found = [(some, np.flatnonzero(near[some[0]]).tolist()) for some in groups.values()]
    if sum(len(rails) for _, rails in found) > near.shape[1]:
        raise InputError(
            "some GPUs share a part of their NICs: NCCL's tree of PCIe switches can't say that"
        )
    return found


def _links(inside: Inside, scaleup: int) -> tuple[list[str], list[str]]:
    """The <gpu> of each GPU with its NVLinks, and what they can't say."""
    gpus = len(inside.near)
    pair, lost = inside.pair, []
    if pair is not None and pair * (gpus - 1) != scaleup:
        lost.append("the rate from GPU to GPU: left out, it is no even part of scale-up")
        pair = None
    wanted = scaleup if pair is None else pair
    sm, rate = next(
        ((sm, rate) for sm, rate in GENERATIONS.items() if not wanted % (rate * 10**9)),
        (90, NVLINK_RATE),
    )
    count = max(1, wanted // (rate * 10**9))
    if count * rate * 10**9 != wanted:
        lost.append(f"scale-up of {format_rate(wanted)}: written as {count} NVLinks of {rate}GB/s")
    found = []
    for gpu in range(gpus):
        others = [f"0001:{other:02x}:00.0" for other in range(gpus) if other != gpu]
        targets = [(SWITCH, "0x068000")] if pair is None else [(one, "0x030200") for one in others]
        wires = "".join(
            f'<nvlink target="{target}" count="{count}" tclass="{kind}"/>'
            for target, kind in targets
        )
        found.append(f'<gpu dev="{gpu}" sm="{sm}" gdr="1">{wires}</gpu>')
    return found, lost


def with_speeds(
    text: str, name: str, inside: Inside, rates: Sequence[int], devices: Sequence[str]
) -> WrittenTopology:
    """A node's own dump with the rate (bytes per second), rail and plane of each NIC, which are
    given in rail order.  NCCL takes what its file says before what the port says.
    """
    with about(f"{name}: "):
        parse_dump(text)  # refuses what is no dump of NCCL
    root = ElementTree.fromstring(text)
    missing, lost = {device: rail for rail, device in enumerate(devices)}, []
    for net in root.iter("net"):
        rail = missing.pop(net.get("name", ""), None)
        if rail is None:
            continue
        for key, number in zip(("rail", "plane"), inside.network(rail), strict=True):
            if number is not None:
                net.set(key, str(number))
            else:
                net.attrib.pop(key, None)
        if rates[rail]:
            net.set("speed", str(_speed(rates[rail])))
        else:
            lost.append(f"{net.get('name')} is dead: take it out of NCCL_IB_HCA")
    for device, rail in missing.items():
        if rates[rail]:
            raise InputError(f"{name}: no NIC named {quoted(device)} in it")
    return WrittenTopology(ElementTree.tostring(root, encoding="unicode") + "\n", tuple(lost))
