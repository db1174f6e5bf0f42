"""Draws that are the same on any machine, under any Python and any numpy.

numpy promises the stream of raw 64-bit words of a bit generator, not what its distributions make of
them.  `Dice` draws such words (PCG64, seeded by a hash) and makes its own numbers of them:

    whole numbers   by integer arithmetic, without bias
    real numbers    by + - * / and the square root alone, which IEEE 754 defines to the last bit,
                    each a numpy operation of its own, so that nothing is fused; `ln` and `exp` are
                    series of these, because a C library's differ from one another in the last bit

A seed is one or several whole numbers and names: `Dice(7, "lpt")` and `Dice(7, "moe")` are
independent.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import wraps
from math import prod

import numpy as np
import numpy.typing as npt

from railopt.base.arrays import Bools, Floats, Ints, Words
from railopt.base.errors import InputError

__all__ = ["Dice", "exp", "falling", "ln", "mixed"]

Shape = int | tuple[int, ...]

_LN2 = 0.6931471805599453
_SQRT_HALF = 0.7071067811865476
_DIRECT = 1 << 16  # so many trials are drawn one by one, more are halved first
_FEW = 16  # where halving a binomial ends
_USUAL = 8  # so many different places are drawn again until they are, whatever their weights
_LEFT = 32  # more are, if the heaviest leave this part of the weight; else keys decide
_BLOCK = 1 << 21  # keys that are drawn together
_SERIES = 1 << 16  # numbers whose series are computed together


def _in_blocks(series: Callable[[Floats], Floats]) -> Callable[[npt.ArrayLike], Floats]:
    """Apply an elementwise function block by block, so that its temporaries take little memory."""

    @wraps(series)
    def call(x: npt.ArrayLike) -> Floats:
        given = np.asarray(x, np.float64)
        if given.size <= _SERIES:
            return series(given)
        found, flat = np.empty(given.size), given.reshape(-1)
        for start in range(0, given.size, _SERIES):
            found[start : start + _SERIES] = series(flat[start : start + _SERIES])
        return found.reshape(given.shape)

    return call


@_in_blocks
def ln(x: Floats) -> Floats:
    """Natural logarithm of positive numbers, to within a few units of the last place.

    x = m 2^e with m from sqrt(1/2) to sqrt(2);  ln m = 2 (z + z^3/3 + z^5/5 + ...) with
    z = (m - 1) / (m + 1), |z| < 0.172.
    """
    mantissa, exponent = np.frexp(x)
    low = mantissa < _SQRT_HALF
    mantissa, exponent = np.where(low, 2.0 * mantissa, mantissa), exponent - low
    z = (mantissa - 1.0) / (mantissa + 1.0)
    square, series = z * z, np.zeros(z.shape)
    for odd in range(23, 0, -2):
        series *= square
        series += 1.0 / odd
    return exponent * _LN2 + 2.0 * z * series


@_in_blocks
def exp(x: Floats) -> Floats:
    """e^x for x from -700 to 700 (beyond, as for the nearer end), to within 1e-13 of itself.

    e^x = 2^k e^r with k = x / ln 2 rounded, and e^r by its Taylor series, |r| < 0.35.
    """
    clipped = np.clip(x, -700.0, 700.0)
    k = np.rint(clipped / _LN2)
    rest, series = clipped - k * _LN2, np.ones(clipped.shape)
    for term in range(16, 0, -1):
        series *= rest
        series /= term
        series += 1.0
    return np.ldexp(series, k.astype(np.int32))


def falling(count: int, skew: float) -> Floats:
    """1, 2 ** -skew, 3 ** -skew, ...: Zipf's popularity by rank, float64 [count]."""
    return exp(-float(skew) * ln(np.arange(1, count + 1)))


def mixed(words: Words) -> Words:
    """splitmix64's finaliser: every bit of a word reaches every bit of what it becomes."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        words = (words ^ (words >> np.uint64(shift))) * np.uint64(factor)
    return words ^ (words >> np.uint64(31))


class Dice:
    """A stream of draws that its seed determines."""

    def __init__(self, *seed: int | str) -> None:
        for part in seed:
            whole = isinstance(part, (int, np.integer)) and not isinstance(part, bool)
            if not (isinstance(part, str) or (whole and 0 <= part < 2**64)):
                raise InputError(f"seed {part!r}: expected a whole number from 0 to 2**64 - 1")
        text = "/".join(str(part) for part in seed)
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        self._bits = np.random.PCG64(int.from_bytes(digest, "little"))

    def words(self, count: int) -> Words:
        """Raw words, uint64 [count]."""
        return np.asarray(self._bits.random_raw(count), np.uint64)

    # ------------------------------------------------------------ whole numbers
    def below(self, limit: int, shape: Shape = 1) -> Ints:
        """Uniform whole numbers from 0 to limit - 1, int64 of this shape; 1 <= limit <= 2**63."""
        count = prod(shape) if isinstance(shape, tuple) else shape
        fair = 2**64 - 2**64 % limit  # words from here on would favour small numbers
        drawn = self.words(count)
        while fair < 2**64 and (unfair := np.flatnonzero(drawn >= np.uint64(fair))).size:
            drawn[unfair] = self.words(unfair.size)
        return (drawn % np.uint64(limit)).astype(np.int64).reshape(shape)

    def permutation(self, count: int) -> Ints:
        """0 to count - 1 in a uniformly random order, int64 [count]: in the order of random words,
        drawn again until no two are equal.
        """
        while True:
            keys = self.words(count)
            order = np.argsort(keys, kind="stable")
            if count < 2 or np.all(np.diff(keys[order])):
                return order

    def chosen(self, weights: Ints, count: int) -> Ints:
        """Places of `weights` [n], each as likely as its weight, int64 [count].

        Weights are whole, not negative, and add up to at least 1 and less than 2**63.
        """
        reached = np.cumsum(weights)
        return np.searchsorted(reached, self.below(int(reached[-1]), count), side="right")

    def distinct(self, weights: Ints, count: int, number: int) -> Ints:
        """So many different places of `weights` each time, int64 [count, number]: drawn one after
        the other, each as likely as its weight among those that are left.

        At least that many places have some weight.  A place that is there already is drawn again;
        where that could take long, because more than 8 are wanted and the heaviest of them leave
        less than 1/32 of the weight, random keys say which come first.
        """
        lightest = np.sort(weights)[: len(weights) - number]
        if number > _USUAL and _LEFT * int(lightest.sum()) < int(weights.sum()):
            return self.distinct_by_keys(weights, count, number)
        drawn = self.chosen(weights, count * number).reshape(count, number)
        left, again = np.arange(count), _repeated(drawn)
        while (some := again.any(axis=1)).any():
            left, rows, again = left[some], drawn[left[some]], again[some]
            rows[again] = self.chosen(weights, int(np.count_nonzero(again)))
            drawn[left], again = rows, _repeated(rows)
        return drawn

    def distinct_by_keys(self, weights: Ints, count: int, number: int) -> Ints:
        """`distinct` in a time that weights do not change: each place waits -ln(u) / weight, and
        the first ones are taken (Efraimidis and Spirakis 2006).
        """
        places = np.flatnonzero(weights)
        drawn = np.empty((count, number), np.int64)
        block = max(1, _BLOCK // len(places))
        for start in range(0, count, block):
            rows = drawn[start : start + block]
            keys = -ln(1.0 - self.unit((len(rows), len(places)))) / weights[places]
            rows[:] = places[np.argsort(keys, axis=1, kind="stable")[:, :number]]
        return drawn

    def counts(self, weights: Ints, trials: int) -> Ints:
        """How often each column is chosen in so many trials of its row (multinomial), int64 [rows,
        columns]; each row's weights as for `chosen`.
        """
        if trials > _DIRECT:
            return self._counts_by_halves(weights, trials)
        counted = np.empty(weights.shape, np.int64)
        for row, own in enumerate(weights):
            reached = np.cumsum(own)
            draws = np.sort(self.below(int(reached[-1]), trials))
            counted[row] = np.diff(np.searchsorted(draws, reached), prepend=0)
        return counted

    def _counts_by_halves(self, weights: Ints, trials: int) -> Ints:
        """`counts` for any number of trials: split between the halves of the columns, and so on."""
        rows, columns = weights.shape
        sums = [np.pad(weights, ((0, 0), (0, (1 << (columns - 1).bit_length()) - columns)))]
        while sums[-1].shape[1] > 1:
            sums.append(sums[-1][:, 0::2] + sums[-1][:, 1::2])
        counted = np.full((rows, 1), trials, np.int64)
        for below, above in zip(sums[-2::-1], sums[:0:-1], strict=True):
            lower = self.binomial(counted.ravel(), (below[:, 0::2] / np.maximum(above, 1)).ravel())
            lower = lower.reshape(counted.shape)
            counted = np.stack([lower, counted - lower], axis=2).reshape(rows, -1)
        return counted[:, :columns]

    def binomial(self, trials: Ints, chance: Floats) -> Ints:
        """How many of so many trials succeed, int64 [n].

        Of t uniform numbers the a-th smallest is Beta(a, t + 1 - a): it says on which side of
        `chance` a half of them lies, until few are left.
        """
        trials, chance, successes = trials.copy(), chance.copy(), np.zeros(len(trials), np.int64)
        while (many := np.flatnonzero(trials > _FEW)).size:
            left, p = trials[many], chance[many]
            middle = 1 + left // 2
            logs = self.log_gamma(np.concatenate([middle, left + 1 - middle]).astype(np.float64))
            value = 1.0 / (1.0 + exp(logs[len(many) :] - logs[: len(many)]))
            reached = value <= p
            successes[many] += np.where(reached, middle, 0)
            trials[many] = np.where(reached, left - middle, middle - 1)
            beyond = (p - value) / np.where(value < 1.0, 1.0 - value, 1.0)
            chance[many] = np.where(reached, beyond, p / value)
        drawn = self.unit((len(trials), _FEW)) < chance[:, None]
        drawn &= np.arange(_FEW) < trials[:, None]
        return successes + np.count_nonzero(drawn, axis=1)

    # ------------------------------------------------------------ real numbers
    def unit(self, shape: Shape = 1) -> Floats:
        """Uniform multiples of 2**-53 from 0 to below 1, float64 of this shape."""
        count = prod(shape) if isinstance(shape, tuple) else shape
        words = self.words(count)
        words >>= np.uint64(11)
        drawn = words.astype(np.float64)
        drawn *= 2.0**-53
        return drawn.reshape(shape)

    def uniform(self, low: float, high: float, shape: Shape = 1) -> Floats:
        """Uniform numbers from low to high, float64 of this shape."""
        return low + (high - low) * self.unit(shape)

    def normal(self, count: int) -> Floats:
        """Standard normal numbers, float64 [count], by Marsaglia's polar method."""

        def attempt(left: Ints) -> tuple[Floats, Bools]:
            drawn = self.unit((2, len(left)))
            drawn *= 2.0
            drawn -= 1.0
            u, v = drawn
            square = u * u + v * v
            inside = (square > 0.0) & (square < 1.0)
            safe = np.where(inside, square, 0.5)
            return u * np.sqrt(-2.0 * ln(safe) / safe), inside

        return _until_all(count, attempt)

    def log_gamma(self, shapes: Floats) -> Floats:
        """Logarithms of gamma numbers of these shapes (scale 1), float64 [n].

        Marsaglia and Tsang 2000: d (1 + x / sqrt(9 d))^3 with d = shape - 1/3 and x normal, refused
        by a second draw.  A shape below 1 is drawn one higher and multiplied by u ^ (1 / shape).
        """
        raised = shapes < 1.0
        d = np.where(raised, shapes + 1.0, shapes) - 1.0 / 3.0
        slope = 1.0 / np.sqrt(9.0 * d)

        def attempt(left: Ints) -> tuple[Floats, Bools]:
            x, mine = self.normal(len(left)), d[left]
            root = 1.0 + slope[left] * x
            positive = root > 0.0
            log_cube = 3.0 * ln(np.where(positive, root, 1.0))
            allowed = 0.5 * x * x + mine * (1.0 - root * root * root + log_cube)
            below = ln(1.0 - self.unit(len(left))) < allowed
            return ln(mine) + log_cube, positive & below

        drawn = _until_all(len(shapes), attempt)
        return np.where(raised, drawn + ln(1.0 - self.unit(len(shapes))) / shapes, drawn)

    def gamma(self, shape: float, size: tuple[int, ...]) -> Floats:
        """Gamma numbers of one shape, scale 1, float64 of this size."""
        return exp(self.log_gamma(np.full(prod(size), float(shape)))).reshape(size)

    def dirichlet(self, concentrations: Floats) -> Floats:
        """Dirichlet's shares up to a factor, float64 [n]: the largest is 1."""
        logs = self.log_gamma(concentrations)
        return exp(logs - logs.max())


def _repeated(rows: Ints) -> Bools:
    """bool, shaped as `rows`: whether a number occurs further left in its row."""
    order = np.argsort(rows, axis=1, kind="stable")
    ordered = np.take_along_axis(rows, order, axis=1)
    repeated = np.zeros(rows.shape, np.bool_)
    np.put_along_axis(repeated, order[:, 1:], ordered[:, 1:] == ordered[:, :-1], axis=1)
    return repeated


def _until_all(count: int, attempt: Callable[[Ints], tuple[Floats, Bools]]) -> Floats:
    """Call `attempt(places)`, which draws for those places and returns which draws count, until
    all do."""
    result, left = np.empty(count), np.arange(count)
    while left.size:
        drawn, good = attempt(left)
        result[left[good]] = drawn[good]
        left = left[~good]
    return result
