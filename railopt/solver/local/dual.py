"""Integer weights that refute a capacity: all jobs weigh more than N rails of that capacity can hold.

Weights come from Martello and Toth's L2 and Fekete and Schepers' u(k) (dual feasible functions), or from the
configuration LP (Gilmore, Gomory 1961): minimise the number of rails over all loads of at most the capacity, by column
generation.  The LP is solved in floating point, but its prices are rounded down to integers before the exact knapsack
decides, so rounding can only weaken a bound, never falsify it.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import njit

Ints = npt.NDArray[np.int64]
SCALES = (12, 60, 420, 5040, 10**5, 10**6, 10**7)  # of rounded prices; the smallest that still proves is used
PRICING_NODES = 4_000_000


@njit(cache=True)
def known_weights(sizes: Any, rails: int, capacity: int, weights: Any) -> bool:
    """Whether L2 or a u(k) refutes `capacity`; then `weights` int64 [n] says how.  Sizes descend."""
    n = sizes.size
    for e in range(n - 1, -1, -1):
        small = sizes[e]
        if 2 * small > capacity:
            break
        total = 0
        for i in range(e + 1):
            total += capacity if sizes[i] > capacity - small else sizes[i]
        if total > rails * capacity:
            for i in range(n):
                weights[i] = 0 if i > e else capacity if sizes[i] > capacity - small else sizes[i]
            return True
    for k in range(1, 33):
        total = 0
        for i in range(n):
            scaled = (k + 1) * sizes[i]
            weights[i] = k * sizes[i] if scaled % capacity == 0 else scaled // capacity * capacity
            total += weights[i]
        if total > rails * capacity * k:
            return True
    return False


@njit(cache=True)
def known_bound(sizes: Any, rails: int, low: int, high: int) -> int:
    """The least capacity in [low, high + 1] that bisection with `known_weights` does not refute."""
    weights = np.empty(sizes.size, np.int64)
    while low <= high:
        middle = (low + high) // 2
        if known_weights(sizes, rails, middle, weights):
            low = middle + 1
        else:
            high = middle - 1
    return low


@njit(cache=True)
def heaviest_load(sizes: Any, counts: Any, weights: Any, capacity: int, enough: int, max_nodes: int, load: Any) -> Any:
    """(weight, complete): the heaviest load of at most `capacity`, or `enough` where none is heavier.

    Branch and bound over types by falling weight per size; `load` int64 [types] gets the set of a heavier load.
    The search ends early, complete or not, once it has found one.
    """
    order = np.argsort(-weights / sizes)
    while order.size and weights[order[-1]] == 0:
        order = order[:-1]
    taken = np.zeros(order.size, np.int64)
    room, weight, best, nodes, i = capacity, np.int64(0), enough, 0, 0
    while True:
        while i < order.size:  # fill up greedily while it can still win
            t = order[i]
            if weight * sizes[t] + room * weights[t] <= best * sizes[t]:
                break
            taken[i] = min(counts[t], room // sizes[t])
            room -= taken[i] * sizes[t]
            weight += taken[i] * weights[t]
            i += 1
        if weight > best:
            best = weight
            load[:] = 0
            for k in range(i):
                load[order[k]] = taken[k]
        nodes += 1
        if nodes > max_nodes:
            return best, False
        i -= 1
        while i >= 0 and taken[i] == 0:
            i -= 1
        if i < 0:
            return best, True
        t = order[i]
        taken[i] -= 1
        room += sizes[t]
        weight -= weights[t]
        i += 1


def refuting_weights(sizes: Ints, counts: Ints, weights: Ints, rails: int, capacity: int) -> bool:
    """Whether these weights of the types refute the capacity (exact; False also where the search is too long)."""
    total = int((weights * counts).sum())
    if total <= 0:
        return False
    weight, complete = heaviest_load(sizes, counts, weights, capacity, (total - 1) // rails, PRICING_NODES,
                                     np.zeros(len(sizes), np.int64))
    return bool(complete and weight * rails < total)


class ConfigurationLP:
    """Column generation for one list of types; columns found at one capacity serve the others."""

    def __init__(self, sizes: Ints, counts: Ints, rails: int, loads: Ints) -> None:
        """`loads` int64 [k, types]: loads to begin with, such as those of a good assignment."""
        self.sizes, self.counts, self.rails = sizes, counts, rails
        self.loads = [*np.minimum(np.eye(len(sizes), dtype=np.int64), counts), *loads]

    def refute(self, capacity: int, deadline: float) -> Ints | None:
        """Weights int64 [types] that refute `capacity`, or None where the LP does not, or time is over."""
        import highspy

        model = highspy.Highs()
        for option, value in (("output_flag", False), ("presolve", "off"), ("threads", 1), ("solver", "simplex")):
            model.setOptionValue(option, value)
        for count in self.counts.tolist():
            model.addRow(float(count), highspy.kHighsInf, 0, np.empty(0, np.int32), np.empty(0))
        for load in self.loads:
            if load @ self.sizes <= capacity:
                _add_column(model, load)
        scale = 10**7
        while time.perf_counter() < deadline:
            model.run()
            prices = np.asarray(model.getSolution().row_dual)
            weights = np.maximum(0, np.floor(prices * scale)).astype(np.int64)
            total = int((weights * self.counts).sum())
            if model.getObjectiveValue() <= self.rails + 1e-9 or total < self.rails * scale:
                return None
            load = np.zeros(len(self.sizes), np.int64)
            weight, complete = heaviest_load(self.sizes, self.counts, weights, capacity, (total - 1) // self.rails,
                                             PRICING_NODES, load)
            if weight * self.rails < total:
                return self._smallest(prices, capacity) if complete else None
            self.loads.append(load)
            _add_column(model, load)
        return None

    def _smallest(self, prices: npt.NDArray[np.float64], capacity: int) -> Ints | None:
        """The prices as integers, as coarse as they still refute: short to write and fast to check."""
        for scale in SCALES:
            weights = np.maximum(0, np.floor(prices * scale + 1e-6)).astype(np.int64)
            if refuting_weights(self.sizes, self.counts, weights, self.rails, capacity):
                return weights
        return None


def _add_column(model: Any, load: Ints) -> None:
    used = np.flatnonzero(load).astype(np.int32)
    model.addCol(1.0, 0.0, float("inf"), len(used), used, load[used].astype(np.float64))
