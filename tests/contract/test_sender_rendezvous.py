"""The rendezvous against strangers, garbage, oversized and slow clients, and runs that are over."""

from __future__ import annotations

import errno
import json
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from railopt.base.errors import BackendError, InputError
from railopt.runtime.rendezvous import handshake, wire
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.handshake import Hello
from railopt.runtime.rendezvous.hub import Hub
from railopt.runtime.rendezvous.join import join
from railopt.runtime.rendezvous.launch import Launch
from railopt.runtime.rendezvous.mpi import join_mpi
from railopt.runtime.rendezvous.wire import PeerLost
from tests.contract.sender_world import SECRET, free_port


def launch(rank: int, size: int = 2) -> Launch:
    return Launch("hosts", rank, size, ("127.0.0.1",) * size, "job")


def meet(port: int, *, size: int = 2, join_s: float = 10) -> list[Any]:
    """All ranks join in threads: their groups, or what they raised."""
    results: list[Any] = [None] * size

    def one(rank: int) -> None:
        try:
            results[rank] = join(launch(rank, size), SECRET, run="r", port=port, join_s=join_s)
        except Exception as error:
            results[rank] = error

    threads = [threading.Thread(target=one, args=(k,), daemon=True) for k in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def part(groups: list[Group]) -> None:
    threads = [threading.Thread(target=group.close) for group in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)


@pytest.fixture
def hub() -> Iterator[Hub]:
    hub = Hub(2, SECRET, "job/r", join_s=20)
    yield hub
    hub.close()


def dial(hub: Hub) -> socket.socket:
    return socket.create_connection(("127.0.0.1", hub.port), timeout=10)


def refusal(sock: socket.socket) -> str:
    with sock:
        return str(wire.recv_frame(sock).get("refused"))


def in_threads(groups: list[Any], call: Any) -> list[Any]:
    """The collective `call(group)` on all at once."""
    results: list[Any] = [None] * len(groups)
    threads = [
        threading.Thread(target=lambda k=k: results.__setitem__(k, call(groups[k])))
        for k in range(len(groups))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return results


def test_ranks_meet_gather_and_part() -> None:
    groups = meet(free_port(), size=3)
    assert [g.names[2] for g in groups] == [f"node 2 ({socket.gethostname()})"] * 3
    assert (
        in_threads(groups, lambda g: g.allgather([g.rank, "x"]))
        == [[[0, "x"], [1, "x"], [2, "x"]]] * 3
    )
    told = in_threads(groups, lambda g: g.exchange([[g.rank, k] for k in range(3 - g.rank)]))
    assert told[0] == [[0, 0], [1, 0], [2, 0]]
    assert told[2] == [[0, 2], None, None]  # ranks that have nothing for it
    began = time.monotonic()
    part(groups)
    assert time.monotonic() - began < 20
    assert [g.lost for g in groups] == [None] * 3


def test_messages_reach_their_rank_even_before_it_listens() -> None:
    groups = meet(free_port())
    heard: list[tuple[int, Any]] = []
    arrived = threading.Event()
    groups[0].send(1, {"down": 3})
    time.sleep(0.2)
    groups[1].listen(lambda rank, body: (heard.append((rank, body)), arrived.set()))
    assert arrived.wait(10)
    assert heard == [(0, {"down": 3})]
    part(groups)


def test_a_wrong_secret_is_refused_in_words(hub: Hub) -> None:
    sock = dial(hub)
    with sock, pytest.raises(wire.Refused, match="wrong shared secret"):
        handshake.greet(sock, b"another secret, as long", Hello(1, 2, "job/r", "stranger"))


def test_a_server_without_the_secret_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def impostor() -> None:
            sock, _ = server.accept()
            with sock:
                wire.send_frame(
                    sock,
                    {"railopt": "rendezvous", "version": handshake.VERSION, "nonce": "0" * 32},
                )
                wire.recv_frame(sock)
                wire.send_frame(sock, {"proof": "f" * 64})

        thread = threading.Thread(target=impostor)
        thread.start()
        with (
            socket.create_connection(server.getsockname()) as sock,
            pytest.raises(wire.Refused, match="does not know the shared secret"),
        ):
            handshake.greet(sock, SECRET, Hello(1, 2, "r", "me"))
        thread.join()


def test_a_replayed_hello_does_not_open_the_door(hub: Hub) -> None:
    """The proof is bound to the server's nonce: what was seen on the wire once is worth nothing
    later.
    """
    with dial(hub) as sock:
        nonce, mine = wire.recv_frame(sock)["nonce"], "1" * 32
        session = handshake.Session(SECRET, nonce, mine, Hello(1, 2, "job/r", "h"))
        seen = {"nonce": mine, "rank": 1, "size": 2, "run": "job/r", "host": "h"}
        seen["proof"] = session.proof("client")
    with dial(hub) as sock:
        wire.recv_frame(sock)
        wire.send_frame(sock, seen)
        assert "wrong shared secret" in str(wire.recv_frame(sock)["refused"])


@pytest.mark.parametrize(
    ("rank", "size", "run", "words"),
    [
        (1, 2, "old/r", "a process left over from another run"),
        (1, 3, "job/r", "this run has 2 ranks"),
        (7, 2, "job/r", "rank 7 of 2"),
        (-1, 2, "job/r", "rank -1 of 2"),
    ],
)
def test_stale_and_foreign_ranks_are_refused(
    hub: Hub, rank: int, size: int, run: str, words: str
) -> None:
    with dial(hub) as sock, pytest.raises(wire.Refused, match=words):
        handshake.greet(sock, SECRET, Hello(rank, size, run, "h"))


def test_a_rank_comes_only_once(hub: Hub) -> None:
    with dial(hub) as first, dial(hub) as second:
        handshake.greet(first, SECRET, Hello(1, 2, "job/r", "first-host"))
        with pytest.raises(wire.Refused, match=r"rank 1 is already here \(first-host\)"):
            handshake.greet(second, SECRET, Hello(1, 2, "job/r", "second-host"))


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x00\x00\x00\x05hello",
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x04null",
        struct.pack("!I", 20) + b"\x80\x04\x95" + b"." * 17,
        struct.pack("!I", 4000) + b"[" * 4000,
    ],
)
def test_garbage_is_refused(hub: Hub, garbage: bytes) -> None:
    with dial(hub) as sock:
        wire.recv_frame(sock)
        sock.sendall(garbage)
        answer = wire.recv_frame(sock)
        assert "refused" in answer, answer
    assert hub.refusals


def test_an_oversized_frame_is_refused_before_it_is_read(hub: Hub) -> None:
    with dial(hub) as sock:
        wire.recv_frame(sock)
        sock.sendall(struct.pack("!I", 0xFFFFFFFF))
        assert "4294967295 bytes announced, at most 4096" in str(wire.recv_frame(sock)["refused"])


def test_slow_strangers_do_not_hold_up_the_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HELLO_S", 1.0)
    port = free_port()
    groups: list[Any] = []
    thread = threading.Thread(target=lambda: groups.extend(meet(port)))
    thread.start()
    slow = []
    for _ in range(20):
        try:
            slow.append(socket.create_connection(("127.0.0.1", port), timeout=1))
        except OSError:
            time.sleep(0.05)
    for sock in slow:
        sock.sendall(b"\x00")  # and never more
    thread.join(20)
    assert all(isinstance(group, Group) for group in groups), groups
    time.sleep(1.5)
    for sock in slow:
        sock.settimeout(5)
        while data := sock.recv(4096):  # a welcome and a refusal, then the end
            assert b"refused" in data or b"rendezvous" in data
        sock.close()
    part(groups)


def test_ranks_that_never_come_are_named() -> None:
    port = free_port()
    with pytest.raises(PeerLost, match="rank 1 did not join"):
        join(launch(0), SECRET, run="r", port=port, join_s=0.3)


def test_no_rank_0_ends_in_time() -> None:
    with pytest.raises(PeerLost, match="rank 0 does not answer"):
        join(launch(1), SECRET, run="r", port=free_port(), join_s=0.3)


def test_a_port_in_use_says_so(hub: Hub) -> None:
    with pytest.raises(BackendError, match="Address already in use; is a run still there"):
        Hub(2, SECRET, "r", port=hub.port)


def test_secrets(tmp_path: Any) -> None:
    assert handshake.read_secret({"RAILOPT_SECRET": "0123456789abcdef"}) == b"0123456789abcdef"
    (tmp_path / "secret").write_text("from a file, long enough\n")
    assert handshake.read_secret({}, tmp_path / "secret") == b"from a file, long enough"
    for environ, path in (
        ({}, None),
        ({"RAILOPT_SECRET": "short"}, None),
        ({}, tmp_path / "nothing"),
    ):
        with pytest.raises(InputError):
            handshake.read_secret(environ, path)


class FakeComm:
    """Two ranks of an MPI world in two threads, with the calls of mpi4py that are used."""

    def __init__(self, rank: int, shared: dict[str, Any]) -> None:
        self.rank, self.shared = rank, shared

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return 2

    def Ibcast(self, data: np.ndarray, root: int) -> SimpleNamespace:
        if self.rank == root:
            self.shared["card"] = data.copy()
        if "barrier" not in self.shared:  # the other is stopped
            return SimpleNamespace(Test=lambda: False)
        self.shared["barrier"].wait(10)
        data[:] = self.shared["card"]
        return SimpleNamespace(Test=lambda: True)


def test_mpi_hands_out_secret_and_address_without_pickling() -> None:
    shared = {"barrier": threading.Barrier(2)}
    groups: list[Any] = [None, None]

    def one(rank: int) -> None:
        groups[rank] = join_mpi(FakeComm(rank, shared), run="r", join_s=10)

    threads = [threading.Thread(target=one, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    cards = in_threads(
        groups, lambda g: g.exchange([{"from": g.rank, "pad": "x" * (5 + 7 * k)} for k in range(2)])
    )
    for k in range(2):
        assert cards[k] == [{"from": rank, "pad": "x" * (5 + 7 * k)} for rank in range(2)]
    part(groups)


def test_a_rank_0_that_is_stopped_is_not_waited_for_without_end() -> None:
    with pytest.raises(PeerLost, match=r"rank 0 was not heard of through MPI within 0\.2 s"):
        join_mpi(FakeComm(1, {}), run="r", join_s=0.2)


def test_a_rank_that_fails_early_does_not_leave_the_others_in_mpi() -> None:
    """One can't listen, or can't open its devices: the others hear of it and enter no collective
    that has no end.
    """
    shared = {"barrier": threading.Barrier(2)}
    for bind, words in (
        ("nonsense.invalid", "rank 0 gave up: rank 0 can't listen on port 0 of nonsense"),
        ("127.0.0.1", "gave up: no such device"),
    ):
        said: dict[int, str] = {}

        def one(rank: int, bind: str = bind, said: dict[int, str] = said) -> None:
            try:
                with join_mpi(FakeComm(rank, shared), run="r", join_s=10, bind=bind) as group:
                    if rank == 0:
                        raise BackendError("no such device")
                    group.exchange("card")
            except BackendError as error:
                said[rank] = str(error)

        began = time.monotonic()
        threads = [threading.Thread(target=one, args=(k,), daemon=True) for k in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert words in said[1], said
        assert time.monotonic() - began < 8, "FakeComm gives up after 10 s, MPI never does"


def test_joining_in_a_hurry_hurries_no_gather(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HELLO_S", 0.5)
    groups = meet(free_port(), join_s=0.5)
    found = in_threads(groups, lambda g: (time.sleep(1.5 * g.rank), g.allgather(g.rank))[1])
    assert found == [[0, 1], [0, 1]]
    part(groups)


def test_a_gather_that_took_too_long_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = meet(free_port())
    monkeypatch.setattr("railopt.runtime.rendezvous.group.GATHER_S", 0.3)
    said = []
    for _ in range(2):
        with pytest.raises(PeerLost) as late:
            groups[0].allgather("a")
        said.append(str(late.value))
    assert said == ["not all ranks answered within 0.3 s (gather 2)"] * 2
    deadline = time.monotonic() + 10
    while groups[1].lost is None and time.monotonic() < deadline:
        time.sleep(0.01)
    with pytest.raises(PeerLost, match=r"node 0 .* gave up: not all ranks answered"):
        groups[1].allgather("a")
    part(groups)


def test_missing_ranks_that_were_turned_away_are_named() -> None:
    port, said = free_port(), []

    def first() -> None:
        with pytest.raises(PeerLost) as missing:
            join(launch(0), SECRET, run="r", port=port, join_s=1.5)
        said.append(str(missing.value))

    thread = threading.Thread(target=first)
    thread.start()
    with pytest.raises(wire.Refused, match="left over from another run"):
        join(launch(1), SECRET, run="other", port=port, join_s=5)
    thread.join(20)
    assert "rank 1 did not join" in said[0]
    assert "turned away 127.0.0.1: this is run 'job/r', you are of run 'job/other'" in said[0]


def test_an_address_that_is_none_is_named() -> None:
    with pytest.raises(BackendError, match=r"nonsense\.invalid: [^(]*; name an address"):
        Hub(2, SECRET, "r", address="nonsense.invalid")
    with pytest.raises(BackendError) as other:
        Hub(2, SECRET, "r", address="192.0.2.1")
    assert f"{os.strerror(errno.EADDRNOTAVAIL)}; choose another port" in str(other.value)


def test_what_is_sent_is_json(hub: Hub) -> None:
    with dial(hub) as sock:
        (length,) = struct.unpack("!I", sock.recv(4))
        assert json.loads(sock.recv(length))["railopt"] == "rendezvous"


@pytest.mark.parametrize("first", ["gather", "goodbye"])
def test_a_rank_that_says_goodbye_is_announced_to_those_that_wait_for_it(first: str) -> None:
    """Before they ask or while they wait: nobody waits for the end of a gather's time."""
    groups = meet(free_port(), size=3)
    said: list[str] = []

    def waits(group: Group) -> None:
        with pytest.raises(PeerLost) as lost:
            group.allgather("here")
        said.append(str(lost.value))

    leaving = threading.Thread(target=groups[2].close, daemon=True)
    waiting = [threading.Thread(target=waits, args=(group,), daemon=True) for group in groups[:2]]
    for thread in [*waiting, leaving] if first == "gather" else [leaving, *waiting]:
        thread.start()
        time.sleep(0.1)
    for thread in waiting:
        thread.join(20)
    part(groups[:2])
    leaving.join(20)
    assert len(said) == 2
    assert all("node 2" in text and "left while this rank waited" in text for text in said)
