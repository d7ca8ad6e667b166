"""Cases of ipex.optimize that users of training loops, copies and unusual models meet."""

import copy
import pickle

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

needs_bf16 = pytest.mark.needs_cpu("avx512f")


def test_copies_in_graph_mode_have_their_own_weights():
    model = ipex.optimize(nn.Sequential(nn.Linear(4, 4)).eval(), graph_mode=True)
    x = torch.randn(2, 4)
    with torch.no_grad():
        before = model(x)
        for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            again.load_state_dict({key: torch.zeros_like(value) for key, value in model.state_dict().items()})
            assert torch.equal(again(x), torch.zeros(2, 4))
        assert torch.equal(model(x), before)


def test_parameters_outside_the_model_are_trained():
    model, other = nn.Linear(4, 4).train(), nn.Linear(4, 4)
    optimizer = torch.optim.SGD([*model.parameters(), *other.parameters()], lr=0.5)
    before = other.weight.detach().clone()
    ours, optimizer = ipex.optimize(model, optimizer=optimizer)
    other(ours(torch.randn(2, 4))).sum().backward()
    optimizer.step()
    assert not torch.equal(other.weight, before)


@needs_bf16
def test_one_optimizer_of_two_models():
    """Small updates of both accumulate in the low halves."""
    first, second = nn.Linear(4, 4).train(), nn.Linear(4, 4).train()
    optimizer = torch.optim.SGD([*first.parameters(), *second.parameters()], lr=1e-5)
    first, optimizer = ipex.optimize(first, torch.bfloat16, optimizer, inplace=True)
    second, optimizer = ipex.optimize(second, torch.bfloat16, optimizer, inplace=True)
    before = [m.state_dict()["weight"].clone() for m in (first, second)]
    for _ in range(20):
        with torch.autocast("cpu", torch.bfloat16):
            second(first(torch.ones(2, 4))).sum().backward()
        optimizer.step()
    for model, old in zip((first, second), before, strict=True):
        assert not torch.equal(model.state_dict()["weight"], old)


@needs_bf16
def test_written_weights_reach_the_master():
    """Weights that a training loop clamps or sets are those of the next step and of the state."""
    model = nn.Linear(4, 4).train()
    model, optimizer = ipex.optimize(model, torch.bfloat16, torch.optim.RMSprop(model.parameters(), lr=1e-3))
    for write in (lambda p: p.data.clamp_(-0.01, 0.01), lambda p: p.data.zero_(), lambda p: nn.init.constant_(p, 0.5)):
        model(torch.randn(2, 4)).sum().backward()
        optimizer.step()
        for p in model.parameters():
            write(p)
        for name, p in model.named_parameters():
            torch.testing.assert_close(model.state_dict()[name], p.detach().float(), rtol=2**-8, atol=0)


class Masked(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.bn = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
        self.bn.running_mean.fill_(2.0)

    def forward(self, x, mask=None):
        y = self.conv(x)
        return y if mask is None else self.bn(y) * mask


class Reads(Masked):
    def forward(self, x):
        return self.bn(self.conv(x)) + nn.functional.conv2d(x, self.conv.weight, self.conv.bias)


@pytest.mark.parametrize("model", [Masked(), Reads()], ids=["optional argument", "weight read elsewhere"])
def test_folding_needs_one_path(model):
    ours, x = ipex.optimize(model.eval()), torch.randn(1, 3, 4, 4)
    assert type(ours.bn) is nn.BatchNorm2d
    with torch.no_grad():
        assert_close_to_eager(ours(x), model(x), scale=20)


@needs_bf16
def test_inference_mode_casts_inputs():
    model = ipex.optimize(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(16, 4)).eval(), torch.bfloat16)
    x = torch.randn(2, 3, 4, 4)
    with torch.no_grad():
        wanted = model(x)
    with torch.inference_mode():
        assert torch.equal(model(x), wanted)
        assert model[0](torch.randn(3, 4, 4)).shape == (4, 2, 2)


@needs_bf16
def test_transformer_encoder_without_autocast():
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)
    model = nn.TransformerEncoder(layer, 2).eval()
    ours, x = ipex.optimize(model, torch.bfloat16), torch.randn(2, 5, 16)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), model(x), rtol=0.1, atol=0.1)


@needs_bf16
def test_lstm_inputs_without_autocast():
    class Net(nn.Module):
        def __init__(self, **settings):
            super().__init__()
            self.lstm = nn.LSTM(4, 8, **settings)

        def forward(self, x):
            return self.lstm(x)[0]

    ours = ipex.optimize(Net().eval(), torch.bfloat16)
    with torch.no_grad():
        assert ours(torch.randn(3, 4)).shape == (3, 8)
        packed = pack_padded_sequence(torch.randn(3, 2, 4), torch.tensor([3, 2]))
        assert ours(packed).data.dtype is torch.bfloat16
        assert ipex.optimize(Net(proj_size=2).eval(), torch.bfloat16)(torch.randn(3, 2, 4)).shape == (3, 2, 2)


@needs_bf16
def test_parametrization_after_optimize():
    ours = ipex.optimize(nn.Sequential(nn.Linear(4, 4)).eval(), torch.bfloat16)
    nn.utils.parametrizations.weight_norm(ours[0])
    ours.load_state_dict(ours.state_dict())


@pytest.mark.parametrize("layer, shape", [(nn.Linear(3, 3), (2, 3)), (nn.Conv2d(3, 3, 1), (1, 3, 2, 2))])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64])
def test_inputs_that_are_no_floating_point_numbers(layer, shape, dtype):
    ours = ipex.optimize(nn.Sequential(layer).eval())
    with pytest.raises(RuntimeError, match="floating-point"):
        ours(torch.ones(shape, dtype=dtype))


def test_lazy_modules():
    ours = ipex.optimize(nn.Sequential(nn.LazyConv2d(4, 3)).eval())
    assert ours(torch.randn(1, 2, 5, 5)).shape == (1, 4, 3, 3)


@needs_bf16
def test_the_given_model_of_a_folded_copy_can_be_called():
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2)).eval()
    ipex.optimize(model, torch.bfloat16, inplace=True)
    with torch.no_grad():
        assert model(torch.randn(1, 3, 2, 2)).shape == (1, 2)


def test_wrong_arguments():
    model = nn.Linear(2, 2).train()
    with pytest.raises(TypeError, match="optimizer must be torch.optim.Optimizer"):
        ipex.optimize(model, optimizer="sgd")
    with pytest.raises(TypeError, match=r"model must be a torch.nn.Module, got function"):
        ipex.optimize(lambda x: x)


class Blocks(nn.Module):
    """Batch norms beside their convolution and in another module, with and without a bias."""

    def __init__(self):
        super().__init__()
        self.conv, self.outer = nn.Conv2d(3, 4, 1, bias=False), nn.Module()
        self.outer.norm = nn.BatchNorm2d(4)
        self.rest = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2), nn.BatchNorm2d(6))
        with torch.no_grad():
            for norm in (self.outer.norm, self.rest[1]):
                for tensor in (norm.weight, norm.bias, norm.running_mean):
                    tensor.normal_()
                norm.running_var.uniform_(0.5, 2)

    def forward(self, x):
        return self.rest(self.outer.norm(self.conv(x)))


@pytest.mark.parametrize("dtype", [torch.float32, pytest.param(torch.bfloat16, marks=needs_bf16)])
@pytest.mark.parametrize("wrapped", [False, True])
def test_folded_models_load_plain_states(wrapped, dtype):
    other, x = Blocks().eval(), torch.randn(1, 3, 4, 4)
    ours = ipex.optimize(Blocks().eval(), dtype=dtype)
    wanted = ipex.optimize(other, dtype=dtype)
    assert type(ours.outer.norm) is type(ours.rest[1]) is nn.Identity
    for model in (ours, copy.deepcopy(ours)):
        run, plain = (nn.Sequential(model), nn.Sequential(other)) if wrapped else (model, other)
        assert run.load_state_dict(plain.state_dict()) == ([], [])
        with torch.no_grad():
            assert torch.equal(run(x), wanted(x))
        assert model.load_state_dict(wanted.state_dict()) == ([], [])  # of a folded model
        model.rest.load_state_dict(other.rest.state_dict())  # of a part
        with torch.no_grad():
            assert torch.equal(run(x), wanted(x))


@needs_bf16
@pytest.mark.parametrize("mode", ["inference", "split", "master"])
def test_a_kept_state_does_not_hide_later_writes(mode):
    """Writes that PyTorch does not count, while an earlier state_dict() is still held."""
    model = nn.Linear(4, 4)
    if mode == "inference":
        model = ipex.optimize(nn.Sequential(model).eval(), torch.bfloat16)[0]
    else:
        optimizer = torch.optim.SGD(model.train().parameters(), lr=0.1)
        model, _ = ipex.optimize(model, torch.bfloat16, optimizer, split_master_weight_for_bf16=mode == "split")
    kept = model.state_dict()
    model.weight.data.fill_(0.5)
    torch.testing.assert_close(model.state_dict()["weight"], torch.full((4, 4), 0.5), rtol=2**-7, atol=0)
    assert kept["weight"].shape == (4, 4)
