"""Embedding bags over several tables as one module: one call of an operator, one parallel region over all tables.

`MergedEmbeddingBagWithSGD` and `MergedEmbeddingBagWithAdaGrad` update their tables during the backward pass: only the
rows that were read, without a gradient in memory. The results do not depend on the number of threads.
"""

from __future__ import annotations

import enum
import itertools
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

Tensors = Sequence[Tensor]


class PoolingMode(enum.IntEnum):
    SUM = 0
    MEAN = 1


class EmbeddingSpec(NamedTuple):
    """One table. Without a weight, the table is initialised as in `nn.EmbeddingBag`."""

    num_embeddings: int
    embedding_dim: int
    pooling_mode: str
    dtype: torch.dtype
    weight: Tensor | None
    sparse: bool
    include_last_offset: bool


class SGDArgs(NamedTuple):
    bf16_trail: list[Tensor]
    weight_decay: float
    lr: float


class AdaGradArgs(NamedTuple):
    hessian: list[Tensor]
    bf16_trail: list[Tensor]
    eps: float
    lr: float


class MergedEmbeddingBag(nn.Module):
    """Several `nn.EmbeddingBag` of one width, dtype and mode, "sum" or "mean". Gradients are dense."""

    def __init__(self, embedding_specs: Sequence[EmbeddingSpec]) -> None:
        super().__init__()
        if not embedding_specs:
            raise ValueError("a merged embedding bag needs at least one table")
        first = embedding_specs[0]
        for name in ("embedding_dim", "dtype", "pooling_mode", "include_last_offset"):
            values = {getattr(spec, name) for spec in embedding_specs}
            if len(values) > 1:
                raise ValueError(f"all tables must have the same {name}, got {sorted(map(str, values))}")
        if first.pooling_mode not in ("sum", "mean"):
            raise ValueError(f"the pooling mode must be 'sum' or 'mean', got {first.pooling_mode!r}")
        self.n_tables = len(embedding_specs)
        self.embedding_dim = first.embedding_dim
        self.dtype = first.dtype
        self.pooling_mode = PoolingMode[first.pooling_mode.upper()]
        self.include_last_offset = first.include_last_offset
        self.dense = not any(spec.sparse for spec in embedding_specs)
        self.weights = nn.ParameterList([nn.Parameter(_table(spec)) for spec in embedding_specs])

    @classmethod
    def from_embeddingbag_list(cls, tables: Iterable[nn.EmbeddingBag], **settings: Any) -> MergedEmbeddingBag:
        """A module that shares the weights of these bags. `settings` are those of the class, such as lr."""
        return cls([_spec(bag) for bag in tables], **settings)

    def extra_repr(self) -> str:
        tables = (
            f"table{i}: {weight.shape[0]}, {weight.shape[1]}, {self.pooling_mode!s}, {weight.dtype}"
            for i, weight in enumerate(self.weights)
        )
        return "\n".join([f"number of tables={self.n_tables}", *tables])

    def forward(self, indices: Tensors, offsets: Tensors) -> list[Tensor]:
        """The bags of each table, [batch, width]. `indices` and `offsets` have one tensor for each table, with the
        meaning that they have in `nn.EmbeddingBag`."""
        if not self.dense:
            raise ValueError("MergedEmbeddingBag computes dense gradients: make its tables with sparse=False")
        return self._pooled(indices, offsets)

    def _pooled(self, indices: Tensors, offsets: Tensors) -> list[Tensor]:
        return torch.ops.torch_ipex.merged_embeddingbag_forward(
            list(self.weights), indices, offsets, int(self.pooling_mode), self.include_last_offset
        )


class MergedEmbeddingBagWithCat(MergedEmbeddingBag):
    """The bags of all tables behind the row of dense features. Bags are sums."""

    def __init__(self, embedding_specs: Sequence[EmbeddingSpec]) -> None:
        super().__init__(embedding_specs)
        if self.pooling_mode != PoolingMode.SUM:
            raise ValueError("MergedEmbeddingBagWithCat computes sums, but the pooling mode is 'mean'")

    def forward(self, indices: Tensors, offsets: Tensors, dense_feature: Tensor) -> Tensor:
        """[batch, width of dense_feature + tables * width of the tables]"""
        return torch.ops.torch_ipex.merged_embeddingbag_cat_forward(
            list(self.weights), indices, offsets, dense_feature, self.include_last_offset
        )


class _UpdatingBag(MergedEmbeddingBag):
    """Tables that the backward pass updates. The weights get no gradient."""

    def __init__(self, embedding_specs: Sequence[EmbeddingSpec], lr: float) -> None:
        super().__init__(embedding_specs)
        if lr < 0.0:
            raise ValueError(f"Invalid learning rate: {lr}")
        self.lr = lr
        for i, weight in enumerate(self.weights):
            # The lower halves of f32 weights; no elements if the table is not split.
            trail = torch.zeros_like(weight, dtype=torch.int16) if weight.dtype == torch.bfloat16 else _no_trail()
            self.register_buffer(f"trail_{i}", trail)
        self._register()

    def forward(self, indices: Tensors, offsets: Tensors) -> list[Tensor]:
        if torch.is_grad_enabled() and any(weight.requires_grad for weight in self.weights):
            train = torch.ops.torch_ipex.merged_embeddingbag_train if torch.compiler.is_compiling() else _train
            return train(
                self._anchor,
                list(self.weights),
                indices,
                offsets,
                int(self.pooling_mode),
                self.include_last_offset,
                self._number,
            )
        return self._pooled(indices, offsets)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._register()  # a copy is another module

    def _register(self) -> None:
        """The operator of the backward pass finds the module by its number: a graph could not hold the tables that it
        writes. The anchor is what autograd computes a gradient of; both have no elements."""
        self._number = next(_numbers)
        self._anchor = torch.empty(0, requires_grad=True)
        _modules[self._number] = self

    def to_bfloat16_train(self) -> None:
        """Splits f32 tables into bfloat16 tables, which the forward pass reads, and their trails: the lower halves,
        which only the update reads. Nothing is lost: updates are computed on the f32 values."""
        for i, weight in enumerate(self.weights):
            if weight.dtype not in (torch.float32, torch.float64):
                continue
            top, trail = torch.ops.torch_ipex.split_float_bfloat16(weight.detach().float().contiguous())
            self.weights[i] = nn.Parameter(top, requires_grad=weight.requires_grad)
            setattr(self, f"trail_{i}", trail.view(torch.int16))
        self.dtype = self.weights[0].dtype

    def _trails(self) -> list[Tensor]:
        return [getattr(self, f"trail_{i}") for i in range(self.n_tables)]

    def _update(self, tables: list[int], *arguments: Any) -> None:
        """Updates these tables. The arguments are those that the operators share."""
        raise NotImplementedError


class MergedEmbeddingBagWithSGD(_UpdatingBag):
    """Merged bags whose backward pass takes a step of SGD, as `torch.optim.SGD` does with sparse gradients."""

    def __init__(self, embedding_specs: Sequence[EmbeddingSpec], lr: float = 0.01, weight_decay: float = 0) -> None:
        super().__init__(embedding_specs, lr)
        if weight_decay < 0.0:
            raise ValueError(f"Invalid weight_decay value: {weight_decay}")
        self.weight_decay = weight_decay

    @property
    def sgd_args(self) -> SGDArgs:
        return SGDArgs(self._trails(), self.weight_decay, self.lr)

    def _update(self, tables: list[int], *arguments: Any) -> None:
        trails = [getattr(self, f"trail_{i}") for i in tables]
        torch.ops.torch_ipex.merged_embeddingbag_backward_sgd(*arguments, trails, self.weight_decay, self.lr)


class MergedEmbeddingBagWithAdaGrad(_UpdatingBag):
    """Merged bags whose backward pass takes a step of Adagrad, as `torch.optim.Adagrad` does with sparse gradients."""

    def __init__(self, embedding_specs: Sequence[EmbeddingSpec], lr: float = 0.01, eps: float = 1e-10) -> None:
        super().__init__(embedding_specs, lr)
        if eps < 0.0:
            raise ValueError(f"Invalid epsilon value: {eps}")
        self.eps = eps
        for i, weight in enumerate(self.weights):
            dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
            self.register_buffer(f"hessian_{i}", torch.zeros_like(weight, dtype=dtype))

    def to_bfloat16_train(self) -> None:
        super().to_bfloat16_train()
        for i in range(self.n_tables):
            setattr(self, f"hessian_{i}", getattr(self, f"hessian_{i}").float())

    @property
    def adagrad_args(self) -> AdaGradArgs:
        hessian = [getattr(self, f"hessian_{i}") for i in range(self.n_tables)]
        return AdaGradArgs(hessian, self._trails(), self.eps, self.lr)

    def _update(self, tables: list[int], *arguments: Any) -> None:
        hessian, trails = ([getattr(self, f"{name}_{i}") for i in tables] for name in ("hessian", "trail"))
        torch.ops.torch_ipex.merged_embeddingbag_backward_adagrad(*arguments, hessian, trails, self.eps, self.lr)


_numbers, _calls = itertools.count(), itertools.count()
_modules: weakref.WeakValueDictionary[int, _UpdatingBag] = weakref.WeakValueDictionary()


class _PooledAndUpdated(torch.autograd.Function):
    """Bags whose backward pass updates the tables of a module. Its gradient of the anchor has no elements: it keeps the
    update in compiled graphs."""

    @staticmethod
    def forward(
        ctx: Any, anchor: Tensor, mode: int, last: bool, module: int, count: int, *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        weights, indices, offsets = (tensors[i * count : (i + 1) * count] for i in range(3))
        ctx.save_for_backward(*indices, *offsets)
        ctx.set_materialize_grads(False)
        ctx.trained = [weight.requires_grad for weight in weights]
        ctx.module, ctx.count = module, count
        ctx.call = next(_calls)  # two equal calls in a graph are two updates
        return tuple(torch.ops.torch_ipex.merged_embeddingbag_forward(weights, indices, offsets, mode, last))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        tables = [i for i, grad in enumerate(grads) if grad is not None and ctx.trained[i]]
        anchor = None
        if tables:
            indices, offsets = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
            given = ([values[i] for i in tables] for values in (grads, indices, offsets))
            anchor = torch.ops.torch_ipex.merged_embeddingbag_update(*given, tables, ctx.module, ctx.call)
        return (anchor,) + (None,) * (4 + 3 * ctx.count)


def _train(
    anchor: Tensor, weights: Tensors, indices: Tensors, offsets: Tensors, mode: int, last: bool, module: int
) -> list[Tensor]:
    return list(_PooledAndUpdated.apply(anchor, mode, last, module, len(weights), *weights, *indices, *offsets))


def _update(grads: Tensors, indices: Tensors, offsets: Tensors, tables: list[int], number: int, call: int) -> Tensor:
    module = _modules.get(number)
    if module is None:
        raise RuntimeError("the merged embedding bag that the backward pass updates was deleted")
    weights = list(module.weights)
    weights = [weights[i] for i in tables]
    module._update(tables, grads, weights, indices, offsets, int(module.pooling_mode), module.include_last_offset)
    return torch.empty(0)


_library = torch.library.Library("torch_ipex", "FRAGMENT")
_library.define(
    "merged_embeddingbag_train(Tensor anchor, Tensor[] weights, Tensor[] indices, Tensor[] offsets, int pooling_mode, "
    "bool include_last_offset, int module) -> Tensor[]"
)
_library.define(
    "merged_embeddingbag_update(Tensor[] grads, Tensor[] indices, Tensor[] offsets, int[] tables, int module, int call)"
    " -> Tensor"
)
_library.impl("merged_embeddingbag_train", _train, "CompositeImplicitAutograd")
_library.impl("merged_embeddingbag_update", _update, "CPU")
_library.impl("merged_embeddingbag_update", lambda grads, *others: grads[0].new_empty(0, dtype=torch.float32), "Meta")


def _no_trail() -> Tensor:
    return torch.empty(0, dtype=torch.int16)


def _table(spec: EmbeddingSpec) -> Tensor:
    if spec.weight is not None:
        return spec.weight
    return torch.randn(spec.num_embeddings, spec.embedding_dim, dtype=spec.dtype)


def _spec(bag: nn.EmbeddingBag) -> EmbeddingSpec:
    refused = {"max_norm": None, "padding_idx": None, "scale_grad_by_freq": False}
    for name, allowed in refused.items():
        if getattr(bag, name) != allowed:
            raise ValueError(f"a merged embedding bag has no {name}, got {getattr(bag, name)}")
    return EmbeddingSpec(
        bag.num_embeddings,
        bag.embedding_dim,
        bag.mode,
        bag.weight.dtype,
        bag.weight.detach(),
        bag.sparse,
        bag.include_last_offset,
    )
