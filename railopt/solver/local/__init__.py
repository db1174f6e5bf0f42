"""The local problem, exactly: one list of sizes on N rails, equal (P||Cmax) or of different speeds
(Q||Cmax).

solve.py    the pipeline: bounds and values by rising cost until they meet
unequal.py  the same for rails of different speeds                outcome.py  what they return
values.py   LPT, MULTIFIT, differencing, LPT by counts
fill.py     optimal re-splits of two rails, perfect filling       subsets.py  subset sums by meeting
            in the middle
dual.py     L2, Fekete-Schepers, the exact knapsack: integer weights that refute a capacity
lp.py       the configuration LP by column generation: its prices as weights, and dives for
            assignments
window.py   the sets of jobs that can be one rail's load          cover.py    exact cover of all
            jobs with such sets
exact.py    a capacity decided with these two
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from railopt.solver.local.outcome import LocalOutcome
    from railopt.solver.local.solve import solve_local

__all__ = ["LocalOutcome", "solve_local"]


def __getattr__(name: str) -> Any:
    """Import the solver, and numba with it, only when it is used."""
    if name in __all__:
        from railopt.solver.local import solve

        return getattr(solve, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
