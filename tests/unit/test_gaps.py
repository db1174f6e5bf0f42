"""Gap reports: bounds, statuses, guarantees, lists of plans, and the commands gap and solve."""

from __future__ import annotations

import json
import os
import signal
import time
from fractions import Fraction
from pathlib import Path

import pytest

import railopt
from railopt import Chunks, Fabric, check, gap, plan, workloads
from railopt.cli.main import main
from railopt.gaps import gaps

FABRIC = Fabric.uniform(nodes=4, rails=4)
CHUNKS = workloads.moe(FABRIC, skew=0.5, seed=2, tokens=512).chunks("256KiB")


def test_one_plan_one_report() -> None:
    report = gap(plan(FABRIC, CHUNKS, "lpt"), limit_s=20)
    assert report.status == "proved"
    assert report.best == report.bound
    assert report.bracket == 0
    assert report.gap == report.value / report.bound - 1 > 0
    assert not report.proved
    verdict = report.certificate.check()
    assert verdict.ok
    assert not verdict.proved
    assert (verdict.bound, verdict.value) == (report.bound, report.value)


def test_a_list_shares_one_solve_and_keeps_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    from railopt.solver.coupled import solve as coupled

    calls = []
    whole = coupled.solve
    monkeypatch.setattr(coupled, "solve", lambda *a, **k: calls.append(1) or whole(*a, **k))
    reports = gap(
        [plan(FABRIC, CHUNKS, policy) for policy in ("pxn", "lpt", "lpt-global")], limit_s=20
    )
    assert [report.plan.policy for report in reports] == ["pxn", "lpt", "lpt-global"]
    assert len({report.bound for report in reports}) == 1
    assert len(calls) <= 1
    assert reports[2].gap <= reports[1].gap <= reports[0].gap


def test_no_time_asks_the_closed_forms_alone() -> None:
    report = gap(plan(FABRIC, CHUNKS, "lpt"), limit_s=0)
    assert report.best == report.value
    assert report.status == ("proved" if report.value == report.bound else "open")


def test_textbook_guarantees_hold_for_lpt_and_only_there() -> None:
    report = gap(plan(FABRIC, CHUNKS, "lpt"), limit_s=0)
    known = report.guarantee
    assert known is not None
    k = known.chunks_on_critical
    assert known.apriori == Fraction(4, 3) - Fraction(1, 12)
    assert known.aposteriori == Fraction(k + 1, k) - Fraction(1, 4 * k)
    assert 1 <= known.measured <= min(known.apriori, known.aposteriori)
    assert gap(plan(FABRIC, CHUNKS, "equitable"), limit_s=0).guarantee is None
    slow = FABRIC.degraded({(node, 0): "0.5" for node in range(4)})
    assert gap(plan(slow, CHUNKS, "lpt"), limit_s=0).guarantee is None


def test_guarantee_of_grahams_instance_is_tight() -> None:
    """Sizes 2N - 1, 2N - 1, ..., N + 1, N + 1, N, N, N on N rails: LPT takes 4N - 1, the optimum
    3N.
    """
    rails = 3
    sizes = [s for s in range(2 * rails - 1, rails, -1) for _ in range(2)] + [rails] * 3
    chunks = Chunks.from_arrays(src=[0] * len(sizes), dst=[1] * len(sizes), size=sizes, nodes=2)
    report = gap(plan(Fabric.uniform(2, rails, 1), chunks, "lpt"), limit_s=20)
    assert (
        report.value / report.bound
        == report.guarantee.apriori
        == Fraction(4, 3) - Fraction(1, 3 * rails)
    )


def test_gaps_come_one_at_a_time() -> None:
    first = next(gaps([plan(FABRIC, CHUNKS, "lpt"), plan(FABRIC, CHUNKS, "pxn")], limit_s=0))
    assert first.plan.policy == "lpt"


SMALL = ["--nodes", "3", "--rails", "4"]


def test_gap_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    certificates, figure = tmp_path / "certs", tmp_path / "gap.svg"
    arguments = [
        "gap",
        "moe:skew=0.5,tokens=256",
        *SMALL,
        "--chunk",
        "64KiB,1MiB",
        "--limit",
        "20s",
        "--json",
        "--certificate",
        str(certificates),
        "--figure",
        str(figure),
    ]
    assert main(arguments) == 0
    data = json.loads(capsys.readouterr().out)
    assert [(row["policy"], row["chunk"]) for row in data["rows"]] == [
        (policy, cap) for cap in ("64KiB", "1MiB") for policy in ("lpt", "lpt-local", "equitable")
    ]
    for row in data["rows"]:
        verdict = check(row["certificate"])
        assert verdict.ok
        assert verdict.bound == Fraction(row["bound"])
        assert verdict.value == Fraction(row["value"])
        assert row["status"] in ("proved", "claimed", "open")
    assert figure.read_text().startswith("<?xml")
    assert main(arguments) == 1
    assert "--force" in capsys.readouterr().err


def test_gap_command_on_plans_prints_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "plan.npz"
    plan(FABRIC, CHUNKS, "lpt").save(path)
    assert main(["gap", str(path), "--limit", "20s"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "a priori" in lines[0]
    assert lines[2].startswith("lpt")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gap", "moe", "--policy", "best"], "unknown policy 'best'"),
        (["gap", "moe", "zipf"], "expected one"),
        (["solve", "moe", "--backend", "gurobi"], "unknown back-end"),
        (["solve", "moe", "--limit", "0s"], "time limit"),
        (["solve", "moe", "--write-model", "model.txt", *SMALL], ".lp or .mps"),
    ],
)
def test_bad_usage(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 1
    assert message in capsys.readouterr().err


def test_solve_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    best, proof, model = (str(tmp_path / name) for name in ("best.npz", "c.json", "m.lp"))
    arguments = [
        "solve",
        "moe:tokens=256",
        *SMALL,
        "--chunk",
        "1MiB",
        "-o",
        best,
        "--certificate",
        proof,
        "--write-model",
        model,
        "--json",
    ]
    assert main(arguments) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["status"] == "proved"
    assert check(proof).proved
    assert railopt.Plan.load(best).makespan == Fraction(data["value"])
    assert Path(model).read_text().startswith("\\ t is in units of")
    assert main(["solve", best, "--write-model", str(tmp_path / "m.mps")]) == 0
    assert "NAME railopt" in (tmp_path / "m.mps").read_text()
    assert (
        main(
            [
                "solve",
                "moe",
                *SMALL,
                "--degrade",
                "0:0=0",
                "--degrade",
                "0:1=0",
                "--degrade",
                "0:2=0",
                "--degrade",
                "1:3=0",
            ]
        )
        == 2
    )
    assert "no living rail" in capsys.readouterr().err


@pytest.mark.parametrize("lost", [False, True])
def test_ctrl_c_prints_the_rows_so_far(
    lost: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 130, and the best value and bound of what was at work, even where foreign code
    swallows the exception.
    """
    from railopt.solver.coupled import steps as coupled

    def interrupted(race: coupled.Race) -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:
            if not lost:
                raise

    monkeypatch.setattr(coupled, "_bounds", interrupted)
    monkeypatch.setattr(coupled, "_search", lambda *args, **rest: None)
    path = tmp_path / "open.npz"
    chunks = Chunks.from_arrays(src=[0, 0, 0], dst=[1, 2, 1], size=[5, 5, 4], nodes=3)
    plan(Fabric.uniform(3, 2, gpus=1), chunks, "hash").save(path)
    began = time.monotonic()
    assert main(["gap", str(path), "--limit", "10min", "--json"]) == 130
    assert time.monotonic() - began < 60
    data = json.loads(capsys.readouterr().out)
    assert data["interrupted"]
    (row,) = data["rows"]
    assert row["notes"] == ["interrupted"]
    assert 0 < Fraction(row["bound"]) <= Fraction(row["best"]) <= Fraction(row["value"])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
