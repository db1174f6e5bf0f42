"""The connection files and topologies of htsim, as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from railopt import Traffic
from railopt.base.errors import FormatError, InputError
from railopt.files import formats
from railopt.files.formats import format_stages, format_topo, parse_cm, parse_topo
from railopt.model.traffic import MAX_CM


def written(*flows: tuple[int, int, int], stage: list[int] | None = None) -> str:
    """A `.cm` of flows between four nodes."""
    columns = np.array(flows, np.int64).reshape(-1, 3).T
    return format_stages(4, *columns, None if stage is None else np.array(stage))


def test_cm_splits_flows_beyond_int32() -> None:
    nodes, connections = parse_cm(written((0, 1, 2**31 + 5), (1, 0, 2**31 - 1)))
    assert nodes == 4
    assert [c.size for c in connections] == [2**31 - 1, 6, 2**31 - 1]


def test_cm_with_triggers() -> None:
    text = written((0, 1, 10), (2, 3, 10), (1, 0, 5), stage=[0, 0, 1])
    assert text.splitlines()[2] == "Triggers 1"
    assert text.splitlines()[-1] == "trigger id 1 barrier count 2"
    first, _, last = text.splitlines()[3:6]
    assert first == "0->1 id 1 start 0 size 10 send_done_trigger 1"
    assert last == "1->0 id 3 trigger 1 size 5"
    assert list(parse_cm(text)[1]) == [(0, 1, 10), (2, 3, 10), (1, 0, 5)]


def test_topo_round_trip() -> None:
    found = parse_topo(format_topo(8, 4, 400, 500))
    assert (found.nodes, found.rails, found.gbps, found.latency_ns, found.uplinks) == (
        8,
        4,
        400,
        500,
        8,
    )
    with pytest.raises(InputError):
        parse_topo("Nodes 8\nTiers 3\n")


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("Radix_Down 4", "Radix_Down 3", "tier 1 Radix_Down 3: expected 4"),
        ("Switch_Latency_ns 0", "Switch_Latency_ns 7", "Switch_Latency_ns 7: expected 0"),
        ("Podsize", "Podzize", "'Podzize' is no key"),
        ("Radix_Up", "Queue_Up", "'tier 0 Queue_Up' is no key"),
        ("Tier 1", "Tier 2", "'tier 2 Tier' is no key"),
        ("Tier 1", "Radix_Up 8\nTier 1", "two lines 'tier 0 Radix_Up'"),
        ("Tiers 2", "Tiers 2\nTiers 2", "two lines 'Tiers'"),
    ],
)
def test_bad_topo(old: str, new: str, complaint: str) -> None:
    text = format_topo(8, 4, 400, 500)
    with pytest.raises(FormatError, match=complaint):
        parse_topo(text.replace(old, new))


def test_what_is_written_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flows = [(10**6, 10**6, 2**31 - 1)] * 3
    lines = written(*flows, stage=[0, 1, 2]).splitlines(keepends=True)
    assert lines[4].endswith("trigger 2\n")
    longest = len(lines[4]) + len(lines[-1]) + 5 * 6  # numbers of triggers, id and count: 1
    assert longest * formats.MAX_CONNECTIONS <= MAX_CM
    monkeypatch.setattr(formats, "MAX_RANKS", 4)
    traffic = Traffic(np.zeros((6, 6), np.int64), 2)
    for name in ("t.csv", "t.npy", "t.txt"):
        with pytest.raises(InputError, match="a matrix of 6 GPUs"):
            traffic.save(tmp_path / name)
        assert not (tmp_path / name).exists()
    three, nine = (written(*[(0, 1, 5)] * count) for count in (3, 9))
    monkeypatch.setattr(formats, "MAX_CONNECTIONS", 2)
    with pytest.raises(FormatError, match="3 connections, at most 2"):
        parse_cm(three)
    with pytest.raises(FormatError, match="more than 8 lines"):
        parse_cm(nine)
    with pytest.raises(InputError, match=r"a \.cm of more than 2 connections"):
        written(*[(0, 1, 5)] * 3)
