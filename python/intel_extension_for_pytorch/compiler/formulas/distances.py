"""Formulas of cdist and pdist, forward and backward: distances between the rows of matrices."""

from __future__ import annotations

import math
from functools import partial

import torch

from .registry import Tensor, aten, formula, same_dtype_only

_MATRIX_ROWS = 25  # above it, ATen computes euclidean distances by a matrix product


@formula(aten._cdist_forward.default)
@partial(same_dtype_only, accepted=(torch.float32, torch.float64))
def _cdist(x: Tensor, y: Tensor, p: float, compute_mode: int | None) -> Tensor:
    """[..., P, M] and [..., R, M] -> [..., P, R]."""
    many = x.shape[-2] > _MATRIX_ROWS or y.shape[-2] > _MATRIX_ROWS
    if p == 2 and (compute_mode == 1 or (not compute_mode and many)):
        batch = torch.broadcast_shapes(x.shape[:-2], y.shape[:-2])
        return aten._euclidean_dist(x.expand(*batch, *x.shape[-2:]), y.expand(*batch, *y.shape[-2:]))
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    if x.shape[-1] == 0:
        return difference.sum(-1)
    return difference.abs().amax(-1) if math.isinf(p) else torch.linalg.vector_norm(difference, p, dim=-1)


@formula(aten._cdist_backward.default)
def _cdist_backward(gradient: Tensor, x: Tensor, y: Tensor, p: float, distance: Tensor) -> Tensor:
    difference = x.unsqueeze(-2) - y.unsqueeze(-3)
    return _distance_gradient(gradient.unsqueeze(-1), difference, distance.unsqueeze(-1), p).sum(-2)


@formula(aten._pdist_forward.default)
def _pdist(x: Tensor, p: float = 2) -> Tensor:
    """[N, M] -> the distances of all pairs of rows i < j, in that order."""
    i, j = torch.triu_indices(x.shape[0], x.shape[0], 1)
    return torch.linalg.vector_norm(x[i] - x[j], p, dim=-1)


@formula(aten._pdist_backward.default)
def _pdist_backward(gradient: Tensor, x: Tensor, p: float, distance: Tensor) -> Tensor:
    i, j = torch.triu_indices(x.shape[0], x.shape[0], 1)
    change = _distance_gradient(gradient.unsqueeze(-1), x[i] - x[j], distance.unsqueeze(-1), p)
    return torch.zeros_like(x).index_add(0, i, change).index_add(0, j, change, alpha=-1)


def _distance_gradient(gradient: Tensor, difference: Tensor, distance: Tensor, p: float) -> Tensor:
    """The gradient of the p-norm of `difference`; 0 where the norm is not differentiable."""
    if p == 0:
        return gradient * torch.zeros_like(difference)
    if p == 1:
        return gradient * difference.sign()
    if math.isinf(p):
        return gradient * torch.where(difference.abs() == distance, difference.sign(), 0.0)
    slope = difference.sign() * (difference.abs() / distance).pow(p - 1)
    flat = distance == 0
    if p < 1:
        flat = flat | (difference == 0)
    return torch.where(flat, 0.0, gradient * slope)
