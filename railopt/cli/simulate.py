"""railopt simulate: run a plan or direct traffic on the fabric, flow by flow."""

from __future__ import annotations

import argparse
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from railopt.base.arrays import check_targets, kind_of
from railopt.base.units import (
    Quantity,
    duration,
    format_time,
    parse_number,
    parse_time,
    seconds,
    size,
)
from railopt.cli import common
from railopt.model.background import beside, both_plans
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.model.traffic import Traffic
from railopt.policies import plan
from railopt.report.style import PAGE
from railopt.report.timeline_figure import timeline_figure
from railopt.sim import (
    BALANCERS,
    Assumptions,
    Fault,
    Stuck,
    Timeline,
    simulate,
    simulate_replanned,
)
from railopt.sim.assumptions import ROCE_INCAST, SCALE_UP
from railopt.sim.balancers import balancer_named
from railopt.sim.export import check_export, export_htsim
from railopt.sim.perfetto import save_trace
from railopt.sim.run import hashes
from railopt.sim.summary import summary

EPILOG = """examples:
  railopt simulate plan.npz --packets --timeline run.svg
  railopt simulate plan.npz --timeline run.json                 open it at ui.perfetto.dev
  railopt simulate moe:skew=0.8 --policy lpt --chunk 1MiB --fault 200us:3:5=0
  railopt simulate moe:skew=0.8 --fault 200us:3:5=0 --replan --timeline fault.svg
  railopt simulate routing:ragged=0.3 --policy own-nic --scale-up before
  railopt simulate plan.npz --background other.npz              two collectives at once
  railopt simulate zipf:skew=0 --balancer ecmp --packets --export htsim/

algbw and busbw are nccl-tests' (all-to-all, bytes between nodes of the busiest rank).
exit codes: 0 done, 1 bad input, 2 chunks can't be delivered (as in the third example, which
does not plan again), 130 interrupted"""


BOTH = {"of it, this plan": "first_ps", "of it, background": "second_ps"}


def _traced(args: argparse.Namespace) -> str:
    return "--timeline FILE.json, trace events" if _is_trace(args.timeline) else ""


def _is_trace(path: str | None) -> bool:
    return path is not None and Path(path).suffix.lower() == ".json"


def _draws_nothing(args: argparse.Namespace) -> str:
    if args.balancer is None or balancer_named(args.balancer).seeded:
        return ""
    return f"--balancer {args.balancer}, which draws nothing"


IDLE = (
    common.Idle(
        f"policy chunk balancer {' '.join(common.FABRIC_FLAGS)}",
        beside=[common.plan_given("what")],
    ),
    common.Idle("background", beside=["balancer"]),
    common.Idle("replan export", beside=["background"]),
    common.Idle("replan", beside=["balancer"]),
    common.Idle("replan", beside=["export"]),  # htsim has no plans that change
    common.Idle("replan", without=["fault"]),
    common.Idle("policy chunk scale_up", beside=["balancer"]),
    common.Idle("seed", beside=[_draws_nothing]),
    common.Idle("width title", beside=[_traced]),
    common.Idle("replan_after", without=["replan"]),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument(
        "what", metavar="PLAN|TRAFFIC", help=f"a plan (.npz), or traffic: {common.TRAFFIC_HELP}"
    )
    common.add_policy_argument(parser)
    common.add_chunk_argument(parser)
    parser.add_argument(
        "--balancer",
        help="send directly from the own NIC to the target's NIC, paths chosen by: "
        f"{', '.join(BALANCERS)}",
    )
    parser.add_argument(
        "--seed",
        type=common.integer,
        help="random seed of hashed and random choices of links, and of the ties of lpt",
    )
    common.add_background_argument(parser)
    common.add_fabric_arguments(parser)
    _add_assumptions(parser)
    also = "; or .json: trace events for Perfetto"
    common.add_figure_arguments(parser, "draw rail by time", "--timeline", also=also)
    parser.add_argument(
        "--export", metavar="DIR", help="write the same run for htsim: run.cm and fabric.topo"
    )
    common.add_output_arguments(parser, "timeline", "export")


def _add_assumptions(parser: argparse.ArgumentParser) -> None:
    model = parser.add_argument_group("assumptions")
    model.add_argument(
        "--packets",
        action="store_true",
        help="count packet headers (4086 of 4150 bytes are payload) and the fabric's latency",
    )
    model.add_argument(
        "--alpha",
        metavar="TIME",
        type=parse_time,
        default="0s",
        help="time for which each message holds its transmit NIC, e.g. 2us; a fault "
        "that slows the NIC stretches it",
    )
    model.add_argument(
        "--incast",
        metavar="LOSS",
        type=parse_number,
        default="0",
        help="receive time lost per sender beyond the first, e.g. "
        f"{float(ROCE_INCAST):g} (fitted to RoCE with PFC); default off",
    )
    model.add_argument(
        "--scale-up",
        choices=SCALE_UP,
        default="pipelined",
        help="how bytes of a plan move between the GPUs of a node: while they cross the rails, "
        "before and after them, or in no time",
    )
    model.add_argument(
        "--fault",
        metavar="TIME:NODE:RAIL=FRACTION",
        action="append",
        type=Fault.parse,
        default=[],
        help="from TIME on a NIC runs at a fraction of its rate; 0 is dead, 1 is healthy; may be "
        "repeated",
    )
    model.add_argument(
        "--replan",
        action="store_true",
        help="after each fault plan what is left again, for the fabric as it is then",
    )
    model.add_argument(
        "--replan-after",
        metavar="TIME",
        type=parse_time,
        default="0s",
        help="time from a fault to the new plan, e.g. 50us",
    )
    model.add_argument(
        "--exact", action="store_true", help="recompute rates after every completion"
    )


def run(args: argparse.Namespace) -> int:
    """Simulate, write, print; exit 2 with what is stuck where the run can't finish."""
    traced = _is_trace(args.timeline)
    if traced:
        check_targets(args.timeline, force=args.force)
    width = (
        PAGE if traced else common.figure_width(args, "timeline", also=", trace events as .json")
    )
    assumed = _assumptions(args)
    what, fabric, about = _subject(args)
    if args.export:
        check_export(
            fabric,
            args.export,
            faults=bool(args.fault),
            phases=assumed.scale_up == "before",
            force=args.force,
        )
    timeline, replans = _simulated(args, what, fabric, assumed)
    if args.timeline:
        if traced:
            save_trace(timeline, args.timeline, force=args.force)
            common.note(f"saved {args.timeline}")
        else:
            title = None if args.title is None else common.title_of(args)
            common.save_drawing(args, "timeline", timeline_figure(timeline, title, width=width))
    found = {**about, **summary(timeline, what), **replans}
    if first := found.pop("first_chunks", 0):
        found["first_ps"], found["second_ps"] = (
            int(part.max(initial=0)) for part in np.split(timeline.chunk_ps, [first])
        )
    if replans:
        for name in ("staged", "passed_on", "scale_up_ps"):
            found.pop(name, None)  # of the first plan alone
    if args.format == "json":
        common.print_json(found)
    else:
        _print(found, common.output_of(args))
    if args.export:  # last: htsim may not have what was simulated
        written = export_htsim(timeline, args.export, force=args.force)
        common.note(f"saved {', '.join(map(str, written))}")
    if len(timeline.stuck):
        raise Stuck(timeline)
    return 0


def _simulated(
    args: argparse.Namespace, what: Plan | Traffic, fabric: Fabric, assumed: Assumptions
) -> tuple[Timeline, dict[str, Any]]:
    """The run, and with --replan the plans that took over."""
    if args.replan:
        assert isinstance(what, Plan)  # IDLE refuses --balancer
        ran = simulate_replanned(
            what, args.fault, assumptions=assumed, after_ps=args.replan_after, seed=args.seed
        )
        return ran.timeline, {"replans": [replan._asdict() for replan in ran.replans]}
    given: dict[str, Any] = {"seed": args.seed} if hashes(fabric) else {}
    if isinstance(what, Traffic):
        given = {"fabric": fabric, "balancer": args.balancer, "seed": args.seed}
    timeline = simulate(what, **given, assumptions=assumed, faults=args.fault, partial=True)
    return timeline, {}


def _assumptions(args: argparse.Namespace) -> Assumptions:
    return Assumptions(
        headers=args.packets,
        latency=args.packets,
        alpha_ps=args.alpha,
        incast=args.incast,
        exact=args.exact,
        scale_up=args.scale_up,
    )


def _subject(args: argparse.Namespace) -> tuple[Plan | Traffic, Fabric, dict[str, Any]]:
    """What runs, on which fabric, and how to call it."""
    if kind_of(args.what) == "plan":
        stored = Plan.read(args.what)
        if args.seed is not None and not hashes(stored.fabric):
            common.refuse_idle("seed", f"with {args.what}, a plan whose links are not hashed")
        named = {"plan": args.what, "policy": stored.policy}
        other = common.background_of(args, stored.fabric)
        if not isinstance(other, Plan):
            left = common.left_of(args, stored.fabric, other)
            return replace(stored, fabric=left), left, named
        return _both(stored, other, stored.fabric, named)
    fabric = common.fabric_from(args)
    if args.balancer:
        direct = common.traffic_from(args.what, fabric)
        return direct, fabric, {"traffic": args.what, "balancer": args.balancer}
    demand = common.demand_from(args.what, fabric)
    about = {"traffic": args.what, "policy": args.policy, "chunk": args.chunk}
    chunks, other = demand.chunks(args.chunk), common.background_of(args, fabric)
    made_for = partial(plan, policy=args.policy, seed=args.seed)
    if isinstance(other, Plan):
        return _both(beside(fabric, other, chunks, made_for), other, fabric, about)
    left = common.left_of(args, fabric, other)
    return made_for(left, chunks), left, about


def _both(
    plan: Plan, other: Plan, fabric: Fabric, about: dict[str, Any]
) -> tuple[Plan, Fabric, dict[str, Any]]:
    """Two plans at once; `first_chunks` are those of the first."""
    return both_plans(plan, other, fabric), fabric, {**about, "first_chunks": len(plan.chunks)}


def _print(summary: dict[str, Any], out: common.Output) -> None:
    def time(ps: float) -> Quantity:
        return duration(seconds(round(ps)))

    def rate(name: str) -> Quantity | str:
        found = summary[name]
        return "-" if found is None else Quantity(f"{found:.2f}", found)

    rows: list[list[Any]] = [
        [name, summary[name]]
        for name in ("plan", "traffic", "policy", "chunk", "balancer")
        if name in summary
    ]
    rows += [
        [name, Quantity(f"{summary[name]:,}", summary[name])]
        for name in ("flows", "chunks", "bytes")
    ]
    over = summary["over_bound"]
    rows += [
        ["last delivered" if summary["stuck"] else "completion", time(summary["completion_ps"])],
        *([name, time(summary[key])] for name, key in BOTH.items() if key in summary),
        ["bound by port loads", time(summary["bound_ps"])],
        ["above it, %", "-" if over is None else Quantity(f"{over:.2%}"[:-1], 100 * over)],
        ["bound of any plan", time(summary["any_plan_bound_ps"])],
        ["algbw, GB/s", rate("algbw_GBps")],
        ["busbw, GB/s", rate("busbw_GBps")],
    ]
    used = [Quantity(f"{share:.1%}"[:-1], 100 * share) for share in summary["rail_utilisation"]]
    if out.form == "text":
        rows.append(["rails used, %", " ".join(used)])
    else:
        rows += [[f"rail {rail} used, %", share] for rail, share in enumerate(used)]
    rows += [[f"flows, {name}", time(ps)] for name, ps in summary["flow_completion_ps"].items()]
    if "staged" in summary:
        rows += [
            ["staged in nodes", size(summary["staged"])],
            ["passed on in nodes", size(summary["passed_on"])],
            ["busiest scale-up", time(summary["scale_up_ps"])],
        ]
    if "uplinks" in summary:
        cut = summary["uplinks"]
        rows.append([f"uplinks, group {cut['group']}", duration(Fraction(cut["bound"]))])
    rows += [["planned again", _replan_text(replan)] for replan in summary.get("replans", [])]
    if summary["stuck"]:
        rows.append(
            [
                "stuck chunks",
                f"{len(summary['stuck'])}: {' '.join(map(str, summary['stuck'][:20]))}",
            ]
        )
    out.table(["of the run", "value"], rows, left=2)


def _replan_text(replan: dict[str, Any]) -> str:
    waiting = f", {replan['waiting']} wait for a living rail" if replan["waiting"] else ""
    return (
        f"after {format_time(seconds(replan['at_ps']))} by {replan['policy']}: {replan['chunks']} "
        f"chunks, {replan['again']} of them sent again from their first byte{waiting}"
    )
