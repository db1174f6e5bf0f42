"""What a planned all-to-all costs a rank beyond its collectives: 2 nodes x 4 GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import numpy as np

from railopt import Fabric
from railopt.torch.routes import Router
from tests.bench import Row, best

FABRIC, GOAL_US = Fabric.uniform(2, 4), 150


def counts() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 200, (8, 8))


def rows() -> Iterator[Row]:
    for policy in ("even-excess", "lpt", "own-nic", "spill"):
        router = Router(FABRIC, 1, policy)
        took = best(partial(router.route, counts()), 1000)
        goal = GOAL_US if policy == "even-excess" else None
        yield Row(f"route of a rank, 8 ranks, {policy}", took * 1e6, "us", at_most=goal)
    if find_spec("torch") is None:
        return
    for name, call, goal in calls():
        yield Row(name, best(call, 2000) * 1e6, "us", at_most=goal)


def calls() -> Iterator[tuple[str, Callable[[], Any], float | None]]:
    """Parts of a call of rank 1, whose collectives are left out."""
    import torch

    from railopt.torch import agree
    from railopt.torch.all_to_all import RailAllToAll
    from railopt.torch.autograd import into
    from railopt.torch.carry import Carrier

    class Still(Carrier):
        """Reorders, and leaves every exchange out."""

        def __init__(self) -> None:
            self._gloo, self._kept, self._last = {"node": False, "rail": False}, {}, None

        def _exchange(self, *_: Any) -> None:
            pass

    matrix = counts()
    send, recv = matrix[1].tolist(), matrix[:, 1].tolist()
    sent, out = torch.zeros(sum(send), 8), torch.empty(sum(recv), 8)
    heads = np.tile([0, 32, 1], (8, 1))
    message = np.concatenate([heads, matrix, matrix.T], axis=1)
    rails = object.__new__(RailAllToAll)
    rails.fabric, rails._router, rails._carrier = FABRIC, Router(FABRIC, 1), Still()
    rails._device, rails._all = "cpu", None

    def planned() -> Any:
        return rails.route(rails._offer(out, sent, recv, send))

    agree.gathered, agree.dist = lambda *_: message, SimpleNamespace(get_world_size=lambda _: 8)
    way = planned().way
    with torch.no_grad():
        yield "RailAllToAll, 8 ranks: checks, plan and split sizes", planned, GOAL_US
        move = partial(into, rails._carrier, way, sent, out)
        yield "RailAllToAll, 8 ranks: its four reorders, of 26 KB", move, None
