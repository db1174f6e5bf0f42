"""--width and names of figures, on every command that draws."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

Cli = Callable[..., Any]

COMMANDS = {
    "demo": (["demo"], "--figure"),
    "gap": (["gap", "moe", "--limit", "0s"], "--figure"),
    "hybrid": (["hybrid"], "--figure"),
    "simulate": (["simulate", "moe"], "--timeline"),
    "place": (["place", "trace.npz", "--nodes", "2", "--gpus", "2"], "--gantt"),
}


SMALL = ("moe:tokens=16,skew=0.5", "--nodes", "2", "--rails", "2")
DRAWN = {
    "gap": ["gap", *SMALL, "--limit", "0s", "--figure"],
    "frontier": ["frontier", *SMALL, "--policy", "own-nic,lpt", "--figure"],
    "compare": ["compare", *SMALL, "--degrade", "0:1=0.5", "--figure"],
    "simulate": ["simulate", *SMALL, "--timeline"],
    "hybrid": ["hybrid", "--figure"],
    "fabric": ["fabric", "show", "--rails", "4", "--figure"],
}


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(ran: Any, empty: Path, text: str) -> None:
    assert ran.code == 1
    assert text in ran.err
    assert len(ran.err.strip().splitlines()) == 1
    assert not list(empty.iterdir())


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("file", ["x.jpg", "x"])
def test_an_unknown_suffix_is_refused_before_anything_is_computed(
    railopt_cli: Cli, empty: Path, name: str, file: str
) -> None:
    words, flag = COMMANDS[name]
    refused(railopt_cli(*words, flag, file), empty, "a figure is written as .svg, .pdf, .png")


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("width", ["wide", "0", "100", "1/0", "\x1b[2J"])
def test_a_width_that_is_none_is_refused(
    railopt_cli: Cli, empty: Path, name: str, width: str
) -> None:
    words, flag = COMMANDS[name]
    ran = railopt_cli(*words, flag, "x.svg", "--width", width)
    refused(ran, empty, "expected column, page, or inches from 2 to 40")
    assert "\x1b" not in ran.err


@pytest.mark.parametrize("option", [("--width", "column"), ("--title", "mine")])
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "demo"])
def test_a_width_or_title_without_a_figure_is_refused(
    railopt_cli: Cli, empty: Path, name: str, option: tuple[str, str]
) -> None:
    words, flag = COMMANDS[name]
    refused(railopt_cli(*words, *option), empty, f"without {flag}")


@pytest.mark.slow
@pytest.mark.parametrize("name", DRAWN)
def test_a_figure_has_the_title_that_was_given(railopt_cli: Cli, empty: Path, name: str) -> None:
    """And none where it is empty; texts of an SVG stand in its comments."""
    sizes = []
    for title in ("Mine & yours", ""):
        ran = railopt_cli(*DRAWN[name], "x.svg", "--title", title, "--force")
        assert ran.code == 0, ran.err
        found = (empty / "x.svg").read_text()
        assert ("<!-- Mine &amp; yours -->" in found) == bool(title)
        sizes.append(found.count("<!--"))
    assert sizes[0] == sizes[1] + 1


def test_a_report_refuses_a_width_without_figures(railopt_cli: Cli, empty: Path) -> None:
    refused(railopt_cli("report", "none", "--width", "column"), empty, "without --figures")


def test_a_figure_that_exists_is_kept(railopt_cli: Cli, empty: Path) -> None:
    (empty / "x.svg").write_text("mine")
    ran = railopt_cli("hybrid", "--figure", "x.svg")
    assert (ran.code, ran.out, (empty / "x.svg").read_text()) == (1, "", "mine")


@pytest.mark.slow
@pytest.mark.parametrize(("width", "inches"), [("column", 3.33), ("5", 5)])
def test_a_figure_is_as_wide_as_it_was_asked_for(
    railopt_cli: Cli, empty: Path, width: str, inches: float
) -> None:
    assert railopt_cli("hybrid", "--figure", "x.svg", "--width", width).code == 0
    found = re.search(r'width="([\d.]+)pt"', (empty / "x.svg").read_text())
    assert found
    assert abs(float(found[1]) / 72 - inches) < 0.01


@pytest.mark.slow
def test_a_timeline_under_png_is_png(railopt_cli: Cli, empty: Path) -> None:
    ran = railopt_cli("simulate", "moe:tokens=16", "--nodes", "2", "--timeline", "x.png")
    assert ran.code == 0
    assert (empty / "x.png").read_bytes().startswith(b"\x89PNG")
