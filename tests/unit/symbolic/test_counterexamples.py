"""What a file calls itself does not make it refute a theorem."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from proofs.find import coupled, flow, fluid
from railopt.answers.check import check
from railopt.symbolic.registry import proofs_folder
from railopt.symbolic.search.counterexamples import files, read, replay
from railopt.symbolic.statements.fast import Hot, printed_bound_refuted


def test_a_claim_that_is_not_made_is_called_so(tmp_path: Path) -> None:
    record = json.loads(files()[0].read_text())
    for claim, said in ((record["claim"], "T10d rules out"), ("another", "does not make")):
        path = tmp_path / "c.json"
        path.write_text(json.dumps({**record, "claim": claim}))
        verdict = check(path)
        assert verdict.ok
        assert said in verdict.kind


def forged(name: str, best: dict[str, Any], bad: dict[str, Any], *figures: str) -> dict[str, Any]:
    """A committed counterexample's claim about another instance; value, optimum and at_most."""
    record = read(proofs_folder() / "counterexamples" / name)
    named = dict(zip(("value", "optimum", "at_most"), figures, strict=True))
    return {**record, "best": best, "bad": bad, **named}


def slow(rate: int, others: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Two nodes that exchange a byte, NIC 0 of node 0 slower: the best split, and the even one."""
    pairs, total = [(0, 1), (1, 0)], rate + others
    best = fluid(
        [[rate, others], [others, others]],
        [[0, 1], [1, 0]],
        0,
        flow(total, {pair: [rate, others] for pair in pairs}),
        Fraction(1, total),
    )
    return best, {"flow": flow(2, {pair: [1, 1] for pair in pairs})}


PAIR = coupled(((0, 1, 1), (0, 1, 1)), 2, [0, 1], 1)
MEET = coupled(((0, 2, 1), (1, 2, 1)), 2, [0, 1], 1)
SENT = {"kind": "node", "node": 0, "side": "send", "witness": {"kind": "average"}}
FOUR = coupled(((0, 1, 1),) * 4, 2, [0, 1, 1, 1], 1, SENT)
UNLIKE = {**FOUR, "problem": {**FOUR["problem"], "tx": [[1, 3], [3, 3]], "rx": [[3, 3], [3, 3]]}}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        (
            forged(
                "T2-uniform-sending-m3-n2.json",
                UNLIKE,
                {"assignment": [0, 1, 0, 1]},
                *("2", "1", "1"),
            ),
            "rates that differ",
        ),
        (forged("T8-unequal-sizes.json", PAIR, {"assignment": [0, 0]}, "2", "1", "1"), "optimum"),
        (
            forged(
                "T4-round-robin-unequal.json",
                MEET,
                {"policy": "round-robin", "assignment": [0, 0]},
                *("2", "1", "3/2"),
            ),
            "the claim allows 2",
        ),
        (forged("T9-slow-nic-n2.json", *slow(1, 4), "1/2", "1/5", "1/5"), "one NIC at 1/2"),
        (forged("T9-dead-rail-elsewhere.json", *slow(1, 2), "1/2", "1/3", "1/3"), "one NIC at 0"),
        (forged("T9-different-rails.json", *slow(1, 2), "1/2", "1/3", "1/3"), "dead NICs"),
        (
            forged(
                "T6-graham-n2.json",
                MEET,
                {"policy": "lpt", "assignment": [0, 0]},
                *("2", "1", "1"),
            ),
            "one list of sizes",
        ),
    ],
    ids=["T2", "T8b", "T4e", "T9b", "T9d", "T9e", "T6a"],
)
def test_an_instance_that_a_claim_is_not_about_refutes_nothing(
    record: dict[str, Any], said: str
) -> None:
    assert [problem for problem in replay(record) if said in problem]


def test_fasts_printed_bound_falls_for_three_gpus_but_not_for_one_server_or_two_gpus() -> None:
    for servers in (3, 4, 8):
        for gpus in (3, 4, 8):
            stages = (1, 40 * servers - 1)
            hot = Hot(servers, gpus, gpus - 1, 1, stages, 40)
            assert hot.hides
            assert hot.time > hot.printed() * hot.best
        small = Hot(servers, 2, 1, 1, (1, 40 * servers - 1), 40)
        assert small.time <= small.printed() * small.best
    assert "two stages for every m > 2" in printed_bound_refuted(quick=True).detail
    alone = Hot(1, 3, 2, 1, (1, 39), 40)
    figures = [str(time) for time in (alone.time, alone.best, alone.printed() * alone.best)]
    assert alone.time > alone.printed() * alone.best  # but one server has nobody to send to
    record = forged(
        "T10-fast-theorem3-n3-m3.json", {**vars(alone), "stages": [1, 39]}, {}, *figures
    )
    assert replay(record) == ["it can't be replayed: servers: 1 is not a whole number in its range"]


def changed(name: str, *path: Any) -> dict[str, Any]:
    """A committed counterexample with one thing changed: the last of `path` is put there."""
    record: dict[str, Any] = json.loads(
        (proofs_folder() / "counterexamples" / name).read_text(encoding="utf-8")
    )
    *way, key, value = path
    at: Any = record
    for step in way:
        at = at[step]
    at[key] = value
    return record


def test_what_the_kernel_finds_fault_with_is_asked_no_further() -> None:
    """As many nodes as are never counted: the file takes no time and no memory."""
    record = changed("T8-unequal-sizes.json", "best", "problem", "nodes", 1 << 70)
    (problem,) = replay(record)
    assert "does not prove the optimum" in problem


def test_a_flow_in_several_rows_of_one_rail_is_their_sum() -> None:
    """Three quarters on rail 0 are not uniform, whatever the last of its rows says."""
    name = "T9-dead-rail-elsewhere.json"
    rows = {"src": [0, 2, 2, 2], "dst": [1, 1, 1, 1], "rail": [1, 0, 0, 1], "amount": [4, 2, 1, 1]}
    record = changed(name, "bad", "flow", {"unit": 4, **rows})
    record.update(value="5/4")
    assert replay(record) == ["uniform over the rails alive at both ends: not so"]
    rows["amount"] = [4, 1, 1, 2]
    record = changed(name, "bad", "flow", {"unit": 4, **rows})
    assert replay(record) == []


@pytest.mark.parametrize("value", [3.0, True, 0, "3", None])
def test_figures_of_a_hot_gpu_are_whole_numbers(value: Any) -> None:
    assert replay(changed("T10-hot-gpu-n3.json", "best", "scale_up", value))


def uniform_twice(record: dict[str, Any]) -> bool:
    """The hypothesis about uniform flows, by another road: fractions of what a pair sends, from
    the file's numbers alone.
    """
    problem, flow_ = record["best"]["problem"], record["bad"]["flow"]
    shares: dict[tuple[int, int, int], int] = {}
    for row in zip(*(flow_[key] for key in ("src", "dst", "rail", "amount")), strict=True):
        shares[row[:3]] = shares.get(row[:3], 0) + row[3]
    for k, row in enumerate(problem["demand"]):
        for f, bytes_ in enumerate(row):
            live = [n for n in range(2) if problem["tx"][k][n] and problem["rx"][f][n]]
            each = [Fraction(shares.get((k, f, n), 0), flow_["unit"]) for n in live]
            if bytes_ and each != [Fraction(bytes_, len(live))] * len(live):
                return False
    return True


@pytest.mark.slow
def test_forgeries_of_several_fields_at_once() -> None:
    """Rows of the bad flow split, moved between rails and added, its unit and the figures fitted to
    it: whatever is accepted is uniform.
    """
    dice, accepted = random.Random(1), 0
    committed = read(proofs_folder() / "counterexamples" / "T9-dead-rail-elsewhere.json")
    for _ in range(400):
        unit = dice.choice([2, 4, 6, 12])
        rows = []
        for src, rails in ((0, [1]), (2, [0, 1])):
            left = unit
            while left:
                part = left if dice.random() < 0.3 else dice.randint(1, left)
                rows.append((src, 1, dice.choice(rails), part))
                left -= part
        dice.shuffle(rows)
        columns = dict(
            zip(("src", "dst", "rail", "amount"), map(list, zip(*rows, strict=True)), strict=True)
        )
        taken = [sum(row[3] for row in rows if row[2] == n) for n in range(2)]
        record = {
            **committed,
            "bad": {"flow": {"unit": unit, **columns}},
            "value": str(Fraction(max(taken), unit)),
        }
        if not replay(record):
            accepted += 1
            assert uniform_twice(record)
            assert Fraction(record["value"]) == Fraction(3, 2)
    assert accepted > 5
