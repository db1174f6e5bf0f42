"""The connection files and topologies of htsim, as text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from railopt import Traffic
from railopt.base.errors import FormatError, InputError
from railopt.files import formats
from railopt.files.formats import Connection, format_cm, format_topo, parse_cm, parse_topo
from railopt.model.traffic import MAX_CM


def test_cm_splits_flows_beyond_int32() -> None:
    text = format_cm(2, [Connection(0, 1, 2**31 + 5)])
    nodes, connections = parse_cm(text)
    assert nodes == 2
    assert [c.size for c in connections] == [2**31 - 1, 6]


def test_cm_triggers_round_trip() -> None:
    text = format_cm(
        4,
        [
            Connection(0, 1, 10, done_trigger=1),
            Connection(2, 3, 10, done_trigger=1),
            Connection(1, 0, 5, trigger=1),
        ],
    )
    assert "trigger id 1 barrier count 2" in text
    assert list(parse_cm(text)[1])[2] == Connection(1, 0, 5, trigger=1)


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
    longest = Connection(10**6, 10**6, 2**31 - 1, trigger=10**6, done_trigger=10**6)
    lines = format_cm(10**6 + 1, [longest]).splitlines(keepends=True)[3:]
    assert (sum(map(len, lines)) + 12) * formats.MAX_CONNECTIONS <= MAX_CM  # id and count: 1
    monkeypatch.setattr(formats, "MAX_RANKS", 4)
    traffic = Traffic(np.zeros((6, 6), np.int64), 2)
    for name in ("t.csv", "t.npy", "t.txt"):
        with pytest.raises(InputError, match="a matrix of 6 GPUs"):
            traffic.save(tmp_path / name)
        assert not (tmp_path / name).exists()
    monkeypatch.setattr(formats, "MAX_CONNECTIONS", 2)
    flows = [Connection(0, 1, 5)] * 3
    with pytest.raises(FormatError, match="3 connections, at most 2"):
        parse_cm(format_cm(2, flows))
    with pytest.raises(FormatError, match="more than 8 lines"):
        parse_cm(format_cm(2, flows * 3))
