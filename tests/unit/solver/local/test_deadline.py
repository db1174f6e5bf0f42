"""When a search has to end."""

from __future__ import annotations

import math

import pytest

from railopt.checker import Rejected
from railopt.solver.local.deadline import Deadline, TimedMeter


def test_what_is_affordable_is_never_negative_nor_more_than_asked_for() -> None:
    now = [0.0]
    deadline = Deadline.after(2.0, lambda: now[0])
    assert (deadline.left_s, deadline.over, deadline.afford(100, 10)) == (2.0, False, 20)
    assert deadline.afford(10, 10) == 10
    assert deadline.within(1.0).at == 1.0
    now[0] = 3.0
    assert (deadline.left_s, deadline.over, deadline.afford(100, 10)) == (-1.0, True, 0)
    assert deadline.within(5.0).at == 2.0
    now[0] = math.inf  # what an interrupted race says
    assert (deadline.over, deadline.afford(100, 10)) == (True, 0)
    assert Deadline.after(math.inf, lambda: 0.0).afford(100, 10) == 100


def test_a_timed_meter_refuses_when_steps_or_time_are_spent() -> None:
    now = [0.0]
    meter = TimedMeter(10, Deadline.after(1.0, lambda: now[0]))
    meter.spend(10)
    with pytest.raises(Rejected, match="steps"):
        meter.spend(1)
    meter = TimedMeter(10, Deadline.after(1.0, lambda: now[0]))
    now[0] = 1.0
    with pytest.raises(Rejected, match="no time is left"):
        meter.spend(1)
