"""Where a solve stands, on the line that says what a command does (`heartbeat`)."""

from __future__ import annotations

from functools import partial

from railopt.base.tables import percent
from railopt.base.units import format_time
from railopt.cli.heartbeat import stage
from railopt.evidence.bracket import gap_between
from railopt.solver.coupled.race import Progress


def show(label: str, progress: Progress) -> None:
    """What is known of the solve called `label`."""
    stage(partial(_said, label, progress))


def _said(label: str, progress: Progress) -> str:
    """Value, bound and gap only once there are any."""
    value, bound, known = progress.value, progress.bound, f"{label}  "
    if value is not None:
        known += f"value {format_time(value)}  "
    if bound:
        known += f"bound {format_time(bound)}  "
    if bound and value is not None:
        known += f"gap {percent(gap_between(value, bound))} %  "
    return known + progress.stage
