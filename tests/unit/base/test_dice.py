"""Draws are the same for ever, and have the distributions that they are named for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from scipy import special

from railopt.base.arrays import Floats, Ints
from railopt.base.dice import Dice, exp, falling, ln
from railopt.base.errors import InputError

MANY = 100_000
Draw = Callable[[Dice, Ints, int, int], Ints]


def chi_square(counted: Ints, expected: Floats | float | None = None) -> float:
    """The chance of counts as far from the expected, or from even ones; scipy.stats has it too, and
    takes a second to import.
    """
    expected = counted.mean() if expected is None else expected
    distance = ((counted - expected) ** 2 / expected).sum()
    return float(special.chdtrc(len(counted) - 1, distance))


def kolmogorov(shares: Floats) -> float:
    """The chance that even draws from 0 to 1 lie as far from even as these."""
    found, steps = np.sort(shares), np.arange(len(shares) + 1) / len(shares)
    distance = max((steps[1:] - found).max(), (found - steps[:-1]).max())
    return float(special.kolmogorov(np.sqrt(len(shares)) * distance))


GOLDEN_WORDS = [14912553383308923672, 11590369855798725296]
GOLDEN_BELOW = [340624967690, 446138689444]
GOLDEN_ORDER = [4, 6, 2, 1, 0, 5, 7, 3]
GOLDEN_UNIT = ["0x1.e465e219b74d7p-1", "0x1.61c5cac24d4dep-2"]
GOLDEN_NORMAL = ["-0x1.5d45af349e330p-2", "0x1.b060810368027p-1", "-0x1.b19d201c86627p-2"]
GOLDEN_GAMMA = [
    "-0x1.840da3038b3d4p+6",
    "-0x1.0aa3cf507a8e7p+0",
    "-0x1.239726d6f070cp+2",
    "0x1.6bb8234de6909p+0",
    "0x1.4b926913cd7e2p+4",
]
GOLDEN_COUNTS = [[253, 68, 0, 679], [248, 268, 261, 223]]
GOLDEN_MANY = [
    [230769222053212, 76923075754632, 0, 692307702192156],
    [249999991168638, 250000000708839, 250000002065652, 250000006056871],
]
GOLDEN_KEYS = [195, 125, 170, 175, 143, 194]
GOLDEN_FALLING = [
    "0x1.0000000000000p+0",
    "0x1.2611186bae675p-1",
    "0x1.a935a16704c72p-2",
    "0x1.51cb453b9536cp-2",
]


def test_golden_draws() -> None:
    """Never to be changed: every seeded figure of every user hangs on them."""
    dice = Dice(1, "golden")
    assert dice.words(2).tolist() == GOLDEN_WORDS
    assert dice.below(10**12, 2).tolist() == GOLDEN_BELOW
    assert dice.permutation(8).tolist() == GOLDEN_ORDER
    assert [x.hex() for x in dice.unit(2).tolist()] == GOLDEN_UNIT
    assert [x.hex() for x in dice.normal(3).tolist()] == GOLDEN_NORMAL
    shapes = np.array([0.01, 0.5, 1.0, 4.0, 1e9])
    assert [x.hex() for x in dice.log_gamma(shapes).tolist()] == GOLDEN_GAMMA
    weights = np.array([[3, 1, 0, 9], [1, 1, 1, 1]])
    assert dice.counts(weights, 1000).tolist() == GOLDEN_COUNTS
    assert dice.counts(weights, 10**15).tolist() == GOLDEN_MANY
    assert [x.hex() for x in falling(4, 0.8).tolist()] == GOLDEN_FALLING


def test_seeds() -> None:
    assert Dice(1).words(4).tolist() == Dice(np.int64(1)).words(4).tolist()
    streams = [Dice(1), Dice(1, 0), Dice(0, 1), Dice(1, "a"), Dice("a", 1), Dice(2**64 - 1), Dice()]
    assert len({tuple(dice.words(2).tolist()) for dice in streams}) == len(streams)
    for wrong in (-1, 2**64, 1.0, True, None):
        with pytest.raises(InputError, match="whole number"):
            Dice(wrong)  # type: ignore[arg-type]


def test_ln_and_exp() -> None:
    x = np.concatenate([np.arange(1.0, 3000), 10.0 ** np.arange(-300, 300, 7), [1 + 2.0**-52]])
    assert np.allclose(ln(x), np.log(x), rtol=1e-15, atol=1e-16)
    y = np.linspace(-690, 690, 4001)
    assert np.allclose(exp(y), np.exp(y), rtol=2e-13, atol=0)
    assert exp([-1e9])[0] > 0
    assert np.allclose(falling(50, 0.7), np.arange(1, 51) ** -0.7, rtol=1e-14)


def test_whole_numbers_are_uniform() -> None:
    dice = Dice(5)
    counted = np.bincount(dice.below(7, MANY), minlength=7)
    assert chi_square(counted) > 1e-3
    high = dice.below(3 << 61, MANY)  # a quarter of all words is refused
    assert chi_square(np.bincount(high >> 61, minlength=3)) > 1e-3
    assert high.min() >= 0
    assert high.max() < 3 << 61
    orders = [tuple(dice.permutation(4).tolist()) for _ in range(6000)]
    _, counted = np.unique(orders, axis=0, return_counts=True)
    assert len(counted) == 24
    assert chi_square(counted) > 1e-3
    counted = np.bincount(dice.chosen(np.array([5, 0, 1, 2]), MANY), minlength=4)
    assert counted[1] == 0
    assert chi_square(counted[[0, 2, 3]], MANY * np.array([5, 1, 2]) / 8) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("trials", [50, 3000, 70_000, 10**9])
def test_counts_are_multinomial(trials: int) -> None:
    weights = np.array([5, 1, 0, 3, 7])
    rows, p = 3000, weights / weights.sum()
    counted = Dice(trials).counts(np.tile(weights, (rows, 1)), trials)
    assert np.all(counted.sum(axis=1) == trials)
    assert np.all(counted >= 0)
    assert np.all(counted[:, 2] == 0)
    live = p > 0
    deviation = (counted[:, live].mean(axis=0) / trials - p[live]) / np.sqrt(
        p[live] * (1 - p[live]) / trials / rows
    )
    assert np.abs(deviation).max() < 4
    spread = counted[:, live].var(axis=0) / (trials * p[live] * (1 - p[live]))
    assert np.abs(spread - 1).max() < 0.12


def test_real_numbers_have_their_distributions() -> None:
    dice = Dice(6)
    assert kolmogorov(dice.unit(MANY)) > 1e-3
    assert kolmogorov(special.ndtr(dice.normal(MANY))) > 1e-3
    between = dice.uniform(-2.0, 3.0, (10, 100))
    assert between.shape == (10, 100)
    assert -2 <= between.min() < -1.9 < 2.9 < between.max() < 3


@pytest.mark.slow
@pytest.mark.parametrize("shape", [0.02, 0.5, 1.0, 4.0, 1e4])
def test_gamma_and_dirichlet(shape: float) -> None:
    logs = Dice(7).log_gamma(np.full(MANY, shape))
    sigma = np.sqrt(special.polygamma(1, shape) / MANY)
    assert abs(logs.mean() - special.digamma(shape)) < 4 * sigma
    if shape >= 0.5:
        assert kolmogorov(special.gammainc(shape, np.exp(logs))) > 1e-3
    shares = Dice(8).dirichlet(np.full(500, shape))
    assert shares.max() == 1
    assert shares.min() > 0
    theirs = np.mean(
        [np.max(np.random.default_rng(s).dirichlet(np.full(500, shape))) for s in range(200)]
    )
    ours = np.mean([1 / Dice(s).dirichlet(np.full(500, shape)).sum() for s in range(200)])
    assert ours == pytest.approx(theirs, rel=0.2)


@pytest.mark.parametrize("draw", [Dice.distinct, Dice.distinct_by_keys])
def test_distinct_places_are_drawn_one_after_the_other(draw: Draw) -> None:
    """Against the chance of each ordered pair: w_i / W * w_j / (W - w_i)."""
    weights = np.array([5, 1, 3, 7])
    drawn = draw(Dice(9), weights, MANY, 2)
    assert drawn.shape == (MANY, 2)
    for i, j in np.ndindex(4, 4):
        chance = weights[i] / 16 * weights[j] / (16 - weights[i]) if i != j else 0.0
        share = np.mean((drawn[:, 0] == i) & (drawn[:, 1] == j))
        assert abs(share - chance) <= 4 * np.sqrt(chance * (1 - chance) / MANY)
    many = draw(Dice(10), np.arange(1, 21), 500, 10)
    assert all(len(set(row)) == 10 for row in many.tolist())
    assert draw(Dice(11), weights, 0, 3).shape == (0, 3)
    assert draw(Dice(11), weights, 3, 1).shape == (3, 1)


def test_distinct_places_that_have_nearly_all_of_the_weight() -> None:
    """Drawn again until they differ, these would take for ever; the golden row is for ever too."""
    weights = np.zeros(600, np.int64)
    weights[100:500] = 1
    weights[100:200] = 1 << 40
    drawn = Dice(12).distinct(weights, 50, 300)
    assert all(len(set(row)) == 300 for row in drawn.tolist())
    assert (np.sort(drawn[:, :100], axis=1) == np.arange(100, 200)).all()
    assert drawn[:, 100:].min() >= 200
    assert drawn.max() < 500
    assert drawn[0, :6].tolist() == GOLDEN_KEYS
    every = Dice(13).distinct(np.ones(20, np.int64), 40, 20)
    assert (np.sort(every, axis=1) == np.arange(20)).all()
