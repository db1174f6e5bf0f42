"""The verbs sender: one process per node, reliable queue pairs to each peer on each rail, RDMA
WRITEs exactly as planned.

Verbs opens and closes; verbs_run.py is a run's handle; rounds.py keeps the rounds and failover.py
mends them, failback.py brings dead links back; the engine posts and polls.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

from railopt.base.errors import InputError
from railopt.model.plan import Plan
from railopt.runtime.payload.layout import Layout
from railopt.runtime.payload.memory import memory_of, refuse_overlap, require_room
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.senders.failback import Failback
from railopt.runtime.senders.failover import Failover
from railopt.runtime.senders.rounds import Rounds
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
        self.group = group
        self.send = [memory_of(b, writable=False) for b in _buffers(send)]
        self.recv = [memory_of(b, writable=True) for b in _buffers(recv)]
        self.wiring = Wiring(group, rails, self.send, self.recv, options or Options(), lib)
        self.rounds = Rounds(group, self.wiring)
        self.failback = Failback(self.rounds)
        self.failover = Failover(self.rounds, self.failback)
        group.listen(self.rounds.on_message)

    def run(self, plan: Plan, layout: Layout | None = None) -> VerbsRun:
        """Start a run; `layout` says where the chunks lie (default: packed, see Layout.packed)."""
        if layout is None:  # which uses all of the buffers
            refuse_overlap(self.send, self.recv)
            layout = Layout.packed(plan.chunks, per_gpu=len(self.send) > 1)
        self.check(plan, layout)
        return self.begin(plan, layout, plan.digest)

    def begin(
        self, plan: Plan, layout: Layout, digest: str, alone: Sizes | None = None
    ) -> VerbsRun:
        """Start a run of chunks that fit; see `VerbsRun`."""
        if self.rounds.running is not None:
            raise InputError("the last run is not done: wait for it before the next one")
        self.failback.propose()
        with self.rounds.lock:
            return VerbsRun(self.rounds, plan, layout, digest, alone, self.failover.between_runs())

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
        require_room("send", [m.length for m in self.send], layout.send_bytes[group.rank])
        require_room("recv", [m.length for m in self.recv], layout.recv_bytes[group.rank])
        for peer, lengths in self.wiring.peers.items():
            require_room(f"{group.names[peer]}'s recv", lengths, layout.recv_bytes[peer])

    def close(self) -> None:
        """Retire and release everything that was opened; memory last."""
        with self.rounds.lock:
            self.rounds.closed = True
        self.failback.close()
        with self.rounds.lock:
            self.wiring.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is not None:
            self.group.abort(error)
        self.close()


def _buffers(given: Any) -> list[Any]:
    return list(given) if isinstance(given, list | tuple) else [given]
