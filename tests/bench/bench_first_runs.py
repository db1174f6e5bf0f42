"""What a first run costs: CPU time of a command with an empty numba cache over that of the same
command once more.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.bench import Row

TRACE = str(Path(__file__).parents[2] / "experiments" / "traces" / "gpt16-top2.npz")
TRAFFIC = "convert moe:skew=0.8 traffic.npz"  # 8 nodes of 8 rails
COMMANDS = {
    "demo": (2.5, "demo"),
    "gap": (2.5, "gap traffic.npz"),
    "gap of few policies": (
        2.5,
        "gap traffic.npz --chunk 4MiB,1MiB --policy lpt,lpt-local,equitable --limit 1s "
        "--certificate certificates --force",
    ),
    # no goals: large kernels are compiled, which a `railopt warm-up` does beforehand
    "gap of 16 nodes": (None, "gap moe:skew=0.8 --nodes 16 --rails 8 --limit 2s"),
    "simulate of 16 nodes": (None, "simulate moe:skew=0.8 --nodes 16 --rails 8 --balancer ecmp"),
    "plan": (2.5, "plan traffic.npz -o plan.npz --force"),
    "check": (2.5, "check plan.npz"),
    "simulate": (2.5, "simulate plan.npz"),
    "plan of small chunks": (2.5, "plan traffic.npz --chunk 256KiB -o fine.npz --force"),
    "simulate of small chunks": (2.5, "simulate fine.npz"),
    "schedule --compare": (2.5, "schedule traffic.npz --compare"),
    "split": (2.5, f"split {TRACE} --nodes 4 --rails 4 --spare 1"),
    "place": (4, f"place {TRACE} --nodes 4 --rails 4"),
    "place --planner replicate": (
        4,
        f"place {TRACE} --nodes 4 --rails 4 --planner replicate --replicas 16",
    ),
}


def rows() -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        cpu_s(TRAFFIC.split(), folder, Path(folder) / "unused")
        for name, (goal, line) in COMMANDS.items():
            cache = Path(folder) / name.replace(" ", "")
            first, again = (cpu_s(line.split(), folder, cache) for _ in range(2))
            note = f"{first:.1f} s, then {again:.1f} s"
            yield Row(f"first `{name}` over the next", first / again, "times", goal, None, note)


def cpu_s(words: list[str], folder: str, cache: Path) -> float:
    """CPU seconds of a command and its children; it must succeed."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    environment.pop("RAILOPT_COMPILE", None)
    root = str(Path(__file__).parents[2])
    environment["PYTHONPATH"] = root
    child = os.fork()
    if child == 0:
        os.chdir(folder)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        if not os.environ.get("BENCH_LOUD"):
            os.dup2(silent, 2)
        os.execve(sys.executable, [sys.executable, "-m", "railopt", *words], environment)
    _, status, used = os.wait4(child, 0)
    if os.waitstatus_to_exitcode(status) not in (0, 2):
        raise SystemExit(f"railopt {' '.join(words)} failed")
    return used.ru_utime + used.ru_stime
