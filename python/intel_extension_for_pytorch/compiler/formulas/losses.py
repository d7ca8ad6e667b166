"""Formulas of the multi-class margin losses, and of some losses' backward ops.

In PyTorch's decompositions of the margin losses, a NaN violates a margin, a margin that is met exactly has a gradient,
and multilabel_margin_loss counts class 0 in place of each unused label. Eager does none of that.
"""

from __future__ import annotations

import torch

from .registry import MEAN, NONE, formula

aten = torch.ops.aten
Tensor = torch.Tensor


def _is_left_to_aten(x: Tensor, target: Tensor) -> bool:
    """Whether the op is left to ATen, which raises an error, or returns the mean of no elements."""
    return x.dtype not in (torch.float32, torch.float64) or target.dtype is not torch.int64 or 0 in x.shape


def _share(x: Tensor, reduction: int) -> float:
    """The factor of each row's violations; x is [rows, classes]."""
    return 1 / (x.shape[0] * x.shape[1] if reduction == MEAN else x.shape[1])


def _reduced(violations: Tensor, like: Tensor, reduction: int) -> Tensor:
    """Reduces [rows] to the loss. Without a reduction it has the shape of `like`."""
    return violations.reshape(like.shape) if reduction == NONE else violations.sum()


# ---- one label per row ----


def _violated_by(x: Tensor, target: Tensor, margin: float, weight: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """How much each class violates the margin to the label (0 if it does not), whether the class is the label, and the
    label's weight; all broadcast to [rows, classes]."""
    aten._assert_async.msg(((target >= 0) & (target < x.shape[1])).all(), "target out of range")
    label = target.reshape(-1, 1).clamp(0, x.shape[1] - 1)
    is_label = torch.arange(x.shape[1]) == label
    apart = margin - x.gather(1, label) + x
    violated = torch.where((apart > 0) & ~is_label, apart, 0.0)
    of_label = x.new_ones(1, 1) if weight is None else weight.reshape(-1)[label]
    return violated, is_label, of_label


@formula(aten.multi_margin_loss.default)
def _multi_margin_loss(
    x: Tensor, target: Tensor, p: float = 1, margin: float = 1, weight: Tensor | None = None, reduction: int = MEAN
) -> Tensor:
    if _is_left_to_aten(x, target):
        return NotImplemented
    x = torch.atleast_2d(x)
    violated, _, of_label = _violated_by(x, target, margin, weight)
    loss = (violated if p == 1 else violated * violated) * of_label
    return _reduced(loss.sum(1) * _share(x, reduction), target, reduction)


@formula(aten.multi_margin_loss_backward.default)
def _multi_margin_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, p: float, margin: float, weight: Tensor | None = None,
    reduction: int = MEAN,
) -> Tensor:  # fmt: skip
    if _is_left_to_aten(x, target):
        return NotImplemented
    rows = torch.atleast_2d(x)
    violated, is_label, of_label = _violated_by(rows, target, margin, weight)
    slope = ((violated > 0).to(x.dtype) if p == 1 else 2 * violated) * of_label
    slope = torch.where(is_label, -slope.sum(1, keepdim=True), slope) * _share(rows, reduction)
    return (slope * gradient.reshape(-1, 1)).reshape(x.shape)


# ---- several labels per row, up to the first -1 ----


def _margins(x: Tensor, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distance of each label and class, whether it violates the margin, and whether the class is the label; all
    [rows, labels, classes]."""
    count = x.shape[1]
    aten._assert_async.msg(((target >= -1) & (target < count)).all(), "argument #2 'target' is out of range")
    classes = torch.arange(count)
    end = torch.where(target == -1, classes, count).amin(1, keepdim=True)
    is_given = classes < end
    label = torch.where(is_given, target, 0).clamp(0, count - 1)
    is_label = is_given[:, :, None] & (label[:, :, None] == classes)
    apart = 1 - x.gather(1, label)[:, :, None] + x[:, None, :]
    is_violated = (apart > 0) & is_given[:, :, None] & ~is_label.any(1)[:, None, :]
    return apart, is_violated, is_label


@formula(aten.multilabel_margin_loss_forward.default)
def _multilabel_margin_loss(x: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """The loss, and whether each class is a label, in x's type."""
    if _is_left_to_aten(x, target):
        return NotImplemented
    rows = torch.atleast_2d(x)
    apart, is_violated, is_label = _margins(rows, torch.atleast_2d(target))
    loss = torch.where(is_violated, apart, 0.0).sum((1, 2)) * _share(rows, reduction)
    like = loss if x.dim() == 2 else loss[0]
    return _reduced(loss, like, reduction), is_label.any(1).to(x.dtype).reshape(target.shape)


@formula(aten.multilabel_margin_loss_backward.default)
def _multilabel_margin_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, reduction: int, is_target: Tensor
) -> Tensor:
    if _is_left_to_aten(x, target):
        return NotImplemented
    rows = torch.atleast_2d(x)
    _, is_violated, is_label = _margins(rows, torch.atleast_2d(target))
    violations = is_violated.to(x.dtype)
    of_labels = torch.where(is_label, violations.sum(2, keepdim=True), 0.0).sum(1)
    slope = (violations.sum(1) - of_labels) * _share(rows, reduction)
    return (slope * gradient.reshape(-1, 1)).reshape(x.shape)


@formula(aten.smooth_l1_loss_backward.default)
def _smooth_l1_backward(gradient: Tensor, x: Tensor, target: Tensor, reduction: int, beta: float) -> Tensor:
    """In PyTorch's decomposition, the gradient of a NaN difference is 0: its sign."""
    if 0 in x.shape:
        return torch.zeros_like(x)
    wide = torch.promote_types(x.dtype, torch.float32)
    gradient, difference = gradient.to(wide), x.to(wide) - target.to(wide)
    if reduction == MEAN:
        gradient = gradient * (1.0 / x.numel())
    slope = torch.where(difference >= beta, gradient, gradient * difference / beta)
    return torch.where(difference <= -beta, -gradient, slope).to(x.dtype)


@formula(aten.nll_loss_backward.default)
@formula(aten.nll_loss2d_backward.default)
def _nll_loss_backward(
    gradient: Tensor, x: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int,
    total_weight: Tensor,
) -> Tensor:  # fmt: skip
    """Minus the gradient at each target and 0 elsewhere, as a pointwise selection. PyTorch's decomposition scatters
    into zeros, which takes another tensor of the logits' size."""
    channels = 1 if x.dim() > 1 else 0
    wide = torch.promote_types(x.dtype, torch.float32)
    gradient = gradient.to(wide)
    if reduction == MEAN:
        gradient = gradient / total_weight.to(wide)
    if x.dim() == 1 and target.dim() > 0:
        target = target[0]
    target = target.unsqueeze(channels)
    shape = [1] * x.dim()
    shape[channels] = x.shape[channels]
    if x.dim() > gradient.dim() > 0:
        gradient = gradient.unsqueeze(channels)
    if weight is not None:
        gradient = gradient * weight.to(wide).reshape(shape)
    chosen = (torch.arange(x.shape[channels]).reshape(shape) == target) & (target != ignore_index)
    return torch.where(chosen, -gradient, 0).expand(x.shape).to(x.dtype)
