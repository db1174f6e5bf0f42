"""Foreign solvers behind one small interface: a module with

    def solve(program: IntegerProgram, limit_s: float, emit: Callable[[Answer], None]) -> None

which emits every plan it finds and, at the end, what it claims, with one thread.  It runs in a
process of its own (`process.py`), and nothing it says is believed before railopt has re-evaluated
it.

To add one: its module, and its entry in `BACKENDS`.
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass
from typing import Any, NamedTuple

from railopt.base.extras import installed


class Answer(NamedTuple):
    """One line of what a back-end says.

    rail     the rail of each chunk: a plan, or None
    optimal  it claims that no plan is better than its best
    """

    rail: list[int] | None = None
    optimal: bool = False


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


def rails_of(place: Any, values: Any, chunks: int) -> list[int]:
    """The rail of each chunk, from the values of the program's columns; -1 where it has none."""
    rail = [-1] * chunks
    for (chunk, n), value in zip(place.tolist(), values, strict=True):
        if value > 0.5:
            rail[chunk] = n
    return rail
