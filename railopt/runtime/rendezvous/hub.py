"""The hub: rank 0's TCP server, through which the ranks find each other, gather, and tell each
other of faults.

It relays; it decides nothing. A rank whose connection ends without a goodbye is announced to all
others at once.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Any

from railopt.errors import BackendError
from railopt.runtime.rendezvous import wire
from railopt.runtime.rendezvous.wire import Body

MAX_STRANGERS = 64  # handshakes under way at once; more are turned away


class Hub:
    """Listens until closed. `run` names the run: processes of another run are refused."""

    def __init__(
        self,
        size: int,
        secret: bytes,
        run: str,
        *,
        address: str = "",
        port: int = 0,
        join_s: float = 60.0,
    ) -> None:
        self.size, self.run = size, run
        self._secret = secret
        self._lock = threading.Lock()
        self._ranks: dict[int, socket.socket] = {}
        self._hosts: dict[int, str] = {}
        self._gone: set[int] = set()
        self._gathered: dict[str, dict[int, Any]] = {}
        self._strangers = threading.Semaphore(MAX_STRANGERS)
        self.refusals: list[str] = []
        try:
            self._server = socket.create_server((address, port), backlog=128)
        except OSError as error:
            raise BackendError(
                f"rank 0 can't listen on port {port} of {address or 'this machine'}: "
                f"{error.strerror}; "
                "is a run still there? choose another with --port"
            ) from error
        self.port = int(self._server.getsockname()[1])
        self._closed = threading.Event()
        self._join = threading.Timer(join_s, self._missing)
        self._join.daemon = True
        self._join.start()
        threading.Thread(target=self._accept, name="railopt-hub", daemon=True).start()

    def _accept(self) -> None:
        while not self._closed.is_set():
            try:
                sock, peer = self._server.accept()
            except OSError:
                return
            if not self._strangers.acquire(blocking=False):
                sock.close()
                continue
            threading.Thread(
                target=self._serve, args=(sock, peer[0]), name="railopt-hub-peer", daemon=True
            ).start()

    def _serve(self, sock: socket.socket, peer: str) -> None:
        rank = None
        try:
            try:
                rank = self._admit(sock)
            finally:
                self._strangers.release()
            while True:
                self._handle(rank, wire.recv_frame(sock))
        except wire.Refused as error:
            self.refusals.append(f"{peer}: {error}")
            with contextlib.suppress(OSError):
                wire.send_frame(sock, {"refused": str(error)})
        except (OSError, EOFError) as error:
            if rank is None:
                self.refusals.append(f"{peer}: {error}")
        finally:
            sock.close()
            if rank is not None:
                self._leave(rank, said_goodbye=False)

    def _admit(self, sock: socket.socket) -> int:
        """The rank of a client that knows the secret and belongs here."""
        hello, proof = wire.challenge(sock, self._secret)
        rank, size = hello["rank"], hello["size"]
        if hello["run"] != self.run:
            raise wire.Refused(
                f"this is run {self.run!r}, you are of run {hello['run']!r}: a process left over "
                f"from "
                "another run, or another plan"
            )
        if size != self.size or not 0 <= rank < self.size:
            raise wire.Refused(f"you are rank {rank} of {size}, this run has {self.size} ranks")
        wire.keep_alive(sock)
        with self._lock:
            if rank in self._ranks or rank in self._gone:
                raise wire.Refused(f"rank {rank} is already here ({self._hosts[rank]})")
            wire.send_frame(sock, {"proof": proof})
            self._ranks[rank], self._hosts[rank] = sock, hello["host"]
            if len(self._ranks) + len(self._gone) == self.size:
                self._join.cancel()
        return int(rank)

    def _missing(self) -> None:
        with self._lock:
            missing = sorted(set(range(self.size)) - set(self._hosts))
            for rank in self._ranks:
                self._tell(rank, {"missing": missing})

    def _handle(self, rank: int, body: Body) -> None:
        with self._lock:
            if "gather" in body:
                tag = str(body["gather"])
                group = self._gathered.setdefault(tag, {})
                group[rank] = body.get("data")
                if len(group) == self.size:
                    del self._gathered[tag]
                    for other in self._ranks:
                        self._tell(
                            other, {"gathered": tag, "data": [group[i] for i in range(self.size)]}
                        )
            elif "bye" in body:
                self._gone.add(rank)
            else:
                targets = (
                    [body["to"]]
                    if isinstance(body.get("to"), int)
                    else [r for r in self._ranks if r != rank]
                )
                for other in targets:
                    self._tell(other, {"from": rank, "body": body.get("body")})
        if "bye" in body:
            self._leave(rank, said_goodbye=True)

    def _tell(self, rank: int, body: Body) -> None:
        """To one rank; one that can't be reached is noticed by its own reader."""
        sock = self._ranks.get(rank)
        if sock is not None:
            with contextlib.suppress(OSError):
                wire.send_frame(sock, body)

    def _leave(self, rank: int, *, said_goodbye: bool) -> None:
        with self._lock:
            news = (
                {}
                if said_goodbye or rank in self._gone
                else {"lost": rank, "host": self._hosts[rank]}
            )
            self._gone.add(rank)
            if not said_goodbye:
                self._ranks.pop(rank, None)
            for other in self._ranks if news else ():
                self._tell(other, news)
            if len(self._gone) == self.size:
                for other in self._ranks:
                    self._tell(other, {"over": True})

    def close(self) -> None:
        """Stop listening and drop every connection."""
        self._closed.set()
        self._join.cancel()
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            for sock in self._ranks.values():
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
