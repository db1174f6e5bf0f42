"""`railopt fabric-from-perftest`: measured NIC rates -> a fabric file."""

from __future__ import annotations

import argparse
import sys

import numpy as np

from railopt.answers.outliers import outlier_lines, outliers
from railopt.cli.common import Idle, add_force_argument, note, positive, print_json
from railopt.cli.launching import naming_of, require_toml
from railopt.model.fabric import Fabric
from railopt.runtime.perftest import calm_step, fabric_from, read, rounded

EPILOG = """measure each NIC against a fast peer, one report per NIC, named by node and rail or by
host and device; .json of --out_json, or what perftest prints as .txt, .log or .out:
  ib_write_bw -d mlx5_0 --report_gbits --out_json --out_json_file=gpu01-mlx5_0.json PEER
NICs that are dead or at least 5 % below the median are printed first, the slowest on top.
examples:
  railopt fabric-from-perftest node*_rail*.json -o fabric.toml
  railopt fabric-from-perftest gpu*-mlx5_*.json --hosts gpu[01-08] --missing dead --round 1%"""

MANY = 16  # different rates; more are noise
SHOWN = 20  # slow NICs that are named


IDLE = (Idle("devices", without=["hosts"]),)  # reports are then named by numbers


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "reports",
        nargs="+",
        metavar="REPORT",
        help="perftest reports, e.g. node0_rail3.json, or with --hosts gpu01-mlx5_0.json",
    )
    parser.add_argument(
        "--hosts",
        metavar="HOST,HOST,...|FILE",
        help="the hosts in names of reports, in node order, e.g. gpu[01-08]; or a file of them",
    )
    parser.add_argument(
        "--ib-dev",
        dest="devices",
        metavar="DEV,DEV,...",
        help="with --hosts: the devices in rail order (default: all in names, mlx5_2 before 10)",
    )
    parser.add_argument(
        "--missing",
        choices=["dead"],
        help="a NIC whose report is missing or failed is dead (default: refused)",
    )
    parser.add_argument(
        "--round",
        metavar="STEP",
        help="round rates to the nearest multiple of 1%% of the middle rate, or of e.g. 5Gb/s; 0: "
        f"as measured (default, where there are more than {MANY} rates: 1, 2 or 5%%, by the noise)",
    )
    parser.add_argument("--gpus", type=positive, help="GPUs per node (default: as many as rails)")
    parser.add_argument(
        "-o", "--output", metavar="FABRIC.toml", help="where to save it (default: stdout)"
    )
    parser.add_argument("--json", action="store_true", help="print the fabric as JSON")
    add_force_argument(parser, "output")


def run(args: argparse.Namespace) -> int:
    require_toml("-o", args.output)
    dead = args.missing == "dead"
    gathered = read(args.reports, naming_of(args), missing_dead=dead)
    fabric = fabric_from(gathered, args.gpus, missing_dead=dead)
    for text in gathered.failed:
        note(f"dead: {text}")
    slow = outliers(fabric)
    if not args.json:
        out = sys.stdout if args.output else sys.stderr  # without -o, stdout is the file
        for text in outlier_lines(slow, SHOWN):
            print(text, file=out)
    fabric = _calm(fabric, args.round)
    if args.output:
        fabric.save(args.output, force=args.force)
        note(f"saved {args.output}: {fabric.nodes} nodes x {fabric.rails} rails")
    if args.json:
        names = {"hosts": fabric.hosts, "devices": fabric.devices}
        found = {"outliers": [nic.as_dict() for nic in slow]}
        print_json({**fabric.header(), **names, "tx": fabric.tx, "rx": fabric.rx, **found})
    elif not args.output:
        sys.stdout.write(fabric.to_toml())
    return 0


def _calm(fabric: Fabric, step: str | None) -> Fabric:
    """Rates rounded to the step that was given, or that keeps noise out of the file."""
    if step is not None:
        return fabric if step == "0" else rounded(fabric, step)
    values = len(np.unique(np.concatenate([fabric.tx, fabric.rx])))
    if values <= MANY:
        return fabric
    step = calm_step(fabric)
    note(f"{values} different rates: rounded to {step} of the middle one (--round 0 keeps them)")
    return rounded(fabric, step)
