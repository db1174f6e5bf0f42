"""What a checker says: holds, fails, or could not be decided, over which range, and under which
assumptions.

A checker is a function `(quick: bool, **hypotheses) -> Result`.  The keyword arguments with
defaults are the statement's hypotheses: a test drops one and expects the checker to say no.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Result:
    """The outcome of one checker.

    ok       True: it holds; False: it fails; None: not decided, which never counts as true
    method   symbolic (exact algebra), exhaustive (every instance of the range), search (what an
             adversary found), replay (counterexample files), kernel (Coq)
    range    what was covered, in words
    assumed  everything that the conclusion rests on
    detail   the first failure, or what was found
    """

    ok: bool | None
    method: str
    range: str
    assumed: tuple[str, ...] = ()
    detail: str = ""


def verdict(
    method: str, covered: str, failures: list[str], assumed: tuple[str, ...] = (), found: str = ""
) -> Result:
    """A Result from the list of what went wrong; the first failure becomes the detail."""
    more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
    return Result(not failures, method, covered, assumed, failures[0] + more if failures else found)
