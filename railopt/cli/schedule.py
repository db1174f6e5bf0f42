"""railopt schedule: a two-level schedule of an all-to-all(v), its cost against the bound, its
files.
"""

from __future__ import annotations

import argparse
import textwrap
import time

from railopt.base.arrays import check_suffix, check_targets, kind_of, write_atomic
from railopt.base.errors import InputError
from railopt.base.kernels import compiling_s
from railopt.base.units import format_bytes, format_time, parse_time, percent, seconds, size
from railopt.cli import common
from railopt.cli.progress import LONG_S, stage
from railopt.schedule import (
    KINDS,
    LINKS,
    ORDERS,
    Schedule,
    ScheduleCost,
    certificate,
    compare,
    cost,
    staged,
)
from railopt.schedule.compact import GoOn
from railopt.schedule.model import modelled
from railopt.schedule.synthesis import MANY
from railopt.schedule.value import require_two_levels

EPILOG = (
    """kinds:
"""
    + "\n".join(
        textwrap.fill(f"  {name:13} {kind.help}", 98, subsequent_indent=" " * 16)
        for name, kind in KINDS.items()
    )
    + """

examples:
  railopt schedule zipf:skew=0.8 --nodes 4 -o schedule.npz      ours, saved
  railopt schedule zipf:skew=0.8 --nodes 16 --compare           every kind side by side
  railopt schedule matrix.txt --nodes 4 --kind fast --cm fast.cm --plan fast.npz
  railopt schedule schedule.npz                                 re-check a saved schedule"""
)

# a search for stages, as measured on uniform traffic of 512 and 1,024 servers: 2.3 ns per triple;
# the matrix of bytes and its copies, and the schedule twice; FAST has up to n stages per server
SECONDS_PER_CUBE, BYTES_PER_PAIR, FAST_BYTES_PER_TRIPLE = 2.3e-9, 64, 36
MUCH_GB = 2.0
_FILES = ("output", "plan", "cm", "certificate", "stages_certificate")


def _saved(args: argparse.Namespace) -> str:
    return "a saved schedule" if kind_of(args.traffic) == "schedule" else ""


def _no_stages(args: argparse.Namespace) -> str:
    kind = args.kind or "compact"
    return "" if KINDS[kind].barriers else f"{kind}, which has no stages"


def _no_search(args: argparse.Namespace) -> str:
    kind = args.kind or "compact"
    return "" if args.compare or KINDS[kind].tunable else f"{kind}, which is not searched for"


IDLE = (
    common.Idle(
        f"kind order eps startup limit compare {' '.join(common.FABRIC_FLAGS)}", beside=[_saved]
    ),
    common.Idle("chunk", without=["plan"]),
    common.Idle("force", without=_FILES),
    common.Idle("kind", beside=["compare"], without=["stages", *_FILES]),
    common.Idle("order eps startup", beside=["compare"]),
    common.Idle("limit", beside=[_no_search]),
    common.Idle("order stages_certificate", beside=[_no_stages]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `railopt schedule`."""
    parser.add_argument(
        "traffic", metavar="TRAFFIC", help=f"{common.BYTES_HELP}; or a saved schedule"
    )
    parser.add_argument(
        "--kind", choices=list(KINDS), help="kind of schedule (default compact; see below)"
    )
    parser.add_argument(
        "--order", choices=ORDERS, help="order of the stages, by length (default: that of the kind)"
    )
    parser.add_argument(
        "--eps", help="compact: the stages may last 1 + EPS times the bound (default 1/50)"
    )
    parser.add_argument(
        "--startup",
        metavar="SIZE",
        help="compact: what two servers could exchange while a stage starts; no shorter parts "
        "(default 256KiB)",
    )
    parser.add_argument(
        "--limit",
        metavar="SECONDS",
        help=f"compact of {MANY} servers or more: search for stages so long (default: to the end), "
        "then send what is left as spreadout does; reading the traffic and writing the stages take "
        "their own time",
    )
    parser.add_argument(
        "--links",
        default="h100-400g",
        choices=list(LINKS),
        help="constants of the alpha-beta model",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="every kind side by side; --kind says which one is listed or saved",
    )
    parser.add_argument(
        "--stages", action="store_true", help="list the stages: who sends how much to whom"
    )
    _add_files(parser)
    common.add_fabric_arguments(parser)
    common.add_output_arguments(parser)


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE.npz", help="save the schedule")
    parser.add_argument(
        "--plan", metavar="FILE.npz", help="save it as a plan, for railopt check, simulate and send"
    )
    parser.add_argument(
        "--chunk",
        metavar="SIZE",
        help="largest chunk of the plan (default: whole pieces; pipelined: 256KiB)",
    )
    parser.add_argument(
        "--cm", metavar="FILE.cm", help="export for htsim, a barrier trigger between stages"
    )
    parser.add_argument(
        "--certificate",
        metavar="FILE.json",
        help="save the proof that L / (m B2) is the optimum, for railopt check",
    )
    parser.add_argument(
        "--stages-certificate",
        metavar="FILE.json",
        help="save the stages as a certificate: every byte in one stage, no server twice in one, "
        "what they add up to and the line that bounds it",
    )


def run(args: argparse.Namespace) -> int:
    """Make, load or compare; write what was asked for; print."""
    check_suffix(args.output, "schedule")
    check_suffix(args.plan, "plan")
    check_targets(*(getattr(args, name) for name in _FILES), force=args.force)
    costs = _costs(args)
    wanted = args.kind or "compact"
    made = next(c.schedule for c in costs if c.schedule.kind == wanted or len(costs) == 1)
    if args.stages and not KINDS[made.kind].barriers:
        raise InputError(f"--stages: {made.kind} has no stages; all its transfers start at once")
    _write(args, made)
    if args.format == "json":
        data = [
            {
                **c.as_dict(),
                **({"transfers": made.transfers()} if args.stages and c.schedule is made else {}),
            }
            for c in costs
        ]
        common.print_json(data if args.compare else data[0])
        return 0
    out = common.output_of(args)
    _print_costs(costs, args.links, out)
    if args.stages:
        print()
        _print_stages(made, out)
    return 0


def _costs(args: argparse.Namespace) -> list[ScheduleCost]:
    links = LINKS[args.links]
    if kind_of(args.traffic) == "schedule":
        loaded = Schedule.read(args.traffic)
        return [ScheduleCost(loaded, modelled(loaded, links))]
    made_for = common.fabric_from(args)
    kinds = list(KINDS) if args.compare else [args.kind or "compact"]
    go_on = _until(None if args.limit is None else float(seconds(parse_time(args.limit))))
    traffic = common.traffic_from(args.traffic, made_for)
    require_two_levels(made_for, traffic)
    _say_long(made_for.nodes, kinds, args.limit)
    if args.compare:
        return compare(made_for, traffic, links=links, go_on=go_on)
    options = {name: getattr(args, name) for name in ("order", "eps", "startup")}
    return [cost(made_for, traffic, kinds[0], **options, links=links, go_on=go_on)]


def _until(limit_s: float | None) -> GoOn:
    """Whether to search on for stages: until the limit; how far it is shows in the heartbeat."""
    began, over = time.monotonic() - compiling_s(), list[float]()

    def go_on(share: float) -> bool:
        stage(f"{share:.0%} of the bytes have a stage")
        if limit_s is None or time.monotonic() - compiling_s() - began < limit_s:
            return True
        if not over:
            common.note(
                f"--limit: {share:.0%} of the bytes have a stage that was searched for; the others "
                "go as in spreadout"
            )
        over.append(share)
        return False

    return go_on


def _say_long(nodes: int, kinds: list[str], limit: str | None) -> None:
    """Say before it begins that a search for stages takes long, or much memory."""
    searched = any(KINDS[kind].tunable for kind in kinds)
    fast = any(KINDS[kind].decompose is KINDS["fast"].decompose for kind in kinds)
    needs_s = nodes**3 * SECONDS_PER_CUBE if searched or fast else 0.0
    gb, fast_gb = nodes**2 * BYTES_PER_PAIR / 1e9, nodes**3 * FAST_BYTES_PER_TRIPLE / 1e9
    long = needs_s > LONG_S and not limit
    if long or gb > MUCH_GB:
        takes = f"about {needs_s / 60:.0f} min or more, and " if long else ""
        ends = "; --limit ends the search" * searched + "; --kind spreadout does not search"
        common.note(f"{nodes} servers: the stages take {takes}{gb:.1f} GB{ends if long else ''}")
    if fast and fast_gb > MUCH_GB:
        common.note(
            f"{nodes} servers: FAST has up to {nodes**2} stages, {fast_gb:.0f} GB, where no two "
            "pairs exchange as much"
        )


def _write(args: argparse.Namespace, made: Schedule) -> None:
    if args.output:
        made.save(args.output, force=args.force)
        common.note(f"wrote {args.output}")
    if args.certificate:
        certificate(made).require().save(args.certificate, force=args.force)
        common.note(f"wrote {args.certificate}")
    if args.stages_certificate:
        staged(made).require().save(args.stages_certificate, force=args.force)
        common.note(f"wrote {args.stages_certificate}")
    if args.plan:
        plan = made.plan(args.chunk)
        plan.save(args.plan, force=args.force)
        common.note(f"wrote {args.plan}: {len(plan.chunks)} chunks")
    if args.cm:
        write_atomic(args.cm, made.to_cm(), force=args.force)
        common.note(f"wrote {args.cm}")


def _print_costs(costs: list[ScheduleCost], links: str, out: common.Output) -> None:
    made = costs[0].schedule
    side = "sends" if made.bound.side == "send" else "receives"
    out.say(
        f"{made.fabric.nodes} servers x {made.fabric.gpus} GPUs; server {made.bound.node} {side} "
        f"{format_bytes(made.line_sum)}: no schedule is faster than {format_time(made.bound.value)}"
    )
    out.say(
        f"modelled on {links} links ({LINKS[links].beta_out:g} us/MB between servers, which makes "
        f"that bound {costs[0].parts.bound:.1f} us):"
    )
    rows = [
        [
            c.schedule.kind,
            c.schedule.stages if KINDS[c.schedule.kind].barriers else "-",
            percent(c.schedule.excess),
            f"{c.parts.wire:.1f}",
            f"{c.parts.startup:.1f}",
            f"{c.parts.balance:.1f}",
            f"{c.parts.redistribution:.1f}",
            f"{c.parts.total:.1f}",
            f"{c.parts.ratio:.3f}",
            "-" if c.synthesis_us is None else f"{c.synthesis_us:.0f}",
        ]
        for c in costs
    ]
    parts = ["wire us", "start-up", "balance", "redistr.", "total us", "/model's bound"]
    out.table(["kind", "stages", "excess %", *parts, "synthesis us"], rows, more=parts[1:4])


def _print_stages(made: Schedule, out: common.Output) -> None:
    """One line per stage, or for programs one row per transfer."""
    if out.form == "text":
        rows = [[s, size(int(made.lengths[s])), _line(made, s)] for s in range(made.stages)]
        out.table(["stage", "length", "transfers"], rows, beside=True)
        return
    rows = [
        [s, source, target, size(count)]
        for s, transfers in enumerate(made.transfers())
        for source, target, count in transfers
    ]
    out.table(["stage", "from", "to", "sent"], rows, beside=True)


def _line(made: Schedule, stage: int) -> str:
    sent = made.sent[stage].tolist()
    busy = [
        f"{i}->{made.peer[stage, i]} {format_bytes(count)}" for i, count in enumerate(sent) if count
    ]
    return ", ".join(busy[:8]) + (f", ... {len(busy) - 8} more" if len(busy) > 8 else "")
