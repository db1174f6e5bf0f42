"""`torch.distributed.all_to_all_single` along planned rails, for code that can't be changed.

A process group that plans by its name alone would be a subclass of `dist.ProcessGroup`, registered
with `register_backend`.  To pass on what it does not plan it has to register gloo or NCCL on
itself, for which PyTorch has private methods alone (`_register_backend`); without them
`all_gather_into_tensor` fails ("No backend type associated with device type cpu").  So the public
function is replaced, for as long as a `with` lasts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from railopt.torch.all_to_all import RailAllToAll


@contextmanager
def planned_all_to_all(rails: RailAllToAll) -> Iterator[None]:
    """Inside, calls of `torch.distributed.all_to_all_single` in the group of `rails` go along its
    rails; those in other groups, and names bound before (`from torch.distributed import
    all_to_all_single`), are as ever.  It holds for the whole process; every rank enters it.
    """
    plain = dist.all_to_all_single

    def planned(
        output: Any,
        input: Any,
        output_split_sizes: Any = None,
        input_split_sizes: Any = None,
        group: Any = None,
        async_op: bool = False,
    ) -> Any:
        sides = output_split_sizes, input_split_sizes  # [] is none for PyTorch
        splits = [one if isinstance(one, torch.Tensor) else one or None for one in sides]
        if (dist.group.WORLD if group is None else group) is not rails.group:
            return plain(output, input, *splits, group=group, async_op=async_op)
        handle = rails.all_to_all_single(output, input, *splits, async_op=async_op)
        return handle if async_op else None

    dist.all_to_all_single = planned
    try:
        yield
    finally:
        dist.all_to_all_single = plain
