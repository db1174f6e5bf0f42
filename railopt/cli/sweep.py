"""`railopt sweep`: run a grid of instances, on this machine or on a cluster, and go on where it
stopped.
"""

from __future__ import annotations

import argparse
import os

from railopt.base.errors import InputError, printable
from railopt.base.units import quoted
from railopt.cli.common import Idle, note, positive, print_json
from railopt.cli.progress import stage
from railopt.sweep import client, spec
from railopt.sweep.results import good_keys

REASONS_SHOWN = 10
EPILOG = """Workers write into the results folder themselves: on a cluster it must be a folder that
all nodes share.
A second run skips what is finished and tries again what failed; Ctrl-C stops cleanly.

example:
  railopt sweep spec.toml -o results
  railopt sweep spec.toml -o results --cluster tcp://head:8786
  railopt sweep spec.toml -o results --shard 3/16        # part 3 of 16

a spec:
  limit = "1s"
  [grid]
  nodes = [8]
  traffic = ["moe:skew=0.5", "bytes.csv"]       # workloads, or files in the spec's folder
  chunk = ["256KiB", "1MiB"]
  policy = ["lpt", "lpt-local", "equitable"]
  seed = [0, 1, 2]"""


IDLE = (
    Idle("shard workers cluster", beside=["dry_run"]),
    Idle("workers", beside=["cluster"]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="SPEC.toml", help="the grid, further instances, and limits")
    parser.add_argument("-o", "--output", default="results", metavar="DIR", help="results folder")
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS|FILE",
        help="a Dask scheduler: tcp://host:port, or a scheduler file",
    )
    parser.add_argument(
        "--shard",
        metavar="I/N",
        type=_shard,
        default="0/1",
        help="run part I of N alone, the first is 0",
    )
    parser.add_argument(
        "--workers",
        type=positive,
        help="instances at a time on this machine (default: cores / threads of the spec)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="say how many instances there are and how many are left",
    )
    parser.add_argument("--json", action="store_true", help="print a summary as JSON")


def run(args: argparse.Namespace) -> int:
    sweep = spec.read(args.spec)
    if not args.output or (os.path.exists(args.output) and not os.path.isdir(args.output)):
        raise InputError(
            f"-o {quoted(args.output)}: expected the name of a folder, a new one or one with "
            "results"
        )
    if args.dry_run:
        left = len({point.key for point in sweep.instances} - good_keys(args.output))
        print_json({"instances": len(sweep.instances), "left": left})
        return 0
    summary = client.run(
        sweep,
        args.output,
        cluster=args.cluster,
        shard=args.shard,
        workers=args.workers,
        tell=stage,
    )
    if args.json:
        print_json(summary._asdict())
    note(
        f"{printable(sweep.name or 'sweep')}: {summary.done} done, {summary.skipped} were there "
        f"already, {summary.failed} failed, of {summary.total} -> {args.output}"
        + ("; interrupted: run it again to go on" if summary.interrupted else "")
    )
    for reason, count in list(summary.reasons.items())[:REASONS_SHOWN]:
        note(f"  failed {count} x: {printable(reason)}")
    if len(summary.reasons) > REASONS_SHOWN:
        note(
            f"  and for {len(summary.reasons) - REASONS_SHOWN} other reasons: railopt results "
            f"{args.output} --failed"
        )
    return 130 if summary.interrupted else 2 if summary.failed else 0


def _shard(text: str) -> tuple[int, int]:
    try:
        part, parts = map(int, text.split("/"))
    except ValueError:
        raise InputError(f"{text!r}: expected I/N, e.g. 0/4") from None
    return part, parts
