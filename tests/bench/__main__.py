"""`python -m tests.bench [NAME ...] [--json]`: run the benchmarks, all of them or those whose name
holds a NAME.  `python -m tests.bench ablations` leaves mechanisms out (`ablations.py`), and
`python -m tests.bench trace COMMAND ...` prints the modules that a command passes through.
"""

from __future__ import annotations

import argparse
import importlib
import json
import platform
import sys
from dataclasses import asdict
from pathlib import Path

from tests.bench import ablations, trace


def main() -> int:
    if sys.argv[1:2] == ["ablations"]:
        return ablations.main(sys.argv[2:])
    if sys.argv[1:2] == ["trace"]:
        return trace.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="run only benchmarks whose name contains one of these"
    )
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    modules = sorted(path.stem for path in Path(__file__).parent.glob("bench_*.py"))
    chosen = [
        name for name in modules if not args.names or any(word in name for word in args.names)
    ]
    data = []
    if not args.json:
        print(
            f"# {platform.machine()}, Python {platform.python_version()}, single thread unless a "
            f"row says otherwise\n"
            f"# judged (met, MISSED): ratios to a yardstick of this run, balances and counts; "
            f"absolute times stand without a verdict"
        )
    for name in chosen:
        if not args.json:
            print(f"\n{name.removeprefix('bench_')}")
        for row in importlib.import_module(f"tests.bench.{name}").rows():
            data.append({"bench": name, **asdict(row), "met": row.met})
            if not args.json:
                verdict = {True: "met", False: "MISSED", None: ""}[row.met]
                print(
                    f"  {row.name:<62} {row.value:>12.4g} {row.unit:<8} {row.goal:>10}  "
                    f"{verdict:<7} {row.note}",
                    flush=True,
                )
    if not args.json:
        missed = sum(row["met"] is False for row in data)
        judged = sum(row["met"] is not None for row in data)
        print(f"\n{judged - missed} met, {missed} missed, {len(data) - judged} without a verdict")
    else:
        json.dump(
            {"machine": platform.machine(), "python": platform.python_version(), "rows": data},
            sys.stdout,
            indent=2,
        )
        print()
    return 0


sys.exit(main())
