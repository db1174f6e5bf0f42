"""Traffic -> Schedule, by one of the KINDS: a pure function that every node computes alike."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

from railopt.base.arrays import Array, frozen, require_type
from railopt.base.errors import InputError
from railopt.base.units import parse_bytes, parse_number, quoted
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.schedule.compact import INT64_MAX, GoOn, compact_asking, compact_tapered
from railopt.schedule.decompose import longest_line
from railopt.schedule.kinds import KINDS, ORDERS, ScheduleKind
from railopt.schedule.order import by_length, taper
from railopt.schedule.pieces import node_matrix
from railopt.schedule.quickest import quickest
from railopt.schedule.rates import equal_bytes, pair_rates, real_bytes
from railopt.schedule.value import Schedule, require_two_levels

PART = 50
DEFAULT_EPS = Fraction(1, PART)
FEW = 3  # servers up to which stages that add up to exactly L are hardly more of them
TRADED = 4  # servers up to which several lists of stages are tried where a start-up is given
DEFAULT_STARTUP = 1 << 18
_ALIKE = frozen(np.zeros((0, 0), np.int64), np.int64, "worth", 2)  # up and down of NICs alike
MANY = 256  # servers whose stages take so long that Ctrl-C and a limit are handled meanwhile


def synthesise(
    fabric: Fabric,
    traffic: Traffic,
    kind: str = "compact",
    *,
    order: str | None = None,
    eps: Fraction | str | int | None = None,
    startup: str | int | None = None,
    go_on: GoOn | None = None,
) -> Schedule:
    """The schedule of a kind: a pure function of the traffic matrix, so every node computes the
    same one.

    order    "ascending" or "descending" by length, or "built"; default: that of the kind.  An
             ascending compact schedule has short stages at both ends (see `taper`; or `startup`)
    eps      compact only: the stages' total is at most (1 + eps) L; 0 gives exactly L, in up to
             n**2 stages.  Default 1/50, and 0 for up to 3 servers
    startup  compact in ascending order only: what two servers could exchange while a stage starts;
             no stage is split where that costs more than it hides.  Default 256 KiB.  Where it is
             given without eps, up to 4 servers have the stages that last shortest of several
             lists (see `quickest`), also longer ones that save start-ups
    go_on    compact of many servers only: asked every second or so, with the share of the bytes
             that have a stage, whether to search on; what is left then goes as in `spreadout`

        >>> from railopt import Fabric, Traffic, synthesise
        >>> fabric = Fabric.uniform(nodes=3, rails=1)
        >>> traffic = Traffic.from_matrix([[0, 5, 3], [2, 0, 4], [6, 1, 0]], fabric)
        >>> synthesise(fabric, traffic).peer.tolist()    # a row per stage
        [[2, -1, 0], [2, 0, 1], [1, 2, 0]]
    """
    require_type(fabric, Fabric, "fabric", "a Fabric")
    require_type(traffic, Traffic, "traffic", "Traffic (Traffic.from_matrix makes it of a matrix)")
    chosen, order, tapers = _chosen(kind, order, eps, startup)
    require_two_levels(fabric, traffic)
    alike = fabric.is_uniform
    up, down = (_ALIKE, _ALIKE) if alike else pair_rates(fabric)[2:4]
    if tapers and eps is None and traffic.nodes < MANY:
        part, ends = PART if traffic.nodes > FEW else int(INT64_MAX), _ends(startup, fabric)
        peer, sent = compact_tapered(traffic.bytes, traffic.nodes, (up, down), part, *ends)
        if startup is not None and traffic.nodes <= TRADED:
            return quickest(fabric, traffic, (peer, sent), part, _worth(startup), ends)
    else:
        real = node_matrix(traffic.bytes, traffic.nodes)
        matrix = real if alike else equal_bytes(real, up, down)
        spare = _spare(matrix, eps) if chosen.tunable else 0
        if chosen.tunable and traffic.nodes >= MANY:
            peer, sent = compact_asking(matrix, spare, go_on or (lambda share: True))
        else:
            peer, sent = chosen.decompose(matrix, spare)
        if tapers:
            peer, sent = taper(peer, sent, *_ends(startup, fabric))
        elif order != "built":
            peer, sent = by_length(peer, sent, order == "descending")
        if not alike:
            peer, sent = real_bytes(real, peer, sent, up, down)
    peer.setflags(write=False)
    sent.setflags(write=False)
    return Schedule(fabric, traffic, kind, order, peer, sent)


def _chosen(
    kind: str, order: str | None, eps: Fraction | str | int | None, startup: str | int | None
) -> tuple[ScheduleKind, str, bool]:
    """The kind, the order of its stages, and whether short stages are put at both ends."""
    if kind not in KINDS:
        raise InputError(f"unknown kind of schedule {kind!r}; known kinds: {', '.join(KINDS)}")
    chosen = KINDS[kind]
    order = chosen.order if order is None else order
    if order not in ORDERS:
        raise InputError(f"unknown order of stages {order!r}; known orders: {', '.join(ORDERS)}")
    tapers = chosen.tunable and order == "ascending"
    if eps is not None and not chosen.tunable:
        raise InputError(f"eps can't do anything for a schedule of kind {kind}: leave it out")
    if startup is not None and not tapers:
        raise InputError(
            f"startup can't do anything for a schedule of kind {kind} in order {order}: it splits "
            "the ends of ascending compact ones; leave it out"
        )
    return chosen, order, tapers


@lru_cache(maxsize=16)
def _ends(startup: str | int | None, fabric: Fabric) -> tuple[int, int, int]:
    """How `taper` makes short stages: (least, group, step).

    A further part of a stage costs a start-up and hides what scale-up moves of it.  So it has to be
    longer than `startup` by as much as scale-up is faster than a NIC; where servers have one GPU
    there is nothing to hide, and where they have two, half the bytes are there already.  The next
    part may be shorter by as much as scale-up is faster than the NICs whose bytes one GPU could
    get.  Parts are whole numbers of bytes per rail where a start-up takes less than a byte of each.
    """
    alone = _worth(startup)
    group = fabric.rails if fabric.is_uniform and alone < fabric.rails else 1
    if fabric.gpus == 1:
        return int(INT64_MAX), group, 1
    faster = fabric.scaleup // fabric.living_rates[-1]
    least = min(int(INT64_MAX), alone * max(2, faster) // (1 if fabric.gpus == 2 else 2))
    others = fabric.rails - fabric.rails // fabric.gpus
    return least, group, max(1, (faster // others).bit_length() - 1)


def _worth(startup: str | int | None) -> int:
    """A start-up in bytes."""
    if startup is None:
        return DEFAULT_STARTUP
    return 0 if startup in (0, "0") else parse_bytes(startup)


def _spare(matrix: Array, eps: Fraction | str | int | None) -> int:
    """The bytes that the stages may last beyond L: eps L, rounded down."""
    few = Fraction(0) if len(matrix) <= FEW else DEFAULT_EPS
    share = few if eps is None else _share(eps)
    return int(longest_line(matrix)) * share.numerator // share.denominator


def _share(eps: Fraction | str | int) -> Fraction:
    """eps as it was given, from 0 to 1."""
    try:
        share = parse_number(eps, "share")
    except InputError as error:
        raise InputError(f"eps = {error}") from error
    if not 0 <= share <= 1:
        raise InputError(f"eps = {quoted(eps)}: expected 0 to 1")
    return share
