"""railopt size TRACE|TRAFFIC...: which fabric to buy for a workload."""

from __future__ import annotations

import argparse
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from railopt.base.errors import Infeasible
from railopt.base.units import Quantity, duration, format_time, parse_integer, percent, quoted, rate
from railopt.base.units import size as bytes_cell
from railopt.cli import common
from railopt.cli.progress import stage
from railopt.model.fabric import Fabric
from railopt.model.traffic import Traffic
from railopt.model.workloads import traffic_from

if TYPE_CHECKING:
    from railopt.answers.candidates import Candidate
    from railopt.answers.size import Sized

EPILOG = """examples:
  railopt size moe:skew=0.5,seed=1 --nodes 8 --rails 4,8 --link 200Gb/s,400Gb/s
  railopt size trace.npz:layer=all --kind rail-only,spine,fat-tree --figure x.svg
  railopt size inspector:/tmp/job --candidates offers.toml --within 3ms --format latex

"best" is simulated with the best planned policy; "today" as it is done today: from own NICs, over
a spine or a fat tree to own NICs with ECMP.  Of hashed paths the median of five seeds counts.
No policy of chunks of --chunk is faster than "bound".  "1 dead %" is what the worst dead NIC costs
when it is planned anew, simulated; of --cases drawn, the busiest nodes and today's busiest NICs.
--wide: on average, by the busiest ports of the cases drawn; the worst, as it is done today.
"front": no other candidate is as fast for less.  Verdicts: "no policy" makes it within 1 % of the
fastest; "wasted": scale-up or experts are the limit, and a cheaper one is as good; "too slow": with
no policy the exchange ends within --within.  Exit code 2 if all candidates are too slow.

--candidates is a TOML file of tables [[candidate]]: name, rails, link, planes, kind,
oversubscription, spares, scaleup, price."""

LISTS = {
    "rails": ("8", "NICs per node; two per GPU are twice as many as GPUs"),
    "link": ("400Gb/s", "rates of a NIC"),
    "planes": ("1", "rails that the rate of a NIC is split over"),
    "kind": ("rail-only", "rail-only, spine, fat-tree"),
    "oversubscription": ("1", "NIC rate over uplink rate, of a spine or fat tree"),
    "spares": ("0", "NICs per node that carry nothing until one is dead"),
    "scaleup": ("450GB/s", "rates of a GPU's scale-up port"),
}
IDLE = (common.Idle(" ".join(LISTS), beside=["candidates"]),)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from railopt.answers.size import PLANNED

    parser.add_argument(
        "traffic", metavar="TRAFFIC", nargs="+", help=f"added up; each: {common.BYTES_HELP}"
    )
    parser.add_argument("--nodes", type=common.positive, default=8, help="nodes")
    parser.add_argument("--gpus", type=common.positive, default=8, help="GPUs per node")
    parser.add_argument(
        "--candidates", metavar="FILE.toml", help="candidates (see below), instead of lists"
    )
    for name, (usual, text) in LISTS.items():
        parser.add_argument(
            f"--{name}", metavar="A,B", type=common.listed, default=usual, help=text
        )
    common.add_policies_argument(parser, PLANNED)
    common.add_chunk_argument(parser)
    parser.add_argument(
        "--cases", type=common.positive, default=16, help="draws of dead NICs, each"
    )
    parser.add_argument("--seed", type=common.natural, default=0, help="random seed")
    parser.add_argument(
        "--experts",
        metavar="TIME",
        type=common.exact_s,
        default="0s",
        help="compute per dispatch that an exchange hides behind",
    )
    parser.add_argument(
        "--within", metavar="TIME", type=common.exact_s, help="time that the workload may take"
    )
    common.add_figure_arguments(parser, "draw it")
    common.add_output_arguments(parser, "figure")


def run(args: argparse.Namespace) -> int:
    """One row per candidate; the exit code."""
    from railopt.answers.size import SizeQuestion, size

    width = common.figure_width(args, "figure")
    question = SizeQuestion(
        policies=tuple(args.policy),
        chunk=args.chunk,
        cases=args.cases,
        seed=args.seed,
        experts=args.experts,
        within=args.within,
    )
    candidates = _candidates(args)
    fabric = Fabric.uniform(args.nodes, args.gpus)
    workload = [one for text in args.traffic for one in _traffic(text, fabric)]
    found = size(workload, candidates, question, tell=stage)
    unpriced = [one.candidate.name for one in found if one.candidate.price is None]
    priced = not unpriced
    if args.format == "json":
        common.print_json({"candidates": [one.as_dict() for one in found]})
    else:
        _print(args, found, priced)
    if 0 < len(unpriced) < len(found):
        common.note(f"prices are left out: {quoted(unpriced[0])} has none")
    if unpriced and len(found) > 1:
        common.note(
            '"NICs", the rate of all NICs, is the cost; a spine or a tree adds nothing to it'
        )
    if all(one.verdict == "too slow" for one in found):
        common.note(
            f"no candidate carries it within {format_time(args.within)} in chunks of "
            f"{args.chunk}, whatever the policy"
        )
        return Infeasible.exit_code
    if args.figure:
        from railopt.report.sizing import sizing_figure

        title = common.title_of(args, f"{' '.join(args.traffic)}: time against cost")
        common.save_drawing(args, "figure", sizing_figure(found, title, width=width))
    return 0


def _candidates(args: argparse.Namespace) -> list[Candidate]:
    from railopt.answers.candidates import candidates_from, crossed

    if args.candidates is not None:
        return candidates_from(args.candidates)
    lists: dict[str, list[Any]] = {name: getattr(args, name) for name in LISTS}
    for name in ("rails", "planes", "spares"):
        lists[name] = [parse_integer(text, name) for text in lists[name]]
    return crossed(**lists)


def _traffic(text: str, fabric: Fabric) -> list[Traffic]:
    """As many dispatches as the text asks of a trace; tokens are refused."""
    found = list(common.demands_from(text, fabric).values())
    return [one if isinstance(one, Traffic) else traffic_from(text, fabric) for one in found]


def _print(args: argparse.Namespace, found: list[Sized], priced: bool) -> None:
    columns = ["candidate", "price" if priced else "NICs", "best", "today", "bound"]
    columns += ["1 dead %", "2 dead %", "front", "verdict"]
    more = ["policy", "limit", "busiest link", "1 mean %", "2 mean %"]
    more += ["1 today %", "2 today %", *(["price x s"] if priced else [])]
    rows = []
    for one in found:
        row: list[Any] = [one.candidate.name]
        row.append(_plain(one.cost) if priced else rate(one.cost))
        row += [duration(time) for time in (one.time, one.today, one.bound)]
        row += [_share(loss.worst) for loss in one.lost]
        row += ["*" if one.front else "", one.verdict, one.policy, one.limit]
        row += [bytes_cell(one.link), *(_share(loss.mean) for loss in one.lost)]
        row += [_share(loss.worst) for loss in one.lost_today]
        row += [_plain(one.cost * one.time)] if priced else []
        rows.append(row)
    common.output_of(args).table([*columns, *more], rows, more=more)


def _plain(number: Fraction) -> Quantity:
    return Quantity(f"{float(number):.6g}", float(number))


def _share(share: Fraction | None) -> Quantity:
    return Quantity("never", None) if share is None else percent(share)
