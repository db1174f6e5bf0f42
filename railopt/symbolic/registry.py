"""The registry of theorems: `proofs/THEOREMS.toml`, what each one says, under which hypotheses, and
how it is checked.

    read()              every theorem, by id
    proofs_folder()     `proofs/` of the checkout, or the copy of the registry and the
                        counterexamples inside the wheel

Loads neither SymPy nor Coq: the checkers are only named here, and imported when they run.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from railopt.base.errors import FormatError, InputError
from railopt.base.extras import need


@dataclass(frozen=True)
class Theorem:
    """One entry.

    id               T1, T2a, ...: a letter, a number, perhaps a letter for a part
    title            a few words
    statement        in words;  `symbols`: the same in symbols
    source           the paper and where in it, or "here"
    hypotheses       everything the statement needs
    status           proved-kernel, proved-symbolic, checked-exhaustively, cited, refuted or open
    range            what "checked-exhaustively" covers
    coq              names `Module.theorem` in proofs/coq
    checks           `module.function` in railopt.symbolic.statements
    counterexamples  files in proofs/counterexamples: what refutes it, or shows that a hypothesis is
                     needed
    known            of an open statement: the best bounds
    settled_by       of an open statement: what would settle it
    """

    id: str
    title: str
    statement: str
    symbols: str
    source: str
    status: str
    hypotheses: tuple[str, ...] = ()
    range: str = ""
    coq: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    counterexamples: tuple[str, ...] = ()
    known: str = ""
    settled_by: str = ""

    @property
    def note(self) -> str:
        """The page in proofs/notes that explains it."""
        return f"{re.match(r'[A-Z]+[0-9]+', self.id)[0]}.md"  # type: ignore[index]


def proofs_folder() -> Path:
    """`proofs/` of the checkout that this file lies in, else `railopt/_proofs`, the part of it that
    the wheel carries.
    """
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parent / "proofs", package / "_proofs"):
        if (folder / "THEOREMS.toml").is_file():
            return folder
    raise FormatError(f"no THEOREMS.toml beside or in {package}: the installation is incomplete")


def read() -> dict[str, Theorem]:
    """Every theorem by id, in the file's order."""
    text = (proofs_folder() / "THEOREMS.toml").read_text(encoding="utf-8")
    found = {}
    for entry in tomllib.loads(text)["theorem"]:
        lists = {key: tuple(value) for key, value in entry.items() if isinstance(value, list)}
        found[entry["id"]] = Theorem(**{**entry, **lists})
    return found


def get(name: str) -> Theorem:
    """One theorem by its id."""
    theorems = read()
    if name not in theorems:
        raise InputError(f"no theorem {name!r}; known: {', '.join(theorems)}")
    return theorems[name]


def family(name: str) -> list[Theorem]:
    """The theorem of this id and its parts: T2 is T2, T2a, T2b, ..."""
    get(name)
    return [
        theorem
        for theorem in read().values()
        if theorem.id == name or (theorem.id[:-1] == name and theorem.id[-1].isalpha())
    ]


def checker(name: str) -> Callable[..., Any]:
    """The function that `checks` names."""
    need("sympy", "the check of a theorem")
    module, _, function = f"railopt.symbolic.statements.{name}".rpartition(".")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found
