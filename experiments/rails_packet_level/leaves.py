"""Rails of several leaves beside SimGrid: ten fabrics, traffics and policies, drawn once.

    python -m experiments.rails_packet_level.leaves [--python PYTHON] [--record]

SimGrid gets the links of every connection, hashed, chosen by load or as one where packets are
sprayed, and shares them by its own code.  Exit codes are those of `peer`: 3 without SimGrid, 4
where a time differs from leaves.json (`--record` writes it) or by more than 5 % from ours.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

from experiments.rails_packet_level import peer
from railopt import Fabric, Plan, plan
from railopt.base.dice import Dice
from railopt.base.errors import RailoptError
from railopt.base.tables import table
from railopt.base.units import PS_PER_S
from railopt.model.leaves import WAYS, Leaves
from railopt.model.workloads import traffic_from
from railopt.sim import simulate
from railopt.sim.from_plan import flows_of_plan

RECORD, CASES, MOST = "leaves.json", 10, 5.0
NODES, RAILS, BELOW, UPLINKS = (8, 12, 16), (2, 4), (2, 4), (1, 2, 4)
SHARES, SKEWS, POLICIES = (4, 2, 1), (0, 2, 5), ("own-nic", "lpt", "even-excess", "spill")


def cases() -> dict[str, Plan]:
    """The plans by name; a link above a leaf has the rate of a NIC, a half or a quarter of it."""
    dice, found = Dice(43, "leaves"), {}

    def one_of(values: Any) -> Any:
        return values[int(dice.below(len(values))[0])]

    for number in range(CASES):
        plain = Fabric.uniform(one_of(NODES), one_of(RAILS))
        rate = int(plain.tx[0, 0]) // one_of(SHARES)
        one = Leaves(one_of(BELOW), one_of(UPLINKS), rate, one_of(WAYS))
        fabric = replace(plain, leaves=one)
        text, policy = f"moe:skew=0.{one_of(SKEWS)},tokens=256,seed={number}", one_of(POLICIES)
        made = plan(fabric, traffic_from(text, fabric).chunks("256KiB"), policy)
        name = f"{fabric.nodes} x {fabric.rails}, {one.nodes} per leaf, {one.uplinks} x 1/"
        found[f"{name}{int(plain.tx[0, 0]) // rate} {one.way}, {text} {policy}"] = made
    return found


def asked_of(made: Plan, seed: int) -> dict[str, Any]:
    """The worker's question: a connection is a pair of NICs, so that each has one path."""
    flows, fabric = flows_of_plan(made, peer.PACKETS, seed=seed)[0], made.fabric
    nics, routes, run = fabric.nodes * fabric.rails, [], []
    for flow, size in enumerate(flows.size.tolist()):
        first, last, *above = flows.path[flows.first[flow] : flows.first[flow + 1]].tolist()
        routes.append([first, last - nics, [first, *above, last]])
        run.append([first, last - nics, size])
    return {
        "nics": nics,
        "links": flows.capacity.tolist(),
        "latency_s": fabric.latency_ps / PS_PER_S / 2,
        "routes": routes,
        "runs": [run],
    }


def ours(made: dict[str, Plan]) -> dict[str, float]:
    """Microseconds by name; the seed of hashed links is the case's number."""
    hashed = {name: number for number, name in enumerate(made) if " ecmp," in name}
    return {
        name: simulate(each, assumptions=peer.PACKETS, seed=hashed.get(name)).completion_ps / 1e6
        for name, each in made.items()
    }


def main() -> int:
    args = peer.arguments(__doc__).parse_args()
    made, theirs, version = cases(), dict[str, float](), ""
    try:
        program = peer.interpreter(args.python)
        for number, (name, each) in enumerate(made.items()):
            version, (theirs[name],) = peer.answered(program, asked_of(each, number))
    except RailoptError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    mine = ours(made)
    table(
        ["case", f"SimGrid {version}, us", "railopt, us", "ratio"],
        [
            [name, f"{us:.3f}", f"{mine[name]:.3f}", f"{mine[name] / us:.6f}"]
            for name, us in theirs.items()
        ],
    )
    if args.record:
        peer.record(peer.HERE / RECORD, version, theirs)
    missed = max(peer.distances(theirs, mine)) > MOST
    return 4 if missed or peer.changed(peer.recorded(RECORD)["us"], theirs) else 0


if __name__ == "__main__":
    sys.exit(main())
