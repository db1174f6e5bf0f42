"""What the experiments share: their arguments, the comparison of a paper's figures with ours,
figures.

Each experiment is a folder with `spec.toml` (tables [fixed], [small], [full]), `expected.json` (the
paper's figures, each with a tolerance and its source), `run.py` and a README; `python -m
experiments.NAME.run [--full] [--out DIR]` prints the paper against ours and writes `results.json`
and the figure.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from railopt.tables import table


def arguments(
    here: str, text: str | None
) -> tuple[Path, dict[str, Any], dict[str, Any], argparse.Namespace]:
    """(folder, spec for this size, expected, parsed arguments) of an experiment."""
    folder = Path(here).resolve().parent
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--full", action="store_true", help="the sizes of the paper instead of a small run"
    )
    parser.add_argument(
        "--out", metavar="DIR", default=f"out/{folder.name}", help="where results and figures go"
    )
    args = parser.parse_args()
    spec = tomllib.loads((folder / "spec.toml").read_text())
    expected = json.loads((folder / "expected.json").read_text())
    return (
        folder,
        {**spec["small"], **(spec["full"] if args.full else {}), **spec["fixed"]},
        expected,
        args,
    )


def finish(
    folder: Path, args: argparse.Namespace, rows: list[dict[str, Any]], claims: list[dict[str, Any]]
) -> None:
    """Print paper against ours and write results.json."""
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    print()
    table(
        ["claim", "paper", "ours", "verdict"],
        [[c["name"], c["paper_text"], c["ours_text"], c["verdict"]] for c in claims],
        title="paper against ours",
    )
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
    low, high = (
        -np.inf if paper[0] is None else paper[0] * (1 - entry["tolerance"]),
        np.inf if paper[1] is None else paper[1] * (1 + entry["tolerance"]),
    )
    values = [float(v) for v in (ours if isinstance(ours, Sequence) else [ours])]
    inside = sum(low <= v <= high for v in values)
    verdict = "confirmed" if inside == len(values) else "partly" if inside else "contradicted"
    return {
        "name": name,
        "paper": entry["paper"],
        "tolerance": entry["tolerance"],
        "ours": values,
        "verdict": verdict,
        "paper_text": _text(paper) + entry.get("unit", ""),
        "ours_text": _text([min(values), max(values)]) + entry.get("unit", ""),
        "note": entry.get("note", ""),
        "source": entry["source"],
    }


def _text(pair: Sequence[float | None]) -> str:
    low, high = pair
    if low is None or high is None:
        return f"<= {high:g}" if low is None else f">= {low:g}"
    return f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} .. {high:.4g}"


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
