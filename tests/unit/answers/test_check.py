"""railopt.check: files and values of every kind, held against traffic, counterexamples replayed."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import railopt
from railopt import Certificate, Chunks, Fabric, Plan, Schedule, Traffic, check, plan, workloads
from railopt.answers.gap import gap
from railopt.base.errors import CheckFailed, FormatError, InputError
from railopt.checker import Verdict, content_of
from railopt.cli.main import main
from railopt.evidence.bracket import Bracket, Status
from railopt.evidence.certificate import between_nodes, certify, save_certificate, save_moved
from railopt.moe.joint import Demand
from railopt.symbolic.search import counterexamples
from railopt.symbolic.search.claims import ALLOWED
from tests.moved import least_moved

FABRIC = Fabric.uniform(3, 2, link="8Gb/s")
SPEC = "moe:skew=0.5,seed=1"


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    return railopt.traffic_from(SPEC, FABRIC)


@pytest.fixture(scope="module")
def made(traffic: Traffic) -> Plan:
    return plan(FABRIC, traffic.chunks("flow"), "lpt")


@pytest.fixture
def certificate(made: Plan) -> Certificate:
    return gap(made, limit_s=0).certificate


def test_the_function_and_the_kernel_have_their_names() -> None:
    assert callable(check)
    assert railopt.checker.__name__ == "railopt.checker"
    assert railopt.Certificate is Certificate


def test_a_plan_in_memory_and_on_disk(made: Plan, traffic: Traffic, tmp_path: Path) -> None:
    made.save(tmp_path / "plan.npz")
    for what in (made, tmp_path / "plan.npz", str(tmp_path / "plan.npz")):
        verdict = check(what, traffic)
        assert verdict.ok, verdict
        assert (verdict.kind, verdict.value) == ("plan", made.makespan)
        assert traffic.digest in verdict.message
        assert not check(what, "moe:skew=0.5,seed=2").ok


def test_a_plan_in_memory_that_the_kernel_rejects_fails() -> None:
    half = Fabric.uniform(2, 2).degraded({(0, 1): "0"})
    made = plan(half, workloads.uniform(half))
    object.__setattr__(made, "rail", made.rail * 0 + 1)
    verdict = check(made)
    assert not verdict.ok
    assert "dead rail" in verdict.message


def test_a_schedule(tmp_path: Path) -> None:
    fabric = Fabric.uniform(4, 4)
    traffic = workloads.zipf(fabric, seed=1)
    schedule = railopt.synthesise(fabric, traffic)
    schedule.save(tmp_path / "s.npz")
    for what in (schedule, tmp_path / "s.npz"):
        assert check(what, traffic).ok
        assert check(what).ok
        assert not check(what, workloads.zipf(fabric, seed=2)).ok
    assert isinstance(schedule, Schedule)


def test_a_certificate_is_held_against_its_traffic(
    certificate: Certificate, traffic: Traffic, tmp_path: Path
) -> None:
    certificate.save(tmp_path / "c.json")
    traffic.save(tmp_path / "same.npz")
    traffic.save(tmp_path / "same.txt")
    for given in (traffic, SPEC, tmp_path / "same.npz", tmp_path / "same.txt"):
        for what in (certificate, tmp_path / "c.json"):
            verdict = check(what, given)
            assert verdict.ok, verdict
            assert "names" in verdict.message
    other = check(tmp_path / "c.json", workloads.moe(FABRIC, skew=0.5, seed=2))
    assert not other.ok
    assert not other.optimal
    assert "sends node" in other.message
    alone = check(tmp_path / "c.json")
    for name in ("kind", "bound", "value", "best"):
        assert getattr(other, name) == getattr(alone, name), "what is known of its problem"


def test_the_same_bytes_between_nodes_may_be_another_traffic(
    certificate: Certificate, traffic: Traffic
) -> None:
    bytes_ = traffic.bytes.copy()
    bytes_[0, 2], bytes_[0, 3] = bytes_[0, 3] + 1, bytes_[0, 2] - 1
    verdict = check(certificate, Traffic(bytes_, traffic.nodes))
    assert not verdict.ok
    assert "another traffic" in verdict.message


def test_traffic_of_other_nodes_is_refused_before_pairs_are_compared(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "railopt.answers.check.demand_of", lambda problem: pytest.fail("room for pairs")
    )
    verdict = check(certificate, workloads.uniform(Fabric.uniform(4, 2)))
    assert not verdict.ok
    assert "about 3 nodes, the traffic has 4" in verdict.message


def test_what_can_not_be_held_against_traffic_is_refused(
    certificate: Certificate, traffic: Traffic
) -> None:
    unnamed = {key: value for key, value in certificate.problem.items() if key != "traffic"}
    local = Certificate.local([7, 5, 4], 8, {"kind": "average"}, rails=2)
    demand = Demand(np.array([[5, 0], [0, 5], [5, 5]]), np.ones(3, int), *[np.full(3, 100)] * 2, 8)
    layer = demand.certificate(demand.prices())
    for what, why in (
        (replace(certificate, problem=unnamed), "does not say"),
        (local, "one list of sizes knows no bytes"),
        (layer, "tokens and experts knows no bytes"),
    ):
        assert check(what).ok
        with pytest.raises(InputError, match=why):
            check(what, traffic)
    with pytest.raises(InputError, match="counterexample"):
        check(counterexamples.files()[0], traffic)


def test_the_command_exits_by_the_verdict(
    certificate: Certificate, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "c.json"
    certificate.save(path)
    assert main(["check", str(path), "--traffic", SPEC]) == 0
    workloads.moe(FABRIC, skew=0.5, seed=2).save(tmp_path / "other.txt")
    assert main(["check", str(path), "--traffic", str(tmp_path / "other.txt")]) == 4
    assert main(["check", str(path), "--traffic", "moe:skew=0.5,seed=2"]) == 1
    assert main(["check", str(path), str(tmp_path / "absent")]) == 1
    capsys.readouterr()
    assert main(["check", "--json", str(path)]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert {"optimal", "optimum", "bound_float"} <= set(row)
    assert not {"proved", "status"} & set(row)


# ---------------------------------------------------------------- this plan, and the best one


@pytest.fixture(scope="module")
def worse_and_best(traffic: Traffic) -> tuple[Plan, Plan, Bracket]:
    chunks = traffic.chunks("flow")
    worse = plan(FABRIC, chunks, "own-nic")
    outcome = railopt.solve(FABRIC, chunks, limit_s=600)
    assert outcome.plan is not None
    assert outcome.optimal
    assert worse.makespan > outcome.plan.makespan
    return worse, outcome.plan, outcome.bracket


@pytest.mark.slow
def test_the_best_plan_travels_with_a_worse_one(
    worse_and_best: tuple[Plan, Plan, Bracket],
) -> None:
    worse, best, bracket = worse_and_best
    both = certify(worse, bracket, best)
    assert not both.optimal
    assert (both.best, both.bound, both.optimum) == (bracket.value, bracket.bound, bracket.status)
    verdict = both.check()
    assert (verdict.ok, verdict.optimal, verdict.optimum) == (True, False, "known"), verdict
    assert (verdict.value, verdict.best) == (worse.makespan, best.makespan)
    alone = certify(worse, bracket).check()
    assert (alone.ok, alone.optimal, alone.optimum) == (True, False, "open")
    itself = certify(best, bracket, best)
    assert itself.best is None
    assert (itself.check().optimal, itself.check().optimum) == (True, "known")


@pytest.mark.slow
def test_a_certificate_can_not_claim_more_than_it_holds(
    worse_and_best: tuple[Plan, Plan, Bracket],
) -> None:
    worse, best, bracket = worse_and_best
    record = certify(worse, bracket, best).as_dict()
    claim = record["claim"]
    lies = [
        {**record, "claim": {**claim, "optimal": True}},
        {**record, "claim": {**claim, "optimum": "claimed"}},
        {**record, "claim": {**claim, "optimum": "known"}},
        {**record, "claim": {**claim, "best": claim["value"]}},
        {**record, "claim": {name: claim[name] for name in claim if name != "best"}},
        {**record, "best": {"assignment": record["assignment"]}},
        {**record, "best": {"assignment": record["best"]["assignment"][1:]}},
        {**record, "best": {"file": "absent.npz", "digest": "0" * 32}},
        {name: record[name] for name in record if name != "best"},
        {**record, "witness": {"kind": "claimed", "by": "solver 1.0"}},
        {**record, "problem": {**record["problem"], "traffic": "x"}},
        {**record, "version": 1},
    ]
    assert railopt.checker.check_certificate(record).ok
    for lie in lies:
        assert not railopt.checker.check_certificate(lie).ok, lie["claim"]
    word = {
        **record,
        "witness": {"kind": "claimed", "by": "solver 1.0"},
        "claim": {**claim, "optimum": "claimed"},
    }
    verdict = railopt.checker.check_certificate(word)
    assert (verdict.ok, verdict.optimal, verdict.optimum) == (True, False, "claimed")


@pytest.mark.slow
def test_large_plans_lie_beside_their_certificate(
    worse_and_best: tuple[Plan, Plan, Bracket],
    traffic: Traffic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    worse, best, bracket = worse_and_best
    monkeypatch.setattr("railopt.evidence.certificate.INLINE", 3)
    files = save_certificate(worse, bracket, tmp_path / "c.json", best)
    plans = [f"{plan.saved_digest}.plan.npz" for plan in (worse, best)]
    assert [file.name for file in files] == ["c.json", *plans]
    verdict = check(files[0], traffic)
    assert (verdict.ok, verdict.optimal, verdict.optimum) == (True, False, "known"), verdict
    other = check(files[0], "moe:skew=0.5,seed=2")
    assert (other.ok, other.optimum) == (False, "open"), "no optimum of this traffic"
    with pytest.raises(InputError, match="exists"):
        save_certificate(worse, bracket, tmp_path / "c.json", best)
    worse.save(files[2], force=True)
    assert not check(files[0]).ok


@pytest.mark.slow
def test_certificates_that_share_a_plan_store_it_once(
    worse_and_best: tuple[Plan, Plan, Bracket], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worse, best, bracket = worse_and_best
    monkeypatch.setattr("railopt.evidence.certificate.INLINE", 3)
    first = save_certificate(worse, bracket, tmp_path / "a.json", best)
    written = first[2].stat().st_mtime_ns
    second = save_certificate(best, bracket, tmp_path / "b.json", best)
    assert second[1:] == first[2:]
    assert first[2].stat().st_mtime_ns == written
    assert len(list(tmp_path.iterdir())) == 4
    assert all(check(file).ok for file in (first[0], second[0]))
    first[2].write_bytes(first[2].read_bytes()[:-40])
    assert not any(check(file).ok for file in (first[0], second[0]))
    save_certificate(best, bracket, tmp_path / "c.json", best)  # which mends the file
    assert all(check(file).ok for file in (first[0], second[0]))


def test_version_1_is_still_read() -> None:
    record = {
        "railopt": "certificate",
        "version": 1,
        "problem": {"kind": "local", "sizes": [7, 5, 4], "rails": 2},
        "claim": {"bound": "9", "value": "9", "proved": True},
        "witness": {"kind": "pigeonhole", "jobs": 3, "rails": 1},
        "assignment": [0, 1, 1],
    }
    read = Certificate.from_dict(record)
    assert (read.optimal, read.optimum) == (True, Status.KNOWN)
    assert read.check().optimal
    assert read.as_dict()["version"] == 2
    assert railopt.checker.check_certificate(record).optimum == "known"


# ---------------------------------------------------------------- counterexamples


@pytest.mark.slow
@pytest.mark.parametrize("path", counterexamples.files(), ids=lambda path: path.stem)
def test_every_committed_counterexample_is_replayed(path: Path) -> None:
    verdict = check(path)
    assert verdict.ok, verdict
    assert "replayed" in verdict.message
    assert verdict.value is not None


@pytest.mark.slow
def test_what_a_counterexample_refutes_and_what_is_known_of_its_optimum() -> None:
    found = {path.stem: check(path) for path in counterexamples.files()}
    assert found["T2-lpt-receive-n2"].kind == "counterexample to T2"
    for name in ("T5-list-order-n2", "T6-graham-n3", "T9-slow-nic-n8", "T10-fast-descending"):
        assert "to a claim that T" in found[name].kind
        assert found[name].kind.endswith(" rules out")
    flow, phases = found["T10-hot-gpu-n3"], found["T10-fast-theorem3-n2-m5"]
    assert flow.bound == flow.best == flow.value == Fraction(1, 5)
    assert flow.optimum == "known"
    assert (phases.bound, phases.best, phases.optimum) == (1, 3, "open")
    assert {verdict.optimum for verdict in found.values()} == {"known", "open"}


@pytest.mark.slow
@pytest.mark.parametrize("path", counterexamples.files(), ids=lambda path: path.stem)
def test_a_counterexample_that_shows_nothing_fails(path: Path, tmp_path: Path) -> None:
    record = json.loads(path.read_text())
    changes: list[dict[str, object]] = [{"value": "1/7"}, {"at_most": "99"}, {"optimum": "1/9"}]
    if record["kind"] != "fast":  # which has its phases in `best`
        changes.append({"bad": {}})
    for change in changes:
        changed = tmp_path / "changed.json"
        changed.write_text(json.dumps({**record, **change}))
        assert not check(changed).ok, change
        changed.unlink()


def test_what_a_claim_allows_is_not_the_files_word(tmp_path: Path) -> None:
    """A doctored file shows nothing of a claim that railopt knows; of another claim it may say what
    it wants, and that is said.
    """
    assert {counterexamples.read(file)["claim"] for file in counterexamples.files()} == set(ALLOWED)
    found = {path.stem: json.loads(path.read_text()) for path in counterexamples.files()}
    graham, robin = found["T6-graham-n3"], found["T4-round-robin-unequal"]
    fast, falling = found["T10-fast-theorem3-n2-m5"], found["T10-fast-descending"]
    path = tmp_path / "c.json"
    for record, said in (
        ({**graham, "at_most": "0"}, "at_most 0, the claim allows 10"),
        ({**robin, "at_most": "4"}, "the claim allows 11/2"),
        ({**fast, "best": {**fast["best"], "servers": 3}}, "the claim allows 8/3"),
        ({**fast, "best": {**fast["best"], "local": -5}}, "local: -5 is not a whole number"),
        ({**falling, "best": {**falling["best"], "stages": [2, 4]}}, "descending"),
        ({**found["T8-unequal-sizes"], "at_most": "2"}, "the claim allows 3"),
    ):
        path.write_text(json.dumps(record))
        verdict = check(path)
        assert not verdict.ok
        assert said in verdict.message
    other = {**robin, "bad": {"assignment": [0, 0, 0, 0]}, "value": "8"}
    path.write_text(json.dumps({**other, "claim": "any order keeps T4's bound"}))
    verdict = check(path)
    assert verdict.ok
    assert "does not make, called T4e" in verdict.kind
    assert "8 where the file says to allow 11/2" in verdict.message


@pytest.mark.slow
@pytest.mark.parametrize("file", counterexamples.files(), ids=lambda file: file.stem)
def test_several_fields_of_a_counterexample_forged_at_once(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim of railopt's is refuted with its theorem, hypotheses and policy or not at all, and of
    another claim nobody says what it allows but the file: with `--verified`, too.
    """
    record, path = json.loads(file.read_text()), tmp_path / "c.json"
    forged = {**record, "at_most": "1/1000000"}
    bare = {key: value for key, value in record["bad"].items() if key != "policy"}
    changes = [{"theorem": "T1"}, {"theorem": record["theorem"] + "x"}]
    changes += [{"where": []}] * bool(record["where"]) + [{"bad": bare}] * (bare != record["bad"])
    for change in changes:
        path.write_text(json.dumps({**forged, **change}))
        verdict = check(path)
        assert (verdict.ok, "not with this theorem" in verdict.message) == (False, True), change

    def accepts(name: Path) -> Verdict:
        said, content = "7 where the claim allows 1/1000000", content_of(name.read_bytes())
        return Verdict(True, False, "x", said, content=content)

    monkeypatch.setattr("railopt.answers.check.check_verified", accepts)
    path.write_text(json.dumps({**forged, "claim": record["claim"] + " "}))
    leaves = "leaf" in record["best"].get("problem", {})
    if leaves:
        with pytest.raises(InputError, match="railopt-verified does not know links above leaves"):
            check(path, verified=True)
    for verified in (False,) if leaves else (False, True):
        verdict = check(path, verified=verified)
        assert verdict.ok
        assert "a claim that railopt does not make" in verdict.kind
        assert "where the file says to allow 1/1000000" in verdict.message


def test_a_counterexample_runs_no_code_and_takes_no_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy is one of railopt's, numbers are fractions, loads are summed once."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "evil.py").write_text("raise SystemExit('its code ran')")
    found = {path.stem: json.loads(path.read_text()) for path in counterexamples.files()}
    lpt, hot = found["T2-lpt-receive-n2"], found["T10-hot-gpu-n3"]
    path = tmp_path / "c.json"
    for record, said in (
        ({**lpt, "bad": {**lpt["bad"], "policy": "evil:f"}}, "one of railopt's own"),
        ({**lpt, "bad": {**lpt["bad"], "policy": ["lpt"]}}, "one of railopt's own"),
        ({**hot, "bad": {**hot["bad"], "direct": "1e30000000"}}, "expected"),
    ):
        path.write_text(json.dumps(record))
        verdict = check(path)
        assert not verdict.ok
        assert said in verdict.message
    greedy = found["T5-list-order-n2"]
    for where in (["equal chunks"] * 2, greedy["where"] * 2):
        path.write_text(json.dumps({**greedy, "where": where}))
        with pytest.raises(InputError, match="each once"):
            check(path)


def test_files_after_a_schedule_that_fails_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(path: Path) -> Schedule:
        raise CheckFailed("stage 5: server 1 sends to itself")

    railopt.synthesise(FABRIC, workloads.zipf(FABRIC, seed=1)).save(tmp_path / "s.npz")
    monkeypatch.setattr(Schedule, "read", broken)
    good = counterexamples.files()[0]
    assert main(["check", str(tmp_path / "s.npz"), str(good), "--json"]) == 4
    first, second = json.loads(capsys.readouterr().out)
    assert (first["ok"], second["ok"]) == (False, True)
    assert "sends to itself" in first["message"]


@pytest.mark.parametrize("gpus", [4, 3])
def test_generated_traffic_has_a_gpu_per_rail_where_nothing_else_is_said(
    tmp_path: Path, gpus: int
) -> None:
    fabric = Fabric.uniform(2, 4, gpus=gpus)
    traffic = workloads.moe(fabric, tokens=64, seed=1)
    made = plan(fabric, traffic.chunks("64KiB"), "lpt")
    gap(made, limit_s=1).save_certificate(tmp_path / "c.json")
    least = least_moved(fabric, made.chunks, made.makespan)
    save_moved(made, made.makespan, least.bytes, least.witness, tmp_path / "m.json")
    assert check(tmp_path / "m.json", "moe:tokens=64,seed=1").ok
    assert not check(tmp_path / "m.json", "moe:tokens=64,seed=2").ok
    if gpus == 4:
        assert check(tmp_path / "c.json", "moe:tokens=64,seed=1").ok


def test_generated_traffic_of_another_number_of_gpus_is_no_verdict(tmp_path: Path) -> None:
    """A certificate does not say how many GPUs a node has: traffic of 9 is not found, and not
    called another one.
    """
    fabric = Fabric.uniform(2, 2, gpus=9)
    traffic = workloads.moe(fabric, tokens=8, seed=1)
    certificate = gap(plan(fabric, traffic.chunks("flow"), "lpt"), limit_s=0).certificate
    with pytest.raises(InputError, match="for a GPU per rail: hold it against a file"):
        check(certificate, "moe:tokens=8,seed=1")
    traffic.save(tmp_path / "t.txt")
    assert check(certificate, tmp_path / "t.txt").ok


def test_traffic_of_the_same_bytes_between_nodes_is_told_apart_by_its_name() -> None:
    two, four = (
        workloads.permutation(Fabric.uniform(2, 2, gpus=gpus), size=420 // gpus) for gpus in (2, 4)
    )
    made = plan(Fabric.uniform(2, 2, gpus=4), four.chunks("flow"))
    certificate = gap(made, limit_s=0).certificate
    assert check(certificate, four).ok
    assert "names another traffic" in check(certificate, two).message


def test_traffic_is_not_generated_for_as_many_gpus_as_a_file_says(tmp_path: Path) -> None:
    many = Fabric.uniform(2, 1, gpus=4096)
    chunks = Chunks.from_units(many, src_gpu=[0], dst=[1], size=[5])
    plan(many, chunks, "own-nic").save(tmp_path / "p.npz")
    with pytest.raises(InputError, match=r"of 8192 GPUs: expected a file for more than 2048"):
        check(tmp_path / "p.npz", "uniform")


def test_a_counterexample_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    whole = json.loads(next(f for f in counterexamples.files() if "hot" in f.name).read_text())
    for change in (
        {"kind": "x\n"},
        {"kind": []},
        {"theorem": {}},
        {"best": {}},
        {"value": "1e9"},
        {"where": ["x"]},
        {"bad": []},
    ):
        path.write_text(json.dumps({**whole, **change}))
        with pytest.raises(InputError):
            check(path)


@pytest.mark.parametrize("what", [{}, None, 3, b"x", np.zeros(3)])
def test_what_is_no_file_and_no_value_is_refused(what: Any) -> None:
    with pytest.raises(InputError, match="expected a file's name or a value of railopt"):
        check(what)


def test_a_certificate_in_another_form_is_checked_as_the_kernel_does(tmp_path: Path) -> None:
    """Canonical form is asked for only where it is held against traffic."""
    record = Certificate.local([4, 4], 4, {"kind": "average"}, rails=2, assignment=[0, 1]).as_dict()
    record["claim"]["bound"] = "8/2"
    file = tmp_path / "x.json"
    file.write_text(json.dumps(record))
    assert check(file).optimal
    with pytest.raises(FormatError, match=r"x\.json: not the canonical form"):
        check(file, Traffic(np.array([[0, 4], [4, 0]]), 2))


@pytest.mark.parametrize(
    "odd", [5, b"moe", np.zeros((6, 6)), Chunks.from_arrays(src=[0], dst=[1], size=[1])]
)
def test_what_is_no_traffic_is_refused(odd: Any, made: Plan, certificate: Certificate) -> None:
    for what in (made, certificate):
        with pytest.raises(InputError, match=r"traffic is of type .*: expected Traffic, a file's"):
            check(what, odd)
    with pytest.raises(InputError, match="an empty name"):
        check("")


@pytest.mark.parametrize("traffic_too", [False, True])
def test_a_plan_that_is_replaced_while_it_is_checked_gets_no_verdict(
    made: Plan,
    traffic: Traffic,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    traffic_too: bool,
) -> None:
    """One verdict is on one content: what the checker read is what is held against traffic."""
    other = plan(FABRIC, traffic.chunks("flow"), "round-robin")
    path = tmp_path / "plan.npz"
    made.save(path)

    def then_replaced(name: Path) -> Verdict:
        verdict = railopt.checker.check(name)
        other.save(path, force=True)
        return verdict

    monkeypatch.setattr("railopt.answers.check.check_file", then_replaced)
    with pytest.raises(InputError, match="changed while it was read"):
        check(path, traffic if traffic_too else None)


def test_a_named_plan_that_is_replaced_while_it_is_checked_gets_no_verdict(
    made: Plan, traffic: Traffic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, file = _named(made, tmp_path, monkeypatch)
    plain = railopt.checker.check_certificate

    def then_replaced(record: Any, folder: Path) -> Verdict:
        verdict = plain(record, folder)
        plan(FABRIC, traffic.chunks("flow"), "round-robin").save(file, force=True)
        return verdict

    assert check(path, traffic).ok
    monkeypatch.setattr("railopt.answers.check.check_certificate", then_replaced)
    with pytest.raises(InputError, match="changed while it was read"):
        check(path, traffic)


def _named(made: Plan, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A certificate that names its plan's file, and that file."""
    with monkeypatch.context() as patch:
        patch.setattr("railopt.evidence.certificate.INLINE", 0)
        report = gap(made, limit_s=0)
        return save_certificate(made, report.bracket, folder / "c.json")


def test_a_verdict_of_another_reader_must_be_on_the_same_bytes(
    certificate: Certificate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--verified` reads the file itself, before or after it is replaced."""
    path = tmp_path / "c.json"
    certificate.save(path)
    other = tmp_path / "other.json"
    other.write_text(path.read_text() + " ")
    found = counterexamples.files()[0]
    for file, replaced in ((path, other), (found, path)):
        monkeypatch.setattr("railopt.answers.check.check_verified", railopt.checker.check)
        if file == path:
            assert check(file, verified=True).ok
        monkeypatch.setattr(
            "railopt.answers.check.check_verified",
            lambda _, replaced=replaced: railopt.checker.check(replaced),
        )
        with pytest.raises(InputError, match="changed while it was checked"):
            check(file, verified=True)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [([4, 1, 1], ""), ([5, 1], "largest flow"), ([4, 2], "more flows")],
)
def test_a_certificate_of_chunks_that_are_not_cut_from_the_flows(
    sizes: list[int], said: str
) -> None:
    """The same bytes between nodes and the traffic's name, in chunks of other sizes."""
    matrix = np.zeros((4, 4), np.int64)
    matrix[0, 2], matrix[0, 3], matrix[1, 2] = 4, 1, 1
    traffic, rates = Traffic(matrix, 2), [[1, 1], [1, 1]]
    problem = {
        **{"kind": "coupled", "nodes": 2, "rails": 2, "tx": rates, "rx": rates},
        "chunks": {"src": [0] * len(sizes), "dst": [1] * len(sizes), "size": sizes},
        "traffic": traffic.digest,
    }
    word = {"kind": "claimed", "by": "nobody"}
    verdict = check(Certificate(problem, Fraction(0), word), traffic)
    assert verdict.ok == (not said)
    assert said in verdict.message


def test_a_traffic_that_a_certificate_names_is_compared(traffic: Traffic) -> None:
    rates = {"tx": FABRIC.tx.tolist(), "rx": FABRIC.rx.tolist()}
    problem = {"kind": "fluid", **rates, "demand": traffic.node_matrix.tolist()}
    word = {"kind": "claimed", "by": "nobody"}
    for digest, holds in ((between_nodes(traffic).digest, True), ("0" * 32, False)):
        verdict = check(Certificate({**problem, "traffic": digest}, Fraction(0), word), traffic)
        assert verdict.ok == holds, verdict.message
        assert holds or "names another traffic" in verdict.message


def test_beside_a_plan_no_traffic_is_named(
    made: Plan, traffic: Traffic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan says what it sends; a name that nobody compares is not believed, true or not."""
    path, _ = _named(made, tmp_path, monkeypatch)
    named = Certificate.read(path)
    assert named.traffic is None
    assert check(path, traffic).ok
    for digest in (between_nodes(traffic).digest, "0" * 32):
        replace(named, problem={**named.problem, "traffic": digest}).save(path, force=True)
        verdict = check(path)
        assert not verdict.ok
        assert "traffic beside a plan" in verdict.message


def test_what_claims_nothing_is_named(traffic: Traffic, tmp_path: Path) -> None:
    from railopt.moe.routing.trace import Trace

    Trace(np.ones((1, 1, 2, 4), np.int32), 1).save(tmp_path / "trace.npz")
    traffic.save(tmp_path / "traffic.npz")
    for kind in ("trace", "traffic"):
        with pytest.raises(InputError, match=rf"{kind}\.npz is a {kind}, which makes no claim"):
            check(tmp_path / f"{kind}.npz")
