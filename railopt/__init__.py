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

from railopt import errors, units, workloads
from railopt.check import Verdict, check
from railopt.chunks import Chunks
from railopt.fabric import Fabric, Spine
from railopt.gaps import GapReport, gap
from railopt.plans import Plan
from railopt.policies import POLICIES, plan
from railopt.traffic import Traffic

__version__ = "0.2.0.dev0"

# Public names whose modules are heavy: resolved on first use.
_LAZY = {
    "Planner": "railopt.policies.planner",
    "simulate": "railopt.sim",
    "Schedule": "railopt.schedule",
    "synthesise": "railopt.schedule",
    "Outcome": "railopt.solver.outcome",
    "solve": "railopt.solver.coupled.solve",
}

__all__ = [  # noqa: RUF022  sorted by a test together with _LAZY
    "Chunks",
    "Fabric",
    "GapReport",
    "Outcome",
    "POLICIES",
    "Plan",
    "Planner",
    "Schedule",
    "Spine",
    "Traffic",
    "Verdict",
    "check",
    "errors",
    "gap",
    "plan",
    "simulate",
    "solve",
    "synthesise",
    "units",
    "workloads",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'railopt' has no attribute {name!r}")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*__all__, *_LAZY})
