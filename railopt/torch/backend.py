"""A backend of torch.distributed that plans plain `all_to_all_single` calls and passes all else on.

    register_backend(fabric)                    # on every rank, once
    dist.init_process_group("railopt")          # instead of "gloo", "nccl" or "cpu:gloo,cuda:nccl"

PyTorch lets a backend be a process group of Python's with other backends behind it: this one has
gloo for the CPU and NCCL for GPUs, and replaces one method.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from railopt.base.arrays import require_type
from railopt.model.fabric import Fabric
from railopt.policies import policy_named
from railopt.torch.all_to_all import RailAllToAll
from railopt.torch.groups import everyone

__all__ = ["register_backend"]


class BackendSetup(NamedTuple):
    """What groups of a backend are made for."""

    fabric: Fabric
    policy: str
    limit_s: float


_setups: dict[str, BackendSetup] = {}  # by the backend's name


def register_backend(
    fabric: Fabric, policy: str = "even-excess", *, name: str = "railopt", limit_s: float = 600.0
) -> None:
    """Have `name` be a backend for `init_process_group` and `new_group`.

    `all_to_all_single` of its groups that have as many ranks as the fabric has GPUs goes along
    rails that `policy` chose; every other call, and every other group, is gloo's or NCCL's.  Called
    again, it counts for groups that are made later.  `async_op=True` returns when rows are there.
    """
    require_type(fabric, Fabric, "fabric", "a Fabric")
    policy_named(policy)
    known = name in _setups
    _setups[name] = BackendSetup(fabric, policy, limit_s)
    if not known:
        devices = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]

        def made(options: Any, _: Any = None) -> RailProcessGroup:
            return RailProcessGroup(name, options)

        dist.Backend.register_backend(name, made, extended_api=True, devices=devices)


class RailProcessGroup(dist.ProcessGroup):  # type: ignore[misc]
    """A group whose backends are gloo and NCCL, and whose all-to-alls are planned."""

    def __init__(self, name: str, options: Any) -> None:
        rank, size = options.group_rank, options.group_size
        super().__init__(rank, size)
        self._name, self._setup = name, _setups[name]
        self._rails: RailAllToAll | None = None
        kinds, self._backends = dist.ProcessGroup.BackendType, {}
        gloo = dist.ProcessGroupGloo(options.store, rank, size, options.timeout)
        self._backends["cpu"] = gloo
        self._register_backend(torch.device("cpu"), kinds.GLOO, gloo)
        self._set_default_backend(kinds.GLOO)
        if torch.cuda.is_available():
            store = dist.PrefixStore("cuda", options.store)
            nccl = dist.ProcessGroupNCCL(store, rank, size, options.timeout)
            self._backends["cuda"] = nccl
            self._register_backend(torch.device("cuda"), kinds.NCCL, nccl)

    def getBackendName(self) -> str:
        return self._name

    def alltoall_base(
        self, output: Any, input: Any, recv: list[int], send: list[int], options: Any
    ) -> Any:
        """`all_to_all_single`; lists are empty where all ranks get as much."""
        fabric = self._setup.fabric
        if self.size() != fabric.nodes * fabric.gpus:
            return self._backends[input.device.type].alltoall_base(
                output, input, recv, send, options
            )
        if self._rails is None:
            over = "gloo" if input.device.type == "cpu" else "nccl"
            all_ranks = everyone(self, self._setup.limit_s, "backend", over)
            policy, limit_s = self._setup.policy, self._setup.limit_s
            self._rails = RailAllToAll(fabric, policy, group=all_ranks, limit_s=limit_s)
        with torch.no_grad():
            self._rails.all_to_all_single(output, input, recv or None, send or None)
        done = torch.futures.Future()
        done.set_result([output])
        return torch._C._distributed_c10d._create_work_from_future(done)
