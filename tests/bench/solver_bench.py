"""`python -m tests.bench.solver_bench`: the local solver against its goals, with its peers in
the same run.

Times are CPU seconds of a single thread, so that a busy machine does not decide what is proved;
ratios are geometric means over the instances that both prove.  Families: the grid (`grid`), the
França/Frangioni classes (`classes`), two of Lawrinenko's (`lawrinenko`) and rails of different
speeds (`unequal`).

    --quick                          one seed, 2 s for the peers, the grid alone (solver_options.py
                                     has every argument)
    --peers cpsat,arcflow-highs      some of the peers (solver_peers.py), which see every seventh of
                                     the grid's and Lawrinenko's instances of the first seed
    --only "16x5 u6" --shard 1/4     some instances; every fourth of them
    --seed 7 --peers ""              other instances: their seeds are drawn from this number
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, TypeVar

import numpy as np

from railopt.checker import check_certificate
from railopt.solver.local.solve import solve_local
from tests.bench import Row, drawn_seeds
from tests.bench.solver_instances import (
    Ints,
    franca_frangioni,
    grid,
    instance,
    lawrinenko,
    unequal,
)
from tests.bench.solver_options import parser
from tests.bench.solver_peers import PEERS, missing

T = TypeVar("T")
COMPARED = ("grid", "lawrinenko")  # families that the peers see
PEERS_EVERY = 7  # all would take hours


@dataclass(frozen=True)
class Case:
    """One instance: its family, its name, what `solve_local` is given (rails or speeds) and its
    limit in seconds.
    """

    family: str
    name: str
    sizes: Ints
    shape: dict[str, Any]
    limit_s: float

    @property
    def rails(self) -> int:
        return int(self.shape["rails"]) if "rails" in self.shape else len(self.shape["speeds"])


@dataclass(frozen=True)
class Result:
    """One instance: what we proved (by a witness that the checker accepts) and how, how dear that
    is to check, what each peer did.
    """

    family: str
    name: str
    rails: int
    seconds: float
    proved: bool
    value: str
    gap: float
    method: str
    witness_bytes: int
    check_s: float
    check_ok: bool
    peers: dict[str, tuple[bool, float, int]]


def cases(families: Sequence[str], seeds: Sequence[int]) -> Iterator[Case]:
    """Every instance of the families."""
    if "grid" in families:
        for name, rails, sizes in grid(seeds):
            yield Case("grid", name, sizes, {"rails": rails}, 1.0 if rails <= 8 else 10.0)
    if "classes" in families:
        for name, rails, sizes in franca_frangioni(seeds):
            yield Case("classes", name, sizes, {"rails": rails}, 1.0)
    if "lawrinenko" in families:
        for name, rails, sizes in lawrinenko(seeds):
            yield Case("lawrinenko", name, sizes, {"rails": rails}, 10.0)
    if "unequal" in families:
        for name, speeds, sizes in unequal(seeds):
            limit_s = 1.0 if len(speeds) <= 8 else 10.0
            yield Case("unequal", name, sizes, {"speeds": speeds}, limit_s)


def cpu() -> float:
    """CPU seconds of this process and of those it has waited for (CBC is a program of its own)."""
    return time.process_time() + sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])


def timed(call: Callable[[], T], quick_s: float = 0.1, repeats: int = 3) -> tuple[float, T]:
    """(CPU seconds, result) of a call; quick ones, ours and the peers' alike, are repeated and the
    fastest counts.
    """
    fastest = math.inf
    for _ in range(repeats):
        start = cpu()
        result = call()
        fastest = min(fastest, cpu() - start)
        if fastest > quick_s:
            break
    return fastest, result


def measure(case: Case, peers: Sequence[str], peer_limit_s: float) -> Result:
    """Solve, check the certificate with the checker, then let the peers solve the same instance."""
    seconds, outcome = timed(
        lambda: solve_local(case.sizes, **case.shape, limit_s=case.limit_s, clock=time.process_time)
    )
    record = outcome.certificate().as_dict()
    check_s, verdict = timed(lambda: check_certificate(record), 2.0)
    assert verdict.ok or "refused" in verdict.message, (case.name, verdict)
    others = {}
    for peer in peers:
        took, (proved, value) = timed(
            lambda peer=peer: PEERS[peer](case.sizes, case.rails, peer_limit_s)
        )  # type: ignore[misc]
        others[peer] = (proved, took, value)
        assert not (proved and outcome.closed and value != outcome.value), (
            case.name,
            peer,
            value,
            outcome.value,
        )
        assert not proved or value >= outcome.bound, (case.name, peer, value, outcome.bound)
    size = len(json.dumps(outcome.witness, separators=(",", ":")))
    proved = outcome.closed and verdict.ok and seconds <= case.limit_s
    return Result(
        case.family,
        case.name,
        case.rails,
        seconds,
        proved,
        str(outcome.value),
        float(outcome.value / outcome.bound - 1),
        outcome.searched.by,
        size,
        check_s,
        verdict.ok,
        others,
    )


def warm_up(peers: Iterable[str]) -> None:
    """Compile every kernel and import every peer before anything is timed."""
    for peer in peers:
        PEERS[peer](np.array([7, 6, 5, 4, 3]), 2, 10.0)
    for rails, ratio, family in (
        (8, 5.0, "u4"),
        (8, 5.0, "moe-cut"),
        (8, 10.0, "moe-cut"),
        (16, 3.0, "u4"),
        (8, 5.0, "u6"),
        (16, 10.0, "u6"),
        (16, 5.0, "u4"),
    ):
        solve_local(instance(rails, ratio, family, 99), rails, limit_s=60)
    solve_local(instance(4, 5.0, "u4", 99), speeds=[4, 4, 2, 4], limit_s=60)


def geometric_mean(ratios: Iterable[float]) -> float:
    values = list(ratios)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def goals(results: list[Result], peers: Iterable[str]) -> Iterator[Row]:
    """The rows of the report; those without an instance are left out."""
    on_grid = [r for r in results if r.family == "grid"]
    yield from share("N <= 8: proved within 1 s", [r for r in on_grid if r.rails <= 8], 100)
    yield from share("N = 16: proved within 10 s", [r for r in on_grid if r.rails > 8], 98)
    yield from cheap(
        "proofs with a witness <= 1 KiB checked in <= 0.5 s", [r for r in on_grid if r.proved], 99
    )
    if on_grid:
        yield Row("median time", 1e3 * float(np.median([r.seconds for r in on_grid])), "ms")
    for family, peer in product(COMPARED, peers):
        mine = [r for r in results if r.family == family and peer in r.peers]
        yield from compared(f"{family}, {peer}", peer, mine)
    yield from share(
        "Franca/Frangioni U and NU: proved within 1 s",
        [r for r in results if r.family == "classes"],
        100,
    )
    yield from share(
        "Lawrinenko, 2 to 3 jobs a rail: proved within 10 s",
        [r for r in results if r.family == "lawrinenko"],
        98,
    )
    slanted = [r for r in results if r.family == "unequal"]
    few, many = [r for r in slanted if r.rails <= 8], [r for r in slanted if r.rails > 8]
    yield from share("unequal rails, N <= 8: proved within 1 s", few, 98)
    yield from share("unequal rails, N = 16: proved within 10 s", many, 90)
    yield from cheap(
        "unequal rails: witness <= 1 KiB, checked in <= 0.5 s",
        [r for r in slanted if r.proved],
        99,
    )
    yield Row(
        "peak memory",
        resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
        "MiB",
        at_most=2048,
    )


def share(name: str, results: list[Result], goal: float | None) -> Iterator[Row]:
    """How many of these are proved."""
    if results:
        proved = sum(r.proved for r in results)
        yield Row(
            name,
            100 * proved / len(results),
            "%",
            at_least=goal,
            note=f"{proved} of {len(results)}",
        )


def cheap(name: str, proofs: list[Result], goal: float | None) -> Iterator[Row]:
    """How many of these proofs are short and quick to check."""
    if proofs:
        good = sum(r.witness_bytes <= 1024 and r.check_s <= 0.5 for r in proofs)
        yield Row(
            name, 100 * good / len(proofs), "%", at_least=goal, note=f"{good} of {len(proofs)}"
        )


def compared(title: str, peer: str, results: list[Result]) -> Iterator[Row]:
    """One peer on the instances that it was given."""
    both = [r for r in results if r.proved and r.peers[peer][0]]
    only = [r.name for r in results if not r.proved and r.peers[peer][0]]
    if results:
        proved = sum(r.peers[peer][0] for r in results)
        yield Row(
            f"{title}: proved",
            100 * proved / len(results),
            "%",
            note=f"{proved} of {len(results)}, we {sum(r.proved for r in results)}",
        )
        yield Row(
            f"{title}: its time over ours where both prove",
            geometric_mean(r.peers[peer][1] / r.seconds for r in both),
            "x",
            at_least=150 if title == "grid, cpsat" else None,
            note=f"{len(both)} instances",
        )
        yield Row(
            f"{title}: proved by it, not by us", len(only), "", at_most=0, note=", ".join(only)[:60]
        )


def parsed(argv: list[str] | None) -> argparse.Namespace:
    args = parser("solver_bench", __doc__).parse_args(argv)
    if args.quick:
        args.seeds, args.peer_limit, args.families = 1, 2.0, ["grid"]
    return args


def main(argv: list[str] | None = None) -> int:
    args = parsed(argv)
    names = [name for name in args.peers if not missing(name)]
    for name in set(args.peers) - set(names):
        print(f"  {name} is not installed here and is left out", file=sys.stderr)
    seeds = drawn_seeds(args.seed, args.seeds)
    chosen = [case for case in cases(args.families, seeds) if args.only in case.name]
    if not chosen:
        return 0
    seen = [c for c in chosen if c.family in COMPARED and c.name.endswith(f"#{seeds[0]}")]
    peers_see = {case.name for case in seen[:: args.peers_every or PEERS_EVERY]}
    warm_up(names)
    results = []
    for case in args.shard.of(chosen):
        against = names if case.name in peers_see else []
        results.append(show(measure(case, against, args.peer_limit)))
    rows = list(goals(results, names))
    if args.json:
        data: dict[str, Any] = {
            "machine": platform.machine(),
            "rows": [{**asdict(row), "met": row.met} for row in rows],
            "instances": [asdict(r) for r in results],
        }
        print(json.dumps(data, indent=1))
        return 0
    for row in rows:
        verdict = {True: "met", False: "MISSED", None: ""}[row.met]
        print(
            f"  {row.name:<58} {row.value:>10.4g} {row.unit:<4} {row.goal:>7}  {verdict:<7} "
            f"{row.note}"
        )
    return 0


def show(result: Result) -> Result:
    """On stderr, what was not proved or is dear to check."""
    if (
        not result.proved
        or not result.check_ok
        or result.check_s > 0.5
        or result.witness_bytes > 1024
    ):
        state = "proved" if result.proved else f"open, gap {result.gap:.1e}"
        print(
            f"  {result.name:<28} {state}, {result.seconds:.2f} s, {result.method}; check "
            f"{result.check_s:.2f} s, "
            f"{result.witness_bytes} B{'' if result.check_ok else ', refused by the checker'}",
            file=sys.stderr,
        )
    return result


if __name__ == "__main__":
    sys.exit(main())
