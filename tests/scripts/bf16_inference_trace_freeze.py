"""Inference in bf16: `ipex.optimize`, then torch.jit.trace and torch.jit.freeze, compared with the plain model.

python tests/scripts/bf16_inference_trace_freeze.py             a ResNet-50 on images of 224 x 224
python tests/scripts/bf16_inference_trace_freeze.py --small     a small one
"""

import argparse

import intel_extension_for_pytorch as ipex
import torch
from transformers import ResNetConfig, ResNetForImageClassification


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)

    small = {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [1, 1]}
    config = ResNetConfig(num_labels=100, return_dict=False, **(small if arguments.small else {}))
    model = ResNetForImageClassification(config)
    model.eval()
    data = torch.rand(1, 3, *([64] * 2 if arguments.small else [224] * 2))
    with torch.no_grad():
        expected = model(data)[0]

    model = ipex.optimize(model, dtype=torch.bfloat16)
    with torch.no_grad(), torch.cpu.amp.autocast():
        model = torch.jit.trace(model, data)
        model = torch.jit.freeze(model)
        for _ in range(3):  # the second call compiles
            output = model(data)[0]

    error = (output.float() - expected).norm() / expected.norm()
    compiled, native, interpreted = torch.ops.torch_ipex.compiled_graph_counts()
    print(f"relative error {error:.4f}; parts compiled {compiled}, run {native} times, interpreted {interpreted}")


if __name__ == "__main__":
    main()
