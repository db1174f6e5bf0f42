"""The alpha-beta model against hand calculations, and the figures that FAST's released simulator
gives in it.
"""

from __future__ import annotations

import numpy as np
import pytest

from railopt import Fabric, Traffic
from railopt.base.errors import InputError
from railopt.model.workloads import zipf
from railopt.schedule import (
    KINDS,
    LINKS,
    LinkTimes,
    compare,
    cost,
    modelled,
    synthesise,
)
from railopt.schedule.model import inside, spread

LINK = LinkTimes(alpha_out=1.0, beta_out=10.0, alpha_in=0.5, beta_in=2.0)
MB = 10**6


def two_by_two(rows: list[list[int]]) -> Traffic:
    return Traffic.from_matrix(np.array(rows) * MB, Fabric.uniform(2, 2))


def test_spread_is_a_step_a_shift() -> None:
    moves = np.array([[9, 2, 0], [0, 9, 4], [1, 3, 9]]) * MB
    assert spread(moves, 0.5, 2.0) == pytest.approx((0.5 + 2 * 4) + (0.5 + 2 * 3))
    assert spread(np.zeros((3, 3), np.int64), 0.5, 2.0) == 0


def test_one_direction_by_hand() -> None:
    """GPU 0 holds 6 MB for GPU 2 and GPU 1 holds 2 MB for it: 2 MB are balanced, rail 1's 4 MB are
    redistributed.
    """
    traffic = two_by_two([[0, 0, 6, 0], [0, 0, 2, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    fabric = Fabric.uniform(2, 2, scaleup="150GB/s")  # three times a NIC: stages are halved
    fast = modelled(synthesise(fabric, traffic, "fast"), LINK)
    assert (fast.bound, fast.wire, fast.startup) == (40, 40, 1)
    assert fast.balance == pytest.approx(0.5 + 2 * 2)
    assert fast.redistribution == pytest.approx(0.5 + 2 * 4)
    at_once = modelled(synthesise(fabric, traffic, "fast-nostage"), LINK)
    assert at_once.total == pytest.approx(fast.total)
    ours = modelled(synthesise(fabric, traffic, "compact", order="descending"), LINK)
    assert ours.total == pytest.approx(fast.total), "a single stage hides nothing"
    tapered = modelled(synthesise(fabric, traffic, "compact", startup=1), LINK)
    assert tapered.wire == 40
    assert tapered.startup == 7
    assert tapered.balance == 0, "rail 1 sends its own 2 MB first"
    assert tapered.redistribution == pytest.approx(0.5 + 2 * 0.25), "the last stage is 1/16"


def test_parts_add_up_and_nothing_beats_the_bound() -> None:
    fabric = Fabric.uniform(6, 8)
    for skew in (0.0, 0.9):
        for found in compare(fabric, zipf(fabric, mean="1MiB", skew=skew, seed=1)):
            parts = found.parts
            assert parts.total == pytest.approx(
                parts.wire + parts.startup + parts.balance + parts.redistribution
            )
            assert parts.wire >= parts.bound * (1 - 1e-9)
            assert parts.ratio >= 1
            assert found.ratio_with_synthesis > parts.ratio
            assert found.as_dict()["modelled_us"] == parts.as_dict()


def test_balanced_traffic_has_no_balance() -> None:
    fabric = Fabric.uniform(4, 8)
    traffic = Traffic.from_matrix(np.full((32, 32), MB), fabric)
    for found in compare(fabric, traffic):
        assert found.parts.balance == 0
        assert found.schedule.excess == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("nodes", "released_stages", "released_ratio"),
    [(4, 8, 1.19), (8, 44, 1.23), (16, 218, 1.26), (32, 935, 1.32)],
)
def test_fast_as_released(nodes: int, released_stages: int, released_ratio: float) -> None:
    """Uniform random demand, stages in the order they are built, as FAST's simulator runs them: its
    figures within 5 %.
    """
    fabric = Fabric.uniform(nodes, 8)
    ratios, stages = [], []
    for seed in range(3):
        traffic = Traffic.from_matrix(
            np.random.default_rng(seed).integers(0, 100 * MB, (nodes * 8,) * 2), fabric
        )
        built = synthesise(fabric, traffic, "fast", order="built")
        ratios.append(modelled(built).ratio)
        stages.append(built.stages)
        ours = synthesise(fabric, traffic)
        assert modelled(ours).ratio <= 1.05
        assert ours.stages <= 4 * nodes
    assert np.mean(ratios) == pytest.approx(released_ratio, rel=0.05)
    assert np.mean(stages) == pytest.approx(released_stages, rel=0.12)


def test_nothing_to_send_costs_nothing_between_servers() -> None:
    fabric = Fabric.uniform(1, 4)
    traffic = Traffic.from_matrix(np.full((4, 4), MB), fabric)
    for kind in KINDS:
        parts = modelled(synthesise(fabric, traffic, kind), LINK)
        assert (parts.bound, parts.wire, parts.startup, parts.ratio) == (0, 0, 0, 1)
        assert parts.redistribution == pytest.approx(3 * (0.5 + 2))


def test_slower_links_cost_more() -> None:
    fabric = Fabric.uniform(4, 8)
    traffic = zipf(fabric, mean="1MiB", seed=2)
    slow = cost(fabric, traffic, "compact", links=LINKS["mi300x-100g"]).parts
    assert slow.total > cost(fabric, traffic, "compact").parts.total
    assert slow.bound == pytest.approx(84 / 22 * cost(fabric, traffic, "compact").parts.bound)


@pytest.mark.slow
def test_pieces_of_some_servers_at_a_time_cost_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = Fabric.uniform(5, 3)
    few = Traffic.from_matrix(np.random.default_rng(6).integers(0, 4, (15, 15)), fabric)
    for made in [
        *(synthesise(fabric, zipf(fabric, skew=0.7, seed=4), kind) for kind in KINDS),
        synthesise(fabric, few, startup=0),  # what is left of stages runs at once
    ]:
        whole, pieces = inside(made, LINK), made.pieces()
        monkeypatch.setattr("railopt.schedule.model.PIECES", 1)
        for together, apart in zip(whole, inside(made, LINK), strict=True):
            assert np.array_equal(together, apart)
        parts = [made.pieces(sources=slice(i, i + 2)) for i in range(0, 5, 2)]
        with pytest.raises(InputError, match="give one of them"):
            made.pieces(node=0, sources=slice(0, 2))
        for number, column in enumerate(pieces):
            assert np.array_equal(column, np.concatenate([part[number] for part in parts]))
        monkeypatch.undo()


def test_a_plan_of_too_many_pieces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    fabric = Fabric.uniform(4, 2)
    made = synthesise(fabric, zipf(fabric, seed=1), "spreadout")
    assert len(made.plan().chunks) >= 24
    monkeypatch.setattr("railopt.schedule.value.MAX_CHUNKS", 23)
    with pytest.raises(InputError, match="24 pieces or more: a plan has at most 23 chunks"):
        made.plan()
