"""ipex.optimize in training: precision, states of model and optimizer, and continuation."""

import copy
import io

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager, relative_error
from intel_extension_for_pytorch.nn.utils._weight_prepack import _IPEXConv2d, _IPEXLinear
from intel_extension_for_pytorch.optim._lamb import Lamb
from torch import nn
from torch.optim import ASGD, SGD, Adadelta, Adagrad, Adam, Adamax, AdamW, RMSprop, Rprop

needs_bf16 = pytest.mark.needs_cpu("avx512f")
DTYPES = [torch.float32, pytest.param(torch.bfloat16, marks=needs_bf16)]
OPTIMIZERS = [Lamb, Adadelta, Adagrad, Adam, AdamW, Adamax, ASGD, RMSprop, Rprop, SGD]
FUSED = [Lamb, Adagrad, Adam, AdamW, SGD]
MODES = ["fp32", *(pytest.param(mode, marks=needs_bf16) for mode in ("split", "master"))]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.bn = nn.BatchNorm2d(8)
        self.linear = nn.Linear(8, 5)
        self.embeddingbag = nn.EmbeddingBag(10, 8, mode="sum")

    def forward(self, x, indices):
        y = self.bn(self.conv(x)).relu().mean((2, 3))
        return self.linear(y + self.embeddingbag(indices))


def net():
    torch.manual_seed(0)
    return Net().train()


def batch(seed):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(6, 3, 7, 7, generator=generator)
    return (x, torch.randint(0, 10, (6, 3), generator=generator)), torch.randint(0, 5, (6,), generator=generator)


def settings(mode):
    if mode == "fp32":
        return {}
    return {"dtype": torch.bfloat16, "split_master_weight_for_bf16": mode == "split"}


def optimized(mode="fp32", kind=SGD, model=None, **options):
    model = model or net()
    arguments = {SGD: {"lr": 0.05, "momentum": 0.9}, Rprop: {"lr": 1e-3}}.get(kind, {"lr": 1e-2})
    optimizer = kind(model.parameters(), **arguments)
    return ipex.optimize(model, optimizer=optimizer, **settings(mode), **options)


def train(model, optimizer, steps, first=0):
    losses = []
    low = any(p.dtype is torch.bfloat16 for p in model.parameters())
    for step in range(first, first + steps):
        given, target = batch(step)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=low):
            loss = nn.functional.cross_entropy(model(*given).float(), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)


def assert_equal_states(a, b):
    assert a.keys() == b.keys()
    for key in a:
        if isinstance(a[key], dict):
            assert_equal_states(a[key], b[key])
        elif isinstance(a[key], torch.Tensor):
            assert a[key].dtype is b[key].dtype and torch.equal(a[key], b[key]), key
        else:
            assert a[key] == b[key], key


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_step_against_the_given_optimizer(kind, dtype):
    """With frozen parameters; in bf16 within what rounding the activations costs."""
    model = net()
    model.conv.requires_grad_(False)
    optimizer = kind(model.parameters(), lr=1e-4 if kind is SGD else 1e-2)
    ours, our_optimizer = ipex.optimize(model, optimizer=optimizer, dtype=dtype)
    assert [p.requires_grad for p in ours.parameters()] == [p.requires_grad for p in model.parameters()]
    given, target = batch(0)
    for run, step in ((model, optimizer), (ours, our_optimizer)):
        step.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16):
            loss = nn.functional.cross_entropy(run(*given).float(), target)
        loss.backward()
        step.step()
        assert run.conv.weight.grad is None
    wanted, got = model.state_dict(), ours.state_dict()
    for key in wanted:
        assert got[key].dtype is wanted[key].dtype
        limit = 1e-5 if dtype is torch.float32 else 5e-2
        torch.testing.assert_close(got[key], wanted[key], rtol=1e-4, atol=limit)


@pytest.mark.parametrize("kind", FUSED)
@pytest.mark.parametrize("mode", MODES)
def test_training_learns_as_plain_training(mode, kind):
    model = net()
    ours = optimized(mode, kind, model)
    plain = kind(model.parameters(), **{k: v for k, v in ours[1].param_groups[0].items() if k in ("lr", "momentum")})
    plain_losses, losses = train(model, plain, 20), train(*ours, 20)
    assert relative_error(losses, plain_losses) < (1e-4 if mode == "fp32" else 2e-2)


@needs_bf16
@pytest.mark.parametrize("level", ["O0", "O1"])
@pytest.mark.parametrize("inplace", [False, True])
def test_inplace(inplace, level):
    model = net()
    sgd = SGD(model.parameters(), lr=0.1)
    ours, optimizer = ipex.optimize(model, torch.bfloat16, sgd, level=level, inplace=inplace)
    assert (ours is model) == (optimizer is sgd) == inplace
    for name in ("linear", "conv", "embeddingbag"):
        given, result = getattr(model, name).weight, getattr(ours, name).weight
        assert (given.data_ptr() == result.data_ptr()) == inplace
        assert result.dtype is torch.bfloat16
        assert given.dtype is (torch.bfloat16 if inplace else torch.float32)
    assert ours.bn.weight.dtype is torch.float32
    assert {id(p) for group in optimizer.param_groups for p in group["params"]} == {id(p) for p in ours.parameters()}


def test_which_layers_are_replaced():
    assert type(optimized()[0].linear) is nn.Linear  # fp32 in training
    assert type(optimized(auto_kernel_selection=True)[0].linear) is _IPEXLinear
    assert type(optimized()[0].conv) is _IPEXConv2d
    assert type(optimized(level="O0")[0].conv) is nn.Conv2d


@needs_bf16
def test_wrappers():
    model, optimizer = optimized("master")
    wrapper = optimizer.params_attr[model.conv.weight]
    assert model.params_attr is optimizer.params_attr or model.params_attr == optimizer.params_attr
    assert wrapper.parameter is model.conv.weight and model.conv.weight.dtype is torch.bfloat16
    assert wrapper.master_parameter.dtype is torch.float32 and optimizer.fused
    model, optimizer = optimized("split")
    wrapper = optimizer.params_attr[model.conv.weight]
    assert wrapper.split and wrapper.parameter_trail.dtype is torch.bfloat16 and wrapper.master_parameter is None


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_continuation_is_bit_equal(kind, mode):
    """States saved in the middle, as files, loaded into a fresh pair."""
    model, optimizer = optimized(mode, kind)
    train(model, optimizer, 3)
    file = io.BytesIO()
    torch.save((model.state_dict(), optimizer.state_dict()), file)
    file.seek(0)
    fresh = optimized(mode, kind)
    states = torch.load(file)
    assert all(v.dtype is not torch.bfloat16 for v in states[0].values())
    assert fresh[0].load_state_dict(states[0]) == ([], [])
    fresh[1].load_state_dict(states[1])
    assert_equal_states(fresh[0].state_dict(), states[0])
    assert_equal_states(fresh[1].state_dict(), states[1])
    assert torch.equal(train(model, optimizer, 4, first=3), train(*fresh, 4, first=3))
    assert_equal_states(model.state_dict(), fresh[0].state_dict())
    assert_equal_states(optimizer.state_dict(), fresh[1].state_dict())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", FUSED)
def test_states_fit_plain_training(kind, mode):
    """Both states load into the plain model and optimizer, and theirs into the optimized pair."""
    model, optimizer = optimized(mode, kind)
    train(model, optimizer, 2)
    plain = net()
    other = kind(plain.parameters(), lr=1e-2)
    plain.load_state_dict(model.state_dict())
    other.load_state_dict(optimizer.state_dict())
    for p in plain.parameters():
        assert all(v.dtype is torch.float32 for v in other.state[p].values() if isinstance(v, torch.Tensor))
    losses = train(plain, other, 2, first=2)
    assert losses.isfinite().all()
    model.load_state_dict(plain.state_dict())
    optimizer.load_state_dict(other.state_dict())
    assert_equal_states(model.state_dict(), plain.state_dict())
    assert train(model, optimizer, 2, first=4).isfinite().all()


@pytest.mark.parametrize("mode", MODES)
def test_training_to_inference(mode):
    model, optimizer = optimized(mode)
    train(model, optimizer, 3)
    dtype = torch.float32 if mode == "fp32" else torch.bfloat16
    inference = ipex.optimize(net().eval(), dtype=dtype, conv_bn_folding=False)
    inference.load_state_dict(model.state_dict())
    wanted = net().eval()
    wanted.load_state_dict(model.state_dict())
    given, _ = batch(9)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=mode != "fp32"):
        assert relative_error(inference(*given), wanted(*given)) < (1e-5 if mode == "fp32" else 2e-2)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("prepack", [False, True])
def test_optimize_again(prepack, inplace, mode):
    """Three times, with a step after each."""
    model, optimizer = net(), None
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    reference, plain = net(), None
    plain = SGD(reference.parameters(), lr=0.05, momentum=0.9)
    for step in range(3):
        model, optimizer = ipex.optimize(
            model, optimizer=optimizer, inplace=inplace, weights_prepack=prepack, graph_mode=step == 1, **settings(mode)
        )
        losses = train(model, optimizer, 1, first=step)
        assert relative_error(losses, train(reference, plain, 1, first=step)) < (1e-4 if mode == "fp32" else 3e-2)
    assert all(v.dtype is not torch.bfloat16 for v in model.state_dict().values())


@pytest.mark.parametrize("mode", MODES)
def test_copies_are_independent(mode):
    model, optimizer = optimized(mode)
    train(model, optimizer, 1)
    again = copy.deepcopy(model)
    before = copy.deepcopy(again.state_dict())
    train(model, optimizer, 2, first=1)
    assert_equal_states(again.state_dict(), before)


@pytest.mark.parametrize("mode", MODES)
def test_several_optimizers(mode):
    """A sparse and a dense one, as DLRM's users have; the same kind of collection comes back."""

    class Dlrm(Net):
        def __init__(self):
            super().__init__()
            self.embeddingbag = nn.EmbeddingBag(10, 8, mode="sum", sparse=True)

    torch.manual_seed(0)
    model = Dlrm().train()
    dense = Adam([p for n, p in model.named_parameters() if "embedding" not in n], lr=1e-2)
    sparse = SGD(model.embeddingbag.parameters(), lr=0.05)
    ours, optimizers = ipex.optimize(model, optimizer=(dense, sparse), **settings(mode))
    assert type(optimizers) is tuple and isinstance(optimizers[0], Adam) and isinstance(optimizers[1], SGD)
    before = ours.state_dict()["embeddingbag.weight"].clone()
    losses = []
    for step in range(6):
        given, target = batch(step)
        for optimizer in optimizers:
            optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=mode != "fp32"):
            loss = nn.functional.cross_entropy(ours(*given).float(), target)
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        losses.append(loss.detach())
    assert torch.stack(losses).isfinite().all()
    assert not torch.equal(ours.state_dict()["embeddingbag.weight"], before)
    both = SGD(model.parameters(), lr=0.1)
    with pytest.raises((ValueError, RuntimeError), match="optimizer"):
        ipex.optimize(model, optimizer=[both, sparse], **settings(mode))


def test_learning_rate_schedule():
    model, optimizer = optimized("fp32")
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.1)
    train(model, optimizer, 1)
    schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.005)


@needs_bf16
def test_partial_update():
    """Two layers, a loss over one."""

    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2 = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x):
            return self.l1(x), self.l2(x)

    model = Two().train()
    ours, optimizer = ipex.optimize(model, torch.bfloat16, AdamW(model.parameters()))
    before = copy.deepcopy(ours.state_dict())
    with torch.autocast("cpu", torch.bfloat16):
        loss = ours(torch.randn(3, 4))[0].sum()
    loss.backward()
    optimizer.step()
    assert torch.equal(ours.state_dict()["l2.weight"], before["l2.weight"])
    assert not torch.equal(ours.state_dict()["l1.weight"], before["l1.weight"])


@pytest.mark.parametrize("mode", MODES)
def test_compiled(mode):
    """torch.compile of the optimized model trains as the optimized model does in eager mode."""
    eager = optimized(mode)
    model, optimizer = optimized(mode)
    losses = train(torch.compile(model, backend="ipex"), optimizer, 6)
    assert relative_error(losses, train(*eager, 6)) < (1e-4 if mode == "fp32" else 2e-2)


@needs_bf16
def test_optimizers_that_cannot_split(caplog):
    model = net()
    ours, optimizer = ipex.optimize(
        model, torch.bfloat16, RMSprop(model.parameters()), split_master_weight_for_bf16=True
    )
    assert "[NotSupported]" in caplog.text
    assert optimizer.params_attr[ours.linear.weight].master_parameter is not None
    caplog.clear()
    ipex.optimize(model, torch.bfloat16, RMSprop(model.parameters()))
    assert not caplog.records


def test_users_script():
    """As people write it: a uint8 target, SGD without a learning rate, and a loss of the model's own dtype."""
    model = net()
    model, optimizer = ipex.optimize(model, optimizer=SGD(model.parameters()))
    given, target = batch(0)
    loss = nn.CrossEntropyLoss()(model(*given), target.to(torch.uint8))
    loss.backward()
    optimizer.step()
    assert_close_to_eager(loss.detach(), nn.CrossEntropyLoss()(net()(*given), target).detach(), scale=20)
