"""Carrying a plan out: `SENDERS` names who can.

A new sender is a module with `opened(config)`, an entry here, and a line in the contract tests.
Modules are imported when they are opened: loopback brings numba, verbs libibverbs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import AbstractContextManager

from railopt.runtime.senders.config import (
    LAUNCH,
    MEETING,
    RAILS,
    REPORT,
    SenderConfig,
    SenderKind,
)
from railopt.runtime.senders.protocol import Carrier

__all__ = ["SENDERS", "Carrier", "SenderConfig", "SenderKind"]


def _from(module: str) -> Callable[[SenderConfig], AbstractContextManager[Carrier]]:
    """`opened` of a module of this room, imported on first use."""
    return lambda config: importlib.import_module(f"{__name__}.{module}").opened(config)


SENDERS: dict[str, SenderKind] = {
    "loopback": SenderKind(
        _from("loopback"),
        "all nodes in this process, real bytes, every payload verified",
        REPORT,
    ),
    "record": SenderKind(
        _from("record"),
        "the work requests that verbs would post, as a table; nothing moves",
        LAUNCH | {"size", "depth", "batch", "output"},
        moves=False,
    ),
    "verbs": SenderKind(
        _from("verbs_carrier"),
        "the NICs, one process per node",
        LAUNCH | MEETING | RAILS | REPORT,
    ),
}
