"""What a training container needs runs with numpy and numba alone; `make test-wheel` runs this in
an environment that holds these and railopt, installed with --no-deps.
"""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path

import numpy as np

import railopt
from railopt.cli.main import main
from railopt.runtime import Loopback, Record, Verbs, carry, detect, join, join_mpi, measure

for absent in ("scipy", "ortools", "pulp", "sympy", "matplotlib", "dask"):
    assert importlib.util.find_spec(absent) is None, (
        f"{absent} is installed: not a slim environment"
    )
assert all((Loopback, Record, Verbs, carry, detect, join, join_mpi, measure))  # they import

fabric = railopt.Fabric.uniform(nodes=2, rails=2).degraded({(1, 1): "0.5"})
chunks = railopt.workloads.zipf(fabric, skew=0.5, seed=1).chunks("256KiB")
plans = [railopt.plan(fabric, chunks, policy=name) for name in railopt.POLICIES]

planner = railopt.Planner(fabric, node=1, cap="256KiB", policy="lpt-local")
rows = planner.plan(np.full((2, 4), 1 << 20, dtype=np.int64))
assert rows.size.sum() == 4 << 20

with tempfile.TemporaryDirectory() as name:
    file, posts = Path(name) / "plan.npz", Path(name) / "posts.tsv"
    plans[-1].save(file)
    assert railopt.Plan.read(file).makespan == plans[-1].makespan
    assert main(["check", str(file)]) == 0
    assert main(["send", str(file)]) == 0
    assert main(["send", str(file), "--sender", "record", "-o", str(posts)]) == 0
    assert main(["bench", "-b", "1MiB", "-e", "1MiB", "--nodes", "2", "--rails", "2"]) == 0
