"""A back-end in a process of its own, which is killed when its time is up.

`python -m railopt.solver.program.process MODEL ANSWERS UNTIL MODULE` is the child.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import NamedTuple

from railopt.base import processes
from railopt.base.errors import BackendError
from railopt.base.extras import missing
from railopt.solver.program.backends import Answer, Backend
from railopt.solver.program.mip import MixedProgram


class BackendRun(NamedTuple):
    """What a child said, and how it ended: `failure` is None or one sentence with the back-end's
    name.
    """

    answers: list[Answer]
    failure: str | None
    timed_out: bool = False
    interrupted: bool = False


def run(backend: Backend, program: MixedProgram, limit_s: float) -> BackendRun:
    """Solve a program in a child process within `limit_s` seconds, its start included."""
    if not backend.available:
        return BackendRun([], missing(backend.imports, f"the back-end {backend.name}"))
    output = processes.ask(__name__, program.save, limit_s, backend.module)
    answers, garbled = _answers(output.lines)
    failure, ended = _failure(backend, output, garbled), output.ended
    return BackendRun(answers, failure, ended.timed_out, ended.interrupted)


def _answers(lines: list[bytes]) -> tuple[list[Answer], bool]:
    """The lines that are answers, and whether some were not."""
    answers, garbled = [], False
    for line in lines:
        try:
            answers.append(Answer(**json.loads(line)))
        except (ValueError, TypeError):
            garbled = True
    return answers, garbled


def _failure(backend: Backend, output: processes.ChildOutput, garbled: bool) -> str | None:
    if output.ended.code == BackendError.exit_code:
        return f"{backend.title} can't run here: {output.said}"
    if output.failure:
        return f"{backend.title} {output.failure}"
    return f"{backend.title} wrote something that is no answer" if garbled else None


def main(program: str, answers: str, until: str, module: str) -> None:
    """The child: solve and append answers; what the back-end misses is its last word."""
    problem = MixedProgram.read(program)
    solver = importlib.import_module(module)
    with processes.answers(answers) as say:
        left_s, began = max(0.1, float(until) - time.time()), time.process_time()

        def emit(answer: Answer) -> None:
            say(answer._replace(spent_s=time.process_time() - began)._asdict())

        try:
            solver.solve(problem, left_s, emit)
        except BackendError as error:
            print(error, file=sys.stderr)
            sys.exit(error.exit_code)


if __name__ == "__main__":
    main(*sys.argv[1:])
