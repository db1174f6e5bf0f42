"""Rows along a way: bytes of tensors through the exchanges of a node and of a rail group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from railopt.base.errors import printable
from railopt.torch.groups import Groups
from railopt.torch.shared import SHARED, lost
from railopt.torch.ways import Exchange, Picked, Reorder, Step, Turn, Way


def as_bytes(tensor: Any) -> Any:
    """uint8 [rows, bytes of a row]: a view of a contiguous tensor.

    By its memory, not its strides: of dimensions of length 1 or 0 these may be anything.
    """
    width = tensor.shape[1:].numel() * tensor.element_size()
    flat = tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)
    return flat.view(tensor.shape[0], width)


class Handle:
    """A call under way.  `wait` ends when the output is there (on a GPU: when the current stream
    waits for it), and returns the output.
    """

    def __init__(self, output: Any, wait: Callable[[], None], done: Callable[[], bool]) -> None:
        self._output, self._wait, self._done = output, wait, done

    def wait(self) -> Any:
        self._wait()
        return self._output

    def is_completed(self) -> bool:
        """As of PyTorch's `Work`: code under `planned_all_to_all` may ask."""
        return self._done()


def carrier_of(groups: Groups, limit_s: float) -> WayCarrier:
    """The one carrier of these groups: rows of two that carry at once would be mixed up."""
    key = (groups.node, groups.rail, limit_s)
    carrier: WayCarrier | None = SHARED.get(key)
    if carrier is None:
        carrier = SHARED[key] = WayCarrier(groups, limit_s)
    return carrier


class WayCarrier:
    """Carries bytes along ways, one way after the other, with two buffers that it keeps.

    limit_s   seconds after which a wait for a peer is an error
    """

    def __init__(self, groups: Groups, limit_s: float) -> None:
        self._groups = {"node": groups.node, "rail": groups.rail}
        self._ranks = {k: dist.get_process_group_ranks(g) for k, g in self._groups.items()}
        self._place = {k: dist.get_rank(g) for k, g in self._groups.items()}
        self._gloo = {k: dist.get_backend(g) == "gloo" for k, g in self._groups.items()}
        self._limit = timedelta(seconds=limit_s)
        self._kept: dict[tuple[Any, int], Any] = {}
        self._worker: ThreadPoolExecutor | None = None
        self._last: Future[None] | None = None
        self._stream: Any = None

    def carry(self, way: Way, rows: Any, out: Any) -> None:
        """uint8 [rows, width] along `way` into `out`, after what was started before."""
        if self._last is not None:
            self._last.result()
            self._last = None
        self._carry(way, rows, out)

    def start(self, way: Way, rows: Any, out: Any) -> tuple[Callable[[], None], Callable[[], bool]]:
        """The same without waiting; how to wait for it, and how to ask whether it is done."""
        if rows.is_cuda:
            return self._start_on_stream(way, rows, out)
        future = self._last = self.worker.submit(self._carry, way, rows, out)
        return future.result, future.done

    @property
    def worker(self) -> ThreadPoolExecutor:
        """The thread of these groups, which does in order what is submitted."""
        if self._worker is None:
            self._worker = ThreadPoolExecutor(1, "railopt-all-to-all")
        return self._worker

    def _start_on_stream(
        self, way: Way, rows: Any, out: Any
    ) -> tuple[Callable[[], None], Callable[[], bool]]:
        """On a stream of its own, which begins where the current one is."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(rows.device)
        self._stream.wait_stream(torch.cuda.current_stream(rows.device))
        with torch.cuda.stream(self._stream):
            self._carry(way, rows, out)
            event = self._stream.record_event()
        picks = [step.index for step in way if isinstance(step, Picked)]
        for tensor in (rows, out, *picks):
            tensor.record_stream(self._stream)
        return lambda: torch.cuda.current_stream(rows.device).wait_event(event), event.query

    def _carry(self, way: Way, rows: Any, out: Any) -> None:
        steps = [step for step in way if self._changes(step)]
        for turn, step in enumerate(steps):
            target = out
            if step is not steps[-1]:
                length = sum(step.recv) if isinstance(step, Exchange) else len(rows)
                target = self._buffer(turn % 2, rows, length)
            if isinstance(step, Picked):
                step.rows.copy(rows, target, step.index)
            elif isinstance(step, Reorder):
                pieces = rows.split_with_sizes(step.sizes.tolist())
                torch.cat([pieces[piece] for piece in step.order.tolist()], out=target)
            else:
                self._exchange(step, rows, target)
            rows = target
        if not steps:
            out.copy_(rows)

    def _changes(self, step: Step) -> bool:
        """Whether a step does anything.  With gloo an exchange in which all rows stay is skipped;
        with NCCL every rank must call it.
        """
        if not isinstance(step, Exchange):
            return isinstance(step, Picked) or step.moves
        if not self._gloo[step.within]:
            return True
        own = step.send[self._place[step.within]]
        return sum(step.send) > own or sum(step.recv) > own

    def _buffer(self, turn: int, like: Any, length: int) -> Any:
        """[length, width] of a buffer that is kept and doubled where it is too small."""
        size = length * like.shape[1]
        stream = torch.cuda.current_stream(like.device) if like.is_cuda else like.device
        kept = self._kept.get((stream, turn))
        if kept is None or kept.numel() < size:
            kept = torch.empty(2 * size, dtype=torch.uint8, device=like.device)
            self._kept[stream, turn] = kept
        return kept[:size].view(length, like.shape[1])

    def _exchange(self, step: Exchange, rows: Any, target: Any) -> None:
        group, ranks = self._groups[step.within], self._ranks[step.within]
        try:
            if step.turns is not None:
                self._in_stages([(turn,) for turn in step.turns], step, rows, target)
            elif self._gloo[step.within]:
                # its own all-to-all takes a pair's two directions one after the other
                self._in_stages([step.in_turn(self._place[step.within])], step, rows, target)
            else:
                dist.all_to_all_single(target, rows, step.recv, step.send, group=group)
        except RuntimeError as error:
            raise lost(
                f"rank {dist.get_rank()}: the exchange inside its {step.within} group of ranks "
                f"{ranks} failed; a rank is gone or late ({printable(error)})"
            ) from error

    def _in_stages(
        self, stages: Sequence[Sequence[Turn]], step: Exchange, rows: Any, target: Any
    ) -> None:
        """One stage after the other; in each all receives are posted before any send."""
        group, ranks = self._groups[step.within], self._ranks[step.within]
        own = self._place[step.within]
        out, into = rows.split_with_sizes(step.send), target.split_with_sizes(step.recv)
        into[own].copy_(out[own])
        sent, got = [0] * len(ranks), [0] * len(ranks)
        for turns in stages:
            sends, calls = [], []
            for to, number, source, arrives in turns:
                if arrives:
                    part = into[source].narrow(0, got[source], arrives)
                    calls.append((dist.irecv, part, ranks[source]))
                    got[source] += arrives
                if number:
                    part = out[to].narrow(0, sent[to], number)
                    sends.append((dist.isend, part, ranks[to]))
                    sent[to] += number
            calls += sends
            if self._gloo[step.within]:
                for work in [call(part, peer, group=group) for call, part, peer in calls]:
                    work.wait(self._limit)
            elif calls:  # a wait of NCCL with a limit has the host wait too
                for work in dist.batch_isend_irecv([dist.P2POp(*call, group) for call in calls]):
                    work.wait()
