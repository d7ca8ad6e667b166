"""Formulas of grid_sample, forward and backward, in 2 and 3 dimensions: gathers, one scatter and pointwise ops.

Along each dimension a grid position lies between elements of the input. It reads a few of them, called taps, each with
a weight. The result is the sum over all combinations of taps. The gradient of the input goes to the same elements with
the same weights; the gradient of the grid uses the slopes of the weights. Elements are addressed by a flat index into
the image, which is the same in every channel.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch

from .registry import formula, same_dtype_only

aten = torch.ops.aten
Tensor = torch.Tensor

_BILINEAR, _NEAREST, _BICUBIC = 0, 1, 2
_ZEROS, _BORDER, _REFLECTION = 0, 1, 2
_CUBIC = -0.75  # slope of the cubic kernel at distance 1, as in ATen


class Tap(NamedTuple):
    index: Tensor  # index in the dimension: a whole number in the grid's type
    weight: Tensor
    slope: Tensor | None  # derivative of the weight by the grid's coordinate
    valid: Tensor | None  # whether the element exists (None: always); if not, 0 is read


def _unnormalised(x: Tensor, size: int, align_corners: bool) -> tuple[Tensor, float]:
    """Converts coordinates in [-1, 1] to elements; returns them and their slope."""
    if align_corners:
        return (x + 1) * ((size - 1) / 2), (size - 1) / 2
    return ((x + 1) * size - 1) / 2, size / 2


def _inside(x: Tensor, size: int, padding: int, align_corners: bool) -> tuple[Tensor, Tensor | None]:
    """Moves coordinates into the input; returns them and the slope of that mapping (None: 1)."""
    if padding == _ZEROS:
        return x, None
    slope = None
    if padding == _REFLECTION:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if span == 0:
            x = slope = torch.zeros_like(x)
        else:
            distance = (x - low).abs()
            flips, rest = torch.floor(distance / span), torch.fmod(distance, span)
            odd = torch.remainder(flips, 2) == 1
            slope = torch.where(odd, -1.0, 1.0) * torch.where(x < low, -1.0, 1.0)
            x = torch.where(odd, span - rest, rest) + low
    within = (x > 0) & (x < size - 1)
    slope = torch.where(within, 1.0 if slope is None else slope, 0.0)
    return torch.where(x > 0, x, 0.0).clamp_max(size - 1), slope  # NaN becomes 0


def _taps(grid: Tensor, size: int, interpolation: int, padding: int, align_corners: bool) -> list[Tap]:
    """The taps of one coordinate of the grid along its dimension of `size` elements."""
    x, scale = _unnormalised(grid, size, align_corners)
    padded = padding != _ZEROS

    def tap(at: Tensor, weight: Tensor, slope: Tensor | None, inside: bool = padded) -> Tap:
        # A coordinate from `_inside` is always valid. The selection proves it to the compiler, which then needs no
        # bounds check.
        valid = (at >= 0) & (at <= size - 1)
        return Tap(torch.where(valid, at, 0.0), weight, slope, None if inside else valid)

    if interpolation == _BICUBIC:
        base = torch.floor(x)
        t = x - base
        return [
            tap(_inside(base + k, size, padding, align_corners)[0], _cubic(t, k), _cubic_slope(t, k) * scale)
            for k in (-1, 0, 1, 2)
        ]
    x, change = _inside(x, size, padding, align_corners)
    if interpolation == _NEAREST:
        return [tap(torch.round(x), torch.ones_like(x), None)]
    base = torch.floor(x)
    rise = torch.full_like(x, scale) if change is None else change * scale
    return [tap(base, base + 1 - x, -rise), tap(base + 1, x - base, rise, inside=False)]


def _cubic(t: Tensor, k: int) -> Tensor:
    """The weight of the element at base + k: the cubic convolution kernel at |k - t|."""
    d = k - t if k > 0 else t - k
    if k in (0, 1):
        return ((_CUBIC + 2) * d - (_CUBIC + 3)) * d * d + 1
    return ((_CUBIC * d - 5 * _CUBIC) * d + 8 * _CUBIC) * d - 4 * _CUBIC


def _cubic_slope(t: Tensor, k: int) -> Tensor:
    d = k - t if k > 0 else t - k
    slope = (3 * (_CUBIC + 2) * d - 2 * (_CUBIC + 3)) * d if k in (0, 1) else (3 * d - 10) * _CUBIC * d + 8 * _CUBIC
    return -slope if k > 0 else slope


class _Sampling:
    """The taps of one call. Tensors have the layout [N, 1, grid...], images [N, C, elements]."""

    def __init__(self, x: Tensor, grid: Tensor, interpolation: int, padding: int, align_corners: bool) -> None:
        self.wide = torch.promote_types(x.dtype, torch.float32)
        self.sizes = x.shape[2:]
        rank = len(self.sizes)
        self.taps = [
            _taps(grid[..., rank - 1 - d].unsqueeze(1).to(self.wide), self.sizes[d], interpolation, padding,
                  align_corners)
            for d in range(rank)
        ]  # fmt: skip
        ones = (1,) * rank
        self.batch = torch.arange(x.shape[0]).view(-1, 1, *ones)
        self.channel = torch.arange(x.shape[1]).view(1, -1, *ones)
        self.images = x.flatten(2)
        places = math.prod(self.sizes)
        self.index_type = torch.int32 if isinstance(places, int) and places < 2**31 else torch.int64

    def combinations(self) -> Iterator[tuple[Tap, ...]]:
        return itertools.product(*self.taps)

    def at(self, indices: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The index into `images` of a combination of taps, one per dimension."""
        place, *others = (index.to(self.index_type) for index in indices)
        for index, size in zip(others, self.sizes[1:], strict=True):
            place = place * size + index
        return self.batch, self.channel, place

    def read(self, taps: Sequence[Tap]) -> Tensor:
        value = self.images[self.at([tap.index for tap in taps])].to(self.wide)
        return _where_valid([tap.valid for tap in taps], value)


def _where_valid(valid: Sequence[Tensor | None], value: Tensor) -> Tensor:
    """`value` where all are valid, else 0. (A weight of 0 would not do: 0 times infinity or NaN is NaN.)"""
    checks = [check for check in valid if check is not None]
    return torch.where(functools.reduce(torch.logical_and, checks), value, 0.0) if checks else value


def _product(factors: Sequence[Tensor]) -> Tensor:
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


@formula(aten.grid_sampler_2d.default)
@formula(aten.grid_sampler_3d.default)
@same_dtype_only
def _grid_sampler(x: Tensor, grid: Tensor, interpolation: int, padding: int, align_corners: bool) -> Tensor:
    sampling = _Sampling(x, grid, interpolation, padding, align_corners)
    total = None
    for taps in sampling.combinations():
        term = sampling.read(taps) * _product([tap.weight for tap in taps])
        total = term if total is None else total + term
    return total.to(x.dtype)


@formula(aten.grid_sampler_2d_backward.default)
@formula(aten.grid_sampler_3d_backward.default)
def _grid_sampler_backward(
    gradient: Tensor, x: Tensor, grid: Tensor, interpolation: int, padding: int, align_corners: bool,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    sampling = _Sampling(x, grid, interpolation, padding, align_corners)
    wide = gradient.to(sampling.wide)
    of_x = of_grid = None
    if output_mask[0]:
        # One scatter for all taps: they are leading dimensions, before those of the gradient.
        rank = len(sampling.taps)

        def stacked(d: int, field: Callable[[Tap], Tensor]) -> Tensor:
            taps = torch.stack([field(tap) for tap in sampling.taps[d]])
            return taps.view(*(1,) * d, -1, *(1,) * (rank - 1 - d), *taps.shape[1:])

        def validity(tap: Tap) -> Tensor:
            return torch.ones_like(tap.index, dtype=torch.bool) if tap.valid is None else tap.valid

        weight = _product([stacked(d, lambda tap: tap.weight) for d in range(rank)])
        at = sampling.at([stacked(d, lambda tap: tap.index) for d in range(rank)])
        some_outside = any(tap.valid is not None for tap in sampling.taps[0])  # the same for all dimensions
        valid = [stacked(d, validity) for d in range(rank)] if some_outside else []
        zeros = torch.zeros(sampling.images.shape, dtype=sampling.wide)
        of_x = zeros.index_put(at, _where_valid(valid, wide * weight), accumulate=True).view(x.shape).to(x.dtype)
    if output_mask[1]:
        of_grid = torch.zeros(grid.shape, dtype=sampling.wide)
        if interpolation != _NEAREST:
            slopes = []
            for d in range(len(sampling.taps)):
                total = None
                for taps in sampling.combinations():
                    factors = [tap.slope if k == d else tap.weight for k, tap in enumerate(taps)]
                    term = sampling.read(taps) * _product(factors)
                    total = term if total is None else total + term
                slopes.append((total * wide).sum(1))
            of_grid = torch.stack(slopes[::-1], -1)
        of_grid = of_grid.to(grid.dtype)
    return of_x, of_grid
