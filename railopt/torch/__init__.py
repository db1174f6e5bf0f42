"""Planned all-to-alls in PyTorch, over ordinary process groups (extra `[torch]`).

    RailAllToAll      `all_to_all_single` whose bytes take the rails that a policy chose
    TokenDispatcher   MoE dispatch and combine in which a token goes to a node once
    ExpertLayer       experts with copies around it: their parameters sent, their gradients added up
    Copies            a placement, and how tokens are split over its copies
    Groups            process groups that are handed in instead of being made
    planned_all_to_all    a `with` in which `torch.distributed.all_to_all_single` is planned

Names load on first use, so that `import railopt` and the arithmetic (`railopt.torch.routes`, numpy
alone) need no PyTorch.
"""

from __future__ import annotations

import importlib
from typing import Any

from railopt.base.extras import installed, need

_LAZY = {
    "Copies": "railopt.torch.copies",
    "Dispatched": "railopt.torch.dispatcher",
    "ExpertLayer": "railopt.torch.layer",
    "Groups": "railopt.torch.groups",
    "RailAllToAll": "railopt.torch.all_to_all",
    "TokenDispatcher": "railopt.torch.dispatcher",
    "planned_all_to_all": "railopt.torch.replaced",
}

__all__ = sorted(_LAZY)


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'railopt.torch' has no attribute {name!r}")
    need("torch", f"railopt.torch.{name}", ", or a build of torch for your machine")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Names that can be had, so that `help` and `inspect.getmembers` need no PyTorch either."""
    return __all__ if installed("torch") else []
