"""What the experiments share: their arguments, the comparison of a paper's figures with ours,
figures.

Each experiment is a folder with `spec.toml` (tables [fixed], [small], [full]), `expected.json` (the
paper's `figures`, each with a tolerance and its source, and under `own` what no paper says: goals,
closed forms and other runs, in a table of their own), `verdicts.json` (the verdict that each had
when it was last recorded), `run.py` and a README; `python -m experiments.NAME.run [--full] [--out
DIR]` prints the paper against ours and writes `results.json` and the figure.  A verdict that is not
the recorded one is exit code 4; `--record` records.
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from railopt.base.tables import table

HELD = ("reproduced", "reached", "in range", "fitted")
MISSED = ("not reached", "contradicted")
ORIGINS = ("paper", "code", "ours")
"""Whose an input is: written in the paper, written in the authors' released code, chosen by us."""
NOT_TRIED = "not tried"
"""Of a headline claim that no experiment compares (not_tried.toml)."""
FAILED = 4


def arguments(
    here: str, text: str | None, **tables: str
) -> tuple[Path, dict[str, Any], dict[str, Any], argparse.Namespace]:
    """(folder, spec for this size, expected, parsed arguments) of an experiment; `tables` names
    further tables of its spec, each an option with its help.
    """
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
    parser.add_argument(
        "--record", action="store_true", help="write this run's verdicts into verdicts.json"
    )
    for name, words in tables.items():
        parser.add_argument(f"--{name}", action="store_true", help=words)
    args = parser.parse_args()
    args.size = next((name for name in ("full", *tables) if getattr(args, name)), "small")
    spec = tomllib.loads((folder / "spec.toml").read_text())
    expected = json.loads((folder / "expected.json").read_text())
    return (
        folder,
        {**spec["small"], **spec[args.size], **spec["fixed"]},
        expected,
        args,
    )


def finish(
    folder: Path,
    args: argparse.Namespace,
    rows: list[dict[str, Any]],
    claims: Sequence[dict[str, Any]],
    own: Sequence[dict[str, Any]] = (),
) -> int:
    """Print paper against ours, what no paper says (`own`) in a table of its own, and write
    results.json.  Returns the exit code: 4 where a verdict is not the recorded one.
    """
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    _print(claims, "paper", "paper against ours")
    _print(own, "expected", "what no paper says: against a goal, a closed form or another run")
    texts = dict.fromkeys(c["inputs_text"] for c in claims)
    for given in texts:
        names = [c["name"] for c in claims if c["inputs_text"] == given]
        print(f"  inputs{' of ' + '; '.join(names) if len(texts) > 1 else ''}: {given}")
    for compared in (*claims, *own):
        if compared["note"]:
            print(f"  {compared['name']}: {compared['note']}")
    data = {
        "experiment": folder.name,
        "full": args.size == "full",
        "rows": rows,
        "comparison": list(claims),
        "own": list(own),
    }
    (out / "results.json").write_text(json.dumps(data, indent=2) + "\n")
    print(f"wrote {out / 'results.json'}", file=sys.stderr)
    size = args.size
    if args.record:
        record(folder, size, [*claims, *own])
    seen = recorded(folder)
    if seen and size not in seen:
        print(f"no verdicts are recorded for the {size} size", file=sys.stderr)
        return 0
    changed = differences([*claims, *own], seen.get(size))
    for line in changed:
        print(f"verdict changed: {line}", file=sys.stderr)
    return FAILED if changed else 0


def _print(compared: Sequence[dict[str, Any]], said: str, title: str) -> None:
    if compared:
        print()
        table(
            ["claim", said, "ours", "distance", "verdict"],
            [
                [c["name"], c[f"{said}_text"], c["ours_text"], distance_text(c), c["verdict"]]
                for c in compared
            ],
            title=title,
        )


# ---------------------------------------------------------------- verdicts
def claim(expected: dict[str, Any], name: str, ours: float | Sequence[float]) -> dict[str, Any]:
    """One figure of the paper (a number, a range or an "up to") against ours, a number or several;
    `decide` has the verdict's rule.
    """
    entry = expected["figures"][name]
    inputs = entry.get("inputs", expected.get("inputs"))
    if not inputs or not set(inputs) <= set(ORIGINS):
        raise ValueError(f"{name}: expected inputs by origin, {', '.join(ORIGINS)}; found {inputs}")
    return {"paper": entry["paper"], **_compared(entry, name, "paper", ours, inputs)}


def goal(expected: dict[str, Any], name: str, ours: float | Sequence[float]) -> dict[str, Any]:
    """One figure that no paper says (a goal, a closed form or another run, `own` in expected.json),
    against ours.
    """
    entry = expected["own"][name]
    inputs = entry.get("inputs", {"ours": "all"})
    return {"expected": entry["expected"], **_compared(entry, name, "expected", ours, inputs)}


def decide(
    entry: Mapping[str, Any], said: Any, values: Sequence[float], inputs: Mapping[str, str]
) -> tuple[str, int, float]:
    """(verdict, how many of our values hold, distance) of what is said against our values.

    reproduced    a single figure: all of ours within its tolerance (a share of it)
    reached       "up to X" (entry["up_to"]): the largest of ours is X or more, less the tolerance
    in range      a range, or a bound with one end open: all of ours inside, without a tolerance
    fitted        one of these, where a constant of ours was chosen by this figure
    not reached   none of these, and an input is ours: the setting may be another one
    contradicted  none of these, and every input is the paper's or its code's, or what is said is
                  said of every input (entry["always"]), so that one example suffices

    The distance is that of the value farthest off, as a share of the nearest end of what is said;
    of "up to X" that of our largest, and 0 beyond X.
    """
    low, high = said if isinstance(said, list) else (said, None if entry.get("up_to") else said)
    considered = [max(values)] if entry.get("up_to") else list(values)
    slack = 0 if isinstance(said, list) else entry["tolerance"]
    floor = -np.inf if low is None else low - slack * abs(low)
    ceiling = np.inf if high is None else high + slack * abs(high)
    inside = sum(floor <= value <= ceiling for value in considered)
    distance = max(_distance(value, low, high) for value in considered)
    if inside == len(considered):
        held = (
            "in range" if isinstance(said, list) else "reached" if entry.get("up_to") else HELD[0]
        )
        return "fitted" if entry.get("fitted") else held, inside, distance
    theirs = not inputs.get("ours") or entry.get("always")
    return "contradicted" if theirs else "not reached", inside, distance


def _distance(value: float, low: float | None, high: float | None) -> float:
    """How far a value lies outside, as a share of the end that it passed; the plain difference
    where that end is 0.
    """
    for end, outside in ((low, -1), (high, 1)):
        if end is not None and (value - end) * outside > 0:
            return float(abs(value - end) / (abs(end) or 1))
    return 0.0


def _compared(
    entry: dict[str, Any],
    name: str,
    key: str,
    ours: float | Sequence[float],
    inputs: Mapping[str, str],
) -> dict[str, Any]:
    values = [float(v) for v in (ours if isinstance(ours, Sequence) else [ours])]
    verdict, inside, distance = decide(entry, entry[key], values, inputs)
    unit = entry.get("unit", "")
    partly = len(values) > 1 and not entry.get("up_to") and 0 < inside < len(values)
    return {
        "name": name,
        "tolerance": entry["tolerance"],
        "ours": values,
        "verdict": verdict,
        "distance": distance,
        "headline": bool(entry.get("headline")),
        "machine": bool(entry.get("machine")),
        "inputs": dict(inputs),
        "inputs_text": inputs_text(inputs),
        f"{key}_text": said_text(entry, key),
        "ours_text": _text([min(values), max(values)])
        + unit
        + (f" ({inside} of {len(values)} inside)" if partly else ""),
        "note": entry.get("note", ""),
        "source": entry["source"],
    }


def said_text(entry: Mapping[str, Any], key: str) -> str:
    """What the paper (or a goal) says, as a table shows it."""
    said = entry[key]
    text = _text(said if isinstance(said, list) else [said] * 2)
    return ("up to " if entry.get("up_to") else "") + text + str(entry.get("unit", ""))


def inputs_text(inputs: Mapping[str, str]) -> str:
    """`paper: ...; code: ...; ours: ...`"""
    return "; ".join(f"{origin}: {inputs[origin]}" for origin in ORIGINS if inputs.get(origin))


def distance_text(compared: Mapping[str, Any]) -> str:
    """The distance in per cent."""
    return f"{100 * compared['distance']:.3g} %"


def _text(pair: Sequence[float | None]) -> str:
    low, high = pair
    if low is None or high is None:
        return f"<= {high:g}" if low is None else f">= {low:g}"
    return f"{low:.4g}" if f"{low:.4g}" == f"{high:.4g}" else f"{low:.4g} .. {high:.4g}"


def recorded(folder: Path) -> dict[str, dict[str, Any]]:
    """verdicts.json: by size, by name, what `record` wrote; nothing where there is none."""
    path = folder / "verdicts.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def record(folder: Path, size: str, compared: Sequence[Mapping[str, Any]]) -> None:
    """Write the verdict of every figure into verdicts.json, beside those of other sizes."""
    now = {
        c["name"]: {
            "verdict": c["verdict"],
            "ours": c["ours_text"],
            "values": [float(f"{end(c['ours']):.7g}") for end in (min, max)],
            "distance": float(f"{c['distance']:.4g}"),
        }
        for c in compared
    }
    kept = {**recorded(folder), size: now}
    lines = []
    for which in sorted(kept, reverse=True):
        rows = [
            f"  {json.dumps(name)}: {json.dumps(row, ensure_ascii=False)}"
            for name, row in kept[which].items()
        ]
        lines.append(f' "{which}": {{\n' + ",\n".join(rows) + "\n }")
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (folder / "verdicts.json").write_text(text, encoding="utf-8")


def differences(
    compared: Sequence[Mapping[str, Any]], before: Mapping[str, Any] | None
) -> list[str]:
    """One line for every figure whose verdict is not the recorded one; a figure that depends on
    the machine's speed is left out.
    """
    if before is None:  # of no size: what no paper says has to hold then
        missed = [row for row in compared if "paper" not in row and row["verdict"] in MISSED]
        return [f"{row['name']}: {row['verdict']}, recorded was none" for row in missed]
    lines = []
    for row in compared:
        was = before.get(row["name"], {"verdict": "not recorded"})["verdict"]
        if was != row["verdict"] and not row["machine"]:
            lines.append(f"{row['name']}: {row['verdict']}, recorded was: {was}")
    gone = set(before) - {row["name"] for row in compared}
    return lines + [f"{name}: recorded, and not compared any more" for name in sorted(gone)]


def shown(folder: Path) -> dict[str, dict[str, Any]]:
    """By name, what is recorded of the full size, or of the small one where that has none, and
    which `size` it is.
    """
    seen = recorded(folder)
    return {
        name: {**row, "size": size}
        for size in ("small", "full")
        for name, row in seen.get(size, {}).items()
    }


def headlines(folder: Path) -> list[dict[str, str]]:
    """The headline claims of an experiment as `shown`: claim, paper, ours, size, distance, verdict,
    inputs, source.
    """
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    seen = shown(folder)
    return [
        {
            "claim": name,
            "paper": said_text(entry, "paper"),
            "ours": seen[name]["ours"],
            "size": seen[name]["size"],
            "distance": distance_text(seen[name]),
            "verdict": seen[name]["verdict"],
            "inputs": inputs_text(entry.get("inputs", expected["inputs"])),
            "source": entry["source"],
        }
        for name, entry in expected.get("figures", {}).items()
        if entry.get("headline") and name in seen
    ]


def not_tried() -> list[dict[str, str]]:
    """The headline claims that no experiment compares: paper, claim, published, why."""
    found = tomllib.loads((Path(__file__).parent / "not_tried.toml").read_text(encoding="utf-8"))
    claims: list[dict[str, str]] = found["claim"]
    return claims


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
