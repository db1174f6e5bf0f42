"""How good a placement is on recorded steps: balance, the busiest link under each rail policy,
time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from railopt.base.arrays import Bools, Floats, Int32s, Ints, whole_number
from railopt.base.errors import InputError
from railopt.model.traffic import Traffic
from railopt.moe.aim import RailLinks, rail_plan
from railopt.moe.iteration.timeline import IterationTimeline, timeline
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement.packing import map_loads
from railopt.moe.placement.placement import Placement
from railopt.moe.placement.prophet import measure
from railopt.moe.presets import Preset, preset
from railopt.moe.routing.dispatch import flows, gpu_loads
from railopt.moe.routing.trace import MAX_EXPERTS, MAX_WIDTH, Trace

RAIL_POLICIES = ("own-nic", "pxn", "lpt", "equitable", "even-excess", "spill")
CHUNK, MOST_CHUNKS = 256 << 10, 1 << 21


def dimensions(trace: Trace, model: str | Preset | None) -> Preset:
    """The model behind a trace: a preset, or one by name, with the trace's experts and top-k, or
    what the trace itself says.
    """
    if model is not None:
        known = preset(model) if isinstance(model, str) else model
        return replace(known, layers=len(trace.layers), experts=trace.experts, top_k=trace.top_k)
    shape = trace.meta.get("model")
    if not isinstance(shape, Mapping) or not trace.model_dim:
        raise InputError(
            "the trace does not say how large its model is: name one, e.g. --model "
            "deepseek-v2-lite (`railopt place` also takes dimensions: --model-dim 2048 --ffn 1408)"
        )
    width, ffn, shared = trace.model_dim, shape.get("ffn"), shape.get("shared", 0)
    ffn = whole_number(ffn, "ffn of the trace's model", 1, MAX_WIDTH)
    shared = whole_number(shared, "shared of the trace's model", 0, MAX_EXPERTS)
    dense = 4 * width * width + 3 * width * ffn * shared
    return Preset(
        "the trace's own", len(trace.layers), trace.experts, trace.top_k, width, ffn, dense
    )


def usual_chunk(trace: Trace, token_bytes: int) -> int:
    """CHUNK, doubled until no step's dispatch in a layer can have more than MOST_CHUNKS beside one
    a pair of GPUs: a load tensor may be the sum of any number of steps.
    """
    largest = int(trace.load.sum(axis=2).max()) * token_bytes
    return CHUNK << (largest // (CHUNK * MOST_CHUNKS)).bit_length()


@dataclass(frozen=True, eq=False)
class Score:
    """How even GPUs are: max/mean of the tokens that they compute, float64 [step, layer]; NaN where
    there are none, as in dense layers: these are left out of every mean.
    """

    ratio: Floats = field(repr=False)

    @property
    def mean(self) -> float:
        """Over steps and layers."""
        return float(_mean_of_known(self.ratio.reshape(1, -1))[0])

    @property
    def steps(self) -> tuple[float, float]:
        """The best and the worst step's mean over layers."""
        by_step = _mean_of_known(self.ratio)
        return float(by_step.min()), float(by_step.max())

    @property
    def worst(self) -> float:
        """The worst layer's mean over steps."""
        return float(_mean_of_known(self.ratio.T).max())

    def as_dict(self) -> dict[str, float]:
        """JSON values."""
        best, worst = self.steps
        return {
            "balance": self.mean,
            "balance_best_step": best,
            "balance_worst_step": worst,
            "worst_layer_balance": self.worst,
        }


def scored(
    counts: Ints | Int32s, placement: Placement, rule: str, active: Bools | None = None
) -> Score:
    """A placement on counts int [step, layer, source GPU, expert]; the mean is over `active` GPUs
    (bool [GPU]; None: all).
    """
    loads = [
        gpu_loads(counts[:, layer], holds, placement.home[layer], placement.gpus, rule)
        for layer, holds in enumerate(placement.holds)
    ]
    on = slice(None) if active is None else active
    return Score(_ratio(np.stack(loads, axis=1)[:, :, on]))


def scored_map(counts: Ints | Int32s, phy2log: Int32s, devices: int) -> Score:
    """The same of a map [layer, slot] -> expert that may hold an expert twice on a GPU, tokens
    spread evenly over its slots.
    """
    load = counts.sum(axis=2, dtype=np.int64)
    return Score(_ratio(np.stack([map_loads(step, phy2log, devices) for step in load])))


def _ratio(loads: Floats) -> Floats:
    """max/mean over the last axis; NaN where there is no load."""
    mean = loads.mean(axis=-1)
    return loads.max(axis=-1) / np.where(mean > 0, mean, np.nan)


def _mean_of_known(rows: Floats) -> Floats:
    """Each row's mean without its NaNs; of the rows that have nothing else, none."""
    rows = rows[~np.isnan(rows).all(axis=1)]
    return np.nanmean(rows, axis=1) if len(rows) else np.ones(1)  # no tokens at all: even


@dataclass(frozen=True)
class StepReport:
    """One placement on one step: links and time.

    links     by rail policy: (busiest NIC's bytes summed over layers, dispatch time summed over
              layers)
    internode bytes between nodes in one dispatch, all layers
    chunk     largest chunk on the rails
    """

    internode: int
    links: dict[str, tuple[int, Fraction]]
    chunk: str | int
    timeline: IterationTimeline = field(repr=False)

    def as_dict(self) -> dict[str, Any]:
        """JSON values; times in seconds."""
        return {
            "internode_bytes": self.internode,
            "links": {
                name: {"busiest_nic_bytes": load, "dispatch_s": float(time)}
                for name, (load, time) in self.links.items()
            },
        }


def assess(
    trace: Trace,
    model: TimeModel,
    placement: Placement,
    links: RailLinks,
    *,
    row: int = -1,
    rule: str = "home",
    style: str = "ours",
    previous: Placement | None = None,
) -> StepReport:
    """What a placement does to the links and the time of one recorded step; copies that `previous`
    has need no transfer.
    """
    trace.expect(ranks=placement.devices, experts=placement.experts)
    terms, internode = [], 0
    busy = dict.fromkeys(RAIL_POLICIES, (0, Fraction(0)))
    for column in range(len(trace.layers)):
        counts = trace.counts[row, column].astype(np.int64)
        holds, home = placement.holds[column], placement.home[column]
        flow = flows(counts, holds, home, placement.gpus, rule)
        there = None if previous is None else previous.holds[column]
        terms.append(measure(model, flow, counts, holds, home=home, have=there))
        np.fill_diagonal(flow, 0)
        traffic = Traffic(flow * links.token_bytes, placement.nodes)
        internode += int(traffic.node_matrix.sum())
        for name in busy:
            made = rail_plan(links.fabric, traffic, name, links.chunk)
            if made is not None:
                most, time = busy[name]
                busiest = int(max(made.send.max(), made.recv.max()))
                busy[name] = (most + busiest, time + made.makespan)
    return StepReport(internode, busy, links.chunk, timeline(model, terms, style))
