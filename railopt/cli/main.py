"""The command line: `railopt COMMAND ...`.  One module a command, imported only when it is used."""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import Any

from railopt import __version__
from railopt.base.errors import RailoptError, did_you_mean, printable
from railopt.base.interrupts import KeepInterrupts
from railopt.cli import config
from railopt.cli.companion import companion
from railopt.cli.heartbeat import heartbeat

# name -> (module, one line of help); the order is the order of --help
COMMANDS: dict[str, tuple[str, str]] = {
    "demo": (
        "demo",
        "the main job: every policy on a skewed MoE all-to-all, bounds, gaps, a picture",
    ),
    "plan": ("plan", "put chunks on rails with a policy and save the plan"),
    "gap": ("gap", "how far a plan or a policy is from the best possible"),
    "compare": ("compare", "what dead and slow NICs cost each policy, beside the bounds"),
    "frontier": ("frontier", "time against bytes moved inside nodes: what is possible, by policy"),
    "solve": ("solve", "find the best plan and prove it optimal"),
    "schedule": (
        "schedule",
        "schedule an all-to-all in few incast-free stages (FAST, SpreadOut, ours)",
    ),
    "prove": (
        "prove",
        "check every theorem that railopt relies on: symbolic, exhaustive, Coq's kernel",
    ),
    "hybrid": ("hybrid", "send experts to the data or data to the experts, across slow links"),
    "check": ("check", "re-check plans and certificates with the trusted kernel"),
    "devices": ("devices", "list RDMA devices and the rails they would be"),
    "send": (
        "send",
        "carry out a plan: in this process, as a table of work requests, or on the NICs",
    ),
    "bench": ("bench", "time plans on a sender, in the columns of nccl-tests"),
    "fabric": ("fabric", "draw a node of a fabric, and say what its description assumes"),
    "fabric-from-perftest": (
        "fabric_from_perftest",
        "make a fabric from NIC rates measured with perftest",
    ),
    "simulate": ("simulate", "run a plan or direct traffic on the fabric, flow by flow"),
    "blame": ("blame", "which NIC was hot, and why: the plan against what was counted"),
    "sweep": ("sweep", "run a grid of instances, on this machine or a cluster, and resume it"),
    "results": ("results", "list, filter, merge and export the results of sweeps"),
    "place": (
        "place",
        "expert placement from a routing trace: balance, bytes moved, busiest links, time",
    ),
    "split": (
        "split",
        "every micro-batch: copies of experts in spare slots, tokens split over them, certified",
    ),
    "report": ("report", "one self-contained page of figures and tables from results"),
    "convert": ("convert", "between traffic, plan and fabric formats, by suffix"),
    "warm-up": ("warm_up", "compile the kernels once, for an image or a shared disk"),
    "config": ("show_config", "show the defaults that a railopt.toml sets, and which file that is"),
    "completion": ("completion", "print what makes a shell complete railopt's words"),
}

MESSAGE = 2000  # characters of an error that are shown

EXIT_CODES = (
    "exit codes: 0 done, 1 bad input or usage, 2 not proved or infeasible, 3 back-end missing "
    "or crashed, 4 a check failed, 130 interrupted"
)


class _Parser(argparse.ArgumentParser):
    """argparse with railopt's exit code for bad usage."""

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """argparse's, with the name that was perhaps meant."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse's, which forgets that help or version could not be written to stdout."""
        if file is not sys.stdout:
            super()._print_message(message, file)
            return
        file.write(message)
        file.flush()

    def error(self, message: str) -> None:  # type: ignore[override]
        self.print_usage(sys.stderr)
        self.exit(1, f"{self.prog}: error: {printable(message, MESSAGE)}\n")


def _parser(command: str | None) -> argparse.ArgumentParser:
    """railopt's parser, with the options of one command."""
    parser = _Parser(
        prog="railopt",
        description="Compute, prove and ship all-to-all plans for MoE training on rail fabrics.",
        epilog=f"{EXIT_CODES}.  Start with: railopt demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"railopt {__version__}")
    parser.add_argument("--config", metavar="FILE.toml", help=config.HELP)
    commands = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Parser
    )
    for name, (module, text) in COMMANDS.items():
        sub = commands.add_parser(
            name,
            help=text,
            description=text[0].upper() + text[1:] + ".",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if name == command:
            loaded = importlib.import_module(f"railopt.cli.{module}")
            sub.epilog = getattr(loaded, "EPILOG", None)
            loaded.add_arguments(sub)
            sub.set_defaults(run=loaded.run)
    return parser


def options_of(parser: argparse.ArgumentParser, command: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    group = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    found: argparse.ArgumentParser = group.choices[command]
    return found


def _parsed(arguments: list[str]) -> argparse.Namespace:
    """The arguments, with the defaults of a configuration file; argparse ends the process where
    they are wrong.
    """
    named, rest = config.taken_out(arguments)
    command = next((word for word in rest if word in COMMANDS), None)
    parser, settings = _parser(command), None
    if command is not None:
        options = options_of(parser, command)
        settings = config.find(named) if named or config.serves(options) else None
        if settings is not None and command != "config":  # which shows it
            settings.apply(options)
    args, extra = parser.parse_known_args(rest)
    if extra:
        known = options_of(parser, args.command)._option_string_actions
        odd = next((word for word in extra if word.startswith("-")), extra[0])
        meant = did_you_mean(odd.partition("=")[0], known)
        parser.error(f"unrecognized arguments: {' '.join(extra)}{meant}")
    args.settings, args.idle = settings, set()
    return args


def _run(args: argparse.Namespace) -> int:
    """The command's exit code; then what it took from a configuration file is said."""
    try:
        return int(args.run(args))
    finally:
        if args.settings is not None and (told := args.settings.told(args)):
            print(f"railopt: {told}", file=sys.stderr)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit code.  Whatever is wrong with what it was given is one line."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    kept = KeepInterrupts(again_s=None)
    try:
        args = _parsed(arguments)
        with kept, heartbeat(args.command), companion(args.command):
            code = _run(args)
        sys.stdout.flush()  # a full disk or a closed pipe shows itself here, not at exit
        return code
    except RailoptError as error:
        return _failed(str(error), error.exit_code)
    except KeyboardInterrupt:
        return _interrupted()
    except BrokenPipeError:
        _forget_output()
        return 1
    except OSError as error:
        _forget_output()
        about = "" if error.filename is None else f"{error.filename}: "
        return _failed(f"{about}{error.strerror or error}", 1)
    except MemoryError:
        return _failed("not enough memory: a smaller fabric or larger chunks need less", 1)
    except Exception:
        if not kept.struck:  # else what numba, say, makes of a Ctrl-C that it lost
            raise
        return _interrupted()


def _interrupted() -> int:
    print("railopt: interrupted", file=sys.stderr)
    return 130


def _failed(message: str, code: int) -> int:
    print(f"railopt: error: {printable(message, MESSAGE)}", file=sys.stderr)
    return code


def _forget_output() -> None:
    """What is left in stdout's buffer goes nowhere, if stdout takes no more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def entry() -> None:
    """The console script."""
    # A stream that was closed by whoever started us is as good as thrown away.
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # names of files may be no UTF-8
    code = main()
    if code == 130:  # what an interrupt left half made is nobody's concern any more
        sys.unraisablehook = lambda lost: None
    gc.freeze()  # or Python looks through all that numba has made once more before it ends
    sys.exit(code)
