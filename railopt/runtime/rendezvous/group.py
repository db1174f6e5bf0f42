"""A rank's view of the others: gather, send, and news of who was lost, over a connection to rank
0's hub.
"""

from __future__ import annotations

import contextlib
import json
import queue
import secrets
import socket
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self

import numpy as np

from railopt.runtime.rendezvous import wire
from railopt.runtime.rendezvous.hub import Hub
from railopt.runtime.rendezvous.launch import Launch
from railopt.runtime.rendezvous.wire import Body
from railopt.runtime.senders.protocol import PeerLost

DEFAULT_PORT = 18515
GOODBYE_S, HUB_GOODBYE_S = 20.0, 120.0


class Group:
    """One rank of a run, connected. Build it with `join` or `join_mpi`."""

    def __init__(
        self,
        sock: socket.socket,
        rank: int,
        size: int,
        hub: Hub | None = None,
        *,
        patience_s: float = 60.0,
        gather: Callable[[bytes], list[bytes]] | None = None,
    ) -> None:
        self.rank, self.size = rank, size
        self.names = [f"node {i}" for i in range(size)]
        self.lost: str | None = None
        self._sock, self._hub, self._patience = sock, hub, patience_s
        self._native_gather = gather
        self._answers: queue.SimpleQueue[Body] = queue.SimpleQueue()
        self._over = threading.Event()
        self._listener: Callable[[int, Body], None] | None = None
        self._early: list[tuple[int, Body]] = []
        self._send_lock = threading.Lock()
        self._listen_lock = threading.Lock()
        self._tags = 0
        self._closing = self._aborted = False
        threading.Thread(target=self._read, name="railopt-group", daemon=True).start()
        self.names = [
            f"node {i} ({host})" for i, host in enumerate(self.allgather(socket.gethostname()))
        ]

    def _read(self) -> None:
        try:
            while True:
                self._receive(wire.recv_frame(self._sock))
        except (OSError, EOFError, wire.Refused) as error:
            if not self._closing:
                self._lose(f"{self.names[0]}, which holds the rendezvous, is gone ({error})")
        finally:
            self._over.set()

    def _receive(self, body: Body) -> None:
        if "gathered" in body:
            self._answers.put(body)
        elif "over" in body:
            self._over.set()
        elif "missing" in body:
            names = ", ".join(f"rank {r}" for r in body["missing"])
            self._lose(f"{names} did not join within the time given")
        elif "lost" in body:
            self._lose(
                f"{self.names[body['lost']] if self.names else ''} died: its connection ended "
                f"without a goodbye"
            )
        elif isinstance(body.get("body"), dict):
            self._deliver(int(body["from"]), body["body"])

    def _deliver(self, rank: int, body: Body) -> None:
        if "abort" in body:
            self._lose(f"{self.names[rank]} gave up: {body['abort']}")
            return
        with self._listen_lock:
            listener = self._listener
            if listener is None:
                self._early.append((rank, body))
                return
        listener(rank, body)

    def _lose(self, reason: str) -> None:
        self.lost = self.lost or reason
        self._answers.put({"lost": self.lost})

    def listen(self, listener: Callable[[int, Body], None]) -> None:
        """Call `listener(rank, body)`, in the reader's thread, for every message; also for those
        that came before.
        """
        with self._listen_lock:
            early, self._early, self._listener = self._early, [], listener
        for rank, body in early:
            listener(rank, body)

    def check(self) -> None:
        """Raise PeerLost if a rank is lost."""
        if self.lost is not None:
            raise PeerLost(self.lost)

    def send(self, rank: int, body: Body) -> None:
        """To one rank."""
        self._post({"to": rank, "body": body})

    def allgather(self, data: Any) -> list[Any]:
        """Every rank's JSON value, by rank; raises PeerLost if one is lost or silent for too
        long.
        """
        self.check()
        self._tags += 1
        self._post({"gather": str(self._tags), "data": data})
        try:
            answer = self._answers.get(timeout=self._patience)
        except queue.Empty:
            raise PeerLost(
                f"not all ranks answered within {self._patience:g} s (gather {self._tags})"
            ) from None
        if "lost" in answer:
            raise PeerLost(str(answer["lost"]))
        return list(answer["data"])

    def exchange(self, data: Any) -> list[Any]:
        """As `allgather`, for connection data: through MPI where MPI launched us."""
        if self._native_gather is None:
            return self.allgather(data)
        return [json.loads(b) for b in self._native_gather(json.dumps(data).encode())]

    def abort(self, error: BaseException) -> None:
        """Tell every other rank, once, that this one gives up, and why; not if it was told so
        itself.
        """
        if self.lost is not None or self._aborted:
            return
        self._aborted = True
        reason = "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)[:300]
        with contextlib.suppress(PeerLost, OSError):
            self._post({"to": "all", "body": {"abort": reason}})

    def _post(self, body: Body) -> None:
        try:
            with self._send_lock:
                wire.send_frame(self._sock, body)
        except OSError as error:
            self._lose(f"the rendezvous at {self.names[0]} is gone ({error})")
            self.check()

    def close(self, *, wait: bool = True) -> None:
        """Say goodbye and, unless the run failed, stay reachable until all others have."""
        if self._closing:
            return
        self._closing = True
        with contextlib.suppress(PeerLost):
            self._post({"bye": True})
        if wait and self.lost is None:
            self._over.wait(GOODBYE_S if self._hub is None else HUB_GOODBYE_S)
        elif self._hub is not None:
            self._over.wait(2.0)  # let the others hear why before their connection ends
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()
        if self._hub is not None:
            self._hub.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.abort(error)
        self.close(wait=error is None)


def join(
    launch: Launch, secret: bytes, *, run: str = "", port: int = DEFAULT_PORT, join_s: float = 60.0
) -> Group:
    """Meet the others at rank 0, which listens; refused where secret, run or world size differ."""
    run = f"{launch.run}/{run}"
    hub = Hub(launch.size, secret, run, port=port, join_s=join_s) if launch.rank == 0 else None
    addresses = ["127.0.0.1"] if hub is not None else [_address(launch)]
    return _enter(hub, addresses, port, secret, launch.rank, launch.size, run, join_s)


def _enter(
    hub: Hub | None,
    addresses: Sequence[str],
    port: int,
    secret: bytes,
    rank: int,
    size: int,
    run: str,
    join_s: float,
    gather: Callable[[bytes], list[bytes]] | None = None,
) -> Group:
    """Connect to the hub, shake hands and wait for the others; closes what it opened if that
    fails.
    """
    sock = None
    try:
        sock = _connect(addresses, hub.port if hub is not None else port, join_s)
        wire.greet(sock, secret, rank, size, run, socket.gethostname())
        wire.keep_alive(sock)
        return Group(sock, rank, size, hub, patience_s=join_s + wire.HELLO_S, gather=gather)
    except BaseException:
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        if hub is not None:
            hub.close()
        raise


def _address(launch: Launch) -> str:
    if not launch.hosts:
        raise PeerLost(
            f"{launch.launcher} does not say where rank 0 is: name the nodes with --hosts"
        )
    return launch.hosts[0]


def _connect(addresses: Sequence[str], port: int, within: float) -> socket.socket:
    """A connection to the first address that answers, tried until the time is over: rank 0 may
    start last.
    """
    deadline = time.monotonic() + within
    while True:
        for address in addresses:
            try:
                return socket.create_connection((address, port), timeout=min(5.0, within))
            except OSError as error:
                last = error
        if time.monotonic() >= deadline:
            raise PeerLost(
                f"rank 0 does not answer at {', '.join(addresses)} port {port} within {within:g} "
                f"s ({last})"
            )
        time.sleep(0.1)


def join_mpi(comm: Any, *, run: str = "", join_s: float = 60.0) -> Group:
    """As `join`, launched by MPI: address, port and a fresh secret come from rank 0 by broadcast,
    and connection data goes through MPI. `comm` is an mpi4py communicator; nothing is pickled."""
    rank, size = comm.Get_rank(), comm.Get_size()
    secret, hub = secrets.token_hex(32), None
    if rank == 0:
        hub = Hub(size, secret.encode(), run, join_s=join_s)
    card = np.zeros(2048, np.uint8)
    if hub is not None:
        text = json.dumps([secret, hub.port, [socket.gethostname(), primary_address()]]).encode()
        card[: len(text)] = np.frombuffer(text, np.uint8)
    comm.Bcast(card, root=0)
    secret, port, addresses = json.loads(bytes(card).rstrip(b"\0"))
    return _enter(
        hub,
        ["127.0.0.1"] if hub is not None else addresses,
        port,
        secret.encode(),
        rank,
        size,
        run,
        join_s,
        lambda data: _mpi_allgather(comm, data),
    )


def _mpi_allgather(comm: Any, data: bytes) -> list[bytes]:
    sizes = np.zeros(comm.Get_size(), np.int64)
    comm.Allgather(np.array([len(data)], np.int64), sizes)
    padded = np.zeros(int(sizes.max()), np.uint8)
    padded[: len(data)] = np.frombuffer(data, np.uint8)
    everything = np.zeros((len(sizes), len(padded)), np.uint8)
    comm.Allgather(padded, everything)
    return [bytes(row[:n]) for row, n in zip(everything, sizes.tolist(), strict=True)]


def primary_address() -> str:
    """This machine's address on the default route; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"
