"""The kinds of schedules: one entry of KINDS each, nothing else to touch."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from railopt.base.arrays import Array
from railopt.schedule.compact import compact
from railopt.schedule.decompose import birkhoff, shifted

ORDERS = ("ascending", "descending", "built")


class ScheduleKind(NamedTuple):
    """What a kind of schedule does.

    decompose   server matrix int64 [n, n], spare bytes -> (peer, sent), both [stages, n]
    barriers    a stage starts when the one before is done; else all transfers start at once
    overlap     what runs beside the wire: "both" balance and redistribution, only "redistribution"
                (balance comes first, as in FAST), or "nothing"
    by_target   rails send to target GPU 0 first, then 1, ... (FAST's released order)
    order       of the stages, by their length
    help        one line
    tunable     `eps` and `startup` act on it
    chunked     bytes cut through in chunks instead of resting on a proxy GPU between phases
    """

    decompose: Callable[[Array, int], tuple[Array, Array]]
    barriers: bool
    overlap: str
    by_target: bool
    order: str
    help: str
    tunable: bool = False
    chunked: bool = False


KINDS: dict[str, ScheduleKind] = {
    "compact": ScheduleKind(
        compact,
        True,
        "both",
        False,
        "ascending",
        "ours: few stages, total within 1 + eps of the bound, balance and redistribution beside "
        "the wire",
        tunable=True,
    ),
    "pipelined": ScheduleKind(
        lambda matrix, spare: shifted(matrix),
        False,
        "both",
        False,
        "built",
        "ours: no stages at all; balance and redistribution follow chunk by chunk",
        chunked=True,
    ),
    "fast": ScheduleKind(
        lambda matrix, spare: birkhoff(matrix),
        True,
        "redistribution",
        True,
        "descending",
        "FAST (arXiv 2505.09764): balance, peer rule, Birkhoff stages, redistribution behind the "
        "next stage",
    ),
    "fast-nostage": ScheduleKind(
        lambda matrix, spare: shifted(matrix),
        False,
        "nothing",
        True,
        "built",
        "FAST's ablation: balance and peer rule, then all transfers at once, then redistribution",
    ),
    "spreadout": ScheduleKind(
        lambda matrix, spare: shifted(matrix),
        True,
        "redistribution",
        False,
        "built",
        "SpreadOut between balanced servers: stage d sends i -> i + d",
    ),
}
