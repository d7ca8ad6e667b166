"""Trains a small convolutional network on digits in bf16: `ipex.optimize` with an optimizer, and autocast.

python tests/scripts/bf16_training.py --epochs 3
"""

import argparse

import intel_extension_for_pytorch as ipex
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1)
        self.bn1 = nn.BatchNorm2d(16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1)
        self.bn2 = nn.BatchNorm2d(32)
        self.fc = nn.Linear(32 * 16, 10)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = torch.relu(self.bn2(self.conv2(x)))
        x = nn.functional.max_pool2d(x, 2)
        return self.fc(x.flatten(1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()
    torch.manual_seed(0)

    digits = load_digits()
    images = torch.from_numpy(digits.images).float().unsqueeze(1) / 16
    labels = torch.from_numpy(digits.target).long()
    loader = DataLoader(TensorDataset(images[:1500], labels[:1500]), batch_size=50, shuffle=True)

    model = Net()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    model.train()
    model, optimizer = ipex.optimize(model, optimizer=optimizer, dtype=torch.bfloat16)

    for epoch in range(arguments.epochs):
        total = 0.0
        for data, target in loader:
            optimizer.zero_grad()
            with torch.cpu.amp.autocast():
                output = model(data)
                loss = criterion(output, target)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")

    model.eval()
    with torch.no_grad(), torch.cpu.amp.autocast():
        correct = (model(images[1500:]).argmax(1) == labels[1500:]).float().mean().item()
    print(f"accuracy {correct:.3f}")


if __name__ == "__main__":
    main()
