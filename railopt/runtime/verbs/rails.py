"""One rail of this node: an open device, its registered memory and one queue pair per peer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from railopt.base.errors import BackendError, InputError
from railopt.base.units import INT64_MAX
from railopt.runtime.payload.layout import MAX_MESSAGE
from railopt.runtime.verbs.card import MAX_QUEUE_PAIRS
from railopt.runtime.verbs.devices import is_roce_v2
from railopt.runtime.verbs.engine import IMM_SLOTS, RECV_DEPTH
from railopt.runtime.verbs.lib import Library
from railopt.runtime.verbs.objects import Address, Cq, Device, Patience, Pd, Qp, open_device

MTUS = (256, 512, 1024, 2048, 4096)
MAX_DEPTH = 1 << 16
MAX_STALL_S = 1e6


class Damping(NamedTuple):
    """When a dead link is probed, in seconds after its death or its last probe, and for how long.

    first_s, most_s      the first wait; each that fails is followed by one twice as long, up
                         to most_s
    window_s, longest_s  a link that dies within window_s of its return waits four times as long as
                         the time before, up to longest_s
    trial_s              that the first trials may take; every fourth that fails doubles it, three
                         times at most
    """

    first_s: float = 0.1
    most_s: float = 0.8
    window_s: float = 30.0
    longest_s: float = 60.0
    trial_s: float = 1.5

    def first_wait_s(self, flaps: int) -> float:
        """Before the first probe of a link that died so often soon after its return."""
        return float(min(self.longest_s, self.first_s * 4.0 ** min(flaps, 32)))

    def limit_s(self, probes: int) -> float:
        """Seconds for the trial with this number."""
        return self.trial_s * float(2 ** min(probes // 4, 3))


@dataclass(frozen=True)
class Options:
    """How queue pairs are made.

    port, gid_index  of every device; None chooses the IPv4 RoCE v2 entry of the GID table
    mtu              at most this many bytes a packet; None takes what the ports have
    depth, batch     work requests in flight a queue pair, and in one list with one signal
    max_message      bytes of the largest work request; the ports' own limit holds too
    sl, tclass       InfiniBand service level, RoCE traffic class (DSCP * 4), as the fabric's
                     lossless class wants them
    patience         time-outs and retries of the queue pairs
    queue_pairs      to each peer on each rail; a link's chunks go over them in turn
    stall_s          a run without any progress for this long is given up
    damping          when dead links are probed
    """

    port: int = 1
    gid_index: int | None = None
    mtu: int | None = None
    depth: int = 512
    batch: int = 64
    max_message: int = MAX_MESSAGE
    sl: int = 0
    tclass: int = 0
    patience: Patience = field(default_factory=Patience)
    stall_s: float = 30.0
    queue_pairs: int = 1
    damping: Damping = field(default_factory=Damping)

    def __post_init__(self) -> None:
        patience = self.patience
        for name, value, low, high in (
            ("ib-port", self.port, 1, 255),
            ("gid-index", 0 if self.gid_index is None else self.gid_index, 0, 255),
            ("depth", self.depth, 1, MAX_DEPTH),
            ("sl", self.sl, 0, 15),
            ("tclass", self.tclass, 0, 255),
            ("ib-timeout", patience.timeout, 1, 31),
            ("ib-retry", patience.retry, 0, 7),
            ("size", self.max_message, 1, INT64_MAX),
            ("qp", self.queue_pairs, 1, MAX_QUEUE_PAIRS),
        ):
            if not low <= value <= high:
                raise InputError(f"--{name} {value}: expected {low} to {high}")
        if not 1 <= self.batch <= self.depth:
            raise InputError(
                f"--batch {self.batch} --depth {self.depth}: expected 1 <= batch <= depth"
            )
        if self.mtu is not None and self.mtu not in MTUS:
            raise InputError(f"--mtu {self.mtu}: expected one of {', '.join(map(str, MTUS))}")
        if not 0 < self.stall_s < MAX_STALL_S:
            raise InputError(
                f"--stall {self.stall_s:g}: expected seconds above 0, below {MAX_STALL_S:g}"
            )

    def within_mtu(self, there: Address) -> Address:
        """A peer's port, with packets no larger than `mtu`."""
        if self.mtu is None:
            return there
        return replace(there, mtu=min(there.mtu, self.mtu.bit_length() - 8))


class Rail:
    """One open device: its completion queue, protection domain, queue pairs by (peer, number)."""

    def __init__(
        self,
        lib: Library,
        name: str,
        peers: Sequence[int],
        options: Options,
    ) -> None:
        self.device: Device = open_device(lib, name, options.port)
        try:
            self._gid_index = options.gid_index
            self.address = self.located()
            self.max_message = min(options.max_message, self.device.query_port().max_message)
            self._depth = options.depth + IMM_SLOTS
            pairs = [(peer, k) for peer in peers for k in range(options.queue_pairs)]
            self.cq = Cq(self.device, len(pairs) * (self._depth + RECV_DEPTH) + 1)
            self.pd = Pd(self.device)
            self.qps = {pair: self.queue_pair() for pair in pairs}
        except BaseException:
            self.device.close()
            raise

    def located(self) -> Address:
        """Where the port is reached now; BackendError if it is not active."""
        device = self.device
        if not device.query_port().active:
            raise BackendError(
                f"{device.name} port {device.port} is not active: check the cable and the link "
                f"(railopt devices)"
            )
        return device.address(self._gid_index, lambda i: is_roce_v2(device.name, device.port, i))

    def queue_pair(self) -> Qp:
        """A new queue pair on the rail's completion queue, not connected."""
        return Qp(self.pd, self.cq, self._depth, RECV_DEPTH)
