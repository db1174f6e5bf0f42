"""Benchmarks: sizes, scaling, what is timed and what counts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from railopt import Fabric, Plan, workloads
from railopt.base.errors import BackendError, InputError
from railopt.runtime.benchmark import Benchmark, Measurement, scaled, sizes
from railopt.runtime.senders.loopback import Loopback
from railopt.runtime.senders.protocol import Carrier
from railopt.runtime.senders.report import Report

FABRIC = Fabric.uniform(2, 2)
PATTERN = workloads.uniform(FABRIC, size="4KiB")


def test_sizes_are_those_of_nccl_tests() -> None:
    assert sizes(1, 10, 3) == (1, 3, 9)
    assert sizes(8, 8, 2) == (8,)
    for begin, end, factor in ((0, 1, 2), (2, 1, 2), (1, 2, 1)):
        with pytest.raises(InputError, match="expected 1 <= begin <= end"):
            sizes(begin, end, factor)


def test_the_busiest_node_moves_its_share_of_the_size() -> None:
    assert scaled(PATTERN, 1 << 20, FABRIC).node_matrix.sum(axis=1).max() == 1 << 19
    with pytest.raises(InputError, match="less than a byte a pair"):
        scaled(PATTERN, 3, FABRIC)
    silent = workloads.uniform(Fabric.uniform(1, 2), size="4KiB")
    with pytest.raises(InputError, match="moves nothing between nodes"):
        scaled(silent, 1 << 20, Fabric.uniform(1, 2))


class Scripted:
    """Two ranks whose reports are given: seconds and wrong chunks of each run."""

    def __init__(self, runs: list[list[tuple[float, int | None]]]) -> None:
        self.runs, self.plans = runs, []  # type: list[Any], list[Plan]

    def carry(self, plan: Plan) -> Report:
        self.plans.append(plan)
        return Report("scripted", plan.policy, 1, 1, 0.0, ())

    def reports(self, mine: Report, *, links: bool) -> list[Report]:
        assert not links
        return [
            replace(mine, seconds=seconds, wrong=wrong)
            for seconds, wrong in self.runs[len(self.plans) - 1]
        ]


def test_a_run_takes_as_long_as_its_slowest_rank_and_warm_up_does_not_count() -> None:
    benchmark = Benchmark(FABRIC, PATTERN, (1 << 16,), ("lpt",), warmup=1, iters=2)
    ranks = Scripted([[(9.0, 5), (9.0, 5)], [(1.0, 0), (2.0, 1)], [(4.0, 0), (3.0, 2)]])
    (row,) = benchmark.measure("scripted", ranks)
    assert (row.seconds, row.wrong) == (3.0, 3)
    assert row.as_dict()["busbw"] == pytest.approx((1 << 16) / 3.0 / 1e9 / 2)
    unverified = Scripted([[(1.0, None)]])
    (row,) = replace(benchmark, warmup=0, iters=1).measure("scripted", unverified)
    assert row.wrong is None
    assert row.row()[10] == "N/A"


def test_every_size_has_room_in_the_largest_layout() -> None:
    benchmark = Benchmark(FABRIC, PATTERN, (1 << 12, 1 << 14, 1 << 16), ("lpt", "pxn"), iters=1)
    ranks = Scripted([[(1.0, 0)]] * 100)
    rows = list(replace(benchmark, warmup=0).measure("scripted", ranks))
    assert [(row.size, row.policy) for row in rows] == [
        (size, policy) for size in (1 << 12, 1 << 14, 1 << 16) for policy in ("lpt", "pxn")
    ]
    assert all(isinstance(row, Measurement) for row in rows)
    largest = benchmark.room.send_bytes
    for plan in ranks.plans:
        assert (plan.send.sum(axis=1) <= largest[:, 0]).all()


def test_what_can_not_be_measured_is_refused_before_anyone_waits() -> None:
    with pytest.raises(InputError):
        Benchmark(FABRIC, PATTERN, (1 << 16,), ("no such policy",))
    with pytest.raises(InputError, match="expected at least 1 and 0"):
        Benchmark(FABRIC, PATTERN, (1 << 16,), iters=0)


def test_reports_of_ranks_are_checked() -> None:
    class Nonsense(Carrier):
        def _gather(self, value: Any) -> list[Any]:
            return [{**value, "seconds": "soon"}]

    benchmark = Benchmark(FABRIC, PATTERN, (1 << 16,), warmup=0, iters=1)
    with pytest.raises(BackendError, match="expected seconds"):
        list(benchmark.measure("nonsense", Nonsense(Loopback())))
