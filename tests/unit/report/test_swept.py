"""Parameters that a sweep varied: found, ordered, drawn and summarised over seeds."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from railopt.model.workloads import WORKLOADS, default, parameters
from railopt.report.figures import all_figures
from railopt.report.gaps import gap_against
from railopt.report.swept import scale, swept
from railopt.report.verdict import asked, verdict
from railopt.sweep import results

Cli = Callable[..., Any]


def row(traffic: str = "zipf", gap: str = "1/10", **point: Any) -> dict[str, Any]:
    sweep = point.pop("sweep", "")
    instance = {"nodes": 2, "rails": 2, "gpus": 2, "link": "400Gb/s", "degrade": "", "content": ""}
    instance |= {"traffic": traffic, "chunk": "1MiB", "policy": "lpt", "seed": 0, **point}
    return {
        "key": json.dumps(instance, sort_keys=True),
        "instance": instance,
        "status": "ok",
        "gap": gap,
        "bound": "1",
        "value": str(1 + Fraction(gap)),
        "optimum": "open",
        "optimal": False,
        "worst_side": "send",
        "started": 0.0,
        **({"sweep": sweep} if sweep else {}),
    }


def found(*rows: dict[str, Any]) -> dict[str, list[Any]]:
    return {parameter.name: parameter.values for parameter in swept(rows)}


def test_parameters_of_workloads_are_columns() -> None:
    columns = results.flat(row("moe:skew=0.8,hidden=8KiB,tokens=64"))
    assert (columns["skew"], columns["hidden"], columns["tokens"]) == (0.8, "8KiB", 64)
    assert "skew" not in results.flat(row("zipf:skew=1", content="ab"))  # a file of that name
    assert results.flat(row("zipf:seed=3,mine=4"))["seed"] == 0


def test_no_parameter_has_the_name_of_a_column() -> None:
    """Else one of the two would hide the other."""
    columns = set(results.flat({**row(), "error": "", "sweep": "a"})) | {"commit", "seconds"}
    for name, made in WORKLOADS.items():
        known = {
            k for k, p in inspect.signature(made).parameters.items() if p.kind is p.KEYWORD_ONLY
        }
        assert not (known - {"seed"}) & columns, name


@pytest.mark.parametrize(
    ("text", "value"),
    [("2", 2), ("0.5", 0.5), ("1/4", 0.25), ("8KiB", "8KiB"), ("nan", "nan"), ("9" * 40, "9" * 40)],
)
def test_parameters_are_read_as_numbers_where_they_are_some(text: str, value: Any) -> None:
    assert parameters(f"moe:skew={text}") == {"skew": value}


def test_what_varies_is_found_and_in_order() -> None:
    rows = [row(f"moe:tokens=64,skew={skew}") for skew in ("1", "0.2", "0.8")]
    assert found(*rows) == {"skew": [0.2, 0.8, 1]}
    assert found(*(row(chunk=text) for text in ("flow", "1MiB", "256KiB"))) == {
        "chunk": ["256KiB", "1MiB", "flow"]
    }
    assert found(*(row(link=text) for text in ("400Gb/s", "50Gb/s"))) == {
        "link": ["50Gb/s", "400Gb/s"]
    }
    assert found(*(row(seed=n, policy=p) for n in range(3) for p in ("lpt", "pxn"))) == {}


def test_a_workload_has_its_own_value_where_none_is_given() -> None:
    assert default("zipf", "skew") == 0.8
    assert found(row("zipf"), row("zipf:skew=0.3")) == {"skew": [0.3, 0.8]}
    assert found(row("uniform"), row("permutation")) == {"traffic": ["permutation", "uniform"]}


def test_what_parameters_do_not_tell_apart_is_traffic() -> None:
    rows = [row(f"{name}:skew={skew}") for name in ("moe", "zipf") for skew in ("0.1", "0.5", "1")]
    assert found(*rows) == {"skew": [0.1, 0.5, 1], "traffic": ["moe", "zipf"]}


def test_as_many_gpus_as_nics_are_no_second_parameter() -> None:
    assert found(row(rails=2, gpus=2), row(rails=4, gpus=4)) == {"rails": [2, 4]}
    assert found(row(rails=2, gpus=2), row(rails=2, gpus=4)) == {"gpus": [2, 4]}


@pytest.mark.parametrize(
    ("name", "values", "logarithmic", "measured"),
    [
        ("skew", [0, 0.5, 100], False, True),
        ("nodes", [2, 8, 64], True, True),
        ("chunk", ["64KiB", "4MiB"], True, True),
        ("chunk", ["64KiB", "flow"], False, False),
        ("degrade", ["", "0:0=0.5"], False, False),
    ],
)
def test_numbers_lie_where_they_are(
    name: str, values: Sequence[Any], logarithmic: bool, measured: bool
) -> None:
    rows = [
        row(**{name: value}) if name != "skew" else row(f"zipf:skew={value}") for value in values
    ]
    (parameter,) = swept(rows)
    where = scale(parameter)
    assert (where.logarithmic, where.measured) == (logarithmic, measured)
    assert where.places == sorted(where.places)


def test_seeds_are_summarised_and_it_is_said() -> None:
    rows = [
        row(f"zipf:skew={skew}", f"{gap}/100", seed=seed, chunk=chunk)
        for skew in (0, 1)
        for chunk in ("1MiB", "4MiB")
        for seed, gap in enumerate((4, 1, 9))
    ]
    by_skew = gap_against(rows, swept(rows)[0])
    assert by_skew.rows == [["lpt", 0, 6, 1.0, 4.0, 9.0], ["lpt", 1, 6, 1.0, 4.0, 9.0]]
    assert (
        "median, and range from least to largest, over 3 seeds and 2 values of largest chunk"
        in (by_skew.caption)
    )
    assert "one instance per point" in gap_against(rows[::6], swept(rows[::6])[0]).caption


def test_figures_of_one_point_are_dropped() -> None:
    assert all_figures([row(), row(policy="pxn")]) == []
    several = all_figures([row(seed=seed) for seed in (0, 1)])
    assert [figure.name for figure in several] == ["gap-by-policy"]


def test_the_verdict_names_policies_from_outside() -> None:
    gaps = {"lpt": "1/2", "equitable": "1/100", "mine:spread": "1/4"}
    said = verdict([row(policy=policy, gap=gap) for policy, gap in gaps.items()])
    assert said.startswith("equitable is the closest of 3 policies: it is at most 1 %")
    assert "; mine:spread is at most 25 % above the best possible plan" in said
    assert said.count("mine:spread") == 1
    assert verdict([row(policy="mine:spread", gap="0")]).count("mine:spread") == 1


def test_the_name_of_the_sweep_is_said() -> None:
    assert dict(asked([row(sweep="skews"), row()]))["sweep"] == "skews"
    assert "sweep" not in dict(asked([row()]))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    writer = results.Writer(tmp_path / "results")
    for policy in ("lpt", "mine:spread"):
        for skew in ("0.8", "0.2"):
            for seed, gap in enumerate(("1/10", "1/20", "1/50")):
                point = {"policy": policy, "seed": seed, "sweep": "my skews"}
                writer.append(row(f"zipf:skew={skew}", gap, **point))
    return tmp_path / "results"


def test_results_show_the_parameter_and_say_once_what_is_the_same(
    railopt_cli: Cli, place: Path
) -> None:
    lines = railopt_cli("results", place).out.splitlines()
    assert lines[0] == "in every row: nodes 2, rails 2, traffic zipf, chunk 1MiB"
    assert lines[1].split() == ["skew", "policy", "seed", "time", "gap", "%", "optimum", "worst"]
    assert [line.split()[:3] for line in lines[3:5]] == [["0.2", "lpt", "0"], ["0.2", "lpt", "1"]]
    only = railopt_cli("results", place, "--where", "skew=0.2", "--json").out
    assert {entry["skew"] for entry in json.loads(only)} == {0.2}


@pytest.mark.slow
def test_results_draw_what_was_swept(railopt_cli: Cli, place: Path, tmp_path: Path) -> None:
    figure = tmp_path / "gap.svg"
    ran = railopt_cli("results", place, "--plot", figure, "--format", "csv")
    assert ran.code == 0, ran.err
    assert ran.out.splitlines() == [
        "policy,skew,instances,min %,median %,max %",
        *(f"{p},{s},3,2.0,5.0,10.0" for p in ("lpt", "mine:spread") for s in (0.2, 0.8)),
    ]
    assert "median, and range from least to largest, over 3 seeds" in ran.err
    assert figure.read_text().startswith("<?xml")
    latex = railopt_cli("results", place, "--plot", figure, "--force", "--format", "latex").out
    assert r"\caption{Gap above a lower bound" in latex
    assert r"\begin{tabular}{lSSSSS}" in latex


def test_results_that_can_not_be_drawn(railopt_cli: Cli, place: Path, tmp_path: Path) -> None:
    figure = tmp_path / "gap.svg"
    ran = railopt_cli("results", place, "--plot", figure, "--where", "skew=0.2")
    assert (ran.code, figure.exists()) == (1, False)
    assert "6 rows that differ in no parameter" in ran.err
    ran = railopt_cli("results", place, "--plot", figure, "--against", "skw")
    assert (ran.code, figure.exists()) == (1, False)
    assert "these rows differ in skew; did you mean 'skew'?" in ran.err
