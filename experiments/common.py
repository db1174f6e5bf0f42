"""What the experiments share: their arguments, the comparison of a paper's figures with ours,
figures.

Each experiment is a folder with `spec.toml` (tables [fixed], [small], [full]), `expected.json` (the
paper's `figures`, each with a tolerance and its source, and under `own` what no paper says: goals,
closed forms and other runs, in a table of their own), `run.py` and a README; `python -m
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

from railopt.base.tables import table


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
    folder: Path,
    args: argparse.Namespace,
    rows: list[dict[str, Any]],
    claims: Sequence[dict[str, Any]],
    own: Sequence[dict[str, Any]] = (),
) -> None:
    """Print paper against ours, what no paper says (`own`) in a table of its own, and write
    results.json.
    """
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    if claims:
        print()
        table(
            ["claim", "paper", "ours", "verdict"],
            [[c["name"], c["paper_text"], c["ours_text"], c["verdict"]] for c in claims],
            title="paper against ours",
        )
    if own:
        print()
        table(
            ["figure", "expected", "ours", "verdict"],
            [[c["name"], c["expected_text"], c["ours_text"], c["verdict"]] for c in own],
            title="what no paper says: against a goal, a closed form or another run",
        )
    for claim in (*claims, *own):
        if claim.get("note"):
            print(f"  {claim['name']}: {claim['note']}")
    data = {
        "experiment": folder.name,
        "full": args.full,
        "rows": rows,
        "comparison": list(claims),
        "own": list(own),
    }
    (out / "results.json").write_text(json.dumps(data, indent=2) + "\n")
    print(f"wrote {out / 'results.json'}", file=sys.stderr)


def claim(expected: dict[str, Any], name: str, ours: float | Sequence[float]) -> dict[str, Any]:
    """One figure of the paper (a number or a range) against ours (a number or several, as a range).

    confirmed   all of ours within the paper's range widened by its tolerance (a share)
    partly      some of them;  contradicted   none
    fitted      instead of confirmed, where a parameter of ours was fitted to this figure
    """
    entry = expected["figures"][name]
    words = ("fitted" if entry.get("fitted") else "confirmed", "partly", "contradicted")
    return {"paper": entry["paper"], **_held(entry, name, "paper", ours, words)}


def reproduced(
    expected: dict[str, Any], name: str, ours: float | Sequence[float]
) -> dict[str, Any]:
    """One figure that no paper says (a goal, a closed form or another run, `own` in expected.json),
    against ours: reproduced (fitted, where a parameter of ours was fitted to it), partly, or not
    reproduced.
    """
    entry = expected["own"][name]
    words = ("fitted" if entry.get("fitted") else "reproduced", "partly", "not reproduced")
    return {"expected": entry["expected"], **_held(entry, name, "expected", ours, words)}


def _held(
    entry: dict[str, Any],
    name: str,
    key: str,
    ours: float | Sequence[float],
    words: tuple[str, str, str],
) -> dict[str, Any]:
    """Ours against the range entry[key] widened by its tolerance; words for all of ours inside,
    some, none.
    """
    wanted = entry[key] if isinstance(entry[key], list) else [entry[key]] * 2
    low, high = (
        -np.inf if wanted[0] is None else wanted[0] * (1 - entry["tolerance"]),
        np.inf if wanted[1] is None else wanted[1] * (1 + entry["tolerance"]),
    )
    values = [float(v) for v in (ours if isinstance(ours, Sequence) else [ours])]
    inside = sum(low <= v <= high for v in values)
    return {
        "name": name,
        "tolerance": entry["tolerance"],
        "ours": values,
        "verdict": words[0] if inside == len(values) else words[1] if inside else words[2],
        f"{key}_text": _text(wanted) + entry.get("unit", ""),
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
