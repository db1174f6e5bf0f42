"""A strict reader of OpenMetrics text 1.0, for tests: what the specification says of counters,
gauges and infos, and nothing else.
"""

from __future__ import annotations

import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
VALUE = r'"(?:[^"\\\n]|\\["\\n])*"'
LABELS = rf"[a-zA-Z_][a-zA-Z0-9_]*={VALUE}(?:,[a-zA-Z_][a-zA-Z0-9_]*={VALUE})*"
NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABELS})\}})? ({NUMBER})\Z", re.ASCII)
META = re.compile(rf"# (TYPE|UNIT|HELP) ({NAME}) (.+)\Z", re.ASCII)
SUFFIX = {"counter": "_total", "gauge": "", "info": "_info"}


def families(text: str) -> dict[str, dict[str, float]]:
    """Samples (by name and labels, as written) of each family; an AssertionError says which line is
    wrong.
    """
    assert text.endswith("# EOF\n"), "the last line is # EOF"
    found: dict[str, dict[str, float]] = {}
    kind: dict[str, str] = {}
    current = ""
    said: set[str] = set()
    for line in text.removesuffix("# EOF\n").splitlines():
        meta = META.match(line)
        if meta is not None:
            what, name, words = meta.groups()
            if name != current:
                assert name not in found, f"{line}: a family is in one piece"
                assert what == "TYPE", f"{line}: TYPE comes first"
                current, said = name, set()
                found[name] = {}
            assert what not in said, f"{line}: said twice"
            assert not found[name], f"{line}: after its samples"
            said.add(what)
            if what == "TYPE":
                assert words in SUFFIX, line
                kind[name] = words
            if what == "UNIT":
                assert name.endswith(f"_{words}"), f"{line}: the unit is the name's end"
            continue
        sample = SAMPLE.match(line)
        assert sample is not None, f"{line!r} is no sample"
        assert sample[1] == current + SUFFIX[kind[current]], f"{line}: not of {current}"
        labels = [label.partition("=")[0] for label in re.findall(rf"\w+={VALUE}", sample[2] or "")]
        assert len(set(labels)) == len(labels), f"{line}: a label twice"
        where = line.rpartition(" ")[0]
        assert where not in found[current], f"{line}: the same sample twice"
        value = float(sample[3])
        assert kind[current] != "counter" or value >= 0, f"{line}: a counter below 0"
        found[current][where] = value
    return found
