"""One node whose rails carry many chunks of few sizes (cut traffic: the cap and some remainders),
by the configuration LP.

`solve_local` asks the LP only where loads are short; here loads are long but mostly caps, and
pricing stays easy.
"""

from __future__ import annotations

import time
from typing import NamedTuple

import numpy as np

from railopt.arrays import Ints
from railopt.bounds import Witness, pigeonhole
from railopt.solver.local import values
from railopt.solver.local.lp import Clock, ConfigurationLP, assignment_of, start
from railopt.solver.local.remainders import filled

MAX_TYPES = 80
DIVES = 4
FILLS = 1000  # tries, 1 to 2 us each, at each of a few capacities above the bound
ABOVE = 0, 1, 2, 3, 4, 6, 8, 12, 16  # in units of the sizes' common divisor


class Packed(NamedTuple):
    """No rail arrangement is below `bound` bytes, by `witness`; `rail` int64 [n] attains
    `value`.
    """

    bound: int
    witness: Witness
    value: int
    rail: Ints


def suits(sizes: Ints, rails: int) -> bool:
    """Few sizes, many of them repeated, and more chunks a rail than `solve_local` gives to the
    LP.
    """
    types = len(np.unique(sizes))
    return 12 * rails < len(sizes) and types <= MAX_TYPES and 2 * types < len(sizes)


def pack(
    sizes: Ints, rails: int, limit_s: float, seed: int, clock: Clock = time.perf_counter
) -> Packed:
    """The best bound and arrangement within `limit_s` seconds of `clock`; sizes in descending
    order.
    """
    unit = int(np.gcd.reduce(sizes))
    jobs = np.ascontiguousarray(sizes // unit)
    bound, witness = pigeonhole(sizes, rails)
    rail = values.lpt(jobs, rails)
    value, low = int(values.loads_of(jobs, rail, rails).max()), bound // unit
    for above in ABOVE:
        found = filled(jobs, rails, low + above, FILLS, seed) if low + above < value else None
        if found is not None:
            rail, value = found, int(values.loads_of(jobs, found, rails).max())
            break
    types, counts = np.unique(jobs, return_counts=True)
    model = ConfigurationLP(types, counts, rails, start(types, jobs, rail, rails))
    deadline = clock() + limit_s
    for capacity in [
        value - 1,
        *range(low, value - 1),
    ]:  # all that is wanted at once, or else as much as can be had
        weights = model.refute(capacity, deadline, clock) if low < value else None
        if weights is not None:
            pairs = [
                [int(size) * unit, int(weight)]
                for size, weight in zip(types[::-1], weights[::-1], strict=True)
                if weight
            ]
            low, witness = (
                capacity + 1,
                {"kind": "dual", "weights": pairs, "capacity": (capacity + 1) * unit - 1},
            )
        elif capacity < value - 1:
            break
    rng, keep, above = np.random.default_rng(seed), max(2, min(rails, 28 * rails // len(jobs))), 0
    while low + above < value and clock() < deadline:
        for _ in range(DIVES):
            loads = model.dive(low + above, keep, rng, deadline, clock)
            if loads is not None:
                rail = assignment_of(jobs, types, loads)
                value = int(values.loads_of(jobs, rail, rails).max())
                break
        above = 2 * above + 1
    return Packed(low * unit, witness, value * unit, rail)
