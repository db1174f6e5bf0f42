"""`railopt completion SHELL`: completion made from the parsers, so that it knows what they know."""

from __future__ import annotations

import argparse

from railopt.cli.common import BYTES_HELP, TRAFFIC_HELP
from railopt.model.workloads import BYTES, WORKLOADS
from railopt.policies import POLICIES
from railopt.solver.program.backends import BACKENDS

EPILOG = """examples:
  eval "$(railopt completion bash)"                                    for this shell
  railopt completion bash > ~/.local/share/bash-completion/completions/railopt
zsh reads the same after: autoload -U +X bashcompinit && bashcompinit"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=("bash",), help="the shell that is to complete railopt")


def run(args: argparse.Namespace) -> int:
    print(bash(), end="")
    return 0


def _values(action: argparse.Action) -> tuple[str, ...]:
    """Words that may stand for an argument, where they are known."""
    known = {"policy": tuple(POLICIES), "backend": ("native", *BACKENDS)}
    if action.choices or action.dest in known:
        return known.get(action.dest) or tuple(map(str, action.choices or ()))
    help_ = action.help or ""
    if BYTES_HELP in help_:
        return BYTES
    return tuple(WORKLOADS) if TRAFFIC_HELP in help_ else ()


def bash() -> str:
    """A function for bash's `complete`: what may follow depends on the command and the word before;
    of a list of values the part after its last comma is completed.
    """
    from railopt.cli.main import COMMANDS, parser_of

    arms, last = [], []
    for command in COMMANDS:
        actions = parser_of(command).commands[command].actions
        options = [action for action in actions if action.option_strings]
        for option in options:
            if option.nargs != 0:
                pattern = "|".join(f'"{command} {name}"' for name in option.option_strings)
                values = " ".join(_values(option))
                offer = f'_railopt_list; _railopt_offer "{values}"' if values else "_railopt_files"
                arms.append(f"{pattern}) {offer} ;;")
        names = " ".join(name for option in options for name in option.option_strings)
        alone = [action for action in actions if not action.option_strings]
        words = " ".join(word for action in alone for word in _values(action))
        offers = [f'_railopt_offer "{words}"'] if words else []
        offers += ["_railopt_files"] if any(not action.choices for action in alone) else []
        last.append(
            f'"{command} "*) if [[ "$word" == -* ]]; then _railopt_offer "{names}"; '
            f"else {'; '.join(offers) or ':'}; fi ;;"
        )
    cases = "\n".join(f"        {arm}" for arm in arms + last)
    return f"""# railopt completion bash
_railopt() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" before="${{COMP_WORDS[COMP_CWORD - 1]}}"
    local head=""
    COMPREPLY=()
    if ((COMP_CWORD == 1)); then
        _railopt_offer "{" ".join(COMMANDS)} --help --version"
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
