"""The committed layouts against a probe compiled from the installed header."""

from __future__ import annotations

from railopt.runtime.verbs import structs
from tests.hardware import generate_structs as generate


def test_layouts_and_constants_are_those_of_the_installed_header() -> None:
    layouts, enums = generate.probe()
    for name, (size, fields) in layouts.items():
        assert structs.LAYOUTS[name][1] == fields, name
        if name not in generate.OPAQUE:
            assert structs.LAYOUTS[name][0] == size, name
    for name in generate.CONSTANTS:
        assert getattr(structs, name) == enums[name], name
    statuses = generate.enum_names(generate.HEADER.read_text(), generate.STATUSES)
    assert {enums[name]: name.removeprefix("IBV_WC_") for name in statuses} == structs.WC_STATUS
