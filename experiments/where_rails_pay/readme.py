"""Put the tables of a run into the README.

python -m experiments.where_rails_pay.readme out/where_rails_pay/results.json
"""

from __future__ import annotations

import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from experiments.where_rails_pay.run import KEY, columns_of

README = Path(__file__).with_name("README.md")


def markdown(head: list[str], cells: list[list[str]]) -> str:
    """A table of Markdown."""
    rows = [head, ["---"] * len(head), *cells]
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


def measured(rows: list[dict[str, Any]], nodes: int, nic: str, dedup: str) -> str:
    """Every policy and batch of one state of the NICs and way of sending."""
    chosen = [
        row for row in rows if (row["nodes"], row["nic"], row["dedup"]) == (nodes, nic, dedup)
    ]
    times = columns_of(rows)
    cells = [
        [
            row["batch"],
            f"`{row['policy']}`",
            *(f"{100 * row[name]:.3g}" for name in ("over_bound", "staged", "passed_on")),
            *(f"{row[name]:.3f}" for name in times),
        ]
        for row in chosen
    ]
    head = ["batches", "policy", "NIC time over bound %", "staged %", "passed on %"]
    return markdown([*head, *(f"{name}, ms" for name in times)], cells)


def saved(found: list[dict[str, Any]]) -> str:
    """What the fastest planned policy saves of own-nic's time, setting by setting."""
    columns = [name.removesuffix(", by") for name in found[0] if name.endswith(", by")]
    cells = []
    for row in found:
        fastest = [(row[f"{column}, by"], row[column]) for column in columns]
        texts = [by if by == "nothing" else f"{gain:.1f} % (`{by}`)" for by, gain in fastest]
        cells.append([*(str(row[name]) for name in KEY), *texts])
    return markdown(["nodes", "batches", "de-duplication", "one NIC", *columns], cells)


def note(rows: list[dict[str, Any]]) -> str:
    """Which policies the tables have, and which they lack."""
    wanted = tomllib.loads(README.with_name("spec.toml").read_text())["fixed"]["policies"]
    there = {row["policy"] for row in rows}
    missing = [name for name in wanted if name not in there]
    text = f"Measured: {', '.join(name for name in wanted if name in there)}."
    return text + (f" **Not measured yet: {', '.join(missing)}.**" if missing else "")


def tables(rows: list[dict[str, Any]], found: list[dict[str, Any]]) -> dict[str, str]:
    """The tables of the README by name."""
    nodes = min(row["nodes"] for row in rows)
    return {
        "healthy": measured(rows, nodes, "healthy", "node"),
        "dead": measured(rows, nodes, "dead", "node"),
        "all": measured(rows, nodes, "healthy", "none"),
        "saved": saved(found),
        "note": note(rows),
    }


def main() -> int:
    first, *rows = json.loads(Path(sys.argv[1]).read_text())["rows"]
    text = README.read_text()
    for name, made in tables(rows, first["gains"]).items():
        begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
        before, found, rest = text.partition(begin)
        after = rest.partition(end)[2]
        if not (found and after):
            print(f"the README has no {begin} ... {end}", file=sys.stderr)
            return 1
        text = f"{before}{begin}\n{made}\n{end}{after}"
    README.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
