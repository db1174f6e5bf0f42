"""What a block waits for, by domain size at the outermost level, part by part."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from railopt.moe.hybrid import stream as model
from railopt.report.style import PAGE, blank, legend_above, printed, set_title

GREY, BLUE, PLUM = "#c8c8c8", "#0072b2", "#962d78"
# part -> how its bar is filled; what travels under computation is hatched on it
PARTS: dict[str, dict[str, Any]] = {
    "computation": {"facecolor": GREY},
    "computation that hides the gather": {"facecolor": GREY, "hatch": "....", "edgecolor": BLUE},
    "experts gathered": {"facecolor": BLUE},
    "decode, encode": {"facecolor": "#1a1a1a"},
    "data exchanged": {"facecolor": "#ffa500"},
    "computation that hides gradients": {"facecolor": GREY, "hatch": "////", "edgecolor": PLUM},
    "gradients returned": {"facecolor": PLUM},
}
MAX_LABELS = 12


def parts(stream: model.Stream, found: model.Latency) -> dict[str, Fraction]:
    """Seconds of each of PARTS; they add up to `found.total`."""
    post = stream.post if stream.gradients else Fraction(0)
    under = min(post, found.gradients)
    times = (
        stream.pre - found.hidden + post - under,
        found.hidden,
        found.gather - found.hidden,
        found.decode + found.encode,
        found.exchange,
        under,
        found.gradients - under,
    )
    return dict(zip(PARTS, times, strict=True))


@printed
def latency_figure(
    stream: model.Stream, best: model.BestDomains, title: str = "", *, width: float = PAGE
) -> Any:
    """Stacked bars, one a domain size S at the outermost level, the other levels at their optimum;
    below each S its p, the share of data still sent.  A star marks the optimum.
    """
    from matplotlib.patches import Patch

    figure, axes = blank(width, max(2.6, 0.5 * width))
    axis, outer = axes[0, 0], stream.levels[0]
    domains = sorted(
        {
            domain
            for domain in (*model.choices(outer, unequal=False), best.domains[0])
            if model.fits(stream, (domain, *best.domains[1:]))
        },
        key=lambda domain: (domain.largest, -domain.count),
    )
    stacks = []
    for place, domain in enumerate(domains):
        found = model.latency(stream, (domain, *best.domains[1:]))
        stacks.append(parts(stream, found))
        _bar(axis, place, stacks[-1])
        mark = "★ optimum\n" if domain == best.domains[0] else ""
        if mark or len(domains) <= MAX_LABELS:
            text = f"{mark}{float(found.total) * 1e3:.4g}"
            axis.text(place, float(found.total) * 1e3, text, ha="center", va="bottom")
    axis.margins(y=0.2)
    shown = range(0, len(domains), -(-len(domains) // MAX_LABELS))
    names = [f"{domains[i]}\n{_ratio(domains[i]):.2g}" for i in shown]
    axis.set_xticks(list(shown), names)
    axis.set_xlabel(f"domain size S at level {outer.name}\n(below it p, the share of data sent)")
    axis.set_ylabel("time of a block, ms")
    seen = [name for name in PARTS if any(times[name] for times in stacks)]
    legend_above(figure, seen, [Patch(**PARTS[name], linewidth=0) for name in seen])
    set_title(axis, title, width)
    return figure


def _bar(axis: Any, place: int, times: dict[str, Fraction]) -> None:
    """One stack, milliseconds."""
    below = 0.0
    for name, time in times.items():
        height = float(time) * 1e3
        if height:
            axis.bar(place, height, 0.6, below, **PARTS[name], linewidth=0)
        below += height


def _ratio(domain: model.Domain) -> float:
    return (domain.members - domain.largest) / max(1, domain.members - 1)
