"""Fabrics: healthy, degraded, dead, and their TOML."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Spine
from railopt.base.errors import FormatError, InputError
from railopt.model.fabric import parse_nic, parse_nics
from tests.damage import damaged, damaged_text


def test_uniform() -> None:
    fabric = Fabric.uniform(nodes=4, rails=2, link="100Gb/s")
    assert fabric.tx.shape == (4, 2)
    assert fabric.tx[3, 1] == 12_500_000_000
    assert fabric.gpus == 2
    assert fabric.is_uniform
    with pytest.raises(ValueError, match="read-only"):
        fabric.tx[0, 0] = 1


def test_degraded_scales_both_directions_and_leaves_the_original() -> None:
    fabric = Fabric.uniform(4, 4)
    slow = fabric.degraded({(1, 2): "0.5", (3, 0): "0"})
    assert slow.tx[1, 2] * 2 == fabric.tx[1, 2] == fabric.rx[1, 2]
    assert slow.rx[3, 0] == 0
    assert not slow.is_uniform
    assert slow != fabric
    assert fabric == Fabric.uniform(4, 4)


@pytest.mark.parametrize(
    "nics",
    [{(4, 0): "0.5"}, {(0, 9): "0.5"}, {(0, 0): "2"}, {(0, 0): "x"}, {(0, 0): "1/999999999999999"}],
)
def test_degraded_refuses(nics: dict[tuple[int, int], str]) -> None:
    with pytest.raises(InputError):
        Fabric.uniform(4, 4).degraded(nics)


@pytest.mark.parametrize("nic", ["0:1", "01", (0.0, 1), (0, True), (0, 1, 2), (0,), 3, None])
def test_a_nic_is_a_node_and_a_rail(nic: Any) -> None:
    said = r"^NIC .*: expected (\(node, rail\)|a whole number from 0 to 3)"
    with pytest.raises(InputError, match=said):
        Fabric.uniform(4, 4).degraded({nic: "0.5"})
    with pytest.raises(InputError, match="expected fractions by"):
        Fabric.uniform(4, 4).degraded([nic])  # type: ignore[arg-type]
    numbers = {(np.int64(0), np.int32(1)): np.float64(0.5)}
    assert Fabric.uniform(4, 4).degraded(numbers).tx[0, 1] == 25 * 10**9  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change",
    [
        {"nodes": 0},
        {"rails": 0},
        {"gpus": 0},
        {"nodes": 2.5},
        {"link": "0Gb/s"},
        {"link": "1parsec"},
        {"scaleup": "-1GB/s"},
    ],
)
def test_uniform_refuses(change: dict[str, object]) -> None:
    with pytest.raises(InputError):
        Fabric.uniform(**{"nodes": 2, "rails": 2, **change})  # type: ignore[arg-type]


def test_rates_of_the_wrong_shape_or_sign() -> None:
    good = np.full((2, 2), 5)
    with pytest.raises(InputError, match="shape"):
        Fabric(2, 2, 2, np.full((2, 3), 5), good)
    with pytest.raises(InputError, match="negative"):
        Fabric(2, 2, 2, good, -good)
    with pytest.raises(InputError, match="integers"):
        Fabric(2, 2, 2, good, good + 0.5)


def test_toml_round_trip(tmp_path: Path) -> None:
    fabric = Fabric.uniform(
        3, 4, "100Gb/s", gpus=8, scaleup="300GB/s", latency="1500ns", spine=Spine(3, 10**9)
    )
    fabric = fabric.degraded({(1, 2): "1/3", (0, 0): "0"})
    fabric.save(tmp_path / "fabric.toml")
    assert Fabric.read(tmp_path / "fabric.toml") == fabric


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("nodes = 2\nrails = 2\nlink = '1Gb/s'\nspeed = 3", "unknown key 'speed'"),
        ("nodes = 2\nrails = 2", "no 'link'"),
        ("nodes = 2\nrails = 2\nlink = '0Gb/s'", "above zero"),
        (
            "nodes = 2\nrails = 2\nlink = '1Gb/s'\n[[nic]]\nnode = 0\nrail = 5\nfraction = '0.5'",
            "rail = 5: expected a whole number from 0 to 1",
        ),
        (
            "nodes = 2\nrails = 2\nlink = '1Gb/s'\n[[nic]]\nnode = 0\nrail = 1\nspeed = 1",
            "unknown key 'speed'",
        ),
        ("nodes = 2\nrails = 2\nlink = '1Gb/s'\nspine = 4", "table"),
    ],
)
def test_bad_toml(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "fabric.toml"
    path.write_text(text)
    with pytest.raises(InputError, match=complaint):
        Fabric.read(path)


def test_not_toml(tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text("nodes = = 2")
    with pytest.raises(FormatError):
        Fabric.read(tmp_path / "f.toml")
    with pytest.raises(InputError, match="No such file"):
        Fabric.read(tmp_path / "missing.toml")


@pytest.mark.parametrize(
    "text",
    [
        "nodes = '2'\nrails = 2\nlink = '1Gb/s'",
        "nodes = 2.0\nrails = 2\nlink = '1Gb/s'",
        "nodes = true\nrails = 2\nlink = '1Gb/s'",
        "nodes = 2\nrails = 2\nlink = 400",
        "nodes = 2\nrails = 2\nlink = '400'",
        "nodes = 2\nrails = 2\nlink = ['1Gb/s']",
        "nodes = 2\nrails = 2\nlink = '1e-999999999Gb/s'",
        "nodes = 1000000\nrails = 4000\nlink = '1Gb/s'",
        "nodes = 9223372036854775808\nrails = 2\nlink = '1Gb/s'",
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\nscaleup = 5",
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\nlatency = 5",
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\ngpus = nan",
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\nnic = 5",
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\nnic = [5]",
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\nspine = {uplinks = 'x'}",
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\nspine = {rate = 5}",
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\n[[nic]]\nnode = '0'\nrail = 1\nfraction = 1",
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\n[[nic]]\nnode = 0\nrail = 1\nfraction = nan",
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\n[[nic]]\nnode = 0\nrail = 1\nfraction = '1/0'",
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\n[[nic]]\nnode = 0\nrail = 1\ntx = false",
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\n[[nic]]\nnode = 0\nrail = 1\nfraction = 1\ntx = '0'",
        "x = " + "[" * 3000,
        "x" + ".x" * 200_000 + " = 1",
        "['x'" + ' . "x y"' * 50_000 + "]",
        "x" * (2 << 20),
        "x = " + "9" * 5000,
        "nodes = 2\0",
    ],
)
def test_wrong_types_and_hostile_toml_are_one_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "fabric.toml"
    path.write_text(text)
    with pytest.raises(InputError) as found:
        Fabric.read(path)
    assert str(found.value).startswith(str(path))
    assert str(found.value).isprintable()
    assert len(str(found.value)) < 500


def test_a_fraction_may_be_a_number_of_toml(tmp_path: Path) -> None:
    path = tmp_path / "fabric.toml"
    path.write_text(
        "nodes = 2\nrails = 2\nlink = '1Gb/s'\n[[nic]]\nnode = 0\nrail = 1\nfraction = 0.1"
    )
    assert Fabric.read(path) == Fabric.uniform(2, 2, "1Gb/s").degraded({(0, 1): "1/10"})


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".toml", ".topo"])
def test_fuzzed_fabrics_are_read_or_refused(tmp_path: Path, suffix: str) -> None:
    dice = random.Random(suffix)
    fabric = Fabric.uniform(4, 2, spine=Spine(4, 50 * 10**9))
    path = tmp_path / f"f{suffix}"
    (fabric.degraded({(1, 1): "1/3"}) if suffix == ".toml" else fabric).save(path)
    whole, refused = path.read_text(), []
    for _ in range(1000):
        text = damaged_text(whole, dice).encode()
        path.write_bytes(damaged(text, dice) if dice.random() < 0.3 else text)
        try:
            Fabric.read(path)
        except InputError as error:
            refused.append(str(error))
    assert 200 < len(refused) < 1000
    assert all(line.isprintable() and len(line) < 500 for line in refused)


@pytest.mark.slow
def test_many_slow_nics_of_a_large_fabric_are_read_at_once(tmp_path: Path) -> None:
    path = tmp_path / "f.toml"
    nics = "".join(f"[[nic]]\nnode = {k}\nrail = 0\nfraction = 0.5\n" for k in range(5000))
    path.write_text(f"nodes = 100000\nrails = 8\nlink = '400Gb/s'\n{nics}")
    start = time.process_time()
    assert (Fabric.read(path).tx[:, 0] == 25 * 10**9).sum() == 5000
    assert time.process_time() - start < 5


def test_nics_by_their_places() -> None:
    assert parse_nic("3:5=0.5") == ((3, 5), Fraction(1, 2))
    assert parse_nics(["0:1=1/3", "1:0=0"]) == {(0, 1): Fraction(1, 3), (1, 0): Fraction(0)}
    for bad in (
        "",
        "1=2",
        "1:2",
        "1:2=",
        "a:b=1",
        "1:2:3=1",
        "1:2=3",
        "-1:2=1",
        "1:2=1=1",
        "²:1=1",
    ):
        with pytest.raises(InputError, match="NODE:RAIL=FRACTION"):
            parse_nic(bad)
    with pytest.raises(InputError, match="given twice"):
        parse_nics(["0:1=1/3", "0:1=0"])


def test_rates_whose_sum_would_wrap_are_refused() -> None:
    rates = np.full((2, 4), 2**61)
    with pytest.raises(InputError, match="beyond int64"):
        Fabric(2, 4, 4, rates, rates)


def test_a_nic_without_a_node_is_every_nodes(tmp_path: Path) -> None:
    """A bond, or a NIC that a bridge slows down: a rail of another rate."""
    path = tmp_path / "fabric.toml"
    base = 'nodes = 3\nrails = 2\nlink = "400Gb/s"\n'
    path.write_text(base + '[[nic]]\nrail = 1\nrate = "234Gb/s"\n')
    fabric = Fabric.read(path)
    assert fabric.tx.tolist() == fabric.rx.tolist() == [[50 * 10**9, 29_250_000_000]] * 3
    assert fabric.to_toml().count("[[nic]]") == 1
    fabric.save(tmp_path / "again.toml")
    assert Fabric.read(tmp_path / "again.toml") == fabric
    path.write_text(base + '[[nic]]\nrail = 1\nfraction = "0.5"\n')
    slowed = Fabric.read(path)
    assert slowed.tx.tolist() == [[50 * 10**9, 25 * 10**9]] * 3
    path.write_text(base + '[[nic]]\nrail = 1\nrate = "1Gb/s"\n' * 3)
    with pytest.raises(InputError, match="3 tables \\[\\[nic\\]\\] name no node"):
        Fabric.read(path)


def test_names_go_through_a_file_and_make_no_other_fabric(tmp_path: Path) -> None:
    plain = Fabric.uniform(2, 3)
    named = replace(plain, hosts=("gpu01", 'g"\\é'), devices=("mlx5_0", "mlx5_1", "mlx5_4"))
    named.save(tmp_path / "f.toml")
    again = Fabric.read(tmp_path / "f.toml")
    assert (again.hosts, again.devices) == (named.hosts, named.devices)
    assert again == named == plain
    assert again.nic_name(1, 2) == 'g"\\é mlx5_4'
    assert plain.nic_name(1, 2) == "node 1 rail 2"
    assert named.degraded({(0, 0): "0.5"}).hosts == named.hosts


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('hosts = "gpu01"', "expected a list of names"),
        ('hosts = ["gpu01"]', "1 hosts: expected 2, or none"),
        ('hosts = ["gpu01", "gpu01"]', "stands there twice"),
        ('hosts = ["gpu01", 7]', "is no name of 1 to 255 characters"),
        ('devices = ["", "b"]', "is no name of 1 to 255 characters"),
        ('devices = ["a\\nb", "b"]', "is no name of 1 to 255 characters"),
    ],
)
def test_names_that_are_none_are_refused(tmp_path: Path, line: str, words: str) -> None:
    (tmp_path / "f.toml").write_text(f'nodes = 2\nrails = 2\nlink = "1Gb/s"\n{line}\n')
    with pytest.raises(InputError, match=words):
        Fabric.read(tmp_path / "f.toml")
