"""The integer program as text for other solvers: CPLEX LP (`.lp`) and free MPS (`.mps`).

Variable `x_c_n` is 1 when chunk c goes on rail n, `t` is the time in the unit that the first
comment states.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from railopt.base.arrays import write_atomic
from railopt.base.errors import InputError
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.solver.program.program import PlanProgram, build


def write_model(
    fabric: Fabric, chunks: Chunks, path: str | os.PathLike[str], *, force: bool = False
) -> None:
    """Write the plain program by suffix: `.lp` or `.mps`."""
    writers = {".lp": to_lp, ".mps": to_mps}
    suffix = Path(path).suffix.lower()
    if suffix not in writers:
        raise InputError(
            f"{path}: a model is written as .lp or .mps, found {suffix or 'no suffix'!r}"
        )
    write_atomic(path, writers[suffix](build(fabric, chunks)), force=force)


def _names(made: PlanProgram) -> tuple[list[str], list[str]]:
    """Of columns and rows."""
    cells = len(made.program.row_low) - made.chunks
    rows = [f"chunk_{i}" for i in range(made.chunks)] + [f"nic_{i}" for i in range(cells)]
    return [f"x_{j}_{n}" for j, n in made.place.tolist()] + ["t"], rows


def _unit(made: PlanProgram) -> str:
    return f"t is in units of {1 / made.second} s; see railopt solve --help"


def to_lp(made: PlanProgram) -> str:
    """The program in CPLEX LP format."""
    program, (names, rows) = made.program, _names(made)
    lines = [f"\\ {_unit(made)}", "Minimize", " obj: t", "Subject To"]
    for i, (name, entries) in enumerate(zip(rows, program.by_row(), strict=True)):
        terms = [f"{'-' if v < 0 else '+'} {abs(v)} {names[c]}" for c, v in entries]
        sense = "=" if i < made.chunks else ">="
        lines += _wrapped(f" {name}:", terms, f"{sense} {program.row_low[i]}")
    lines += ["Bounds", " t >= 0", "Binary", *(f" {name}" for name in names[:-1])]
    lines += ["General", " t"] if made.exact else []
    return "\n".join([*lines, "End", ""])


def _wrapped(head: str, terms: list[str], tail: str) -> Iterator[str]:
    """A row over lines of a few terms: readers limit the length of a line."""
    for i in range(0, len(terms), 8):
        yield f"{head if i == 0 else '  '} {' '.join(terms[i : i + 8])}"
    yield f"   {tail}"


def to_mps(made: PlanProgram) -> str:
    """The program in free MPS format."""
    program, (names, rows) = made.program, _names(made)
    lines = [f"* {_unit(made)}", "NAME railopt", "ROWS", " N obj"]
    lines += [f" {'E' if i < made.chunks else 'G'} {name}" for i, name in enumerate(rows)]
    lines += ["COLUMNS", "    M0 'MARKER' 'INTORG'"]
    for name, entries in zip(names, program.by_column(), strict=True):
        if name == "t":
            lines += [] if made.exact else ["    M1 'MARKER' 'INTEND'"]
            lines.append(f"    {name} obj 1")
        lines += [f"    {name} {rows[i]} {v}" for i, v in entries]
    lines += ["    M1 'MARKER' 'INTEND'"] if made.exact else []
    lines += ["RHS", *(f"    rhs {name} 1" for name in rows[: made.chunks])]
    lines += ["BOUNDS", *(f" UP bound {name} 1" for name in names[:-1])]
    lines += [" LO bound t 0", " PL bound t", "ENDATA", ""]
    return "\n".join(lines)
