"""The coupled solver against its goals and against plain integer programs, on seeded instances.

`make bench-solver` runs it after the local solver's part; `python -m tests.bench.solver_coupled
--shard 2/4` takes a quarter.

Times are CPU seconds of one thread, so that a busy machine does not decide what is proved; the
peers' limits are wall-clock.

small   4 to 16 nodes, 4 and 8 rails, 1 to 4 chunks a pair, sizes uniform in 1..100 or MoE tokens:
        how many are proved within 10 s, by railopt and (not with --quick; of the first seed) by the
        plain program in CP-SAT and HiGHS, one thread each
moe     one MoE dispatch, 4 to 128 nodes, caps of 64 KiB to 4 MiB, up to 1.1 million chunks: the
        certified bracket (best value over bound), and the time until it is at most 0.05 %, as a
        multiple of `lpt` alone
worn    the same dispatch and matrices of bytes, 4 and 16 nodes, with one slow, one dead, and 10 %
        slow NICs: how many are proved or bracketed within a millionth in 2 s; with a quarter of the
        NICs dead or at a quarter, half or three quarters of their speed: how many are proved or
        bracketed within one token of 8 KiB (or one byte) on a NIC of full speed
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple, TypeVar

import numpy as np

from railopt import Chunks, Fabric, Outcome, plan, workloads
from railopt.solver.coupled.race import Race
from railopt.solver.coupled.solve import run_race, solve
from railopt.solver.program.backends import BACKENDS
from tests.bench import Row, drawn_seeds
from tests.bench.solver_options import WHOLE, Shard, parser

LIMIT_S = 10.0
BRACKET = Fraction(5, 10_000)
TIMES_LPT = 20
WORN_S, WORN_BRACKET = 2.0, Fraction(1, 1_000_000)
KIB, MIB = 1 << 10, 1 << 20
T = TypeVar("T")


class Chosen(NamedTuple):
    """What is measured: what has `only` in its name, and of that a shard."""

    only: str = ""
    shard: Shard = WHOLE

    def of(self, named: Iterable[tuple[str, T]]) -> list[tuple[str, T]]:
        return self.shard.of([(name, item) for name, item in named if self.only in name])


ALL = Chosen()


def small(seeds: Iterable[int]) -> Iterator[tuple[str, tuple[Fabric, Chunks]]]:
    """(name, (fabric, chunks)) of the small family: 48 of each seed."""
    for nodes, rails, each, kind, seed in product(
        (4, 8, 16), (4, 8), (1, 2, 3, 4), ("uniform", "tokens"), seeds
    ):
        rng = np.random.default_rng([seed, nodes, rails, each, kind == "tokens"])
        src, dst = (np.repeat(ends, each) for ends in np.nonzero(~np.eye(nodes, dtype=bool)))
        if kind == "uniform":
            size = rng.integers(1, 101, len(src))
        else:
            popular = rng.permutation(np.arange(1, nodes * each + 1) ** -0.8).reshape(nodes, each)
            share = popular[dst, np.tile(np.arange(each), len(src) // each)] * rng.gamma(
                4.0, 0.25, len(src)
            )
            size = np.maximum(1, rng.poisson(64 * share / share.mean()))
        chunks = Chunks.from_arrays(src=src, dst=dst, size=size, nodes=nodes)
        yield f"{nodes}x{rails}x{each} {kind} {seed}", (Fabric.uniform(nodes, rails), chunks)


def moe(nodes: int, skew: float, cap: int, seed: int, rails: int = 8) -> Chunks:
    """One dispatch: 4096 tokens of 8 KiB a GPU to 2 of nodes * rails experts each; one message a
    (source node, expert).
    """
    rng = np.random.default_rng([seed, nodes, rails, int(10 * skew)])
    experts = nodes * rails
    home = rng.permutation(experts) % nodes
    popular = np.arange(1, experts + 1) ** -skew * rng.gamma(4.0, 0.25, (nodes, experts))
    tokens = np.stack([rng.multinomial(rails * 4096 * 2, row / row.sum()) for row in popular])
    source, expert = np.nonzero(tokens * (home[None, :] != np.arange(nodes)[:, None]))
    sizes = tokens[source, expert] * 8 * KIB
    pieces = -(-sizes // cap)
    size = np.full(int(pieces.sum()), cap)
    size[np.cumsum(pieces) - 1] = sizes - (pieces - 1) * cap
    return Chunks.from_arrays(
        src=np.repeat(source, pieces), dst=np.repeat(home[expert], pieces), size=size, nodes=nodes
    )


def _cpu_of_children(call: Callable[[], Outcome]) -> tuple[Outcome, float]:
    """(answer, CPU seconds of the processes that were started for it)."""
    began = resource.getrusage(resource.RUSAGE_CHILDREN)
    answer = call()
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return answer, ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime


def small_rows(
    seeds: Sequence[int],
    peers: Sequence[str] = (),
    limit_s: float = LIMIT_S,
    chosen: Chosen = ALL,
    peers_every: int = 1,
) -> Iterator[Row]:
    """What we prove, and what the peers do on instances of the first seed."""
    cases = chosen.of(small(seeds))
    if not cases:
        return
    first = [name for name, _ in cases if name.endswith(f" {seeds[0]}")]
    peers_see = set(first[::peers_every])
    one = Fabric.uniform(2, 2), Chunks.from_arrays(src=[0], dst=[1], size=[1], nodes=2)
    start = {peer: _cpu_of_children(lambda: solve(*one, limit_s, peer))[1] for peer in peers}  # noqa: B023
    ratios: dict[str, list[float]] = {peer: [] for peer in peers}
    proved: dict[str, list[bool]] = {name: [] for name in ("native", *peers)}
    times, settled = [], 0
    solve(*cases[0][1], 1.0)
    for name, (fabric, chunks) in cases:
        ours = run_race(Race(fabric, chunks, LIMIT_S, clock=time.process_time))
        times.append(ours.time_s)  # without the compilation of kernels on a first run
        proved["native"].append(ours.optimal)
        settled += ours.optimum in ("known", "claimed")
        if not ours.optimal:
            print(f"  not proved: {name}: {ours}", file=sys.stderr, flush=True)
        for peer in peers if name in peers_see else ():
            theirs, spent = _cpu_of_children(lambda: solve(fabric, chunks, limit_s, peer))  # noqa: B023
            optimal = theirs.status in ("known", "claimed")
            proved[peer].append(optimal)
            if optimal and ours.optimal:
                ratios[peer].append(max(spent - start[peer], 1e-3) / max(times[-1], 1e-6))
            if optimal and theirs.value != ours.value:
                print(f"  {peer} differs: {name}: {theirs} / {ours}", file=sys.stderr, flush=True)
    share = 100 / len(cases)
    yield Row(
        f"coupled small: proved of {len(cases)} within {LIMIT_S:g} s",
        share * sum(proved["native"]),
        "%",
        at_least=100,
    )
    yield Row(
        "coupled small: proved, or optimal on CP-SAT's word", share * settled, "%", at_least=100
    )
    yield Row("coupled small: median CPU time", 1000 * float(np.median(times)), "ms")
    for peer in peers:
        yield Row(
            f"coupled small: {peer}, plain program, {limit_s:g} s wall, 1 thread",
            100 * float(np.mean(proved[peer] or [False])),
            "%",
            note=f"{sum(proved[peer])} of {len(proved[peer])}",
        )
        if ratios[peer]:
            yield Row(
                f"coupled small: CPU of {peer} over ours where both prove",
                float(np.exp(np.mean(np.log(ratios[peer])))),
                "x",
                note=f"geometric mean of {len(ratios[peer])}, the start of its process taken off",
            )


def moe_rows(nodes: tuple[int, ...], seeds: Iterable[int], chosen: Chosen = ALL) -> Iterator[Row]:
    """The bracket of one dispatch, and the time that it takes."""
    solve(Fabric.uniform(4, 8), moe(4, 0.0, 4 * MIB, 99), 2.0)
    worst: list[float] = []
    slower: list[bool] = []
    cells = product((4 * MIB, MIB, 256 * KIB, 64 * KIB), nodes)
    named = ((f"coupled MoE {cap // KIB:>4} KiB, {n:>3} nodes", (cap, n)) for cap, n in cells)
    for name, (cap, count) in chosen.of(named):
        measured = [
            _bracket(count, skew, cap, seed) for skew, seed in product((0.0, 0.5, 0.8, 1.2), seeds)
        ]
        chunks, brackets, ratios, times = zip(*measured, strict=True)
        worst += brackets
        slower += [ratio > TIMES_LPT for ratio in ratios]
        label = f"{name}, {max(chunks):>7} chunks"
        yield Row(
            f"{label}: largest bracket", 100 * max(brackets), "%", at_most=100 * float(BRACKET)
        )
        yield Row(
            f"{label}: time over lpt, largest",
            max(ratios),
            "x",
            at_most=TIMES_LPT,
            note=f"median {np.median(ratios):.1f}x, largest {1000 * max(times):.2f} ms",
        )
    if not worst:
        return
    yield Row(
        f"coupled MoE: largest bracket of all {len(worst)}",
        100 * max(worst),
        "%",
        at_most=100 * float(BRACKET),
    )
    yield Row(
        f"coupled MoE: within {TIMES_LPT} times lpt's time",
        100 - 100 * float(np.mean(slower)),
        "%",
        at_least=100,
        note=f"{len(slower) - sum(slower)} of {len(slower)}",
    )


def _bracket(nodes: int, skew: float, cap: int, seed: int) -> tuple[int, float, float, float]:
    """(chunks, bracket, solve time over lpt time, solve time), CPU seconds of the fastest of a few
    runs each.

    Both are one process and one thread; CPU time, since a wall clock on a busy machine charges the
    longer run for others.
    """
    fabric, chunks = Fabric.uniform(nodes, 8), moe(nodes, skew, cap, seed)
    alone: list[float] = []
    ours: list[float] = []
    gap = Fraction(0)
    for _ in range(7):
        began = time.process_time()
        plan(fabric, chunks, "lpt")
        alone.append(time.process_time() - began)
        if ours and max(ours) > 1:
            continue
        began = time.process_time()
        clock = time.process_time
        outcome = run_race(Race(fabric, chunks, LIMIT_S, tolerance=BRACKET, clock=clock))
        ours.append(time.process_time() - began)
        gap = outcome.gap
    return len(chunks), float(gap), min(ours) / min(alone), min(ours)


WORN = {  # the part of all NICs, at least one, and the speeds that are drawn for them
    "one slow": (0.0, ["0.5"]),
    "one dead": (0.0, ["0"]),
    "10 % slow": (0.1, ["0.5"]),
    "a quarter worn": (0.25, ["0", "0.25", "0.5", "0.75"]),
}


def worn(fabric: Fabric, kind: str, seed: int) -> Fabric:
    """The fabric with some of its NICs slow or dead."""
    (part, speeds), nics = WORN[kind], fabric.nodes * fabric.rails
    rng = np.random.default_rng([seed, fabric.nodes, 5])
    drawn = rng.choice(nics, max(1, int(nics * part)), replace=False).tolist()
    chosen = rng.choice(speeds, len(drawn)).tolist()
    return fabric.degraded(
        {divmod(nic, fabric.rails): speed for nic, speed in zip(drawn, chosen, strict=True)}
    )


def worn_rows(seeds: Iterable[int], chosen: Chosen = ALL) -> Iterator[Row]:
    """What is proved or bracketed closely where NICs are slow or dead."""
    caps = (4 * MIB, MIB, 256 * KIB, 64 * KIB)
    # without what loads modules and compiles on a first run
    solve(worn(Fabric.uniform(4, 8), "a quarter worn", 0), moe(4, 0.0, 4 * MIB, 99), 10.0)
    cells = product(("dispatch", "bytes"), (4, 16), WORN)
    named = (
        (f"coupled {family}, {n} nodes, {kind}", (family, n, kind)) for family, n, kind in cells
    )
    for name, (family, nodes, kind) in chosen.of(named):
        widest, met, proved, total = Fraction(0), 0, 0, 0
        for cap, seed in product(caps, seeds):
            fabric = worn(Fabric.uniform(nodes, 8), kind, seed)
            chunks = (
                moe(nodes, (0.0, 0.5, 0.8, 1.2)[seed % 4], cap, seed)
                if family == "dispatch"
                else workloads.zipf(fabric, seed=seed).chunks(cap)
            )
            clock = time.process_time
            many = kind == "a quarter worn"
            aim = Fraction(0) if many else WORN_BRACKET
            found = run_race(Race(fabric, chunks, WORN_S, tolerance=aim, clock=clock))
            assert found.value is not None
            widest, total, proved = max(widest, found.gap), total + 1, proved + found.optimal
            unit = Fraction(int(np.gcd.reduce(chunks.size)), int(fabric.tx.max()))
            met += found.value - found.bound <= unit if many else found.gap <= aim
        within = "one token or byte" if many else "1e-6"
        yield Row(
            f"{name}: within {within} in {WORN_S:g} s",
            100 * met / total,
            "%",
            at_least=100,
            note=f"{met} of {total}, {proved} proved, widest bracket {float(widest):.2e}",
        )


def rows(args: argparse.Namespace) -> Iterator[Row]:
    """Every row that is asked for."""
    seeds = drawn_seeds(args.seed, 1 if args.quick else args.seeds)
    chosen = Chosen(args.only, args.shard)
    if "small" in args.families:
        peers = [] if args.quick else [name for name in args.peers if name in BACKENDS]
        yield from small_rows(seeds, peers, args.peer_limit, chosen, args.peers_every or 1)
    if "moe" in args.families:
        yield from moe_rows((4, 8, 16, 32, 64, 128), seeds, chosen)
    if "worn" in args.families:
        yield from worn_rows(seeds, chosen)


def main(argv: list[str] | None = None) -> int:
    args = parser("solver_coupled", __doc__).parse_args(argv)
    data: list[dict[str, Any]] = []
    for row in rows(args):
        data.append({**asdict(row), "met": row.met})
        if not args.json:
            verdict = {True: "met", False: "MISSED", None: ""}[row.met]
            print(
                f"  {row.name:<62} {row.value:>12.4g} {row.unit:<8} {row.goal:>10}  {verdict:<7} "
                f"{row.note}",
                flush=True,
            )
    if args.json:
        print(json.dumps(data, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
