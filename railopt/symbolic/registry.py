"""The registry of theorems: `proofs/THEOREMS.toml`, what each one says, under which hypotheses, and
how it is checked.

    read()              every theorem, by id, validated
    proofs_folder()     `proofs/` of the checkout, or the copy of the registry and the
                        counterexamples inside the wheel
    table()             the theorems as a Markdown table; `python -m railopt.symbolic.registry`
                        prints it

Loads neither SymPy nor Coq: the checkers are only named here, and imported when they run.
"""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from railopt.base.errors import FormatError, InputError
from railopt.base.extras import need

STATUSES = ("proved-kernel", "proved-symbolic", "checked-exhaustively", "cited", "refuted", "open")
ID = re.compile(r"[A-Z]\d{1,2}[a-z]?")


@dataclass(frozen=True)
class Theorem:
    """One entry.

    id               T1, T2a, ...: a letter, a number, perhaps a letter for a part
    title            a few words
    statement        in words;  `symbols`: the same in symbols
    source           the paper and where in it, or "here"
    hypotheses       everything the statement needs
    status           one of STATUSES;  `range`: what "checked-exhaustively" covers
    coq              names `Module.theorem` in proofs/coq
    checks           `module.function` in railopt.symbolic, or `package.module:function`
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
    counterexamples: tuple[str, ...] = field(default=())
    known: str = ""
    settled_by: str = ""

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if isinstance(value, list):
                object.__setattr__(self, f.name, tuple(value))
            elif not isinstance(value, str | tuple):
                raise FormatError(
                    f"theorem {self.id}: {f.name} = {value!r}, expected text or a list of texts"
                )
        problems = [
            text
            for wrong, text in (
                (not ID.fullmatch(self.id), "an id is a letter, a number and perhaps a letter"),
                (
                    self.status not in STATUSES,
                    f"status {self.status!r}, expected one of {', '.join(STATUSES)}",
                ),
                (
                    self.status == "proved-kernel" and not self.coq,
                    "proved-kernel needs the names of its Coq theorems",
                ),
                (
                    self.status == "proved-symbolic" and not self.checks,
                    "proved-symbolic needs a check",
                ),
                (
                    self.status == "checked-exhaustively" and not (self.range and self.checks),
                    "checked-exhaustively needs a range and a check",
                ),
                (
                    self.status == "refuted" and not self.counterexamples,
                    "refuted needs a counterexample",
                ),
                (
                    self.status != "open" and not (self.checks or self.coq or self.counterexamples),
                    "nothing runs for it: call it open",
                ),
                (
                    (self.status == "open") != bool(self.known and self.settled_by),
                    "known and settled_by: expected of open statements, and of no others",
                ),
            )
            if wrong
        ]
        if problems:
            raise FormatError(f"theorem {self.id}: {'; '.join(problems)}")

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


def read(path: Path | None = None) -> dict[str, Theorem]:
    """Every theorem by id, in the file's order; unknown keys, missing keys and ids that occur twice
    are errors.
    """
    path = path or proofs_folder() / "THEOREMS.toml"
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FormatError(f"{path}: {error}") from error
    known = {f.name for f in fields(Theorem)}
    required = {"id", "title", "statement", "symbols", "source", "status"}
    theorems: dict[str, Theorem] = {}
    for entry in data.pop("theorem", []):
        if not required <= set(entry) <= known:
            wrong = sorted(required - set(entry) or set(entry) - known)
            raise FormatError(
                f"{path}: theorem {entry.get('id', '?')} lacks or does not know {', '.join(wrong)}"
            )
        theorem = Theorem(**entry)
        if theorem.id in theorems:
            raise FormatError(f"{path}: {theorem.id} occurs twice")
        theorems[theorem.id] = theorem
    if data or not theorems:
        raise FormatError(
            f"{path}: expected [[theorem]] tables only, found {sorted(data) or 'none'}"
        )
    return theorems


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
    """The function that `checks` names; InputError if there is none."""
    short_module, _, short_function = name.rpartition(".")
    module, _, function = (
        name.partition(":")
        if ":" in name
        else (f"railopt.symbolic.statements.{short_module}", "", short_function)
    )
    need("sympy", "the check of a theorem")
    try:
        found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise InputError(f"check {name!r}: {error}") from error
    return found


# ---------------------------------------------------------------- as a table
def table() -> str:
    """The theorems as a Markdown table."""
    rows = ["| id | says | status | checked by |", "|---|---|---|---|"]
    for theorem in read().values():
        methods = [f"Coq `{name.split('.')[-1]}`" for name in theorem.coq[:1]] + [
            f"`{name}`" for name in theorem.checks[:2]
        ]
        methods += [
            f"[{Path(name).stem}](proofs/counterexamples/{name})"
            for name in theorem.counterexamples[:1]
        ]
        status = (
            f"{theorem.status}: {theorem.range}"
            if theorem.status == "checked-exhaustively"
            else theorem.status
        )
        says = f"{theorem.title}: {theorem.symbols}".replace("|", r"\|")
        rows.append(
            f"| [{theorem.id}](proofs/notes/{theorem.note}) | {says} | {status} | "
            f"{', '.join(methods)} |"
        )
    return "\n".join(rows)


if __name__ == "__main__":
    print(table())
