"""Foreign solvers behind one small interface: a module with

    def solve(program: MixedProgram, limit_s: float, emit: Callable[[Answer], None]) -> None

which emits every solution it finds of a program of whole numbers and, at the end, what it claims,
with one thread.  It runs in a process of its own (`process.py`), and nothing it says is believed
before railopt has re-evaluated it.

To add one: its module, and its entry in `BACKENDS`.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import NamedTuple

from railopt.base.extras import installed


class Answer(NamedTuple):
    """One line of what a back-end says.

    values   of all columns, or None
    status   "optimal": it claims that nothing is better; "infeasible": that there is no solution
    spent_s  processor time since it was called; its process says so
    """

    values: list[int] | None = None
    status: str = ""
    spent_s: float = 0.0


@dataclass(frozen=True)
class Backend:
    """Where a back-end lives: its module, and the distribution whose version it reports."""

    name: str
    module: str
    distribution: str
    imports: str

    @property
    def available(self) -> bool:
        """Whether its library is installed; imports nothing."""
        return installed(self.imports)

    @property
    def version(self) -> str:
        try:
            return importlib.metadata.version(self.distribution)
        except importlib.metadata.PackageNotFoundError:
            return "of unknown version"

    @property
    def title(self) -> str:
        """Name and version, as in "claimed by cpsat 9.15"."""
        return f"{self.name} {self.version}"


BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("cpsat", f"{__name__}.cpsat", "ortools", "ortools"),
        Backend("pulp", f"{__name__}.cbc", "pulp", "pulp"),
        Backend("highs", f"{__name__}.highs", "ortools", "ortools"),
        Backend("scipy", f"{__name__}.scipy_milp", "scipy", "scipy"),
    )
}
