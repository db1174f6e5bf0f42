"""The gap of per-sender LPT to the certified optimum of the all-to-all, by chunk size: table,
figure, results.json.

python -m experiments.lpt_gap.run            24 instances a chunk size, a minute
python -m experiments.lpt_gap.run --full     160 instances a chunk size
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import railopt
from experiments.common import arguments, finish, goal
from railopt import Chunks, Fabric, Plan, plan
from railopt.base.dice import Dice, falling
from railopt.base.kernels import kernel
from railopt.base.units import parse_bytes
from railopt.report.gaps import gap_against_chunk
from railopt.report.saving import save_figure

COLUMNS = ("lpt", "lpt, random labels", "lpt, receive ties", "lpt-local", "lpt-global", "bracket")


def messages(
    nodes: int, rails: int, skew: float, seed: int, spec: dict[str, Any]
) -> tuple[Any, Any, Any]:
    """(source GPU, target GPU, bytes) of every message between nodes: one a (source node, expert).

    There are nodes * rails experts, dealt over the nodes at random; popularity falls as rank **
    -skew.
    """
    dice = Dice(seed, nodes, rails, int(10 * skew), "lpt_gap")
    experts = nodes * rails
    home = dice.permutation(experts) % nodes
    slot = np.zeros(experts, np.int64)
    for node in range(nodes):
        slot[home == node] = np.arange(rails)
    noise = dice.gamma(spec["jitter"], (nodes, experts)) / spec["jitter"]
    seen = np.rint(falling(experts, skew) * noise * 2.0**30).astype(np.int64) + 1
    tokens = dice.counts(seen, rails * spec["tokens"] * spec["top_k"])
    source, expert = np.nonzero(tokens * (home[None, :] != np.arange(nodes)[:, None]))
    size = tokens[source, expert] * parse_bytes(spec["hidden"])
    return source * rails + slot[expert], home[expert] * rails + slot[expert], size


@kernel
def _receive_ties(
    order: npt.NDArray[Any],
    src: npt.NDArray[Any],
    dst: npt.NDArray[Any],
    size: npt.NDArray[Any],
    nodes: int,
    rails: int,
    rail: npt.NDArray[Any],
) -> None:
    send, recv = np.zeros((nodes, rails), np.int64), np.zeros((nodes, rails), np.int64)
    for c in order:
        k, f, best = src[c], dst[c], 0
        for n in range(1, rails):
            if send[k, n] < send[k, best] or (
                send[k, n] == send[k, best] and recv[f, n] < recv[f, best]
            ):
                best = n
        rail[c] = best
        send[k, best] += size[c]
        recv[f, best] += size[c]


def receive_ties(fabric: Fabric, chunks: Chunks) -> Plan:
    """LPT on what is sent; among equally loaded rails the one on which the receiver has least."""
    rail = np.empty(len(chunks), np.int16)
    order = np.argsort(-chunks.size, kind="stable")
    _receive_ties(order, chunks.src, chunks.dst, chunks.size, fabric.nodes, fabric.rails, rail)
    return Plan.of(fabric, chunks, rail, "lpt, receive ties")


def instance(fabric: Fabric, chunks: Chunks, seed: int, limit_s: float) -> dict[str, Any]:
    """Gaps in % over the certified bound; which side of `lpt` is the worse one; how the bound was
    settled.
    """
    plans = {
        "lpt": plan(fabric, chunks, "lpt"),
        "lpt, random labels": plan(fabric, chunks, "lpt", seed=seed),
        "lpt, receive ties": receive_ties(fabric, chunks),
        "lpt-local": plan(fabric, chunks, "lpt-local"),
        "lpt-global": plan(fabric, chunks, "lpt-global"),
    }
    outcome = railopt.solve(
        fabric, chunks, limit_s, seed=seed, start=min(plans.values(), key=lambda p: p.makespan)
    )
    gaps = {name: float(made.makespan / outcome.bound - 1) * 100 for name, made in plans.items()}
    lpt = plans["lpt"]
    return {
        **gaps,
        "bracket": float(outcome.gap) * 100,
        "optimum": str(outcome.optimum),
        "chunks": len(chunks),
        "receive_is_worse": lpt.side_time("recv") > lpt.side_time("send"),
        "seconds": round(outcome.time_s, 4),
    }


def instances(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    rails = spec["rails"]
    for cap in spec["chunks"]:
        for nodes in spec["nodes"]:
            fabric = Fabric.uniform(nodes, rails)
            for skew in spec["skews"]:
                for seed in range(spec["seeds"]):
                    src, dst, sizes = messages(nodes, rails, skew, seed, spec)
                    chunks = Chunks.from_flows(
                        nodes, rails, src, dst, sizes, None if cap == "flow" else parse_bytes(cap)
                    )
                    yield {
                        "chunk": cap,
                        "nodes": nodes,
                        "skew": skew,
                        "seed": seed,
                        **instance(fabric, chunks, seed, spec["limit_s"]),
                    }


def summary(rows: list[dict[str, Any]], caps: list[str]) -> dict[str, Any]:
    """By chunk size: median, 90th percentile and maximum of each column, and the share where
    receiving is worse.
    """
    table = {}
    for cap in caps:
        mine = [row for row in rows if row["chunk"] == cap]
        if mine:
            gaps = {name: [row[name] for row in mine] for name in COLUMNS}
            table[cap] = {
                "instances": len(mine),
                "proved": sum(row["optimum"] == "known" for row in mine),
                "receive_is_worse": sum(row["receive_is_worse"] for row in mine) / len(mine),
                **{
                    name: [float(np.percentile(values, q)) for q in (50, 90, 100)]
                    for name, values in gaps.items()
                },
            }
    return table


def show(table: dict[str, Any]) -> None:
    print(
        f"{'chunk':>7} {'n':>4} {'proved':>6} {'recv %':>6}  "
        + "  ".join(f"{name:>22}" for name in COLUMNS)
    )
    for cap, row in table.items():
        cells = ["/".join(f"{v:.3g}" for v in row[name]) for name in COLUMNS]
        head = (
            f"{cap:>7} {row['instances']:>4} {row['proved']:>6} "
            f"{100 * row['receive_is_worse']:>6.1f}"
        )
        print("  ".join([head, *(f"{cell:>22}" for cell in cells)]))
    print("gaps in % above the certified bound: median/p90/max")


def again(table: dict[str, Any], expected: dict[str, Any]) -> list[dict[str, Any]]:
    """The figures of an earlier run, and goals, beside this run's: "CHUNK COLUMN median|max", or
    the least share where receiving is worse.
    """
    ours = {
        "receiving is the worse side, least share": min(
            row["receive_is_worse"] for row in table.values()
        )
    }
    for cap, row in table.items():
        for name in COLUMNS:
            ours |= {
                f"{cap} {name} {which}": row[name][i] for which, i in (("median", 0), ("max", 2))
            }
    return [goal(expected, name, ours[name]) for name in expected["own"]]


def figure(rows: list[dict[str, Any]], table: dict[str, Any], out: Path) -> None:
    caps = [cap for cap in table if cap != "flow"]
    lines = {
        name: [(parse_bytes(cap), table[cap][name][0]) for cap in caps] for name in COLUMNS[:-1]
    }
    lines["best plan (bracket)"] = [(parse_bytes(cap), table[cap]["bracket"][0]) for cap in caps]
    spread = {
        name: [
            (
                parse_bytes(cap),
                *np.percentile([r[name] for r in rows if r["chunk"] == cap], (10, 90)),
            )
            for cap in caps
        ]
        for name in ("lpt",)
    }
    save_figure(
        gap_against_chunk(
            lines, "median gap to the certified bound; band: 10 to 90 % of lpt", spread
        ),
        out,
        force=True,
    )


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    rows: list[dict[str, Any]] = []
    for row in instances(spec):
        rows.append(row)
        if sys.stderr.isatty():
            print(
                f"\r\x1b[K{len(rows)} instances, {row['chunk']} {row['nodes']} nodes",
                end="",
                file=sys.stderr,
            )
    table = summary(rows, spec["chunks"])
    show(table)
    Path(args.out).mkdir(parents=True, exist_ok=True)
    figure(rows, table, Path(args.out) / "gap.svg")
    compared = again(table, expected["full" if args.full else "small"])
    return finish(folder, args, [{"table": table}, *rows], [], compared)


if __name__ == "__main__":
    sys.exit(main())
