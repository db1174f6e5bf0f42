"""argparse with railopt's exit code for bad usage, and the name that was perhaps meant."""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import textwrap
from typing import Any, NoReturn

from railopt.base.errors import did_you_mean, printable

MESSAGE = 2000  # characters of an error that are shown
CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)


class _Group:
    """A group of argparse's whose arguments go into a list, too."""

    def __init__(self, group: Any, actions: list[argparse.Action]) -> None:
        self._group, self._list = group, actions

    def add_argument(self, *args: Any, **options: Any) -> argparse.Action:
        self._list.append(self._group.add_argument(*args, **options))
        return self._list[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)


class Version(argparse.Action):
    """Print the version and end; argparse's forgets that it could not be written."""

    def __call__(self, parser: Any, *_: Any, **__: Any) -> None:
        sys.stdout.write(f"{self.const}\n")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser that knows its arguments.

    actions    its arguments, in the order in which they were added
    commands   name -> parser of each command
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        self.actions: list[argparse.Action] = []
        self.commands: dict[str, Parser] = {}
        super().__init__(*args, **options)

    def add_argument(self, *args: Any, **options: Any) -> argparse.Action:
        """argparse's; the argument is remembered."""
        self.actions.append(super().add_argument(*args, **options))
        return self.actions[-1]

    def add_argument_group(self, *args: Any, **options: Any) -> Any:
        """argparse's; its arguments are remembered, too."""
        return _Group(super().add_argument_group(*args, **options), self.actions)

    def add_mutually_exclusive_group(self, **options: Any) -> Any:
        """argparse's; its arguments are remembered, too."""
        return _Group(super().add_mutually_exclusive_group(**options), self.actions)

    def print_help(self, file: Any = None) -> None:
        """argparse's, which forgets that help could not be written."""
        (file or sys.stdout).write(self.format_help())

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """argparse's; help or a version that could not be written is an error."""
        sys.stdout.flush()
        super().exit(status, message)

    def error(self, message: str) -> None:  # type: ignore[override]
        """End the process with exit code 1."""
        if found := CHOICE.search(message):
            choices = [word.strip("' ") for word in found[2].split(",")]
            message += did_you_mean(found[1], choices)
        self.print_usage(sys.stderr)
        text = f"{self.prog}: error: {printable(message, MESSAGE)}"
        self.exit(1, f"{wrapped(text) if sys.stderr.isatty() else text}\n")


def screen() -> int | None:
    """Characters that a line may have: those of the terminal, or COLUMNS; None in a pipe."""
    columns = shutil.get_terminal_size((0, 0)).columns
    return max(40, columns) if columns else None


def wrapped(text: str) -> str:
    """The text in lines that fit the screen; a line that goes on is indented by two more."""
    width = screen()
    if width is None:
        return text
    return "\n".join(
        line
        if len(line) <= width
        else textwrap.fill(
            line,
            width,
            subsequent_indent=" " * (len(line) - len(line.lstrip()) + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.split("\n")
    )
