"""Tensors along ways, with gradients that come along the way back."""

from __future__ import annotations

from typing import Any

import torch

from railopt.torch.carry import Handle, WayCarrier, as_bytes
from railopt.torch.ways import Way, back


def into(carrier: WayCarrier, way: Way, input: Any, output: Any, async_op: bool = False) -> Any:
    """The rows of `input` along `way` into `output`, which is returned, or with `async_op` a
    `Handle` to it.  Differentiable.
    """
    calls: list[Any] | None = [] if async_op else None
    if torch.is_grad_enabled() and input.requires_grad:
        output = _Into.apply(output, input, carrier, way, calls)
    else:
        _move(carrier, way, input, output, calls)
    return Handle(output, *calls[0]) if calls else output


def carried(carrier: WayCarrier, way: Way, length: int, *tensors: Any) -> tuple[Any, ...]:
    """New tensors of `length` rows: `tensors`, all of as many rows, along `way`, in one go.
    Differentiable.
    """
    return _Along.apply(carrier, way, length, *tensors)


class _Into(torch.autograd.Function):  # type: ignore[misc]
    """`input` into `output` along a way; the gradient comes along the way back.

    `output` is first: where it is a view, PyTorch takes the first argument for what is written to.
    """

    @staticmethod
    def forward(
        ctx: Any, output: Any, input: Any, carrier: WayCarrier, way: Way, calls: Any
    ) -> Any:
        ctx.carrier, ctx.way, ctx.rows = carrier, way, input.shape[0]
        ctx.mark_dirty(output)
        _move(carrier, way, input, output, calls)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (gradient,) = carried(ctx.carrier, back(ctx.way), ctx.rows, grad)
        overwritten = torch.zeros_like(grad) if ctx.needs_input_grad[0] else None
        return overwritten, gradient, None, None, None


class _Along(torch.autograd.Function):  # type: ignore[misc]
    """Tensors of as many rows, side by side along one way."""

    @staticmethod
    def forward(ctx: Any, carrier: WayCarrier, way: Way, length: int, *tensors: Any) -> Any:
        ctx.carrier, ctx.way, ctx.rows = carrier, way, tensors[0].shape[0]
        ctx.moving = [tensor.is_floating_point() or tensor.is_complex() for tensor in tensors]
        parts = [as_bytes(_plain(tensor)) for tensor in tensors]
        packed = torch.cat(parts, dim=1)
        arrived = packed.new_empty((length, packed.shape[1]))
        carrier.carry(way, packed, arrived)
        out, first = [], 0
        for part, tensor in zip(parts, tensors, strict=True):
            out.append(tensor.new_empty((length, *tensor.shape[1:])))
            as_bytes(out[-1]).copy_(arrived[:, first : first + part.shape[1]])
            first += part.shape[1]
        ctx.mark_non_differentiable(*(t for t, on in zip(out, ctx.moving, strict=True) if not on))
        return tuple(out)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        moving = [grad for grad, on in zip(grads, ctx.moving, strict=True) if on]
        returned = iter(carried(ctx.carrier, back(ctx.way), ctx.rows, *moving))
        return None, None, None, *(next(returned) if on else None for on in ctx.moving)


def _plain(tensor: Any) -> Any:
    """Contiguous, and no view that stands for conjugates or negatives."""
    return tensor.resolve_conj().resolve_neg().contiguous()


def _move(carrier: WayCarrier, way: Way, input: Any, output: Any, calls: list[Any] | None) -> None:
    """Bytes of `input` into `output`; `calls` gets what `WayCarrier.start` returns."""
    rows, out = as_bytes(_plain(input.detach())), as_bytes(output.detach())
    if calls is None:
        carrier.carry(way, rows, out)
    else:
        calls.append(carrier.start(way, rows, out))
