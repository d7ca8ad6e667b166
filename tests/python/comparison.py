"""Comparison with eager: dtype, shape, optionally strides, and values within the dtype's tolerance."""

import torch
from torch.utils import _pytree as pytree

# (rtol, atol): the defaults of torch.testing, written out because these suites check them.
TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
}


def tensors_of(outputs):
    return [leaf for leaf in pytree.tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]


def memory_order(tensor):
    """Strides of the dims with more than one element. (The others do not matter.)"""
    return [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def difference(ours, eager, *, strides=False, zero_signs=False, scale=1.0):
    """None if `ours` equals eager's result, else one line that describes the difference."""
    if ours.dtype != eager.dtype:
        return f"dtype {ours.dtype}, eager has {eager.dtype}"
    if ours.shape != eager.shape:
        return f"shape {tuple(ours.shape)}, eager has {tuple(eager.shape)}"
    if strides and eager.numel() and memory_order(ours) != memory_order(eager):
        return f"strides {ours.stride()}, eager has {eager.stride()}"
    rtol, atol = TOLERANCES.get(eager.dtype, (0, 0))
    ours, eager = ours.detach(), eager.detach()
    try:
        torch.testing.assert_close(ours, eager, rtol=rtol * scale, atol=atol * scale, equal_nan=True)
    except AssertionError as error:
        close = torch.isclose(ours, eager, rtol=rtol * scale, atol=atol * scale, equal_nan=True)
        where = tuple((~close).nonzero()[0].tolist())
        return f"at {where}: {ours[where].item()!r}, eager has {eager[where].item()!r} ({first_line(error)})"
    if zero_signs and eager.is_floating_point():
        wrong = (eager == 0) & (torch.signbit(ours) != torch.signbit(eager))
        if wrong.any():
            where = tuple(wrong.nonzero()[0].tolist())
            return f"at {where}: {ours[where].item()!r}, eager has {eager[where].item()!r} (sign of zero)"
    return None


def first_line(error):
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def assert_close_to_eager(ours, eager, *, strides=False, scale=1.0):
    """Requires every tensor of `ours` (any nesting) to match eager's within its dtype's tolerance."""
    ours, eager = tensors_of(ours), tensors_of(eager)
    assert len(ours) == len(eager), f"{len(ours)} tensors, eager has {len(eager)}"
    for position, (a, b) in enumerate(zip(ours, eager, strict=True)):
        message = difference(a, b, strides=strides, scale=scale)
        assert message is None, f"tensor {position}: {message}"


def as_vector(tensors):
    return torch.cat([t.detach().double().flatten() for t in tensors_of(tensors)])


def squares(values, reference):
    """||values - reference||^2 and ||reference||^2 over all tensors together, in fp64. Holds one copy at a time."""
    error = total = 0.0
    for value, wanted in zip(tensors_of(values), tensors_of(reference), strict=True):
        assert value.shape == wanted.shape, f"{tuple(value.shape)}, the reference has {tuple(wanted.shape)}"
        exact = wanted.detach().double()
        error += (value.detach().double() - exact).square().sum().item()
        total += exact.square().sum().item()
    return error, total


def relative_error(values, reference):
    """||values - reference|| / ||reference|| over all tensors together, in fp64."""
    error, total = squares(values, reference)
    return (error / max(total, 1e-300)) ** 0.5


def assert_error_within(ours, eager, reference64, factor=1.1):
    """For low precision: requires that our error against fp64 is at most `factor` times eager's."""
    assert_as_near(relative_error(ours, reference64), relative_error(eager, reference64), factor)


def assert_as_near(our_error, eager_error, factor=1.1):
    assert our_error <= factor * eager_error, (
        f"error {our_error:.3e} against fp64, eager {eager_error:.3e}: ratio {our_error / eager_error:.3f} > {factor}"
    )


def assert_near_in_norm(ours, eager, bound=1e-4):
    """For gradients: requires each tensor to be within `bound` of eager's, in the 2-norm.

    The scale of a tensor is its norm or, for tensors that cancel to rounding noise (the bias before a batch norm), a
    share of the root mean square of all tensors.
    """
    ours, eager = tensors_of(ours), tensors_of(eager)
    assert len(ours) == len(eager)
    everything = as_vector(eager)
    floor = 0.1 * everything.square().mean().sqrt().item() if everything.numel() else 0.0
    for position, (a, b) in enumerate(zip(ours, eager, strict=True)):
        assert a.dtype == b.dtype and a.shape == b.shape, f"tensor {position}: {a.dtype}{tuple(a.shape)}"
        scale = max(b.double().norm().item(), floor * b.numel() ** 0.5)
        error = (a.double() - b.double()).norm().item()
        assert error <= bound * scale, f"tensor {position} {tuple(b.shape)}: off by {error:.3e} of {scale:.3e}"


def assert_as_near_as_eager(ours, runs_of_eager, reference64):
    """For fp32 gradients that rounding changes: requires at most twice the largest error of several runs of eager.

    Their inputs differ by a rounding. It decides the sign of some inputs of ReLU, and batch norms of few values enlarge
    it, so that two correct results can be a hundredth apart.
    """
    our_error = relative_error(ours, reference64)
    errors = [relative_error(run, reference64) for run in runs_of_eager]
    assert our_error <= 2 * max(errors), f"error {our_error:.3e} against fp64, eager {errors}"


def apart_by_rounding(tensors):
    """Four lists of almost the same tensors: each value is moved by one or two roundings of fp32."""
    return [[t * (1 + steps * 2**-23) for t in tensors] for steps in (1, -1, 2, -2)]
