"""The coupled problem as an integer program, put to a foreign solver in a process of its own."""

from __future__ import annotations

import os

from railopt.base.errors import InputError
from railopt.base.extras import installed, missing
from railopt.base.processes import THREADS
from railopt.policies.longest_first import lpt_global
from railopt.solver.coupled.race import Race
from railopt.solver.local.steps import failure
from railopt.solver.program.backends import BACKENDS
from railopt.solver.program.process import run
from railopt.solver.program.program import build

ILP_VARIABLES = 60_000  # beyond this CP-SAT has not helped within minutes
ILP_LEAST_S = 2.0  # with less left it would not even start up


def integer_program(race: Race) -> None:
    """CP-SAT with the bound, the best plan as a hint, equal chunks merged and the rails' symmetry
    broken; for half of what is left.
    """
    cells = race.cells
    if not installed("ortools"):
        race.note(missing("ortools", "what is left of the gap (linear and integer programs)"))
        return
    if (
        len(cells.chunks) * cells.fabric.rails <= ILP_VARIABLES
        and race.rail is not None
        and race.left_s >= ILP_LEAST_S
    ):
        _ask(race, "cpsat", race.left_s / 2, strengthened=True, threads=_threads())


def _threads() -> int:
    said = os.environ.get(THREADS, "")
    return int(said) if said.isdecimal() and int(said) else os.cpu_count() or 1


def foreign(race: Race, name: str) -> None:
    """One foreign solver with the plain program."""
    try:
        if race.left_s > 0:
            _ask(race, name, race.left_s, strengthened=False, threads=1)
        else:
            race.note(f"no time was left for {BACKENDS[name].title}")
    except InputError:
        raise
    except Exception as error:
        race.note(failure(BACKENDS[name].title, error))
    if race.rail is None:
        none = f"{BACKENDS[name].title} found no plan within {race.limit_s:g} s"
        plan = lpt_global(race.fabric, race.chunks)
        race.offer(plan.rail, plan.makespan, f"lpt-global, since {(none, *race.notes)[-1]}")


def _ask(race: Race, name: str, limit_s: float, *, strengthened: bool, threads: int) -> None:
    """Put the problem to a back-end; what it returns is re-evaluated, and what it did wrong is
    noted by its name.
    """
    cells, backend = race.cells, BACKENDS[name]
    problem = (
        build(cells.fabric, cells.chunks, bound=race.bound, hint=race.rail)
        if strengthened
        else build(cells.fabric, cells.chunks)
    )
    race.tell(backend.title)
    done = run(backend, problem.program, limit_s, threads)
    if done.failure:
        race.note(done.failure)
    for answer in done.answers:
        found = None
        if answer.counts is not None:
            counts = problem.counts(answer.counts)
            if counts is None:
                race.note(f"{backend.title} returned an infeasible plan; it is not used")
                continue
            rail = problem.rails(counts)
            found = cells.value(cells.loads(rail))
            race.offer(rail, found, backend.title)
        if answer.optimal and found is not None and race.rail is not None:
            if found > race.value:
                race.note(
                    f"{backend.title} calls a plan of {found} s optimal, but one of {race.value} "
                    f"s is known"
                )
            elif problem.program.exact:
                race.claimed_by = backend.title
    if done.interrupted:
        raise KeyboardInterrupt
