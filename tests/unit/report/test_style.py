"""The palette as people see it, widths, and fonts in PDF."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from railopt.base.arrays import Floats
from railopt.base.errors import InputError
from railopt.policies import POLICIES
from railopt.report.gaps import gap_against_chunk
from railopt.report.saving import save_figure
from railopt.report.style import GREYS, LOOKS, PAGE, columns_that_fit, look, parse_width

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB
VISIONS = {
    "full": np.eye(3),
    "no red cones": np.array(
        [
            [0.152286, 1.052583, -0.204868],
            [0.114503, 0.786281, 0.099216],
            [-0.003882, -0.048116, 1.051998],
        ]
    ),
    "no green cones": np.array(
        [
            [0.367322, 0.860646, -0.227968],
            [0.280085, 0.672501, 0.047413],
            [-0.011820, 0.042940, 0.968881],
        ]
    ),
    "no blue cones": np.array(
        [
            [1.255528, -0.076749, -0.178779],
            [-0.078411, 0.930809, 0.147602],
            [0.004733, 0.691367, 0.303900],
        ]
    ),
}
LEAST = 10  # CIEDE2000 between two looks of a figure


def lab(colour: str, vision: str = "full") -> Floats:
    """CIELAB under D65 of a colour as a vision sees it."""
    coded = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)
    seen = (VISIONS[vision] @ linear).clip(0, 1)
    to_xyz = np.array(
        [
            [0.4124564, 0.3575761, 0.1804375],
            [0.2126729, 0.7151522, 0.0721750],
            [0.0193339, 0.1191920, 0.9503041],
        ]
    )
    xyz = to_xyz @ seen / np.array([0.95047, 1, 1.08883])
    f = np.where(xyz > 216 / 24389, np.cbrt(xyz), (24389 / 27 * xyz + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def ciede2000(one: Floats, two: Floats) -> float:
    """The distance of two colours in CIELAB (Sharma, Wu and Dalal, 2005)."""
    (l1, a1, b1), (l2, a2, b2) = one, two
    mean = (np.hypot(a1, b1) + np.hypot(a2, b2)) / 2
    stretch = 1.5 - 0.5 * np.sqrt(mean**7 / (mean**7 + 25.0**7))
    c1, c2 = np.hypot(stretch * a1, b1), np.hypot(stretch * a2, b2)
    h1 = np.degrees(np.arctan2(b1, stretch * a1)) % 360
    h2 = np.degrees(np.arctan2(b2, stretch * a2)) % 360
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    hue = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    cos, rad = np.cos, np.radians
    t = 1 - 0.17 * cos(rad(hue - 30)) + 0.24 * cos(rad(2 * hue))
    t += 0.32 * cos(rad(3 * hue + 6)) - 0.2 * cos(rad(4 * hue - 63))
    dl = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / np.sqrt(20 + (light - 50) ** 2))
    dc = (c2 - c1) / (1 + 0.045 * chroma)
    dh = 2 * np.sqrt(c1 * c2) * np.sin(rad(turn / 2)) / (1 + 0.015 * chroma * t)
    rotation = -2 * np.sqrt(chroma**7 / (chroma**7 + 25.0**7))
    rotation *= np.sin(rad(60 * np.exp(-(((hue - 275) / 25) ** 2))))
    return float(np.sqrt(dl**2 + dc**2 + dh**2 + rotation * dc * dh))


@pytest.mark.parametrize(
    ("one", "two", "expected"),  # of the data published with the formula
    [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_the_distance_is_the_published_one(
    one: tuple[float, ...], two: tuple[float, ...], expected: float
) -> None:
    assert abs(ciede2000(np.array(one), np.array(two)) - expected) < 5e-5


@pytest.mark.parametrize("vision", VISIONS)
def test_any_two_policies_are_told_apart(vision: str) -> None:
    for (one, a), (two, b) in combinations(LOOKS.items(), 2):
        assert ciede2000(lab(a.colour, vision), lab(b.colour, vision)) >= LEAST, (one, two)
        assert a.marker != b.marker, (one, two)


@pytest.mark.parametrize("vision", VISIONS)
def test_a_policy_from_outside_is_told_apart_from_railopts_own(vision: str) -> None:
    for grey in {own.colour for own in GREYS}:
        for name in (*POLICIES, "even-excess", "spill"):
            distance = ciede2000(lab(LOOKS[name].colour, vision), lab(grey, vision))
            assert distance >= LEAST, (grey, name)


def test_matplotlibs_palette_would_fail() -> None:
    seen = [lab(colour, "no green cones") for colour in ("#2ca02c", "#ff7f0e", "#d62728")]
    assert min(ciede2000(one, two) for one, two in combinations(seen, 2)) < LEAST


def test_every_policy_has_a_look_and_a_stranger_keeps_one() -> None:
    assert set(POLICIES) <= set(LOOKS)
    assert look("mine:plan") == look("mine:plan") in GREYS
    assert len({look(f"mine:plan{i}") for i in range(100)}) == len(GREYS)
    assert look("\ud800") in GREYS


def test_the_guide_lists_the_palette() -> None:
    guide = (Path(__file__).parents[3] / "docs" / "guides" / "figures.md").read_text()
    for name in (*POLICIES, "even-excess", "spill"):
        assert f"| `{name}` | `{look(name).colour}` | `{look(name).marker}` |" in guide


@pytest.mark.parametrize(
    ("text", "inches"), [("column", 3.33), ("page", 7), ("5.5", 5.5), ("7/2", 3.5)]
)
def test_widths(text: str, inches: float) -> None:
    assert parse_width(text) == inches


@pytest.mark.parametrize("text", ["", "wide", "0", "-3", "1e9", "nan", "3in", "41", "1.99"])
def test_widths_that_are_none(text: str) -> None:
    with pytest.raises(InputError, match="expected column, page, or inches from 2 to 40"):
        parse_width(text)


def gap_figure(width: float = PAGE) -> object:
    lines = {name: [(1 << 16, 0.1), (1 << 20, 2.0)] for name in ("lpt", "equitable")}
    return gap_against_chunk(lines, "own $matrix", width=width)


@pytest.mark.slow
@pytest.mark.parametrize("inches", [3.33, 7.0])
def test_a_pdf_has_its_width_and_no_type_3_font(tmp_path: Path, inches: float) -> None:
    save_figure(gap_figure(inches), tmp_path / "a.pdf")
    data = (tmp_path / "a.pdf").read_bytes()
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ", data)
    assert box
    assert abs(float(box[1]) / 72 - inches) < 0.01
    assert b"/Type3" not in data
    assert b"/CIDFontType2" in data


@pytest.mark.slow
def test_matplotlibs_own_way_would_be_type_3(tmp_path: Path) -> None:
    figure = gap_figure()
    figure.savefig(tmp_path / "a.pdf")  # type: ignore[attr-defined]
    assert b"/Type3" in (tmp_path / "a.pdf").read_bytes()


def test_the_legend_lies_above_the_data() -> None:
    figure = gap_figure(3.33)
    figure.draw_without_rendering()  # type: ignore[attr-defined]
    (legend,), (axis,) = figure.legends, figure.axes  # type: ignore[attr-defined]
    assert legend.get_window_extent().y0 >= axis.get_window_extent().y1
    assert legend.get_window_extent().x0 >= 0


@pytest.mark.parametrize("count", range(1, 30))
def test_a_legend_has_no_more_columns_than_entries(count: int) -> None:
    names = [f"policy-{i}" for i in range(count)]
    assert 1 <= columns_that_fit(names, 3.33) <= min(4, count)
    assert columns_that_fit(names, 40) == count
