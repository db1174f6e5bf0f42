"""railopt schedule: a two-level schedule of an all-to-all(v), its cost against the bound, its
files.
"""

from __future__ import annotations

import argparse
import textwrap
from dataclasses import replace
from fractions import Fraction
from typing import Any

from railopt.answers.optimum import STARTUP, ScheduleOptimum, best_schedule
from railopt.base.arrays import check_suffix, check_targets, kind_of, write_atomic
from railopt.base.errors import BackendError, NotProved
from railopt.base.kernels import wall_s
from railopt.base.units import Quantity, duration, format_bytes, format_time, parse_bytes, percent
from railopt.cli import common
from railopt.cli.progress import LONG_S, stage
from railopt.model.fabric import Fabric
from railopt.schedule import (
    KINDS,
    LINKS,
    ORDERS,
    LinkTimes,
    Schedule,
    ScheduleCost,
    certificate,
    compare,
    cost,
    staged,
)
from railopt.schedule.compact import GoOn
from railopt.schedule.model import least, modelled
from railopt.schedule.rates import pair_rates
from railopt.schedule.synthesis import MANY
from railopt.schedule.value import require_two_levels
from railopt.solver.epochs.best import NAMES
from railopt.solver.epochs.exchange import ChunkExchange

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
  railopt schedule moe --nodes 16 --degrade 3:5=0.5 --links fabric --startup 2us
  railopt schedule schedule.npz                                 re-check a saved schedule
  railopt schedule matrix.csv --nodes 3 --rails 2 --optimum --chunk 256KiB --limit 1min

--optimum: "known" (the best schedule attains a bound that railopt adds up from what a server or a
GPU has to move and from start-ups; the certificate holds the former), "claimed" (optimal on the
back-end's word), "open".
exit codes of --optimum: 0 known, 2 claimed or open, 3 the back-end is missing or crashed"""
)

# a search for stages, as measured on uniform traffic of 512 and 1,024 servers: 2.3 ns per triple;
# the matrix of bytes and its copies, and the schedule twice; FAST has up to n stages per server
SECONDS_PER_CUBE, BYTES_PER_PAIR, FAST_BYTES_PER_TRIPLE = 2.3e-9, 64, 36
MUCH_GB = 2.0
_MADE = ("output", "plan", "cm", "stages_certificate")
_FILES = (*_MADE, "certificate")
_OPTIMUM = ("backend", "incast", "epoch")


def _saved(args: argparse.Namespace) -> str:
    return "a saved schedule" if kind_of(args.traffic) == "schedule" else ""


def _no_stages(args: argparse.Namespace) -> str:
    return "" if KINDS[args.kind].barriers else f"{args.kind}, which has no stages"


def _staged_kind(args: argparse.Namespace) -> str:
    return f"{args.kind}, which has stages" if KINDS[args.kind].barriers else ""


def _is_size(args: argparse.Namespace) -> str:
    return "a size" if isinstance(args.startup, int) and args.startup else ""


def _no_search(args: argparse.Namespace) -> str:
    searched = args.compare or KINDS[args.kind].tunable
    return "" if searched else f"{args.kind}, which is not searched for"


IDLE = (
    common.Idle(
        f"kind order eps startup limit compare optimum {' '.join(common.FABRIC_FLAGS)}",
        beside=[_saved],
    ),
    common.Idle(f"order eps compare {' '.join(_MADE)}", beside=["optimum"]),
    common.Idle(" ".join(_OPTIMUM), without=["optimum"]),
    common.Idle("epoch", beside=[_staged_kind]),
    common.Idle("chunk", without=["plan", "optimum"]),
    common.Idle("kind", beside=["compare"], without=_FILES),
    common.Idle("order eps", beside=["compare"]),
    common.Idle("startup", beside=["optimum", _is_size]),
    common.Idle("limit", beside=[_no_search], without=["optimum"]),
    common.Idle("order stages_certificate", beside=[_no_stages]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `railopt schedule`."""
    parser.add_argument(
        "traffic", metavar="TRAFFIC", help=f"{common.BYTES_HELP}; or a saved schedule"
    )
    parser.add_argument(
        "--kind", choices=list(KINDS), default="compact", help="kind of schedule, see below"
    )
    parser.add_argument(
        "--order", choices=ORDERS, help="order of the stages, by length (default: that of the kind)"
    )
    parser.add_argument(
        "--eps",
        help="compact: the stages may last 1 + EPS times the bound (default 1/50, "
        "0 for up to 3 servers)",
    )
    parser.add_argument(
        "--startup",
        metavar="TIME|SIZE",
        type=_startup,
        help="start-up of a stage, as a time such as 2us (default 0.7us; --optimum without stages: "
        "0), or for compact as what two servers could exchange meanwhile (default 256KiB); with it "
        "and without --eps, up to 4 servers get the quickest of several lists of stages, whatever "
        "these add up to",
    )
    parser.add_argument(
        "--limit",
        metavar="SECONDS",
        type=common.time_s,
        help=f"compact of {MANY} servers or more: search for stages so long (default: to the end), "
        "then send what is left as spreadout does; reading the traffic and writing the stages take "
        "their own time; --optimum: default 1min",
    )
    parser.add_argument(
        "--links",
        default="h100-400g",
        choices=[*LINKS, "fabric"],
        help="constants of the alpha-beta model: FAST's, or the rates of the fabric",
    )
    parser.add_argument(
        "--compare",
        action="store_true",
        help="every kind side by side; --kind says which one is saved",
    )
    _add_optimum(parser)
    _add_files(parser)
    common.add_fabric_arguments(parser)
    common.add_output_arguments(parser, *_FILES)


def _add_optimum(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--optimum",
        action="store_true",
        help="the best schedule of a small all-to-all, by a time-expanded program, and kinds "
        "beside it: in stages, or in epochs where --kind has no stages",
    )
    parser.add_argument(
        "--backend", default="cpsat", help=f"solver of --optimum: {' or '.join(NAMES)}"
    )
    parser.add_argument(
        "--incast",
        metavar="SERVERS",
        type=common.positive,
        help="servers from which a NIC receives at a time, and to which it sends, in --optimum "
        "(default 1 with stages, all without)",
    )
    parser.add_argument(
        "--epoch",
        metavar="TIME",
        type=common.exact_s,
        help="length of an epoch in --optimum without stages (default: a chunk on the slowest NIC)",
    )


def _add_files(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", metavar="FILE.npz", help="save the schedule")
    parser.add_argument(
        "--plan", metavar="FILE.npz", help="save it as a plan, for railopt check, simulate and send"
    )
    parser.add_argument(
        "--chunk",
        metavar="SIZE",
        help="largest chunk of the plan (default: whole pieces; pipelined: 256KiB); --optimum: "
        "the chunk (default 256KiB)",
    )
    parser.add_argument(
        "--cm", metavar="FILE.cm", help="export for htsim, a barrier trigger between stages"
    )
    parser.add_argument(
        "--certificate",
        metavar="FILE.json",
        help="save the proof that L / (m B2) is the optimum, for railopt check; --optimum: that a "
        "server's or GPU's chunks need as long as is printed",
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
    if args.optimum:
        return _run_optimum(args)
    costs = _costs(args)
    made = next(c.schedule for c in costs if c.schedule.kind == args.kind or len(costs) == 1)
    _write(args, made)
    if args.format == "json":
        data = [each.as_dict() for each in costs]
        common.print_json(data if args.compare else data[0])
        return 0
    _print_costs(costs, args.links, _links(args, made.fabric), common.output_of(args))
    return 0


def _run_optimum(args: argparse.Namespace) -> int:
    """Find the best schedule, and print it beside the kinds."""
    fabric, staged = common.fabric_from(args), KINDS[args.kind].barriers
    startup = STARTUP if staged else Fraction(0)
    chunk = parse_bytes(args.chunk or "256KiB")
    traffic = common.traffic_from(args.traffic, fabric)
    exchange = ChunkExchange.of(
        fabric,
        traffic,
        chunk,
        startup if args.startup is None else args.startup,
        peers=args.incast,
        epoch=args.epoch,
        stages=staged,
    )
    if (traffic.bytes % chunk).any():
        common.note(f"the last chunk of each pair counts as a whole one of {format_bytes(chunk)}")
    found = best_schedule(
        fabric,
        exchange,
        backend=args.backend,
        limit_s=60.0 if args.limit is None else args.limit,
        report=stage,
    )
    for text in filter(None, (*found.found.notes, found.found.ended)):
        common.note(f"railopt: {text}")
    if args.format == "json":
        common.print_json(found.as_dict())
    else:
        _print_optimum(found, common.output_of(args))
    if args.certificate:
        common.save(args, "certificate", found.certificate(fabric, chunk).require())
    if found.found.interrupted:
        return 130
    if found.found.notes:
        return BackendError.exit_code
    return 0 if found.found.bracket.optimum_known else NotProved.exit_code


def _print_optimum(found: ScheduleOptimum, out: common.Output) -> None:
    bracket = found.found.bracket
    bound = bracket.certified_bound or bracket.bound
    out.say(
        f"{_many(int(found.exchange.demand.sum()), 'chunk')}; optimum {bracket.status}, by "
        f"{bracket.by}; no schedule is faster than {format_time(bound)}: {_why(found)}"
    )
    rows: list[list[Any]] = []
    if bracket.value is not None:
        spent = found.found.time_s
        made = Quantity(f"{spent:.3g}s", spent, "s")
        rows.append(
            ["best", found.stages or "-", duration(bracket.value), percent(Fraction(0)), made]
        )
    rows += [
        [
            name,
            kind.stages or "-",
            duration(kind.time),
            percent(found.distance(name)) if bracket.value is not None else "-",
            Quantity(f"{kind.synthesis_s * 1e6:.0f}us", kind.synthesis_s, "s"),
        ]
        for name, kind in found.kinds.items()
    ]
    out.table(["schedule", "stages", "time", "over best %", "synthesis"], rows)


def _why(found: ScheduleOptimum) -> str:
    """The lines that show the bound, in words."""
    line, startup = found.witness, found.exchange.startup * found.exchange.unit
    if not line["chunks"]:
        return "nothing is sent"
    moves = "sends" if line["side"] == "send" else "receives"
    who = f"GPU {line['gpu']}" if line["kind"] == "port" else f"server {line['node']}"
    over = f"{_numbered('NIC', line['nics'])}{' and scale-up' * (line['kind'] == 'port')}"
    needs = format_time(Fraction(line["needs"]))
    said = f"{who} {moves} {_many(line['chunks'], 'chunk')} over {over}, {needs}"
    if count := line.get("stages", {}).get("count"):
        its = line["stages"]
        said += (
            f"; server {its['node']} has {_many(len(its['peers']), 'peer')} over "
            f"{_numbered('NIC', its['nics'])}, {_many(count, 'stage')} with "
            f"{format_time(startup)} start-up"
        )
    elif found.exchange.epoch:
        said += f", in epochs of {format_time(found.exchange.epoch * found.exchange.unit)}"
        said += f" and with start-ups of {format_time(startup)}" * bool(startup)
    return said


def _many(count: int, name: str) -> str:
    return f"{count} {name}{'s' * (count != 1)}"


def _numbered(name: str, numbers: list[int]) -> str:
    return f"{name}{'s' * (len(numbers) != 1)} {' '.join(map(str, numbers))}"


def _costs(args: argparse.Namespace) -> list[ScheduleCost]:
    if kind_of(args.traffic) == "schedule":
        loaded = Schedule.read(args.traffic)
        links = _links(args, loaded.fabric)
        return [ScheduleCost(loaded, modelled(loaded, links), None, least(loaded, links))]
    made_for = common.fabric_from(args)
    kinds = list(KINDS) if args.compare else [args.kind]
    go_on = _until(args.limit)
    traffic = common.traffic_from(args.traffic, made_for)
    require_two_levels(made_for, traffic)
    _say_long(made_for.nodes, kinds, args.limit)
    links = _links(args, made_for)
    startup = args.startup
    if isinstance(startup, Fraction):
        worth = int(startup * pair_rates(made_for).fastest)
        startup = worth if args.compare or KINDS[args.kind].tunable else None
    if args.compare:
        return compare(made_for, traffic, startup=startup, links=links, go_on=go_on)
    options = {name: getattr(args, name) for name in ("order", "eps")}
    return [cost(made_for, traffic, kinds[0], **options, startup=startup, links=links, go_on=go_on)]


def _startup(text: str) -> Fraction | int:
    """A `type`: a time in seconds, or a size in bytes, which may be 0."""
    if text.strip().endswith(("s", "min")):
        return common.exact_s(text)
    return 0 if text == "0" else parse_bytes(text)


def _links(args: argparse.Namespace, fabric: Fabric) -> LinkTimes:
    """The constants of the model, with the start-up that was given as a time."""
    links = LinkTimes.of(fabric) if args.links == "fabric" else LINKS[args.links]
    if isinstance(args.startup, Fraction):
        links = replace(links, alpha_out=float(args.startup) * 1e6)
    return links


def _until(limit_s: float | None) -> GoOn:
    """Whether to search on for stages: until the limit; how far it is shows in the heartbeat."""
    began, over = wall_s(), list[float]()

    def go_on(share: float) -> bool:
        stage(f"{share:.0%} of the bytes have a stage")
        if limit_s is None or wall_s() - began < limit_s:
            return True
        if not over:
            common.note(
                f"--limit: {share:.0%} of the bytes have a stage that was searched for; the others "
                "go as in spreadout"
            )
        over.append(share)
        return False

    return go_on


def _say_long(nodes: int, kinds: list[str], limit_s: float | None) -> None:
    """Say before it begins that a search for stages takes long, or much memory."""
    searched = any(KINDS[kind].tunable for kind in kinds)
    fast = any(KINDS[kind].decompose is KINDS["fast"].decompose for kind in kinds)
    needs_s = nodes**3 * SECONDS_PER_CUBE if searched or fast else 0.0
    gb, fast_gb = nodes**2 * BYTES_PER_PAIR / 1e9, nodes**3 * FAST_BYTES_PER_TRIPLE / 1e9
    long = needs_s > LONG_S and limit_s is None
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
    makes = {"certificate": certificate, "stages_certificate": staged}
    proofs = {flag: make(made).require() for flag, make in makes.items() if getattr(args, flag)}
    if args.output:
        common.save(args, "output", made)
    for flag, proof in proofs.items():
        common.save(args, flag, proof)
    if args.plan:
        common.save(args, "plan", made.plan(args.chunk))
    if args.cm:
        write_atomic(args.cm, made.to_cm(), force=args.force)
        common.note(f"saved {args.cm}")


def _print_costs(
    costs: list[ScheduleCost], name: str, links: LinkTimes, out: common.Output
) -> None:
    made = costs[0].schedule
    side = "sends" if made.bound.side == "send" else "receives"
    out.say(
        f"{made.fabric.nodes} servers x {made.fabric.gpus} GPUs; server {made.bound.node} {side} "
        f"{format_bytes(made.line_sum)}: no schedule is faster than {format_time(made.bound.value)}"
    )
    out.say(
        f"modelled on {name} links ({links.beta_out:g} us/MB between servers, which makes that "
        f"bound {costs[0].parts.bound:.1f} us, {costs[0].least_us:.1f} us with {links.alpha_out:g} "
        "us per start-up):"
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
