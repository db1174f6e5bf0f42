"""Two-level all-to-all(v) schedules: balance inside servers, rails between them, in stages without
incast or in none.

A schedule says when bytes move, a plan says on which rail; every schedule becomes a Plan (with a
stage column where
there are barriers) that the simulator, `railopt check` and the senders understand.  Layer: beside
`solver sim runtime`, above `policies`; imports plan, bounds and below.

    schedule = synthesise(fabric, traffic, "compact")   # pure function of the matrix: every node
    computes the same
    schedule.stages, schedule.total, schedule.bound     # sum of the stages' lengths; t_opt = L / (m
    B2) with its line
    modelled(schedule).ratio                            # alpha-beta model over the bound, in parts
    schedule.plan().save("plan.npz")                    # which bytes on which rail in which stage

    matching    perfect matchings on bit rows              decompose   server matrix -> stages
    pieces      stages -> bytes of each GPU pair           value       Schedule: valid by
                construction, files, Plan
    model       alpha-beta time in parts                   report      parts and synthesis time,
                kinds side by side
    phases      flows with dependencies, for a simulator   certify     t_opt with its proof
"""

from railopt.schedule.certify import certificate
from railopt.schedule.model import LINKS, Breakdown, Links, modelled, spreadout_gpus
from railopt.schedule.report import Cost, compare, cost
from railopt.schedule.value import KINDS, ORDERS, Kind, Schedule, conflicts, synthesise

__all__ = [
    "KINDS",
    "LINKS",
    "ORDERS",
    "Breakdown",
    "Cost",
    "Kind",
    "Links",
    "Schedule",
    "certificate",
    "compare",
    "conflicts",
    "cost",
    "modelled",
    "spreadout_gpus",
    "synthesise",
]
