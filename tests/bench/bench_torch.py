"""What a planned all-to-all costs a rank beyond its collectives: 8 ranks, 2 nodes x 4 GPUs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np

from railopt import Fabric
from railopt.torch.routes import Router
from railopt.torch.tally import add, sums
from railopt.torch.ways import transposed
from tests.bench import Row, judged_once

FABRIC, GOAL_US, CALLS = Fabric.uniform(2, 4), 150, 2000


def counts() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 200, (8, 8))


def rows() -> Iterator[Row]:
    for policy in ("even-excess", "lpt", "own-nic", "spill"):
        router = Router(FABRIC, 1, policy)
        yield from timed(
            f"plan and split sizes of a rank, {policy}", partial(router.route, counts()), GOAL_US
        )
    for name, call in parts():
        yield from timed(f"  of which {name}, even-excess", call, None)
    if find_spec("torch") is None:
        return
    for name, call, goal in calls():
        yield from timed(name, call, goal)


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
    router, matrix = Router(FABRIC, 1), counts()
    router.route(matrix)
    yield "the plan", partial(router._planned, matrix)
    pieces = router._planned(matrix)
    yield "rows of each rail group", lambda: add(pieces, router._via, 1, router._tables)
    yield "split sizes", lambda: sums(router._tables, router._sums)
    yield "one of four reorders", partial(transposed, router._tables.own)


def calls() -> Iterator[tuple[str, Callable[[], Any], float | None]]:
    """Parts of a call of rank 1, whose collectives are left out."""
    import torch

    from railopt.torch import agree
    from railopt.torch.all_to_all import RailAllToAll
    from railopt.torch.autograd import into
    from railopt.torch.carry import WayCarrier

    class Still(WayCarrier):
        """Reorders, and leaves every exchange out."""

        def __init__(self) -> None:
            self._gloo, self._kept, self._last = {"node": False, "rail": False}, {}, None

        def _exchange(self, *_: Any) -> None:
            pass

    matrix = counts()
    send, recv = matrix[1].tolist(), matrix[:, 1].tolist()
    sent, out = torch.zeros(sum(send), 8), torch.empty(sum(recv), 8)
    kind, made = agree.mark("float32 rows of shape (8,)"), agree.mark("")
    heads = np.tile([0, kind, made, agree.SPLITS], (8, 1))
    message = np.concatenate([heads, matrix, matrix.T], axis=1)
    rails = object.__new__(RailAllToAll)
    rails.fabric, rails._router, rails._carrier = FABRIC, Router(FABRIC, 1), Still()
    rails._device, rails._all, rails._made = "cpu", None, ""

    def planned() -> Any:
        return rails.route(rails._offer(out, sent, recv, send))

    agree.gathered, agree.dist = lambda *_: message, SimpleNamespace(get_world_size=lambda _: 8)
    way = planned().way
    with torch.no_grad():
        yield "checks of arguments and counts, plan and split sizes", planned, GOAL_US
        move = partial(into, rails._carrier, way, sent, out)
        yield "copies of rows in four reorders, of 26 KB", move, None
