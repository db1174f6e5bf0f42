"""TokenDispatcher beside a reference in plain PyTorch: bit-equal dispatch, the same sums."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
import torch.distributed as dist

from railopt import Fabric
from railopt.base.errors import BackendError
from railopt.torch import TokenDispatcher
from railopt.torch.groups import made
from tests.torch import reference
from tests.torch.world import WAIT_S, outcomes_of, over_gloo, run, said

EXPERTS, TOP_K, WIDTH = 16, 4, 6
LATE_S = 3.0
CLOSE = (1.3e-6, 1e-5)  # relative and absolute; torch.testing takes seconds to import


def inputs(ranks: int, seed: int, dtype: torch.dtype) -> tuple[list, list, list]:
    """Tokens, choices and weights of every rank, the same wherever they are made; ragged."""
    dice = torch.Generator(torch.get_default_device()).manual_seed(seed)
    x, idx, weights = [], [], []
    for rank in range(ranks):
        tokens = 0 if rank == seed % ranks else 5 + 7 * rank
        scores = torch.rand(tokens, EXPERTS, generator=dice) ** (1 + torch.arange(EXPERTS) % 3)
        chosen = scores.topk(TOP_K).indices
        chosen[torch.rand(chosen.shape, generator=dice) < 0.1] = -1
        idx.append(chosen)
        x.append(torch.randn(tokens, WIDTH, generator=dice).to(dtype))
        weights.append(torch.rand(tokens, TOP_K, generator=dice))
    return x, idx, weights


def compared(fabric: Fabric, policy: str, dtype: torch.dtype) -> None:
    dispatcher = TokenDispatcher(fabric, EXPERTS, policy, limit_s=WAIT_S)
    ranks, rank = fabric.nodes * fabric.gpus, dist.get_rank()
    factor = torch.linspace(0.5, 2, WIDTH).to(dtype)
    for seed in range(3):
        x, idx, weights = inputs(ranks, seed, dtype)
        for tensor in (*x, *weights):
            tensor.requires_grad_()
        right = reference.dispatch(x, idx, weights, EXPERTS)
        combined = reference.combine([r.tokens * factor for r in right], right, [len(t) for t in x])
        own_x, own_weights = (t[rank].detach().requires_grad_() for t in (x, weights))
        found = dispatcher.dispatch(own_x, idx[rank], own_weights)
        assert torch.equal(found.tokens, right[rank].tokens)
        assert torch.equal(found.tokens_per_expert, right[rank].tokens_per_expert.cpu())
        assert torch.equal(found.weights, right[rank].weights)
        y = dispatcher.combine(found.tokens * factor, found)
        loose = dtype == torch.bfloat16
        assert torch.allclose(y, combined[rank].to(dtype), *((2e-2, 2e-2) if loose else CLOSE))
        sum((t.square().sum() for t in combined), torch.zeros(())).backward()
        y.square().sum().backward()
        near = (1e-1, 2e-1) if loose else CLOSE
        assert torch.allclose(own_x.grad, x[rank].grad, *near)
        assert torch.allclose(own_weights.grad, weights[rank].grad, *near)


@pytest.mark.parametrize("policy", ["even-excess", "lpt", "own-nic", "spill"])
def test_as_the_reference(policy: str) -> None:
    ranks = 8 if policy == "even-excess" else 4
    run(ranks, compared, Fabric.uniform(2, ranks // 2), policy, torch.float32)


def test_as_the_reference_in_bfloat16() -> None:
    run(4, compared, Fabric.uniform(2, 2), "even-excess", torch.bfloat16)


@pytest.mark.parametrize("shape", [(4, 1), (1, 4)])
def test_as_the_reference_on_other_layouts(shape: tuple[int, int]) -> None:
    run(4, compared, Fabric.uniform(*shape), "even-excess", torch.float64)


def once() -> list[int]:
    """Every token of rank 0 has all its experts on node 1: bytes per NIC of node 0."""
    dispatcher = TokenDispatcher(Fabric.uniform(2, 2), 8, limit_s=WAIT_S)
    tokens = 256 if dist.get_rank() == 0 else 0
    idx = torch.tensor([[4, 5, 6, 7]]).repeat(tokens, 1)
    rows = dispatcher.dispatch(torch.ones(tokens, 3), idx, torch.ones(tokens, 4))
    assert rows.tokens_per_expert.tolist() == [0 if dist.get_rank() < 2 else 256] * 2
    y = dispatcher.combine(rows.tokens, weighted=False)
    assert torch.equal(y, torch.full((tokens, 3), 4.0))
    return dispatcher.rails.gathered_bytes().sent.reshape(-1).tolist()


@over_gloo  # rows are wider on a GPU
def test_a_token_crosses_once_and_rails_are_even() -> None:
    row = 3 * 4 + 4 * 4 + 5 * 4  # a token, its weights, its choices and its number
    assert run(4, once) == [[128 * row, 128 * row, 0, 0]] * 4


def dispatch_wrongly(name: str) -> None:
    dispatcher = TokenDispatcher(Fabric.uniform(2, 2), 8, limit_s=WAIT_S)
    x, idx, weights = torch.ones(4, 3), torch.zeros(4, 2, dtype=torch.int64), torch.ones(4, 2)
    if dist.get_rank() == 1:
        if name == "expert":
            idx[0, 0] = 8
        elif name == "shape":
            weights = weights[:3]
        elif name == "kind":
            idx = idx.float()
        elif name == "width":
            x = x.double()
        elif name == "as wide":
            x, weights = torch.ones(4, 4), weights.half()
        elif name == "sparse":
            x = x.to_sparse()
        elif name == "gradients":
            weights.requires_grad_()
        elif name in ODD_INDICES:
            idx = idx.to(getattr(torch, name))
    if name == "nothing" and dist.get_rank() == 1:
        dispatcher.combine(x)
    rows = dispatcher.dispatch(x, idx, weights)
    y, whole = rows.tokens, rows
    if name == "another":
        rows = dispatcher.dispatch(x, idx, weights)
    if dist.get_rank() == 1:
        rows = {"another": whole, "no dispatch": "rows"}.get(name, rows)
        bad = {"rows": torch.ones(1, 3), "returned": y.double(), "nowhere": y.to("meta")}
        y = {**bad, "halves": y.half(), "grown": y.clone().requires_grad_()}.get(name, y)
    dispatcher.combine(y, rows)


ODD_INDICES = ("complex64", "uint16", "uint64", "bool")
WRONG = {
    "expert": "rank 1: topk_idx goes from 0 to 8: expected -1 to 7",
    "shape": "rank 1: x has shape (4, 3), topk_idx (4, 2), topk_weights (3, 2)",
    "kind": "rank 1: topk_idx is torch.float32",
    **{name: f"rank 1: topk_idx is torch.{name}" for name in ODD_INDICES},
    "as wide": "rank 1 has tokens of 4 x torch.float32 with 2 choices, weights torch.float16",
    "sparse": "rank 1: x is of layout torch.sparse_coo: expected a dense tensor",
    "gradients": "rank 1 has differentiable tokens of 3 x torch.float32 with 2 choices",
    "nothing": "rank 1: combine before any dispatch: there is nothing to bring back",
    "another": "rank 1 has y of 3 x torch.float32 of dispatch 1 to combine, rank 0 y of 3 x",
    "no dispatch": "rank 1: dispatched is of type str: expected what dispatch returned",
    "halves": "rank 1 has y of 3 x torch.float16 of dispatch 1 to combine, rank 0 y of 3 x",
    "grown": "rank 1 has differentiable y of 3 x torch.float32",
    "width": "rank 1 has tokens of 3 x torch.float64 with 2 choices",
    "rows": "rank 1: y has shape (1, 3): expected 0 rows, one for each row that dispatch gave",
    "returned": "rank 1 has y of 3 x torch.float64 of dispatch 1 to combine, rank 0 y of 3 x",
    "nowhere": "rank 1: y is on meta, its process groups carry ",
}


def wrong() -> dict[str, str]:
    return {name: said(dispatch_wrongly, name) for name in WRONG}


def test_what_is_wrong_is_said_by_all() -> None:
    for found in run(4, wrong):
        assert [name for name, says in WRONG.items() if says not in found[name]] == [], found


def narrow(kind: torch.dtype) -> None:
    """More experts a rank than the choices' type counts."""
    dispatcher = TokenDispatcher(Fabric.uniform(2, 2), 1024, limit_s=WAIT_S)
    x = torch.arange(6.0).reshape(2, 3)
    rows = dispatcher.dispatch(x, torch.tensor([[5], [100]]).to(kind), torch.ones(2, 1))
    assert len(rows.tokens) == (8 if dist.get_rank() == 0 else 0)
    assert torch.equal(dispatcher.combine(rows.tokens, rows), x)


@pytest.mark.parametrize("kind", [torch.uint8, torch.int8, torch.int16])
def test_choices_of_few_bits(kind: torch.dtype) -> None:
    run(4, narrow, kind)


def late_inside() -> float:
    """Groups that wait for long were handed in; rank 1 is late between the two exchanges."""
    fabric = Fabric.uniform(2, 2)
    handed = made(fabric, dist.group.WORLD, 10 * LATE_S)
    dispatcher = TokenDispatcher(fabric, 8, groups=handed, limit_s=LATE_S)
    if dist.get_rank() == 1:
        dispatcher._passed = lambda _: time.sleep(3 * LATE_S)
    begin = time.monotonic()
    idx, weights = torch.zeros(4, 2, dtype=torch.int64), torch.ones(4, 2)
    try:
        dispatcher.dispatch(torch.ones(4, 3), idx, weights)
    except BackendError:
        return time.monotonic() - begin
    except TypeError:  # of rank 1, which has no copies after all
        return 0.0
    return 0.0


@over_gloo
def test_the_limit_holds_in_groups_that_are_handed_in() -> None:
    outcomes = outcomes_of(4, late_inside)
    assert outcomes[0][0]
    assert LATE_S <= outcomes[0][1] < 2.5 * LATE_S


def test_the_reference_by_hand() -> None:
    x = [torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0]])]
    idx = [torch.tensor([[0, 1], [1, -1]]), torch.tensor([[1, 0]])]
    weights = [torch.tensor([[0.5, 0.25], [1.0, 9.0]]), torch.tensor([[0.1, 0.2]])]
    first, second = reference.dispatch(x, idx, weights, 2)
    assert first.tokens.tolist() == [[1.0], [3.0]]
    assert second.tokens.tolist() == [[1.0], [2.0], [3.0]]
    np.testing.assert_allclose(second.weights.tolist(), [0.25, 1.0, 0.1])
    total = reference.combine([first.tokens, second.tokens], [first, second], [2, 1])
    np.testing.assert_allclose(torch.cat(total)[:, 0].tolist(), [0.75, 2.0, 0.9], rtol=1e-6)
