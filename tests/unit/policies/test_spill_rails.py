"""Trades of units between rails."""

from __future__ import annotations

import numpy as np
import pytest

from railopt import Fabric, Plan, plan
from railopt.policies import spill_rails
from railopt.policies.spilling import TimedRails, units_and_costs
from tests.unit.policies.test_spilling import DEGRADED, FABRIC, SEVERAL, SHARED, tokens


@pytest.mark.parametrize("fabric", [FABRIC, DEGRADED, SHARED, SEVERAL])
def test_trades_move_fewer_bytes_in_the_same_time(fabric: Fabric) -> None:
    for seed in range(5):
        chunks = tokens(fabric, seed)
        away = plan(fabric, chunks, "lpt-global").rail
        rail = away.copy()
        units, prices = units_and_costs(fabric, chunks, np.empty_like(rail))
        busy = spill_rails.times(units, prices, rail)
        kept = int(np.max(busy))
        state = spill_rails.SwapState(units, prices, busy[0], busy[1], rail)
        assert spill_rails.trade_home(state, kept) > 0
        again = spill_rails.times(units, prices, rail)
        assert np.array_equal(again[0], busy[0])
        assert np.array_equal(again[1], busy[1])
        assert TimedRails(rail, kept).moved(units) < TimedRails(away, kept).moved(units)
        assert Plan(fabric, chunks, rail).moved < Plan(fabric, chunks, away).moved
