"""`railopt completion SHELL`: completion made from the parsers, so that it knows what they know."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import NamedTuple

from railopt.cli.common import BYTES_HELP, TRAFFIC_HELP
from railopt.model.workloads import BYTES, WORKLOADS
from railopt.policies import POLICIES
from railopt.solver.program.backends import BACKENDS

SHELLS = ("bash", "zsh", "fish")
EPILOG = """examples:
  eval "$(railopt completion bash)"                                    for this shell
  railopt completion bash > ~/.local/share/bash-completion/completions/railopt
  railopt completion zsh > "${fpath[1]}/_railopt"
  railopt completion fish > ~/.config/fish/completions/railopt.fish"""


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
    parser.add_argument("shell", choices=SHELLS, help="the shell that is to complete railopt")


def run(args: argparse.Namespace) -> int:
    found = list(commands())
    print({"bash": bash, "zsh": zsh, "fish": fish}[args.shell](found), end="")
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


def _cases(found: list[Command]) -> Iterator[tuple[str, str]]:
    """(pattern of "command word-before", what may follow) of options whose values are known, then
    of those that take something else, a file for instance.
    """
    for command in found:
        for option in command.options:
            if option.takes:
                pattern = "|".join(f'"{command.name} {name}"' for name in option.names)
                yield pattern, " ".join(option.values)


def _arms(found: list[Command], indent: str, files: str, offer: str, of_list: str) -> str:
    """The arms of a `case` over "command word-before" that bash and zsh share; `of_list` leaves
    what follows the last comma, where values are offered.
    """
    lines = [
        f"{pattern}) {of_list + offer.format(values) if values else files} ;;"
        for pattern, values in _cases(found)
    ]
    for command in found:
        names = " ".join(name for option in command.options for name in option.names)
        alone = [offer.format(" ".join(command.words))] if command.words else []
        alone += [files] if command.files else []
        lines.append(
            f'"{command.name} "*) if [[ "$word" == -* ]]; then {offer.format(names)}; '
            f"else {'; '.join(alone) or ':'}; fi ;;"
        )
    return "\n".join(indent + line for line in lines)


def bash(found: list[Command]) -> str:
    """A function for bash's `complete`."""
    names = " ".join(command.name for command in found)
    return f"""# railopt completion bash
_railopt() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}"
    local head=""
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _railopt_offer "{names} --help --version"
        return
    fi
    [[ "$before" != "=" ]] || before="${{COMP_WORDS[COMP_CWORD - 2]}}"
    word="${{word#=}}"
    case "${{COMP_WORDS[1]}} $before" in
{_arms(found, "        ", "_railopt_files", '_railopt_offer "{}"', "_railopt_list; ")}
    esac
}}
_railopt_list() {{ head="${{word%"${{word##*,}}"}}"; word="${{word##*,}}"; }}
_railopt_offer() {{ COMPREPLY+=($(compgen -P "$head" -W "$1" -- "$word")); }}
_railopt_files() {{ local IFS=$'\n'; COMPREPLY+=($(compgen -f -- "$word")); }}
complete -o filenames -F _railopt railopt
"""


def zsh(found: list[Command]) -> str:
    """A function for zsh's `fpath`, or to be evaluated."""
    names = " ".join(command.name for command in found)
    return f"""#compdef railopt
# railopt completion zsh
_railopt() {{
    local word="${{words[CURRENT]}}" before="${{words[CURRENT - 1]}}"
    if ((CURRENT == 2)); then
        compadd -- {names} --help --version
        return
    fi
    [[ "$word" != --*=* ]] || {{ before="${{word%%=*}}"; compset -P '*='; }}
    case "${{words[2]}} $before" in
{_arms(found, "        ", "_files", "compadd -- {}", "compset -P '*,'; ")}
    esac
}}
compdef _railopt railopt
"""


def fish(found: list[Command]) -> str:
    """Lines of fish's `complete`."""
    lines = ["# railopt completion fish"]
    names = " ".join(command.name for command in found)
    before = f"complete -c railopt -n 'not __fish_seen_subcommand_from {names}'"
    lines += [f"{before} -f -a '{names}'", f"{before} -l help", f"{before} -l version"]
    for command in found:
        seen = f"complete -c railopt -n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            lines.append(f"{seen} -a '{' '.join(command.words)}'")
        for option in command.options:
            flags = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
                for name in option.names
            )
            values = f" -x -a '{' '.join(option.values)}'" if option.values else ""
            lines.append(f"{seen} {flags}{values or (' -r' if option.takes else '')}")
    return "\n".join(lines) + "\n"
