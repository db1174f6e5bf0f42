"""`railopt warm-up`: compile the kernels once, for a container's image or a shared disk."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from railopt.base.errors import BackendError, printable
from railopt.base.kernels import NO_CACHE
from railopt.cli.common import note
from railopt.policies import POLICIES

EPILOG = "example:\n  NUMBA_CACHE_DIR=/var/cache/railopt railopt warm-up"
MOE = "moe:skew=0.8,seed=1,tokens=256 --nodes 3 --rails 4"
RUNS = (
    f"plan {MOE} --policy lpt",  # a cache that can't be used is noticed before the longer ones
    f"gap {MOE} --policy {','.join(POLICIES)} --chunk 1MiB --limit 2s",
    f"gap {MOE} --degrade 1:2=0.5 --policy {','.join(POLICIES)} --chunk 1MiB --limit 2s",
    f"schedule {MOE} --compare",
    f"simulate {MOE} --balancer ecmp",
    "split routing:steps=1,experts=16,tokens=64,top=2 --nodes 2 --gpus 4 --spare 1",
    "place drift:steps=8,experts=16,tokens=64,top=2 --model deepseek-v2-lite --nodes 2 --gpus 4",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """None; what is compiled stays in numba's cache, beside the package or in NUMBA_CACHE_DIR."""


def run(args: argparse.Namespace) -> int:
    """Small runs of the main commands; the exit code."""
    for line in RUNS:
        note(f"railopt {line}")
        done = subprocess.run(
            [sys.executable, "-m", "railopt", *line.split()],
            env={**os.environ, "RAILOPT_COMPILE": "always"}, capture_output=True, text=True,
        )  # fmt: skip
        if NO_CACHE in done.stderr:
            raise BackendError(f"nothing that is compiled stays: {printable(done.stderr.strip())}")
        if done.returncode not in (0, 2):  # 2: not proved within its limit
            raise BackendError(f"railopt {line}: {printable(done.stderr.strip())}")
    return 0
