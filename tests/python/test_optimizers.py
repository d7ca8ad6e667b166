"""Compiled optimizers: `torch.compile(opt.step)` agrees with eager. It runs one kernel for all parameters of a group,
and one for step counters that are tensors."""

import copy

import pytest
import torch
from comparison import assert_close_to_eager, assert_near_in_norm
from torch import nn

OPTIMIZERS = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}, 1),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}, 1),
    "adam": (torch.optim.Adam, {"lr": 0.01}, 2),
    "adam_amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}, 2),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "weight_decay": 0.1}, 2),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.01}, 2),
}


class Convolutional(nn.Module):
    """A model with parameters of many shapes, one in channels-last layout and optionally some with one element."""

    def __init__(self, outputs=1):
        super().__init__()
        self.convolution = nn.Conv2d(3, 8, 3).to(memory_format=torch.channels_last)
        self.hidden = nn.Linear(8, 300)
        self.wide = nn.Linear(300, 200)
        self.out = nn.Linear(200, outputs)
        self.scale = nn.Parameter(torch.tensor(0.5)) if outputs == 1 else 0.5

    def forward(self, x):
        x = torch.tanh(self.convolution(x)).mean((2, 3))
        return self.out(torch.tanh(self.wide(torch.tanh(self.hidden(x))))) * self.scale


def trained(compile_it, model, optimizer, arguments, steps=6, schedule=False):
    """The model after some steps with eager gradients, and the optimizer's state."""
    opt = optimizer(model.parameters(), **arguments)
    step = compile_it(opt.step)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.9) if schedule else None
    for i in range(steps):
        opt.zero_grad()
        x = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(i))
        model(x).square().sum().backward()
        step()
        if scheduler:
            scheduler.step()
    return model, opt


def states(model, opt):
    return [*model.parameters(), *(opt.state[p][key] for p in model.parameters() for key in sorted(opt.state[p]))]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("foreach", [False, True], ids=["for", "foreach"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_follows_eager(name, foreach, compiled, strict):
    optimizer, arguments, _ = OPTIMIZERS[name]
    arguments = {**arguments, "foreach": foreach}
    eager = Convolutional()
    ours = copy.deepcopy(eager)
    expected = states(*trained(lambda step: step, eager, optimizer, arguments))
    assert_near_in_norm(states(*trained(compiled, ours, optimizer, arguments)), expected)


@pytest.mark.one_in(2)
@pytest.mark.needs_ipex
@pytest.mark.parametrize("foreach", [False, True], ids=["for", "foreach"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_one_kernel_a_group(name, foreach, compiled):
    """There is one kernel for any number of parameters. The channels-last one is included, because its state has the
    same layout. (A parameter with one element is fused with its step counter in a kernel of its own.)"""
    from intel_extension_for_pytorch.compiler.records import record_reports

    optimizer, arguments, kernels = OPTIMIZERS[name]
    model = Convolutional(outputs=2)
    with record_reports() as reports:
        trained(compiled, model, optimizer, {**arguments, "foreach": foreach})
    assert not any(report["eager"] or report["extern_steps"] for report in reports)
    assert reports[-1]["kernel_steps"] == kernels, [step["name"] for step in reports[-1]["steps"]]
    assert reports[-1]["steps"][-1]["detail"] == f"over {len(list(model.parameters()))} tensors"


def test_two_groups(compiled):
    def grouped(compile_it, model):
        opt = torch.optim.AdamW(
            [
                {"params": [model.hidden.weight, model.wide.weight], "weight_decay": 0.1},
                {"params": [model.hidden.bias, model.wide.bias, model.out.bias], "weight_decay": 0.0, "lr": 0.1},
            ],
            lr=0.01,
        )
        step = compile_it(opt.step)
        for i in range(3):
            opt.zero_grad()
            model(torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(i))).square().sum().backward()
            step()
        return list(model.parameters())

    eager = Convolutional()
    ours = copy.deepcopy(eager)
    assert_near_in_norm(grouped(compiled, ours), grouped(lambda step: step, eager))


@pytest.mark.parametrize("tensor_rate", [False, True])
def test_learning_rate_changes(tensor_rate, compiled):
    """A tensor learning rate can change without a new graph; a number is part of the graph."""
    arguments = {"lr": torch.tensor(0.01) if tensor_rate else 0.01, "foreach": not tensor_rate}
    eager = Convolutional()
    ours = copy.deepcopy(eager)
    expected = states(*trained(lambda step: step, eager, torch.optim.Adam, copy.deepcopy(arguments), schedule=True))
    torch._dynamo.utils.counters.clear()
    found = states(*trained(compiled, ours, torch.optim.Adam, copy.deepcopy(arguments), schedule=True))
    assert_near_in_norm(found, expected)
    if tensor_rate:
        assert torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 2


def test_bfloat16_parameters(compiled):
    """Each stored tensor is rounded once, whereas eager rounds after every operation."""

    def updated(compile_it, dtype):
        torch.manual_seed(0)
        parameters = [nn.Parameter(torch.randn(n).bfloat16().to(dtype)) for n in (1000, 37)]
        opt = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
        step = compile_it(opt.step)
        for i in range(3):
            for p in parameters:
                p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(i)).bfloat16().to(dtype)
            step()
        return parameters

    reference = updated(lambda step: step, torch.float64)
    ours, eager = updated(compiled, torch.bfloat16), updated(lambda step: step, torch.bfloat16)
    for a, b, exact in zip(ours, eager, reference, strict=True):
        assert (a.double() - exact).norm() <= 1.1 * (b.double() - exact).norm()


def test_updates_that_read_each_other(compiled):
    """Updates of a batch run at the same time. If one reads a tensor that another writes, it must read the old
    value."""

    def function(a, b, c):
        new_a, new_b, new_c = a * 0.5 + b, b * 0.5 + c, c * 0.5 + a
        a.copy_(new_a)
        b.copy_(new_b)
        c.copy_(new_c)

    ours, eager = ([torch.randn(50_000, generator=torch.Generator().manual_seed(i)) for i in range(3)] for _ in "ab")
    run = compiled(function)
    for _ in range(3):
        run(*ours)
        function(*eager)
    assert_close_to_eager(ours, eager)


def test_views_of_one_buffer(compiled):
    """Parameters that are slices of one flat tensor."""

    def function(*parameters):
        for p, g in zip(parameters[::2], parameters[1::2], strict=True):
            p.add_(g, alpha=-0.1)

    def slices(flat):
        return [part for p, g in zip(flat.split([7, 20_000, 1, 33]), (flat * 2).split([7, 20_000, 1, 33]), strict=True)
                for part in (p, g)]  # fmt: skip

    ours = torch.randn(20_041)
    eager = ours.clone()
    compiled(function)(*slices(ours))
    function(*slices(eager))
    assert_close_to_eager(ours, eager)


@pytest.mark.parametrize("op", ["norm", "maximum", "addcdiv", "lerp", "pow", "clamp_min", "round", "max"])
def test_list_operators(op, compiled):
    """torch._foreach_*: the op on each tensor, with one number for all tensors or one for each."""
    tensors, others = ([torch.rand(n) + 0.5 for n in (5, 300, 1)] for _ in range(2))
    calls = {
        "norm": [(tensors,), (tensors, 1)],
        "maximum": [(tensors, others), (tensors, 0.7), (tensors, [0.6, 0.7, 0.8])],
        "addcdiv": [(tensors, others, others, 0.3), (tensors, others, others, [0.1, 0.2, 0.3])],
        "lerp": [(tensors, others, 0.3), (tensors, others, 0.8), (tensors, others, others)],
        "pow": [(tensors, 2.0), (tensors, others), (1.5, tensors)],
        "clamp_min": [(tensors, 0.9)],
        "round": [(tensors,)],
        "max": [(tensors,)],
    }
    function = getattr(torch, f"_foreach_{op}")
    for arguments in calls[op]:
        ours = compiled(lambda: function(*arguments))()  # noqa: B023
        assert_close_to_eager(ours, function(*arguments), scale=4.0)
