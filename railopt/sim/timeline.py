"""Timeline: when every flow and chunk of a run was delivered, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

import numpy as np

from railopt.base.arrays import Array, Floats, Int32s, Ints
from railopt.base.errors import NotProved
from railopt.base.units import PS_PER_S, format_time, seconds
from railopt.model.fabric import Fabric
from railopt.sim.flows import Flows

STUCK_LISTED = 20


class Curve(NamedTuple):
    """Bytes moved, step by step: `bytes` [entries] by `track` between `since` and `till`
    picoseconds.
    """

    track: Int32s
    since: Ints
    till: Ints
    bytes: Floats

    @property
    def end_ps(self) -> int:
        """When the last byte was sent."""
        return int(self.till.max(initial=0))

    def throughput(self, tracks: int, bins: int) -> Floats:
        """float64 [tracks, bins]: mean bytes per second of each track in equal slices of the
        run.
        """
        end = max(self.end_ps, 1)
        sums = np.zeros((tracks, bins + 1))
        rate = self.bytes / np.maximum(self.till - self.since, 1)
        for edge, sign in ((self.since, 1.0), (self.till, -1.0)):
            _add_ramp(sums, self.track, edge * (bins / end), sign * rate * (end / bins))
        return np.cumsum(sums, axis=1)[:, :bins] / (end / bins / PS_PER_S)


class NicChange(NamedTuple):
    """When the transmit rate of a NIC changed, and to which share of the fabric's."""

    at_ps: int
    node: int
    rail: int
    share: float

    @property
    def words(self) -> str:
        """`dead`, `healthy` or `at 50%`."""
        return {0.0: "dead", 1.0: "healthy"}.get(self.share, f"at {self.share:.0%}")


@dataclass(frozen=True, eq=False)
class Timeline:
    """The result of a run.

    begun_ps, finish_ps   int64 [flows]: first byte sent, last byte delivered; -1 = never
    chunk_ps              int64 [chunks]: delivered; -1 = never.  A flow of direct traffic is one
                          chunk
    left                  int64 [flows]: bytes that were not sent (rounded up)
    ranks                 (bytes each rank sends, bytes each receives), int64; for algbw
    nic_curve             as `curve`, a track a transmit NIC (node * rails + rail): of runs with
                          faults
    """

    flows: Flows = field(repr=False)
    begun_ps: Ints = field(repr=False)
    finish_ps: Ints = field(repr=False)
    chunk_ps: Ints = field(repr=False)
    left: Ints = field(repr=False)
    curve: Curve = field(repr=False)
    fabric: Fabric | None = None
    ranks: tuple[Ints, Ints] | None = field(default=None, repr=False)
    nic_curve: Curve | None = field(default=None, repr=False)

    @cached_property
    def stuck(self) -> Ints:
        """Chunks that were never delivered, by index."""
        return np.flatnonzero(self.chunk_ps < 0)

    @cached_property
    def completion_ps(self) -> int:
        """When the last delivered chunk was delivered; see `stuck` for those that were not."""
        return int((self.chunk_ps if len(self.stuck) else self.finish_ps).max(initial=0))

    @cached_property
    def end_ps(self) -> int:
        """When nothing was sent any more, or the last chunk was delivered."""
        return max(self.completion_ps, int(self.curve.till.max(initial=0)))

    @property
    def completion(self) -> Fraction:
        """The same in seconds."""
        return seconds(self.completion_ps)

    @property
    def bound(self) -> Fraction:
        """Seconds that the busiest port of this run needs for its bytes: the run is never
        faster.
        """
        return self.flows.bound

    @cached_property
    def bytes_per_rank(self) -> int:
        """What nccl-tests counts for an alltoallv: the most that any rank sends or receives (here:
        between nodes).
        """
        if self.ranks is None:
            return 0
        return max(int(side.max(initial=0)) for side in self.ranks)

    @cached_property
    def nic_changes(self) -> list[NicChange]:
        """The faults of a run on a fabric, by time."""
        if self.fabric is None:
            return []
        rails, nics = self.fabric.rails, self.fabric.nodes * self.fabric.rails
        healthy = self.flows.capacity
        return sorted(
            NicChange(
                change.at_ps,
                *divmod(change.port, rails),
                change.capacity / int(healthy[change.port]) if healthy[change.port] else 0.0,
            )
            for change in self.flows.changes
            if change.port < nics
        )

    @property
    def algbw(self) -> float:
        """GB/s (1e9 bytes): bytes of the busiest rank over the completion time."""
        return self.bytes_per_rank / self.completion_ps * 1e3 if self.completion_ps else 0.0

    @property
    def busbw(self) -> float:
        """algbw x (n - 1) / n over n ranks, as nccl-tests defines it for all-to-all."""
        count = len(self.ranks[0]) if self.ranks else 1
        return self.algbw * (count - 1) / count

    def percentiles(self) -> dict[str, int]:
        """Flow completion times in picoseconds, from a flow's first byte to its delivery, by
        percentile.
        """
        done = self.finish_ps >= 0
        times = np.sort((self.finish_ps - self.begun_ps)[done])
        shares = (50, 90, 99, 100)
        if not len(times):
            return {f"p{share}": 0 for share in shares}
        return {
            f"p{share}": int(times[max(-(-share * len(times) // 100) - 1, 0)]) for share in shares
        }

    @cached_property
    def track_bytes(self) -> Floats:
        """float64 [tracks]: bytes that each track carried: rails, then what was staged and what
        was passed on, where those were phases of their own.
        """
        tracks = self.fabric.rails if self.fabric else int(self.flows.track.max(initial=0)) + 1
        return np.bincount(self.curve.track, self.curve.bytes, tracks).astype(np.float64)

    def utilisation(self) -> Floats:
        """float64 [rails]: bytes sent on each rail over what its transmit NICs could have sent
        until the run's end.
        """
        if self.fabric is None or not self.end_ps:
            return np.zeros(0)
        could: Floats = self.fabric.tx.sum(axis=0) * float(seconds(self.end_ps))
        sent = self.track_bytes[: self.fabric.rails]
        return np.divide(sent, could, out=np.zeros_like(could), where=could > 0)

    def throughput(self, bins: int = 100) -> Floats:
        """float64 [tracks, bins]: mean bytes per second of each track in equal slices of the
        run.
        """
        return self.curve.throughput(len(self.track_bytes), bins)

    def stuck_text(self) -> str:
        """Which chunks are stuck, in words."""
        listed = ", ".join(map(str, self.stuck[:STUCK_LISTED].tolist()))
        more = (
            f" and {len(self.stuck) - STUCK_LISTED} more" if len(self.stuck) > STUCK_LISTED else ""
        )
        return (
            f"{len(self.stuck)} of {len(self.chunk_ps)} chunks can't be delivered, "
            f"their path is dead or they wait for a stage that is stuck: chunks {listed}{more}; "
            f"the last of the others arrived after {format_time(self.completion)}"
        )


class Stuck(NotProved):
    """A run that can't finish; `timeline` is what happened until then."""

    def __init__(self, timeline: Timeline) -> None:
        super().__init__(timeline.stuck_text())
        self.timeline = timeline


def _add_ramp(sums: Array, track: Array, position: Array, per_bin: Array) -> None:
    """Make the running sum of `sums` gain `per_bin` in every bin after `position`, and a share of
    it in that bin.
    """
    bins = sums.shape[1] - 1
    at = np.minimum(position.astype(np.int64), bins - 1)
    inside = per_bin * (at + 1 - position)
    np.add.at(sums, (track, at), inside)
    np.add.at(sums, (track, at + 1), per_bin - inside)
