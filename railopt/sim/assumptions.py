"""What a run assumes beside the rates of the ports.  The default is the ideal fluid: bytes over
rates, nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from railopt.base.arrays import Ints, whole_number
from railopt.base.errors import InputError
from railopt.base.units import INT64_MAX, parse_fraction, parse_time
from railopt.model.fabric import MAX_NODES, MAX_RAILS, Fabric, parse_nic

STAGES = ("barrier", "node")
SCALE_UP = ("pipelined", "before", "ignored")

PAYLOAD = Fraction(4086, 4150)
"""Share of a full packet that is payload at MTU 4096, as UEC htsim counts it."""

ROCE_INCAST = Fraction(67, 10_000)
"""Receive time lost for each sender beyond the first, fitted to one packet-level figure: direct
per-flow ECMP over 8 x 8 NICs, 56 senders per receiver, takes 423 us with RoCE + PFC where a
receiver-driven transport takes 359 us."""


@dataclass(frozen=True)
class Assumptions:
    """What a run assumes; the default is the ideal fluid.

    headers   NICs and switch links carry 4086 payload bytes of every 4150
    latency   a flow arrives one fabric latency (two between leaves) after its last byte was sent
    alpha_ps  time for which each message (chunk) holds its transmit NIC beside its bytes
    incast    receive NICs lose goodput with fan-in: 1 / (1 + incast x (flows - 1)); 0 = off, see
              ROCE_INCAST
    spray     share of the uplinks' capacity that per-packet random spraying can use
    reps      the same for spraying over recycled paths
    exact     recompute the rates after every completion, however many flows there are
    stages    how the stages of a plan wait: "barrier", a stage starts when all of the stage before
              is delivered; "node", a chunk from k to f starts when what k sends and what f receives
              in their stages before is delivered
    scale_up  how a plan's bytes move between the GPUs of a node: "pipelined", at the same time as
              they cross the rail; "before", a node sends when all that it stages is moved, and
              passes on when all that it receives has arrived; "ignored", in no time
    """

    headers: bool = False
    latency: bool = False
    alpha_ps: int = 0
    incast: Fraction = Fraction(0)
    spray: Fraction = Fraction(78, 100)
    reps: Fraction = Fraction(90, 100)
    exact: bool = False
    stages: str = "barrier"
    scale_up: str = "pipelined"

    @classmethod
    def packets(cls, *, incast: Fraction | str = "0") -> Assumptions:
        """Headers and latency on: what compares with a packet-level simulator."""
        return cls(headers=True, latency=True, incast=Fraction(incast))

    def __post_init__(self) -> None:
        if self.alpha_ps < 0:
            raise InputError(f"alpha = {self.alpha_ps} ps: a time can't be negative")
        if self.incast < 0:
            raise InputError(f"incast = {self.incast}: expected 0 (off) or more")
        for name, known in (("stages", STAGES), ("scale_up", SCALE_UP)):
            if getattr(self, name) not in known:
                raise InputError(
                    f"{name} = {getattr(self, name)!r}: expected one of {', '.join(known)}"
                )
        for name in ("spray", "reps"):
            if not 0 < getattr(self, name) <= 1:
                raise InputError(
                    f"{name} = {getattr(self, name)}: expected a share above 0 and at most 1"
                )

    def on_wire(self, rates: Ints) -> Ints:
        """Payload bytes per second that links of these rates carry, rounded down."""
        if not self.headers:
            return rates
        whole, rest = np.divmod(rates, PAYLOAD.denominator)  # their product may not fit int64
        return whole * PAYLOAD.numerator + rest * PAYLOAD.numerator // PAYLOAD.denominator

    def goodput(self, fan_in: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """float64 [fan_in + 1]: the share of a receive NIC that is left with so many flows."""
        return 1.0 / (1.0 + float(self.incast) * np.maximum(np.arange(fan_in + 1) - 1, 0))


@dataclass(frozen=True)
class Fault:
    """From `at_ps` on, NIC (node, rail) runs at `fraction` of the fabric's rate, both ways; 0 =
    dead, 1 = healed.
    """

    at_ps: int
    node: int
    rail: int
    fraction: Fraction = field(default=Fraction(0))

    def __post_init__(self) -> None:
        for name, most in (("at_ps", INT64_MAX), ("node", MAX_NODES - 1), ("rail", MAX_RAILS - 1)):
            number = whole_number(getattr(self, name), f"a fault's {name}", 0, most)
            object.__setattr__(self, name, number)
        object.__setattr__(self, "fraction", parse_fraction(self.fraction))

    @classmethod
    def parse(cls, text: str) -> Fault:
        """`"50us:3:5=0.5"`: at 50 us NIC 5 of node 3 drops to half its rate."""
        time, _, nic = text.partition(":")
        try:
            (node, rail), fraction = parse_nic(nic)
            return cls(parse_time(time), node, rail, fraction)
        except InputError as error:
            raise InputError(
                f"{text!r}: expected TIME:NODE:RAIL=FRACTION, e.g. 50us:3:5=0.5 ({error})"
            ) from error

    def check(self, fabric: Fabric) -> None:
        """Refuse a NIC that the fabric does not have."""
        if self.node >= fabric.nodes or self.rail >= fabric.rails:
            raise InputError(
                f"fault of NIC ({self.node}, {self.rail}): "
                f"expected a node below {fabric.nodes} and a rail below {fabric.rails}"
            )
