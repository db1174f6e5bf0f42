"""The coupled problem as an integer program, put to a foreign solver in a process of its own."""

from __future__ import annotations

from railopt.base.arrays import Rails
from railopt.base.errors import InputError
from railopt.policies.longest_first import lpt_global
from railopt.solver.coupled.race import Race
from railopt.solver.local.steps import failure
from railopt.solver.program.backends import BACKENDS
from railopt.solver.program.process import run
from railopt.solver.program.program import build


def foreign(race: Race, name: str) -> None:
    """The plan of one foreign solver, or lpt-global where it has none."""
    try:
        if race.left_s > 0:
            _ask(race, name)
        else:
            race.note(f"no time was left for {BACKENDS[name].title}")
    except InputError:
        raise
    except Exception as error:
        race.note(failure(BACKENDS[name].title, error))
    if race.rail is None:
        none = f", since {BACKENDS[name].title} found no plan within {race.limit_s:g} s"
        plan = lpt_global(race.fabric, race.chunks)
        race.offer(plan.rail, plan.makespan, "lpt-global" + ("" if race.notes else none))


def _ask(race: Race, name: str) -> None:
    """Put the problem to a back-end; what it returns is re-evaluated, and what it did wrong is
    noted by its name.
    """
    backend = BACKENDS[name]
    made = build(race.fabric, race.chunks)
    race.tell(backend.title)
    done = run(backend, made.program, race.left_s)
    if done.failure:
        race.note(done.failure)
    for answer in done.answers:
        if answer.values is not None:
            rail = made.rails(answer.values)
            if rail is None:
                race.note(f"{backend.title} returned an infeasible plan; it is not used")
                continue
            _offer(race, backend.title, rail, claims=answer.status == "optimal", exact=made.exact)
    if done.interrupted:
        raise KeyboardInterrupt


def _offer(race: Race, by: str, rail: Rails, *, claims: bool, exact: bool) -> None:
    """A plan, and the claim that it is optimal where one is made and no better one is known."""
    value = race.cells.value(race.cells.loads(rail))
    race.offer(rail, value, by)
    if claims and value > race.value:
        race.note(f"{by} calls a plan of {value} s optimal, but one of {race.value} s is known")
    elif claims and exact:
        race.claimed_by = by
