"""Inference with Hugging Face Accelerate: `prepare(model, data)` optimizes a model in eval mode, or compiles it too.

python -m intel_extension_for_pytorch.integrations.accelerate launch --cpu --ipex accelerate_inference.py
"""

import argparse

import torch
from accelerate import Accelerator
from intel_extension_for_pytorch.integrations.accelerate import enable
from sentences import reports, sentence, tokenizer
from torch.utils.data import DataLoader
from transformers import BertConfig, BertForSequenceClassification


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mixed_precision", choices=("no", "bf16"))
    parser.add_argument("--use_ipex", action="store_true", default=None)
    parser.add_argument("--do_fusion", action="store_true", default=None)
    args = parser.parse_args()

    enable()  # does nothing where the launcher has done it
    accelerator = Accelerator(
        cpu=True, mixed_precision=args.mixed_precision, use_ipex=args.use_ipex, do_fusion=args.do_fusion
    )
    torch.manual_seed(0)
    tokenize = tokenizer()
    rows, _ = reports()
    config = BertConfig(vocab_size=len(tokenize), hidden_size=64, num_hidden_layers=2, num_attention_heads=4)
    model = BertForSequenceClassification(config).eval()
    texts = [sentence(row) for row in rows]
    batches = [dict(tokenize(texts[i : i + 8], padding=True, return_tensors="pt")) for i in (0, 8)]
    with torch.no_grad():
        expected = [model(**batch).logits for batch in batches]

    data = DataLoader(batches, batch_size=None)
    model, data = accelerator.prepare(model, data)
    with torch.no_grad():
        found = [model(**batch).logits for batch in data]
    error = max(float((a - b).abs().max()) for a, b in zip(expected, found, strict=True))
    agree = all(torch.equal(a.argmax(-1), b.argmax(-1)) for a, b in zip(expected, found, strict=True))
    layers = {type(module).__name__ for module in model.modules()}
    forward = getattr(model, "_original_forward", model.forward)  # accelerate wraps it for autocast
    print(f"optimized: {'_IPEXLinear' in layers}, compiled: {type(forward).__name__ == '_CompiledForward'}")
    print(f"largest difference {error:.2e}, same classes: {agree}")


if __name__ == "__main__":
    main()
