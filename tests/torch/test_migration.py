"""Compressed copies of the traces' models: as `migrate` rebuilds them, with gradients that return
whole.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from experiments.hybridep_migration.traced import CENTRES, Migrating, rebuilt
from experiments.traces.model import Shape
from railopt.moe.hybrid import migrate

SHAPE = Shape(layers=1, width=8, heads=1, experts=8, top_k=2, ffn=6)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("ratio", [2, 10])
def test_copies_are_those_of_migrate(ratio: int, shared: bool) -> None:
    experts = np.random.default_rng(ratio).normal(size=(4, 100)).astype(np.float32)
    base = migrate.shared_expert(experts) if shared else np.zeros_like(experts[0])
    keep = migrate.kept(100, ratio)
    expected = [migrate.decode(base, migrate.encode(one, base, keep)) for one in experts]
    found = rebuilt(torch.from_numpy(experts), ratio, shared)
    np.testing.assert_allclose(found.numpy(), np.stack(expected), rtol=1e-5, atol=1e-6)


def test_tokens_outside_an_experts_centre_meet_its_copy() -> None:
    experts = Migrating(SHAPE)
    chosen = torch.randint(8, (12, 2))
    assert experts.held(chosen)[0] is chosen  # whole copies
    experts.ratio = 10
    computing, up, down = experts.held(chosen)
    for token, each in enumerate(chosen.tolist()):
        away = [expert // 2 != token // 3 for expert in each]  # two experts, three tokens a centre
        assert computing[token].tolist() == [e + 8 * a for e, a in zip(each, away, strict=True)]
    assert CENTRES == 4
    copies = rebuilt(experts.flat, 10, True)
    assert torch.equal(up[:8], experts.up)
    assert torch.allclose(torch.cat([up[8:].flatten(1), down[8:].flatten(1)], 1), copies, atol=1e-6)
    slope = torch.randn_like(down[8:])
    (down[8:] * slope).sum().backward()
    assert torch.equal(experts.down.grad, slope)
