"""Run what the registry names: every check, every counterexample, and Coq's kernel where `coqc` is
there.

A theorem holds here if each of its checks says yes, each of its counterexamples replays, and each
of its Coq theorems is pinned in `proofs/coq/statements.json` (quick) or re-checked by the kernel
(otherwise).  Undecided is not yes.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from railopt.base.errors import BackendError, CheckFailed
from railopt.symbolic.coq import build as coq
from railopt.symbolic.registry import Theorem, checker, proofs_folder
from railopt.symbolic.result import Result
from railopt.symbolic.search.counterexamples import replay_file


@dataclass(frozen=True)
class TheoremRun:
    """One theorem after its checks ran."""

    theorem: Theorem
    results: tuple[tuple[str, Result], ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Everything that ran said yes; of an open statement, what is known of it."""
        return all(result.ok is True for _, result in self.results) and (
            bool(self.results) or self.theorem.status == "open"
        )

    @property
    def range(self) -> str:
        """What the first check covered that ran; of a refuted statement, its first replay."""
        ran = [result for _, result in self.results if not _only_pinned(result)]
        replays = [result for result in ran if result.method == "replay"]
        first = replays if self.theorem.status == "refuted" and replays else ran
        return first[0].range if first else ""

    def as_dict(self) -> dict[str, Any]:
        """The values for JSON."""
        return {
            "id": self.theorem.id,
            "title": self.theorem.title,
            "statement": self.theorem.statement,
            "status": self.theorem.status,
            "hypotheses": list(self.theorem.hypotheses),
            "source": self.theorem.source,
            **({"known": self.theorem.known} if self.theorem.known else {}),
            "ok": self.ok,
            "range": self.range,
            "seconds": round(self.seconds, 3),
            "results": [{"by": name, **asdict(result)} for name, result in self.results],
        }


PINNED = "pinned in proofs/coq/statements.json"


def _only_pinned(result: Result) -> bool:
    return result.method == "kernel" and result.range.startswith(PINNED)


def _concerns(problem: str, names: Sequence[str]) -> bool:
    """A problem with another numbered theorem is not theirs; one with a definition, an axiom or the
    build counts against every theorem.
    """
    other = re.match(r"(\w+\.T\d+_\w+)\b", problem)
    return other is None or other[1] in names


class CoqKernel:
    """The Coq side, asked once: which theorems are fine, and how that is known."""

    def __init__(self, mode: str) -> None:
        """mode: "pinned" reads the committed statements, "run" builds and audits, "auto" runs where
        coqc is there.
        """
        self.ran, self.problems, self.how = False, list[str](), f"{PINNED}, not run"
        pinned = proofs_folder() / "coq" / "statements.json"
        self.known = set(json.loads(pinned.read_text(encoding="utf-8")))
        if mode == "pinned":
            return
        try:
            coq.coqc()
            folder = coq.theory()
        except BackendError as error:
            if mode == "run":
                raise
            self.how = f"{PINNED}, not run: {str(error).partition(':')[0]}"
            return
        try:
            coq.build(folder)
            self.problems = coq.compare(folder)
        except CheckFailed as error:
            self.problems = [str(error)]
        self.ran, self.how = True, "all sizes (Coq's kernel, no axioms)"

    def result(self, names: Sequence[str]) -> Result:
        """Whether these theorems are there and nothing is wrong with the theory."""
        missing = [name for name in names if name not in self.known]
        mine = [problem for problem in self.problems if _concerns(problem, names)]
        wrong = [f"{name} is not among the pinned statements" for name in missing] + mine
        return Result(not wrong, "kernel", self.how, (), wrong[0] if wrong else ", ".join(names))


def run(theorem: Theorem, kernel: CoqKernel, *, quick: bool) -> TheoremRun:
    """Every check of one theorem; an exception in a check is a failure of the check, not of the
    run.

        >>> from railopt.symbolic.registry import get
        >>> from railopt.symbolic.run import CoqKernel, run
        >>> ran = run(get("T1"), CoqKernel("pinned"), quick=True)
        >>> ran.theorem.title, ran.ok, ran.range
        ('balance', True, 'all M, N <= 3, every D')
    """
    start = time.monotonic()
    results = list(_results(theorem, kernel, quick))
    return TheoremRun(theorem, tuple(results), time.monotonic() - start)


@cache
def _said(check: Callable[[bool], Result], quick: bool) -> Result:
    """What a check says; several theorems name the same one, which runs once."""
    return check(quick)


def _results(theorem: Theorem, kernel: CoqKernel, quick: bool) -> Iterator[tuple[str, Result]]:
    if theorem.coq:
        yield "coq", kernel.result(theorem.coq)
    for name in theorem.checks:
        try:
            yield name, _said(checker(name), quick)
        except Exception as error:  # whatever a broken check raises: it did not say yes
            yield name, Result(None, "symbolic", "", (), f"{type(error).__name__}: {error}")
    for name in theorem.counterexamples:
        try:
            yield name, replay_file(name)
        except Exception as error:
            yield name, Result(None, "replay", name, (), f"{type(error).__name__}: {error}")
