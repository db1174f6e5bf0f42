"""One end of the trial of a path that had failed: a page is written from end to end and compared.

The trial has a queue pair and a completion queue of its own, so it never meets a run's requests.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

from railopt.base.arrays import Array
from railopt.base.errors import BackendError
from railopt.runtime.rendezvous.wire import read_list, read_number
from railopt.runtime.verbs.card import address_list, read_address
from railopt.runtime.verbs.objects import Address, Cq, Mr, Patience, Qp
from railopt.runtime.verbs.rails import Options, Rail
from railopt.runtime.verbs.work import (
    KIND_RECV,
    KIND_WRITE,
    ImmRing,
    Parcel,
    Receives,
    split_id,
    work_id,
)

PAGE = 4096
PATIENCE = Patience(timeout=14, retry=6)


@dataclass(frozen=True)
class TrialCard:
    """What the other end must know: where the port is reached, (number, first packet) of the queue
    pair that the link would get and of the trial's own, and (address, key) of the page.
    """

    port: Address
    link: tuple[int, int]
    own: tuple[int, int]
    page: tuple[int, int]

    def as_list(self) -> list[Any]:
        """As JSON values."""
        return [address_list(self.port), list(self.link), list(self.own), list(self.page)]

    @classmethod
    def from_list(cls, data: Any) -> TrialCard:
        """The way back; ValueError or TypeError where it is none."""
        port, link, own, page = read_list(data, 4)
        return cls(read_address(port), _pair(link, 24, 24), _pair(own, 24, 24), _pair(page, 64, 32))


def _pair(data: Any, first: int, second: int) -> tuple[int, int]:
    """Two numbers of so many bits."""
    one, two = read_list(data, 2)
    return read_number(one, first), read_number(two, second)


class Trial:
    """A page to write from, a page to be written, and `qp`: the queue pair that the link gets if
    the trial succeeds. Refuses (BackendError) a port that is not active.
    """

    def __init__(self, rail: Rail, options: Options) -> None:
        self.rail, self._options = rail, options
        rail.address = self.address = rail.located()
        self._page = np.zeros(2 * PAGE, np.uint8)
        with ExitStack() as stack:
            cq = stack.enter_context(Cq(rail.device, 4, 4))
            self._mr = stack.enter_context(
                Mr(rail.pd, self._page.ctypes.data, self._page.nbytes, self._page)
            )
            self._own = stack.enter_context(Qp(rail.pd, cq, 1, 1))
            self.qp = rail.queue_pair()
            self._cq, self._opened = cq, stack.pop_all()
        self._there: TrialCard | None = None

    @property
    def card(self) -> TrialCard:
        """What the other end must know."""
        return TrialCard(
            self.address,
            (self.qp.number, self.qp.psn),
            (self._own.number, self._own.psn),
            (self._mr.address, self._mr.rkey),
        )

    def connect(self, there: TrialCard) -> None:
        """Connect to the other end's own queue pair, ready to be written."""
        options, qp = self._options, self._own
        port = options.within_mtu(there.port)
        qp.connect(*there.own, self.address, port, PATIENCE, options.sl, options.tclass)
        if error := Receives(qp, 1, work_id(KIND_RECV, 0)).fill():
            raise BackendError(f"ibv_post_recv on {self.rail.device.name}: errno {error}")
        self._there = there

    def write(self, seed: int) -> None:
        """Write the pattern of `seed` into the other end's page, and tell it."""
        assert self._there is not None
        self._page[:PAGE] = pattern(seed)
        address, key = self._there.page
        page = Parcel(self._mr.address, address + PAGE, PAGE, self._mr.lkey, key)
        ring = ImmRing(self._own, 1, work_id(KIND_WRITE, 0), address, key)
        if error := ring.post(0, seed & 0xFFFFFFFF, page):
            raise BackendError(f"ibv_post_send on {self.rail.device.name}: errno {error}")

    def arrived(self, seed: int) -> bool:
        """Whether the other end's page has come; BackendError if it is not the pattern of `seed`,
        or if anything failed.
        """
        count = self._cq.poll()
        if self._cq.wc["status"][:count].any():
            raise BackendError("the trial's write failed")
        kinds = [split_id(int(wr_id))[0] for wr_id in self._cq.wc["wr_id"][:count]]
        if KIND_RECV not in kinds:
            return False
        if not np.array_equal(self._page[PAGE:], pattern(seed)):
            raise BackendError("the trial's page arrived with wrong bytes")
        return True

    def close(self, *, keep: bool = False) -> None:
        """Release all but the link's queue pair, or that too unless `keep`."""
        self._opened.close()
        if not keep:
            self.qp.close()


def pattern(seed: int) -> Array:
    """uint8 [PAGE] that differs between seeds."""
    words = np.arange(PAGE // 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    return (words ^ np.uint64(seed * 0x2545F4914F6CDD1D % 2**64)).view(np.uint8)
