"""What is done in a process of its own, done in this one, which has loaded the libraries: for tests
of what is answered, beside others of what becomes of the process.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
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
