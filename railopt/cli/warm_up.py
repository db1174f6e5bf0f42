"""`railopt warm-up`: compile the kernels once, for a container's image or a cluster's shared disk.

Small runs of the commands themselves, each in a process of its own, as many at a time as there are
cores: what they compile stays in numba's cache, beside the package or in NUMBA_CACHE_DIR.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from railopt.base.errors import BackendError, printable
from railopt.cli.common import note, print_json
from railopt.policies import POLICIES

EPILOG = """examples:
  railopt warm-up
  NUMBA_CACHE_DIR=/var/cache/railopt railopt warm-up"""

SMALL = "moe:skew=0.8,seed=1,tokens=256 --nodes 3 --rails 4"
EIGHT = "moe:skew=0.8,seed=1,tokens=256 --nodes 3 --rails 8"
UNITS = "routing:seed=1,tokens=64,experts=16,top=2 --nodes 2 --rails 4"
SLOW = "--degrade 1:2=0.5 --degrade 0:1=0"
PLACE = "place load.npy --model deepseek-v2-lite --nodes 2 --rails 2 --gpus 4 --planner"
FLOWS = "--nodes 4 --rails 2 --chunk flow"
BALANCERS = ("ecmp", "plb", "minrtt", "adaptive", "spray", "reps")

# The longest first, so that no core waits for the last one.
RUNS = (
    f"gap {SMALL} --policy {','.join(POLICIES)} --chunk 256KiB,1MiB --limit 1s",
    f"gap {SMALL} {SLOW} --policy {','.join(POLICIES)} --chunk 1MiB --limit 1s",
    f"solve {UNITS} --limit 1s",
    f"{PLACE} pro-prophet",
    f"{PLACE} replicate --replicas 20",
    f"{PLACE} optimal --limit 1s",
    f"schedule {SMALL} --compare",
    f"simulate {SMALL} --policy lpt",
    f"simulate {UNITS} --policy spill --scale-up pipelined",
    *(f"simulate {SMALL} --balancer {balancer}" for balancer in BALANCERS),
    f"gap {EIGHT} --policy lpt,lpt-local --chunk 1MiB --limit 1s",
    f"frontier {UNITS}",
    f"{PLACE.replace('load', 'many')} pro-prophet",
    f"{PLACE.replace('--rails 2 --gpus 4', '--rails 1 --gpus 1')} pro-prophet",
    "hybrid --simulate",
    f"plan {UNITS} --policy spill",
    "solve moe:skew=0.8,seed=1 --nodes 4 --chunk 4MiB --limit 2s",
    "place drift:steps=8,experts=16,tokens=64,top=2 --model deepseek-v2-lite --nodes 2 --gpus 4 "
    "--planner replicate --rolling 1",
    "split routing:steps=1,experts=16,tokens=64,top=2 --nodes 2 --gpus 4 --spare 1",
    f"solve bytes.csv {FLOWS} --limit 2s",
    f"solve bytes.csv {FLOWS} --degrade 1:0=0.5 --limit 2s",
)
LOCAL = """
from railopt.solver.local.solve import solve_local
solve_local([32] * 200 + [1 + 7 * k % 31 for k in range(20)], 8, limit_s=9)
for jobs, rails, largest in ((80, 16, 10**6), (40, 8, 10**6), (100, 25, 10**4), (30, 12, 100)):
    sizes = [1 + 7919 * 104729**k % largest for k in range(jobs)]
    solve_local(sizes, rails, limit_s=1)
    solve_local(sizes, speeds=[4] * (rails // 2) + [3] * (rails - rails // 2), limit_s=1)
"""

# What some commands come to last on a first run, for `railopt.cli.companion`.
LATER = {
    "gap": f"solve {SMALL} --chunk 1MiB --limit 1s",
    "demo": "gap uniform --nodes 4 --rails 3 --gpus 2 --policy even-excess,spill --limit 0s",
    "place": f"gap {EIGHT} --policy equitable,lpt --limit 0s",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="the runs and what each took, in s")


def run(args: argparse.Namespace) -> int:
    runs = (LOCAL, *RUNS, *LATER.values())
    note(f"compiling: {len(runs)} small runs, minutes at the first time")
    with tempfile.TemporaryDirectory() as folder:
        flows = 1 + 7919 * np.arange(64).reshape(8, 8) ** 2 % 100_003
        np.savetxt(Path(folder) / "bytes.csv", flows, fmt="%d", delimiter=",")
        for name, experts in (("load.npy", 16), ("many.npy", 128)):
            load = np.arange(4 * experts).reshape(2, 2, experts) % 7 + 1
            np.save(Path(folder) / name, load)
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            took_s = dict(zip(runs, pool.map(lambda line: _run(line, folder), runs), strict=True))
    if args.json:
        print_json({"runs": took_s})
    else:
        print(f"compiled: {len(runs)} runs in {sum(took_s.values()):.0f} s of work")
    return 0


def _run(line: str, folder: str) -> float:
    """Seconds that one command line took, or the script."""
    began, name = time.monotonic(), "the solver of one node" if line == LOCAL else f"railopt {line}"
    command = ["-c", line] if line == LOCAL else ["-m", "railopt", *line.split()]
    done = subprocess.run(
        [sys.executable, *command],
        cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    if done.returncode not in (0, 2):  # 2: not proved within its second
        raise BackendError(f"{name}: {printable(done.stderr.strip().rpartition(chr(10))[2])}")
    took_s = time.monotonic() - began
    note(f"{took_s:6.1f} s  {name}")
    return took_s
