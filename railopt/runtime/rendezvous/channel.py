"""Authenticated frames: what two sides that shook hands say to each other.

Frame number n of one direction is a length, that many bytes of JSON, and
HMAC-SHA256(key of the direction, n as 8 bytes || length || bytes). The number does not travel: both
sides count. So a frame that was changed, repeated, left out, reordered or sent back is not taken,
and nothing after it. Nothing is encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import struct
import threading
from collections.abc import Mapping
from typing import Any

from railopt.runtime.rendezvous import wire
from railopt.runtime.rendezvous.wire import Body

_NUMBER = struct.Struct("!Q")
TAG = hashlib.sha256().digest_size


class Channel:
    """One end of a connection after the handshake. Any thread may send; one thread receives."""

    def __init__(self, sock: socket.socket, send_key: bytes, recv_key: bytes) -> None:
        self.sock = sock
        self._send_key, self._recv_key = send_key, recv_key
        self._sent = self._received = 0
        self._lock = threading.Lock()

    def send(self, body: Mapping[str, Any]) -> None:
        """One frame."""
        self.send_encoded(wire.encode(body))

    def send_encoded(self, data: bytes) -> None:
        """One frame of a body that is encoded already, as for many channels."""
        frame = wire.LENGTH.pack(len(data)) + data
        with self._lock:
            tag = _tag(self._send_key, self._sent, frame)
            self._sent += 1
            self.sock.sendall(frame + tag)

    def recv(self) -> Body:
        """The next frame; EOFError at the end of the stream, `Refused` if it is not the next one
        that the other side sent.
        """
        head = wire.exactly(self.sock, wire.LENGTH.size)
        rest = wire.exactly(self.sock, wire.announced(head, wire.MAX_FRAME) + TAG)
        data, tag = rest[:-TAG], rest[-TAG:]
        if not hmac.compare_digest(tag, _tag(self._recv_key, self._received, head + data)):
            raise wire.Refused(
                "a frame was changed, repeated, left out or reordered on the way: something "
                "between the nodes tampers with the connection"
            )
        self._received += 1
        return wire.decode(data)

    def close(self) -> None:
        """End the connection now."""
        wire.hang_up(self.sock)


def _tag(key: bytes, number: int, frame: bytes) -> bytes:
    return hmac.new(key, _NUMBER.pack(number) + frame, hashlib.sha256).digest()
