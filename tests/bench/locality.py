"""What rules that see their own row reach: worst cases by enumeration, means on generated traffic.

A rule of `RULES` takes the chunks of each sender largest first.  "deal" puts those of a pair on the
rails in the pair's own order; "local" is `lpt-local` whose ties go by that order.  The orders:

    turn     upwards from rail (src + dst) mod N, as `rotate` and `lpt-local`
    classes  T18b's: the rails of the pair's class upwards, then the others downwards
    ends     T18d's for more nodes: from spread rails, in turn upwards and downwards

python -m tests.bench.locality
python -m tests.bench.locality --seed 640213
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import combinations_with_replacement, permutations, product
from math import comb
from statistics import fmean

import numpy as np
from ortools.sat.python import cp_model

from railopt import Fabric, plan
from railopt.base.arrays import Ints
from railopt.evidence.bounds import lower_bound
from railopt.model import workloads
from railopt.model.chunks import Chunks
from railopt.model.plan import Plan
from railopt.model.traffic import Traffic
from railopt.policies import POLICIES, Policy
from railopt.policies.common import Columns
from railopt.policies.longest_first import PAIR_WEIGHT
from railopt.policies.rounds import left_by_rounds
from railopt.symbolic.statements.locality import lower, worst_load

MOST_ROWS = 800  # of a sender, where all rows are tried
Order = Callable[[int, int, int, int], list[int]]


# the rails of a pair (k, f), the first one first
def turn(nodes: int, rails: int, k: int, f: int) -> list[int]:
    return [(k + f + i) % rails for i in range(rails)]


def classes(nodes: int, rails: int, k: int, f: int) -> list[int]:
    r = next(r for r in range(1, nodes + 1) if r * (r + 1) >= nodes - 1)
    own = (k - f - 1) % nodes % (r + 1)
    up = list(range(own, rails, r + 1))
    others = sorted(
        set(range(rails)) - set(up), key=lambda n: (-(n // (r + 1)), (n - own) % (r + 1))
    )
    return up + others


def ends(nodes: int, rails: int, k: int, f: int) -> list[int]:
    pair, down = divmod((f - k - 1) % nodes, 2)
    start = pair * rails // (nodes // 2)
    return [(start - 1 - i if down else start + i) % rails for i in range(rails)]


def ruled(fabric: Fabric, chunks: Chunks, order: Order, local: bool) -> Plan:
    """The plan of a rule on equal NICs; whole rounds of largest chunks as in `lpt-local`."""
    nodes, rails = fabric.nodes, fabric.rails
    orders = {pair: order(nodes, rails, *pair) for pair in permutations(range(nodes), 2)}
    out, mine = np.zeros((nodes, rails), np.int64), np.zeros((nodes, nodes, rails), np.int64)
    rail, dealt = np.empty(len(chunks), np.int16), Counter[tuple[int, int]]()
    left = left_by_rounds(Columns.of(chunks), nodes, nodes, np.arange(rails), rail)
    for c in left[np.argsort(-chunks.size[left], kind="stable")].tolist():
        k, f = pair = int(chunks.src[c]), int(chunks.dst[c])
        if local:
            score = (out[k] + PAIR_WEIGHT * mine[k, f])[orders[pair]]
            rail[c] = orders[pair][int(np.argmin(score))]
        else:
            rail[c] = orders[pair][dealt[pair] % rails]
        dealt[pair] += 1
        out[k, rail[c]] += chunks.size[c]
        mine[k, f, rail[c]] += chunks.size[c]
    return Plan(fabric, chunks, rail)


RULES: dict[str, Policy] = {
    "rotate": POLICIES["rotate"],
    "lpt-local": POLICIES["lpt-local"],
    "lpt-dealt": POLICIES["lpt-dealt"],
    **{
        f"{kind} {order.__name__}": partial(ruled, order=order, local=kind == "local")
        for kind in ("deal", "local")
        for order in (turn, classes, ends)
        if (kind, order) != ("local", turn)
    },
}


def sent(rule: Policy, rails: int, counts: Ints) -> Plan:
    """The plan of unit chunks, int64 [nodes, nodes], by sender and then by receiver."""
    src, dst = (np.repeat(end, counts[counts > 0]) for end in np.nonzero(counts))
    chunks = Chunks.from_arrays(src=src, dst=dst, size=np.ones_like(src), nodes=len(counts))
    return rule(Fabric.uniform(len(counts), rails, "1B/s"), chunks)


def carried(plan: Plan) -> Ints:
    """int64 [senders, receivers, rails]: chunks."""
    nodes = plan.fabric.nodes
    found = np.zeros((nodes, nodes, plan.fabric.rails), np.int64)
    np.add.at(found, (plan.chunks.src, plan.chunks.dst, plan.rail), 1)
    return found


def worst_to_one(rule: Policy, nodes: int, rails: int) -> int:
    """The most chunks that a rail gets, over all traffic of `rails` unit chunks at most to one
    node: of each sender alone, then of all choices of senders.
    """
    worst = 0
    for f in range(nodes):
        rows = {}
        for b in range(1, rails + 1):
            counts = np.zeros((nodes, nodes), np.int64)
            counts[:, f], counts[f, f] = b, 0
            rows[b] = carried(sent(rule, rails, counts))[:, f].tolist()
        rules = [{b: tuple(rows[b][k]) for b in rows} for k in range(nodes) if k != f]
        worst = max(worst, worst_load(rules, rails))
    return worst


def worst_of_all(rule: Policy, nodes: int, rails: int) -> int | None:
    """The same over all traffic of which no node sends or receives more than `rails` chunks; None
    where a sender has too many rows to try.
    """
    if comb(nodes - 1 + rails, rails) > MOST_ROWS:
        return None
    shifted = (np.arange(nodes)[:, None] + np.arange(1, nodes)) % nodes  # [sender, step]
    found, columns = [], []
    for b in range(1, rails + 1):
        for steps in combinations_with_replacement(range(nodes - 1), b):
            counts = np.zeros((nodes, nodes), np.int64)
            to = np.bincount(steps, minlength=nodes - 1)
            np.put_along_axis(counts, shifted, np.tile(to, (nodes, 1)), axis=1)
            found.append(carried(sent(rule, rails, counts)))
            columns.append(counts)
    loads, asked = np.array(found), np.array(columns)  # [rows, senders, receivers(, rails)]
    worst = int(loads.sum(axis=2).max())  # of a sender
    for f, n in product(range(nodes), range(rails)):
        while rows := _rows(loads[:, :, f, n], asked, rails, worst + 1):
            counts = np.zeros((nodes, nodes), np.int64)
            for row, k in rows:
                counts[k] = asked[row, k]
            assert carried(sent(rule, rails, counts))[:, f, n].sum() > worst
            worst += 1
    return worst


def _rows(gained: Ints, asked: Ints, rails: int, least: int) -> list[tuple[int, int]]:
    """(row, sender), one of each sender at most, that gain `least` within the columns; or none."""
    model = cp_model.CpModel()
    chosen = {(row, k): model.new_bool_var("") for row, k in np.argwhere(gained).tolist()}
    for k in range(asked.shape[1]):
        model.add_at_most_one(x for (_, sender), x in chosen.items() if sender == k)
    for f in range(asked.shape[2]):
        model.add(sum(int(asked[row, k, f]) * x for (row, k), x in chosen.items()) <= rails)
    model.add(sum(int(gained[at]) * x for at, x in chosen.items()) >= least)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return []
    return [at for at, x in chosen.items() if solver.value(x)]


def worst_of_gpus(nodes: int, rails: int) -> Fraction:
    """`even-excess` on one unit from GPU 0 of as many nodes as there are rails."""
    fabric = Fabric.uniform(nodes, rails, "1B/s")
    matrix = np.zeros((nodes * rails, nodes * rails), np.int64)
    for k in range(1, min(nodes - 1, rails) + 1):
        matrix[k * rails, 0] = 1
    return plan(fabric, Traffic.from_matrix(matrix, fabric).chunks(1), "even-excess").makespan


def on_traffic(nodes: int, cap: str, seed: int) -> dict[str, list[float]]:
    """Time over the lower bound of each rule, on eight draws."""
    fabric, ratios = Fabric.uniform(nodes, 8), dict[str, list[float]]()
    for kind, i in product(("moe:skew=0.8", "zipf:skew=1"), range(4)):
        chunks = workloads.from_spec(f"{kind},seed={seed + i}", fabric).chunks(cap)
        bound = lower_bound(fabric, chunks).value
        for name, rule in {**RULES, "even-excess": POLICIES["even-excess"]}.items():
            ratios.setdefault(name, []).append(float(rule(fabric, chunks).makespan / bound))
    return ratios


def on_equal_chunks(nodes: int, mean: float, seed: int) -> dict[str, list[float]]:
    """Time over the optimum (T8) on eight rails, forty draws of Poisson numbers of unit chunks."""
    rng, ratios = np.random.default_rng(seed), dict[str, list[float]]()
    for _ in range(40):
        counts = rng.poisson(mean, (nodes, nodes))
        np.fill_diagonal(counts, 0)
        best = max(-(-int(counts.sum(axis=side).max()) // 8) for side in (0, 1))
        for name, rule in RULES.items():
            if best:
                ratios.setdefault(name, []).append(float(sent(rule, 8, counts).makespan) / best)
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, help="of generated traffic; without it the worst cases")
    parser.add_argument("--chunk", default="4MiB,1MiB,256KiB")
    seed, caps = vars(parser.parse_args()).values()
    if seed is None:
        print("N M any rule", *RULES, "even-excess", sep=" | ")
        for rails, nodes in product((2, 3, 4, 6, 8), (3, 4, 6, 7, 8, 13, 16)):
            found = [
                f"{worst_to_one(rule, nodes, rails)} {worst_of_all(rule, nodes, rails) or '-'}"
                for rule in RULES.values()
            ]
            found += [str(worst_of_gpus(nodes, rails))]
            print(rails, nodes, lower(rails, nodes - 1), *found, sep=" | ", flush=True)
        return
    for nodes in (3, 4, 6, 8, 16):
        found = {cap: on_traffic(nodes, cap, seed) for cap in caps.split(",")}
        found |= {f"{mean} per pair": on_equal_chunks(nodes, mean, seed) for mean in (0.5, 2, 8)}
        for what, ratios in found.items():
            said = (f"{name} {fmean(r):.4f} {max(r):.4f}" for name, r in ratios.items())
            print(f"{nodes} x 8, {what}:", *said, sep=" | ", flush=True)


if __name__ == "__main__":
    main()
