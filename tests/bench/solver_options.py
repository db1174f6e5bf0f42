"""The arguments of `make bench-solver`, which both of its programs take: each uses what concerns
it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TypeVar

from railopt.solver.program.backends import BACKENDS

T = TypeVar("T")
LOCAL = ("grid", "classes", "lawrinenko", "unequal")  # families of solver_bench.py
COUPLED = ("small", "moe", "worn")  # of solver_coupled.py
ARC_FLOW = ("arcflow-highs", "arcflow-cpsat")
PEERS = (*BACKENDS, *ARC_FLOW, "prtpy")


@dataclass(frozen=True)
class Shard:
    """Part `number` of `parts`, counted from 1."""

    number: int
    parts: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        number, parts = (int(part) for part in text.split("/"))
        if not 1 <= number <= parts:
            raise ValueError
        return cls(number, parts)

    def of(self, items: list[T]) -> list[T]:
        return items[self.number - 1 :: self.parts]


WHOLE = Shard(1, 1)


def listed(known: tuple[str, ...], text: str) -> list[str]:
    """Names between commas, all of them known."""
    names = [name for name in text.split(",") if name]
    strange = [name for name in names if name not in known]
    if strange:
        raise argparse.ArgumentTypeError(f"{', '.join(strange)}: expected {', '.join(known)}")
    return names


def families(text: str) -> list[str]:
    return listed((*LOCAL, *COUPLED), text)


def peers(text: str) -> list[str]:
    return listed(PEERS, text)


def parser(program: str, description: str | None) -> argparse.ArgumentParser:
    """Every argument, for either program."""
    made = argparse.ArgumentParser(
        prog=f"python -m tests.bench.{program}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--seeds", type=int, default=3, help="seeds of each cell (default 3)")
    made.add_argument(
        "--seed", type=int, default=0, help="the number that these are drawn from (default 0)"
    )
    made.add_argument(
        "--families",
        type=families,
        default=[*LOCAL, *COUPLED],
        help=f"comma-separated, of {', '.join(LOCAL)} (local) and {', '.join(COUPLED)} (coupled); "
        f"default all",
    )
    made.add_argument("--only", default="", help="only what has this in its name")
    made.add_argument(
        "--shard",
        type=Shard.parse,
        default=WHOLE,
        metavar="I/N",
        help="only every N-th instance or cell, from the I-th",
    )
    made.add_argument(
        "--peers",
        type=peers,
        default=["cpsat", "highs", *ARC_FLOW, "prtpy"],
        help=f"comma-separated, of {', '.join(PEERS)} (default cpsat, highs, arc flow and prtpy); "
        f"the coupled families know {', '.join(BACKENDS)}",
    )
    made.add_argument(
        "--peers-every",
        type=int,
        help="peers see every so many-th instance of the first seed (default 7 of the local "
        "families, all of the small coupled ones)",
    )
    made.add_argument(
        "--peer-limit",
        type=float,
        default=10.0,
        help="wall-clock seconds that a peer has (default 10)",
    )
    made.add_argument("--quick", action="store_true", help="one seed, few families and peers")
    made.add_argument("--json", action="store_true", help="print the rows as JSON")
    return made
