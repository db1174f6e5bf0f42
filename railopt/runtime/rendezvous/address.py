"""Addresses of this machine: which host names are its own, and where rank 0 listens."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Sequence

from railopt.base.errors import BackendError, printable


def resolve(host: str) -> list[str]:
    """The addresses of a name, in the resolver's order; none where it has none."""
    try:
        found = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except (OSError, ValueError):  # ValueError: what can't be a name
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def can_bind(address: str) -> bool:
    """Whether an address is this machine's: one can listen on it."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
    except OSError:
        return False
    return True


def is_local(host: str) -> bool:
    """Whether a name or an address is this machine's."""
    if host in (socket.gethostname(), socket.gethostname().split(".")[0]):
        return True
    return any(can_bind(address) for address in resolve(host))


def is_loopback(address: str) -> bool:
    """Whether an address is reached from this machine alone."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def listening_address(hosts: Sequence[str], bind: str | None = None) -> str:
    """Where rank 0 listens: at `bind` if that is given; else at the address of its own name, the
    first of `hosts`; without hosts at the address of its default route.

    Many machines know their own name as 127.0.1.1 only, which no other node can reach: then it is
    the address from which the first other host is reached.
    """
    if bind is not None:
        return bind
    if not hosts:
        return address_towards("192.0.2.1")
    own = [address for address in resolve(hosts[0]) if can_bind(address)]
    if not own:
        raise BackendError(
            f"rank 0 can't listen at {printable(hosts[0])}: that is no address of this machine "
            f"({socket.gethostname()}); say where with --bind (--bind 0.0.0.0 is everywhere)"
        )
    if hosts[0] in own:
        return hosts[0]
    outside = [address for address in own if not is_loopback(address)]
    if outside:
        return outside[0]
    others = (address for host in hosts[1:] for address in resolve(host)[:1])
    return next(
        (address_towards(other) for other in others if not is_loopback(other)),
        own[0],
    )


def address_towards(other: str) -> str:
    """This machine's address on the route to another; no packet is sent."""
    family = socket.AF_INET6 if ":" in other else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((other, 9))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
