"""The registered backend beside gloo: the same bits, bytes on planned rails, all else passed on."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist

from railopt import Fabric
from railopt.base.errors import InputError
from railopt.torch import register_backend
from tests.torch.test_all_to_all import peers, sides, some_counts
from tests.torch.world import WAIT_S, run, said

FABRIC = Fabric.uniform(2, 2)


def planned() -> list[list[int]]:
    """Plain calls in groups of the backend: of all ranks, and of two."""
    register_backend(FABRIC, limit_s=WAIT_S)
    group, pair = dist.new_group(backend="railopt"), dist.new_group([0, 1], backend="railopt")
    assert dist.get_backend(group) == "railopt"
    rank = dist.get_rank()
    for seed in range(3):
        counts = some_counts(4, seed)
        send, recv = sides(counts)
        sent, out = torch.randn(sum(send), 3), torch.empty(sum(recv), 3)
        work = dist.all_to_all_single(out, sent, recv, send, group=group, async_op=seed == 1)
        if work is not None:
            work.wait()
        assert torch.equal(out, peers(sent, counts))
    hot = torch.zeros(256 if rank == 0 else 0, 2)
    recv = [128 if rank > 1 else 0, 0, 0, 0]
    send = [0, 0, 128, 128] if rank == 0 else [0] * 4
    dist.all_to_all_single(torch.empty(sum(recv), 2), hot, recv, send, group=group)
    total, every = torch.ones(2), [torch.empty(1) for _ in range(4)]
    dist.all_reduce(total, group=group)
    dist.all_gather(every, torch.tensor([float(rank)]), group=group)
    dist.barrier(group=group)
    assert total.tolist() == [4.0, 4.0]
    assert torch.cat(every).tolist() == [0.0, 1.0, 2.0, 3.0]
    if rank < 2:
        out = torch.empty(2)
        dist.all_to_all_single(out, torch.tensor([10.0, 20.0]) + rank, group=pair)
        assert out.tolist() == [10.0 * (rank + 1), 10.0 * (rank + 1) + 1]
        assert pair._rails is None
    return group._rails.gathered_bytes().sent.tolist()


def test_plain_calls_are_planned() -> None:
    assert run(4, planned) == [[[1024, 1024], [0, 0]]] * 4


def wrong() -> str:
    register_backend(FABRIC, limit_s=WAIT_S)
    group = dist.new_group(backend="railopt")
    sizes = [1, 1, 1, 2] if dist.get_rank() == 1 else None
    sent = torch.ones(5 if dist.get_rank() == 1 else 4)
    return said(lambda: dist.all_to_all_single(torch.empty(4), sent, None, sizes, group=group))


def test_what_is_wrong_is_said_by_all() -> None:
    for text in run(4, wrong):
        assert "rank 1 sends 2 rows to rank 3, which expects 1" in text


def test_what_no_backend_is_made_for() -> None:
    with pytest.raises(InputError, match="fabric is of type str"):
        register_backend("fabric.toml")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="unknown policy"):
        register_backend(FABRIC, "evenly")
