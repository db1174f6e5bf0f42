"""Placement and planners on drawn layers."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from railopt.base.kernels import compile_mode
from railopt.model.fabric import Fabric
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.optimum import optimal
from railopt.moe.placement.packing import hierarchical
from railopt.moe.placement.placement import Placement, slot_gpus
from railopt.moe.placement.prophet import evaluate, measure, pro_prophet
from railopt.moe.placement.replicate import rebalance
from railopt.moe.routing.dispatch import split


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_replicas_never_share_a_gpu_with_their_twin(data: st.DataObject) -> None:
    nodes, each, experts = (data.draw(st.integers(1, most)) for most in (3, 4, 9))
    gpus, groups = nodes * each, data.draw(st.integers(1, experts))
    replicas = data.draw(st.integers(experts, experts * gpus))
    weight = data.draw(st.lists(st.integers(0, 100), min_size=experts, max_size=experts))
    phy2log, log2phy, logcnt = rebalance([weight], replicas, groups, nodes, gpus)
    placed = Placement.from_phy2log(
        phy2log, nodes, each, experts
    )  # refuses duplicates and missing experts
    if hierarchical(experts, replicas, groups, nodes, gpus):
        assert placed.layers_keeping(groups) == 1
    assert placed.copies.tolist() == logcnt.tolist()
    assert (log2phy >= 0).sum() == replicas
    held = np.bincount(slot_gpus(replicas, gpus), minlength=gpus)
    assert held.max() - held.min() <= 1


@st.composite
def layers(draw: st.DrawFn) -> tuple[TimeModel, np.ndarray]:
    nodes, gpus, experts = draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(1, 4))
    fabric = Fabric.uniform(nodes, gpus, "100Gb/s", scaleup="50GB/s")
    model = TimeModel.rails(
        fabric,
        token_bytes=2048,
        expert_bytes=draw(st.sampled_from([10**4, 10**6])),
        tokens_per_s=5e6,
        fnec_ps=draw(st.sampled_from([0, 10**7])),
        overlap=draw(st.booleans()),
    )
    flat = draw(
        st.lists(
            st.integers(0, 300), min_size=nodes * gpus * experts, max_size=nodes * gpus * experts
        )
    )
    return model, np.array(flat).reshape(nodes * gpus, experts)


@settings(max_examples=60, deadline=None)
@given(layers(), st.randoms(use_true_random=False))
def test_the_kernels_agree_with_single_flows(
    layer: tuple[TimeModel, np.ndarray], random: object
) -> None:
    model, counts = layer
    rng = np.random.default_rng(random.randrange(2**32))  # type: ignore[attr-defined]
    home = rng.integers(0, model.devices, counts.shape[1])
    holds = (rng.random(counts.shape) < 0.4) | (np.arange(model.devices)[:, None] == home)
    shares = split(counts, holds, home, model.gpus, "home")
    found = measure(model, shares.sum(axis=1), counts, holds, home=home)
    assert found == evaluate(model, counts, holds, home=home)


@settings(max_examples=8 if compile_mode() == "never" else 20, deadline=None)
@given(layers())
def test_plans_lie_between_the_optimum_and_no_plan(layer: tuple[TimeModel, np.ndarray]) -> None:
    model, counts = layer
    planned = evaluate(model, counts, pro_prophet(model, counts)).total
    assert planned <= evaluate(model, counts).total
    if (model.devices - 1) * counts.shape[1] <= 15:
        best = optimal(model, counts).bracket
        assert best.value <= planned
