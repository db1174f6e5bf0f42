"""Expert placement: which GPU holds which expert, layer by layer, and what a change of placement
moves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Array, Bools, Floats, Int32s, Ints, frozen
from railopt.base.errors import InputError
from railopt.model.traffic import Traffic

MAX_HELD = 1 << 27  # [layer, GPU, expert] of a map that is read


def slot_gpus(replicas: int, gpus: int) -> Int32s:
    """int32 [replicas]: the GPU of each slot where GPUs differ by one slot at most, the fuller ones
    first.
    """
    each, more = divmod(replicas, gpus)
    number = [each + (g < more) for g in range(gpus)] if more else each
    return np.repeat(np.arange(gpus, dtype=np.int32), number)


def checked_map(
    given: npt.ArrayLike, gpus: int, experts: int = 1 << 31, name: str = "the map"
) -> Int32s:
    """A map int32 [layers, slots], the expert of each slot, -1 for none, as many slots on each GPU;
    or one sentence why it is none.
    """
    try:
        table: Array = np.asarray(given)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{name} is no table of whole numbers: rows differ in length, or it is a tensor that "
            f"is not on the host"
        ) from error
    if table.ndim != 2 or 0 in table.shape or table.dtype.kind not in "iu" or table.shape[1] % gpus:
        raise InputError(
            f"{name} has shape {table.shape} and type {table.dtype}: expected whole numbers "
            f"[layers, slots], as many slots on each of {gpus} GPUs"
        )
    if table.min() < -1 or table.max() >= experts:
        raise InputError(
            f"{name} has experts from {table.min()} to {table.max()}: expected 0 to {experts - 1}, "
            f"or -1 for an empty slot"
        )
    return table.astype(np.int32)


@dataclass(frozen=True, eq=False)
class Placement:
    """Experts on `nodes * gpus` GPUs; a GPU holds an expert once or not at all.

    holds  bool [layer, GPU, expert]
    home   int32 [layer, expert]: the GPU that owns the expert (optimizer state, gradient); it
           always holds it
    """

    nodes: int
    gpus: int
    holds: Bools = field(repr=False)
    home: Int32s = field(repr=False)

    def __post_init__(self) -> None:
        holds = np.array(self.holds, dtype=np.bool_, order="C")
        if holds.ndim != 3 or 0 in holds.shape or holds.shape[1] != self.nodes * self.gpus:
            raise InputError(
                f"holds has shape {holds.shape}: expected [layers, {self.nodes} x {self.gpus} "
                f"GPUs, experts]"
            )
        home = frozen(self.home, np.int32, "home", 2)
        if home.shape != (holds.shape[0], holds.shape[2]):
            raise InputError(
                f"home has shape {home.shape}, expected {(holds.shape[0], holds.shape[2])} = "
                f"[layers, experts]"
            )
        orphans = np.argwhere(~holds.any(axis=1))
        if len(orphans):
            layer, expert = orphans[0].tolist()
            raise InputError(
                f"layer {layer}: no GPU holds expert {expert} ({len(orphans)} such experts in "
                f"all); every expert needs "
                "at least one GPU"
            )
        if home.min() < 0 or home.max() >= holds.shape[1]:
            raise InputError(
                f"homes go from {home.min()} to {home.max()}: expected GPUs 0 to "
                f"{holds.shape[1] - 1}"
            )
        layers, experts = np.ogrid[: home.shape[0], : home.shape[1]]
        away = np.argwhere(~holds[layers, home, experts])
        if len(away):
            layer, expert = away[0].tolist()
            raise InputError(
                f"layer {layer}: GPU {home[layer, expert]} is the home of expert {expert} but "
                f"does not hold it"
            )
        holds.flags.writeable = False
        object.__setattr__(self, "holds", holds)
        object.__setattr__(self, "home", home)

    @property
    def layers(self) -> int:
        return int(self.holds.shape[0])

    @property
    def devices(self) -> int:
        """GPUs in all."""
        return int(self.holds.shape[1])

    @property
    def experts(self) -> int:
        return int(self.holds.shape[2])

    @property
    def copies(self) -> Ints:
        """int64 [layer, expert]: GPUs that hold each expert."""
        return self.holds.sum(axis=1, dtype=np.int64)

    @classmethod
    def contiguous(
        cls, layers: int, experts: int, nodes: int, gpus: int, active: Bools | None = None
    ) -> Placement:
        """One replica an expert, consecutive experts on consecutive GPUs, those that are `active`
        (bool [GPU]; None: all): what training stacks do by default.
        """
        on = np.arange(nodes * gpus) if active is None else np.flatnonzero(active)
        home = np.broadcast_to(on[contiguous_home(experts, len(on))], (layers, experts))
        return cls.from_home(home, nodes, gpus)

    @classmethod
    def from_home(
        cls, home: npt.ArrayLike, nodes: int, gpus: int, holds: npt.ArrayLike | None = None
    ) -> Placement:
        """Homes int [layer, expert], and optionally further copies bool [layer, GPU, expert]."""
        owner = frozen(home, np.int32, "home", 2)
        full = np.arange(nodes * gpus)[None, :, None] == owner[:, None, :]
        return cls(
            nodes, gpus, full if holds is None else full | np.asarray(holds, dtype=np.bool_), owner
        )

    @classmethod
    def from_phy2log(
        cls,
        phy2log: npt.ArrayLike,
        nodes: int,
        gpus: int,
        experts: int,
        *,
        twins: bool = False,
    ) -> Placement:
        """Read EPLB's or sglang's map [layer, slot] -> expert; slots in GPU order, GPUs differ by
        one slot at most.  Two slots of an expert on one GPU are refused, or with `twins` one copy,
        and -1 is then an empty slot.
        Homes are spread over holders.
        """
        slots = frozen(phy2log, np.int32, "phy2log", 2)
        if slots.size == 0 or slots.min() < -twins or slots.max() >= experts:
            raise InputError(
                f"a physical expert map of shape {slots.shape} with entries outside "
                f"{-twins} to {experts - 1}"
            )
        if slots.shape[1] < experts:
            raise InputError(
                f"{slots.shape[1]} slots per layer for {experts} experts: expected as many at least"
            )
        if len(slots) * nodes * gpus * experts > MAX_HELD:
            raise InputError(
                f"{len(slots)} layers of {experts} experts on {nodes * gpus} GPUs: more than "
                f"{MAX_HELD} places in all"
            )
        owner = slot_gpus(slots.shape[1], nodes * gpus)
        row, place = np.nonzero(slots >= 0)
        count = np.zeros((len(slots), nodes * gpus, experts), np.int32)
        np.add.at(count, (row, owner[place], slots[row, place]), 1)
        if count.max() > 1 and not twins:
            layer, gpu, expert = np.argwhere(count > 1)[0].tolist()
            raise InputError(
                f"layer {layer}: GPU {gpu} holds expert {expert} {count[layer, gpu, expert]} "
                f"times; once is enough"
            )
        return cls(nodes, gpus, count > 0, homes_spread(count > 0))

    def phy2log(self, slots: int | None = None) -> Int32s:
        """int32 [layer, GPU * slots]: the experts of each GPU in ascending order, as sglang and
        EPLB number them.

        All GPUs and layers get `slots` slots (default: the fullest GPU's); a GPU with room left
        takes further copies of the experts with the fewest copies, which changes no expert's home.
        """
        most = int(self.holds.sum(axis=2).max())
        wanted = most if slots is None else slots
        if not most <= wanted <= self.experts:
            raise InputError(
                f"{wanted} slots per GPU: the fullest GPU holds {most} experts and there are "
                f"{self.experts}; the smallest "
                f"feasible number is {most}"
            )
        holds = self.holds.copy()
        for layer in range(self.layers):
            for gpu in range(self.devices):
                missing = wanted - int(holds[layer, gpu].sum())
                order = np.lexsort((holds[layer].sum(axis=0), holds[layer, gpu]))
                holds[layer, gpu, order[:missing]] = True
        return np.nonzero(holds)[2].astype(np.int32).reshape(self.layers, -1)

    def layers_keeping(self, groups: int) -> int:
        """Layers in which each of as many groups of consecutive experts is on one node."""
        if self.experts % groups:
            return 0
        by_node = self.holds.reshape(self.layers, self.nodes, self.gpus, groups, -1)
        return int((by_node.any(axis=(2, 4)).sum(axis=1) == 1).all(axis=1).sum())

    def moved(self, previous: Placement) -> Bools:
        """bool [layer, GPU, expert]: copies that `previous` does not have."""
        if previous.holds.shape != self.holds.shape:
            raise InputError(
                f"the previous placement has shape {previous.holds.shape}, this one "
                f"{self.holds.shape}"
            )
        return self.holds & ~previous.holds

    def without(self, lost: Bools) -> Placement:
        """Without what GPUs that are `lost`, bool [GPU], hold, but for experts that no other has:
        tokens go to the other holders.
        """
        holds = self.holds.copy()
        alone = holds[:, ~lost].sum(axis=1) == 0
        holds[:, lost] &= alone[:, None, :]
        stays = np.take_along_axis(holds, self.home[:, None, :].astype(np.int64), axis=1)[:, 0]
        home = np.where(stays, self.home, holds.argmax(axis=1)).astype(np.int32)
        return Placement(self.nodes, self.gpus, holds, home)

    def movement(
        self, previous: Placement, expert_bytes: int, active: Bools | None = None
    ) -> Traffic:
        """What the change sends: each new copy comes from the GPU of its node that has sent least,
        else from any such GPU.  It comes from one that is not active (bool [GPU]; None: all are)
        only where no other has the expert.
        """
        sent = np.zeros((self.devices, self.devices), np.int64)
        for layer, gpu, expert in np.argwhere(self.moved(previous)).tolist():
            holders = np.flatnonzero(previous.holds[layer, :, expert])
            if active is not None and active[holders].any():
                holders = holders[active[holders]]
            near = holders[holders // self.gpus == gpu // self.gpus]
            pool = near if len(near) else holders
            source = pool[np.argmin(sent[pool].sum(axis=1))]
            sent[source, gpu] += expert_bytes
        return Traffic(sent, self.nodes)


def homes_spread(holds: Bools) -> Int32s:
    """int32 [layer, expert]: experts with the fewest holders first, each at the first of those of
    its holders that are the home of fewest; an expert without a holder at GPU 0.
    """
    home = np.zeros((holds.shape[0], holds.shape[2]), np.int32)
    for layer, row in zip(holds, home, strict=True):
        number = np.zeros(len(layer), np.int64)
        for expert in np.argsort(layer.sum(axis=0), kind="stable").tolist():
            row[expert] = np.argmin(np.where(layer[:, expert], number, layer.size))
            number[row[expert]] += 1
    return home


def homes_near(holds: Bools, previous: Placement | None) -> Int32s:
    """int32 [layer, expert]: the home before where it still holds the expert, else a GPU that had
    it, else the first holder.
    """
    if previous is None:
        return holds.argmax(axis=1).astype(np.int32)
    had = holds & previous.holds
    layers, experts = np.ogrid[: holds.shape[0], : holds.shape[2]]
    new = np.where(had.any(axis=1), had.argmax(axis=1), holds.argmax(axis=1))
    return np.where(holds[layers, previous.home, experts], previous.home, new).astype(np.int32)


def homes_without(previous: Placement, active: Bools) -> Int32s:
    """int32 [layer, expert]: the homes before where they are active, bool [GPU]; of the others, an
    active GPU with few homes, one that holds the expert if it has not its share already.
    """
    home, on = previous.home.copy(), np.flatnonzero(active)
    share = -(-previous.experts // len(on))
    for layer, row in enumerate(home):
        number = np.bincount(row, minlength=previous.devices)
        for expert in np.flatnonzero(~active[row]):
            holders = on[previous.holds[layer, on, expert] & (number[on] < share)]
            pool = holders if len(holders) else on
            row[expert] = pool[np.argmin(number[pool])]
            number[row[expert]] += 1
    return home


def assigned(kept: Ints | Floats, size: int) -> Ints:
    """int64 [GPU]: the new name of each, given kept [GPU, name], what a name is worth (copies that
    need not move); blocks of `size` stay together.
    """
    from scipy.optimize import linear_sum_assignment

    blocks = len(kept) // size
    parts = kept.reshape(blocks, size, blocks, size).swapaxes(1, 2)
    inside = np.empty((blocks, blocks, size), np.int64)
    worth = np.empty((blocks, blocks))
    for a, b in np.ndindex(blocks, blocks):
        rows, inside[a, b] = linear_sum_assignment(-parts[a, b])
        worth[a, b] = parts[a, b][rows, inside[a, b]].sum()
    _, block = linear_sum_assignment(-worth)
    return np.concatenate([block[a] * size + inside[a, block[a]] for a in range(blocks)])


def contiguous_home(experts: int, devices: int) -> Int32s:
    """int32 [experts]: expert e on GPU floor(e * devices / experts); fewer experts than GPUs leave
    GPUs between them empty.
    """
    return (np.arange(experts, dtype=np.int64) * devices // experts).astype(np.int32)
