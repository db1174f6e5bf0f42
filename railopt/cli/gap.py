"""railopt gap TRAFFIC|PLAN...: how far policies or plans are from the best possible."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

from railopt.cli.common import (
    TRAFFIC_HELP,
    add_fabric_arguments,
    add_output_arguments,
    fabric_from,
    note,
    percent,
    print_json,
    table,
    traffic_from,
)
from railopt.cli.solve import is_plan
from railopt.errors import InputError
from railopt.gaps import GapReport
from railopt.plans import Plan
from railopt.policies import KNOWN, plan, policy_names
from railopt.units import format_bytes, format_time, parse_time, seconds

HELP = "how far a plan or a policy is from the best possible"
EPILOG = """examples:
  railopt gap moe:skew=0.8,seed=1 --policy lpt,lpt-local,equitable --chunk 64KiB,256KiB,1MiB,4MiB --limit 10s
  railopt gap moe:skew=0 --nodes 16 --chunk 1MiB,4MiB --certificate certs --figure gap.svg
  railopt gap plan.npz other.npz --json

status says what is known of the optimum: proved (a plan attains the certified bound, the gap is exact), claimed (a solver
says that its plan is optimal), open (the optimum lies between the bound and "best").  The last columns stand for `lpt` as
each sender sees it: Graham's guarantee 4/3 - 1/(3N), the one from the k chunks of its fullest rail, (k+1)/k - 1/(kN), and
what the slowest sender is really above its own bound; neither knows the receivers, which is where the gap comes from.
exit codes: 0 done, 130 interrupted (the rows so far are printed, with the best bound found)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "traffic", nargs="+", metavar="TRAFFIC|PLAN", help=f"{TRAFFIC_HELP}; or plans (.npz)"
    )
    parser.add_argument(
        "--policy",
        default="lpt,lpt-local,equitable",
        help=f"of {KNOWN} (default lpt,lpt-local,equitable)",
    )
    parser.add_argument(
        "--chunk",
        default="64KiB,256KiB,1MiB,4MiB",
        help='or "flow": whole flows (default 64KiB,256KiB,1MiB,4MiB)',
    )
    parser.add_argument(
        "--limit",
        default="10s",
        help="time a chunk size, e.g. 500ms; 0s: closed-form bounds only (default 10s)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the search (default 0)")
    parser.add_argument(
        "--certificate",
        metavar="DIR",
        help="save a certificate of each row there (railopt check re-checks them)",
    )
    parser.add_argument("--figure", metavar="FILE.svg|.png", help="draw gap against chunk size")
    add_output_arguments(parser)
    add_fabric_arguments(parser)


def run(args: argparse.Namespace) -> int:
    """One row a policy and chunk size, as they come; the exit code."""
    rows: list[tuple[str, GapReport]] = []
    interrupted = False
    try:
        for row in _rows(args):
            rows.append(row)
            interrupted = interrupted or "interrupted" in row[1].notes
    except KeyboardInterrupt:
        interrupted = True
    for text in dict.fromkeys(text for _, report in rows for text in report.notes):
        note(f"railopt: {text}")
    saved = _certificates(rows, args) if args.certificate else {}
    if args.json:
        print_json(
            {
                "interrupted": interrupted,
                "rows": [
                    {"chunk": chunk, **report.as_dict(), "certificate": saved.get(i)}
                    for i, (chunk, report) in enumerate(rows)
                ],
            }
        )
    else:
        _table(rows)
    if args.figure and rows:
        _figure(rows, args)
    return 130 if interrupted else 0


def _rows(args: argparse.Namespace) -> Iterator[tuple[str, GapReport]]:
    """(chunk size as given, report), chunk size by chunk size; after an interrupt only what was at
    work.
    """
    from railopt.cli.progress import Ticker
    from railopt.gaps import gaps

    limit_s = float(seconds(parse_time(args.limit)))
    with Ticker() as ticker:
        for label, plans in _plans(args):
            ticker.label = label
            for report in gaps(plans, limit_s=limit_s, seed=args.seed, report=ticker):
                yield label, report
            if "interrupted" in report.notes:
                return


def _plans(args: argparse.Namespace) -> Iterator[tuple[str, list[Plan]]]:
    files = [is_plan(text) for text in args.traffic]
    if any(files):
        if not all(files):
            raise InputError("give either plans or one traffic, not both")
        for path in args.traffic:
            loaded = Plan.load(path)
            yield format_bytes(loaded.chunks.largest), [loaded]
        return
    if len(args.traffic) > 1:
        raise InputError(f"{len(args.traffic)} traffics: expected one, or plans (.npz)")
    policies = policy_names(args.policy)
    fabric = fabric_from(args)
    traffic = traffic_from(args.traffic[0], fabric)
    for cap in (text.strip() for text in args.chunk.split(",") if text.strip()):
        chunks = traffic.chunks(cap)
        yield cap, [plan(fabric, chunks, policy) for policy in policies]


def _table(rows: list[tuple[str, GapReport]]) -> None:
    columns = ["policy", "chunk", "chunks", "value", "bound", "gap %", "status", "best %", "time"]
    guaranteed = any(report.guarantee for _, report in rows)
    cells: list[list[Any]] = []
    for chunk, report in rows:
        known = report.guarantee
        cells.append(
            [
                report.plan.policy,
                chunk,
                len(report.plan.chunks),
                format_time(report.value),
                format_time(report.bound),
                percent(report.gap),
                report.status,
                percent(report.bracket),
                f"{report.time:.3g}s",
            ]
        )
        if guaranteed:
            cells[-1] += (
                ["", "", "", ""]
                if known is None
                else [
                    _over(known.apriori),
                    known.chunks_on_critical,
                    _over(known.aposteriori),
                    _over(known.measured),
                ]
            )
    table(
        columns + (["send: a priori %", "k", "a posteriori %", "measured %"] if guaranteed else []),
        cells,
    )


def _over(ratio: Fraction) -> str:
    return percent(ratio - 1)


def _certificates(rows: list[tuple[str, GapReport]], args: argparse.Namespace) -> dict[int, str]:
    folder = Path(args.certificate)
    folder.mkdir(parents=True, exist_ok=True)
    saved = {}
    for i, (chunk, report) in enumerate(rows):
        name = (
            f"{report.plan.policy}-{chunk}"
            if not is_plan(args.traffic[0])
            else Path(args.traffic[i]).stem
        )
        path = folder / f"{name.replace(':', '-').replace('/', '-').replace(' ', '')}.json"
        report.save_certificate(path, force=args.force)
        saved[i] = str(path)
    note(f"saved {len(saved)} certificates in {folder}")
    return saved


def _figure(rows: list[tuple[str, GapReport]], args: argparse.Namespace) -> None:
    from railopt.report.gaps import gap_against_chunk
    from railopt.report.heatmap import save_figure

    lines: dict[str, list[tuple[int, float]]] = {}
    for _, report in rows:
        lines.setdefault(report.plan.policy, []).append(
            (report.plan.chunks.largest, float(report.gap) * 100)
        )
    save_figure(
        gap_against_chunk(lines, f"{args.traffic[0]}: gap against chunk size"),
        args.figure,
        force=args.force,
    )
    note(f"saved {args.figure}")
