"""Converts OpInfo's samples to cases: functions of tensors, in four forms.

forward: the results of the call. gradient: its gradients by autograd. inplace: the method with an underscore, with its
result and the changed input. out: results written into the caller's tensors, every second one strided.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.testing._internal import common_utils
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo import core
from torch.testing._internal.opinfo.core import DecorateInfo
from torch.utils import _pytree as pytree

FORMS = ("forward", "gradient", "inplace", "out")
DTYPES = {
    "fp32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "fp64": torch.float64, "int8": torch.int8,
    "int64": torch.int64, "bool": torch.bool,
}  # fmt: skip
NARROW = (torch.float32, torch.bfloat16, torch.float16)

# Ops that return uninitialised memory: only dtype, shape and strides are compared.
UNWRITTEN = {
    "empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "resize_", "resize_as_",
}  # fmt: skip

# Skip two things that took two thirds of the time of a test under pytest: OpInfo's search of the stack for a unittest,
# and the stack traces of seeds that are queued for other devices.
common_utils.extract_test_fn = core.extract_test_fn = lambda: None
torch.cuda.manual_seed_all = torch.xpu.manual_seed_all = lambda seed: None


def infos_by_name():
    return {info.formatted_name: info for info in op_db}


@dataclass
class Case:
    """A call with its tensors. The last `outs` tensors are memory for the results."""

    label: str
    form: str
    operation: Callable[..., Any]
    leaves: list[Any]
    spec: Any
    tensors: list[torch.Tensor]
    finish: Callable[[Any], Any]
    tolerances: dict[torch.dtype, tuple[float, float]]  # rtol, atol
    outs: int = 0
    mutates: bool = False
    unwritten: bool = False
    constants: list[Any] = field(default_factory=list)  # results of the last call that are not tensors

    def arguments(self):
        """The tensors for one run: copies if it writes to them, autograd leaves if gradients are computed."""
        if self.form == "gradient":
            return [t.detach().requires_grad_(t.requires_grad) for t in self.tensors]
        return [copied(t) if self.mutates else t for t in self.tensors]

    def wide_arguments(self):
        return [_widened(t.detach()).requires_grad_(t.requires_grad) for t in self.tensors]

    def run(self, tensors, wide=False):
        """A flat list of the results that are tensors. `wide`: replace dtype arguments by fp64."""
        given = iter(tensors)
        values = [next(given) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves]
        if wide:
            values = [torch.float64 if isinstance(v, torch.dtype) and v in NARROW else v for v in values]
        x, args, kwargs = pytree.tree_unflatten(values, self.spec)
        outs = tuple(given)
        if outs:
            kwargs = {**kwargs, "out": outs if len(outs) > 1 else outs[0]}
        result = self.finish(self.operation(x, *args, **kwargs))
        results = pytree.tree_leaves(list(outs) if outs else result)
        self.constants = [leaf for leaf in results if not isinstance(leaf, torch.Tensor)]
        return [leaf for leaf in results if isinstance(leaf, torch.Tensor)]


def cases(info, dtype, form, limit=None):
    """All samples of an op in one form that eager accepts, or `limit` of them, evenly spaced."""
    if not _has_form(info, dtype, form):
        return
    samples = enumerate(info.sample_inputs("cpu", dtype, requires_grad=form == "gradient"))
    if limit is not None:
        samples = list(samples)
        if len(samples) > limit:
            samples = [samples[i * len(samples) // limit] for i in range(limit)]
    for position, sample in samples:
        case = _case(info, sample, position, form)
        if case is not None:
            yield case


def _has_form(info, dtype, form):
    if not info.supports_dtype(dtype, "cpu"):
        return False
    if form == "gradient":
        return dtype is torch.float32 and info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
    return form == "forward" or (info.get_inplace() is not None if form == "inplace" else info.supports_out)


def _case(info, sample, position, form):
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, dict(sample.kwargs)))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    case = Case(
        label=f"sample {position}",
        form=form,
        operation=info.get_inplace() if form == "inplace" else info.op,
        leaves=leaves,
        spec=spec,
        tensors=tensors,
        finish=sample.output_process_fn_grad if form == "gradient" else lambda result: result,
        tolerances=_tolerances(info),
        mutates=form in ("inplace", "out") or info.name.endswith("_"),
        unwritten=info.name in UNWRITTEN,
    )
    if form == "out":
        try:
            results = case.run(case.arguments())
        except Exception:  # eager refuses this sample
            return None
        case.outs = len(results)
        case.tensors = tensors + [_memory_like(t, strided=position % 2 == 1) for t in results]
    return case


def _tolerances(info):
    """The fp32 tolerances of OpInfo's own CPU tests. (Narrower types are compared by norm.)"""
    overrides = [
        override.d[torch.float32]
        for decoration in info.decorators
        if isinstance(decoration, DecorateInfo) and decoration.cls_name == "TestCommon"
        if decoration.device_type in (None, "cpu")
        for override in decoration.decorators
        if isinstance(override, toleranceOverride) and torch.float32 in override.d
    ]
    return {torch.float32: (max(o.rtol for o in overrides), max(o.atol for o in overrides))} if overrides else {}


def _memory_like(t, strided):
    if strided and t.dim() and t.layout is torch.strided:
        return torch.zeros(*t.shape, 2, dtype=t.dtype)[..., 0]
    return torch.zeros_like(t)


def copied(t):
    """A copy with the same strides, unless elements overlap."""
    if t.layout is not torch.strided or 0 in t.stride():
        return t.clone()
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype).copy_(t)


def _widened(t):
    return t.to({torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64,
                 torch.complex64: torch.complex128}.get(t.dtype, t.dtype))  # fmt: skip
