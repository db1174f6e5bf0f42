"""Chunks: cutting, checks, and units that name their GPUs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from railopt import Chunks, Fabric, Traffic, workloads
from railopt.base.errors import InputError

FABRIC = Fabric.uniform(3, 4)


@pytest.mark.parametrize(("cap", "said"), [("flow", "fewer nodes"), (1, "fewer nodes")])
def test_more_flows_than_chunks_are_refused_before_they_are_made(
    monkeypatch: pytest.MonkeyPatch, cap: str | int, said: str
) -> None:
    traffic = workloads.uniform(FABRIC)
    monkeypatch.setattr("railopt.model.chunks.MAX_CHUNKS", 5)
    monkeypatch.setattr(Traffic, "flows", lambda self: pytest.fail("flow by flow"))
    with pytest.raises(InputError, match=said):
        traffic.chunks(cap)


def test_the_size_that_is_advised_is_large_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = workloads.zipf(FABRIC, skew=1.2, seed=1)
    flows = len(traffic.flows()[0])
    for most in (flows, flows + 1, flows + 7, 2 * flows):
        monkeypatch.setattr("railopt.model.chunks.MAX_CHUNKS", most)
        with pytest.raises(InputError, match="larger chunks") as refused:
            traffic.chunks(1)
        advised = str(refused.value).split("e.g. of ")[1].split(" (")[0]
        assert len(traffic.chunks(advised.replace(" ", ""))) <= most


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dst": [0]}, "from node 0 to itself"),
        ({"dst": [3]}, "dst goes from 3 to 3: expected 0 to 2"),
        ({"size": [0]}, "a unit of 0 bytes: expected at least 1"),
        ({"size": [1, 2]}, "as many of each"),
        ({"targets": [[True]]}, "expected truth values of shape"),
        ({"targets": [[1, 0, 1, 1]]}, "expected truth values of shape"),
        ({"src_gpu": [12]}, "expected 0 to 11"),
        ({"size": [1 << 61]}, "beyond int64"),
    ],
)
def test_odd_units_are_refused(change: dict[str, object], words: str) -> None:
    unit = {"src_gpu": [1], "dst": [2], "size": [100], "targets": [[True, True, True, True]]}
    with pytest.raises(InputError, match=words):
        Chunks.from_units(FABRIC, **{**unit, **change})  # type: ignore[arg-type]


@pytest.mark.parametrize("cap", [0, -1, 2.5])
def test_a_cap_that_is_no_size_is_refused(cap: Any) -> None:
    with pytest.raises(InputError, match="size"):
        Chunks.from_units(Fabric.uniform(2, 2), src_gpu=[0], dst=[1], size=[5], cap=cap)


def test_a_cap_with_its_unit() -> None:
    fabric = Fabric.uniform(2, 2)
    units = Chunks.from_units(fabric, src_gpu=[0], dst=[1], size=[3 << 20], cap="1MiB")
    assert units.size.tolist() == [1 << 20] * 3


def test_cutting_and_its_inverse() -> None:
    traffic = workloads.zipf(FABRIC, mean="100KB", seed=1)
    for cap in ("flow", 7777, "1MiB"):
        chunks = traffic.chunks(cap)
        assert np.array_equal(Traffic.from_chunks(chunks).node_matrix, traffic.node_matrix)
        assert cap == "flow" or chunks.largest <= (7777 if cap == 7777 else 1 << 20)
        ends = chunks.offset + chunks.size
        same = chunks.flow[1:] == chunks.flow[:-1]
        assert np.all(np.where(same, chunks.offset[1:] == ends[:-1], chunks.offset[1:] == 0))


@pytest.mark.parametrize("cap", ["0B", 0, -5, "two", "1.5B"])
def test_bad_cap(cap: str | int) -> None:
    with pytest.raises(InputError):
        workloads.uniform(FABRIC).chunks(cap)


@pytest.mark.parametrize(
    ("column", "value", "complaint"),
    [
        ("src", [3], "expected 0 to 2"),
        ("dst", [0], "itself"),
        ("size", [0], "at least 1 byte"),
        ("size", [0.5], "integers"),
    ],
)
def test_chunks_refuse(column: str, value: list[int], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        Chunks.from_arrays(**{"src": [0], "dst": [1], "size": [5], column: value}, nodes=3)  # type: ignore[arg-type]


def test_sums_of_loads_stay_below_two_to_the_62() -> None:
    Chunks.from_arrays(src=[0, 0], dst=[1, 1], size=[2**61, 2**61 - 1], nodes=2)
    with pytest.raises(InputError, match=r"expected less than 2\*\*62"):
        Chunks.from_arrays(src=[0, 0], dst=[1, 1], size=[2**61, 2**61], nodes=2)


def test_more_chunks_than_fit_are_refused_before_they_are_made() -> None:
    with pytest.raises(InputError, match="use larger chunks"):
        workloads.uniform(FABRIC, size="1TiB").chunks("4B")
    with pytest.raises(InputError, match="use larger chunks"):
        workloads.uniform(FABRIC, size=2**54).chunks(1)
