"""NCCL's dump: distances, links and rates by hand; hostile files are refused, and quickly."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest

from railopt.base.errors import FormatError, InputError
from railopt.model.topology import parse_node
from railopt.model.topology.nccl import parse_dump
from railopt.model.topology.node import DISTANCES
from tests.damage import damaged, damaged_text
from tests.topologies import SWITCH, bridge, device, dump, gpu, net, nic, usual_dump


def words(text: str) -> list[list[str]]:
    return [[DISTANCES[i] for i in row] for row in parse_dump(text).distance]


def test_distances_follow_from_the_tree() -> None:
    text = dump(
        [bridge(0, gpu(0), nic(0), bridge(1, nic(1))), bridge(2, nic(2))],
        [bridge(3, nic(3), bridge(4, bridge(5, gpu(1))))],
    )
    assert words(text) == [["PIX", "PXB", "PHB", "SYS"], ["SYS", "SYS", "SYS", "PXB"]]
    assert words(dump([gpu(0), nic(0)])) == [["PHB"]]  # no switch at all
    plain = dump([bridge(0, gpu(0), f"<nic>{net(0)}</nic>")])  # the NIC without a device of its own
    assert words(plain) == [["PIX"]]


def test_the_usual_node_in_any_order() -> None:
    node = parse_node(usual_dump(8))
    assert node.inside.near.tolist() == np.eye(8, dtype=np.bool_).tolist()
    assert (node.scaleup, node.inside.pair) == (450 * 10**9, None)
    assert node.rates.tolist() == [50 * 10**9] * 8
    turned = dump([bridge(1, nic(1), gpu(1)), bridge(0, gpu(0), nic(0))])
    assert parse_node(turned).inside.near.tolist() == [[True, False], [False, True]]


def test_rates_come_from_the_file() -> None:
    node = parse_node(dump([bridge(0, gpu(0), nic(0, 100_000), nic(1, -1))]))
    assert node.rates.tolist() == [12_500_000_000, 50_000_000_000]
    assert "the rate of mlx5_1 is not in the file: 400Gb/s assumed" in node.assumed


def test_planes_bonds_and_nics_without_gpudirect_are_said() -> None:
    ports = f"<nic>{net(0, 200_000)}{net(1, 200_000)}</nic>"
    functions = device("0000:31:00.0", f"<nic>{net(2)}</nic>") + device(
        "0000:31:00.1", f"<nic>{net(3)}</nic>"
    )
    node = parse_node(
        dump(
            [bridge(0, gpu(0), device("0000:30:00.0", ports))],
            [bridge(1, gpu(1), functions, nic(4, more='gdr="0"'))],
        )
    )
    assert node.inside.as_dict()["near"] == [[0], [0], [1], [1], [1]]
    said = "\n".join(node.assumed)
    assert "rails 0, 1 are planes of one card: each a rail of its own" in said
    assert "rails 2, 3 are planes of one card" in said
    assert "mlx5_4 reaches no GPU's memory (gdr 0)" in said
    merged = nic(7, 800_000, name="mlx5_0+mlx5_1")
    node = parse_node(dump([bridge(0, gpu(0), nic(0), nic(1), merged)]))
    assert node.rates.tolist() == [100 * 10**9]
    assert "mlx5_0+mlx5_1 is a bond: one rail at the rate of its members together" in node.assumed
    names = ["rocep129s0f0np0", "rocep129s0f1np1", "rocep130s0f0np0"]  # together 47 characters
    parts = [nic(k, name=name) for k, name in enumerate(names)]
    node = parse_node(dump([bridge(0, gpu(0), *parts, nic(7, 800_000, name="+".join(names)))]))
    assert node.rates.tolist() == [100 * 10**9]


def direct(*targets: int, count: int = 4, kind: str = "nvlink") -> str:
    return "".join(
        f'<{kind} target="0000:1{t:x}:00.0" count="{count}" tclass="0x030200"/>' for t in targets
    )


@pytest.mark.parametrize(
    ("links", "sm", "scaleup", "pair", "said"),
    [
        ([SWITCH.format(9) * 2] * 3, 90, 450, None, "18 NVLinks per GPU at 25GB/s each"),
        ([SWITCH.format(18)] * 3, 100, 900, None, "at 50GB/s each (nominal for sm 100)"),
        ([direct(1, 2), direct(0, 2), direct(0, 1)], 80, 200, 100, "at least 4 a pair"),
        ([direct(1), direct(0, 2), direct(1)], 70, 100, 100, "some pairs of GPUs have no link"),
        ([SWITCH.format(18), SWITCH.format(17), SWITCH.format(18)], 90, 425, None, "the fewest"),
        ([direct(1, 2, 3), direct(0, 2, 3), direct(0, 1, 3)], 80, 200, 100, "8 NVLinks per GPU"),
        (["", SWITCH.format(18), ""], 90, 32, None, "PCIe at 32GB/s assumed"),
        ([direct(1, 2, count=1, kind="xgmi")] * 3, 90, 50, 50, "xGMI links per GPU"),
    ],
)
def test_scale_up(links: list[str], sm: int, scaleup: int, pair: int | None, said: str) -> None:
    node = parse_node(dump([bridge(g, gpu(g, links[g], sm), nic(g)) for g in range(3)]))
    assert node.scaleup == scaleup * 10**9
    assert node.inside.pair == (None if pair is None else pair * 10**9)
    assert said in "\n".join(node.assumed)


LAUGHS = '<!DOCTYPE s [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><system>&b;</system>'
TWO_HOSTS = usual_dump(2).replace('<cpu host_hash="0x1" numaid="1"', '<cpu host_hash="0x2"')


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (LAUGHS, "declares types or entities"),
        ('<!DOCTYPE s SYSTEM "file:///etc/passwd"><system/>', "declares types or entities"),
        ("<system><![CDATA[x]]></system>", "declares types or entities"),
        ("<system>&b;</system>", "not valid XML"),
        ("<system>" + "<pci>" * 100_000, "elements or 64 levels"),
        ("<system>" + "<a/>" * 1_000_000 + "</system>", "more than 65536 elements"),
        ("<system>" + "<gpu/>" * 60_000 + "</system>", "more than 256 GPUs or NICs"),
        ("<system><cpu></system>", "not valid XML"),
        ("<system>\0</system>", "not valid XML"),
        ("<html/>", "begins with <html>: expected NCCL's <system>"),
        ("<\x1b[2J/>", "not valid XML"),
        ("<system/>", "no GPU in it"),
        (dump([gpu(0)]), "no NIC in it"),
        (dump([nic(0)]), "no GPU in it"),
        (dump([gpu(0), nic(0, "fast")]), "'fast': expected a speed of a <net>"),
        (dump([gpu(0), nic(0, 10**12)]), "speed of a <net>, a whole number from -1"),
        (dump([gpu(0), nic(0, "9" * 5000)]), "speed of a <net>"),
        (dump([gpu(0), gpu(0), nic(0)]), "two GPUs of one number"),
        (dump([gpu(0), nic(0), nic(0)]), "two NICs of one number"),
        (TWO_HOSTS, "a dump of 2 hosts: expected one"),
    ],
)
def test_odd_and_hostile_files_are_refused(text: str, complaint: str) -> None:
    began = time.process_time()
    with pytest.raises(FormatError) as caught:
        parse_node(text, "topo.xml")
    assert str(caught.value).startswith("topo.xml: ")
    assert complaint in str(caught.value)
    assert len(str(caught.value)) < 400
    assert str(caught.value).isprintable()
    assert time.process_time() - began < 5


def test_names_from_a_file_are_printable() -> None:
    node = parse_node(dump([gpu(0), nic(0, name="&#x9;evil&#x85;" + "x" * 1000)]))
    assert all(text.isprintable() and len(text) < 400 for text in node.assumed)


@pytest.mark.slow
def test_the_largest_node_is_quick() -> None:
    deep = "".join(f'<pci busid="{i}">' for i in range(60))
    devices = "".join(
        f'<gpu dev="{i}"/><nic><net name="n{i}" dev="{i}"/></nic>' for i in range(256)
    )
    text = f"<system><cpu>{deep}{devices}{'</pci>' * 60}</cpu></system>"
    began = time.process_time()
    assert parse_node(text).inside.near.all()
    assert time.process_time() - began < 5


@pytest.mark.slow
def test_damage_is_an_input_error_or_a_node() -> None:
    complaints: list[str] = []
    dice = random.Random(5)
    text = dump(
        [bridge(0, gpu(0), nic(0), nic(2, name="a+b")), bridge(1, gpu(1), nic(1))], [nic(3)]
    ).replace("><", ">\n<")
    for case in range(1500):
        hurt = (
            damaged_text(text, dice)
            if case % 2
            else damaged(text.encode(), dice).decode("utf-8", "replace")
        )
        try:
            node = parse_node(hurt)
        except InputError as error:
            complaints.append(str(error))
        else:
            assert node.inside.near.any(axis=1).all()
            assert len(node.rates) == node.inside.near.shape[1]
    assert 100 < len(complaints) < 1500
    assert all(text.isprintable() for text in complaints)
