"""The time model, the planners on it, and their distance from certified optima."""

from __future__ import annotations

import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from experiments.pro_prophet_common import algorithm1
from railopt.base.errors import BackendError, InputError
from railopt.base.kernels import kernel
from railopt.evidence.bracket import Bracket, Status
from railopt.model.fabric import Fabric
from railopt.moe.iteration.timemodel import TimeModel
from railopt.moe.placement import optimum
from railopt.moe.placement.layer_times import (
    LayerTables,
    at_home,
    terms,
    toggle,
)
from railopt.moe.placement.prophet import (
    evaluate,
    homes,
    layer_of,
    measure,
    pro_prophet,
    shadow,
)
from railopt.moe.placement.prophet_greedy import prune
from railopt.moe.routing.dispatch import split


def flat(devices: int, **changes: object) -> TimeModel:
    fields = {
        "bandwidth": "100Gb/s",
        "token_bytes": 2000,
        "expert_bytes": 10**6,
        "tokens_per_s": 5e6,
        "overlap": False,
        **changes,
    }
    return TimeModel.flat(devices, **fields)  # type: ignore[arg-type]


def rails(nodes: int, gpus: int, **changes: object) -> TimeModel:
    fabric = Fabric.uniform(nodes, gpus, "100Gb/s", scaleup="50GB/s")
    fields = {
        "token_bytes": 2000,
        "expert_bytes": 10**6,
        "tokens_per_s": 5e6,
        "overlap": False,
        **changes,
    }
    return TimeModel.rails(fabric, **fields)  # type: ignore[arg-type]


def draw(devices: int, experts: int, seed: int, skew: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    popular = rng.permutation(np.arange(1, experts + 1) ** -skew)
    return np.stack(
        [rng.multinomial(1000, rng.dirichlet(20 * popular / popular.sum())) for _ in range(devices)]
    )


@pytest.mark.slow
def test_the_papers_equations_on_a_case_done_by_hand() -> None:
    counts = np.array([[10, 5, 0], [20, 1, 1], [30, 0, 2]])
    model = flat(3)
    ps_token, ps_copy = 160_000, 26_666_667  # 2000 B at 12.5 GB/s; 1 MB at 3 x 12.5 GB/s
    bare = evaluate(model, counts)
    assert (bare.a2a, bare.fec, bare.trans, bare.copies) == (50 * ps_token, 60 * 200_000, 0, 0)
    assert bare.total == 4 * bare.a2a + 3 * bare.fec
    holds = np.zeros((3, 3), bool)
    holds[2, 0] = True  # expert 0 copied to device 2: its 30 tokens stay there
    after = evaluate(model, counts, holds)
    assert (after.a2a, after.fec) == (
        21 * ps_token,
        33 * 200_000,
    )  # device 1 sends 21 away, device 2 computes 30 + 2 + 1
    assert after.trans == after.agg == ps_copy
    assert after.total == 4 * after.a2a + 3 * after.fec + after.trans + after.agg
    overlapped = evaluate(flat(3, overlap=True, fnec_ps=10**6), counts, holds)
    hidden = max(0, after.trans - after.fec - 10**6) + max(0, after.agg - 2 * after.fec - 2 * 10**6)
    assert overlapped.total == 4 * after.a2a + 3 * after.fec + hidden


@pytest.mark.slow
def test_nodes_fetch_an_expert_once_and_pass_it_on() -> None:
    counts = np.full((6, 1), 10)
    model = rails(3, 2)
    holds = np.ones((6, 1), bool)
    everywhere = evaluate(model, counts, holds)
    assert everywhere.a2a == 0
    assert everywhere.trans == max(int(model.copy_ps[0]), model.copy_up_ps)
    one_a_node = np.array([[True], [False], [True], [False], [True], [False]])
    spread = evaluate(model, counts, one_a_node)
    assert spread.a2a == 10 * model.up_ps
    assert spread.fec == 20 * model.token_ps
    kept = evaluate(model, counts, holds, have=holds)
    assert kept.trans == 0
    assert kept.copies == 0


def test_a_slow_node_counts_as_slow() -> None:
    fabric = Fabric.uniform(2, 2, "100Gb/s").degraded({(0, 0): "0"})
    model = TimeModel.rails(fabric, token_bytes=2000, expert_bytes=10**6, tokens_per_s=5e6)
    assert model.node_ps.tolist() == [160_000, 80_000]
    with pytest.raises(InputError, match="node 1 has no NIC that is alive"):
        TimeModel.rails(
            fabric.degraded({(1, 0): "0", (1, 1): "0"}),
            token_bytes=1,
            expert_bytes=1,
            tokens_per_s=1.0,
        )


@pytest.mark.parametrize("seed", range(4))
def test_evaluate_agrees_with_the_split_of_single_flows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    model, counts = rails(3, 2), draw(6, 5, seed)
    home = rng.integers(0, 6, 5)
    holds = (rng.random((6, 5)) < 0.4) | (np.arange(6)[:, None] == home)
    shares = split(counts, holds, home, 2, "home")
    found = measure(model, shares.sum(axis=1), counts, holds, home=home)
    assert found == evaluate(model, counts, holds, home=home)
    assert (
        evaluate(model, counts, holds, home=home).fec
        == shares.sum(axis=(0, 1)).max() * model.token_ps
    )


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_no_placement_of_a_small_layer_is_better_than_the_optimum(seed: int) -> None:
    for model in (
        flat(4, overlap=bool(seed % 2), fnec_ps=10**7),
        rails(2, 2, overlap=bool(seed % 2)),
    ):
        counts = draw(4, 4, seed)
        best = optimum.optimal(model, counts)
        assert best.bracket.status is Status.KNOWN
        assert best.bracket.bound == evaluate(model, counts, best.holds).total
        assert evaluate(model, counts, pro_prophet(model, counts)).total >= best.bracket.value


@pytest.mark.parametrize("experts", [1, 3])
def test_kernels_are_given_one_type_whatever_the_shape(experts: int) -> None:
    """They would be compiled once more for another: a column is a view that can't be written."""
    model = flat(4)
    tokens, there = model.counts(draw(4, experts, 0)), np.zeros((4, experts), bool)
    there.flags.writeable = False
    made = layer_of(model, tokens, homes(model, tokens, None), there)
    assert not tokens.flags.writeable
    assert all(table.flags.writeable and table.flags.c_contiguous for table in made[3:])


@pytest.mark.slow
@pytest.mark.usefixtures("in_this_process")
def test_the_integer_program_agrees_with_trying_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, model in (
        (1, flat(4)),
        (3, rails(2, 2, overlap=True, fnec_ps=10**7)),
        (5, rails(2, 3, expert_bytes=3 * 10**5)),
    ):
        counts, home = draw(model.devices, 4, seed), [0, 0, 1, 3] if seed % 2 else None
        tried = optimum.optimal(model, counts, home=home, slots=3, limit=5).bracket
        with monkeypatch.context() as patch:
            patch.setattr(optimum, "EXHAUSTIVE", 0)
            patch.setattr(
                optimum,
                "pro_prophet",
                lambda m, c, *, home, **_: np.arange(m.devices)[:, None] == home,
            )
            solved = optimum.optimal(model, counts, home=home, slots=3, limit=5).bracket
        assert solved.status in (Status.CLAIMED, Status.OPEN)
        assert "HiGHS" in solved.by
        assert solved.value == tried.value
        assert solved.bound <= tried.value <= solved.bound * Fraction(1_000_001, 1_000_000)
    with pytest.raises(InputError, match="takes at most 10000"):
        optimum.optimal(rails(16, 8), draw(128, 128, 0))


def solver_that(does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bracket:
    """The optimum of a layer when the solver's process is a shell script; $7 is where it puts its
    answers.
    """
    script = tmp_path / "solver"
    script.write_text(f"#!/bin/sh\n{does}\n")
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    return optimum.optimal(rails(2, 3), draw(6, 6, 1), limit_s=0.3).bracket


@pytest.mark.slow
def test_what_a_solver_said_outlives_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = evaluate(rails(2, 3), draw(6, 6, 1), pro_prophet(rails(2, 3), draw(6, 6, 1))).total
    answer = '{"chosen": null, "bound": 700.5}'
    for does in (
        f"echo '{answer}' >> $7; sleep 600",
        f"echo '{answer}' >> $7; printf '{{\"chos' >> $7; kill -9 $$",
    ):
        stopped = solver_that(does, tmp_path, monkeypatch)
        assert (stopped.value, stopped.bound, stopped.status) == (ours, 700_500_000, Status.OPEN)
    silent = solver_that("sleep 600", tmp_path, monkeypatch)
    assert silent.value == ours
    assert silent.bound == 3 * 1000 * 200_000  # the mean of the compute
    with pytest.raises(BackendError, match=r"exit code 7.*no more memory"):
        solver_that("echo no more memory; exit 7", tmp_path, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("model", [flat(16), rails(4, 4), rails(4, 4, overlap=True, fnec_ps=10**9)])
def test_planners_never_lose_and_pro_prophet_beats_the_others(model: TimeModel) -> None:
    for seed in range(4):
        counts = draw(16, 16, seed, 1.2)
        none = evaluate(model, counts).total
        ours = evaluate(model, counts, pro_prophet(model, counts)).total
        others = [
            evaluate(model, counts, shadow(model, counts)).total,
            *(evaluate(model, counts, algorithm1(model, counts, n)).total for n in (0, 8, 12)),
        ]
        assert max(others) <= none
        assert ours <= min(others)


def test_limits_on_slots_and_copies_hold() -> None:
    model, counts = rails(4, 2), draw(8, 16, 3, 1.5)
    for slots, limit in ((3, None), (None, 4), (2, None), (4, 7)):
        holds = pro_prophet(model, counts, slots=slots, limit=limit)
        assert holds.sum(axis=1).max() <= (slots or 16)
        assert holds.sum() - 16 <= (1000 if limit is None else limit)
        assert holds[np.arange(16) // 2, np.arange(16)].all()
    with pytest.raises(InputError, match="smallest feasible number is 2"):
        pro_prophet(model, counts, slots=1)
    assert shadow(model, counts, slots=2).sum() == 16


def test_copies_that_are_already_there_cost_nothing_and_are_used() -> None:
    model, counts = rails(2, 2, expert_bytes=10**9), draw(4, 4, 1)
    assert pro_prophet(model, counts).sum() == 4
    have = np.zeros((4, 4), bool)
    have[3] = True
    holds = pro_prophet(model, counts, have=have)
    assert holds.sum() > 4
    assert evaluate(model, counts, holds, have=have).trans == 0


def test_counts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="2 nodes x 2 GPUs = 4"):
        evaluate(rails(2, 2), np.ones((3, 3), int))
    with pytest.raises(InputError, match="can't be negative"):
        evaluate(rails(2, 2), -np.ones((4, 3), int))
    with pytest.raises(InputError, match="homes of shape"):
        evaluate(rails(2, 2), np.ones((4, 3), int), home=[0, 1, 9])
    with pytest.raises(InputError, match="expected 0 to 3 devices"):
        algorithm1(flat(4), np.ones((4, 4), int), 4)


@kernel
def pruned(layer: LayerTables, slots: np.ndarray, trail: np.ndarray) -> tuple[int, np.ndarray]:
    """All copies of `trail`, and those that are left of them."""
    state, _ = at_home(layer, slots, len(trail))
    for pair in trail:
        d, e = pair // len(state.holds), pair % len(state.holds)
        toggle(d, e, state)
    total = terms(layer.have.shape[1], state.times, layer.scalars)[4]
    return prune(total, trail, len(trail), state), state.holds


@pytest.mark.slow
@pytest.mark.parametrize("model", [flat(6), rails(3, 2), rails(2, 4, overlap=True)])
def test_copies_that_do_not_pay_are_taken_back(model: TimeModel) -> None:
    for seed in range(8):
        counts, rng = draw(model.devices, 9, seed), np.random.default_rng(seed)
        owner, have = homes(model, counts, None), rng.random(counts.shape) < 0.1
        holds = np.arange(model.devices)[:, None] == owner
        trail = rng.permutation(np.flatnonzero(~holds))[:20]
        holds.flat[trail] = True
        best = evaluate(model, counts, holds, have=have).total
        for pair in trail[::-1]:
            holds.flat[pair] = False
            total = evaluate(model, counts, holds, have=have).total
            best, holds.flat[pair] = min(best, total), total > best
        layer, slots = layer_of(model, counts, owner, have), np.full(model.devices, 9)
        value, left = pruned(layer, slots, trail)
        assert value == best
        np.testing.assert_array_equal(left.T, holds)


def test_an_even_layer_is_proved_optimal_without_a_solver() -> None:
    even = np.full((6, 6), 60)
    best = optimum.optimal(flat(6, overlap=True, expert_bytes=1), even).bracket
    assert (best.status, best.by) == (Status.KNOWN, "no GPU computes more than the mean")
    assert (
        best.value
        == evaluate(flat(6, overlap=True, expert_bytes=1), even, np.ones((6, 6), bool)).total
    )
