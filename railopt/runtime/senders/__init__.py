"""Carrying a plan out: `SENDERS` names who can.

A new sender is a module with `opened(setting)`, an entry here, and a line in the contract tests.
Modules are imported when they are opened: loopback brings numba, verbs libibverbs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from railopt.runtime.senders.setting import (
    LAUNCH,
    MEETING,
    RAILS,
    REPORT,
    Carrier,
    Kind,
    Setting,
    Watched,
)

__all__ = ["SENDERS", "Carrier", "Kind", "Setting"]


def _from(module: str) -> Callable[[Setting], AbstractContextManager[Carrier]]:
    """`opened` of a module of this room, imported on first use."""

    @contextmanager
    def opened(setting: Setting) -> Iterator[Carrier]:
        found = importlib.import_module(f"railopt.runtime.senders.{module}")
        with found.opened(setting) as carrier:
            yield carrier if setting.seen is None else Watched(carrier, setting.seen)

    return opened


SENDERS: dict[str, Kind] = {
    "loopback": Kind(
        _from("loopback"),
        "all nodes in this process, real bytes, every payload verified",
        REPORT,
    ),
    "record": Kind(
        _from("record"),
        "the work requests that verbs would post, as a table; nothing moves",
        LAUNCH | {"size", "depth", "batch", "output"},
        moves=False,
    ),
    "verbs": Kind(
        _from("together"),
        "the NICs, one process a node",
        LAUNCH | MEETING | RAILS | REPORT,
    ),
}
