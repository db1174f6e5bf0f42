"""Workloads as papers publish them, against plain readings of their formulas."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from railopt import Fabric
from railopt.base.errors import InputError
from railopt.model.published import ZIPF_VALUES, zipf_sizes
from railopt.model.workloads import WORKLOADS, from_spec

FAST = Fabric.uniform(4, 8)


def by_bisection(s: float, share: float) -> float:
    """The x with F(x) = share F(1024), from the formula alone."""

    def cumulated(x: float) -> float:
        power = (x ** (1 - s) - 1) / (1 - s)
        return 12 * power + 6 * (1 - x**-s) + s * (1 - x ** (-1 - s))

    low, high = 1.0, float(ZIPF_VALUES)
    for _ in range(200):
        middle = (low + high) / 2
        if cumulated(middle) < share * cumulated(ZIPF_VALUES):
            low = middle
        else:
            high = middle
    return low


@pytest.mark.slow
@pytest.mark.parametrize("s", [0.0, 0.1, 0.5, 0.8, 0.9, 1.001, 2.0, 3.0])
def test_a_size_is_the_root_of_the_published_formula(s: float) -> None:
    shares = np.linspace(0, 1, 301)
    for share, size in zip(shares, zipf_sizes(s, shares), strict=True):
        root = by_bisection(s, float(share))
        assert math.floor(root - 0.02) <= size <= math.floor(root + 0.02)


@pytest.mark.slow
def test_sizes_follow_zipf() -> None:
    """The share of size 1 to 8 among many draws is that of the discrete Zipf(0.8) on 1..1024."""
    sizes = zipf_sizes(0.8, (np.arange(200_000) + 0.5) / 200_000)
    weights = np.arange(1, ZIPF_VALUES + 1) ** -0.8
    assert np.mean(sizes <= 8) == pytest.approx(weights[:8].sum() / weights.sum(), abs=0.02)


def test_the_largest_pair_is_as_skewed_as_published() -> None:
    """FAST at s = 0.9: 5.7 times the mean; ranked pairs (pair sizes rank ** -0.9) have 96."""
    found = []
    for seed in range(5):
        sent = from_spec(f"fast-zipf:s=0.9,seed={seed}", FAST).bytes
        found.append(sent.max() / (sent.sum() / (32 * 31)))
    assert np.mean(found) == pytest.approx(5.7, rel=0.05)


@pytest.mark.parametrize("spec", ["fast-zipf:s=0.5", "fast-random"])
def test_sizes_are_scaled_to_their_mean(spec: str) -> None:
    sent = from_spec(f"{spec}{',' if ':' in spec else ':'}mean=16MiB", FAST).bytes
    assert not sent.diagonal().any()
    assert 0 <= 32 * 31 * 2**24 - sent.sum() < 32 * 31


@pytest.mark.parametrize(("fabric", "tokens"), [(Fabric.uniform(4, 4), 1024), (FAST, 512)])
def test_prophet_has_the_published_batch(fabric: Fabric, tokens: int) -> None:
    for top_k in (1, 2):
        sent = from_spec(f"prophet:width=512,top_k={top_k}", fabric).bytes
        assert set(sent.sum(axis=1).tolist()) == {tokens * top_k * 512 * 4}


def test_a_balance_loss_makes_prophet_more_even() -> None:
    def busiest(gate: str) -> float:
        sent = [from_spec(f"prophet:gate={gate},seed={i}", FAST).bytes.sum(0) for i in range(5)]
        return float(np.mean([one.max() / one.mean() for one in sent]))

    assert busiest("naive") > busiest("balanced") > 4


def test_rails_sparse_sends_the_same_whatever_the_sparsity() -> None:
    for sparsity in (0.0, 0.5, 0.9):
        sent = from_spec(f"rails-sparse:sparsity={sparsity},per_gpu=64MiB", FAST).bytes
        assert sent.sum() / 32 == pytest.approx(64 * 2**20 * 31 / 32, rel=0.2)
        assert np.mean(sent == 0) == pytest.approx(sparsity + (1 - sparsity) / 32, abs=0.05)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("fast-zipf:s=1", "divides by 1 - s; take 0.999 or 1.001"),
        ("fast-zipf:s=1.0000001", "s = 1.0000001: FAST's formula divides by 1 - s"),
        ("fast-zipf:s=-0.5", "s = -0.5: expected 0 to 3"),
        ("fast-zipf:mean=-5", "at least 1 byte"),
        ("fast-zipf:mean=1048576TiB", "or more"),
        ("fast-random:mean=0", "at least 1 byte"),
        ("prophet:batch=0", "at least 1 sequence"),
        ("prophet:batch=50", "spread evenly"),
        ("prophet:batch=-3", "whole number from 0"),
        ("prophet:gate=noisy", "expected one of naive, balanced"),
        ("prophet:batch=3,width=0", "at least 1 value"),
        ("prophet:batch=3,top_k=99", "1 to 96 experts"),
        ("rails-sparse:sparsity=1", "expected 0 to 0.99"),
        ("rails-sparse:per_gpu=-1", "at least 1 byte"),
    ],
)
def test_what_is_outside_its_domain_is_refused(spec: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        from_spec(spec, Fabric.uniform(12, 8))


def test_the_command_line_refuses_with_one_sentence(railopt_cli: Callable[..., object]) -> None:
    ran = railopt_cli("plan", "fast-zipf:s=1", "--nodes", "2", "--rails", "2")
    assert ran.code == 1  # type: ignore[attr-defined]
    assert ran.err.count("\n") == 1  # type: ignore[attr-defined]


def test_a_token_of_prophet_goes_to_different_experts() -> None:
    """The most popular expert gets a token of a GPU at most once."""
    fabric = Fabric.uniform(4, 4)
    for seed in range(3):
        sent = from_spec(f"prophet:top_k=4,seed={seed}", fabric).bytes
        assert sent.max() <= 1024 * 512 * 4
    assert (from_spec("prophet:top_k=16", fabric).bytes == 1024 * 512 * 4).all()


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("prophet", {"width": 512.5}, "width = 512.5: expected a whole number"),
        ("prophet", {"gate": 3}, "gate = 3: expected text"),
        ("moe", {"tokens": "many"}, "tokens = 'many': expected a whole number"),
        ("moe", {"skew": "0.8"}, "skew = '0.8': expected a number"),
        ("uniform", {"size": 1.5}, "size = 1.5: expected a size"),
        ("uniform", {"seed": None}, "seed = None: expected a whole number"),
        ("routing", {"top": True}, "top = True: expected a whole number"),
        ("drift", {"drift": [1]}, r"drift = \[1\]: expected a number"),
    ],
)
def test_an_option_of_a_wrong_type_is_refused(
    name: str, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(InputError, match=complaint):
        WORKLOADS[name](FAST, **options)
