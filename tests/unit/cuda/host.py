"""The kernels of railopt/cuda on the CPU: the same C++, each thread of a block a coroutine
(on_host.h), so that they are tested where there is no GPU.
"""

from __future__ import annotations

import ctypes
import fcntl
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from railopt.base.arrays import Array
from railopt.cuda.driver import KERNELS, DeviceArray

HERE = Path(__file__).parent
SHARED_LIMIT = 227 << 10  # as an H200 has


class HostKernel:
    def __init__(self, library: Any) -> None:
        self._library = library

    def launch(self, blocks: int, threads: int, parameters: int, stream: int) -> None:
        self._library.launch(blocks, threads, ctypes.c_void_p(parameters))


class Host:
    """Stands where a `railopt.cuda.driver.Gpu` does."""

    folder: Path  # of what is compiled

    def __init__(self) -> None:
        self._memory: dict[int, Any] = {}

    def shared_limit(self) -> int:
        return SHARED_LIMIT

    def allocated(self, size: int) -> int:
        memory = ctypes.create_string_buffer(size)
        self._memory[ctypes.addressof(memory)] = memory
        return ctypes.addressof(memory)

    def free(self, pointer: int) -> None:
        del self._memory[pointer]

    def array(self, values: Array) -> DeviceArray:
        made = DeviceArray(self, values.shape, values.dtype)
        ctypes.memmove(made.pointer, np.ascontiguousarray(values).ctypes.data, values.nbytes)
        return made

    def copy_out(self, values: Array, pointer: int) -> None:
        ctypes.memmove(values.ctypes.data, pointer, values.nbytes)

    def synchronize(self) -> None:
        pass

    def kernel(self, name: str, macros: dict[str, int]) -> tuple[HostKernel, int]:
        words = "-".join(f"{macro}{value}" for macro, value in macros.items())
        made = self.folder / f"{name}-{words}.so"
        with open(self.folder / "lock", "w", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several processes may want the same kernel
            self._compiled(name, macros, made)
        library = ctypes.CDLL(str(made))
        return HostKernel(library), ctypes.c_uint32.in_dll(library, "shared_bytes").value

    def _compiled(self, name: str, macros: dict[str, int], made: Path) -> None:
        if not made.exists():
            flags = [f"-D{macro}={value}" for macro, value in macros.items()]
            flags += [f'-DKERNEL="{KERNELS / name}.cu"', f"-I{KERNELS}", "-w", "-O0", "-std=c++20"]
            command = ["g++", *flags, "-shared", "-fPIC", "-x", "c++", str(HERE / "on_host.h")]
            subprocess.run([*command, "-o", str(made)], check=True, timeout=300)


class OnDevice:
    """A numpy array that says it is on a GPU."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self.array = array
        self.__cuda_array_interface__ = {**array.__array_interface__, "version": 3}


class Tensor:
    """A numpy array that DLPack says is on a GPU."""

    def __init__(self, array: np.ndarray[Any, Any]) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0)

    def __dlpack__(self, stream: int) -> Any:
        assert stream == 1, "the default stream, as DLPack writes it"
        return self._array.__dlpack__()
