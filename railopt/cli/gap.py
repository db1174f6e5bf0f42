"""railopt gap TRAFFIC|PLAN...: how far policies or plans are from the best possible."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

from railopt.answers.gap import (
    DEFAULT_POLICIES,
    DEFAULT_SIZES,
    GapRow,
    file_gaps,
    gap_lines,
    moved_file,
    policy_gaps,
    save_certificates,
    totals,
    uplinks_file,
)
from railopt.base.arrays import kind_of
from railopt.base.errors import CheckFailed, InputError, RailoptError, printable
from railopt.base.units import Quantity, duration, format_time, percent, size
from railopt.cli import common
from railopt.cli.progress import show, stage
from railopt.model.plan import Plan

EPILOG = """examples:
  railopt gap moe:skew=0.8,seed=1 --policy lpt,lpt-local --chunk 256KiB,1MiB,4MiB --limit 10s
  railopt gap moe:skew=0 --nodes 16 --chunk 1MiB,4MiB --certificate certs --figure gap.svg
  railopt gap moe:skew=0.5 --figure gap.pdf --width column
  railopt gap trace.npz:step=-1,layer=all,model=deepseek-v3 --chunk 1MiB --limit 0s
  railopt gap inspector:/tmp/job --nodes 16 --policy own-nic,spill --chunk 1MiB --limit 0s
  railopt gap plan.npz other.npz --json

"plan" says whether this plan is optimal (its value is the bound, by a witness).  "optimum" says
what is known of the best possible: known (some plan attains the bound, so the gap is exact),
claimed (a solver says that its plan is optimal, and "bound" is its word; certificates hold the best
bound that has a witness), open (it lies between the bound and "best").
With --moved, in place of "best %" and "time": "moved" is what the plan moves between GPUs of a
node, before and after the rails; "least" is a bound on what plans as fast as this one move, "above
%" how far the plan is above it ("-" where that is nothing, and the plan moves something).
Where the fabric has leaves, "uplinks" is what the busiest leaf's links above need for the plan, all
of them at work, and "cut" what no plan beats there; policies and bounds are of NICs.  With two of
--moved, leaves and several dispatches, "bound", "least" and "cut" are shown with --wide alone; with
all three, "optimum" too.
Of a routing trace, step and layer are chosen behind its name, -1 being the last; all: each
dispatch has its rows, and then their times are added up; sum: one dispatch of all their bytes.
exit codes: 0 done, 1 bad input, or a file can't be written (the rows are printed nevertheless),
2 no rail lives between two nodes, 4 a saved certificate does not check, 130 interrupted (the rows
so far are printed, with the best bound found)"""


def _plans(args: argparse.Namespace) -> str:
    plans = any(kind_of(text) == "plan" for text in args.traffic)
    return "a plan, which has its own policy, chunks and fabric" if plans else ""


def _no_search(args: argparse.Namespace) -> str:
    return "" if args.limit else "--limit 0s, which leaves no time for a search"


IDLE = (
    common.Idle(f"policy chunk {' '.join(common.FABRIC_FLAGS)}", beside=[_plans]),
    common.Idle("seed", beside=[_no_search]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traffic", nargs="+", metavar="TRAFFIC|PLAN", help=f"{common.TRAFFIC_HELP}; or plans (.npz)"
    )
    common.add_policies_argument(parser, DEFAULT_POLICIES)
    parser.add_argument(
        "--chunk",
        type=common.listed,
        default=",".join(DEFAULT_SIZES),
        help='largest chunks, with commas between them, or "flow" for whole flows',
    )
    parser.add_argument(
        "--limit",
        type=common.time_s,
        default="10s",
        help="time for the optimum of a chunk size, e.g. 500ms, and with --moved as much for each "
        "plan; 0s: closed-form bounds only",
    )
    parser.add_argument(
        "--moved",
        action="store_true",
        help="show the bytes that each plan moves inside nodes, and the least that plans as fast "
        "move",
    )
    parser.add_argument("--seed", type=common.natural, default=0, help="random seed of the search")
    parser.add_argument(
        "--certificate",
        metavar="DIR",
        help="save certificates of each row there: of its time, and with --moved of the bytes that "
        "it moves (railopt check re-checks them)",
    )
    common.add_figure_arguments(parser, "draw gap against chunk size")
    common.add_background_argument(parser, plans="")
    common.add_output_arguments(parser, "certificate", "figure")
    common.add_fabric_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """One row per policy and chunk size; the exit code.  What took time to find is printed, even
    where files can't be written.
    """
    width = common.figure_width(args, "figure", check=False)
    rows, interrupted = _found(args)
    said = [text for row in rows for text in row.report.notes] + ["interrupted"] * interrupted
    for text in dict.fromkeys(said):
        common.note(f"railopt: {text}")
    saved: list[Path] = []
    failure: Exception | None = None
    try:
        if args.certificate:
            stage("saving certificates")
            saved = save_certificates(rows, args.certificate, force=args.force)
    except (RailoptError, OSError) as error:
        failure = error
    if args.format == "json":
        files = [*map(str, saved), *(None for _ in rows[len(saved) :])]
        listed_rows = [
            {**row.as_dict(), "certificate": file} for row, file in zip(rows, files, strict=True)
        ]
        several = any(row.traffic for row in rows)
        sums = {"totals": [one.as_dict() for one in totals(rows)]} if several else {}
        common.print_json({"interrupted": interrupted, "rows": listed_rows, **sums})
    else:
        _table(rows, args.moved, common.output_of(args))
    if failure is not None:
        raise failure
    refused = bool(saved) and not _checked(rows, saved, args.certificate)
    if args.figure and rows:
        _figure(rows, args, width)
    return 130 if interrupted else CheckFailed.exit_code if refused else 0


def _found(args: argparse.Namespace) -> tuple[list[GapRow], bool]:
    """The rows, and whether Ctrl-C ended them early."""
    rows, interrupted = list[GapRow](), False
    try:
        for found in _rows(args):
            rows += found
    except KeyboardInterrupt:
        interrupted = True
    interrupted |= bool(rows) and rows[-1].report.interrupted
    if args.moved:
        interrupted |= _add_moved(rows, 0.0 if interrupted else args.limit)
    return rows, interrupted


def _add_moved(rows: list[GapRow], limit_s: float) -> bool:
    """Add to each row the least bytes that plans as fast move; whether Ctrl-C struck: then the rest
    has no time.  The fastest plan comes first, since its bound may serve the others.
    """
    from railopt.solver.moving.bound import MovedBounds

    bounds = MovedBounds()
    order = sorted(range(len(rows)), key=lambda i: rows[i].report.value, reverse=True)

    def add(within_s: float) -> None:
        while order:
            row = rows[order[-1]]
            stage(f"{row.chunk}  what {row.report.plan.policy} moves inside nodes")
            rows[order[-1]] = row._replace(moved=bounds.of(row.report.plan, limit_s=within_s))
            order.pop()

    try:
        add(limit_s)
    except KeyboardInterrupt:
        add(0.0)
        return True
    return False


def _checked(rows: list[GapRow], saved: list[Path], folder: str) -> bool:
    """Check the certificates that were saved, and say so; whether all are accepted."""
    from railopt.answers.check import check_all

    stage("checking certificates")
    moved = [moved_file(file) for row, file in zip(rows, saved, strict=True) if row.moved]
    checked = check_all(saved + moved)
    common.note(f"saved {len(saved) + len(moved)} certificates in {folder}: {checked}")
    verdicts = dict(checked.verdicts)
    if uplinks := [uplinks_file(file) for row, file in zip(rows, saved, strict=True) if row.cut]:
        more = check_all(uplinks, verified=False)
        common.note(f"and {len(uplinks)} of uplinks: {more}")
        verdicts |= more.verdicts
    refused = [(name, one) for name, one in verdicts.items() if not one.ok]
    for name, verdict in refused:
        common.note(f"{printable(name)}: {verdict.message}")
    return not refused


def _rows(args: argparse.Namespace) -> Iterator[list[GapRow]]:
    """The rows as they come: those of a chunk size, or of a plan."""
    how: dict[str, Any] = {"limit_s": args.limit, "seed": args.seed, "report": show}
    if _all_plans(args.traffic):
        plans = map(partial(_beside, args), args.traffic)
        for row in file_gaps(plans, args.traffic, **how):
            yield [row]
        return
    fabric = common.fabric_from(args)
    left = common.left_of(args, fabric, common.background_of(args, fabric))
    stage("traffic")
    demands = common.one_figure(common.demands_from(args.traffic[0], fabric), args)
    for name, demand in demands.items():
        for rows in policy_gaps(left, demand, args.policy, args.chunk, **how):
            if len(demands) > 1:
                rows = [row._replace(traffic=name, name=f"{row.name}-{name}") for row in rows]
            yield rows
        if rows[-1].report.interrupted:
            return


def _beside(args: argparse.Namespace, path: str) -> Plan:
    """A saved plan on what --background leaves of its fabric."""
    plan = Plan.read(path)
    left = common.left_of(args, plan.fabric, common.background_of(args, plan.fabric))
    return replace(plan, fabric=left)


def _all_plans(given: list[str]) -> bool:
    """Whether plans were given; else it is one traffic."""
    plans = [kind_of(text) == "plan" for text in given]
    if any(plans) and not all(plans):
        raise InputError("give either plans or one traffic, not both")
    if len(given) > 1 and not any(plans):
        raise InputError(f"{len(given)} traffics: expected one, or plans (.npz)")
    return all(plans)


def _table(rows: list[GapRow], moved: bool, out: common.Output) -> None:
    several = any(row.traffic for row in rows)
    columns = ["dispatch"] if several else []
    columns += ["policy", "chunk", "chunks", "value", "bound", "gap %", "plan", "optimum"]
    columns += ["moved", "least", "above %"] if moved else ["best %", "time"]
    leafy = any(row.cut for row in rows)
    columns += ["uplinks", "cut"] if leafy else []
    cells: list[list[Any]] = []
    for row in rows:
        report = row.report
        plan, bracket = report.plan, report.bracket
        optimal, gap, best_gap = report.optimal, report.gap, bracket.gap
        spent = Quantity(f"{report.time_s:.3g}s", report.time_s, "s")
        cells.append(
            [
                *([row.traffic] if several else []),
                plan.policy,
                row.chunk,
                len(plan.rail),
                duration(plan.makespan),
                duration(bracket.bound),
                percent(gap),
                "optimal" if optimal else "",
                bracket.status,
                *(_moved(row) if moved else (percent(best_gap), spent)),
                *(_uplinks(row) if leafy else ()),
            ]
        )
    more = ["chunks"] if moved else ["chunks", "best %", "time"]
    wanted = moved + several + leafy
    more += ["bound", "least", "cut"] if wanted > 1 else []
    more += ["optimum"] if wanted > 2 else []
    out.table(columns, cells, left=2 if several else 1, more=more)
    for one in totals(rows) if several else ():
        sums = one.bracket
        out.say(
            f"{one.policy}, {one.chunk}: {one.traffics} dispatches take "
            f"{format_time(sums.value or Fraction(0))}, {percent(sums.gap)} % above the sum of "
            f"their bounds, {format_time(sums.bound)}"
        )


def _uplinks(row: GapRow) -> list[Any]:
    cut = row.cut
    return [duration(row.report.plan.uplink_time), duration(cut.value)] if cut else ["", ""]


def _moved(row: GapRow) -> list[Any]:
    if row.moved is None:
        return ["", "", ""]
    return [size(row.report.plan.moved), size(row.moved.bytes), percent(row.moved_gap)]


def _figure(rows: list[GapRow], args: argparse.Namespace, width: float) -> None:
    from railopt.report.gaps import gap_against_chunk

    lines = gap_lines(rows)
    if not lines:
        raise InputError("--figure: no bytes cross between nodes, there is nothing to draw")
    figure = gap_against_chunk(lines, common.title_of(args, args.traffic[0]), width=width)
    common.save_drawing(args, "figure", figure)
