"""Placements as files of servers: written, read back, damaged, hostile."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest

from railopt.base.errors import InputError
from railopt.moe.placement.files import LARGEST, read_location, save_map
from railopt.moe.placement.placement import Placement
from tests.damage import damaged, damaged_text

PLACED = Placement.from_phy2log([[0, 1, 2, 0], [2, 1, 0, 1]], 2, 1, 3)


def test_a_location_is_read_as_it_was_written(tmp_path: Path) -> None:
    save_map(PLACED, tmp_path / "x.json", "sglang")
    found = read_location(tmp_path / "x.json", 2, 1, 3)
    np.testing.assert_array_equal(found.holds, PLACED.holds)
    with pytest.raises(InputError, match="exists"):
        save_map(PLACED, tmp_path / "x.json", "sglang")
    with pytest.raises(InputError, match="unknown server"):
        save_map(PLACED, tmp_path / "y.json", "triton")
    with pytest.raises(InputError, match="3 layer numbers"):
        save_map(PLACED, tmp_path / "y.json", "tensorrt-llm", layers=[1, 2, 3])


def test_vllm_ascend_map_lists_every_device(tmp_path: Path) -> None:
    save_map(Placement.contiguous(2, 8, 2, 2), tmp_path / "map.json", "vllm-ascend")
    exported = json.loads((tmp_path / "map.json").read_text())
    assert exported["moe_layer_count"] == 2
    assert exported["layer_list"][1]["device_count"] == 4
    assert exported["layer_list"][1]["device_list"][3] == {"device_id": 3, "device_expert": [6, 7]}


def test_two_slots_of_an_expert_on_a_gpu_are_one_copy(tmp_path: Path) -> None:
    """As EPLB may leave them in the map that a server has now."""
    (tmp_path / "x.json").write_text('{"physical_to_logical_map": [[0, 0, 1, 2]]}')
    found = read_location(tmp_path / "x.json", 2, 1, 3)
    np.testing.assert_array_equal(found.holds, [[[1, 0, 0], [0, 1, 1]]])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "3",
        "[]",
        "{}",
        '{"physical_to_logical_map": 3}',
        '{"physical_to_logical_map": []}',
        '{"physical_to_logical_map": [[]]}',
        '{"physical_to_logical_map": [[0, 1], [0]]}',
        '{"physical_to_logical_map": [[0, 1.0]]}',
        '{"physical_to_logical_map": [[0, true]]}',
        '{"physical_to_logical_map": [["0", "1"]]}',
        '{"physical_to_logical_map": [[[0]]]}',
        '{"physical_to_logical_map": [[0, -1]]}',
        '{"physical_to_logical_map": [[0, 99999999999999999999]]}',
        '{"physical_to_logical_map": [[0, 1]]}',
        '{"physical_to_logical_map": [[0, 1, 2]], "more": 1}',
        "[" * 200_000,
        '{"physical_to_logical_map": [[' + "9" * 5000 + "]]}",
        " " * (LARGEST + 1),
        '{"physical_to_logical_map": [' + ",".join(["[0,1,2]"] * 5000) + "]}",
    ],
)
def test_other_files_are_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(InputError, match=r"x\.json") as refusal:
        read_location(tmp_path / "x.json", 32, 8, 3)
    assert "\n" not in str(refusal.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none"):
        with pytest.raises(InputError):
            read_location(path, 2, 1, 3)


@pytest.mark.slow
def test_damaged_locations_are_read_or_refused(tmp_path: Path) -> None:
    path, dice = tmp_path / "x.json", random.Random(15)
    whole = json.dumps({"physical_to_logical_map": PLACED.phy2log().tolist()}, indent=1)
    for case in range(400):
        if case % 2:
            path.write_text(damaged_text(whole, dice))
        else:
            path.write_bytes(damaged(whole.encode(), dice))
        try:
            assert read_location(path, 2, 1, 3).experts == 3
        except InputError as error:
            message = str(error)
            assert_one_line(message)


def assert_one_line(message: str) -> None:
    assert message.isprintable()
