"""`python -m tests.bench ablations [ROOM ...] [--seed 36]`: what each mechanism gains on data drawn
once, by leaving it out.

Each module `ablations_<room>.py` here has `rows(seed) -> Iterator[Ablation]`.  The results, and
what was kept or removed by them, are in docs/design/ablations.md.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple


class Ablation(NamedTuple):
    """One mechanism left out.

    name     what is left out
    lines    lines of code that exist for it alone
    gain     what the mechanism gains, in words: instances, or time
    command  what measures this row alone
    """

    name: str
    lines: int
    gain: str
    command: str


def source_lines(*things: Callable[..., Any] | ModuleType) -> int:
    """Lines of functions and modules, with their comments and docstrings."""
    return sum(len(inspect.getsource(thing).splitlines()) for thing in things)


def main(argv: list[str]) -> int:
    rooms = [path.stem.removeprefix("ablations_") for path in _modules()]
    parser = argparse.ArgumentParser(prog="python -m tests.bench ablations", description=__doc__)
    parser.add_argument("rooms", nargs="*", metavar="ROOM", help=f"of {', '.join(rooms)}")
    parser.add_argument("--seed", type=int, default=36, help="the data are drawn from it")
    args = parser.parse_args(argv)
    if strange := set(args.rooms) - set(rooms):
        parser.error(f"{', '.join(sorted(strange))}: expected {', '.join(rooms)}")
    for room in args.rooms or rooms:
        print(f"\n{room}, seed {args.seed}")
        for row in importlib.import_module(f"tests.bench.ablations_{room}").rows(args.seed):
            print(f"  {row.name:<34} {row.lines:>5} lines  {row.gain}  [{row.command}]", flush=True)
    return 0


def _modules() -> list[Path]:
    return sorted(Path(__file__).parent.glob("ablations_*.py"))
