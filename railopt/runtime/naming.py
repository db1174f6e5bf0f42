"""Which NIC a name means: hosts in node order, devices in rail order.

What is gathered from a cluster is named by host and device (`gpu01-mlx5_0.json`), what railopt
counts is nodes and rails.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import NamedTuple

from railopt.base.arrays import read_text
from railopt.base.errors import InputError, printable
from railopt.base.units import quoted
from railopt.model.fabric import MAX_NODES, MAX_RAILS
from railopt.runtime.rendezvous.launch import expand_hosts

MAX_BYTES = 1 << 22
_SEPARATORS = "-_.:"
_SIDE = re.compile(r"(.*?)(?:[._-](tx|rx))?\Z", re.DOTALL)
SIDE_NAMES = {"tx": "send", "rx": "recv", None: ""}
NicSide = tuple[int, int, str]  # node, rail, and "send", "recv" or "" for both


def hosts_from(text: str) -> tuple[str, ...]:
    """The nodes in order: `gpu01,gpu02` or `gpu[01-08]`, or a file with one host per line, of which
    the first word counts and what follows a `#` does not.
    """
    names = _hosts_of_file(text) if os.path.isfile(text) else expand_hosts(text)
    if not names:
        raise InputError(f"{quoted(text)} names no host: expected e.g. gpu01,gpu02 or gpu[01-08]")
    return once(names, "host")


def _hosts_of_file(path: str) -> list[str]:
    lines = read_text(path, MAX_BYTES).splitlines()
    words = [line.partition("#")[0].split() for line in lines]
    hosts: list[str] = []
    for line in filter(None, words):
        hosts += expand_hosts(line[0])
        if len(hosts) > MAX_NODES:
            raise InputError(f"{printable(path)}: more than {MAX_NODES} hosts")
    return hosts


def once(names: Sequence[str], what: str) -> tuple[str, ...]:
    """The names, refused if one repeats."""
    seen = set[str]()
    for name in names:
        if name in seen:
            raise InputError(
                f"{what} {printable(name)} is named twice: expected each once, in order"
            )
        seen.add(name)
    return tuple(names)


def in_natural_order(names: Sequence[str]) -> tuple[str, ...]:
    """Each once, numbers in them by value: mlx5_2 before mlx5_10."""
    return tuple(sorted(set(names), key=_by_numbers))


def _by_numbers(name: str) -> list[tuple[int, int, str]]:
    parts = re.split(r"(\d{1,18})", name, flags=re.ASCII)
    return [(1, int(part), "") if i % 2 else (0, 0, part) for i, part in enumerate(parts)]


class Naming(NamedTuple):
    """hosts    in node order
    devices  in rail order; empty: those that are found, in their natural order
    """

    hosts: tuple[str, ...]
    devices: tuple[str, ...] = ()

    def completed(self, names: Sequence[str]) -> Naming:
        """The same, with the devices of these names where none were given."""
        found = in_natural_order([self._parsed(name)[1] for name in names])
        return self._replace(devices=self.devices or found)

    def places(self, names: Sequence[str]) -> list[NicSide]:
        """Places of names such as `gpu01-mlx5_0` or `gpu01_mlx5_0_tx`, a host of `hosts` first."""
        found = [self._parsed(name) for name in names]
        devices = self.completed(names).devices
        if len(devices) > MAX_RAILS:
            raise InputError(f"{len(devices)} devices: expected at most {MAX_RAILS}, one per rail")
        rail = {device: n for n, device in enumerate(devices)}
        for name, (_, device, _) in zip(names, found, strict=True):
            if device not in rail:
                raise InputError(
                    f"{printable(name)}: device {quoted(device)} is not among those named: "
                    f"{printable(', '.join(devices))}"
                )
        return [(node, rail[device], side) for node, device, side in found]

    def _parsed(self, name: str) -> tuple[int, str, str]:
        """(node, device, side) of a name; if several host names match, the longest is used."""
        fits = [
            host
            for host in self.hosts
            if name.startswith(host) and name[len(host) : len(host) + 1] in tuple(_SEPARATORS)
        ]
        if fits:
            host = max(fits, key=len)
            match = _SIDE.match(name[len(host) + 1 :])
            if match is not None and match[1]:
                return self.hosts.index(host), match[1], SIDE_NAMES[match[2]]
        raise InputError(
            f"{printable(name)}: expected HOST-DEVICE with a host of those named, e.g. "
            f"{printable(self.hosts[0])}-mlx5_0"
        )
