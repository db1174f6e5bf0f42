"""`python -m tests.bench trace COMMAND ...`: what a command of railopt passes through.

The command runs twice, so that imports, compiled kernels and caches are there; of the second run
are counted the modules of railopt that it calls into, and how often a call goes from one of them
to another.  The command's own output is dropped; then the modules are printed by their calls, and
the CPU seconds of a run that is not watched.
"""

from __future__ import annotations

import io
import sys
import time
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from types import FrameType
from typing import Any

from railopt.cli.main import main as railopt


class Trace:
    """Calls by module, and how often the module changed from one call to the next."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.changes = 0
        self._last = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call":
            return
        module = frame.f_globals.get("__name__", "")
        if module == "railopt" or module.startswith("railopt."):
            self.calls[module] += 1
            self.changes += module != self._last
            self._last = module


def run(arguments: list[str]) -> int:
    """One run of a command, its output dropped; the exit code."""
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return railopt(arguments)


def traced(arguments: list[str]) -> Trace:
    """What one run passes through."""
    trace = Trace()
    sys.setprofile(trace)
    try:
        run(arguments)
    finally:
        sys.setprofile(None)
    return trace


def main(arguments: list[str]) -> int:
    code = run(arguments)
    trace = traced(arguments)
    began = time.process_time()
    run(arguments)
    spent = time.process_time() - began
    for module, calls in trace.calls.most_common():
        print(f"{calls:>8}  {module}")
    print(
        f"{len(trace.calls)} modules, {trace.changes} changes of module, "
        f"{sum(trace.calls.values())} calls, {spent:.3f} s of CPU time; exit code {code}"
    )
    return code
