"""The guide's way from a plain MoE layer to experts with copies, as it is printed, with the files
that `railopt place` and `railopt split` write.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from railopt import Fabric
from railopt.base.errors import FormatError
from railopt.moe.placement.files import read_location
from railopt.torch import Copies
from tests.torch.world import WAIT_S, run

GUIDE = Path(__file__).parents[2] / "docs/guides/pytorch.md"
NODES, GPUS, EXPERTS, WIDTH = 2, 2, 8, 8
ROUTING = f"routing:sigma=1,tokens=64,experts={EXPERTS},top=2"
HERE = ["--nodes", str(NODES), "--gpus", str(GPUS)]


class Expert(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(WIDTH, 16), nn.GELU(), nn.Linear(16, WIDTH))


def printed() -> str:
    """The block of the guide that has an ExpertLayer."""
    blocks = GUIDE.read_text(encoding="utf-8").split("```text\n")[1:]
    [block] = [b.split("```")[0] for b in blocks if "layer = ExpertLayer(" in b]
    return block


def followed(folder: str) -> tuple[list[float], str]:
    """Run the guide's lines; losses, and how tokens are split in the end."""
    before, losses = Path.cwd(), []
    os.chdir(folder)
    torch.manual_seed(dist.get_rank())

    def criterion(found: Any, target: Any) -> Any:
        losses.append((found - target).square().mean())
        return losses[-1]

    x = torch.randn(16, WIDTH)
    known = {
        **{"nodes": NODES, "gpus": GPUS, "experts": EXPERTS, "rank": dist.get_rank()},
        **{"fabric": Fabric.uniform(NODES, GPUS), "Expert": Expert, "torch": torch},
        **{"router": nn.Linear(WIDTH, EXPERTS), "criterion": criterion},
        "batches": [(x, x.roll(1, 1))] * 5,
    }
    try:
        exec(printed().replace("record=", f"limit_s={WAIT_S}, record="), known)
        layer = known["layer"]
        layer(x, *reversed(known["router"](x).softmax(-1).topk(2)))
        return [float(loss) for loss in losses], str(layer.dispatcher.placement.shares.tolist())
    finally:
        os.chdir(before)


def test_the_guide_runs(tmp_path: Path, railopt_cli: Callable[..., Any]) -> None:
    place = ["--planner", "replicate", "--replicas", "12", "--model-dim", "8", "--ffn", "16"]
    for name, seed in (("location", 1), ("tomorrow", 2)):
        trace, to = f"{ROUTING},steps=8,seed={seed}", str(tmp_path / f"{name}.json")
        assert railopt_cli("place", trace, *HERE, *place, "--sglang", to).code == 0
    location, split = tmp_path / "location.json", tmp_path / "split.json"
    over = ["--spare", "1", "--placement", str(location), "--json"]
    ran = railopt_cli("split", f"{ROUTING},steps=1", *HERE, *over)
    assert ran.code == 0
    split.write_text(ran.out)
    found = run(4, followed, str(tmp_path))
    assert all(losses[-1] < losses[0] for losses, _ in found)
    copies = Copies.of_split(split, read_location(location, NODES, GPUS, EXPERTS))
    assert {shares for _, shares in found} == {str(copies.shares.tolist())}
    for command in (["place", *place], ["split", "--spare", "1"]):  # what was seen
        assert railopt_cli(command[0], str(tmp_path / "seen.npz"), *HERE, *command[1:]).code == 0

    other = read_location(tmp_path / "tomorrow.json", NODES, GPUS, EXPERTS)
    with pytest.raises(FormatError, match="expected the placement that the split was made of"):
        Copies.of_split(split, other)
    with pytest.raises(FormatError, match="expected whole numbers, of 4 GPUs and 6 experts"):
        Copies.of_split(split, other.contiguous(1, 6, NODES, GPUS))
    with pytest.raises(FormatError, match="expected what railopt split --json prints of one"):
        Copies.of_split(location, other)
