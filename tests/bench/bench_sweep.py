"""Sweeps: what boxes add to an instance, and how long a finished sweep takes to
resume.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from railopt.sweep import client, instance, results, spec
from tests.bench import Row, best, judged_once

GRID = {
    "nodes": [2],
    "rails": [2],
    "traffic": ["uniform:size=4KiB"],
    "chunk": ["1KiB"],
    "policy": ["lpt"],
}


def rows() -> Iterator[Row]:
    count = 400
    sweep = spec.parse({"grid": {**GRID, "seed": list(range(count))}})
    work = best(lambda: instance.run(sweep.instances[0]), 50)
    with tempfile.TemporaryDirectory() as folder:
        first = spec.parse({"grid": {**GRID, "seed": list(range(8))}})
        client.run(first, folder, workers=1)  # what starting a box takes is not an instance's
        begun = time.perf_counter()
        client.run(first, folder, workers=1)
        idle = time.perf_counter() - begun
        begun = time.perf_counter()
        client.run(sweep, folder, workers=1)
        took = time.perf_counter() - begun
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        client.run(spec.parse({"grid": {**GRID, "seed": [0]}}), folder, workers=1)
        start = time.perf_counter() - begun
    yield from judged_once(
        "box overhead, an instance",
        (took - start) / (count - 9) - work,
        "ms",
        10e-3,
        f"an instance itself: {work * 1e3:.2f} ms; start-up {start:.1f} s; nothing to do "
        f"{idle:.2f} s",
    )
    with tempfile.TemporaryDirectory() as folder:
        large = spec.parse({"grid": {**GRID, "seed": list(range(10_000))}})
        row = instance.run(large.instances[0])
        writer = results.Writer(Path(folder))
        for point in large.instances:
            writer.append({**row, "key": point.key})
        took = best(lambda: client.run(large, folder, workers=1), 2)
        yield from judged_once("10,000 finished instances: resume", took, "s", 2)
