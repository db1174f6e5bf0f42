"""On a first run, a second process that compiles what the command will need last.

numba compiles on one core, one kernel after the other, for ten to twenty seconds where its cache is
empty.  From the moment that a command has to compile, a small run of another one does so too, on a
core that is idle; by the time the first gets there, these kernels are in the cache, or it waits for
the one that is being compiled.

Where RAILOPT_ALONE is set, as it is for the second process itself, there is none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from railopt.base import kernels as compiled

ALONE = "RAILOPT_ALONE"
RUNNING = Path("/proc/loadavg")  # its fourth field: runnable threads, those of this process too
LOOK_S = 0.002


@contextmanager
def companion(command: str) -> Iterator[None]:
    """While the body runs: from the moment that something is to be compiled, the second process."""
    started: list[subprocess.Popen[bytes]] = []
    with compiled.told(lambda: started.extend(_started(command))):
        try:
            yield
        finally:
            for process in started:
                process.kill()
                process.wait()


def _started(command: str) -> list[subprocess.Popen[bytes]]:
    """The process; none where no core is idle, or it can't be started."""
    from railopt.cli.warm_up import LATER

    if command not in LATER or ALONE in os.environ:
        return []
    line, nowhere = [sys.executable, "-m", "railopt", *LATER[command].split()], subprocess.DEVNULL
    alone = {**os.environ, ALONE: "1"}
    try:
        if _wanted() >= _cores():
            return []
        return [subprocess.Popen(line, env=alone, stdin=nowhere, stdout=nowhere, stderr=nowhere)]
    except OSError:
        return []


def _wanted() -> int:
    """Cores that are wanted now, one of them by this process: the least of three looks, or on the
    average of the last minute where the system does not tell.
    """
    looks = []
    for _ in range(3):
        try:
            looks.append(int(RUNNING.read_text().split()[3].partition("/")[0]))
        except (OSError, ValueError, IndexError):
            return 1 + round(os.getloadavg()[0])
        time.sleep(LOOK_S)
    return max(1, min(looks))


def _cores() -> int:
    """That this process may use."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    return len(allowed) or os.cpu_count() or 1
