"""The integer program as text for other solvers: CPLEX LP (`.lp`) and free MPS (`.mps`).

Variable `x_c_n` is 1 when chunk c goes on rail n, `t` is the time in the unit that the first
comment states.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

from railopt.base.arrays import write_atomic
from railopt.base.errors import InputError
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.solver.program.program import IntegerProgram, Linear, build, linear


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
    write_atomic(path, writers[suffix](*build(fabric, chunks)), force=force)


def _names(matrix: Linear) -> list[str]:
    return [f"x_{j}_{n}" for j, n in matrix.place.tolist()] + ["t"]


def _row_names(matrix: Linear, chunks: int) -> list[str]:
    nics = len(matrix.row_lower) - chunks
    return [f"chunk_{i}" for i in range(chunks)] + [f"nic_{i}" for i in range(nics)]


def _unit(second: Fraction) -> str:
    return f"t is in units of {1 / second} s; see railopt solve --help"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)


def to_lp(program: IntegerProgram, second: Fraction) -> str:
    """The program in CPLEX LP format."""
    matrix = linear(program)
    names, rows = _names(matrix), _row_names(matrix, len(program.src))
    lines = [f"\\ {_unit(second)}", "Minimize", " obj: t", "Subject To"]
    for i, (name, entries) in enumerate(zip(rows, matrix.by_row(), strict=True)):
        terms = [f"{'-' if v < 0 else '+'} {_number(abs(v))} {names[c]}" for c, v in entries]
        sense = "=" if matrix.row_lower[i] == matrix.row_upper[i] else "<="
        lines += _wrapped(f" {name}:", terms, f"{sense} {_number(matrix.row_upper[i])}")
    lines += ["Bounds", " t >= 0", "Binary", *(f" {name}" for name in names[:-1])]
    lines += ["General", " t"] if program.exact else []
    return "\n".join([*lines, "End", ""])


def _wrapped(head: str, terms: list[str], tail: str) -> Iterator[str]:
    """A row over lines of a few terms: readers limit the length of a line."""
    for i in range(0, len(terms), 8):
        yield f"{head if i == 0 else '  '} {' '.join(terms[i : i + 8])}"
    yield f"   {tail}"


def to_mps(program: IntegerProgram, second: Fraction) -> str:
    """The program in free MPS format."""
    matrix = linear(program)
    names, rows = _names(matrix), _row_names(matrix, len(program.src))
    equal = matrix.row_lower == matrix.row_upper
    lines = [f"* {_unit(second)}", "NAME railopt", "ROWS", " N obj"]
    lines += [
        f" {'E' if same else 'L'} {name}" for name, same in zip(rows, equal.tolist(), strict=True)
    ]
    lines += ["COLUMNS", "    M0 'MARKER' 'INTORG'"]
    for name, entries in zip(names, matrix.by_column(), strict=True):
        if name == "t":
            lines += [] if program.exact else ["    M1 'MARKER' 'INTEND'"]
            lines.append(f"    {name} obj 1")
        lines += [f"    {name} {rows[i]} {_number(v)}" for i, v in entries]
    lines += ["    M1 'MARKER' 'INTEND'"] if program.exact else []
    lines += [
        "RHS",
        *(
            f"    rhs {name} {_number(high)}"
            for name, high in zip(rows, matrix.row_upper.tolist(), strict=True)
            if high
        ),
    ]
    lines += ["BOUNDS", *(f" UP bound {name} 1" for name in names[:-1])]
    lines += [" LO bound t 0", " PL bound t", "ENDATA", ""]
    return "\n".join(lines)
