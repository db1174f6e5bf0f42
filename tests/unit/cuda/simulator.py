"""What numba's CUDA simulator lacks and a `railopt.cuda.Planner` uses; import it first, in a
process with NUMBA_ENABLE_CUDASIM=1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda
from numba.cuda.simulator import kernel

from railopt.cuda import block, cut, even, in_turn, largest_first


class _Running:
    """The simulated kernel's `cuda`.  The simulator swaps a module's global `cuda` while a device
    function runs and back when one thread leaves it, though others are still inside.
    """

    jit = staticmethod(cuda.jit)

    def __getattr__(self, name: str) -> Any:
        return getattr(kernel._get_kernel_context(), name)


for module in (block, cut, even, in_turn, largest_first):
    module.cuda = _Running()


class OnDevice:
    """A numpy array that says it is on a GPU."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}


def _as_cuda_array(counts: OnDevice, sync: bool) -> Any:
    assert not sync, "a host sync"
    return cuda.to_device(counts.array)


cuda.as_cuda_array = _as_cuda_array
