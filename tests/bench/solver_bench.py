"""`python -m tests.bench.solver_bench`: the local solver against its goals, with plain CP-SAT (and more) in the same run.

Times are CPU seconds of a single thread, so that a busy machine does not decide what is proved; ratios are geometric
means over the instances that both prove.  `--quick` takes one seed and a 2 s limit for the peers.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from railopt.check import check_certificate
from railopt.solver.local import solve_local
from tests.bench import Row
from tests.bench.solver_instances import Ints, franca_frangioni, grid, instance

T = TypeVar("T")


@dataclass(frozen=True)
class Result:
    """One instance: what we proved and how, how dear the proof is to check, and what each peer did."""

    name: str
    rails: int
    seconds: float
    proved: bool
    value: int
    gap: float
    method: str
    witness_bytes: int
    check_s: float
    check_ok: bool
    peers: dict[str, tuple[bool, float, int]]


def timed(call: Callable[[], T], quick_s: float = 0.1, repeats: int = 3) -> tuple[float, T]:
    """(CPU seconds, result) of a call; quick ones, ours and the peers' alike, are repeated and the fastest counts."""
    fastest = math.inf
    for _ in range(repeats):
        start = time.process_time()
        result = call()
        fastest = min(fastest, time.process_time() - start)
        if fastest > quick_s:
            break
    return fastest, result


def measure(name: str, rails: int, sizes: Ints, limit_s: float, peers: dict[str, Peer], peer_limit_s: float) -> Result:
    """Solve, check the certificate with the kernel, then let the peers solve the same instance."""
    seconds, outcome = timed(lambda: solve_local(sizes, rails, limit_s=limit_s, clock=time.process_time))
    record = outcome.certificate(sizes, rails=rails).record()
    start = time.process_time()
    verdict = check_certificate(record)
    check_s = time.process_time() - start
    assert verdict.ok or "refused" in verdict.message, (name, verdict)
    others = {}
    for peer, solve in peers.items():
        took, (proved, value) = timed(lambda solve=solve: solve(sizes, rails, peer_limit_s))  # type: ignore[misc]
        others[peer] = (proved, took, value)
        assert not (proved and outcome.closed and value != outcome.value), (name, peer, value, outcome.value)
        assert not proved or value >= outcome.bound, (name, peer, value, outcome.bound)
    size = len(json.dumps(outcome.witness, separators=(",", ":")))
    return Result(name, rails, seconds, outcome.closed and seconds <= 1.05 * limit_s, int(outcome.value),
                  float(outcome.value / outcome.bound - 1), outcome.method, size, check_s, verdict.ok, others)


Peer = Callable[[Ints, int, float], tuple[bool, int]]


def cpsat(sizes: Ints, rails: int, limit_s: float) -> tuple[bool, int]:
    """The plain model: x[job, rail], exactly one rail a job, minimise the largest load; (proved, value)."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    top = model.new_int_var(0, int(sizes.sum()), "top")
    place = [[model.new_bool_var("") for _ in range(rails)] for _ in sizes]
    for row in place:
        model.add_exactly_one(row)
    for rail in range(rails):
        model.add(sum(int(size) * row[rail] for size, row in zip(sizes, place, strict=True)) <= top)
    model.minimize(top)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers, solver.parameters.max_time_in_seconds = 1, limit_s
    status = solver.solve(model)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return False, int(sizes.sum())
    loads = [sum(int(size) * solver.value(row[rail]) for size, row in zip(sizes, place, strict=True)) for rail in range(rails)]
    return status == cp_model.OPTIMAL, max(loads)


def highs(sizes: Ints, rails: int, limit_s: float) -> tuple[bool, int]:
    """The same model through scipy's `milp`."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    n = len(sizes)
    job, rail = np.repeat(np.arange(n), rails), np.tile(np.arange(rails), n)
    once = coo_array((np.ones(n * rails), (job, np.arange(n * rails))), shape=(n, n * rails + 1))
    rows, columns = np.append(rail, np.arange(rails)), np.append(np.arange(n * rails), np.full(rails, n * rails))
    load = coo_array((np.append(sizes[job].astype(float), -np.ones(rails)), (rows, columns)), shape=(rails, n * rails + 1))
    cost = np.append(np.zeros(n * rails), 1.0)
    answer = milp(cost, constraints=[LinearConstraint(once.tocsr(), 1, 1), LinearConstraint(load.tocsr(), -np.inf, 0)],
                  integrality=np.append(np.ones(n * rails), 0), bounds=Bounds(0, np.append(np.ones(n * rails), np.inf)),
                  options={"time_limit": limit_s, "mip_rel_gap": 0.0})
    if answer.x is None:
        return False, int(sizes.sum())
    chosen = answer.x[:-1].reshape(n, rails).argmax(axis=1)
    return answer.status == 0, max(int(sizes[chosen == r].sum()) for r in range(rails))


PEERS: dict[str, Peer] = {"cpsat": cpsat, "highs": highs}


def warm_up() -> None:
    """Compile every kernel before anything is timed."""
    for rails, ratio, family in ((8, 5.0, "u4"), (8, 5.0, "moe-cut"), (8, 10.0, "moe-cut"), (16, 3.0, "u4"), (8, 5.0, "u6"),
                                 (16, 10.0, "u6")):
        solve_local(instance(rails, ratio, family, 99), rails, limit_s=60)


def geometric_mean(ratios: Iterable[float]) -> float:
    values = list(ratios)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def goals(results: list[Result], classes: list[Result], peers: Iterable[str]) -> Iterator[Row]:
    """The rows of the report."""
    small, large = [r for r in results if r.rails <= 8], [r for r in results if r.rails > 8]
    yield Row("N <= 8: proved within 1 s", share(small), "%", at_least=100, note=f"{len(small)} instances")
    yield Row("N = 16: proved within 10 s", share(large), "%", at_least=97, note=f"{len(large)} instances")
    proofs = [r for r in results if r.proved]
    cheap = [r.check_ok and r.witness_bytes <= 1024 and r.check_s <= 0.5 for r in proofs]
    yield Row("proofs with a witness <= 1 KiB checked in <= 0.5 s", 100 * sum(cheap) / max(1, len(cheap)), "%", at_least=99,
              note=f"{sum(cheap)} of {len(cheap)}")
    yield Row("median time", 1e3 * float(np.median([r.seconds for r in results])), "ms")
    for peer in peers:
        both = [r for r in results if r.proved and r.peers[peer][0]]
        only = [r.name for r in results if not r.proved and r.peers[peer][0]]
        ratio = geometric_mean(r.peers[peer][1] / r.seconds for r in both)
        proved = 100 * sum(r.peers[peer][0] for r in results) / max(1, len(results))
        yield Row(f"{peer}: proved", proved, "%")
        yield Row(f"{peer}: its time over ours where both prove", ratio, "x", at_least=150 if peer == "cpsat" else None,
                  note=f"{len(both)} instances")
        yield Row(f"{peer}: proved by it, not by us", len(only), "", at_most=0, note=", ".join(only)[:60])
    if classes:
        yield Row("Franca/Frangioni U and NU: proved within 1 s", share(classes), "%", at_least=99, note=f"{len(classes)} instances")
    yield Row("peak memory", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, "MiB", at_most=2048)


def share(results: list[Result]) -> float:
    return 100 * sum(r.proved for r in results) / max(1, len(results))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.solver_bench", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="seeds of each cell (default 3)")
    parser.add_argument("--peers", default="cpsat", help=f"comma-separated, of {', '.join(PEERS)}; seed 0 only (default cpsat)")
    parser.add_argument("--peer-limit", type=float, default=10.0, help="seconds that a peer has (default 10)")
    parser.add_argument("--quick", action="store_true", help="one seed, 2 s for the peers, no Franca/Frangioni classes")
    parser.add_argument("--json", action="store_true", help="print every instance and row as JSON")
    args = parser.parse_args()
    names = [name for name in args.peers.split(",") if name]
    warm_up()
    results, classes = [], []
    for name, rails, sizes in grid(range(1 if args.quick else args.seeds)):
        peers = {peer: PEERS[peer] for peer in names} if name.endswith("#0") else {}
        limit = 1.0 if rails <= 8 else 10.0
        results.append(show(measure(name, rails, sizes, limit, peers, 2.0 if args.quick else args.peer_limit)))
    for name, rails, sizes in franca_frangioni(range(0 if args.quick else args.seeds)):
        classes.append(show(measure(name, rails, sizes, 1.0, {}, 0.0)))
    compared = [r for r in results if r.peers]
    rows = [*goals(results, classes, ()), *(row for row in goals(compared, [], names) if any(row.name.startswith(n) for n in names))]
    if args.json:
        data: dict[str, Any] = {"machine": platform.machine(), "rows": [{**asdict(row), "met": row.met} for row in rows],
                                "instances": [asdict(r) for r in results + classes]}
        print(json.dumps(data, indent=1))
        return 0
    for row in rows:
        verdict = {True: "met", False: "MISSED", None: ""}[row.met]
        print(f"  {row.name:<58} {row.value:>10.4g} {row.unit:<4} {row.goal:>7}  {verdict:<7} {row.note}")
    return 0


def show(result: Result) -> Result:
    """On stderr, what was not proved or is dear to check."""
    if not result.proved or not result.check_ok or result.check_s > 0.5 or result.witness_bytes > 1024:
        state = "proved" if result.proved else f"open, gap {result.gap:.1e}"
        print(f"  {result.name:<28} {state}, {result.seconds:.2f} s, {result.method}; check {result.check_s:.2f} s, "
              f"{result.witness_bytes} B{'' if result.check_ok else ', refused by the kernel'}", file=sys.stderr)
    return result


if __name__ == "__main__":
    sys.exit(main())
