"""Saves an optimized, frozen bf16 model; a second process loads and runs it.

python tests/scripts/save_and_load.py save model.pt
python tests/scripts/save_and_load.py load model.pt
"""

import argparse

import intel_extension_for_pytorch as ipex
import torch
from torch import nn


def build():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(4),
        nn.Flatten(), nn.Linear(256, 64), nn.GELU(), nn.Linear(64, 10),
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["save", "load"])
    parser.add_argument("path")
    arguments = parser.parse_args()
    data = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(1))

    if arguments.action == "save":
        model = build().eval()
        model = ipex.optimize(model, dtype=torch.bfloat16)
        with torch.no_grad(), torch.cpu.amp.autocast():
            model = torch.jit.freeze(torch.jit.trace(model, data))
        model.save(arguments.path)
    else:
        model = torch.jit.load(arguments.path)

    with torch.no_grad():
        for _ in range(3):
            output = model(data)
    print(f"{output.dtype}, {output.double().sum().item()!r}, {output.double().square().sum().item()!r}")


if __name__ == "__main__":
    main()
