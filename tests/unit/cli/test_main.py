"""The command line as a user meets it: output, exit codes, messages, nothing written on failure."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from railopt import POLICIES, Fabric, Plan, Traffic
from railopt.base.errors import InputError
from railopt.cli import demo
from railopt.cli.common import with_floats
from railopt.cli.main import COMMANDS, parser_of
from railopt.moe.routing.trace import Trace
from railopt.moe.weigh import MECHANISMS

Cli = Callable[..., object]


def test_help_names_every_command(railopt_cli: Cli) -> None:
    ran = railopt_cli("--help")
    assert ran.code == 0
    for name in COMMANDS:
        assert name in ran.out


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help_with_an_example(railopt_cli: Cli, command: str) -> None:
    ran = railopt_cli(command, "--help")
    assert ran.code == 0
    assert "example" in ran.out.lower()
    assert f"railopt {command}" in ran.out


FRAGMENT = re.compile(r"(also|and|default|for|instead|of|only|or|the same)\b|\W")


@pytest.mark.slow
@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_help_of_an_option_is_a_whole_phrase(command: str) -> None:
    assert FRAGMENT.match("of the search (default 0)")
    words = {
        action.dest: action.help or "" for action in parser_of(command).commands[command].actions
    }
    assert {name: text for name, text in words.items() if FRAGMENT.match(text)} == {}


@pytest.mark.parametrize(
    ("command", "codes"),
    [
        ([], {"0", "1", "2", "3", "4", "130"}),
        (["gap"], {"0", "1", "2", "4", "130"}),
        (["simulate"], {"0", "1", "2", "130"}),
        (["check"], {"0", "1", "4"}),
    ],
)
def test_help_says_the_exit_codes(railopt_cli: Cli, command: list[str], codes: set[str]) -> None:
    said = railopt_cli(*command, "--help").out.split("exit codes:")[1]
    assert set(re.findall(r"(?:^|,)\s(\d+) ", said)) == codes


def test_usage_errors_are_exit_code_1(railopt_cli: Cli) -> None:
    for arguments in ([], ["nonsense"], ["plan"], ["plan", "moe", "--colour"]):
        ran = railopt_cli(*arguments)
        assert ran.code == 1
        assert ran.out == ""


def test_version(railopt_cli: Cli) -> None:
    from railopt import __version__

    assert railopt_cli("--version").out == f"railopt {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["paln"], "'plan'"),
        (["plan", "uniform", "--polcy", "lpt"], "'--policy'"),
        (["plan", "uniform", "--polcy=lpt"], "'--policy'"),
        (["plan", "uniform", "--policy", "ltp"], "'lpt'"),
        (["plan", "unifrom"], "'uniform'"),
        (["plan", "moe:skwe=1"], "'skew'"),
        (["schedule", "uniform", "--kind", "compct"], "'compact'"),
        (["simulate", "uniform", "--balancer", "ecpm"], "'ecmp'"),
    ],
)
def test_did_you_mean(railopt_cli: Cli, arguments: list[str], meant: str) -> None:
    ran = railopt_cli(*arguments)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.endswith(f"; did you mean {meant}?\n")


def test_a_rate_needs_its_unit(railopt_cli: Cli) -> None:
    ran = railopt_cli("plan", "uniform", "--link", "400")
    assert (ran.code, ran.out) == (1, "")
    assert "'400' has no unit: a rate needs one, e.g. 400Gb/s" in ran.err


@pytest.mark.parametrize("seed", ["-1", "1.5", "nan", "9223372036854775808", "9" * 5000, "x\ny"])
def test_seeds_are_whole_numbers(railopt_cli: Cli, seed: str) -> None:
    ran = railopt_cli("plan", "moe", "--policy", "random", f"--seed={seed}")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("railopt: error: --seed: ")
    assert len(ran.err) < 200


def test_plan_and_convert(railopt_cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "plan.npz"
    ran = railopt_cli(
        "plan",
        "moe:seed=1,tokens=64",
        "--nodes",
        4,
        "--rails",
        4,
        "--chunk",
        "16KiB",
        "-o",
        out,
        "--json",
    )
    assert ran.code == 0
    data = json.loads(ran.out)
    assert Plan.read(out).makespan == Fraction(data["value"])
    assert Fraction(data["gap"]) == Fraction(data["value"]) / Fraction(data["bound"]) - 1
    assert railopt_cli("convert", out, tmp_path / "plan.cm").code == 0
    assert (tmp_path / "plan.cm").read_text().startswith("Nodes 16\n")
    assert (
        railopt_cli(
            "plan", "moe:seed=1,tokens=64", "--nodes", 4, "--rails", 4, "-o", tmp_path / "direct.cm"
        ).code
        == 0
    )
    matrix = tmp_path / "matrix.txt"
    assert (
        railopt_cli("convert", "moe:seed=1,tokens=64", matrix, "--nodes", 4, "--rails", 4).code == 0
    )
    assert railopt_cli("convert", matrix, tmp_path / "t.npz", "--nodes", 4, "--rails", 4).code == 0
    assert Traffic.read(tmp_path / "t.npz").nodes == 4


@pytest.mark.slow
def test_tokens_are_planned_as_units(railopt_cli: Cli, tmp_path: Path) -> None:
    out, small = tmp_path / "plan.npz", ("--nodes", 4, "--rails", 4)
    spec = "routing:tokens=64,ragged=0.5,seed=1"
    assert railopt_cli("plan", spec, "--policy", "own-nic", "-o", out, *small).code == 0
    saved = Plan.read(out)
    assert saved.chunks.targets is not None
    assert saved.staged == 0 < saved.passed_on
    ran = railopt_cli("gap", spec, "--chunk", "64KiB", "--limit", "0s", "--json", *small)
    assert ran.code == 0
    assert "lpt-local" in ran.out


def test_convert_fabrics(railopt_cli: Cli, tmp_path: Path) -> None:
    toml, topo, back = tmp_path / "f.toml", tmp_path / "f.topo", tmp_path / "g.toml"
    toml.write_text('nodes = 4\nrails = 2\nlink = "400Gb/s"\n[spine]\nuplinks = 4\n')
    assert railopt_cli("convert", toml, topo).code == 0
    assert railopt_cli("convert", topo, back).code == 0
    assert Fabric.read(back) == Fabric.read(toml)
    toml.write_text(
        'nodes = 4\nrails = 2\nlink = "400Gb/s"\n[[nic]]\nnode = 0\nrail = 0\nfraction = "0.5"\n'
    )
    ran = railopt_cli("convert", toml, tmp_path / "slow.topo")
    assert ran.code == 1
    assert "one link rate" in ran.err


def test_check_a_plan_against_its_traffic(railopt_cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "plan.npz"
    railopt_cli(
        "plan", "zipf:mean=64KiB,seed=3", "--nodes", 3, "--rails", 2, "--chunk", "16KiB", "-o", out
    )
    ran = railopt_cli("check", out, "--traffic", "zipf:mean=64KiB,seed=3")
    assert (ran.code, "sends every byte" in ran.out) == (0, True)
    ran = railopt_cli("check", out, "--traffic", "zipf:mean=64KiB,seed=4")
    assert (ran.code, "the traffic has" in ran.out) == (4, True)
    made = Plan.read(out)
    twice = Plan(
        made.fabric,
        made.chunks.take(np.r_[0, np.arange(len(made.chunks))]),
        np.r_[made.rail[0], made.rail],
    )
    assert "again" in twice.misses(Traffic.from_chunks(made.chunks))
    short = Plan(made.fabric, made.chunks.take(np.arange(1, len(made.chunks))), made.rail[1:])
    assert "leaves bytes out" in short.misses(Traffic.from_chunks(made.chunks))
    (tmp_path / "torn.npz").write_bytes(out.read_bytes()[:500])
    assert railopt_cli("check", tmp_path / "torn.npz").code == 1


def test_check_a_schedule(railopt_cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "schedule.npz"
    assert railopt_cli("schedule", "zipf", "--nodes", 3, "--rails", 2, "-o", out).code == 0
    ran = railopt_cli("check", out)
    assert (ran.code, "schedule" in ran.out) == (0, True)


BAD = [
    (["plan", "missing.txt"], "missing.txt"),
    (["plan", "nothing"], "known workloads: uniform"),
    (["plan", "moe", "--policy", "best"], "known policies: own-nic"),
    (["plan", "moe", "--chunk", "0B"], "at least 1 byte"),
    (["plan", "moe", "--chunk", "3parsecs"], "unknown unit"),
    (["plan", "moe", "--nodes", "0"], "whole number"),
    (["plan", "moe", "--link", "0Gb/s"], "above zero"),
    (["plan", "moe", "--degrade", "1=2"], "NODE:RAIL=FRACTION"),
    (["plan", "moe", "--degrade", "99:0=0.5"], "node = 99: expected a whole number from 0 to 7"),
    (["plan", "moe", "--fabric", "f.toml", "--nodes", "4"], "contradict"),
    (["plan", "moe", "--link", "400"], "a rate needs one"),
    (["plan", "moe", "--chunk", "9223372036854775808"], "at most 2**63 - 1 bytes"),
    (["plan", "moe", "--chunk", "1e-999999999"], "is not a size"),
    (["plan", "moe", "--degrade", "0:0=1e-999999999"], "is not a fraction"),
    (["plan", "moe", "--degrade", "0:0=1/0"], "divides by zero"),
    (["plan", "moe", "--degrade", "0:0=0.5", "--degrade", "0:0=0.1"], "given twice"),
    (["plan", "moe:seed=-1"], "whole number from 0"),
    (["plan", "moe:skew=nan"], "is not a number"),
    (["plan", "moe", "--nodes", "1000000", "--rails", "4000"], "NICs"),
    (["plan", "moe", "--nodes", "100000"], "at most 8192"),
    (["plan", "moe", "--chunk", "4B"], "use larger chunks"),
    (["plan", "x" * 300], "neither a file nor a workload"),
    (["plan", "fast-zip:s=0.8"], "did you mean 'fast-zipf'"),
    (["plan", "moe", "--fabric", "/"], "Is a directory"),
    (["convert", "moe", "fabric.toml"], "a fabric comes from"),
    (["convert", "moe", "."], "a folder"),
    (["convert", "routing:tokens=9", "t.npz"], "is tokens, which go once to several GPUs"),
    (["plan", "routing:tokens=9", "--chunk", "1KiB"], "smaller than a token of 7KiB"),
    (["convert", "moe", "no/such/folder.txt"], "does not exist"),
    (["convert", "moe", "x" * 300], "File name too long"),
    (["convert", "uniform:size=1MiB", "/dev/full"], "No space left on device"),
    (["results", "missing"], "missing"),
    (["results", "missing", "--force"], "without --export"),
    (["results", "missing", "--json", "--export", "x.csv"], "with --export"),
    (["prove", "--kernel", "--quick"], "--kernel can't do anything with --quick"),
    (["prove", "--kernel", "--fabric", "f.toml"], "--kernel can't do anything with --fabric"),
    (["prove", "--fabric", "f.toml", "--id", "T1"], "--id can't do anything with --fabric"),
    (["plan", "moe", "-o", "p.CSV"], "p.CSV: a plan is saved as .npz or .cm"),
    (["solve", "moe", "-o", "p.et"], "; railopt convert makes .et of a plan"),
    (["schedule", "moe", "-o", "s.cm"], "s.cm: a schedule is saved as .npz"),
    (["schedule", "moe", "--plan", "f.svg"], "f.svg: a plan is saved as .npz or .cm"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "complaint"), BAD)
def test_bad_input_is_exit_code_1_and_writes_nothing(
    railopt_cli: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    complaint: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    saves = arguments[0] == "plan" and "-o" not in arguments
    ran = railopt_cli(*arguments, *(["-o", "out.npz"] if saves else []))
    assert ran.code == 1
    assert complaint in ran.err
    assert ran.err.startswith("railopt: error: ")
    assert ran.out == ""
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["plan", "gap", "solve"])
def test_what_no_living_rail_can_carry_is_exit_code_2(
    command: str, railopt_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dead = [word for n in range(2) for word in ("--degrade", f"2:{n}=0")]
    ran = railopt_cli(command, "moe:tokens=64", "--nodes", 3, "--rails", 2, *dead)
    assert (ran.code, ran.out) == (2, "")
    assert "no living rail from node 0 to node 2" in ran.err


def test_a_flag_that_can_do_nothing_is_an_error(railopt_cli: Cli, tmp_path: Path) -> None:
    Fabric.uniform(2, 2).save(tmp_path / "f.toml")
    for arguments, complaint in (
        (["plan", "moe", "--force"], "without -o"),
        (["demo", "--force"], "without --figure"),
        (["convert", tmp_path / "f.toml", tmp_path / "g.topo", "--nodes", 4], "give no fabric"),
        (["convert", tmp_path / "f.toml", tmp_path / "g.topo", "--degrade", "0:0=0"], "no fabric"),
    ):
        ran = railopt_cli(*arguments)
        assert (ran.code, ran.out) == (1, "")
        assert complaint in ran.err
    assert not (tmp_path / "g.topo").exists()


def test_json_has_floats_beside_exact_numbers(railopt_cli: Cli) -> None:
    ran = railopt_cli("plan", "moe:tokens=64", "--nodes", 2, "--rails", 2, "--json")
    data = json.loads(ran.out)
    for name in ("value", "bound", "gap"):
        assert data[f"{name}_float"] == float(Fraction(data[name]))


def test_floats_stand_beside_what_is_exact_and_nothing_else() -> None:
    data = {
        "value": Fraction(1, 3),
        "gap": "0",
        "bound": "-7/2",
        "digest": "12345678901234567890123456789012",
        "word": "T9/2",
        "zero": "1/0",
        "count": 5,
        "huge": "9" * 900,
        "parts": [Fraction(1, 2), "3"],
        "mixed": ["1/2", "x"],
        "empty": [],
        "inside": [{"gap": "1/4", "gap_float": 7}],
    }
    assert with_floats(data) == {
        **data,
        "value_float": 1 / 3,
        "gap_float": 0.0,
        "bound_float": -3.5,
        "parts_float": [0.5, 3.0],
    }


def test_outputs_go_through_links_and_devices(railopt_cli: Cli, tmp_path: Path) -> None:
    link = tmp_path / "link.npz"
    link.symlink_to(tmp_path / "real.npz")
    small = ["plan", "uniform:size=1KiB", "--nodes", 2, "--rails", 2]
    assert railopt_cli(*small, "-o", link).code == 0
    assert link.is_symlink()
    assert Plan.read(tmp_path / "real.npz").policy == "lpt"
    assert railopt_cli(*small, "-o", "/dev/null", "--force").code == 0
    assert Path("/dev/null").is_char_device()


def test_what_the_system_refuses_is_one_line(
    railopt_cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(error: BaseException) -> None:
        def run(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr("railopt.cli.plan.plan", run)

    for error, complaint in (
        (PermissionError(13, "Permission denied", "/a\nb"), r"/a\nb: Permission denied"),
        (OSError(28, "No space left on device"), "No space left on device"),
        (OSError("odd"), "odd"),
        (MemoryError(), "not enough memory"),
        (InputError("a\x1b[2Jb\nrailopt: proved"), r"a\x1b[2Jb\nrailopt: proved"),
    ):
        refuse(error)
        ran = railopt_cli("plan", "moe", "--nodes", 2, "--rails", 2)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("railopt: error: ")
        assert complaint in ran.err
        assert ran.err.count("\n") == 1


@pytest.mark.slow
@pytest.mark.parametrize("target", ["/dev/full", "closed"])
def test_an_output_that_takes_no_more_is_no_traceback(target: str) -> None:
    small = "plan uniform:size=1KiB --nodes 2 --rails 2 --json"
    command = (
        f"{sys.executable} -m railopt {small} {'>&-' if target == 'closed' else '> ' + target}"
    )
    ran = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "Traceback" not in ran.stderr
    assert "Exception ignored" not in ran.stderr
    if target != "closed":
        assert ran.returncode == 1
        assert "No space left on device" in ran.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("words", "unbuffered"), [("--version", "1"), ("plan --help", "")])
def test_help_that_can_not_be_written_is_an_error(words: str, unbuffered: str) -> None:
    command = f"{sys.executable} -m railopt {words} > /dev/full"
    environ = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    ran = subprocess.run(
        command, shell=True, capture_output=True, text=True, check=False, env=environ
    )
    assert ran.returncode == 1
    assert ran.stderr == "railopt: error: No space left on device\n"


@pytest.mark.slow
def test_names_that_are_no_text_are_printed(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "railopt", "plan", b"m\xff\n\x1b[2J.txt"],
        capture_output=True,
        check=False,
        cwd=tmp_path,
    )
    assert ran.returncode == 1
    assert ran.stderr.decode("ascii").count("\n") == 1
    assert ran.stderr.startswith(b"railopt: error: ")


ODD = [
    "",
    "-",
    "--",
    "-o",
    "--json",
    "--force",
    "--nodes",
    "--link",
    "--degrade",
    "--fabric",
    "--chunk",
    "--policy",
    "--seed",
    "0",
    "-1",
    "2",
    "nan",
    "1e-999999999",
    "9" * 5000,
    "9223372036854775808",
    "uniform:size=1KiB",
    "moe:tokens=8,seed=1",
    "zipf:seed=1,,=",
    "lpt",
    "flow",
    "1KiB",
    "400",
    "0:0=0.5",
    ".",
    "/dev/null",
    "missing.npz",
    "x.cm",
    "x.toml",
    "%s",
    "@file",
    "é\n",
    "\udcff",
]


@pytest.mark.slow
def test_odd_command_lines_are_done_or_refused(
    railopt_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """100 lists of words that are mostly not meant for each other: no exception but an exit."""
    monkeypatch.chdir(tmp_path)
    dice = random.Random(299)
    codes = Counter()
    for _ in range(100):
        command = dice.choice(["plan", "plan", "convert", "results", "prove --fabric", "check"])
        words = [dice.choice(ODD) for _ in range(dice.randint(0, 5))]
        sound = ["uniform:size=1KiB", "--nodes", "2", "--rails", "2"]
        sound = sound if command == "plan" and dice.random() < 0.5 else []
        ran = railopt_cli(*command.split(), *sound, *words)
        codes[ran.code] += 1
        assert ran.code in (0, 1, 4), words
        assert ran.code != 1 or "error: " in ran.err
    assert codes[0] > 2
    assert codes[1] > 50


def test_an_existing_output_is_kept(railopt_cli: Cli, tmp_path: Path) -> None:
    out = tmp_path / "plan.npz"
    out.write_text("precious")
    arguments = ["plan", "uniform:size=1KiB", "--nodes", 2, "--rails", 2, "-o", out]
    ran = railopt_cli(*arguments)
    assert (ran.code, out.read_text()) == (1, "precious")
    assert "--force" in ran.err
    assert railopt_cli(*arguments, "--force").code == 0
    assert Plan.read(out).policy == "lpt"


def test_the_demo_has_recorded_routing() -> None:
    here = Path(demo.__file__)
    whole = Trace.read(here.parents[2] / "experiments/traces/gpt16-top2.npz")
    cut = Trace.read(here.with_name("demo.npz"))
    assert (cut.iterations.tolist(), cut.layers.tolist()) == ([96, 97, 98, 99], [6])
    assert np.array_equal(cut.counts, whole.counts[-4:, 6:7])


@pytest.mark.slow
def test_demo(railopt_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its JSON; its tables are those of a terminal, in `test_terminal`."""
    monkeypatch.chdir(tmp_path)
    ran = railopt_cli("demo", "--json", "--figure", "other.svg")
    assert ran.code == 0
    assert (tmp_path / "other.svg").read_text().startswith("<?xml")
    data = json.loads(ran.out)
    assert len(data["healthy"]) == len(data["slow NIC"]) == len(POLICIES)
    assert all(
        Fraction(row["value"]) >= Fraction(row["bound"])
        for row in data["healthy"] + data["slow NIC"]
    )
    assert [row["added"] for row in data["weighed"]["rows"]] == ["none", *MECHANISMS]
    gaps = {row["policy"]: Fraction(row["gap"]) for row in data["healthy"]}
    assert gaps["lpt-global"] <= gaps["lpt-local"] < gaps["lpt"] < gaps["pxn"]


@pytest.mark.slow
def test_a_closed_pipe_is_not_a_traceback() -> None:
    ran = subprocess.run(
        f"{sys.executable} -m railopt plan uniform:size=1KiB --nodes 2 --rails 2 --json | true",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_plan_says_what_it_moves_inside_nodes(railopt_cli: Cli) -> None:
    line = ("plan", "moe:skew=0.8,tokens=256,seed=1", "--nodes", "4", "--rails", "4")
    rows = {}
    for policy in ("own-nic", "lpt", "spill"):
        ran = railopt_cli(*line, "--policy", policy, "--json")
        rows[policy] = json.loads(ran.out)
    assert rows["own-nic"]["staged"] == 0
    assert rows["spill"]["staged"] < rows["lpt"]["staged"]
    shown = railopt_cli(*line, "--policy", "spill", "--scale-up", "in-time", "--wide").out
    assert "passed on" in shown
    assert railopt_cli(*line, "--scale-up", "never").code == 1
