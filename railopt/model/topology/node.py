"""From what a topology file says to the inside of a node: whose NIC is which, at what rates.

A GPU is near the NICs on its own PCIe switch: those at its least distance, PIX before PXB.  A NIC
beyond the host bridge (PHB, NODE, SYS) is far.  A GPU with far NICs alone gets the nearest of them
that fewest GPUs have; a NIC that is far from every GPU is left out, unless all of them are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Bools, Ints
from railopt.base.errors import FormatError
from railopt.base.units import format_rate, parse_rate
from railopt.model.inside import Inside, are_planes

DISTANCES = ("PIX", "PXB", "PHB", "NODE", "SYS")
SWITCH = DISTANCES.index("PXB")  # the farthest that stays below the host bridge
MAX_DEVICES = 256  # GPUs, and NICs, of a node
LINK = "400Gb/s"
PCIE = "32GB/s"


class Nic(NamedTuple):
    """A NIC as a file names it.

    rate         in bytes per second, or None
    card         the same for planes of one card
    direct       whether GPUs can reach it without host memory
    rail, plane  the numbers of its network, which NCCL writes where it knows them
    """

    name: str
    rate: int | None = None
    card: str | None = None
    direct: bool = True
    rail: int | None = None
    plane: int | None = None

    @property
    def bond(self) -> bool:
        """Whether several NICs stand behind this name."""
        return "+" in self.name or "bond" in self.name

    @property
    def named(self) -> bool:
        """Whether that is the name of one device, not a number or names that were put together."""
        return re.fullmatch(r"NIC\d+|net \d+|.*\+.*", self.name) is None


class ScaleUpLinks(NamedTuple):
    """Scale-up links.

    kind      what they are called
    rate      bytes per second of one, each direction
    because   why that rate
    switched  int64 [gpus]: links of a GPU that go to a switch
    paired    int64 [gpus, gpus]: links from GPU to GPU
    """

    kind: str
    rate: int
    because: str
    switched: Ints
    paired: Ints


class NodeFile(NamedTuple):
    """What a file says of a node; `distance` int64 [gpus, nics] counts in DISTANCES."""

    nics: tuple[Nic, ...]
    distance: Ints
    links: ScaleUpLinks


class Node(NamedTuple):
    """One node, read from a topology file.

    inside   which NICs belong to which GPU
    rates    int64 [rails], bytes per second of each NIC
    scaleup  bytes per second between a GPU and scale-up, each direction
    assumed  in words, what was taken from the file and what it does not say
    nics     of the rails, in order
    direct   bool [gpus, rails]: near, and not across a host bridge
    far      NICs that are left out, across a host bridge from every GPU
    """

    inside: Inside
    rates: Ints
    scaleup: int
    assumed: tuple[str, ...]
    nics: tuple[Nic, ...]
    direct: Bools
    far: tuple[Nic, ...]


def node_of(found: NodeFile, link: int | None = None) -> Node:
    """The node as plans see it; `link` bytes per second for every NIC, instead of the file's."""
    gpus, count = found.distance.shape
    for what, number in (("GPU", gpus), ("NIC", count)):
        if not number:
            raise FormatError(
                f"no {what} in it: expected a file made on a node whose job used GPUs and NICs"
            )
    near = nearest(found.distance)
    rails, about_order = _ordered(found.nics, np.flatnonzero(near.any(axis=0)).tolist())
    far = tuple(found.nics[n] for n in np.flatnonzero(~near.any(axis=0)))
    nics = [found.nics[n] for n in rails]
    near, distance = near[:, rails], found.distance[:, rails]
    direct = near & (distance <= SWITCH)
    rates, about_rates = _rates(nics, link)
    scaleup, pair, about_links = _scaleup(found.links)
    assumed = [
        *_about_rails(nics, near, distance),
        *about_order,
        *(
            [f"{_some([nic.name for nic in far])}: left out, across a host bridge from every GPU"]
            if far
            else []
        ),
        *_about_bridges(direct),
        *_about_cards(nics),
        *about_rates,
        *about_links,
        "latency is not in the file: 1us assumed",
    ]
    inside = Inside(near, pair, planes=_planes(nics, near))
    return Node(inside, rates, scaleup, tuple(assumed), tuple(nics), direct, far)


def _planes(nics: Sequence[Nic], near: Bools) -> int:
    """How many planes every NIC has, where the file says rail and plane of each, else 1; `nics` are
    in order.
    """
    planes = sorted({nic.plane for nic in nics if nic.plane is not None})
    rails = sorted({nic.rail for nic in nics if nic.rail is not None})
    said = [(nic.rail, nic.plane) for nic in nics]
    whole = said == [(rail, plane) for rail in rails for plane in planes]
    return len(planes) if whole and are_planes(near, len(planes)) else 1


def _ordered(nics: Sequence[Nic], places: list[int]) -> tuple[list[int], list[str]]:
    """The NICs at these places by rail and plane, where the file has a rail for each."""
    known = [place for place in places if nics[place].rail is not None]
    if len(known) < len(places):
        said = [f"{len(places) - len(known)} NICs have no rail in the file: as numbered there"]
        return places, said if known else []
    order = sorted(places, key=lambda place: (nics[place].rail or 0, nics[place].plane or 0))
    shared = len(order) - len({(nics[place].rail, nics[place].plane) for place in order})
    said = ["rails are in the order of the file's rail and plane"]
    return order, said + ([f"{shared} NICs share the rail of another"] if shared else [])


def nearest(distance: Ints) -> Bools:
    """bool [gpus, nics]: the NICs that each GPU is near, one at least; a column of a NIC that is
    left out is false.
    """
    below = distance <= SWITCH
    near = below & (distance == distance.min(axis=1)[:, None])
    for nic in np.flatnonzero(below.any(axis=0) & ~near.any(axis=0)):
        near[:, nic] = distance[:, nic] == distance[:, nic].min()
    for gpu in np.flatnonzero(~near.any(axis=1)):
        near[gpu, _first(distance[gpu], near.sum(axis=0))] = True
    if not below.any():
        for nic in np.flatnonzero(~near.any(axis=0)):
            near[_first(distance[:, nic], near.sum(axis=1)), nic] = True
    return near


def _first(distance: Array, others: Array) -> int:
    """The nearest, of these the one with the fewest others, of these the first."""
    return int(np.lexsort((others, distance))[0])


def _rates(nics: list[Nic], link: int | None) -> tuple[Ints, list[str]]:
    if link is not None:
        said = [f"every NIC at {format_rate(link)}, as given"]
        return np.full(len(nics), link, np.int64), said
    unknown = [nic.name for nic in nics if nic.rate is None]
    said = [f"the rate of {_some(unknown)} is not in the file: {LINK} assumed"] if unknown else []
    rates = [parse_rate(LINK) if nic.rate is None else nic.rate for nic in nics]
    return np.array(rates, np.int64), said


def _scaleup(links: ScaleUpLinks) -> tuple[int, int | None, list[str]]:
    """Rate of a GPU's port, of a pair (None: a crossbar), and how they were found."""
    ports = links.switched + links.paired.sum(axis=1)
    least = int(ports.min())
    if not least:
        return parse_rate(PCIE), None, [f"not every GPU has scale-up links: PCIe at {PCIE} assumed"]
    port = least * links.rate
    counted = f"{least} {links.kind}s per GPU" + ("" if least == ports.max() else ", the fewest,")
    each = f"at {links.rate // 10**9}GB/s each ({links.because})"
    if links.switched.any():
        return port, None, [f"{counted} {each}, to a switch that joins any pair at full rate"]
    pairs = links.paired[~np.eye(len(ports), dtype=np.bool_)]
    fewest = int(pairs[pairs > 0].min())
    said = [f"{counted} {each}, from GPU to GPU, at least {fewest} a pair"]
    if not pairs.all():
        said.append("some pairs of GPUs have no link: taken as if they had the fewest of a pair")
    return port, fewest * links.rate, said


def _about_rails(nics: list[Nic], near: Bools, distance: Ints) -> Iterable[str]:
    for rail, nic in enumerate(nics):
        some = [f"GPU {g} ({DISTANCES[distance[g, rail]]})" for g in np.flatnonzero(near[:, rail])]
        yield f"rail {rail} is {nic.name}, near {_some(some)}"
        if nic.bond:
            yield f"{nic.name} is a bond: one rail at the rate of its members together"
        if not nic.direct:
            yield f"{nic.name} reaches no GPU's memory (gdr 0): its bytes pass through the host's"


def _about_bridges(direct: Bools) -> Iterable[str]:
    for gpu in np.flatnonzero(~direct.any(axis=1)):
        yield f"GPU {gpu} has no NIC on its own switch: the nearest is taken as its own"
    across = [str(rail) for rail in np.flatnonzero(~direct.any(axis=0))]
    if across:
        yield (
            f"every GPU is across a host bridge from rail {_some(across)}, whose NIC's own rate is "
            f"taken: measure what the bridge leaves of it, and give that as the rail's rate"
        )


def _about_cards(nics: list[Nic]) -> Iterable[str]:
    cards: dict[str, list[str]] = {}
    for rail, nic in enumerate(nics):
        if nic.card is not None:
            cards.setdefault(nic.card, []).append(str(rail))
    for rails in cards.values():
        if len(rails) > 1:
            yield f"rails {_some(rails)} are planes of one card: each a rail of its own"


def _some(names: list[str]) -> str:
    """At most eight names, and how many more there are."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(names[:8]) + more
