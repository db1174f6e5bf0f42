"""A layer of experts with copies: tokens to copies, parameters to copies (Trans), gradients of
copies back to their homes (Agg).

An expert's *home* owns it: its parameters are the layer's, and its optimizer runs there.  Copies
follow: after an optimizer step their parameters are sent, and after the experts' part of a backward
pass their gradients, both by a thread while the caller goes on, and on planned rails.

    out = layer(x, topk_idx, topk_weights)
    loss(out).backward()                # gradients of copies set out
    layer.sum_gradients()               # ... and are here
    optimizer.step()
    layer.send_parameters()             # on their way; the next call waits for them

The order of sums is fixed.  A token's result: each GPU adds up its slots in ascending order, each
node its GPUs, the token's rank the nodes.  An expert's gradient: its home's, then that of copies by
rank.  A layer that adds in this order is equal to the last bit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from typing import Any, NamedTuple

import torch

from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.moe.placement.placement import Placement
from railopt.torch import agree
from railopt.torch.all_to_all import RailAllToAll
from railopt.torch.autograd import into
from railopt.torch.copies import Copies
from railopt.torch.dispatcher import TokenDispatcher, as_copies
from railopt.torch.groups import everyone, made
from railopt.torch.parcels import Parcels, make_of
from railopt.torch.recorder import Recorder
from railopt.torch.stages import unknown_stages


class Hidden(NamedTuple):
    """Seconds of Trans or Agg since a layer was made: what they took, ranks that were late
    included, and what of it a call had to wait for.
    """

    took_s: float = 0.0
    waited_s: float = 0.0

    @property
    def hidden_s(self) -> float:
        """What ran beside something else."""
        return max(0.0, self.took_s - self.waited_s)


class ExpertLayer(torch.nn.Module):  # type: ignore[misc]
    """The experts of a fabric's ranks, with copies, behind one call.

    >>> layer = ExpertLayer(fabric, [make_expert() for _ in my_experts], placement)
    >>> out = layer(x, topk_idx, topk_weights)

    experts      modules of the experts whose home is this rank, ascending; each maps [rows, H] to
                 [rows, H], and all are of one make
    placement    a Placement of one layer, or `Copies` of one with how tokens are split over them
    policy       how rails are chosen, see `RailAllToAll`
    template     a module of the same make, where a rank is the home of none
    stages       exchange 2 goes in stages, so that no NIC receives from two at once: True, or a
                 kind of `railopt schedule`; see `RailAllToAll.stages`
    record       a trace file for `railopt place`, which `save_trace` writes
    options      group, groups, limit_s, agree_first and capacity of `TokenDispatcher`; copies go
                 through groups of their own, made of the same ranks

    `trans` and `agg` say how long copies took, and how much of that was hidden.
    """

    def __init__(
        self,
        fabric: Fabric,
        experts: Sequence[Any],
        placement: Copies | Placement,
        policy: str = "even-excess",
        *,
        template: Any = None,
        stages: bool | str = False,
        record: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        copies = as_copies(placement)
        count = getattr(getattr(copies, "placement", None), "experts", 1)
        self.dispatcher = TokenDispatcher(fabric, count, policy, placement=copies, **options)
        rails, self.trans, self.agg = self.dispatcher.rails, Hidden(), Hidden()
        given, like, problem = _modules(experts, template)
        self.experts = torch.nn.ModuleList(given)
        self._recorder = Recorder(record, count, like)
        self.home = copies.placement.home[copies.layer] if isinstance(copies, Copies) else None
        self._own = [] if self.home is None else (self.home == rails.rank).nonzero()[0].tolist()
        # not as a module of the layer: its parameters are not the layer's
        self.__dict__["_like"] = like
        problem = problem or self._unfit() or self._recorder.problem(rails.rank)
        problem = problem or unknown_stages(stages)
        setup = make_of(like) + (f", stages {stages}" if stages else "")
        setup += "" if record is None else ", recorded"
        agree.same(rails.groups.all, setup, problem)
        rails.stages(stages)
        # copies are outside the module's tree: this goes where it goes, on every rank
        floats = (p for p in like.parameters() if p.is_floating_point())
        first = next(floats, torch.empty(0))
        self.register_buffer("here", first.detach().new_empty(0), persistent=False)
        self._loads = _Loads()
        for module in self.experts.modules():
            module.register_load_state_dict_post_hook(self._loads)
        limit_s = options.get("limit_s", 600.0)
        apart = made(fabric, everyone(rails.groups.all, limit_s, "copies"), limit_s)
        self._rails = RailAllToAll(fabric, policy, groups=apart, limit_s=limit_s, agree_first=False)
        self._sent: list[tuple[Future[Any], Callable[[Any], None]]] = []
        self._summed: list[tuple[Future[Any], Callable[[Any], None]]] = []
        self._always = torch.zeros(0, requires_grad=True)
        self._copies: dict[int, Any] = {}
        self._stream: Any = None
        self._arrange()

    def forward(self, x: Any, topk_idx: Any, topk_weights: Any) -> Any:
        """[T, H]: for each token of `x` [T, H] the sum of its experts `topk_idx` [T, K], -1 for
        none, times `topk_weights` [T, K].
        """
        self._check_capture(x)
        self.dispatcher.note = changed = self._changed()
        rows = self.dispatcher.dispatch(x, topk_idx, topk_weights)
        if changed:
            self._follow()
        self._recorder.add(topk_idx, x.shape[1])
        self.trans = self._waited(self._sent, self.trans)
        tokens = rows.tokens
        if self._copied:
            tokens = _Mark.apply(tokens, self._always, self._send_gradients)
        parts = tokens.split(rows.tokens_per_expert.tolist())
        done = [one(part) for one, part in zip(self._local, parts, strict=True)]
        return self.dispatcher.combine(torch.cat(done) if done else tokens, rows)

    def train(self, mode: bool = True) -> ExpertLayer:
        """As `torch.nn.Module.train`, of copies too."""
        super().train(mode)
        for module in self._copies.values():
            module.train(mode)
        return self

    def place(self, placement: Copies | Placement) -> None:
        """Another placement from now on, of the same experts; every rank calls this.  Homes stay
        where they are: copies come and go.
        """
        self.sum_gradients()
        self.trans = self._waited(self._sent, self.trans)
        copies = as_copies(placement)
        found = "a layer with copies needs a placement" if copies is None else ""
        self.dispatcher.place(copies, found)
        self._arrange()

    def sum_gradients(self) -> None:
        """Wait for the gradients of copies and add them to those of their homes; every rank calls
        this after a backward pass.
        """
        self.agg = self._waited(self._summed, self.agg)

    def send_parameters(self) -> None:
        """Send parameters from their homes to copies; every rank calls this after an optimizer
        step, or whatever else has changed them.  The next call of the layer waits for them.
        """
        self._loads.new = False
        if not self._copied:
            return
        with torch.no_grad():
            rows = self._parcels.packed({e: list(m.parameters()) for e, m in self._homes.items()})
        self._sent.append((self._submit(rows, back=False), self._take_parameters))

    def save_trace(self, path: str | os.PathLike[str] | None = None) -> None:
        """Write the routing that was seen since the last time, at rank 0, to `record` or to another
        file; every rank calls this.
        """
        self._recorder.save(self.dispatcher.rails.groups.all, path)

    def recorded_once(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """For `torch.utils.checkpoint.checkpoint(..., use_reentrant=False, context_fn=this)`: what
        a backward pass computes again is not recorded again.
        """
        return nullcontext(), self._recorder.paused()

    def _check_capture(self, x: Any) -> None:
        """Raise where a CUDA graph would leave out what the host does."""
        if not getattr(x, "is_cuda", False) or not torch.cuda.is_current_stream_capturing():
            return
        copied = self._copied and torch.is_grad_enabled()
        if copied or self._sent or self._changed() or self._recorder.path is not None:
            raise InputError(
                "a CUDA graph can't capture what a layer does on the host: it records, parameters "
                "are under way to copies (call it once before), or gradients of copies will be "
                "(capture under torch.no_grad(), or a TokenDispatcher)"
            )

    def _unfit(self) -> str:
        """What is wrong with what this rank was given, in words; "" if nothing."""
        if self.home is None:
            return "a layer with copies needs a placement"
        if len(self.experts) != len(self._own):
            return (
                f"{len(self.experts)} experts were given, this rank is the home of "
                f"{len(self._own)}: {self._own[:8]}"
            )
        if self._like is None:
            return "this rank is the home of no expert: give it a template of the same make"
        if buffers := [name for name, _ in self._like.named_buffers()]:
            return (
                f"experts have the buffer {buffers[0]}, which copies would not follow: make it a "
                f"parameter that requires no gradient"
            )
        unlike = [i for i, e in enumerate(self.experts) if make_of(e) != make_of(self._like)]
        return f"expert {self._own[unlike[0]]} is not of the make of the others" if unlike else ""

    def _arrange(self) -> None:
        """Modules for what this rank holds, and parameters for those that are copies."""
        self._homes = dict(zip(self._own, self.experts, strict=True))
        held = self.dispatcher.held
        # in a plain dict: their parameters are not the layer's
        self._copies = {
            e: self._copies[e] if e in self._copies else deepcopy(self._like)
            for e in held
            if e not in self._homes
        }
        for module in self._copies.values():
            module.train(self.training).zero_grad()
        every = {**self._homes, **self._copies}
        self._local = [every[e] for e in held]
        copies = self.dispatcher.placement
        assert copies is not None
        assert self.home is not None
        holds = copies.placement.holds[copies.layer]
        self._parcels = Parcels(self.home, holds, self.dispatcher.rails.rank, self._like)
        self._copied = bool(self._parcels.counts.any())
        # planned once: the same rows go there, and back, until the next placement
        counts = self._parcels.counts, self._parcels.counts.T.copy()
        self._ways = [self._rails.route(agree.Offer.none(), each).way for each in counts]
        self._was = self.here.dtype, self.here.device
        self.send_parameters()

    def _changed(self) -> str:
        """What became of the layer, not of its copies yet, in words that ranks compare."""
        dtype, device = self.here.dtype, self.here.device
        moved = "" if (dtype, device) == self._was else f", experts moved to {dtype} {device.type}"
        return moved + (", experts loaded" if self._loads.new else "")

    def _follow(self) -> None:
        """Copies go where the layer has gone, and get its parameters."""
        self.sum_gradients()
        self.trans = self._waited(self._sent, self.trans)
        dtype, device = self._was
        for module in (self._like, *self._copies.values()):
            if self.here.dtype != dtype:
                module.to(self.here.dtype)
            if self.here.device != device:
                module.to(self.here.device)
        self._arrange()

    def _send_gradients(self) -> None:
        """The gradients of this rank's copies, which then have none, to their homes."""
        with torch.no_grad():
            rows = self._parcels.packed(
                {e: [p.grad for p in m.parameters()] for e, m in self._copies.items()}, back=True
            )
        for module in self._copies.values():
            module.zero_grad()
        self._summed.append((self._submit(rows, back=True), self._take_gradients))

    def _take_parameters(self, rows: Any) -> None:
        with torch.no_grad():
            for expert, tensors in self._parcels.unpacked(rows):
                module = self._copies[expert]
                for parameter, new in zip(module.parameters(), tensors, strict=True):
                    parameter.copy_(new)

    def _take_gradients(self, rows: Any) -> None:
        for expert, tensors in self._parcels.unpacked(rows, back=True):
            for parameter, new in zip(self._homes[expert].parameters(), tensors, strict=True):
                if parameter.requires_grad:
                    parameter.grad = new.clone() if parameter.grad is None else parameter.grad + new

    def _submit(self, rows: Any, *, back: bool) -> Future[Any]:
        """Rows to where parcels go, by the thread: (what arrives, seconds)."""
        counts = self._parcels.counts.T if back else self._parcels.counts
        out = rows.new_empty((int(counts[:, self._rails.rank].sum()), rows.shape[1]))
        carrier, way = self._rails.carrier, self._ways[back]
        packed = torch.cuda.current_stream().record_event() if rows.is_cuda else None

        def work() -> tuple[Any, float]:
            begin = time.perf_counter()
            if packed is None:
                into(carrier, way, rows, out)
                return out, time.perf_counter() - begin
            # on a stream of its own: else rows of tokens and of copies wait for each other, on two
            # ranks the other way round
            with torch.cuda.device(rows.device), torch.cuda.stream(self._beside(rows.device)):
                torch.cuda.current_stream().wait_event(packed)
                into(carrier, way, rows, out)
                torch.cuda.current_stream().synchronize()
            return out, time.perf_counter() - begin

        # layers have the same groups, and so one thread: what two carry at once would be mixed up
        return carrier.worker.submit(work)

    def _beside(self, device: Any) -> Any:
        """The stream of the thread."""
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        return self._stream

    def _waited(self, pending: list[Any], so_far: Hidden) -> Hidden:
        """Take what is under way in, and how long it took."""
        while pending:
            future, take = pending.pop(0)
            begin = time.perf_counter()
            rows, took = future.result()
            waited = time.perf_counter() - begin
            so_far = Hidden(so_far.took_s + took, so_far.waited_s + waited)
            take(rows)
        return so_far


def _modules(experts: Any, template: Any) -> tuple[list[Any], Any, str]:
    """The experts, a module of their make or None, and what is wrong with them in words."""
    given = [*experts] if isinstance(experts, Iterable) else [experts]
    for one in given if template is None else [*given, template]:
        if not isinstance(one, torch.nn.Module):
            kind = type(one).__name__
            return [], None, f"experts or template of type {kind}: expected torch.nn.Module"
    return given, next(iter(given), None) if template is None else template, ""


class _Loads:
    """A hook of modules: whether `load_state_dict` has changed parameters that copies have not got.
    No closure, so that experts can still be pickled; copies of them get a hook of their own.
    """

    new = False

    def __call__(self, *_: Any) -> None:
        self.new = True


class _Mark(torch.autograd.Function):  # type: ignore[misc]
    """Rows as they are; `then` is called once the gradients of all that was made of them are there.

    PyTorch adds to a parameter's gradient before it goes on.
    """

    @staticmethod
    def forward(ctx: Any, rows: Any, always: Any, then: Callable[[], None]) -> Any:
        ctx.then = then
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        ctx.then()
        return grad, None, None
