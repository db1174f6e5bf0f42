"""`nvidia-smi topo -m`: a matrix of words, GPUs first, then NICs, and a legend of their names."""

from __future__ import annotations

import re

import numpy as np

from railopt.base.errors import FormatError, printable
from railopt.base.units import parse_integer, quoted
from railopt.model.topology.node import DISTANCES, MAX_DEVICES, Nic, NodeFile, ScaleUpLinks

MAX_LINKS = 18  # no GPU has more: where its row has more in all, they go to a switch
LINK_RATE = 25 * 10**9
_GPU = re.compile(r"GPU[0-9]+")
_DEVICE = re.compile(r"[A-Za-z0-9_.:+-]{1,40}")
_NVLINK = re.compile(r"NV([0-9]{1,4})")
_LEGEND = re.compile(r"[ \t]*(NIC[0-9]+):[ \t]*(\S+)[ \t]*")


def parse_smi(text: str) -> NodeFile:
    """What the text of a matrix says; colours are gone already."""
    lines = text.splitlines()
    at = next((i for i, line in enumerate(lines) if line.split()[:1] == ["GPU0"]), len(lines))
    words = lines[at].split() if at < len(lines) else []
    end = next((i for i, word in enumerate(words) if word in ("CPU", "NUMA")), len(words))
    names = words[:end]
    gpus = sum(bool(_GPU.fullmatch(word)) for word in names)
    ordered = all(map(_GPU.fullmatch, names[:gpus])) and all(map(_DEVICE.fullmatch, names))
    if len(set(names)) != len(names) or not ordered:
        raise FormatError(
            f"columns {printable(' '.join(names), 60)}: expected each GPU once, then NICs"
        )
    if max(gpus, len(names) - gpus) > MAX_DEVICES:
        raise FormatError(f"more than {MAX_DEVICES} GPUs or NICs")
    cells = _cells(lines[at + 1 :], names)
    _check(cells, names[:gpus])
    return NodeFile(
        _nics(lines, names[gpus:]),
        np.array(
            [[_distance(cells, a, b) for b in names[gpus:]] for a in names[:gpus]], np.int64
        ).reshape(gpus, len(names) - gpus),
        _links(cells, names[:gpus]),
    )


def _cells(lines: list[str], names: list[str]) -> dict[tuple[str, str], str]:
    """The word of each pair, from the rows that are there."""
    cells: dict[tuple[str, str], str] = {}
    known = set(names)
    for line in lines:
        first, *words = line.split() or [""]
        if first not in known:
            continue
        if len(words) < len(names) or (first, first) in cells:
            raise FormatError(
                f"a row of {first} with {len(words)} words: expected one row of at least "
                f"{len(names)}, one word per column"
            )
        cells.update({(first, other): word for other, word in zip(names, words, strict=False)})
    return cells


def _check(cells: dict[tuple[str, str], str], gpus: list[str]) -> None:
    """Every GPU has a row, X is on the diagonal alone, and the matrix is the same both ways."""
    for gpu in gpus:
        if (gpu, gpu) not in cells:
            raise FormatError(f"no row of {gpu}")
    for (a, b), word in cells.items():
        if (word == "X") != (a == b):
            raise FormatError(
                f"{quoted(word)} between {a} and {b}: expected X from a device to itself alone"
            )
        if cells.get((b, a), word) != word:
            raise FormatError(
                f"{quoted(word)} from {a} to {b}, {quoted(cells[b, a])} back: expected the same"
            )


def _distance(cells: dict[tuple[str, str], str], gpu: str, nic: str) -> int:
    word = cells[gpu, nic]
    if word not in DISTANCES:
        raise FormatError(
            f"{quoted(word)} between {gpu} and {nic}: expected one of {', '.join(DISTANCES)}"
        )
    return DISTANCES.index(word)


def _links(cells: dict[tuple[str, str], str], gpus: list[str]) -> ScaleUpLinks:
    paired = np.zeros((len(gpus), len(gpus)), np.int64)
    for i, a in enumerate(gpus):
        for j, b in enumerate(gpus):
            word = cells[a, b]
            found = _NVLINK.fullmatch(word)
            if found is not None:
                paired[i, j] = parse_integer(found[1], "number of NVLinks", low=1, high=MAX_LINKS)
            elif a != b and word not in DISTANCES:
                raise FormatError(
                    f"{quoted(word)} between {a} and {b}: expected NV and a number, or one "
                    f"of {', '.join(DISTANCES)}"
                )
    switched = np.where(paired.sum(axis=1) > MAX_LINKS, paired.max(axis=1, initial=0), 0)
    because = "the matrix does not say which: 50GB/s for Blackwell"
    return ScaleUpLinks("NVLink", LINK_RATE, because, switched, paired * (switched == 0)[:, None])


def _nics(lines: list[str], names: list[str]) -> tuple[Nic, ...]:
    """NICs under the names of the legend, where there is one."""
    found = [match for line in lines if (match := _LEGEND.fullmatch(line))]
    legend = {match[1]: match[2] for match in found}
    return tuple(Nic(printable(legend.get(column, column), 40)) for column in names)
