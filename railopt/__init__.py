"""railopt: compute, prove and ship all-to-all plans for MoE training on rail-optimised GPU fabrics.

    import railopt
    fabric = railopt.Fabric.uniform(nodes=8, rails=8, link="400Gb/s")
    traffic = railopt.workloads.moe(fabric, skew=0.8, seed=1)
    plan = railopt.plan(fabric, traffic.chunks("1MiB"), policy="lpt")
    print(railopt.gap(plan))

Importing railopt loads numpy and nothing heavier: numba, solvers, SymPy and matplotlib come with
their first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from railopt import checker
from railopt.answers.check import check
from railopt.answers.convert import convert
from railopt.answers.gap import gap
from railopt.base import errors, units
from railopt.checker import Verdict
from railopt.evidence.bracket import Bracket, Status
from railopt.evidence.certificate import Certificate
from railopt.model import workloads
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric, Spine
from railopt.model.plan import Plan
from railopt.model.tokens import Tokens
from railopt.model.traffic import Traffic
from railopt.model.workloads import demand_from, traffic_from
from railopt.policies import POLICIES, plan
from railopt.solver.coupled.race import Outcome

__version__ = "0.2.0.dev0"
GapReport = Outcome  # `gap` and `solve` answer with the same record

# Public names whose modules are heavy, and the rooms of the package: resolved on first use.
_LAZY = {
    "Candidate": "railopt.answers.candidates",
    "Planner": "railopt.policies.planner",
    "Schedule": "railopt.schedule",
    "simulate": "railopt.sim",
    "size": "railopt.answers.size",
    "solve": "railopt.solver.coupled.solve",
    "synthesise": "railopt.schedule",
    "WeighQuestion": "railopt.moe.weigh",
    "weigh": "railopt.moe.weigh",
}
_ROOMS = {
    "cuda",
    "moe",
    "policies",
    "report",
    "runtime",
    "schedule",
    "sim",
    "solver",
    "sweep",
    "symbolic",
    "torch",
}

__all__ = [
    "POLICIES",
    "Bracket",
    "Candidate",
    "Certificate",
    "Chunks",
    "Fabric",
    "GapReport",
    "Outcome",
    "Plan",
    "Planner",
    "Schedule",
    "Spine",
    "Status",
    "Tokens",
    "Traffic",
    "Verdict",
    "WeighQuestion",
    "check",
    "checker",
    "convert",
    "cuda",
    "demand_from",
    "errors",
    "gap",
    "moe",
    "plan",
    "policies",
    "report",
    "runtime",
    "schedule",
    "sim",
    "simulate",
    "size",
    "solve",
    "solver",
    "sweep",
    "symbolic",
    "synthesise",
    "torch",
    "traffic_from",
    "units",
    "weigh",
    "workloads",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"railopt.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'railopt' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
