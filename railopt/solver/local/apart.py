"""Jobs too large to share a rail: in every better assignment each has one of the fastest rails for
itself, and the others on the other rails are a problem of their own, with less to waste.
"""

from __future__ import annotations

import numpy as np

from railopt.base.arrays import Ints
from railopt.solver.local.dual import PRICING_NODES, heaviest_load
from railopt.solver.local.outcome import Witness
from railopt.solver.local.state import State


def too_large(state: State) -> int:
    """How many jobs, the largest, fit only on the fastest rails within less than the value, and
    there with no other; 0 where no rail would be left for the others.
    """
    fits = state.class_capacities(state.value - 1)
    least = max(int(fits[0] - state.sizes[-1]), *fits[1:].tolist(), 0)
    count = int(np.count_nonzero(state.sizes > least))
    return count if count < min(state.rails, len(state.sizes)) else 0


def others_of(state: State, alone: int) -> State:
    """The other jobs on the other rails."""
    others = np.ascontiguousarray(state.sizes[alone:])
    return State(others, state.slowness[alone:], state.unit, state.deadline, state.seed)


def take(state: State, others: State, alone: int) -> None:
    """What is known of the others, as something known of all; of times from the value on that would
    not be true, since jobs need not lie alone there.
    """
    state.improve(np.concatenate((np.arange(alone), others.assignment + alone)), others.value_by)
    witness = witness_with(state, others, alone)
    if witness is not None:
        state.refuted(min(others.bound, state.value) - 1, witness, others.bound_by)
    state.notes += others.notes


def witness_with(state: State, others: State, alone: int) -> Witness | None:
    """The others' witness with the jobs that lie alone, each as heavy as the heaviest load of their
    rails; None for kinds that say nothing of all jobs.
    """
    witness = others.witness
    if witness["kind"] not in ("cover", "dual"):
        return None
    if "weights" not in witness:
        return {"kind": "cover"}
    pairs = witness["weights"]
    types, counts = np.unique(others.sizes, return_counts=True)
    weight_of = {size // state.unit: weight for size, weight in pairs}
    weights = np.array([weight_of.get(size, 0) for size in types.tolist()], np.int64)
    capacity = int(state.class_capacities(others.bound - 1)[0])
    load: Ints = np.zeros(len(types), np.int64)
    heaviest, complete = heaviest_load(types, counts, weights, capacity, 0, PRICING_NODES, load)
    if not complete:
        return None
    first = dict.fromkeys(state.sizes[:alone].tolist(), int(heaviest))
    own = [[size * state.unit, weight] for size, weight in first.items()]
    return {"kind": witness["kind"], "weights": own + pairs}
