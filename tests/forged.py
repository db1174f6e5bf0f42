"""Forged links: certificates that name plan files, with what they repeat of the plan changed.

Plans of small fabrics that differ in rates, GPUs, NICs, insides and chunks; of each, certificates
of what it moves and of how long it takes, named by file and digest.  Forgeries take fields of one
certificate into another, change every field alone and in pairs, and then claim whatever the
checker says it found, as a forger would.  `falsehood` says what is wrong with a verdict, by
trying every plan of the file's chunks.  `contradictions` are plan files that say one thing in two
ways, with digests that are theirs.
"""

from __future__ import annotations

import copy
import importlib
import json
import random
import re
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from railopt import Chunks, Fabric, Plan
from railopt.base.arrays import Array, save_npz
from railopt.evidence.certificate import plan_digest
from railopt.model.inside import Inside
from tests.damage import saved
from tests.moved import least_moved

kernel = importlib.import_module("railopt.checker")
Record = dict[str, Any]

_SHARED = Inside(np.array([[1, 1], [0, 1]], np.bool_))
_EVEN, _SLOW = np.full((2, 2), 2), np.array([[2, 1], [2, 2]])
FABRICS = {
    "usual": Fabric(2, 2, 2, _EVEN, _EVEN),
    "shared": Fabric(2, 2, 2, _EVEN, _EVEN, inside=_SHARED),
    "slow": Fabric(2, 2, 2, _SLOW, _EVEN),
    "one": Fabric(2, 2, 1, _EVEN, _EVEN),
    "wide": Fabric(2, 4, 2, np.full((2, 4), 2), np.full((2, 4), 2)),
    "crowded": Fabric(3, 2, 4, np.full((3, 2), 3), np.full((3, 2), 3)),
}
# (fabric, GPUs of sources, nodes, bytes, whether the chunks name their GPUs)
PLANS = {
    "a": ("usual", [0, 0, 2], [1, 1, 0], [4, 4, 2], True),
    "b": ("usual", [1, 0, 2], [1, 1, 0], [4, 4, 2], True),
    "c": ("shared", [0, 0, 2], [1, 1, 0], [4, 4, 2], True),
    "d": ("slow", [0, 0, 2], [1, 1, 0], [4, 4, 2], True),
    "e": ("one", [0, 0, 1], [1, 1, 0], [4, 4, 2], True),
    "f": ("wide", [0, 1, 2], [1, 1, 0], [3, 5, 2], True),
    "g": ("crowded", [0, 3, 5], [1, 2, 0], [6, 6, 1], True),
    "h": ("usual", [0, 0, 2], [1, 1, 0], [4, 4, 2], False),
}
RAILS = {"0": [0, 1, 0], "1": [1, 1, 1]}  # two plans of the same chunks


def plan_of(name: str, rails: str) -> Plan:
    which, gpus, dst, size, named = PLANS[name]
    fabric = FABRICS[which]
    if named:
        chunks = Chunks.from_units(fabric, src_gpu=gpus, dst=dst, size=size)
    else:
        src = [gpu // fabric.gpus for gpu in gpus]
        chunks = Chunks.from_arrays(src=src, dst=dst, size=size, nodes=fabric.nodes)
    return Plan(fabric, chunks, np.array(RAILS[rails], np.int16))


@cache
def every_plan(plan: Plan) -> list[tuple[Fraction, Fraction]]:
    """What all plans of the same chunks take and move."""
    choices = product(range(plan.fabric.rails), repeat=len(plan.chunks))
    plans = (Plan(plan.fabric, plan.chunks, np.array(rail, np.int16)) for rail in choices)
    names = plan.chunks.gpus == plan.fabric.gpus
    return [(each.makespan, Fraction(each.moved if names else 0)) for each in plans]


def least(plan: Plan, time: Fraction | None) -> Fraction | None:
    """The least time of any plan of the chunks, or the fewest bytes that one within `time` moves;
    None if there is none.
    """
    found = every_plan(plan)
    if time is None:
        return min(takes for takes, _ in found)
    return min((moved for takes, moved in found if takes <= time), default=None)


def true_ones(folder: Path) -> list[Record]:
    """Certificates that hold, of the plans in `folder`, where these are written."""
    records = []
    for name in PLANS:
        for rails in RAILS:
            made = plan_of(name, rails)
            file = folder / f"{name}{rails}.npz"
            made.save(file)
            named = {"file": file.name, "digest": plan_digest(file)}
            records.append(_of_time(made, named))
            if made.chunks.gpus == made.fabric.gpus:
                records.append(_of_moves(made, named))
    return records


def _of_time(plan: Plan, named: Record) -> Record:
    """By the node that sends most: its bytes over all its rails."""
    sent, rates = plan.send.sum(axis=1), plan.fabric.tx.sum(axis=1)
    bound, node = max((Fraction(int(sent[k]), int(rates[k])), k) for k in range(len(sent)))
    witness = {"kind": "node", "node": node, "side": "send", "witness": {"kind": "average"}}
    fabric = plan.fabric
    problem = {
        "kind": "coupled",
        **{"nodes": fabric.nodes, "rails": fabric.rails},
        **{"tx": fabric.tx.tolist(), "rx": fabric.rx.tolist()},
        "plan": named,
    }
    return _record(problem, witness, bound, plan.makespan)


def _of_moves(plan: Plan, named: Record) -> Record:
    """By the best prices."""
    fabric, found = plan.fabric, least_moved(plan.fabric, plan.chunks, plan.makespan)
    problem = {
        "kind": "moved",
        "time": str(plan.makespan),
        **{"tx": fabric.tx.tolist(), "rx": fabric.rx.tolist(), "gpus": fabric.gpus},
        "near": fabric.node.as_dict()["near"],
        "plan": named,
    }
    return _record(problem, found.witness, Fraction(found.bytes), Fraction(plan.moved))


def _record(problem: Record, witness: Record, bound: Fraction, value: Fraction) -> Record:
    optimal = bound == value
    claim = {
        **{"bound": str(bound), "value": str(value)},
        **{"optimal": optimal, "optimum": "proved" if optimal else "open"},
    }
    kinds = {"railopt": "certificate", "version": 2}
    return {**kinds, "problem": problem, "claim": claim, "witness": witness}


def _settings(records: list[Record]) -> dict[tuple[str, ...], list[Any]]:
    """Of every field, the values that it has in some certificate, and odd ones."""
    found: dict[tuple[str, ...], list[Any]] = {
        ("problem", "near"): [[[0], [0]], [[0, 1], [0, 1]], [[1], [0]], [[0, 1], [1]]],
        ("problem", "gpus"): [1, 2, 3, 4],
        ("problem", "time"): ["0", "1", "100"],
        ("problem", "nodes"): [1, 4],
        ("problem", "rails"): [1, 3],
        ("problem", "traffic"): ["f" * 32],
        ("claim", "bound"): ["0", "1", "100"],
        ("claim", "value"): ["0", "1"],
        ("claim", "optimal"): [True],
        ("claim", "optimum"): ["proved", "claimed"],
    }
    for record in records:
        for part in ("problem", "claim", "witness"):
            for key, value in record[part].items():
                found.setdefault((part, key), []).append(value)
        named = record["problem"]["plan"]
        for key in ("file", "digest"):
            found.setdefault(("problem", "plan", key), []).append(named[key])
        found.setdefault(("problem",), []).append(record["problem"])
        found.setdefault(("witness",), []).append(record["witness"])
        found.setdefault(("best",), []).append(named)
    return {
        path: [json.loads(text) for text in dict.fromkeys(map(json.dumps, values))]
        for path, values in found.items()
    }


def _changed(record: Record, changes: list[tuple[tuple[str, ...], Any]]) -> Record:
    forged = copy.deepcopy(record)
    for (*way, key), value in changes:
        at = forged
        for step in way:
            at = at[step]
        at[key] = copy.deepcopy(value)
    return forged


def _adapted(record: Record, folder: Path) -> Record:
    """The record with the value that the checker says it found, and a bound that meets it."""
    forged = copy.deepcopy(record)
    for name, words in (("value", "the value attained is"), ("best", "the best value is")):
        said = kernel.check_certificate(forged, folder, 200_000).message
        if found := re.match(rf"{words} ([0-9/]+)", said):
            forged["claim"][name] = found[1]
            forged["claim"].update(bound=found[1], optimal=name == "value", optimum="proved")
    return forged


def forgeries(folder: Path, values: int, pairs: int, seed: int) -> Iterator[Record]:
    """Every field of every certificate changed alone, to at most `values` values, and `pairs` pairs
    of them each; every one of them as it is and with the claim adapted.
    """
    records, dice = true_ones(folder), random.Random(seed)
    settings = _settings(records)
    yield from records
    for record in records:
        known = [path for path in settings if path[0] in record or path == ("best",)]
        known = [path for path in known if len(path) < 3 or path[1] in record["problem"]]
        alone = [
            [(path, value)]
            for path in known
            for value in dice.sample(settings[path], min(values, len(settings[path])))
        ]
        several = [
            [(path, dice.choice(settings[path])) for path in sorted(dice.sample(known, 2))]
            for _ in range(pairs)
        ]
        for changes in alone + several:
            forged = _changed(record, changes)
            yield forged
            adapted = _adapted(forged, folder)
            if adapted != forged:
                yield adapted


_FLAT = ("src", "dst", "size", "rail", "src_gpu", "dst_gpu", "flow", "offset")
_ODD = (0, 1, 3, 5, 2**70, -2, True, 2.0, "2", None)  # where there are 2 nodes, 2 rails, 2 GPUs


def _arrays_of_other_shapes(arrays: dict[str, Array]) -> Iterator[dict[str, Array]]:
    for name in _FLAT:
        column = arrays[name]
        for odd in (column[:, None], column[None], column[:-1], np.append(column, column[-1:])):
            yield {**arrays, name: odd}
        yield {key: array for key, array in arrays.items() if key != name}
    for name in ("tx", "rx", "send", "recv"):
        for odd in (arrays[name].reshape(-1), arrays[name].reshape(1, -1), arrays[name][:1]):
            yield {**arrays, name: odd}
    yield {name: a.reshape(1, -1) if a.ndim == 2 else a for name, a in arrays.items()}
    yield {**arrays, "stage": np.zeros((3, 1), np.int32)}
    yield {**arrays, "targets": np.full((3, 2), 128, np.uint8)}


def _arrays_of_other_numbers(arrays: dict[str, Array]) -> Iterator[dict[str, Array]]:
    for name in ("src_gpu", "dst_gpu"):
        for gpu in (-1, 4, 3 - int(arrays[name][2]), 2**31 - 1):
            yield {**arrays, name: np.array([*arrays[name][:2], gpu], np.int32)}
    own = 128 >> (arrays["dst_gpu"] % 2)
    for bits in (own ^ 192, own | 1, own | 32):  # the other GPU, and GPUs that no node has
        yield {**arrays, "targets": bits.astype(np.uint8)[:, None]}
    for size in (0, -2):
        yield {**arrays, "size": np.array([4, 4, size])}
    for name in _FLAT[:6]:
        yield {**arrays, name: arrays[name].astype(np.float64)}
        yield {**arrays, name: arrays[name].astype(np.bool_)}
        yield {**arrays, name: arrays[name].astype(">i8")}


def contradictions(folder: Path) -> Iterator[tuple[Path, list[Record]]]:
    """Plan files that say one thing in two ways, or what no plan says; beside each, certificates
    that would hold if it did not.
    """
    wanted = [each for each in true_ones(folder) if each["problem"]["plan"]["file"] == "a0.npz"]
    header, arrays = saved(plan_of("a", "0"), folder / "true.npz")
    fabric = header["fabric"]
    forged = [
        ({**header, "fabric": {**fabric, key: odd}}, arrays)
        for key in ("nodes", "rails", "gpus")
        for odd in _ODD
    ]
    forged += [({**header, "fabric": odd}, arrays) for odd in (None, [], {}, {"nodes": 2})]
    forged += [({**header, "chunk_gpus": odd}, arrays) for odd in _ODD]
    forged += [(header, odd) for odd in _arrays_of_other_shapes(arrays)]
    forged += [(header, odd) for odd in _arrays_of_other_numbers(arrays)]
    forged += [(header, {**arrays, name: arrays[name] - 1}) for name in ("flow", "offset")]
    forged += [(header, {**arrays, "more": arrays["size"]})]
    forged += [({**header, "note": odd}, arrays) for odd in (1.5, [{"a": 1e300}])]
    for number, (said, columns) in enumerate(forged):
        file = folder / f"odd{number}.npz"
        save_npz(file, "plan", said, columns)
        records = copy.deepcopy(wanted)
        for record in records:
            record["problem"]["plan"] = {"file": file.name, "digest": plan_digest(file)}
        yield file, records


def falsehood(record: Record, verdict: Any, folder: Path) -> str:
    """What an accepting verdict on a certificate says of its plan that is not so, found by trying
    every plan; "" if nothing, or if it does not accept.
    """
    if not verdict.ok:
        return ""
    problem = record["problem"]
    file, digest = (problem["plan"][key] for key in ("file", "digest"))
    if plan_digest(folder / file) != digest:
        return "another plan than it names"
    plan = Plan.read(folder / file)
    time = Fraction(problem["time"]) if problem["kind"] == "moved" else None
    if time is not None and plan.chunks.gpus != plan.fabric.gpus:
        return "bytes moved, of chunks that name no GPUs"
    if time is not None and plan.makespan > time:
        return f"its plan takes {plan.makespan}, more than {time}"
    value = plan.makespan if time is None else Fraction(plan.moved)
    if verdict.value != value:
        return f"value {verdict.value}, the plan has {value}"
    if "best" in record and "file" in record["best"]:
        other = Plan.read(folder / record["best"]["file"])
        if other.chunks != plan.chunks or other.fabric.tx.tolist() != plan.fabric.tx.tolist():
            return "its best plan is one of other chunks"
    best = least(plan, time)
    assert best is not None
    if "claimed" not in verdict.kind and verdict.bound > best:
        return f"bound {verdict.bound}, a plan has {best}"
    if verdict.optimal and value != best:
        return f"called optimal at {value}, a plan has {best}"
    return ""
