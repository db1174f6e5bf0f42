"""The flow-level simulator: max-min fair sharing of every port that a byte crosses, event by event.

simulate(plan)                                       a plan, rail by rail, stages in order
simulate(traffic, fabric=fabric, balancer="spray")   direct traffic through the spine
simulate(job)                                        any flows over any ports
"""

from __future__ import annotations

from railopt.sim.direct import BALANCERS
from railopt.sim.job import Change, Job
from railopt.sim.model import Fault, Model
from railopt.sim.run import simulate
from railopt.sim.timeline import Stuck, Timeline

__all__ = ["BALANCERS", "Change", "Fault", "Job", "Model", "Stuck", "Timeline", "simulate"]
