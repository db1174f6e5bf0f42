"""The command line: `railopt COMMAND ...`.  One module per command, imported when used."""

from __future__ import annotations

import argparse
import importlib
import io
import os
import re
import sys
from collections.abc import Mapping, Sequence
from functools import wraps
from typing import Any, NoReturn

from railopt import __version__
from railopt.base.errors import (
    BackendError,
    RailoptError,
    about,
    did_you_mean,
    on_stderr,
    printable,
)
from railopt.base.extras import PACKAGES, installed, missing
from railopt.base.kernels import compile_mode
from railopt.base.tables import wrapped
from railopt.cli.progress import heartbeat

# name -> one line of help; the order is the order of --help
COMMANDS = {
    "demo": "the main job: every policy on a skewed MoE all-to-all, bounds, gaps, a picture",
    "plan": "put chunks on rails with a policy and save the plan",
    "gap": "how far a plan or a policy is from the best possible",
    "compare": "what dead and slow NICs cost each policy, beside the bounds",
    "size": "which fabric to buy for a workload: rails, rates, spine or none, spares",
    "frontier": "time against bytes moved inside nodes: what is possible, by policy",
    "solve": "find the best plan and prove it optimal",
    "schedule": "schedule an all-to-all in few incast-free stages (FAST, SpreadOut, ours)",
    "prove": "check every theorem that railopt relies on: symbolic, exhaustive, Coq's kernel",
    "hybrid": "send experts to the data or data to the experts, across slow links",
    "check": "re-check plans and certificates with the trusted checker",
    "devices": "list RDMA devices and the rails they would be",
    "send": "carry out a plan: in this process, as a table of work requests, or on the NICs",
    "bench": "time plans on a sender, in the columns of nccl-tests",
    "fabric": "draw a node of a fabric; describe it for NCCL; check how it is wired",
    "fabric-from-perftest": "make a fabric from NIC rates measured with perftest",
    "simulate": "run a plan or direct traffic on the fabric, flow by flow",
    "blame": "which NIC was hot, and why: the plan against what was counted",
    "sweep": "run a grid of instances, on this machine or a cluster, and resume it",
    "results": "list, filter, merge and export the results of sweeps",
    "place": "expert placement from a routing trace: balance, bytes moved, busiest links, time",
    "migrate": "from one map of experts to another: who sends what, in which batch, on which rails",
    "split": "every micro-batch: experts copied to spare slots, tokens split over them, certified",
    "weigh": "what rails, stages, placement, splits and moved experts are each worth on a trace",
    "report": "one self-contained page of figures and tables from results",
    "convert": "between traffic, plan and fabric formats, by suffix",
    "warm-up": "compile the kernels once, for an image or a shared disk",
    "completion": "print what makes a shell complete railopt's words",
}

EXIT_CODES = (
    "exit codes: 0 done, 1 bad input or usage, 2 not proved or infeasible, 3 back-end missing\n"
    "or crashed, 4 a check failed, 130 interrupted"
)


MESSAGE = 2000  # characters of an error that are shown
CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)", re.DOTALL)


def is_set(value: object) -> bool:
    """Whether an argument has a value; 0 is one."""
    return not (value is None or value is False or value == [])


class _Group:
    """A group of argparse's whose arguments its parser knows, too."""

    def __init__(self, group: Any, parser: Parser) -> None:
        self._group, self._parser = group, parser

    def add_argument(self, *args: Any, **options: Any) -> argparse.Action:
        return self._parser.known(self._group.add_argument(*args, **options))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._group, name)


def _named(action: argparse.Action) -> Any:
    """The argument's `type`, whose complaints begin with the option."""
    kind: Any = action.type

    @wraps(kind)
    def read(text: str) -> Any:
        with about(f"{action.option_strings[-1]}: "):
            return kind(text)

    return read


class Version(argparse.Action):
    """Print the version and end; argparse's forgets that it could not be written."""

    def __call__(self, parser: Any, *_: Any, **__: Any) -> None:
        sys.stdout.write(f"{self.const}\n")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser that knows its arguments.

    actions    its arguments, in the order in which they were added
    usual      what those are that are left out, by their names in the result
    commands   name -> parser of each command
    """

    commands: Mapping[str, Parser]

    def __init__(self, *args: Any, **options: Any) -> None:
        self.actions: list[argparse.Action] = []
        self.usual: dict[str, Any] = {}
        super().__init__(*args, **options)

    def known(self, action: argparse.Action) -> argparse.Action:
        """An argument that was added: its help ends with its default, which it gets after parsing,
        and what its `type` refuses begins with its name.
        """
        self.actions.append(action)
        if is_set(action.default) and action.default != argparse.SUPPRESS:
            action.help = f"{action.help} (default {action.default})"
            read: Any = action.type if isinstance(action.default, str) else None
            self.usual[action.dest] = read(action.default) if read else action.default
            action.default = None
        if action.type is not None:
            action.type = _named(action)
        return action

    def add_argument(self, *args: Any, **options: Any) -> argparse.Action:
        """argparse's; the argument is remembered."""
        return self.known(super().add_argument(*args, **options))

    def add_argument_group(self, *args: Any, **options: Any) -> Any:
        """argparse's; its arguments are remembered, too."""
        return _Group(super().add_argument_group(*args, **options), self)

    def add_mutually_exclusive_group(self, **options: Any) -> Any:
        """argparse's; its arguments are remembered, too."""
        return _Group(super().add_mutually_exclusive_group(**options), self)

    def print_help(self, file: Any = None) -> None:
        """argparse's, which forgets that help could not be written."""
        (file or sys.stdout).write(self.format_help())

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """argparse's; help or a version that could not be written is an error."""
        sys.stdout.flush()
        super().exit(status, message)

    def error(self, message: str) -> None:  # type: ignore[override]
        """End the process with exit code 1."""
        if found := CHOICE.search(message):
            choices = [word.strip("' ") for word in found[2].split(",")]
            message += did_you_mean(found[1], choices)
        self.print_usage(sys.stderr)
        text = f"{self.prog}: error: {printable(message, MESSAGE)}"
        self.exit(1, f"{wrapped(text) if sys.stderr.isatty() else text}\n")


def parser_of(command: str | None) -> Parser:
    """railopt's parser, with the options of one command."""
    parser = Parser(
        prog="railopt",
        description="Compute, prove and ship all-to-all plans for MoE training on rail fabrics.",
        epilog=f"{EXIT_CODES}.  Start with: railopt demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action=Version,
        nargs=0,
        const=f"railopt {__version__}",
        help="show program's version number and exit",
    )
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    for name, text in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == command:
            loaded = importlib.import_module(f"railopt.cli.{name.replace('-', '_')}")
            sub.epilog = getattr(loaded, "EPILOG", None)
            sub.set_defaults(idle=getattr(loaded, "IDLE", ()))
            loaded.add_arguments(sub)
            sub.set_defaults(run=loaded.run)
    parser.commands = commands.choices
    return parser


def parsed(arguments: list[str]) -> argparse.Namespace:
    """The arguments; argparse ends the process where they are wrong."""
    parser = parser_of(next((word for word in arguments if word in COMMANDS), None))
    args, extra = parser.parse_known_args(arguments)
    if extra:
        actions = parser.commands[args.command].actions
        known = [name for action in actions for name in action.option_strings]
        odd = next((word for word in extra if word.startswith("-")), extra[0])
        meant = did_you_mean(odd.partition("=")[0], known)
        parser.error(f"unrecognized arguments: {' '.join(extra)}{meant}")
    args.typed = {name for name, value in vars(args).items() if is_set(value)}
    for name, value in parser.commands[args.command].usual.items():
        if name not in args.typed:
            setattr(args, name, value)
    for rule in args.idle:
        rule.check(args)
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code.  Whatever is wrong with what it was given is one line."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        args = parsed(arguments)
        compile_mode()  # a wrong RAILOPT_COMPILE is an error of every command
        with on_stderr(), heartbeat(args.command):
            code = int(args.run(args))
        sys.stdout.flush()  # a full disk or a closed pipe shows itself here, not at exit
        return code
    except RailoptError as error:
        return _failed(str(error), error.exit_code)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in PACKAGES or installed(package):
            raise
        return _failed(missing(package, f"railopt {args.command}"), BackendError.exit_code)
    except KeyboardInterrupt:
        print("railopt: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        _forget_output()
        return 1
    except OSError as error:
        _forget_output()
        about = "" if error.filename is None else f"{error.filename}: "
        return _failed(f"{about}{error.strerror or error}", 1)
    except MemoryError:
        return _failed("not enough memory: a smaller fabric or larger chunks need less", 1)


def _failed(message: str, code: int) -> int:
    text = f"railopt: error: {printable(message, MESSAGE)}"
    print(wrapped(text) if sys.stderr.isatty() else text, file=sys.stderr)
    return code


def _forget_output() -> None:
    """What is left in stdout's buffer goes nowhere, if stdout takes no more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def entry() -> None:
    """The console script."""
    # What goes to a stream that the parent process closed is lost anyway.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files may be no UTF-8
    sys.exit(main())
