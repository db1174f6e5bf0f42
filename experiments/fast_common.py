"""What the FAST experiments share: workloads, methods on the simulator, and the table of paper against ours."""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from railopt import Fabric, Traffic, plan
from railopt.cli.common import table
from railopt.schedule import synthesise
from railopt.schedule.phases import Phases, phases
from railopt.sim import Job, Model, simulate
from railopt.sim.model import ROCE_INCAST

MB = 1_000_000
STORE_AND_FORWARD = ("fast", "fast-nostage", "compact")
METHODS = (*STORE_AND_FORWARD, "pipelined", "spreadout", "direct-ecmp", "direct-spray", "pxn", "lpt", "equitable")


def arguments(here: str, text: str | None) -> tuple[Path, dict[str, Any], dict[str, Any], argparse.Namespace]:
    """(folder, spec for this size, expected, parsed arguments) of an experiment."""
    folder = Path(here).resolve().parent
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="the sizes of the paper instead of a small run")
    parser.add_argument("--out", metavar="DIR", default=f"out/{folder.name}", help="where results and figures go")
    args = parser.parse_args()
    spec = tomllib.loads((folder / "spec.toml").read_text())
    expected = json.loads((folder / "expected.json").read_text())
    return folder, {**spec["small"], **(spec["full"] if args.full else {}), **spec["fixed"]}, expected, args


def finish(folder: Path, args: argparse.Namespace, rows: list[dict[str, Any]], claims: list[dict[str, Any]]) -> None:
    """Print paper against ours and write results.json."""
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    print()
    table(["claim", "paper", "ours", "verdict"], [[c["name"], c["paper_text"], c["ours_text"], c["verdict"]] for c in claims],
          title="paper against ours")
    for claim in claims:
        if claim.get("note"):
            print(f"  {claim['name']}: {claim['note']}")
    data = {"experiment": folder.name, "full": args.full, "rows": rows, "comparison": claims}
    (out / "results.json").write_text(json.dumps(data, indent=2) + "\n")
    print(f"wrote {out / 'results.json'}", file=sys.stderr)


def claim(expected: dict[str, Any], name: str, ours: float | Sequence[float]) -> dict[str, Any]:
    """One figure of the paper (a number or a range) against ours (a number or several, as a range).

    confirmed   all of ours within the paper's range widened by its tolerance (a share)
    partly      some of them;  contradicted   none
    """
    entry = expected["figures"][name]
    paper = entry["paper"] if isinstance(entry["paper"], list) else [entry["paper"]] * 2
    low, high = (-np.inf if paper[0] is None else paper[0] * (1 - entry["tolerance"]),
                 np.inf if paper[1] is None else paper[1] * (1 + entry["tolerance"]))
    values = [float(v) for v in (ours if isinstance(ours, Sequence) else [ours])]
    inside = sum(low <= v <= high for v in values)
    verdict = "confirmed" if inside == len(values) else "partly" if inside else "contradicted"
    return {"name": name, "paper": entry["paper"], "tolerance": entry["tolerance"], "ours": values, "verdict": verdict,
            "paper_text": _text(paper) + entry.get("unit", ""), "ours_text": _text([min(values), max(values)]) + entry.get("unit", ""),
            "note": entry.get("note", ""), "source": entry["source"]}


def _text(pair: Sequence[float | None]) -> str:
    low, high = pair
    if low is None or high is None:
        return f"<= {high:g}" if low is None else f">= {low:g}"
    return f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} .. {high:.4g}"


def workload(name: str, fabric: Fabric, mb_per_gpu: float, seed: int) -> Traffic:
    """balanced, random (uniform pair sizes), pairs-S (pair sizes rank ** -S in random order), receivers-S (popularity).

    Scaled so that a GPU sends `mb_per_gpu` on average, what stays inside its server included.
    """
    rng, count = np.random.default_rng(seed), fabric.nodes * fabric.gpus
    kind, _, skew = name.partition("-")
    if kind == "balanced":
        weights = np.ones((count, count))
    elif kind == "random":
        weights = rng.random((count, count))
    elif kind == "pairs":
        weights = rng.permutation(np.arange(1.0, count * count + 1) ** -float(skew)).reshape(count, count)
    else:
        weights = rng.permutation(np.arange(1.0, count + 1) ** -float(skew)) * rng.uniform(0.5, 1.5, (count, count))
    np.fill_diagonal(weights, 0)
    return Traffic.from_matrix(np.rint(weights * (mb_per_gpu * MB * count / weights.sum())).astype(np.int64), fabric)


def run_phases(found: Phases, fabric: Fabric, incast: Fraction) -> Any:
    """Simulate phases; with an incast penalty on the receive NICs."""
    job, nics = Job(**found._asdict()), fabric.nodes * fabric.rails
    if incast:
        fan_in = np.zeros(len(found.capacity), np.bool_)
        fan_in[nics:2 * nics] = True
        job = replace(job, fan_in=fan_in, goodput=Model(incast=incast).goodput(fabric.nodes))
    return simulate(job)


def spreadout_job(fabric: Fabric, traffic: Traffic, alpha_ps: int) -> Phases:
    """SpreadOut between GPUs: step d sends g -> g + d, own NIC to the target's NIC; inside a server over scale-up."""
    count, m = len(traffic.bytes), fabric.gpus
    gpu = np.arange(count)
    shift = np.repeat(np.arange(1, count), count)
    src = np.tile(gpu, count - 1)
    dst = (src + shift) % count
    size = traffic.bytes[src, dst]
    shift, src, dst, size = shift[size > 0] - 1, src[size > 0], dst[size > 0], size[size > 0]
    inside = src // m == dst // m
    path = np.stack([np.where(inside, 2 * count + src, src), np.where(inside, 3 * count + dst, count + dst)], axis=1)
    after = np.arange(1, count - 1)
    return Phases(np.concatenate([fabric.tx.ravel(), fabric.rx.ravel(), np.full(2 * count, fabric.scaleup)]),
                  2 * np.arange(len(src) + 1), path.ravel().astype(np.int32), size, np.full(len(src), alpha_ps),
                  shift.astype(np.int32), np.stack([after, after - 1], axis=1).astype(np.int32), (src % m).astype(np.int32))


def startup_bytes(fabric: Fabric, alpha_ps: int) -> int:
    """What two servers could exchange while a stage starts."""
    return alpha_ps * fabric.rails * int(fabric.tx[0, 0]) // 10**12


def seconds(method: str, fabric: Fabric, traffic: Traffic, alpha_ps: int, incast: bool) -> float:
    """Completion time of a method: store-and-forward phases, chunks that cut through, or direct flows."""
    penalty = ROCE_INCAST if incast else Fraction(0)
    if method in STORE_AND_FORWARD:
        made = synthesise(fabric, traffic, method, startup=startup_bytes(fabric, alpha_ps))
        return float(run_phases(phases(made, alpha_out_ps=alpha_ps), fabric, penalty).completion)
    if method == "spreadout":
        return float(run_phases(spreadout_job(fabric, traffic, alpha_ps), fabric, penalty).completion)
    model = Model(incast=penalty)
    if method.startswith("direct-"):
        took = simulate(traffic, fabric=fabric, balancer=method.removeprefix("direct-"), model=model).completion
    elif method == "pipelined":
        took = simulate(synthesise(fabric, traffic, method).plan("1MiB"), model=model).completion
    else:
        took = simulate(plan(fabric, traffic.chunks("1MiB"), method), model=model).completion
    return float(took) + alpha_ps * 1e-12 * (fabric.nodes - 1)


def algbw(traffic: Traffic, took: float) -> float:
    """GB/s a GPU: all bytes over GPUs and time, as FAST counts (what stays inside a server is counted too)."""
    return float(traffic.bytes.sum()) / len(traffic.bytes) / took / 1e9


def figure(path: Path, draw: Callable[[Any], None], width: float = 9, height: float = 4) -> None:
    """A figure by matplotlib, saved as SVG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    made = plt.figure(figsize=(width, height), layout="constrained")
    draw(made)
    path.parent.mkdir(parents=True, exist_ok=True)
    made.savefig(path)
    plt.close(made)
    print(f"wrote {path}", file=sys.stderr)
