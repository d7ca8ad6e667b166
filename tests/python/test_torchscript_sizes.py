"""Frozen TorchScript models that are called with many sizes: how many programs are compiled, and when."""

import pytest
import torch
from test_torchscript import called, counts, frozen
from torch import nn

pytestmark = [
    pytest.mark.needs_ipex,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"),
]


def compiled_and_run(script, model, *calls):
    """Counts of programs compiled, runs of programs, and runs by the interpreter; the results are eager's."""
    before = counts()
    for inputs in calls:
        torch.testing.assert_close(called(script, *inputs)[0], model(*inputs).detach(), rtol=1e-4, atol=1e-5)
    return tuple(b - a for a, b in zip(before, counts(), strict=True))


class Pictures(nn.Module):
    """Convolutions with strides, and a mean: sizes are quotients of the picture's."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 2), nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.second(self.first(x).relu()).relu().mean((2, 3)))


class Sentences(nn.Module):
    """Positions that depend on the length, and attention with a mask: two sizes, and products of them."""

    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(64, 16)
        self.project, self.out = nn.Linear(16, 48), nn.Linear(16, 5)

    def forward(self, tokens, mask):
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        query, key, value = self.project(x).view(*tokens.shape, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        scores = query @ key.transpose(-1, -2) / 8**0.5 + mask[:, None, None, :]
        y = (scores.softmax(-1) @ value).transpose(1, 2).reshape(*tokens.shape, 16)
        return self.out(y)


def sentences(batch, length):
    return torch.randint(0, 50, (batch, length)), torch.randn(batch, length)


def test_one_program_serves_many_sizes():
    """After programs for four sizes, the fifth compiles one with symbols."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).eval()
    script = frozen(model, (torch.randn(2, 4),), torch.float32)
    called(script, torch.randn(2, 4))

    def run(*all_rows):
        return compiled_and_run(script, model, *[(torch.randn(rows, 4),) for rows in all_rows])

    assert run(2, 3, 5, 8) == (4, 4, 0)
    assert run(13) == (1, 1, 0)
    assert run(*range(4, 200)) == (0, 196, 0)
    assert run(1, 1) == (1, 2, 0)  # other code


def test_one_program_serves_many_pictures():
    torch.manual_seed(0)
    model = Pictures().eval()
    script = frozen(model, (torch.randn(2, 3, 16, 16),), torch.float32)
    called(script, torch.randn(2, 3, 16, 16))

    def run(*sizes):
        return compiled_and_run(script, model, *[(torch.randn(n, 3, *size),) for n, size in sizes])

    assert run((2, (16, 17)), (3, (20, 24)), (4, (19, 31)), (5, (32, 18))) == (4, 4, 0)
    assert run((7, (41, 22))) == (1, 1, 0)
    assert run(*((n, (h, w)) for n in (2, 6) for h in range(12, 20) for w in (14, 33))) == (0, 32, 0)


def test_one_program_serves_many_lengths():
    torch.manual_seed(0)
    model = Sentences().eval()
    script = frozen(model, sentences(2, 7), torch.float32)
    called(script, *sentences(2, 7))

    def run(*sizes):
        return compiled_and_run(script, model, *[sentences(*size) for size in sizes])

    assert run((2, 7), (3, 9), (4, 6), (5, 11)) == (4, 4, 0)
    assert run((7, 13)) == (1, 1, 0)
    assert run(*((batch, length) for batch in (2, 3, 6) for length in range(5, 17, 3))) == (0, 12, 0)


def test_sizes_that_were_equal_by_chance():
    """A program for equal sizes is not used where they differ. After four more sizes, one for both replaces it."""
    torch.manual_seed(0)
    model = Sentences().eval()
    script = frozen(model, sentences(3, 3), torch.float32)
    called(script, *sentences(3, 3))

    def run(*sizes):
        return compiled_and_run(script, model, *[sentences(*size) for size in sizes])

    assert run(*((n, n) for n in (3, 5, 6, 7, 9))) == (5, 5, 0)
    assert run((10, 10), (11, 11)) == (0, 2, 0)
    different = run((3, 9), (5, 7), (4, 6), (6, 12), (7, 11), (5, 13))
    assert different[0] <= 6 and different[1:] == (6, 0)
    assert run((4, 14), (9, 5), (12, 12)) == (0, 3, 0)


class Scaled(nn.Module):
    """The number of rows is a constant of the program, so each needs its own."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x) * 2.0 ** -x.shape[0]


def test_programs_are_bounded():
    """Where one program cannot serve all sizes, a size is compiled at its second call after 8 programs. A node keeps 64
    programs; the one that was used least recently is compiled again."""
    torch.manual_seed(0)
    model = Scaled().eval()
    script = frozen(model, (torch.randn(2, 4),), torch.float32)
    called(script, torch.randn(1, 4))

    def compiled(*all_rows):
        return compiled_and_run(script, model, *[(torch.randn(rows, 4),) for rows in all_rows])

    assert compiled(*range(2, 10)) == (8, 8, 0)
    assert compiled(*range(10, 67)) == (0, 0, 57)
    assert compiled(*range(10, 66)) == (56, 56, 0)
    assert compiled(2, 65) == (0, 2, 0)
    assert compiled(66) == (1, 1, 0)  # 3 goes
    assert compiled(2, 4, 66) == (0, 3, 0)
    assert compiled(3, 3) == (1, 1, 1)
