"""HybridEP: the stream model, its optimum, domains, migration, per-expert choice, the command."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from railopt import Fabric, Plan, Traffic
from railopt.base.errors import Infeasible, InputError
from railopt.evidence.bracket import Bracket, Status
from railopt.moe.hybrid import domains as partition
from railopt.moe.hybrid import gating, migrate, simulated, spec, stream
from railopt.moe.hybrid.answer import answer
from railopt.moe.hybrid.recorded import FollowQuestion, follow
from railopt.moe.hybrid.simulated import block_time
from railopt.moe.routing.trace import Trace

MB = 10**6
GBPS = 10**9 // 8


def flat(
    workers: int = 32, data: int = 24 * MB, expert: int = 8 * MB, pre: Fraction = Fraction(1, 20)
) -> stream.Stream:
    return stream.Stream((stream.Level("worker", workers, 10 * GBPS),), data, expert, pre)


@pytest.mark.parametrize(("size", "data", "experts"), [(1, 992, 0), (4, 224, 96), (32, 0, 992)])
def test_message_counts_are_the_papers(size: int, data: int, experts: int) -> None:
    block = flat()
    assert partition.message_counts(block, stream.domains_of_sizes(block, [size])) == (
        data,
        experts,
    )


@pytest.mark.parametrize(
    ("data", "expert", "pre"),
    [(24, 8, "1/20"), (24, 8, "1"), (200, 2, "1/1000"), (1, 50, "1/100"), (24, 8, "0")],
)
def test_closed_form_is_never_beaten_by_any_ratio_or_size(data: int, expert: int, pre: str) -> None:
    block = flat(data=data * MB, expert=expert * MB, pre=Fraction(pre))
    p, size = stream.closed_form(block)
    assert 0 <= p <= 1
    assert (block.workers - size) / (block.workers - 1) == p
    best = stream.latency_of_ratio(block, p)
    assert all(stream.latency_of_ratio(block, Fraction(i, 200)) >= best for i in range(201))
    found = stream.optimum(block, unequal=True)
    assert found.latency.total >= best
    for size_ in (1, 2, 4, 8, 16, 32):
        domain = stream.domains_of_sizes(block, [size_])
        share = Fraction(block.workers - size_, block.workers - 1)
        assert stream.latency(block, domain).total == stream.latency_of_ratio(block, share)
        assert stream.latency(block, domain).total >= found.latency.total


def test_closed_form_lands_on_the_discrete_optimum_where_it_is_feasible() -> None:
    block = flat(
        workers=16, expert=8 * MB, pre=Fraction(7 * 8 * MB, 10 * GBPS)
    )  # exactly seven experts fit: S* = 8
    assert stream.closed_form(block)[1] == 8
    assert [str(d) for d in stream.optimum(block).domains] == ["8"]


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("sizes", [(1, 1), (2, 1), (4, 8), (1, 4), (4, 2)])
def test_simulation_agrees_with_the_model(sizes: tuple[int, int], gradients: bool) -> None:
    block = stream.Stream(
        (stream.Level("dc", 4, 10 * GBPS, Fraction(1, 1000)), stream.Level("gpu", 8, 128 * GBPS)),
        24 * MB,
        8 * MB,
        Fraction(1, 100),
        compression=Fraction(10),
        decode=Fraction(1, 10**5),
        gradients=gradients,
        post=Fraction(1, 50),
    )
    chosen = stream.domains_of_sizes(block, sizes)
    modelled = stream.latency(block, chosen).total
    assert abs(block_time(block, chosen) / modelled - 1) < Fraction(1, 10**5)


def test_unequal_domains_are_not_simulated() -> None:
    block = flat(workers=10)
    with pytest.raises(InputError, match="unequal domains"):
        block_time(block, [stream.Domain(10, 4)])


def test_merged_flows_take_as_long_as_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    block = flat(workers=24)
    every = [stream.domains_of_sizes(block, [size]) for size in (1, 2, 6, 24)]
    merged = [block_time(block, chosen) for chosen in every]
    monkeypatch.setattr(simulated, "HOPS", 24)
    for chosen, few in zip(every, merged, strict=True):
        assert abs(block_time(block, chosen) / few - 1) < Fraction(1, 10**6)


def off_nodes(matrix: np.ndarray, gpus: int = 8) -> np.ndarray:
    node = np.arange(len(matrix)) // gpus
    return np.where(node[:, None] == node, 0, matrix)


def test_domains_as_traffic_that_the_plan_tools_cut_over_rails() -> None:
    block = stream.Stream(
        (stream.Level("dc", 4, 10 * GBPS), stream.Level("gpu", 8, 128 * GBPS)),
        8 * MB,
        MB,
        Fraction(0),
    )
    chosen = stream.domains_of_sizes(block, [2, 1])
    fabric = Fabric.uniform(4, 8)
    sent = partition.traffic(block, chosen, fabric)
    assert sent.dispatch.bytes.sum(axis=1).tolist() == [8 * MB // 4 * 2 + 8 * MB // 8 * 7] * 32
    assert sent.experts.node_matrix.sum() == 32 * MB
    made = sent.plan(fabric, "equitable", "64KiB")
    by_stage = np.bincount(made.stage, weights=made.chunks.size).astype(int).tolist()
    between = int(sent.dispatch.node_matrix.sum())
    assert by_stage == [32 * MB, between, between]
    assert Traffic.from_chunks(made.chunks).bytes.tolist() == (
        off_nodes(sent.experts.bytes + sent.dispatch.bytes + sent.dispatch.bytes.T).tolist()
    )
    with pytest.raises(InputError, match="32 workers"):
        partition.traffic(block, chosen, Fabric.uniform(2, 8))


@pytest.mark.parametrize("seed", range(8))
def test_the_optimum_is_the_best_of_all_latencies(seed: int) -> None:
    rng = np.random.default_rng(seed)

    def time(most: int) -> Fraction:
        return Fraction(int(rng.integers(0, most)), int(rng.integers(1, 10**6)))

    levels = tuple(
        stream.Level(str(i), int(rng.integers(1, 9)), int(rng.integers(1, 10**9)), time(100))
        for i in range(1 + seed % 3)
    )
    block = stream.Stream(
        levels,
        int(rng.integers(1, 10**8)),
        int(rng.integers(1, 10**8)),
        time(10**6),
        compression=1 + time(10**7),
        decode=time(1000),
        encode=time(1000),
        gradients=seed % 2 == 1,
        post=time(10**6),
    )
    tried = product(*(stream.choices(level, unequal=True) for level in levels))
    every = sorted(
        (stream.latency(block, domains).total, [d.largest for d in domains]) for domains in tried
    )
    best = stream.optimum(block, unequal=True)
    assert best.tried == len(every)
    assert (best.bracket.value, [d.largest for d in best.domains]) == every[0]


def test_domains_are_whole_numbers_in_json() -> None:
    levels = (stream.Level("dc", 5, 10**9), stream.Level("gpu", 2, 10**10))
    block = stream.Stream(levels, 48 * MB, 2 * MB, Fraction(0))
    found = answer(spec.HybridQuestion(block, False), [5, 1])
    assert found.as_dict()["domains"] == {
        "dc": {"count": 1, "smallest": 5, "largest": 5},
        "gpu": {"count": 2, "smallest": 1, "largest": 1},
    }
    for other in found.as_dict()["sensitivity"].values():
        assert set(other["domains"]) == {"dc", "gpu"}


def test_given_sizes_have_to_fit_and_the_closed_form_is_for_what_it_knows() -> None:
    block = flat(workers=4)
    assert answer(spec.HybridQuestion(block, False), [2]).closed is not None
    tight = replace(block, memory=15 * MB)
    with pytest.raises(Infeasible, match=r"need 15.26MiB of experts per worker, its own included"):
        answer(spec.HybridQuestion(tight, False), [2])
    assert answer(spec.HybridQuestion(replace(block, memory=16 * MB), False), [2]).latency.total > 0
    slow = (replace(block.levels[0], latency=Fraction(1, 10**6)),)
    for other in (tight, replace(block, gradients=True), replace(block, levels=slow)):
        assert answer(spec.HybridQuestion(other, False)).closed is None


def test_gradients_and_memory_change_the_optimum() -> None:
    block = flat(expert=4 * MB)
    free = stream.optimum(block).domains[0].largest
    assert stream.optimum(replace(block, gradients=True)).domains[0].largest < free
    tight = replace(block, memory=2 * block.expert)
    best = stream.optimum(tight)
    assert best.domains[0].largest <= 2
    assert best.tried == 2 < stream.optimum(block).tried  # sizes 1 and 2 fit
    with pytest.raises(InputError, match="do not fit"):
        replace(block, memory=block.expert - 1)


def test_encoding_is_paid_only_where_experts_migrate() -> None:
    block = replace(flat(), encode=Fraction(1, 100))
    for size in (1, 4):
        domain = stream.domains_of_sizes(block, [size])
        extra = stream.latency(block, domain).total - stream.latency(flat(), domain).total
        assert extra == (Fraction(1, 100) if size > 1 else 0)
    assert stream.optimum(replace(flat(), encode=Fraction(10))).domains[0].largest == 1


def test_unequal_domains_are_as_equal_as_can_be() -> None:
    domain = stream.Domain(10, 4)
    assert (domain.largest, domain.smallest, domain.equal, str(domain)) == (3, 2, False, "2-3")
    with pytest.raises(InputError, match="not equal"):
        partition.messages(flat(10), [domain], 0)


# ---------------------------------------------------------------- migration
def test_migration_round_trip_and_its_error() -> None:
    rng = np.random.default_rng(0)
    experts = rng.normal(size=(4, 64, 32)).astype(np.float32)
    shared = migrate.shared_expert(experts)
    whole = migrate.encode(experts[0], shared, experts[0].size)
    assert np.allclose(migrate.decode(shared, whole), experts[0], atol=1e-6)
    errors = []
    for ratio in (2, 5, 50):
        keep = migrate.kept(experts[0].size, ratio)
        sent = migrate.encode(experts[0], shared, keep)
        assert experts[0].nbytes >= ratio * sent.nbytes
        assert len(sent.values) == keep
        errors.append(migrate.relative_error(experts[0], shared, sent))
        difference = np.sort(np.abs((experts[0] - shared).ravel()))
        assert errors[-1] == pytest.approx(
            np.linalg.norm(difference[:-keep]) / np.linalg.norm(experts[0]), rel=1e-4
        )
    assert errors == sorted(errors)


def test_of_equal_differences_the_first_are_sent() -> None:
    expert = np.tile(np.array([1, -1, 0, 2], np.float32), 250)
    sent = migrate.encode(expert, np.zeros(1000, np.float32), 300)
    twos, ones = np.arange(3, 1000, 4), np.flatnonzero(np.abs(expert) == 1)[:50]
    assert sent.indices.tolist() == np.sort(np.concatenate([twos, ones])).tolist()


@pytest.mark.parametrize("odd", [np.nan, np.inf, 1e300])
def test_parameters_that_are_no_numbers_are_refused(odd: float) -> None:
    with pytest.raises(InputError, match="no finite float32 numbers"):
        migrate.encode(np.array([1.0, odd, 2.0]), np.zeros(3), 1)


# ---------------------------------------------------------------- one by one
def some_gating(
    experts: int, centres: int, skew: float, seed: int, tokens: int, *, equal: bool = True
) -> gating.Gating:
    rng = np.random.default_rng(seed)
    popularity = rng.permutation(np.arange(1, experts + 1) ** -skew) * rng.gamma(
        4, 0.25, (centres, experts)
    )
    counts = np.stack([rng.multinomial(tokens, row / row.sum()) for row in popularity])
    rate = np.full(centres, 10**4) if equal else 10**4 + 700 * np.arange(centres)
    return gating.Gating(
        counts,
        np.arange(experts) * centres // experts,
        np.full(experts, 7),
        rate,
        Fraction(seed, 10**4),
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_choice_is_optimal_and_its_tree_checks(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed < 5:  # as where many copies can be made
        monkeypatch.setattr(gating, "_FEW", 0)
    instance = some_gating(4, 3, 1.0, seed, 40, equal=bool(seed % 2))
    choice = gating.choose(instance)
    count = len(instance.pairs()[0])
    best = min(
        gating.evaluate(instance, np.array(copies, bool))
        for copies in product((0, 1), repeat=count)
    )
    assert choice.bracket.status is Status.KNOWN
    assert choice.bracket.value == best
    assert gating.check_tree(instance, choice)
    less = best - Fraction(1, 10**6)
    for claim in (
        Bracket(less, less, Status.KNOWN),
        Bracket(best, less, Status.OPEN),
        Bracket(best, best, Status.CLAIMED),
    ):
        assert not gating.check_tree(instance, replace(choice, bracket=claim))
    missing = replace(choice, leaves=choice.leaves[:-1])
    assert not gating.check_tree(instance, missing)


def test_a_few_copies_are_proved_whatever_times_their_gather_could_take() -> None:
    instance = gating.Gating(
        np.array([[6, 46], [2, 49], [7, 42]]),
        np.array([1, 1]),
        np.array([1, 164]),
        np.array([41, 14, 48]),
        Fraction(4),
    )
    choice = gating.choose(instance)
    assert len(choice.leaves) < 2**4
    assert choice.bracket.optimum_known
    assert gating.check_tree(instance, choice)


@pytest.mark.parametrize(
    ("tokens", "expert"), [([5, 5, 5], [2**62 - 1] * 3), ([2**61] * 3, [1, 1, 1])]
)
def test_bytes_whose_sums_would_wrap_are_refused(tokens: list[int], expert: list[int]) -> None:
    tables = (np.array([[0, 0, 0], tokens]), np.zeros(3, int), np.array(expert), np.ones(2, int))
    with pytest.raises(InputError, match="bytes in all: expected less than"):
        gating.Gating(*tables, Fraction(0))


def test_hot_experts_travel_and_cold_ones_do_not() -> None:
    tokens = np.array([[0, 0], [1000, 3], [1000, 3]])
    instance = gating.Gating(
        tokens, np.array([0, 0]), np.array([10, 10]), np.full(3, 100), Fraction(1, 5)
    )
    choice = gating.choose(instance)
    expert, _ = instance.pairs()
    assert choice.bracket.optimum_known
    assert choice.copies[expert == 0].all()
    assert not choice.copies[expert == 1].any()


def test_an_optimum_found_late_checks_by_prices_of_the_part_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokens, experts = np.array([[0, 0], [700, 400], [800, 800]]), np.array([40, 40])
    instance = gating.Gating(tokens, np.zeros(2, int), experts, np.full(3, 100), Fraction(0))
    best = gating.choose(instance).copies
    worst, relax = (~best, gating.evaluate(instance, ~best)), gating.GatingSearch.relax

    def late(search: Any, part: gating.Part) -> Any:
        """The first part has good prices and a bad choice, the others the reverse."""
        shares, gather, leaf = relax(search, part)
        if part.high is None and not part.fixed:
            return np.zeros(len(shares)), gather, leaf
        return best.astype(float), gather, leaf._replace(prices=(0,) * len(leaf.prices))

    monkeypatch.setattr(gating.GatingSearch, "relax", late)
    monkeypatch.setattr(gating.GatingSearch, "milp", lambda *_: worst)
    monkeypatch.setattr(gating.GatingSearch, "start", lambda search: worst)
    found = gating.choose(instance)
    assert found.bracket.optimum_known
    assert gating.check_tree(instance, found)


def test_a_large_choice_has_a_certified_gap() -> None:
    instance = some_gating(128, 16, 1.0, 1, 20000, equal=False)
    choice = gating.choose(instance, limit_s=3)
    assert gating.evaluate(instance, choice.copies) == choice.bracket.value
    assert choice.bracket.gap < Fraction(1, 20)


# ---------------------------------------------------------------- the command and its input
GOOD = {
    "data": "24MB",
    "expert": "8MB",
    "pre_expert": "10ms",
    "level": [{"name": "dc", "count": 6, "bandwidth": "10Gb/s"}],
}


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"level": [{"count": 6, "bandwidth": "0Gb/s"}]}, "above zero"),
        ({"level": []}, "no \\[\\[level\\]\\]"),
        ({"speed": 1}, "unknown key 'speed'"),
        ({"level": [{"count": 6, "bandwidth": "1Gb/s", "hops": 2}]}, "unknown key 'hops'"),
        ({"pre_expert": "-1ms"}, "negative"),
        ({"compression": 0.5}, "at least 1"),
        ({"memory": "1MB"}, "do not fit"),
        ({"gradients": 3}, "true or false"),
        ({"post": "8ms"}, "give gradients = true"),
        ({"data": "0B"}, "at least 1 byte"),
        ({"level": [{"count": 0, "bandwidth": "1Gb/s"}]}, "a whole number from 1"),
        ({"preset": "mixtral-8x7b"}, "contradict"),
    ],
)
def test_bad_specs(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        spec.parse({**GOOD, **change})


@pytest.mark.slow
def test_command(railopt_cli: Callable[..., object], tmp_path: Path) -> None:
    ran = railopt_cli("hybrid", "--json", "--simulate", "--figure", tmp_path / "f.svg")
    assert ran.code == 0
    data = json.loads(ran.out)
    assert (data["optimal"], data["optimum"]) == (True, "known")
    total, simulated = Fraction(data["latency"]["total"]), Fraction(data["simulated"])
    assert abs(simulated / total - 1) < Fraction(1, 10**5)
    assert Fraction(data["speedup"]) > 1
    assert (tmp_path / "f.svg").exists()
    path = tmp_path / "spec.toml"
    path.write_text(
        'data = "24MB"\nexpert = "8MB"\npre_expert = "50ms"\n[[level]]\nname = "dc"\ncount = '
        '6\nbandwidth = "10Gb/s"\n'
    )
    assert "block, forward and backward, simulated" in railopt_cli("hybrid", "--simulate").out
    assert "block, forward, simulated" in railopt_cli("hybrid", path, "--simulate").out
    ran = railopt_cli("hybrid", path, "--sizes", "4")
    assert ran.code == 1
    assert "neighbours are 3 and 6" in ran.err
    ran = railopt_cli("hybrid", path)
    assert ran.code == 0
    assert "closed form (T11)" in ran.out
    assert "optimal: the best of all domain choices (4)" in ran.out
    ran = railopt_cli("hybrid", path, "--force")
    assert (ran.code, "--force can't do anything without --figure" in ran.err) == (1, True)
    ran = railopt_cli("hybrid", path, "--steps", 2)
    assert (ran.code, "--steps can't do anything with a spec" in ran.err) == (1, True)
    path.write_text('memory = "8MB"\n' + path.read_text())
    assert "the best of all domain choices that fit (1)" in railopt_cli("hybrid", path).out
    assert railopt_cli("hybrid", tmp_path / "none.toml").code == 1


def test_a_fabric_is_levels_below_those_of_a_spec(tmp_path: Path) -> None:
    fabric = Fabric.uniform(4, 8, "25Gb/s").degraded({(2, 3): "1/2"})
    inside = spec.levels_of(fabric)
    assert (inside[0].bandwidth, inside[1].bandwidth) == (15 * 25 * GBPS // 2, fabric.scaleup)
    assert [level.name for level in spec.read(None, inside).stream.levels] == ["node", "gpu"]
    block = spec.parse(GOOD, inside).stream
    assert [level.count for level in block.levels] == [6, 4, 8]
    chosen = stream.domains_of_sizes(block, [3, 2, 1])
    sent = partition.traffic(block, chosen, fabric)
    # one data centre's inside: two nodes of a domain exchange what three data centres hold
    assert sent.experts.node_matrix[0].tolist() == [0, 8 * 3 * 8 * MB, 0, 0]
    assert partition.held(block, chosen)[33] == [1, 9, 33, 41, 65, 73]
    with pytest.raises(InputError, match="one or two"):
        partition.fabric_of(block)
    with pytest.raises(InputError, match="those of a fabric are node and gpu"):
        spec.parse({**GOOD, "level": [{**GOOD["level"][0], "name": "gpu"}]}, inside)


def test_what_is_exported_is_sent(railopt_cli: Callable[..., object], tmp_path: Path) -> None:
    drift = "drift:steps=3,experts=8,top=2,tokens=64"
    shape = ["--nodes", 2, "--gpus", 2, "--link", "1Gb/s"]
    recorded = [drift, *shape, "--model", "mixtral-8x7b", "--compression", 1000]
    for name, words, prefix in (("even", shape, ""), ("drift", recorded, "0-")):
        folder = tmp_path / name
        assert railopt_cli("hybrid", *words, "--export", folder).code == 0
        made = Plan.read(folder / f"{prefix}plan.npz")
        dispatch = Traffic.read(folder / f"{prefix}dispatch.npz").bytes
        experts = Traffic.read(folder / f"{prefix}experts.npz").bytes
        sent = Traffic.from_chunks(made.chunks).bytes
        assert (sent == off_nodes(experts + dispatch + dispatch.T, 2)).all()
        held = json.loads((folder / "domains.json").read_text())["experts"][0]
        assert len(held) == 4
        assert experts.astype(bool).sum() <= sum(map(len, held))
        assert railopt_cli("simulate", folder / f"{prefix}plan.npz").code == 0
        assert railopt_cli("send", folder / f"{prefix}plan.npz").code == 0
        ran = railopt_cli("hybrid", *words, "--export", folder)
        assert (ran.code, "name an empty folder" in ran.err) == (1, True)


def test_copies_that_follow_a_trace_are_scored_on_the_step_after() -> None:
    counts = np.zeros((3, 1, 4, 4), np.int32)
    for step, hot in enumerate((3, 3, 0)):  # what node 0 asks of node 1, then the other way round
        counts[step, 0, :, hot] = 100
    trace = Trace(counts, 1, tokens_per_rank=100, model_dim=4096)
    fabric = Fabric.uniform(2, 2, "1Gb/s")
    found = follow(trace, fabric, FollowQuestion("mixtral-8x7b", Fraction(10**4)))
    only = found.layers[0]
    assert found.scored == 2
    assert only.optimal == 2
    assert only.known == only.bound < only.data
    # the second scored step is not like the one before, the first is
    first = follow(
        replace(trace, counts=counts[:2], iterations=np.arange(2)), fabric, found.question
    )
    assert first.layers[0].regret == 0
    assert only.regret > 0
    assert only.copies.tolist() == [[False] * 4, [True] + [False] * 3]
    assert found.traffic(0).experts.bytes[0].tolist() == [0, 0, found.sent_bytes, 0]
    with pytest.raises(InputError, match="at least two"):
        follow(replace(trace, counts=counts[:1], iterations=np.arange(1)), fabric, found.question)


def test_what_compression_loses(railopt_cli: Callable[..., object], tmp_path: Path) -> None:
    dice = np.random.default_rng(3)
    experts = dice.normal(size=(32, 16)) + 0.1 * dice.standard_t(3, size=(6, 32, 16))
    np.save(tmp_path / "w.npy", experts.astype(np.float32))
    ran = railopt_cli("hybrid", "--weights", tmp_path / "w.npy", "--json")
    whole, half, *_, least = json.loads(ran.out)["rows"]
    assert (whole["error"], whole["sent_bytes"]) == (0, 32 * 16 * 4)
    assert 0 < half["error"] < least["error"] < least["error_alone"]
    assert half["error"] < half["error_alone"]
    assert least["sent_bytes"] == 32 * 16 * 4 // 50 // 8 * 8
    assert Fraction(whole["block"]) > Fraction(least["block"])
    np.save(tmp_path / "x.npy", np.arange(10))
    assert "floating-point" in railopt_cli("hybrid", "--weights", tmp_path / "x.npy").err


def test_a_preset_gives_the_sizes() -> None:
    levels = [{"name": "dc", "count": 8, "bandwidth": "10Gb/s"}]
    found = spec.parse(
        {"preset": "deepseek-v3", "tokens": 4096, "compute": "400TFLOP/s", "level": levels}
    ).stream
    assert found.data == 4096 * 8 * 7168 * 2
    assert found.expert == 32 * 3 * 7168 * 2048 * 2  # 256 experts on 8 workers
    assert found.pre == Fraction(4096 * 2 * 231_145_472, 400 * 10**12)
    for change in ({"tokens": 0}, {"compute": "fast"}, {"preset": "gpt-9"}):
        with pytest.raises(InputError):
            spec.parse(
                {
                    "preset": "deepseek-v3",
                    "tokens": 4096,
                    "compute": "400TFLOP/s",
                    "level": levels,
                    **change,
                }
            )


@pytest.mark.slow
@pytest.mark.parametrize(
    "instance",
    [
        gating.Gating(
            np.array([[6, 14, 17], [1, 2, 3]]),
            np.array([1, 0, 1]),
            np.array([13, 4, 4]),
            np.array([8, 9]),
            Fraction(1),
        ),
        gating.Gating(
            np.array([[0, 0, 0], [0, 9, 0], [0, 9, 4]]),
            np.array([2, 2, 1]),
            np.array([7, 6, 17]),
            np.array([8, 9, 3]),
            Fraction(5, 2),
        ),
    ],
)
def test_what_is_called_proved_is_checked(
    instance: gating.Gating, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts without room for the copies that are fixed in them were closed without a proof."""
    monkeypatch.setattr(gating, "_FEW", 0)
    found = gating.choose(instance, limit_s=60.0)  # a busy machine takes its time
    assert found.bracket.optimum_known
    assert gating.check_tree(instance, found)
