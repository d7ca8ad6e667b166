"""What `Accelerator.prepare` does with the models and optimizers that it is given: `ipex.optimize`, in place."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from ... import _C
from ...frontend import optimize
from ...utils import _logger
from ._settings import Settings

# Wrapped by accelerate in the given order after us: distributed training first, then torch.compile.
_DISTRIBUTED_TYPES = ("NO", "MULTI_CPU")
_PRECISIONS = ("no", "bf16", "fp16")  # on the CPU accelerate trains in fp32 when it is asked for fp16


def prepared(accelerator: Any, objects: tuple[Any, ...], wanted: Settings) -> tuple[Any, ...]:
    """The objects of a call of `Accelerator.prepare`, in their order, with the models and optimizers optimized.

    - A model and the optimizers that hold some of its parameters are optimized for training, in either mode. Both keep
      their identity, so that schedulers made before still follow the optimizer.
    - A model without an optimizer is optimized for inference if it is in eval mode; `wanted.fusion` compiles it too.
      If batch norms are folded, the result is another object, which shares all other parameters.
    - A model without an optimizer in training mode stays as it is.

    Weights are cast to bfloat16 if the accelerator's precision is "bf16". Nothing is done on other devices, or under
    FSDP, DeepSpeed, Megatron-LM or fp8, which store parameters in their own ways.
    """
    if not wanted.use or not _applies_to(accelerator):
        return objects
    result = list(objects)
    models = [i for i, each in enumerate(objects) if isinstance(each, nn.Module) and _is_new(each)]
    optimizers = [each for each in objects if isinstance(each, torch.optim.Optimizer) and _is_new(each)]
    bf16 = accelerator.mixed_precision == "bf16"
    options: dict[str, Any] = {"dtype": torch.bfloat16 if bf16 else None, "inplace": True, "level": "O1"}
    if bf16 and not _C.onednn_has_bf16_support():
        options["weights_prepack"] = False
        _logger.logger.warning("this CPU has no bf16 instructions that oneDNN uses: weights are not packed")
    for i in models:
        model = result[i]
        parameters = set(model.parameters())
        trained_by = [o for o in optimizers if any(p in parameters for g in o.param_groups for p in g["params"])]
        if trained_by:
            _optimize_for_training(model, trained_by, options)
        elif not model.training:
            # What torch.compile is applied to later needs no compiled forward pass of its own.
            compiled_later = accelerator.state.dynamo_plugin.backend.value != "NO"
            result[i] = optimize(model, graph_mode=wanted.fusion and not compiled_later, **options)
            result[i].train = _InferenceOnly(result[i])
        else:
            _logger.logger.warning(
                "Accelerator.prepare leaves a %s as it is: it is in training mode, and the same call has no optimizer "
                "of it. Pass both in one call, or call eval() on the model first if it is for inference",
                type(model).__name__,
            )
    return tuple(result)


def _applies_to(accelerator: Any) -> bool:
    return (
        accelerator.device.type == "cpu"
        and accelerator.distributed_type.value in _DISTRIBUTED_TYPES
        and accelerator.mixed_precision in _PRECISIONS
    )


def _is_new(prepared_object: Any) -> bool:
    """Did accelerate not prepare it before? Its wrapper of optimizers is an optimizer too."""
    is_prepared = getattr(prepared_object, "_is_accelerate_prepared", False)
    return not is_prepared and not type(prepared_object).__module__.startswith("accelerate.")


def _optimize_for_training(model: nn.Module, optimizers: list[torch.optim.Optimizer], options: dict[str, Any]) -> None:
    # `optimize` goes by the mode of the outermost module. Pretrained models come in eval mode, and may stay in it.
    training, model.training = model.training, True
    try:
        optimize(model, optimizer=optimizers, **options)
    finally:
        model.training = training


class _InferenceOnly:
    """`train` of a model that is optimized for inference: it has no batch norms and no dropout to be trained with."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def __call__(self, mode: bool = True) -> nn.Module:
        if mode:
            raise RuntimeError(
                f"this {type(self.model).__name__} was in eval mode, without an optimizer, when Accelerator.prepare "
                "was called, and is optimized for inference: its batch norms and dropouts are gone. To train it, pass "
                "it to prepare together with its optimizer; to keep it as it is, use Accelerator(use_ipex=False)"
            )
        return nn.Module.train(self.model, False)
