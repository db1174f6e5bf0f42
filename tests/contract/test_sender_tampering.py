"""What stands between the nodes, or listens where rank 0 should, can end a run; it can't make one
go wrong.
"""

from __future__ import annotations

import contextlib
import json
import random
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from railopt.base.errors import BackendError
from railopt.cli.main import main
from railopt.runtime.rendezvous import handshake, wire
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.handshake import Hello
from railopt.runtime.rendezvous.hub import MAX_STRANGERS, Hub
from railopt.runtime.rendezvous.join import join
from railopt.runtime.rendezvous.launch import Launch
from railopt.runtime.senders.verbs import Verbs
from tests.contract.relay import PLAIN, Relay, Tamper
from tests.contract.sender_world import SECRET, World, carry, free_port, small_plan


@pytest.fixture(autouse=True)
def little_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HELLO_S", 1.0)


def on_frame(
    where: tuple[str, int], change: Callable[[bytes], tuple[list[bytes], list[bytes]]]
) -> Tamper:
    """Change one frame of one direction, pass the others on."""
    return lambda way, n, frame: change(frame) if (way, n) == where else ([frame], [])


def flip(frame: bytes, place: int) -> bytes:
    changed = bytearray(frame)
    changed[place] ^= 1 << place % 8
    return bytes(changed)


def reorder(where: tuple[str, int]) -> Tamper:
    """Hold one frame back until the next has passed."""
    held: list[bytes] = []

    def tamper(way: str, n: int, frame: bytes) -> tuple[list[bytes], list[bytes]]:
        if (way, n) == where:
            held.append(frame)
            return [], []
        if way == where[0] and held:
            return [frame, held.pop()], []
        return [frame], []

    return tamper


ATTACKS: dict[str, Callable[[tuple[str, int]], Tamper]] = {
    "flip the first byte": lambda at: on_frame(at, lambda f: ([flip(f, 4)], [])),
    "flip in the middle": lambda at: on_frame(at, lambda f: ([flip(f, len(f) // 2)], [])),
    "flip the tag": lambda at: on_frame(at, lambda f: ([flip(f, len(f) - 1)], [])),
    "replay": lambda at: on_frame(at, lambda f: ([f, f], [])),
    "drop": lambda at: on_frame(at, lambda f: ([], [])),
    "reorder": reorder,
    "reflect": lambda at: on_frame(at, lambda f: ([], [f])),
}


@pytest.mark.parametrize("frame", [("up", 1), ("up", 2), ("down", 2), ("down", 3), ("up", 4)])
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_relay_without_the_secret_ends_the_run(
    attack: str, frame: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it does to names, cards or the start of a run: every rank ends with a sentence and
    exit code 3, and no rank counts wrong bytes as right. What does not come at all is noticed by
    the next frame, or when a gather takes too long.
    """
    if attack in ("drop", "reorder"):
        monkeypatch.setattr("railopt.runtime.rendezvous.group.GATHER_S", 2.0)
    plan = small_plan(2, 2)
    world = World(2, 2, tamper={1: ATTACKS[attack](frame)}, join_s=1.0)
    for result in world.run(lambda sender: [carry(sender, plan, i) for i in range(2)]):
        assert isinstance(result, BackendError), result
        assert result.exit_code == 3
        assert str(result).isprintable()


def test_a_relay_can_not_rewrite_memory_keys_and_addresses() -> None:
    seen: list[Any] = []

    def rewrite(way: str, n: int, frame: bytes) -> tuple[list[bytes], list[bytes]]:
        if way == "up" and n >= PLAIN["up"] and b'"rkeys"' in frame:
            body = json.loads(frame[4:-32])
            card = body["data"][0]  # for rank 0
            seen.append(card["rkeys"])
            card["rkeys"] = [[key ^ 1 for key in keys] for keys in card["rkeys"]]
            card["recv"] = [[address + 64, n] for address, n in card["recv"]]
            data = json.dumps(body, separators=(",", ":")).encode()
            return [struct.pack("!I", len(data)) + data + frame[-32:]], []
        return [frame], []

    plan = small_plan(2, 2)
    results = World(2, 2, tamper={1: rewrite}, join_s=1.0).run(lambda s: carry(s, plan, 0))
    assert seen, "the card passed the relay"
    assert "tampers with the connection" in str(results[0])
    assert all(isinstance(result, BackendError) for result in results)


def test_the_command_line_says_so_with_exit_code_3(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small_plan(2, 2).save(tmp_path / "plan.npz")
    monkeypatch.setenv("RAILOPT_SECRET", SECRET.decode())
    port, codes = free_port(), [-1, -1]
    relay = Relay(port, ATTACKS["flip in the middle"](("up", 1)))

    def node(k: int) -> None:
        door = [port, relay.port][k]
        codes[k] = main(
            f"send {tmp_path}/plan.npz --hosts 127.0.0.1,127.0.0.1 --rank {k} --port {door} "
            f"--join 2".split()
        )

    in_threads(node, 2)
    relay.close()
    assert codes == [3, 3]
    assert "tampers with the connection" in capsys.readouterr().err


def in_threads(work: Callable[[int], None], count: int) -> None:
    threads = [threading.Thread(target=work, args=(k,), daemon=True) for k in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40)
    assert not any(thread.is_alive() for thread in threads)


# -- strangers


@contextlib.contextmanager
def idle_strangers(port: int, count: int) -> Iterator[None]:
    """`count` connections that say nothing, each made anew when it is dropped."""
    over = threading.Event()
    held: set[socket.socket] = set()

    def one() -> None:
        while not over.is_set():
            try:
                with socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
                    held.add(sock)
                    while not over.is_set() and sock.recv(4096):
                        pass
            except OSError:
                over.wait(0.02)

    threads = [threading.Thread(target=one, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for sock in list(held):
            wire.hang_up(sock)
        for thread in threads:
            thread.join(5)


def launch(rank: int, size: int = 3) -> Launch:
    return Launch("hosts", rank, size, ("127.0.0.1",) * size, "job")


def test_idle_strangers_never_keep_a_rank_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake, "HELLO_S", 60.0)  # they don't leave by themselves
    port, groups = free_port(), [None] * 3  # type: int, list[Any]

    def rank(k: int) -> None:
        if k:
            time.sleep(0.5)  # the strangers come first
        groups[k] = join(launch(k), SECRET, port=port, join_s=20)

    began = time.monotonic()
    with idle_strangers(port, 2 * MAX_STRANGERS):
        in_threads(rank, 3)
        took = time.monotonic() - began
        in_threads(lambda k: groups[k].close(), 3)
    assert all(isinstance(group, Group) for group in groups)
    assert took < 15


def test_a_hub_without_descriptors_recovers() -> None:
    hub = Hub(1, SECRET, "r")
    sock = socket.socket()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = socket.socket()
    limit = lowest.fileno()
    lowest.close()
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        sock.connect(("127.0.0.1", hub.port))
        time.sleep(0.3)  # accept fails again and again
        with pytest.raises(OSError, match="Too many open files"):
            socket.socket()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    sock.close()  # the kernel kept it waiting or turned it away: a rank would try again
    with socket.create_connection(("127.0.0.1", hub.port), timeout=5) as sock:
        channel = handshake.greet(sock, SECRET, Hello(0, 1, "r", "h"), 5)
        channel.send({"gather": "1", "data": 7})
        assert channel.recv()["data"] == [7]
    hub.close()


def test_rank_0_listens_at_its_own_address_unless_told() -> None:
    for bind, reached in ((None, False), ("0.0.0.0", True)):
        port = free_port()
        group = join(launch(0, 1), SECRET, port=port, join_s=5, bind=bind)
        try:
            socket.create_connection(("127.0.0.2", port), timeout=2).close()
            assert reached
        except ConnectionRefusedError:
            assert not reached
        group.close()


# -- what listens where rank 0 should


def frame(data: bytes) -> bytes:
    return struct.pack("!I", len(data)) + data


def welcome(**changes: Any) -> bytes:
    body = {"railopt": "rendezvous", "version": handshake.VERSION, "nonce": "0" * 32, **changes}
    return frame(json.dumps(body).encode())


SERVERS: dict[str, list[bytes]] = {
    "silent": [],
    "another protocol": [b"SSH-2.0-OpenSSH_9.2\r\n"],
    "an empty frame": [frame(b"")],
    "not UTF-8": [frame(b'{"railopt": "\xff\xfe"}')],
    "deep": [frame(b"[" * 4000)],
    "deep, and JSON": [frame(b'{"railopt": ' + b"[" * 900 + b"]" * 900 + b"}")],
    "a long number for a version": [welcome(version=10**4000)],
    "a deep refusal": [welcome(), frame(b'{"refused": ' + b"[" * 900 + b"]" * 900 + b"}")],
    "an older version": [welcome(version=1)],
    "escape sequences": [welcome(version="\x1b[2J\nrailopt: proved")],
    "no nonce": [welcome(nonce=None)],
    "a nonce that is no text": [welcome(nonce="\u00e9" * 32)],
    "a huge frame": [struct.pack("!I", 0xFFFFFFFF)],
    "a proof that is not ASCII": [welcome(), frame('{"proof": "\u00e9\u00e9"}'.encode())],
    "a lone surrogate": [welcome(), frame(b'{"proof": "\\ud800"}')],
    "a refusal with escape sequences": [welcome(), frame(b'{"refused": "\\u001b[31mno\\nyes"}')],
    "a refusal that is a list": [welcome(), frame(b'{"refused": [[["no"]]]}')],
    "a long number": [frame(b'{"railopt": ' + b"9" * 4000 + b"}")],
}


@contextlib.contextmanager
def server(answers: list[bytes], *, end: str) -> Iterator[int]:
    """Says `answers`, one a frame that it hears (the first at once); then is silent, closes or
    resets.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(sock: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            for i, answer in enumerate(answers):
                if i:
                    wire.recv_frame(sock)
                sock.sendall(answer)
            if end == "stays":
                sock.recv(1 << 16)
                sock.recv(1 << 16)
            if end == "resets":
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        sock.close()

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                threading.Thread(target=serve, args=(sock,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield listener.getsockname()[1]
    wire.hang_up(listener)


@pytest.mark.parametrize("end", ["stays", "closes", "resets"])
@pytest.mark.parametrize("kind", SERVERS)
def test_whatever_listens_there_is_a_sentence_and_exit_code_3(
    kind: str, end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, railopt_cli: Any
) -> None:
    monkeypatch.setattr(handshake, "HELLO_S", 0.3)
    monkeypatch.setenv("RAILOPT_SECRET", SECRET.decode())
    small_plan(2, 2).save(tmp_path / "plan.npz")
    with server(SERVERS[kind], end=end) as port:
        began = time.monotonic()
        ran = railopt_cli(
            "send", tmp_path / "plan.npz", "--hosts", "127.0.0.1,127.0.0.1", "--rank", 1,
            "--port", port, "--join", 0.4,
        )  # fmt: skip
        assert time.monotonic() - began < 30
    assert ran.code == 3, ran.err
    *_, last = ran.err.splitlines()
    assert last.startswith("railopt: error: ")
    assert last.isprintable()


# -- a hub and its ranks against nonsense


def test_fuzzed_hellos_are_refused_and_the_hub_lives() -> None:
    """300 hellos with bytes changed, cut, or of other JSON: none gets in, and then a rank does."""
    hub, rng = Hub(1, SECRET, "r", join_s=60), random.Random(1)
    odd = [None, True, -1, 1 << 70, 0.5, "x", "\ud800", [], {}, json.loads("[" * 900 + "]" * 900)]
    for case in range(300):
        with socket.create_connection(("127.0.0.1", hub.port), timeout=5) as sock:
            nonce, mine = wire.recv_frame(sock)["nonce"], f"{case:032x}"
            hello = Hello(0, 1, "r", "h")
            proof = handshake.Session(SECRET, nonce, mine, hello).proof("client")
            body: dict[str, Any] = {"nonce": mine, **vars(hello), "proof": proof}
            key = rng.choice(list(body))
            if case % 3 == 0:
                body[key] = rng.choice([value for value in odd if value != body[key]])
            elif case % 3 == 1:
                del body[key]
            data = bytearray(json.dumps(body).encode())
            if case % 3 == 2:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            sock.sendall(frame(bytes(data)))
            if "refused" not in wire.recv_frame(sock, within_s=5):
                # the host's name is the rank's own business, if its proof covers it
                pytest.fail(f"case {case}: {bytes(data)!r} was let in")
    with socket.create_connection(("127.0.0.1", hub.port), timeout=5) as sock:
        handshake.greet(sock, SECRET, Hello(0, 1, "r", "h"))
    hub.close()


@pytest.mark.parametrize(
    "body",
    [
        {"down": "x", "seen": 0, "cause": "c"},
        {"down": 99, "seen": 0, "cause": "c"},
        {"down": 0},
        {"moved": 0, "round": "soon", "jobs": 1, "to": {}},
        {"moved": 0, "round": 0, "jobs": [], "to": {}},
        {"moved": 0, "round": 0, "jobs": 1, "to": 7},
        {"moved": 0, "round": 0, "jobs": 1, "to": {"99": 1}},
    ],
)
def test_a_rank_that_talks_nonsense_ends_the_run(body: dict[str, Any]) -> None:
    plan = small_plan(2, 2)

    def work(sender: Verbs) -> Any:
        carry(sender, plan, 0)
        if sender.group.rank == 1:
            sender.group.send(0, body)
        return [carry(sender, plan, i) for i in range(1, 4)]

    for result in World(2, 2, join_s=2.0).run(work):
        assert isinstance(result, BackendError), result
        assert str(result).isprintable()


def test_a_peers_last_words_are_printed_as_text() -> None:
    def work(sender: Verbs) -> Any:
        if sender.group.rank == 1:
            raise RuntimeError("\x1b[2J\nrailopt: all chunks proved")
        return sender.run(small_plan(2, 2)).wait()

    first, _ = World(2, 2).run(work)
    assert isinstance(first, BackendError)
    assert str(first).isprintable()
    assert "\\x1b[2J\\nrailopt: all chunks proved" in str(first)
