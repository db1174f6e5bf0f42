"""OpenMetrics: what is written is valid, and what others write is read."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from railopt.base.errors import FormatError, InputError
from railopt.files.openmetrics import Family, Sample, parse, render
from tests.openmetrics import families

ODD = 'a "quoted" \\ back\nslash, {brace}'


def test_what_is_written_is_valid_and_reads_back() -> None:
    text = render(
        [
            Family("a_bytes", "counter", f"Help with {ODD}.", [Sample({}, 3)], "bytes"),
            Family("empty", "gauge", "No samples.", []),
            Family("b", "gauge", "B.", [Sample({"x": ODD, "y": ""}, 0.5), Sample({"x": "z"}, 7)]),
            Family("railopt", "info", "I.", [Sample({"version": "1"}, Fraction(1))]),
        ]
    )
    assert list(families(text)) == ["a_bytes", "b", "railopt"]
    read = parse(text, {"a_bytes_total", "b"})
    assert read["a_bytes_total"] == [Sample({}, Fraction(3))]
    assert read["b"] == [Sample({"x": ODD, "y": ""}, Fraction(1, 2)), Sample({"x": "z"}, 7)]
    assert render([]) == "# EOF\n"


@pytest.mark.parametrize(
    "text",
    [
        "a 1\n",
        "# TYPE a counter\na 1\n# EOF\n",
        "# TYPE a gauge\na 1\na 2\n# EOF\n",
        "# TYPE a gauge\na 1\n# TYPE b gauge\nb 1\na 2\n# EOF\n",
        "# TYPE a gauge\n# UNIT a seconds\na 1\n# EOF\n",
        '# TYPE a gauge\na{x="1",x="2"} 1\n# EOF\n',
        "# TYPE a gauge\n\na 1\n# EOF\n",
        "# TYPE a counter\na_total -1\n# EOF\n",
        "# TYPE a gauge\na NaN\n# EOF\n",
    ],
)
def test_the_strict_reader_can_fail(text: str) -> None:
    with pytest.raises(AssertionError):
        families(text)


def test_prometheus_text_of_others_is_read() -> None:
    text = (
        "# HELP node_x words\n# TYPE node_x counter\n\n"
        'node_x{device="mlx5_0", port="1",} 1.2345e+10 1395066363000\n'
        'node_y NaN\nnode_z{le="+Inf"} +Inf\n'
    )
    assert parse(text, {"node_x"}) == {
        "node_x": [Sample({"device": "mlx5_0", "port": "1"}, Fraction(12_345_000_000))]
    }
    for wrong, words in (
        ("node_x{a=1} 1", "are no labels"),
        ("node_x", "is no sample"),
        ("node_x NaN", "is not a number"),
        ('node_x{a="b} 1', "is no sample"),
        ("{} 1", "is no sample"),
    ):
        with pytest.raises(FormatError, match=words):
            parse(wrong, {"node_x"})


def test_names_are_checked() -> None:
    with pytest.raises(InputError, match="is no name of a family"):
        render([Family("a b", "gauge", "", [Sample({}, 1)])])
    with pytest.raises(InputError, match="is no name of a family"):
        render([Family("a", "gauge", "", [Sample({}, 1)], "seconds")])


def test_fuzzed_text_is_read_or_refused_in_one_sentence() -> None:
    rng = random.Random(20)
    good = render(
        [Family("a", "counter", "A.", [Sample({"n": str(n), "x": ODD}, n) for n in range(4)])]
    )
    read, said = 0, []
    for _ in range(1000):
        data = list(good)
        for _ in range(rng.randrange(1, 5)):
            at = rng.randrange(len(data))
            data[at : at + rng.randrange(3)] = rng.choice(
                ["", '"', "\\", "{", "}", "\n", ",", "\x00", "é", "9" * 50, 'a_total{n="1"} ']
            )
        try:
            read += len(parse("".join(data), {"a_total"})["a_total"]) > 0
        except FormatError as error:
            said.append(str(error))
    assert 0 < read < 1000
    assert all(text.isprintable() and len(text) < 300 for text in said)
