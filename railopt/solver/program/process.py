"""Running a back-end in a process of its own, which is killed when its time is up.

The parent hands over a model file and reads answers from a file of JSON lines, so that whatever was
written before a crash, a kill or an interrupt survives, and whatever a library prints does no harm.
`python -m railopt.solver.program.process MODULE MODEL ANSWERS LIMIT THREADS` is the child.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from railopt.solver.program.backends import Answer, Backend
from railopt.solver.program.program import Model

MEMORY = 2 << 30  # bytes of data that a child may hold
SPARE_S = 0.3  # what it is told to stop before its limit
GRACE_S = 1.0  # after its limit, before it is killed


class Run(NamedTuple):
    """What a child said, and how it ended: `failure` is None or one sentence with the back-end's
    name.
    """

    answers: list[Answer]
    failure: str | None
    interrupted: bool = False


def run(backend: Backend, model: Model, limit_s: float, threads: int = 1) -> Run:
    """Solve a model in a child process within `limit_s` seconds, its start included."""
    if not backend.available:
        return Run([], f"{backend.name} is not installed: pip install {backend.distribution}")
    deadline = time.monotonic() + limit_s
    with tempfile.TemporaryDirectory(prefix="railopt-") as folder:
        files = [Path(folder, name) for name in ("model.npz", "answers.jsonl", "log.txt")]
        model.save(files[0])
        files[1].touch()
        until = time.time() + limit_s - SPARE_S
        command = [
            sys.executable,
            "-m",
            __name__,
            backend.module,
            *map(str, files[:2]),
            repr(until),
            str(threads),
        ]
        code, timed_out, interrupted = contain(command, files[2], deadline + GRACE_S)
        answers, garbled = _answers(files[1])
        return Run(
            answers, _failure(backend, code, timed_out, interrupted, garbled, files[2]), interrupted
        )


def contain(command: list[str], log: Path, deadline: float) -> tuple[int, bool, bool]:
    """Run a command, what it prints into `log`, and kill it and its children at `deadline` (of
    time.monotonic).

    Returns its exit code (negative: a signal), whether its time was up, and whether the user
    interrupted it.
    """
    with open(log, "wb") as file:
        child = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True
        )
    interrupted = timed_out = False
    try:
        child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        timed_out = True
    except KeyboardInterrupt:
        interrupted = True
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    return child.returncode, timed_out, interrupted


def _answers(path: Path) -> tuple[list[Answer], bool]:
    """The lines that are answers, and whether some were not."""
    answers, garbled = [], False
    for line in path.read_bytes().splitlines():
        try:
            answers.append(Answer(**json.loads(line)))
        except (ValueError, TypeError):
            garbled = True
    return answers, garbled


def _failure(
    backend: Backend, code: int, timed_out: bool, interrupted: bool, garbled: bool, log: Path
) -> str | None:
    if interrupted:
        return None
    if timed_out:
        return f"{backend.title} did not stop at its time limit and was killed"
    if code:
        said = log.read_text(errors="replace").strip().splitlines()
        how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        return f"{backend.title} crashed ({how}): {said[-1][:300] if said else 'it said nothing'}"
    return f"{backend.title} wrote something that is no answer" if garbled else None


def main(module: str, model: str, answers: str, until: str, threads: str) -> None:
    """The child: solve and append answers."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    problem = Model.load(model)
    solver = importlib.import_module(module)
    with open(answers, "a", encoding="utf-8") as file:

        def emit(answer: Answer) -> None:
            file.write(json.dumps(answer._asdict()) + "\n")
            file.flush()

        solver.solve(problem, max(0.1, float(until) - time.time()), int(threads), emit)


if __name__ == "__main__":
    main(*sys.argv[1:])
