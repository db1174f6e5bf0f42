"""railopt compare TRAFFIC: what dead and slow NICs cost each policy."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import Any

from railopt.answers.compare import Comparison, changes_text, compare
from railopt.answers.outliers import median_rate
from railopt.base.errors import Infeasible, InputError
from railopt.base.units import duration, format_time, percent
from railopt.cli import common
from railopt.model.fabric import Fabric, parse_nics
from railopt.policies import KNOWN, POLICIES

EPILOG = """examples:
  railopt compare moe:skew=0.8,seed=1 --healthy fabric.toml --degraded today.toml
  railopt compare moe:skew=0.8,seed=1 --healthy fabric.toml --degrade 3:5=0 --figure cost.svg
  railopt compare moe:skew=0.8,seed=1 --nodes 8 --rails 8 --link 400Gb/s --degraded today.toml

Without --healthy, sizes are those of the degraded fabric and the rate is its median; beside
--degrade they are 8 nodes, 8 rails and 400Gb/s.  The NICs that lost most are named first.
"kept" is the time of the plan for the healthy fabric if it is carried out on the degraded one:
"never" where bytes of it wait for a dead NIC.  Bounds are certified: no plan of these chunks is
faster on that fabric."""
SHOWN, DRAWN = 8, 2  # NICs that are named in the answer, and in the title of the figure


IDLE = (common.Idle("force width title", without=["figure"]),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traffic", metavar="TRAFFIC", help=common.TRAFFIC_HELP)
    parser.add_argument(
        "--healthy",
        metavar="FABRIC",
        help="the fabric as it should be (.toml), or --nodes, --rails, --gpus and --link",
    )
    for name in ("nodes", "rails", "gpus"):
        parser.add_argument(
            f"--{name}",
            type=common.integer,
            help=f"{name} of the healthy fabric (default: see below)",
        )
    parser.add_argument("--link", help="rate of a healthy NIC (default: see below)")
    parser.add_argument(
        "--degraded", metavar="FABRIC", help="the fabric as it is now, e.g. as measured"
    )
    parser.add_argument(
        "--degrade",
        metavar="NODE:RAIL=FRACTION",
        action="append",
        default=[],
        help="a NIC at a fraction of its healthy rate, instead of --degraded; 0 is dead; may be "
        "repeated",
    )
    parser.add_argument(
        "--chunk", default="1MiB", help='largest chunk, or "flow" for whole flows (default 1MiB)'
    )
    parser.add_argument(
        "--policy", help=f"policies, with commas between them: {KNOWN} (default: all)"
    )
    parser.add_argument("--figure", metavar="FILE", help=f"draw both times: {common.FORMATS_HELP}")
    common.add_figure_arguments(parser)
    common.add_output_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """One row per policy; the exit code."""
    width = common.figure_width(args, "figure")
    healthy, degraded = _fabrics(args)
    chunks = common.demand_from(args.traffic, healthy).chunks(args.chunk)
    policies = common.listed(args.policy, "--policy") or tuple(POLICIES)
    found = compare(healthy, degraded, chunks, policies)
    if args.format == "json":
        common.print_json(found.as_dict())
    else:
        _print(found, changes_text(healthy, degraded, SHOWN), common.output_of(args))
    if args.figure:
        from railopt.report.comparison import comparison_figure

        title = common.title_of(args, f"{args.traffic}\n{changes_text(healthy, degraded, DRAWN)}")
        common.save_drawing(args, "figure", comparison_figure(found, title, width=width))
    planned = all(found.best(name) is not None for name in ("healthy", "degraded"))
    return 0 if planned else Infeasible.exit_code


def _fabrics(args: argparse.Namespace) -> tuple[Fabric, Fabric]:
    """The fabric as it should be, from its file or from flags, and as it is.  Beside --degraded,
    what flags leave out is as there, and the rate is the median of its NICs.
    """
    if (args.degraded is None) == (not args.degrade):
        raise InputError("expected one of --degraded FABRIC and --degrade NODE:RAIL=FRACTION")
    args.fabric = args.healthy
    if args.degraded is not None:
        degraded = Fabric.read(args.degraded)
        sizes = {name: getattr(degraded, name) for name in ("nodes", "rails", "gpus")}
        middle = f"{median_rate(degraded) * 8}b/s"
        healthy = common.described_fabric(args, {**sizes, "link": middle}).fabric
        if args.healthy is None and healthy.rails == degraded.rails:
            healthy = replace(degraded, tx=healthy.tx, rx=healthy.rx)
        return healthy, degraded
    healthy = common.described_fabric(args, {"nodes": 8, "rails": 8}).fabric
    try:
        return healthy, healthy.degraded(parse_nics(args.degrade))
    except InputError as error:
        raise InputError(f"--degrade {error}") from error


def _print(found: Comparison, changed: str, out: common.Output) -> None:
    rows: list[list[Any]] = [
        [
            cost.policy,
            "no plan" if cost.healthy is None else duration(cost.healthy),
            "no plan" if cost.degraded is None else duration(cost.degraded),
            "" if cost.cost is None else percent(cost.cost),
            "" if cost.healthy is None else "never" if cost.kept is None else duration(cost.kept),
        ]
        for cost in found.costs
    ]
    bounds = [
        "none" if bound is None else duration(bound.value)
        for bound in (found.healthy, found.degraded)
    ]
    rises = "" if found.least_cost is None else percent(found.least_cost)
    rows.append(["bound", *bounds, rises, ""])
    out.table(["policy", "healthy", "degraded", "costs %", "kept"], rows)
    without = " and ".join(
        f"the {name} fabric" for name in ("healthy", "degraded") if getattr(found, name) is None
    )
    said = f"no time is enough for {without}" if without else f"the bound rises by {rises} %"
    out.say(f"{changed}: {said}")
    for name in ("healthy", "degraded"):
        if (best := found.best(name)) is not None:
            out.say(f"best, {name}: {best.policy}, {format_time(getattr(best, name))}")
    for cost in found.costs:
        if cost.why:
            common.note(f"{cost.policy}: {cost.why}")
