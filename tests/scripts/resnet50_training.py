"""Trains a ResNet-50 on random images, and prints the images per second. Each option is one step of tuning:

python tests/scripts/resnet50_training.py                                  as PyTorch runs it
python tests/scripts/resnet50_training.py --autocast                       products in bf16
python tests/scripts/resnet50_training.py --autocast --channels-last       and activations in channels-last layout
python tests/scripts/resnet50_training.py --autocast --channels-last --compile inductor
python tests/scripts/resnet50_training.py --autocast --ipex-optimize       one line in their place
python tests/scripts/resnet50_training.py --autocast --ipex-optimize --compile ipex
python -m torch.backends.xeon.run_cpu --ninstances 1 tests/scripts/resnet50_training.py --autocast --channels-last
ipexrun cpu --nnodes 1 --nprocs-per-node 2 tests/scripts/resnet50_training.py --autocast --ipex-optimize --ddp ccl
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from transformers import ResNetConfig, ResNetForImageClassification

CLASSES = 1000


class RandomImages(Dataset):
    """Images of random numbers, with labels of uint8."""

    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        generator = torch.Generator().manual_seed(index)
        image = torch.randn(3, self.size, self.size, generator=generator)
        return image, torch.tensor(index % 10, dtype=torch.uint8)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--autocast", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--ipex-optimize", action="store_true")
    parser.add_argument("--compile", choices=["inductor", "ipex"])
    parser.add_argument("--steps", type=int, default=20, help="steps that are timed, after --warm-up others")
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--ddp", choices=["gloo", "ccl"], help="train on the processes of a launcher")
    parser.add_argument("--batch", type=int, default=32, help="of each process")
    parser.add_argument("--size", type=int, default=224, help="height and width of the images")
    parser.add_argument("--small", action="store_true", help="a ResNet with two stages of one layer")
    arguments = parser.parse_args()
    if arguments.ddp == "ccl":
        import oneccl_bindings_for_pytorch  # noqa: F401 - registers the backend
    if arguments.ddp:
        dist.init_process_group(arguments.ddp)
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if arguments.ddp else (0, 1)
    torch.manual_seed(0)

    small = {"embedding_size": 16, "hidden_sizes": [32, 64], "depths": [1, 1]}
    model = ResNetForImageClassification(ResNetConfig(num_labels=CLASSES, **(small if arguments.small else {})))
    model.train()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters())
    if arguments.channels_last:
        model = model.to(memory_format=torch.channels_last)
    if arguments.ipex_optimize:
        import intel_extension_for_pytorch as ipex

        dtype = torch.bfloat16 if arguments.autocast else torch.float32
        model, optimizer = ipex.optimize(model, optimizer=optimizer, dtype=dtype)
    net = DistributedDataParallel(model) if arguments.ddp else model
    if arguments.compile:
        net = torch.compile(net, backend=arguments.compile)

    steps = arguments.warm_up + arguments.steps
    dataset = RandomImages(ranks * steps * arguments.batch, arguments.size)
    own = torch.utils.data.Subset(dataset, range(rank, len(dataset), ranks))
    batches = DataLoader(own, batch_size=arguments.batch)
    losses, seconds = [], 0.0
    for step, (images, target) in enumerate(batches):
        data = images.to(memory_format=torch.channels_last) if arguments.channels_last else images
        start = time.perf_counter()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=arguments.autocast):
            output = net(data).logits
            loss = criterion(output, target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step >= arguments.warm_up:
            seconds += time.perf_counter() - start

    if rank == 0:
        print("losses", *(f"{loss:.6f}" for loss in losses))
        print(f"{ranks * arguments.steps * arguments.batch / seconds:.2f} images/s")
    if arguments.ddp:
        dist.barrier()  # PyTorch may hang or abort if a rank ends just after a collective
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
