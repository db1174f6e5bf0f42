"""The configuration file: what it sets, that flags win, and that a bad one is one sentence."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from railopt import Fabric
from railopt.base.errors import InputError
from railopt.cli import config
from tests.damage import damaged_text

Cli = Callable[..., object]
GOOD = 'policy = "pxn"\nchunk = "64KiB"\n[fabric]\nnodes = 2\nrails = 2\nlink = "200Gb/s"\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(config.VARIABLE, raising=False)
    (tmp_path / config.NAME).write_text(GOOD)
    return tmp_path


def _plan(railopt_cli: Cli, *flags: str) -> tuple[str, int]:
    """(policy, chunks) of a plan of 1 MiB from each of 4 GPUs to each of the other node's."""
    ran = railopt_cli("plan", "uniform", "--json", *flags)
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    return found["policy"], found["chunks"]


@pytest.mark.slow
def test_it_sets_the_fabric_and_defaults_and_flags_win(railopt_cli: Cli, folder: Path) -> None:
    assert _plan(railopt_cli) == ("pxn", 8 * 16)
    assert _plan(railopt_cli, "--policy", "lpt", "--chunk", "1MiB") == ("lpt", 8)
    assert _plan(railopt_cli, "--rails", "1", "--chunk", "flow") == ("pxn", 2)
    ran = railopt_cli("plan", "uniform", "--rails", "1")
    told = "railopt: defaults from railopt.toml: chunk = 64KiB, policy = pxn, nodes = 2, link"
    assert ran.err.splitlines()[-1].startswith(told)
    assert "rails" not in ran.err.splitlines()[-1]


def test_which_file(railopt_cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "other.toml").write_text('policy = "hash"')
    (folder / "third.toml").write_text('policy = "rotate"')
    monkeypatch.setenv(config.VARIABLE, "other.toml")
    assert _plan(railopt_cli, "--nodes=2", "--rails=1")[0] == "hash"
    for words in (["--config", "third.toml"], ["--config=third.toml"]):
        assert _plan(railopt_cli, "--nodes=2", "--rails=1", *words)[0] == "rotate"
        ran = railopt_cli(*words, "config", "--json")
        assert json.loads(ran.out) == {"file": "third.toml", "sets": {"policy": "rotate"}}


def test_a_fabric_file_beside_it(railopt_cli: Cli, folder: Path) -> None:
    (folder / "sub").mkdir()
    Fabric.uniform(3, 1).save(folder / "sub" / "mine.toml")
    (folder / "sub" / "c.toml").write_text('fabric = "mine.toml"')
    words = ["--config", "sub/c.toml", "--chunk", "flow"]
    assert _plan(railopt_cli, *words)[1] == 3 * 2
    Fabric.uniform(2, 1).save(folder / "other.toml")
    assert _plan(railopt_cli, *words, "--fabric", "other.toml")[1] == 2
    ran = railopt_cli("plan", "uniform", *words, "--link", "200Gb/s")  # of which the file says more
    assert (ran.code, ran.out) == (1, "")
    assert "sets fabric = sub/mine.toml, and --link contradicts it: give --fabric FILE" in ran.err


def test_what_nobody_typed_is_not_refused(railopt_cli: Cli, folder: Path) -> None:
    assert railopt_cli("plan", "uniform", "-o", "p.npz").code == 0
    for words in (["gap", "p.npz", "--limit", "0s"], ["simulate", "p.npz"], ["send", "p.npz"]):
        ran = railopt_cli(*words)
        assert ran.code == 0, words
        assert "policy =" not in ran.err  # a plan has its own, and its own fabric
        assert "nodes =" not in ran.err
    assert "--chunk can't" in railopt_cli("gap", "p.npz", "--chunk", "1MiB").err
    assert railopt_cli("convert", "uniform", "t.npz").code == 0
    ran = railopt_cli("convert", "t.npz", "t.csv")
    assert (ran.code, ran.err) == (0, "saved t.csv\n")  # which has its own size
    assert len((folder / "t.csv").read_text().splitlines()) == 4
    (folder / "bad.toml").write_text("nodes =")
    assert "defaults from" not in railopt_cli("convert", "bad.toml", "bad.topo").err


@pytest.mark.parametrize(
    "words",
    [
        ["plan", "uniform"],
        ["solve", "uniform"],
        ["simulate", "uniform", "--chunk", "1MiB"],
        ["schedule", "uniform", "--plan", "p.npz"],
        ["frontier", "uniform"],
        ["bench", "-b", "1KiB", "-e", "1KiB"],
    ],
)
def test_a_list_for_a_command_that_takes_one_is_said_to_be_one(
    railopt_cli: Cli, folder: Path, words: list[str]
) -> None:
    (folder / config.NAME).write_text('policy = "lpt,pxn"\nchunk = "64KiB,1MiB"')
    ran = railopt_cli(*words, "--nodes", 2, "--rails", 2)
    assert (ran.code, ran.out) == (1, "")
    flag = "policy" if "--chunk" in words else "chunk"
    assert f"railopt.toml sets {flag} = " in ran.err
    assert ran.err.endswith(f", a list, and this command takes one: give --{flag}\n")


def test_a_configured_format_does_not_forbid_flags(railopt_cli: Cli, folder: Path) -> None:
    (folder / config.NAME).write_text('format = "json"')
    (folder / "rows").mkdir()
    assert "--all can't" not in railopt_cli("results", "rows", "--all").err
    assert "--all can't" in railopt_cli("results", "rows", "--all", "--json").err


def test_config_shows_it(railopt_cli: Cli, folder: Path) -> None:
    ran = railopt_cli("config")
    assert ran.out.splitlines()[2:] == [
        "policy  pxn",
        "chunk   64KiB",
        "nodes   2",
        "rails   2",
        "link    200Gb/s",
    ]
    assert ran.err == "from railopt.toml\n"
    found = json.loads(railopt_cli("config", "--json").out)["sets"]
    assert found == {"policy": "pxn", "chunk": "64KiB", "nodes": 2, "rails": 2, "link": "200Gb/s"}
    (folder / config.NAME).unlink()
    assert railopt_cli("config").err == "no configuration file\n"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('polcy = "lpt"', "did you mean 'policy'"),
        ("policy = 3", "policy = 3: expected a text"),
        ('policy = "lptt"', "did you mean 'lpt'"),
        ('policy = "mine:f, best"', "unknown policy 'best'"),
        ('chunk = "0B"', "at least 1 byte"),
        ('limit = "soon"', "is not a time"),
        ('format = "xml"', "expected one of text"),
        ("[fabric]\nnode = 3", "did you mean 'nodes'"),
        ("[fabric]\nnodes = 0", "nodes = 0"),
        ("[fabric]\nlink = 400", 'such as "400Gb/s"'),
        ('[fabric]\nlink = "400"', "has no unit"),
        ('fabric = "none.toml"', "No such file"),
        ("fabric = 3", "expected a table"),
        ("x = ", "not valid TOML"),
    ],
)
def test_a_bad_file_is_one_sentence(
    railopt_cli: Cli, folder: Path, text: str, complaint: str
) -> None:
    (folder / config.NAME).write_text(text)
    ran = railopt_cli("plan", "uniform")
    assert (ran.code, ran.out) == (1, "")
    assert complaint in ran.err
    assert ran.err.startswith("railopt: error: railopt.toml: ")
    assert len(ran.err.splitlines()) == 1


def test_a_bad_file_does_not_hide_the_version(railopt_cli: Cli, folder: Path) -> None:
    (folder / config.NAME).write_text("x =")
    assert railopt_cli("--version").code == 0
    assert railopt_cli("--help").code == 0


def test_a_bad_file_does_not_stop_what_takes_nothing_of_it(
    railopt_cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / config.NAME).write_text("x =")
    (folder / "s.toml").write_text("[grid]\nnodes = 2\nrails = 2\n")
    assert railopt_cli("completion", "bash").code == 0
    assert railopt_cli("sweep", "s.toml", "--dry-run").code == 0
    monkeypatch.setenv(config.VARIABLE, "none.toml")
    assert railopt_cli("completion", "bash").code == 0
    assert "not valid TOML" in railopt_cli("--config", config.NAME, "completion", "bash").err


def test_a_policy_of_ones_own_is_not_loaded_before_it_is_used(
    railopt_cli: Cli, folder: Path
) -> None:
    (folder / config.NAME).write_text('policy = "nowhere:f, lpt"')
    assert railopt_cli("config").code == 0


def test_a_file_that_is_not_there_or_does_nothing(railopt_cli: Cli, folder: Path) -> None:
    assert "No such file" in railopt_cli("--config", "none.toml", "plan", "uniform").err
    for words in (["--config"], ["--config="], ["--config", ""]):
        assert "expected the name of a file" in railopt_cli("plan", "uniform", *words).err
    assert "sets nothing" in railopt_cli("--config", config.NAME, "completion", "bash").err


@pytest.mark.slow
def test_fuzzed_files_are_read_or_refused(folder: Path) -> None:
    dice, refused = random.Random(5), []
    for _ in range(300):
        (folder / "c.toml").write_text(damaged_text(GOOD, dice))
        try:
            config.find("c.toml")
        except InputError as error:
            refused.append(str(error))
    assert 50 < len(refused) < 300
    assert all(line.isprintable() and len(line) < 600 for line in refused)
