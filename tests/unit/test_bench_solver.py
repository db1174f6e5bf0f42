"""`make bench-solver` hands the same arguments to two programs: both take them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.bench import solver_bench, solver_coupled, solver_options, solver_peers

EVERY = (
    "--seeds 1 --seed 7 --only x --shard 2/3 --peers cpsat,arcflow-highs,prtpy --peers-every 5 "
    "--peer-limit 2 --quick"
)


def test_both_programs_take_every_argument(capsys: pytest.CaptureFixture[str]) -> None:
    made = solver_options.parser("solver_bench", None)
    known = {name for action in made._actions for name in action.option_strings}
    assert known - {"-h", "--help", "--json", "--families"} == set(re.findall(r"--[\w-]+", EVERY))
    for program, families in ((solver_bench, "small,worn"), (solver_coupled, "grid,unequal")):
        words = EVERY.replace("--quick", "").split()
        assert program.main([*words, "--families", families]) == 0  # the other one's families
        assert capsys.readouterr().out == ""
        for wrong in (["--families", "gird"], ["--peers", "cpsta"], ["--shard", "3/2"]):
            with pytest.raises(SystemExit):
                program.main(wrong)


def test_every_peer_can_be_asked_for_by_name() -> None:
    assert set(solver_options.PEERS) == set(solver_peers.PEERS)


def test_the_documented_arguments_are_there() -> None:
    root = Path(__file__).parents[2]
    text = (root / "Makefile").read_text() + (
        root / "docs" / "design" / "benchmarks.md"
    ).read_text()
    lines = [line for line in text.splitlines() if "bench-solver" in line or "solver_bench" in line]
    helped = solver_options.parser("solver_bench", None).format_help()
    documented = {name for line in lines for name in re.findall(r"--[a-z][\w-]+", line)}
    assert "--seed" in documented
    assert all(name in helped for name in documented), documented
