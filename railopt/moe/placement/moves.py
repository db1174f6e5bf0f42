"""How few moves a map can be repaired with: a bound that holds for every map as even, with a
witness, and the curve of moves against balance.

A move is a copy of an expert on a GPU that did not hold it.  Tokens of an expert are split evenly
over its copies, each GPU keeps its number of slots, and no GPU holds an expert twice.  Where no GPU
may have more than T tokens:

    copies     an expert with more than T tokens per copy needs further copies, each a move; this
               holds too where a GPU holds an expert twice
    full GPUs  a GPU that has more than T must get another expert, or one of its experts a further
               copy elsewhere: a move of expert e relieves the GPU it goes to and those that hold e
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from railopt.base.arrays import Int32s, Ints
from railopt.base.errors import InputError
from railopt.moe.placement.packing import balance
from railopt.moe.placement.placement import slot_gpus
from railopt.moe.placement.repair import FewMoves, repaired_map


class MovesBound(NamedTuple):
    """Moves that no map as even has fewer of, in one layer, and why; a map that fills its slots and
    has no expert twice on a GPU.

    witness  {"kind": "copies", "experts": [[expert, copies before, copies needed], ...]} or
             {"kind": "full GPUs", "gpus": [...], "experts": [[expert, how many of these hold it],
             ...]}, the experts that are on most of them
    """

    moves: int
    witness: dict[str, Any]

    def holds(self, load: Ints, old: Int32s, gpus: int, most: Fraction) -> bool:
        """Whether the witness shows the bound, added up anew in whole numbers."""
        held, tokens = _holders(old, len(load), gpus), load.tolist()
        if self.witness["kind"] == "copies":  # with a copy less, each has more than `most`
            listed = self.witness["experts"]
            if not all(type(e) is type(n) is int and 0 <= e < len(tokens) for e, _, n in listed):
                return False
            wanted = {e: n for e, _, n in listed}
            short = all(tokens[e] > most * (n - 1) for e, n in wanted.items())
            return short and self.moves <= sum(n - len(held[e]) for e, n in wanted.items())
        full = set(self.witness["gpus"])
        once = sum(map(len, held)) == len(old)
        if not once or not full <= _full(load, held, gpus, most):
            return False
        # so many moves less one relieve fewer GPUs, whichever experts they are of
        most_held = sorted((len(where & full) for where in held), reverse=True)
        reached = sum(most_held[: self.moves - 1]) + self.moves - 1
        return not self.moves or reached < len(full)


def least_moves(load: Ints, old: Int32s, gpus: int, most: Fraction) -> MovesBound:
    """A bound on the moves of any map of one layer in which no GPU has more than `most` tokens.

    load  int [experts];  old  int32 [slots], in GPU order, each expert in one at least
    Whole numbers and fractions alone.
    """
    held = _holders(old, len(load), gpus)
    needed = [
        [e, len(held[e]), max(1, -(-tokens // most))] for e, tokens in enumerate(load.tolist())
    ]
    short = [[e, had, int(want)] for e, had, want in needed if want > had]
    copies = sum(want - had for _, had, want in short)
    full: set[int] = set()
    if sum(map(len, held)) == len(old):  # slots that are empty or hold an expert twice relieve, too
        full = _full(load, held, gpus, most)
    reach = sorted(((len(held[e] & full), e) for e in range(len(load))), reverse=True)
    counted: list[list[int]] = []
    covered = 0
    for number, expert in reach:
        if covered >= len(full):
            break
        counted.append([expert, number])
        covered += 1 + number
    while covered < len(full):  # every expert moved already: each further move relieves one GPU
        counted.append([reach[0][1], 0])
        covered += 1
    if copies >= len(counted):
        return MovesBound(copies, {"kind": "copies", "experts": short})
    return MovesBound(len(counted), {"kind": "full GPUs", "gpus": sorted(full), "experts": counted})


def _holders(old: Int32s, experts: int, gpus: int) -> list[set[int]]:
    """The GPUs of each expert."""
    held: list[set[int]] = [set() for _ in range(experts)]
    for expert, gpu in zip(old.tolist(), slot_gpus(len(old), gpus).tolist(), strict=True):
        if expert >= 0:
            held[expert].add(gpu)
    if not all(held):
        raise InputError(f"expert {held.index(set())} is in no slot of the map before")
    return held


def _full(load: Ints, held: list[set[int]], gpus: int, most: Fraction) -> set[int]:
    """The GPUs that have more than `most`, exactly."""
    total = [Fraction(0)] * gpus
    for tokens, where in zip(load.tolist(), held, strict=True):
        for gpu in where:
            total[gpu] += Fraction(tokens, len(where))
    return {gpu for gpu, tokens in enumerate(total) if tokens > most}


class CurvePoint(NamedTuple):
    """A budget of moves per layer, and what it buys; of all layers together.

    moves    copies that move;  least  no map as even, layer by layer, moves fewer
    balance  max/mean of the GPUs, mean over layers;  worst  of the worst layer
    bounds   of each layer: tokens of its fullest GPU, and the moves that a map needs at least in
             which no GPU has more
    """

    budget: int
    moves: int
    least: int
    balance: float
    worst: float
    bounds: tuple[tuple[Fraction, MovesBound], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """JSON values; tokens as fractions in text."""
        bounds = [{"most": str(most), **bound._asdict()} for most, bound in self.bounds]
        return {**self._asdict(), "bounds": bounds}


def moves_curve(loads: Ints, old: Int32s, sizes: tuple[int, int, int, int]) -> list[CurvePoint]:
    """The best balance found for budgets of 0, 1, 2, 4, ... moves per layer, until a larger one
    changes nothing: for loads int [layers, experts] after the map old int32 [layers, replicas];
    sizes as in `repaired_map`.
    """
    points = [_point(loads, old, sizes, 0)]
    for bit in range(old.shape[1].bit_length() + 1):
        points.append(_point(loads, old, sizes, 1 << bit))
        if len(points) > 2 and points[-1].moves == points[-2].moves:
            return points[:-1]
    return points


def _point(loads: Ints, old: Int32s, sizes: tuple[int, int, int, int], budget: int) -> CurvePoint:
    gpus, weight = sizes[3], loads.astype(np.float64)
    made = repaired_map(weight, old, sizes, FewMoves(moves=budget))
    even = balance(weight, made, gpus)
    owner, moves, bounds = slot_gpus(old.shape[1], gpus).tolist(), 0, []
    for load, before, after in zip(loads, old, made, strict=True):
        held = _holders(before, len(load), gpus)
        moves += sum(g not in held[e] for e, g in zip(after.tolist(), owner, strict=True))
        most = _fullest(load, after, gpus)
        bounds.append((most, least_moves(load, before, gpus, most)))
    least = sum(bound.moves for _, bound in bounds)
    return CurvePoint(budget, moves, least, float(even.mean()), float(even.max()), tuple(bounds))


def _fullest(load: Ints, row: Int32s, gpus: int) -> Fraction:
    """Tokens of the fullest GPU, exactly."""
    total = [Fraction(0)] * gpus
    copies = np.bincount(row, minlength=len(load)).tolist()
    for expert, gpu in zip(row.tolist(), slot_gpus(len(row), gpus).tolist(), strict=True):
        total[gpu] += Fraction(int(load[expert]), copies[expert])
    return max(total)
