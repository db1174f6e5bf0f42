"""Flags that could do nothing are refused."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from railopt.base.errors import InputError
from railopt.cli.common import Idle
from railopt.cli.main import COMMANDS, parser_of

SPEC = (
    '[grid]\nnodes = 2\nrails = 2\ntraffic = "uniform"\nchunk = "1MiB"\npolicy = "lpt"\nseed = 0\n'
)
Cli = Callable[..., Any]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_declarations_name_options_of_their_command(command: str) -> None:
    options = parser_of(command).commands[command]
    known = {action.dest: action for action in options.actions}
    for rule in options.get_default("idle"):
        conditions = [c for c in (*rule.beside, *rule.without) if isinstance(c, str)]
        for text in (*rule.flags.split(), *conditions):
            name, *value = re.split("!?=", text)
            assert name in known, text
            choices = known[name].choices
            assert not value or not choices or value[0] in choices, text
        assert set(rule.flags.split()) <= set(known)


def _refused(rule: Idle, **args: object) -> str:
    try:
        usual = {"a": None, "b_c": False, "d": None, "output": None}
        rule.check(Namespace(typed=set(args), **{**usual, **args}))
    except InputError as error:
        return str(error)
    return ""


def test_the_message_is_made_from_the_declaration() -> None:
    needs = Idle("a b_c", without=["output", "d=x"])
    assert _refused(needs) == ""
    assert _refused(needs, a=0) == "--a can't do anything without -o or --d x: leave it out"
    assert _refused(needs, b_c=True).startswith("--b-c can't do anything without")
    assert _refused(needs, a=0, d="y") != ""
    assert _refused(needs, a=0, d="x") == _refused(needs, a=0, output="f") == ""
    both = Idle("a", beside=["d!=x", lambda args: "a plan" * (args.output == "p")], without=["b_c"])
    assert _refused(both, a=1, d="y") == _refused(both, a=1, output="p") == ""
    assert _refused(both, a=1, output="p", d="x") == _refused(both, d="y", output="p") == ""
    assert (
        _refused(both, a=1, output="p", d="y")
        == "--a can't do anything with --d y and a plan and without --b-c: leave it out"
    )


@pytest.mark.parametrize("more", [["--shard", "9/4"], ["--workers", "3"], ["--cluster", "x"]])
def test_a_dry_run_runs_nowhere(tmp_path: Path, more: list[str], railopt_cli: Cli) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC)
    command = ["sweep", str(spec), "-o", str(tmp_path / "results"), "--dry-run"]
    assert railopt_cli(*command).code == 0
    ran = railopt_cli(*command, *more)
    assert ran.code == 1
    assert "can't do anything with --dry-run" in ran.err


def test_a_cluster_has_its_own_workers(tmp_path: Path, railopt_cli: Cli) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text(SPEC)
    ran = railopt_cli(
        "sweep", spec, "-o", tmp_path / "r", "--cluster", "tcp://127.0.0.1:1", "--workers", "3"
    )
    assert ran.code == 1
    assert "--workers can't do anything with --cluster" in ran.err


@pytest.mark.slow
@pytest.mark.parametrize("more", [["--link", "100Gb/s"], ["--degrade", "0:0=0.5"]])
def test_a_split_has_no_links(more: list[str], railopt_cli: Cli) -> None:
    command = ["split", "routing:tokens=16,steps=2", "--nodes", "2", "--gpus", "2", "--spare", "1"]
    ran = railopt_cli(*command, *more)
    assert ran.code == 1
    assert "no byte crosses a link" in ran.err


@pytest.mark.slow
def test_a_column_has_one_value(tmp_path: Path, railopt_cli: Cli) -> None:
    spec, results = tmp_path / "spec.toml", str(tmp_path / "results")
    spec.write_text(SPEC)
    assert railopt_cli("sweep", str(spec), "-o", results).code == 0
    once = ["results", results, "--where", "policy=lpt"]
    assert railopt_cli(*once).code == 0
    ran = railopt_cli(*once, "--where", "policy=lpt-local")
    assert ran.code == 1
    assert "names a column twice" in ran.err
