"""`railopt prove` as a CI job and a cluster engineer meet it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from railopt.model.fabric import Fabric, Spine
from railopt.symbolic import registry
from railopt.symbolic.applies import applicability, one_profile, warnings_for
from railopt.symbolic.result import verdict
from railopt.symbolic.statements import fast

Cli = Callable[..., object]


def test_one_theorem_in_json(railopt_cli: Cli) -> None:
    ran = railopt_cli("prove", "--quick", "--id", "T9", "--json")
    assert ran.code == 0
    data = json.loads(ran.out)
    assert data["ok"]
    assert [entry["id"] for entry in data["theorems"]] == ["T9", "T9a", "T9b", "T9c", "T9d", "T9e"]
    assert all(result["ok"] for entry in data["theorems"] for result in entry["results"])
    by_id = {
        entry["id"]: [result["detail"] for result in entry["results"]] for entry in data["theorems"]
    }
    assert "Unequal.T9_half_of_eight" in by_id["T9b"][0]


def test_the_table_says_status_range_time_and_assumptions(railopt_cli: Cli) -> None:
    ran = railopt_cli("prove", "--quick", "--id", "T4d")
    assert ran.code == 0
    assert "checked-exhaustively" in ran.out
    assert "assumed: start rails independent and uniform" in ran.out
    assert "1 of 1 as stated" in ran.out


def test_an_open_statement_is_listed_as_open_and_not_counted(railopt_cli: Cli) -> None:
    ran = railopt_cli("prove", "--quick", "--id", "T18e", "--id", "T18i")
    assert ran.code == 0
    assert "1 of 1 as stated, 1 open" in ran.out
    assert "would settle it: " in ran.out


def test_a_failure_is_exit_code_4(
    railopt_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "proofs"
    (folder / "coq").mkdir(parents=True)
    (folder / "coq" / "statements.json").write_text("{}")
    (folder / "THEOREMS.toml").write_text(
        '[[theorem]]\nid = "T1"\ntitle = "t"\nstatement = "s"\nsymbols = "x"\nsource = "here"\n'
        'status = "proved-symbolic"\nchecks = ["fast.wrong"]\n'
    )
    failing = verdict("exhaustive", "n, m <= 5", ["n = 2, m = 5"])
    monkeypatch.setattr(fast, "wrong", lambda quick: failing, raising=False)
    for module in ("registry", "search.counterexamples", "run"):
        monkeypatch.setattr(f"railopt.symbolic.{module}.proofs_folder", lambda: folder)
    ran = railopt_cli("prove", "--quick")
    assert ran.code == 4
    assert "FAILED" in ran.out
    assert "n = 2, m = 5" in ran.err


@pytest.mark.slow
def test_what_the_kernel_did_not_run_is_not_called_proved_by_it(railopt_cli: Cli) -> None:
    kernel = [t.id for t in registry.family("T1") if t.status == "proved-kernel"]
    assert kernel
    ran = railopt_cli("prove", "--quick", "--id", "T1")
    assert ran.code == 0
    assert "pinned, Coq's kernel not run" in ran.out
    assert "proved-kernel" not in ran.out
    data = json.loads(railopt_cli("prove", "--quick", "--id", "T1", "--json").out)
    found = {entry["id"]: entry["status"] for entry in data["theorems"]}
    assert {found[name] for name in kernel} == {"pinned, Coq's kernel not run"}


def test_questions_do_not_mix(railopt_cli: Cli) -> None:
    for arguments in (
        ["--id", "T99"],
        ["--fabric", "f.toml", "--id", "T1"],
        ["--fabric", "f.toml", "--quick"],
        ["--fabric", "missing.toml"],
        ["--fabric", ""],
        ["--fabric", "", "--id", "T1"],
    ):
        assert railopt_cli("prove", *arguments).code == 1


@pytest.mark.slow
def test_a_theorem_that_is_asked_for_twice_runs_once(railopt_cli: Cli) -> None:
    ran = railopt_cli("prove", "--quick", "--id", "T10b", "--id", "T10", "--id", "T10b", "--json")
    found = [entry["id"] for entry in json.loads(ran.out)["theorems"]]
    assert found == ["T10b", "T10", "T10a", "T10c", "T10d", "T10e"]


def test_without_coqc_its_kernel_is_exit_code_3(
    railopt_cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    ran = railopt_cli("prove", "--kernel", "--id", "T1")
    assert ran.code == 3
    assert "coq" in ran.err
    assert "install" in ran.err
    ran = railopt_cli("prove", "--id", "T0")
    assert ran.code == 0
    assert "not run" in ran.err


def test_the_fabric_of_the_readme(railopt_cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "fabric.toml"
    Fabric.uniform(8, 8).degraded({(5, 3): "0.5"}).save(path)
    ran = railopt_cli("prove", "--fabric", path)
    assert ran.code == 0
    assert "rail 3 of node 5 is at half speed: T1 does not apply; T9b gives 16/15" in ran.out
    data = json.loads(railopt_cli("prove", "--fabric", path, "--json").out)
    assert {entry["id"]: entry["applies"] for entry in data["theorems"]}["T9b"]


def by_id(fabric: Fabric) -> dict[str, tuple[bool, str]]:
    return {entry.id: (entry.applies, entry.why) for entry in applicability(fabric)}


def test_healthy_fabrics() -> None:
    found = by_id(Fabric.uniform(8, 8))
    assert all(found[name][0] for name in ("T1", "T3", "T4", "T5", "T6", "T7", "T8", "T9", "T10a"))
    assert not found["T2a"][0]
    assert "7 times" in found["T2a"][1]
    assert by_id(Fabric.uniform(2, 8))["T2a"][0]
    assert by_id(Fabric.uniform(8, 1))["T2a"][0]


def test_t2a_and_t3_need_equal_rates() -> None:
    for nodes in (2, 8):
        slow = Fabric.uniform(nodes, 8).degraded({(0, 0): "0.5"})
        applies, why = by_id(slow)["T2a"]
        assert not applies
        assert "half speed: T2a does not apply" in why
        assert "T3" not in why
        assert "T3" not in " ".join(warnings_for(slow, "lpt"))
    assert "7 times its share (T3)" in warnings_for(Fabric.uniform(8, 8), "lpt")[0]


def test_a_dead_nic_and_several_slow_ones() -> None:
    dead = by_id(Fabric.uniform(4, 8).degraded({(0, 0): "0"}))
    assert dead["T9c"] == (True, "rail 0 of node 0 is dead: at most 8/7 of the healthy time")
    assert not dead["T9b"][0]
    several = by_id(Fabric.uniform(4, 8).degraded({(0, 0): "0.5", (1, 1): "0.5"}))
    assert "T9a gives at most 8/7" in several["T1"][1]
    assert "1 more NICs" in several["T1"][1]


def test_rails_that_differ_everywhere_alike_are_t9() -> None:
    fabric = Fabric.uniform(4, 3).degraded({(node, 1): "0.5" for node in range(4)})
    assert one_profile(fabric)
    assert by_id(fabric)["T9"][0]
    assert "proportion" in by_id(fabric)["T1"][1]
    assert not one_profile(Fabric.uniform(4, 3).degraded({(node, 1): "0" for node in range(3)}))


def test_a_rail_that_is_dead_everywhere_is_t9_and_equitable_knows_it() -> None:
    fabric = Fabric.uniform(4, 3).degraded({(node, 1): "0" for node in range(4)})
    assert by_id(fabric)["T9"] == (True, "every node has the same profile of rates")
    assert warnings_for(fabric, "equitable") == []
    slower = Fabric.uniform(4, 3).degraded({(1, rail): "0.5" for rail in range(3)})
    assert by_id(slower)["T9"][0]
    assert "falls back" in warnings_for(slower, "equitable")[0]  # it needs one rate a rail


def test_nodes_may_share_rails_though_no_rail_lives_everywhere() -> None:
    why = by_id(Fabric.uniform(3, 3).degraded({(node, node): "0" for node in range(3)}))["T1"][1]
    assert "no rail lives at every node" in why
    assert "in common" not in why


def test_one_rail_has_t9b_and_not_t9c() -> None:
    slow = by_id(Fabric.uniform(2, 1).degraded({(1, 0): "0.5"}))
    assert slow["T9b"] == (True, "rail 0 of node 1 is at half speed: at most 2 of the healthy time")
    dead = by_id(Fabric.uniform(2, 1).degraded({(1, 0): "0"}))
    assert not dead["T9b"][0]
    assert not dead["T9c"][0]
    assert "two rails" in dead["T9c"][1]


def test_a_slow_nic_is_held_against_its_own_rail() -> None:
    quarter = {(node, rail): "0.25" for node in range(4) for rail in (0, 1)}
    found = by_id(Fabric.uniform(4, 3).degraded({**quarter, (2, 2): "0.5"}))
    assert "T9a gives at most 3/2 " in found["T1"][1]
    assert found["T9"] == (False, "rail 2 of node 2 is at half speed: the profiles differ")
    assert "one rate of all others" in found["T9b"][1]


def test_own_nics_move_least_where_each_gpu_has_one() -> None:
    assert by_id(Fabric.uniform(4, 4))["T14b"][0]
    dead = by_id(Fabric.uniform(4, 4).degraded({(0, 0): "0"}))["T14b"]
    assert not dead[0]
    assert "staged" in dead[1]
    assert not by_id(Fabric.uniform(4, 4, gpus=8))["T14b"][0]
    assert by_id(Fabric.uniform(4, 4, gpus=8))["T14a"][0]


def test_lpts_bound_is_not_for_slow_receivers() -> None:
    even = Fabric.uniform(3, 2, "800b/s")
    slow = Fabric(3, 2, 2, even.tx, even.degraded({(2, 0): "0.25"}).rx)
    assert by_id(even)["T6"][0]
    applies, why = by_id(slow)["T6"]
    assert not applies  # there lpt goes by the far end too
    assert "receives more slowly" in why
    assert any("T6's 4/3" in line for line in warnings_for(slow, "lpt"))


def test_a_spine_is_outside_the_theorems() -> None:
    spine = Spine(uplinks=4, rate=50 * 10**9)
    entries = applicability(Fabric.uniform(4, 4, spine=spine))
    assert "spine" in entries[0].why
    assert len({entry.id for entry in entries}) == len(entries)


def test_scale_up_too_slow_for_a_hot_gpu() -> None:
    found = by_id(Fabric.uniform(4, 8, "400Gb/s", scaleup="200GB/s"))
    assert not found["T10a"][0]
    assert "8/5 times slower" in found["T10a"][1]
    assert not found["T10d"][0]


def test_warnings_name_what_the_policy_relies_on() -> None:
    slow = Fabric.uniform(8, 8).degraded({(5, 3): "0.5"})
    assert warnings_for(Fabric.uniform(8, 8), "equitable") == []
    assert warnings_for(Fabric.uniform(2, 8), "lpt") == []
    assert "T2" in warnings_for(Fabric.uniform(8, 8), "lpt")[0]
    assert warnings_for(slow, "rotate") == [
        "rail 3 of node 5 is at half speed: T1 and T4 do not apply; T9b gives 16/15"
    ]
    assert "lpt-global" in warnings_for(slow, "equitable")[0]
    assert warnings_for(slow, "pxn") == []


@pytest.mark.slow
def test_asking_about_a_fabric_loads_no_sympy() -> None:
    code = (
        "import sys; from railopt import Fabric; from railopt.symbolic.applies import "
        "applicability, warnings_for; "
        "f = Fabric.uniform(4, 4); applicability(f); warnings_for(f, 'lpt'); "
        "print([m for m in ('sympy', 'numba', 'ortools') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True
        ).stdout
        == "[]\n"
    )
