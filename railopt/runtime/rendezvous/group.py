"""A rank's view of the others: gather, send, and news of who was lost, over a connection to rank
0's hub.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
from collections.abc import Callable
from typing import Any, Self

from railopt.base.errors import FOREIGN, BackendError, InputError, printable
from railopt.runtime.rendezvous import wire
from railopt.runtime.rendezvous.channel import Channel
from railopt.runtime.rendezvous.hub import Hub
from railopt.runtime.rendezvous.wire import Body, PeerLost

GOODBYE_S, HUB_GOODBYE_S = 20.0, 120.0
# a rank that died is noticed without it; one that lives may take its time to fill and to verify
GATHER_S = 600.0


class Group:
    """One rank of a run, connected. Build it with `join` or `join_mpi`.

    patience_s   how long the others are waited for at first, until all have come
    """

    def __init__(
        self,
        channel: Channel,
        rank: int,
        size: int,
        hub: Hub | None = None,
        *,
        patience_s: float = 60.0,
    ) -> None:
        self.rank, self.size = rank, size
        self.names = [f"node {i}" for i in range(size)]
        self.lost: str | None = None
        self._channel, self._hub = channel, hub
        self._answers: queue.SimpleQueue[Body] = queue.SimpleQueue()
        self._over = threading.Event()
        self._listener: Callable[[int, Body], None] | None = None
        self._early: list[tuple[int, Body]] = []
        self._listen_lock = threading.Lock()
        self._tags = 0
        self._closing = self._aborted = False
        threading.Thread(target=self._read, name="railopt-group", daemon=True).start()
        hosts = self._gather(socket.gethostname(), patience_s)
        self.names = [f"node {i} ({printable(host, 64)})" for i, host in enumerate(hosts)]

    def _read(self) -> None:
        try:
            while True:
                body = self._channel.recv()
                with wire.understood(self.names[0], "a message"):
                    self._receive(body)
        except (OSError, EOFError, wire.Refused) as error:
            if not self._closing:
                self._lose(f"{self.names[0]}, which holds the rendezvous, is gone ({error})")
        except BackendError as error:
            self._lose(str(error))
        finally:
            self._over.set()

    def _receive(self, body: Body) -> None:
        if "gathered" in body:
            self._answers.put(body)
        elif "over" in body:
            self._over.set()
        elif "missing" in body:
            names = printable(", ".join(f"rank {int(rank)}" for rank in body["missing"]))
            away = printable("; ".join(map(str, body.get("turned_away", ()))), 3 * FOREIGN)
            more = f"; {self.names[0]} turned away {away}" if away else ""
            self._lose(f"{names} did not join within the time given{more}")
        elif "lost" in body:
            self._lose(f"{self.names[int(body['lost'])]} died: {printable(body['reason'])}")
        elif "left" in body:
            self._lose(f"{self.names[int(body['left'])]} left while this rank waited for it")
        elif "refused" in body:
            self._lose(f"{self.names[0]} ended the connection: {printable(body['refused'])}")
        elif isinstance(body.get("body"), dict):
            self._deliver(int(body["from"]), body["body"])

    def _deliver(self, rank: int, body: Body) -> None:
        if "abort" in body:
            self._lose(f"{self.names[rank]} gave up: {printable(body['abort'], 300)}")
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
        """Send `body` to one rank."""
        self._post({"to": rank, "body": body})

    def allgather(self, data: Any) -> list[Any]:
        """Every rank's JSON value, by rank; raises PeerLost if one is lost or sends nothing for
        too long.  That ends the run: what the others say later would be taken for the next answer.
        """
        return self._gather(data, GATHER_S)

    def _gather(self, data: Any, patience_s: float, **how: bool) -> list[Any]:
        self.check()
        self._tags += 1
        self._post({"gather": str(self._tags), "data": data, **how})
        try:
            answer = self._answers.get(timeout=patience_s)
        except queue.Empty:
            late = f"not all ranks answered within {patience_s:g} s (gather {self._tags})"
            self.abort(PeerLost(late))
            self._lose(late)
            raise PeerLost(late) from None
        if "lost" in answer:
            raise PeerLost(str(answer["lost"]))
        gathered = answer.get("data")
        if not isinstance(gathered, list) or len(gathered) != self.size:
            raise PeerLost(f"{self.names[0]} answered without a value of each rank")
        return gathered

    def exchange(self, values: list[Any]) -> list[Any]:
        """What each rank has for this one, by rank; `values` are what this one has for each."""
        return self._gather(values, GATHER_S, apart=True)

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
            self._channel.send(body)
        except OSError as error:
            self._lose(f"the rendezvous at {self.names[0]} is gone ({error})")
            self.check()

    def close(self, *, wait: bool = True) -> None:
        """Send a closing message and, unless the run failed, stay reachable until all others have
        sent theirs. A rank that has lost the others sends none: so the hub, unless it is its own,
        tells them that it is gone.
        """
        if self._closing:
            return
        self._closing = True
        if self.lost is None or self._hub is not None:
            with contextlib.suppress(PeerLost, InputError):
                self._post({"bye": True})
        if wait and self.lost is None:
            self._over.wait(GOODBYE_S if self._hub is None else HUB_GOODBYE_S)
        elif self._hub is not None:
            self._over.wait(2.0)  # time for the reason to arrive before connections end
        self._channel.close()
        if self._hub is not None:
            self._hub.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.abort(error)
        self.close(wait=error is None)
