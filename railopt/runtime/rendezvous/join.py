"""Joining a run: rank 0 listens, every rank (0 too) connects and shakes hands."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence

from railopt.base.errors import BackendError, InputError, printable
from railopt.runtime.rendezvous import handshake, wire
from railopt.runtime.rendezvous.address import listening_address
from railopt.runtime.rendezvous.channel import Channel
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.handshake import Hello, run_name
from railopt.runtime.rendezvous.hub import Hub
from railopt.runtime.rendezvous.launch import Launch
from railopt.runtime.rendezvous.wire import PeerLost

DEFAULT_PORT, DEFAULT_JOIN_S = 18515, 60.0
MAX_JOIN_S = 7 * 24 * 3600.0
CONNECT_S = 5.0
AGAIN_S = 0.1


def join(
    launch: Launch,
    secret: bytes,
    *,
    run: str = "",
    port: int = DEFAULT_PORT,
    join_s: float = DEFAULT_JOIN_S,
    bind: str | None = None,
) -> Group:
    """Meet the others at rank 0, which listens at `bind` (default: the address of its host name);
    refused where secret, run or world size differ.
    """
    check_limits(port, join_s)
    if not launch.hosts:
        raise BackendError(
            f"{launch.launcher} does not say where rank 0 is: name the nodes with --hosts"
        )
    hello = Hello(launch.rank, launch.size, run_name(f"{launch.run}/{run}"), socket.gethostname())
    if launch.rank != 0:
        return enter(hello, secret, launch.hosts[:1], port, join_s)
    address = listening_address(launch.hosts, bind)
    hub = Hub(launch.size, secret, hello.run, address=address, port=port, join_s=join_s)
    return enter(hello, secret, [own_door(hub)], hub.port, join_s, hub=hub)


def check_limits(port: int, join_s: float) -> None:
    """Refuse ports and times that no socket takes."""
    if not 1 <= port <= 65535:
        raise InputError(f"--port {port}: expected 1 to 65535")
    if not 0 < join_s <= MAX_JOIN_S:
        raise InputError(f"--join {join_s:g}: expected seconds above 0, at most {MAX_JOIN_S:g}")


def own_door(hub: Hub) -> str:
    """Where rank 0 itself reaches its hub."""
    return {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(hub.address, hub.address)


def enter(
    hello: Hello,
    secret: bytes,
    addresses: Sequence[str],
    port: int,
    join_s: float,
    *,
    hub: Hub | None = None,
) -> Group:
    """Connect to the hub, shake hands and wait for the others; closes what it opened if that
    fails.
    """
    channel = None
    try:
        channel = _knock(hello, secret, addresses, port, join_s)
        wire.keep_alive(channel.sock)
        patience_s = join_s + handshake.HELLO_S
        return Group(channel, hello.rank, hello.size, hub, patience_s=patience_s)
    except BaseException:
        if channel is not None:
            channel.close()
        if hub is not None:
            hub.close()
        raise


def _knock(
    hello: Hello, secret: bytes, addresses: Sequence[str], port: int, within_s: float
) -> Channel:
    """A channel to the first address that lets us in, tried until the time is over: rank 0 may
    start last, or be busy with strangers. A refusal in words is final.
    """
    deadline = time.monotonic() + within_s
    while True:
        for address in addresses:
            left_s = max(AGAIN_S, deadline - time.monotonic())
            try:
                return _handshake(hello, secret, (address, port), left_s)
            except (OSError, EOFError, ValueError) as error:
                last = error
        if time.monotonic() >= deadline:
            raise PeerLost(
                f"rank 0 does not answer at {printable(', '.join(addresses))} port {port} within "
                f"{within_s:g} s ({printable(last)})"
            )
        time.sleep(AGAIN_S)


def _handshake(hello: Hello, secret: bytes, place: tuple[str, int], left_s: float) -> Channel:
    sock = socket.create_connection(place, timeout=min(CONNECT_S, left_s))
    try:
        # longer than the hub gives a stranger: a slow hub must not lose us after it let us in
        return handshake.greet(sock, secret, hello, min(3 * handshake.HELLO_S, left_s))
    except BaseException:
        wire.hang_up(sock)
        raise
