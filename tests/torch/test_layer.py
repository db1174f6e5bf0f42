"""ExpertLayer beside a reference in plain loops: the same bits, gradients and steps too."""

from __future__ import annotations

import pickle
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from railopt import Fabric
from railopt.base.errors import InputError
from railopt.moe.assess import dimensions
from railopt.moe.placement.placement import Placement
from railopt.moe.routing.dispatch import split
from railopt.moe.routing.trace import Trace
from railopt.torch import Copies, ExpertLayer, TokenDispatcher
from railopt.torch.copies import SlotTable
from tests.torch.world import WAIT_S, run, said

FABRIC, RANKS, EXPERTS, TOP_K, WIDTH = Fabric.uniform(2, 2), 4, 6, 3, 5


def placed(seed: int, home: list[int] | None = None) -> Placement:
    """Experts with one to four copies."""
    rng = np.random.default_rng(seed)
    owner = rng.integers(0, RANKS, (1, EXPERTS)) if home is None else np.array([home])
    return Placement.from_home(owner, 2, 2, rng.random((1, RANKS, EXPERTS)) < 0.4)


def expert(number: int) -> nn.Module:
    torch.manual_seed(number)
    return nn.Sequential(nn.Linear(WIDTH, 8), nn.GELU(), nn.Linear(8, WIDTH))


def inputs(seed: int) -> list[tuple[Any, Any, Any]]:
    """Tokens, choices and weights of every rank, the same wherever they are made; ragged."""
    found, device = [], torch.get_default_device()
    with torch.device("cpu"):
        dice = torch.Generator().manual_seed(seed)
        for rank in range(RANKS):
            tokens = 0 if rank == seed % RANKS else 6 + 5 * rank
            idx = torch.rand(tokens, EXPERTS, generator=dice).topk(TOP_K).indices
            idx[torch.rand(idx.shape, generator=dice) < 0.1] = -1
            x = torch.randn(tokens, WIDTH, generator=dice)
            made = (x, idx, torch.rand(tokens, TOP_K, generator=dice))
            found.append(tuple(tensor.to(device) for tensor in made))
    return found


def homes_of(copies: Copies, given: list[tuple[Any, Any, Any]]) -> list[Any]:
    """[T, K] of every source: the rank that each choice goes to, one choice after the other."""
    layer, targets = copies.layer, []
    placement = copies.placement
    counts = np.stack([np.bincount(idx[idx >= 0].cpu(), minlength=EXPERTS) for _, idx, _ in given])
    due = split(counts, placement.holds[layer], placement.home[layer], 2, copies.shares)
    for source, (_, idx, _) in enumerate(given):
        left = due[source].copy()
        target = torch.full_like(idx, -1)
        for token in range(len(idx)):
            for choice, e in enumerate(idx[token].tolist()):
                if e >= 0:
                    target[token, choice] = int(np.flatnonzero(left[e])[0])
                    left[e, target[token, choice]] -= 1
        targets.append(target)
    return targets


class Reference:
    """All ranks' layer in one place, sums in the documented order."""

    def __init__(self, home: list[int]) -> None:
        self.home, self.experts = home, [expert(e) for e in range(EXPERTS)]

    def step(self, copies: Copies, seed: int) -> tuple[list[Any], list[Any], list[Any]]:
        """Outputs, gradients of x and of each expert's parameters, of sum(out ** 2); then a step of
        SGD.
        """
        given = inputs(seed)
        target = homes_of(copies, given)
        holds = copies.placement.holds[copies.layer]
        rows: dict[tuple[int, int, int], tuple[Any, Any]] = {}  # (source, token, choice)
        batches = []
        for rank in range(RANKS):
            for e in np.flatnonzero(holds[rank]).tolist():
                keys = [
                    (s, t, k)
                    for s in range(RANKS)
                    for t, k in (((given[s][1] == e) & (target[s] == rank)).nonzero().tolist())
                ]
                batch = (
                    torch.stack([given[s][0][t] for s, t, _ in keys])
                    if keys
                    else (torch.zeros(0, WIDTH))
                )
                module = deepcopy(self.experts[e])
                y = module(batch.requires_grad_())
                batches.append((rank, e, keys, batch, y, list(module.parameters())))
                for i, (s, t, k) in enumerate(keys):
                    rows[s, t, k] = y[i].detach() * given[s][2][t, k]
        out = [self.summed(rows, given[s], target[s], s) for s in range(RANKS)]
        gradients = [[None] * 4 for _ in range(EXPERTS)]
        parts, back = [], {}
        for rank, e, keys, batch, y, parameters in batches:
            due = [2 * out[s][t] * given[s][2][t, k] for s, t, k in keys]
            due = torch.stack(due) if due else torch.zeros(0, WIDTH)
            (y * due).sum().backward()  # torch.autograd.grad takes seconds to import
            parts.append((rank != self.home[e], rank, e, [p.grad for p in parameters]))
            back.update({key: batch.grad[i] for i, key in enumerate(keys)})
        for _, _, e, found in sorted(parts, key=lambda part: part[:3]):
            for i, new in enumerate(found):
                gradients[e][i] = new if gradients[e][i] is None else gradients[e][i] + new
        x = [self.summed(back, given[s], target[s], s) for s in range(RANKS)]
        for module, own in zip(self.experts, gradients, strict=True):
            for parameter, gradient in zip(module.parameters(), own, strict=True):
                parameter.data -= 0.1 * gradient
        return out, x, gradients

    @staticmethod
    def summed(rows: dict[Any, Any], given: tuple[Any, Any, Any], target: Any, s: int) -> Any:
        """[T, H]: rows of each token, slot by slot of a GPU, GPU by GPU of a node, node by node."""
        total = torch.zeros_like(given[0])
        for t in range(len(total)):
            for node in range(2):
                units = torch.zeros(WIDTH)
                for gpu in (2 * node, 2 * node + 1):
                    at = [k for k in range(TOP_K) if target[t, k] == gpu]
                    copy = torch.zeros(WIDTH)
                    for k in sorted(at, key=lambda k: int(given[1][t, k])):
                        copy = copy + rows[s, t, k]
                    units = units + copy
                total[t] = total[t] + units
        return total


def trained(shares: Any, stages: bool | str) -> tuple[float, float]:
    """Four steps, the last two with another placement, each beside the reference."""
    first = placed(1)
    home, rank = first.home[0].tolist(), dist.get_rank()
    right = Reference(home)
    own = [e for e in range(EXPERTS) if home[e] == rank]
    layer = ExpertLayer(
        FABRIC,
        [expert(e) for e in own],
        Copies(first, shares=shares),
        template=expert(99),
        stages=stages,
        limit_s=WAIT_S,
    )
    for step in range(4):
        copies = Copies(placed(1 if step < 2 else 2), shares=shares)
        if step == 2:
            layer.place(copies)
        out, x_grad, gradients = right.step(copies, step)
        x, idx, weights = inputs(step)[rank]
        x.requires_grad_()
        for parameter in layer.parameters():
            parameter.grad = None
        found = layer(x, idx, weights)
        assert torch.equal(found, out[rank])
        found.square().sum().backward()
        layer.sum_gradients()
        assert torch.equal(x.grad, x_grad[rank])
        for e, module in zip(own, layer.experts, strict=True):
            for parameter, gradient in zip(module.parameters(), gradients[e], strict=True):
                assert torch.equal(parameter.grad, gradient)
        for parameter in layer.parameters():  # torch.optim takes seconds to import
            parameter.data -= 0.1 * parameter.grad
        layer.send_parameters()
    assert layer.agg.took_s > 0
    return layer.trans.hidden_s, layer.trans.took_s


@pytest.mark.parametrize(
    ("shares", "stages"), [("near", "compact"), ("even", True), ("home", False)]
)
def test_as_the_reference_to_the_last_bit(shares: str, stages: bool | str) -> None:
    for hidden_s, took_s in run(RANKS, trained, shares, stages):
        assert 0 <= hidden_s <= took_s


def followed() -> list[bool]:
    """Whether results are those of plain experts: in eval mode, with another placement, of
    parameters loaded as a whole or expert by expert, of another dtype.
    """
    first, rank = placed(1, [0, 0, 1, 1, 2, 2]), dist.get_rank()
    own = np.flatnonzero(first.home[0] == rank).tolist()

    def unsure(number: int) -> nn.Module:
        return nn.Sequential(expert(number), nn.Dropout(0.5))

    template = unsure(9)
    layer = ExpertLayer(FABRIC, [unsure(e) for e in own], first, template=template, limit_s=WAIT_S)
    x, idx, weights = inputs(1)[rank]

    @torch.no_grad()
    def right(number: int, dtype: torch.dtype = torch.float32) -> bool:
        found = layer(x.to(dtype), idx, weights.to(dtype))
        wanted = torch.zeros_like(found)
        for e in range(EXPERTS):
            share = (weights * (idx == e)).sum(dim=1)[:, None]
            wanted += expert(e + number).to(dtype)(x.to(dtype)) * share
        return torch.allclose(found, wanted, atol=1e-6)

    layer.eval()
    results = [right(0)]
    layer.place(placed(2))
    results.append(right(0))
    new = nn.ModuleList([unsure(e + 50) for e in own])
    layer.load_state_dict({f"experts.{name}": one for name, one in new.state_dict().items()})
    results.append(right(50))
    for e, module in zip(own, layer.experts, strict=True):  # rank 3 is no home, and loads nothing
        module[0].load_state_dict(expert(e + 70).state_dict())
    results.append("experts loaded to dispatch" in said(right, 70))
    layer.send_parameters()
    results.append(right(70))
    results.append(right(70) and isinstance(pickle.loads(pickle.dumps(layer.experts)), nn.Module))
    nn.Sequential(layer).double()
    results.append(right(70, torch.float64))
    return results


def test_copies_follow_the_layer() -> None:
    assert run(RANKS, followed) == [[True] * 7] * RANKS


def other_shares() -> None:
    """A split's own numbers: each source divides its tokens so, to a token."""
    placement = placed(3)
    rng = np.random.default_rng(3)
    shares = np.where(placement.holds[0], rng.integers(1, 50, (RANKS, EXPERTS)), 0)
    table = SlotTable(Copies(placement, shares=shares), dist.get_rank())
    counts = rng.integers(0, 1000, EXPERTS)
    found = table.quotas(counts)
    assert found.sum(axis=1).tolist() == counts.tolist()
    for e in range(EXPERTS):
        used = np.flatnonzero(shares[:, e])
        exact = counts[e] * shares[used, e] / shares[:, e].sum()
        assert np.abs(found[e, : len(used)] - exact).max() < 1
    x, idx, weights = inputs(1)[dist.get_rank()]
    dispatcher = TokenDispatcher(
        FABRIC, EXPERTS, placement=Copies(placement, shares=shares), limit_s=WAIT_S
    )
    rows = dispatcher.dispatch(x, idx, weights)
    assert len(rows.tokens_per_expert) == len(dispatcher.held)
    own = torch.tensor(placement.holds[0]).sum(dim=1)[dist.get_rank()]
    assert len(dispatcher.held) == own
    expected = (x[:, None] * (weights * (idx >= 0))[:, :, None]).sum(dim=1)
    assert torch.allclose(dispatcher.combine(rows.tokens, rows), expected, 1e-5, 1e-6)


def test_shares_of_a_split() -> None:
    run(RANKS, other_shares)


def wrongly(name: str, path: str) -> None:
    odd, placement = dist.get_rank() == 1, placed(1)
    experts = [expert(e) for e in np.flatnonzero(placement.home[0] == dist.get_rank())]
    options: dict[str, Any] = {"template": expert(9), "limit_s": WAIT_S}
    if name == "ranks":
        placement = Placement.contiguous(1, EXPERTS, 4, 1) if odd else placement
    elif name == "other":
        placement = placed(5, placement.home[0].tolist()) if odd else placement
    elif name == "rule":
        placement = Copies(placement, shares="even" if odd else "near")  # type: ignore[assignment]
    elif name == "layers":
        placement = Placement.contiguous(2, EXPERTS, 2, 2) if odd else placement
    elif name == "few" and odd:
        experts = [*experts, expert(0)]
    elif name == "make" and odd:
        experts, options["template"] = [nn.Linear(WIDTH, WIDTH) for _ in experts], None
    elif name == "deep":  # alike in the first 400 bytes of what they are
        layers = [nn.Linear(WIDTH, WIDTH) for _ in range(39)]
        options["template"] = nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH + odd))
        experts = [deepcopy(options["template"]) for _ in experts]
    elif name == "file":
        options["record"] = path
    elif name == "capacity" and odd:
        options["capacity"] = (4, 4)
    elif name == "stages" and odd:
        options["stages"] = "pipelined"
    elif name == "no file":
        options["record"] = 5
    elif name == "one records":
        options["record"] = f"{path}.other" if odd else None
    elif name == "no modules" and odd:
        experts = None  # type: ignore[assignment]
    elif name == "no module" and odd:
        experts = ["none"]  # type: ignore[list-item]
    elif name == "template" and odd:
        options["template"] = "none"
    elif name == "shares":
        shares = placement.holds[0].astype(int)
        placement = Copies(placement, shares=shares + odd)  # type: ignore[assignment]
    elif name == "buffer" and odd:
        options["template"].register_buffer("scale", torch.ones(1))
        experts = [deepcopy(options["template"]) for _ in experts]
    layer = ExpertLayer(FABRIC, experts, placement, **options)
    if name == "experts":
        layer.place(Placement.contiguous(1, 8, 2, 2) if odd else placement)
    elif name == "replaced":
        layer.place(placed(6) if odd else placement)
    elif name == "none":
        layer.place(None if odd else placement)  # type: ignore[arg-type]
    elif name == "loaded":
        if odd:
            layer.load_state_dict(layer.state_dict())
        layer(*inputs(0)[dist.get_rank()])
    elif name == "unrecorded":
        layer.save_trace()


WRONG = {
    "ranks": "rank 1: a placement for 4 nodes x 1 GPUs, the fabric has 2 x 2",
    "other": "rank 1 has expert 0 at home on GPU 1, on GPUs [",
    "layers": "rank 1: placement is of type Placement: expected Copies, or a Placement of one",
    "few": "experts were given, this rank is the home of",
    "make": "rank 1 was made for experts of 2 parameters: float32[5, 5] float32[5], rank 0 for",
    "deep": "two ranks differ in what they were made for, beyond the first 400 bytes of experts of",
    "file": "there.npz exists: give the trace another name",
    "capacity": "capacity",  # over gloo and over NCCL in other words
    "stages": "rank 1: stages = 'pipelined': expected True, False, or one of compact, ",
    "no file": "rank 0: record is of type int: expected the name of a file",
    "one records": "rank 1 was made for experts of 4 parameters: float32[8, 5] float32[8] "
    "float32[5, 8] float32[5], recorded, rank 0 for",
    "no modules": "rank 1: experts or template of type NoneType: expected torch.nn.Module",
    "no module": "rank 1: experts or template of type str: expected torch.nn.Module",
    "template": "rank 1: experts or template of type str: expected torch.nn.Module",
    "shares": "rank 1: shares give GPU 0 1 tokens of expert ",
    "buffer": "rank 1: experts have the buffer scale, which copies would not follow",
    "loaded": "rank 1 has tokens of 5 x torch.float32 with 3 choices, weights torch.float32, "
    "experts loaded to dispatch, rank 0 tokens",
    "experts": "rank 1: a placement of 8 experts, the layer has 6",
    "replaced": "expected the same placement everywhere",
    "rule": "rank 1 has expert 0 at home on GPU 1, on GPUs [1 3], shares even, rank 0 expert 0",
    "none": "rank 1: a layer with copies needs a placement",
    "unrecorded": "nothing was recorded: give the layer a file, record=",
}


def all_wrong(path: str) -> dict[str, str]:
    return {name: said(wrongly, name, path) for name in WRONG}


def test_what_is_wrong_is_said_by_all(tmp_path: Path) -> None:
    path = tmp_path / "there.npz"
    path.write_bytes(b"kept")
    for found in run(RANKS, all_wrong, str(path)):
        assert [name for name, says in WRONG.items() if says not in found[name]] == [], found
    assert path.read_bytes() == b"kept"


@pytest.mark.parametrize("shares", ["far", np.ones((4, 6), int), np.ones((2, 6), int), [[0.5]]])
def test_shares_that_are_none(shares: Any) -> None:
    with pytest.raises(InputError, match="shares"):
        Copies(placed(1), shares=shares).check()


def computed_again(path: str) -> bool:
    """A layer whose activations are not kept: the same gradients, and one call in its trace."""
    placement, rank = placed(1), dist.get_rank()
    experts = [expert(e) for e in np.flatnonzero(placement.home[0] == rank)]
    layer = ExpertLayer(FABRIC, experts, placement, template=expert(9), record=path, limit_s=WAIT_S)
    x, idx, weights = inputs(1)[rank]
    gradients = []
    for again in (False, True):
        layer.zero_grad()
        x = x.detach().requires_grad_()
        if again:
            options = {"use_reentrant": False, "context_fn": layer.recorded_once}
            out = checkpoint(layer, x, idx, weights, **options)
        else:
            out = layer(x, idx, weights)
        out.square().sum().backward()
        layer.sum_gradients()
        gradients.append([x.grad, *(p.grad for p in layer.parameters())])
    layer.save_trace()
    return all(map(torch.equal, *gradients))


def test_what_is_computed_again_is_recorded_once(tmp_path: Path) -> None:
    assert run(RANKS, computed_again, str(tmp_path / "seen.npz")) == [True] * RANKS
    assert len(Trace.read(tmp_path / "seen.npz").counts) == 2


def recorded(path: str, whole: bool) -> None:
    placement, rank = placed(1), dist.get_rank()
    experts = [expert(e) for e in np.flatnonzero(placement.home[0] == rank)]
    layer = ExpertLayer(FABRIC, experts, placement, template=expert(9), record=path, limit_s=WAIT_S)
    with torch.no_grad():
        for seed in range(3):
            x, idx, weights = inputs(seed)[rank]
            layer(x, idx.abs() if whole else idx, weights)
        if not whole:  # a call with fewer choices per token
            layer(x, idx[:, :1], weights[:, :1])
        layer.save_trace()
        layer(x, idx, weights)
    assert "exists: give the trace another name" in said(layer.save_trace)
    layer.save_trace(f"{path}-later.npz")


@pytest.mark.parametrize("whole", [True, False])
def test_a_trace_that_place_reads(tmp_path: Path, whole: bool) -> None:
    run(RANKS, recorded, str(tmp_path / "seen.npz"), whole)
    assert len(Trace.read(tmp_path / "seen.npz-later.npz").counts) == 1
    trace = Trace.read(tmp_path / "seen.npz")
    assert (trace.top_k, trace.ranks, trace.experts) == (TOP_K, RANKS, EXPERTS)
    assert (trace.choices.size > 0) == whole
    model = dimensions(trace, None)  # what `place`, `split` and `weigh` ask for
    assert (model.hidden, model.ffn) == (WIDTH, 6)  # 93 parameters, as 3 x 5 x 6
    if not whole:
        for rank, (_, idx, _) in enumerate(inputs(2)):
            first = idx[:, 0]
            right = torch.bincount(first[first >= 0], minlength=EXPERTS).tolist()
            assert trace.counts[3, 0, rank].tolist() == right
    for seed in range(3):
        for rank, (_, idx, _) in enumerate(inputs(seed)):
            chosen = idx.abs() if whole else idx[idx >= 0]
            right = torch.bincount(chosen.reshape(-1), minlength=EXPERTS).tolist()
            assert trace.counts[seed, 0, rank].tolist() == right
