"""The models that benchmarks and the main job run: real architectures and sizes, random weights from a fixed seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers
from torch import nn


@dataclass(frozen=True)
class Case:
    """A model and its inputs; `loss` maps the model's output to a scalar for training."""

    model: nn.Module
    inputs: dict[str, torch.Tensor] | tuple[torch.Tensor, ...]

    def call(self, model: Callable) -> object:
        return model(**self.inputs) if isinstance(self.inputs, dict) else model(*self.inputs)


class Dlrm(nn.Module):
    """A recommendation model: embedding bags, a bottom and a top MLP, pairwise dot-product interaction."""

    def __init__(self, tables: int = 8, rows: int = 10_000, width: int = 64, dense: int = 13) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(dense, 512), nn.ReLU(), nn.Linear(512, width), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(width + pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1)
        )
        rows_, cols_ = torch.tril_indices(tables + 1, tables + 1, offset=-1)
        self.register_buffer("rows_", rows_)
        self.register_buffer("cols_", cols_)

    def forward(self, dense: torch.Tensor, sparse: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        features = torch.stack([x, *(bag(sparse[i]) for i, bag in enumerate(self.bags))], dim=1)
        interaction = torch.bmm(features, features.transpose(1, 2))[:, self.rows_, self.cols_]
        return self.top(torch.cat([x, interaction], dim=1)).sigmoid()


class DigitsCnn(nn.Module):
    """A small convolutional classifier for 8x8 images, with batch norm and dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(64, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
        )  # fmt: skip
        self.classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(64 * 16, 10))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.classifier(self.features(x))


def bert_base(batch: int = 1, length: int = 128) -> Case:
    config = transformers.BertConfig()
    ids = torch.randint(0, config.vocab_size, (batch, length))
    return Case(transformers.BertModel(config), {"input_ids": ids, "attention_mask": torch.ones_like(ids)})


def bert_classifier(batch: int = 8, length: int = 128) -> Case:
    config = transformers.BertConfig(num_labels=2)
    ids = torch.randint(0, config.vocab_size, (batch, length))
    labels = torch.randint(0, 2, (batch,))
    return Case(
        transformers.BertForSequenceClassification(config),
        {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels},
    )


def gpt2(batch: int = 1, length: int = 128) -> Case:
    config = transformers.GPT2Config(use_cache=False)
    ids = torch.randint(0, config.vocab_size, (batch, length))
    return Case(transformers.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids})


def vit_base(batch: int = 1) -> Case:
    config = transformers.ViTConfig(num_labels=1000)
    labels = torch.randint(0, 1000, (batch,))
    return Case(
        transformers.ViTForImageClassification(config),
        {"pixel_values": torch.randn(batch, 3, 224, 224), "labels": labels},
    )


def resnet50(batch: int = 1) -> Case:
    config = transformers.ResNetConfig(num_labels=1000)
    labels = torch.randint(0, 1000, (batch,))
    return Case(
        transformers.ResNetForImageClassification(config),
        {"pixel_values": torch.randn(batch, 3, 224, 224), "labels": labels},
    )


def dlrm(batch: int = 256) -> Case:
    model = Dlrm()
    return Case(model, (torch.randn(batch, 13), torch.randint(0, 10_000, (8, batch, 4))))


MODELS: dict[str, Callable[..., Case]] = {
    "resnet50": resnet50,
    "bert_base": bert_base,
    "bert_classifier": bert_classifier,
    "gpt2": gpt2,
    "vit_base": vit_base,
    "dlrm": dlrm,
}


def build(name: str, seed: int = 0, **sizes: int) -> Case:
    """A case by name, with weights and inputs from `seed`."""
    torch.manual_seed(seed)
    return MODELS[name](**sizes)


def loss_of(output: object) -> torch.Tensor:
    """A scalar to train on: the model's own loss, or the sum of its output."""
    if isinstance(output, torch.Tensor):
        return output.float().sum()
    loss = getattr(output, "loss", None)
    return loss if loss is not None else output.last_hidden_state.float().sum()
