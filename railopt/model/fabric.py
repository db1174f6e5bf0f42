"""The fabric: M nodes with G GPUs and N NICs each; NIC n of every node is on rail switch n.

Rates are integers of bytes per second, `[node, rail]`, one matrix per direction; 0 is a dead NIC.
GPU ids are `node * gpus + local index` everywhere.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from railopt.base import toml
from railopt.base.arrays import (
    Array,
    Digested,
    Ints,
    digest,
    frozen,
    read_text,
    require_type,
    whole_number,
    write_atomic,
)
from railopt.base.errors import FormatError, InputError, about, printable
from railopt.base.units import (
    INT64_MAX,
    parse_fraction,
    parse_integer,
    parse_rate,
    parse_time,
    quoted,
)
from railopt.files.formats import format_topo, parse_topo
from railopt.model.inside import Inside, toml_rate
from railopt.model.leaves import Leaves
from railopt.model.topology import Node, describes_node, read_node

MAX_NODES, MAX_RAILS, MAX_GPUS = 1 << 20, 1 << 12, 1 << 12
MAX_NICS = 1 << 22
SIDES = ("send", "recv")
KEYS = {"nodes", "rails", "gpus", "link", "scaleup", "latency", "spine", "leaves", "nic"} | {
    "inside",
    "hosts",
    "devices",
}
"""Of a TOML description."""
MAX_NAME = 255  # characters of a host or device


@dataclass(frozen=True)
class Spine:
    """The tier above the rail switches: `uplinks` links per rail switch, each of `rate` bytes per
    second.
    """

    uplinks: int
    rate: int

    def __post_init__(self) -> None:
        for name in ("uplinks", "rate"):
            number = whole_number(getattr(self, name), f"spine {name}", 1, INT64_MAX)
            object.__setattr__(self, name, number)


T = TypeVar("T", Spine, Leaves)


@dataclass(frozen=True, eq=False)
class Fabric(Digested):
    """Nodes, GPUs, rails and what each NIC can do.

    tx, rx      int64 [nodes, rails], bytes per second that NIC n of a node can send / receive; 0 =
                dead
    scaleup     bytes per second between a GPU and its node's scale-up fabric (NVLink), each
                direction
    latency_ps  one-way latency of a rail, picoseconds
    spine       the tier that joins the rails, or None for a pure rail fabric
    inside      which NICs belong to which GPU, or None for the usual order (`node` has it then)
    hosts       names of the nodes, in order, or none; no part of what makes two fabrics equal
    devices     names of the NICs of a node, in rail order, or none; the same
    leaves      the switches that rails span and the links above them, or None where every rail is
                one switch; policies and solvers plan NICs and don't count these links
    """

    nodes: int
    rails: int
    gpus: int
    tx: Ints = field(repr=False)
    rx: Ints = field(repr=False)
    scaleup: int = 450 * 10**9
    latency_ps: int = 1_000_000
    spine: Spine | None = None
    inside: Inside | None = None
    hosts: tuple[str, ...] = field(default=(), repr=False)
    devices: tuple[str, ...] = field(default=(), repr=False)
    leaves: Leaves | None = None

    def __post_init__(self) -> None:
        for name, low, high in (
            ("nodes", 1, MAX_NODES),
            ("rails", 1, MAX_RAILS),
            ("gpus", 1, MAX_GPUS),
            ("scaleup", 1, INT64_MAX),
            ("latency_ps", 0, INT64_MAX),
        ):
            object.__setattr__(self, name, whole_number(getattr(self, name), name, low, high))
        for name in ("tx", "rx"):
            rates = frozen(getattr(self, name), np.int64, name, 2)
            if rates.shape != (self.nodes, self.rails):
                raise InputError(
                    f"{name} has shape {rates.shape}, expected {(self.nodes, self.rails)} = "
                    f"(nodes, rails)"
                )
            if rates.min() < 0:
                node, rail = np.argwhere(rates < 0)[0]
                raise InputError(
                    f"{name}[{node}, {rail}] = {rates[node, rail]}: a rate can't be negative (0 "
                    f"is a dead NIC)"
                )
            if int(rates.max()) * self.rails > INT64_MAX:
                raise InputError(
                    f"{name}: {rates.max()} bytes per second on {self.rails} rails: beyond int64"
                )
            object.__setattr__(self, name, rates)
        for name, kind in (("spine", Spine), ("inside", Inside), ("leaves", Leaves)):
            require_type(getattr(self, name), kind | None, name, f"{kind.__name__} or None")
        if self.inside is not None and self.inside.near.shape != (self.gpus, self.rails):
            raise InputError(
                f"near has shape {self.inside.near.shape}, expected {(self.gpus, self.rails)} = "
                f"(gpus, rails)"
            )
        for name, count in (("hosts", self.nodes), ("devices", self.rails)):
            object.__setattr__(self, name, _names(getattr(self, name), name, count))
        self._check_leaves()

    def _check_leaves(self) -> None:
        leaves = self.leaves
        if leaves is None:
            return
        if self.spine is not None:
            raise InputError("a spine beside leaves, which have uplinks of their own: give one")
        if leaves.nodes > self.nodes or leaves.rails > self.rails:
            raise InputError(
                f"leaves of {leaves.nodes} nodes and {leaves.rails} rails: the fabric has "
                f"{self.nodes} and {self.rails}"
            )

    @cached_property
    def node(self) -> Inside:
        """The inside of every node: as given, or GPUs and NICs in their usual order."""
        return self.inside or Inside.usual(self.gpus, self.rails)

    @cached_property
    def tier(self) -> Leaves:
        """The switches that direct traffic crosses: the leaves, or a switch per rail under the
        spine, of full bisection where none is given.
        """
        if self.leaves is not None:
            return self.leaves
        spine = self.spine or Spine(self.nodes, int(max(self.tx.max(), self.rx.max())))
        return Leaves(self.nodes, spine.uplinks, spine.rate)

    @classmethod
    def uniform(
        cls,
        nodes: int = 8,
        rails: int = 8,
        link: str | int = "400Gb/s",
        *,
        gpus: int | None = None,
        scaleup: str | int = "450GB/s",
        latency: str = "1us",
        spine: Spine | None = None,
        inside: Inside | None = None,
    ) -> Fabric:
        """A healthy fabric: every NIC sends and receives at `link`; there are `rails` GPUs per
        node, unless `gpus` says how many.
        """
        nodes = whole_number(nodes, "nodes", 1, MAX_NODES)
        rails = whole_number(rails, "rails", 1, MAX_RAILS)
        if nodes * rails > MAX_NICS:
            raise InputError(f"{nodes} nodes x {rails} rails: more than {MAX_NICS} NICs")
        rates = np.full((nodes, rails), parse_rate(link), np.int64)
        return cls(
            nodes,
            rails,
            rails if gpus is None else gpus,
            rates,
            rates,
            parse_rate(scaleup),
            parse_time(latency),
            spine,
            inside,
        )

    def degraded(self, nics: Mapping[tuple[int, int], str | int | float | Fraction]) -> Fabric:
        """A copy in which NIC `(node, rail)` runs at a fraction of its rate, both ways; `"0"` is
        dead.

        A fraction that does not give whole bytes per second is rounded down.
        """
        require_type(nics, Mapping, "nics", "fractions by (node, rail)")
        tx, rx = self.tx.copy(), self.rx.copy()
        for nic, text in nics.items():
            if not isinstance(nic, tuple) or len(nic) != 2:
                raise InputError(f"NIC {quoted(nic)}: expected (node, rail)")
            node, rail = self._place(*nic, "NIC")
            fraction = parse_fraction(text)
            for rates in (tx, rx):
                rates[node, rail] = _slowed(int(rates[node, rail]), fraction, node, rail)
        return replace(self, tx=tx, rx=rx)

    def _place(self, node: Any, rail: Any, what: str) -> tuple[int, int]:
        """The numbers of a node and a rail that there are."""
        return (
            whole_number(node, f"{what} node", 0, self.nodes - 1),
            whole_number(rail, f"{what} rail", 0, self.rails - 1),
        )

    def node_name(self, node: int) -> str:
        """`gpu10` where hosts are named, else `node 9`."""
        return self.hosts[node] if self.hosts else f"node {node}"

    def nic_name(self, node: int, rail: int) -> str:
        """`gpu10 mlx5_5` where hosts and devices are named, else `node 9 rail 5`."""
        device = self.devices[rail] if self.devices else f"rail {rail}"
        return f"{self.node_name(node)} {device}"

    def side_name(self, node: int, side: str, rail: int) -> str:
        """`gpu10 mlx5_5 recv` where NICs have names, else `node 9 recv rail 5`."""
        if self.hosts or self.devices:
            return f"{self.nic_name(node, rail)} {side}"
        return f"node {node} {side} rail {rail}"

    @cached_property
    def is_uniform(self) -> bool:
        """Every NIC alive and of one rate in both directions."""
        rate = self.tx[0, 0]
        return bool(rate > 0 and np.all(self.tx == rate) and np.all(self.rx == rate))

    def rates(self, side: str) -> Ints:
        """`tx` for side "send", `rx` for "recv"."""
        return self.tx if check_side(side) == "send" else self.rx

    @cached_property
    def living_rates(self) -> list[int]:
        """The different rates of its living NICs in bytes per second, in rising order."""
        rates = np.union1d(self.tx, self.rx).tolist()
        if not rates[-1]:
            raise InputError("every NIC is dead: nothing can be sent")
        return [rate for rate in rates if rate]

    @cached_property
    def digest(self) -> str:
        return digest(self.header(), {"tx": self.tx, "rx": self.rx})

    def header(self) -> dict[str, Any]:
        """Everything but the rate matrices and names, as JSON values; `from_header` is the way
        back.
        """
        spine = None if self.spine is None else asdict(self.spine)
        inside = {} if self.inside is None else {"inside": self.inside.as_dict()}
        leaves = {} if self.leaves is None else {"leaves": asdict(self.leaves)}
        return {
            "nodes": self.nodes,
            "rails": self.rails,
            "gpus": self.gpus,
            "scaleup": self.scaleup,
            "latency_ps": self.latency_ps,
            "spine": spine,
            **inside,
            **leaves,
        }

    @classmethod
    def from_header(cls, header: Mapping[str, Any], tx: Array, rx: Array) -> Fabric:
        """The fabric whose `header()` and rates these are."""
        perhaps = {"inside", "leaves"}
        known = {f.name for f in fields(cls)} - {"tx", "rx", "hosts", "devices"} - perhaps
        if not isinstance(header, Mapping) or set(header) - perhaps != known:
            raise FormatError(
                f"a fabric header of {quoted(header)}, expected the keys {sorted(known)}"
            )
        spine, leaves = _tier(Spine, header["spine"]), _tier(Leaves, header.get("leaves"))
        made = cls(**{**header, "spine": spine, "leaves": leaves, "inside": None}, tx=tx, rx=rx)
        inside = header.get("inside")
        if inside is None:
            return made
        return replace(made, inside=Inside.from_dict(inside, made.gpus, made.rails))

    @classmethod
    def read(
        cls,
        path: str | os.PathLike[str],
        *,
        nodes: int | None = None,
        link: str | int | None = None,
    ) -> Fabric:
        """Read a `.topo` of htsim (see `from_topo`), the topology of one node (`nodes` of it; see
        `railopt.model.topology`), or anything else as a TOML description (see `to_toml` for the
        keys); unknown keys are errors.
        """
        return described(path, nodes=nodes, link=link).fabric

    @classmethod
    def from_node(cls, node: Node, nodes: int) -> Fabric:
        """A fabric of so many nodes, each like the one that a topology file describes, whose names
        of devices it has where all are known.
        """
        gpus, rails = node.inside.near.shape
        made = cls.uniform(nodes, rails, gpus=gpus, scaleup=node.scaleup, inside=node.inside)
        rates = np.broadcast_to(node.rates, made.tx.shape)
        names = tuple(nic.name for nic in node.nics)
        known = all(nic.named for nic in node.nics) and len(set(names)) == len(names)
        return replace(made, tx=rates, rx=rates, devices=names if known else ())

    @classmethod
    def from_toml(cls, data: Mapping[str, Any]) -> Fabric:
        """Build from parsed TOML: nodes, rails, link, and optionally gpus, scaleup, latency,
        hosts, devices, [spine], [leaves], [inside], [[nic]].
        """
        toml.only(data, KEYS, "fabric")
        for key in ("nodes", "rails", "link"):
            if key not in data:
                raise InputError(f"the fabric has no {key!r}; it needs nodes, rails and link")
        link = toml.text(data, "link")
        spine = data.get("spine")
        if spine is not None:
            toml.only(spine, {"uplinks", "rate"}, "[spine]")
            spine = Spine(
                spine.get("uplinks", data["nodes"]), parse_rate(toml.text(spine, "rate", link))
            )
        fabric = cls.uniform(
            data["nodes"],
            data["rails"],
            link,
            gpus=data.get("gpus"),
            spine=spine,
            scaleup=toml.text(data, "scaleup", "450GB/s"),
            latency=toml.text(data, "latency", "1us"),
        )
        if "inside" in data:
            inside = Inside.from_toml(data["inside"], fabric.gpus, fabric.rails)
            fabric = replace(fabric, inside=inside)
        tx, rx = fabric.tx.copy(), fabric.rx.copy()
        nics = data.get("nic", [])
        if not isinstance(nics, list):
            raise InputError(f"nic = {quoted(nics)}: expected tables, each under [[nic]]")
        every = sum(isinstance(nic, Mapping) and "node" not in nic for nic in nics)
        if every > fabric.rails:
            raise InputError(
                f"{every} tables [[nic]] name no node: expected one per rail, at most "
                f"{fabric.rails}"
            )
        for nic in nics:
            fabric._set_nic(nic, tx, rx)
        names = {name: data.get(name, ()) for name in ("hosts", "devices")}
        leaves = _leaves(data["leaves"], link) if "leaves" in data else None
        return replace(fabric, tx=tx, rx=rx, leaves=leaves, **names)

    def _set_nic(self, nic: Mapping[str, Any], tx: Ints, rx: Ints) -> None:
        """One [[nic]] of a TOML description: its fraction or its rates, written into tx and rx of
        its node, of every node where it names none.
        """
        toml.only(nic, {"node", "rail", "fraction", "rate", "tx", "rx"}, "[[nic]]")
        if "rail" not in nic:
            raise InputError(
                f"[[nic]] {quoted(dict(nic))}: needs a rail, and a node unless it is about all"
            )
        node, rail = self._place(nic.get("node", 0), nic["rail"], "[[nic]]")
        if "fraction" in nic:
            if {"rate", "tx", "rx"} & set(nic):
                raise InputError(
                    f"[[nic]] node {node}, rail {rail}: fraction and a rate contradict each other"
                )
            fraction = parse_fraction(nic["fraction"])
            for place in [node] if "node" in nic else range(self.nodes):
                for rates in (tx, rx):
                    rates[place, rail] = _slowed(int(rates[place, rail]), fraction, place, rail)
        places = node if "node" in nic else slice(None)
        for side, rates in (("tx", tx), ("rx", rx)):
            rate = nic.get(side, nic.get("rate"))
            if rate is not None:
                dead = rate in ("0", 0) and not isinstance(rate, bool)
                rates[places, rail] = 0 if dead else parse_rate(toml.text({side: rate}, side))

    @classmethod
    def from_topo(cls, text: str, name: str = "topology") -> Fabric:
        """A two-tier htsim topology, one leaf per rail; a path up and down one leaf is two of its
        hops.
        """
        with about(f"{name}: ", FormatError):
            found = parse_topo(text)
            return cls.uniform(
                found.nodes,
                found.rails,
                f"{found.gbps}Gb/s",
                latency=f"{2 * found.latency_ns}ns",
                spine=Spine(found.uplinks, found.uplink_gbps * 10**9 // 8),
            )

    def to_topo(self) -> str:
        """As an htsim `.topo`, which knows one rate in whole Gb/s, uplinks as fast as the NICs, and
        half of the latency per hop in whole nanoseconds; other switches and NICs are refused.  What
        is inside nodes is no part of it.

        Without a spine the file gets as many uplinks as nodes: htsim has no leaf without them.
        Rails of several leaves are those leaves, which reads back as so many rails.
        """
        rate = int(self.tx[0, 0])
        if not self.is_uniform or rate * 8 % 10**9:
            raise InputError(
                "a .topo has one link rate in whole Gb/s: this fabric has unequal, dead or "
                "fractional NICs"
            )
        tier = self.tier
        if (self.spine or self.leaves) and tier.rate != rate:
            what = "spine is" if self.leaves is None else "fabric's are"
            raise InputError(
                f"a .topo for htsim is written with uplinks as fast as the NICs: this {what} not"
            )
        if tier.rails > 1 or self.nodes % tier.nodes:
            raise InputError(
                "a .topo for htsim has leaves of as many NICs each, all of one rail: these are not"
            )
        if self.latency_ps % 2000:
            raise InputError(
                f"a .topo has half of the latency in whole nanoseconds: {self.latency_ps} ps "
                f"has none"
            )
        leaves = tier.count(self.nodes, self.rails)
        hop_ns = self.latency_ps // 2000
        return format_topo(tier.nodes, leaves, rate * 8 // 10**9, hop_ns, tier.uplinks)

    def to_toml(self) -> str:
        """The description that `read` understands; NICs that differ from the commonest rate are
        listed one by one, or once where every node has the same.
        """
        values, counts = np.unique(
            np.concatenate([self.tx[self.tx > 0], self.rx[self.rx > 0]]), return_counts=True
        )
        link = int(values[counts.argmax()]) if len(values) else 1
        lines = [
            f"nodes = {self.nodes}",
            f"rails = {self.rails}",
            f"gpus = {self.gpus}",
            f"link = {_rate(link)}",
            f"scaleup = {_rate(self.scaleup)}",
            f'latency = "{self.latency_ps}ps"',
            *(f"{name} = {_quoted(names)}" for name, names in self.names().items()),
        ]
        if self.spine:
            lines += [
                "",
                "[spine]",
                f"uplinks = {self.spine.uplinks}",
                f"rate = {_rate(self.spine.rate)}",
            ]
        if self.leaves:
            lines += ["", "[leaves]"]
            for key, value in asdict(self.leaves).items():
                text = {"rate": _rate(self.leaves.rate), "way": f'"{value}"'}.get(key, value)
                lines.append(f"{key} = {text}")
        if self.inside:
            lines += ["", *self.inside.to_toml()]
        odd = (self.tx != link) | (self.rx != link)
        alike = np.all((self.tx == self.tx[0]) & (self.rx == self.rx[0]), axis=0)
        odd[1:, alike] = False  # the first speaks for all
        for node, rail in np.argwhere(odd).tolist():
            lines += [
                "",
                "[[nic]]",
                *([] if alike[rail] else [f"node = {node}"]),
                f"rail = {rail}",
                f"tx = {_rate(int(self.tx[node, rail]))}",
                f"rx = {_rate(int(self.rx[node, rail]))}",
            ]
        return "\n".join(lines) + "\n"

    def names(self) -> dict[str, tuple[str, ...]]:
        """The names that were given: hosts, devices."""
        return {name: names for name in ("hosts", "devices") if (names := getattr(self, name))}

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write `to_topo()` where the name ends in `.topo`, else `to_toml()`."""
        text = self.to_topo() if Path(path).suffix.lower() == ".topo" else self.to_toml()
        write_atomic(path, text, force=force)


def _tier(kind: type[T], record: Any) -> T | None:
    """The spine or the leaves of a header, None where it has none."""
    if record is None:
        return None
    keys = [key.name for key in fields(kind)]
    if not isinstance(record, Mapping) or set(record) != set(keys):
        raise FormatError(f"{quoted(record)}: expected {kind.__name__} of {', '.join(keys)}")
    return kind(**record)


class Described(NamedTuple):
    """A fabric, and in words what was assumed where its description is silent."""

    fabric: Fabric
    assumed: tuple[str, ...]


DEFAULTS = {
    "nodes": "8 nodes",
    "rails": "8 rails",
    "link": "400Gb/s",
    "gpus": "as many GPUs as rails",
    "inside": "GPUs and NICs in their usual order, scale-up a crossbar",
    "scaleup": "450GB/s per GPU",
    "latency": "1us",
}


def unsaid(said: Iterable[str]) -> tuple[str, ...]:
    """In words, what is assumed where a description has only the keys `said`."""
    return tuple(
        f"{key} is not given: {text} assumed" for key, text in DEFAULTS.items() if key not in said
    )


def described(
    path: str | os.PathLike[str], *, nodes: int | None = None, link: str | int | None = None
) -> Described:
    """What `Fabric.read` reads, with its assumptions.  `nodes` is for the topology of one node, and
    `link` for NICs whose rate it does not say or says wrongly.
    """
    if describes_node(path):
        if nodes is None:
            raise InputError(
                f"{printable(path)} describes one node: say how many there are (--nodes, nodes=)"
            )
        found = read_node(path, link)
        return Described(
            Fabric.from_node(found, nodes), (*found.assumed, "every node is like this one")
        )
    if nodes is not None or link is not None:
        raise InputError(
            f"{printable(path)} says its own nodes and rates: nodes and link are for the topology "
            f"of one node"
        )
    if Path(path).suffix.lower() == ".topo":
        fabric = Fabric.from_topo(read_text(path, toml.MAX_BYTES), printable(Path(path).name))
        return Described(fabric, unsaid({"nodes", "rails", "link", "latency"}))
    try:
        return toml.read(path, lambda data: Described(Fabric.from_toml(data), unsaid(data)))
    except FormatError as error:
        if Path(path).suffix.lower() == ".toml":
            raise
        raise FormatError(
            f"{error}; nor a node's topology: XML, or a matrix from GPU0 on"
        ) from error


def check_side(side: str) -> str:
    """`side` itself, "send" or "recv"; anything else is an InputError."""
    if side not in SIDES:
        raise InputError(f"side {quoted(side)}: expected 'send' or 'recv'")
    return side


def parse_nic(text: str) -> tuple[tuple[int, int], Fraction]:
    """`"3:5=0.5"` -> ((node, rail), fraction of its rate)."""
    place, equals, fraction = text.partition("=")
    node, colon, rail = place.partition(":")
    try:
        if not equals or not colon:
            raise InputError("no '=' or no ':'")
        where = (
            parse_integer(node, "node", low=0, high=MAX_NODES),
            parse_integer(rail, "rail", low=0, high=MAX_RAILS),
        )
        return where, parse_fraction(fraction)
    except InputError as error:
        raise InputError(
            f"{quoted(text)}: expected NODE:RAIL=FRACTION, e.g. 3:5=0.5 ({error})"
        ) from error


def parse_nics(texts: Iterable[str]) -> dict[tuple[int, int], Fraction]:
    """NICs as `NODE:RAIL=FRACTION`, each at most once, for `Fabric.degraded`."""
    nics: dict[tuple[int, int], Fraction] = {}
    for text in texts:
        where, fraction = parse_nic(text)
        if where in nics:
            raise InputError(f"{quoted(text)}: NIC {where} is given twice")
        nics[where] = fraction
    return nics


def _names(names: Any, what: str, count: int) -> tuple[str, ...]:
    """Names of all nodes or rails, each once, or none at all."""
    if not isinstance(names, list | tuple):
        raise InputError(f"{what} = {quoted(names)}: expected a list of names")
    for name in names:
        if not (isinstance(name, str) and name.isprintable() and 0 < len(name) <= MAX_NAME):
            raise InputError(f"{what}: {quoted(name)} is no name of 1 to {MAX_NAME} characters")
    if len(names) not in (0, count):
        raise InputError(f"{len(names)} {what}: expected {count}, or none")
    if len(set(names)) != len(names):
        twice = next(name for place, name in enumerate(names) if name in names[:place])
        raise InputError(f"{what}: {quoted(twice)} stands there twice: expected each name once")
    return tuple(names)


def _quoted(names: Iterable[str]) -> str:
    """A TOML list; in its basic strings, JSON's escapes mean the same."""
    return json.dumps(list(names), ensure_ascii=False)


def _leaves(table: Any, link: str) -> Leaves:
    """[leaves] of a TOML description: as many uplinks as NICs and as fast, unless it says."""
    toml.only(table, {"nodes", "uplinks", "rate", "way", "rails"}, "[leaves]")
    if "nodes" not in table:
        raise InputError("[leaves] has no 'nodes', the nodes of one leaf")
    nodes, rails = (
        whole_number(table.get(name, 1), f"leaves {name}", 1, INT64_MAX)
        for name in ("nodes", "rails")
    )
    rate = parse_rate(toml.text(table, "rate", link))
    return Leaves(nodes, table.get("uplinks", nodes * rails), rate, table.get("way", "ecmp"), rails)


def _slowed(rate: int, fraction: Fraction, node: int, rail: int) -> int:
    """A fraction of a rate in whole bytes per second, rounded down; 0 is for dead NICs alone."""
    slowed = rate * fraction.numerator // fraction.denominator
    if fraction and rate and not slowed:
        raise InputError(
            f'NIC ({node}, {rail}) at {fraction}: less than 1 byte per second (write "0" for a '
            f"dead NIC)"
        )
    return slowed


def _rate(rate: int) -> str:
    return toml_rate(rate) if rate else '"0"'
