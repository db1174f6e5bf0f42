"""Dispatches of traces as traffic."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.model.fabric import Fabric
from railopt.model.traffic import trace_file
from railopt.model.workloads import demand_from
from railopt.moe.placement.files import save_map
from railopt.moe.placement.placement import Placement
from railopt.moe.presets import preset
from railopt.moe.routing.recorded import HIDDEN, dispatches_from
from railopt.moe.routing.trace import Trace

FABRIC = Fabric.uniform(nodes=2, rails=2, gpus=2)
COUNTS = np.random.default_rng(7).integers(0, 50, (3, 2, 4, 8))
GPU = [0, 0, 1, 1, 2, 2, 3, 3]  # of each expert: in order, as many on every GPU


def plain(counts: np.ndarray, gpu: list[int] = GPU) -> np.ndarray:
    """Tokens [source GPU, GPU] of counts [source GPU, expert], pair by pair."""
    tokens = np.zeros((4, 4), np.int64)
    for source in range(4):
        for expert in range(8):
            if gpu[expert] != source:
                tokens[source, gpu[expert]] += counts[source, expert]
    return tokens


@pytest.fixture(params=["trace.npz", "counts.npy", "counts.npz"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    made = tmp_path / request.param
    if made.name == "trace.npz":
        Trace(COUNTS.astype(np.int32), 2).save(made)
    elif made.suffix == ".npy":
        np.save(made, COUNTS.astype(float))
    else:
        np.savez(made, COUNTS)
    return str(made)


def test_a_dispatch_is_the_tokens_of_each_pair(path: str) -> None:
    (one,) = dispatches_from(f"{path}:step=1,layer=0,hidden=10B", FABRIC).dispatches
    assert one.name == "step 1, layer 0"
    assert np.array_equal(one.traffic.bytes, plain(COUNTS[1, 0]) * 10)


def test_the_last_step_and_the_first_layer_unless_chosen(path: str) -> None:
    found = dispatches_from(path, FABRIC)
    assert [one.name for one in found.dispatches] == ["step 2, layer 0"]
    assert np.array_equal(found.dispatches[0].traffic.bytes, plain(COUNTS[2, 0]) * HIDDEN)
    said = " ".join(found.assumed)
    assert "step 2, layer 0 of 3 steps x 2 layers" in said
    assert "8KiB per token assumed" in said
    assert "in order" in said


def test_all_are_apart_and_sum_adds_up(path: str) -> None:
    apart = dispatches_from(f"{path}:step=all,layer=-1,hidden=1B", FABRIC).dispatches
    assert [one.name for one in apart] == [f"step {step}, layer 1" for step in range(3)]
    (added,) = dispatches_from(f"{path}:step=sum,layer=sum,hidden=1B", FABRIC).dispatches
    assert added.name == "3 steps summed, 2 layers summed"
    assert np.array_equal(added.traffic.bytes, plain(COUNTS.sum(axis=(0, 1))))


def test_a_layer_without_tokens_is_not_the_usual_one(tmp_path: Path) -> None:
    counts = COUNTS.astype(np.int32)
    counts[:, 0] = 0  # as dense layers are
    Trace(counts, 2).save(tmp_path / "trace.npz")
    (one,) = dispatches_from(str(tmp_path / "trace.npz"), FABRIC).dispatches
    assert one.name == "step 2, layer 1"


def test_a_model_and_a_placement(path: str, tmp_path: Path) -> None:
    gpu = [3, 2, 1, 0, 3, 2, 1, 0]
    save_map(Placement.from_home([gpu, gpu], 2, 2), tmp_path / "map.json", "sglang", 2)
    spec = f"{path}:step=0,layer=1,model=olmoe-1b-7b,placement={tmp_path / 'map.json'}"
    found = dispatches_from(spec, FABRIC)
    size = preset("olmoe-1b-7b").token_bytes()
    assert np.array_equal(found.dispatches[0].traffic.bytes, plain(COUNTS[0, 1], gpu) * size)
    assert found.assumed == ()


def test_loads_say_that_their_sources_are_assumed(tmp_path: Path) -> None:
    np.save(tmp_path / "loads.npy", COUNTS.sum(axis=2) * 4)
    found = dispatches_from(f"{tmp_path / 'loads.npy'}:top_k=1", FABRIC)
    assert any("source ranks assumed even" in said for said in found.assumed)
    even = COUNTS[2, 0].sum(axis=0)[None].repeat(4, axis=0)
    assert np.array_equal(found.dispatches[0].traffic.bytes, plain(even) * HIDDEN)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ("step=9", "step 9 was not recorded: expected one of 3"),
        ("layer=5", "layer 5 was not recorded: expected one of 2"),
        ("steps=1", "found 'steps=1', expected each once of step=.*did you mean 'step'"),
        ("step", "found 'step', expected each once"),
        ("step=1,step=2", "found 'step=2', expected each once"),
        ("hidden=8Kib", "unknown unit .Kib."),
        ("model=olmoe-1b-7b,hidden=8KiB", "model and hidden both say"),
        ("model=gpt", "unknown model 'gpt'"),
        ("placement=none.json", "none.json"),
    ],
)
def test_what_can_not_be_taken_of_a_trace(path: str, options: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        dispatches_from(f"{path}:{options}", FABRIC)


def test_as_many_ranks_as_gpus(tmp_path: Path) -> None:
    Trace(COUNTS.astype(np.int32), 2).save(tmp_path / "trace.npz")
    with pytest.raises(InputError, match=r"has 4 source ranks.*give --nodes 4"):
        dispatches_from(str(tmp_path / "trace.npz"), Fabric.uniform(nodes=8, rails=1))


def test_a_matrix_of_too_many_gpus_is_refused_before_it_is_made(tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.ones((1, 1, 30_000, 2), np.int32))
    with pytest.raises(InputError, match="traffic between 30000 GPUs: at most 8192"):
        dispatches_from(f"{tmp_path / 'wide.npy'}:top_k=1", Fabric.uniform(30_000, 1, gpus=1))


def test_what_is_no_trace(tmp_path: Path) -> None:
    np.save(tmp_path / "bytes.npy", np.ones((4, 4), np.int64))
    (tmp_path / "bytes.csv").write_text("0,1\n1,0\n")
    assert trace_file(str(tmp_path / "bytes.npy")) is None
    assert trace_file("moe:skew=0.8") is None
    with pytest.raises(InputError, match="is no routing trace: expected nothing behind it"):
        trace_file(f"{tmp_path / 'bytes.csv'}:step=1")
    with pytest.raises(InputError, match="is no routing trace"):
        dispatches_from(str(tmp_path / "bytes.npy"), FABRIC)


def test_a_trace_is_no_traffic_of_its_own(path: str) -> None:
    with pytest.raises(InputError, match="is a routing trace: railopt convert"):
        demand_from(path, FABRIC)
