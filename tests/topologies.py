"""Made-up topology files of one node, in the forms of NCCL's dump and of nvidia-smi topo -m."""

from __future__ import annotations

from collections.abc import Sequence

SWITCH = '<nvlink target="0000:f0:00.0" count="{}" tclass="0x068000"/>'


def device(busid: str, inner: str) -> str:
    return f'<pci busid="{busid}" class="0x030000" link_width="16">{inner}</pci>'


def gpu(number: int, links: str = SWITCH.format(18), sm: int = 90) -> str:
    """A GPU on bus 1<number>."""
    inner = f'<gpu dev="{number}" sm="{sm}" rank="{number}" gdr="1">{links}</gpu>'
    return device(f"0000:1{number:x}:00.0", inner)


def net(number: int, speed: int | str = 400_000, *, name: str = "", more: str = 'gdr="1"') -> str:
    name = name or f"mlx5_{number}"
    return f'<net name="{name}" dev="{number}" speed="{speed}" port="1" {more}/>'


def nic(number: int, speed: int | str = 400_000, *, name: str = "", more: str = 'gdr="1"') -> str:
    """A NIC of one port on bus 2<number>."""
    inner = f"<nic>{net(number, speed, name=name, more=more)}</nic>"
    return device(f"0000:2{number:x}:00.0", inner)


def bridge(number: int, *inner: str) -> str:
    return device(f"0000:0{number:x}:00.0", "\n".join(inner))


def dump(*cpus: Sequence[str], host: str = "0x1") -> str:
    """A dump of one host: below each CPU its PCI devices."""
    parts = [
        f'<cpu host_hash="{host}" numaid="{i}" arch="x86_64">{"".join(inner)}</cpu>'
        for i, inner in enumerate(cpus)
    ]
    return f'<system version="1">{"".join(parts)}</system>'


def usual_dump(gpus: int = 8) -> str:
    """A NIC beside each GPU, half of them below each of two CPUs."""
    pairs = [bridge(g, gpu(g), nic(g)) for g in range(gpus)]
    return dump(pairs[: gpus // 2], pairs[gpus // 2 :])


def smi(rows: Sequence[str], *, names: Sequence[str] = (), tail: str = "\t0-63\t0\t\tN/A") -> str:
    """A matrix from its GPUs' rows, words apart by blanks; `names` of the NICs for the legend."""
    words = [row.split() for row in rows]
    gpus = [f"GPU{i}" for i in range(len(rows))]
    nics = [f"NIC{i}" for i in range(len(words[0]) - len(rows))]
    head = "\t\x1b[4m" + "\t".join([*gpus, *nics]) + "\tCPU Affinity\tNUMA Affinity\x1b[0m"
    body = ["\t".join([gpu, *row]) + tail for gpu, row in zip(gpus, words, strict=True)]
    legend = [f"  {column}: {name}" for column, name in zip(nics, names, strict=False)]
    return "\n".join([head, *body, "", "Legend:", "", "  X    = Self", "NIC Legend:", "", *legend])
