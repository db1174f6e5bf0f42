"""The stream model: what one MoE block waits for, as a function of the domain sizes, in exact
seconds.

Workers are numbered by coordinates, one per level, the outermost (data centres) first. At a level
of n members the members form expert domains of S: inside a domain experts are exchanged (all-
gather, AG), between domains data (A2A). A worker of a domain of S at every level then computes with
prod S experts.

    AG_l     = P_E / CR x (S_0 ... S_{l-1}) x (S_l - 1) / B_l
    A2A_l    = D x (n_l - S_l) / n_l / B_l
    forward  = max(pre, sum AG_l) + decode + 2 sum A2A_l
    backward = max(post, sum of uncompressed AG_l) + 2 sum A2A_l

AG_l: a worker's own expert first over the slow level, then all of them inside; it hides under the
pre-expert compute.  A2A_l: tokens whose expert is in no domain of their worker's.  The backward
pass, in which the gradients of migrated experts return, is optional.

B_l is a worker's share of its member's link at level l; each message adds the level's latency.  For
one level, S = G is pure expert transmission and S = 1 plain expert parallelism, and the ratio of
data still sent is p = (G - S) / (G - 1).
Even gating, one size of expert, expert compute hidden: the paper's assumptions.  `gating` drops the
first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import lcm, prod
from typing import NamedTuple

from railopt.base.arrays import whole_number
from railopt.base.errors import InputError
from railopt.base.units import quoted
from railopt.evidence.bracket import Bracket, Status

MAX_CHOICES = 50_000  # combinations of domain sizes that are tried
MAX_MEMBERS = 1 << 20  # of a level


@dataclass(frozen=True)
class Level:
    """`count` members under one member of the level above, each with a link of `bandwidth` bytes
    per second.
    """

    name: str
    count: int
    bandwidth: int
    latency: Fraction = Fraction(0)

    def __post_init__(self) -> None:
        whole_number(self.count, f"level {self.name}: count", 1, MAX_MEMBERS)
        if self.bandwidth < 1:
            raise InputError(
                f"level {self.name}: bandwidth {self.bandwidth}: expected at least 1 byte per "
                f"second"
            )
        if self.latency < 0:
            raise InputError(
                f"level {self.name}: latency {self.latency} s: a time can't be negative"
            )


@dataclass(frozen=True)
class Domain:
    """How the members of one level are parted: `count` domains of `smallest` to `largest` members,
    as equal as can be.
    """

    members: int
    count: int

    def __post_init__(self) -> None:
        if not 1 <= self.count <= self.members:
            raise InputError(
                f"{self.count} domains of {self.members} members: expected 1 to {self.members}"
            )

    @property
    def largest(self) -> int:
        return -(-self.members // self.count)

    @property
    def smallest(self) -> int:
        return self.members // self.count

    @property
    def equal(self) -> bool:
        return self.largest == self.smallest

    def as_dict(self) -> dict[str, int]:
        """How many domains, and their sizes, which differ by at most one."""
        return {"count": self.count, "smallest": self.smallest, "largest": self.largest}

    def __str__(self) -> str:
        return str(self.largest) if self.equal else f"{self.smallest}-{self.largest}"


def check_compression(compression: Fraction) -> None:
    """Refuse what is no ratio of dense bytes to sent bytes."""
    if not 1 <= compression < 2**63:
        raise InputError(
            f"compression = {quoted(compression)}: expected at least 1 (dense bytes over sent "
            f"bytes), and less than 2**63"
        )


@dataclass(frozen=True)
class Stream:
    """One MoE block.  Bytes are integers, times Fractions of seconds.

    data         bytes that a worker sends in one all-to-all, if all of its tokens left (D)
    expert       bytes of one worker's experts (P_E)
    pre          compute before the experts, which hides the all-gather (Lat_PE)
    compression  dense bytes over bytes sent of a migrated expert (CR)
    decode       seconds to decode one migrated expert, added to the forward pass
    encode       seconds to encode a worker's own experts, added once where any migrate (it is fused
                 with the optimiser's step)
    gradients    add the backward pass: gradients of migrated experts return home uncompressed,
                 under `post` of compute
    memory       bytes that a worker has for experts, its own included, or None
    """

    levels: tuple[Level, ...]
    data: int
    expert: int
    pre: Fraction
    compression: Fraction = Fraction(1)
    decode: Fraction = Fraction(0)
    encode: Fraction = Fraction(0)
    gradients: bool = False
    post: Fraction = Fraction(0)
    memory: int | None = None

    def __post_init__(self) -> None:
        if not self.levels:
            raise InputError("a stream needs at least one level")
        for name in ("data", "expert"):
            if getattr(self, name) < 1:
                raise InputError(f"{name} = {getattr(self, name)}: expected at least 1 byte")
        for name in ("pre", "post", "decode", "encode"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} = {getattr(self, name)} s: a time can't be negative")
        check_compression(self.compression)
        if self.memory is not None and self.memory < self.expert:
            raise InputError(
                f"memory for experts is {self.memory} bytes, one worker's own experts are "
                f"{self.expert}: they do not fit"
            )

    @property
    def has_closed_form(self) -> bool:
        """Whether theorem T11 is about this stream: one level, and nothing that it leaves out."""
        first = self.levels[0]
        left_out = first.latency or self.decode or self.encode or self.gradients
        return len(self.levels) == 1 and self.memory is None and not left_out

    @property
    def workers(self) -> int:
        """G: all workers."""
        return prod(level.count for level in self.levels)

    def share(self, level: int) -> Fraction:
        """Bytes per second that a worker has of its member's link at this level."""
        return Fraction(
            self.levels[level].bandwidth, prod(inner.count for inner in self.levels[level + 1 :])
        )


@dataclass(frozen=True)
class Latency:
    """Where the time of one block goes, exact seconds; `total` is what the block waits."""

    gather: Fraction
    hidden: Fraction
    decode: Fraction
    encode: Fraction
    exchange: Fraction
    gradients: Fraction
    total: Fraction


def latency(stream: Stream, domains: Sequence[Domain]) -> Latency:
    """The time of one block with these domains, one per level."""
    if len(domains) != len(stream.levels) or any(
        d.members != level.count for d, level in zip(domains, stream.levels, strict=False)
    ):
        raise InputError(
            f"{len(domains)} domain sizes for {len(stream.levels)} levels, or of another number "
            f"of members"
        )
    return _IntegerStream.of(stream).latency(domains)


def held_experts(stream: Stream, domains: Sequence[Domain]) -> int:
    """Bytes of the experts that a worker holds, its own included."""
    return stream.expert * prod(domain.largest for domain in domains)


def fits(stream: Stream, domains: Sequence[Domain]) -> bool:
    """Whether a worker has memory for the experts of its domains."""
    return stream.memory is None or held_experts(stream, domains) <= stream.memory


def choices(level: Level, *, unequal: bool) -> list[Domain]:
    """All ways to part a level: sizes that divide it, or any number of domains as equal as can be.

    Unequal domains of any other shape are never better.  The block waits for the largest domain's
    gather and the smallest domain's exchange, and for a given number of domains no parting has a
    smaller largest or a larger smallest.
    """
    return [
        Domain(level.count, count)
        for count in range(1, level.count + 1)
        if unequal or level.count % count == 0
    ]


def ratio_of(slow: Latency, fast: Latency) -> Fraction:
    """How many times longer one takes; 1 where neither takes any time."""
    return slow.total / fast.total if fast.total else Fraction(1)


@dataclass(frozen=True)
class BestDomains:
    """The best domains of all `tried` ones, all that fit."""

    domains: tuple[Domain, ...]
    latency: Latency
    plain: Latency
    tried: int

    @property
    def speedup(self) -> Fraction:
        """Over plain expert parallelism (every domain of size 1)."""
        return ratio_of(self.plain, self.latency)

    @property
    def bracket(self) -> Bracket:
        """Exact seconds: every choice was tried, so the best of them is the optimum."""
        total = self.latency.total
        return Bracket(total, total, Status.KNOWN, by=f"all {self.tried} domain choices tried")


def optimum(stream: Stream, *, unequal: bool = False) -> BestDomains:
    """The exact optimum over all feasible domain sizes at every level, by trying every one of them.

    Exhaustive, so nothing better exists in the model; levels are few and have few divisors.  Ties
    go to smaller domains.
    """
    options = [choices(level, unequal=unequal) for level in stream.levels]
    count = prod(map(len, options))
    if count > MAX_CHOICES:
        raise InputError(
            f"{count} combinations of domain sizes: more than {MAX_CHOICES}; leave out unequal "
            f"domains"
        )
    whole = _IntegerStream.of(stream)
    feasible = [domains for domains in product(*options) if fits(stream, domains)]
    if not feasible:
        raise InputError(f"no domain sizes fit in {stream.memory} bytes of expert memory")
    best = min(
        feasible, key=lambda domains: (whole.times(domains)[-1], [d.largest for d in domains])
    )
    plain = latency(stream, plain_domains(stream))
    return BestDomains(best, latency(stream, best), plain, len(feasible))


class _IntegerStream(NamedTuple):
    """A stream in whole multiples of 1/unit of a second, so that times are integers.

    By level: gather, returned  of one copy;  start  a message's latency;  exchange  of one of the
    level's n-th parts of the data
    """

    unit: int
    gather: list[int]
    returned: list[int]
    start: list[int]
    exchange: list[int]
    pre: int
    post: int
    decode: int
    encode: int
    gradients: bool

    @classmethod
    def of(cls, stream: Stream) -> _IntegerStream:
        shares = [stream.share(i) for i in range(len(stream.levels))]
        levels = [
            [stream.expert / stream.compression / share for share in shares],
            [stream.expert / share for share in shares],
            [level.latency for level in stream.levels],
            [stream.data / share / stream.levels[i].count for i, share in enumerate(shares)],
        ]
        times = [stream.pre, stream.post, stream.decode, stream.encode]
        unit = lcm(*(value.denominator for part in (*levels, times) for value in part))
        gather, returned, start, exchange, (pre, post, decode, encode) = (
            [int(value * unit) for value in part] for part in (*levels, times)
        )
        return cls(
            unit, gather, returned, start, exchange, pre, post, decode, encode, stream.gradients
        )

    def times(self, domains: Sequence[Domain]) -> tuple[int, ...]:
        """The fields of `Latency` for these domains, in these multiples."""
        gather = returned = exchange = 0
        held = 1
        for i, domain in enumerate(domains):
            largest = domain.largest
            copies, start = held * (largest - 1), self.start[i] * (largest - 1)
            gather += start + copies * self.gather[i]
            returned += start + copies * self.returned[i]
            exchange += self.start[i] * (domain.count - 1)
            exchange += self.exchange[i] * (domain.members - domain.smallest)
            held *= largest
        decode, encode = self.decode * (held - 1), self.encode * (held > 1)
        total = max(self.pre, gather) + decode + encode + 2 * exchange
        if not self.gradients:
            return gather, min(self.pre, gather), decode, encode, 2 * exchange, 0, total
        total += max(self.post, returned) + 2 * exchange
        return gather, min(self.pre, gather), decode, encode, 4 * exchange, returned, total

    def latency(self, domains: Sequence[Domain]) -> Latency:
        """The same in seconds."""
        return Latency(*(Fraction(time, self.unit) for time in self.times(domains)))


def plain_domains(stream: Stream) -> tuple[Domain, ...]:
    """Plain expert parallelism: every worker a domain of its own."""
    return tuple(Domain(level.count, level.count) for level in stream.levels)


def domains_of_sizes(stream: Stream, sizes: Sequence[int]) -> tuple[Domain, ...]:
    """Domains by their sizes, one per level; a size that does not divide its level is refused with
    its neighbours.
    """
    if len(sizes) != len(stream.levels):
        raise InputError(f"{len(sizes)} domain sizes for {len(stream.levels)} levels")
    domains = []
    for size, level in zip(sizes, stream.levels, strict=True):
        if not 1 <= size <= level.count or level.count % size:
            divisors = [d for d in range(1, level.count + 1) if level.count % d == 0]
            near = [d for d in divisors if d < size][-1:] + [d for d in divisors if d > size][:1]
            raise InputError(
                f"domain size {size} does not divide the {level.count} members of level "
                f"{level.name}; "
                f"its neighbours are {' and '.join(map(str, near))}"
            )
        domains.append(Domain(level.count, level.count // size))
    return tuple(domains)


# ---------------------------------------------------------------- one level: the closed form
def latency_of_ratio(stream: Stream, p: Fraction) -> Fraction:
    """Lat(p) of one level without latency, decoding and gradients: max(Lat_PE, AG) + 2 A2A."""
    workers, share = stream.workers, stream.share(0)
    gather = Fraction(stream.expert * (workers - 1)) * (1 - p) / stream.compression / share
    return max(stream.pre, gather) + 2 * stream.data * (workers - 1) * p / (workers * share)


def closed_form(stream: Stream) -> tuple[Fraction, Fraction]:
    """(p*, S*) of one level: theorem T11.

    p* = 0 if 2 D >= G P_E, else max(0, 1 - B Lat_PE / (P_E (G - 1))): as many remote experts as fit
    under the pre-expert compute, S* - 1 = B Lat_PE / P_E.  P_E is what is sent of an expert,
    compressed.
    """
    if len(stream.levels) != 1:
        raise InputError(
            f"the closed form is for one level, this stream has {len(stream.levels)}: use optimum()"
        )
    workers, sent = stream.workers, Fraction(stream.expert) / stream.compression
    if workers == 1:
        return Fraction(0), Fraction(1)
    p = (
        Fraction(0)
        if 2 * stream.data >= workers * sent
        else max(Fraction(0), 1 - stream.share(0) * stream.pre / (sent * (workers - 1)))
    )
    return p, workers - p * (workers - 1)


def scaled(stream: Stream, bandwidth: Fraction) -> Stream:
    """The same stream with the outermost level's bandwidth scaled: what if it halves?"""
    outer = stream.levels[0]
    slower = replace(outer, bandwidth=max(1, int(outer.bandwidth * bandwidth)))
    return replace(stream, levels=(slower, *stream.levels[1:]))
