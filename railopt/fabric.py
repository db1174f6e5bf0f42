"""The fabric: M nodes with G GPUs and N NICs each; NIC n of every node hangs on rail switch n.

Rates are integers of bytes per second, `[node, rail]`, one matrix a direction; 0 is a dead NIC.
GPU ids are `node * gpus + local index` everywhere.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from railopt import toml
from railopt.arrays import Array, Ints, digest, frozen, write_atomic
from railopt.errors import FormatError, InputError
from railopt.units import PS_PER_S, format_rate, parse_fraction, parse_rate, parse_time

MAX_NODES, MAX_RAILS, MAX_GPUS = 1 << 20, 1 << 12, 1 << 12


@dataclass(frozen=True)
class Spine:
    """The tier above the rail switches: `uplinks` links a rail switch, each of `rate` bytes per
    second.
    """

    uplinks: int
    rate: int

    def __post_init__(self) -> None:
        if self.uplinks < 1 or self.rate < 1:
            raise InputError(
                f"spine with {self.uplinks} uplinks of {self.rate} B/s: both must be at least 1"
            )


@dataclass(frozen=True, eq=False)
class Fabric:
    """Nodes, GPUs, rails and what each NIC can do.

    tx, rx      int64 [nodes, rails], bytes per second that NIC n of a node can send / receive; 0 =
                dead
    scaleup     bytes per second between a GPU and its node's scale-up fabric (NVLink), each
                direction
    latency_ps  one-way latency of a rail, picoseconds
    spine       the tier that joins the rails, or None for a pure rail fabric
    """

    nodes: int
    rails: int
    gpus: int
    tx: Ints = field(repr=False)
    rx: Ints = field(repr=False)
    scaleup: int = 450 * 10**9
    latency_ps: int = 1_000_000
    spine: Spine | None = None

    def __post_init__(self) -> None:
        for name, value, most in (
            ("nodes", self.nodes, MAX_NODES),
            ("rails", self.rails, MAX_RAILS),
            ("gpus", self.gpus, MAX_GPUS),
        ):
            if not isinstance(value, int | np.integer) or not 1 <= value <= most:
                raise InputError(f"{name} = {value!r}: expected a whole number from 1 to {most}")
            object.__setattr__(self, name, int(value))
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
            object.__setattr__(self, name, rates)
        if self.scaleup < 1:
            raise InputError(f"scaleup = {self.scaleup}: expected at least 1 byte per second")
        if self.latency_ps < 0:
            raise InputError(f"latency_ps = {self.latency_ps}: a time can't be negative")

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
    ) -> Fabric:
        """A healthy fabric: every NIC sends and receives at `link`; `gpus` a node defaults to
        `rails`.
        """
        if not (
            isinstance(nodes, int)
            and isinstance(rails, int)
            and 1 <= nodes <= MAX_NODES
            and 1 <= rails <= MAX_RAILS
        ):
            raise InputError(
                f"{nodes!r} nodes x {rails!r} rails: expected whole numbers from 1 to {MAX_NODES} "
                f"and {MAX_RAILS}"
            )
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
        )

    def degraded(self, nics: Mapping[tuple[int, int], str | int | Fraction]) -> Fabric:
        """A copy in which NIC `(node, rail)` runs at a fraction of its rate, both ways; `"0"` is
        dead.

        A fraction that does not give whole bytes per second is rounded down.
        """
        tx, rx = self.tx.copy(), self.rx.copy()
        for (node, rail), text in nics.items():
            if not (0 <= node < self.nodes and 0 <= rail < self.rails):
                raise InputError(
                    f"NIC ({node}, {rail}): expected a node below {self.nodes} and a rail below "
                    f"{self.rails}"
                )
            fraction = text if isinstance(text, Fraction) else parse_fraction(text)
            for rates in (tx, rx):
                rates[node, rail] = slowed = (
                    int(rates[node, rail]) * fraction.numerator // fraction.denominator
                )
                if fraction and not slowed:
                    raise InputError(
                        f'NIC ({node}, {rail}) at {text}: less than 1 byte per second (write "0" '
                        f"for a dead NIC)"
                    )
        return replace(self, tx=tx, rx=rx)

    @cached_property
    def is_uniform(self) -> bool:
        """Every NIC alive and of one rate in both directions."""
        rate = self.tx[0, 0]
        return bool(rate > 0 and np.all(self.tx == rate) and np.all(self.rx == rate))

    def rates(self, side: str) -> Ints:
        """`tx` for side "send", `rx` for "recv"."""
        return self.tx if side == "send" else self.rx

    @cached_property
    def digest(self) -> str:
        return digest(self.header(), {"tx": self.tx, "rx": self.rx})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fabric) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def header(self) -> dict[str, Any]:
        """Everything but the rate matrices, as JSON values; `from_header` is the way back."""
        spine = (
            None if self.spine is None else {"uplinks": self.spine.uplinks, "rate": self.spine.rate}
        )
        return {
            "nodes": self.nodes,
            "rails": self.rails,
            "gpus": self.gpus,
            "scaleup": self.scaleup,
            "latency_ps": self.latency_ps,
            "spine": spine,
        }

    @classmethod
    def from_header(cls, header: Mapping[str, Any], tx: Array, rx: Array) -> Fabric:
        """The fabric whose `header()` and rates these are."""
        known = {f.name for f in fields(cls)} - {"tx", "rx"}
        if set(header) != known:
            raise FormatError(f"fabric header with keys {sorted(header)}, expected {sorted(known)}")
        spine = header["spine"]
        return cls(**{**header, "spine": None if spine is None else Spine(**spine)}, tx=tx, rx=rx)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Fabric:
        """Read a TOML description (see `to_toml` for the keys); unknown keys are errors."""
        return toml.read(path, cls.from_toml)

    @classmethod
    def from_toml(cls, data: Mapping[str, Any]) -> Fabric:
        """Build from parsed TOML: nodes, rails, link, and optionally gpus, scaleup, latency,
        [spine], [[nic]].
        """
        toml.only(
            data, {"nodes", "rails", "gpus", "link", "scaleup", "latency", "spine", "nic"}, "fabric"
        )
        for key in ("nodes", "rails", "link"):
            if key not in data:
                raise InputError(f"the fabric has no {key!r}; it needs nodes, rails and link")
        spine = data.get("spine")
        if spine is not None:
            toml.only(spine, {"uplinks", "rate"}, "[spine]")
            spine = Spine(
                int(spine.get("uplinks", data["nodes"])),
                parse_rate(spine.get("rate", data["link"])),
            )
        fabric = cls.uniform(
            data["nodes"],
            data["rails"],
            data["link"],
            gpus=data.get("gpus"),
            spine=spine,
            scaleup=data.get("scaleup", "450GB/s"),
            latency=data.get("latency", "1us"),
        )
        tx, rx = fabric.tx.copy(), fabric.rx.copy()
        for nic in data.get("nic", []):
            toml.only(nic, {"node", "rail", "fraction", "rate", "tx", "rx"}, "[[nic]]")
            if "node" not in nic or "rail" not in nic:
                raise InputError(f"[[nic]] {nic}: needs node and rail")
            node, rail = nic["node"], nic["rail"]
            if not (
                isinstance(node, int)
                and isinstance(rail, int)
                and 0 <= node < fabric.nodes
                and 0 <= rail < fabric.rails
            ):
                raise InputError(
                    f"[[nic]] node {node}, rail {rail}: expected a node below {fabric.nodes} and "
                    f"a rail below {fabric.rails}"
                )
            if "fraction" in nic:
                fabric_nic = fabric.degraded({(node, rail): str(nic["fraction"])})
                tx[node, rail], rx[node, rail] = (
                    fabric_nic.tx[node, rail],
                    fabric_nic.rx[node, rail],
                )
            for side, rates in (("tx", tx), ("rx", rx)):
                rate = nic.get(side, nic.get("rate"))
                if rate is not None:
                    rates[node, rail] = 0 if rate in (0, "0") else parse_rate(rate)
        return replace(fabric, tx=tx, rx=rx)

    def to_toml(self) -> str:
        """The description that `read` understands; NICs that differ from the commonest rate are
        listed one by one.
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
        ]
        if self.spine:
            lines += [
                "",
                "[spine]",
                f"uplinks = {self.spine.uplinks}",
                f"rate = {_rate(self.spine.rate)}",
            ]
        for node, rail in np.argwhere((self.tx != link) | (self.rx != link)).tolist():
            lines += [
                "",
                "[[nic]]",
                f"node = {node}",
                f"rail = {rail}",
                f"tx = {_rate(int(self.tx[node, rail]))}",
                f"rx = {_rate(int(self.rx[node, rail]))}",
            ]
        return "\n".join(lines) + "\n"

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write `to_toml()` to a file."""
        write_atomic(path, self.to_toml(), force=force)

    @property
    def latency(self) -> Fraction:
        """One-way latency in seconds."""
        return Fraction(self.latency_ps, PS_PER_S)


def _rate(rate: int) -> str:
    text = format_rate(rate) if rate else "0"
    return f'"{text}"' if rate and parse_rate(text) == rate else (f'"{rate}B/s"' if rate else '"0"')
