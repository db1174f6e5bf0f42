"""`python -m experiments [--full] [NAME ...]`: run every experiment, or those whose name holds a
NAME, each in its own process.  One that needs more than Python is run where it is named.

Each prints its table of the paper against ours and writes out/NAME/results.json.  Exit code 4 if
one differs from what is expected of it, 3 if one crashed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import tomllib
from pathlib import Path

from experiments.common import NOT_TRIED, not_tried

HERE = Path(__file__).parent


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "names", nargs="*", help="only experiments whose name contains one of these"
    )
    parser.add_argument("--full", action="store_true", help="the sizes of the papers")
    parser.add_argument("--out", default="out", help="folder for the results (default out)")
    args = parser.parse_args()
    found = sorted(path.parent.name for path in HERE.glob("*/run.py"))
    codes = {}
    for name in (name for name in found if _chosen(name, args.names)):
        print(f"\n=== {name}", flush=True)
        begun = time.monotonic()
        command = [
            sys.executable,
            "-m",
            f"experiments.{name}.run",
            "--out",
            f"{args.out}/{name}",
            *(["--full"] if args.full else []),
        ]
        codes[name] = subprocess.run(command, cwd=HERE.parent, check=False).returncode
        print(f"=== {name}: exit code {codes[name]}, {time.monotonic() - begun:.0f} s", flush=True)
    if not args.names:
        write_not_tried(Path(args.out) / "not_tried")
    crashed, differ = (
        [n for n, c in codes.items() if c not in (0, 4)],
        [n for n, c in codes.items() if c == 4],
    )
    print(
        f"\n{len(codes)} experiments; crashed: {', '.join(crashed) or 'none'}; differ from what "
        f"is expected: {', '.join(differ) or 'none'}"
    )
    return 3 if crashed else 4 if differ else 0


def write_not_tried(folder: Path) -> None:
    """Rows of the report's table of headline claims that no experiment compares."""
    rows = [
        {
            "name": f"{each['paper']}: {each['claim']}",
            "paper_text": each["published"],
            "ours_text": "-",
            "verdict": NOT_TRIED,
            "inputs_text": each["why"],
            "headline": True,
        }
        for each in not_tried()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(json.dumps({"comparison": rows}, indent=2) + "\n")


def _chosen(name: str, words: list[str]) -> bool:
    """Whether an experiment is run: all are, but for those that their spec leaves to be named."""
    if words:
        return any(word in name for word in words)
    by_hand = tomllib.loads((HERE / name / "spec.toml").read_text()).get("by_hand")
    if by_hand:
        print(f"\n=== {name}: left out ({by_hand})", flush=True)
    return not by_hand


if __name__ == "__main__":
    sys.exit(main())
