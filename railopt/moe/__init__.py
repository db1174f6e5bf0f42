"""MoE workloads: routing traces, expert placement, and what both do to the rails.  The names here
are loaded on first use; import the others by their modules.
"""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "DeviceGreedy": "micro.device",
    "ExpertRoom": "question",
    "FewMoves": "placement.repair",
    "GpuNaming": "question",
    "Greedy": "micro.solve",
    "JobSize": "question",
    "Placed": "placement.planners",
    "Placement": "placement.placement",
    "PlacementProblem": "placement.planners",
    "PlacementBefore": "question",
    "PlacementQuestion": "question",
    "PlacementReport": "comparison",
    "Preset": "presets",
    "SpareSlots": "micro.slots",
    "StepChoice": "question",
    "TimeModel": "iteration.timemodel",
    "Trace": "routing.trace",
    "balance": "placement.packing",
    "combine": "routing.dispatch",
    "compare": "comparison",
    "dispatch": "routing.dispatch",
    "dispatches_from": "routing.recorded",
    "eplb": "placement.eplb",
    "from_counts": "routing.files",
    "from_load": "routing.files",
    "from_routed": "routing.files",
    "place": "placement.planners",
    "preset": "presets",
    "read_costs": "placement.files",
    "read_location": "placement.files",
    "read_trace": "routing.files",
    "rebalance": "placement.replicate",
    "save_map": "placement.files",
    "sglang_options": "placement.files",
    "split": "micro.solve",
    "tokens_of_choices": "routing.once",
    "trace_from": "routing.sources",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'railopt.moe' has no attribute {name!r}")
    return getattr(importlib.import_module(f"railopt.moe.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_LAZY)
