"""T5 and T6: one sender's chunks on N equal rails.  C is the plan's largest load, OPT the best
possible one.

T5    list scheduling, any order       N C <= sum + (N-1) p_max        tight: N(N-1) ones, then N
T6    largest first (LPT)              3 N C <= (4 N - 1) OPT          tight: 2N-1, 2N-1, ..., N+1,
      N+1, N, N, N
T6b   a posteriori                     N C <= sum + (N-1) p_last       p_last: the smallest chunk of
      the fullest rail
T6d   a posteriori, by count           k N C <= ((k+1) N - 1) OPT      k chunks on the fullest rail;
      tight, k >= 3: T6's family and (k-3) N chunks of N
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import sympy as sp

from railopt.symbolic.algebra import is_zero
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.oracle import Sizes, best_local, greedy, lpt_plan, multisets

N = sp.Symbol("N", positive=True, integer=True)


def list_family(rails: int) -> Sizes:
    """N(N-1) ones, then one chunk of N: in this order list scheduling ends at 2N - 1, the best is
    N.
    """
    return (1,) * (rails * (rails - 1)) + (rails,)


def list_family_tight(quick: bool = False, *, largest_first: bool = False) -> Result:
    """T5a: the family meets T5's bound, for all N symbolically, and by running it."""
    total, largest, ends = N * (N - 1) + N, N, 2 * N - 1
    failures = (
        []
        if is_zero(N * ends - total - (N - 1) * largest)
        else ["the family does not meet the bound"]
    )
    for rails in range(2, 12 if quick else 24):
        sizes = tuple(sorted(list_family(rails), reverse=largest_first))
        if greedy(sizes, rails) != 2 * rails - 1:
            failures.append(f"N = {rails}: list scheduling ends at {greedy(sizes, rails)}")
    return verdict(
        "symbolic",
        "all N; run for N < 12" if quick else "all N; run for N < 24",
        failures,
        ("the large chunk comes last",),
    )


# ---------------------------------------------------------------- T6
def critical(instances: Sequence[Sizes], rails: int) -> Iterator[tuple[Sizes, int, int, int]]:
    """(sizes, C, most chunks on a fullest rail, smallest chunk of that rail) of railopt's `lpt` for
    each instance.
    """
    plan = lpt_plan(instances, rails)
    rail, send = plan.rail.tolist(), plan.send.tolist()
    start = 0
    for sizes, loads in zip(instances, send, strict=False):
        mine = rail[start : start + len(sizes)]
        start += len(sizes)
        fullest = [
            [p for p, r in zip(sizes, mine, strict=True) if r == n]
            for n in range(rails)
            if loads[n] == max(loads)
        ]
        chosen = max(fullest, key=len)
        yield sizes, max(loads), len(chosen), min(chosen)


def lpt_instances(quick: bool) -> Iterator[tuple[int, list[Sizes]]]:
    """(N, every multiset up to the size of Graham's family and beyond)."""
    yield 2, list(multisets(6 if quick else 8, 5))
    yield 3, list(multisets(7 if quick else 9, 5))
    if not quick:
        yield 4, list(multisets(9, 7, fewest=8))


LPT_RANGE = {
    True: "N = 2, 3, up to 7 chunks of 1..5",
    False: "N = 2, 3 up to 9 chunks of 1..5; N = 4, 8 and 9 chunks of 1..7",
}


def lpt_ratio(
    quick: bool = False, *, numerator: Any = 4 * N - 1, denominator: Any = 3 * N, sort: bool = True
) -> Result:
    """T6 for every multiset up to a size, railopt's `lpt` against brute force."""
    failures: list[str] = []
    attained: dict[int, Sizes] = {}
    for rails, instances in lpt_instances(quick):
        top, bottom = int(numerator.subs(N, rails)), int(denominator.subs(N, rails))
        values = (
            [max(row) for row in lpt_plan(instances, rails).send.tolist()]
            if sort
            else [greedy(s[::-1], rails) for s in instances]
        )
        for sizes, value in zip(instances, values, strict=False):
            floor = max(-(-sum(sizes) // rails), max(sizes))  # only these can come near the ratio
            if bottom * value < top * floor:
                continue
            best = best_local(sizes, rails)
            if bottom * value > top * best:
                failures.append(f"N = {rails}, {sizes}: {value} against {best}")
            elif bottom * value == top * best:
                attained.setdefault(rails, sizes)
    found = "attained by " + "; ".join(f"N = {rails}: {sizes}" for rails, sizes in attained.items())
    return verdict(
        "exhaustive", LPT_RANGE[quick], failures, ("largest chunk first", "equal rails"), found
    )


def graham_family(rails: int) -> Sizes:
    """2N-1, 2N-1, ..., N+1, N+1, N, N, N: `lpt` ends at 4N - 1, the best is 3N."""
    return (
        *(size for size in range(2 * rails - 1, rails, -1) for _ in range(2)),
        rails,
        rails,
        rails,
    )


def graham_best(rails: int) -> list[int]:
    """A rail for each chunk of the family so that every rail carries 3N: 2N-1 with N+1, ..., and N
    + N + N.
    """
    sizes, assignment = graham_family(rails), [-1] * (2 * rails + 1)
    for j in range(rails - 1):
        assignment[j] = j
        assignment[2 * rails - 3 - j] = j
        assert sizes[j] + sizes[2 * rails - 3 - j] == 3 * rails
    return [rails - 1 if rail < 0 else rail for rail in assignment]


def _loads(sizes: Sizes, assignment: Sequence[int], rails: int) -> list[int]:
    """What each rail carries."""
    loads = [0] * rails
    for size, rail in zip(sizes, assignment, strict=True):
        loads[rail] += size
    return loads


def graham_family_run(quick: bool = False, *, sort: bool = True) -> Result:
    """T6a by running: railopt's `lpt` ends at 4N - 1, and the committed best assignment carries 3N
    on every rail.
    """
    most, failures = 16 if quick else 64, []
    for rails in range(2, most + 1):
        sizes = graham_family(rails)
        value = int(lpt_plan([sizes], rails).send.max()) if sort else greedy(sizes[::-1], rails)
        best = np.bincount(graham_best(rails), minlength=rails)
        loads = _loads(sizes, graham_best(rails), rails)
        if value != 4 * rails - 1 or set(loads) != {3 * rails} or best.min() < 2:
            failures.append(f"N = {rails}: lpt {value}, best {max(loads)}")
    return verdict("exhaustive", f"N = 2..{most}", failures, ("largest chunk first",))


def posterior(quick: bool = False, *, smallest: bool = True) -> Result:
    """T6b: N C <= sum + (N-1) p_last for every multiset up to a size; `smallest=False` uses p_last
    - 1.
    """
    failures = [
        f"N = {rails}, {sizes}: {value}"
        for rails, instances in lpt_instances(quick)
        for sizes, value, _, last in critical(instances, rails)
        if rails * value > sum(sizes) + (rails - 1) * (last - (not smallest))
    ]
    return verdict("exhaustive", LPT_RANGE[quick], failures, ("largest chunk first",))


def posterior_general(quick: bool = False, *, waits: bool = True) -> Result:
    """T6b for all N: when the fullest rail got its last chunk, no rail was below C - p_last, and
    they carried at most sum - p_last.

    N (C - p) + slack = sum - p  with slack >= 0  is  N C + slack = sum + (N-1) p.
    """
    C, p, slack, total = sp.symbols("C p slack total", nonnegative=True)
    bytes_before = total - p if waits else total
    identity = (N * (C - p) + slack - bytes_before) - (N * C + slack - total - (N - 1) * p)
    return verdict(
        "symbolic",
        "all N, sizes",
        [] if is_zero(identity) else ["the two forms differ"],
        (
            "greedy: the chunk went to a least loaded rail",
            "largest first: the last chunk of a rail is its smallest",
        ),
    )


def posterior_sharper(quick: bool = False, *, more: int = 0) -> Result:
    """T6d: k N C <= ((k+1) N - 1) OPT for every multiset up to a size; `more` counts chunks that
    are not there.
    """
    failures = []
    for rails, instances in lpt_instances(quick):
        for sizes, value, k, _ in critical(instances, rails):
            top, bottom = (k + more + 1) * rails - 1, (k + more) * rails
            if bottom * value > top * max(-(-sum(sizes) // rails), max(sizes)):
                best = best_local(sizes, rails)
                if bottom * value > top * best:
                    failures.append(f"N = {rails}, {sizes}: {value} against {best} with {k} chunks")
    return verdict("exhaustive", LPT_RANGE[quick], failures, ("largest chunk first",))


def posterior_attained(quick: bool = False, *, rounds_more: int = 0) -> Result:
    """T6e by running: with (k-3) N more chunks of N, one per rail in the best plan, that carries
    kN; `lpt` ends at (k+1) N - 1 with k chunks on its fullest rail.
    """
    most, failures = 6 if quick else 12, []
    for rails in range(2, most + 1):
        for k in range(3, most + 1):
            rounds = k - 3 + rounds_more
            sizes = (*graham_family(rails), *(rails,) * (rounds * rails))
            best = [*graham_best(rails), *list(range(rails)) * rounds]
            carried = _loads(sizes, best, rails)
            ((_, value, count, _),) = critical([sizes], rails)
            if set(carried) != {k * rails} or (value, count) != ((k + 1) * rails - 1, k):
                failures.append(f"N = {rails}, k = {k}: lpt {value}, best {max(carried)}")
    return verdict(
        "exhaustive", f"N = 2..{most}, k = 3..{most}", failures, ("largest chunk first",)
    )
