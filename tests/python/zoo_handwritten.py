"""Hand-written models with features that the `transformers` zoo lacks.

Batch norm with dropout, skip connections across resolutions, transposed, 1-d and 3-d convolutions, embedding bags, a
recurrent cell, token mixing, and torch.nn's transformer.
"""

import torch
from torch import nn
from torch.nn import functional as F


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(32), nn.Hardswish(),
            nn.Conv2d(32, 32, 3, padding=2, dilation=2, groups=32), nn.SiLU(), nn.AvgPool2d(2),
        )  # fmt: skip
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(32 * 4, 10))

    def forward(self, x):
        return self.head(self.features(x))


class UNet(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.enter, self.down = self.block(1, width), self.block(width, 2 * width)
        self.bottom = self.block(2 * width, 4 * width)
        self.up1 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.up2 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.merge1, self.merge2 = self.block(4 * width, 2 * width), self.block(2 * width, width)
        self.leave = nn.Conv2d(width, 2, 1)

    @staticmethod
    def block(inputs, outputs):
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.GELU())

    def forward(self, x):
        a = self.enter(x)
        b = self.down(F.max_pool2d(a, 2))
        c = self.bottom(F.max_pool2d(b, 2))
        b = self.merge1(torch.cat([self.up1(c), b], 1))
        a = self.merge2(torch.cat([self.up2(b), a], 1))
        return self.leave(a)


class Dlrm(nn.Module):
    def __init__(self, tables=3, rows=50, width=8):
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(rows, width, mode="sum") for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, 16), nn.ReLU(), nn.Linear(16, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + (tables + 1) ** 2, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        features = torch.stack([x, *(bag(sparse[:, i]) for i, bag in enumerate(self.bags))], 1)
        interaction = torch.bmm(features, features.transpose(1, 2)).flatten(1)
        return torch.sigmoid(self.top(torch.cat([x, interaction], 1)))


class GatedCell(nn.Module):
    """An LSTM unrolled by hand. (nn.LSTM is a single ATen op.)"""

    def __init__(self, inputs=12, width=16):
        super().__init__()
        self.x, self.h = nn.Linear(inputs, 4 * width), nn.Linear(width, 4 * width, bias=False)
        self.width = width

    def forward(self, x):
        h = c = x.new_zeros(x.shape[0], self.width)
        for t in range(x.shape[1]):
            i, f, g, o = (self.x(x[:, t]) + self.h(h)).chunk(4, 1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
        return h, c


class MixerBlock(nn.Module):
    def __init__(self, tokens=16, width=24):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix_tokens = nn.Sequential(nn.Linear(tokens, 32), nn.GELU(), nn.Linear(32, tokens))
        self.mix_width = nn.Sequential(nn.Linear(width, 48), nn.GELU(approximate="tanh"), nn.Linear(48, width))

    def forward(self, x):
        x = x + self.mix_tokens(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.mix_width(self.norm2(x))


class Conv1dStack(nn.Module):
    """Gated causal dilated 1-d convolutions, with one layer used twice."""

    def __init__(self, width=16):
        super().__init__()
        self.enter = nn.Conv1d(4, width, 1)
        self.gate, self.value = (nn.Conv1d(width, width, 2, dilation=2) for _ in range(2))

    def forward(self, x):
        x = self.enter(x)
        for _ in range(2):
            padded = F.pad(x, (2, 0))
            x = x + torch.tanh(self.value(padded)) * torch.sigmoid(self.gate(padded))
        return x.mean(-1)


class Conv3dNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv3d(2, 8, 3, padding=1), nn.BatchNorm3d(8), nn.LeakyReLU(0.1), nn.Conv3d(8, 8, 2, stride=2), nn.ELU()
        )
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return F.log_softmax(self.head(self.body(x).mean((2, 3, 4))), -1)


def mlp():
    layers = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.LayerNorm(64), nn.Linear(64, 64), nn.Tanh(),
                           nn.Dropout(0.2), nn.Linear(64, 7), nn.Softmax(-1))  # fmt: skip
    return layers, (torch.randn(33, 20),)


def cnn():
    return Cnn(), (torch.randn(4, 3, 16, 16),)


def cnn_channels_last():
    model, (x,) = cnn()
    return model.to(memory_format=torch.channels_last), (x.to(memory_format=torch.channels_last),)


def unet():
    return UNet(), (torch.randn(2, 1, 16, 16),)


def dlrm():
    return Dlrm(), (torch.randn(6, 13), torch.randint(0, 50, (6, 3, 4)))


def gated_cell():
    return GatedCell(), (torch.randn(5, 6, 12),)


def mlp_mixer():
    return nn.Sequential(MixerBlock(), MixerBlock(), nn.LayerNorm(24)), (torch.randn(3, 16, 24),)


def transformer_encoder():
    layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True, norm_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), (torch.randn(3, 10, 32),)


def conv1d_stack():
    return Conv1dStack(), (torch.randn(3, 4, 25),)


def conv3d_net():
    return Conv3dNet(), (torch.randn(2, 2, 6, 8, 8),)


MODELS = {
    build.__name__: build
    for build in (
        mlp, cnn, cnn_channels_last, unet, dlrm, gated_cell, mlp_mixer, transformer_encoder, conv1d_stack, conv3d_net,
    )
}  # fmt: skip
