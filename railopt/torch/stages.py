"""Exchange 2 in stages, in which no NIC sends to two or receives from two: peer after peer in a
fixed turn, or as a kind of `railopt schedule` orders them for the rows of a call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from railopt.base.arrays import Ints
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.schedule.kinds import KINDS
from railopt.schedule.synthesis import synthesise
from railopt.torch.ways import Turn


def unknown_stages(stages: Any) -> str:
    """Why these are no stages, in words; "" if they are."""
    known = [name for name, kind in KINDS.items() if kind.barriers]
    if isinstance(stages, bool) or stages in known:
        return ""
    return f"stages = {stages!r}: expected True, False, or one of {', '.join(known)}"


def scheduled(own: int, rows: Ints, kind: str) -> tuple[Turn, ...]:
    """The stages of a schedule of `rows` [member, member], NICs taken for equally fast."""
    between = rows * (1 - np.eye(len(rows), dtype=np.int64))
    schedule = synthesise(Fabric.uniform(len(rows), 1), Traffic(between, len(rows)), kind)
    turns = []
    for peer, sent in zip(schedule.peer.tolist(), schedule.sent.tolist(), strict=True):
        source = peer.index(own) if own in peer else -1
        if peer[own] >= 0 or source >= 0:
            turns.append(Turn(peer[own], sent[own], source, sent[source] if source >= 0 else 0))
    return tuple(turns)
