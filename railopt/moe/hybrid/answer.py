"""What `railopt hybrid` prints: the best domains, or given ones, where their time goes, and what if
the outermost bandwidth were another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from railopt.base.errors import Infeasible
from railopt.base.units import format_bytes
from railopt.moe.hybrid.domains import message_counts
from railopt.moe.hybrid.spec import HybridQuestion
from railopt.moe.hybrid.stream import (
    BestDomains,
    Domain,
    Latency,
    Stream,
    closed_form,
    domains_of_sizes,
    fits,
    held_experts,
    latency,
    optimum,
    ratio_of,
    scaled,
)

WHAT_IF = (Fraction(1, 4), Fraction(1, 2), Fraction(2), Fraction(4))


@dataclass(frozen=True)
class HybridAnswer:
    """Domains of one block, one per level, beside the best ones.

    simulated    seconds of the same block in the flow simulator, or None where it was not run
    messages     (data messages, expert messages), or None for unequal domains
    closed       (p*, S*) of the closed form, where it holds
    what_if      the best domains by the factor on the outermost bandwidth
    """

    stream: Stream
    best: BestDomains
    domains: tuple[Domain, ...]
    latency: Latency
    simulated: Fraction | None
    messages: tuple[int, int] | None
    closed: tuple[Fraction, Fraction] | None
    what_if: dict[Fraction, BestDomains]

    @property
    def speedup(self) -> Fraction:
        """Over plain expert parallelism."""
        return ratio_of(self.best.plain, self.latency)

    @property
    def optimal(self) -> bool:
        """Whether no domains are faster than these."""
        return self.latency.total == self.best.bracket.bound

    @property
    def ratios(self) -> tuple[Fraction, ...]:
        """p of each level: the share of data still sent as data."""
        return tuple(
            Fraction(level.count - domain.largest, max(1, level.count - 1))
            for level, domain in zip(self.stream.levels, self.domains, strict=True)
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON values; exact seconds and ratios as "p/q"."""
        names = [level.name for level in self.stream.levels]
        outer = names[0]
        return {
            "workers": self.stream.workers,
            "domains": _by_level(names, self.domains),
            "ratio": dict(zip(names, map(str, self.ratios), strict=True)),
            "latency": {name: str(value) for name, value in asdict(self.latency).items()},
            "plain": str(self.best.plain.total),
            "speedup": str(self.speedup),
            "optimal": self.optimal,
            "optimum": str(self.best.bracket.status),
            "tried": self.best.tried,
            "best": str(self.best.latency.total),
            "messages": self.messages
            and dict(zip(("data", "experts"), self.messages, strict=True)),
            "closed_form": self.closed
            and dict(zip(("ratio", "size"), map(str, self.closed), strict=True)),
            "simulated": None if self.simulated is None else str(self.simulated),
            "sensitivity": {
                f"{outer} bandwidth x {factor}": {
                    "domains": _by_level(names, other.domains),
                    "latency": str(other.latency.total),
                    "speedup": str(other.speedup),
                }
                for factor, other in self.what_if.items()
            },
        }


def _by_level(names: Sequence[str], domains: Sequence[Domain]) -> dict[str, dict[str, int]]:
    return {name: domain.as_dict() for name, domain in zip(names, domains, strict=True)}


def answer(
    question: HybridQuestion, sizes: Sequence[int] | None = None, *, simulate: bool = False
) -> HybridAnswer:
    """The best domains, or those of the given sizes, one per level; `simulate` runs the
    block too.

        >>> from railopt.moe.hybrid.answer import answer
        >>> from railopt.moe.hybrid.spec import read
        >>> found = answer(read(None))    # four data centres of eight GPUs
        >>> [domain.largest for domain in found.domains], round(float(found.speedup), 2)
        ([4, 1], 2.94)
    """
    stream, unequal = question
    best = optimum(stream, unequal=unequal)
    chosen = best.domains if sizes is None else domains_of_sizes(stream, sizes)
    if not fits(stream, chosen):
        raise Infeasible(
            f"domains of sizes {', '.join(map(str, sizes or ()))} need "
            f"{format_bytes(held_experts(stream, chosen))} of experts per worker, its own "
            f"included, and it has memory for {format_bytes(stream.memory or 0)}: smaller domains "
            f"need less"
        )
    equal = all(domain.equal for domain in chosen)
    simulated = None
    if simulate:
        from railopt.moe.hybrid.simulated import block_time

        simulated = block_time(stream, chosen)
    return HybridAnswer(
        stream,
        best,
        chosen,
        latency(stream, chosen),
        simulated,
        message_counts(stream, chosen) if equal else None,
        closed_form(stream) if stream.has_closed_form else None,
        {f: optimum(scaled(stream, f), unequal=unequal) for f in WHAT_IF},
    )
