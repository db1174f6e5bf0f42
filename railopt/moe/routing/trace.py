"""Routing traces: which experts the tokens of each source rank chose, iteration by iteration and
layer by layer.

A trace file is a railopt `.npz` of kind "trace": `counts` always, `choices` (each token's experts)
for a few iterations where they were recorded, and a header with the model's dimensions and where
the numbers came from.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import (
    Array,
    Bools,
    Int32s,
    Ints,
    frozen,
    read_npz,
    save_npz,
    whole_number,
)
from railopt.base.errors import FormatError, InputError, about, printable
from railopt.base.units import quoted

KIND = "trace"
HEADER = ("top_k", "tokens_per_rank", "model_dim", "meta")
MAX_EXPERTS = 1 << 15  # `choices` are int16
MAX_LAYERS = 1 << 12
MAX_TOKENS = 1 << 40  # per rank
MAX_WIDTH = 1 << 20  # of a token's hidden vector
TRAINING, SERVING, LOADS = "training iterations", "serving steps", "loads"  # what rows record
ARRAYS = ("counts", "iterations", "layers", "choices", "choice_iterations", "choice_layers")


@dataclass(frozen=True, eq=False)
class Trace:
    """Routing decisions of `ranks` source ranks.

    counts             int32 [iteration, layer, source rank, expert], (token, expert) pairs; a token
                       counts `top_k` times
    top_k              experts per token
    tokens_per_rank    tokens a rank reads in an iteration; 0 where unknown
    model_dim          width of a token's hidden vector; 0 where unknown
    iterations         int64 [iteration], which training (or serving) step each row is, ascending
    layers             int32 [layer], which layer of the model
    choices            int16 [iteration', layer', rank, token, top_k], experts of each token where
                       recorded; else empty.  Where ranks have different numbers of tokens, rows of
                       -1 are none (`tokens` leaves them out)
    choice_iterations  int64 [iteration'], choice_layers int32 [layer']: what the rows of `choices`
                       are
    meta               JSON values: command, seed, hardware, text; "records": what a row is, see
                       `records`
    """

    counts: Int32s = field(repr=False)
    top_k: int
    tokens_per_rank: int = 0
    model_dim: int = 0
    iterations: Ints = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    layers: Int32s = field(default_factory=lambda: np.empty(0, np.int32), repr=False)
    choices: npt.NDArray[np.int16] = field(
        default_factory=lambda: np.empty((0, 0, 0, 0, 0), np.int16), repr=False
    )
    choice_iterations: Ints = field(default_factory=lambda: np.empty(0, np.int64), repr=False)
    choice_layers: Int32s = field(default_factory=lambda: np.empty(0, np.int32), repr=False)
    meta: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name, low, high in (
            ("top_k", 0, MAX_EXPERTS),
            ("tokens_per_rank", 0, MAX_TOKENS),
            ("model_dim", 0, MAX_WIDTH),
        ):
            object.__setattr__(self, name, whole_number(getattr(self, name), name, low, high))
        if not isinstance(self.meta, Mapping):
            raise InputError(f"meta = {quoted(self.meta)}: expected a table")
        shapes = (
            ("counts", np.int32, 4),
            ("iterations", np.int64, 1),
            ("layers", np.int32, 1),
            ("choices", np.int16, 5),
            ("choice_iterations", np.int64, 1),
            ("choice_layers", np.int32, 1),
        )
        for name, dtype, ndim in shapes:
            object.__setattr__(self, name, frozen(getattr(self, name), dtype, name, ndim))
        for name, length, dtype in (
            ("iterations", self.counts.shape[0], np.int64),
            ("layers", self.counts.shape[1], np.int32),
        ):
            if not len(getattr(self, name)):
                object.__setattr__(
                    self, name, frozen(np.arange(length, dtype=dtype), dtype, name, 1)
                )
            elif len(getattr(self, name)) != length:
                raise InputError(
                    f"{name} has {len(getattr(self, name))} entries, counts has {length}"
                )
        self._check_counts()
        self._check_choices()

    def _check_counts(self) -> None:
        if 0 in self.counts.shape:
            raise InputError(
                f"counts has shape {self.counts.shape}: expected at least one iteration, layer, "
                f"rank and expert"
            )
        if self.counts.min() < 0:
            where = np.argwhere(self.counts < 0)[0].tolist()
            raise InputError(
                f"counts{where} = {self.counts[tuple(where)]}: a count can't be negative"
            )
        if np.any(np.diff(self.iterations) <= 0) or len(np.unique(self.layers)) < len(self.layers):
            raise InputError("iterations must ascend, and a layer be there once")
        if not 1 <= self.top_k <= self.experts:
            raise InputError(
                f"top_k = {self.top_k}: expected 1 to {self.experts}, the number of experts"
            )
        if self.experts > MAX_EXPERTS or len(self.layers) > MAX_LAYERS:
            raise InputError(
                f"counts has shape {self.counts.shape}: at most {MAX_LAYERS} layers of "
                f"{MAX_EXPERTS} experts are possible"
            )
        most = _largest_row(self.counts.reshape(-1, self.experts))
        if self.tokens_per_rank and most > self.tokens_per_rank * self.top_k:
            raise InputError(
                f"a rank sends {most} (token, expert) pairs: more than tokens_per_rank * top_k = "
                f"{self.tokens_per_rank} * {self.top_k}"
            )

    def _check_choices(self) -> None:
        if not self.choices.size:
            return
        expected = (
            len(self.choice_iterations),
            len(self.choice_layers),
            self.ranks,
            self.choices.shape[3],
            self.top_k,
        )
        if self.choices.shape != expected:
            raise InputError(
                f"choices has shape {self.choices.shape}, expected {expected} "
                "= (choice_iterations, choice_layers, ranks, tokens, top_k)"
            )
        _check_experts(self.choices, self.experts)

    @property
    def ranks(self) -> int:
        """Source ranks."""
        return int(self.counts.shape[2])

    @property
    def experts(self) -> int:
        """Experts per layer."""
        return int(self.counts.shape[3])

    @property
    def records(self) -> str:
        """What a row is: TRAINING iterations (unless `meta` says otherwise), SERVING steps, or
        LOADS, sums over an unknown number of steps.
        """
        said = self.meta.get("records", TRAINING)
        return said if said in (TRAINING, SERVING) else LOADS

    @cached_property
    def load(self) -> Ints:
        """int64 [iteration, layer, expert]: pairs over all ranks; what EPLB calls weight."""
        load = self.counts.sum(axis=2, dtype=np.int64)
        load.flags.writeable = False
        return load

    def row(self, iteration: int) -> int:
        """The row of a training iteration; -1 is the last row."""
        if iteration == -1:
            return len(self.iterations) - 1
        found = np.flatnonzero(self.iterations == iteration)
        if not len(found):
            near = self.iterations[np.argsort(np.abs(self.iterations - iteration))[:4]]
            raise InputError(
                f"iteration {iteration} was not recorded; nearest recorded: {sorted(near.tolist())}"
            )
        return int(found[0])

    def column(self, layer: int) -> int:
        """Where a layer stands, by its number in the model."""
        found = np.flatnonzero(self.layers == layer)
        if not len(found):
            raise InputError(
                f"layer {layer} is not in the trace; its layers: {self.layers.tolist()}"
            )
        return int(found[0])

    @property
    def usual_tokens(self) -> int:
        """Tokens that a rank reads in an iteration: the mean where they are unknown."""
        return self.tokens_per_rank or max(
            1, int(self.load.sum(axis=2).mean() / self.ranks / self.top_k)
        )

    def expect(self, *, ranks: int | None = None, experts: int | None = None) -> Trace:
        """This trace, if it is for so many ranks and experts; else an error that says what to
        do.
        """
        if ranks is not None and ranks != self.ranks:
            hint = (
                f"merge ranks first (--merge-ranks, Trace.merged({ranks}))"
                if self.ranks % ranks == 0 and ranks < self.ranks
                else f"use a fabric of {self.ranks} GPUs or another trace"
            )
            raise InputError(
                f"the trace is for {self.ranks} source ranks, expected {ranks}, one per GPU: {hint}"
            )
        if experts is not None and experts != self.experts:
            raise InputError(
                f"the trace is for {self.experts} experts, expected {experts}: use a trace of the "
                f"same model"
            )
        return self

    def merged(self, ranks: int) -> Trace:
        """The same routing with consecutive source ranks joined into `ranks` larger ones."""
        if ranks < 1 or self.ranks % ranks:
            raise InputError(
                f"{self.ranks} ranks can't be merged into {ranks}: expected a divisor of "
                f"{self.ranks}"
            )
        share = self.ranks // ranks
        rows, layers, _, experts = self.counts.shape
        counts = self.counts.reshape(rows, layers, ranks, share, experts).sum(
            axis=3, dtype=np.int64
        )
        choices = (
            self.choices.reshape(*self.choices.shape[:2], ranks, -1, self.top_k)
            if self.choices.size
            else self.choices
        )
        return replace(
            self, counts=counts, choices=choices, tokens_per_rank=self.tokens_per_rank * share
        )

    def drained(self, active: Bools) -> Trace:
        """The counts when only `active` ranks, bool [rank], read tokens: those of the others are
        spread evenly over them.  Choices token by token are left out.
        """
        if active.shape != (self.ranks,) or not active.any():
            raise InputError(f"active ranks: expected {self.ranks} truths, one at least true")
        counts, on = self.counts.astype(np.int64), np.flatnonzero(active)
        rest = counts[:, :, ~active].sum(axis=2)
        counts[:, :, ~active] = 0
        share, left = np.divmod(rest, len(on))
        turn = np.arange(self.experts) % len(on)
        for place, rank in enumerate(on):
            counts[:, :, rank] += share + ((place - turn) % len(on) < left)
        most = -(-_largest_row(counts.reshape(-1, self.experts)) // self.top_k)
        return replace(
            self,
            counts=frozen(counts, np.int32, "counts", 4),
            tokens_per_rank=most if self.tokens_per_rank else 0,
            choices=np.empty((0, 0, 0, 0, 0), np.int16),
            choice_iterations=np.empty(0, np.int64),
            choice_layers=np.empty(0, np.int32),
        )

    @classmethod
    def from_choices(cls, choices: npt.ArrayLike, experts: int, **fields: Any) -> Trace:
        """The trace of each token's experts, integers `[iteration, layer, rank, token, top_k]`;
        where ranks have different numbers of tokens, rows of -1 are none.
        """
        given = frozen(choices, np.int16, "choices", 5)
        _check_experts(given, experts)
        rows, layers, ranks, tokens, top_k = given.shape
        flat = np.arange(rows * layers * ranks, dtype=np.int64).repeat(
            tokens * top_k
        ) * experts + given.reshape(-1)
        counts = np.bincount(
            flat[given.reshape(-1) >= 0], minlength=rows * layers * ranks * experts
        ).reshape(rows, layers, ranks, experts)
        known = {
            "iterations": np.arange(rows),
            "layers": np.arange(layers, dtype=np.int32),
            **fields,
        }
        return cls(
            counts.astype(np.int32),
            top_k,
            tokens,
            choices=given,
            choice_iterations=known["iterations"],
            choice_layers=known["layers"],
            **known,
        )

    def chosen(self, iteration: int, layer: int) -> npt.NDArray[np.int16]:
        """int16 [rank, token, top_k] of one iteration and layer; an error where tokens were not
        recorded one by one.
        """
        rows, columns = (
            np.flatnonzero(self.choice_iterations == iteration),
            np.flatnonzero(self.choice_layers == layer),
        )
        if not (self.choices.size and len(rows) and len(columns)):
            raise InputError(
                f"no per-token choices for iteration {iteration}, layer {layer} (recorded: "
                f"iterations "
                f"{self.choice_iterations.tolist()}, layers {self.choice_layers.tolist()}): "
                f"counts alone can't "
                "tell which tokens share a destination; leave de-duplication off"
            )
        picked: npt.NDArray[np.int16] = self.choices[rows[0], columns[0]]
        return picked

    def tokens(self, iteration: int, layer: int) -> tuple[Ints, npt.NDArray[np.int16]]:
        """(rank of each token, int64 [tokens]; its experts, int16 [tokens, top_k]) of one iteration
        and layer, rank by rank; ranks may have different numbers of them.
        """
        chosen = self.chosen(iteration, layer)
        rank, place = np.nonzero(chosen[:, :, 0] >= 0)
        return rank.astype(np.int64), chosen[rank, place]

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> None:
        """Write a compressed trace file that `read` understands."""
        header = {**{name: getattr(self, name) for name in HEADER}, "meta": dict(self.meta)}
        arrays: dict[str, Array] = {name: getattr(self, name) for name in ARRAYS}
        save_npz(path, KIND, header, arrays, force=force, packing=zipfile.ZIP_LZMA)

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Trace:
        """Read a trace file; anything else is a FormatError."""
        header, arrays = read_npz(path, KIND)
        if set(header) != set(HEADER) or set(arrays) != set(ARRAYS):
            raise FormatError(
                f"{printable(path)}: holds {printable(sorted(header))} and "
                f"{printable(sorted(arrays))}, expected {sorted(HEADER)} and {sorted(ARRAYS)}"
            )
        with about(f"{printable(path)}: "):
            return cls(arrays.pop("counts"), **header, **arrays)  # type: ignore[arg-type]


def _check_experts(choices: npt.NDArray[np.int16], experts: int) -> None:
    """Refuse choices [..., top_k] that are neither experts nor, throughout, the -1 of no token."""
    if not choices.size:
        return
    if choices.min() < -1 or choices.max() >= experts:
        raise InputError(
            f"choices go from {choices.min()} to {choices.max()}: expected experts 0 to "
            f"{experts - 1}, or -1 throughout where a rank has no more tokens"
        )
    none = choices < 0
    partly = none.any(axis=-1) & ~none.all(axis=-1)
    if partly.any():
        where = np.argwhere(partly)[0].tolist()
        raise InputError(
            f"choices{where} = {choices[tuple(where)].tolist()}: expected experts, or -1 "
            f"throughout where a rank has no more tokens"
        )


def _largest_row(table: Array) -> int:
    """The largest sum of a row of table [row, expert], block by block: sums take twice the room of
    int32.
    """
    block = max(1, (1 << 20) // table.shape[1])
    return max(
        int(table[start : start + block].sum(axis=1, dtype=np.int64).max())
        for start in range(0, len(table), block)
    )
