"""The processes of an emulated fabric, one a GPU: PyTorch on gloo, each in a namespace of its own,
doing what the hub tells it.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from experiments.emulated_fabric import network
from experiments.emulated_fabric.cases import (
    OWN,
    PARAMETERS,
    PLAIN,
    STAGES,
    TOKENS,
    WHOLE,
    Call,
    Loads,
    copies_of,
)
from railopt import Fabric
from railopt.base.errors import BackendError, printable
from railopt.torch import ExpertLayer, Groups, RailAllToAll, TokenDispatcher
from railopt.torch.carry import WayCarrier
from railopt.torch.copies import ExpertSlots
from railopt.torch.groups import members
from railopt.torch.routes import Route
from railopt.torch.ways import Exchange

WAIT_S, LIMIT_S = 60.0, 120.0  # of one exchange; of all that a GPU is told at once
SETTLE_S = 0.05  # until acknowledgements are counted
PORT = 29500
MOST = 16  # processes

Once = Callable[[Any, Any], float]  # (output, input) -> when rows began to move


class Run(NamedTuple):
    """One run as one GPU saw it, in moments of the machine's monotonic clock.

    begin, ready, end   when it was called, when rows began to move, when they were there
    sent, received      (bytes, packets) of its NIC
    equal               whether what arrived is right
    """

    begin: float
    ready: float
    end: float
    sent: tuple[int, int]
    received: tuple[int, int]
    equal: bool


class Gpu:
    """What the hub may tell a GPU to do."""

    def __init__(self, fabric: Fabric, rank: int) -> None:
        self.fabric, self.rank = fabric, rank
        self.node, self.local = divmod(rank, fabric.gpus)

    def plugged(self, rate: int) -> None:
        """The cables are there."""
        network.address(self.node, self.local, self.fabric.gpus)
        network.limit("rail0", rate)

    def slowed(self, rate: int) -> None:
        """The NIC has another rate."""
        network.limit("rail0", rate)

    def joined(self) -> None:
        """Process groups: of the rail and of all on the NIC, of the node on scale-up."""
        ranks, wait = self.fabric.nodes * self.fabric.gpus, timedelta(seconds=WAIT_S)
        os.environ["GLOO_SOCKET_IFNAME"] = "ctl0"
        store = dist.TCPStore(network.CONTROL, PORT, ranks, self.rank == 0, timeout=wait)
        dist.init_process_group("gloo", store=store, rank=self.rank, world_size=ranks, timeout=wait)
        node, rail = members(self.fabric, self.rank)
        made = {}
        for name, device, some in (
            ("node", "su0", node),
            ("rail", "rail0", rail),
            ("wide", "rail0", range(ranks)),
        ):
            os.environ["GLOO_SOCKET_IFNAME"] = device
            made[name] = dist.new_group(list(some), wait, use_local_synchronization=True)
        os.environ["GLOO_SOCKET_IFNAME"] = "ctl0"
        self._groups, self._wide = Groups(made["node"], made["rail"]), made["wide"]
        self._direct = WayCarrier(Groups(made["wide"], made["wide"]), WAIT_S)

    def call(self, call: Call, loads: Loads) -> list[Run]:
        """The runs of a call, which is planned to put `loads` on NICs."""
        if call.layer is not None:
            return self._tokens(call) if call.layer.what == TOKENS else self._copies(call)
        send, recv = call.counts[self.rank].tolist(), call.counts[:, self.rank].tolist()
        sent = _rows([(self.rank, d, rows) for d, rows in enumerate(send)], call.width)
        right = _rows([(s, self.rank, rows) for s, rows in enumerate(recv)], call.width)
        runs = []
        once = self._plain(call.how, recv, send) if call.how in OWN else self._railed(call, loads)
        for _ in range(call.runs + 1):
            out = torch.zeros_like(right)
            runs.append(_run(partial(once, out, sent)))
            runs[-1] = runs[-1]._replace(equal=torch.equal(out, right))
        return runs[1:]

    def _tokens(self, call: Call) -> list[Run]:
        """Tokens to experts; what comes back from experts that do nothing must be what was sent."""
        layer = call.layer
        assert layer is not None
        copies, count = copies_of(call.fabric, layer), len(layer.home)
        options = {"groups": self._groups, "limit_s": WAIT_S}
        dispatcher = TokenDispatcher(
            call.fabric, count, layer.policy, placement=copies, groups=self._groups, limit_s=WAIT_S
        )
        slots = ExpertSlots(count, copies)
        rails = dispatcher.rails = Planned(call.fabric, layer.policy, experts=slots, **options)
        chosen = torch.from_numpy(layer.chosen[self.rank])
        width = (call.width - 12) // 4
        dice = torch.Generator().manual_seed(self.rank)
        x, ones, runs = (
            torch.rand((len(chosen), width), generator=dice),
            torch.ones(chosen.shape),
            [],
        )

        def once() -> float:
            dispatcher.dispatch(x, chosen, ones)
            return rails.ready

        for _ in range(call.runs + 1):
            run = _run(once)
            last = dispatcher._last
            runs.append(run._replace(equal=torch.equal(dispatcher.combine(last.tokens, last), x)))
        return runs[1:]

    def prepared(self, call: Call) -> None:
        """Make the layer of a call, and the process groups of its copies, while every NIC lives.
        Expert e has e + 1 everywhere.
        """
        given = call.layer
        if given is None or given.what == TOKENS:
            return
        size = call.width // 4 * int(np.gcd.reduce(call.counts[call.counts > 0]))
        os.environ["GLOO_SOCKET_IFNAME"] = "rail0"  # mates of the node are reached over scale-up
        self._layer = ExpertLayer(
            call.fabric,
            [Scaled(e + 1.0, size) for e in np.flatnonzero(given.home == self.rank).tolist()],
            copies_of(call.fabric, given),
            given.policy,
            template=Scaled(0.0, size),
            groups=self._groups,
            limit_s=WAIT_S,
        )
        os.environ["GLOO_SOCKET_IFNAME"] = "ctl0"
        self._layer(*_tokens(len(given.home)))  # which waits for the first parameters

    def _copies(self, call: Call) -> list[Run]:
        """Parameters of experts to their copies, or gradients of copies to their experts, timed by
        the layer.
        """
        assert call.layer is not None
        tokens = _tokens(len(call.layer.home))
        measure = self._trans if call.layer.what == PARAMETERS else self._agg
        return [measure(self._layer, tokens) for _ in range(call.runs + 1)][1:]

    def _trans(self, layer: Any, tokens: tuple[Any, ...]) -> Run:
        """Parameters sent; a call afterwards, whose tokens are not counted, says what arrived."""
        before = layer.trans.took_s

        def once() -> float:
            layer.send_parameters()
            futures.wait([future for future, _ in layer._sent])
            return 0.0

        run, out, right = _run(once), layer(*tokens), (tokens[1] + 1.0).expand(-1, 4)
        took = layer.trans.took_s - before
        return run._replace(begin=0.0, ready=0.0, end=took, equal=torch.equal(out, right))

    def _agg(self, layer: Any, tokens: tuple[Any, ...]) -> Run:
        """Gradients of copies sent by a backward pass, and waited for."""
        layer.zero_grad()
        made, before = layer(*tokens).sum(), layer.agg.took_s

        def once() -> float:
            made.backward()
            layer.sum_gradients()
            return 0.0

        run, ranks = _run(once), self.fabric.nodes * self.fabric.gpus
        grads = [expert.values.grad for expert in layer.experts]
        equal = all(bool((g[:4] == ranks).all() and not g[4:].any()) for g in grads)
        took = layer.agg.took_s - before
        return run._replace(begin=0.0, ready=0.0, end=took, equal=equal)

    def _plain(self, how: str, recv: list[int], send: list[int]) -> Once:
        """PyTorch's own all-to-all, or the same bytes with every receive posted first."""

        def once(out: Any, sent: Any) -> float:
            begin = time.monotonic()
            if how == PLAIN:
                dist.all_to_all_single(out, sent, recv, send, group=self._wide)
            else:
                self._direct.carry((Exchange("rail", send, recv),), sent, out)
            return begin

        return once

    def _railed(self, call: Call, loads: Loads) -> Once:
        """Along planned rails; the plan has to be the one that was predicted from."""
        whole = call.how.endswith(WHOLE)
        made = RailAllToAll if whole else Planned
        rails = made(call.fabric, call.policy, groups=self._groups, limit_s=WAIT_S)
        rails.stages(call.how.endswith(STAGES))
        recv, send = call.counts[:, self.rank].tolist(), call.counts[self.rank].tolist()

        def once(out: Any, sent: Any) -> float:
            begin = time.monotonic()
            rails.all_to_all_single(out, sent, recv, send, counts=None if whole else call.counts)
            if rails.last is None or (rails.last.sent != loads.sent[self.node]).any():
                raise BackendError("this GPU has another plan than the one predicted from")
            return begin if whole else rails.ready

        return once


class Scaled(torch.nn.Module):  # type: ignore[misc]
    """An expert of `size` numbers that multiplies each row by the first of them."""

    def __init__(self, value: float, size: int) -> None:
        super().__init__()
        self.values = torch.nn.Parameter(torch.full((size,), value))

    def forward(self, rows: Any) -> Any:
        return rows * self.values[: rows.shape[1]]


class Planned(RailAllToAll):
    """A `RailAllToAll` that waits for all when it has planned.

    ready    when all had: what follows is carrying the plan out.  The GPUs of an emulated fabric
             share few cores for their plans, which nodes do not
    """

    ready = 0.0

    def route(self, *arguments: Any, **options: Any) -> Route:
        route = super().route(*arguments, **options)
        dist.barrier()
        self.ready = time.monotonic()
        return route


def _run(once: Callable[[], float]) -> Run:
    """One run of an all-to-all; what it returns is when rows began to move."""
    dist.barrier()
    before, begin = network.counters("rail0"), time.monotonic()
    ready = once()
    end = time.monotonic()
    dist.barrier()
    time.sleep(SETTLE_S)
    after = network.counters("rail0")
    moved = [
        (after[side][0] - before[side][0], after[side][1] - before[side][1])
        for side in ("sent", "received")
    ]
    return Run(begin, ready, end, moved[0], moved[1], False)


def _tokens(experts: int) -> tuple[Any, Any, Any]:
    """A token of ones for every expert, its expert, its weight."""
    return torch.ones((experts, 4)), torch.arange(experts)[:, None], torch.ones((experts, 1))


def _rows(messages: list[tuple[int, int, int]], width: int) -> Any:
    """uint8 [rows, width]: what (source, destination, rows) say, each its own random bytes."""
    parts = []
    for source, target, rows in messages:
        dice = torch.Generator().manual_seed(1000 * source + target)
        parts.append(torch.randint(0, 256, (rows, width), dtype=torch.uint8, generator=dice))
    return torch.cat(parts)


class Ranks:
    """The hub's side: all GPUs of a fabric, told at once, waited for only so long."""

    def __init__(self, fabric: Fabric, rate: int) -> None:
        self.fabric, self.rate = fabric, rate
        self._ends: list[Any] = []
        self.processes: list[Any] = []

    def tell(self, name: str, *arguments: Any, only: int | None = None) -> list[Any]:
        """What each GPU (or one) answers to `Gpu.name(*arguments)`, by rank."""
        ends = self._ends if only is None else [self._ends[only]]
        for end in ends:
            end.send((name, arguments))
        deadline = time.monotonic() + LIMIT_S
        answers = []
        for rank, end in enumerate(ends):
            if not end.poll(max(0.0, deadline - time.monotonic())):
                raise BackendError(f"GPU {rank} has not answered {name!r} after {LIMIT_S:g} s")
            fine, answer = end.recv()
            if not fine:
                raise BackendError(f"GPU {rank}, {name}: {printable(answer, 400)}")
            answers.append(answer)
        return answers

    def start(self) -> None:
        """Fork the GPUs, each into its namespace."""
        context = mp.get_context("fork")
        ranks = self.fabric.nodes * self.fabric.gpus
        if ranks > MOST:
            raise BackendError(f"{ranks} processes: at most {MOST}")
        for rank in range(ranks):
            here, there = context.Pipe()
            gpu = Gpu(self.fabric, rank)
            process = context.Process(target=_live, args=(gpu, there), daemon=True)
            process.start()
            self._ends.append(here)
            self.processes.append(process)
        self.tell("__repr__")  # each is in its namespace once it answers

    def join(self) -> None:
        """Cables, rates and process groups."""
        network.bridges(self.fabric.nodes, self.fabric.gpus)
        for rank, process in enumerate(self.processes):
            node, local = divmod(rank, self.fabric.gpus)
            network.plug(node, local, process.pid)
            network.limit(f"r{node}-{local}", self.rate)
        self.tell("plugged", self.rate)
        self.tell("joined")

    def end(self) -> None:
        """Kill the GPUs; their namespaces go with them."""
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()

    @contextmanager
    def fault(self, nic: tuple[int, int], share: float) -> Iterator[None]:
        """NIC (node, rail) at a share of its rate at both ends, or dead, for a while."""
        node, local = nic
        cable = f"r{node}-{local}"
        if share == 0:
            network.batch("ip", [f"link set {cable} down"])
        else:
            self._rate(nic, round(self.rate * share))
        yield
        if share == 0:
            network.batch("ip", [f"link set {cable} up"])
        else:
            self._rate(nic, self.rate)

    def _rate(self, nic: tuple[int, int], rate: int) -> None:
        network.limit(f"r{nic[0]}-{nic[1]}", rate)
        self.tell("slowed", rate, only=nic[0] * self.fabric.gpus + nic[1])


@contextmanager
def running(fabric: Fabric, rate: int) -> Iterator[Ranks]:
    """The GPUs of a fabric whose NICs have `rate` bytes a second; none outlives the context."""
    torch.set_num_threads(1)
    network.enter()
    made = Ranks(fabric, rate)
    try:
        made.start()
        made.join()
        yield made
    finally:
        made.end()


def _live(gpu: Gpu, end: Any) -> None:
    network.die_with_parent()
    network.enter()
    while True:
        name, arguments = end.recv()
        try:
            end.send((True, getattr(gpu, name)(*arguments)))
        except Exception as error:
            traceback.print_exc()
            end.send((False, f"{type(error).__name__}: {error}"))
