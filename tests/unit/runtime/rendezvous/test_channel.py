"""Authenticated frames over a socket pair."""

from __future__ import annotations

import random
import socket
from collections.abc import Iterator

import pytest

from railopt.base.errors import InputError
from railopt.runtime.rendezvous import wire
from railopt.runtime.rendezvous.channel import TAG, Channel
from railopt.runtime.rendezvous.handshake import Hello, Session

SECRET, NONCES = b"sixteen letters or more", ("0" * 32, "1" * 32)
HELLO = Hello(1, 2, "run", "host")


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Channel]]:
    """The bytes that a client's channel writes, and a server's channel that reads bytes."""
    raw, far = socket.socketpair()
    far.settimeout(5)
    with raw, far:
        yield raw, Session(SECRET, *NONCES, HELLO).channel(far, "server")


def frames(*bodies: dict[str, object], side: str = "client", hello: Hello = HELLO) -> list[bytes]:
    """What a channel of `side` writes."""
    near, far = socket.socketpair()
    with near, far:
        channel = Session(SECRET, *NONCES, hello).channel(near, side)
        written = []
        for body in bodies:
            channel.send(body)
            written.append(far.recv(1 << 16))
    return written


def test_frames_arrive_in_order(ends: tuple[socket.socket, Channel]) -> None:
    raw, channel = ends
    raw.sendall(b"".join(frames({"a": 1}, {"b": "\u00e9\ud800"}, {})))
    assert [channel.recv() for _ in range(3)] == [{"a": 1}, {"b": "\u00e9\ud800"}, {}]


@pytest.mark.parametrize(
    "written",
    [
        frames({"a": 1}, {"b": 2})[1:],
        frames({"a": 1}) * 2,
        frames({"a": 1}, {"b": 2})[::-1],
        frames({"a": 1}, side="server"),
        frames({"a": 1}, hello=Hello(0, 2, "run", "host")),
        frames({"a": 1}, hello=Hello(1, 2, "run", "hosts")),
        [frames({"a": 1})[0][:-TAG] + bytes(TAG)],
    ],
    ids=["dropped", "repeated", "reordered", "reflected", "of rank 0", "of a host", "no tag"],
)
def test_anything_else_is_refused(
    ends: tuple[socket.socket, Channel], written: list[bytes]
) -> None:
    raw, channel = ends
    raw.sendall(b"".join(written))
    with pytest.raises(wire.Refused, match="tampers with the connection"):
        channel.recv(), channel.recv()


def test_every_changed_bit_is_found() -> None:
    """500 random changes of one bit or of one byte, behind the length."""
    rng = random.Random(3)
    (whole,) = frames({"down": 3, "seen": 17, "cause": "RETRY_EXC_ERR"})
    for _ in range(500):
        changed = bytearray(whole)
        changed[rng.randrange(4, len(whole))] ^= rng.choice([1 << rng.randrange(8), 255])
        raw, far = socket.socketpair()
        far.settimeout(5)
        with raw, far:
            raw.sendall(changed)
            with pytest.raises(wire.Refused):
                Session(SECRET, *NONCES, HELLO).channel(far, "server").recv()


def test_fuzzed_streams_end_in_words() -> None:
    """1,000 streams of random bytes, of lengths and of pieces of JSON: never a body, never another
    exception.
    """
    rng = random.Random(5)
    pieces = [b"\0\0\0\2{}", b"\0\0\0\0", b"\xff" * 4, b'{"a":1}', b"[" * 40, bytes(TAG), b"\0\0\1"]
    for _ in range(1000):
        data = b"".join(rng.choice([*pieces, rng.randbytes(9)]) for _ in range(rng.randrange(6)))
        raw, far = socket.socketpair()
        with raw, far:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            with pytest.raises((wire.Refused, EOFError)):
                Session(SECRET, *NONCES, HELLO).channel(far, "server").recv()


def test_a_message_that_is_too_long_is_not_sent() -> None:
    near, far = socket.socketpair()
    with near, far, pytest.raises(InputError, match="at most 16777216"):
        Session(SECRET, *NONCES, HELLO).channel(near, "client").send({"a": "x" * (16 << 20)})
