"""Leaf switches: NICs of some nodes and rails under one switch, and the links from it to the tier
above, which joins all leaves.

    rails of several leaves    `Leaves(nodes=4, ...)`: a leaf has NIC n of four nodes
    a fat tree                 `Leaves(nodes=1, rails=8, ...)`: a leaf has all NICs of a node
    a plane of a NIC           a rail of its own, which has leaves like any other

Nodes whose number over `nodes` is the same are a *group*: what they send each other on a rail stays
below one leaf.
"""

from __future__ import annotations

from dataclasses import dataclass

from railopt.base.arrays import Ints, whole_number
from railopt.base.errors import InputError, did_you_mean
from railopt.base.units import INT64_MAX, quoted

WAYS = ("ecmp", "adaptive", "spray")
MAX_UPLINKS = 1 << 20


@dataclass(frozen=True)
class Leaves:
    """What all leaves are like; those at the end may have fewer NICs.

    nodes     nodes of a leaf
    uplinks   links from a leaf up, each to a switch of its own, which has a link down to every leaf
    rate      of a link, bytes per second, each way
    way       who chooses the links of a flow: one of WAYS, the simulator's balancers
    rails     rails of a leaf
    """

    nodes: int
    uplinks: int
    rate: int
    way: str = "ecmp"
    rails: int = 1

    def __post_init__(self) -> None:
        limits = {"uplinks": MAX_UPLINKS}
        for name in ("nodes", "uplinks", "rate", "rails"):
            most = limits.get(name, INT64_MAX)
            number = whole_number(getattr(self, name), f"leaves {name}", 1, most)
            object.__setattr__(self, name, number)
        if self.uplinks * self.rate > INT64_MAX:
            raise InputError(
                f"{self.uplinks} uplinks of {self.rate} bytes per second: beyond int64"
            )
        if self.way not in WAYS:
            raise InputError(
                f"leaves way {quoted(self.way)}: expected {', '.join(WAYS)}"
                f"{did_you_mean(str(self.way), WAYS)}"
            )

    @property
    def capacity(self) -> int:
        """Bytes per second of all uplinks of a leaf."""
        return self.uplinks * self.rate

    def groups(self, nodes: int) -> int:
        """How many groups so many nodes are."""
        return -(-nodes // self.nodes)

    def count(self, nodes: int, rails: int) -> int:
        """How many leaves so many nodes and rails have."""
        return self.groups(nodes) * -(-rails // self.rails)

    def of(self, node: Ints, rail: Ints, nodes: int) -> Ints:
        """The leaf of each NIC (node, rail), of so many nodes: those of the first rails first."""
        return rail // self.rails * self.groups(nodes) + node // self.nodes

    def group_name(self, group: int, nodes: int) -> str:
        """`nodes 4 to 7`, of so many nodes in all."""
        first, last = group * self.nodes, min(nodes, (group + 1) * self.nodes) - 1
        return f"node {first}" if first == last else f"nodes {first} to {last}"

    def name(self, leaf: int, nodes: int) -> str:
        """`rail 3, nodes 4 to 7`: a leaf of a fabric of so many nodes."""
        rails, group = divmod(leaf, self.groups(nodes))
        rail = f"rail {rails}" if self.rails == 1 else f"rails from {rails * self.rails} on"
        return f"{rail}, {self.group_name(group, nodes)}"
