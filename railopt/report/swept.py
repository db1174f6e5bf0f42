"""What a sweep varies: columns of its instances, and parameters of its workloads (`moe:skew=0.8`
has the parameter skew), that have several values.

Seeds and policies are no parameters: seeds are drawn to be summarised, and policies are compared.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from railopt.base.errors import InputError
from railopt.base.units import parse_bytes, parse_rate
from railopt.model.workloads import default
from railopt.policies import POLICIES
from railopt.sweep.results import Row, flat, given

COLUMNS = ("chunk", "nodes", "rails", "gpus", "link", "degrade")
IF_SEVERAL = ("gpus", "link", "degrade", "limit_s", "threads", "simulate", "commit", "sweep")
"""Columns that a list of rows has only where the rows differ in them."""
CALLED = {
    "chunk": "largest chunk",
    "gpus": "GPUs per node",
    "rails": "NICs per node",
    "link": "rate of a NIC",
    "degrade": "slow or dead NICs",
}
"""Columns that an axis calls otherwise."""
WIDE = 32  # times the least value is the largest: from here on an axis is logarithmic


class Swept(NamedTuple):
    """A parameter that varies.

    name     its column
    values   its values, in their natural order
    of       for each row its value; None where it has none
    """

    name: str
    values: list[Any]
    of: list[Any]

    @property
    def called(self) -> str:
        """What an axis calls it."""
        return CALLED.get(self.name, self.name)


class Scale(NamedTuple):
    """Where the values of a parameter lie on an axis.

    places      a number for each value
    logarithmic whether the axis is
    measured    whether distances mean anything: else values stand side by side
    """

    places: list[float]
    logarithmic: bool
    measured: bool


def swept(rows: Sequence[Row]) -> list[Swept]:
    """Parameters with at least two values, the one with the most first; parameters of workloads
    before columns, and traffic that differs otherwise last.
    """
    points = _points(rows)
    names = dict.fromkeys(name for point in points for name in point)
    found = [of_column([point.get(name) for point in points], name) for name in names]
    several = [parameter for parameter in found if len(parameter.values) > 1]
    return sorted(several, key=lambda parameter: -len(parameter.values))


def _points(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Each row's parameters; its traffic is what they do not say of it.  GPUs are as many as NICs
    where nothing else was asked for.
    """
    found = parameters(rows)
    own_nics = all(row["instance"].get("gpus") == row["instance"]["rails"] for row in rows)
    return [
        {
            **{name: values[i] for name, values in found.items()},
            **{name: row["instance"].get(name) for name in COLUMNS},
            "gpus": None if own_nics else row["instance"].get("gpus"),
            "traffic": without(row["instance"]["traffic"], list(found)),
        }
        for i, row in enumerate(rows)
    ]


def parameters(rows: Sequence[Row]) -> dict[str, list[Any]]:
    """The parameters of workloads that vary, each with its value in every row: as the workload was
    given it, or took it of itself; None where a workload does not have it.
    """
    said = [given(row) for row in rows]
    names = dict.fromkeys(name for found in said for name in found)
    values = {
        name: [_value(*pair, name) for pair in zip(rows, said, strict=True)] for name in names
    }
    return {name: of for name, of in values.items() if len(set(of) - {None}) > 1}


def _value(row: Row, said: Mapping[str, Any], name: str) -> Any:
    if name in said or row["instance"].get("content"):
        return said.get(name)
    return default(str(row["instance"].get("traffic", "")), name)


def without(traffic: str, names: Sequence[str]) -> str:
    """A workload's text without some parameters: `moe:skew=0.8,tokens=64` -> `moe:tokens=64`."""
    name, _, rest = traffic.partition(":")
    kept = [item for item in rest.split(",") if item and item.partition("=")[0] not in names]
    return f"{name}:{','.join(kept)}" if kept else name


def columns_that_differ(rows: Sequence[Row]) -> tuple[list[str], list[list[Any]]]:
    """Columns that tell rows apart, and their values; after the traffic the parameters of
    workloads that vary, beside what is left of it, and last those of IF_SEVERAL that differ.
    """
    found, told = parameters(rows), [flat(row) for row in rows]
    several = [name for name in IF_SEVERAL if len({str(each.get(name)) for each in told}) > 1]
    columns = ["nodes", "rails", "traffic", *found, "chunk", "policy", "seed", *several]
    for i, each in enumerate(told):
        each.update({name: values[i] for name, values in found.items()})
        each["traffic"] = without(str(each.get("traffic", "")), list(found))
    return columns, [[each.get(name, "") for name in columns] for each in told]


def of_column(values: Sequence[Any], name: str) -> Swept:
    """A column whose values may be none."""
    return Swept(name, ordered([v for v in values if v is not None], name), list(values))


def order(rows: Sequence[Row], column: str) -> list[Any]:
    """The values of an instance column in their natural order."""
    return ordered([row["instance"][column] for row in rows], column)


def ordered(values: Sequence[Any], name: str) -> list[Any]:
    """Each value once: numbers, sizes and rates rising, policies as railopt lists them and then
    those from outside, others by their text.
    """
    each, sizes = list(dict.fromkeys(values)), _sizes(name)
    if name == "policy":
        return sorted(each, key=lambda policy: ([*POLICIES, policy].index(policy), policy))
    try:
        return sorted(each, key=sizes)
    except (InputError, TypeError):
        return sorted(each, key=str)


def _sizes(name: str) -> Callable[[Any], float]:
    def size(value: Any) -> float:
        if isinstance(value, int | float):
            return float(value)
        if value == "flow":
            return float("inf")
        return float(parse_rate(value) if name == "link" else parse_bytes(value))

    return size


def scale(parameter: Swept) -> Scale:
    """Numbers and sizes in bytes lie where they are; other values stand side by side."""
    try:
        places = [_sizes(parameter.name)(value) for value in parameter.values]
        measured = max(places) < float("inf")
    except (InputError, TypeError):
        places, measured = [], False
    if not measured:
        return Scale([float(place) for place in range(len(parameter.values))], False, False)
    return Scale(places, places[0] > 0 and places[-1] >= WIDE * places[0], True)
