"""Trains on several processes: `ipex.optimize` first, DistributedDataParallel second. At the end, all ranks compare
their weights: the upper halves that the model holds, and the lower halves (trails) that the optimizer holds.

torchrun --nproc-per-node 2 tests/scripts/ddp_training.py
"""

import argparse
import os

import intel_extension_for_pytorch as ipex
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def same_on_all_ranks(tensor):
    bits = tensor.detach().contiguous().view(torch.uint8)
    all_bits = [torch.empty_like(bits) for _ in range(dist.get_world_size())]
    dist.all_gather(all_bits, bits)
    return all(torch.equal(bits, other) for other in all_bits)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--compile", action="store_true", help="torch.compile of the wrapped model")
    arguments = parser.parse_args()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo")
    rank = dist.get_rank()

    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 10),
    ).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    model, optimizer = ipex.optimize(model, optimizer=optimizer, dtype=torch.bfloat16)
    model = DistributedDataParallel(model)
    net = torch.compile(model, backend="ipex") if arguments.compile else model

    generator = torch.Generator().manual_seed(rank)
    for step in range(arguments.steps):
        data = torch.randn(8, 3, 16, 16, generator=generator)
        target = torch.randint(10, (8,), generator=generator)
        optimizer.zero_grad()
        with torch.cpu.amp.autocast():
            loss = nn.functional.cross_entropy(net(data), target)
        loss.backward()
        optimizer.step()
        print(f"rank {rank}, step {step}: loss {loss.item():.4f}", flush=True)

    parameters = [same_on_all_ranks(p) for p in model.parameters()]
    trails = [w.parameter_trail for w in optimizer.params_attr.values() if w.parameter_trail is not None]
    equal = [same_on_all_ranks(trail) for trail in trails]
    used = sum(bool(trail.view(torch.int16).any()) for trail in trails)
    print(
        f"rank {rank}: equal on all ranks are {sum(parameters)} of {len(parameters)} parameters and {sum(equal)} of "
        f"{len(trails)} trails, of which {used} are not zero",
        flush=True,
    )
    dist.barrier()  # PyTorch may hang or abort if a rank ends just after a collective
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
