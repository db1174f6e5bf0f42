"""A migration: copies with their holders and batches, when a slot may be overwritten, and what the
fabric's NICs do with it.

**The rule of overwriting.**  A copy lands in a buffer of the receiving GPU.  It is put into its
slots when its batch and every batch that reads what these slots hold is over (`commit`).  So a
batch reads weights of the old map alone, whatever else it writes; `buffers` says how many
copies some rank then holds beside its slots.  Copies inside a GPU are read before the first batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Int32s, Ints
from railopt.base.errors import InputError
from railopt.base.units import INT64_MAX
from railopt.evidence.certificate import Certificate
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan, in_stages
from railopt.moe.migration.batches import busiest, by_layer, coloured
from railopt.moe.migration.copies import (
    LocalCopy,
    NeededCopies,
    checked_maps,
    kept_slot,
    needed_copies,
)
from railopt.moe.migration.holders import Holders, by_position, least_busy
from railopt.policies import plan


@dataclass(frozen=True, eq=False)
class Migration:
    """Copies between two maps, int32 [layers, slots], on the ranks of a fabric.

    from_rank  int32 [C], who supplies each copy
    batch      int64 [C], when
    apart      whether layers are one after the other
    holders    how `from_rank` was chosen, where that was by `least_busy`
    """

    fabric: Fabric
    expert_bytes: int
    old: Int32s = field(repr=False)
    new: Int32s = field(repr=False)
    copies: NeededCopies = field(repr=False)
    local: list[LocalCopy] = field(repr=False)
    from_rank: Int32s = field(repr=False)
    batch: Ints = field(repr=False)
    apart: bool = False
    holders: Holders | None = field(default=None, repr=False)

    @property
    def ranks(self) -> int:
        return self.fabric.nodes * self.fabric.gpus

    @property
    def batches(self) -> int:
        return int(self.batch.max(initial=-1)) + 1

    @cached_property
    def bound(self) -> int:
        """Batches that these holders need at least, where a rank sends one copy and receives one at
        once: the most that a rank sends or receives, of each layer where they are apart.
        """
        ends = self.from_rank, self.copies.to_rank
        if not self.apart:
            return busiest(*ends)
        layers = (self.copies.layer == layer for layer in np.unique(self.copies.layer))
        return sum(busiest(*(end[mine] for end in ends)) for mine in layers)

    @cached_property
    def from_slot(self) -> list[int]:
        """[C]: the slot that each copy is read from: one that keeps its expert where there is."""
        size, found, after = self.old.shape[1] // self.ranks, [], self.new.tolist()
        for layer, expert, rank in zip(
            self.copies.layer.tolist(),
            self.copies.expert.tolist(),
            self.from_rank.tolist(),
            strict=True,
        ):
            mine = slice(rank * size, (rank + 1) * size)
            places = (mine.start + np.flatnonzero(self.old[layer, mine] == expert)).tolist()
            found.append(kept_slot(places, after[layer], expert))
        return found

    @cached_property
    def _last_read(self) -> dict[tuple[int, int], int]:
        """(layer, slot) -> the last batch that reads it; -1: before the first."""
        last = {(copy.layer, copy.from_slot): -1 for copy in self.local}
        for layer, slot, batch in zip(
            self.copies.layer.tolist(), self.from_slot, self.batch.tolist(), strict=True
        ):
            last[layer, slot] = max(last.get((layer, slot), -1), batch)
        return last

    def _commit(self, layer: int, slots: list[int], arrived: int) -> int:
        return max([arrived, *(self._last_read.get((layer, slot), -1) for slot in slots)])

    @cached_property
    def commit(self) -> list[int]:
        """[C]: the batch after which each copy may be put into its slots."""
        layers, arrived = self.copies.layer.tolist(), self.batch.tolist()
        rows = zip(layers, self.copies.to_slots, arrived, strict=True)
        return [self._commit(layer, slots, batch) for layer, slots, batch in rows]

    @cached_property
    def local_commit(self) -> list[int]:
        """The same of copies inside a GPU; -1: before the first batch."""
        return [self._commit(copy.layer, copy.to_slots, -1) for copy in self.local]

    @cached_property
    def buffers(self) -> int:
        """The most copies that a rank holds beside its slots during one batch."""
        rows = zip(self.copies.to_rank.tolist(), self.batch.tolist(), self.commit, strict=True)
        inside = zip(self.local, self.local_commit, strict=True)
        waits = sorted(  # a copy is held from the batch that brings it to the one it waits for
            event
            for rank, since, till in (*rows, *((copy.rank, -1, till) for copy, till in inside))
            for event in ((rank, since, 1), (rank, till + 1, -1))
        )
        return max(accumulate(change for _, _, change in waits), default=0)

    def carried(self, policy: str = "lpt", cap: int | None = 1 << 20) -> tuple[Plan, Fraction]:
        """What crosses NICs, as a plan with a stage per batch, each batch's rails by `policy`; and
        the seconds that the batches take one after the other: of each its slowest NIC, or its
        copies inside nodes if these take longer.
        """
        gpus, made, time = self.fabric.gpus, {}, Fraction(0)
        for batch in range(self.batches):
            mine = self.batch == batch
            src, dst = self.from_rank[mine].astype(np.int64), self.copies.to_rank[mine]
            far = src // gpus != dst // gpus
            near = busiest(src[~far], dst[~far]) * self.expert_bytes
            slowest = Fraction(near, self.fabric.scaleup)
            if far.any():
                pairs, number = np.unique(src[far] * self.ranks + dst[far], return_counts=True)
                ends, size = np.divmod(pairs, self.ranks), number * self.expert_bytes
                chunks = Chunks.from_flows(self.fabric.nodes, gpus, *ends, size, cap)
                made[batch] = plan(self.fabric, chunks, policy)
                slowest = max(slowest, made[batch].makespan)
            time += slowest
        return in_stages(self.fabric, made), time

    @property
    def least_time(self) -> Fraction:
        """Seconds that no batches and no rails beat with these holders: of each node, what it sends
        and receives over all its NICs.
        """
        gpus = self.fabric.gpus
        src, dst = self.from_rank // gpus, self.copies.to_rank // gpus
        far, times = src != dst, [Fraction(0)]
        for side, end in (("send", src), ("recv", dst)):
            number = np.bincount(end[far], minlength=self.fabric.nodes).tolist()
            rates = self.fabric.rates(side).sum(axis=1).tolist()
            pairs = zip(number, rates, strict=True)
            times += [Fraction(n * self.expert_bytes, rate) for n, rate in pairs if n]
        return max(times)

    def certificates(self) -> dict[int, Certificate]:
        """`certificate` of each layer that has copies, by its number, where layers are apart: their
        bounds add up to `bound`.
        """
        layers = np.unique(self.copies.layer).tolist()
        return {layer: self.certificate(layer) for layer in layers}

    def certificate(self, layer: int | None = None) -> Certificate:
        """The batches, of one layer or of all together, for `railopt check`: every copy in one, no
        rank twice in one, and the rank that bounds their number.
        """
        if layer is None and self.apart:
            raise InputError("layers that are apart have a certificate each: see `certificates`")
        mine = slice(None) if layer is None else self.copies.layer == layer
        ends = self.from_rank[mine], self.copies.to_rank[mine]
        demand = np.zeros((self.ranks, self.ranks), np.int64)
        np.add.at(demand, ends, 1)
        batches = self.batch[mine] - self.batch[mine].min(initial=0 if layer is None else INT64_MAX)
        number = int(batches.max(initial=-1)) + 1
        stages: list[list[list[int]]] = [[] for _ in range(number)]
        for batch, src, dst in np.stack([batches, *ends], axis=1).tolist():
            stages[batch].append([src, dst, 1])
        sent, received = demand.sum(axis=1), demand.sum(axis=0)
        side, line = ("send", sent) if sent.max() >= received.max() else ("recv", received)
        return Certificate(
            {"kind": "staged", "demand": demand.tolist()},
            Fraction(int(line.max())),
            {"kind": "line", "side": side, "node": int(line.argmax())},
            Fraction(number),
            {"stages": stages},
        )

    def holders_certificate(self) -> Certificate:
        """The choice of holders, for `railopt check`: copies of an expert are tokens that the nodes
        which hold it share out among them, none of them more than the busiest here.
        """
        gpus, nodes, rates = self.fabric.gpus, self.fabric.nodes, self.fabric.tx.sum(axis=1)
        src, dst = self.from_rank // gpus, self.copies.to_rank // gpus
        crossing = np.flatnonzero(src != dst).tolist()
        if self.holders is None or not crossing or (rates != rates[0]).any():
            raise InputError(
                "no certificate of the holders: it is for copies between nodes of one rate, with "
                "holders that were chosen"
            )
        number: dict[tuple[int, int], int] = {}
        layer, expert = self.copies.layer.tolist(), self.copies.expert.tolist()
        of = {c: number.setdefault((layer[c], expert[c]), len(number)) for c in crossing}
        counts = np.bincount(list(of.values())).tolist()
        holds: list[set[int]] = [set() for _ in range(nodes)]
        for copy, group in of.items():
            for rank in self.copies.holders[copy]:
                holds[rank // gpus].add(group)
        rows = np.zeros((len(number), nodes), np.int64)
        np.add.at(rows, (np.array([*of.values()]), src[crossing]), 1)
        most = Fraction(max(self.holders.sends))
        return Certificate(
            {
                "kind": "split",
                "counts": counts,
                "holds": [sorted(held) for held in holds],
                "spare": [0] * nodes,
            },
            most,
            {"kind": "room", "experts": sorted({of[copy] for copy in self.holders.tight})},
            most,
            {"assignment": [[g, k, int(rows[g, k])] for g, k in np.argwhere(rows).tolist()]},
        )

    def as_dict(self, carried: Plan) -> dict[str, Any]:
        """JSON values that a server can carry out, batch by batch."""
        chunks = carried.chunks
        rails: dict[tuple[int, int], dict[int, int]] = {}
        assert carried.stage is not None
        for stage, src, rail, size in zip(
            carried.stage.tolist(),
            chunks.src_gpu.tolist(),
            carried.rail.tolist(),
            chunks.size.tolist(),
            strict=True,
        ):
            mine = rails.setdefault((stage, src), {})
            mine[rail] = mine.get(rail, 0) + size
        batches: list[list[dict[str, Any]]] = [[] for _ in range(self.batches)]
        for copy, batch in enumerate(self.batch.tolist()):
            source = int(self.from_rank[copy])
            far = source // self.fabric.gpus != self.copies.to_rank[copy] // self.fabric.gpus
            batches[batch].append(
                {
                    "layer": int(self.copies.layer[copy]),
                    "expert": int(self.copies.expert[copy]),
                    "from_rank": source,
                    "from_slot": self.from_slot[copy],
                    "to_rank": int(self.copies.to_rank[copy]),
                    "to_slots": self.copies.to_slots[copy],
                    "rails": [list(item) for item in sorted(rails[batch, source].items())]
                    if far
                    else [],
                    "commit": self.commit[copy],
                }
            )
        local = [
            {**copy._asdict(), "commit": commit}
            for copy, commit in zip(self.local, self.local_commit, strict=True)
        ]
        return {
            "ranks": self.ranks,
            "expert_bytes": self.expert_bytes,
            "policy": carried.policy,
            "buffers": self.buffers,
            "local": local,
            "batches": batches,
        }


def migrate(
    fabric: Fabric,
    old: npt.ArrayLike,
    new: npt.ArrayLike,
    expert_bytes: int,
    *,
    layers_apart: bool = False,
) -> Migration:
    """The migration from the map old to the map new, int [layers, slots], with as few batches as
    ranks that send one copy and receive one at once allow; one layer after the other
    with `layers_apart`.
    """
    ranks = fabric.nodes * fabric.gpus
    maps = checked_maps(old, new, ranks)
    copies, local = needed_copies(*maps, ranks)
    found = least_busy(copies, ranks, fabric.tx.sum(axis=1).tolist())
    ends = found.from_rank, copies.to_rank
    batch = by_layer(copies.layer, *ends, ranks) if layers_apart else coloured(*ends, ranks)
    return Migration(
        fabric, expert_bytes, *maps, copies, local, found.from_rank, batch, layers_apart, found
    )


def migrate_first_fit(
    fabric: Fabric, old: npt.ArrayLike, new: npt.ArrayLike, expert_bytes: int
) -> Migration:
    """The same by vLLM's rules: its holders, first fit, one layer after the other."""
    ranks = fabric.nodes * fabric.gpus
    maps = checked_maps(old, new, ranks)
    copies, local = needed_copies(*maps, ranks)
    chosen = by_position(copies)
    batch = by_layer(copies.layer, chosen, copies.to_rank, None)
    return Migration(fabric, expert_bytes, *maps, copies, local, chosen, batch, True)
