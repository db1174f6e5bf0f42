"""A peer's card: what is right comes back, anything else is a sentence."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import pytest

from railopt.base.errors import BackendError
from railopt.runtime.verbs.card import Card
from railopt.runtime.verbs.objects import Address

CARD = Card(
    ("mlx5_0", "mlx5_1"),
    (Address(0, bytes(16), 3, True, 5), Address(7, bytes(range(16)), 0, True, 4)),
    ([(17, 99), (7, 9)], [(19, 97)]),
    ((101, 102), (103, 104)),
    ((1 << 40, 4096), (1 << 41, 1 << 33)),
)


def test_a_card_comes_back_through_json() -> None:
    assert Card.from_dict(json.loads(json.dumps(CARD.as_dict())), "node 1") == CARD


@pytest.mark.parametrize(
    "change",
    [
        {"devices": ["mlx5_0"]},
        {"devices": ["mlx5_0", "\x1b[2J"]},
        {"devices": "mlx5_0"},
        {"ports": [[0, "00" * 16, 0, True, 5]]},
        {"ports": [[0, "zz" * 16, 0, True, 5]] * 2},
        {"ports": [[0, "00" * 16, 0, 1, 5]] * 2},
        {"ports": [[1 << 16, "00" * 16, 0, True, 5]] * 2},
        {"queue_pairs": [[[1 << 24, 0]]] * 2},
        {"queue_pairs": [[[1, 0]] * 65] * 2},
        {"queue_pairs": [{"1": [[1, 0]]}] * 2},
        {"queue_pairs": [[1, 0]] * 2},
        {"rkeys": [[1], [2]]},
        {"rkeys": [[1, 1 << 32], [2, 3]]},
        {"rkeys": [[1, True], [2, 3]]},
        {"recv": []},
        {"recv": [[-1, 1], [0, 1]]},
        {"recv": [[0.5, 1], [0, 1]]},
        {"recv": [[0, 1 << 63], [0, 1]]},
    ],
)
def test_a_card_with_one_thing_wrong_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BackendError, match="node 1 sent a card"):
        Card.from_dict({**CARD.as_dict(), **change}, "node 1")


def test_fuzzed_cards_are_cards_or_one_sentence() -> None:
    """2,000 cards with one to three values of another kind, anywhere in them."""
    rng, said = random.Random(2), []
    odd = [None, True, -1, 1 << 70, 0.5, "", "x" * 500, "\ud800", [], {}, [[]], {"1": 1}, "1"]
    for _ in range(2000):
        data: Any = copy.deepcopy(CARD.as_dict())
        for _ in range(rng.randrange(1, 4)):
            place = data
            while True:
                keys = list(place) if isinstance(place, dict) else range(len(place))
                if not len(keys):
                    break
                key = rng.choice(keys)
                if rng.random() < 0.4 or not isinstance(place[key], list | dict):
                    place[key] = rng.choice(odd)
                    break
                place = place[key]
        try:
            Card.from_dict(data, "node 1")
        except BackendError as error:
            said.append(str(error))
    assert len(said) > 1000
    assert all(text.isprintable() and len(text) < 300 for text in said)
