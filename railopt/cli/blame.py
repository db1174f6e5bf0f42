"""railopt blame PLAN --counters BEFORE AFTER: which NIC was hot, and why."""

from __future__ import annotations

import argparse

from railopt.answers.blame import CAUSES, PARTS, Blame, blame, blame_counted
from railopt.base.units import Quantity, duration, percent, rate, size
from railopt.cli import common
from railopt.cli.launching import naming_of
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.runtime.counters import counted_between
from railopt.runtime.naming import Naming

EPILOG = """read the ports of every node, carry the plan out, read them again; one file per node:
  grep -H . /sys/class/infiniband/*/ports/1/{rate,counters/*,hw_counters/*} > before/gpu01.txt
or let node_exporter do it (node_infiniband_*), or railopt send --metrics FILE.
examples:
  railopt blame plan.npz --counters before/ after/ --hosts gpu[01-08] --runs 20 --figure hot.svg
  railopt blame plan.npz --metrics railopt.prom
  railopt blame --counters before/ after/ --fabric measured.toml

The hottest NIC is the one that needs most time for its bytes; the second table takes that time
apart.  Byte counters alone can't see a slow NIC: give measured rates with --fabric, and read wait
and error counters.  Ports count packets with their headers, metrics the payload of railopt's runs
alone."""
SHOWN = 10


def _no_plan(args: argparse.Namespace) -> str:
    return "" if args.plan else "no PLAN"


IDLE = (common.Idle("metrics runs", beside=[_no_plan]),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "plan",
        metavar="PLAN.npz",
        nargs="?",
        help="the plan that was carried out (default: none of railopt's, each GPU sends by its "
        "own NIC)",
    )
    parser.add_argument(
        "--fabric",
        metavar="FILE.toml",
        help="rates of the NICs, e.g. of fabric-from-perftest (default: the plan's, or the ports')",
    )
    read = parser.add_mutually_exclusive_group(required=True)
    read.add_argument(
        "--counters",
        nargs=2,
        metavar=("BEFORE", "AFTER"),
        help="two readings: a file, or a folder with one file per node, named by its host (and "
        ".txt, .prom, .json or .csv)",
    )
    read.add_argument(
        "--metrics",
        metavar="FILE",
        help="what railopt send --metrics wrote, in all its runs: a file, or a folder of them",
    )
    parser.add_argument(
        "--runs",
        type=common.positive,
        help="how often the plan was carried out in between (default 1)",
    )
    parser.add_argument(
        "--hosts",
        metavar="HOST,HOST,...|FILE",
        help="hosts of the port counters, in node order (default: as the plan's or the fabric's "
        "are named, else by the numbers in their names)",
    )
    parser.add_argument(
        "--ib-dev",
        dest="devices",
        metavar="DEV,DEV,...",
        help="devices of the port counters, in rail order (default: as the plan's or the fabric's "
        "are named, else all that were read, by number)",
    )
    common.add_figure_arguments(parser, "heat maps by node and rail")
    common.add_output_arguments(parser, "figure")


def run(args: argparse.Namespace) -> int:
    """The hottest NICs, the hottest one's time by cause, and a sentence; the exit code."""
    width = common.figure_width(args, "figure")
    plan = None if args.plan is None else Plan.read(args.plan)
    measured = None if args.fabric is None else Fabric.read(args.fabric)
    before, after = args.counters or (None, args.metrics)
    shape = None if plan is None else plan.fabric.tx.shape
    named = measured if plan is None or not plan.fabric.names() else plan.fabric
    usual = None if named is None else Naming(named.hosts, named.devices)
    counted = counted_between(before, after, shape, naming_of(args), usual)
    if plan is None:
        found = blame_counted(counted, measured)
        common.note("no plan: every byte is taken to belong to the NIC that carried it (own NIC)")
    else:
        found = blame(plan, counted, args.runs, measured)
    if counted.payload and not counted.links:
        common.note(
            "runs of loopback, where no NIC took part: rates are those of the plan's fabric"
        )
    if args.format == "json":
        common.print_json(found.as_dict())
    else:
        print_blame(found, common.output_of(args))
    if args.figure:
        from railopt.report.heatmap import blame_figure

        figure = blame_figure(found, common.title_of(args, found.verdict), width=width)
        common.save_drawing(args, "figure", figure)
    return 0


def print_blame(found: Blame, out: common.Output) -> None:
    """The hottest NICs (all, for programs), the hottest one's time by cause, verdict and hints."""
    hottest = found.nics[0].time
    rows = [
        [
            found.name(nic),
            duration(nic.time),
            percent(nic.time / hottest),
            size(round(nic.counted)),
            size(nic.planned),
            *("" if part < 1 else size(round(part)) for part in (nic.diverted, nic.others)),
            rate(nic.rate) if nic.rate else "dead",
        ]
        for nic in found.nics[: SHOWN if out.form == "text" else None]
    ]
    columns = ["NIC", "time", "of hottest %", "counted", "planned", "diverted", "others", "rate"]
    unplanned = "spread" in found.terms
    out.table(columns, rows, more=["planned", "diverted", "others"] if unplanned else [])
    print()
    words = {**PARTS, **CAUSES}
    out.table(
        ["time of the hottest NIC", "time", "share %"],
        [
            [words[name], _signed(found, name), percent(seconds / hottest)]
            for name, seconds in found.terms.items()
            if abs(seconds) * 1000 >= hottest
        ],
        beside=True,
    )
    out.say()
    out.say(found.verdict)
    for text in found.hints:
        out.say(text)


def _signed(found: Blame, name: str) -> Quantity:
    seconds = found.terms[name]
    return Quantity(f"{'-' * (seconds < 0)}{duration(abs(seconds))}", float(seconds), "s")
