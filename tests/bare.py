"""What `pip install railopt` alone gives; `make test-wheel` runs this in an environment that holds
nothing else: few packages, the main commands, and one sentence where an extra is missing.
"""

from __future__ import annotations

import contextlib
import io
import tempfile
from importlib.metadata import distributions
from pathlib import Path

from railopt.base.extras import PACKAGES, installed
from railopt.cli.main import main

MOST = 8  # packages, railopt among them
NOT_OURS = {"pip", "setuptools", "wheel"}
SMALL = ("moe:tokens=64", "--nodes", "2", "--rails", "2")
PLACED = ("--nodes", "2", "--gpus", "4", "--model", "deepseek-v2-lite", "--planner", "replicate")

found = {dist.metadata["Name"].lower() for dist in distributions()} - NOT_OURS
assert len(found) <= MOST, f"{len(found)} packages: {sorted(found)}"
assert not [name for name, package in PACKAGES.items() if package.extra and installed(name)]


def ran(*arguments: str) -> tuple[int, str]:
    """The exit code of a command, and what it wrote to stderr."""
    with contextlib.redirect_stderr(io.StringIO()) as said:
        return main(arguments), said.getvalue()


def works(*arguments: str) -> None:
    code, said = ran(*arguments)
    assert code == 0, (arguments, code, said)


def lacks(sentence: str, *arguments: str) -> None:
    code, said = ran(*arguments)
    assert code == 3, (arguments, code, said)
    assert sentence in said.splitlines()[-1], (arguments, said)


with tempfile.TemporaryDirectory() as folder:
    plan, figure = (str(Path(folder, name)) for name in ("p.npz", "f.svg"))
    works("plan", *SMALL, "-o", plan)
    works("check", plan)
    works("gap", plan)
    works("simulate", plan)
    works("schedule", *SMALL)
    works("place", "drift:steps=8", *PLACED, "--replicas", "264")
    lacks("needs Matplotlib: pip install 'railopt[plot]'", "gap", plan, "--figure", figure)
    lacks("needs SymPy: pip install 'railopt[prove]'", "prove", "--quick")
    lacks("needs OR-Tools: pip install 'railopt[solve]'", "solve", *SMALL, "--backend", "highs")
    slow = ("--degrade", "1:1=0.5")
    works("gap", *SMALL, *slow, "--policy", "lpt")
    lacks("needs OR-Tools: pip install 'railopt[solve]'", "frontier", *SMALL, *slow)
print(f"{len(found)} packages: {', '.join(sorted(found))}")
