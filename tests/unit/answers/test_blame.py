"""Blame: one cause at a time is put into a run, and has to be named."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Plan, Traffic, plan
from railopt.answers.blame import CAUSES, Blame, blame, blame_counted, rates_seen
from railopt.base.errors import FormatError, InputError
from railopt.base.units import format_bytes
from railopt.runtime.counters import Counted, counted_between
from railopt.runtime.naming import Naming
from tests.readings import measured_links, on_wire, save_metrics, save_ports

Cli = Callable[..., Any]
RUNS = 10
FABRIC = Fabric.uniform(4, 4, "8Gb/s")
NOTHING = np.zeros((4, 4), np.int64)


def even_traffic(rng: random.Random, size: int = 1 << 20) -> np.ndarray[Any, Any]:
    """Bytes between 16 GPUs, a few percent of noise."""
    noise = [[rng.randint(98, 102) for _ in range(16)] for _ in range(16)]
    return size * np.array(noise, np.int64) // 100


def made(matrix: np.ndarray[Any, Any], policy: str = "lpt-global") -> Plan:
    return plan(FABRIC, Traffic.from_matrix(matrix, FABRIC).chunks("64KiB"), policy)


def of_ports(
    planned: Plan, sent: Any = NOTHING, received: Any = NOTHING, rate: Any = NOTHING
) -> Blame:
    """Ports that counted the plan, with headers, and these bytes more."""
    counted = Counted(
        on_wire(planned.send, RUNS) + sent, on_wire(planned.recv, RUNS) + received, rate
    )
    return blame(planned, counted, RUNS)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_each_cause_is_found(seed: int) -> None:
    rng = random.Random(seed)
    node, rail = rng.randrange(4), rng.randrange(4)
    even = made(even_traffic(rng))
    assert of_ports(even).cause == ""

    more = NOTHING.copy()
    more[node, rail] = rng.randint(20, 80) * int(even.recv[node, rail]) * RUNS // 100
    found = of_ports(even, received=more)
    assert (found.cause, found.nics[0][:3]) == ("others", (node, rail, "recv"))
    assert float(found.nics[0].others) == pytest.approx(more[node, rail] / RUNS, rel=0.02)

    moved = NOTHING.copy()
    moved[node, rail] = int(even.send[node, (rail + 1) % 4]) * RUNS
    moved[node, (rail + 1) % 4] -= moved[node, rail]
    found = of_ports(even, sent=moved)
    assert (found.cause, found.nics[0][:3]) == ("diverted", (node, rail, "send")), "a rail is dead"
    assert abs(found.nics[0].others) < 0.03 * found.nics[0].counted

    slow = np.full((4, 4), FABRIC.tx[0, 0])
    slow[node, rail] = slow[node, rail] * rng.randint(3, 8) // 10
    found = of_ports(even, rate=slow)
    assert found.cause == "slow"
    assert found.nics[0][:2] == (node, rail)

    fabric = FABRIC.degraded({(node, rail): Fraction(rng.randint(3, 8), 10)})
    links = measured_links(even, fabric)
    found = blame(even, Counted(even.send, even.recv, NOTHING, links, 1))
    assert found.cause == "slow", "from what its links achieved"
    assert found.nics[0][:2] == (node, rail)

    assert of_ports(made(even_traffic(rng), "hash")).cause == "plan"
    idle = Plan(FABRIC, even.chunks, even.rail % 3, "one rail is idle")
    assert of_ports(idle).cause == "plan"

    skewed = even_traffic(rng)
    skewed[:, 4 * node : 4 * node + 4] *= 2
    found = of_ports(made(skewed))
    assert (found.cause, found.nics[0].node, found.nics[0].side) == ("placement", node, "recv")
    found = of_ports(made(skewed.T.copy()))
    assert (found.cause, found.nics[0].node, found.nics[0].side) == ("traffic", node, "send")


@pytest.mark.parametrize("seed", range(4))
def test_terms_add_up_to_the_time(seed: int) -> None:
    rng = random.Random(100 + seed)
    more = np.array([[rng.randrange(10**6) for _ in range(4)] for _ in range(4)])
    rate = np.array([[rng.randint(4 * 10**8, 10**9) for _ in range(4)] for _ in range(4)])
    found = of_ports(made(even_traffic(rng), "hash"), more, more.T, rate)
    assert sum(found.terms.values()) == found.nics[0].time
    assert found.nics == sorted(found.nics, key=lambda nic: -nic.time)
    assert 1 <= found.headers <= Fraction(23, 20)


def test_a_plan_that_was_not_carried_out_is_not_blamed() -> None:
    planned = made(even_traffic(random.Random(1)))
    half = Counted(planned.send // 2, planned.recv // 2, NOTHING)
    sent, both = format_bytes(int(planned.send.sum())), "other readings, or another plan"
    once = format_bytes(int(half.sent.sum()))
    with pytest.raises(
        InputError, match=f"sent {once} and received .* have {sent}: {both}, or few"
    ):
        blame(planned, half)
    with pytest.raises(InputError, match=f"{both}$"):  # --runs is refused with metrics
        blame(planned, half._replace(runs=1))
    with pytest.raises(InputError, match="expected at least 1"):
        blame(planned, half, -1)
    with pytest.raises(InputError, match="3 runs, but the metrics counted 2"):
        blame(planned, Counted(planned.send, planned.recv, NOTHING, (), 2), 3)


@pytest.mark.slow
def test_the_command_reads_ports(tmp_path: Path, railopt_cli: Cli) -> None:
    planned = made(even_traffic(random.Random(2)))
    planned.save(tmp_path / "plan.npz")
    before = save_ports(tmp_path / "before", NOTHING, NOTHING)
    sent, received = on_wire(planned.send, RUNS), on_wire(planned.recv, RUNS)
    received[2, 1] *= 2
    after = save_ports(tmp_path / "after", sent, received, FABRIC.tx)
    line = ["blame", tmp_path / "plan.npz", "--counters", before, after, "--runs", RUNS]
    ran = railopt_cli(*line, "--figure", tmp_path / "hot.svg")
    assert ran.code == 0, ran.err
    assert "gpu10 mlx5_1 recv is the hottest, mostly by traffic that is not this plan's" in ran.out
    assert "<svg" in (tmp_path / "hot.svg").read_text()
    found = json.loads(railopt_cli(*line, "--json").out)
    assert found["cause"] == "others"
    assert len(found["nics"]) == 32
    other = railopt_cli(*line, "--hosts", "gpu9,gpu8,gpu11,gpu10", "--json")
    assert json.loads(other.out)["nics"][0]["node"] == 3, "gpu10 is the last of them"
    named = replace(FABRIC, hosts=("gpu9", "gpu8", "gpu11", "gpu10"))
    replace(planned, fabric=named).save(tmp_path / "named.npz")
    again = railopt_cli("blame", tmp_path / "named.npz", *line[2:], "--json")
    assert json.loads(again.out)["nics"] == json.loads(other.out)["nics"], "in the plan's order"
    assert len(railopt_cli(*line, "--format", "csv").out.splitlines()) > 32
    for wrong, words in (
        (["--counters", after, before], "BEFORE and AFTER are exchanged"),
        (["--runs", 20], "fewer runs"),
        (["--hosts", "gpu8,gpu9"], "2 hosts (gpu8, gpu9), the plan has 4 nodes"),
        (["--ib-dev", "mlx5_0"], "1 devices (mlx5_0), the plan has 4 rails"),
        (["--hosts", "a,b,c,d"], "mlx5_0 of a: bytes sent are not in both readings"),
        (["--counters", before, tmp_path / "none"], "No such file"),
        (["--counters", before, tmp_path / "plan.npz"], "not a text file"),
        (["--force"], "--force can't do anything"),
    ):
        ran = railopt_cli(*line, *wrong)
        assert ran.code == 1, wrong
        assert words in ran.err
        assert len(ran.err.splitlines()) == 1


@pytest.mark.slow
def test_the_command_reads_metrics(tmp_path: Path, railopt_cli: Cli) -> None:
    planned = made(even_traffic(random.Random(3)))
    planned.save(tmp_path / "plan.npz")
    fabric = FABRIC.degraded({(1, 3): "0.5"})
    before, after = save_metrics(tmp_path, planned, fabric, runs=5)
    line = ["blame", tmp_path / "plan.npz", "--counters", before, after]
    ran = railopt_cli(*line)
    assert ran.code == 0, ran.err
    assert "rail 3 is the hottest, mostly by a slow NIC" in ran.out
    assert "node 1" in ran.out.splitlines()[-1]
    assert "headers" not in ran.out, "metrics count payload"
    for wrong, words in (
        (["--runs", 5], "the metrics counted 5"),
        (["--hosts", "a,b"], "metrics name nodes and rails themselves"),
        (["--counters", before, before], "no run was counted"),
        (["--counters", after, before], "BEFORE and AFTER are exchanged"),
    ):
        ran = railopt_cli(*line, *wrong)
        assert ran.code == 1, wrong
        assert words in ran.err
    whole = railopt_cli(*line[:2], "--metrics", after)
    assert whole.out == railopt_cli(*line).out, "nothing was counted before"
    ports = save_ports(tmp_path / "ports", planned.send, planned.recv)
    assert "need a reading before the run" in railopt_cli(*line[:2], "--metrics", ports).err
    assert "expected one kind" in railopt_cli(*line[:3], ports, after).err
    text = after.read_text()
    (tmp_path / "inside.prom").write_text(text.replace('sender="verbs"', 'sender="loopback"'))
    inside = railopt_cli(*line[:2], "--metrics", tmp_path / "inside.prom")
    assert inside.err.startswith("runs of loopback, where no NIC took part")
    assert "slow NIC" not in inside.out, "times inside a process are those of no NIC"
    for name, huge in (
        ("link_busy_seconds_total", "9" * 900),
        ("link_sent_bytes_total", "9000000000000000000"),
    ):
        odd = re.sub(rf"(railopt_{name}{{.*}}) \S+", rf"\1 {huge}", text)
        (tmp_path / "odd.prom").write_text(odd)
        ran = railopt_cli(*line[:2], "--metrics", tmp_path / "odd.prom")
        assert (ran.code, ran.out) == (1, ""), name


def test_metrics_of_another_process_are_not_taken_off(tmp_path: Path) -> None:
    planned = made(even_traffic(random.Random(3)))
    readings = []
    for runs, name in ((2, "first"), (5, "second")):
        (tmp_path / name).mkdir()
        readings.append(str(save_metrics(tmp_path / name, planned, FABRIC, runs)[1]))
    counted = counted_between(*readings, (FABRIC.nodes, FABRIC.rails))
    assert counted.runs == 5
    assert counted.sent.tolist() == (5 * planned.send).tolist()
    with pytest.raises(InputError, match="no run was counted"):
        counted_between(readings[1], readings[1], (FABRIC.nodes, FABRIC.rails))


def test_node_exporter_is_read_and_other_devices_left_out(tmp_path: Path) -> None:
    fabric = Fabric.uniform(2, 1)
    traffic = Traffic.from_matrix(np.array([[0, 8000], [4000, 0]]), fabric)
    planned = plan(fabric, traffic.chunks("flow"))
    for when, factor in (("before", 0), ("after", 1)):
        (tmp_path / when).mkdir()
        for node in range(2):
            text = "# TYPE node_load1 gauge\nnode_load1 NaN\n"
            for device in ("mlx5_0", "mlx5_storage"):
                for side, load in (("transmitted", planned.send), ("received", planned.recv)):
                    name = f"node_infiniband_port_data_{side}_bytes_total"
                    value = 1e9 + factor * int(load[node, 0])
                    text += f'{name}{{device="{device}",port="1"}} {value:.10e}\n'
                    text += f'{name}{{device="{device}",port="2"}} 5\n'
            (tmp_path / when / f"n{node}.prom").write_text(text)
    readings = str(tmp_path / "before"), str(tmp_path / "after")
    naming = Naming((), ("mlx5_0",))
    counted = counted_between(*readings, (2, 1), naming)
    assert counted.sent.tolist() == planned.send.tolist()
    assert counted.received.tolist() == planned.recv.tolist()
    with pytest.raises(InputError, match="2 devices"):
        counted_between(*readings, (2, 1))


@pytest.mark.slow
def test_fuzzed_readings_are_read_or_refused(tmp_path: Path) -> None:
    planned = made(even_traffic(random.Random(4)))
    save_ports(tmp_path / "ports", planned.send, planned.recv, FABRIC.tx)
    metrics = save_metrics(tmp_path, planned, FABRIC, runs=1)[1].read_text()
    rng, said, read = random.Random(5), [], 0
    good = [(tmp_path / "ports" / "gpu8.txt").read_text(), metrics[:3000] + metrics[-3000:]]
    file = tmp_path / "fuzzed"
    for number in range(400):
        data = list(good[number % 2])
        for _ in range(rng.randrange(1, 6)):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(4)] = rng.choice(
                ["", "9" * 30, "-", "\n", ":", "/", '"', "\x1b", "e99", "port_xmit_data:1"]
            )
        file.write_text("".join(data))
        try:
            counted_between(str(file), str(file), (1, 4))
            read += 1
        except InputError as error:
            said.append(str(error))
    assert read
    assert said
    assert all(text.isprintable() and len(text) < 600 for text in said)


def test_every_cause_has_words() -> None:
    found = of_ports(made(even_traffic(random.Random(6)), "hash"))
    assert set(found.terms) - {"even", "headers"} <= set(CAUSES)


def test_a_nic_that_the_plan_took_for_dead_has_its_own_rate() -> None:
    """Rail 1 is dead in the plan's fabric, and as ports are read its NICs carried all."""
    fabric = Fabric.uniform(2, 2).degraded({(0, 1): "0", (1, 1): "0"})
    traffic = Traffic(np.array([[0, 0, 9, 9], [0, 0, 9, 9], [9, 9, 0, 0], [9, 9, 0, 0]]) << 20, 2)
    planned = plan(fabric, traffic.chunks("1MiB"), "lpt")
    other = planned.send[:, ::-1], planned.recv[:, ::-1]
    for rate in (50 * 10**9, 0):  # of a port that says none, the middle of all
        found = blame(planned, Counted(*other, np.full((2, 2), rate)))
        assert (found.cause, found.nics[0].rail) == ("diverted", 1)
        assert found.nics[0].rate == 50 * 10**9
    more = planned.send.copy()
    more[1, 1] = 2 * planned.send.max()
    found = blame(planned, Counted(more, planned.recv, np.zeros((2, 2), np.int64)))
    assert (found.cause, found.nics[0][:3]) == ("others", (1, 1, "send"))
    assert sum(found.terms.values()) == found.nics[0].time


def test_a_host_keeps_its_dots(tmp_path: Path) -> None:
    planned = made(even_traffic(random.Random(2)))
    before = save_ports(tmp_path / "before", NOTHING, NOTHING)
    after = save_ports(tmp_path / "after", planned.send, planned.recv)
    readings, shape = (str(before), str(after)), (FABRIC.nodes, FABRIC.rails)
    counted = counted_between(*readings, shape)
    for folder, suffix in ((before, ""), (after, ".PROM")):
        for node in range(4):
            (folder / f"gpu{8 + node}.txt").rename(folder / f"10.0.0.{node + 1}{suffix}")
    again = counted_between(*readings, shape)
    assert again.sent.tolist() == counted.sent.tolist()
    (after / "10.0.0.1.txt").write_text((after / "10.0.0.1.PROM").read_text())
    with pytest.raises(
        FormatError, match=r"host 10\.0\.0\.1 is in .*, too: expected a file a host"
    ):
        counted_between(*readings, shape)


def test_a_nic_that_is_very_slow_is_not_dead() -> None:
    planned = made(even_traffic(random.Random(4)))
    slow = FABRIC.degraded({(1, 3): "0.5"})
    links = tuple(
        replace(link, last_s=1e30) if link.rail == 3 and 1 in (link.node, link.peer) else link
        for link in measured_links(planned, slow)
    )
    counted = Counted(planned.send, planned.recv, NOTHING, links, 1)
    rates = rates_seen(FABRIC, counted, 1)
    assert min(int(side.min()) for side in rates.values()) == 1
    dead = FABRIC.degraded({(0, 0): "0"})
    silent = planned.send.copy()
    silent[0, 0] = 0
    assert rates_seen(dead, counted._replace(sent=silent), 1)["send"][0, 0] == 0


def test_a_slow_nic_of_the_fabric_is_the_cause() -> None:
    """Byte counts are those of own-nic on a healthy fabric; only the measured rates differ."""
    planned = made(even_traffic(random.Random(7)), "own-nic")
    counted = Counted(planned.send, planned.recv, NOTHING)
    blind = blame(planned, counted)
    assert (blind.cause, len(blind.hints)) == ("", 1)
    assert "byte counters alone can't see a slow NIC" in blind.hints[0]
    slow = FABRIC.degraded({(2, 1): "0.5"})
    for found in (
        blame(planned, counted, measured=slow),
        blame(Plan(slow, planned.chunks, planned.rail, "own-nic"), counted),
        blame_counted(counted, slow),
    ):
        assert (found.cause, found.nics[0][:2]) == ("slow", (2, 1))
        assert sum(found.terms.values()) == found.nics[0].time
        assert found.hints == ()


@pytest.mark.parametrize("seed", range(4))
def test_without_a_plan_bytes_stay_where_they_were_counted(seed: int) -> None:
    rng = random.Random(200 + seed)
    count = np.array([[rng.randint(1, 10**6) for _ in range(4)] for _ in range(8)])
    found = blame_counted(Counted(count[:4], count[4:], FABRIC.tx))
    assert sum(found.terms.values()) == found.nics[0].time
    assert found.nics[0].counted == count.max()
    assert "plan" not in found.verdict
    nodes = count.sum(axis=1).max()
    assert found.bound == Fraction(int(nodes), 4 * 10**9)
    with pytest.raises(InputError, match="some ports do not say their rate"):
        blame_counted(Counted(count[:4], count[4:], NOTHING))
    with pytest.raises(InputError, match="no NIC sent or received anything"):
        blame_counted(Counted(NOTHING, NOTHING, FABRIC.tx))


def test_waits_and_errors_are_read_and_named(tmp_path: Path, railopt_cli: Cli) -> None:
    planned = made(even_traffic(random.Random(8)))
    before = save_ports(tmp_path / "before", NOTHING, NOTHING, FABRIC.tx)
    after = save_ports(tmp_path / "after", planned.send, planned.recv, FABRIC.tx)
    line = ["blame", "--counters", before, after]
    ran = railopt_cli(*line)
    assert ran.code == 0, ran.err
    assert "no plan: every byte is taken to belong to the NIC that carried it" in ran.err
    assert "gpu8 mlx5_" in ran.out, "hosts and devices have their names"
    assert "waits and errors show no slow NIC, and byte counters can't see one" in ran.out
    for folder, count in ((before, 5), (after, 17)):
        file = folder / "gpu10.txt"
        more = f"/sys/class/infiniband/mlx5_3/ports/1/counters/symbol_error:{count}\n"
        more += f"/sys/class/infiniband/mlx5_3/ports/1/hw_counters/out_of_sequence:{count}\n"
        text = file.read_text() + more
        if folder is after:
            port = "mlx5_2/ports/1/counters/port_xmit_wait"
            text = text.replace(f"{port}:77", f"{port}:990")
        file.write_text(text)
    said = json.loads(railopt_cli(*line, "--json").out)["hints"]
    assert said[0] == "errors: gpu10 mlx5_3 (24)"
    assert said[1].endswith("crowded: gpu10 mlx5_2")
    assert len(said) == 2
    FABRIC.degraded({(3, 0): "0.5"}).save(tmp_path / "f.toml")
    slow = railopt_cli(*line, "--fabric", tmp_path / "f.toml")
    assert "gpu11 mlx5_0" in slow.out.splitlines()[2]
    assert "is the hottest, mostly by a slow NIC" in slow.out
    for wrong, words in (
        (["--runs", "3"], "--runs can't do anything with no PLAN"),
        (["--hosts", "gpu8,gpu9", "--fabric", tmp_path / "f.toml"], "4 nodes x 4 rails, 2 hosts"),
    ):
        ran = railopt_cli(*line, *wrong)
        assert ran.code == 1
        assert words in ran.err
