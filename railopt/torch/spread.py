"""Dispatch and combine on the GPU: what `railopt.torch.dispatcher` does, by kernels.

Rows go out in four picks with three exchanges between them, and come back the same way as sums:

    tokens -first-> units -node-> -second-> -rail-> units -third-> copies -node-> -fourth-> rows

Ranks exchange counts twice: units for each node, of which all plans are made; then, from the plan,
how many copies each GPU of a node will pass on, and rows of each expert.  After that the host reads
all sizes, once.  With a capacity sizes are constants, so nothing is sent or read: every pair of
a GPU and a node sends as many units, and the plan of these is made once, on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from railopt.base.arrays import Ints
from railopt.base.errors import InputError
from railopt.cuda.routing import ChoiceEntries, ClassList, PieceTable
from railopt.torch import agree
from railopt.torch.carry import WayCarrier, as_bytes
from railopt.torch.copies import SlotTable
from railopt.torch.device import DeviceRouter, PlannedBuffer
from railopt.torch.routes import Router
from railopt.torch.talk import gathered
from railopt.torch.ways import Exchange, Picked

ALIGN = 16  # bytes: a row's parts begin at multiples


class DispatchRoom(NamedTuple):
    """How much a dispatch of constant sizes has room for: units from a GPU to a node, and rows of
    an expert.  What is beyond is left out, tokens and source ranks in order.
    """

    units: int
    rows: int


class DeviceTrail(NamedTuple):
    """How rows of a dispatch came: indices int32 on the device, exchanges on the host.

    first, third, fourth   index [n] of picks; inverse [targets, many], -1 for none
    by_choice              [copies, K]: the row of each choice, -1 for none
    """

    number: int
    tokens: int
    first: Picked
    staged: Exchange
    second: Picked
    carried: Exchange
    third: Picked
    passed: Exchange
    fourth: Picked
    by_choice: Any


class DeviceDispatcher:
    """The dispatches of one rank on its device.

    in_stages   of `RailAllToAll`
    careful   the host waits once more per dispatch, before messages whose length depends on the
              object that is called: ranks that call different ones then say so
    """

    def __init__(
        self,
        router: DeviceRouter,
        carrier: WayCarrier,
        group: Any,
        capacity: DispatchRoom | None,
        in_stages: Callable[[Exchange], Exchange],
        *,
        careful: bool,
    ) -> None:
        self._router, self._carrier, self._group = router, carrier, group
        self._careful, self._in_stages = careful, in_stages
        self._rows, self._routing = router.rows, router.routing
        self.capacity, self.flags = capacity, None
        if capacity is not None:
            # units and rows left out, and whether a choice was none of an expert
            self.flags = torch.zeros(3, dtype=torch.int64, device=router.device)
            self._constant = ConstantSizes(router, capacity)

    def use(self, table: SlotTable, experts: int, copies: bool) -> None:
        """Dispatch by these slots from now on."""
        self._slots, self._held, self._experts = table.slots, len(table.held), experts
        self._tables = None
        if copies:
            tables = (table.weights, table.slot, table.turn)
            self._tables = [torch.from_numpy(t.copy()).to(self._router.device) for t in tables]

    def dispatch(
        self, x: Any, idx: Any, weights: Any, offer: agree.Offer, number: int
    ) -> tuple[Any, Any, Any, DeviceTrail, Ints]:
        """(rows [P, H], rows of each local expert on the host, weights [P], trail, bytes that each
        NIC of the node sends and receives).
        """
        if self.capacity is not None:
            if offer.problem:
                raise InputError(f"rank {self._router.router.rank}: {offer.problem}")
            units = self._kept_units(idx)
        else:
            units = self._exchanged_units(idx, offer)
        rows, row_weights, trail = _Dispatch.apply(self, units, number, x, weights)
        width = _Packed.of([x, weights, units.slots]).width
        nics = np.array(units.nics) * width
        return rows, units.per_expert, row_weights, trail, nics

    def combine(self, rows: Any, trail: DeviceTrail, dtype: Any) -> Any:
        """[T, H]: the sums of rows [P, H] of each token, sent as `dtype`."""
        return _Combine.apply(self, trail, rows, dtype)

    def _slots_of(self, idx: Any, status: int) -> Any:
        """int64 [T, K]: the slot of each choice; `status` is an address."""
        idx = idx.long().contiguous()
        if self._tables is None:
            return idx
        found, tables = torch.empty_like(idx), self._tables
        addresses = [t.data_ptr() for t in (idx, *tables, found)]
        values = (*addresses, status, idx.numel(), self._experts)
        self._routing.choose(tables[0].shape[1], values, self._rows.stream)
        return found

    def _listed(self, idx: Any, to: ClassList, status: int) -> tuple[Any, ChoiceEntries, Any]:
        """Slots, as entries whose classes are nodes, and the tokens of each node [nodes, limit]."""
        fabric = self._router.fabric
        slots = self._slots_of(idx, status)
        per_node = self._slots * fabric.gpus
        entries = _entries(slots, per_node, 0, fabric.nodes)
        listed = self._new(fabric.nodes * to.limit)
        known = self._experts if self._tables is None else 0
        to = to._replace(list=listed.data_ptr(), status=status, experts=known)
        self._routing.list(entries, to, self._rows.stream)
        return slots, entries, listed

    def _exchanged_units(self, idx: Any, offer: agree.Offer) -> StagedUnits:
        """Units in the order of exchange 1, and all sizes: the one wait of a dispatch."""
        router, fabric, slots = self._router, self._router.fabric, self._slots
        message = router.message(offer)
        gpus, ranks = fabric.gpus, fabric.nodes * fabric.gpus
        idx = torch.zeros((0, 1), device=router.device, dtype=torch.int64) if offer.problem else idx
        local, tokens, width = router.router.rank % gpus, len(idx), min(idx.shape[1], fabric.nodes)
        seen = message.new_zeros(ranks * slots)
        counts = message.data_ptr() + 8 * (agree.HEADER + local)
        seen_at = seen.data_ptr()
        to = ClassList(limit=max(1, tokens), counts=counts, counts_step=gpus, seen=seen_at)
        own, entries, listed = self._listed(idx, to, message.data_ptr())
        made = router.planned(message, offer, slots)
        if self._careful:
            self._refuse(int(made.buffer[0]), made, idx, offer)
        first = Picked(self._new(tokens * width), self._new(tokens, width, fill=-1), self._rows)
        received, out = message.new_empty((2, ranks, 2 * gpus + slots)).unbind(0)
        values = (listed.data_ptr(), counts, made.address("own"), seen_at, to.limit)
        ends = (first.index.data_ptr(), first.inverse.data_ptr(), out.data_ptr(), width, gpus)
        self._routing.stage(entries, slots, (*values, *ends), self._rows.stream)
        router.exchanged(dist.all_to_all_single, received, out)
        sums = (made.address("copies"), made.address("begins"))
        self._routing.add_copies(slots, received.data_ptr(), *sums, self._rows.stream)
        sizes = made.read()
        self._refuse(sizes["status"][0], made, idx, offer)
        return self._sized(own, first, made, received, sizes)

    def _refuse(self, status: int, made: PlannedBuffer, idx: Any, offer: agree.Offer) -> None:
        """Raise on every rank what is wrong; a kernel may have found it, with choices."""
        if status:
            problem = offer.problem or unknown_choices(idx, self._experts)
            self._router.refuse(status, made, offer._replace(problem=problem))

    def _sized(
        self,
        own: Any,
        first: Picked,
        made: PlannedBuffer,
        received: Any,
        sizes: dict[str, list[int]],
    ) -> StagedUnits:
        """Units with the sizes that the host knows now."""
        fabric, gpus = self._router.fabric, self._router.fabric.gpus
        copies = sizes["copies"]
        staged = Exchange("node", sizes["staged"], sizes["gathered"])
        carried = self._in_stages(Exchange("rail", sizes["there"], sizes["here"]))
        passed = Exchange("node", copies[:gpus], copies[gpus : 2 * gpus])
        second = self._rows.pick(sum(staged.recv))
        order = self._rows.pick(sum(passed.recv))
        ranks, apart = fabric.nodes * gpus, received.shape[1]
        self._routing.expand(
            self._rows.stream,
            PieceTable(
                made.address("blocks"), gpus, fabric.nodes, fabric.nodes, 1, *_addresses(second)
            ),
            PieceTable(received.data_ptr() + 8 * gpus, gpus, ranks, 1, apart, *_addresses(order)),
        )
        begins = made.address("begins")
        return StagedUnits(
            own,
            first._replace(index=first.index[: sum(staged.send)]),
            (staged, carried, passed),
            second,
            order.index,
            (begins, begins + 16 * gpus),
            torch.tensor(copies[2 * gpus :][: self._held], dtype=torch.int64, device="cpu"),
            [sizes["sent"], sizes["received"]],
            (made, received),
        )

    def _kept_units(self, idx: Any) -> StagedUnits:
        """Units in the order of exchange 1, of constant sizes."""
        assert self.capacity is not None
        assert self.flags is not None
        fabric, constant, limit = self._router.fabric, self._constant, self.capacity.units
        tokens, width = len(idx), min(idx.shape[1], fabric.nodes)
        counts = torch.empty(fabric.nodes, dtype=torch.int64, device=self._router.device)
        flags = self.flags.data_ptr()
        to = ClassList(limit=limit, counts=counts.data_ptr(), dropped=flags)
        own, entries, listed = self._listed(idx, to, flags + 16)
        first = Picked(
            self._new(fabric.nodes * limit, fill=-1), self._new(tokens, width, fill=-1), self._rows
        )
        values = (listed.data_ptr(), counts.data_ptr(), constant.own.data_ptr(), 0, limit)
        ends = (first.index.data_ptr(), first.inverse.data_ptr(), 0, width, 1)
        self._routing.stage(entries, self._slots, (*values, *ends), self._rows.stream)
        per_expert = torch.full((self._held,), self.capacity.rows, device="cpu")
        staged, carried, passed = constant.exchanges
        if carried.turns is None:  # which are known once and for all
            constant.exchanges = staged, self._in_stages(carried), passed
        ways, order = constant.exchanges, constant.order.index
        return StagedUnits(
            own, first, ways, constant.second, order, (0, 0), per_expert, constant.nics, listed
        )

    def _new(self, *shape: int, fill: int | None = None) -> Any:
        """int32 on the device."""
        kind = {"dtype": torch.int32, "device": self._router.device}
        return torch.empty(shape, **kind) if fill is None else torch.full(shape, fill, **kind)

    def out(self, units: StagedUnits, number: int, *parts: Any) -> tuple[Any, DeviceTrail]:
        """Parts [T, w] of tokens to this rank's rows, as (copies of each part, the trail)."""
        fabric, rows = self._router.fabric, self._rows
        k, limit = units.slots.shape[1], self.capacity
        staged, carried, passed = units.exchanges
        row = _Packed.of([*parts, units.slots])
        sent = row.new(sum(staged.send))
        for part, to in zip([*parts, units.slots], row.views(sent), strict=True):
            rows.copy(part, to, units.first.index, 0xFF)
        here = self._carried(sent, staged, units.second, carried)
        third, width = len(here), min(k, fabric.gpus)
        first = self._router.router.node * fabric.gpus * self._slots
        entries = _entries(row.views(here)[-1], self._slots, first, fabric.gpus)
        most = sum(passed.send)
        listed = Picked(
            self._new(most, fill=-1 if limit else None), self._new(third, width, fill=-1), rows
        )
        index, inverse = _addresses(listed)
        to = ClassList(
            base=units.begins[0],
            limit=max(1, third),
            list=index,
            inverse=inverse,
            width=width,
            in_place=int(limit is not None),
        )
        self._routing.list(entries, to, rows.stream)
        passing = row.new(most)
        rows.copy(here, passing, listed.index, 0xFF)
        arrived = self._exchanged(passing, passed)
        fourth, by_choice = self._by_slot(units, row.views(arrived)[-1])
        ways = (units.first, staged, units.second, carried, listed, passed, fourth, by_choice)
        trail = DeviceTrail(number, len(units.slots), *ways)
        return row.views(arrived)[:-1], trail

    def _by_slot(self, units: StagedUnits, slots: Any) -> tuple[Picked, Any]:
        """Rows by slot, from the slots of each copy that arrived."""
        copies, k = slots.shape
        many = int(units.per_expert.sum())
        both = self._new(2, copies, k, fill=-1)
        index = self._new(many, fill=-1 if self.capacity else None)
        entries = _entries(slots, 1, self._router.router.rank * self._slots, self._held)
        inverse, by_choice = both[0], both[1]
        limit = self.capacity.rows if self.capacity else max(1, many)
        flags = 0 if self.flags is None else self.flags.data_ptr() + 8
        to = ClassList(
            order=units.order.data_ptr(),
            base=units.begins[1],
            limit=limit,
            list=index.data_ptr(),
            inverse=inverse.data_ptr(),
            by_choice=by_choice.data_ptr(),
            dropped=flags,
            width=k,
        )
        self._routing.list(entries, to, self._rows.stream, every=True)
        return Picked(index, inverse, self._rows), by_choice

    def again(self, trail: DeviceTrail, part: Any) -> Any:
        """A part [T, w] of tokens to the copies of an earlier dispatch."""
        sent = part.new_empty((sum(trail.staged.send), part.shape[1]))
        self._rows.copy(part, sent, trail.first.index)
        here = self._carried(sent, trail.staged, trail.second, trail.carried)
        passing = part.new_empty((sum(trail.passed.send), part.shape[1]))
        self._rows.copy(here, passing, trail.third.index)
        return self._exchanged(passing, trail.passed)

    def back(self, trail: DeviceTrail, *parts: Any) -> list[Any]:
        """Parts of copies, added up by unit and by token: [T, w] each."""
        row = _Packed.of(list(parts))
        packed = row.packed(self._rows, parts)
        units = self._exchanged(packed, trail.passed.back())
        units = row.added(self._rows, units, trail.third.inverse)
        units = self._exchanged(units, trail.carried.back())
        turned = torch.empty_like(units)
        self._rows.copy(units, turned, trail.second.inverse)
        units = self._exchanged(turned, trail.staged.back())
        tokens = row.added(self._rows, units, trail.first.inverse)
        return [view.contiguous() for view in row.views(tokens)]

    def _carried(self, sent: Any, staged: Exchange, second: Picked, carried: Exchange) -> Any:
        """Rows through exchanges 1 and 2."""
        here = self._exchanged(sent, staged)
        turned = torch.empty_like(here)
        self._rows.copy(here, turned, second.index)
        return self._exchanged(turned, carried)

    def _exchanged(self, rows: Any, step: Exchange) -> Any:
        out = rows.new_empty((sum(step.recv), rows.shape[1]))
        self._carrier.carry((step,), as_bytes(rows), as_bytes(out))
        return out

    def rows_of(self, trail: DeviceTrail, copies: Any) -> Any:
        """[P, w]: the rows of experts, from copies."""
        rows = copies.new_empty((len(trail.fourth.index), copies.shape[1]))
        self._rows.copy(copies, rows, self._copy_of(trail))
        return rows

    def weights_of(self, trail: DeviceTrail, weights: Any) -> Any:
        """[P]: the weight of each row, from those of copies [C, K]."""
        flat = weights.contiguous().view(-1, 1)
        rows = flat.new_empty((len(trail.fourth.index), 1))
        self._rows.copy(flat, rows, trail.fourth.index)
        return rows.view(-1)

    def _copy_of(self, trail: DeviceTrail) -> Any:
        """The copy of each row, -1 for none."""
        return torch.div(
            trail.fourth.index, trail.by_choice.shape[1], rounding_mode="floor"
        ).contiguous()

    def summed(self, trail: DeviceTrail, rows: Any, dtype: Any) -> Any:
        """[C, w]: rows of experts, added up by copy."""
        copies = rows.new_empty((len(trail.by_choice), rows.shape[1]), dtype=dtype)
        self._rows.add(rows.contiguous(), copies, trail.fourth.inverse)
        return copies

    def chosen(self, trail: DeviceTrail, rows: Any) -> Any:
        """[C, K]: what each choice of a copy has, of rows [P]; 0 for choices elsewhere."""
        out = rows.new_empty(trail.by_choice.shape)
        self._rows.copy(rows.contiguous().view(-1, 1), out.view(-1, 1), trail.by_choice)
        return out

    def check(self) -> None:
        """Raise on every rank what any rank has left out since the last check."""
        if self.flags is None:
            return
        every = gathered(self._group, self.flags.cpu().numpy())
        self.flags.zero_()
        assert self.capacity is not None
        for rank, (units, rows, wrong) in enumerate(every.tolist()):
            if wrong:
                raise InputError(
                    f"rank {rank}: topk_idx has choices that are not -1 to {self._experts - 1}"
                )
            if units or rows:
                raise InputError(
                    f"rank {rank} left out {units} of its units beyond {self.capacity.units} per "
                    f"node, and {rows} rows beyond {self.capacity.rows} per expert: give more "
                    f"capacity"
                )


class StagedUnits(NamedTuple):
    """A rank's units before they set out.

    slots       [T, K]; first: as in `DeviceTrail`; second: the reorder after exchange 1
    exchanges   staged, carried, passed
    order       [C]: arrived copies by source rank and token
    begins      addresses: where each GPU's copies and each slot's rows begin; 0: at multiples
    per_expert  rows of each local expert, on the host
    nics        rows that each NIC of the node sends, and receives
    kept        what must live as long
    """

    slots: Any
    first: Picked
    exchanges: tuple[Exchange, Exchange, Exchange]
    second: Picked
    order: Any
    begins: tuple[int, int]
    per_expert: Any
    nics: list[list[int]]
    kept: Any


class ConstantSizes:
    """Sizes and orders where every pair of a GPU and a node sends `capacity.units`."""

    def __init__(self, router: DeviceRouter, capacity: DispatchRoom) -> None:
        fabric, host = router.fabric, router.router
        nodes, gpus = fabric.nodes, fabric.gpus
        ranks = nodes * gpus
        every = np.zeros((nodes, gpus, nodes, gpus), np.int64)
        for local in range(gpus):
            every[:, local, :, local] = capacity.units
        counts = every.reshape(ranks, ranks)
        route = host.route(counts, to_nodes=True)
        own, blocks = host.pieces_of()
        self.own = torch.from_numpy(own).to(router.device)
        staged, carried = (step for step in route.way if isinstance(step, Exchange))
        mates = range(host.node * gpus, (host.node + 1) * gpus)
        sources = [
            Router(fabric, mate, host.policy, host.pieces).route(counts, to_nodes=True).sources
            for mate in mates
        ]
        here = [int(source.sum()) for source in sources]
        passed = Exchange("node", [sum(carried.recv)] * gpus, here)
        self.exchanges = staged, carried, passed
        self.nics = [route.sent.tolist(), route.received.tolist()]
        self.second = router.rows.pick(sum(staged.recv))
        self.order = router.rows.pick(sum(here))
        tables = [torch.from_numpy(t).to(router.device) for t in (blocks, np.stack(sources))]
        shapes = (gpus, nodes, nodes, 1), (gpus, ranks, ranks, 1)
        picks = (self.second, self.order)
        pieces = [
            PieceTable(t.data_ptr(), *shape, *_addresses(pick))
            for t, shape, pick in zip(tables, shapes, picks, strict=True)
        ]
        router.routing.expand(router.rows.stream, *pieces)
        if router.device.type == "cuda":
            torch.cuda.synchronize(router.device)  # the tables go


class _Packed(NamedTuple):
    """Parts of rows side by side: bytes where each begins, and the bytes of a row."""

    like: list[Any]
    begins: list[int]
    width: int

    @classmethod
    def of(cls, parts: list[Any]) -> _Packed:
        begins, width = [], 0
        for part in parts:
            begins.append(width)
            width += -(-part.shape[1] * part.element_size() // ALIGN) * ALIGN
        return cls(parts, begins, width)

    def new(self, length: int) -> Any:
        """uint8 [length, width]."""
        return self.like[0].new_empty((length, self.width), dtype=torch.uint8)

    def views(self, rows: Any) -> list[Any]:
        """The parts of rows, [length, w] each."""
        found = []
        for part, begin in zip(self.like, self.begins, strict=True):
            size = part.shape[1] * part.element_size()
            found.append(rows[:, begin : begin + size].view(part.dtype))
        return found

    def packed(self, mover: Any, parts: tuple[Any, ...]) -> Any:
        if len(parts) == 1 and parts[0].shape[1] * parts[0].element_size() == self.width:
            return as_bytes(parts[0])
        rows = self.new(len(parts[0]))
        for part, to in zip(parts, self.views(rows), strict=True):
            mover.copy(part, to)
        return rows

    def added(self, mover: Any, rows: Any, index: Any) -> Any:
        """Each part's sums of rows by index [targets, many]."""
        out = self.new(len(index))
        for of, to in zip(self.views(rows), self.views(out), strict=True):
            mover.add(of, to, index)
        return out


class _Dispatch(torch.autograd.Function):  # type: ignore[misc]
    """Tokens and weights to rows; gradients come back as sums."""

    @staticmethod
    def forward(
        ctx: Any,
        dispatcher: DeviceDispatcher,
        units: StagedUnits,
        number: int,
        x: Any,
        weights: Any,
    ) -> Any:
        (copies, spread), trail = dispatcher.out(
            units, number, x.detach().contiguous(), weights.detach().contiguous()
        )
        ctx.dispatcher, ctx.trail = dispatcher, trail
        return dispatcher.rows_of(trail, copies), dispatcher.weights_of(trail, spread), trail

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, rows: Any, weights: Any, _: Any) -> Any:
        dispatcher, trail = ctx.dispatcher, ctx.trail
        copies = dispatcher.summed(trail, rows, rows.dtype)
        x, weight = dispatcher.back(trail, copies, dispatcher.chosen(trail, weights))
        return None, None, None, x, weight


class _Combine(torch.autograd.Function):  # type: ignore[misc]
    """Rows added up by token; gradients go out as tokens did."""

    @staticmethod
    def forward(
        ctx: Any, dispatcher: DeviceDispatcher, trail: DeviceTrail, rows: Any, dtype: Any
    ) -> Any:
        ctx.dispatcher, ctx.trail, ctx.dtype = dispatcher, trail, rows.dtype
        (out,) = dispatcher.back(trail, dispatcher.summed(trail, rows, dtype))
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, out: Any) -> Any:
        copies = ctx.dispatcher.again(ctx.trail, out.contiguous())
        return None, None, ctx.dispatcher.rows_of(ctx.trail, copies).to(ctx.dtype), None


def unknown_choices(idx: Any, experts: int) -> str:
    """What is wrong with choices, in words; "" if nothing."""
    if not idx.numel() or -1 <= int(idx.min()) <= int(idx.max()) < experts:
        return ""
    return f"topk_idx goes from {int(idx.min())} to {int(idx.max())}: expected -1 to {experts - 1}"


def _entries(slots: Any, divide: int, first: int, classes: int) -> ChoiceEntries:
    """Entries of slots [n, K], int64, whose rows may lie apart."""
    count, k = slots.shape
    stride = 8 * slots.stride(0)
    return ChoiceEntries(slots.data_ptr(), stride, count, k, divide, first, classes)


def _addresses(pick: Picked) -> tuple[int, int]:
    return int(pick.index.data_ptr()), int(pick.inverse.data_ptr())
