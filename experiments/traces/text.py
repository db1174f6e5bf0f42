"""Training text that every Python installation carries, sorted by kind and cut into tokens.

Kinds, from the directories that `sysconfig` names (standard library, headers, site-packages):

    code     .py files of the standard library and of installed packages
    prose    .txt .rst .md .html, package METADATA, and `pydoc_data/topics.py` (the language
             reference)
    headers  .h .hpp .cuh files
    data     .json .csv .tsv, RECORD files, and the tables in `encodings/`

The files differ from one installation to the next, so a trace names what it read: files, bytes and
a digest a kind.
"""

from __future__ import annotations

import hashlib
import random
import re
import sysconfig
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

KINDS = ("code", "prose", "headers", "data")
SUFFIXES = {
    ".py": "code",
    **dict.fromkeys((".txt", ".rst", ".md", ".html"), "prose"),
    **dict.fromkeys((".h", ".hpp", ".cuh"), "headers"),
    **dict.fromkeys((".json", ".csv", ".tsv"), "data"),
}
PIECE = re.compile(r"[A-Za-z]+|[0-9]{1,3}| +|\n+|[^A-Za-z0-9 \n]")


def kind_of(path: Path) -> str | None:
    """The kind of text in `path`, or None for files that are not read."""
    if path.parent.name == "encodings":
        return "data"
    if path.name == "topics.py" or path.name == "METADATA":
        return "prose"
    if path.name == "RECORD":
        return "data"
    return SUFFIXES.get(path.suffix)


def roots() -> list[Path]:
    """The directories of this Python installation, each once, none inside another."""
    found = sorted(
        {
            Path(p).resolve()
            for p in (sysconfig.get_paths()[k] for k in ("stdlib", "platlib", "purelib", "include"))
        }
    )
    base = sysconfig.get_paths(vars={"base": sysconfig.get_config_var("installed_base")})["stdlib"]
    found = sorted({*found, Path(base).resolve()})
    return [p for p in found if p.is_dir() and not any(q in p.parents for q in found)]


@dataclass(frozen=True)
class Corpus:
    """Token streams by kind (uint16), the vocabulary size, and where the text came from."""

    tokens: dict[str, np.ndarray]
    vocabulary: int
    source: dict[str, dict[str, object]]


def _read_kind(files: list[Path], limit: int, seed: int) -> tuple[str, dict[str, object]]:
    """Whole files in a seeded order until `limit` bytes; the order is by name, so two equal
    installations agree.
    """
    random.Random(seed).shuffle(files)
    parts: list[str] = []
    taken = 0
    for path in files:
        try:
            text = path.read_bytes()[: 1 << 20].decode("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        parts.append(text)
        taken += len(text)
        if taken >= limit:
            break
    joined = "\n".join(parts)[:limit]
    digest = hashlib.blake2b(joined.encode(), digest_size=8).hexdigest()
    return joined, {"files": len(parts), "bytes": len(joined), "digest": digest}


def load(limit: int, vocabulary: int, seed: int) -> Corpus:
    """Reads at most `limit` bytes a kind; tokens are the most frequent pieces, and bytes for
    everything else.
    """
    by_kind: dict[str, list[Path]] = {k: [] for k in KINDS}
    for root in roots():
        for path in sorted(root.rglob("*")):
            kind = kind_of(path)
            if kind and path.is_file() and 256 < path.stat().st_size < 1 << 22:
                by_kind[kind].append(path)
    texts: dict[str, str] = {}
    source: dict[str, dict[str, object]] = {}
    for kind in KINDS:
        if not by_kind[kind]:
            raise SystemExit(
                f"no {kind} files under {[str(r) for r in roots()]}; install this Python's "
                f"development files"
            )
        texts[kind], source[kind] = _read_kind(by_kind[kind], limit, seed)
    pieces = {kind: PIECE.findall(text) for kind, text in texts.items()}
    frequent = Counter(p for kind in KINDS for p in pieces[kind] if len(p.encode()) > 1)
    ids = {p: 256 + i for i, (p, _) in enumerate(frequent.most_common(vocabulary - 256))}
    tokens = {kind: _encode(pieces[kind], ids) for kind in KINDS}
    for kind in KINDS:
        source[kind]["tokens"] = len(tokens[kind])
    return Corpus(tokens, vocabulary, source)


def _encode(pieces: list[str], ids: dict[str, int]) -> np.ndarray:
    out: list[int] = []
    for piece in pieces:
        known = ids.get(piece)
        if known is None:
            out.extend(piece.encode())
        else:
            out.append(known)
    return np.asarray(out, dtype=np.uint16)
