"""The flow-level simulator beside packet-level figures for the same demand matrices.

    python experiments/rails_packet_level/run.py [--full] [--out DIR]

Hash collisions are a distribution: rows with ECMP are the median over seeds.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.common import arguments, figure, finish, goal
from experiments.rails_packet_level import peer
from railopt import POLICIES, Chunks, Fabric, Plan, Traffic, plan
from railopt.base.dice import falling
from railopt.base.units import parse_bytes
from railopt.model.workloads import traffic_from
from railopt.sim import Assumptions, simulate
from railopt.sim.assumptions import ROCE_INCAST

PACKETS = Assumptions.packets()


def micros(what: Plan | Traffic, assumed: Assumptions = PACKETS, **options: Any) -> float:
    """Completion in microseconds."""
    return simulate(what, assumptions=assumed, **options).completion_ps / 1e6


def median(traffic: Traffic, fabric: Fabric, seeds: int, assumed: Assumptions = PACKETS) -> float:
    """Of per-flow ECMP, over the hash's seeds."""
    return float(
        np.median(
            [
                micros(traffic, assumed, fabric=fabric, balancer="ecmp", seed=seed)
                for seed in range(seeds)
            ]
        )
    )


def even_split(fabric: Fabric, traffic: Traffic) -> Plan:
    """Every (node, node) cut into one equal piece a rail."""
    src, dst = (np.repeat(ends, fabric.rails) for ends in np.nonzero(traffic.node_matrix))
    rail = np.tile(np.arange(fabric.rails), len(src) // fabric.rails)
    size = np.maximum((traffic.node_matrix[src, dst] + rail) // fabric.rails, 1)
    return Plan(
        fabric,
        Chunks.from_arrays(src=src, dst=dst, size=size, nodes=fabric.nodes),
        rail,
        "even split",
    )


def one_to_one(fabric: Fabric, size: int, shift: int) -> Traffic:
    """GPU (k, r) to GPU (k + 1, r + shift)."""
    count = fabric.nodes * fabric.gpus
    node, local = np.divmod(np.arange(count), fabric.gpus)
    matrix = np.zeros((count, count), np.int64)
    matrix[
        np.arange(count), (node + 1) % fabric.nodes * fabric.gpus + (local + shift) % fabric.gpus
    ] = size
    return Traffic(matrix, fabric.nodes)


def demand(fabric: Fabric, skew: float, spec: dict[str, Any]) -> Traffic:
    """The very demand of the packet-level runs: receivers' popularity rank ** -skew, a mean of
    `mean` bytes a pair, each pair's bytes times 0.5 to 1.5 by a raw word of PCG64.
    """
    count = fabric.nodes * fabric.gpus
    popularity = falling(count, skew)[spec["ranks"]]
    raw = np.random.PCG64(spec["demand_seed"]).random_raw(spec["words_skipped"] + count * count)
    varied = 0.5 + (raw[-count * count :] >> np.uint64(11)) * 2.0**-53
    matrix = popularity / popularity.mean() * varied.reshape(count, count)
    matrix = np.rint(matrix * parse_bytes(spec["mean"])).astype(np.int64)
    np.fill_diagonal(matrix, 0)
    return Traffic.from_matrix(matrix, fabric)


def measure(spec: dict[str, Any]) -> dict[str, float]:
    """Our microseconds by row."""
    fabric = Fabric.uniform(spec["nodes"], spec["rails"])
    rows: dict[str, float] = {}
    for skew in (0.6, 0.0):
        traffic = demand(fabric, skew, spec)
        name, flows = f"zipf {skew:g}", traffic.chunks("flow")
        rows[f"{name}, dst-rail (PXN)"] = micros(plan(fabric, flows, "pxn"))
        rows[f"{name}, src-rail (own NIC)"] = micros(plan(fabric, flows, "own-nic"))
        rows[f"{name}, even split"] = micros(even_split(fabric, traffic))
        rows[f"{name}, direct ECMP"] = median(traffic, fabric, spec["seeds"])
        rows[f"{name}, direct spray"] = micros(traffic, fabric=fabric, balancer="spray")
    rows["zipf 0, RoCE+PFC direct ECMP"] = median(
        traffic, fabric, spec["seeds"], Assumptions.packets(incast=ROCE_INCAST)
    )
    size = parse_bytes(spec["stage"])
    across = one_to_one(fabric, size, 1)
    rows["one-to-one, same rail"] = micros(one_to_one(fabric, size, 0), fabric=fabric)
    rows["one-to-one across rails, ECMP"] = median(across, fabric, spec["seeds"])
    rows["one-to-one across rails, spray"] = micros(across, fabric=fabric, balancer="spray")
    rows["one-to-one across rails, REPS"] = micros(across, fabric=fabric, balancer="reps")
    return rows


def planned(fabric: Fabric, expected: dict[str, Any]) -> dict[str, float]:
    """Our microseconds of the planned runs: "TRAFFIC CHUNK: POLICY" in expected.json."""
    found = {}
    for name in expected["own"]:
        text, _, policy = name.rpartition(": ")
        if policy in POLICIES:
            traffic, chunk = text.split()
            chunks = traffic_from(traffic, fabric).chunks(chunk)
            found[name] = micros(plan(fabric, chunks, policy))
    return found


def planned_together(rows: dict[str, float], expected: dict[str, Any]) -> list[dict[str, Any]]:
    """What the planned runs say together: how far from htsim, and LPT beside the own NIC."""
    off = [100 * abs(us / expected["own"][name]["expected"] - 1) for name, us in rows.items()]
    lpt = [
        rows[name] / rows[name.replace(": lpt", ": own-nic")]
        for name in rows
        if name.startswith("moe:") and name.endswith(": lpt")
    ]
    return [
        goal(expected, f"{len(rows)} planned runs, median distance from htsim", np.median(off)),
        goal(expected, f"{len(rows)} planned runs, largest distance from htsim", max(off)),
        goal(expected, "LPT per sender over own NIC, MoE dispatches of 512 tokens", lpt),
    ]


def beside_simgrid(spec: dict[str, Any], expected: dict[str, Any]) -> list[dict[str, Any]]:
    """The simulator now beside SimGrid's recorded times."""
    off = peer.distances(peer.recorded()["us"], peer.ours(peer.plans(spec)))
    matrices = len(spec["peer_traffic"])
    return [
        goal(expected, f"SimGrid, {matrices} matrices, median distance", float(np.median(off))),
        goal(expected, f"SimGrid, {matrices} matrices, largest distance", max(off)),
    ]


def draw(made: Any, own: list[dict[str, Any]]) -> None:
    axes = made.subplots()
    places = np.arange(len(own))
    axes.barh(places - 0.2, [np.mean(c["expected"]) for c in own], 0.4, label="packet level")
    axes.barh(places + 0.2, [c["ours"][0] for c in own], 0.4, label="railopt")
    axes.set_yticks(places, [c["name"] for c in own], fontsize=7)
    axes.set(xscale="log", xlabel="completion, us")
    axes.invert_yaxis()
    axes.legend()


def main() -> int:
    folder, spec, expected, args = arguments(__file__, __doc__)
    rows = measure(spec)
    plans = planned(Fabric.uniform(spec["nodes"], spec["rails"]), expected)
    own = [goal(expected, name, value) for name, value in (rows | plans).items()]
    figure(Path(args.out) / "packet_level.svg", lambda made: draw(made, own[: len(rows)]), height=5)
    own += planned_together(plans, expected) + beside_simgrid(spec, expected)
    shown = [{"row": name, "us": value} for name, value in (rows | plans).items()]
    return finish(folder, args, shown, [], own)


if __name__ == "__main__":
    sys.exit(main())
