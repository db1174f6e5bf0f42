"""A whole world of verbs senders in one process: one thread a node, the null driver, a real
rendezvous on localhost, with a relay between each rank and rank 0.
"""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from railopt import Fabric, Plan, workloads
from railopt import plan as make_plan
from railopt.runtime.payload import verify
from railopt.runtime.payload.layout import Layout
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.join import join
from railopt.runtime.rendezvous.launch import Launch
from railopt.runtime.senders.verbs import Verbs
from railopt.runtime.verbs.rails import Damping, Options
from tests.contract.relay import Relay, Tamper
from tests.doubles.null_verbs import NullLibrary

SECRET = b"sixteen letters or more"
_PORTS = random.SystemRandom()  # processes that run beside each other draw others


def free_port() -> int:
    """A port that nobody listens on just now, of those that no socket without one is given: the
    tests that run beside this one have many of these.
    """
    while True:
        port = _PORTS.randrange(1 << 14, 1 << 15)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def small_plan(
    nodes: int, rails: int, policy: str = "lpt", *, seed: int = 0, mean: str = "6KiB"
) -> Plan:
    fabric = Fabric.uniform(nodes, rails)
    return make_plan(fabric, workloads.zipf(fabric, mean=mean, seed=seed).chunks("1KiB"), policy)


# a link that dies is not probed while a test runs, however slow the machine is
STAYS_DEAD = Options(batch=4, depth=16, stall_s=20, damping=Damping(first_s=60, most_s=60))


@dataclass
class World:
    """Nodes x rails of null devices; `results[k]` is what node k's work returned or raised."""

    nodes: int
    rails: int
    options: Options = STAYS_DEAD
    max_message: int = 1 << 30
    tamper: dict[int, Tamper] = field(default_factory=dict)
    join_s: float = 10
    limit_s: float = 60
    options_of: dict[int, Options] = field(default_factory=dict)

    def __post_init__(self) -> None:
        names = [f"null{k}_{n}" for k in range(self.nodes) for n in range(self.rails)]
        self.lib = NullLibrary(names, max_message=self.max_message)
        self.results: list[Any] = [None] * self.nodes

    def group(self, node: int, port: int) -> Group:
        launch = Launch("hosts", node, self.nodes, ("127.0.0.1",) * self.nodes)
        door = port if node == 0 else self.relays[node].port
        return join(launch, SECRET, run="test", port=door, join_s=self.join_s)

    def vanish(self, node: int) -> None:
        """What the others see of a process that was killed: its connections end without a
        goodbye. Without rank 0 all end.
        """
        gone = [relay for rank, relay in self.relays.items() if node in (0, rank)]
        for relay in gone:
            relay.mute = True  # a dead rank 0 does not tell one rank that another was cut off
        for relay in gone:
            relay.cut()

    def run(self, work: Callable[[Verbs], Any], size: int = 1 << 20) -> list[Any]:
        """Call `work(sender)` on every node, each in its thread; an exception is that node's
        result.
        """

        def opened(group: Group) -> Any:
            node = group.rank
            devices = [f"null{node}_{n}" for n in range(self.rails)]
            send, recv = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
            options = self.options_of.get(node, self.options)
            with Verbs(group, devices, send, recv, options=options, lib=self.lib) as sender:
                return work(sender)

        return self.run_groups(opened)

    def run_groups(self, work: Callable[[Group], Any]) -> list[Any]:
        """As `run`, of the ranks without a sender: `work(group)`."""
        port = free_port()
        self.relays = {k: Relay(port, self.tamper.get(k)) for k in range(1, self.nodes)}

        def node_main(node: int) -> None:
            try:
                with self.group(node, port) as group:
                    self.results[node] = work(group)
            except Exception as error:
                self.results[node] = error

        threads = [
            threading.Thread(target=node_main, args=(k,), daemon=True) for k in range(self.nodes)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(self.limit_s)
        for relay in self.relays.values():
            relay.close()
        assert not any(thread.is_alive() for thread in threads), "a node hangs"
        return self.results


def carry(
    sender: Verbs, plan: Plan, seed: int, before: Callable[[], None] | None = None
) -> tuple[int, Any]:
    """Fill, run and verify: (wrong chunks, report)."""
    layout, node = Layout.packed(plan.chunks), sender.group.rank
    verify.fill(plan, layout, node, sender.send, seed)
    sender.group.allgather(f"start {seed}")
    if before is not None:
        before()
    report = sender.run(plan).wait()
    return len(verify.wrong(plan, layout, node, sender.recv, seed)), report
