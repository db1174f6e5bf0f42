"""What a run came to, as JSON values: times beside their bounds, bandwidths, utilisation."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from railopt.base.units import PS_PER_S
from railopt.evidence.bounds import uplink_bound
from railopt.model.plan import Plan, node_bound
from railopt.model.traffic import Traffic
from railopt.sim.timeline import Timeline


def summary(timeline: Timeline, what: Plan | Traffic) -> dict[str, Any]:
    """The figures of a run of this plan or traffic; picoseconds and GB/s as floats.

    completion_ps       when the last byte was delivered; in a run that is stuck, of those that were
    bound_ps            what the busiest port of this run needs for its bytes
    any_plan_bound_ps   what the busiest node needs with all its NICs at work, or the busiest leaf
                        group with all its uplinks: no plan is faster
    uplinks             of a fabric with leaves, that group: its bytes, its uplinks' capacity and
                        what it needs
    over_bound          completion / bound - 1; None, like the bandwidths, if something is stuck
    staged, passed_on   bytes that a plan moves inside nodes, where its chunks name their GPUs
    scale_up_ps         what the busiest scale-up port needs for them, however the run counts it
    """
    fabric = what.fabric if isinstance(what, Plan) else timeline.fabric
    if isinstance(what, Plan):
        loads = what.send.sum(axis=1), what.recv.sum(axis=1)
    else:
        loads = what.node_matrix.sum(axis=1), what.node_matrix.sum(axis=0)
    any_plan = node_bound(fabric, *loads) if fabric else Fraction(0)
    cut = uplink_bound(fabric, what.chunks if isinstance(what, Plan) else what) if fabric else None
    any_plan = max(any_plan, cut.value) if cut else any_plan
    bound, whole = timeline.bound, not len(timeline.stuck)
    over = float(timeline.completion / bound - 1) if bound else 0.0
    return {
        "flows": len(timeline.flows),
        "chunks": len(timeline.chunk_ps),
        "bytes": what.chunks.total if isinstance(what, Plan) else int(timeline.flows.size.sum()),
        "completion_ps": timeline.completion_ps,
        "bound_ps": float(bound * PS_PER_S),
        "any_plan_bound_ps": float(any_plan * PS_PER_S),
        "over_bound": over if whole else None,
        "algbw_GBps": timeline.algbw if whole else None,
        "busbw_GBps": timeline.busbw if whole else None,
        "rail_utilisation": [round(float(share), 6) for share in timeline.utilisation()],
        "flow_completion_ps": timeline.percentiles(),
        "stuck": timeline.stuck.tolist(),
        **({"uplinks": cut.as_dict()} if cut else {}),
        **(_moved(what) if isinstance(what, Plan) else {}),
    }


def _moved(plan: Plan) -> dict[str, Any]:
    """What a plan moves inside nodes; nothing where its chunks don't name their GPUs."""
    if plan.chunks.gpus != plan.fabric.gpus:
        return {}
    return {
        "staged": plan.staged,
        "passed_on": plan.passed_on,
        "scale_up_ps": float(plan.scaleup_time * PS_PER_S),
    }
