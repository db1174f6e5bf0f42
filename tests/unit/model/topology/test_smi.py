"""The matrix of nvidia-smi topo -m: by hand, older forms, odd ones refused."""

from __future__ import annotations

import random

import pytest

from railopt.base.errors import FormatError, InputError
from railopt.model.topology import parse_node
from tests.damage import damaged, damaged_text
from tests.topologies import smi

TWO = ["X NV18 PIX NODE", "NV18 X NODE PIX"]


def test_a_matrix_with_its_legend() -> None:
    node = parse_node(smi(TWO, names=["mlx5_4", "mlx5_7"]))
    assert node.inside.as_dict()["near"] == [[0], [1]]
    assert node.assumed[0] == "rail 0 is mlx5_4, near GPU 0 (PIX)"
    without = parse_node(smi(TWO).split("Legend")[0])
    assert without.assumed[0] == "rail 0 is NIC0, near GPU 0 (PIX)"


def test_an_older_form_names_devices_in_its_columns() -> None:
    text = (
        "        GPU0    GPU1    mlx5_0  CPU Affinity\n"
        "GPU0     X      PHB     PIX     0-11\n"
        "GPU1    PHB      X      PIX     0-11\n"
        "mlx5_0  PIX     PIX      X \n"
    )
    node = parse_node(text)
    assert node.inside.as_dict() == {"near": [[0, 1]], "pair": None}
    assert node.assumed[0] == "rail 0 is mlx5_0, near GPU 0 (PIX), GPU 1 (PIX)"


@pytest.mark.parametrize(
    ("count", "gpus", "scaleup", "pair"),
    [
        (18, 8, 450, None),  # more links than a GPU has: a switch
        (12, 4, 300, None),
        (4, 4, 300, 100),  # three pairs of four
        (18, 2, 450, 450),
    ],
)
def test_switches_and_direct_links(count: int, gpus: int, scaleup: int, pair: int | None) -> None:
    rows = [
        " ".join("X" if i == j else f"NV{count}" for j in range(gpus)) + " PIX" for i in range(gpus)
    ]
    node = parse_node(smi(rows))
    assert node.scaleup == scaleup * 10**9
    assert node.inside.pair == (None if pair is None else pair * 10**9)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (smi(["X NV18 PIX", "NV17 X PIX"]), "'NV18' from GPU0 to GPU1, 'NV17' back"),
        (smi(["X NV99 PIX", "NV99 X PIX"]), "'99': expected a number of NVLinks"),
        (smi(["X NEAR PIX", "NEAR X PIX"]), "'NEAR' between GPU0 and GPU1: expected NV and"),
        (smi(["X PHB NEAR", "PHB X PIX"]), "'NEAR' between GPU0 and NIC0: expected one of PIX"),
        (smi(["X PHB NV2", "PHB X PIX"]), "'NV2' between GPU0 and NIC0"),
        (smi(["X X PIX", "X X PIX"]), "'X' between GPU0 and GPU1: expected X from a device to"),
        (smi(["PIX PIX", "PIX PIX"], tail=""), "expected X from a device to itself alone"),
        (smi(["X PHB PIX", "PHB X"], tail=""), "a row of GPU1 with 2 words"),
        ("GPU0 NIC0\nGPU0 X PIX\nGPU0 X PIX\n", "expected one row"),
        ("GPU0 GPU1 NIC0\nGPU0 X PIX PIX\n", "no row of GPU1"),
        ("GPU0 GPU0 NIC0\nGPU0 X X PIX\n", "expected each GPU once, then NICs"),
        ("GPU0 NIC0 GPU1\nGPU0 X PIX PIX\n", "expected each GPU once, then NICs"),
        ("GPU0 NIC0\nGPU0 X PIX\nNIC0 SYS X\n", "'PIX' from GPU0 to NIC0, 'SYS' back"),
        ("GPU0 \nGPU0 X\n", "no NIC in it"),
        ("GPU0 " + " ".join(f"NIC{i}" for i in range(300)), "more than 256 GPUs or NICs"),
        ("GPU0 \x1b[2J\x07\nGPU0 X \x07\n", "expected each GPU once"),
        ("GPU0 NIC0\nGPU0 X \x1b[2J\n", "between GPU0 and NIC0"),
    ],
)
def test_odd_matrices_are_refused(text: str, complaint: str) -> None:
    with pytest.raises(FormatError) as caught:
        parse_node(text, "topo.txt")
    assert str(caught.value).startswith("topo.txt: ")
    assert complaint in str(caught.value)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


@pytest.mark.slow
def test_damage_is_an_input_error_or_a_node() -> None:
    complaints: list[str] = []
    dice = random.Random(6)
    text = smi(["X NV4 PIX NODE SYS", "NV4 X NODE PXB SYS"], names=["mlx5_0", "mlx5_bond_0", "c"])
    for case in range(1500):
        hurt = (
            damaged_text(text.replace("\t", " "), dice)
            if case % 2
            else damaged(text.encode(), dice).decode("utf-8", "replace")
        )
        try:
            node = parse_node(hurt)
        except InputError as error:
            complaints.append(str(error))
        else:
            assert node.inside.near.any(axis=1).all()
            assert all(said.isprintable() for said in node.assumed)
    assert 100 < len(complaints) < 1500
    assert all(text.isprintable() for text in complaints)
