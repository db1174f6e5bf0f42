"""PyTorch's all-to-all and planned ones on a rail fabric out of network namespaces: bytes of each
NIC from its counters against the plan, and ratios of times against what the plan predicts.

    python experiments/emulated_fabric/run.py [--full | --layer] [--out DIR]   # as root, with torch
"""

from __future__ import annotations

import os
import statistics
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.common import arguments, figure, finish, goal
from experiments.emulated_fabric import network
from experiments.emulated_fabric.cases import PLAIN, WHOLE, Case, cases, check_bounds, seconds
from railopt.base.errors import RailoptError
from railopt.base.extras import need
from railopt.base.tables import table

RATIO, BYTES, WRONG = (
    "ratio of times, measured over predicted",
    "bytes of a NIC without headers, over the plan",
    "runs with a wrong byte",
)
IDLE = "even traffic, healthy NICs: a whole call over all_to_all_single"
COLUMNS = (
    *("traffic", "a NIC", "all-to-all", "busiest NIC", "planning"),
    *("seconds", "predicted", "faster", "predicted", "of predicted"),
)
LEAST = 64 << 10  # bytes of a NIC below which heads of messages weigh too much


def check_machine() -> None:
    """Refuse where the fabric can't be emulated."""
    network.check_tools()
    need("torch", "the emulated fabric")


def measure(chosen: list[Case], spec: dict[str, Any]) -> list[dict[str, Any]]:
    """A row a case."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # namespaces have no names to look up
    from experiments.emulated_fabric.ranks import running

    rows = []
    with running(chosen[0].call.fabric, spec["rate"]) as ranks:
        print(f"{len(ranks.processes)} processes in namespaces of their own", file=sys.stderr)
        for case in chosen:
            nic = (spec["nic"][0], spec["nic"][1])
            ranks.tell("prepared", case.call)
            with nullcontext() if case.share == 1 else ranks.fault(nic, case.share):
                rows.append(row(case, ranks.tell("call", case.call, case.loads), spec))
            print(f"  {case.traffic}, {case.fault}, {case.call.how}: done", file=sys.stderr)
    return rows


def row(case: Case, found: list[list[Any]], spec: dict[str, Any]) -> dict[str, Any]:
    """What the runs of all GPUs say of a case."""
    runs = list(zip(*found, strict=True))  # run by run, GPU by GPU
    took = [max(gpu.end for gpu in run) - min(gpu.ready for gpu in run) for run in runs]
    planning = [max(gpu.ready - gpu.begin for gpu in run) for run in runs]
    return {
        "traffic": case.traffic,
        "fault": case.fault,
        "how": case.call.how,
        "busiest_bytes": int(max(side.max() for side in case.loads)),
        "predicted_s": seconds(case, spec),
        "measured_s": statistics.median(took),
        "runs_s": took,
        "planning_s": statistics.median(planning),
        "wrong": sum(not all(gpu.equal for gpu in run) for run in runs),
        "bytes_over_plan": [share for run in runs for share in shares(run, case)],
    }


def shares(run: Any, case: Case) -> list[float]:
    """Each NIC's bytes without headers over the plan's, where it carries enough for the heads of
    messages not to count.
    """
    found = []
    for side in ("sent", "received"):
        planned = getattr(case.loads, side).reshape(-1).tolist()
        for gpu, wanted in zip(run, planned, strict=True):
            number, packets = getattr(gpu, side)
            payload = number - network.HEADERS * packets
            if max(wanted, payload) >= LEAST:
                found.append(payload / wanted if wanted else np.inf)
    return found


def compared(rows: list[dict[str, Any]]) -> None:
    """Add to each row how many times faster it is than the first of its traffic and fault."""
    begun: dict[tuple[str, str], dict[str, Any]] = {}
    for each in rows:
        base = begun.setdefault((each["traffic"], each["fault"]), each)
        each["beside"] = base["how"]
        each["faster_predicted"] = base["predicted_s"] / each["predicted_s"]
        each["faster_measured"] = base["measured_s"] / each["measured_s"]


def idle(rows: list[dict[str, Any]]) -> list[float]:
    """Where nothing is to gain: seconds of whole calls over those of PyTorch's own."""
    even = {
        e["how"]: e["measured_s"] for e in rows if (e["traffic"], e["fault"]) == ("even", "none")
    }
    return [took / even[PLAIN] for how, took in even.items() if how.endswith(WHOLE)]


def shown(rows: list[dict[str, Any]]) -> None:
    table(
        COLUMNS,
        [
            [
                each["traffic"],
                "healthy" if each["fault"] == "none" else each["fault"],
                each["how"],
                f"{each['busiest_bytes'] / 1e6:.2f} MB",
                f"{each['planning_s']:.3f} s",
                f"{each['measured_s']:.3f}",
                f"{each['predicted_s']:.3f}",
                f"{each['faster_measured']:.2f}",
                f"{each['faster_predicted']:.2f}",
                f"{each['faster_measured'] / each['faster_predicted']:.3f}",
            ]
            for each in rows
        ],
        title="median of five runs; faster than the first of the same traffic",
    )


def draw(made: Any, rows: list[dict[str, Any]]) -> None:
    axes = made.subplots()
    places = np.arange(len(rows))
    axes.barh(places - 0.2, [each["predicted_s"] for each in rows], 0.4, label="predicted")
    axes.barh(places + 0.2, [each["measured_s"] for each in rows], 0.4, label="measured")
    axes.errorbar(
        [each["measured_s"] for each in rows],
        places + 0.2,
        xerr=[
            [each["measured_s"] - min(each["runs_s"]) for each in rows],
            [max(each["runs_s"]) - each["measured_s"] for each in rows],
        ],
        fmt="none",
        ecolor="k",
        lw=0.8,
    )
    names = [
        f"{e['traffic']}, {e['how']}" + ("" if e["fault"] == "none" else f", {e['fault']}")
        for e in rows
    ]
    axes.set_yticks(places, names, fontsize=7)
    axes.set(xlabel="seconds of an all-to-all (median and range of five runs)")
    axes.invert_yaxis()
    axes.legend()


def main() -> int:
    folder, spec, expected, args = arguments(
        __file__, __doc__, layer="4 x 4: a layer's tokens, parameters and gradients, and stages"
    )
    try:
        check_machine()
        chosen = list(cases(spec))
        check_bounds(chosen, spec)
        rows = measure(chosen, spec)
    except RailoptError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted: the processes and their namespaces are gone", file=sys.stderr)
        return 130
    compared(rows)
    shown(rows)
    ours = [each for each in rows if each["how"] != PLAIN]
    figures = {
        RATIO: [
            each["faster_measured"] / each["faster_predicted"]
            for each in ours
            if each["how"] != each["beside"]
        ],
        BYTES: [share for each in ours for share in each["bytes_over_plan"]],
        WRONG: sum(each["wrong"] for each in rows),
        IDLE: idle(rows),
    }
    own = [goal(expected, name, values) for name, values in figures.items()]
    figure(Path(args.out) / "fabric.svg", lambda made: draw(made, rows), height=len(rows) / 4 + 1)
    return finish(folder, args, rows, [], own)


if __name__ == "__main__":
    sys.exit(main())
