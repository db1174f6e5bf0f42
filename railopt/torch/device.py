"""Routes and rows on the GPU: counts, plan and sizes stay there, and one copy of sizes comes to the
host, which is what NCCL's exchanges want (`railopt.cuda`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from railopt.base.errors import BackendError, InputError
from railopt.cuda.planner import POLICIES, unplanned
from railopt.cuda.routing import PieceTable, RouteKernels, TableOffsets
from railopt.torch import agree
from railopt.torch.routes import Route, Router
from railopt.torch.rows import DeviceRows
from railopt.torch.talk import counts_or_lost
from railopt.torch.ways import Exchange


def device_router(router: Router, group: Any, device: str | None) -> DeviceRouter | None:
    """A rank's routes on the GPU; None where its tensors are elsewhere, the policy has no kernel
    for the fabric or no room for its size, or CUDA for Python is missing.
    """
    if device != "cuda" or router.policy not in POLICIES or unplanned(router.policy, router.fabric):
        return None
    try:
        return DeviceRouter(router, group, f"cuda:{torch.cuda.current_device()}")
    except (BackendError, InputError):
        return None


class PlannedBuffer(NamedTuple):
    """A rank's buffer on the device after a plan, int64, and where what stands in it; `messages`
    [R, HEADER + 2 R] is what all ranks sent.
    """

    buffer: Any
    at: TableOffsets
    messages: Any

    def address(self, name: str) -> int:
        return int(self.buffer.data_ptr()) + 8 * int(getattr(self.at, name).start)

    def read(self) -> dict[str, list[int]]:
        """What the host has to know: the one copy, and the one wait."""
        known = self.buffer[: self.at.copies.stop].cpu().tolist()
        return {name: known[getattr(self.at, name)] for name in self.at._fields[:10]}


class DeviceRouter:
    """Plans the calls of one rank on its device, slots per rank for a dispatcher."""

    def __init__(self, router: Router, group: Any, device: Any) -> None:
        self.router, self.device, self._group = router, torch.device(device), group
        self.fabric = fabric = router.fabric
        self.routing = RouteKernels(
            fabric, router.rank, router.policy, router.pieces, router.via, agree.HEADER
        )
        self.rows = DeviceRows(self.routing.gpu, self.device)
        length = agree.HEADER + 2 * fabric.nodes * fabric.gpus
        pinned = self.device.type == "cuda"
        self._message = torch.zeros(length, dtype=torch.int64, device="cpu", pin_memory=pinned)

    def message(self, offer: agree.Offer) -> Any:
        """What this rank sends to all, on the device."""
        self._message.zero_()
        offer.write(self._message.numpy(), offer.call, offer.counts)
        return self._message.to(self.device, non_blocking=True, copy=True)

    def planned(self, message: Any, offer: agree.Offer, slots: int = 0) -> PlannedBuffer:
        """The plan of what all ranks send, from this one's message of its offer."""
        fabric = self.fabric
        ranks = fabric.nodes * fabric.gpus
        every = message.new_empty(ranks * len(message))
        self.exchanged(dist.all_gather_into_tensor, every, message)
        at = TableOffsets.of(fabric, slots)
        made = PlannedBuffer(message.new_zeros(at.came.stop), at, every.view(ranks, -1))
        work = message.new_empty(ranks * ranks + fabric.nodes)
        self.routing.plan(
            every.data_ptr(),
            offer.call == agree.SPLITS,
            work.data_ptr(),
            made.buffer.data_ptr(),
            made.at,
            self.rows.stream,
        )
        return made

    def exchanged(self, call: Any, out: Any, rows: Any) -> None:
        """A collective of all ranks."""
        with counts_or_lost():
            call(out, rows, group=self._group)

    def route(self, offer: agree.Offer) -> Route:
        """The route of what every rank offers."""
        made = self.planned(self.message(offer), offer)
        sizes = made.read()
        self.refuse(sizes["status"][0], made, offer)
        nodes, gpus = self.fabric.nodes, self.fabric.gpus
        ranks = nodes * gpus
        staged = Exchange("node", sizes["staged"], sizes["gathered"])
        carried = Exchange("rail", sizes["there"], sizes["here"])
        passed = Exchange("node", sizes["passed"], sizes["into"])
        tables = (
            ("own", ranks, gpus, gpus, 1, sum(staged.send)),
            ("blocks", gpus, nodes, nodes, 1, sum(staged.recv)),
            ("arrived", ranks, gpus, gpus, 1, sum(carried.recv)),
            ("came", gpus, ranks, 1, gpus, sum(passed.recv)),
        )
        picks = [self.rows.pick(length) for *_, length in tables]
        pieces = [
            PieceTable(
                made.address(name), a, b, c, d, pick.index.data_ptr(), pick.inverse.data_ptr()
            )
            for (name, a, b, c, d, _), pick in zip(tables, picks, strict=True)
        ]
        self.routing.expand(self.rows.stream, *pieces)
        way = (picks[0], staged, picks[1], carried, picks[2], passed, picks[3])
        sent, received = np.array(sizes["sent"]), np.array(sizes["received"])
        return Route(way, sent, received, np.zeros(0, np.int64))

    def refuse(self, status: int, made: PlannedBuffer, offer: agree.Offer) -> None:
        """Raise on every rank what `status` says, the same everywhere: something is wrong.  Rounds
        that follow are those of `agree.agreed`, which a rank may be in that plans on the host.
        """
        if not status:
            return
        messages, ranks = made.messages.cpu().numpy(), len(made.messages)
        if status & 3:
            agree.raise_unlike_heads(self._group, offer, messages[:, : agree.HEADER])
        messages = messages[:, agree.HEADER :]
        counts = np.ascontiguousarray(messages[:, :ranks])
        if status & 4:
            agree.raise_splits(counts, messages[:, ranks:].T)
        self.router.route(counts)  # which says why these can't be planned
        raise BackendError(f"the plan on the GPU failed with status {status >> 8}")
