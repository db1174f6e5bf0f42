"""`railopt-verified` beside the checker, both as programs: reading files and starting included.

Times are CPU seconds.  The certificates of the solver are those of `make bench-solver`'s grid, on
seeds that nothing was tuned on.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from railopt import Chunks, Fabric, check, gap, plan
from railopt.base.errors import BackendError
from railopt.evidence import verified
from railopt.moe.micro.slots import SpareSlots
from railopt.moe.micro.solve import split
from railopt.solver.local.solve import solve_local
from tests.bench import Row, judged_once
from tests.bench.solver_instances import grid, unequal

SEED = 2201
KERNEL = str(Path(check.__code__.co_filename).with_name("checker.py"))


def spent(line: list[str]) -> tuple[float, float]:
    """(CPU seconds, MiB at most) of a program that accepts its file."""
    child = subprocess.Popen(line, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, line
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def million(folder: Path) -> Path:
    """A certificate of a million chunks on 128 x 8, its plan beside it."""
    rng, nodes, count = np.random.default_rng(SEED), 128, 10**6
    src = rng.integers(0, nodes, count)
    dst = (src + rng.integers(1, nodes, count)) % nodes
    fabric = Fabric.uniform(nodes, 8)
    size = rng.integers(1 << 10, 1 << 20, count)
    made = plan(fabric, Chunks.from_arrays(src=src, dst=dst, size=size, nodes=nodes), "lpt-global")
    gap(made, limit_s=0).save_certificate(folder / "million.json")
    return folder / "million.json"


def solved(folder: Path) -> Iterator[tuple[str, Path]]:
    """Kind of witness and file of certificates that the solver proves within two seconds: one seed
    of the grid, and every third instance of unequal rails.
    """
    seeds = range(SEED, SEED + 1)
    equal = ({"sizes": sizes, "rails": rails} for _, rails, sizes in grid(seeds))
    others = ({"sizes": sizes, "speeds": speeds} for _, speeds, sizes in unequal(seeds))
    problems: Iterator[dict[str, Any]] = chain(equal, islice(others, 0, None, 3))
    for i, problem in enumerate(problems):
        certificate = solve_local(**problem, limit_s=2).certificate()
        certificate.save(folder / f"{i}.json")
        yield certificate.witness["kind"], folder / f"{i}.json"


def micro_batch(folder: Path) -> Path:
    """A certificate of a split: 2,048 experts on 32 x 8 GPUs of two spare slots."""
    rng, nodes, gpus, experts = np.random.default_rng(SEED), 32, 8, 2048
    holds = np.zeros((nodes * gpus, experts), bool)
    holds[np.arange(experts) % (nodes * gpus), np.arange(experts)] = True
    slots = SpareSlots(nodes, gpus, holds, np.full(nodes * gpus, 2))
    counts = (1000 * rng.lognormal(0, 1, experts)).astype(np.int64)
    split(slots, counts, "greedy").certificate().save(folder / "split.json")
    return folder / "split.json"


def rows() -> Iterator[Row]:
    try:
        program = verified.program()
    except BackendError as error:
        yield Row("railopt-verified", 0, "s", note=f"not run: {error}")
        return
    kernel = [sys.executable, "-S", KERNEL]
    with tempfile.TemporaryDirectory() as folder:
        file = str(million(Path(folder)))
        found = [spent([program, file]) for _ in range(3)]
        seconds, memory = min(s for s, _ in found), max(m for _, m in found)
        name = "a million chunks, 128 x 8, plan file beside"
        yield from judged_once(f"{name}: verified", seconds, "s", 1.5)
        yield Row(f"{name}: verified", memory, "MiB", at_most=1024)
        yield Row(f"{name}: checker.py", spent([*kernel, file])[0], "s")
        file, name = str(micro_batch(Path(folder))), "a split of 2,048 experts on 256 GPUs"
        yield Row(f"{name}: verified", spent([program, file])[0], "s")
        yield Row(f"{name}: checker.py", spent([*kernel, file])[0], "s")
        ratios: dict[str, list[float]] = {}
        for kind, certificate in solved(Path(folder)):
            try:
                ours = spent([program, str(certificate)])[0]
            except AssertionError:  # refused after a minute
                ours = 60
            ratios.setdefault(kind, []).append(ours / spent([*kernel, str(certificate)])[0])
        every = [ratio for found in ratios.values() for ratio in found]
        text = "certificates of the solver: time over checker.py's"
        yield Row(f"{len(every)} {text}, median", statistics.median(every), "", at_most=0.1)
        for kind, found in sorted(ratios.items()):
            yield Row(f"{len(found)} {text}, worst {kind}", max(found), "", at_most=1)
