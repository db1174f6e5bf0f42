"""What a call costs on a GPU, counted by PyTorch's profiler; and dispatch, combine and their
gradients in a CUDA graph.  Skipped, with a word, where there is no GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch

from railopt import Fabric
from railopt.torch import RailAllToAll, TokenDispatcher
from tests.torch.world import BACKEND, WAIT_S, run

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available(), reason="no GPU: collectives, syncs and launches are not counted"
)

# NCCL of PyTorch's own build has one rank per GPU
RANKS, FABRIC = (4, Fabric.uniform(2, 2)) if BACKEND == "nccl" else (1, Fabric.uniform(1, 1))
EXPERTS = 4
SYNCS = (
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cuCtxSynchronize",
)


def counted(call: Callable[[], Any]) -> dict[str, int]:
    """Collectives, syncs, copies to the host and kernels of a call, warmed up."""
    kinds = torch.profiler.ProfilerActivity
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as profile:
        call()
    found: Counter[str] = Counter()
    for event in profile.events():
        on_device = event.device_type == torch.autograd.DeviceType.CUDA
        found["collectives"] += event.name.startswith("c10d::")
        found["syncs"] += event.name in SYNCS
        found["to the host"] += on_device and "DtoH" in event.name
        found["launches"] += "LaunchKernel" in event.name
    found["syncs"] -= 1  # the profiler's own, at its end
    return dict(found)


def tokens(count: int = 64) -> tuple[Any, Any, Any]:
    torch.manual_seed(0)
    x = torch.randn((count, 32), device="cuda", requires_grad=True)
    idx = torch.randint(0, EXPERTS, (count, 2), device="cuda")
    return x, idx, torch.rand((count, 2), device="cuda", requires_grad=True)


def costs() -> dict[str, dict[str, int]]:
    rails = RailAllToAll(FABRIC, limit_s=WAIT_S)
    trusting = TokenDispatcher(FABRIC, EXPERTS, limit_s=WAIT_S, agree_first=False)
    careful = TokenDispatcher(FABRIC, EXPERTS, limit_s=WAIT_S)
    room = TokenDispatcher(FABRIC, EXPERTS, limit_s=WAIT_S, capacity=(64, 128 * RANKS))
    rows = torch.randn((64, 32), device="cuda")
    out = torch.empty_like(rows)
    x, idx, weights = tokens()

    def there_and_back(dispatcher: TokenDispatcher) -> Callable[[], Any]:
        return lambda: dispatcher.combine(dispatcher.dispatch(x, idx, weights).tokens)

    return {
        "all_to_all_single": counted(lambda: rails.all_to_all_single(out, rows)),
        "trusting": counted(there_and_back(trusting)),
        "careful": counted(there_and_back(careful)),
        "capacity": counted(there_and_back(room)),
    }


def test_collectives_syncs_and_launches() -> None:
    found, *_ = run(RANKS, costs, backend="nccl")
    print(found)
    plain, trusting, careful = (found[n] for n in ("all_to_all_single", "trusting", "careful"))
    assert (plain["collectives"], plain["syncs"], plain["to the host"]) == (4, 1, 1)
    assert (trusting["collectives"], trusting["syncs"], trusting["to the host"]) == (8, 1, 1)
    assert trusting["launches"] <= 40
    assert (careful["collectives"], careful["syncs"]) == (9, 2)  # combine is agreed on
    assert (found["capacity"]["collectives"], found["capacity"]["syncs"]) == (6, 0)


def captured() -> float:
    dispatcher = TokenDispatcher(FABRIC, EXPERTS, limit_s=WAIT_S, capacity=(64, 128 * RANKS))
    x, idx, weights = tokens()

    def step() -> tuple[Any, Any, Any]:
        rows = dispatcher.dispatch(x, idx, weights)
        out = dispatcher.combine(rows.tokens * 2 + rows.tokens**2, rows)
        return (out, *torch.autograd.grad((out**3).sum(), (x, weights)))

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    other, others, weights_too = tokens()
    with torch.no_grad():
        x.copy_(torch.randn_like(other))
        idx.copy_((others + 1) % EXPERTS)
    graph.replay()
    torch.cuda.synchronize()
    wanted = step()
    dispatcher.check()
    assert weights_too.shape == weights.shape
    return max(float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True))


def test_forward_and_backward_in_a_graph() -> None:
    assert run(RANKS, captured, backend="nccl") == [0.0] * RANKS
