"""What a call costs on a GPU, counted by PyTorch's profiler; and dispatch, combine and their
gradients in a CUDA graph.  Skipped, with a word, where there is no GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from railopt import Fabric
from railopt.base.errors import InputError
from railopt.moe.micro.slots import SpareSlots
from railopt.moe.micro.solve import Greedy
from railopt.moe.micro.tensors import TokenSplit
from railopt.moe.placement.placement import Placement
from railopt.torch import Copies, ExpertLayer, RailAllToAll, TokenDispatcher
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
    # before sizes are told, and before combine
    assert (careful["collectives"], careful["syncs"]) == (9, 3)
    assert (found["capacity"]["collectives"], found["capacity"]["syncs"]) == (6, 0)


def replayed(step: Callable[[], tuple[Any, ...]], x: Any, idx: Any) -> float:
    """By how much a captured step differs from a plain one, with other inputs."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
        idx.copy_((idx + 1) % EXPERTS)
    graph.replay()
    torch.cuda.synchronize()
    return max(float((a - b).abs().max()) for a, b in zip(found, step(), strict=True))


def everywhere() -> Copies:
    """Expert e lives on rank e, and expert 0 on all."""
    holds = np.eye(RANKS, EXPERTS, dtype=bool) if RANKS == EXPERTS else np.ones((1, EXPERTS), bool)
    holds[:, 0] = True
    home = np.arange(EXPERTS, dtype=np.int32) % RANKS
    return Copies(Placement(FABRIC.nodes, FABRIC.gpus, holds[None], home[None]), shares="even")


ROOM: dict[str, Any] = {"limit_s": WAIT_S, "capacity": (64, 128 * RANKS)}


def captured(placed: bool, stages: bool | str) -> float:
    placement = everywhere() if placed else None
    dispatcher = TokenDispatcher(FABRIC, EXPERTS, placement=placement, **ROOM)
    dispatcher.rails.stages(stages)
    x, idx, weights = tokens()

    def step() -> tuple[Any, Any, Any]:
        rows = dispatcher.dispatch(x, idx, weights)
        out = dispatcher.combine(rows.tokens * 2 + rows.tokens**2, rows)
        return (out, *torch.autograd.grad((out**3).sum(), (x, weights)))

    apart = replayed(step, x, idx)
    dispatcher.check()
    return apart


@pytest.mark.parametrize(
    ("placed", "stages"),
    [(False, False), (True, False), (False, True), (True, "compact")],
    ids=["in order", "with copies", "in turn", "with copies in stages"],
)
def test_forward_and_backward_in_a_graph(placed: bool, stages: bool | str) -> None:
    assert run(RANKS, captured, placed, stages, backend="nccl") == [0.0] * RANKS


def captured_layer() -> tuple[float, str]:
    copies = everywhere()
    own = (copies.placement.home[0] == dist.get_rank()).sum()
    experts = [torch.nn.Linear(32, 32, device="cuda") for _ in range(own)]
    layer = ExpertLayer(FABRIC, experts, copies, **ROOM)
    x, idx, weights = tokens()
    with torch.no_grad():
        apart = replayed(lambda: (layer(x, idx, weights),), x, idx)
    torch.cuda.synchronize()
    try:
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            layer(x, idx, weights)
    except InputError as error:
        return apart, str(error)
    return apart, ""


def test_a_graph_of_a_layer_with_copies_is_one_without_gradients() -> None:
    for apart, text in run(RANKS, captured_layer, backend="nccl"):
        assert apart == 0.0
        assert RANKS == 1 or "a CUDA graph can't capture what a layer does on the host" in text


def test_a_split_of_tokens_in_a_graph() -> None:
    """With as many spare slots as a GPU has experts each computes the mean, rounded up (T15c):
    MoonEP's rule.  Replayed, the graph splits what then stands in `counts`, as the host does.
    """
    slots = SpareSlots.of(Placement.contiguous(1, 16, 2, 4), 0, 2)
    there, greedy = TokenSplit(slots), Greedy(slots)
    counts = torch.ones(16, dtype=torch.int64, device="cuda")
    there.table(counts)  # compiled, before anything is captured
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        table = there.table(counts)
    for seed in range(5):
        drawn = np.random.default_rng(seed).lognormal(5, 2, 16).astype(np.int64)
        counts.copy_(torch.from_numpy(drawn))
        graph.replay()
        there.check()
        found = table[0].cpu().numpy()
        np.testing.assert_array_equal(found, greedy.split(drawn).tokens)
        np.testing.assert_array_equal(found.sum(axis=0), drawn)
        assert found.sum(axis=1).max() == -(-drawn.sum() // 8)
