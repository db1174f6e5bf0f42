"""perftest's reports, as version 4.5 writes them (no JSON) and as newer ones do."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from railopt.base.errors import FormatError, InputError
from railopt.model.fabric import Fabric
from railopt.runtime.naming import Naming, hosts_from, in_natural_order
from railopt.runtime.perftest import (
    MAX_REPORT,
    Gathered,
    Measured,
    calm_step,
    fabric_from,
    measured_rate,
    place_of,
    rounded,
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
    assert place_of("pod7-node3_x1_rail5_rx.json") == (3, 5, "recv")
    for other in ("bandwidth.json", "gpu07-mlx5_2.json"):
        with pytest.raises(InputError, match=r"node3_rail5\.json.*need the hosts"):
            place_of(other)


def test_a_fabric_needs_every_nic_once() -> None:
    nics = [Measured(k, n, "", 100 + 10 * k + n) for k in range(2) for n in range(3)]
    fabric = fabric_from(Gathered(nics))
    assert fabric.tx.tolist() == fabric.rx.tolist() == [[100, 101, 102], [110, 111, 112]]
    apart = [*nics[1:], Measured(0, 0, "send", 7), Measured(0, 0, "recv", 8)]
    assert fabric_from(Gathered(apart)).rx[0, 0] == 8
    for broken, words in (
        (nics[1:], "no report for node 0 rail 0"),
        ([*nics, nics[0]], "measured twice"),
        ([], "no reports"),
    ):
        with pytest.raises(InputError, match=words):
            fabric_from(Gathered(broken))


def test_reports_that_failed_are_no_measurements() -> None:
    failed = [Measured(k, n, "", 0) for k in range(2) for n in range(2)]
    with pytest.raises(InputError, match="send rates of 0 of the 4 NICs"):
        fabric_from(Gathered(failed), missing_dead=True)
    half = [*failed[:2], *(Measured(1, n, "", 100) for n in range(2))]
    assert fabric_from(Gathered(half), missing_dead=True).tx.tolist() == [[0, 0], [100, 100]]
    sends = [Measured(k, n, "send", 100) for k in range(2) for n in range(2)]
    with pytest.raises(InputError, match="recv rates of 0 of the 4 NICs"):
        fabric_from(Gathered(sends), missing_dead=True)


def test_a_fabric_as_large_as_a_name_says_is_not_made() -> None:
    huge = Gathered([Measured(999_999, 999_999, "", 1)])
    with pytest.raises(InputError, match="no report for node 0 rail 0"):
        fabric_from(huge)
    with pytest.raises(InputError, match="expected at least half"):
        fabric_from(huge, missing_dead=True)
    with pytest.raises(InputError, match="expected a name with"):
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
    assert "--force can't do anything" in ran.err


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


def _report(gbps: float) -> str:
    return OLD % (gbps, gbps, f"{gbps * 1e9 / 8 / 65536 / 1e6:.6f}")


def test_names_by_host_and_device() -> None:
    naming = Naming(("gpu1", "gpu10", "gpu2"))
    names = ["gpu1-mlx5_10", "gpu10_mlx5_2_tx", "gpu2.mlx5_2", "gpu1:mlx5_2-rx"]
    places = [(0, 1, ""), (1, 0, "send"), (2, 0, ""), (0, 0, "recv")]
    assert naming.places(names) == places
    assert naming._replace(devices=("mlx5_10", "mlx5_2")).places(names[:1]) == [(0, 0, "")]
    for name, words in (
        ("gpu3-mlx5_0", "with a host of those named"),
        ("gpu1-", "with a host of those named"),
        ("gpu1", "with a host of those named"),
    ):
        with pytest.raises(InputError, match=words):
            naming.places([name])
    with pytest.raises(InputError, match="device 'roce9' is not among those named: mlx5_0"):
        Naming(("a",), ("mlx5_0",)).places(["a-roce9"])
    assert in_natural_order(["b", "a10", "a9", "a10", "a09x"]) == ("a9", "a09x", "a10", "b")


def test_hosts_come_as_a_list_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("# the pod\ngpu[02-03] slots=8\n\ngpu01  # was moved\n")
    assert hosts_from(str(file)) == ("gpu02", "gpu03", "gpu01")
    assert hosts_from("gpu[1-2],login") == ("gpu1", "gpu2", "login")
    file.write_text("gpu1\ngpu1\n")
    with pytest.raises(InputError, match="host gpu1 is named twice"):
        hosts_from(str(file))
    file.write_text("# nobody\n")
    with pytest.raises(InputError, match="names no host"):
        hosts_from(str(file))
    assert len(hosts_from(",".join(f"gpu-node-{k:04}" for k in range(40)))) == 40  # no file's name
    for bomb in (f"gpu[{','.join(['0-65534'] * 5000)}]", "gpu[0-60000],gpu[0-60000]"):
        with pytest.raises(InputError, match="more than 65536 hosts"):
            hosts_from(bomb)
    with pytest.raises(InputError, match="host gpu60000 is named twice"):
        hosts_from("gpu[0-60000],gpu60000")
    file.write_bytes(b"\xff\x00")
    with pytest.raises(InputError, match="not a text file"):
        hosts_from(str(file))


def test_rounding_makes_noise_alike_and_keeps_what_is_slow() -> None:
    rng = random.Random(20)
    nics = [
        Measured(k, n, "", rng.randint(48_600_000_000, 48_900_000_000))
        for k in range(64)
        for n in range(8)
    ]
    nics[77] = nics[77]._replace(rate=29_000_000_000)
    nics[78] = nics[78]._replace(rate=0)
    nics[79] = nics[79]._replace(rate=5)
    noisy = fabric_from(Gathered(nics))
    calm = rounded(noisy, "1%")
    assert len(noisy.to_toml().splitlines()) > 2000
    assert len(calm.to_toml().splitlines()) < 30
    step = int(calm.tx.max()) // 100
    assert abs(int(calm.tx[9, 5]) - 29_000_000_000) <= step // 2 + 1
    assert calm.tx[9, 6] == 0
    assert calm.tx[9, 7] == step, "what lives stays alive"
    assert rounded(noisy, "5Gb/s").tx.max() == 78 * 625_000_000
    for wrong in ("0%", "-1%", "101%", "x%", "7", "0Gb/s", "999Gb/s"):
        with pytest.raises(InputError):
            rounded(noisy, wrong)


def test_the_command_takes_hosts_and_calls_what_is_missing_dead(
    tmp_path: Path, railopt_cli: Callable[..., Any]
) -> None:
    for host in ("gpu07", "gpu01"):
        for device in ("mlx5_2", "mlx5_10"):
            (tmp_path / f"{host}-{device}.json").write_text(_report(390))
    (tmp_path / "gpu01-mlx5_2.json").unlink()
    (tmp_path / "gpu07-mlx5_10.json").write_text("Couldn't connect to peer\n")
    reports = sorted(tmp_path.glob("*.json"))
    command = ("fabric-from-perftest", *reports, "--hosts", "gpu07,gpu01")
    ran = railopt_cli(*command)
    assert ran.code == 1
    assert "no MsgSize" in ran.err
    assert "--missing dead" in ran.err
    ran = railopt_cli(*command, "--missing", "dead", "--json")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out)["tx"] == [[48_750_000_000, 0], [0, 48_750_000_000]]
    assert "dead: gpu07-mlx5_10.json: no MsgSize" in ran.err
    named = [nic["name"] for nic in json.loads(ran.out)["outliers"]]
    assert named == ["gpu07 mlx5_10", "gpu01 mlx5_2"]
    given = (*command, "--missing", "dead", "--ib-dev", "mlx5_10,mlx5_2", "--round", "1%")
    assert json.loads(railopt_cli(*given, "--json").out)["tx"][0] == [0, 48_750_000_000]
    assert "can't do anything without --hosts" in railopt_cli(*command[:-2], "--ib-dev", "a").err


def test_what_is_dead_one_way_or_has_no_report_is_named(
    tmp_path: Path, railopt_cli: Callable[..., Any]
) -> None:
    for node in range(2):
        for rail in range(2):
            for way in ("tx", "rx"):
                (tmp_path / f"node{node}_rail{rail}_{way}.json").write_text(_report(390))
    reports = sorted(tmp_path.glob("*.json"))
    (tmp_path / "node0_rail1_rx.json").unlink()
    (tmp_path / "node1_rail0_tx.json").write_text("Couldn't connect to peer\n")
    ran = railopt_cli("fabric-from-perftest", *reports)
    assert ran.code == 1
    assert "No such file or directory; --missing dead counts it as a dead NIC" in ran.err
    ran = railopt_cli("fabric-from-perftest", *reports, "--missing", "dead", "--json")
    assert ran.code == 0, ran.err
    found = json.loads(ran.out)
    assert (found["tx"][1][0], found["rx"][0][1], found["rx"][1][0]) == (0, 0, 48_750_000_000)
    assert "node0_rail1_rx.json: No such file" in ran.err
    named = [(nic["name"], nic["side"]) for nic in found["outliers"]]
    assert named == [("node 0 rail 1", "recv"), ("node 1 rail 0", "send")]
    (tmp_path / "node0_rail1_rx.json").mkdir()
    ran = railopt_cli("fabric-from-perftest", *reports, "--missing", "dead")
    assert (ran.code, "Is a directory" in ran.err) == (1, True)


def test_suffixes_may_be_in_upper_case_and_say_what_is_written(
    tmp_path: Path, railopt_cli: Callable[..., Any]
) -> None:
    for rail in range(2):
        (tmp_path / f"gpu1-mlx5_{rail}.JSON").write_text(_report(390))
    command = ("fabric-from-perftest", *sorted(tmp_path.glob("*.JSON")), "--hosts", "gpu1")
    ran = railopt_cli(*command, "-o", tmp_path / "measured.json")
    assert (ran.code, (tmp_path / "measured.json").exists()) == (1, False)
    assert "expected a name that ends in .toml" in ran.err
    assert railopt_cli(*command, "-o", tmp_path / "measured.TOML").code == 0
    assert Fabric.read(tmp_path / "measured.TOML").rails == 2


def test_noise_makes_no_long_file(tmp_path: Path, railopt_cli: Callable[..., Any]) -> None:
    rng = random.Random(21)
    for node in range(3):
        for rail in range(8):
            (tmp_path / f"node{node}_rail{rail}.json").write_text(_report(rng.uniform(390, 391)))
    command = ("fabric-from-perftest", *sorted(tmp_path.glob("*.json")))
    ran = railopt_cli(*command)
    assert len(ran.out.splitlines()) < 10
    assert "24 different rates: rounded to 1%" in ran.err
    exact = railopt_cli(*command, "--round", "0")
    assert exact.out.count("[[nic]]") >= 23
    assert exact.err == ""
    assert railopt_cli(*command, "--round", "nothing").code == 1


@pytest.mark.parametrize(("width", "step"), [(0.004, "1%"), (0.01, "2%"), (0.02, "5%")])
def test_the_step_grows_with_the_noise(width: float, step: str) -> None:
    rng = random.Random(22)

    def measured(middle: Callable[[int], float]) -> Fabric:
        nics = [
            Measured(k, n, "", int(middle(k) * rng.uniform(1 - width, 1 + width)))
            for k in range(32)
            for n in range(8)
        ]
        return fabric_from(Gathered([*nics[:-1], nics[-1]._replace(rate=20 * 10**9)]))

    noisy = measured(lambda node: 48e9)
    assert calm_step(noisy) == step
    assert len(rounded(noisy, step).to_toml().splitlines()) < 30
    assert calm_step(measured(lambda node: 48e9 - node * 7e8)) == "1%", "nodes that differ"


PRINTED = """---------------------------------------------------------------------------------------
                    RDMA_Write BW Test
 Number of qps   : 1\t\tTransport type : IB
 local address: LID 0x07 QPN 0x0901 PSN 0xf40c3c RKey 0x2000201 VAddr 0x007f282a06e000
---------------------------------------------------------------------------------------
 #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 1500.000000 != 3300.016000. CPU Frequency is not max.
{lines}
---------------------------------------------------------------------------------------
"""


def printed(gbps: float, unit: str = "Gb/sec", sizes: tuple[int, ...] = (65536,)) -> str:
    """What ib_write_bw prints for a rate in Gb/s."""
    shown = gbps if unit == "Gb/sec" else gbps * 1e9 / 8 / 2**20
    lines = [
        f" {size}      5000             0.00               {shown:.2f}    {gbps * 125 / size:.6f}"
        for size in sizes
    ]
    return PRINTED.format(unit=unit, lines="\n".join(lines))


@pytest.mark.parametrize("unit", ["Gb/sec", "MB/sec", "MiB/sec"])
def test_what_perftest_prints_is_a_report(unit: str) -> None:
    assert measured_rate(printed(390, unit)) == pytest.approx(48.75e9, rel=1e-5)
    assert measured_rate(printed(390, unit, (2048, 65536))) == pytest.approx(48.75e9, rel=1e-5)


@pytest.mark.parametrize(
    "text", [printed(390).replace("#bytes", "bytes"), "#bytes", "#bytes\n1 2 3"]
)
def test_what_is_printed_without_its_table_is_refused(text: str) -> None:
    with pytest.raises(FormatError, match="no MsgSize"):
        measured_rate(text)


def test_slow_nics_come_first_by_host_and_device(
    tmp_path: Path, railopt_cli: Callable[..., Any]
) -> None:
    rates = {("gpu10", 5): 271, ("gpu08", 1): 370, ("gpu11", 0): 120}
    for host in ("gpu08", "gpu09", "gpu10", "gpu11"):
        for n in range(6):
            path = tmp_path / f"{host}-mlx5_{n}.log"
            path.write_text(printed(rates.get((host, n), 392)))
    command = ["fabric-from-perftest", *sorted(tmp_path.glob("*.log")), "--hosts", "gpu[08-11]"]
    ran = railopt_cli(*command, "-o", tmp_path / "today.toml")
    assert ran.code == 0, ran.err
    slow = [
        "gpu11 mlx5_0: 120 Gb/s, 69 % below the median",
        "gpu10 mlx5_5: 271 Gb/s, 31 % below the median",
        "gpu08 mlx5_1: 370 Gb/s, 6 % below the median",
    ]
    assert ran.out.splitlines() == slow
    made = Fabric.read(tmp_path / "today.toml")
    assert made.nic_name(2, 5) == "gpu10 mlx5_5"
    shown = railopt_cli("fabric", "show", tmp_path / "today.toml", "--node", "2")
    assert shown.out.splitlines()[:3] == slow, "names and rates went through the file"
    assert "rail 5 mlx5_5  271Gb/s" in shown.out
    assert "rates are those of node 2 (gpu10)" in shown.out
    alone = railopt_cli(*command)
    assert alone.err.splitlines() == slow
    assert alone.out == (tmp_path / "today.toml").read_text(), "stdout is the file alone"
