"""The flow-level simulator: max-min fair sharing of every port that a byte crosses, event by event.

simulate(plan)                                       a plan, rail by rail, stages in order
simulate(traffic, fabric=fabric, balancer="spray")   direct traffic over the tier above
simulate(flows)                                      any flows over any ports

assumptions   what a run assumes beside the rates of the ports; faults
flows         Flows: what is run;  from_plan, direct: plans and traffic as flows
balancers     who chooses the links above leaves and rails
run           simulate;  events: the event loop;  fill: max-min fair rates;  graph: small kernels
replan        a plan under faults, planned again after each
timeline      Timeline: what came of it;  export: the same run for htsim;  perfetto: as trace events
"""

from __future__ import annotations

from railopt.sim.assumptions import Assumptions, Fault
from railopt.sim.balancers import BALANCERS, Balancer, Crossing
from railopt.sim.flows import Change, Flows
from railopt.sim.replan import Replan, Replanned, simulate_replanned
from railopt.sim.run import simulate
from railopt.sim.timeline import Stuck, Timeline

__all__ = [
    "BALANCERS",
    "Assumptions",
    "Balancer",
    "Change",
    "Crossing",
    "Fault",
    "Flows",
    "Replan",
    "Replanned",
    "Stuck",
    "Timeline",
    "simulate",
    "simulate_replanned",
]
