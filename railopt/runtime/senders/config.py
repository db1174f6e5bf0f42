"""What a sender is opened with, and the entry of a table of senders."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import NamedTuple, TextIO

from railopt.base.errors import InputError
from railopt.model.plan import Plan
from railopt.runtime.payload.layout import Layout
from railopt.runtime.rendezvous.launch import Launch
from railopt.runtime.rendezvous.meet import Meeting
from railopt.runtime.senders.protocol import Carrier
from railopt.runtime.senders.report import Report
from railopt.runtime.verbs.rails import Options


def _silent(text: str) -> None:
    """Says nothing."""


@dataclass(frozen=True)
class SenderConfig:
    """Everything that some sender needs to be opened; each takes what concerns it.

    room         the layout of the largest plan to come: how large buffers must be
    rails        of the plans
    run          names what all ranks must agree on
    verify       fill payloads with a pattern and compare them byte for byte
    stage        carry out the plan's copies inside nodes too
    launch       who the other ranks are, and `meeting` where they meet
    devices      this node's, in rail order (default: those with an active port, in PCI order)
    options      of the queue pairs
    out          where a record is written
    say          takes lines for the user: faults, wrong chunks
    seen         is called with each run's plan and report
    """

    room: Layout
    rails: int
    run: str = ""
    verify: bool = True
    stage: bool = False
    launch: Launch = field(default_factory=lambda: Launch("none", 0, 1))
    meeting: Meeting = field(default_factory=Meeting)
    devices: tuple[str, ...] | None = None
    options: Options = field(default_factory=Options)
    out: TextIO | None = None
    say: Callable[[str], None] = _silent
    seen: Callable[[Plan, Report], None] | None = None


def require_ranks(config: SenderConfig) -> None:
    """Refuse another number of ranks than the plan has nodes."""
    nodes, size = len(config.room.send_bytes), config.launch.size
    if nodes != size:
        raise InputError(
            f"the plan is for {nodes} nodes, this run has {size} ranks (one process per node)"
        )


class SenderKind(NamedTuple):
    """A sender by its name: how it is opened, a line of help, which options of a command act on it
    (see `LAUNCH`, `MEETING`, `RAILS`), and whether its runs move bytes, so that they can be timed.
    """

    opened: Callable[[SenderConfig], AbstractContextManager[Carrier]]
    help: str
    takes: frozenset[str]
    moves: bool = True


LAUNCH = frozenset({"hosts", "rank", "launcher"})
MEETING = frozenset({"secret_file", "port", "join", "bind"})
RAILS = frozenset(
    {
        "devices",
        "ib_port",
        "gid_index",
        "mtu",
        "sl",
        "tclass",
        "qp",
        "size",
        "depth",
        "batch",
        "ib_timeout",
        "ib_retry",
        "stall",
    }
)
METRICS = frozenset({"metrics", "metrics_port"})
REPORT = METRICS | {"no_verify", "format", "report_gbits", "adapt", "save_fabric", "stage"}
