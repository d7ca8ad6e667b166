"""Modules for eager mode. Under `torch.compile` those that only compute are the ATen ops of their definition."""

from ._roi_align import RoIAlign
from .frozen_batch_norm import FrozenBatchNorm2d
from .linear_eltwise import IPEXLinearEltwise
from .merged_embedding_bags import (
    EmbeddingSpec,
    MergedEmbeddingBag,
    MergedEmbeddingBagWithAdaGrad,
    MergedEmbeddingBagWithCat,
    MergedEmbeddingBagWithSGD,
    PoolingMode,
)

__all__ = [
    "EmbeddingSpec",
    "FrozenBatchNorm2d",
    "IPEXLinearEltwise",
    "MergedEmbeddingBag",
    "MergedEmbeddingBagWithAdaGrad",
    "MergedEmbeddingBagWithCat",
    "MergedEmbeddingBagWithSGD",
    "PoolingMode",
    "RoIAlign",
]
