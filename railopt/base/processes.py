"""Run a Python module in a child process with a time limit and a memory limit.

It is a subprocess, not a child of `multiprocessing`, because workers of a cluster are daemonic and
may not start such children.  It leads a session of its own, so that Ctrl-C at the terminal reaches
the parent alone, and so that it is killed together with all that it has started.

`ask` gives the child one problem and reads its answers, lines of JSON, from a file: what was
written before a crash, a kill or an interrupt is kept, and what a library prints does no harm.
`start` is for a child that its parent talks to.

`python -m railopt.base.processes PARENT MEMORY MODULE ARGUMENT...` is the child: it ends with the
process PARENT, limits its memory, then runs MODULE as `python -m MODULE ARGUMENT...` would.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any, NamedTuple

from railopt.base.errors import printable

MEMORY = 2 << 30  # bytes of data that a child may hold
SPARE_S = 0.3  # how much earlier than its limit it is asked to stop
GRACE_S = 1.0  # after its limit, before it is killed
PR_SET_PDEATHSIG = 1
SAID = 300  # characters of a child's last words that are passed on


class Ended(NamedTuple):
    """How a child ended: its exit code (negative: a signal), whether its time was up, and whether
    the user interrupted it.
    """

    code: int
    timed_out: bool
    interrupted: bool


class ChildOutput(NamedTuple):
    """The lines that a child finished, how it ended, and the last line that it printed."""

    lines: list[bytes]
    ended: Ended
    said: str

    @property
    def failure(self) -> str | None:
        """What went wrong, as a sentence without its subject; None if nothing did."""
        code, timed_out, interrupted = self.ended
        if interrupted or (code == 0 and not timed_out):
            return None
        if timed_out:
            return "did not stop at its time limit and was killed"
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"crashed ({how}): {self.said or 'it said nothing'}"


def command(module: str, *arguments: str, memory: int = MEMORY) -> list[str]:
    """The command line by which this process runs a module within `memory` bytes of data."""
    return [sys.executable, "-m", __name__, str(os.getpid()), str(memory), module, *arguments]


def start(
    line: list[str],
    *,
    stdin: int | IO[bytes] = subprocess.DEVNULL,
    stdout: int | IO[bytes] = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
    environ: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command as the leader of a session of its own; end it with `kill`."""
    return subprocess.Popen(
        line, stdin=stdin, stdout=stdout, stderr=stderr, env=environ, start_new_session=True
    )


def kill(child: subprocess.Popen[bytes]) -> int:
    """Kill a child and whatever it has started, if it still runs; its exit code."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    return child.wait()


def contain(line: list[str], log: Path, deadline: float) -> Ended:
    """Run a command, write what it prints to `log`, and kill it and its children at `deadline` (of
    time.monotonic).
    """
    interrupted = timed_out = False
    code = -int(signal.SIGKILL)
    try:
        with open(log, "wb") as file:
            child = start(line, stdout=file, stderr=file)
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            timed_out = True
        finally:
            code = kill(child)
    except KeyboardInterrupt:
        interrupted = True
    return Ended(code, timed_out, interrupted)


def ask(
    module: str,
    save: Callable[[Path], None],
    limit_s: float,
    *arguments: str,
    memory: int = MEMORY,
) -> ChildOutput:
    """Have `module` solve a problem within `limit_s` seconds, its start included.

    save        writes the problem as a file
    arguments   of the module, after the problem's file, the answers' file (see `answers`) and the
                time.time() at which it should stop
    """
    deadline, until = time.monotonic() + limit_s, time.time() + limit_s - SPARE_S
    with tempfile.TemporaryDirectory(prefix="railopt-") as folder:
        problem, answered, log = (Path(folder, name) for name in ("problem.npz", "answers", "log"))
        save(problem)
        answered.touch()
        line = command(module, str(problem), str(answered), repr(until), *arguments, memory=memory)
        ended = contain(line, log, deadline + GRACE_S)
        lines = [text for text in answered.read_bytes().splitlines(True) if text.endswith(b"\n")]
        said = log.read_text(errors="replace").strip().splitlines()
    return ChildOutput(lines, ended, printable(said[-1], SAID) if said else "")


@contextlib.contextmanager
def answers(path: str | os.PathLike[str]) -> Iterator[Callable[[Any], None]]:
    """For the child: a function that appends JSON values to the answers' file, a line each."""
    with open(path, "a", encoding="utf-8") as file:

        def say(value: Any) -> None:
            file.write(json.dumps(value) + "\n")
            file.flush()

        yield say


def _die_with(parent: int) -> None:
    """Have this process killed when its parent ends, in whatever way, or has ended already; does
    nothing where the call is missing (it is Linux's).
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def main(parent: str, memory: str, module: str, *arguments: str) -> None:
    """The child."""
    _die_with(int(parent))
    most = resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = int(memory) if most == resource.RLIM_INFINITY else min(int(memory), most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
