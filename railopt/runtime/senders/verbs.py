"""The verbs sender: one process per node, reliable queue pairs to each peer on each rail, RDMA
WRITEs exactly as planned.

Verbs opens and closes; verbs_run.py is a run's handle; rounds.py keeps the rounds and failover.py
mends them, failback.py brings dead links back; the engine posts and polls.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from railopt.base.errors import InputError
from railopt.model.plan import Plan
from railopt.runtime.payload.layout import Layout
from railopt.runtime.payload.memory import memory_of, refuse_overlap
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.senders.failback import Failback
from railopt.runtime.senders.failover import Failover
from railopt.runtime.senders.rounds import Rounds, Transfer
from railopt.runtime.senders.verbs_run import VerbsRun
from railopt.runtime.verbs.lib import Library
from railopt.runtime.verbs.rails import Options
from railopt.runtime.verbs.wiring import Wiring

if TYPE_CHECKING:
    from railopt.runtime.senders.one_node import Sizes


class Verbs:
    """Carries out plans between the ranks of a group.

    group   the other ranks; one per node of the plan
    rails   names of this node's devices in rail order
    send    this node's send memory: one buffer, or a list of one per GPU; likewise recv. Registered
            once, here
    """

    name = "verbs"

    def __init__(
        self,
        group: Group,
        rails: Sequence[str],
        send: Any,
        recv: Any,
        *,
        options: Options | None = None,
        lib: Library | None = None,
    ) -> None:
        self.group, self.options = group, options or Options()
        self.send = [memory_of(b, writable=False) for b in _buffers(send)]
        self.recv = [memory_of(b, writable=True) for b in _buffers(recv)]
        self.wiring = Wiring(group, rails, self.send, self.recv, self.options, lib)
        self.rounds = Rounds(group, self.wiring)
        self._failback = Failback(self.rounds, self.options)
        self._failover = Failover(self.rounds, self._failback)
        group.listen(self.rounds.on_message)

    def run(self, plan: Plan, layout: Layout | None = None) -> VerbsRun:
        """Start a run; `layout` says where the chunks lie (default: packed, see Layout.packed)."""
        self._check_idle()
        if layout is None:  # which uses all of the buffers
            refuse_overlap(self.send, self.recv)
            layout = Layout.packed(plan.chunks, per_gpu=len(self.send) > 1)
        self.check(plan, layout)
        return self.begin(plan, layout, plan.digest)

    def begin(
        self, plan: Plan, layout: Layout, digest: str, alone: Sizes | None = None
    ) -> VerbsRun:
        """Start a run of chunks that fit; see `Transfer`."""
        self._check_idle()
        self._failback.propose()
        with self.rounds.lock:
            transfer = Transfer(
                plan,
                layout,
                time.perf_counter(),
                plan.rail.astype(np.int64),
                digest,
                alone,
                self._failover.between_runs(),
            )
            return VerbsRun(self.rounds, transfer, self.options.stall_s)

    def _check_idle(self) -> None:
        if self.rounds.running is not None:
            raise InputError("the last run is not done: wait for it before the next one")

    def check(self, plan: Plan, layout: Layout) -> None:
        """Refuse a plan that does not fit this world, these rails or these buffers."""
        group, rails = self.group, self.wiring.rails
        if plan.fabric.nodes != group.size:
            raise InputError(
                f"the plan is for {plan.fabric.nodes} nodes, this run has {group.size} ranks"
            )
        if plan.fabric.rails != len(rails):
            raise InputError(
                f"the plan is for {plan.fabric.rails} rails, this node has {len(rails)} "
                f"({', '.join(r.device.name for r in rails)})"
            )
        mine = [
            ("send", layout.send_bytes[group.rank], [m.length for m in self.send]),
            ("recv", layout.recv_bytes[group.rank], [m.length for m in self.recv]),
        ]
        mine += [
            (f"{group.names[k]}'s recv", layout.recv_bytes[k], p.length)
            for k, p in self.wiring.peers.items()
        ]
        for what, needed, there in mine:
            if len(needed) != len(there) or any(
                n > have for n, have in zip(needed.tolist(), there, strict=True)
            ):
                raise InputError(
                    f"{what} buffers of {there} bytes, the plan needs {needed.tolist()}"
                )

    def close(self) -> None:
        """Retire and release everything that was opened; memory last."""
        with self.rounds.lock:
            self.rounds.closed = True
        self._failback.close()
        with self.rounds.lock:
            self.wiring.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            self.group.abort(error)
        self.close()


def _buffers(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]
