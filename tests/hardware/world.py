"""What scenarios in the guest stand on: one forked process a node, payloads, devices, sessions, and
how fast this emulation is.

The parent imports everything once (imports are slow under emulation) and never opens a device
itself. Payloads are random bytes; a receiver builds what it should have from the senders' seeds and
the layout alone, and compares byte for byte.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from railopt import Plan
from railopt.runtime.payload.layout import Layout
from railopt.runtime.payload.memory import Memory
from railopt.runtime.rendezvous.group import Group
from railopt.runtime.rendezvous.join import join
from railopt.runtime.rendezvous.launch import Launch
from railopt.runtime.senders.verbs import Verbs
from railopt.runtime.verbs.rails import Options

SECRET = b"a secret for the guest"
REFERENCE_S = 0.4  # of `slowness`, in a guest on a host of two idle cores
SLOWEST = 8.0  # budgets grow no further
BUDGET_S = 60.0  # of a scenario in such a guest
RAILS = Path(__file__).parent / "guest" / "rails.sh"
OUT = Path("/out")
FIRST = {2: 0, 4: 4}  # nodes -> number of their first rail
OUT_OF_TIME = "out of time"
Node = Callable[[int], dict[str, Any]]


def sh(command: str) -> None:
    subprocess.run(command, shell=True, check=True)


def rails(*words: object) -> None:
    subprocess.run([str(RAILS), *map(str, words)], check=True)


def slowness() -> float:
    """How many times slower than the reference this guest is: from a loop of Python."""
    began = time.perf_counter()
    sum(i * i for i in range(400_000))
    return (time.perf_counter() - began) / REFERENCE_S


class Pace:
    """Budgets of this guest: seconds of the reference, times how much slower it is (`factor`)."""

    factor = 1.0

    @classmethod
    def seconds(cls, reference_s: float) -> float:
        return reference_s * cls.factor


def payload(node: int, size: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.random.default_rng(node).integers(0, 256, size, dtype=np.uint8)


def expected(plan: Plan, layout: Layout, node: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """What `node`'s receive memory must hold."""
    sent = [payload(k, int(layout.send_bytes[k, 0])) for k in range(plan.fabric.nodes)]
    memory = np.zeros(int(layout.recv_bytes[node, 0]), np.uint8)
    for c in np.flatnonzero(plan.chunks.dst == node):
        size, source = plan.chunks.size[c], layout.send_offset[c]
        memory[layout.recv_offset[c] :][:size] = sent[plan.chunks.src[c]][source : source + size]
    return memory


def with_nodes(nodes: int, work: Node, budget_s: float = BUDGET_S) -> list[dict[str, Any]]:
    """Fork one process per node; what each returned, or how it ended."""
    children, began, limit = {}, time.monotonic(), Pace.seconds(budget_s)
    for node in range(nodes):
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(reader)
            faulthandler.dump_traceback_later(limit * 0.9)  # a hung node shows where
            result: dict[str, Any] = {}
            try:
                result = work(node)
            except BaseException as error:
                result = {
                    "error": type(error).__name__,
                    "text": str(error),
                    "exit_code": getattr(error, "exit_code", None),
                    "trace": traceback.format_exc()[-1500:],
                }
            result["seconds"] = time.monotonic() - began
            with os.fdopen(writer, "w") as file:
                json.dump(result, file)
            os._exit(0)
        os.close(writer)
        children[node] = pid, reader
    results = []
    for pid, reader in children.values():
        os.set_blocking(reader, True)
        signal.alarm(max(1, int(limit - (time.monotonic() - began))))
        try:
            with os.fdopen(reader) as file:
                text = file.read()
        except TimeoutError:
            text = json.dumps({"error": OUT_OF_TIME, "limit_s": limit})
            os.kill(pid, signal.SIGKILL)
        finally:
            signal.alarm(0)
        status = os.waitpid(pid, 0)[1]
        results.append(json.loads(text) if text else {"error": "killed", "status": status})
    return results


def on_alarm(number: int, frame: object) -> None:
    raise TimeoutError


def devices(nodes: int, node: int, rail_count: int) -> list[str]:
    """A node's devices; worlds of different size have rails of their own, made once and never taken
    down.
    """
    return [f"rx{node}_{FIRST[nodes] + n}" for n in range(rail_count)]


def session(
    node: int, nodes: int, rail_count: int, size: int, options: Options, *, cuda: bool = False
) -> tuple[Group, Verbs, Any, Any]:
    """A rank in its group, a sender, and its send and receive memory of `size` bytes; `cuda`: which
    the sender takes for a GPU's.
    """
    damping = options.damping._replace(trial_s=Pace.seconds(options.damping.trial_s))
    options = replace(options, stall_s=Pace.seconds(options.stall_s), damping=damping)
    launch = Launch("hosts", node, nodes, ("127.0.0.1",) * nodes)
    group = join(launch, SECRET, run="guest", port=18600, join_s=Pace.seconds(20))
    send, recv = np.zeros(size, np.uint8), np.zeros(size, np.uint8)
    given = [Memory(side.ctypes.data, size, side, cuda) for side in (send, recv)]
    names = devices(nodes, node, rail_count)
    return group, Verbs(group, names, *given, options=options), send, recv
