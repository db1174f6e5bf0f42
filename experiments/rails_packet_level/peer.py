"""The simulator beside SimGrid, which anyone can install: the same plans, flow by flow.

    python -m experiments.rails_packet_level.peer [--python PYTHON] [--record] [--out DIR]

SimGrid shares links max-min fairly, as `railopt.sim` does, in code that is not ours; it has no
packets, so it is given our payload share and latency.  It runs in an interpreter that has the
module `simgrid`: this one, or the system's (Debian: python3-simgrid), or PYTHON.  Exit code 3
where there is none, 4 where a time differs from peer.json (`--record` writes it) or the goals are
missed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from railopt import Fabric, Plan, plan
from railopt.base.errors import BackendError, RailoptError
from railopt.base.tables import table
from railopt.base.units import PS_PER_S
from railopt.model.workloads import traffic_from
from railopt.sim import Assumptions, simulate

HERE = Path(__file__).resolve().parent
PACKETS = replace(Assumptions.packets(), scale_up="ignored")
"""SimGrid is given NICs alone."""
SAME = 1e-3
"""Share by which a time of SimGrid's may differ from the recorded one: policies may change."""


def interpreter(given: str | None) -> str:
    """An interpreter that imports simgrid."""
    tried = [given] if given else [sys.executable, "/usr/bin/python3"]
    for program in tried:
        try:
            ran = subprocess.run(
                [program, "-c", "import simgrid"], capture_output=True, check=False
            )
        except OSError:
            continue
        if ran.returncode == 0:
            return program
    raise BackendError(
        f"no simgrid in {' or '.join(tried)}: install it (`apt-get install python3-simgrid`, or "
        f"`pip install simgrid`, which compiles it) or name an interpreter that has it by --python"
    )


def plans(spec: dict[str, Any]) -> dict[str, Plan]:
    """Every matrix under every policy, by name."""
    fabric, found = Fabric.uniform(spec["nodes"], spec["rails"]), {}
    for text in spec["peer_traffic"]:
        chunks = traffic_from(text, fabric).chunks(spec["peer_chunk"])
        for policy in spec["peer_policies"]:
            found[f"{text} {policy}"] = plan(fabric, chunks, policy)
    return found


def flows(made: Plan) -> list[list[int]]:
    """[from NIC, to NIC, bytes] of every connection; a NIC is node * rails + rail."""
    rails, chunks = made.fabric.rails, made.chunks
    sums: dict[tuple[int, int], int] = {}
    ends = zip(
        (chunks.src * rails + made.rail).tolist(),
        (chunks.dst * rails + made.rail).tolist(),
        chunks.size.tolist(),
        strict=True,
    )
    for source, target, size in ends:
        sums[source, target] = sums.get((source, target), 0) + size
    return [[source, target, size] for (source, target), size in sorted(sums.items())]


def simgrid(program: str, made: dict[str, Plan]) -> tuple[str, dict[str, float]]:
    """(SimGrid's version, microseconds by name)."""
    fabric = next(iter(made.values())).fabric
    asked = {
        "nics": fabric.nodes * fabric.rails,
        "rate": int(PACKETS.on_wire(fabric.tx)[0, 0]),
        "latency_s": fabric.latency_ps / PS_PER_S / 2,
        "runs": [flows(each) for each in made.values()],
    }
    version, micros = answered(program, asked)
    return version, dict(zip(made, micros, strict=True))


def answered(program: str, asked: dict[str, Any]) -> tuple[str, list[float]]:
    """(SimGrid's version, microseconds of each run)."""
    worker = HERE / "simgrid_worker.py"
    ran = subprocess.run(
        [program, str(worker)], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    if ran.returncode:
        raise BackendError(f"SimGrid ended with code {ran.returncode}: {ran.stderr[-300:].strip()}")
    answer = json.loads(ran.stdout)
    return answer["version"], [seconds * 1e6 for seconds in answer["seconds"]]


def ours(made: dict[str, Plan]) -> dict[str, float]:
    """Microseconds of `simulate` by name."""
    return {
        name: simulate(each, assumptions=PACKETS).completion_ps / 1e6 for name, each in made.items()
    }


def distances(theirs: dict[str, float], mine: dict[str, float]) -> list[float]:
    """Per cent by which ours differ, one for each name."""
    return [100 * abs(mine[name] / us - 1) for name, us in theirs.items()]


def recorded(name: str = "peer.json") -> dict[str, Any]:
    """SimGrid's version and its microseconds by name, as they were."""
    found: dict[str, Any] = json.loads((HERE / name).read_text(encoding="utf-8"))
    return found


def record(path: Path, version: str, theirs: dict[str, float]) -> None:
    """Write what `recorded` reads."""
    found = {"simgrid": version, "us": {name: round(us, 3) for name, us in theirs.items()}}
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def changed(before: dict[str, float], theirs: dict[str, float]) -> list[str]:
    """Names whose times differ, or that only one has."""
    shared = before.keys() & theirs.keys()
    differ = {name for name in shared if abs(theirs[name] / before[name] - 1) > SAME}
    return sorted(differ | before.keys() ^ theirs.keys())


def arguments(text: str | None) -> argparse.ArgumentParser:
    """A parser with the options of every comparison with SimGrid."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", help="an interpreter that imports simgrid")
    parser.add_argument("--record", action="store_true", help="keep SimGrid's times")
    return parser


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--out", default="out/rails_packet_level", help="folder for peer.json")
    args = parser.parse_args()
    spec = tomllib.loads((HERE / "spec.toml").read_text())["fixed"]
    try:
        program = interpreter(args.python)
        made = plans(spec)
        version, theirs = simgrid(program, made)
    except RailoptError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    mine = ours(made)
    found = distances(theirs, mine)
    table(
        ["matrix and policy", f"SimGrid {version}, us", "railopt, us", "distance %"],
        [
            [name, f"{us:.3f}", f"{mine[name]:.3f}", f"{off:.3f}"]
            for (name, us), off in zip(theirs.items(), found, strict=True)
        ],
    )
    print(
        f"{len(spec['peer_traffic'])} matrices: median {np.median(found):.3g} %, largest "
        f"{max(found):.3g} %"
    )
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    for target in (out, *([HERE] if args.record else [])):
        record(target / "peer.json", version, theirs)
    other = changed(recorded()["us"], theirs)
    if other:
        print(f"not the recorded time: {', '.join(other)}", file=sys.stderr)
    return 4 if other or np.median(found) > 2 or max(found) > 6 else 0


if __name__ == "__main__":
    sys.exit(main())
