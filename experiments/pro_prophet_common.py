"""What the Pro-Prophet experiments share: the shipped traces and the paper's cluster (arXiv
2411.10003, section 6).
"""

from __future__ import annotations

from pathlib import Path

from railopt.base.units import PS_PER_S
from railopt.model.fabric import Fabric
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.presets import Preset
from railopt.moe.routing.trace import Trace

TRACES = Path(__file__).resolve().parent / "traces"


def trace(name: str) -> Trace:
    """A shipped trace by name."""
    return Trace.read(TRACES / f"{name}.npz")


def consecutive(trace: Trace, need: int = 1) -> list[int]:
    """Rows whose `need` predecessors are the iterations right before them."""
    step = trace.iterations
    return [r for r in range(need, len(step)) if step[r] - step[r - need] == need]


def cluster(devices: int, spec: dict[str, object]) -> Fabric:
    """HPWNV: nodes of 4 GPUs on PCIe 3.0, one 100 Gb/s NIC a node."""
    gpus = int(str(spec["gpus"]))
    return Fabric.uniform(
        devices // gpus, 1, str(spec["link"]), gpus=gpus, scaleup=str(spec["pcie"])
    )


def flat(
    fabric: Fabric, preset: Preset, tokens: int, spec: dict[str, object], *, overlap: bool
) -> TimeModel:
    """The paper's own model: one mean bandwidth, such that an even all-to-all takes as long as on
    the nodes.
    """
    devices = fabric.nodes * fabric.gpus
    crossing = (devices - fabric.gpus) / (devices - 1)
    mean = round(int(fabric.tx[0].sum()) / (fabric.gpus * crossing))
    flops = float(str(spec["gpu_tflops"])) * 1e12
    width = int(str(spec["value_bytes"]))
    return TimeModel.flat(
        devices,
        bandwidth=mean,
        token_bytes=preset.token_bytes(width),
        expert_bytes=preset.expert_bytes(width),
        tokens_per_s=flops / preset.expert_flops,
        fnec_ps=round(tokens * preset.dense_flops * PS_PER_S / flops),
        overlap=overlap,
    )
