"""The XML that NCCL writes to NCCL_TOPO_DUMP_FILE (and RCCL, with xGMI): PCI trees below CPUs.

    <system> <cpu numaid> <pci busid> ... <gpu dev sm> <nvlink target count tclass/> </gpu>
                                      ... <nic> <net name dev speed gdr rail plane/> </nic>

Distances follow from the tree: at most one bridge between two devices is PIX, several PXB, a CPU
PHB, two CPUs SYS.  Elements and attributes of no use here are passed over.  A file can't make the
parser work for more than its length: no entities, few elements, little depth.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from xml.etree.ElementTree import ParseError, XMLParser

import numpy as np

from railopt.base.errors import FormatError, printable
from railopt.base.units import parse_integer, parse_rate
from railopt.model.topology.node import DISTANCES, MAX_DEVICES, Nic, NodeFile, ScaleUpLinks

MAX_DEPTH = 64
MAX_ELEMENTS = 1 << 16
PIX, PXB, PHB, SYS = (DISTANCES.index(word) for word in ("PIX", "PXB", "PHB", "SYS"))
LINKS = {"nvlink": "NVLink", "xgmi": "xGMI link"}
NVLINK_RATES = {60: 20, 86: 14, 100: 50, 103: 50}  # nominal GB/s of a link, each direction, by sm
NVLINK_RATE, XGMI_RATE = 25, 50

_DECLARATION = re.compile(r"<!(?!--)")  # DOCTYPE, ENTITY, CDATA: NCCL writes none of them
_SWITCH = "0x0680"  # the PCI class of what a link to a switch goes to


class PciPlace(NamedTuple):
    """The place of a device: its CPU and the PCI devices from there down to its own."""

    cpu: int
    pci: tuple[int, ...]


class GpuLink(NamedTuple):
    """Scale-up links of a GPU: their kind, where they go, whether that is a switch, how many."""

    kind: str
    target: str
    switch: bool
    wires: int


class NodeGpu(NamedTuple):
    """A GPU and its links."""

    dev: int
    sm: int
    busid: str
    place: PciPlace
    links: list[GpuLink]


class NicPort(NamedTuple):
    """A port of a NIC; `name` is whole, that of `nic` may be cut."""

    dev: int
    name: str
    nic: Nic
    place: PciPlace


class Dump:
    """What a dump holds, gathered element by element: a target for XMLParser."""

    def __init__(self) -> None:
        self.gpus: list[NodeGpu] = []
        self.nets: list[NicPort] = []
        self.hosts: set[str] = set()
        self._above: list[tuple[str, int, Mapping[str, str]]] = []
        self._elements = 0

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:
        self._elements += 1
        if not self._above and tag != "system":
            raise FormatError(f"begins with <{printable(tag, 40)}>: expected NCCL's <system>")
        if self._elements > MAX_ELEMENTS or len(self._above) >= MAX_DEPTH:
            raise FormatError(
                f"more than {MAX_ELEMENTS} elements or {MAX_DEPTH} levels: not a node's topology"
            )
        if tag == "cpu":
            self.hosts.add(attributes.get("host_hash", ""))
        elif tag == "gpu":
            self.gpus.append(self._gpu(attributes))
        elif tag == "net":
            self.nets.append(self._net(attributes))
        elif tag in LINKS and self._above[-1][0] == "gpu":
            self.gpus[-1].links.append(_link(tag, attributes))
        if max(len(self.gpus), len(self.nets)) > MAX_DEVICES:
            raise FormatError(f"more than {MAX_DEVICES} GPUs or NICs")
        self._above.append((tag, self._elements, attributes))

    def end(self, tag: str) -> None:
        self._above.pop()

    def close(self) -> None:
        """Nothing is left to do."""

    def _place(self) -> PciPlace:
        cpus = [number for tag, number, _ in self._above if tag == "cpu"]
        pci = tuple(number for tag, number, _ in self._above if tag == "pci")
        return PciPlace(cpus[-1] if cpus else 0, pci)

    def _busid(self) -> str:
        return next((a.get("busid", "") for tag, _, a in reversed(self._above) if tag == "pci"), "")

    def _gpu(self, attributes: Mapping[str, str]) -> NodeGpu:
        dev = _number(attributes, "gpu", "dev", len(self.gpus))
        sm = _number(attributes, "gpu", "sm", 0)
        return NodeGpu(dev, sm, self._busid(), self._place(), [])

    def _net(self, attributes: Mapping[str, str]) -> NicPort:
        number = len(self.nets)
        speed = _number(attributes, "net", "speed", 0)
        card = self._busid().rpartition(".")[0]  # without the PCI function
        name = attributes.get("name", f"net {number}")
        nic = Nic(
            printable(name, 40),
            parse_rate(f"{speed}Mb/s") if speed else None,
            card or None,
            attributes.get("gdr") != "0",
            *(_known(attributes, key) for key in ("rail", "plane")),
        )
        return NicPort(_number(attributes, "net", "dev", number), name, nic, self._place())


def _number(attributes: Mapping[str, str], tag: str, key: str, default: int) -> int:
    """A whole number of an element; what NCCL did not find out is -1 there, and the default."""
    if key not in attributes:
        return default
    value = parse_integer(attributes[key], f"{key} of a <{tag}>", low=-1, high=10**9)
    return default if value < 0 else value


def _known(attributes: Mapping[str, str], key: str) -> int | None:
    """A number of a <net>, None where NCCL was not told it."""
    value = _number(attributes, "net", key, -1)
    return None if value < 0 else value


def _link(tag: str, attributes: Mapping[str, str]) -> GpuLink:
    switch = attributes.get("tclass", "").startswith(_SWITCH)
    count = min(_number(attributes, tag, "count", 1), MAX_DEVICES)
    return GpuLink(tag, attributes.get("target", ""), switch, count)


def parse_dump(text: str) -> NodeFile:
    """What a dump says of its node."""
    dump = Dump()
    try:
        if _DECLARATION.search(text):
            raise FormatError("declares types or entities, which NCCL never does: refused")
        parser = XMLParser(target=dump)
        parser.feed(text)
        parser.close()
    except ParseError as error:
        raise FormatError(f"not valid XML ({printable(error)})") from error
    except ValueError as error:
        raise FormatError(printable(error)) from error
    if len(dump.hosts) > 1:
        raise FormatError(
            f"a dump of {len(dump.hosts)} hosts: expected one; dump a job on one node"
        )
    gpus, nets = sorted(dump.gpus, key=lambda gpu: gpu.dev), _nets(dump)
    for what, devices in (("GPU", gpus), ("NIC", nets)):
        numbers = [device.dev for device in devices]
        if len(set(numbers)) != len(numbers):
            raise FormatError(f"two {what}s of one number (dev) in {numbers[:16]}")
    distance = [[_distance(gpu.place, net.place) for net in nets] for gpu in gpus]
    return NodeFile(
        tuple(net.nic for net in nets),
        np.array(distance, np.int64).reshape(len(gpus), len(nets)),
        _links(gpus),
    )


def _nets(dump: Dump) -> list[NicPort]:
    """NICs in the order of their numbers; members of a merged one (`a+b`) are in it."""
    merged = {part for net in dump.nets if "+" in net.name for part in net.name.split("+")}
    return sorted((net for net in dump.nets if net.name not in merged), key=lambda n: n.dev)


def _distance(gpu: PciPlace, net: PciPlace) -> int:
    if gpu.cpu != net.cpu:
        return SYS
    common = 0
    for a, b in zip(gpu.pci, net.pci, strict=False):
        if a != b:
            break
        common += 1
    if not common:
        return PHB
    return PIX if len(gpu.pci) + len(net.pci) - 2 * common <= 2 else PXB


def _links(gpus: list[NodeGpu]) -> ScaleUpLinks:
    number = {gpu.busid: i for i, gpu in enumerate(gpus)}
    switched = np.zeros(len(gpus), np.int64)
    paired = np.zeros((len(gpus), len(gpus)), np.int64)
    for i, gpu in enumerate(gpus):
        for link in gpu.links:
            other = number.get(link.target, i)
            if link.switch:
                switched[i] += link.wires
            elif other != i:  # what goes to a CPU, or to a GPU that is not in the dump, is no use
                paired[i, other] += link.wires
    if any(link.kind == "xgmi" for gpu in gpus for link in gpu.links):
        return ScaleUpLinks(LINKS["xgmi"], XGMI_RATE * 10**9, "assumed", switched, paired)
    sm = min((gpu.sm for gpu in gpus), default=0)
    rate = NVLINK_RATES.get(sm, NVLINK_RATE)
    return ScaleUpLinks(LINKS["nvlink"], rate * 10**9, f"nominal for sm {sm}", switched, paired)
