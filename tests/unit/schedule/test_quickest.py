"""The stages of few servers where it is known what a start-up takes."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from railopt import Fabric, Traffic, synthesise
from railopt.schedule import Schedule, modelled
from railopt.schedule.decompose import shifted
from railopt.schedule.model import LinkTimes, least
from railopt.schedule.quickest import lasts

GB = 10**9


def drawn(seed: int, fabric: Fabric, most: int) -> Traffic:
    """Up to `most` bytes between any two GPUs."""
    count = fabric.nodes * fabric.gpus
    return Traffic.from_matrix(
        np.random.default_rng(seed).integers(0, most + 1, (count, count)), fabric
    )


@pytest.mark.parametrize(("inside", "seconds"), [(1, 6.5), (24, 7.5)])
def test_what_a_stage_takes_by_hand(inside: int, seconds: float) -> None:
    """GPU 0 gives 2 of its 6 GB to rail 1, which sends 4 GB for GPU 2: 0.5 s, 1 s and 4 s, 1 s.
    What stays inside takes a quarter of a second per GB beside the wire.
    """
    fabric = Fabric.uniform(2, 2, "8Gb/s", scaleup="4GB/s")
    matrix = np.array([[0, inside, 6, 0], [0, 0, 2, 0], [0, 0, 0, 0], [0, 0, 0, 0]]) * GB
    traffic, peer = Traffic.from_matrix(matrix, fabric), np.array([[1, -1]], np.int32)
    made = Schedule(fabric, traffic, "compact", "ascending", peer, np.array([[8 * GB, 0]]))
    assert lasts(made, 1.0) == seconds


@pytest.mark.parametrize("startup", [3, 20, 60])
def test_no_cyclic_order_of_four_servers_is_better(startup: int) -> None:
    fabric = Fabric.uniform(4, 1)
    for seed in range(20):
        traffic = drawn(seed, fabric, 100)
        made = synthesise(fabric, traffic, startup=startup)
        for order in permutations(range(4)):
            _, sent = shifted(np.ascontiguousarray(traffic.node_matrix[np.ix_(order, order)]))
            around = len(sent) * startup + int(sent.max(axis=1).sum())
            assert made.total + made.stages * startup <= around


def test_the_longest_transfers_are_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what is cut off has a stage of its own, where that is shorter."""
    fabric, startup = Fabric.uniform(4, 1), 10
    draws = [drawn(seed, fabric, 100) for seed in range(20)]

    def times() -> list[int]:
        made = [synthesise(fabric, each, startup=startup) for each in draws]
        return [each.total + each.stages * startup for each in made]

    found = times()
    monkeypatch.setattr("railopt.schedule.quickest.LEVELS", 1)
    assert all(a <= b for a, b in zip(found, times(), strict=True))
    assert sum(a < b for a, b in zip(found, times(), strict=True)) >= 5


def test_the_first_stage_needs_little_balance_and_the_last_little_redistribution() -> None:
    fabric, startup, others = Fabric.uniform(3, 2), 40_000, 0
    for seed in range(20):
        traffic = drawn(seed, fabric, 100_000)
        made = synthesise(fabric, traffic, startup=startup)
        if made.stage is not None:
            continue
        by_length = np.argsort(made.lengths, kind="stable").tolist()
        others += by_length != sorted(by_length)
        for first, last in product(by_length[:2], by_length[-2:]):
            if first == last:
                continue
            order = [first, *(s for s in by_length if s not in (first, last)), last]
            tried = Schedule(
                fabric, traffic, "compact", "ascending", made.peer[order], made.sent[order]
            )
            assert lasts(made, startup / 1e11) <= lasts(tried, startup / 1e11)
    assert others >= 5


@pytest.mark.parametrize("slow", [{}, {(0, 1): "1/2"}])
def test_few_chunks_go_on_all_nics_at_a_time(
    slow: dict[tuple[int, int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An odd number of them takes two NICs as long as the next even one."""
    fabric = Fabric.uniform(3, 2).degraded(slow)
    draws = [drawn(seed, fabric, 3) for seed in range(20)]
    found = [lasts(synthesise(fabric, each, startup=1), 1e-11) for each in draws]
    monkeypatch.setattr("railopt.schedule.quickest.FEW_UNITS", 0)
    bytes_ = [lasts(synthesise(fabric, each, startup=1), 1e-11) for each in draws]
    assert all(a <= b for a, b in zip(found, bytes_, strict=True))
    assert sum(found) < sum(bytes_)


@pytest.mark.parametrize("slow", [{}, {(0, 1): "1/2"}, {(0, 1): "0"}])
@pytest.mark.parametrize("servers", [1, 2, 3, 4])
def test_every_byte_goes_and_every_node_computes_the_same(
    servers: int, slow: dict[tuple[int, int], str]
) -> None:
    for gpus, startup, most in product((1, 2), (0, 1, 1 << 60), (0, 3, 10**6)):
        fabric = Fabric.uniform(servers, 2, gpus=gpus).degraded(slow)
        made = synthesise(fabric, drawn(servers, fabric, most), startup=startup)
        assert made == synthesise(
            fabric, Traffic(made.traffic.bytes.copy(), servers), startup=startup
        )
        assert made.total >= made.line_sum or servers == 1


def test_long_start_ups_have_gpus_send_to_different_servers_at_once() -> None:
    """Three servers of two GPUs need one stage, and each GPU has one peer in it."""
    fabric = Fabric.uniform(3, 2)
    for seed in range(10):
        made = synthesise(fabric, drawn(seed, fabric, 1000), startup=100_000)
        pieces = made.pieces()
        assert made.stages == 1
        assert not pieces.stage.any()
        for rail, server in product(range(2), range(3)):
            sends = (pieces.rail == rail) & (pieces.source // 2 == server)
            receives = (pieces.rail == rail) & (pieces.target // 2 == server)
            assert len(np.unique(pieces.target[sends] // 2)) == 1
            assert len(np.unique(pieces.source[receives] // 2)) == 1
        loads = np.zeros((3, 2), np.int64)
        np.add.at(loads, (pieces.source // 2, pieces.rail), pieces.size)
        assert made.total == 2 * loads.max()
        links = LinkTimes.of(fabric, 100.0)
        assert least(made, links) <= modelled(made, links).total


def test_stages_of_several_rows_last_shortest() -> None:
    """Beside every partition of the rows into stages of one or two neighbours."""
    from railopt.schedule.quickest import _together

    for seed in range(30):
        draw = np.random.default_rng(seed)
        rows = np.sort(draw.integers(0, 50, 6))[:, None]
        startup = int(draw.integers(0, 30))
        lasts_, stages = _together(rows, startup, 2)
        assert [row for stage in stages for row in stage] == list(range(6))
        every = []
        for cuts in product((False, True), repeat=5):
            ends = [k + 1 for k in range(5) if cuts[k]] + [6]
            parts = [range(a, b) for a, b in zip([0, *ends], ends, strict=False)]
            if all(len(part) <= 2 for part in parts):
                every.append(sum(startup + len(p) * int(rows[p[-1], 0]) for p in parts))
        assert lasts_ == min(every)
