"""The exceptions of railopt, each with the exit code that the command line returns.

RailoptError            1   anything railopt itself refuses
├── InputError          1   bad input or usage: what was found, what was expected, what to do
│   └── FormatError     1   a file that is not what its name says (truncated, foreign, unsafe)
├── NotProved           2   the result asked for could not be proved, or does not exist
├── BackendError        3   a solver, a library or a device is missing or crashed
└── CheckFailed         4   a certificate, a plan or a theorem did not hold
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

_said: set[str] = set()
_commands = 0  # that are running
FOREIGN = 200  # characters of a foreign text that are shown, a plan's policy and the like


def printable(text: object, limit: int = FOREIGN) -> str:
    """A text from a file, a peer or a user as one line that can't move a cursor or forge a line.

    What does not print is written as `repr` would (`\\n`, `\\x1b`); at most `limit` characters
    stay.
    """
    whole = str(text)
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in whole[:limit])
    return shown if len(whole) <= limit and len(shown) <= limit else shown[:limit] + "..."


@contextmanager
def on_stderr() -> Iterator[None]:
    """Have `say` write to stderr, as commands do, instead of a log."""
    global _commands
    _commands += 1
    try:
        yield
    finally:
        _commands -= 1


def say(sentence: str, *, slower: bool = False) -> None:
    """One line, once, that a user has to know: of a command on stderr, else a warning of the logger
    `railopt`, or `info` where something is `slower` and no more.
    """
    if sentence in _said:
        return
    _said.add(sentence)
    if not _commands:
        import logging

        level = logging.INFO if slower else logging.WARNING
        logging.getLogger("railopt").log(level, "%s", sentence.splitlines()[0])
    elif sys.stderr is not None:
        with suppress(OSError):
            print(f"railopt: {sentence.splitlines()[0]}", file=sys.stderr)


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """`"; did you mean 'lpt'?"`, or nothing where no known name is close."""
    from difflib import get_close_matches

    close = get_close_matches(text[:FOREIGN], list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


class RailoptError(Exception):
    """Base of every error that railopt raises on purpose."""

    exit_code = 1


class InputError(RailoptError):
    """Bad input or usage."""


class Infeasible(InputError):
    """Chunks that no living rail can carry."""

    exit_code = 2


class FormatError(InputError):
    """A file that can't be read as the format its name or header promises."""


class NotProved(RailoptError):
    """What was asked for could not be proved."""

    exit_code = 2


class BackendError(RailoptError):
    """A back-end (solver, library, device) is missing or crashed."""

    exit_code = 3


class CheckFailed(RailoptError):
    """A certificate, a plan or a theorem failed its check."""

    exit_code = 4


@contextmanager
def about(what: str, kind: type[InputError] | None = None) -> Iterator[None]:
    """Have complaints begin with what they are about, as errors of a `kind`, or of their own."""
    try:
        yield
    except InputError as error:
        raise (kind or type(error))(f"{what}{error}") from error
