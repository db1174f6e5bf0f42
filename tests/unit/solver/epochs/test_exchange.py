"""A timetable's lengths, and the line that bounds every timetable."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Traffic
from railopt.base.errors import CheckFailed, Infeasible, InputError
from railopt.solver.epochs.best import one_by_one, paced
from railopt.solver.epochs.exchange import ChunkExchange, bound, lengths
from railopt.solver.epochs.lists import in_epochs
from tests.drawn import exchange


def test_without_stages_a_nic_pays_for_each_server_that_it_sends_to() -> None:
    _, asked = exchange(Fraction(2, 10**6), stages=False)
    assert bound(asked).value * asked.unit == Fraction(8 + 2 * 2, 10**6)
    made = in_epochs(asked, asked.demand[tuple(asked.pairs.T)][:, None])
    assert len(lengths(asked, made)) >= 12
    late = made._replace(start=np.roll(made.start, 1, axis=0))
    with pytest.raises(CheckFailed, match="before its start-up is over"):
        lengths(asked, late)


def two_nics(recv: list[list[int]], **more: Any) -> ChunkExchange:
    """One GPU with two NICs in each of three servers; server 0 sends 7 chunks to 1 and 1 to 2."""
    demand = np.zeros((3, 3), np.int64)
    demand[0, 1:] = 7, 1
    ones = np.ones((3, 2), np.int64)
    given = {"startup": 1, "peers": 2, "epoch": 1, "unit": Fraction(1), **more}
    return ChunkExchange(demand, ones, np.array(recv), np.ones((1, 2), np.bool_), 1, **given)


def test_lines_know_whom_a_nic_can_call_and_reach() -> None:
    """In 5 epochs both NICs have 10, two of which are calls: but if both call server 1 and one of
    them server 2, three are, and if one calls server 1 it can't send 7.
    """
    alive = [[1, 1]] * 3
    assert bound(two_nics(alive)).value == 6
    assert bound(two_nics(alive, epoch=0)).value == 4 + 1
    far = [[1, 1], [1, 0], [1, 0]]
    assert bound(two_nics(far)).value == 8 + 2
    assert bound(two_nics(far, epoch=0, peers=1)).value == 8 + 2
    with pytest.raises(Infeasible, match="no rail is alive at both server 0 and server 2"):
        bound(two_nics([[1, 1], [1, 1], [0, 0]]))


def test_a_timetable_is_checked() -> None:
    _, asked = exchange()
    good = one_by_one(asked)
    assert sum(lengths(asked, good)) >= bound(asked).value
    with pytest.raises(CheckFailed, match="does not carry the demand"):
        lengths(asked, good._replace(wire=good.wire * 2))
    at_once = paced(asked, good.wire.sum(axis=0, keepdims=True))
    with pytest.raises(CheckFailed, match="more than 1 peers"):
        lengths(asked, at_once)


def test_epochs_that_do_not_divide_and_times_that_can_not_be_are_refused() -> None:
    with pytest.raises(InputError, match="does not divide into epochs of 1us"):
        exchange(Fraction(3, 2 * 10**6), stages=False)
    with pytest.raises(InputError, match="a start-up of -1 s: expected 0 or more"):
        exchange(Fraction(-1))
    fabric = Fabric.uniform(3, 1)
    with pytest.raises(InputError, match="chunk"):
        ChunkExchange.of(fabric, Traffic.from_matrix(np.eye(3, k=1), fabric), 0, Fraction(0))


def test_rates_without_a_common_unit_are_named() -> None:
    rates = np.array([[49_173_528_417], [48_912_345_671], [49_000_301_287]])
    fabric = Fabric.uniform(3, 1)
    traffic = Traffic.from_matrix(np.array([[0, 4, 3], [1, 0, 2], [3, 2, 0]]) << 18, fabric)
    for digits, refused in ((0, True), (8, False)):
        rounded = rates // 10**digits * 10**digits
        given = replace(fabric, tx=rounded, rx=rounded), traffic, 1 << 18, Fraction(7, 10**7)
        if refused:
            with pytest.raises(InputError, match=r"of 3 digits: 48900000000B/s instead of 489"):
                ChunkExchange.of(*given)
        else:
            assert bound(ChunkExchange.of(*given)).value > 0
    third = Fabric.uniform(3, 1).degraded({(0, 0): "1/3"})
    with pytest.raises(InputError, match=r"8 digits: 16666666000B/s .*\(0\.33333332 of"):
        ChunkExchange.of(third, traffic, 1 << 16, Fraction(7, 10**7))
    known = Fabric.uniform(3, 1).degraded({(0, 0): "0.33333332"})
    assert bound(ChunkExchange.of(known, traffic, 1 << 16, Fraction(7, 10**7))).value > 0


def test_an_epoch_that_divides_is_named() -> None:
    fabric = Fabric.uniform(3, 1).degraded({(0, 0): "0.6"})
    given = fabric, Traffic.from_matrix(np.eye(3, k=1, dtype=np.int64), fabric), 1 << 18, 0.0
    with pytest.raises(InputError, match=r"another --epoch, a multiple of 26\.2144us, --chunk or"):
        ChunkExchange.of(*given, stages=False)
    asked = ChunkExchange.of(*given, epoch="26.2144us", stages=False)
    assert asked.epoch * asked.unit == Fraction(262144, 10**10)


def test_times_are_texts_and_numbers_too() -> None:
    for same in ("700ns", 0.7e-6, Fraction(7, 10**7)):
        asked = exchange(same)[1]
        assert asked.startup * asked.unit == Fraction(7, 10**7)
    with pytest.raises(InputError, match="soon"):
        exchange("soon")
