"""T16: one layer, any placement of its experts: every small instance tried.

Nodes hold experts in slots, and each token is computed on a node that holds its expert; what leaves
a node crosses its NICs and those of the other.  A token whose own node holds its expert stays: to
send it would only add bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import combinations, product
from typing import Any, NamedTuple

from railopt.checker import Meter, Problem, check_layer
from railopt.symbolic.result import Result, verdict
from railopt.symbolic.search.oracle import accepts

Prove = Callable[..., Any]
Held = tuple[frozenset[int], ...]  # of each node, its experts


class SmallLayer(NamedTuple):
    """tokens [expert][node], slots and rates of nodes, the experts that each holds beside the
    slots; a token is one byte.
    """

    tokens: tuple[tuple[int, ...], ...]
    slots: tuple[int, ...]
    tx: tuple[int, ...]
    rx: tuple[int, ...]
    there: Held


class LayerPrices(NamedTuple):
    """The prices of a token received, of one sent, of a slot; by node."""

    recv: tuple[int, ...]
    send: tuple[int, ...]
    slot: tuple[int, ...]


def _layers(quick: bool) -> Iterator[SmallLayer]:
    """Two nodes and two experts, some with copies there; three nodes and two experts with few
    tokens.
    """
    rates, none = [(1, 1), (1, 2)][: 1 if quick else 2], frozenset[int]()
    first = (frozenset([0]), none), (frozenset([0]), frozenset([0, 1]))
    for numbers in product((0, 2) if quick else (0, 1, 3), repeat=4):
        tokens = numbers[:2], numbers[2:]
        for tx in rates:
            for slots in ((1, 1), (2, 1), (2, 2)):
                yield SmallLayer(tokens, slots, tx, tx[::-1], (none, none))
            for slots, there in zip(((0, 1), (0, 0)), first, strict=True):
                yield SmallLayer(tokens, slots, tx, tx[::-1], there)
    for numbers in product((0, 2), repeat=6):
        if sum(numbers) == 6 or (not quick and sum(numbers) == 4):
            tokens3 = numbers[:3], numbers[3:]
            yield SmallLayer(tokens3, (1, 1, 0), (1, 1, 2), (1, 1, 1), (none, none, none))


def _prices(nodes: int) -> Iterator[LayerPrices]:
    for recv, send in product(product((0, 1), repeat=nodes), repeat=2):
        if any(recv + send):
            for slot in product((0, 1, 2) if nodes < 3 else (0, 2), repeat=nodes):
                yield LayerPrices(recv, send, slot)


def placements(layer: SmallLayer, *, within: bool = True) -> Iterator[Held]:
    """Every way to hold each expert somewhere: the copies that are there, and more in the slots; in
    any number of them otherwise.
    """
    experts = range(len(layer.tokens))
    every = layer.slots if within else (len(layer.tokens),) * len(layer.slots)
    choices = [
        [there.union(more) for size in range(most + 1) for more in combinations(experts, size)]
        for most, there in zip(every, layer.there, strict=True)
    ]
    for held in product(*choices):
        if frozenset().union(*held) == frozenset(experts):
            yield held


def splits(layer: SmallLayer, held: Held) -> Iterator[list[tuple[int, int, int]]]:
    """Every split of the tokens that leave their node, as (node, other node, tokens)."""
    ways: list[list[tuple[tuple[int, int, int], ...]]] = []
    for expert, row in enumerate(layer.tokens):
        holders = [node for node, mine in enumerate(held) if expert in mine]
        for node, number in enumerate(row):
            if node not in holders:
                shared = product(range(number + 1), repeat=len(holders))
                ways.append(
                    [
                        tuple((node, to, n) for to, n in zip(holders, each, strict=True))
                        for each in shared
                        if sum(each) == number
                    ]
                )
    for chosen in product(*ways):
        yield [flow for part in chosen for flow in part]


def time_of(layer: SmallLayer, flows: list[tuple[int, int, int]]) -> Fraction:
    """Seconds of the busiest node's NICs."""
    sent, received = [0] * len(layer.slots), [0] * len(layer.slots)
    for src, dst, tokens in flows:
        sent[src] += tokens
        received[dst] += tokens
    ends = zip((*sent, *received), (*layer.tx, *layer.rx), strict=True)
    return max(Fraction(load, rate) for load, rate in ends)


def least(layer: SmallLayer) -> Fraction:
    """The least time over every placement and every split."""
    return min(time_of(layer, flows) for held in placements(layer) for flows in splits(layer, held))


def certificate(layer: SmallLayer, prices: LayerPrices) -> dict[str, Any]:
    """What the kernel reads of a bound by prices."""
    lists: dict[str, Any] = {name: [*getattr(layer, name)] for name in ("slots", "tx", "rx")}
    lists["tokens"] = [[*row] for row in layer.tokens]
    if any(layer.there):
        held = [[int(e in mine) for mine in layer.there] for e in range(len(layer.tokens))]
        lists["holds"] = held
    return {
        "problem": {"kind": "layer", **lists, "token_bytes": 1},
        "witness": {"kind": "node prices", **{k: [*v] for k, v in prices._asdict().items()}},
    }


def accepted(prove: Prove, record: dict[str, Any], bound: Fraction) -> bool:
    """Whether the checker takes a certificate for this bound."""
    return accepts(prove, Problem(record, bound, ".", Meter(10**6)))


def prices(quick: bool = False, *, prove: Prove = check_layer) -> Result:
    """T16: no prices are accepted for more than the least; some show it exactly."""
    failures, tried, exact = [], 0, 0
    for layer in _layers(quick):
        known, shown = least(layer), False
        for each in _prices(len(layer.slots)):
            record = certificate(layer, each)
            shown = shown or accepted(prove, record, known)
            if accepted(prove, record, known + Fraction(1, 8)):
                failures.append(f"{layer}: {each} show more than the least, {known}")
        tried, exact = tried + 1, exact + (shown and known > 0)
    if not 4 * exact >= tried:
        failures.append(f"only {exact} of {tried} shown exactly")
    return verdict("exhaustive", f"{tried} layers of 2 or 3 nodes and 2 experts", failures)


def order(quick: bool = False, *, within: bool = True) -> Result:
    """T16a: at the same prices, what bounds all placements is no more than what bounds each."""
    failures, tried = [], 0
    for layer in _layers(quick):
        for each in _prices(len(layer.slots)):
            every = _all_pay(layer, each)
            for held in placements(layer, within=within):
                tried += 1
                if _pays(layer, held, each) < every:
                    failures.append(f"{layer}: {held} pays less than {every} at {each}")
        if failures:
            break
    return verdict("exhaustive", f"{tried} placements and prices", failures[:3])


def _all_pay(layer: SmallLayer, prices: LayerPrices) -> int:
    """What every placement pays at least for tokens that leave their node."""
    nodes, total = range(len(layer.slots)), 0
    for expert, row in enumerate(layer.tokens):
        slot = [0 if expert in layer.there[a] else prices.slot[a] for a in nodes]
        total += min(
            sum(
                slot[a] if a == b else min(slot[a], row[a] * (prices.send[a] + prices.recv[b]))
                for a in nodes
            )
            for b in nodes
        )
    return total - sum(w * k for w, k in zip(prices.slot, layer.slots, strict=True))


def _pays(layer: SmallLayer, held: Held, prices: LayerPrices) -> int:
    """What one placement pays at least, every token at its cheapest holder."""
    total = 0
    for expert, row in enumerate(layer.tokens):
        holders = [node for node, mine in enumerate(held) if expert in mine]
        cheapest = min(prices.recv[node] for node in holders)
        away = ((node, n) for node, n in enumerate(row) if node not in holders)
        total += sum(n * (prices.send[node] + cheapest) for node, n in away)
    return total


def rails_last(quick: bool = False, *, even: bool = True) -> Result:
    """T16b: placements rank the same with one NIC per node and with rails that share its bytes
    evenly, so rails may be chosen last; where each token takes the NIC of its target's number, they
    do not.
    """
    failures, tried = [], 0
    for layer in _layers(quick):
        times = {}
        for held in placements(layer):
            flows = min(splits(layer, held), key=lambda each: time_of(layer, each))
            times[held] = (time_of(layer, flows), _on_rails(layer, flows, even=even))
        tried += len(times)
        if any(2 * alone != railed for alone, railed in times.values()):
            failures.append(f"{layer}: {times}")
    return verdict("exhaustive", f"{tried} placements of two rails per node", failures[:3])


def _on_rails(layer: SmallLayer, flows: list[tuple[int, int, int]], *, even: bool) -> Fraction:
    """Twice the time on two rails of half the rate each."""
    loads: dict[tuple[str, int, int], Fraction] = {}
    for src, dst, tokens in flows:
        for rail in (0, 1):
            part = Fraction(tokens, 2) if even else Fraction(tokens * (rail == dst % 2))
            for side, node in (("send", src), ("recv", dst)):
                loads[side, node, rail] = loads.get((side, node, rail), Fraction(0)) + part
    rates = {"send": layer.tx, "recv": layer.rx}
    return max(
        (4 * load / rates[side][node] for (side, node, _), load in loads.items()),
        default=Fraction(0),
    )
