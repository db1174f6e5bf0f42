"""railopt compare TRAFFIC: what dead and slow NICs cost each policy."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from railopt.answers.compare import Comparison, Cost, added_up, changes_text, compare, fastest
from railopt.answers.outliers import median_rate
from railopt.base.errors import Infeasible, InputError
from railopt.base.units import duration, format_time, percent
from railopt.cli import common
from railopt.model.fabric import Fabric
from railopt.policies import POLICIES

EPILOG = """examples:
  railopt compare moe:skew=0.8,seed=1 --healthy fabric.toml --degraded today.toml
  railopt compare moe:skew=0.8,seed=1 --healthy fabric.toml --degrade 3:5=0 --figure cost.svg
  railopt compare moe:skew=0.8,seed=1 --nodes 8 --rails 8 --link 400Gb/s --degraded today.toml

Without --healthy, sizes are those of the degraded fabric and the rate is its median; beside
--degrade they are 8 nodes, 8 rails and 400Gb/s.  The NICs that lost most are named first.
"kept" is the time of the plan for the healthy fabric if it is carried out on the degraded one:
"never" where bytes of it wait for a dead NIC.  Bounds are certified: no plan of these chunks is
faster on that fabric.
Of a routing trace with layer=all or step=all, every dispatch has its rows, and the rows "all" add
their times up."""
SHOWN, DRAWN = 8, 2  # NICs that are named in the answer, and in the title of the figure


IDLE = (common.Idle("degrade", beside=["degraded"]),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("traffic", metavar="TRAFFIC", help=common.TRAFFIC_HELP)
    parser.add_argument(
        "--degraded",
        metavar="FABRIC",
        help="the fabric as it is now, e.g. as measured, instead of --degrade",
    )
    common.add_chunk_argument(parser)
    common.add_policies_argument(parser, POLICIES)
    common.add_figure_arguments(parser, "draw both times")
    common.add_output_arguments(parser, "figure")
    usual = "see below"
    common.add_fabric_arguments(parser, "--healthy", nodes=usual, rails=usual, link=usual)


def run(args: argparse.Namespace) -> int:
    """One row per policy; the exit code."""
    width = common.figure_width(args, "figure")
    healthy, degraded = _fabrics(args)
    demands = common.one_figure(common.demands_from(args.traffic, healthy), args)
    found = {
        name: compare(healthy, degraded, demand.chunks(args.chunk), args.policy)
        for name, demand in demands.items()
    }
    costs, limits = added_up(list(found.values()))
    if args.format == "json":
        every = {"totals": [cost.as_dict() for cost in (*costs, limits)]} if len(found) > 1 else {}
        common.print_json(
            {**common.by_dispatch({name: one.as_dict() for name, one in found.items()}), **every}
        )
    else:
        _print(found, changes_text(healthy, degraded, SHOWN), common.output_of(args))
    if args.figure:
        from railopt.report.comparison import comparison_figure

        title = common.title_of(args, f"{args.traffic}\n{changes_text(healthy, degraded, DRAWN)}")
        figure = comparison_figure(next(iter(found.values())), title, width=width)
        common.save_drawing(args, "figure", figure)
    planned = all(fastest(costs, name) is not None for name in ("healthy", "degraded"))
    return 0 if planned else Infeasible.exit_code


def _fabrics(args: argparse.Namespace) -> tuple[Fabric, Fabric]:
    """The fabric as it should be, from its file or from flags, and as it is.  Beside --degraded,
    what flags leave out is as there, and the rate is the median of its NICs.
    """
    if args.degraded is None:
        if not args.degrade:
            raise InputError("expected --degraded, the fabric as it is now, or --degrade")
        healthy = common.described_healthy(args).fabric
        return healthy, common.degraded_by(args, healthy)
    degraded = Fabric.read(args.degraded)
    sizes = {name: getattr(degraded, name) for name in ("nodes", "rails", "gpus")}
    middle = f"{median_rate(degraded) * 8}b/s"
    healthy = common.described_healthy(args, {**sizes, "link": middle}).fabric
    if args.fabric is None and healthy.rails == degraded.rails:
        healthy = replace(degraded, tx=healthy.tx, rx=healthy.rx)
    return healthy, degraded


def _print(found: dict[str, Comparison], changed: str, out: common.Output) -> None:
    """The rows of each dispatch, those of their sum, and what they come to in words."""
    costs, limits = added_up(list(found.values()))
    rows = {name: _rows(one.costs, one.limits) for name, one in found.items()}
    if len(found) > 1:
        rows["all"] = _rows(costs, limits)
    out.by_dispatch(["policy", "healthy", "degraded", "costs %", "kept"], rows)
    without = " and ".join(
        f"the {name} fabric" for name in ("healthy", "degraded") if getattr(limits, name) is None
    )
    rises = f"the bound rises by {percent(limits.cost)} %"
    out.say(f"{changed}: {f'no time is enough for {without}' if without else rises}")
    for name in ("healthy", "degraded"):
        if (best := fastest(costs, name)) is not None:
            out.say(f"best, {name}: {best.policy}, {format_time(getattr(best, name))}")
    refused = [
        f"{cost.policy}: {cost.why}" for one in found.values() for cost in one.costs if cost.why
    ]
    for text in dict.fromkeys(refused):
        common.note(text)


def _rows(costs: Sequence[Cost], limits: Cost) -> list[list[Any]]:
    return [*(_row(cost, "no plan") for cost in costs), [*_row(limits, "none")[:-1], ""]]


def _row(cost: Cost, nothing: str) -> list[Any]:
    return [
        cost.policy,
        nothing if cost.healthy is None else duration(cost.healthy),
        nothing if cost.degraded is None else duration(cost.degraded),
        "" if cost.cost is None else percent(cost.cost),
        "" if cost.healthy is None else "never" if cost.kept is None else duration(cost.kept),
    ]
