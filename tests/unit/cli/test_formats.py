"""--format: every command that prints a table prints it in every form, and words go to stderr."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from railopt import Fabric
from railopt.cli.main import COMMANDS, parser_of
from railopt.sweep import instance, results, spec
from tests.readings import save_ports

Cli = Callable[..., object]
SMALL = ("uniform:size=1KiB", "--nodes", "3", "--rails", "2")
TABLES = {
    "plan": ["plan", *SMALL],
    "gap": ["gap", *SMALL, "--policy", "lpt,pxn", "--limit", "0s"],
    "blame": ["blame", "plan.npz", "--counters", "before", "after"],
    "compare": ["compare", SMALL[0], "--healthy", "fabric.toml", "--degrade", "0:1=0.5"],
    "size": ["size", SMALL[0], "--nodes", "3", "--gpus", "2", "--rails", "2", "--cases", "1"],
    "frontier": ["frontier", *SMALL, "--policy", "own-nic,lpt"],
    "split": [
        "split",
        "routing:experts=8,top=2,tokens=8,steps=2",
        "--nodes",
        "2",
        "--gpus",
        "2",
        "--spare",
        "1",
    ],
    "migrate": [
        "migrate",
        "old.json",
        "new.json",
        "--nodes",
        "2",
        "--gpus",
        "2",
        "--expert",
        "1MiB",
        "--simulate",
    ],
    "solve": ["solve", *SMALL, "--chunk", "flow"],
    "simulate": ["simulate", *SMALL],
    "schedule": ["schedule", *SMALL],
    "check": ["check", "plan.npz"],
    "send": ["send", "plan.npz"],
    "bench": ["bench", "-b", "64KiB", "-e", "64KiB", "-n", "1", "--nodes", "2", "--rails", "2"],
    "prove": ["prove", "--fabric", "fabric.toml"],
    "results": ["results", "results"],
    "hybrid": ["hybrid"],
    "weigh": [
        *("weigh", "drift:steps=4", "--nodes", "2", "--gpus", "2"),
        *("--model", "mixtral-8x7b", "--steps", "1", "--order", "rails,split"),
    ],
}
LONG = {
    "gap moved": [*TABLES["gap"], "--moved"],
    "place": ["place", "drift:steps=4", "--nodes", "2", "--gpus", "2", "--model", "mixtral-8x7b"],
    "prove id": ["prove", "--quick", "--id", "T2"],
}
WITH_UNIT = re.compile(r"-?\d[\d.,]* ?(([numk]?s|[KMGT]?i?B|[KMGT]?b)(/s)?|\\?%|x)", re.ASCII)
NO_FORMAT = {
    "fabric",
    "report",
    "fabric-from-perftest",
    "sweep",
    "convert",
    "completion",
    "warm-up",
}
NOT_TRIED = {"demo", "devices", "place"}  # slow, or in need of devices or of a trace


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands read."""
    folder = tmp_path_factory.mktemp("formats")
    save_inputs(folder)
    return folder


def save_inputs(folder: Path) -> None:
    """What the commands read."""
    fabric = Fabric.uniform(3, 2)
    fabric.save(folder / "fabric.toml")
    from railopt import plan, workloads

    made = plan(fabric, workloads.uniform(fabric, size="1KiB"))
    made.save(folder / "plan.npz")
    save_ports(folder / "before", 0 * made.send, 0 * made.recv)
    save_ports(folder / "after", made.send, made.recv)
    (folder / "old.json").write_text("[[0, 1, 2, 3], [0, 1, 2, 3]]")
    (folder / "new.json").write_text("[[0, 2, 1, 3], [3, 1, 2, 0]]")
    (folder / "results").mkdir()
    writer = results.Writer(folder / "results")
    sizes = ["uniform:size=1KiB", "uniform:size=2KiB"]
    for point in spec.parse({"grid": {"nodes": 2, "rails": 2, "traffic": sizes}}).instances:
        writer.append(instance.run(point))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["csv", "latex", "markdown", "json"])
@pytest.mark.parametrize("command", [*sorted(TABLES), *LONG])
def test_every_table_in_every_form(
    railopt_cli: Cli, files: Path, monkeypatch: pytest.MonkeyPatch, command: str, form: str
) -> None:
    monkeypatch.chdir(files)
    ran = railopt_cli(*{**TABLES, **LONG}[command], "--format", form)
    assert ran.code == 0, ran.err
    if form == "json":
        assert json.loads(ran.out)
    elif form == "latex":
        assert ran.out.count("\\begin{tabular}") == ran.out.count("\\end{tabular}") >= 1
        assert ran.out.startswith("%")
        assert [cell for cell in _cells(ran.out) if WITH_UNIT.fullmatch(cell)] == []
    elif form == "markdown":
        assert all(line.startswith("|") for line in ran.out.splitlines() if line)
    else:
        for block in ran.out.split("\n\n"):
            head, *rows = csv.reader(io.StringIO(block))
            assert rows
            assert {len(row) for row in rows} == {len(head)}


def _cells(latex: str) -> list[str]:
    """Of tables in LaTeX, but for the head and the first cell of each row, which names it."""
    bodies = re.findall(r"\\midrule\n(.*?)\\bottomrule", latex, re.DOTALL)
    rows = [row for body in bodies for row in body.splitlines()]
    return [cell.strip() for row in rows for cell in row.removesuffix(r"\\").split(" & ")[1:]]


def test_latex_has_numbers_apart_from_units_and_says_what_it_shows(railopt_cli: Cli) -> None:
    line = ("gap", *SMALL, "--policy", "lpt", "--chunk", "512B,1KiB", "--limit", "0s")
    text = railopt_cli(*line, "--format", "latex", "--columns", "policy,chunk,value").out
    assert text.splitlines() == [
        r"% \usepackage{booktabs,siunitx}",
        r"\begin{table}",
        r"\centering",
        r"\caption{railopt gap uniform:size=1KiB}",
        r"\begin{tabular}{lSS}",
        r"\toprule",
        r"policy & {chunk (\unit{\kibi\byte})} & {value (\unit{\nano\second})} \\",
        r"\midrule",
        r"lpt & 0.5 & 81.92 \\",
        r"lpt & 1 & 81.92 \\",
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    mixed = railopt_cli(*line, "--chunk", "1KiB,flow", "--format", "latex", "--columns", "chunk")
    assert "{tabular}{S}" in mixed.out
    assert "{flow}" in mixed.out


def test_columns_are_chosen_by_name(railopt_cli: Cli) -> None:
    line = ("gap", *SMALL, "--policy", "lpt", "--chunk", "1KiB", "--limit", "0s")
    usual = railopt_cli(*line).out.splitlines()[0].split("  ")
    wide = railopt_cli(*line, "--wide").out.splitlines()[0]
    assert "best %" not in usual
    assert "best %" in wide
    assert railopt_cli(*line, "--columns", "gap,chunks,policy").out.splitlines() == [
        "gap %  chunks  policy",
        "-----  ------  ------",
        "    0      24  lpt",
    ]
    ran = railopt_cli(*line, "--columns", "policy,bond")
    assert ran.code == 1
    assert "lpt" in ran.out
    assert "--columns: 'bond' is no column; known columns: policy, chunk," in ran.err
    ran = railopt_cli(*line, "--columns", "policy", "--json")
    assert ran.code == 1
    assert "--columns can't do anything with --format json: leave it out" in ran.err


@pytest.mark.slow
def test_every_command_with_a_table_takes_a_format() -> None:
    for command in COMMANDS:
        text = parser_of(command).commands[command].format_help()
        has_table = command not in NO_FORMAT
        assert ("--format" in text) == has_table, command
    assert set(TABLES) | NO_FORMAT | NOT_TRIED == set(COMMANDS)


def test_csv_has_numbers(railopt_cli: Cli) -> None:
    ran = railopt_cli("plan", *SMALL, "--format", "csv")
    row = next(csv.DictReader(io.StringIO(ran.out)))
    assert float(row["time"]) == 4 * 2 * 1024 / 2 / 50e9
    assert int(row["max send"]) == 4096
    assert float(row["gap %"]) == 0


def test_json_is_the_same_by_both_names(railopt_cli: Cli) -> None:
    first, second = (
        railopt_cli("plan", *SMALL, "--json"),
        railopt_cli("plan", *SMALL, "--format", "json"),
    )
    keep = [
        {k: v for k, v in json.loads(r.out).items() if "time" not in k} for r in (first, second)
    ]
    assert keep[0] == keep[1]


def test_an_unknown_format(railopt_cli: Cli) -> None:
    ran = railopt_cli("plan", *SMALL, "--format", "xml")
    assert ran.code == 1
    assert "choose from" in ran.err
