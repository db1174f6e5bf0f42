"""Fabrics that one could buy: rails, rates, planes, a spine or none, spares, prices."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from railopt.base import toml
from railopt.base.arrays import whole_number
from railopt.base.errors import InputError, about, did_you_mean
from railopt.base.units import format_rate, parse_number, parse_rate, quoted
from railopt.model.fabric import MAX_RAILS, Fabric, Spine
from railopt.model.inside import Inside
from railopt.model.leaves import Leaves

RAILS, SPINE, TREE = KINDS = ("rail-only", "spine", "fat-tree")
MAX_CANDIDATES = 1000
Dead = tuple[tuple[int, int], ...]  # (node, NIC) of each


@dataclass(frozen=True)
class Candidate:
    """A fabric that one could buy, for nodes whose GPUs are given.

    rails             NICs per node; two per GPU are twice as many as GPUs
    link              rate of a NIC, bytes per second or a text with its unit
    planes            a NIC's rate is split evenly over so many rails of its own
    kind              "rail-only", "spine" (above the rail switches) or "fat-tree" (the same
                      switches, each with all NICs of some nodes, and hashed paths between them)
    oversubscription  NIC rate below a switch over the rate of its uplinks
    spares            NICs per node that carry nothing until another one is dead
    scaleup           of a GPU, as `link`
    price             of all of it, in any unit, or None
    """

    name: str
    rails: int = 8
    link: int | str = "400Gb/s"
    planes: int = 1
    kind: str = RAILS
    oversubscription: Fraction | int | float | str = Fraction(1)
    spares: int = 0
    scaleup: int | str = "450GB/s"
    price: Fraction | int | float | str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.strip():
            raise InputError(f"name = {quoted(self.name)}: expected a text")
        for name, low in (("rails", 1), ("planes", 1), ("spares", 0)):
            number = whole_number(getattr(self, name), name, low, MAX_RAILS)
            object.__setattr__(self, name, number)
        for name in ("link", "scaleup"):
            object.__setattr__(self, name, parse_rate(getattr(self, name)))
        for name in ("oversubscription", "price"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, parse_number(getattr(self, name), name))
        if self.kind not in KINDS:
            raise InputError(
                f"kind = {quoted(self.kind)}: expected {', '.join(KINDS)}"
                f"{did_you_mean(self.kind, KINDS)}"
            )
        if self.over <= 0 or (self.kind == RAILS and self.over != 1):
            raise InputError(
                f"oversubscription = {self.over}: expected more than 0, and a spine or a fat tree"
            )
        if self.price is not None and Fraction(self.price) < 0:
            raise InputError(f"price = {self.price}: expected 0 or more")

    @property
    def over(self) -> Fraction:
        """The oversubscription, exact."""
        return Fraction(self.oversubscription)

    def fabric(self, nodes: int, gpus: int, dead: Dead = ()) -> Fabric:
        """So many nodes of it.  Where (node, NIC) are dead, spares are rails of every node, each
        near the GPUs whose NIC it stands in for.
        """
        numbers = list(dict.fromkeys(nic for _, nic in dead))[: self.spares]
        near = Inside.usual(gpus, self.rails).near
        near = np.repeat(np.concatenate([near, near[:, numbers]], axis=1), self.planes, axis=1)
        rate = int(self.link) // self.planes
        ports = nodes if self.kind == SPINE else self.per_leaf(nodes) * self.rails * self.planes
        uplinks = max(1, int(ports / self.over))
        spine = Spine(uplinks, max(1, int(rate * ports / self.over / uplinks)))
        made = Fabric.uniform(
            nodes,
            near.shape[1],
            rate,
            gpus=gpus,
            scaleup=self.scaleup,
            spine=spine if self.kind == SPINE else None,
            inside=Inside(near, planes=self.planes),
        )
        if self.kind == TREE:
            leaves = Leaves(self.per_leaf(nodes), uplinks, spine.rate, "ecmp", made.rails)
            made = replace(made, leaves=leaves)
        planes = range(self.planes)
        return made.degraded(
            {(node, nic * self.planes + plane): 0 for node, nic in dead for plane in planes}
        )

    def per_leaf(self, nodes: int) -> int:
        """Nodes under a switch of a fat tree that has as many ports as one of rails."""
        return max(1, nodes // (self.rails * self.planes))

    def nic_rate(self, nodes: int) -> int:
        """Bytes per second of all NICs, spares too."""
        return nodes * (self.rails + self.spares) * int(self.link)


def candidates_from(path: str | os.PathLike[str]) -> list[Candidate]:
    """The tables [[candidate]] of a TOML file, with the keys of `Candidate`."""

    def parsed(data: Any) -> list[Candidate]:
        toml.only(data, {"candidate"}, "candidates")
        tables = data.get("candidate")
        if not isinstance(tables, list) or not tables:
            raise InputError("expected tables, each under [[candidate]]")
        found = []
        for place, table in enumerate(tables):
            toml.only(table, {one.name for one in fields(Candidate)}, "[[candidate]]")
            with about(f"[[candidate]] {place + 1}: "):
                found.append(Candidate(**{"name": f"candidate {place + 1}", **table}))
        return found

    return toml.read(path, parsed)


def crossed(**lists: Sequence[Any]) -> list[Candidate]:
    """Every combination of lists of rails, link, planes, kind, oversubscription, spares and
    scaleup, with names made of what varies; oversubscription is for those that have a spine.
    """
    found: dict[Candidate, str] = {}
    for values in product(*lists.values()):
        given = dict(zip(lists, values, strict=True))
        if given.get("kind", RAILS) == RAILS:
            given.pop("oversubscription", None)
        made = Candidate("candidate", **given)
        found[made] = _named(made, len(lists.get("scaleup", ())) > 1)
        if len(found) > MAX_CANDIDATES:
            raise InputError(f"more than {MAX_CANDIDATES} candidates")
    return [replace(one, name=name) for one, name in found.items()]


def _named(one: Candidate, scaleup: bool) -> str:
    """`8x400Gb/s`, `8x400Gb/s spine 2:1`, `8x400Gb/s in 2 fat-tree +1`."""
    words = [f"{one.rails}x{format_rate(int(one.link))}"]
    words += [f"in {one.planes}"] if one.planes > 1 else []
    words += [one.kind] if one.kind != RAILS else []
    words += [f"{float(one.over):g}:1"] if one.over != 1 else []
    words += [f"+{one.spares}"] if one.spares else []
    words += [format_rate(int(one.scaleup))] if scaleup else []
    return " ".join(words)
