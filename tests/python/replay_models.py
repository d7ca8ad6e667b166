"""The models of replay.py, with few layers but real widths, so that kernels are those of real models."""

import sys
from functools import partial
from pathlib import Path

import torch
import transformers as hf

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
from models import Case, Dlrm, NextToken, UNet, loss_of

BATCH, LENGTH, VOCABULARY = 2, 64, 1000
LLAMA = hf.LlamaConfig(
    vocab_size=VOCABULARY, hidden_size=512, intermediate_size=1408, num_hidden_layers=2, num_attention_heads=8,
    num_key_value_heads=4, use_cache=False,
)  # fmt: skip
GPT2 = {"n_layer": 2, "vocab_size": VOCABULARY}


def _tokens(length=LENGTH):
    return torch.randint(0, VOCABULARY, (BATCH, length))


def _images(size):
    return {"pixel_values": torch.randn(BATCH, 3, size, size), "labels": torch.randint(0, 10, (BATCH,))}


def bert():
    config = hf.BertConfig(vocab_size=VOCABULARY, num_hidden_layers=2, num_labels=2)
    ids = _tokens()
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": torch.randint(0, 2, (BATCH,))}
    return Case(hf.BertForSequenceClassification(config), inputs)


def gpt2():
    ids = _tokens()
    return Case(hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2, use_cache=False)), {"input_ids": ids, "labels": ids})


def gpt2_decode():
    return Case(NextToken(hf.GPT2LMHeadModel(hf.GPT2Config(**GPT2)), BATCH, LENGTH), (_tokens(1),))


def llama():
    ids = _tokens()
    return Case(hf.LlamaForCausalLM(LLAMA), {"input_ids": ids, "labels": ids})


def llama_decode():
    return Case(NextToken(hf.LlamaForCausalLM(LLAMA), BATCH, LENGTH), (_tokens(1),))


def vit():
    config = hf.ViTConfig(num_hidden_layers=2, image_size=96, num_labels=10)
    return Case(hf.ViTForImageClassification(config), _images(96))


def resnet50():
    """Bottleneck blocks of every width of ResNet-50, with and without a change of size."""
    config = hf.ResNetConfig(depths=[2, 2, 2, 2], num_labels=10)
    return Case(hf.ResNetForImageClassification(config), _images(96))


def unet():
    return Case(UNet(), (torch.randn(BATCH, 3, 32, 32),))


def dlrm():
    return Case(Dlrm(), (torch.randn(64, 13), torch.randint(0, 10_000, (8, 64, 4))))


def swin():
    config = hf.SwinConfig(image_size=112, depths=[2, 2], num_heads=[3, 6], num_labels=10)
    return Case(hf.SwinForImageClassification(config), _images(112))


def infer(make, dtype, compiled):
    """Runs one call of the model, with weights and inputs in `dtype`."""
    torch.manual_seed(0)
    case = make()
    cast = torch.utils._pytree.tree_map_only(
        torch.Tensor, lambda t: t.to(dtype) if t.is_floating_point() else t, case.inputs
    )
    with torch.no_grad():
        Case(case.model, cast).call(compiled(case.model.to(dtype).eval()))


def train(make, compiled):
    """Runs one forward and backward pass."""
    torch.manual_seed(0)
    case = make()
    loss_of(case.call(compiled(case.model.train()))).backward()


MODELS = (bert, gpt2, gpt2_decode, llama, llama_decode, vit, resnet50, unet, dlrm, swin)
# Name -> a function of `compiled`, which compiles a module.
RUNS = {
    f"{make.__name__}-{mode}": run
    for make in MODELS
    for mode, run in (
        ("infer-fp32", partial(infer, make, torch.float32)),
        ("infer-bf16", partial(infer, make, torch.bfloat16)),
        ("train-fp32", partial(train, make)),
    )
    if mode != "train-fp32" or "decode" not in make.__name__
}
