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

from experiments.common import arguments, figure, finish, reproduced
from railopt import Chunks, Fabric, Plan, Traffic, plan
from railopt.base.dice import falling
from railopt.base.units import parse_bytes
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
    own = [reproduced(expected, name, value) for name, value in rows.items()]
    figure(Path(args.out) / "packet_level.svg", lambda made: draw(made, own), height=5)
    finish(folder, args, [{"row": name, "us": value} for name, value in rows.items()], [], own)
    return 0 if all(c["verdict"] in ("reproduced", "fitted") for c in own) else 4


if __name__ == "__main__":
    sys.exit(main())
