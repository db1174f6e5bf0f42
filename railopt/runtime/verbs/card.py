"""The card of a rank for a peer: what it must know to reach the queue pairs to it, and memory."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from railopt.runtime.rendezvous.wire import read_list, read_number, understood
from railopt.runtime.verbs.objects import Address

_GID = re.compile(r"[0-9a-f]{32}\Z")
MAX_RAILS, MAX_QUEUE_PAIRS = 1 << 10, 64


@dataclass(frozen=True)
class Card:
    """Per rail: the device's name, where its port is reached, the (number, first packet) of its
    queue pairs to the peer, and the key of each receive buffer. And the receive buffers, as
    (address, bytes).
    """

    devices: tuple[str, ...]
    ports: tuple[Address, ...]
    queue_pairs: tuple[list[tuple[int, int]], ...]
    rkeys: tuple[tuple[int, ...], ...]
    recv: tuple[tuple[int, int], ...]

    def as_dict(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "devices": list(self.devices),
            "ports": [address_list(port) for port in self.ports],
            "queue_pairs": [[list(pair) for pair in pairs] for pairs in self.queue_pairs],
            "rkeys": [list(keys) for keys in self.rkeys],
            "recv": [list(buffer) for buffer in self.recv],
        }

    @classmethod
    def from_dict(cls, data: Any, whose: str) -> Card:
        """The way back from what a peer sent; `whose` names it where that is no card."""
        with understood(whose, "a card"):
            card = cls(
                tuple(_text(name) for name in read_list(data["devices"], MAX_RAILS)),
                tuple(read_address(port) for port in read_list(data["ports"], MAX_RAILS)),
                tuple(_pairs(pairs) for pairs in read_list(data["queue_pairs"], MAX_RAILS)),
                tuple(
                    tuple(read_number(key, 32) for key in read_list(keys))
                    for keys in read_list(data["rkeys"], MAX_RAILS)
                ),
                tuple(_buffer(buffer) for buffer in read_list(data["recv"])),
            )
            rails, buffers = len(card.devices), len(card.recv)
            if not (len(card.ports) == len(card.queue_pairs) == len(card.rkeys) == rails):
                raise ValueError("lists of different lengths")
            if not buffers or any(len(keys) != buffers for keys in card.rkeys):
                raise ValueError("not one key a buffer and rail")
        return card


def address_list(port: Address) -> list[Any]:
    """A port's address as JSON values."""
    return [port.lid, port.gid.hex(), port.gid_index, port.ethernet, port.mtu]


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.isprintable() or len(value) > 64:
        raise ValueError("expected a device's name")
    return value


def read_address(value: Any) -> Address:
    """The way back from `address_list`; ValueError or TypeError if it is none."""
    lid, gid, index, ethernet, mtu = value
    if not isinstance(gid, str) or not _GID.match(gid) or not isinstance(ethernet, bool):
        raise ValueError("expected the address of a port")
    return Address(
        read_number(lid, 16),
        bytes.fromhex(gid),
        read_number(index, 16),
        ethernet,
        read_number(mtu, 3),
    )


def _pairs(value: Any) -> list[tuple[int, int]]:
    return [
        (read_number(number, 24), read_number(psn, 24))
        for number, psn in read_list(value, MAX_QUEUE_PAIRS)
    ]


def _buffer(value: Any) -> tuple[int, int]:
    address, length = value
    return read_number(address, 64), read_number(length, 63)
