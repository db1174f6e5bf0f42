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
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from railopt.base.arrays import check_targets, kind_of
from railopt.base.errors import InputError, printable
from railopt.base.tables import FORMS, Rows, lines, pick, render, screen, wrapped
from railopt.base.units import MAX_CHARACTERS, parse_integer
from railopt.model import workloads
from railopt.model.background import Background, background_from, left_by
from railopt.model.fabric import Described, Fabric, described, parse_nics, unsaid
from railopt.model.plan import Plan
from railopt.model.running import PREFIX, running_job
from railopt.model.tokens import Tokens
from railopt.model.topology import describes_node
from railopt.model.traffic import Traffic, trace_file
from railopt.model.workloads import BYTES, WORKLOADS
from railopt.report.saving import figure_format, save_figure
from railopt.report.style import PAGE, WIDTHS, parse_width

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


def integer(text: str) -> int:
    """A whole number on the command line, within int64: a `type` for argparse."""
    try:
        return parse_integer(text, "number")
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def positive(text: str) -> int:
    """A whole number of at least 1: a `type` for argparse."""
    value = integer(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"{value}: expected at least 1")
    return value


def seed(text: str) -> int:
    """What dice start from, a whole number of at least 0: a `type` for argparse."""
    try:
        return parse_integer(text, "seed", low=0)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_fabric_arguments(parser: argparse.ArgumentParser, *, nic_per_gpu: bool = False) -> None:
    """--fabric FILE, or --nodes, --rails, --gpus, --link, and --degrade; with `nic_per_gpu` there
    are as many rails as --gpus says, where --rails does not.
    """
    rails = "as many as --gpus, else 8" if nic_per_gpu else "8"
    parser.set_defaults(nic_per_gpu=nic_per_gpu)
    group = parser.add_argument_group("fabric")
    group.add_argument(
        "--fabric",
        metavar="FILE.toml",
        help="fabric description, or a .topo of htsim, instead of the options below; or with "
        "--nodes the topology of one node (NCCL_TOPO_DUMP_FILE, nvidia-smi topo -m)",
    )
    group.add_argument("--nodes", type=integer, help="nodes (default 8)")
    group.add_argument("--rails", type=integer, help=f"rails = NICs per node (default {rails})")
    group.add_argument("--gpus", type=integer, help="GPUs per node (default: as many as rails)")
    group.add_argument("--link", help="rate of a NIC (default 400Gb/s)")
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
        "allreduce:size=1GiB,time=20ms,rails=0+1, or rates of NICs as in a fabric's .toml",
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
    try:
        left = left_by(fabric, load)
    except InputError as error:
        raise InputError(f"--background {printable(args.background)}: {error}") from error
    note(f"times are on what {args.background} leaves of the NICs")
    return left


def add_trace_arguments(parser: argparse.ArgumentParser) -> None:
    """--top-k and --routed-experts: what tensors do not say of themselves."""
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


def fabric_given(args: argparse.Namespace) -> bool:
    """Whether any option describes a fabric."""
    return any(getattr(args, name) not in (None, []) for name in FABRIC_FLAGS)


def fabric_from(args: argparse.Namespace) -> Fabric:
    """The fabric that the options describe."""
    return described_by(args).fabric


def described_by(args: argparse.Namespace, *, one_node: bool = False) -> Described:
    """The fabric that the options describe, and what they leave open; `one_node`: the topology of
    a node needs no --nodes.
    """
    rails = {"rails": args.gpus} if args.nic_per_gpu and args.gpus else {}
    made = described_fabric(args, {**_FABRIC, **rails}, one_node=one_node)
    if not args.degrade:
        return made
    try:
        return made._replace(fabric=made.fabric.degraded(parse_nics(args.degrade)))
    except InputError as error:
        raise InputError(f"--degrade {error}") from error


def described_fabric(
    args: argparse.Namespace, defaults: Mapping[str, Any], *, one_node: bool = False
) -> Described:
    """From --fabric, or from --nodes, --rails, --gpus and --link, before `defaults`."""
    given = {name: getattr(args, name) for name in _FABRIC if getattr(args, name) is not None}
    if args.fabric is None:
        return Described(Fabric.uniform(**{**defaults, **given}), unsaid(given))
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
    noted = text.startswith(PREFIX) or trace_file(text)
    found = demand_from(text, fabric) if noted else None
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


def add_merge_ranks(parser: Any) -> None:
    """--merge-ranks, of a parser or of a group of its arguments."""
    parser.add_argument(
        "--merge-ranks",
        action="store_true",
        help="join consecutive source ranks until one per GPU is left",
    )


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """--format, --json and --force."""
    add_format_arguments(parser)
    parser.add_argument("--force", action="store_true", help="replace files that exist")


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
        help="columns of the table, in this order, instead of the usual ones",
    )
    parser.add_argument(
        "--wide",
        action="store_true",
        help="print every column, however long the lines are (csv has every column without it)",
    )


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
    return Output(args.format or "text", listed(args.columns, "--columns"), args.wide, caption)


def listed(text: str | None, flag: str) -> list[str] | None:
    """The parts of a list with commas; None where nothing was given."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InputError(f"{flag} {text!r}: expected one or more, with commas between them")
    return parts


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


OUTPUT_IDLE = (Idle("columns wide", beside=["format=json"]),)


def refuse_idle(name: str, why: str) -> NoReturn:
    """Refuse an option that can't do anything, where `Idle` can't know: after input was read."""
    raise InputError(f"{flag(name)} can't do anything {why}: leave it out")


def given(args: argparse.Namespace, name: str) -> bool:
    """Whether an option was typed; 0 is a value."""
    value = getattr(args, name, None)
    return not (value is None or value is False or value == [])


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
    if not given(args, name) or (relation and (str(found) == value) != (relation == "=")):
        return ""
    return f"{flag(name)} {printable(found)}" if relation else flag(name)


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
    parser.add_argument(*names, "--figure", metavar="FILE", help=formats)
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
        help=f"how wide the figure is printed: {inches} or inches (default page)",
    )


def title_of(args: argparse.Namespace, usual: str = "") -> str:
    """The title of the figure: as --title gives it, else the usual one."""
    text = usual if args.title is None else args.title
    return "\n".join(printable(line, 1000) for line in text.split("\n"))


def width_of(args: argparse.Namespace) -> float:
    """Inches of the figure."""
    if args.width is None:
        return PAGE
    try:
        return parse_width(args.width)
    except InputError as error:
        raise InputError(f"--width {error}") from error


def figure_width(
    args: argparse.Namespace, flag: str, *, check: bool = True, also: str = ""
) -> float:
    """The same, where `flag` names its file: an unknown suffix is refused (`also` says what else
    the file could be), and with `check` what stands in the way.
    """
    width, path = width_of(args), getattr(args, flag)
    if path is not None:
        figure_format(path, also)
        check_targets(path if check else None, force=args.force)
    return width


def save_drawing(args: argparse.Namespace, flag: str, figure: Any) -> None:
    """Save a figure where `flag` says, and say so."""
    save_figure(figure, getattr(args, flag), force=args.force)
    note(f"saved {getattr(args, flag)}")
