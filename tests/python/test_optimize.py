"""ipex.optimize in inference: what changes, what stays, and the values against the given model."""

import copy
import io
import itertools
import logging
import pickle

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager, relative_error
from intel_extension_for_pytorch.nn.utils._lstm_convert import _LSTM
from intel_extension_for_pytorch.nn.utils._weight_prepack import _IPEXConv2d, _IPEXLinear
from torch import nn

needs_bf16 = pytest.mark.needs_cpu("avx512f")  # elsewhere optimize() refuses bf16 weights: test_bf16_without_avx512
DTYPES = [torch.float32, pytest.param(torch.bfloat16, marks=needs_bf16)]


class Parts(nn.Module):
    """One of each kind of layer."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 10, 5)
        self.bn = nn.BatchNorm2d(10)
        self.linear = nn.Linear(10, 10)
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.LayerNorm(10)
        self.embeddingbag = nn.EmbeddingBag(10, 10, mode="sum")
        self.embedding = nn.Embedding(10, 10)
        with torch.no_grad():
            self.bn.running_mean.normal_()
            self.bn.running_var.uniform_(0.5, 2)

    def forward(self, x, indices):
        x = self.bn(self.conv(x)).mean((2, 3))
        y = self.embeddingbag(indices) + self.embedding(indices).sum(1)
        return self.norm(self.dropout(self.linear(x + y)))

    def named(self):
        return "a method of the class"


def parts():
    torch.manual_seed(0)
    return Parts().eval()


def inputs():
    torch.manual_seed(1)
    return torch.randn(4, 3, 9, 9), torch.randint(0, 10, (4, 3))


@pytest.mark.parametrize("inplace", [False, True])
@pytest.mark.parametrize("level", ["O0", "O1"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_values(dtype, level, inplace):
    model, given = parts(), inputs()
    with torch.no_grad():
        exact, eager = copy.deepcopy(model).double()(given[0].double(), given[1]), model(*given)
        with torch.autocast("cpu", enabled=dtype is torch.bfloat16):
            low = copy.deepcopy(model)(*given)
            ours = ipex.optimize(copy.deepcopy(model), dtype=dtype, level=level, inplace=inplace)(*given)
    if dtype is torch.float32:
        assert_close_to_eager(ours, eager, scale=20)
    else:
        # The batch norm is folded before the weight is rounded, so that the errors are of another kind.
        assert relative_error(ours, exact) <= 1.3 * relative_error(low, exact)


def test_what_is_replaced():
    model = parts()
    ours = ipex.optimize(model)
    assert type(ours) is Parts and ours.named() == model.named()
    assert type(ours.conv) is _IPEXConv2d and type(ours.linear) is _IPEXLinear
    assert type(ours.bn) is nn.Identity and type(ours.dropout) is nn.Identity and ours.dropout.p == 0.5
    assert ours.conv.weight.is_contiguous(memory_format=torch.channels_last)
    assert [type(m) for m in model.modules()] == [type(m) for m in parts().modules()]
    assert model.conv.weight.is_contiguous()
    plain = ipex.optimize(model, level="O0")
    assert [type(m) for m in plain.modules()] == [type(m) for m in model.modules()]


def test_switch_of_channels_last():
    ipex.disable_auto_channels_last()
    try:
        assert ipex.optimize(parts()).conv.weight.is_contiguous()
    finally:
        ipex.enable_auto_channels_last()
    assert not ipex.optimize(parts()).conv.weight.is_contiguous()


@needs_bf16
@pytest.mark.parametrize("level", ["O0", "O1"])
def test_which_parameters_are_cast(level):
    ours = ipex.optimize(parts(), dtype=torch.bfloat16, level=level)
    low = {"conv", "linear", "embedding"}
    for name, parameter in ours.named_parameters():
        assert (parameter.dtype is torch.bfloat16) == (name.split(".")[0] in low), name
    assert not hasattr(ours.conv, "master_weight")


@pytest.mark.parametrize("dtype", DTYPES)
def test_inplace(dtype):
    for level in ("O0", "O1"):
        model = parts()
        ours = ipex.optimize(model, dtype=dtype, level=level, inplace=True)
        folded = level == "O1"
        assert (ours is model) != folded
        assert (model.conv.weight.data_ptr() != ours.conv.weight.data_ptr()) == folded
        assert model.linear.weight is ours.linear.weight
        assert model.embeddingbag.weight is ours.embeddingbag.weight
    model = parts()
    ours = ipex.optimize(model, dtype=dtype)
    for name, parameter in model.named_parameters():
        if name in dict(ours.named_parameters()):
            assert parameter.data_ptr() != ours.get_parameter(name).data_ptr()


@needs_bf16
@pytest.mark.parametrize("where", ["root", "child", "sequential", "copy", "pickle", "file"])
def test_state_dict_shows_the_original_dtype(where):
    model = parts()
    ours = ipex.optimize(model, dtype=torch.bfloat16, conv_bn_folding=False)
    wanted = model.state_dict()
    if where == "child":
        got, wanted = ours.linear.state_dict(), model.linear.state_dict()
    elif where == "sequential":
        got = {key.removeprefix("0."): v for key, v in nn.Sequential(ours).state_dict().items()}
    elif where == "file":
        file = io.BytesIO()
        torch.save(ours, file)
        file.seek(0)
        got = torch.load(file, weights_only=False).state_dict()
    else:
        again = {"root": lambda m: m, "copy": copy.deepcopy, "pickle": lambda m: pickle.loads(pickle.dumps(m))}
        got = again[where](ours).state_dict()
    assert list(got) == list(wanted)
    for key, value in wanted.items():
        assert got[key].dtype is value.dtype and got[key].shape == value.shape
        torch.testing.assert_close(got[key], value, rtol=2**-8, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
def test_load_state_dict(dtype):
    other = parts()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
    ours = ipex.optimize(parts(), dtype=dtype, conv_bn_folding=False)
    wanted = ipex.optimize(other, dtype=dtype, conv_bn_folding=False)
    with torch.no_grad():
        ours(*inputs())  # packs the weights
        assert ours.load_state_dict(other.state_dict()) == ([], [])
        assert torch.equal(ours(*inputs()), wanted(*inputs()))


class Tied(nn.Module):
    def __init__(self, other=None):
        super().__init__()
        self.embedding = nn.Embedding(12, 8)
        self.head = nn.Linear(8, 12)
        self.head.weight = self.embedding.weight
        self.other = other
        if other is not None:
            other.weight = self.embedding.weight

    def forward(self, x):
        return self.head(self.embedding(x))


class Custom(nn.Module):
    """A class that is not listed."""


@needs_bf16
def test_tied_weights():
    ours = ipex.optimize(Tied().eval(), dtype=torch.bfloat16)
    assert ours.head.weight is ours.embedding.weight and ours.head.weight.dtype is torch.bfloat16
    assert type(ours.head) is nn.Linear  # a shared weight is not packed
    state = ours.state_dict()
    assert state["head.weight"].data_ptr() == state["embedding.weight"].data_ptr()
    assert state["head.weight"].dtype is torch.float32
    shared = ipex.optimize(Tied(Custom()).eval(), dtype=torch.bfloat16)
    assert all(p.dtype is torch.float32 for p in shared.parameters())  # the bias beside it too


@pytest.mark.parametrize("dtype", DTYPES)
def test_optimize_again(dtype):
    model = parts()
    once = ipex.optimize(model, dtype=dtype)
    thrice = ipex.optimize(ipex.optimize(once, dtype=dtype), dtype=dtype)
    with torch.no_grad():
        assert torch.equal(once(*inputs()), thrice(*inputs()))
    assert list(once.state_dict()) == list(thrice.state_dict())
    assert all(v.dtype is not torch.bfloat16 for v in thrice.state_dict().values())


def test_bad_arguments():
    model = parts()
    with pytest.raises(AssertionError, match="The optimizer should not be given for inference mode"):
        ipex.optimize(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    with pytest.raises(AssertionError, match="The optimizer should be given for training mode"):
        ipex.optimize(model.train())
    with pytest.raises(RuntimeError, match="Unexpected optimization level O3. Options are 'O0', 'O1'."):
        ipex.optimize(model.eval(), level="O3")
    with pytest.raises(ValueError, match="float8"):
        ipex.optimize(model, dtype=torch.float8_e4m3fn)


def test_script_modules_are_returned():
    frozen = torch.jit.freeze(torch.jit.trace(parts(), inputs()))
    assert ipex.optimize(frozen) is frozen
    optimizer = object()
    assert ipex.optimize(frozen, optimizer=optimizer) == (frozen, optimizer)


@needs_bf16
def test_other_dtypes_are_left(caplog):
    with caplog.at_level(logging.WARNING, logger="IPEX"):
        ours = ipex.optimize(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(3, 3)).double().eval(), dtype=torch.bfloat16)
    assert [(r.levelname, r.name, r.getMessage()) for r in caplog.records] == [
        ("WARNING", "IPEX", "[NotSupported]Can't convert model's parameters dtype from torch.float64 to torch.bfloat16")
    ]
    assert all(p.dtype is torch.float64 for p in ours.parameters())


@pytest.mark.lacks_cpu("avx512f")
def test_bf16_without_avx512():
    with pytest.raises(AssertionError, match="BF16 weight prepack needs the cpu support"):
        ipex.optimize(parts(), dtype=torch.bfloat16)
    assert ipex.optimize(parts(), dtype=torch.bfloat16, weights_prepack=False).linear.weight.dtype is torch.bfloat16


@pytest.mark.lacks_cpu("avx512_fp16")
def test_f16_without_instructions():
    with pytest.raises(AssertionError, match="FP16 weight prepack needs the cpu support"):
        ipex.optimize(parts(), dtype=torch.float16)


NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
CONVS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}


def randomized(norm):
    with torch.no_grad():
        for tensor in (norm.running_mean, norm.weight, norm.bias):
            if tensor is not None:
                tensor.normal_()
        norm.running_var.uniform_(0.5, 2)
    return norm


@pytest.mark.parametrize("rank, transposed, bias, affine", [*itertools.product((1, 2, 3), *[(False, True)] * 3)])
def test_convolution_folding(rank, transposed, bias, affine):
    torch.manual_seed(0)
    conv = (TRANSPOSED if transposed else CONVS)[rank](4, 6, 3, groups=2, bias=bias)
    model = nn.Sequential(conv, randomized(NORMS[rank](6, affine=affine)), nn.ReLU()).eval()
    x = torch.randn(2, 4, *[6] * rank)
    for level in ("O0", "O1"):
        ours = ipex.optimize(model, level=level, conv_bn_folding=True)
        assert type(ours[1]) is nn.Identity
        with torch.no_grad():
            assert_close_to_eager(ours(x), model(x), scale=20)
    assert type(ipex.optimize(model, conv_bn_folding=False)[1]) is NORMS[rank]


def test_linear_folding():
    """Only with an input that is known to be [N, features]: over [N, C, L] the norm's channels are not the features."""
    model = nn.Sequential(nn.Linear(5, 5), randomized(nn.BatchNorm1d(5))).eval()
    flat, deep = torch.randn(4, 5), torch.randn(4, 5, 5)
    folded, kept = ipex.optimize(model, sample_input=flat), ipex.optimize(model)
    assert type(folded[1]) is nn.Identity and type(kept[1]) is nn.BatchNorm1d
    with torch.no_grad():
        assert_close_to_eager(folded(flat), model(flat), scale=20)
        assert_close_to_eager(kept(deep), model(deep), scale=20)
    one = nn.Sequential(nn.Linear(5, 7), randomized(nn.BatchNorm2d(1))).eval()
    x = torch.randn(2, 1, 3, 5)
    ours = ipex.optimize(one)
    assert type(ours[1]) is nn.Identity
    with torch.no_grad():
        assert_close_to_eager(ours(x), one(x), scale=20)


class Twice(nn.Module):
    """A convolution whose result has two users, and one that is called twice."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 3, 1), nn.Conv2d(3, 3, 1)
        self.norm_a, self.norm_b = randomized(nn.BatchNorm2d(3)), randomized(nn.BatchNorm2d(3))

    def forward(self, x):
        y = self.a(x)
        return self.norm_a(y) + y + self.norm_b(self.b(x)) + self.b(x)


class Branches(Twice):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


def test_what_is_not_folded(caplog):
    x = torch.randn(1, 3, 4, 4).abs()
    for model in (Twice().eval(), Branches().eval()):
        ours = ipex.optimize(model)
        assert type(ours.norm_a) is type(ours.norm_b) is nn.BatchNorm2d
        with torch.no_grad():
            assert_close_to_eager(ours(x), model(x), scale=20)
    assert not caplog.records
    ipex.optimize(model, conv_bn_folding=True)
    assert "[NotSupported]batch norms stay, because torch.fx cannot trace the model" in caplog.text


def test_hooked_weights_are_left():
    model = nn.Sequential(
        nn.utils.spectral_norm(nn.Linear(4, 4)),
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)),
        nn.utils.parametrizations.spectral_norm(nn.Conv2d(4, 4, 1)),
    ).eval()
    ours = ipex.optimize(model)
    assert [type(m) for m in ours.modules()] == [type(m) for m in model.modules()]


class Subclass(nn.Linear):
    def forward(self, x):
        return super().forward(x) + 1


def test_subclasses_are_left():
    assert type(ipex.optimize(nn.Sequential(Subclass(3, 3)).eval())[0]) is Subclass


def test_padding_of_transposed_convolutions():
    def converted(**settings):
        return type(ipex.optimize(nn.Sequential(nn.ConvTranspose2d(3, 3, 5, **settings)).eval())[0])

    assert converted(padding=1) is not nn.ConvTranspose2d
    assert converted(stride=1, padding=0, output_padding=1, dilation=2) is nn.ConvTranspose2d


def test_hooks_stay():
    model, seen = parts(), []
    model.linear.register_forward_hook(lambda *_: seen.append(1))
    ours = ipex.optimize(model)
    ours(*inputs())
    assert seen == [1]


def test_frozen_trunk_can_be_fine_tuned():
    """Gradients pass through an optimized model in eval mode, to the input and to layers before it."""
    trunk = ipex.optimize(parts()).requires_grad_(False)
    head = nn.Conv2d(3, 3, 1)
    x, indices = inputs()
    trunk(head(x), indices).square().sum().backward()
    reference = parts().requires_grad_(False)
    other = copy.deepcopy(head)
    other.zero_grad()
    reference(other(x), indices).square().sum().backward()
    assert_close_to_eager(head.weight.grad, other.weight.grad, scale=100)
    assert all(p.grad is None for p in trunk.parameters())


def test_sample_input():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.l1, self.l2 = nn.Linear(2, 2), nn.Linear(3, 3)

        def forward(self, x, y):
            return self.l1(x).sum() + self.l2(y).sum()

    ours = ipex.optimize(Two().eval(), sample_input=(torch.randn(4, 1, 2), torch.randn(3, 3)))
    assert ours.l1.batch_size_collapsed == 4 and ours.l2.batch_size_collapsed == 3
    single = ipex.optimize(nn.Sequential(nn.Linear(2, 2)).eval(), sample_input=torch.randn(2, 2))
    assert single[0].batch_size_collapsed == 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_lstm(dtype):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(8, 16, 2, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[0]

    model, x = Net().eval(), torch.randn(3, 5, 8)
    ours = ipex.optimize(model, dtype=dtype)
    assert type(ours.lstm) is _LSTM and type(ipex.optimize(nn.LSTM(2, 2).eval())) is nn.LSTM
    assert type(ipex.optimize(model, optimize_lstm=False).lstm) is nn.LSTM
    with torch.no_grad():
        got = ours(x)
    assert got.dtype is dtype
    assert relative_error(got, model(x)) < (1e-5 if dtype is torch.float32 else 2e-2)


@pytest.mark.parametrize("dtype", DTYPES)
def test_trace_under_autocast(dtype):
    """Parameters that optimize() does not cast are cast by autocast, whose cache must not reach the trace."""

    class Net(Parts):
        def __init__(self):
            super().__init__()
            self.extra = nn.Parameter(torch.randn(10, 10))

        def forward(self, x, indices):
            y = super().forward(x, indices) @ self.extra
            return y @ self.extra

    ours = ipex.optimize(Net().eval(), dtype=dtype)
    given = inputs()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        wanted = ours(*given)
        traced = torch.jit.trace(ours, given)
        frozen = torch.jit.freeze(traced)
        for model in (traced, frozen):
            for _ in range(3):
                assert relative_error(model(*given), wanted) < 1e-2
        assert torch.is_autocast_cache_enabled()


def test_fx():
    """The optimized model can be traced by torch.fx and fused again."""
    from torch.fx.experimental import optimization

    model = nn.Sequential(nn.Conv2d(3, 4, 3), randomized(nn.BatchNorm2d(4)), nn.ConvTranspose2d(4, 3, 3)).eval()
    ours, x = ipex.optimize(model), torch.randn(1, 3, 6, 6)
    with torch.no_grad():
        assert_close_to_eager(optimization.fuse(ours)(x), model(x), scale=20)


@pytest.mark.parametrize("dtype", DTYPES)
def test_compiled(dtype, strict):
    """An optimized model compiles, natively."""
    ours, given = ipex.optimize(parts(), dtype=dtype), inputs()
    with torch.no_grad(), torch.autocast("cpu", enabled=dtype is torch.bfloat16):
        assert relative_error(torch.compile(ours, backend="ipex")(*given), ours(*given)) < (
            1e-5 if dtype is torch.float32 else 2e-2
        )
        graph = ipex.optimize(parts(), dtype=dtype, graph_mode=True)
        assert relative_error(graph(*given), ours(*given)) < (1e-5 if dtype is torch.float32 else 2e-2)


def test_transformer_encoder():
    """The fused path of nn.TransformerEncoderLayer reads the weights of its linear layers."""
    model = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    ours, x = ipex.optimize(model), torch.randn(2, 5, 16)
    with torch.no_grad():
        assert_close_to_eager(ours(x), model(x), scale=20)
