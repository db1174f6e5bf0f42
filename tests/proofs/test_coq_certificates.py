"""A certificate becomes a theorem about its instance if and only if it is true."""

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt.base.errors import CheckFailed, FormatError, InputError, NotProved
from railopt.evidence.bounds import lower_bound
from railopt.evidence.certificate import Certificate
from railopt.model.chunks import Chunks
from railopt.model.fabric import Fabric
from railopt.model.plan import Plan
from railopt.policies import plan
from railopt.solver.coupled.solve import solve
from railopt.symbolic.coq.certificate import check_certificate, prove

AVERAGE = {"kind": "average"}
PIGEON = {"kind": "pigeonhole", "jobs": 3, "rails": 1}
DUAL = {"kind": "dual", "weights": [[5, 2], [4, 2], [3, 1]]}


def even(nodes: int = 3, rails: int = 2) -> dict[str, Any]:
    """A fluid certificate: two units between any two nodes, split evenly, bounded by what node 0
    sends.
    """
    pairs = [(s, d, n) for s in range(nodes) for d in range(nodes) for n in range(rails) if s != d]
    ones, zeros = [[1] * rails] * nodes, [[0] * rails] * nodes
    return {
        "railopt": "certificate",
        "version": 1,
        "problem": {
            "kind": "fluid",
            "tx": ones,
            "rx": ones,
            "demand": [[0 if s == d else rails for d in range(nodes)] for s in range(nodes)],
        },
        "claim": {"bound": str(nodes - 1), "value": str(nodes - 1), "proved": True},
        "witness": {"kind": "fluid", "send": [[1] * rails, *zeros[1:]], "recv": zeros},
        "flow": {
            "unit": 3,
            "src": [p[0] for p in pairs],
            "dst": [p[1] for p in pairs],
            "rail": [p[2] for p in pairs],
            "amount": [3] * len(pairs),
        },
    }


def skewed(nodes: int, rails: int, count: int) -> tuple[Fabric, Chunks]:
    rng = np.random.default_rng(0)
    src = rng.integers(0, nodes, count)
    dst = (src + 1 + rng.integers(0, nodes - 1, count) ** 2 // (nodes - 1)) % nodes
    dst = np.where(dst == src, (src + 1) % nodes, dst)
    size = rng.integers(1 << 10, 1 << 20, count)
    return Fabric.uniform(nodes=nodes, rails=rails), Chunks.from_arrays(
        src=src, dst=dst, size=size, nodes=nodes
    )


def of_plan(made: Plan) -> Certificate:
    bound = lower_bound(made.fabric, made.chunks)
    return Certificate.coupled(
        made.fabric, made.chunks, bound.value, bound.lifted, value=made.makespan, rail=made.rail
    )


TRUE = {
    "pigeonhole": Certificate.local([7, 5, 4], 9, PIGEON, rails=2, assignment=[0, 1, 1]),
    "average in units": Certificate.local([6, 6, 6], 12, AVERAGE, rails=2, assignment=[0, 0, 1]),
    "average of speeds": Certificate.local(
        [8, 4, 4], Fraction(4), AVERAGE, speeds=[3, 1, 0], assignment=[0, 1, 0]
    ),
    "count": Certificate.local(
        [9, 9, 9],
        Fraction(9, 2),
        {"kind": "count", "jobs": 3},
        speeds=[4, 2, 0],
        assignment=[0, 0, 1],
    ),
    "dual": Certificate.local(
        [5, 5, 5, 4, 4, 4, 3], 11, DUAL, rails=3, assignment=[0, 1, 2, 0, 1, 2, 0]
    ),
    "subset": Certificate.local(
        [7, 7, 3], 10, {"kind": "subset", "from": 9, "base": AVERAGE}, rails=2, assignment=[0, 1, 1]
    ),
    "cover of speeds": Certificate.local(
        [12, 12, 8, 7, 3], Fraction(9), {"kind": "cover"}, speeds=[3, 2], assignment=[0, 0, 1, 1, 0]
    ),
    "cover": Certificate.local(
        [12, 9, 7, 7, 5, 5], 17, {"kind": "cover"}, rails=3, assignment=[0, 1, 1, 2, 0, 2]
    ),
}


@pytest.mark.parametrize("name", list(TRUE))
def test_every_kind_of_local_witness_is_proved(theory: Path, name: str) -> None:
    certificate = TRUE[name]
    assert certificate.check().ok
    proved = prove(certificate.as_dict())
    assert proved.optimal == certificate.optimal
    assert "forall" in proved.statement
    assert "exists" in proved.statement


def falsified(change: Callable[[dict[str, Any]], None], record: dict[str, Any]) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(record))
    change(copy)
    return copy


def more(record: dict[str, Any]) -> None:
    record["claim"]["bound"] = str(Fraction(record["claim"]["bound"]) + 1)


def less(record: dict[str, Any]) -> None:
    record["claim"]["value"] = str(Fraction(record["claim"]["value"]) - 1)


def smaller(record: dict[str, Any]) -> None:
    record["problem"]["sizes"][0] -= 3


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("pigeonhole", more),
        ("pigeonhole", less),
        ("average of speeds", more),
        ("dual", more),
        ("cover", smaller),
    ],
)
def test_a_false_one_is_rejected_by_the_kernel(
    theory: Path, name: str, change: Callable[[dict[str, Any]], None]
) -> None:
    with pytest.raises(CheckFailed, match="kernel does not accept"):
        prove(falsified(change, TRUE[name].as_dict()))


def test_eight_nodes_by_eight_rails(theory: Path, tmp_path: Path) -> None:
    fabric, chunks = skewed(8, 8, 3000)
    certificate = of_plan(plan(fabric, chunks, "lpt-global"))
    certificate.save(tmp_path / "c.json")
    proved = check_certificate(tmp_path / "c.json")
    assert proved.kind == "node pigeonhole"
    assert "on_time 8 8 tx rx chunks plan" in proved.statement


def test_plan_in_a_file_and_one_that_was_swapped(theory: Path, tmp_path: Path) -> None:
    fabric, chunks = skewed(3, 2, 20)
    made, other = plan(fabric, chunks, "lpt-global"), plan(fabric, chunks, "round-robin")
    made.save(tmp_path / "plan.npz")
    bound = lower_bound(fabric, chunks)
    Certificate.of_plan(
        fabric, tmp_path / "plan.npz", bound.value, bound.lifted, made.makespan
    ).save(tmp_path / "c.json")
    assert check_certificate(tmp_path / "c.json").kind.startswith("node")
    other.save(tmp_path / "plan.npz", force=True)
    with pytest.raises(CheckFailed, match="not the plan"):
        check_certificate(tmp_path / "c.json")


def test_degraded_fabric_and_fluid_prices_on_chunks(theory: Path) -> None:
    fabric = Fabric.uniform(nodes=3, rails=2).degraded({(0, 1): "0.5", (2, 0): "0"})
    chunks = skewed(3, 2, 20)[1]
    record = of_plan(plan(fabric, chunks, "lpt-global")).as_dict()
    assert prove(record).kind.startswith("node")
    prices = falsified(
        lambda r: r.update(
            witness={"kind": "fluid", "send": [[1, 1], [0, 0], [0, 0]], "recv": [[0, 0]] * 3}
        ),
        record,
    )
    sent = int(chunks.size[chunks.src == 0].sum())
    prices["claim"]["bound"] = str(Fraction(sent, int(fabric.tx[0].sum())))
    assert prove(prices).kind == "fluid"
    with pytest.raises(CheckFailed):
        prove(falsified(more, prices))


def coupled_gap() -> dict[str, Any]:
    """Four nodes, four rails: every node alone could be done in 168 bytes a rail, one sender and
    one receiver together in 169.
    """
    src, dst = (np.repeat(ends, 4) for ends in np.nonzero(~np.eye(4, dtype=bool)))
    size = np.random.default_rng([0, 4, 4, 4, False]).integers(1, 101, len(src))
    outcome = solve(
        Fabric.uniform(4, 4), Chunks.from_arrays(src=src, dst=dst, size=size, nodes=4), limit_s=30
    )
    assert (outcome.status, outcome.witness["kind"]) == ("known", "joint")
    assert outcome.certificate is not None
    return outcome.certificate.as_dict()


def test_several_sides_at_once(theory: Path) -> None:
    record = coupled_gap()
    proved = prove(record)
    assert (proved.kind, proved.optimal) == ("joint", True)
    assert "on_time 4 4 tx rx chunks plan" in proved.statement

    def later(changed: dict[str, Any]) -> None:
        bound = Fraction(changed["claim"]["bound"])
        changed["claim"]["bound"] = str(bound * Fraction(170, 169))

    def fewer(changed: dict[str, Any]) -> None:
        changed["witness"]["recv"] = []

    for change in (later, fewer):
        with pytest.raises(CheckFailed, match="kernel does not accept"):
            prove(falsified(change, record))
    with pytest.raises(FormatError, match="node 4 of 4"):
        prove(falsified(lambda changed: changed["witness"].update(send=[4]), record))


def test_prices_of_whole_chunks(theory: Path) -> None:
    """One node is left to fill a rail, with chunks of which no sum does."""
    rates, size = np.array([[2, 2], [2, 2], [2, 0]]), [6, 6, 1, 1, 1, 1]
    chunks = Chunks.from_arrays(src=[0, 0, 2, 2, 2, 2], dst=[1] * 6, size=size, nodes=3)
    outcome = solve(Fabric(3, 2, 2, rates, rates), chunks, limit_s=30)
    assert outcome.certificate is not None
    record = outcome.certificate.as_dict()
    proved = prove(record)
    assert (proved.kind, proved.optimal) == ("whole", True)

    def later(changed: dict[str, Any]) -> None:
        changed["claim"].update(bound="21/4")

    def paid(changed: dict[str, Any]) -> None:
        changed["witness"]["send"] = [[0, 0]] * 3
        changed["witness"]["recv"] = [[0, 0]] * 3

    for change in (later, paid):
        with pytest.raises(CheckFailed, match="kernel does not accept"):
            prove(falsified(change, record))


def test_more_ways_than_coq_can_follow_are_not_proved(theory: Path) -> None:
    fabric, chunks = skewed(8, 8, 200)
    record = of_plan(plan(fabric, chunks, "lpt-global")).as_dict()
    everything = falsified(
        lambda r: r.update(
            witness={"kind": "joint", "send": list(range(8)), "recv": list(range(8))}
        ),
        record,
    )
    everything["claim"]["bound"] = everything["claim"]["value"]
    with pytest.raises(NotProved, match="more than 3 s for this joint witness"):
        prove(everything, timeout_s=3)


def test_fluid_bound_and_flow(theory: Path) -> None:
    assert prove(even()).optimal
    with pytest.raises(CheckFailed):
        prove(falsified(more, even()))
    with pytest.raises(CheckFailed):
        prove(falsified(less, even()))

    def lose(record: dict[str, Any]) -> None:
        record["flow"]["amount"][0] -= 1

    with pytest.raises(CheckFailed):
        prove(falsified(lose, even()))


def test_words_and_nothing_are_not_proofs(theory: Path, tmp_path: Path) -> None:
    with pytest.raises(NotProved, match="claimed by solver 1"):
        prove(
            Certificate.local(
                [7, 5, 4], 9, {"kind": "claimed", "by": "solver 1"}, rails=2
            ).as_dict()
        )
    with pytest.raises(NotProved, match="bound of 0"):
        prove(Certificate.local([], 0, AVERAGE, rails=2).as_dict())
    with pytest.raises(InputError, match="No such file"):
        check_certificate(tmp_path / "absent.json")
    (tmp_path / "c.json").write_text("[]")
    with pytest.raises(FormatError, match="not a certificate"):
        check_certificate(tmp_path / "c.json")


def test_a_check_that_takes_too_long_is_stopped(theory: Path) -> None:
    hard = [99991 + 7919 * i % 65537 for i in range(36)]
    certificate = Certificate.local(hard, -(-sum(hard) // 9) + 1, {"kind": "cover"}, rails=9)
    with pytest.raises(NotProved, match=r"more than 0\.2 s"):
        prove(certificate.as_dict(), timeout_s=0.2)
