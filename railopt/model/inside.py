"""The inside of a node: which GPUs each NIC is near, and how fast bytes go from GPU to GPU.

A GPU puts its bytes on a NIC that it is *near* by itself.  For any other NIC they are *staged*:
moved over scale-up (NVLink, xGMI, PCIe) to the NIC's *owner*, the first GPU that is near it.  Far
NICs are never used directly: across a host bridge two NICs of one GPU can be slower together than
the near one alone.  Every node of a fabric has the same inside.

What hardware calls otherwise is here what it is for a plan:

    a plane of a NIC        a rail of its own, near the same GPUs as the other planes
    a bond of NICs          one rail at the rate of its members together
    a NIC across a bridge   from every GPU: a rail at the rate that the bridge leaves it
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.base import toml
from railopt.base.arrays import Bools, Ints, Value, frozen, whole_number
from railopt.base.errors import InputError
from railopt.base.units import INT64_MAX, format_rate, parse_rate, quoted

MAX_PLACES = 1 << 22  # GPUs x NICs of a node
RATES = ("pair", "far", "far_together")


@dataclass(frozen=True, eq=False)
class Inside(Value):
    """The inside of every node.

    near   bool [gpus, rails]: whether the GPU puts bytes on the rail's NIC without another GPU
    pair   bytes per second from one GPU to one other over scale-up, or None where only a GPU's own
           port limits it (a crossbar such as NVSwitch)
    far    bytes per second that a GPU would get through a NIC that it is not near, alone; None
           where it was not measured.  `far_together`: the same of a near and a far NIC, each, when
           both are used at once.  Shown and saved; no plan uses a far NIC directly
    planes so many rails in a row are planes of one NIC: networks that nothing joins.  Known, saved
           and said to NCCL; for a plan they are rails
    """

    near: Bools = field(repr=False)
    pair: int | None = None
    far: int | None = None
    far_together: int | None = None
    planes: int = 1

    def __post_init__(self) -> None:
        near = np.array(self.near, order="C")
        if near.ndim != 2 or near.dtype != np.bool_ or not near.size:
            raise InputError(
                f"near is {near.dtype} of shape {near.shape}: expected truth values [GPUs, rails]"
            )
        for rail in np.flatnonzero(~near.any(axis=0))[:1]:
            raise InputError(f"rail {rail} belongs to no GPU: near must name one for it")
        for gpu in np.flatnonzero(~near.any(axis=1))[:1]:
            raise InputError(f"GPU {gpu} has no NIC: near must name one of its own or a shared one")
        near.flags.writeable = False
        object.__setattr__(self, "near", near)
        for name in RATES:
            rate = getattr(self, name)
            if rate is not None:
                object.__setattr__(self, name, whole_number(rate, name, 1, INT64_MAX))
        if self.far_together is not None and (self.far is None or self.far_together > self.far):
            raise InputError(
                f"far_together = {toml_rate(self.far_together)}: expected at most far, the rate of "
                f"a far NIC alone ({'not given' if self.far is None else toml_rate(self.far)})"
            )
        rails = near.shape[1]
        object.__setattr__(self, "planes", whole_number(self.planes, "planes", 1, rails))
        if not are_planes(near, self.planes):
            raise InputError(
                f"planes = {self.planes} of {rails} rails: expected NICs of as many planes each, "
                f"all near the same GPUs"
            )

    @cached_property
    def owner(self) -> Ints:
        """int64 [rails]: the GPU through which a rail's staged bytes go, the first that is near."""
        return frozen(np.argmax(self.near, axis=0), np.int64, "owner", 1)

    def network(self, rail: int) -> tuple[int, int | None]:
        """NCCL's numbers of a rail: which rail, and which plane of it where NICs have several."""
        number, plane = divmod(rail, self.planes)
        return number, plane if self.planes > 1 else None

    @classmethod
    def usual(cls, gpus: int, rails: int) -> Inside:
        """GPUs and NICs in order: as many NICs per GPU, or GPUs per NIC, as there are."""
        near = np.zeros((gpus, rails), np.bool_)
        for gpu in range(gpus):
            first, past = gpu * rails // gpus, (gpu + 1) * rails // gpus
            near[gpu, first : max(past, first + 1)] = True
        return cls(near)

    def as_dict(self) -> dict[str, Any]:
        """As JSON values: the GPUs that each rail is near, the rate of a pair, and far rates where
        they are known.
        """
        known = {name: getattr(self, name) for name in RATES}
        return {
            "near": [np.flatnonzero(column).tolist() for column in self.near.T],
            **{name: rate for name, rate in known.items() if name == "pair" or rate is not None},
            **({"planes": self.planes} if self.planes > 1 else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], gpus: int, rails: int) -> Inside:
        """The way back from `as_dict`, for nodes of so many GPUs and rails."""
        keys = {"near", *RATES, "planes"}
        if not isinstance(data, Mapping) or set(data) | {*RATES, "planes"} != keys:
            raise InputError(f"an inside of {quoted(data)}: expected {', '.join(sorted(keys))}")
        near = near_matrix(data.get("near"), gpus, rails)
        return cls(near, **{name: data.get(name) for name in RATES}, planes=data.get("planes", 1))

    @classmethod
    def from_toml(cls, data: Mapping[str, Any], gpus: int, rails: int) -> Inside:
        """Read the table [inside] of a fabric: near, pair, far, far_together, planes, each
        optional.
        """
        toml.only(data, {"near", *RATES, "planes"}, "[inside]")
        rates = {name: parse_rate(toml.text(data, name)) for name in RATES if name in data}
        near = data["near"] if "near" in data else cls.usual(gpus, rails).as_dict()["near"]
        return cls.from_dict({**data, **rates, "near": near}, gpus, rails)

    def to_toml(self) -> list[str]:
        """The lines that `from_toml` understands."""
        rates = {name: getattr(self, name) for name in RATES}
        return [
            "[inside]",
            f"near = {self.as_dict()['near']}  # the GPUs of each rail",
            *(f"{name} = {toml_rate(rate)}" for name, rate in rates.items() if rate is not None),
            *([f"planes = {self.planes}"] if self.planes > 1 else []),
        ]


def are_planes(near: Bools, planes: int) -> bool:
    """Whether so many rails in a row, of near bool [gpus, rails], can be planes of one NIC."""
    gpus, rails = near.shape
    if rails % planes:
        return False
    grouped = near.reshape(gpus, -1, planes)
    return bool((grouped == grouped[:, :, :1]).all())


def toml_rate(rate: int) -> str:
    """A rate in quotes that reads back as exactly that rate."""
    text = format_rate(rate)
    return f'"{text}"' if parse_rate(text) == rate else f'"{rate}B/s"'


def near_matrix(near: Any, gpus: int, rails: int) -> npt.NDArray[np.bool_]:
    """bool [gpus, rails] from a list of GPUs per rail."""
    if gpus * rails > MAX_PLACES:
        raise InputError(f"{gpus} GPUs x {rails} rails per node: more than {MAX_PLACES} places")
    if not isinstance(near, list) or len(near) != rails:
        raise InputError(
            f"near = {quoted(near)}: expected a list of GPUs for each of {rails} rails"
        )
    matrix = np.zeros((gpus, rails), np.bool_)
    for rail, some in enumerate(near):
        if not isinstance(some, list):
            raise InputError(f"near of rail {rail} = {quoted(some)}: expected a list of GPUs")
        for gpu in some:
            matrix[whole_number(gpu, f"near of rail {rail}", 0, gpus - 1), rail] = True
    return matrix
