"""MoE workloads: routing traces, expert placement, and what both do to the rails.  The names here
are loaded on first use; import the others by their modules.
"""

from __future__ import annotations

import importlib
from typing import Any

_LAZY = {
    "Placement": "placement.placement",
    "PlacementQuestion": "assess",
    "Trace": "routing.trace",
    "compare": "assess",
    "read_trace": "routing.files",
    "save_location": "placement.files",
    "sglang_options": "placement.files",
    "trace_from": "routing.sources",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'railopt.moe' has no attribute {name!r}")
    return getattr(importlib.import_module(f"railopt.moe.{_LAZY[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_LAZY)
