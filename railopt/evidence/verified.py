"""`railopt-verified`: the checker that is proved in Coq and extracted, run as a program.

    program()      where it is: $RAILOPT_VERIFIED, else on the PATH, else where `make proofs`
                   built it in the source tree
    installed()    whether it is there
    check(path)    what it says of a certificate or a plan, as the checker's `Verdict`

It reads the files itself; what it accepts is a theorem (`Program.T7_verdict`, proofs/verified).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

from railopt.base.errors import BackendError, FormatError, printable
from railopt.checker import Verdict

NAME = "railopt-verified"
LIMIT_S = 60  # it refuses a file that takes longer


def program() -> str:
    """The path of the program; BackendError with the remedy if there is none."""
    given = os.environ.get("RAILOPT_VERIFIED")
    built = Path(__file__).resolve().parents[2] / "proofs" / "verified" / NAME
    found = shutil.which(given or NAME) or (str(built) if not given and built.is_file() else None)
    if found is None:
        raise BackendError(
            f"{given or NAME} not found: run `make verified` in a checkout of railopt (Debian's "
            f"coq, ocaml-nox, ocaml-findlib and libzarith-ocaml-dev), put it on the PATH, or name "
            f"it in RAILOPT_VERIFIED"
        )
    return found


def installed() -> bool:
    """Whether there is such a program."""
    try:
        return bool(program())
    except BackendError:
        return False


def check(path: str | os.PathLike[str], limit_s: int = LIMIT_S) -> Verdict:
    """The program's verdict on one file; FormatError if it can't read it."""
    name = os.path.abspath(path)
    line = [program(), "--json", "--seconds", str(limit_s), name]
    try:
        done = subprocess.run(line, capture_output=True, timeout=limit_s + 30, check=False)
        answer = json.loads(done.stdout)
        if "error" not in answer:
            return verdict_of(answer)
    except (OSError, subprocess.TimeoutExpired, ValueError, KeyError, TypeError) as error:
        raise BackendError(f"{line[0]} gave no answer: {printable(repr(error))}") from error
    raise FormatError(f"{printable(path)}: {printable(answer['error'])}")


def verdict_of(answer: dict[str, Any]) -> Verdict:
    """One answer of the program as a Verdict that says whose it is."""
    bound, value, best = (
        None if answer[name] is None else Fraction(answer[name])
        for name in ("bound", "value", "best")
    )
    kind, message = printable(answer["kind"]), printable(answer["message"])
    ok, optimal, optimum = answer["ok"], answer["optimal"], answer["optimum"]
    said = f"{message}; by {NAME}"
    return Verdict(ok, optimal, kind, said, bound, value, best, optimum, answer["content"])
