"""`railopt demo`: the main job, no arguments."""

from __future__ import annotations

import argparse
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import numpy as np

from railopt.answers.gap import gap
from railopt.base.units import duration, percent, size
from railopt.cli import common
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.workloads import moe
from railopt.policies import POLICIES, plan
from railopt.solver.coupled.race import Outcome

if TYPE_CHECKING:
    from railopt.moe.weigh import Weighed

EPILOG = """example:
  railopt demo
  railopt demo --json > demo.json
  railopt demo --figure demo.pdf --width column"""

CHUNK = "1MiB"
PICTURE = "railopt-demo.svg"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    also = f" (default {PICTURE}, replaced if it is there)"
    common.add_figure_arguments(parser, "where the picture goes", also=also)
    common.add_output_arguments(parser, "figure")


def run(args: argparse.Namespace) -> int:
    from railopt.report.waterfall import waterfall

    if args.figure is None:
        args.figure, args.force = PICTURE, True
    width = common.figure_width(args, "figure")
    healthy, slow = policies()
    found = weighed()
    title = common.title_of(args, "What each mechanism is worth on recorded routing")
    common.save_drawing(args, "figure", waterfall(found, title, width=width))
    family = {rails: counterexample(rails) for rails in (2, 4, 8)}
    if args.format == "json":
        common.print_json(
            {
                "healthy": [report.as_dict() for report in healthy],
                "slow NIC": [report.as_dict() for report in slow],
                "counterexample": [
                    {"rails": rails, "lpt": lpt.as_dict(), "equitable": even.as_dict()}
                    for rails, (lpt, even) in family.items()
                ],
                "weighed": found.as_dict(),
                "picture": args.figure,
            }
        )
    else:
        out = common.output_of(args)
        _print(healthy, slow, family, out)
        _print_weighed(found, out)
    return 0


def policies() -> tuple[list[Outcome], list[Outcome]]:
    """A skewed MoE dispatch under every policy, on a healthy fabric and with a slow NIC."""
    healthy = Fabric.uniform(nodes=8, rails=8, link="400Gb/s")
    slow = healthy.degraded({(3, 5): "0.5"})
    traffic = moe(healthy, tokens=4096, top_k=2, hidden="8KiB", skew=0.5, seed=1)
    return _reports(healthy, traffic.chunks(CHUNK)), _reports(slow, traffic.chunks(CHUNK))


def _print(
    healthy: list[Outcome],
    slow: list[Outcome],
    family: dict[int, tuple[Outcome, Outcome]],
    out: common.Output,
) -> None:
    """Every policy on both fabrics, and the counterexamples by rails: `lpt` and `equitable`."""
    out.say(
        f"A Mixtral-like MoE dispatch: 64 GPUs x 4096 tokens x top-2 x 8 KiB, 8 nodes x 8 rails "
        f"of 400 Gb/s, chunks of {CHUNK}.\n"
    )
    _table("Every policy against the best possible", healthy, out)
    _table("The same with NIC 5 of node 3 at half speed", slow, out)
    out.say(
        '"Uniform sending ensures uniform receiving" is false.  A plain uniform all-to-all of '
        "whole flows, M = N + 1 nodes:"
    )
    out.table(
        ["rails", "nodes", "lpt send", "lpt receive", "equitable receive", "bound"],
        [
            [rails, rails + 1, _times(lpt, "send"), _times(lpt, "recv"), _times(even, "recv"), "1"]
            for rails, (lpt, even) in family.items()
        ],
        beside=True,
    )
    out.say(
        "\nEvery sender is perfectly balanced (send = 1), yet one receiving rail gets N times its "
        "share: see theorem T2."
    )


def weighed() -> Weighed:
    """What each mechanism is worth on four steps of one layer of a small model's training, cut from
    the trace gpt16-top2 of the experiments.
    """
    from railopt.moe.routing.trace import Trace
    from railopt.moe.weigh import WeighQuestion, weigh

    fabric = Fabric.uniform(nodes=4, rails=4, link="100Gb/s")
    with as_file(files("railopt.cli").joinpath("demo.npz")) as path:
        trace = Trace.read(path)
    return weigh(trace, fabric, WeighQuestion(steps=1))


def _print_weighed(found: Weighed, out: common.Output) -> None:
    from railopt.cli.weigh import print_weighed

    out.say(
        "\nWhat each mechanism is worth on recorded routing, 16 experts, 4 nodes x 4 rails of "
        "100 Gb/s, on a step that no plan saw:"
    )
    print_weighed(found, out, beside=True)
    out.say(
        "\nnext: railopt gap moe:skew=0.5,seed=1 --policy lpt,lpt-local,equitable "
        "--chunk 256KiB,1MiB,4MiB"
    )


def counterexample(rails: int) -> tuple[Outcome, Outcome]:
    """Whole equal flows between N + 1 nodes: the gaps of `lpt` and of `equitable`."""
    fabric = Fabric.uniform(nodes=rails + 1, rails=rails)
    src, dst = np.nonzero(~np.eye(rails + 1, dtype=bool))
    chunks = Chunks.from_arrays(src=src, dst=dst, size=np.full(len(src), 1 << 20))
    lpt, even = gap([plan(fabric, chunks, name) for name in ("lpt", "equitable")], limit_s=0)
    return lpt, even


def _reports(fabric: Fabric, chunks: Chunks) -> list[Outcome]:
    return gap([plan(fabric, chunks, policy) for policy in POLICIES], limit_s=0)


def _times(report: Outcome, side: str) -> str:
    return str(report.plan.side_time(side) / report.bound)


def _table(title: str, reports: list[Outcome], out: common.Output) -> None:
    rows: list[list[Any]] = []
    for report in reports:
        worst = report.bottleneck
        rows.append(
            [
                report.plan.policy,
                size(int(report.plan.send.max())),
                size(int(report.plan.recv.max())),
                duration(report.value),
                duration(report.bound),
                "optimal" if report.optimal else percent(report.gap),
                f"{worst.side} of node {worst.node}",
            ]
        )
    out.table(
        ["policy", "max send", "max receive", "time", "bound", "gap %", "worst side"], rows, title
    )
    print()
