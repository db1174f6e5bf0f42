"""OpenMetrics text 1.0: families of counters and gauges, written; samples of some names, read.

What is written is also what Prometheus' older text format takes (its comments are `# UNIT` and
`# EOF`), so node_exporter's textfile collector reads it.  Both formats are read.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from railopt.base.errors import FormatError, InputError
from railopt.base.units import parse_number, quoted

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"
KINDS = {"counter": "_total", "gauge": "", "info": "_info"}
"""What a family counts, and how the names of its samples end."""
MAX_SAMPLES = 1 << 20
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*\Z", re.ASCII)
_ESCAPES = {"\\": "\\\\", "\n": "\\n", '"': '\\"'}
_SAMPLE = re.compile(
    r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)"
    r"(?:\{(?P<labels>(?:[^\"}]|\"(?:[^\"\\]|\\.)*\")*)\})?"
    r"[ \t]+(?P<value>\S+)(?:[ \t].*)?\Z",
    re.ASCII,
)
_LABEL = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)=\"((?:[^\"\\]|\\.)*)\"\s*(?:,|\Z)", re.ASCII)


class Sample(NamedTuple):
    """A number, and what tells it from the others of its family."""

    labels: Mapping[str, str]
    value: int | float | Fraction


class Family(NamedTuple):
    """Samples of one name; `unit`, where there is one, is the end of that name."""

    name: str
    kind: str
    help: str
    samples: Sequence[Sample]
    unit: str = ""


def render(families: Sequence[Family]) -> str:
    """The text of families that have samples."""
    lines = []
    for family in families:
        if not family.samples:
            continue
        suffix = KINDS[family.kind]
        if not _NAME.match(family.name) or not family.name.endswith(family.unit):
            raise InputError(
                f"{quoted(family.name)} is no name of a family in {quoted(family.unit)}"
            )
        lines.append(f"# TYPE {family.name} {family.kind}")
        if family.unit:
            lines.append(f"# UNIT {family.name} {family.unit}")
        lines.append(f"# HELP {family.name} {_escaped(family.help)}")
        lines += [
            f"{family.name}{suffix}{_labels(sample.labels)} {_number(sample.value)}"
            for sample in family.samples
        ]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _escaped(text: str) -> str:
    return "".join(_ESCAPES.get(c, c) for c in text)


def _labels(labels: Mapping[str, str]) -> str:
    inside = ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items())
    return f"{{{inside}}}" if inside else ""


def _number(value: float | Fraction) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))


def parse(text: str, names: Collection[str], what: str = "metrics") -> dict[str, list[Sample]]:
    """The samples of these names, which are those of sample lines (`..._total` for counters); other
    names are left alone.  Numbers are exact.
    """
    found: dict[str, list[Sample]] = {name: [] for name in names}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _SAMPLE.match(line.strip())
        if match is None:
            raise FormatError(
                f"{what} line {number}: {quoted(line)} is no sample: expected NAME{{LABELS}} NUMBER"
            )
        if match["name"] not in found:
            continue
        samples = found[match["name"]]
        if len(samples) >= MAX_SAMPLES:
            raise FormatError(f"{what}: more than {MAX_SAMPLES} samples of {match['name']}")
        try:
            samples.append(
                Sample(_parsed_labels(match["labels"] or ""), parse_number(match["value"]))
            )
        except InputError as error:
            raise FormatError(f"{what} line {number}: {error}") from error
    return found


def _parsed_labels(text: str) -> dict[str, str]:
    labels, at = {}, 0
    while at < len(text):
        match = _LABEL.match(text, at)
        if match is None:
            raise InputError(f'{quoted(text)} are no labels: expected NAME="VALUE", ...')
        labels[match[1]] = re.sub(
            r"\\(.)", lambda escape: "\n" if escape[1] == "n" else escape[1], match[2]
        )
        at = match.end()
    return labels
