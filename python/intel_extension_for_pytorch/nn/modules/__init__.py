"""Modules for eager mode. Under `torch.compile` those that only compute are the ATen ops of their definition."""

from ._roi_align import RoIAlign
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
    "MergedEmbeddingBag",
    "MergedEmbeddingBagWithAdaGrad",
    "MergedEmbeddingBagWithCat",
    "MergedEmbeddingBagWithSGD",
    "PoolingMode",
    "RoIAlign",
]
