"""One after the other, or together: placement, then the best split over its copies, against both
chosen at once, on small layers whose joint optimum OR-Tools finds.

python -m experiments.joint_gap.run [--full] [--out DIR]
"""

from __future__ import annotations

import sys
from fractions import Fraction
from itertools import product
from math import lcm
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from experiments.common import arguments, figure, finish, goal
from experiments.pro_prophet_common import trace
from railopt.base.arrays import Bools, Floats, Ints
from railopt.base.dice import Dice, falling
from railopt.base.extras import need
from railopt.base.tables import table
from railopt.model.fabric import Fabric
from railopt.moe.found_placement import FoundPlacement, find_placement, split_over
from railopt.moe.joint import Demand, layer_program
from railopt.moe.placement.replicate import rebalance


class Optimum(NamedTuple):
    """The fastest placement and split that OR-Tools found, evaluated here in fractions.

    time     seconds;  holds  bool [node, expert];  flow  int64 [node, expert, node] tokens
    claimed  whether it says that nothing is faster, which proves nothing
    """

    time: Fraction
    holds: Bools
    flow: Ints
    claimed: bool


def time_of(demand: Demand, flow: Ints) -> Fraction:
    """Seconds of the busiest node's NICs, for flow int [node, expert, node] of whole tokens."""
    between = flow.sum(axis=1)
    np.fill_diagonal(between, 0)
    ends = [*zip(between.sum(axis=1), demand.tx, strict=True)]
    ends += zip(between.sum(axis=0), demand.rx, strict=True)
    return max(Fraction(int(n) * demand.token_bytes, int(rate)) for n, rate in ends)


def optimum(demand: Demand, holds: Bools | None = None, limit_s: float = 20.0) -> Optimum:
    """The fastest placement in the slots and split of whole tokens, or split alone over the copies
    `holds` [node, expert]; rates above 0.
    """
    need("ortools", "the joint optimum of a layer")
    from ortools.sat.python import cp_model

    model, (nodes, experts) = cp_model.CpModel(), demand.tokens.shape
    held = np.empty((nodes, experts), object)
    for b, e in product(range(nodes), range(experts)):
        held[b, e] = model.new_bool_var("") if holds is None else int(holds[b, e])
    flow = np.empty((nodes, experts, nodes), object)
    for a, e in product(range(nodes), range(experts)):
        most = int(demand.tokens[a, e])
        for b in range(nodes):
            flow[a, e, b] = model.new_int_var(0, most, "")
            model.add(flow[a, e, b] <= most * held[b, e])
        model.add(sum(flow[a, e]) == most)
    if holds is None:
        for b in range(nodes):
            model.add(sum(held[b]) <= int(demand.slots[b]))
        for e in range(experts):
            model.add(sum(held[:, e]) >= 1)
    # time in units in which every node's time per token is whole
    unit = lcm(*demand.tx.tolist(), *demand.rx.tolist())
    slowest = int(min(demand.tx.min(), demand.rx.min()))
    time = model.new_int_var(0, int(demand.tokens.sum()) * unit // slowest, "")
    for a in range(nodes):
        others = [b for b in range(nodes) if b != a]
        model.add(int(unit // demand.tx[a]) * flow[a][:, others].sum() <= time)
        model.add(int(unit // demand.rx[a]) * flow[others, :, a].sum() <= time)
    model.minimize(time)
    solver = cp_model.CpSolver()
    solver.parameters.max_time_in_seconds = limit_s
    solver.parameters.num_workers = 1
    status = solver.solve(model)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    tokens = np.vectorize(solver.value, otypes=[np.int64])(flow)
    found = np.vectorize(solver.value, otypes=[np.bool_])(held) if holds is None else holds
    return Optimum(time_of(demand, tokens), found, tokens, status == cp_model.OPTIMAL)


def in_whole_tokens(demand: Demand, bound: Fraction) -> Fraction:
    """The least time, not below the bound, that whole tokens take on some node's NICs."""
    rates = {int(rate) for rate in (*demand.tx, *demand.rx)}
    per_token = [Fraction(demand.token_bytes, rate) for rate in rates]
    return min(-(-bound // each) * each for each in per_token)


def drawn(dice: Dice, spec: dict[str, Any]) -> Demand:
    """Zipf popularity, nodes that differ, one slot or a few more than the experts need."""
    nodes, experts, skew, spare = (
        spec[name][int(dice.below(len(spec[name]))[0])]
        for name in ("nodes", "experts", "skews", "spare")
    )
    popular = falling(experts, skew)[dice.permutation(experts)]
    seen = [dice.dirichlet(spec["alike"] * popular / popular.sum() + 1e-3) for _ in range(nodes)]
    shares = np.rint(np.stack(seen) * 2.0**30).astype(np.int64) + 1
    rate, slots = np.full(nodes, spec["rate"]), np.full(nodes, -(-experts // nodes) + spare)
    return Demand(dice.counts(shares, spec["tokens"]), slots, rate, rate, spec["token_bytes"])


def by_load(demand: Demand) -> Bools:
    """bool [node, expert]: as many copies as there are slots, by load alone, as EPLB does."""
    nodes, experts = demand.tokens.shape
    replicas = min(int(demand.slots.sum()), nodes * experts)
    placed = rebalance(demand.tokens.sum(axis=0)[None], replicas, 1, 1, nodes)[0][0]
    holds = np.zeros((nodes, experts), np.bool_)
    holds[np.arange(replicas) // (replicas // nodes), placed] = True
    return holds


def measured(dice: Dice, spec: dict[str, Any]) -> dict[str, Any]:
    demand = drawn(dice, spec)
    together = optimum(demand)
    placed = by_load(demand)
    assert (placed.sum(axis=1) <= demand.slots).all()
    apart, bound = optimum(demand, placed), in_whole_tokens(demand, demand.bound(demand.prices()))
    assert bound <= together.time <= apart.time
    nodes, experts = demand.tokens.shape
    return {
        "nodes": nodes,
        "experts": experts,
        "slots": int(demand.slots[0]),
        "claimed": together.claimed and apart.claimed,
        "bound": float(bound / together.time) if together.time else 1.0,
        "apart": float(apart.time / together.time) if together.time else None,
    }


def near_optimum(demand: Demand, held: Floats) -> FoundPlacement:
    """The best placement found: by descent from `held`, and by HiGHS on the bound's own program
    with whole experts, which may stop early.
    """
    upper, limits, equal, sums, highest = layer_program(demand)
    cells, last = demand.tokens.size, len(highest) - 1
    whole = np.zeros(len(highest))
    whole[2 * cells : last] = 1
    made = milp(
        np.arange(len(highest)) == last,
        constraints=[LinearConstraint(upper, -np.inf, limits), LinearConstraint(equal, sums, sums)],
        integrality=whole,
        bounds=Bounds(0, highest),
        options={"node_limit": 500, "mip_rel_gap": 0.02},
    )
    found = [find_placement(demand, held)]
    if made.x is not None:
        chosen = made.x[2 * cells : last].reshape(demand.tokens.shape) > 0.5
        found.append(split_over(demand, chosen))
    return min(found, key=lambda each: each.seconds(demand))


def on_trace(name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Some layers of a trace's last step: the bound, and the best found, of both directions."""
    nodes, gpus = spec["shapes"][name.split("-")[0]]
    fabric, given = Fabric.uniform(nodes, gpus, gpus=gpus), trace(name)
    slots = -(-given.experts // (nodes * gpus)) + 1
    total, quick, best = Fraction(0), Fraction(0), Fraction(0)
    for layer in range(0, len(given.layers), spec["every"]):
        demand = Demand.of(fabric, given.counts[-1, layer].astype(np.int64), slots, 1024)
        relaxed = demand.relaxed()
        total += demand.bound(relaxed.prices)
        quick += find_placement(demand, relaxed.held).seconds(demand)
        best += near_optimum(demand, relaxed.held).seconds(demand)
    assert total <= best <= quick
    return {
        "trace": name,
        "descent": float(total / quick) if quick else 1.0,
        "best": float(total / best) if best else 1.0,
    }


def show_traces(rows: list[dict[str, Any]]) -> None:
    table(
        ["trace", "bound / descent", "bound / best found"],
        [[row["trace"], f"{row['descent']:.1%}", f"{row['best']:.1%}"] for row in rows],
        title="committed traces, last step: the bound over placements that were found",
    )


def show(rows: list[dict[str, Any]]) -> None:
    """By nodes and slots: how far apart is from together, and the bound from together."""
    lines = []
    for nodes, slots in sorted({(row["nodes"], row["slots"]) for row in rows}):
        mine = [row for row in rows if (row["nodes"], row["slots"]) == (nodes, slots)]
        ratio = [row["apart"] for row in mine if row["apart"] is not None]
        bound = [row["bound"] for row in mine]
        lines.append(
            [
                nodes,
                slots,
                len(mine),
                f"{np.mean(ratio):.2f}" if ratio else "-",
                f"{max(ratio):.2f}" if ratio else "-",
                f"{np.mean(bound):.1%}",
                f"{min(bound):.1%}",
            ]
        )
    columns = ["nodes", "slots", "layers", "apart / together", "most", "bound / together", "least"]
    table(
        columns, lines, title="dispatch: placement by load, then the best split; and both at once"
    )


def drawing(rows: list[dict[str, Any]]) -> Any:
    def draw(made: Any) -> None:
        axis = made.subplots()
        axis.plot(sorted(row["apart"] for row in rows if row["apart"] is not None))
        axis.set_xlabel("layers, by rising distance")
        axis.set_ylabel("time one after the other / together")

    return draw


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    rows = [measured(Dice(seed, "joint gap"), spec) for seed in range(*spec["seeds"])]
    show(rows)
    traces = [on_trace(name, spec) for name in spec["traces"]]
    show_traces(traces)
    figure(Path(args.out) / "apart.svg", drawing(rows), 6, 4)
    ratios = [row["apart"] for row in rows if row["apart"] is not None]
    own = [
        goal(expected, "one after the other over together, mean", float(np.mean(ratios))),
        goal(
            expected,
            "share of layers whose bound is within 10 %",
            float(np.mean([row["bound"] >= 1 / 1.1 for row in rows])),
        ),
        goal(
            expected,
            "share of committed traces whose bound is within 10 % of the best found",
            float(np.mean([row["best"] >= 1 / 1.1 for row in traces])),
        ),
        goal(
            expected,
            "share of layers that OR-Tools calls optimal",
            float(np.mean([row["claimed"] for row in rows])),
        ),
    ]
    return finish(folder, args, [*rows, *traces], [], own)


if __name__ == "__main__":
    sys.exit(main())
