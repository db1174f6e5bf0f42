"""What policies that see their own row reach: worst cases by search, means on generated traffic.

python -m tests.bench.locality --seed 640213
"""

from __future__ import annotations

import argparse
from fractions import Fraction
from itertools import product
from statistics import fmean

import numpy as np

from railopt import Fabric, plan
from railopt.evidence.bounds import lower_bound
from railopt.model import workloads
from railopt.model.traffic import Traffic
from railopt.symbolic.search.oracle import run_side_by_side
from railopt.symbolic.statements.locality import lower

POLICIES = ("rotate", "lpt-local", "even-excess")


def worst(policy: str, nodes: int, rails: int) -> int:
    """The most chunks that a rail gets, over all traffic of `rails` unit chunks at most to node 0,
    of which another plan puts one on each rail.
    """
    every = [
        counts for counts in product(range(rails + 1), repeat=nodes - 1) if 0 < sum(counts) <= rails
    ]
    instances = [
        tuple((k, 0, 1) for k, count in enumerate(counts, 1) for _ in range(count))
        for counts in every
    ]
    return int(run_side_by_side(instances, nodes, rails, policy).recv.max())


def worst_of_gpus(nodes: int, rails: int) -> Fraction:
    """`even-excess` on one unit from GPU 0 of as many nodes as there are rails."""
    fabric = Fabric.uniform(nodes, rails, "1B/s")
    matrix = np.zeros((nodes * rails, nodes * rails), np.int64)
    for k in range(1, min(nodes - 1, rails) + 1):
        matrix[k * rails, 0] = 1
    return plan(fabric, Traffic.from_matrix(matrix, fabric).chunks(1), "even-excess").makespan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, required=True)
    seed = parser.parse_args().seed
    for rails, nodes in ((2, 4), (3, 4), (3, 8), (4, 4), (4, 6), (8, 4)):
        found = [worst(policy, nodes, rails) for policy in POLICIES[:2]]
        print(f"N {rails} M {nodes}: any rule >= {lower(rails, nodes - 1)}", *found, end=" ")
        print(worst_of_gpus(nodes, rails))
    for nodes, cap in product((4, 8, 16), ("4MiB", "1MiB", "256KiB")):
        fabric, ratios = Fabric.uniform(nodes, 8), dict[str, list[float]]()
        for kind, i in product(("moe:skew=0.8", "zipf:skew=1"), range(4)):
            spec = f"{kind},seed={seed + i}"
            chunks = workloads.from_spec(spec, fabric).chunks(cap)
            bound = lower_bound(fabric, chunks).value
            for policy in POLICIES:
                ratio = float(plan(fabric, chunks, policy).makespan / bound)
                ratios.setdefault(policy, []).append(ratio)
        print(
            f"{nodes} x 8, {cap}:", *(f"{p} {fmean(r):.4f} {max(r):.3f}" for p, r in ratios.items())
        )


if __name__ == "__main__":
    main()
