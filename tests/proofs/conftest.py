"""Tests that need coqc: ``make proofs`` runs them; without coqc they fail with the remedy, they
never skip.
"""

from pathlib import Path

import pytest

from railopt.symbolic.coq import build as coq


@pytest.fixture(scope="session")
def theory() -> Path:
    """The Coq theory, built."""
    folder = coq.theory()
    coq.build(folder)
    return folder
