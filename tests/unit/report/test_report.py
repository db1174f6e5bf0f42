"""The report without a browser: its size, its numbers, its input."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from contextlib import redirect_stdout
from fractions import Fraction
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from railopt.base.errors import FormatError, InputError
from railopt.cli.main import main
from railopt.evidence.certificate import Certificate
from railopt.report import figures, page
from railopt.report import rows as report_rows
from railopt.report.captioned import svg
from railopt.report.gaps import gap_against, gap_by_policy, percent
from railopt.report.saving import save_figure
from railopt.report.style import INK
from railopt.report.swept import swept
from railopt.sweep import instance, results, spec

Cli = Callable[..., Any]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("results")
    sweep = spec.parse(
        {
            "simulate": True,
            "grid": {
                "nodes": [2, 4],
                "rails": [2],
                "traffic": ["moe:tokens=32"],
                "chunk": ["16KiB", "flow"],
                "policy": ["lpt", "equitable"],
                "seed": [0],
            },
        }
    )
    writer = results.Writer(place)
    for point in sweep.instances:
        writer.append(instance.run(point))
    return place


def claims(folder: Path, **changes: object) -> Path:
    """A folder with one experiment's results."""
    claim = {
        "name": "<claim>",
        "paper_text": "2x",
        "ours_text": "1x",
        "verdict": "contradicted",
        "source": "s",
        "note": "because",
        **changes,
    }
    (folder / "sample").mkdir(parents=True)
    (folder / "sample" / "results.json").write_text(
        json.dumps({"full": True, "comparison": [claim]})
    )
    return folder


@pytest.fixture(scope="module")
def made(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a page, its figures and their data, drawn once."""
    place = tmp_path_factory.mktemp("made")
    line = ["report", folder, "-o", place / "r.html", "--figures", place / "figures", "--json"]
    with redirect_stdout(io.StringIO()) as out:
        assert main(list(map(str, line))) == 0
    (place / "data.json").write_text(out.getvalue())
    return place


@pytest.fixture(scope="module")
def text(made: Path) -> str:
    return (made / "r.html").read_text()


@pytest.fixture(scope="module")
def one_row(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a single row that was not simulated: few figures, drawn soon."""
    row = {key: value for key, value in results.read(folder).rows[0].items() if key != "simulated"}
    path = tmp_path_factory.mktemp("one") / "rows.jsonl"
    path.write_bytes(results.encode(row) + b"\n")
    return path


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Results without rows: no figure to draw."""
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_the_page_says_which_checker_accepted(
    empty: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, railopt_cli: Cli
) -> None:
    monkeypatch.setenv("RAILOPT_VERIFIED", str(tmp_path / "absent"))
    place, out = tmp_path / "certs", tmp_path / "page.html"
    line = ["report", str(empty), "--certificates", str(place), "-o", str(out)]
    ran = railopt_cli(*line)
    assert (ran.code, "no certificates (.json)" in ran.err) == (1, True)
    place.mkdir()
    made = Certificate.local([8, 8], 8, {"kind": "average"}, rails=2, assignment=[0, 1])
    made.save(place / "<b>.json")
    ran = railopt_cli(*line)
    assert (ran.code, "1 of 1 accepted by railopt/checker.py" in ran.err) == (0, True)
    assert "1 of 1 accepted by railopt/checker.py" in out.read_text()
    (place / "c.json").write_text((place / "<b>.json").read_text().replace("average", "count"))
    ran = railopt_cli(*line, "--force")
    assert (ran.code, "1 of 2 accepted by railopt/checker.py" in ran.err) == (4, True)
    assert '<span class="FAILED">' in out.read_text()
    assert "<b>.json" not in out.read_text()


@pytest.mark.slow
def test_the_page_stands_alone(text: str) -> None:
    assert len(text) < 2_000_000
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", text)


@pytest.mark.slow
def test_the_page_holds_every_exact_number(folder: Path, text: str) -> None:
    for row in results.read(folder).rows:
        for scale, name in ((10**6, "value"), (10**6, "bound"), (100, "gap")):
            assert f'title="{Fraction(row[name]) * scale}"' in text


def test_papers_stand_beside_ours(empty: Path, tmp_path: Path, railopt_cli: Cli) -> None:
    out = tmp_path / "report.html"
    experiments = claims(tmp_path / "out")
    assert railopt_cli("report", empty, "-o", out, "--experiments", experiments).code == 0
    assert "&lt;claim&gt;" in out.read_text()


def test_headline_claims_stand_together_with_verdict_and_distance(
    empty: Path, tmp_path: Path, railopt_cli: Cli
) -> None:
    out, given = tmp_path / "report.html", {"inputs_text": "paper: sizes; ours: rates"}
    place = claims(tmp_path / "out", headline=True, verdict="not reached", distance=0.125, **given)
    assert railopt_cli("report", empty, "-o", out, "--experiments", place).code == 0
    headlines = out.read_text().split("<caption>All headline claims")[1].split("</table>")[0]
    for shown in (
        "&lt;claim&gt;",
        'class="not-reached"',
        "12.5 %",
        "full",
        "paper: sizes; ours: rates",
    ):
        assert shown in headlines
    plain = claims(tmp_path / "plain")
    assert railopt_cli("report", empty, "-o", out, "--experiments", plain, "--force").code == 0
    assert "All headline claims" not in out.read_text()


def test_what_no_paper_says_stands_in_a_table_of_its_own(
    empty: Path, tmp_path: Path, railopt_cli: Cli
) -> None:
    own = {
        "name": "median gap",
        "expected_text": "3 %",
        "ours_text": "3.1 %",
        "verdict": "reproduced",
        "source": "an earlier run",
    }
    (tmp_path / "runs" / "again").mkdir(parents=True)
    record = json.dumps({"comparison": [], "own": [own]})
    (tmp_path / "runs" / "again" / "results.json").write_text(record)
    out = tmp_path / "page.html"
    ran = railopt_cli("report", empty, "--experiments", tmp_path / "runs", "-o", out)
    assert ran.code == 0
    page = out.read_text()
    assert "again, what no paper says" in page
    assert "reproduced" in page
    assert ">paper<" not in page.split("what no paper says")[1]


@pytest.mark.slow
def test_figures_are_written_as_files(made: Path) -> None:
    assert {path.name for path in (made / "figures").iterdir()} == {
        f"{name}.{kind}"
        for name in (
            "gap-by-chunk",
            "gap-by-nodes",
            "gap-by-policy",
            "rail-loads",
            "completion-times",
        )
        for kind in ("svg", "pdf")
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("there", "said"),
    [("figures/rail-loads.svg", "rail-loads.svg exists"), ("figures", "can't be made")],
)
def test_figures_that_can_not_be_written_leave_no_page(
    one_row: Path, tmp_path: Path, railopt_cli: Cli, there: str, said: str
) -> None:
    out, file = tmp_path / "r.html", tmp_path / there
    file.parent.mkdir(exist_ok=True)
    file.touch()
    ran = railopt_cli("report", one_row, "-o", out, "--figures", tmp_path / "figures")
    assert (ran.code, out.exists()) == (1, False)
    assert said in ran.err


@pytest.mark.parametrize("name", ["r.pdf", "r.SVG", "r.jsonl"])
def test_a_page_has_the_suffix_of_a_page(
    empty: Path, tmp_path: Path, railopt_cli: Cli, name: str
) -> None:
    ran = railopt_cli("report", empty, "-o", tmp_path / name)
    assert (ran.code, (tmp_path / name).exists()) == (1, False)
    assert "a page is written as .html" in ran.err


@pytest.mark.slow
def test_a_problem_counts_once_in_every_part(
    folder: Path, tmp_path: Path, railopt_cli: Cli
) -> None:
    """A row of another limit and one of other code, of the same problem and policy."""
    row = dict(results.read(folder).rows[0])
    longer = {**row["instance"], "limit_s": 9.0}
    rows = [{**row, "key": "longer", "instance": longer}, {**row, "key": "other code"}, row]
    path, out = tmp_path / "r.jsonl", tmp_path / "r.html"
    path.write_bytes(b"\n".join(map(results.encode, rows)) + b"\n")
    ran = railopt_cli("report", path, "-o", out, "--json")
    data = json.loads(ran.out)
    assert [entry[1] for entry in data["completion-times"]["rows"]] == [1]
    assert not [name for name in data if name.startswith("gap-by")]  # figures of one point
    assert "2 rows left out: a newer one has their problem and policy" in ran.err
    assert "1 instances" in out.read_text()
    assert "2 rows left out" in out.read_text()


def test_numbers_that_no_float_has_are_texts() -> None:
    third, large = (page.table(["x"], [[Fraction(x)]], "x") for x in ("1/3", 10**400))
    assert "data-value" in third
    assert 'class="text">1000' in large


@pytest.mark.slow
def test_the_data_behind_the_figures(made: Path) -> None:
    data = json.loads((made / "data.json").read_text())
    columns = ["policy", "nodes", "instances", "min %", "median %", "max %"]
    assert data["gap-by-nodes"]["columns"] == columns


def test_a_page_that_exists_is_kept(folder: Path, tmp_path: Path, railopt_cli: Cli) -> None:
    out = tmp_path / "report.html"
    out.write_text("mine")
    ran = railopt_cli("report", folder, "-o", out, "--figures", tmp_path / "figures")
    assert (ran.code, out.read_text()) == (1, "mine")
    assert not (tmp_path / "figures").exists()


@pytest.mark.parametrize("missing", ["results", "experiments"])
def test_folders_that_are_not_there(
    empty: Path, tmp_path: Path, railopt_cli: Cli, missing: str
) -> None:
    nowhere = tmp_path / "none"
    rest = ["--experiments", nowhere] if missing == "experiments" else []
    place = nowhere if missing == "results" else empty
    assert railopt_cli("report", place, "-o", tmp_path / "r.html", *rest).code == 1
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        b"\xff\xfe",
        b'{"comparison": 3}',
        b'{"comparison": [[]]}',
        b"[" * 100_000,
        b"9" * 5000,
    ],
)
def test_experiments_that_are_none(
    empty: Path, tmp_path: Path, railopt_cli: Cli, content: bytes
) -> None:
    (tmp_path / "out" / "sample").mkdir(parents=True)
    (tmp_path / "out" / "sample" / "results.json").write_bytes(content)
    ran = railopt_cli("report", empty, "-o", tmp_path / "r.html", "--experiments", tmp_path / "out")
    assert ran.code == 1
    assert len(ran.err.strip().splitlines()) == 1
    assert not (tmp_path / "r.html").exists()


HOSTILE = "<script>alert(1)</script>$\\frac{\x1b[2J\n\ud800"


def test_text_from_results_is_escaped(folder: Path, tmp_path: Path, railopt_cli: Cli) -> None:
    """A policy's name, a failure and a paper's claim that would be markup, a formula or a forged
    line.
    """
    row = results.read(folder).rows[0]
    changed = {**row, "key": "other", "instance": {**row["instance"], "policy": HOSTILE}}
    failed = {**row, "key": "third", "status": "failed", "error": HOSTILE}
    (tmp_path / "rows.jsonl").write_text(
        "".join(json.dumps(r) + "\n" for r in (row, changed, failed))
    )
    out = tmp_path / "r.html"
    experiments = claims(tmp_path / "out", note=HOSTILE, verdict=HOSTILE)
    ran = railopt_cli(
        "report",
        tmp_path / "rows.jsonl",
        "-o",
        out,
        "--experiments",
        experiments,
        "--figures",
        tmp_path / "figures",
        "--title",
        HOSTILE,
    )
    assert ran.code == 0
    text = out.read_text()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    assert "\x1b" not in text
    for path in (tmp_path / "figures").glob("*.svg"):
        ElementTree.parse(path)


@pytest.mark.slow
def test_rows_that_are_no_utf8_are_counted(one_row: Path, tmp_path: Path, railopt_cli: Cli) -> None:
    good = one_row.read_bytes()
    bad = b'{"key": "\xff\xfe", "status": "ok"}\n' + b"[" * 50_000 + b"\n" + b"9" * 5000 + b"\n"
    (tmp_path / "rows.jsonl").write_bytes(bad + good)
    ran = railopt_cli("report", tmp_path / "rows.jsonl", "-o", tmp_path / "r.html")
    assert ran.code == 0
    assert "3 lines of the results are torn, no JSON or no UTF-8: left out" in ran.err
    assert "3 torn lines dropped" in (tmp_path / "r.html").read_text()


@pytest.mark.parametrize("started", [None, 3, float("nan")])
def test_a_row_that_says_not_when_it_began(folder: Path, tmp_path: Path, started: object) -> None:
    row = {**results.read(folder).rows[0], "started": started}
    if started is None:
        del row["started"]
    (tmp_path / "r.jsonl").write_bytes(results.encode(row) + b"\n")
    with pytest.raises(FormatError, match="not a row that railopt sweep writes"):
        report_rows.read(tmp_path / "r.jsonl")


ODD: tuple[object, ...] = (
    None,
    -1,
    2**70,
    1.5,
    float("nan"),
    "1/0",
    "1e-999999999",
    "nan",
    "-1",
    "x",
    [],
    {},
    [[1]],
    True,
)


@pytest.mark.slow
def test_spoilt_rows_are_one_sentence(folder: Path, tmp_path: Path, railopt_cli: Cli) -> None:
    """200 rows with one value replaced or gone: each is refused, or can be shown."""
    rows = results.read(folder).rows
    dice = random.Random(5)
    shown, messages = [], []
    for case in range(200):
        row = json.loads(json.dumps(dice.choice(rows)))
        place = dice.choice([row, row["instance"], row["loads"], row["simulated"]])
        name = dice.choice(sorted(place))
        if dice.random() < 0.2:
            del place[name]
        else:
            place[name] = dice.choice(ODD)
        path = tmp_path / f"{case}.jsonl"
        path.write_bytes(results.encode(row) + b"\n")
        try:
            shown.append(report_rows.read(path).rows)
        except FormatError as error:
            messages.append((path, str(error)))
    assert len(messages) > 50
    assert not any("\n" in text for _, text in messages)
    assert len(shown) > 20
    everything = tuple(row for found in shown for row in found)
    assert page.build(results.Results(everything, (), 0, 1))
    ran = railopt_cli("report", messages[0][0], "-o", tmp_path / "r.html")
    assert ran.code == 1
    assert len(ran.err.strip().splitlines()) == 1
    assert not (tmp_path / "r.html").exists()


@pytest.mark.parametrize("name", ["run.jpg", "run", "run.svg.txt", ".svg"])
def test_a_figure_under_an_unknown_suffix_is_not_written(tmp_path: Path, name: str) -> None:
    from matplotlib.figure import Figure

    with pytest.raises(InputError, match=r"written as \.svg, \.pdf, \.png"):
        save_figure(Figure(), tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "start"), [("a.svg", b"<?xml"), ("a.PDF", b"%PDF"), ("a.png", b"\x89PNG")]
)
def test_the_suffix_decides_the_format(tmp_path: Path, name: str, start: bytes) -> None:
    from matplotlib.figure import Figure

    save_figure(Figure(), tmp_path / name)
    assert (tmp_path / name).read_bytes().startswith(start)


@pytest.mark.slow
def test_figures_show_the_rows_numbers(folder: Path) -> None:
    rows = results.read(folder).rows
    by_policy = gap_by_policy(rows)
    assert by_policy is not None
    for policy, count, *quartiles in by_policy.rows:
        gaps = [percent(row) for row in rows if row["instance"]["policy"] == policy]
        assert (count, quartiles[0], quartiles[-1]) == (len(gaps), min(gaps), max(gaps))
    for parameter in swept(rows):
        for policy, value, count, *found in gap_against(rows, parameter).rows:
            same = [row for row in rows if row["instance"][parameter.name] == value]
            gaps = [percent(row) for row in same if row["instance"]["policy"] == policy]
            assert (count, found) == (len(gaps), [min(gaps), median(gaps), max(gaps)])
    loads = figures.rail_loads(rows)
    assert loads is not None
    assert {row[0] for row in loads.rows} == {"lpt", "equitable"}
    text = svg(loads)
    assert "currentColor" in text
    assert INK not in text


@pytest.mark.parametrize("rows", ["", "torn\n"])
@pytest.mark.parametrize("command", ["report", "results"])
def test_without_a_good_row_nothing_is_made(
    tmp_path: Path, railopt_cli: Cli, command: str, rows: str
) -> None:
    (tmp_path / "rows.jsonl").write_text(rows)
    saved = tmp_path / "r.html" if command == "report" else tmp_path / "r.csv"
    option = "-o" if command == "report" else "--export"
    ran = railopt_cli(command, tmp_path / "rows.jsonl", option, saved)
    assert ran.code == 1
    assert "no good row" in ran.err
    assert not saved.exists()


@pytest.mark.slow
def test_what_tells_instances_apart_is_a_column(tmp_path: Path) -> None:
    grid = {
        "nodes": [2],
        "rails": [2],
        "gpus": [2, 4],
        "degrade": ["", "0:1=0.5"],
        "traffic": ["uniform:size=64KiB"],
        "chunk": ["16KiB"],
        "policy": ["lpt"],
        "seed": [0],
    }
    writer = results.Writer(tmp_path)
    for point in spec.parse({"grid": grid}).instances:
        writer.append(instance.run(point))
    made = page.build(report_rows.read(tmp_path))
    table = made.split('id="instances"')[1]
    headings = re.findall(r"<th[^>]*>(?:<[^>]*>)*([^<]+)", table)
    assert {"gpus", "degrade"} <= set(headings)
    assert "link" not in headings
    assert "GPUs per node" in made


@pytest.mark.parametrize("words", [["results"], ["report", "-o", "page.html"]])
def test_a_folder_that_may_not_be_read_is_no_empty_one(
    words: list[str], empty: Path, monkeypatch: pytest.MonkeyPatch, railopt_cli: Cli
) -> None:
    """Whoever the user is: root may read everything."""

    def denied(*_: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(empty))

    monkeypatch.setattr(os, "listdir", denied)
    monkeypatch.setattr(os, "scandir", denied)
    ran = railopt_cli(words[0], str(empty), *words[1:])
    assert (ran.code, ran.err) == (1, f"railopt: error: {empty}: Permission denied\n")
