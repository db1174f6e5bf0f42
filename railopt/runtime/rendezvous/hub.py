"""The hub: rank 0's TCP server, through which the ranks find each other, gather, and tell each
other of faults.

It relays; it decides nothing. A rank whose connection ends without a closing message is announced
to all others at once; one that sends it, to those that wait for it in a gather. Connections that
have not proved anything yet are few, live for HELLO_S seconds at most, and give way to newer ones:
they never keep a rank out.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import threading
import time
from collections import deque
from typing import Any

from railopt.base.errors import BackendError, InputError, printable
from railopt.runtime.rendezvous import handshake, wire
from railopt.runtime.rendezvous.channel import Channel
from railopt.runtime.rendezvous.handshake import Hello
from railopt.runtime.rendezvous.wire import Body

MAX_STRANGERS = 32  # handshakes under way at once
GRACE_S = 0.5  # a stranger that had so long may be dropped for a newer one
BACKLOG = 512
FULL = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
PAUSE_S = 0.02
SHOWN = 3  # of those that were turned away, named where ranks are missing


class Hub:
    """Listens at `address` ("" is every interface) until closed. `run` names the run: processes of
    another run are refused.
    """

    def __init__(
        self,
        size: int,
        secret: bytes,
        run: str,
        *,
        address: str = "127.0.0.1",
        port: int = 0,
        join_s: float = 60.0,
    ) -> None:
        self.size, self.run, self.address = size, run, address
        self._secret = secret
        self._lock = threading.Lock()
        self._ranks: dict[int, Channel] = {}
        self._hosts: dict[int, str] = {}
        self._gone: set[int] = set()
        self._gathered: dict[str, dict[int, Any]] = {}
        self._strangers: dict[socket.socket, float] = {}  # since when; oldest first
        self.refusals: deque[str] = deque(maxlen=256)
        self._server = _listen(address, port)
        self.port = int(self._server.getsockname()[1])
        self._closed = threading.Event()
        self._join = threading.Timer(join_s, self._missing)
        self._join.daemon = True
        self._join.start()
        threading.Thread(target=self._accept, name="railopt-hub", daemon=True).start()

    # -- strangers

    def _accept(self) -> None:
        while not self._closed.is_set():
            self._make_room()
            try:
                sock, peer = self._server.accept()
            except OSError as error:
                if error.errno in FULL:  # no descriptor left: strangers hold some
                    self._drop_oldest()
                self._closed.wait(PAUSE_S)
                continue
            with self._lock:
                self._strangers[sock] = time.monotonic()
            thread = threading.Thread(
                target=self._serve, args=(sock, peer[0]), name="railopt-hub-peer", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # no thread left
                self._forget(sock)
                wire.hang_up(sock)

    def _make_room(self) -> None:
        """Wait until one more may come: a stranger leaves, or has had its time."""
        while not self._closed.is_set():
            with self._lock:
                if len(self._strangers) < MAX_STRANGERS:
                    return
                oldest = next(iter(self._strangers.values()))
            if time.monotonic() - oldest < GRACE_S:
                self._closed.wait(PAUSE_S)
            else:
                self._drop_oldest()

    def _drop_oldest(self) -> None:
        with self._lock:
            sock = next(iter(self._strangers), None)
            if sock is not None:
                del self._strangers[sock]
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # its own thread closes it

    def _forget(self, sock: socket.socket) -> None:
        with self._lock:
            self._strangers.pop(sock, None)

    def _serve(self, sock: socket.socket, peer: str) -> None:
        try:
            rank, channel = self._admit(sock)
        except (wire.Refused, OSError, EOFError) as error:
            self.refusals.append(f"{peer}: {printable(error)}")
            if isinstance(error, wire.Refused):
                with contextlib.suppress(OSError):
                    wire.send_frame(sock, {"refused": str(error)})
            sock.close()
            return
        finally:
            self._forget(sock)
        self._listen_to(rank, channel)

    def _admit(self, sock: socket.socket) -> tuple[int, Channel]:
        """The rank of a client that knows the secret and belongs here, and the channel to it."""
        hello, session = handshake.challenge(sock, self._secret)
        if hello.run != self.run:
            raise wire.Refused(
                f"this is run {self.run!r}, you are of run {hello.run!r}: a process left over from "
                f"another run, or another plan"
            )
        if hello.size != self.size or not 0 <= hello.rank < self.size:
            raise wire.Refused(
                f"you are rank {hello.rank} of {hello.size}, this run has {self.size} ranks"
            )
        wire.keep_alive(sock)
        channel = session.channel(sock, "server")
        with self._lock:
            self._enter(hello, channel, session.proof("server"))
        return hello.rank, channel

    def _enter(self, hello: Hello, channel: Channel, proof: str) -> None:
        rank = hello.rank
        if rank in self._ranks or rank in self._gone:
            raise wire.Refused(f"rank {rank} is already here ({self._hosts[rank]})")
        if self._strangers.pop(channel.sock, None) is None:
            raise EOFError("dropped for a newer connection")
        wire.send_frame(channel.sock, {"proof": proof})
        self._ranks[rank], self._hosts[rank] = channel, printable(hello.host, 64)
        if len(self._ranks) + len(self._gone) == self.size:
            self._join.cancel()

    # -- ranks

    def _listen_to(self, rank: int, channel: Channel) -> None:
        reason = "its connection ended without a closing message"
        try:
            while True:
                self._handle(rank, channel.recv())
        except (OSError, EOFError):
            pass
        except wire.Refused as error:
            reason = str(error)
            with contextlib.suppress(OSError):
                channel.send({"refused": reason})
        finally:
            self._leave(rank, reason)
            channel.close()

    def _handle(self, rank: int, body: Body) -> None:
        if "bye" in body:
            self._leave(rank, None)
            return
        with self._lock:
            if "gather" in body:
                self._gather(rank, str(body["gather"]), body.get("data"), "apart" in body)
                return
            to = body.get("to")
            for other in [to] if type(to) is int else [r for r in self._ranks if r != rank]:
                self._tell(other, {"from": rank, "body": body.get("body")})

    def _gather(self, rank: int, tag: str, data: Any, apart: bool) -> None:
        """Every rank's value to all; where values are lists, sent `apart`, each rank's part."""
        group = self._gathered.setdefault(tag, {})
        group[rank] = data
        if len(group) < self.size:
            self._say_left(group)
            return
        del self._gathered[tag]
        values = [group[i] for i in range(self.size)]
        if apart:
            for other in self._ranks:
                own = [_of(value, other) for value in values]
                self._tell(other, {"gathered": tag, "data": own})
            return
        try:
            answer = wire.encode({"gathered": tag, "data": values})
        except InputError as error:
            answer = wire.encode({"refused": str(error)})
        for channel in self._ranks.values():
            with contextlib.suppress(OSError):
                channel.send_encoded(answer)

    def _say_left(self, group: dict[int, Any]) -> None:
        """Tell ranks that wait in a gather of one that has left and will not come."""
        left = self._gone - set(group)
        for other in group if left else ():
            self._tell(other, {"left": min(left)})

    def _tell(self, rank: int, body: Body) -> None:
        """Send `body` to one rank; one that can't be reached is noticed by its own reader."""
        channel = self._ranks.get(rank)
        if channel is None:
            return
        with contextlib.suppress(OSError):
            try:
                channel.send(body)
            except InputError as error:  # what all ranks gathered does not fit into a frame
                channel.send({"refused": str(error)})

    def _missing(self) -> None:
        with self._lock:
            missing = sorted(set(range(self.size)) - set(self._hosts))
            away = list(dict.fromkeys(self.refusals))[-SHOWN:]
            for rank in self._ranks:
                self._tell(rank, {"missing": missing, "turned_away": away})

    def _leave(self, rank: int, reason: str | None) -> None:
        """A rank sent its closing message (no reason), or its connection ended."""
        with self._lock:
            lost = reason is not None and rank not in self._gone
            self._gone.add(rank)
            if reason is not None:
                self._ranks.pop(rank, None)
            for other in self._ranks if lost else ():
                self._tell(other, {"lost": rank, "reason": reason})
            for group in self._gathered.values():
                self._say_left(group)
            if len(self._gone) == self.size:
                for other in self._ranks:
                    self._tell(other, {"over": True})

    def close(self) -> None:
        """Stop listening and drop every connection."""
        self._closed.set()
        self._join.cancel()
        wire.hang_up(self._server)
        with self._lock:
            for sock in [*self._strangers, *(c.sock for c in self._ranks.values())]:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)


def _of(values: Any, rank: int) -> Any:
    return values[rank] if isinstance(values, list) and rank < len(values) else None


def _listen(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.create_server((address, port), family=family, backlog=BACKLOG)
    except (OSError, OverflowError, ValueError) as error:
        where = f"port {port} of {printable(address) or 'this machine'}"
        number = (error.errno or 0) if isinstance(error, OSError) else 0
        if number <= 0:  # the resolver's numbers are no errno's, and its words come with an address
            words = printable(getattr(error, "strerror", None) or error).partition(" (")[0]
            raise BackendError(
                f"rank 0 can't listen on {where}: {words}; name an address of this machine with "
                f"--bind"
            ) from error
        still = "is a run still there? " if number == errno.EADDRINUSE else ""
        raise BackendError(
            f"rank 0 can't listen on {where}: {os.strerror(number)}; {still}choose another port "
            f"with --port, or another address with --bind"
        ) from error
