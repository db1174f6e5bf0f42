"""What a planned all-to-all costs a rank beyond its collectives: this process plays one rank, and
the rounds with the others are answered from memory.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from railopt import Fabric
from railopt.torch.routes import Router
from railopt.torch.tally import add, sums
from railopt.torch.ways import transposed
from tests.bench import Row, judged_once

FABRIC, GOAL_US, CALLS, RANK = Fabric.uniform(2, 4), 150, 2000, 1
# plan and sizes where nodes decide alone, by nodes and GPUs: what a rank may take
ALONE_US = {(2, 4): 200, (8, 8): 400, (64, 8): 500}


def counts(fabric: Fabric = FABRIC) -> np.ndarray:
    ranks = fabric.nodes * fabric.gpus
    return np.random.default_rng(0).integers(0, 200, (ranks, ranks))


def rows() -> Iterator[Row]:
    for policy in ("even-excess", "lpt", "own-nic", "spill"):
        router = Router(FABRIC, RANK, policy)
        name = f"plan of all nodes and split sizes of a rank, 2 x 4, {policy}"
        yield from timed(name, partial(router.route, counts()), GOAL_US)
    for name, call in parts():
        yield from timed(f"  of which {name}, even-excess", call, None)
    if find_spec("torch") is None:
        return
    for shape, goal in ALONE_US.items():
        for policy in ("even-excess", "lpt"):
            fabric = Fabric.uniform(*shape)
            name = f"each node alone, plan and sizes of a rank, {shape[0]} x {shape[1]}, {policy}"
            yield from timed(name, alone(fabric, policy), goal)
    yield from timed("copies of rows in four reorders, of 26 KB", copies(), None)


def timed(name: str, call: Callable[[], Any], goal_us: float | None) -> Iterator[Row]:
    """The fastest of many calls, and their median beside it."""
    call()
    took = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        call()
        took.append(time.perf_counter() - begin)
    middle = statistics.median(took) * 1e6
    goal = None if goal_us is None else goal_us * 1e-6
    yield from judged_once(name, min(took), "us", goal, f"median {middle:.0f} us")


def parts() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Parts of a route."""
    router, matrix = Router(FABRIC, RANK), counts()
    router.route(matrix)
    yield "the plan", partial(router._planned, matrix)
    pieces = router._planned(matrix)
    yield "rows of each rail group", lambda: add(pieces, router.via, RANK, router._tables)
    yield "split sizes", lambda: sums(router._tables, router._sums)
    yield "one of four reorders", partial(transposed, router._tables.own)


def alone(fabric: Fabric, policy: str) -> Callable[[], Any]:
    """A rank's part of a call: from what it offers to its way."""
    import torch

    from railopt.torch import agree, circle
    from railopt.torch.all_to_all import RailAllToAll
    from railopt.torch.groups import Groups

    matrix = counts(fabric)
    send, recv = matrix[RANK].tolist(), matrix[:, RANK].tolist()
    sent, out = torch.zeros(sum(send), 8), torch.empty(sum(recv), 8)
    rails: Any = object.__new__(RailAllToAll)
    rails.fabric, rails._router = fabric, Router(fabric, RANK, policy)
    rails._device, rails._made, rails._alone, rails._all = "cpu", "", True, "all"
    rails.agree_first, rails.limit_s, rails.on_device = True, None, None
    rails.stages(False)
    groups = Groups("node", "rail", "all")
    rails._circle = circle.Circle(groups, rails._router, None, trusts=False)
    others = counts_of_others(fabric, policy, matrix)
    heads = np.zeros((len(matrix), agree.HEADER + 1), np.int64)
    every = np.zeros((fabric.gpus, len(matrix) + 1), np.int64)
    every[:, :-1] = matrix[: fabric.gpus]
    received = np.concatenate([np.zeros((fabric.nodes, circle.HEAD), np.int64), others], axis=1)

    def gathered(group: str, message: np.ndarray, *_: Any) -> np.ndarray:
        if group == "all":
            heads[:] = message  # all bring the same
            return heads
        return every

    def exchanged(group: str, message: np.ndarray, *_: Any) -> np.ndarray:
        return received

    offer = rails._offer(out, sent, recv, send)

    def call() -> Any:
        circle.gathered, circle.exchanged, agree.gathered = gathered, exchanged, gathered
        return rails.route(offer)

    right = Router(fabric, RANK, policy).route(matrix)
    assert call().way == right.way
    return call


def counts_of_others(fabric: Fabric, policy: str, matrix: np.ndarray) -> np.ndarray:
    """[nodes, ...]: what the rank, of node 0, receives in its rail group."""
    gpus = fabric.gpus
    return np.stack(
        [
            Router(fabric, first + RANK, policy).decide(matrix[first : first + gpus])[0]
            for first in range(0, len(matrix), gpus)
        ]
    )


def copies() -> Callable[[], Any]:
    """The rows of a call through its reorders; exchanges are left out."""
    import torch

    from railopt.torch.autograd import into
    from railopt.torch.carry import WayCarrier

    class Still(WayCarrier):
        """Reorders, and leaves every exchange out."""

        def __init__(self) -> None:
            self._gloo, self._kept, self._last = {"node": False, "rail": False}, {}, None

        def _exchange(self, *_: Any) -> None:
            pass

    matrix = counts()
    sent, out = torch.zeros(matrix[RANK].sum(), 8), torch.empty(matrix[:, RANK].sum(), 8)
    way = Router(FABRIC, RANK).route(matrix).way
    return partial(into, Still(), way, sent, out)
