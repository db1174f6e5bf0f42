"""Two-level all-to-all(v) schedules: balance inside servers, rails between them, in stages without
incast or in none.

A schedule says when bytes move, a plan says on which rail; every schedule becomes a Plan (with a
stage column where there are barriers) that the simulator, `railopt check` and the senders
understand.

    schedule = synthesise(fabric, traffic, "compact")   # pure function of the matrix
    schedule.stages, schedule.total, schedule.bound     # sum of the stages; t_opt = L / (m B2)
    modelled(schedule).ratio                            # alpha-beta model over its bound, in parts
    schedule.plan().save("plan.npz")                    # which bytes on which rail in which stage

    matching    perfect matchings on bit rows
    decompose   server matrix -> stages: FAST's and SpreadOut's way;  compact: ours
    order       stages by length, short ones at both ends
    kinds       what each kind of schedule does, one entry each
    value       Schedule: valid by construction, files, Plan
    synthesis   traffic -> Schedule
    quickest    up to 4 servers, start-ups given: several lists of stages, the shortest of them
    rates       NICs that differ: what a transfer takes, in bytes of the fastest pair
    pieces      stages -> bytes of each GPU pair
    model       alpha-beta time in parts;  report: the same with synthesis time, kinds side by side
    certify     t_opt and stages with their proofs;  stage_rule: whether a staged plan keeps it
"""

from railopt.schedule.certify import certificate, staged
from railopt.schedule.kinds import KINDS, ORDERS, ScheduleKind
from railopt.schedule.model import LINKS, Breakdown, LinkTimes, modelled
from railopt.schedule.report import ScheduleCost, compare, cost
from railopt.schedule.stage_rule import conflicts
from railopt.schedule.synthesis import synthesise
from railopt.schedule.value import Schedule

__all__ = [
    "KINDS",
    "LINKS",
    "ORDERS",
    "Breakdown",
    "LinkTimes",
    "Schedule",
    "ScheduleCost",
    "ScheduleKind",
    "certificate",
    "compare",
    "conflicts",
    "cost",
    "modelled",
    "staged",
    "synthesise",
]
