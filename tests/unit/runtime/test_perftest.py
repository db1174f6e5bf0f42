"""perftest's reports, as version 4.5 writes them (no JSON) and as newer ones do."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from railopt.errors import FormatError, InputError
from railopt.fabric import Fabric
from railopt.runtime.perftest import (
    MAX_REPORT,
    Measured,
    fabric_from,
    measured_rate,
    place_of,
)

OLD = """{
test_info: {
test: RDMA_Write_BW_Test,
Device: "mlx5_0",
TX_depth : 128,
},
results: {
MsgSize: 65536,
n_iterations: 5000,
BW_peak: %s,
BW_average: %s,
MsgRate: %s,
},
}
"""


def test_the_unit_follows_from_the_message_rate() -> None:
    gbits = measured_rate(OLD % ("392.1", "390.0", f"{390e9 / 8 / 65536 / 1e6:.6f}"))
    mib = measured_rate(OLD % ("46500.0", f"{48.75e9 / 2**20:.2f}", f"{48.75e9 / 65536 / 1e6:.6f}"))
    assert gbits == 48_750_000_000
    assert abs(mib - gbits) < 10**4


def test_real_json_and_several_sizes() -> None:
    sizes = [
        {
            "MsgSize": n,
            "n_iterations": 10,
            "BW_peak": 1.0,
            "BW_average": rate,
            "MsgRate": rate * 2**20 / n / 1e6,
        }
        for n, rate in ((4096, 100.0), (65536, 900.0), (8388608, 850.0))
    ]
    assert measured_rate(json.dumps({"results": sizes})) == 900 * 2**20


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no MsgSize"),
        ("not a report", "no MsgSize"),
        (OLD % ("1", "1", "0.000000"), "nothing was measured"),
        (OLD % ("1", "390.0", "0.000001"), "neither as MB/s nor as Gb/s"),
        (OLD % ("1", "3.9.0", "1"), "expected a number"),
        (OLD % ("1", "1e999999999", "1"), "expected a number below 1e15"),
        (OLD % ("1", "9" * 5000, "1"), "expected a number below 1e15"),
        (OLD % ("1", "9" * 900, "1"), "expected a number below 1e15"),
        (OLD % ("1", "-5", "1"), "nothing was measured"),
    ],
)
def test_what_is_no_report_is_refused(text: str, words: str) -> None:
    with pytest.raises(FormatError, match=words):
        measured_rate(text)


def test_names_give_the_place() -> None:
    assert place_of("x/node3_rail5.json") == (3, 5, "")
    assert place_of("3-5-tx.json") == (3, 5, "send")
    assert place_of("gpu07_mlx5_2_rx.json") == (5, 2, "recv"), "the last two numbers"
    with pytest.raises(InputError, match=r"node3_rail5\.json"):
        place_of("bandwidth.json")


def test_a_fabric_needs_every_nic_once() -> None:
    nics = [Measured(k, n, "", 100 + 10 * k + n) for k in range(2) for n in range(3)]
    fabric = fabric_from(nics)
    assert fabric.tx.tolist() == fabric.rx.tolist() == [[100, 101, 102], [110, 111, 112]]
    assert (
        fabric_from([*nics[1:], Measured(0, 0, "send", 7), Measured(0, 0, "recv", 8)]).rx[0, 0] == 8
    )
    for broken, words in (
        (nics[1:], "no report for node 0 rail 0"),
        ([*nics, nics[0]], "measured twice"),
        ([], "no reports"),
    ):
        with pytest.raises(InputError, match=words):
            fabric_from(broken)


def test_a_fabric_as_large_as_a_name_says_is_not_made() -> None:
    with pytest.raises(InputError, match="no report for node 0 rail 0"):
        fabric_from([Measured(999_999, 999_999, "", 1)])
    with pytest.raises(InputError, match="the name must end"):
        place_of("node1_rail" + "9" * 200 + ".json")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: path.mkdir(), "Is a directory"),
        (lambda path: None, "No such file"),
        (lambda path: path.write_bytes(b"\0" * (MAX_REPORT + 1)), "more than 1048576 bytes"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00MsgSize"), "no MsgSize"),
        (lambda path: path.write_text("[" * 100_000), "no MsgSize"),
    ],
)
def test_what_can_not_be_read_is_one_sentence(
    tmp_path: Path, railopt_cli: Callable[..., Any], make: Callable[[Path], Any], words: str
) -> None:
    make(tmp_path / "node0_rail0.json")
    ran = railopt_cli("fabric-from-perftest", tmp_path / "node0_rail0.json")
    assert ran.code == 1
    assert words in ran.err
    assert len(ran.err.splitlines()) == 1


def test_fuzzed_reports_give_a_rate_or_one_sentence() -> None:
    """2,000 reports with bytes changed, cut, repeated, and numbers of other sizes."""
    rng, said, rates = random.Random(4), [], []
    numbers = ["0", "-1", "1e99", "1e-99", "1e9999", "nan", "inf", "1/3", "9" * 400, ".", "e", "+-"]
    for _ in range(2000):
        values = [rng.choice([*numbers, "390.0", "0.743866"]) for _ in range(3)]
        data = bytearray((OLD % tuple(values)).encode())
        for _ in range(rng.randrange(4)):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = rng.choice(
                [b"", bytes([rng.randrange(256)]), b"MsgSize: 1", b'"', b"[" * 50]
            )
        try:
            rates.append(measured_rate(data.decode("utf-8", "replace")))
        except FormatError as error:
            said.append(str(error))
    assert rates
    assert all(0 < rate < 2**63 for rate in rates)
    assert all(text.isprintable() and len(text) < 300 for text in said)


def test_force_without_a_file_is_refused(railopt_cli: Callable[..., Any]) -> None:
    ran = railopt_cli("fabric-from-perftest", "node0_rail0.json", "--force")
    assert ran.code == 1
    assert "--force can't act" in ran.err


def test_the_command_makes_a_fabric_that_reads_back(
    tmp_path: Path, railopt_cli: Callable[..., Any]
) -> None:
    for k in range(2):
        for n in range(2):
            rate = 390 - 100 * (k == 1 and n == 0)
            (tmp_path / f"node{k}_rail{n}.json").write_text(
                OLD % (rate, rate, f"{rate * 1e9 / 8 / 65536 / 1e6:.6f}")
            )
    reports = sorted(map(str, tmp_path.glob("*.json")))
    ran = railopt_cli("fabric-from-perftest", *reports, "-o", tmp_path / "fabric.toml")
    assert ran.code == 0, ran.err
    fabric = Fabric.read(tmp_path / "fabric.toml")
    assert fabric.tx.tolist() == [[48_750_000_000] * 2, [36_250_000_000, 48_750_000_000]]
    assert "nodes = 2" in railopt_cli("fabric-from-perftest", *reports).out
    assert json.loads(railopt_cli("fabric-from-perftest", *reports, "--json").out)["rails"] == 2
    assert railopt_cli("fabric-from-perftest", reports[0], tmp_path / "fabric.toml").code == 1
