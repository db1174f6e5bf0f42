"""What kernels gain from their second form, in numpy or on lists, while they are interpreted: all
of these forms left out together, in a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

from tests.bench import drawn_seeds
from tests.bench.ablations import Ablation

POLICIES = ("lpt", "lpt-global", "equitable", "spill")
MEASURE = """
import inspect, json, sys
import numpy as np
from railopt.base import kernels

seed, plain, lines = int(sys.argv[1]), sys.argv[2] == "plain", {}

def counted(given):
    def decorator(function=None, *, numpy=None, **options):
        if numpy is not None:
            lines[numpy.__qualname__] = len(inspect.getsource(numpy).splitlines())
        return given(function, numpy=None if plain else numpy, **options)
    return decorator

kernels.kernel, kernels.part = counted(kernels.kernel), counted(kernels.part)
for name in [name for name in sys.modules if name.split(".")[0] == "railopt"]:
    if not name.startswith("railopt.base"):  # `import railopt` has made kernels already
        del sys.modules[name]
from railopt import Fabric, plan, workloads
from railopt.moe.placement.replicate import rebalance
from tests.bench import best

fabric = Fabric.uniform(8, 8)
chunks = workloads.moe(fabric, skew=0.8, seed=seed).chunks("1MiB")
loads = np.random.default_rng(seed).lognormal(0, 2, (6, 64))
calls = {name: lambda name=name: plan(fabric, chunks, name) for name in sys.argv[3:]}
calls["rebalance of six layers"] = lambda: rebalance(loads, 96, 1, 4, 32)
times = {name: best(call, 3, cpu=True) for name, call in calls.items()}
print(json.dumps([len(lines), sum(lines.values()), len(chunks), times]))
"""


def rows(seed: int) -> Iterator[Ablation]:
    drawn = str(drawn_seeds(seed, 1)[0])
    found = [
        json.loads(
            subprocess.run(
                [sys.executable, "-c", MEASURE, drawn, form, *POLICIES],
                env={**os.environ, "RAILOPT_COMPILE": "never"},
                stdout=subprocess.PIPE,
                check=True,
            ).stdout
        )
        for form in ("numpy", "plain")
    ]
    (forms, lines, chunks, times), (*_, without) = found
    gain = "; ".join(
        f"{name} {1e3 * took:.0f} ms, {1e3 * without[name]:.0f} without"
        for name, took in times.items()
    )
    command = f"python -m tests.bench ablations interpreted --seed {seed}"
    yield Ablation(f"{forms} forms in numpy, {chunks} chunks", lines, gain, command)
