"""What NICs were to carry and what they carried: heat maps by node and rail."""

from __future__ import annotations

from typing import Any

from railopt.answers.blame import Blame
from railopt.model.fabric import SIDES
from railopt.report.heatmap import NicLoads, load_maps, over
from railopt.report.style import PAGE


def blame_figure(found: Blame, title: str | None = None, *, width: float = PAGE) -> Any:
    """A figure: each NIC's time over the bound of any plan, as planned and as counted."""
    fabric, bound = found.fabric, found.bound
    planned = (over(found.planned(side), fabric.rates(side), bound) for side in SIDES)
    counted = (found.times(side) / float(bound) for side in SIDES)
    maps = [NicLoads("planned", *planned), NicLoads("counted", *counted)]
    return load_maps(maps, found.verdict if title is None else title, width=width)
