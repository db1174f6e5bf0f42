"""MoE dispatch and combine in which a token goes to a node once.

A token is sent to each node that has one of its experts, on the rail that a policy chose, and there
passed on once to each GPU that has one.  On the way back each GPU adds up its experts' results,
then each node, then the token's own rank.  Expert e is on rank e // (experts / ranks), or where a
placement has it: then a token goes to one of its copies (`railopt.torch.copies`).

    source rank --unit--> the rail's GPU of the node --copy--> each GPU --row--> each expert
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from railopt.base.arrays import Ints, whole_number
from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.moe.placement.placement import Placement
from railopt.torch import agree
from railopt.torch.all_to_all import NicBytes, RailAllToAll
from railopt.torch.copies import Copies, ExpertSlots
from railopt.torch.spread import DeviceDispatcher, DeviceTrail, DispatchRoom, unknown_choices
from railopt.torch.talk import gathered
from railopt.torch.ways import Exchange, Way, back

INDICES = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Trail(NamedTuple):
    """How rows of a dispatch came, so that `combine` can return them.

    number      which dispatch of the dispatcher it was
    tokens      tokens of this rank
    token       [U]: the token of each unit that this rank sent
    way         the way of units to nodes
    units       units that arrived at this rank
    unit        [C]: the arrived unit of each copy that this rank passed on
    passed      the exchange of copies inside the node
    copies      copies that arrived at this rank
    copy        [P]: the arrived copy of each row for an expert
    """

    number: int
    tokens: int
    token: Any
    way: Way
    units: int
    unit: Any
    passed: Way
    copies: int
    copy: Any


class Dispatched(NamedTuple):
    """What this rank's experts work on.

    tokens             [P, H] rows by local expert, then by source rank, token and choice
    tokens_per_expert  int64 [local experts]: rows of each expert of `held`, on the CPU
    weights            [P]: the weight of each row
    trail              for `combine`
    """

    tokens: Any
    tokens_per_expert: Any
    weights: Any
    trail: Trail | DeviceTrail


class TokenDispatcher:
    """Dispatches tokens to `experts` experts, as many on every rank of a fabric, or placed with
    copies by `placement`.

        >>> dispatcher = TokenDispatcher(fabric, experts=64)
        >>> rows = dispatcher.dispatch(x, topk_idx, topk_weights)
        >>> y = dispatcher.combine(experts_of_this_rank(rows.tokens, rows.tokens_per_expert), rows)

    placement   a `Copies` of `railopt.torch`, or a Placement of one layer
    capacity    on a GPU: (units from a GPU to a node, rows of an expert), constants, so that
                nothing waits for the device and a CUDA graph can capture it.  A unit or row beyond
                is left out, tokens and source ranks in order; `check` says so on every rank.  Rows
                of an expert are then as many as that, zeros behind those that came

    options     group, groups, limit_s and agree_first of `RailAllToAll`

    `rails.last` has the bytes per NIC.  `held`
    are the experts of this rank, ascending.
    """

    def __init__(
        self,
        fabric: Fabric,
        experts: int,
        policy: str = "even-excess",
        *,
        placement: Copies | Placement | None = None,
        capacity: tuple[int, int] | None = None,
        **options: Any,
    ) -> None:
        self.experts, self._dispatches = experts, 0
        self.note = ""  # what else ranks compare at a dispatch, in words
        slots = ExpertSlots(experts, as_copies(placement))
        self.rails = RailAllToAll(fabric, policy, experts=slots, **options)
        self.fabric = fabric
        self._there = self._on_device(capacity)
        self._use(slots)
        self._last: Dispatched | None = None

    def place(self, placement: Copies | Placement | None, found: str = "") -> None:
        """Dispatch by another placement from now on; every rank calls this.  None: expert e on rank
        e // (experts / ranks).  `found` is what a caller finds wrong with it, to be said by all.
        """
        slots = ExpertSlots(self.experts, as_copies(placement))
        self.rails.remake(slots, lambda: found)
        self._use(slots)

    def _on_device(self, capacity: Any) -> DeviceDispatcher | None:
        """Dispatches on the GPU, where routes are made there."""
        router, room, problem = self.rails.on_device, None, ""
        if capacity is not None:
            try:
                units, rows = (whole_number(n, "capacity", 1, 2**31 - 1) for n in capacity)
                room = DispatchRoom(units, rows)
            except (TypeError, ValueError, InputError) as error:
                problem = f"capacity {capacity!r}: expected two whole numbers ({error})"
            if router is None:
                problem = "capacity= is for tensors on a GPU and policies that plan there"
        agree.same(self.rails.groups.all, f"capacity {room}", problem)
        if router is None:
            return None
        rails, careful = self.rails, self.rails.agree_first
        given = router, rails.carrier, rails.groups.all, room, rails.in_stages
        return DeviceDispatcher(*given, careful=careful)

    def _use(self, slots: ExpertSlots) -> None:
        self.placement = slots.copies
        self._table = slots.table(self.fabric, self.rails.rank)
        self.held, self._slots = self._table.held, self._table.slots
        if self._there is not None:
            self._there.use(self._table, self.experts, slots.copies is not None)

    def check(self) -> None:
        """Raise on every rank what any has left out beyond its capacity since the last check; every
        rank calls this.
        """
        if self._there is not None:
            self._there.check()

    def dispatch(self, x: Any, topk_idx: Any, topk_weights: Any) -> Dispatched:
        """Tokens to their experts.  Differentiable in `x` and `topk_weights`.

        x             [T, H]
        topk_idx      [T, K] experts of each token; -1 chooses none
        topk_weights  [T, K]
        """
        fabric, rank = self.fabric, self.rails.rank
        problem = self._unfit(x, topk_idx, topk_weights)
        if self._there is not None:
            return self._dispatched(x, topk_idx, topk_weights, problem)
        if not problem and self.placement is not None:
            topk_idx = self._table.chosen(topk_idx)
        token, send = (topk_idx, None) if problem else self._units(topk_idx)
        route = self.rails.route(_offer(x, topk_weights, send, problem, self.note), to_nodes=True)
        self._dispatches += 1
        units = int(route.sources.sum())
        info = torch.cat([topk_idx[token], token[:, None]], dim=1).to(torch.int32)
        x, weights, info = self.rails.along(route.way, units, x[token], topk_weights[token], info)
        source = torch.repeat_interleave(torch.from_numpy(route.sources)).to(info)
        info = torch.cat([info, source[:, None]], dim=1)

        first = rank // fabric.gpus * fabric.gpus
        gpu, unit = _marked(info[:, :-2] // self._slots - first, fabric.gpus)
        passed, copies = self._passed(gpu)
        x, weights, info = self.rails.along(passed, copies, x[unit], weights[unit], info[unit])

        copy, choice, per_expert = self._rows(info)
        sent = (self._dispatches, len(topk_idx), token, route.way, units)
        trail = Trail(*sent, unit, passed, copies, copy)
        self._last = Dispatched(x[copy], per_expert, weights[copy, choice], trail)
        return self._last

    def _dispatched(self, x: Any, idx: Any, weights: Any, problem: str) -> Dispatched:
        """`dispatch` on the GPU."""
        assert self._there is not None
        offer = self.rails.stamped(_offer(x, weights, np.zeros(0, np.int64), problem, self.note))
        self._dispatches += 1
        *found, nics = self._there.dispatch(x, idx, weights, offer, self._dispatches)
        self.rails.last = NicBytes(*nics)
        self._last = Dispatched(*found)
        return self._last

    def combine(
        self, y: Any, dispatched: Dispatched | None = None, *, weighted: bool = True
    ) -> Any:
        """[T, H]: for each token the sum of its experts' rows `y` [P, H], as `dispatch` gave them,
        times their weights.  Differentiable.

        dispatched   what `dispatch` returned; None: its last call
        weighted     False: rows are added up as they are (weights were applied before)
        """
        dispatched = self._last if dispatched is None else dispatched
        returned = self._returned(y, dispatched, weighted)
        if self._there is None or self._there.capacity is None:
            self.rails.confirm(returned)
        elif returned.problem:
            raise InputError(f"rank {self.rails.rank}: {returned.problem}")
        assert dispatched is not None
        trail = dispatched.trail
        rows = y * dispatched.weights[:, None] if weighted else y
        if isinstance(trail, DeviceTrail):
            assert self._there is not None
            return self._there.combine(rows, trail, y.dtype)
        copies = _summed(rows, trail.copy, trail.copies).to(y.dtype)
        (copies,) = self.rails.along(back(trail.passed), len(trail.unit), copies)
        units = _summed(copies, trail.unit, trail.units)
        (units,) = self.rails.along(back(trail.way), len(trail.token), units)
        return _summed(units, trail.token, trail.tokens)

    def _returned(self, y: Any, dispatched: Any, weighted: bool) -> agree.Offer:
        """What this rank brings to a `combine`."""
        if problem := self.rails.unfit("y", y) or _unreturned(y, dispatched):
            return agree.Offer.none(problem)
        needed = y.requires_grad or (weighted and dispatched.weights.requires_grad)
        kind = f"y of {y.shape[1]} x {y.dtype} of dispatch {dispatched.trail.number}"
        kind += "" if weighted else ", not weighted"
        kind = agree.differentiable(needed) + kind
        return agree.Offer.none(kind=kind, width=y.shape[1] * y.element_size())

    def _unfit(self, x: Any, idx: Any, weights: Any) -> str:
        """What is wrong with arguments of `dispatch`, in words; "" if nothing."""
        for name, tensor in (("x", x), ("topk_idx", idx), ("topk_weights", weights)):
            if problem := self.rails.unfit(name, tensor):
                return problem
        if x.dim() != 2 or idx.dim() != 2 or idx.shape != weights.shape or len(x) != len(idx):
            return (
                f"x has shape {tuple(x.shape)}, topk_idx {tuple(idx.shape)}, topk_weights "
                f"{tuple(weights.shape)}: expected [T, H], [T, K] and [T, K]"
            )
        if idx.dtype not in INDICES or not weights.is_floating_point():
            return (
                f"topk_idx is {idx.dtype}, topk_weights {weights.dtype}: expected int64, int32, "
                f"int16, int8 or uint8, and floats"
            )
        return "" if self._there is not None else unknown_choices(idx, self.experts)

    def _units(self, idx: Any) -> tuple[Any, Ints]:
        """[U] the token of each unit, by node; rows to each rank: units of a node are for its GPU
        of this rank's local index, which is where they go if nothing is staged.
        """
        nodes, gpus = self.fabric.nodes, self.fabric.gpus
        node, token = _marked(idx.long() // self._slots // gpus, nodes)
        send = np.zeros((nodes, gpus), np.int64)
        send[:, self.rails.rank % gpus] = torch.bincount(node, minlength=nodes).cpu().numpy()
        return token, send.reshape(-1)

    def _passed(self, gpu: Any) -> tuple[Way, int]:
        """The exchange of copies for GPUs `gpu` [C] of the node, and how many arrive here."""
        send = torch.bincount(gpu, minlength=self.fabric.gpus).cpu().numpy()
        counts = gathered(self.rails.groups.node, send, self.rails.limit_s)
        recv = counts[:, self.rails.rank % self.fabric.gpus].tolist()
        return (Exchange("node", send.tolist(), recv),), sum(recv)

    def _rows(self, info: Any) -> tuple[Any, Any, Any]:
        """The arrived copy and the choice of each row for an expert of this rank, in order, and how
        many rows each expert has; `info` [copies, K + 2] has slots, token and source rank.
        """
        local = info[:, :-2].long() - self.rails.rank * self._slots
        copy, choice = ((local >= 0) & (local < self._slots)).nonzero(as_tuple=True)
        expert, (token, source) = local[copy, choice], info[copy, -2:].long().unbind(1)
        ranks = self.fabric.nodes * self.fabric.gpus
        key = ((expert * ranks + source) << 31 | token) * local.shape[1] + choice
        order = torch.argsort(key)
        per_expert = torch.bincount(expert, minlength=len(self.held)).cpu()
        return copy[order], choice[order], per_expert


def as_copies(placement: Any) -> Any:
    """A placement of one layer as its copies; whatever else as it is, to be refused by all."""
    one = isinstance(placement, Placement) and placement.layers == 1
    return Copies(placement) if one else placement


def _offer(x: Any, weights: Any, send: Ints | None, problem: str, note: str) -> agree.Offer:
    if problem or send is None:
        return agree.Offer.none(problem)
    top_k = weights.shape[1]
    width = x.shape[1] * x.element_size() + top_k * weights.element_size() + 4 * (top_k + 1)
    kind = f"tokens of {x.shape[1]} x {x.dtype} with {top_k} choices, weights {weights.dtype}"
    kind += note
    return agree.Offer(
        send, None, width, agree.differentiable(x.requires_grad or weights.requires_grad) + kind
    )


def _unreturned(y: Any, dispatched: Any) -> str:
    """Why `y` is not what the experts made of a dispatch, in words; "" if it is."""
    if dispatched is None:
        return "combine before any dispatch: there is nothing to bring back"
    if not isinstance(dispatched, Dispatched):
        return f"dispatched is of type {type(dispatched).__name__}: expected what dispatch returned"
    rows = len(dispatched.tokens)
    if y.dim() == 2 and len(y) == rows:
        return ""
    return (
        f"y has shape {tuple(y.shape)}: expected {rows} rows, one for each row that dispatch gave"
    )


def _marked(index: Any, classes: int) -> tuple[Any, Any]:
    """(class, row) of each class that a row of `index` [rows, K] names at least once, by class;
    what is not a class is left out.
    """
    inside = (index >= 0) & (index < classes)
    marks = index.new_zeros((len(index), classes + 1), dtype=torch.bool)
    marks.scatter_(1, torch.where(inside, index, classes).long(), True)
    named, row = marks[:, :classes].T.nonzero(as_tuple=True)
    return named, row


def _summed(rows: Any, target: Any, length: int) -> Any:
    """[length, H]: the sum of the rows of each target."""
    return rows.new_zeros((length, rows.shape[1])).index_add(0, target, rows)
