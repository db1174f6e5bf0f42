"""What the mechanisms of `railopt.moe` gain: rows of docs/design/ablations.md that can be measured.

Steps that no plan has seen, of the committed traces, and draws that no constant was tuned on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from railopt.moe.assess import scored_map
from railopt.moe.placement import improve, naming, packing, repair
from railopt.moe.placement.eplb import eplb
from railopt.moe.placement.packing import balance, packed
from railopt.moe.placement.repair import FewMoves
from railopt.moe.placement.replicate import rebalance
from railopt.moe.routing import window
from railopt.moe.routing.trace import Trace
from railopt.moe.routing.window import WHOLE, Window, seen
from tests.bench.ablations import Ablation, source_lines

TRACES = Path(__file__).parents[2] / "experiments" / "traces"
Row = tuple[str, int, str]  # name, lines, gain


def rows(seed: int) -> Iterator[Ablation]:
    """Every mechanism that is kept and can be left out here; the traces are the same for every
    seed.
    """
    command = f"python -m tests.bench ablations moe --seed {seed}"
    for found in (_decay(), _packing(seed), _moves(seed)):
        for name, lines, gain in found:
            yield Ablation(name, lines, gain, command)


def _anew(plan: Callable[[np.ndarray, int, int], np.ndarray]) -> float:
    """Mean of max/mean over the committed traces, each on 8 GPUs and one GPU per rank: the last
    quarter of the steps, planned anew before each.
    """
    cells = []
    for path in sorted(TRACES.glob("*.npz")):
        trace = Trace.read(path)
        load = trace.load
        for gpus in (8, trace.ranks):
            replicas = -(-load.shape[2] // gpus) * gpus + gpus
            ratios = [
                scored_map(load[at : at + 1, :, None], plan(load[:at], replicas, gpus), gpus).mean
                for at in range(len(load) - len(load) // 4, len(load))
            ]
            cells.append(np.mean(ratios))
    return float(np.mean(cells))


def _planned(chosen: Window) -> Callable[[np.ndarray, int, int], np.ndarray]:
    def plan(load: np.ndarray, replicas: int, gpus: int) -> np.ndarray:
        forecast = seen(load[:, :, None], chosen).counts.sum(axis=1)
        return rebalance(forecast, replicas, 1, 1, gpus)[0]

    return plan


def _decay() -> Iterator[Row]:
    plain = _anew(lambda load, replicas, gpus: eplb(load.sum(axis=0), replicas, 1, 1, gpus))
    fixed, chosen = _anew(_planned(Window(decay=0.9))), _anew(_planned(WHOLE))
    yield (
        "decay chosen by trials",
        source_lines(window.best_decay),
        f"max/mean {fixed:.3f} with a fixed 0.9 -> {chosen:.3f} (EPLB on the sum {plain:.3f})",
    )


def _packing(seed: int) -> Iterator[Row]:
    rng = np.random.default_rng([seed, 0])
    found = []
    for experts, gpus in ((64, 32), (256, 32), (256, 64)):
        load = np.exp(2 * rng.normal(size=(20, experts)))
        without, _ = packing._packed(load, experts + gpus, 1, 1, gpus)
        evened = packed(load, experts + gpus, 1, 1, gpus)
        one, other = (float(balance(load, plan, gpus).mean()) for plan in (without, evened))
        found.append(f"{experts} + {gpus} on {gpus}: {one:.3f} -> {other:.3f}")
    text = "; ".join(found)
    yield ("improve in a packing above 1.02", source_lines(improve), f"lognormal 2, {text}")


def _moves(seed: int) -> Iterator[Row]:
    rng = np.random.default_rng([seed, 1])
    load = np.exp(rng.normal(size=(20, 256)))
    old = rebalance(load, 288, 1, 1, 32)[0]
    later = load * np.exp(0.05 * rng.normal(size=load.shape))
    fresh = rebalance(later, 288, 1, 1, 32)[0]
    named = repair.least_change(fresh, old, 32, 32)
    within = rebalance(later, 288, 1, 1, 32, old, FewMoves(1.02, 1.02))[0]
    best = rebalance(later, 288, 1, 1, 32, old, FewMoves(moves=75))[0]

    def scored(plan: np.ndarray) -> str:
        return f"{moved(plan, old, 32):.1f} moves, {balance(later, plan, 32).mean():.4f}"

    yield (
        "least_change",
        source_lines(repair.least_change, repair._in_place),
        f"anew {scored(fresh)} -> {scored(named)}",
    )
    yield (
        "repair of a map",
        source_lines(repair.repaired_map, repair._stepwise, improve),
        f"old map {balance(later, old, 32).mean():.4f}; within 1.02: {scored(within)}; at most 75 "
        f"moves: {scored(best)}",
    )
    yield ("naming", source_lines(naming), "the options --costs and --aim are this")


def moved(new: np.ndarray, old: np.ndarray, gpus: int) -> float:
    """Copies per layer that a GPU did not hold before."""
    pairs = zip(
        new.reshape(len(new) * gpus, -1).tolist(),
        old.reshape(len(old) * gpus, -1).tolist(),
        strict=True,
    )
    return sum(len(set(now) - set(before)) for now, before in pairs) / len(new)
