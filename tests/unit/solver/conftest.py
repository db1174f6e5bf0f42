"""Limits of time are those of compiled kernels; see tests/compiled.py."""

from tests.compiled import kernels_are_compiled

__all__ = ["kernels_are_compiled"]
