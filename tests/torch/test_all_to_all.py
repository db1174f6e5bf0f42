"""RailAllToAll beside torch's own all_to_all_single, on gloo processes: the same bits."""

from __future__ import annotations

import math
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from inspect import signature
from itertools import product

import numpy as np
import pytest
import torch
import torch.distributed as dist

from railopt import Fabric
from railopt.policies.planner import NODE_POLICIES
from railopt.torch import Groups, RailAllToAll, planned_all_to_all
from railopt.torch.agree import Offer
from railopt.torch.groups import made, members
from railopt.torch.routes import Router
from tests.torch.world import BACKEND, WAIT_S, outcomes_of, over_gloo, run

TWO_FOUR = Fabric.uniform(2, 4)
TWO_TWO = Fabric.uniform(2, 2)
DTYPES = (
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.int64,
    torch.int8,
    torch.bool,
    torch.complex64,
)


def some_counts(ranks: int, seed: int, most: int = 30) -> np.ndarray:
    """Rows from rank to rank, uneven and many of them none, the same on every rank."""
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, most, (ranks, ranks))
    counts[rng.random((ranks, ranks)) < 0.3] = 0
    counts[rng.integers(ranks)] = 0  # one rank sends nothing
    return counts


def filled(rows: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn((rows, *shape), dtype=torch.complex64 if dtype.is_complex else None).to(
            dtype
        )
    return torch.randint(0, 100, (rows, *shape)).to(dtype)


def sides(counts: np.ndarray) -> tuple[list[int], list[int]]:
    rank = dist.get_rank()
    return counts[rank].tolist(), counts[:, rank].tolist()


def peers(sent: torch.Tensor, counts: np.ndarray) -> torch.Tensor:
    """What torch's own all-to-all gives, on bytes."""
    send, recv = sides(counts)
    out = torch.empty((sum(recv), *sent.shape[1:]), dtype=sent.dtype)
    dist.all_to_all_single(
        out.view(torch.uint8) if out.dtype == torch.bool else out,
        sent.view(torch.uint8) if sent.dtype == torch.bool else sent,
        recv,
        send,
    )
    return out


def one_backend() -> tuple[str, bool]:
    rails = RailAllToAll(TWO_TWO, limit_s=WAIT_S)
    sent, out = torch.arange(4) + 10 * dist.get_rank(), torch.empty(4, dtype=torch.int64)
    rails.all_to_all_single(out, sent)
    assert (out.cpu() == 10 * torch.arange(4, device="cpu") + dist.get_rank()).all()
    return dist.get_backend(rails.groups.rail), rails.on_device is not None


def test_a_world_of_two_backends_has_the_rows_of_one() -> None:
    backend = "cpu:gloo,cuda:nccl" if BACKEND == "nccl" else "cpu:gloo"
    wanted = BACKEND, BACKEND == "nccl"  # on a GPU plans are made there
    assert outcomes_of(4, one_backend, backend=backend) == [(True, wanted)] * 4


def every_kind(fabric: Fabric, policy: str) -> None:
    railed = RailAllToAll(fabric, policy, limit_s=WAIT_S)
    ranks = fabric.nodes * fabric.gpus
    for seed, dtype in enumerate(DTYPES):
        for shape in ((), (3,), (2, 5)):
            counts = some_counts(ranks, seed)
            send, recv = sides(counts)
            sent = filled(sum(send), shape, dtype)
            out = torch.empty((sum(recv), *shape), dtype=dtype)
            assert railed.all_to_all_single(out, sent, recv, send) is out
            assert torch.equal(out, peers(sent, counts))
            assert railed.last is not None
    carried = railed.gathered_bytes()
    assert carried.sent.sum() == carried.received.sum()
    assert np.array_equal(carried.sent[railed.rank // fabric.gpus], railed.last.sent)


@pytest.mark.parametrize(
    ("fabric", "policy"),
    [(TWO_FOUR, "even-excess"), (TWO_FOUR, "spill"), (TWO_TWO, "own-nic"), (TWO_TWO, "lpt")],
)
def test_the_same_bits_as_torchs_own(fabric: Fabric, policy: str) -> None:
    run(fabric.nodes * fabric.gpus, every_kind, fabric, policy)


@pytest.mark.parametrize(
    "fabric",
    [
        Fabric.uniform(4, 1),
        Fabric.uniform(1, 4),
        Fabric.uniform(2, 4, gpus=2),
        Fabric.uniform(2, 1, gpus=2),
        TWO_TWO.degraded({(0, 1): "0"}),
    ],
    ids=["one GPU a node", "one node", "two NICs a GPU", "one NIC for two GPUs", "a dead NIC"],
)
def test_other_fabrics(fabric: Fabric) -> None:
    run(4, every_kind, fabric, "even-excess")


def as_the_router(fabric: Fabric, policy: str) -> None:
    """What nodes decide alone is what the router makes of the whole matrix."""
    railed = RailAllToAll(fabric, policy, limit_s=WAIT_S)
    router = Router(fabric, dist.get_rank(), policy)
    for seed in range(6):
        counts = some_counts(fabric.nodes * fabric.gpus, seed, 10 ** (1 + seed % 3))
        rank = dist.get_rank()
        for known in (counts[:, rank], None):
            made = railed.route(Offer(counts[rank], known, 1, ""), to_nodes=known is None)
            right = router.route(counts, to_nodes=known is None)
            assert made.way == right.way
            for mine, theirs in zip(made[1:], right[1:], strict=True):
                assert np.array_equal(mine, theirs)


@over_gloo
@pytest.mark.parametrize("policy", NODE_POLICIES)
@pytest.mark.parametrize("fabric", [TWO_TWO, TWO_TWO.degraded({(1, 0): "0.5"})])
def test_nodes_decide_alone(fabric: Fabric, policy: str) -> None:
    run(4, as_the_router, fabric, policy)


def plain_calls() -> None:
    """Without split sizes, of columns that are strided, empty, of no width; counts handed in."""
    railed = RailAllToAll(TWO_TWO, limit_s=WAIT_S)
    rank = dist.get_rank()
    sent = torch.arange(8) + 10 * rank
    out = railed.all_to_all_single(torch.empty(8, dtype=torch.int64), sent)
    assert out.tolist() == [10 * s + 2 * rank + i for s in range(4) for i in range(2)]
    strided = torch.randn(6, 8).T
    out = railed.all_to_all_single(torch.empty(8, 6), strided)
    assert torch.equal(out, peers(strided.contiguous(), np.full((4, 4), 2)))
    none = torch.empty(0, 5)
    assert railed.all_to_all_single(torch.empty(0, 5), none).shape == (0, 5)
    assert railed.all_to_all_single(torch.empty(4, 0), torch.empty(4, 0)).shape == (4, 0)
    counts = some_counts(4, 3)
    send, recv = sides(counts)
    sent = torch.randn(sum(send), 2)
    trusting = RailAllToAll(TWO_TWO, limit_s=WAIT_S, agree_first=False)
    for rails, known in product((railed, trusting), (counts, None)):
        out = torch.empty(sum(recv), 2)
        rails.all_to_all_single(out, sent, recv, send, counts=known)
        assert torch.equal(out, peers(sent, counts))
    out = railed.all_to_all_single(out, sent, torch.tensor(recv), torch.tensor(send))
    assert torch.equal(out, peers(sent, counts))


def test_what_torch_takes_is_taken() -> None:
    run(4, plain_calls)


def gradients() -> None:
    railed = RailAllToAll(TWO_TWO, limit_s=WAIT_S)
    counts = some_counts(4, 4)
    send, recv = sides(counts)
    sent = torch.randn(sum(send), 3, requires_grad=True)
    weight = torch.randn(sum(recv), 3)
    for async_op in (False, True):
        sent.grad = None
        out = railed.all_to_all_single(
            torch.empty(sum(recv), 3), sent, recv, send, async_op=async_op
        )
        out = out.wait() if async_op else out
        (out * weight).sum().backward()
        assert torch.equal(sent.grad, peers(weight, np.ascontiguousarray(counts.T)))


def test_gradients_take_the_way_back() -> None:
    run(4, gradients)


def gradients_through_views() -> None:
    """Into a part of a buffer, and of one that has a gradient itself, which what is overwritten
    does not have.
    """
    railed = RailAllToAll(TWO_TWO, limit_s=WAIT_S)
    counts = np.full((4, 4), 2)
    weight = torch.randn(12, 3)
    for async_op in (False, True):
        for needs in (False, True):
            sent = torch.randn(8, 3, requires_grad=True)
            leaf = torch.randn(12, 3, requires_grad=needs)
            buffer = leaf * 2
            out = railed.all_to_all_single(buffer[2:10], sent, async_op=async_op)
            out = out.wait() if async_op else out
            assert torch.equal(out, peers(sent.detach(), counts))
            (buffer * weight).sum().backward()
            assert torch.equal(sent.grad, peers(weight[2:10].contiguous(), counts))
            kept = torch.tensor([2.0] * 2 + [0.0] * 8 + [2.0] * 2)[:, None] * weight
            assert (leaf.grad is None) if not needs else torch.equal(leaf.grad, kept)
            sent.grad = None
            out = railed.all_to_all_single(torch.zeros(10, 3)[1:9], sent, async_op=async_op)
            (out.wait() if async_op else out).sum().backward()
            assert torch.equal(sent.grad, torch.ones(8, 3))


def test_gradients_of_rows_into_a_part_of_a_buffer() -> None:
    run(4, gradients_through_views)


def conjugates() -> None:
    """Views that stand for conjugates and negatives, sent and coming back as gradients."""
    rails = RailAllToAll(TWO_TWO, limit_s=WAIT_S)
    ranks = dist.get_world_size()
    sent = torch.randn(2 * ranks, 3, dtype=torch.complex64, requires_grad=True)
    for view in (sent.conj(), sent.conj().imag):
        assert view.is_conj() or view.is_neg()
        plain = view.detach().resolve_conj().resolve_neg().contiguous()
        out, expected = torch.empty_like(plain), torch.empty_like(plain)
        dist.all_to_all_single(expected, plain)
        assert torch.equal(rails.all_to_all_single(out, view), expected)
    out = rails.all_to_all_single(torch.empty_like(sent.detach()), sent)
    out.conj().backward(torch.ones_like(out).conj())
    assert torch.equal(sent.grad, torch.ones_like(sent))


def test_conjugated_and_negated_views() -> None:
    run(4, conjugates)


def under_way() -> None:
    """Several calls under way; ranks wait for them in different orders and talk in between."""
    railed = RailAllToAll(TWO_TWO, limit_s=WAIT_S)
    wanted, handles = [], []
    for seed in range(6):
        counts = some_counts(4, seed)
        send, recv = sides(counts)
        sent = torch.randn(sum(send), 4)
        handles.append(
            railed.all_to_all_single(torch.empty(sum(recv), 4), sent, recv, send, async_op=True)
        )
        wanted.append(peers(sent, counts))
    if dist.get_rank() % 2:
        handles[-1].wait()
    dist.barrier()
    whole = railed.all_to_all_single(torch.empty(4, 1), torch.ones(4, 1))  # after those under way
    assert whole.sum() == 4
    for handle, right in zip(handles, wanted, strict=True):
        assert torch.equal(handle.wait(), right)
        assert handle.is_completed()


def test_calls_under_way() -> None:
    run(4, under_way)


def handed() -> list[int]:
    """Groups that are handed in; buffers that are kept."""
    groups = made(TWO_TWO, dist.group.WORLD, WAIT_S)
    railed = RailAllToAll(TWO_TWO, groups=Groups(groups.node, groups.rail), limit_s=WAIT_S)
    kept = []
    for call in range(30):
        counts = some_counts(4, call % 3, 40)
        send, recv = sides(counts)
        sent = torch.randn(sum(send), 2)
        out = railed.all_to_all_single(torch.empty(sum(recv), 2), sent, recv, send)
        assert torch.equal(out, peers(sent, counts))
        kept.append(sum(len(buffer) for buffer in railed.carrier._kept.values()))
    assert kept[3:] == [kept[2]] * 27  # nothing grows once the largest call was seen
    return dist.get_process_group_ranks(railed.groups.rail)


def test_groups_that_are_handed_in_and_buffers_that_are_kept() -> None:
    assert run(4, handed) == [[0, 2], [1, 3], [0, 2], [1, 3]]
    assert [list(some) for some in members(TWO_TWO, 3)] == [[2, 3], [1, 3]]


def held() -> tuple[int, int]:
    """Descriptors and threads of this process."""
    return len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def one_after_the_other() -> None:
    first = RailAllToAll(TWO_TWO, limit_s=WAIT_S)
    sent = torch.arange(8.0) + 10 * dist.get_rank()
    first.all_to_all_single(torch.empty(8), sent)
    before = held()
    for policy in ("lpt", "own-nic", "even-excess"):
        other = RailAllToAll(TWO_TWO, policy, limit_s=WAIT_S)
        assert other.groups == first.groups
        other.all_to_all_single(torch.empty(8), sent)
    assert held() == before
    assert RailAllToAll(TWO_TWO, limit_s=WAIT_S + dist.get_rank()).groups.all != first.groups.all


def test_groups_are_made_once() -> None:
    run(4, one_after_the_other)


def two_under_way() -> None:
    """Calls of two that share their groups keep the order in which they were begun, though the
    first is late at two ranks.
    """
    one, two = (RailAllToAll(TWO_TWO, limit_s=WAIT_S) for _ in range(2))
    one.carrier._worker = ThreadPoolExecutor(1)
    first, second = torch.randn(2, 400, 8)
    two.all_to_all_single(torch.empty(400, 8), first)
    if dist.get_rank() % 2:
        one.carrier._worker.submit(time.sleep, 0.3)
    under_way = one.all_to_all_single(torch.empty(400, 8), first, async_op=True)
    found = two.all_to_all_single(torch.empty(400, 8), second)
    assert torch.equal(under_way.wait(), peers(first, np.full((4, 4), 100)))
    assert torch.equal(found, peers(second, np.full((4, 4), 100)))


def test_two_under_way() -> None:
    run(4, two_under_way)


def part_of_the_world() -> float:
    """Ranks 2 to 5 of eight are the fabric."""
    group = dist.new_group([2, 3, 4, 5])
    if dist.get_rank() not in (2, 3, 4, 5):
        return 4.0
    railed = RailAllToAll(TWO_TWO, group=group, limit_s=WAIT_S)
    return float(railed.all_to_all_single(torch.empty(4), torch.ones(4)).sum())


def test_a_group_that_is_a_part_of_the_world() -> None:
    assert run(8, part_of_the_world) == [4.0] * 8


def in_another_order() -> list[int]:
    """Ranks 3, 1, 2, 0 of a group are the GPUs, rank 0 is in one group more than the others."""
    dist.new_group([0])
    group = dist.new_group([3, 1, 2, 0], sort_ranks=False)
    railed = RailAllToAll(TWO_TWO, group=group, limit_s=WAIT_S)
    sent, expected = torch.arange(4.0) + 10 * dist.get_rank(group), torch.empty(4)
    dist.all_to_all_single(expected, sent, group=group)
    assert torch.equal(railed.all_to_all_single(torch.empty(4), sent), expected)
    return dist.get_process_group_ranks(railed.groups.rail)


@pytest.mark.skipif(
    "sort_ranks" not in signature(dist.new_group).parameters,
    reason="this PyTorch makes groups in ascending order alone",
)
def test_a_group_in_another_order() -> None:
    assert run(4, in_another_order) == [[1, 0], [1, 0], [3, 2], [3, 2]]


def hot() -> tuple[list[int], list[int]]:
    """All bytes of node 0 are at GPU 0: bytes per NIC under two policies."""
    counts = np.zeros((8, 8), np.int64)
    counts[0, 4:] = 256
    send, recv = sides(counts)
    loads = []
    for policy in ("own-nic", "even-excess"):
        railed = RailAllToAll(TWO_FOUR, policy, limit_s=WAIT_S)
        railed.all_to_all_single(torch.empty(sum(recv), 4), torch.ones(sum(send), 4), recv, send)
        loads.append(railed.gathered_bytes().sent[0].tolist())
    return loads[0], loads[1]


def test_bytes_per_nic_are_known_everywhere() -> None:
    assert run(8, hot) == [([16384, 0, 0, 0], [4096] * 4)] * 8


def odd_strides() -> list[str]:
    """Rows of width 1 or 0, whose strides say nothing: forward, backward and into such an
    output.
    """
    railed, wrong = RailAllToAll(TWO_TWO, limit_s=WAIT_S), []
    rank = dist.get_rank()
    for shape in ((8, 1), (8, 0), (0, 1), (8, 1, 1)):
        numel = math.prod(shape)
        plain = (torch.arange(float(numel)) + 100 * rank).reshape(shape)
        strides = (1, *[9] * (len(shape) - 1))
        odd = plain.as_strided(shape, strides).requires_grad_()
        expected, out = torch.empty(shape), torch.zeros(shape).as_strided(shape, strides)
        dist.all_to_all_single(expected.view(-1), plain.reshape(-1))
        found = railed.all_to_all_single(out, odd)
        if not torch.equal(found, expected):
            wrong.append(f"{shape}: {found}")
        found.backward(torch.ones(shape).as_strided(shape, strides))
        if odd.grad is None or odd.grad.tolist() != torch.ones(shape).tolist():
            wrong.append(f"{shape}: gradient {odd.grad}")
    return wrong


def test_rows_whose_strides_say_nothing() -> None:
    assert run(4, odd_strides) == [[]] * 4


def inside_a_with() -> None:
    """Code that calls PyTorch's own function, planned and not."""
    rails = RailAllToAll(TWO_TWO, limit_s=WAIT_S)
    plain, counts = dist.all_to_all_single, some_counts(4, 3)
    send, recv = sides(counts)
    sent = torch.randn(sum(send), 3)
    wanted, other = peers(sent, counts), dist.new_group(list(range(4)))
    with suppress(KeyError), planned_all_to_all(rails):
        assert torch.equal(peers(sent, counts), wanted)
        assert rails.last is not None
        rails.last = None
        out = torch.empty_like(wanted)
        dist.all_to_all_single(out, sent, recv, send, group=other)
        assert torch.equal(out, wanted)
        assert rails.last is None
        dist.all_to_all_single(out.zero_(), sent, recv, send, async_op=True).wait()
        assert torch.equal(out, wanted)
        assert rails.last is not None
        dist.all_to_all_single(out.zero_(), sent, torch.tensor(recv), torch.tensor(send))
        assert torch.equal(out, wanted)
        raise KeyError
    assert dist.all_to_all_single is plain


def test_pytorchs_own_call_inside_a_with() -> None:
    run(4, inside_a_with)
