"""Frames on a TCP stream: JSON objects, bounded in size and in time.

A frame is a length (4 bytes, big endian) and that many bytes of UTF-8 JSON. These are for the
handshake, between sides that don't know each other yet; what follows it goes through channel.py.
What a frame holds is read by `read_list` and `read_number`, inside `understood`.
"""

from __future__ import annotations

import contextlib
import json
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from railopt.base.errors import BackendError, InputError, printable

MAX_FRAME, MAX_HELLO = 16 << 20, 4096
LENGTH = struct.Struct("!I")
Body = dict[str, Any]


class PeerLost(BackendError):
    """Another rank died or gave up; the message names it."""


class Refused(BackendError):
    """The other side refused us, or sent what this protocol does not know."""


@contextmanager
def understood(whose: str, what: str) -> Iterator[None]:
    """BackendError where `what` the rank `whose` sent can't be read: it runs another version."""
    try:
        yield
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise BackendError(
            f"{whose} sent {what} that this railopt does not understand "
            f"({printable(error, 80)}): run the same version on all nodes"
        ) from error


def read_list(value: Any, most: int = 1 << 16) -> list[Any]:
    """A list of at most so many; ValueError if it is none."""
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"expected a list of at most {most}")
    return value


def read_number(value: Any, bits: int = 63) -> int:
    """A whole number of at most so many bits; ValueError if it is none."""
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise ValueError(f"expected a number of {bits} bits")
    return value


def encode(body: Mapping[str, Any]) -> bytes:
    """The JSON of a frame."""
    data = json.dumps(body, separators=(",", ":")).encode()
    if len(data) > MAX_FRAME:
        raise InputError(f"a message of {len(data)} bytes: at most {MAX_FRAME}")
    return data


def decode(data: bytes) -> Body:
    """The way back; whatever the bytes are, a JSON object or `Refused`."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused("a frame that is not JSON: the other side is not railopt") from error
    if not isinstance(body, dict):
        raise Refused("a frame that is not a JSON object: the other side is not railopt")
    return body


def send_frame(sock: socket.socket, body: Mapping[str, Any]) -> None:
    """One frame."""
    data = encode(body)
    sock.sendall(LENGTH.pack(len(data)) + data)


def recv_frame(sock: socket.socket, limit: int = MAX_FRAME, within_s: float | None = None) -> Body:
    """One frame of at most `limit` bytes, whole within `within_s` seconds; EOFError at the end of
    the stream.
    """
    deadline = None if within_s is None else time.monotonic() + within_s
    return decode(exactly(sock, announced(exactly(sock, LENGTH.size, deadline), limit), deadline))


def announced(head: bytes, limit: int) -> int:
    """The length that a frame's head announces, if so many bytes are taken."""
    (length,) = LENGTH.unpack(head)
    if length > limit:
        raise Refused(f"a frame of {length} bytes announced, at most {limit} are taken")
    return int(length)


def exactly(sock: socket.socket, count: int, deadline: float | None = None) -> bytes:
    """`count` bytes, before the moment `deadline` of the monotonic clock."""
    parts = bytearray()
    while len(parts) < count:
        if deadline is not None:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise TimeoutError("the other side is too slow")
            sock.settimeout(left_s)
        data = sock.recv(min(count - len(parts), 1 << 16))
        if not data:
            raise EOFError("the connection was closed")
        parts += data
    return bytes(parts)


def hang_up(sock: socket.socket) -> None:
    """End a connection now, also for a thread that waits for it."""
    with contextlib.suppress(OSError):  # it may have ended already
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def keep_alive(sock: socket.socket) -> None:
    """A host that vanishes without a word is noticed within about 12 seconds."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 4),
        ("TCP_KEEPINTVL", 2),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 12_000),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
