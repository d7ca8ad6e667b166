"""Bf16 training that is interrupted: the state of the model and of the optimizer is saved in the middle, and another
process continues with the same bits.

python tests/scripts/resume_training.py --checkpoint middle.pt --result all.pt
python tests/scripts/resume_training.py --resume middle.pt --result rest.pt       the file has the content of all.pt
"""

import argparse

import intel_extension_for_pytorch as ipex
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        return torch.relu(x + self.norm(self.conv(x)))


def build():
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), Block(16), Block(16), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(256, 10)
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6, help="the state is saved after half of them")
    parser.add_argument("--optimizer", choices=["SGD", "AdamW"], default="AdamW")
    parser.add_argument("--compile", action="store_true", help="torch.compile of the optimized model")
    parser.add_argument("--checkpoint")
    parser.add_argument("--resume")
    parser.add_argument("--result", required=True)
    arguments = parser.parse_args()

    torch.manual_seed(0)
    model = build().train()
    options = {"lr": 1e-2, "momentum": 0.9} if arguments.optimizer == "SGD" else {"lr": 1e-3}
    optimizer = getattr(torch.optim, arguments.optimizer)(model.parameters(), **options)
    model, optimizer = ipex.optimize(model, optimizer=optimizer, dtype=torch.bfloat16)
    start = 0
    if arguments.resume:
        checkpoint = torch.load(arguments.resume)
        model.load_state_dict(checkpoint["model"])
        optimizer.load_state_dict(checkpoint["optimizer"])
        start = checkpoint["step"]
    net = torch.compile(model, backend="ipex") if arguments.compile else model

    for step in range(start, arguments.steps):
        generator = torch.Generator().manual_seed(step)
        data = torch.randn(8, 3, 16, 16, generator=generator)
        target = torch.randint(10, (8,), generator=generator)
        optimizer.zero_grad()
        with torch.cpu.amp.autocast():
            loss = nn.functional.cross_entropy(net(data), target)
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item()!r}")
        if arguments.checkpoint and step + 1 == arguments.steps // 2:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step + 1}
            torch.save(state, arguments.checkpoint)

    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, arguments.result)


if __name__ == "__main__":
    main()
