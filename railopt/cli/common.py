"""What the commands share: fabric and traffic arguments, tables, JSON, and where output goes.

stdout is data, stderr is talk.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

from railopt.arrays import write_atomic
from railopt.errors import InputError
from railopt.fabric import Fabric
from railopt.traffic import Traffic
from railopt.workloads import WORKLOADS, from_spec


def add_fabric_arguments(parser: argparse.ArgumentParser) -> None:
    """--fabric FILE, or --nodes, --rails, --gpus, --link, and --degrade."""
    group = parser.add_argument_group("fabric")
    group.add_argument(
        "--fabric", metavar="FILE.toml", help="fabric description; instead of the options below"
    )
    group.add_argument("--nodes", type=int, help="nodes (default 8)")
    group.add_argument("--rails", type=int, help="rails = NICs a node (default 8)")
    group.add_argument("--gpus", type=int, help="GPUs a node (default: as many as rails)")
    group.add_argument("--link", help="rate of a NIC (default 400Gb/s)")
    group.add_argument(
        "--degrade",
        metavar="NODE:RAIL=FRACTION",
        action="append",
        default=[],
        help="a NIC at a fraction of its rate, e.g. 3:5=0.5; 0 is dead; may be repeated",
    )


def fabric_from(args: argparse.Namespace) -> Fabric:
    """The fabric that the options describe."""
    given = [name for name in ("nodes", "rails", "gpus", "link") if getattr(args, name) is not None]
    if args.fabric and given:
        raise InputError(f"--fabric and --{given[0]} contradict each other: give one of them")
    defaults: dict[str, Any] = {"nodes": 8, "rails": 8, "gpus": None, "link": "400Gb/s"}
    options: dict[str, Any] = {
        name: default if getattr(args, name) is None else getattr(args, name)
        for name, default in defaults.items()
    }
    fabric = Fabric.read(args.fabric) if args.fabric else Fabric.uniform(**options)
    return fabric.degraded(dict(map(_nic, args.degrade))) if args.degrade else fabric


def _nic(text: str) -> tuple[tuple[int, int], str]:
    try:
        place, fraction = text.split("=")
        node, rail = map(int, place.split(":"))
    except ValueError:
        raise InputError(f"--degrade {text!r}: expected NODE:RAIL=FRACTION, e.g. 3:5=0.5") from None
    return (node, rail), fraction


TRAFFIC_HELP = (
    "a file (.npz, .cm, or an nccl-tests alltoallv matrix) or a workload such as "
    "moe:skew=0.8,seed=1 "
    f"({', '.join(WORKLOADS)})"
)


def traffic_from(text: str, fabric: Fabric) -> Traffic:
    """A traffic file, or a generated workload by its spec; a file wins where both exist."""
    if not Path(text).exists() and text.partition(":")[0] in WORKLOADS:
        return from_spec(text, fabric)
    if not Path(text).exists() and not Path(text).suffix:
        raise InputError(
            f"{text!r} is neither a file nor a workload; known workloads: {', '.join(WORKLOADS)}"
        )
    return Traffic.read(text, fabric)


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """--json and --force."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--force", action="store_true", help="replace files that exist")


def print_json(data: Any) -> None:
    """One JSON document on stdout; Fractions as "p/q" strings, exact."""
    print(json.dumps(data, default=_jsonable, indent=2))


def _jsonable(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str | None = None) -> None:
    """An aligned plain-text table on stdout: first column to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [
        max(len(name), *(len(row[i]) for row in cells), 0) if cells else len(name)
        for i, name in enumerate(columns)
    ]
    if title:
        print(title)
    for row in [list(columns), ["-" * width for width in widths], *cells]:
        print(
            "  ".join(
                cell.ljust(w) if i == 0 else cell.rjust(w)
                for i, (cell, w) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
        )


def percent(gap: Fraction) -> str:
    """A gap as a percentage, three significant digits; an exact zero says so."""
    return "0" if gap == 0 else f"{float(gap) * 100:.3g}"


def note(text: str) -> None:
    """Talk: to stderr."""
    print(text, file=sys.stderr)


def write_json(path: str, data: Any, *, force: bool) -> None:
    """A JSON file, whole or not at all."""
    write_atomic(path, json.dumps(data, default=_jsonable, indent=2) + "\n", force=force)
