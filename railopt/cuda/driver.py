"""A GPU through NVIDIA's driver and run-time compiler: arrays, and kernels made of CUDA C++."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from railopt.base.arrays import Array
from railopt.base.errors import BackendError
from railopt.base.extras import remedy

KERNELS = Path(__file__).parent / "kernels"
_CUBINS: dict[tuple[Any, ...], bytes] = {}  # of a process, whose GPU does not change


class DeviceArray:
    """A dense array on the device; torch, CuPy and numba read it where it lies.

    >>> torch.as_tensor(array, device="cuda")
    """

    def __init__(self, gpu: Gpu, shape: tuple[int, ...], dtype: Any) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._gpu, self.pointer = gpu, 0
        self.pointer = gpu.allocated(max(1, self.nbytes))

    def __del__(self) -> None:
        if self.pointer:
            self._gpu.free(self.pointer)

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, False),
            "version": 3,
        }

    def copy_to_host(self) -> Array:
        """A numpy array of what the kernels before have made; waits for them."""
        found = np.empty(self.shape, self.dtype)
        if found.size:
            self._gpu.copy_out(found, self.pointer)
        return found


class Kernel:
    """A compiled kernel `plan`, and how much shared memory its blocks have."""

    def __init__(self, gpu: Gpu, function: Any, shared_bytes: int) -> None:
        self._gpu, self._function, self._shared = gpu, function, shared_bytes

    def launch(self, blocks: int, threads: int, parameters: int, stream: int) -> None:
        """`parameters`: the address of the arguments' addresses."""
        _right(
            self._gpu.driver.cuLaunchKernel(
                self._function, blocks, 1, 1, threads, 1, 1, self._shared, stream, parameters, 0
            )
        )


class Gpu:
    """The GPU of the current CUDA context, or GPU 0 with its primary context."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import driver, nvrtc
        except ImportError as error:
            raise BackendError(f"no CUDA for Python ({error}): {_REMEDY}") from error
        self.driver, self._nvrtc = driver, nvrtc
        try:
            _right(driver.cuInit(0))
            context = _right(driver.cuCtxGetCurrent())
            if not int(context):
                self._device = _right(driver.cuDeviceGet(0))
                context = _right(driver.cuDevicePrimaryCtxRetain(self._device))
                _right(driver.cuCtxSetCurrent(context))
            self._device = _right(driver.cuCtxGetDevice())
        except (BackendError, RuntimeError) as error:
            raise BackendError(f"no GPU that can be used ({error}): {_REMEDY}") from error

    def shared_limit(self) -> int:
        """Bytes of shared memory that a block can have."""
        wanted = self.driver.CUdevice_attribute
        return self._attribute(wanted.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)

    def _attribute(self, wanted: Any) -> int:
        return int(_right(self.driver.cuDeviceGetAttribute(wanted, self._device)))

    def allocated(self, size: int) -> int:
        """The address of `size` bytes, all zero."""
        pointer = _right(self.driver.cuMemAlloc(size))
        _right(self.driver.cuMemsetD8(pointer, 0, size))
        return int(pointer)

    def free(self, pointer: int) -> None:
        self.driver.cuMemFree(pointer)

    def array(self, values: Array) -> DeviceArray:
        """A copy on the device."""
        made = DeviceArray(self, values.shape, values.dtype)
        if values.size:
            dense = np.ascontiguousarray(values)
            _right(self.driver.cuMemcpyHtoD(made.pointer, dense.ctypes.data, made.nbytes))
        return made

    def copy_out(self, values: Array, pointer: int) -> None:
        self.synchronize()
        _right(self.driver.cuMemcpyDtoH(values.ctypes.data, pointer, values.nbytes))

    def synchronize(self) -> None:
        _right(self.driver.cuCtxSynchronize())

    def kernel(self, name: str, macros: dict[str, int]) -> tuple[Kernel, int]:
        """`kernels/<name>.cu` compiled for this GPU with these macros; and the bytes of shared
        memory that it wants, which may be more than there are.
        """
        driver = self.driver
        key = (name, *macros.items())
        if key not in _CUBINS:
            _CUBINS[key] = self._compiled(name, macros)
        module = _right(driver.cuModuleLoadData(_CUBINS[key]))
        function = _right(driver.cuModuleGetFunction(module, b"plan"))
        pointer, size = _right(driver.cuModuleGetGlobal(module, b"shared_bytes"))
        found = np.zeros(1, np.uint32)
        _right(driver.cuMemcpyDtoH(found.ctypes.data, pointer, size))
        shared = int(found[0])
        if shared <= self.shared_limit():
            grown = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _right(driver.cuFuncSetAttribute(function, grown, shared))
        return Kernel(self, function, shared), shared

    def _compiled(self, name: str, macros: dict[str, int]) -> bytes:
        nvrtc, known = self._nvrtc, self.driver.CUdevice_attribute
        major = self._attribute(known.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        minor = self._attribute(known.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
        if major < 8:
            raise BackendError(f"a GPU of compute capability {major}.{minor}: expected 8.0 or more")
        options = [f"--gpu-architecture=sm_{major}{minor}", "--std=c++20"]
        options += [f"-D{macro}={value}" for macro, value in macros.items()]
        headers = sorted(KERNELS.glob("*.cuh"))
        program = _right(
            nvrtc.nvrtcCreateProgram(
                (KERNELS / f"{name}.cu").read_bytes(),
                f"{name}.cu".encode(),
                len(headers),
                [header.read_bytes() for header in headers],
                [header.name.encode() for header in headers],
            )
        )
        try:
            encoded = [option.encode() for option in options]
            _right(nvrtc.nvrtcCompileProgram(program, len(options), encoded))
        except BackendError as error:
            log = b" " * _right(nvrtc.nvrtcGetProgramLogSize(program))
            _right(nvrtc.nvrtcGetProgramLog(program, log))
            raise BackendError(f"{name}.cu was not compiled: {log.decode()}") from error
        binary = b" " * _right(nvrtc.nvrtcGetCUBINSize(program))
        _right(nvrtc.nvrtcGetCUBIN(program, binary))
        _right(nvrtc.nvrtcDestroyProgram(program))
        return binary


_REMEDY = f"{remedy('cuda')}, and install NVIDIA's driver"


def _right(answer: tuple[Any, ...]) -> Any:
    """What a CUDA function answers after its status; a BackendError where that is not success."""
    status, *found = answer
    if int(status) != 0:
        raise BackendError(f"CUDA says {getattr(status, 'name', status)}")
    return None if not found else found[0] if len(found) == 1 else tuple(found)


class Arguments:
    """A kernel's arguments, of ctypes, as the driver takes them: the address of their addresses."""

    def __init__(self, *arguments: Any) -> None:
        self._kept = arguments
        self._addresses = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        self.address = ctypes.addressof(self._addresses)


_LETTERS = {"p": ctypes.c_void_p, "q": ctypes.c_int64, "i": ctypes.c_int32}


@lru_cache(64)
def _structure(letters: str) -> Any:
    fields = [(f"field{at}", _LETTERS[letter]) for at, letter in enumerate(letters)]
    return type("Packed", (ctypes.Structure,), {"_fields_": fields})


def packed(letters: str, *values: int) -> Any:
    """A struct of C: p an address, q 64 bits, i 32 bits."""
    return _structure(letters)(*values)
