"""`railopt migrate`: its table, its files, its refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

OPTIONS = ["--nodes", "2", "--gpus", "2", "--expert", "1MiB"]
OLD, NEW = [[0, 1, 2, 3], [0, 1, 2, 3]], [[2, 1, 0, 3], [3, 1, 2, 0]]


@pytest.fixture
def maps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("old.json").write_text(json.dumps(OLD))
    Path("new.json").write_text(json.dumps({"physical_to_logical_map": NEW}))
    Path("one.json").write_text(json.dumps(OLD[0]))
    return tmp_path


def test_the_table_and_the_files(railopt_cli: Any, maps: Path) -> None:
    files = ["-o", "moves.json", "--plan", "moves.npz", "--certificate", "batches.json"]
    files += ["--holders-certificate", "holders.json"]
    ran = railopt_cli("migrate", "old.json", "new.json", *OPTIONS, *files, "--simulate")
    assert ran.code == 0, ran.err
    assert max(map(len, ran.out.splitlines())) <= 100
    assert [line.split()[-8] for line in ran.out.splitlines()[2:]] == ["2", "2", "4"]
    moves = json.loads(Path("moves.json").read_text())
    assert [len(batch) for batch in moves["batches"]] == [2, 2]
    assert {move["layer"] for batch in moves["batches"] for move in batch} == {0, 1}
    checked = railopt_cli("check", "batches.json", "holders.json", "moves.npz")
    assert checked.code == 0
    assert checked.out.count("optimal (") == 2
    assert railopt_cli("migrate", "old.json", "new.json", *OPTIONS, *files).code == 1
    assert railopt_cli("migrate", "old.json", "new.json", *OPTIONS, *files, "--force").code == 0


def test_layers_apart_have_certificates_whose_bounds_add_up(railopt_cli: Any, maps: Path) -> None:
    options = [*OPTIONS, "--layers-apart", "--certificate", "b.json", "--json"]
    ran = railopt_cli("migrate", "old.json", "new.json", *options)
    assert ran.code == 0, ran.err
    assert "saved b-*.json" in ran.err
    files = sorted(str(file) for file in Path().glob("b-*.json"))
    assert files == ["b-0.json", "b-1.json"]
    bounds = [json.loads(Path(file).read_text())["claim"]["bound"] for file in files]
    assert sum(map(int, bounds)) == json.loads(ran.out)["batches"]["apart"]["at_least"]
    assert railopt_cli("check", *files).code == 0
    assert railopt_cli("migrate", "old.json", "new.json", *options).code == 1


def test_json_has_the_moves_and_bytes_per_nic(railopt_cli: Any, maps: Path) -> None:
    ran = railopt_cli("migrate", "one.json", "new.json", *OPTIONS, "--layers-apart", "--json")
    found = json.loads(ran.out)
    assert found["batches"]["first"]["batches"] == 4
    assert sum(map(sum, found["batches"]["apart"]["nic_send_bytes"])) == 4 << 20
    layers = [{move["layer"] for move in batch} for batch in found["migration"]["batches"]]
    assert layers == [{0}, {1}]


REFUSED = {
    "[[0, 1, 2]]": "as many slots on each of 4",
    "[[0, 1, 2, 5], [0, 1, 2, 3]]": "expert 5 of layer 0 is in no slot of the old map",
    "[[0, 1, 2, 2], [0, 1, 2, 3]]": "expert 3 of layer 0 is in no slot of the new map",
    "[[0, 1, 2, 3]]": None,
    "[[0, 1, 2, 3], [0, 1, 2]]": "no table of whole numbers",
    "[[0, 1, 2, 3.5]]": "no table of whole numbers",
    "[]": "expected whole numbers",
    "{": "not JSON",
    '{"physical_to_logical_map": [0, 1, 2, 3]}': "no table of whole numbers",
    '"map"': "a list of experts per layer",
}


@pytest.mark.parametrize("text", REFUSED)
def test_maps_that_are_none(railopt_cli: Any, maps: Path, text: str) -> None:
    Path("bad.json").write_text(text)
    ran = railopt_cli("migrate", "old.json", "bad.json", *OPTIONS)
    message = REFUSED[text]
    assert ran.code == (0 if message is None else 1)
    assert message is None or message in ran.err
    assert ran.err.count("\n") == (message is not None)


def test_without_the_size_of_an_expert_there_is_no_time(railopt_cli: Any, maps: Path) -> None:
    assert railopt_cli("migrate", "old.json", "new.json", "--nodes", "2", "--gpus", "2").code != 0
