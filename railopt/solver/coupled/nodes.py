"""What one node sends or receives, alone: its optimum, which bounds every plan, and an arrangement
around which the other chunks are arranged.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from railopt.checker import WORK
from railopt.solver.coupled.search import Cells
from railopt.solver.local.deadline import Deadline, TimedMeter
from railopt.solver.local.outcome import LocalOutcome
from railopt.solver.local.solve import solve_local
from railopt.solver.local.steps import BY_WEIGHTS, STEPS, Step


def optimum(
    cells: Cells,
    side: str,
    node: int,
    limit_s: float,
    deadline: Deadline,
    seed: int,
    needed: Fraction,
) -> tuple[LocalOutcome, LocalOutcome, bool]:
    """(the best arrangement of one node's sends or receives that a search of `limit_s` seconds
    finds, what has the best bound, in seconds, whether the checker accepts its witness by the
    deadline); chunks are in the order of `node_chunks`.  A bound of `needed` seconds ends it.
    """
    sizes = cells.chunks.size[cells.node_chunks(side, node)]
    speeds = cells.rates(side, node).tolist()

    def searched(chosen: Sequence[Step]) -> LocalOutcome:
        within = deadline.within(limit_s)
        return solve_local(
            sizes,
            speeds=speeds,
            limit_s=within.left_s,
            seed=seed,
            clock=deadline.clock,
            chosen=chosen,
            needed=needed,
        )

    found = proof = searched(STEPS)
    checkable = found.accepted(TimedMeter(WORK, deadline))
    if not checkable:
        # weights that refute as much as the search did are short to check
        weighed = searched(BY_WEIGHTS)
        if weighed.bound >= found.bound and weighed.accepted(TimedMeter(WORK, deadline)):
            proof, checkable = weighed, True
    return found, proof, checkable
