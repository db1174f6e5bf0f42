"""railopt gap TRAFFIC|PLAN...: how far policies or plans are from the best possible."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from railopt.answers.check import check_all
from railopt.answers.gap import (
    DEFAULT_POLICIES,
    DEFAULT_SIZES,
    GapReport,
    GapRow,
    Guarantee,
    file_gaps,
    gap_lines,
    policy_gaps,
    save_certificates,
)
from railopt.base.arrays import kind_of
from railopt.base.errors import CheckFailed, InputError, RailoptError, printable
from railopt.base.tables import Quantity, duration, percent, size
from railopt.base.units import parse_time, seconds
from railopt.cli.common import (
    FABRIC_FLAGS,
    TRAFFIC_HELP,
    Idle,
    Output,
    add_fabric_arguments,
    add_output_arguments,
    demand_from,
    fabric_from,
    listed,
    note,
    output_of,
    print_json,
    seed,
)
from railopt.cli.drawing import FORMATS_HELP, add_width_argument, figure_width
from railopt.cli.heartbeat import stage
from railopt.policies import KNOWN

HELP = "how far a plan or a policy is from the best possible"
EPILOG = """examples:
  railopt gap moe:skew=0.8,seed=1 --policy lpt,lpt-local --chunk 256KiB,1MiB,4MiB --limit 10s
  railopt gap moe:skew=0 --nodes 16 --chunk 1MiB,4MiB --certificate certs --figure gap.svg
  railopt gap moe:skew=0.5 --figure gap.pdf --width column
  railopt gap plan.npz other.npz --json

"plan" says whether this plan is optimal (its value is the certified bound).  "optimum" says what is
known of the best possible: proved (some plan attains the certified bound, so the gap is exact),
claimed (a solver says that its plan is optimal, and "bound" is its word; certificates hold the best
bound that has a witness), open (it lies between the bound and "best").
"moved" is what the plan moves between GPUs of a node, before and after the rails; "least" is a
certified bound on what plans as fast as this one move, "above %" how far the plan is above it ("-"
where that is nothing, and the plan moves something).
The last columns stand for `lpt` as each sender sees it: Graham's guarantee 4/3 - 1/(3N), the one
from the k chunks of its fullest rail, (k+1)/k - 1/(kN), and what the slowest sender is really above
its own bound; neither knows the receivers, which is where the gap comes from.
exit codes: 0 done, 1 bad input, or a file can't be written (the rows are printed all the same),
2 no rail lives between two nodes, 4 a saved certificate does not check, 130 interrupted (the rows
so far are printed, with the best bound found)"""


def _plans(args: argparse.Namespace) -> str:
    plans = any(kind_of(text) == "plan" for text in args.traffic)
    return "a plan, which has its own policy, chunks and fabric" if plans else ""


def _no_search(args: argparse.Namespace) -> str:
    no_time = parse_time(args.limit) <= 0
    return f"--limit {args.limit}, which leaves no time for a search" if no_time else ""


IDLE = (
    Idle(f"policy chunk {' '.join(FABRIC_FLAGS)}", beside=[_plans]),
    Idle("seed", beside=[_no_search]),
    Idle("force", without=["certificate", "figure"]),
    Idle("width", without=["figure"]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    policies, sizes = ",".join(DEFAULT_POLICIES), ",".join(DEFAULT_SIZES)
    parser.add_argument(
        "traffic", nargs="+", metavar="TRAFFIC|PLAN", help=f"{TRAFFIC_HELP}; or plans (.npz)"
    )
    parser.add_argument("--policy", help=f"of {KNOWN} (default {policies})")
    parser.add_argument("--chunk", help=f'or "flow": whole flows (default {sizes})')
    parser.add_argument(
        "--limit",
        default="10s",
        help="time for the optimum of a chunk size, e.g. 500ms; the least bytes that each plan "
        "could move may take as much again; 0s: closed-form bounds only (default 10s)",
    )
    parser.add_argument("--seed", type=seed, help="of the search (default 0)")
    parser.add_argument(
        "--certificate",
        metavar="DIR",
        help="save certificates of each row there: of its time, and of the bytes that it moves "
        "(railopt check re-checks them)",
    )
    parser.add_argument(
        "--figure", metavar="FILE", help=f"draw gap against chunk size: {FORMATS_HELP}"
    )
    add_width_argument(parser)
    add_output_arguments(parser)
    add_fabric_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """One row a policy and chunk size; the exit code.  What took time to find is printed, whatever
    becomes of the files.
    """
    width = figure_width(args, "figure", check=False)  # rows are printed, whatever is in the way
    rows: list[GapRow] = []
    interrupted = False
    try:
        for row in _rows(args):
            rows.append(row)
            interrupted = interrupted or row.report.interrupted
            stage(f"{row.chunk}  what {row.report.plan.policy} moves inside nodes")
            _ = row.report.moving  # now, while Ctrl-C can end it
    except KeyboardInterrupt:
        interrupted = True
        rows = [row._replace(report=replace(row.report, limit_s=0.0)) for row in rows]
    said = [text for row in rows for text in row.report.notes] + ["interrupted"] * interrupted
    for text in dict.fromkeys(said):
        note(f"railopt: {text}")
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
        print_json(
            {
                "interrupted": interrupted,
                "rows": [
                    {**row.as_dict(), "certificate": file}
                    for row, file in zip(rows, files, strict=True)
                ],
            }
        )
    else:
        _table(rows, output_of(args))
    if failure is not None:
        raise failure
    if saved:
        written = saved + [
            file.with_suffix(".moved.json")
            for row, file in zip(rows, saved, strict=True)
            if row.report.moving is not None
        ]
        stage("checking certificates")
        checked = check_all(written)
        note(f"saved {len(written)} certificates in {args.certificate}: {checked}")
        refused = [(name, one) for name, one in checked.verdicts.items() if not one.ok]
        for name, verdict in refused:
            note(f"{printable(name)}: {verdict.message}")
    if args.figure and rows:
        _figure(rows, args, width)
    return 130 if interrupted else CheckFailed.exit_code if saved and refused else 0


def _rows(args: argparse.Namespace) -> Iterator[GapRow]:
    """The rows as they come."""
    from railopt.cli.progress import show

    limit_s, seed = float(seconds(parse_time(args.limit))), args.seed or 0
    _contradictions(args)
    if kind_of(args.traffic[0]) == "plan":
        yield from file_gaps(args.traffic, limit_s=limit_s, seed=seed, report=show)
        return
    fabric = fabric_from(args)
    stage("traffic")
    yield from policy_gaps(
        fabric,
        demand_from(args.traffic[0], fabric),
        listed(args.policy, "--policy") or DEFAULT_POLICIES,
        listed(args.chunk, "--chunk") or DEFAULT_SIZES,
        limit_s=limit_s,
        seed=seed,
        report=show,
    )


def _contradictions(args: argparse.Namespace) -> None:
    """What was given, but could not act."""
    plans = [kind_of(text) == "plan" for text in args.traffic]
    if any(plans):
        if not all(plans):
            raise InputError("give either plans or one traffic, not both")
    elif len(args.traffic) > 1:
        raise InputError(f"{len(args.traffic)} traffics: expected one, or plans (.npz)")


def _table(rows: list[GapRow], out: Output) -> None:
    columns = ["policy", "chunk", "chunks", "value", "bound"]
    columns += ["gap %", "plan", "optimum", "best %", "time"]
    moving = any(row.report.moving is not None for row in rows)
    columns += ["moved", "least", "above %"] if moving else []
    guaranteed = any(row.report.guarantee for row in rows)
    cells: list[list[Any]] = []
    for row in rows:
        report = row.report
        cells.append(
            [
                report.plan.policy,
                row.chunk,
                len(report.plan.chunks),
                duration(report.value),
                duration(report.bound),
                percent(report.gap),
                "optimal" if report.proved else "",
                report.optimum,
                percent(report.bracket.gap),
                Quantity(f"{report.time_s:.3g}s", report.time_s),
            ]
        )
        if moving:
            cells[-1] += _moved(report)
        if guaranteed:
            cells[-1] += _guarantees(report.guarantee)
    sends = ["send: a priori %", "k", "a posteriori %", "measured %"] if guaranteed else []
    out.table(columns + sends, cells)


def _moved(report: GapReport) -> list[Any]:
    if report.moving is None:
        return ["", "", ""]
    return [size(report.plan.moved), size(report.moving.bytes), percent(report.moved_gap)]


def _guarantees(known: Guarantee | None) -> list[Any]:
    if known is None:
        return ["", "", "", ""]
    return [
        percent(known.apriori - 1),
        known.chunks_on_critical,
        percent(known.aposteriori - 1),
        percent(known.measured - 1),
    ]


def _figure(rows: list[GapRow], args: argparse.Namespace, width: float) -> None:
    from railopt.report.gaps import gap_against_chunk
    from railopt.report.saving import save_figure

    lines = gap_lines(rows)
    if not lines:
        raise InputError("--figure: no bytes cross between nodes, there is nothing to draw")
    figure = gap_against_chunk(lines, printable(args.traffic[0]), width=width)
    save_figure(figure, args.figure, force=args.force)
    note(f"saved {args.figure}")
