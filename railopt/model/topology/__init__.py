"""Topology files: one node as NCCL or nvidia-smi describe it, read into an `Inside` and rates.

    NCCL_TOPO_DUMP_FILE     XML: system / cpu / pci / ... / gpu | nic / net
    nvidia-smi topo -m      a matrix of PIX, PXB, PHB, NODE, SYS and NV#

What such a file does not say is assumed, and every assumption is kept in words (`Node.assumed`).
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from railopt.base.arrays import read_text
from railopt.base.errors import FormatError, about, printable
from railopt.base.units import parse_rate
from railopt.model.topology.nccl import parse_dump
from railopt.model.topology.node import Node, node_of
from railopt.model.topology.smi import parse_smi

__all__ = ["Node", "describes_node", "parse_node", "read_node"]

MAX_BYTES = 1 << 22
_OTHERS = (".toml", ".topo", ".npz", ".cm")
_HEAD = 1 << 16  # bytes that are read to know a matrix
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,16}m")
_MATRIX = re.compile(r"^[ \t]*GPU0[ \t]", re.MULTILINE)


def describes_node(path: str | os.PathLike[str]) -> bool:
    """Whether a file is of a topology's form: by its name (`.xml`), else by its beginning."""
    place = Path(path)
    suffix = place.suffix.lower()
    if suffix in (".xml", *_OTHERS):
        return suffix == ".xml"
    try:
        if not place.is_file():  # a pipe can be read only once
            return False
        with place.open("rb") as file:
            head = file.read(_HEAD).decode("utf-8", "replace")
    except (OSError, ValueError):
        return False
    return _form(head) is not None


def _form(text: str) -> str | None:
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        return "xml"
    return "matrix" if _MATRIX.search(_COLOUR.sub("", text)) else None


def parse_node(text: str, name: str = "topology", link: str | int | None = None) -> Node:
    """The node that a text describes; `link` is the rate of every NIC, instead of the file's."""
    form = _form(text)
    with about(f"{name}: ", FormatError):
        if form is None:
            raise FormatError(
                "of unknown form: expected the XML of NCCL_TOPO_DUMP_FILE, or the matrix of "
                "nvidia-smi topo -m"
            )
        found = parse_dump(text) if form == "xml" else parse_smi(_COLOUR.sub("", text))
        return node_of(found, None if link is None else parse_rate(link))


def read_node(path: str | os.PathLike[str], link: str | int | None = None) -> Node:
    """The node that a file describes; see `parse_node`."""
    return parse_node(read_text(path, MAX_BYTES), printable(path), link)
