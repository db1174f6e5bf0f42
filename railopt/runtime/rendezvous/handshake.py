"""The handshake that opens a channel: both sides prove that they know the shared secret.

The server begins with a nonce; the client answers with its own nonce, who it is, and a proof; the
server proves itself in turn. With transcript = [version, server's nonce, client's nonce, rank,
size, run, host] and session = HMAC-SHA256(secret, transcript), each proof and the key of each
direction is HMAC-SHA256(session, what it is for). The secret itself never travels, no proof is
worth anything in another session, and whoever relays the handshake knows no key.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from railopt.base.errors import InputError, printable
from railopt.runtime.rendezvous import wire
from railopt.runtime.rendezvous.channel import Channel
from railopt.runtime.rendezvous.wire import Body, Refused

VERSION = 4
HELLO_S = 5.0
MIN_SECRET, MAX_SECRET = 16, 1 << 16
MAX_RUN = 200
_NONCE = re.compile(r"[0-9a-f]{32}\Z")


@dataclass(frozen=True)
class Hello:
    """Who a client says it is: rank `rank` of `size` of the run `run`, on `host`."""

    rank: int
    size: int
    run: str
    host: str

    @classmethod
    def from_dict(cls, body: Mapping[str, Any]) -> Hello:
        """Read a client's frame."""
        rank, size, run, host = (body.get(key) for key in ("rank", "size", "run", "host"))
        if not (
            type(rank) is int and type(size) is int and isinstance(run, str) and type(host) is str
        ):
            raise Refused("a hello without rank, size, run and host")
        return cls(rank, size, run, host)


class Session:
    """The keys and proofs of one handshake."""

    def __init__(self, secret: bytes, server_nonce: str, client_nonce: str, hello: Hello) -> None:
        transcript = json.dumps(
            [VERSION, server_nonce, client_nonce, hello.rank, hello.size, hello.run, hello.host]
        )
        self._key = hmac.new(secret, transcript.encode(), hashlib.sha256).digest()

    def derive(self, purpose: str) -> bytes:
        """The key or proof for a purpose."""
        return hmac.new(self._key, purpose.encode(), hashlib.sha256).digest()

    def proof(self, side: str) -> str:
        """The proof by which "client" or "server" shows that it knows the secret."""
        return self.derive(f"{side} proof").hex()

    def proves(self, body: Mapping[str, Any], side: str) -> bool:
        """Whether a frame holds that proof."""
        given = body.get("proof")
        return isinstance(given, str) and hmac.compare_digest(
            given.encode("utf-8", "replace"), self.proof(side).encode()
        )

    def channel(self, sock: socket.socket, side: str) -> Channel:
        """The channel of "client" or "server" on a connection."""
        other = "server" if side == "client" else "client"
        return Channel(sock, self.derive(f"{side} frames"), self.derive(f"{other} frames"))


def greet(
    sock: socket.socket, secret: bytes, hello: Hello, within_s: float | None = None
) -> Channel:
    """The client's side; `Refused` says why not. The server has `within_s` for each answer."""
    within_s = HELLO_S if within_s is None else within_s
    welcome = wire.recv_frame(sock, wire.MAX_HELLO, within_s)
    if welcome.get("railopt") != "rendezvous" or welcome.get("version") != VERSION:
        raise Refused(
            f"what listens there is not a railopt rendezvous of version {VERSION}: it says "
            f"railopt={_as_text(welcome.get('railopt'))} version={_as_text(welcome.get('version'))}"
        )
    mine = secrets.token_hex(16)
    session = Session(secret, _nonce(welcome), mine, hello)
    wire.send_frame(sock, {"nonce": mine, **asdict(hello), "proof": session.proof("client")})
    answer = wire.recv_frame(sock, wire.MAX_HELLO, within_s)
    if "refused" in answer:
        raise Refused(f"rank 0 refused this process: {_as_text(answer['refused'])}")
    if not session.proves(answer, "server"):
        raise Refused("what listens there does not know the shared secret")
    return session.channel(sock, "client")


def challenge(sock: socket.socket, secret: bytes) -> tuple[Hello, Session]:
    """The server's side up to the client's proof; `Refused` for a stranger. Whoever lets the client
    in sends {"proof": session.proof("server")}.
    """
    mine = secrets.token_hex(16)
    wire.send_frame(sock, {"railopt": "rendezvous", "version": VERSION, "nonce": mine})
    body = wire.recv_frame(sock, wire.MAX_HELLO, HELLO_S)
    hello = Hello.from_dict(body)
    session = Session(secret, mine, _nonce(body), hello)
    if not session.proves(body, "client"):
        raise Refused(
            "wrong shared secret (RAILOPT_SECRET or --secret-file must be the same on all nodes)"
        )
    return hello, session


def _as_text(value: object) -> str:
    """A value from an unknown peer as text; a list or an object, which may be deep, by its type."""
    return printable(value if isinstance(value, str | int | float) else type(value).__name__)


def _nonce(body: Body) -> str:
    nonce = body.get("nonce")
    if not isinstance(nonce, str) or not _NONCE.match(nonce):
        raise Refused("a frame without a nonce: the other side is not railopt")
    return nonce


def read_secret(environ: Mapping[str, str], path: str | os.PathLike[str] | None = None) -> bytes:
    """The shared secret from a file, else from RAILOPT_SECRET; white space around it is not part of
    it.
    """
    if path is not None:
        try:
            with Path(path).open("rb") as file:
                secret = file.read(MAX_SECRET + 1).strip()
        except OSError as error:
            raise InputError(f"--secret-file {printable(path)}: {error.strerror}") from error
    else:
        secret = environ.get("RAILOPT_SECRET", "").strip().encode("utf-8", "surrogateescape")
    if not MIN_SECRET <= len(secret) <= MAX_SECRET:
        raise InputError(
            f"the rendezvous needs a shared secret of {MIN_SECRET} to {MAX_SECRET} bytes, found "
            f"{len(secret)}: put the same one on all nodes in RAILOPT_SECRET or a --secret-file "
            f"(openssl rand -hex 32)"
        )
    return secret


def run_name(text: str) -> str:
    """A run's name as it travels: itself, or a digest of it where it is long."""
    if len(text) <= MAX_RUN:
        return text
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=16).hexdigest()
