"""The models of the benchmarks and the main job: real architectures and sizes, random weights from a fixed seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import transformers
from torch import nn


@dataclass(frozen=True)
class Case:
    """A model and its inputs."""

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


class OneOperator(nn.Module):
    """A single function of 4096 x 1024 values, with its parameters."""

    def __init__(self, function: Callable[..., torch.Tensor], *parameters: torch.Tensor) -> None:
        super().__init__()
        self.function = function
        self.parameters_ = nn.ParameterList(parameters)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs, *self.parameters_)


class UNet(nn.Module):
    """A U-Net with four resolutions: convolutions with batch norm, max pooling, and transposed convolutions."""

    def __init__(self, channels: int = 3, width: int = 32) -> None:
        super().__init__()
        sizes = [width, 2 * width, 4 * width, 8 * width]
        pairs = list(zip(sizes, sizes[1:], strict=False))
        self.down = nn.ModuleList(self.block(a, b) for a, b in [(channels, width), *pairs])
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, stride=2) for a, b in reversed(pairs))
        self.merge = nn.ModuleList(self.block(2 * a, a) for a, _ in reversed(pairs))
        self.head = nn.Conv2d(width, 2, 1)

    @staticmethod
    def block(inputs: int, outputs: int) -> nn.Sequential:
        layers = []
        for channels in (inputs, outputs):
            layers += [nn.Conv2d(channels, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        return nn.Sequential(*layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for i, block in enumerate(self.down):
            x = block(nn.functional.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for up, merge, skip in zip(self.up, self.merge, reversed(kept[:-1]), strict=True):
            x = merge(torch.cat([up(x), skip], 1))
        return self.head(x)


class NextToken(nn.Module):
    """One decoding step: the logits for a token after `length` tokens whose keys and values are cached."""

    def __init__(self, model: nn.Module, batch: int, length: int) -> None:
        super().__init__()
        self.model, config = model, model.config
        heads = getattr(config, "num_key_value_heads", config.num_attention_heads)
        for i in range(2 * config.num_hidden_layers):
            kept = torch.randn(batch, heads, length, config.hidden_size // config.num_attention_heads)
            self.register_buffer(f"kept{i}", kept, persistent=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        kept = [getattr(self, f"kept{i}") for i in range(2 * self.model.config.num_hidden_layers)]
        cache = transformers.DynamicCache(list(zip(kept[::2], kept[1::2], strict=True)))
        return self.model(input_ids=ids, past_key_values=cache, use_cache=True).logits


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


def gpt2_decode(batch: int = 1, length: int = 128) -> Case:
    config = transformers.GPT2Config()
    model = NextToken(transformers.GPT2LMHeadModel(config), batch, length)
    return Case(model, (torch.randint(0, config.vocab_size, (batch, 1)),))


def gpt2_decode_1024(batch: int = 1) -> Case:
    return gpt2_decode(batch, length=1023)  # together with the token, all 1024 positions of GPT-2


def llama_decode(batch: int = 1, length: int = 1024) -> Case:
    """The shapes of Llama 3.2 1B, with 4 of its 16 layers and a smaller vocabulary."""
    config = transformers.LlamaConfig(
        vocab_size=32000, hidden_size=2048, intermediate_size=8192, num_hidden_layers=4, num_attention_heads=32,
        num_key_value_heads=8,
    )  # fmt: skip
    model = NextToken(transformers.LlamaForCausalLM(config), batch, length)
    return Case(model, (torch.randint(0, config.vocab_size, (batch, 1)),))


def llama_small(batch: int = 4, length: int = 128) -> Case:
    config = transformers.LlamaConfig(
        vocab_size=8000, hidden_size=512, intermediate_size=1408, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, use_cache=False,
    )  # fmt: skip
    ids = torch.randint(0, config.vocab_size, (batch, length))
    return Case(transformers.LlamaForCausalLM(config), {"input_ids": ids, "labels": ids})


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


def unet(batch: int = 4) -> Case:
    return Case(UNet(), (torch.randn(batch, 3, 96, 96),))


def dlrm(batch: int = 256) -> Case:
    model = Dlrm()
    return Case(model, (torch.randn(batch, 13), torch.randint(0, 10_000, (8, batch, 4))))


def softmax() -> Case:
    return Case(OneOperator(lambda x: x.softmax(-1)), (torch.randn(4096, 1024),))


def layer_norm() -> Case:
    function = lambda x, weight, bias: nn.functional.layer_norm(x, (1024,), weight, bias)  # noqa: E731
    return Case(OneOperator(function, torch.rand(1024), torch.rand(1024)), (torch.randn(4096, 1024),))


def rms_norm() -> Case:
    function = lambda x, weight: nn.functional.rms_norm(x, (1024,), weight, 1e-6)  # noqa: E731
    return Case(OneOperator(function, torch.rand(1024)), (torch.randn(4096, 1024),))


def gelu_add() -> Case:
    return Case(OneOperator(lambda x, y: nn.functional.gelu(x) + y), (torch.randn(4096, 1024), torch.randn(4096, 1024)))


MODELS: dict[str, Callable[..., Case]] = {
    "resnet50": resnet50,
    "unet": unet,
    "bert_base": bert_base,
    "bert_classifier": bert_classifier,
    "gpt2": gpt2,
    "gpt2_decode": gpt2_decode,
    "gpt2_decode_1024": gpt2_decode_1024,
    "llama_decode": llama_decode,
    "llama_small": llama_small,
    "vit_base": vit_base,
    "dlrm": dlrm,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "rms_norm": rms_norm,
    "gelu_add": gelu_add,
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
