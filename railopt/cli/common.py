"""What the commands share: fabric and traffic arguments, JSON, and where output goes.

Results go to stdout, progress and warnings to stderr.  In JSON an exact number is a string "p/q"
under its name, and a float of it stands beside it as NAME_float.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from railopt.base.arrays import check_targets, kind_of
from railopt.base.errors import InputError, about, printable
from railopt.base.tables import FORMS, Rows, lines, pick, render, screen, wrapped
from railopt.base.units import MAX_CHARACTERS, parse_integer, parse_time, seconds
from railopt.model import workloads
from railopt.model.background import Background, background_from, left_by
from railopt.model.fabric import Described, Fabric, described, parse_nics, unsaid
from railopt.model.plan import Plan
from railopt.model.running import PREFIX, running_job
from railopt.model.tokens import Tokens
from railopt.model.topology import describes_node
from railopt.model.traffic import Traffic, trace_file
from railopt.model.workloads import BYTES, WORKLOADS
from railopt.policies import KNOWN, policy_named, policy_names
from railopt.report.saving import figure_format, save_figure
from railopt.report.style import PAGE, WIDTHS, parse_width

if TYPE_CHECKING:
    from railopt.moe.routing.trace import Trace

_FABRIC: dict[str, Any] = {"nodes": 8, "rails": 8, "gpus": None, "link": "400Gb/s"}
SUBJECTS = ("traffic", "what", "trace", "places", "spec")
"""Arguments that a command's table is about."""
FABRIC_FLAGS = ("fabric", *_FABRIC, "degrade")

_TRAFFIC = (
    "a file (.csv, .npy, .npz, .cm, or an nccl-tests alltoallv matrix), a routing trace, as "
    "trace.npz:step=3,layer=2, NCCL Inspector's files, as inspector:DIR, or a workload such as "
    "moe:skew=0.8,seed=1"
)
TRAFFIC_HELP = f"{_TRAFFIC} ({', '.join(WORKLOADS)})"
BYTES_HELP = f"{_TRAFFIC} ({', '.join(BYTES)})"


# what an option's text means, as argparse's `type`: the parser puts the option before complaints
integer = parse_integer
positive = partial(parse_integer, low=1)
natural = partial(parse_integer, low=0)


def time_s(text: str) -> float:
    """A `type`: seconds of a time such as 10s."""
    return float(exact_s(text))


def exact_s(text: str) -> Fraction:
    """A `type`: exact seconds of a time."""
    return seconds(parse_time(text))


def add_chunk_argument(parser: Any, usual: str = "1MiB") -> None:
    """--chunk, of a parser or of a group of its arguments."""
    parser.add_argument(
        "--chunk", default=usual, help='largest chunk, e.g. 256KiB, or "flow" for whole flows'
    )


def add_policy_argument(parser: Any, usual: str = "lpt") -> None:
    """--policy of one plan."""
    parser.add_argument(
        "--policy", type=_policy, default=usual, help=f"policy of the rails: {KNOWN}"
    )


def _policy(text: str) -> str:
    policy_named(text)
    return text


def add_policies_argument(parser: argparse.ArgumentParser, usual: Iterable[str]) -> None:
    """--policy of several plans."""
    parser.add_argument(
        "--policy",
        type=policy_names,
        default=",".join(usual),
        help=f"policies, with commas between them: {KNOWN}",
    )


def listed(text: str) -> list[str]:
    """A `type`: the parts of a list with commas."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InputError(f"{text!r}: expected one or more, with commas between them")
    return parts


def add_fabric_arguments(
    parser: argparse.ArgumentParser,
    *names: str,
    nic_per_gpu: bool = False,
    nodes: str = "8",
    rails: str = "8",
    link: str = "400Gb/s",
) -> None:
    """--fabric FILE (under `names` too), or --nodes, --rails, --gpus, --link, and --degrade; the
    texts say what is taken where nothing is given.  With `nic_per_gpu` there are as many rails as
    --gpus says, where --rails does not.
    """
    rails = "as many as --gpus, else 8" if nic_per_gpu else rails
    parser.set_defaults(nic_per_gpu=nic_per_gpu)
    group = parser.add_argument_group("fabric")
    group.add_argument(
        "--fabric",
        *names,
        metavar="FILE.toml",
        help="fabric description, or a .topo of htsim, instead of the options below; or with "
        "--nodes the topology of one node (NCCL_TOPO_DUMP_FILE, nvidia-smi topo -m)",
    )
    group.add_argument("--nodes", type=integer, help=f"nodes (default {nodes})")
    group.add_argument("--rails", type=integer, help=f"rails = NICs per node (default {rails})")
    group.add_argument("--gpus", type=integer, help="GPUs per node (default: as many as rails)")
    group.add_argument("--link", help=f"rate of a NIC (default {link})")
    group.add_argument(
        "--degrade",
        metavar="NODE:RAIL=FRACTION",
        action="append",
        default=[],
        help="a NIC at a fraction of its rate, e.g. 3:5=0.5; 0 is dead; may be repeated",
    )


def add_background_argument(parser: argparse.ArgumentParser, plans: str = "a saved plan, ") -> None:
    """--background; without `plans` rates of NICs alone."""
    parser.add_argument(
        "--background",
        metavar="PLAN|LOAD" if plans else "LOAD",
        help=f"what the NICs carry at the same time: {plans}"
        "allreduce:size=1GiB,time=20ms,rails=0+1, as if it never ended, or rates of NICs as in a "
        "fabric's .toml",
    )


def background_of(args: argparse.Namespace, fabric: Fabric) -> Background | Plan | None:
    """What --background names."""
    return None if args.background is None else background_from(args.background, fabric)


def left_of(args: argparse.Namespace, fabric: Fabric, load: Background | Plan | None) -> Fabric:
    """What rates of NICs leave of the fabric, and a sentence that says so."""
    if load is None:
        return fabric
    if isinstance(load, Plan):
        raise InputError(
            f"--background {printable(args.background)}: a plan, beside which plan and simulate "
            f"plan; expected rates of NICs or an all-reduce"
        )
    with about(f"--background {printable(args.background)}: "):
        left = left_by(fabric, load)
    note(f"times and bounds are on what {args.background} leaves of the NICs, as if it never ended")
    return left


def add_trace_arguments(parser: Any) -> None:
    """--top-k, --routed-experts and --merge-ranks, of a parser or of a group of its arguments: what
    tensors do not say of themselves, and ranks that are not GPUs.
    """
    parser.add_argument(
        "--top-k",
        type=positive,
        help="experts per token, for .pt statistics and .npy (default: the model's, else 1)",
    )
    parser.add_argument(
        "--routed-experts",
        metavar="N",
        type=positive,
        help="TRACE is vLLM's routed_experts, ids of N experts [length, layers, top_k]",
    )
    parser.add_argument(
        "--merge-ranks",
        action="store_true",
        help="join consecutive source ranks until one per GPU is left",
    )


def trace_of(args: argparse.Namespace, text: str, fabric: Fabric) -> Trace:
    """The routing trace of this name, as the options of `add_trace_arguments` and --model say."""
    from railopt.moe.presets import preset
    from railopt.moe.routing.sources import trace_from

    model, ranks = getattr(args, "model", None), fabric.nodes * fabric.gpus
    trace = trace_from(
        text,
        ranks=ranks,
        top_k=args.top_k,
        usual_top_k=None if model is None else preset(model).top_k,
        routed_experts=args.routed_experts,
    )
    if "top_k" in trace.meta:
        whose = f"as {model} has" if model else "--top-k or --model says otherwise"
        note(f"{text} does not say how many experts a token has: {trace.top_k}, {whose}")
    return trace.merged(ranks) if args.merge_ranks else trace


def fabric_given(args: argparse.Namespace) -> bool:
    """Whether any option describes a fabric."""
    return any(given(args, name) for name in FABRIC_FLAGS)


def fabric_from(args: argparse.Namespace) -> Fabric:
    """The fabric that the options describe."""
    return described_by(args).fabric


def described_by(
    args: argparse.Namespace, defaults: Mapping[str, Any] | None = None, *, one_node: bool = False
) -> Described:
    """The fabric that the options describe, with `defaults` for what they leave open, and that;
    `one_node`: the topology of a node needs no --nodes.
    """
    made = described_healthy(args, defaults, one_node=one_node)
    return made._replace(fabric=degraded_by(args, made.fabric)) if args.degrade else made


def degraded_by(args: argparse.Namespace, fabric: Fabric) -> Fabric:
    """The fabric with the NICs of --degrade."""
    with about("--degrade "):
        return fabric.degraded(parse_nics(args.degrade))


def described_healthy(
    args: argparse.Namespace, defaults: Mapping[str, Any] | None = None, *, one_node: bool = False
) -> Described:
    """As `described_by`, without --degrade."""
    given = {name: getattr(args, name) for name in _FABRIC if getattr(args, name) is not None}
    if args.fabric is None:
        per_gpu = {"rails": args.gpus} if args.nic_per_gpu and args.gpus else {}
        made = Fabric.uniform(**{**_FABRIC, **per_gpu, **(defaults or {}), **given})
        return Described(made, unsaid(given))
    topology = describes_node(args.fabric)
    for name in given:
        if not topology or name not in ("nodes", "link"):
            raise InputError(f"--fabric and --{name} contradict each other: give one of them")
    if not topology:
        return described(args.fabric)
    if not one_node:
        note(f"{args.fabric}: railopt fabric show says what is assumed of it")
    return described(args.fabric, **{**({"nodes": 1} if one_node else {}), **given})


def demand_from(text: str, fabric: Fabric) -> Traffic | Tokens:
    """A traffic file, a workload, or one dispatch of a routing trace."""
    found = demands_from(text, fabric)
    if len(found) > 1:
        raise InputError(
            f"{printable(text)}: {len(found)} dispatches: expected one; choose step=... and "
            f"layer=..., or sum, which adds them up (gap, frontier, compare and convert take all)"
        )
    return next(iter(found.values()))


def traffic_from(text: str, fabric: Fabric) -> Traffic:
    """The same, of bytes between GPUs alone."""
    found = demand_from(text, fabric)
    # which refuses tokens
    return found if isinstance(found, Traffic) else workloads.traffic_from(text, fabric)


def demands_from(text: str, fabric: Fabric) -> dict[str, Traffic | Tokens]:
    """By name, as many dispatches as the text asks of a routing trace; else one without a name."""
    if trace_file(text) is not None:
        return {**recorded_from(text, fabric)}
    if os.path.exists(text):
        return {"": Traffic.read(text, fabric)}
    if text.startswith(PREFIX):
        job = running_job(text, fabric)
        for said in job.notes:
            note(said)
        return {"": job.traffic}
    return {"": workloads.demand_from(text, fabric)}


def recorded_from(text: str, fabric: Fabric) -> dict[str, Traffic]:
    """The dispatches of a routing trace, by name."""
    from railopt.moe.routing.recorded import dispatches_from

    made = dispatches_from(text, fabric)
    for said in made.assumed:
        note(said)
    return dict(made.dispatches)


def one_figure(
    demands: dict[str, Traffic | Tokens], args: argparse.Namespace
) -> dict[str, Traffic | Tokens]:
    """The same, if it is one or no figure was asked for."""
    if len(demands) > 1 and args.figure:
        raise InputError(f"--figure: {len(demands)} dispatches: expected one, or layer=sum")
    return demands


def by_dispatch(found: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """JSON of one dispatch, or of several by their names."""
    if len(found) == 1:
        return next(iter(found.values()))
    return {"dispatches": [{"dispatch": name, **each} for name, each in found.items()]}


def add_output_arguments(parser: argparse.ArgumentParser, *files: str) -> None:
    """--format, --json, and --force, which needs one of the options `files`."""
    add_format_arguments(parser)
    add_force_argument(parser, *files)


def add_force_argument(parser: argparse.ArgumentParser, *files: str) -> None:
    """--force, which needs one of the options `files`."""
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    idle(parser, Idle("force", without=files))


def add_format_arguments(parser: argparse.ArgumentParser, *names: str) -> None:
    """--format, and --json (by `names` too), which is short for one of them."""
    parser.add_argument(
        "--format",
        choices=[*FORMS, "json"],
        help="format of tables (default text); csv has plain numbers: seconds, bytes, percent, or "
        "the unit that the column names",
    )
    parser.add_argument(
        "--json",
        *names,
        dest="format",
        action="store_const",
        const="json",
        help='print JSON, as --format json does: exact numbers as "p/q", a float beside each',
    )
    parser.add_argument(
        "--columns",
        metavar="A,B",
        type=listed,
        help="columns of the table, in this order, instead of the usual ones",
    )
    parser.add_argument(
        "--wide",
        action="store_true",
        help="print every column, however long the lines are (csv has every column without it)",
    )
    idle(parser, Idle("columns wide", beside=["format=json"]))


class Output(NamedTuple):
    """What a command prints: with a format for programs, words go to stderr and only tables to
    stdout.

    names    columns that were asked for, in their order; None: the usual ones
    wide     every column, in lines of any length
    caption  of a table in LaTeX that has no title of its own
    """

    form: str
    names: Sequence[str] | None = None
    wide: bool = False
    caption: str = ""

    def say(self, text: str = "") -> None:
        """Words around a table, in lines that fit the screen."""
        if self.form == "text":
            print(text if self.wide else wrapped(text))
        else:
            print(text, file=sys.stderr)

    def columns_to_print(self, columns: Sequence[str], more: Sequence[str] = ()) -> list[int]:
        """Which columns are printed: those that --columns names, else all; those of `more` only
        with --wide and in csv.
        """
        if self.names is not None:
            return pick(columns, self.names)
        every = self.wide or self.form == "csv"
        return [i for i, name in enumerate(columns) if every or name not in more]

    def table(
        self,
        columns: Sequence[str],
        rows: Rows,
        title: str | None = None,
        *,
        left: int = 1,
        more: Sequence[str] = (),
        beside: bool = False,
    ) -> None:
        """A table in the format that was asked for; `beside` a command's main table, it always has
        the same columns.  Columns that do not exist are refused after the usual ones were printed,
        since what is in them took time to find.
        """
        usual = self._replace(names=None)
        if self.names is not None and not beside:
            try:
                chosen = self.columns_to_print(columns)
            except InputError as error:
                usual.table(columns, rows, title, left=left, more=more)
                raise InputError(f"--columns: {error}") from error
        else:
            chosen = usual.columns_to_print(columns, more)
        names = [columns[i] for i in chosen]
        cells = [[row[i] for i in chosen] for row in rows]
        sides = [i < left for i in chosen]
        if self.form == "text":
            head = [title] if title else []
            width = None if self.wide else screen()
            print("\n".join([*head, *lines(names, cells, left=sides, width=width)]))
        else:
            about = title or (self.caption if self.form == "latex" else None)
            print(render(names, cells, about, form=self.form, left=sides), end="")

    def by_dispatch(self, columns: Sequence[str], rows: Mapping[str, Rows]) -> None:
        """The rows of each dispatch, named in a column where there are several."""
        if len(rows) == 1:
            self.table(columns, next(iter(rows.values())))
            return
        named = [[name, *row] for name, each in rows.items() for row in each]
        self.table(["dispatch", *columns], named, left=2)


def output_of(args: argparse.Namespace) -> Output:
    """As text, unless --format says otherwise."""
    said = next((of for name in SUBJECTS if (of := getattr(args, name, None))), "")
    words = said if isinstance(said, str) else " ".join(map(str, said))
    caption = f"railopt {args.command} {words}".strip()
    return Output(args.format or "text", args.columns, args.wide, caption)


Condition = str | Callable[[argparse.Namespace], str]


class Idle(NamedTuple):
    """Options that can't do anything where all of `beside` and none of `without` hold: a command
    lists these as IDLE, and `railopt.cli.main` refuses them before the command runs.

    flags    names in `args`, with spaces between them
    beside   an option that is given ("cluster"), one with a value ("aim=link") or with another
             ("aim!=link"), or a function that returns what holds, in words, or ""
    without  the same, but no function

    >>> Idle("force", without=["output", "figure"])    # needs one of these
    >>> Idle("workers", beside=["cluster"])            # excludes each other
    """

    flags: str
    beside: Sequence[Condition] = ()
    without: Sequence[str] = ()

    def check(self, args: argparse.Namespace) -> None:
        """Refuse the first of `flags` that is given and can't do anything."""
        flags = [name for name in self.flags.split() if given(args, name)]
        if not flags or any(_holding(args, condition) for condition in self.without):
            return
        held = [_holding(args, condition) for condition in self.beside]
        if all(held):
            words = [f"with {' and '.join(held)}"] if held else []
            missing = [_spelled(condition) for condition in self.without]
            words += [f"without {_either(missing)}"] if missing else []
            refuse_idle(flags[0], " and ".join(words))


def idle(parser: argparse.ArgumentParser, *rules: Idle) -> None:
    """Add rules to those of a command."""
    parser.set_defaults(idle=(*(parser.get_default("idle") or ()), *rules))


def refuse_idle(name: str, why: str) -> NoReturn:
    """Refuse an option that can't do anything, where `Idle` can't know: after input was read."""
    raise InputError(f"{flag(name)} can't do anything {why}: leave it out")


def given(args: argparse.Namespace, name: str) -> bool:
    """Whether an option was typed."""
    return name in args.typed


def flag(name: str) -> str:
    """An option as it is typed, from its name in `args`."""
    return _FLAGS.get(name) or f"--{name}".replace("_", "-")


_FLAGS = {
    "devices": "--ib-dev",
    "output": "-o",
    "path": "FABRIC",
    "report_gbits": "--report_gbits",
}


def _holding(args: argparse.Namespace, condition: Condition) -> str:
    """A condition in words where it holds, else ""."""
    if not isinstance(condition, str):
        return condition(args)
    name, relation, value = [*re.split("(!?=)", condition), "", ""][:3]
    found = getattr(args, name)
    if relation:
        holds = found is not None and (str(found) == value) == (relation == "=")
        return f"{flag(name)} {printable(found)}" if holds else ""
    return flag(name) if given(args, name) else ""


def _spelled(condition: str) -> str:
    name, _, value = condition.partition("=")
    return f"{flag(name)} {value}".rstrip()


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def plan_given(name: str) -> Callable[[argparse.Namespace], str]:
    """A condition: the argument `name` is a saved plan."""

    def holds(args: argparse.Namespace) -> str:
        is_plan = kind_of(getattr(args, name)) == "plan"
        return "a plan, which has its own policy, chunks and fabric" if is_plan else ""

    return holds


def check_folder(path: str | None, *, force: bool) -> None:
    """Refuse a folder that holds something, before anything is computed; None is no folder."""
    folder = None if path is None else Path(path)
    if folder is None or not folder.exists():
        return
    if not (folder.is_dir() and (force or next(folder.iterdir(), None) is None)):
        raise InputError(
            f"{printable(path)} is there already: name an empty folder, or give --force"
        )


def print_json(data: Any) -> None:
    """One JSON document on stdout; Fractions as "p/q" strings, exact, with a float beside each that
    has a name.
    """
    print(json.dumps(with_floats(data), default=_jsonable, indent=2))


def with_floats(data: Any) -> Any:
    """The same JSON values with NAME_float beside every exact NAME of a dict: a Fraction, a text
    "p/q" or "p", or a list of these.
    """
    if isinstance(data, list | tuple):
        return [with_floats(value) for value in data]
    if not isinstance(data, dict):
        return data
    result = {}
    for name, value in data.items():
        result[name] = with_floats(value)
        several = isinstance(value, list | tuple)
        floats = [_float(part) for part in (value if several else [value])]
        if floats and None not in floats and name != "digest" and f"{name}_float" not in data:
            result[f"{name}_float"] = floats if several else floats[0]
    return result


_EXACT = re.compile(r"-?\d+(/[1-9]\d*)?", re.ASCII)


def _float(value: Any) -> float | None:
    if isinstance(value, str) and len(value) <= MAX_CHARACTERS and _EXACT.fullmatch(value):
        value = Fraction(value)
    try:
        return float(value) if isinstance(value, Fraction) else None
    except OverflowError:
        return None


def _jsonable(value: Any) -> Any:
    if isinstance(value, Fraction):
        return str(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


def note(text: str) -> None:
    """Print one line to stderr, wrapped where that is a terminal."""
    line = printable(text, 2000)
    print(wrapped(line) if sys.stderr.isatty() else line, file=sys.stderr)


def add_figure_arguments(
    parser: argparse.ArgumentParser, draws: str, *names: str, also: str = ""
) -> None:
    """--figure, which `draws` something (`also` says more of it), --width and --title; `names` are
    others of --figure, by the first of which `args` knows it.
    """
    formats = f"{draws}: .svg, .pdf or .png{also}"
    figure = parser.add_argument(*names, "--figure", metavar="FILE", help=formats)
    idle(parser, Idle("width title", without=[figure.dest]))
    add_width_argument(parser)
    parser.add_argument(
        "--title", help='title of the figure, instead of the usual one; "" leaves it out'
    )


def add_width_argument(parser: argparse.ArgumentParser) -> None:
    """--width."""
    inches = ", ".join(f"{name} ({width} in)" for name, width in WIDTHS.items())
    parser.add_argument(
        "--width",
        metavar="column|page|INCHES",
        type=parse_width,
        help=f"how wide the figure is printed: {inches} or inches (default page)",
    )


def title_of(args: argparse.Namespace, usual: str = "") -> str:
    """The title of the figure: as --title gives it, else the usual one."""
    text = usual if args.title is None else args.title
    return "\n".join(printable(line, 1000) for line in text.split("\n"))


def figure_width(
    args: argparse.Namespace, flag: str, *, check: bool = True, also: str = ""
) -> float:
    """Inches of the figure whose file `flag` names: an unknown suffix is refused (`also` says what
    else the file could be), and with `check` what stands in the way.
    """
    if (path := getattr(args, flag)) is not None:
        figure_format(path, also)
        check_targets(path if check else None, force=args.force)
    return args.width or PAGE


def save(args: argparse.Namespace, flag: str, made: Any) -> None:
    """Save what has a `save` of its own where `flag` says, and say so."""
    made.save(getattr(args, flag), force=args.force)
    note(f"saved {getattr(args, flag)}")


def save_drawing(args: argparse.Namespace, flag: str, figure: Any) -> None:
    """Save a figure where `flag` says, and say so."""
    save_figure(figure, getattr(args, flag), force=args.force)
    note(f"saved {getattr(args, flag)}")
