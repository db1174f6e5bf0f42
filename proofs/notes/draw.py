"""Draw the pictures of the notes from the committed counterexamples: python proofs/notes/draw.py

Every picture is a row of panels; a panel is bars (rails, NICs or phases) made of blocks, with
marked levels.  Plain SVG, no library.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from html import escape
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
COLOURS = (
    "#4e79a7",
    "#f28e2b",
    "#59a14f",
    "#e15759",
    "#b07aa1",
    "#76b7b2",
    "#edc948",
    "#9c755f",
    "#bab0ac",
)
GREY, INK = "#d9d9d9", "#222222"
BAR, GAP, HEIGHT, TOP = 34, 10, 150, 64


@dataclass(frozen=True)
class Bar:
    """One column: its name below, blocks (height, text, colour) from the bottom up."""

    name: str
    blocks: tuple[tuple[Fraction, str, str], ...]

    @property
    def total(self) -> Fraction:
        return sum((block[0] for block in self.blocks), Fraction(0))


@dataclass(frozen=True)
class Panel:
    """Groups of bars side by side under a title; `levels` are dashed lines (height, text)."""

    title: str
    groups: tuple[tuple[str, tuple[Bar, ...]], ...]
    levels: tuple[tuple[Fraction, str], ...] = field(default=())

    @property
    def width(self) -> int:
        return (
            max(
                self.bars + 20 + max((len(label) * 6 for _, label in self.levels), default=0),
                len(self.title) * 8,
            )
            + 20
        )

    @property
    def bars(self) -> int:
        return sum(len(bars) for _, bars in self.groups) * BAR + len(self.groups) * GAP * 2


def blocks(*parts: tuple[Any, str, str]) -> tuple[tuple[Fraction, str, str], ...]:
    return tuple((Fraction(height), text, colour) for height, text, colour in parts)


def text(
    x: float, y: float, content: str, size: int = 12, anchor: str = "middle", weight: str = "normal"
) -> str:
    style = f'font-size="{size}" text-anchor="{anchor}" font-weight="{weight}" fill="{INK}"'
    return f'<text x="{x:g}" y="{y:g}" {style}>{escape(content)}</text>'


def line(x1: float, x2: float, y: float, dash: str = "") -> str:
    return f'<line x1="{x1:g}" y1="{y:g}" x2="{x2:g}" y2="{y:g}" stroke="{INK}"{dash}/>'


def draw(name: str, caption: str, panels: Sequence[Panel]) -> str:
    """The SVG of a row of panels, all to one scale."""
    heights = [bar.total for panel in panels for _, bars in panel.groups for bar in bars]
    scale = HEIGHT / float(max(heights + [level for panel in panels for level, _ in panel.levels]))
    x, base, rects, lines, out = 10, TOP + HEIGHT, list[str](), list[str](), list[str]()
    for panel in panels:
        out.append(text(x + 20, 46, panel.title, 13, "start", "bold"))
        at = x + 10
        for group, bars in panel.groups:
            at += GAP
            begin = at
            for bar in bars:
                y = float(base)
                for height, label, colour in bar.blocks:
                    tall = float(height) * scale
                    y -= tall
                    rects.append(
                        f'<rect x="{at + 2:g}" y="{y:g}" width="{BAR - 4}" height="{tall:g}" '
                        f'fill="{colour}" stroke="white"/>'
                    )
                    if tall >= 12 and label:
                        out.append(
                            text(at + BAR / 2, y + tall / 2 + 4, label, 10 if len(label) < 5 else 8)
                        )
                out.append(text(at + BAR / 2, base + 15, bar.name, 10))
                at += BAR
            out.append(text((begin + at) / 2, base + 32, group, 11))
            at += GAP
        for level, label in panel.levels:
            lines.append(
                line(
                    x + 10,
                    x + panel.bars + 14,
                    base - float(level) * scale,
                    ' stroke-dasharray="5 3" stroke-opacity="0.6"',
                )
            )
            out.append(
                text(x + panel.bars + 18, base - float(level) * scale + 4, label, 10, "start")
            )
        lines.append(line(x + 10, x + panel.bars + 14, base))
        x += panel.width
    width, height = max(x + 10, len(caption) * 7 + 20), base + 44
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">',
        f"<title>{escape(name)}: {escape(caption)}</title>",
        f'<rect width="{width}" height="{height}" fill="white"/>',
        text(10, 22, caption, 13, "start"),
    ]
    return "\n".join([*head, *rects, *lines, *out, "</svg>", ""])


# ---------------------------------------------------------------- from counterexample files
def read(name: str) -> dict[str, Any]:
    return json.loads((HERE.parent / "counterexamples" / name).read_text(encoding="utf-8"))


def two_sides(
    problem: dict[str, Any], assignment: Sequence[int], levels: Sequence[tuple[Fraction, str]]
) -> list[Panel]:
    """What every NIC sends and receives under an assignment; a block is a chunk, coloured and named
    by its pair.
    """
    columns = [problem["chunks"][key] for key in ("src", "dst", "size")]
    rows = list(zip(*columns, assignment, strict=True))
    panels = []
    for side, title in ((0, "what each NIC sends"), (1, "what each NIC receives")):
        groups = []
        for node in range(problem["nodes"]):
            if any(row[side] == node for row in rows):
                mine = [row for row in rows if row[side] == node]
                bars = tuple(
                    Bar(
                        f"rail {rail}",
                        blocks(
                            *(
                                (
                                    row[2],
                                    f"{row[0]}→{row[1]}",
                                    COLOURS[row[1 - side] % len(COLOURS)],
                                )
                                for row in mine
                                if row[3] == rail
                            )
                        ),
                    )
                    for rail in range(problem["rails"])
                )
                groups.append((f"node {node}", bars))
        panels.append(Panel(title, tuple(groups), tuple(levels)))
    return panels


def one_sender(
    sizes: Sequence[int],
    assignment: Sequence[int],
    rails: int,
    title: str,
    levels: Sequence[tuple[Fraction, str]] = (),
) -> Panel:
    """One sender's rails; blocks are chunks by size."""
    shades = {
        size: COLOURS[i % len(COLOURS)] for i, size in enumerate(sorted(set(sizes), reverse=True))
    }
    placed = list(zip(sizes, assignment, strict=True))
    bars = tuple(
        Bar(
            f"rail {rail}",
            blocks(*((size, str(size), shades[size]) for size, at in placed if at == rail)),
        )
        for rail in range(rails)
    )
    return Panel(title, (("", bars),), tuple(levels))


# ---------------------------------------------------------------- the pictures
def pictures() -> dict[str, str]:
    """File name -> SVG."""
    return {
        "T0.svg": _t0(),
        "T1.svg": _t1(),
        "T2.svg": _t2(),
        "T3.svg": _t3(),
        "T4.svg": _t4(),
        "T4e.svg": _t4e(),
        "T5.svg": _local("T5-list-order-n2.json"),
        "T6.svg": _local("T6-graham-n3.json"),
        "T7.svg": _t7(),
        "T8.svg": _t8(),
        "T9.svg": _t9(),
        "T9e.svg": _t9e(),
        "T10.svg": _t10(),
        "T10b.svg": _fast(),
        "T11.svg": _t11(),
        "T12.svg": _t12(),
        "T13.svg": _t13(),
        "T14.svg": _t14(),
        "T15.svg": _t15(),
        "T18.svg": _t18(),
    }


def _t0() -> str:
    bars = tuple(Bar(f"rail {n}", blocks((h, "", GREY))) for n, h in enumerate((3, 1, 2)))
    return draw(
        "T0",
        "Some rail is at least at the mean: 6 bytes on 3 rails",
        [Panel("one node", (("", bars),), ((Fraction(2), "r/N = 2"),))],
    )


def _t1() -> str:
    panels = []
    for side, title in ((0, "what each NIC sends"), (1, "what each NIC receives")):
        groups = []
        for node in range(3):
            others = [(k, f) for k in range(3) for f in range(3) if k != f and (k, f)[side] == node]
            halves = blocks(
                *((Fraction(1, 2), f"{k}→{f}", COLOURS[(k, f)[1 - side]]) for k, f in others)
            )
            bars = tuple(Bar(f"rail {n}", halves) for n in range(2))
            groups.append((f"node {node}", bars))
        panels.append(Panel(title, tuple(groups), ((Fraction(1), "share"),)))
    return draw(
        "T1",
        "Every pair split over both rails: all twelve NIC loads are equal, whatever the matrix",
        panels,
    )


def _t2() -> str:
    record = read("T2-uniform-sending-m3-n2.json")
    return draw(
        "T2",
        "Every sender is perfectly balanced, and receivers 0 and 2 take twice as long",
        two_sides(
            record["best"]["problem"], record["bad"]["assignment"], [(Fraction(1), "optimum")]
        ),
    )


def _t3() -> str:
    senders, rails = 3, 3
    problem = {
        "nodes": 6,
        "rails": rails,
        "chunks": {
            "src": [k for k in range(senders) for _ in range(rails)],
            "dst": [senders + j for _ in range(senders) for j in range(rails)],
            "size": [1] * 9,
        },
    }
    return draw(
        "T3",
        "3 senders, 3 rails, all in the same order: each receiver has all its bytes on one rail, "
        "3 times L/N",
        two_sides(problem, [0, 1, 2] * senders, [(Fraction(1), "L/N")]),
    )


def _t4() -> str:
    colours = [COLOURS[k] for k in range(4)]
    same = tuple(
        Bar(f"rail {n}", blocks(*((1, f"from {k}", colours[k]) for k in range(4) if n == 0)))
        for n in range(3)
    )
    turned = tuple(
        Bar(f"rail {n}", blocks(*((1, f"from {k}", colours[k]) for k in range(4) if k % 3 == n)))
        for n in range(3)
    )
    bound = ((Fraction(4), "c/N + (1 - 1/N) s q"), (Fraction(4, 3), "c/N"))
    return draw(
        "T4",
        "Four senders with one chunk each: the bound is met when all start at rail 0; other "
        "starts are far below",
        [
            Panel("all start at rail 0", (("receiver", same),), bound),
            Panel("start at rail k mod N", (("receiver", turned),), bound),
        ],
    )


def _t4e() -> str:
    record = read("T4-round-robin-unequal.json")
    sizes = record["best"]["problem"]["chunks"]["size"]
    levels = [(Fraction(record["at_most"]), "T4's bound for q = 3")]
    return draw(
        "T4e",
        "Chunks of 3, 1, 3, 1 bytes of one pair: round robin puts both large ones on one rail",
        [
            one_sender(sizes, record["bad"]["assignment"], 2, "round robin", levels),
            one_sender(sizes, record["best"]["assignment"], 2, "best", levels),
        ],
    )


def _local(name: str) -> str:
    record = read(name)
    problem = record["best"]["problem"]
    levels = [(Fraction(record["optimum"]), "optimum")]
    title = "in the given order" if name.startswith("T5") else "largest first (LPT)"
    caption = (
        f"{', '.join(map(str, problem['sizes']))} on {problem['rails']} rails: "
        f"{record['value']} against {record['optimum']}"
    )
    return draw(
        name[:2],
        caption,
        [
            one_sender(
                problem["sizes"], record["bad"]["assignment"], problem["rails"], title, levels
            ),
            one_sender(
                problem["sizes"], record["best"]["assignment"], problem["rails"], "best", levels
            ),
        ],
    )


def _t7() -> str:
    return draw(
        "T7",
        "Three chunks of 3 on two rails: the average says 4.5, the pigeonhole 6, because two of "
        "them share a rail",
        [
            one_sender(
                [3, 3, 3],
                [0, 0, 1],
                2,
                "best possible",
                [(Fraction(9, 2), "average"), (Fraction(6), "pigeonhole")],
            )
        ],
    )


def _t8() -> str:
    record = read("T8-unequal-sizes.json")
    return draw(
        "T8",
        "No plan is better than 4, although every node alone could be done at 3: sizes differ, "
        "and the two sides pull apart",
        two_sides(
            record["best"]["problem"],
            record["bad"]["assignment"],
            [(Fraction(record["at_most"]), "every node alone")],
        ),
    )


def _t9() -> str:
    rails, half = 8, Fraction(1, 2)
    best = Fraction(rails) / (rails - 1 + half)

    def bars(slow: Fraction, others: Fraction) -> tuple[Bar, ...]:
        return tuple(
            Bar(f"{n}", blocks((slow, "slow", COLOURS[3]) if n == 3 else (others, "", COLOURS[0])))
            for n in range(rails)
        )

    uniform, split = bars(1 / half, Fraction(1)), bars(best, best)
    levels = ((Fraction(1), "healthy"),)
    return draw(
        "T9",
        "Time of each NIC of a node whose rail 3 is at half speed: even split 2, proportional "
        "split 16/15",
        [
            Panel("even split", (("rail", uniform),), levels),
            Panel("proportional split", (("rail", split),), levels),
        ],
    )


def _t9e() -> str:
    def bars(flow: dict[str, Any]) -> tuple[Bar, ...]:
        rows = list(zip(flow["dst"], flow["rail"], flow["amount"], strict=True))
        return tuple(
            Bar(
                f"rail {n}",
                blocks(
                    *(
                        (Fraction(amount, flow["unit"]), f"0→{dst}", COLOURS[dst])
                        for dst, rail, amount in rows
                        if rail == n
                    )
                ),
            )
            for n in range(2)
        )

    record = read("T9-different-rails.json")
    return draw(
        "T9e",
        "Node 1 has only rail 0: even splitting over common rails overloads the sender's rail 0",
        [
            Panel(
                "even over common rails",
                (("node 0 sends", bars(record["bad"]["flow"])),),
                ((Fraction(1), "optimum"),),
            ),
            Panel(
                "best",
                (("node 0 sends", bars(record["best"]["flow"])),),
                ((Fraction(1), "optimum"),),
            ),
        ],
    )


def _t10() -> str:
    record = read("T10-hot-gpu-n3.json")
    flows = [record["bad"]["direct"], *record["bad"]["through_peers"]]
    bars = tuple(
        Bar(f"NIC {n}", blocks((flow, str(flow), COLOURS[0] if n == 0 else COLOURS[1])))
        for n, flow in enumerate(flows)
    )
    return draw(
        "T10",
        "One hot GPU, N = 3, R1 = 3, R2 = 2: its own NIC is full, the two others share the "
        "scale-up port: 5 of 6",
        [Panel("rate of each NIC", (("", bars),), ((Fraction(record["best"]["nic"]), "R2"),))],
    )


def _fast() -> str:
    record = read("T10-fast-theorem3-n4-m8.json")
    m, up = record["best"]["gpus"], record["best"]["scale_up"]
    share = Fraction(m - 1, m) * sum(record["best"]["stages"]) / up
    parts = blocks(
        (share, "balance", COLOURS[1]),
        (record["optimum"], "wire", COLOURS[0]),
        (share, "after", COLOURS[3]),
    )
    claimed = Fraction(record["at_most"])
    return draw(
        "T10b",
        "FAST, 4 servers of 8 GPUs, B1 = 9 B2, one GPU to one GPU: 23/9 of the optimum, 19/9 "
        "claimed, 25/9 proved",
        [
            Panel(
                "time",
                (
                    (
                        "",
                        (
                            Bar("FAST", parts),
                            Bar("best", blocks((record["optimum"], "wire", COLOURS[0]))),
                        ),
                    ),
                ),
                ((claimed, "1 + (B2/B1)(m + m/n)"), (Fraction(25, 9), "1 + (B2/B1)(2(m-1) + m/n)")),
            )
        ],
    )


def _t11() -> str:
    a, b, hidden = Fraction(4), Fraction(2), Fraction(1)
    shares = [Fraction(i, 8) for i in range(9)]
    bars = tuple(
        Bar(str(p), blocks((max(hidden, a * (1 - p)), "", COLOURS[0]), (b * p, "", COLOURS[1])))
        for p in shares
    )
    best = 1 - hidden / a
    return draw(
        "T11",
        "Time over the share p sent as data, a = 4, b = 2, L = 1: experts (blue) and data "
        "(orange), least at p* = 3/4",
        [Panel("Lat(p)", (("p", bars),), ((hidden + b * best, "Lat(p*) = 5/2"),))],
    )


def _t12() -> str:
    def bars(parts: Sequence[int]) -> tuple[Bar, ...]:
        return tuple(
            Bar(f"{i}", blocks(*((1, "", COLOURS[i]) for _ in range(part))))
            for i, part in enumerate(parts)
        )

    levels = ((Fraction(3), "ceil"), (Fraction(2), "floor"))
    return draw(
        "T12",
        "Seven members in three domains: the most equal parting meets ceiling and floor of 7/3",
        [
            Panel("4, 2, 1", (("", bars((4, 2, 1))),), levels),
            Panel("3, 2, 2", (("", bars((3, 2, 2))),), levels),
        ],
    )


def _t13() -> str:
    stages = [
        ((1, 2, 0), 2),
        ((2, 0, 1), 1),
        ((1, 0, 2), 1),
    ]  # server i sends to peers[i]; a server's own index is virtual
    groups = tuple(
        (
            f"server {i}",
            (
                Bar(
                    "sends",
                    blocks(
                        *(
                            (
                                w,
                                f"→{peers[i]}" if peers[i] != i else "idle",
                                GREY if peers[i] == i else COLOURS[s],
                            )
                            for s, (peers, w) in enumerate(stages)
                        )
                    ),
                ),
            ),
        )
        for i in range(3)
    )
    return draw(
        "T13",
        "Rows 0: 3 and 1, 1: 2 and 2, 2: 2 and 1: three stages (colours) of lengths 2, 1, 1 add "
        "up to L = 4",
        [Panel("time of each server", groups, ((Fraction(4), "L"),))],
    )


def _t14() -> str:
    held = (5, 2, 4, 1)
    own = tuple(Bar(f"{g}", blocks((u, f"GPU {g}", COLOURS[g]))) for g, u in enumerate(held))
    even = (
        Bar("0", blocks((3, "GPU 0", COLOURS[0]))),
        Bar("1", blocks((2, "GPU 1", COLOURS[1]), (1, "GPU 0", COLOURS[0]))),
        Bar("2", blocks((3, "GPU 2", COLOURS[2]))),
        Bar(
            "3",
            blocks((1, "GPU 3", COLOURS[3]), (1, "GPU 0", COLOURS[0]), (1, "GPU 2", COLOURS[2])),
        ),
    )
    level = ((Fraction(3), "mean"),)
    return draw(
        "T14",
        "One destination of 12 bytes: 3 above the mean are staged, and all NICs carry the mean",
        [
            Panel("own NICs", (("NIC", own),), level),
            Panel("even, excess moved", (("NIC", even),), level),
        ],
    )


def _t15() -> str:
    tokens, mean = (6, 5, 1, 0), Fraction(3)
    filled = (((0, 3),), ((1, 2), (0, 1)), ((2, 1), (0, 2)), ((1, 3),))
    bare = tuple(
        Bar(f"GPU {g}", blocks(*[(count, f"e{g}", COLOURS[g])] * (count > 0)))
        for g, count in enumerate(tokens)
    )
    split = tuple(
        Bar(f"GPU {g}", blocks(*((count, f"e{e}", COLOURS[e]) for e, count in parts)))
        for g, parts in enumerate(filled)
    )
    level = ((mean, "mean"),)
    return draw(
        "T15",
        "One expert a GPU, 12 tokens: copies fill every GPU to the mean, each from one giver",
        [Panel("no copies", (("", bare),), level), Panel("spare slots", (("", split),), level)],
    )


def _t18() -> str:
    """Eight rails: T18's bound of every rule, and what the senders of one node do to `rotate`."""
    rails, groups = 8, []
    for nodes in (3, 4, 8, 16, 32, 64):
        senders = nodes - 1
        least = max(min(-(-senders * b // rails), rails // b) for b in range(1, rails + 1))
        turned = 0
        for f in range(nodes):
            for n in range(rails):
                left, met = rails, 0
                for cost in sorted((n - k - f) % rails + 1 for k in range(nodes) if k != f):
                    left -= cost
                    met += left >= 0
                turned = max(turned, met)
        bars = (
            Bar("any", blocks((least, f"{least}", COLOURS[3]))),
            Bar("rotate", blocks((turned, f"{turned}", COLOURS[0]))),
        )
        groups.append((f"M = {nodes}", bars))
    return draw(
        "T18",
        "Eight rails, equal chunks: no rule that sees its own row guarantees less than red; "
        "rotate's worst case with optimum 1 is blue",
        [Panel("times the optimum", tuple(groups), ((Fraction(8), "N"),))],
    )


if __name__ == "__main__":
    for file, svg in pictures().items():
        (HERE / file).write_text(svg, encoding="utf-8")
        print(file)
