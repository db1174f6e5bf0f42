"""Processes of their own, and what is done in one done in this process, which has loaded the
libraries: for tests of what is answered, beside others of what becomes of the process.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

from railopt.base import processes


def contained(line: list[str], log: Path, deadline: float) -> processes.Ended:
    """As `processes.contain`, but no limit of time or memory holds."""
    module, *arguments = line[line.index(str(processes.MEMORY)) + 1 :]
    with (
        open(log, "w") as file,
        contextlib.redirect_stderr(file),
        warnings.catch_warnings(action="ignore", category=DeprecationWarning),  # as in a process
    ):
        try:
            importlib.import_module(module).main(*arguments)
        except SystemExit as stop:
            return processes.Ended(int(stop.code or 0), timed_out=False, interrupted=False)
    return processes.Ended(0, timed_out=False, interrupted=False)


def interpreted(function: Callable[[], list[str]]) -> list[str]:
    """What a function, run by its source, answers in a process that compiles no kernel."""
    code = f"{inspect.getsource(function)}\nprint(*{function.__name__}())"
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "RAILOPT_COMPILE": "never"},
    ).stdout.split()
