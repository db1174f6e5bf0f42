"""Frames on a TCP stream and the handshake that opens one: JSON only, bounded in size and in time,
a shared secret.

A frame is a length (4 bytes, big endian) and that many bytes of UTF-8 JSON. The server begins with
a nonce; the client answers with its own nonce, who it is, and an HMAC-SHA256 of both under the
secret; the server proves itself the same way. The secret itself never travels. What follows is not
encrypted.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from railopt.errors import BackendError, InputError

VERSION = 1
MAX_FRAME, MAX_HELLO = 16 << 20, 4096
HELLO_S = 5.0
MIN_SECRET = 16
Body = dict[str, Any]


class Refused(BackendError):
    """The other side refused us, or sent what this protocol does not know."""


def send_frame(sock: socket.socket, body: Mapping[str, Any]) -> None:
    """One frame."""
    data = json.dumps(body, separators=(",", ":")).encode()
    if len(data) > MAX_FRAME:
        raise InputError(f"a message of {len(data)} bytes: at most {MAX_FRAME}")
    sock.sendall(struct.pack("!I", len(data)) + data)


def recv_frame(sock: socket.socket, limit: int = MAX_FRAME, within: float | None = None) -> Body:
    """One frame of at most `limit` bytes, whole within `within` seconds; EOFError at the end of the
    stream.
    """
    deadline = None if within is None else time.monotonic() + within
    (length,) = struct.unpack("!I", _exactly(sock, 4, deadline))
    if length > limit:
        raise Refused(f"a frame of {length} bytes announced, at most {limit} are taken")
    try:
        body = json.loads(_exactly(sock, length, deadline))
    except (ValueError, RecursionError) as error:
        raise Refused("a frame that is not JSON: the other side is not railopt") from error
    if not isinstance(body, dict):
        raise Refused("a frame that is not a JSON object: the other side is not railopt")
    return body


def _exactly(sock: socket.socket, count: int, deadline: float | None) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the other side is too slow")
            sock.settimeout(left)
        data = sock.recv(min(count - len(parts), 1 << 16))
        if not data:
            raise EOFError("the connection was closed")
        parts += data
    return bytes(parts)


def _proof(secret: bytes, side: str, hello: Mapping[str, Any], nonce: str) -> str:
    text = json.dumps(
        [side, nonce, *(hello.get(k) for k in ("nonce", "rank", "size", "run", "host"))]
    )
    return hmac.new(secret, text.encode(), hashlib.sha256).hexdigest()


def greet(sock: socket.socket, secret: bytes, rank: int, size: int, run: str, host: str) -> None:
    """The client's side of the handshake; `Refused` says why not."""
    welcome = recv_frame(sock, MAX_HELLO, HELLO_S)
    if welcome.get("railopt") != "rendezvous" or welcome.get("version") != VERSION:
        raise Refused(
            f"what listens there is not a railopt rendezvous of version {VERSION}: "
            f"{str(welcome)[:80]}"
        )
    hello: Body = {
        "nonce": secrets.token_hex(16),
        "rank": rank,
        "size": size,
        "run": run,
        "host": host,
    }
    hello["proof"] = _proof(secret, "client", hello, str(welcome.get("nonce")))
    send_frame(sock, hello)
    answer = recv_frame(sock, MAX_HELLO, HELLO_S)
    if "refused" in answer:
        raise Refused(f"rank 0 refused this process: {str(answer['refused'])[:200]}")
    if not hmac.compare_digest(
        str(answer.get("proof")), _proof(secret, "server", hello, str(welcome.get("nonce")))
    ):
        raise Refused("what listens there does not know the shared secret")


def challenge(sock: socket.socket, secret: bytes) -> tuple[Body, str]:
    """The server's side up to the client's proof: (its hello, our proof for `accept`); `Refused`
    for a stranger.
    """
    nonce = secrets.token_hex(16)
    send_frame(sock, {"railopt": "rendezvous", "version": VERSION, "nonce": nonce})
    hello = recv_frame(sock, MAX_HELLO, HELLO_S)
    if not hmac.compare_digest(str(hello.get("proof")), _proof(secret, "client", hello, nonce)):
        raise Refused(
            "wrong shared secret (RAILOPT_SECRET or --secret-file must be the same on all nodes)"
        )
    if not (
        isinstance(hello.get("rank"), int)
        and isinstance(hello.get("size"), int)
        and isinstance(hello.get("run"), str)
        and isinstance(hello.get("host"), str)
    ):
        raise Refused("a hello without rank, size, run and host")
    return hello, _proof(secret, "server", hello, nonce)


def keep_alive(sock: socket.socket) -> None:
    """A host that vanishes without a word is noticed within about 12 seconds."""
    sock.settimeout(None)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", 4),
        ("TCP_KEEPINTVL", 2),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", 12_000),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def read_secret(environ: Mapping[str, str], path: str | os.PathLike[str] | None = None) -> bytes:
    """The shared secret from a file, else from RAILOPT_SECRET."""
    if path is not None:
        try:
            text = Path(path).read_text().strip()
        except OSError as error:
            raise InputError(f"--secret-file {path}: {error.strerror}") from error
    else:
        text = environ.get("RAILOPT_SECRET", "")
    if len(text) < MIN_SECRET:
        raise InputError(
            f"the rendezvous needs a shared secret of at least {MIN_SECRET} characters, found "
            f"{len(text)}: put "
            "the same one on all nodes in RAILOPT_SECRET or a --secret-file (openssl rand -hex 32)"
        )
    return text.encode()
