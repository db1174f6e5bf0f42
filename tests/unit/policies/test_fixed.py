"""Policies that look at a chunk alone: a GPU's own NICs, taken in turns."""

from __future__ import annotations

import numpy as np
import pytest

from railopt import Fabric, Planner, plan, workloads
from tests.unit.policies.test_spilling import CROSSED, DEGRADED, SEVERAL, SHARED


@pytest.mark.parametrize("policy", ["own-nic", "rotate"])
@pytest.mark.parametrize("fabric", [DEGRADED, SHARED, CROSSED, SEVERAL])
def test_policies_of_a_chunk_alone_in_a_planner(fabric: Fabric, policy: str) -> None:
    traffic = workloads.moe(fabric, seed=2)
    whole = plan(fabric, traffic.chunks("64KiB"), policy)
    assert np.array_equal(
        Planner(fabric, None, "64KiB", policy).plan(traffic.bytes).rail, whole.rail
    )
    rows = traffic.bytes.reshape(fabric.nodes, fabric.gpus, -1)
    for node in range(fabric.nodes):
        own = Planner(fabric, node, "64KiB", policy).plan(rows[node])
        assert np.array_equal(own.rail, whole.rail[whole.chunks.src == node])


@pytest.mark.parametrize(
    ("nodes", "gpus", "rails"), [(8, 1, 2), (5, 1, 4), (4, 3, 6), (2, 2, 4), (7, 2, 6)]
)
@pytest.mark.parametrize("policy", ["own-nic", "pxn"])
def test_a_gpus_nics_take_turns(nodes: int, gpus: int, rails: int, policy: str) -> None:
    fabric = Fabric.uniform(nodes, rails, gpus=gpus)
    made = plan(fabric, workloads.uniform(fabric, size=1), policy, chunk=1)
    flows = (nodes - 1) * gpus  # of each GPU, over its own NICs
    most = -(-flows // (rails // gpus))
    assert made.send.max() == made.recv.max() == most


@pytest.mark.parametrize("policy", ["own-nic", "pxn"])
def test_a_dead_nic_is_replaced_by_another_of_its_gpu(policy: str) -> None:
    fabric = Fabric.uniform(2, 6, gpus=2).degraded({(0, 1): "0", (1, 4): "0"})
    made = plan(fabric, workloads.uniform(fabric, size="1MiB"), policy, chunk="64KiB")
    gpu = made.chunks.src_gpu if policy == "own-nic" else made.chunks.dst_gpu
    assert np.array_equal(made.rail // 3, gpu % 2)
