"""Formulas of narrow_copy, max_unpool, masked_fill, masked_scatter and embedding bags."""

from __future__ import annotations

import math
from typing import Any

import torch

from ... import torch_private
from ..conversions import fits
from .registry import Tensor, aten, formula


@formula(aten.narrow_copy.default)
def _narrow_copy(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return x.narrow(dim, start, length).clone()


@formula(aten.max_unpool2d.default)
@formula(aten.max_unpool3d.default)
def _max_unpool(x: Tensor, indices: Tensor, output_size: list[int], *unread: Any) -> Tensor:
    """Values at their positions in each plane, 0 elsewhere. Keeps channels_last, which PyTorch's decomposition does
    not."""
    spatial = len(output_size)
    planes = x.new_zeros(*x.shape[:-spatial], math.prod(output_size))
    result = planes.scatter(-1, indices.flatten(-spatial), x.flatten(-spatial)).unflatten(-1, output_size)
    channels_last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    return result.contiguous(memory_format=torch.channels_last) if channels_last else result


@formula(aten.masked_fill.Scalar)
def _masked_fill(x: Tensor, mask: Tensor, value: float) -> Tensor:
    """PyTorch's decomposition, except for numbers that do not fit: it would convert them to infinities."""
    if isinstance(value, (int, float)) and not fits(value, x.dtype):
        return NotImplemented
    op = aten.masked_fill.Scalar
    return torch_private.registered_decompositions([op])[op](x, mask, value)


def _order_in_mask(mask: Tensor) -> Tensor:
    """For each element of the flattened mask, the number of set elements before it."""
    count = mask.reshape(-1).to(torch.int64)
    return count.cumsum(0) - count


@formula(aten.masked_scatter.default)
def _masked_scatter(x: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """x with elements of `source`, in order, where the mask is set."""
    x, mask = torch.broadcast_tensors(x, mask)
    count = math.prod(source.shape)
    if torch_private.is_known(count == 0):
        return x.clone()
    given = source if source.dim() == 1 else source.reshape(-1)
    if not torch_private.is_known(count > 0):  # pad: unset elements read element 0
        given = torch.cat([given, given.new_zeros(1)])
    order = torch.where(mask.reshape(-1), _order_in_mask(mask), 0)
    return torch.where(mask, given.gather(0, order).view(x.shape), x)


@formula(aten.masked_scatter_backward.default)
def _masked_scatter_backward(gradient: Tensor, mask: Tensor, sizes: list[int]) -> Tensor:
    """The gradient of `source`: the gradients where the mask is set, in order, then zeros."""
    count = math.prod(sizes)
    if count == 0:
        return gradient.new_zeros(sizes)
    gradient, mask = torch.broadcast_tensors(gradient, mask)
    chosen = mask.reshape(-1)
    order = torch.where(chosen, _order_in_mask(mask), 0)
    given = torch.where(chosen, gradient.reshape(-1), 0)
    return gradient.new_zeros(count).scatter_add(0, order, given).view(sizes)


@formula(aten._embedding_bag_forward_only.default)
def _embedding_bag_forward_only(
    weight: Tensor, indices: Tensor, offsets: Tensor, scale_by_frequency: bool = False, mode: int = 0,
    sparse: bool = False, weights: Tensor | None = None, include_last_offset: bool = False, padding_idx: int = -1,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Calls the op for training. PyTorch's shape function counts the last offset as a bag. ATen does so only in mode
    sum, where it leaves the sizes zero."""
    result, bag_of, sizes, largest = aten._embedding_bag.default(
        weight, indices, offsets, scale_by_frequency, mode, sparse, weights, include_last_offset, padding_idx
    )
    if mode == 0 and include_last_offset:
        sizes, largest = torch.zeros_like(offsets), torch.zeros_like(offsets)
    return result, bag_of, sizes, largest


@formula(aten._embedding_bag_backward.default)
def _embedding_bag_backward(
    gradient: Tensor, indices: Tensor, offsets: Tensor, bag_of: Tensor, bag_sizes: Tensor, largest: Tensor,
    rows: int, scale_by_frequency: bool, mode: int, sparse: bool, *options: Any,
) -> Tensor:  # fmt: skip
    """The op without the operands that its mode does not read, so that the forward pass need not compute them. If the
    compilation falls back to ATen, it finds the bag of each index from `offsets`."""
    unread = (bag_of, largest) if mode == 1 else (bag_of, bag_sizes, largest)
    if (
        sparse
        or scale_by_frequency
        or mode == 2
        or all(isinstance(t.shape[0], int) and t.shape[0] == 0 for t in unread)
    ):
        return NotImplemented
    nothing = indices[:0]
    sizes = bag_sizes if mode == 1 else nothing
    return aten._embedding_bag_backward.default(
        gradient, indices, offsets, nothing, sizes, nothing, rows, scale_by_frequency, mode, sparse, *options
    )
