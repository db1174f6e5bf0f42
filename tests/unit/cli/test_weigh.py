"""`railopt weigh`: a table, a figure, JSON, and one sentence for what can't be weighed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from railopt.moe.routing.sources import trace_from
from railopt.moe.weigh import MECHANISMS

LINE = ("weigh", "drift:steps=4", "--nodes", "2", "--gpus", "2", "--model", "mixtral-8x7b")


@pytest.mark.slow
def test_the_table_has_a_row_per_mechanism(railopt_cli: Callable[..., Any]) -> None:
    ran = railopt_cli(*LINE, "--steps", "1", "--order", "rails,split")
    assert ran.code == 0
    words = [line.split()[:2] for line in ran.out.split("\n\n")[0].splitlines()[2:]]
    last = [["best", "found"], ["nothing", "beats"]]
    assert words == [["as", "it"], ["+", "rails"], ["+", "split"], *last]


@pytest.mark.slow
def test_json_and_a_figure(railopt_cli: Callable[..., Any], tmp_path: Path) -> None:
    drawn = tmp_path / "weighed.svg"
    ran = railopt_cli(*LINE, "--steps", "1", "--json", "--figure", str(drawn))
    data = json.loads(ran.out)
    assert [row["added"] for row in data["rows"]] == ["none", *MECHANISMS]
    assert drawn.read_text().startswith("<?xml")


@pytest.mark.slow
def test_a_page_shows_what_was_weighed(railopt_cli: Callable[..., Any], tmp_path: Path) -> None:
    saved, page = tmp_path / "weighed.json", tmp_path / "report.html"
    whole = railopt_cli(*LINE, "--steps", "1", "--order", "rails,experts", "--json").out
    saved.write_text(json.dumps({**json.loads(whole), "weakness": "weak by a <freedom>"}))
    assert railopt_cli("report", "--weighed", saved, "-o", page).code == 0
    text = page.read_text()
    assert "<p>weak by a &lt;freedom&gt;.</p>" in text
    assert "What each mechanism is worth" in text
    for row in json.loads(whole)["rows"]:
        assert f"{1e3 * row['exchange_s']:.5g}</td>" in text
    for wrong in (whole[:-20], "[]", whole.replace('"rails"', '"magic"'), '{"rows": [{}]}'):
        saved.write_text(wrong)
        ran = railopt_cli("report", "--weighed", saved, "-o", page, "--force")
        assert (ran.code, ran.err.count("\n"), "weighed.json: " in ran.err) == (1, 1, True)
    assert page.read_text() == text


@pytest.mark.slow
def test_the_bounds_are_certificates(railopt_cli: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "bounds"
    line = (*LINE, "--order", "rails,split", "--certificate", str(folder))
    assert railopt_cli(*line).code == 0
    files = sorted(folder.glob("*.json"))
    assert {file.name.split("-")[0] for file in files} == {"none", "split", "any"}
    assert len(files) % 6 == 0
    assert railopt_cli("check", *map(str, files)).code == 0
    again = railopt_cli(*line)
    assert (again.code, "is there already" in again.err) == (1, True)


@pytest.mark.slow
def test_what_a_trace_that_does_not_fit_is_told_helps(
    railopt_cli: Callable[..., Any], tmp_path: Path
) -> None:
    trace_from("drift:steps=3", ranks=8).save(tmp_path / "eight.npz")
    line = (LINE[0], tmp_path / "eight.npz", *LINE[2:], "--steps", "1", "--order", "rails")
    refused = railopt_cli(*line)
    assert (refused.code, "--merge-ranks" in refused.err) == (1, True)
    assert railopt_cli(*line, "--merge-ranks").code == 0
    assert railopt_cli("hybrid", *line[1:-4], "--steps", "1", "--merge-ranks").code == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (("--order", "rails,magic"), "unknown mechanism"),
        (("--figure", "weighed.bmp"), "weighed.bmp"),
        (("--held-out", "9"), "held out"),
        (("--width", "column"), "--width"),
        (("--order", ""), "--order"),
    ],
)
def test_wrong_arguments_are_one_sentence(
    railopt_cli: Callable[..., Any], wrong: tuple[str, ...], message: str
) -> None:
    ran = railopt_cli(*LINE, *wrong)
    assert ran.code == 1
    assert message in ran.err
    assert len(ran.err.strip().splitlines()) <= 2
