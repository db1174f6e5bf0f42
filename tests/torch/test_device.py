"""Routes and rows by the kernels of railopt/cuda, compiled for the CPU (tests/unit/cuda/host.py),
on gloo processes: the same rows, order, sums and gradients as by the host's plans.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from railopt import Fabric
from railopt.base.errors import InputError
from railopt.cuda import planner, routing
from railopt.moe.placement.placement import Placement
from railopt.torch import Copies, RailAllToAll, TokenDispatcher, all_to_all
from railopt.torch.device import DeviceRouter
from railopt.torch.rows import DeviceRows
from tests.torch.world import WAIT_S, over_gloo, run, said
from tests.unit.cuda.host import Host

pytestmark = [
    pytest.mark.slow,
    over_gloo,
    pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ to compile the kernels with"),
]

FABRIC = Fabric.uniform(2, 2)
EXPERTS, CHOICES = 8, 3


@contextmanager
def kernels(folder: Path) -> Iterator[None]:
    """Objects that are made in here plan and move rows by kernels."""
    made = all_to_all.device_router, planner.Gpu, routing.Gpu
    Host.folder = folder
    planner.Gpu = routing.Gpu = Host  # type: ignore[assignment, misc]
    all_to_all.device_router = lambda router, group, _: DeviceRouter(router, group, "cpu")
    try:
        yield
    finally:
        all_to_all.device_router, planner.Gpu, routing.Gpu = made  # type: ignore[misc]


def all_to_alls(folder: Path, fabric: Fabric, policy: str) -> None:
    plain = RailAllToAll(fabric, policy, limit_s=WAIT_S)
    with kernels(folder):
        railed = RailAllToAll(fabric, policy, limit_s=WAIT_S)
    ranks, rank = fabric.nodes * fabric.gpus, dist.get_rank()
    for seed in range(3):
        rng = np.random.default_rng(seed)
        counts = rng.integers(0, 40, (ranks, ranks)) * (rng.random((ranks, ranks)) < 0.7)
        send, recv = counts[rank].tolist(), counts[:, rank].tolist()
        sent = torch.randn((sum(send), 3), requires_grad=True)
        wanted = plain.all_to_all_single(sent.new_empty((sum(recv), 3)), sent, recv, send)
        (gradient,) = torch.autograd.grad((wanted**2).sum(), sent)
        found = railed.all_to_all_single(sent.new_empty((sum(recv), 3)), sent, recv, send)
        assert torch.equal(found, wanted)
        assert all(map(np.array_equal, railed.last, plain.last))
        assert torch.equal(torch.autograd.grad((found**2).sum(), sent)[0], gradient)


@pytest.mark.parametrize("policy", ["even-excess", "lpt", "lpt-local", "own-nic"])
def test_the_rows_nic_bytes_and_gradients_of_host_plans(tmp_path: Path, policy: str) -> None:
    for fabric in (FABRIC, FABRIC.degraded({(1, 0): "0.5"})):
        run(4, all_to_alls, tmp_path, fabric, policy)


def drawn(rank: int, tokens: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(rank)
    x = torch.randn((tokens, 5), requires_grad=True)
    idx = torch.rand((tokens, EXPERTS)).argsort()[:, :CHOICES].clone()
    idx[torch.rand(idx.shape) < 0.2] = -1
    idx[torch.rand(idx.shape) < 0.3] = 2  # a popular one, now and then twice
    return x, idx, torch.rand((tokens, CHOICES), requires_grad=True)


def moved(dispatcher: TokenDispatcher, x, idx, weights):  # type: ignore[no-untyped-def]
    """What a dispatch, a combine and their gradients give."""
    rows = dispatcher.dispatch(x, idx, weights)
    out = dispatcher.combine(rows.tokens * 2 + rows.tokens**2, rows)
    gradients = torch.autograd.grad((out**3).sum(), (x, weights))
    return rows.tokens, rows.weights, rows.tokens_per_expert, out, *gradients


def dispatches(folder: Path, placed: bool, tokens: int) -> None:
    placement = None
    if placed:
        holds = (np.arange(EXPERTS) % 4 == np.arange(4)[:, None])[None].copy()
        holds[0, :, 2] = True
        home = (np.arange(EXPERTS, dtype=np.int32) % 4)[None]
        placement = Copies(Placement(2, 2, holds, home), shares="even")
    plain = TokenDispatcher(FABRIC, EXPERTS, placement=placement, limit_s=WAIT_S)
    with kernels(folder):
        there = TokenDispatcher(FABRIC, EXPERTS, placement=placement, limit_s=WAIT_S)
        given = drawn(dist.get_rank(), tokens * dist.get_rank())
        for found, wanted in zip(moved(there, *given), moved(plain, *given), strict=True):
            assert found.shape == wanted.shape
            assert torch.equal(found, wanted), (found - wanted).abs().max()


@pytest.mark.parametrize("placed", [False, True])
def test_dispatch_and_combine_to_the_last_bit(tmp_path: Path, placed: bool) -> None:
    for tokens in (0, 7):
        run(4, dispatches, tmp_path, placed, tokens)


def with_capacity(folder: Path) -> str:
    plain = TokenDispatcher(FABRIC, EXPERTS, limit_s=WAIT_S)
    with kernels(folder):
        there = TokenDispatcher(FABRIC, EXPERTS, limit_s=WAIT_S, capacity=(9, 60))
        x, idx, weights = drawn(dist.get_rank(), 9)
        found, wanted = moved(there, x, idx, weights), moved(plain, x, idx, weights)
        for one, other in zip(found[3:], wanted[3:], strict=True):
            assert torch.equal(one, other)
        assert found[2].tolist() == [60, 60]
        there.check()
        less = TokenDispatcher(FABRIC, EXPERTS, limit_s=WAIT_S, capacity=(4, 60))
        out = less.combine(less.dispatch(x, idx, weights).tokens)
        kept = torch.stack([(idx // 4 == node).any(1).cumsum(0) <= 4 for node in range(2)])
        alone = torch.where(kept[idx.clamp(min=0) // 4, torch.arange(9)[:, None]], idx, -1)
        rows = plain.dispatch(x, alone, weights)
        assert torch.allclose(out, plain.combine(rows.tokens, rows))
        return said(less.check)


def test_what_is_beyond_a_capacity_is_left_out_and_told_to_all(tmp_path: Path) -> None:
    (sentence,) = set(run(4, with_capacity, tmp_path))
    assert "rank 0 left out" in sentence
    assert "units beyond 4 per node, and 0 rows beyond 60 per expert" in sentence


def wrong(folder: Path) -> list[str]:
    with kernels(folder):
        there = TokenDispatcher(FABRIC, EXPERTS, limit_s=WAIT_S)
        railed = there.rails
        x, idx, weights = drawn(dist.get_rank(), 9)
        rank = dist.get_rank()
        idx[0, 0] = 8 if rank == 2 else 0
        texts = [said(there.dispatch, x, idx, weights)]
        texts.append(said(there.dispatch, x[rank // 3 :], idx * 0, weights))
        send = [1, 1, 1, 1] if rank == 1 else [0, 0, 0, 0]
        rows, out = torch.ones(sum(send), 2), torch.ones(0, 2)
        texts.append(said(railed.all_to_all_single, out, rows, [0] * 4, send))
        idx = idx.clamp(max=7)
        rows = there.dispatch(x, idx, weights)
        texts.append(said(there.combine, rows.tokens[rank // 3 :], rows))
        other = TokenDispatcher(FABRIC, 2 * EXPERTS, limit_s=WAIT_S)
        texts.append(said((other if rank == 1 else there).dispatch, x, idx, weights))
        cut = RailAllToAll(FABRIC.degraded({(1, 0): "0", (1, 1): "0"}), limit_s=WAIT_S)
        texts.append(said(cut.all_to_all_single, torch.empty(4), torch.ones(4)))
        return [*texts, said(there.combine, rows.tokens, rows)]


def test_an_error_of_one_rank_is_an_error_of_all(tmp_path: Path) -> None:
    (texts,) = {tuple(found) for found in run(4, wrong, tmp_path)}
    assert texts[0] == "rank 2: topk_idx goes from -1 to 8: expected -1 to 7"
    assert "rank 3: x has shape (8, 5)" in texts[1]
    assert "rank 1 sends 1 rows to rank 0, which expects 0" in texts[2]
    assert "rank 3: y has shape" in texts[3]
    assert "rank 1 calls what was made for 2 nodes x 2 GPUs, 16 experts" in texts[4]
    assert texts[5] == "no living rail from node 0 to node 1"
    assert texts[6] == "no error"


def test_rows_are_copied_and_added_up_in_order(tmp_path: Path) -> None:
    Host.folder = tmp_path
    mover = DeviceRows(Host(), torch.device("cpu"))  # type: ignore[arg-type]
    rows, out = torch.randn(9, 12), torch.zeros(5, 16)
    index = torch.tensor([3, -1, 0, 8, 3], dtype=torch.int32)
    mover.copy(rows[:, :10], out[:, :10], index)
    assert torch.equal(out[:, :10], torch.where(index[:, None] < 0, 0, rows[index, :10]))
    assert not out[:, 10:].any()
    many = torch.tensor([[0, 1, -1], [-1, -1, -1], [8, 2, 5]], dtype=torch.int32)
    sums = torch.full((3, 12), torch.nan)
    mover.add(rows, sums, many)
    assert torch.equal(sums[0], rows[0] + rows[1])
    assert not sums[1].any()
    assert torch.equal(sums[2], (rows[8] + rows[2]) + rows[5])
    short, total = rows[:4, :3].bfloat16(), torch.zeros(1, 3, dtype=torch.bfloat16)
    mover.add(short, total, torch.tensor([[0, 1, 2]], dtype=torch.int32))
    exact = short[:3].float().sum(dim=0)
    assert torch.allclose(total[0].float(), exact, rtol=2**-7, atol=2**-7)
    with pytest.raises(InputError, match="rows of int32 can't be added up"):
        mover.add(many, many, many)
