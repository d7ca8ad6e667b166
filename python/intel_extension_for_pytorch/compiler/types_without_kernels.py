"""Dtypes that the compiler supports for an op but ATen does not. Such ops stay ATen calls, so that ATen raises its
error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import torch_private
from ..torch_private import pytree

_BOOLEAN = (torch.bool,)
_INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_HALVES = (torch.float16, torch.bfloat16)

_MISSING = {
    "_adaptive_avg_pool2d _adaptive_avg_pool2d_backward _adaptive_avg_pool3d _adaptive_avg_pool3d_backward "
    "_log_softmax _log_softmax_backward_data _softmax _softmax_backward_data adaptive_max_pool2d "
    "adaptive_max_pool2d_backward adaptive_max_pool3d adaptive_max_pool3d_backward binary_cross_entropy "
    "binary_cross_entropy_backward glu glu_backward grid_sampler_2d grid_sampler_3d hardshrink huber_loss "
    "logcumsumexp max_pool2d_with_indices_backward max_pool3d_with_indices_backward max_unpool2d max_unpool3d "
    "nll_loss2d_forward nll_loss_forward smooth_l1_loss soft_margin_loss softshrink": (*_BOOLEAN, *_INTEGERS),
    "addmv argmax argmin bmm bucketize dot index_reduce kthvalue linalg_cross max_pool2d_with_indices "
    "max_pool3d_with_indices median mm mv mvlgamma nanmedian reflection_pad1d reflection_pad2d reflection_pad3d "
    "replication_pad1d replication_pad2d replication_pad3d searchsorted topk trace vdot": _BOOLEAN,
    "col2im im2col": _INTEGERS,
    "avg_pool3d avg_pool3d_backward special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 "
    "special_bessel_y1 special_erfcx special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1 "
    "special_modified_bessel_k0 special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0 "
    "special_scaled_modified_bessel_k1 special_spherical_bessel_j0 special_zeta": _HALVES,
}
_TYPES = {name: types for names, types in _MISSING.items() for name in names.split()}


def lacks_kernel(op: Any, *arguments: Any) -> bool:
    """Whether ATen has no kernel of the op for the type of its first tensor. For a pointwise op of two tensors, the
    promoted type counts."""
    types = _TYPES.get(op._schema.name.removeprefix("aten::")) if isinstance(op, torch_private.OpOverload) else None
    if types is None:
        return False
    tensors = [a for a in pytree.tree_leaves(arguments) if isinstance(a, torch.Tensor)]
    if len(tensors) == 2 and torch.Tag.pointwise in op.tags:
        return torch.result_type(*tensors) in types
    return bool(tensors) and tensors[0].dtype in types


def unless_kernel_is_missing(op: Any, decomposition: Callable) -> Callable:
    """Wraps a decomposition: for types that ATen has no kernel for, the op is not decomposed."""
    if not isinstance(op, torch_private.OpOverload) or op._schema.name.removeprefix("aten::") not in _TYPES:
        return decomposition

    def decomposed(*arguments: Any, **by_name: Any) -> Any:
        if lacks_kernel(op, *arguments, *by_name.values()):
            return NotImplemented
        return decomposition(*arguments, **by_name)

    return decomposed


def norm_types_agree(x: torch.dtype, parameters: list[torch.dtype]) -> bool:
    """Whether ATen accepts a norm's weights, biases and running statistics: they have the type of x, or all are fp32
    and x is fp16 or bf16."""
    half = x in (torch.float16, torch.bfloat16)
    return all(p is x for p in parameters) or (half and all(p is torch.float32 for p in parameters))
