"""`railopt completion SHELL`: completion made from the parsers, so that it knows what they know."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from railopt.cli.common import BYTES_HELP, TRAFFIC_HELP
from railopt.model.workloads import BYTES, WORKLOADS
from railopt.policies import POLICIES
from railopt.solver.program.backends import BACKENDS

EPILOG = """examples:
  eval "$(railopt completion bash)"                                    for this shell
  railopt completion bash > ~/.local/share/bash-completion/completions/railopt
zsh reads the same after: autoload -U +X bashcompinit && bashcompinit"""


class Option(NamedTuple):
    """One option of a command: its names, its values where they are known, whether it takes one."""

    names: tuple[str, ...]
    values: tuple[str, ...]
    takes: bool


class Command(NamedTuple):
    """What completes a command: its options, words that may stand alone, and whether a file may."""

    name: str
    options: tuple[Option, ...]
    words: tuple[str, ...]
    files: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash",), help="the shell that is to complete railopt")


def run(args: argparse.Namespace) -> int:
    print(bash(list(commands())), end="")
    return 0


def commands() -> Iterator[Command]:
    """Every command, from its parser."""
    from railopt.cli.main import COMMANDS, _parser

    for name in COMMANDS:
        actions = _parser(name).commands[name].actions
        options = [_option(action) for action in actions if action.option_strings]
        alone = [_words(action) for action in actions if not action.option_strings]
        files = any(not a.option_strings and not a.choices for a in actions)
        yield Command(name, tuple(options), tuple(word for w in alone for word in w), files)


def _option(action: argparse.Action) -> Option:
    values = tuple(map(str, action.choices or ()))
    known = {"policy": tuple(POLICIES), "backend": ("native", *BACKENDS)}
    values = known.get(action.dest, values)
    return Option(tuple(action.option_strings), values, action.nargs != 0)


def _words(action: argparse.Action) -> tuple[str, ...]:
    if action.choices:
        return tuple(map(str, action.choices))
    help_ = action.help or ""
    if BYTES_HELP in help_:
        return BYTES
    return tuple(WORKLOADS) if TRAFFIC_HELP in help_ else ()


def bash(found: list[Command]) -> str:
    """A function for bash's `complete`: what may follow depends on the command and the word before;
    of a list of values the part after its last comma is completed.
    """
    arms = []
    for command in found:
        for option in command.options:
            if option.takes:
                pattern = "|".join(f'"{command.name} {name}"' for name in option.names)
                offer = f'_railopt_list; _railopt_offer "{" ".join(option.values)}"'
                arms.append(f"{pattern}) {offer if option.values else '_railopt_files'} ;;")
    for command in found:
        names = " ".join(name for option in command.options for name in option.names)
        alone = [f'_railopt_offer "{" ".join(command.words)}"'] if command.words else []
        alone += ["_railopt_files"] if command.files else []
        arms.append(
            f'"{command.name} "*) if [[ "$word" == -* ]]; then _railopt_offer "{names}"; '
            f"else {'; '.join(alone) or ':'}; fi ;;"
        )
    cases = "\n".join(f"        {arm}" for arm in arms)
    return f"""# railopt completion bash
_railopt() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}"
    local head=""
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _railopt_offer "{" ".join(command.name for command in found)} --help --version"
        return
    fi
    [[ "$before" != "=" ]] || before="${{COMP_WORDS[COMP_CWORD - 2]}}"
    word="${{word#=}}"
    case "${{COMP_WORDS[1]}} $before" in
{cases}
    esac
}}
_railopt_list() {{ head="${{word%"${{word##*,}}"}}"; word="${{word##*,}}"; }}
_railopt_offer() {{ COMPREPLY+=($(compgen -P "$head" -W "$1" -- "$word")); }}
_railopt_files() {{ local IFS=$'\n'; COMPREPLY+=($(compgen -f -- "$word")); }}
complete -o filenames -F _railopt railopt
"""
