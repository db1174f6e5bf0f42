"""Traces from files and from generated routing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.model.workloads import ROUTED
from railopt.moe.routing.sources import STEPS, trace_from


@pytest.mark.parametrize("name", ROUTED)
def test_generated_routing_is_a_trace(name: str) -> None:
    trace = trace_from(f"{name}:experts=16,top=2,tokens=32,steps=3,step=2,seed=1", ranks=4)
    assert trace.counts.shape == (3, 1, 4, 16)
    assert trace.iterations.tolist() == [2, 3, 4]
    assert (trace.counts.sum(axis=3) == 64).all()
    assert (trace.top_k, trace.tokens_per_rank) == (2, 32)
    again = trace_from(f"{name}:experts=16,top=2,tokens=32,steps=3,step=2,seed=1", ranks=4)
    assert np.array_equal(trace.counts, again.counts)


def test_a_file_wins_and_steps_have_a_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    made = trace_from("routing:experts=8,top=2,tokens=8", ranks=2)
    assert len(made.iterations) == STEPS
    made.save("drift.npz")
    assert np.array_equal(trace_from("drift.npz", ranks=2).counts, made.counts)


@pytest.mark.parametrize(
    "spec",
    [
        "moe",
        "zipf:seed=1",
        "drift:steps=0",
        "drift:steps=x",
        "drift:steps=2,steps=3",
        "drift:steps=100000000",
        "drift:speed=1",
        "megatron:w=9",
        "drifted",
        "nothing.npz",
    ],
)
def test_what_is_no_trace(spec: str) -> None:
    with pytest.raises(InputError):
        trace_from(spec, ranks=4)


def test_more_gpus_than_a_trace_may_have() -> None:
    with pytest.raises(InputError, match="'routing' on 8000 GPUs: traces of at most 4096"):
        trace_from("routing", ranks=8000)


def test_top_k_is_the_specs_to_say() -> None:
    with pytest.raises(InputError, match="top="):
        trace_from("drift", ranks=4, top_k=2)
