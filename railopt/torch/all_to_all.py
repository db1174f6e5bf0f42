"""`all_to_all_single` along planned rails, over three ordinary collectives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from railopt.base.arrays import Ints
from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.torch import agree
from railopt.torch.autograd import carried, into
from railopt.torch.carry import carrier_of
from railopt.torch.circle import Circle
from railopt.torch.copies import ExpertSlots, same_copies
from railopt.torch.device import device_router
from railopt.torch.groups import Groups, checked, everyone, made
from railopt.torch.routes import PIECES, Route, Router
from railopt.torch.stages import scheduled, unknown_stages
from railopt.torch.talk import gathered
from railopt.torch.ways import Exchange, Way

Splits = Sequence[int] | None


class NicBytes(NamedTuple):
    """Bytes that a call put on each NIC of this rank's node: int64 [rails]; or of every node, by
    `RailAllToAll.gathered_bytes`: int64 [nodes, rails].
    """

    sent: Ints
    received: Ints


class RailAllToAll:
    """All-to-alls of the ranks of a fabric, each planned by `policy` from its own counts.  Each
    node plans for itself where the policy is one of `planner.NODE_POLICIES` and no NIC is dead;
    else every rank plans from the counts of all.

        >>> railed = RailAllToAll(fabric)    # on every rank, after init_process_group
        >>> railed.all_to_all_single(output, input, output_split_sizes, input_split_sizes)

    policy    a policy's name, or "module:function"
    group     the group whose ranks are the fabric's GPUs, node by node; None: the default group
    groups    groups of the layout; None: they are made, with the backend of `group`
    limit_s   seconds after which waiting for a rank is an error
    pieces    how finely a rail's share is divided (`railopt.torch.routes`)
    experts   what a `TokenDispatcher` hands on, so that ranks compare it; None: there are none
    agree_first   False: ranks do not compare what they bring to a call; those whose tensors or
              counts differ then crash or wait in the backend

    `last` has the bytes per NIC of this node in the last call.  Groups that are made are shared by
    all of the same ranks, backend and limit, for as long as the default group lives.
    """

    def __init__(
        self,
        fabric: Fabric,
        policy: str = "even-excess",
        *,
        group: Any = None,
        groups: Groups | None = None,
        limit_s: float = 600.0,
        pieces: int = PIECES,
        experts: ExpertSlots | None = None,
        agree_first: bool = True,
    ) -> None:
        self.fabric, self.agree_first = fabric, agree_first
        self.group = dist.group.WORLD if group is None else group
        self._all = everyone(getattr(groups, "all", None) or group, limit_s)
        self._begin(policy, groups, pieces, experts)
        handed = groups or made(fabric, self._all, limit_s)
        self.carrier = carrier_of(handed, limit_s)
        self.groups = Groups(handed.node, handed.rail, self._all)
        self._device = {"gloo": "cpu", "nccl": "cuda"}.get(dist.get_backend(handed.rail))
        # a wait of NCCL with a limit looks once a millisecond
        self.limit_s = None if self._device == "cuda" else limit_s
        self._circle = Circle(self.groups, self._router, self.limit_s, trusts=not agree_first)
        self.on_device = device_router(self._router, self._all, self._device)
        # under NCCL all first messages are of one length; rounds of a rail need living NICs
        living = bool(fabric.tx.all() and fabric.rx.all())
        self._alone = self._router.alone and living and self._device != "cuda"
        self.last: NicBytes | None = None
        self._stages: bool | str = False
        self._ordered = ""  # what ranks compare of it

    def _begin(
        self, policy: str, handed: Groups | None, pieces: int, experts: ExpertSlots | None
    ) -> None:
        """The router, once all ranks are known to be made alike."""

        def check() -> str:
            problem = checked(self.fabric, handed, self._all)
            if not problem:
                self._router = Router(self.fabric, dist.get_rank(self._all), policy, pieces)
                self._setup = (
                    f"policy {policy}, {pieces} pieces, groups "
                    f"{'made' if handed is None else 'handed in'}"
                    f"{'' if self.agree_first else ', no agreement'}, fabric "
                    f"{self.fabric.digest[:16]}"
                )
            return problem

        self._made = ""
        self.remake(experts, check)

    def remake(self, experts: ExpertSlots | None, check: Callable[[], str] = str) -> None:
        """Compare with all ranks what experts this is for, from now on; `check` says what else is
        wrong.
        """
        made = ""
        try:
            problem = check() or ("" if experts is None else experts.problem(self.fabric))
            if not problem:
                held = "" if experts is None else f"{experts}, "
                layout = f"{self.fabric.nodes} nodes x {self.fabric.gpus} GPUs"
                made = f"{layout}, {held}{self._setup}"
        except InputError as error:
            problem = str(error)
        except Exception as error:  # whatever it is, the other ranks must hear of it
            problem = f"{type(error).__name__}: {error}"
        agree.same(self._all, made, problem)
        if experts is not None and experts.copies is not None:
            same_copies(self._all, experts.copies)
            made += f", placement {experts.copies.digest}"
        self._made = made

    def stages(self, stages: bool | str) -> None:
        """Have exchange 2 go in stages, the same on every rank.  True: peer after peer in turn.  A
        kind of `railopt schedule` that has stages: as that orders the rows of each call, which
        takes one more small round of all ranks.  False: to all at once.  Calls with a `capacity`
        keep the stages of the first.
        """
        if problem := unknown_stages(stages):
            raise InputError(problem)
        self._stages, self._ordered = stages, f", stages {stages}"

    def in_stages(self, step: Any) -> Any:
        """A step of a way, with its stages where it is exchange 2 and has some."""
        if not isinstance(step, Exchange) or step.within != "rail" or self._stages is False:
            return step
        node, local = divmod(self.rank, self.fabric.gpus)
        if self._stages is True:
            return step._replace(turns=step.in_turn(node))
        rows = gathered(self._all, np.array(step.send), self.limit_s)[local :: self.fabric.gpus]
        return step._replace(turns=scheduled(node, rows, str(self._stages)))

    @property
    def rank(self) -> int:
        """This rank: node * gpus + local index."""
        return self._router.rank

    def all_to_all_single(
        self,
        output: Any,
        input: Any,
        output_split_sizes: Splits = None,
        input_split_sizes: Splits = None,
        *,
        counts: Ints | None = None,
        async_op: bool = False,
    ) -> Any:
        """What `torch.distributed.all_to_all_single` does: rows of `input`, by destination, into
        `output`, by source.  Returns `output`, or a `Handle` whose `wait` does; backward, gradients
        take the way back.

        counts       int64 [R, R], rows from rank to rank, where every rank knows them: they are
                     not exchanged then, only that all ranks have the same and nothing is wrong;
                     every rank plans for all nodes
        async_op     rows move while the caller goes on; tensors are left alone until `wait`
        """
        offer = self._offer(output, input, output_split_sizes, input_split_sizes)
        if counts is not None:
            counts = self._known(counts, offer)
        route = self.route(offer, counts)
        return into(self.carrier, route.way, input, output, async_op)

    def route(
        self, offer: agree.Offer, counts: Ints | None = None, *, to_nodes: bool = False
    ) -> Route:
        """The route of `counts` that all agreed on, or else of what every rank offers; see
        `Router.route`.
        """
        offer = self.stamped(offer)
        if counts is None and self.agree_first and self._device != "cuda":
            agree.raise_unlike(self._all, offer, offer.call, None, self.limit_s, first=True)
        if counts is None and self.on_device is not None:
            route = self.on_device.route(offer)
        elif counts is None and self._alone:
            route = self._circle.route(offer, to_nodes=to_nodes)
        else:
            counts = agree.agreed(self._all, offer) if counts is None else counts
            route = self._router.route(counts, to_nodes=to_nodes)
        route = route._replace(way=tuple(map(self.in_stages, route.way)))
        self.last = NicBytes(route.sent * offer.width, route.received * offer.width)
        return route

    def stamped(self, offer: agree.Offer) -> agree.Offer:
        """An offer with what this object was made for, which ranks compare; where they do not, what
        is wrong with it is raised here, before anybody is waited for.
        """
        if offer.problem and not self.agree_first:
            raise InputError(f"rank {self.rank}: {offer.problem}")
        return offer._replace(made=self._made + self._ordered)

    def gathered_bytes(self) -> NicBytes:
        """`last` of every node, [nodes, rails]; every rank calls this."""
        sent, received = self.last or np.zeros((2, self.fabric.rails), np.int64)
        every = gathered(self._all, np.stack([sent, received]))[:: self.fabric.gpus]
        return NicBytes(every[:, 0], every[:, 1])

    def confirm(self, offer: agree.Offer, counts: Ints | None = None) -> None:
        """Raise on every rank what is wrong with the offer of any, how rows of two differ, or that
        two were handed different counts; unless ranks are not to agree.
        """
        offer = self.stamped(offer)
        if self.agree_first:
            call = agree.NOTHING if counts is None else agree.COUNTS
            first = self._device != "cuda"
            agree.raise_unlike(self._all, offer, call, counts, self.limit_s, first=first)

    def _known(self, counts: Any, offer: agree.Offer) -> Ints:
        """Counts that every rank hands in, held against its own splits and against the others'."""
        problem = offer.problem or _misfit(counts, offer, self.rank)
        matrix = np.ascontiguousarray(np.zeros(0) if problem else counts)
        self.confirm(offer._replace(problem=problem), matrix)
        return matrix

    def along(self, way: Way, length: int, *tensors: Any) -> tuple[Any, ...]:
        """New tensors of `length` rows: `tensors` along a way, differentiable."""
        return carried(self.carrier, way, length, *tensors)

    def _offer(self, output: Any, input: Any, recv: Splits, send: Splits) -> agree.Offer:
        """What this rank wants of a call, checked as far as one rank can."""
        ranks = self.fabric.nodes * self.fabric.gpus
        sizes = []
        problem = self.unfit("input", input) or self.unfit("output", output)
        for name, tensor, splits in (("input", input, send), ("output", output, recv)):
            if problem:
                break
            found, problem = _splits(name, tensor, splits, ranks)
            sizes.append(found)
        if not problem and (input.dtype != output.dtype or input.shape[1:] != output.shape[1:]):
            problem = (
                f"input has {_kind(input)}, output {_kind(output)}: expected rows that are alike"
            )
        if not problem and agree.differentiable(input.requires_grad) and _is_leaf(output):
            problem = "output is a leaf that needs gradients: rows can't be written into it"
        if problem:
            return agree.Offer.none(problem)
        kind = agree.differentiable(input.requires_grad) + _kind(input)
        return agree.Offer(sizes[0], sizes[1], _width(input), kind)

    def unfit(self, name: str, tensor: Any) -> str:
        """Why a tensor can't be sent, in words; "" if it can."""
        if not isinstance(tensor, torch.Tensor) or tensor.dim() == 0:
            return f"{name} is no tensor of at least one dimension"
        if tensor.is_nested or tensor.is_quantized or tensor.layout is not torch.strided:
            kind = "nested" if tensor.is_nested else "quantized" if tensor.is_quantized else ""
            kind = f"a {kind} tensor" if kind else f"of layout {tensor.layout}"
            return f"{name} is {kind}: expected a dense tensor, whose rows are bytes in memory"
        if self._device is not None and tensor.device.type != self._device:
            return f"{name} is on {tensor.device}, its process groups carry {self._device} tensors"
        if name == "output" and not tensor.is_contiguous():
            return "output is not contiguous: rows are written where they lie"
        if name == "output" and (tensor.is_conj() or tensor.is_neg()):
            return "output is a conjugated or negated view: rows are written where they lie"
        return ""


def _is_leaf(tensor: Any) -> bool:
    """Whether autograd forbids to write into a tensor."""
    return bool(tensor.requires_grad and tensor.is_leaf)


def _splits(name: str, tensor: Any, splits: Any, ranks: int) -> tuple[Ints, str]:
    """Rows to or from each rank, int64 [R], and what is wrong with them."""
    rows, none = tensor.shape[0], np.zeros(0, np.int64)
    if splits is None:
        if rows % ranks:
            return none, f"{name} has {rows} rows and no split sizes: they don't divide by {ranks}"
        return np.full(ranks, rows // ranks), ""
    try:
        sizes = list(splits.tolist() if hasattr(splits, "tolist") else splits)
    except (TypeError, RuntimeError):  # one number, or a tensor that has none
        return none, f"{name}_split_sizes are not {ranks} whole numbers of at least 0: {splits!r}"
    found = np.array(sizes) if len(sizes) == ranks and {*map(type, sizes)} == {int} else none
    if len(found) != ranks or found.dtype != np.int64 or found.min() < 0:
        return none, f"{name}_split_sizes are not {ranks} whole numbers of at least 0: {sizes}"
    if found.sum() != rows:
        return none, f"{name}_split_sizes sum to {found.sum()}, {name} has {rows} rows"
    return found, ""


def _misfit(counts: Any, offer: agree.Offer, rank: int) -> str:
    """Why counts that were handed in can't be those of the rank's own splits; "" if they can."""
    shape = (len(offer.send),) * 2
    if not isinstance(counts, np.ndarray):
        return f"counts are of type {type(counts).__name__}, expected int64 of numpy {shape}"
    if counts.shape != shape or counts.dtype != np.int64:
        return f"counts are {counts.dtype} {counts.shape}, expected int64 of numpy {shape}"
    for name, line, splits in (
        ("row", counts[rank], offer.send),
        ("column", counts[:, rank], offer.recv),
    ):
        if splits is not None and (line != splits).any():
            return f"its {name} of counts is {line.tolist()}, its split sizes are {splits.tolist()}"
    return ""


def _width(tensor: Any) -> int:
    return int(tensor.element_size() * tensor.shape[1:].numel())


def _kind(tensor: Any) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} rows of shape {tuple(tensor.shape[1:])}"
