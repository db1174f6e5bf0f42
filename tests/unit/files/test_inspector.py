"""NCCL Inspector's lines: which are read, and which are counted as none of its."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest

from railopt import Fabric
from railopt.files.inspector import USUAL
from railopt.model.running import running_job
from tests.inspector import GPUS, NODES, START, drawn, exchange, write

FABRIC = Fabric.uniform(NODES, GPUS)


def test_a_line_in_another_order_counts_as_much(tmp_path: Path) -> None:
    matrix = drawn(3)
    mixed = [
        dict(random.Random(i).sample(list(one.items()), 3))
        for i, one in enumerate(exchange(matrix))
    ]
    job = running_job(write(tmp_path / "run", mixed), FABRIC)
    np.testing.assert_array_equal(job.traffic.bytes, matrix)


@pytest.mark.parametrize("channels", [0, 1, 3])
@pytest.mark.parametrize("quick", [True, False])
def test_the_beginning_of_an_operation_counts_where_it_is_known(
    tmp_path: Path, channels: int, quick: bool
) -> None:
    """Lines of NCCL_INSPECTOR_DUMP_VERBOSE=1, as the plugin writes them and with more in them."""
    matrix = drawn(6)
    records = list(exchange(matrix))
    for one in records:
        late = one["p2p_perf"]["p2p_sn"] > 4
        for unit, start in (("sn", 1), ("ts", START + (5_000 if late else 0))):
            events = {f"kernel_{event}_{unit}": start + 9 for event in ("start", "stop", "record")}
            one["p2p_perf"][f"event_trace_{unit}"] = {
                f"p2p_start_{unit}": start,
                f"p2p_stop_{unit}": start + 1,
                "kernel_events": [{"channel_id": channel, **events} for channel in range(channels)],
                **({} if quick else {"more": 1}),
            }
    assert bool(USUAL.fullmatch(json.dumps(records[0]).encode())) == quick
    job = running_job(write(tmp_path / "run", records) + ":to=1ms", FABRIC)
    np.testing.assert_array_equal(job.traffic.bytes, matrix)
    assert "differ in what was sent and received" in job.notes[0]


def test_pipes_and_folders_are_not_read(tmp_path: Path) -> None:
    matrix = drawn(19)
    text = write(tmp_path / "run", exchange(matrix))
    (tmp_path / "run" / "x.log").mkdir()
    os.mkfifo(tmp_path / "run" / "z.log")
    job = running_job(text, FABRIC)
    np.testing.assert_array_equal(job.traffic.bytes, matrix)
    assert job.notes == ()


def test_a_damaged_line_is_none_of_inspector(tmp_path: Path) -> None:
    """Numbers that JSON refuses, in the first line of a process and in others."""
    matrix = drawn(17)
    text = write(tmp_path / "run", exchange(matrix))
    good = (tmp_path / "run" / "gpu0-1000.log").read_text()
    line = good.splitlines()[0]
    bad = [
        line.replace(*change)
        for change in (
            ('"rank": 0', '"rank": 00'),
            ("19.065018", "1.9.06"),
            (" 50,", f" {'5' * 9999},"),
        )
    ]
    (tmp_path / "run" / "gpu0-1000.log").write_text("\n".join([*bad, good, bad[1]]))
    job = running_job(text, FABRIC)
    np.testing.assert_array_equal(job.traffic.bytes, matrix)
    assert job.notes == ("lines that are no operation of NCCL Inspector: 4",)
