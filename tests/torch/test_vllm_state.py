"""The policy inside vLLM's own balancer, where vLLM is installed: its `EplbState` counts loads,
asks the policy that its plugins left in place, moves weights between gloo processes and commits
the maps.  A model with numbers for weights, and what only a GPU has (timed events, pinned memory),
stand in.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from tests.torch.world import run

LAYERS, EXPERTS, EXTRA, RANKS, TOKENS, STEPS = 3, 32, 8, 4, 2048, 12
SLOTS = (EXPERTS + EXTRA) // RANKS


class Timed:
    """A timed event of a GPU."""

    def __init__(self, **_: Any) -> None: ...
    def record(self) -> None: ...
    def synchronize(self) -> None: ...
    def elapsed_time(self, _: Timed) -> float:
        return 0.0


def weights_of(experts: list[int], layer: int) -> list[torch.Tensor]:
    """Two weights an expert, which name it and its layer."""
    names = 1000.0 * layer + torch.tensor(experts)
    return [names[:, None].repeat(1, 3), -names[:, None, None].repeat(1, 2, 2)]


def served(names: str) -> tuple[str, list[float], list[float], int]:
    """(policy, largest GPU load over the mean before and after the first rearrangement, copies that
    share a GPU) of steps under `VLLM_PLUGINS=names`.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("VLLM_PLUGINS", names)
        return _steps(*_balancer(patch))


def _balancer(patch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """vLLM's, with the policy that its plugins leave in place, and a model of this rank."""
    from vllm import plugins
    from vllm.config.parallel import EPLBConfig
    from vllm.distributed.eplb import eplb_state
    from vllm.distributed.eplb.policy import EPLB_POLICIES, DefaultEplbPolicy

    patch.setitem(EPLB_POLICIES, "default", DefaultEplbPolicy)
    patch.setattr(plugins, "plugins_loaded", False)
    plugins.load_general_plugins()
    world = dist.group.WORLD
    group = SimpleNamespace(device_group=world, cpu_group=world, world_size=RANKS)
    patch.setattr(eplb_state, "get_ep_group", lambda: group)
    patch.setattr(eplb_state, "get_eplb_group", lambda: group)
    patch.setattr(eplb_state, "get_node_count", lambda: 1)
    patch.setattr(eplb_state, "PIN_MEMORY", False)
    patch.setattr(eplb_state.torch, "Event", Timed)
    how = EPLBConfig(
        window_size=4,
        step_interval=8,
        num_redundant_experts=EXTRA,
        use_async=False,
        communicator="torch_nccl",  # on tensors of a CPU: gloo
    )
    state = eplb_state.EplbState(
        SimpleNamespace(eplb_config=how, enable_elastic_ep=False, num_ubatches=0),
        torch.device("cpu"),
    )
    first = state.build_initial_global_physical_to_logical_map(EXPERTS, EXTRA)
    model = SimpleNamespace(
        num_moe_layers=LAYERS,
        num_expert_groups=1,
        num_logical_experts=EXPERTS,
        num_physical_experts=EXPERTS + EXTRA,
        num_local_physical_experts=SLOTS,
        num_routed_experts=EXPERTS,
        num_redundant_experts=EXTRA,
        moe_layers=[],
        set_eplb_state=lambda *_: None,
        expert_weights=[weights_of(list(first[_mine()]), layer) for layer in range(LAYERS)],
    )
    state.add_model(model, SimpleNamespace(model="numbers", compute_hash=lambda: "numbers"))
    return state, model


def _mine() -> slice:
    """The slots of this rank."""
    return slice(dist.get_rank() * SLOTS, (dist.get_rank() + 1) * SLOTS)


def _steps(state: Any, model: Any) -> tuple[str, list[float], list[float], int]:
    state.step(is_profile=True)
    seen = state.model_states["numbers"]
    popular = np.arange(1, EXPERTS + 1) ** -1.0
    draw = np.random.default_rng(dist.get_rank())
    found: list[float] = []
    for _ in range(STEPS):
        for layer in range(LAYERS):
            tokens = draw.multinomial(TOKENS, np.roll(popular, layer) / popular.sum())
            for expert, routed in enumerate(tokens.tolist()):
                copies = int(seen.logical_replica_count[layer, expert])
                for copy in range(copies):
                    slot = int(seen.logical_to_physical_map[layer, expert, copy])
                    seen.expert_load_pass[layer, slot] += (routed + copy) // copies
        loads = seen.expert_load_pass.clone()
        dist.all_reduce(loads)
        gpus = loads.reshape(LAYERS, RANKS, SLOTS).sum(dim=2).double()
        found.append(float((gpus.amax(dim=1) / gpus.mean(dim=1)).mean()))
        state.step()
        for layer in range(LAYERS):
            here = seen.physical_to_logical_map[layer, _mine()].tolist()
            for weight, wanted in zip(
                model.expert_weights[layer], weights_of(here, layer), strict=True
            ):
                assert torch.equal(weight, wanted), "a weight that is not its slot's expert"
    placed = seen.physical_to_logical_map.reshape(LAYERS * RANKS, SLOTS).tolist()
    shared = sum(SLOTS - len(set(gpu)) for gpu in placed)
    return state.policy.__name__, found[:2], found[2:], shared


def test_in_vllms_balancer() -> None:
    pytest.importorskip("vllm.distributed.eplb.eplb_state")
    theirs, ours = (run(RANKS, served, names) for names in ("other", "other,railopt"))
    assert {name for name, *_ in theirs} == {"DefaultEplbPolicy"}
    assert {name for name, *_ in ours} == {"RailoptEplbPolicy"}
    _, before, after, shared = ours[0]
    assert min(before) > 1.5
    assert max(after) < 1.1
    # ours leaves a layer that is within 1.05 as it is
    assert np.mean(after) < max(1.05, float(np.mean(theirs[0][2]))) + 0.01
    assert shared == 0
