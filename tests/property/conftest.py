"""See tests/compiled.py."""

from tests.compiled import kernels_are_compiled

__all__ = ["kernels_are_compiled"]
