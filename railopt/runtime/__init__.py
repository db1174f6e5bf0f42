"""Carrying out plans: senders, the ranks they run on, and the memory they move.

    group = join(Launch("hosts", rank, 2, ("node1", "node2")), secret)
    with group, Verbs(group, ["mlx5_0", "mlx5_1"], send, recv) as sender:
        for plan in plans:              # a new plan every layer and iteration
            run = sender.run(plan)
            ...                         # compute; run.poll() makes progress
            report = run.wait()

`detect(os.environ)` finds the Launch, `join_mpi(comm)` joins where MPI launched us. Verbs connects
and registers once, when it is made.

`Loopback` and `Record` have the same `run`. `carry(plan, "loopback", SenderConfig(...))` does what
`railopt send` does, `measure(Benchmark(...), ...)` what `railopt bench` does. All is imported on
first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "Adapter": "adapt",
    "Benchmark": "benchmark",
    "Carried": "carried",
    "Damping": "verbs.rails",
    "Group": "rendezvous.group",
    "Launch": "rendezvous.launch",
    "Layout": "payload.layout",
    "LinkReport": "senders.report",
    "Loopback": "senders.loopback",
    "Meeting": "rendezvous.meet",
    "Metrics": "metrics",
    "Options": "verbs.rails",
    "Patience": "verbs.objects",
    "PeerLost": "rendezvous.wire",
    "Record": "senders.record",
    "Report": "senders.report",
    "RowSender": "senders.one_node",
    "Sender": "senders.protocol",
    "SenderConfig": "senders.config",
    "Verbs": "senders.verbs",
    "carry": "carried",
    "detect": "rendezvous.launch",
    "from_hosts": "rendezvous.launch",
    "join": "rendezvous.join",
    "join_mpi": "rendezvous.mpi",
    "measure": "benchmark",
    "meet": "rendezvous.meet",
    "served": "metrics",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'railopt.runtime' has no attribute {name!r}")
    return getattr(importlib.import_module(f"railopt.runtime.{_EXPORTS[name]}"), name)


def __dir__() -> list[str]:
    return __all__
