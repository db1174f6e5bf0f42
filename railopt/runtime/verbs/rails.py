"""One rail of this node: an open device, its registered memory and a queue pair a peer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from railopt.errors import BackendError
from railopt.runtime.payload.memory import Memory
from railopt.runtime.verbs import structs as s
from railopt.runtime.verbs.engine import IMM_SLOTS, RECV_DEPTH
from railopt.runtime.verbs.lib import Library
from railopt.runtime.verbs.objects import Cq, Device, Mr, Patience, Pd, Qp, open_device


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
    stall_s          a run without any progress for this long is given up
    """

    port: int = 1
    gid_index: int | None = None
    mtu: int | None = None
    depth: int = 512
    batch: int = 64
    max_message: int = 1 << 30
    sl: int = 0
    tclass: int = 0
    patience: Patience = field(default_factory=Patience)
    stall_s: float = 30.0


class Rail:
    """One open device: its completion queue, protection domain, memory keys and queue pairs, one a
    peer.
    """

    def __init__(
        self,
        lib: Library,
        name: str,
        peers: Sequence[int],
        options: Options,
        roce_v2: Callable[[str, int, int], bool],
    ) -> None:
        self.device: Device = open_device(lib, name, options.port)
        try:
            port = self.device.query_port()
            if not port.active:
                raise BackendError(
                    f"{name} port {options.port} is not active: check the cable and the link "
                    f"(railopt devices)"
                )
            self.max_message = min(options.max_message, port.max_message)
            self.address = self.device.address(
                options.gid_index, lambda i: roce_v2(name, options.port, i)
            )
            depth = options.depth + IMM_SLOTS
            self.cq = Cq(self.device, len(peers) * (depth + RECV_DEPTH) + 1)
            self.pd = Pd(self.device)
            self.qps = {peer: Qp(self.pd, self.cq, depth, RECV_DEPTH) for peer in peers}
        except BaseException:
            self.device.close()
            raise
        self.send_keys = np.zeros(0, np.uint32)
        self.recv_keys: list[int] = []

    def register(self, send: Sequence[Memory], recv: Sequence[Memory]) -> None:
        """Register the buffers: once a rail."""
        local = s.IBV_ACCESS_LOCAL_WRITE
        self.send_keys = np.array(
            [Mr(self.pd, m.address, m.length, m, local).lkey for m in send], np.uint32
        )
        self.recv_keys = [Mr(self.pd, m.address, m.length, m).rkey for m in recv]
