"""A relay between a rank and rank 0's hub: it sees every frame, knows no secret, and may tamper."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

from railopt.runtime.rendezvous.channel import TAG
from railopt.runtime.rendezvous.wire import exactly, hang_up

# (direction "up" or "down", frame's number in it, the frame) -> (the frames to pass on, those to
# send back where it came from)
Tamper = Callable[[str, int, bytes], tuple[list[bytes], list[bytes]]]
PLAIN = {"up": 1, "down": 2}  # frames of the handshake: without a tag


class Relay:
    """Listens on `port`, and connects whoever comes to `target`, a port of this machine."""

    def __init__(self, target: int, tamper: Tamper | None = None) -> None:
        self._target, self._tamper = target, tamper or (lambda way, n, frame: ([frame], []))
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._server.getsockname()[1])
        self._open: list[socket.socket] = []
        self.mute = False  # passes nothing on any more
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self._target), timeout=5)
                except OSError:
                    near.close()
                    continue
                far.settimeout(None)
                self._open += [near, far]
                for way, source, target in (("up", near, far), ("down", far, near)):
                    threading.Thread(
                        target=self._pass, args=(way, source, target), daemon=True
                    ).start()

    def _pass(self, way: str, source: socket.socket, target: socket.socket) -> None:
        number = 0
        try:
            while True:
                head = exactly(source, 4)
                (length,) = struct.unpack("!I", head)
                frame = head + exactly(source, length + (TAG if number >= PLAIN[way] else 0))
                forth, back = ([], []) if self.mute else self._tamper(way, number, frame)
                number += 1
                for part in forth:
                    target.sendall(part)
                for part in back:
                    source.sendall(part)
        except (OSError, EOFError):
            hang_up(source)
            hang_up(target)

    def cut(self) -> None:
        """End every connection that passes through here."""
        for sock in self._open:
            hang_up(sock)

    def close(self) -> None:
        """Stop."""
        hang_up(self._server)
        self.cut()
