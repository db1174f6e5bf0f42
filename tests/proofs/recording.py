"""A pytest plugin: everything that the checker is asked to check, and what it says, is written to
$RAILOPT_RECORD, each once.

Loaded with -p tests.proofs.recording.  Modules that `import railopt` has loaded hold the kernel's
functions under names of their own: they get these functions too, as later importers do.
Of processes that a test starts, those are recorded that run the kernel's file by itself, without
what they say.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType
from typing import Any

from tests.proofs.saying import said

kernel: Any = importlib.import_module("railopt.checker")
FOLDER = Path(os.environ["RAILOPT_RECORD"])
LARGEST = 1 << 26  # bytes of a file that is kept
_plain_certificate, _plain_check = kernel.check_certificate, kernel.check
_plain_run = subprocess.run


def beside(record: Any, directory: Any) -> Iterator[tuple[str, bytes]]:
    """Name and content of the plan files that a record names."""
    problem = record.get("problem") if isinstance(record, dict) else None
    named = [problem.get("plan") if isinstance(problem, dict) else None]
    named += [record.get("best")] if isinstance(record, dict) else []
    for entry in named:
        name = entry.get("file") if isinstance(entry, dict) else None
        if isinstance(name, str) and name and os.path.basename(name) == name:
            source = Path(directory or ".") / name
            if source.is_file() and source.stat().st_size <= LARGEST:
                yield name, source.read_bytes()


def keep(files: dict[str, bytes], verdict: Any = None) -> None:
    """Write files into a folder of their own, named after what is in them."""
    digest = hashlib.blake2b(digest_size=16)
    for name, data in sorted(files.items()):
        digest.update(b"%d %d " % (len(name.encode()), len(data)) + name.encode() + data)
    folder = FOLDER / digest.hexdigest()
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        return
    for name, data in files.items():
        (folder / name).write_bytes(data)
    if verdict is not None:
        (folder / "verdict").write_text(json.dumps(said(verdict)), encoding="utf-8")


def check_certificate(record: Any, directory: Any = None, work: int = kernel.WORK) -> Any:
    try:
        text = json.dumps(record)
    except (TypeError, ValueError, RecursionError):
        text = ""
    verdict = _plain_certificate(record, directory, work)
    if work == kernel.WORK and 0 < len(text) <= LARGEST:
        keep({"recorded.json": text.encode(), **dict(beside(record, directory))}, verdict)
    return verdict


def check(path: Any, work: int = kernel.WORK) -> Any:
    verdict, source = _plain_check(path, work), Path(path)
    if source.stat().st_size <= LARGEST and (data := source.read_bytes()).startswith(b"PK"):
        keep({"recorded.npz": data}, verdict)
    return verdict


def run(line: Any, *args: Any, **options: Any) -> Any:
    words = [str(word) for word in line] if isinstance(line, list) else []
    own = str(Path(kernel.__file__))
    for name in words[words.index(own) + 1 :] if own in words else []:
        source = Path(name)
        if source.is_file() and source.stat().st_size <= LARGEST:
            keep_file(source)
    return _plain_run(line, *args, **options)


def keep_file(source: Path) -> None:
    """A certificate or a plan that another process is to check."""
    data = source.read_bytes()
    if data.startswith(b"PK"):
        keep({"recorded.npz": data})
        return
    try:
        record = kernel.parsed(data)
    except (ValueError, RecursionError):
        return  # damaged files have a test of their own
    keep({"recorded.json": data, **dict(beside(record, source.parent))})


def install() -> None:
    """Put the recording functions wherever a module of railopt holds the kernel's own."""
    ours = {_plain_certificate: check_certificate, _plain_check: check}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "railopt":
            for key, value in list(vars(module).items()):
                if isinstance(value, FunctionType) and value in ours:
                    setattr(module, key, ours[value])
    subprocess.run = run


install()
