"""Frozen TorchScript models: optimize, trace under autocast, freeze, save, load in another process, run compiled."""

import copy
import io
import os
import subprocess
import sys
import threading
import zipfile
from pathlib import Path

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import relative_error, tensors_of
from intel_extension_for_pytorch.nn.utils._tracing import make_traceable_under_autocast
from torch import nn

pytestmark = [
    pytest.mark.needs_ipex,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning"),
]
DATA = Path(__file__).parents[1] / "data"
LAYERS = (nn.Conv2d, nn.Linear, nn.Embedding)


def with_layers_of(dtype, model):
    """A copy in which the layers have weights of this type, as optimize casts them."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, LAYERS):
            module.to(dtype)
    return model


def optimized(model, dtype):
    """Batch norms stay, so that the frozen graph has them, and the errors of one call compare with eager's."""
    return ipex.optimize(model, dtype=dtype, conv_bn_folding=False)


def autocast(dtype):
    return torch.amp.autocast("cpu", torch.bfloat16, enabled=dtype is torch.bfloat16)


def frozen(model, inputs, dtype=torch.bfloat16):
    with torch.no_grad(), autocast(dtype):
        return torch.jit.freeze(torch.jit.trace(optimized(model.eval(), dtype), inputs, strict=False))


def saved_and_loaded(script):
    buffer = io.BytesIO()
    torch.jit.save(script, buffer)
    buffer.seek(0)
    return torch.jit.load(buffer)


def kinds(script, *inputs):
    """The nodes of the graph that the executor runs, without constants."""
    with torch.no_grad():
        nodes = script.graph_for(*inputs).nodes()
    return [node.kind() for node in nodes if node.kind() != "prim::Constant"]


def counts():
    """Programs compiled, runs of programs, and runs by the interpreter."""
    return torch.ops.torch_ipex.compiled_graph_counts()


def called(script, *inputs):
    with torch.no_grad():
        return tensors_of(script(*inputs))


def assert_as_good(ours, model, inputs, dtype):
    """The error against fp64 is at most 1.1 times that of eager with the same weights, or within fp32 rounding."""
    with torch.no_grad():
        exact = copy.deepcopy(model).double()(*[x.double() if x.is_floating_point() else x for x in inputs])
        with autocast(dtype):
            eager = with_layers_of(dtype, model)(*inputs)
    for a, b, c in zip(tensors_of(ours), tensors_of(eager), tensors_of(exact), strict=True):
        assert a.shape == b.shape
        error, allowed = relative_error(a, c), relative_error(b, c)
        assert error <= max(1.1 * allowed, 3e-6), f"{error}, eager {allowed}"


# ---- models ----


class Residual(nn.Module):
    """Convolutions with batch norm, a shortcut that is added in place, pools, a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 16, 7, 2, 3, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.first = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True))
        self.second = nn.Sequential(nn.Conv2d(16, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16))
        self.classifier = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                nn.init.normal_(module.running_mean, std=0.1)
                nn.init.uniform_(module.running_var, 0.5, 2)
                nn.init.uniform_(module.weight, 0.5, 2)

    def forward(self, x):
        x = self.pool(self.stem(x))
        y = self.second(self.first(x))
        y += x
        return self.classifier(y.relu_())


class Parts(nn.Module):
    """Splits, joins, slices, a group norm, other activations and a reduction."""

    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16)
        self.mixed = nn.Linear(16, 32)

    def forward(self, x):
        x = nn.functional.silu(self.norm(self.conv(x)))
        rows = x.flatten(2).transpose(1, 2)
        a, b = self.mixed(rows).chunk(2, dim=-1)
        joined = torch.cat([a * b.sigmoid(), torch.stack([rows[..., 0], rows.select(-1, 1)], -1)], dim=-1)
        return joined.clamp(-2, 2).softmax(-1), nn.functional.hardswish(joined[:, 1:, ::2]).mean(1)


class Recommender(nn.Module):
    """Embedding bags of one length, and products of pairs."""

    def __init__(self):
        super().__init__()
        self.bottom = nn.Sequential(nn.Linear(13, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU())
        self.bags = nn.ModuleList(nn.EmbeddingBag(50, 16, mode="sum") for _ in range(4))
        self.top = nn.Sequential(nn.Linear(26, 32), nn.ReLU(), nn.Linear(32, 1), nn.Sigmoid())
        self.register_buffer("rows", torch.tensor([i for i in range(5) for j in range(i)]))
        self.register_buffer("columns", torch.tensor([j for i in range(5) for j in range(i)]))

    def forward(self, dense, indices):
        x = self.bottom(dense)
        bags = [bag(one) for bag, one in zip(self.bags, indices.unbind(0), strict=True)]
        whole = torch.stack([x, *[bag.to(x.dtype) for bag in bags]], dim=1)
        pairs = torch.bmm(whole, whole.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([x, pairs], dim=1))


def bert():
    import transformers

    config = transformers.BertConfig(
        num_hidden_layers=2, hidden_size=64, num_attention_heads=4, intermediate_size=128, return_dict=False
    )
    return transformers.BertModel(config)


def images(batch, channels=3, size=32):
    return (torch.randn(batch, channels, size, size),)


def tokens(batch):
    mask = torch.ones(batch, 12, dtype=torch.long)
    mask[0, 7:] = 0
    return torch.randint(0, 1000, (batch, 12)), mask


# Model, inputs for a batch, and the nodes that stay outside of compiled parts.
MODELS = {
    "residual": (Residual, images, set()),
    "parts": (Parts, lambda batch: images(batch, 8, 6), {"prim::TupleConstruct"}),
    "recommender": (
        Recommender,
        lambda batch: (torch.randn(batch, 13), torch.randint(0, 50, (4, batch, 3))),
        set(),
    ),
    "bert": (bert, tokens, {"prim::TupleConstruct"}),
}


@pytest.fixture(params=MODELS)
def case(request):
    torch.manual_seed(0)
    make, inputs, outside = MODELS[request.param]
    return make().eval(), inputs, outside


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_models(case, dtype):
    """Every call of a loaded model, for several batch sizes: compiled, and as good as eager."""
    model, make_inputs, outside = case
    script = saved_and_loaded(frozen(model, make_inputs(2), dtype))
    inputs = make_inputs(2)
    called(script, *inputs)  # recorded by the profiling executor
    before = counts()
    results = [called(script, *inputs) for _ in range(3)]
    parts = kinds(script, *inputs).count("ipex::CompiledGraph")
    assert parts >= 1
    compiled, native, interpreted = (b - a for a, b in zip(before, counts(), strict=True))
    assert compiled == parts and native == 3 * parts and interpreted == 0
    assert set(kinds(script, *inputs)) == {"ipex::CompiledGraph"} | outside
    for result in results:
        assert all(torch.equal(a, b) for a, b in zip(result, results[0], strict=True))
    assert_as_good(results[0], model, inputs, dtype)
    for batch in (1, 3, 5):
        inputs = make_inputs(batch)
        assert_as_good(called(script, *inputs), model, inputs, dtype)
    assert counts()[2] == before[2]


def test_layouts_are_those_of_eager():
    """Results have eager's strides, for row-major and channels-last inputs."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3), nn.ReLU()).eval()
    script = frozen(model, images(2, 4), torch.float32)
    for layout in (torch.contiguous_format, torch.channels_last):
        x = images(2, 4)[0].to(memory_format=layout)
        result = [called(script, x)[0] for _ in range(3)][-1]
        with torch.no_grad():
            eager = optimized(model, torch.float32)(x)
        assert result.stride() == eager.stride()
        torch.testing.assert_close(result, eager)


class AroundBags(nn.Module):
    """Bags whose offsets are data, between layers that are compiled."""

    def __init__(self):
        super().__init__()
        self.before, self.bag = nn.Sequential(nn.Linear(4, 8), nn.ReLU()), nn.EmbeddingBag(20, 8)
        self.after = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 1))

    def forward(self, x, indices, offsets):
        return self.after(torch.cat([self.before(x), self.bag(indices, offsets)], dim=1))


def test_an_op_between_compiled_parts():
    torch.manual_seed(0)
    model, indices = AroundBags().eval(), torch.randint(0, 20, (9,))
    offsets = torch.tensor([0, 2, 2, 7])
    script = frozen(model, (torch.randn(4, 4), indices, offsets), torch.float32)
    for _ in range(3):
        x = torch.randn(4, 4)
        torch.testing.assert_close(called(script, x, indices, offsets)[0], model(x, indices, offsets).detach())
    assert set(kinds(script, x, indices, offsets)) == {"aten::embedding_bag", "ipex::CompiledGraph"}
    offsets[0] = 1
    with pytest.raises(RuntimeError, match="offsets"):
        called(script, x, indices, offsets)


class Views(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        y = self.layer(x).relu() * 2
        first, second = y.chunk(2, 1)
        return y, y.t(), second.unsqueeze(0), x, x.view(-1), x.clone()


def test_results_share_memory_as_in_eager():
    torch.manual_seed(0)
    model, x = Views().eval(), torch.randn(3, 4)
    script = frozen(model, (x,), torch.float32)
    for _ in range(3):
        y, transposed, second, same, flat, copied = called(script, x)
    assert "ipex::CompiledGraph" in kinds(script, x)
    assert all(t.untyped_storage().data_ptr() == y.untyped_storage().data_ptr() for t in (transposed, second))
    assert same is x and flat.data_ptr() == x.data_ptr() != copied.data_ptr()
    for ours, eager in zip(called(script, x), model(x), strict=True):
        torch.testing.assert_close(ours, eager.detach())
        assert ours.stride() == eager.stride()


# ---- where models run ----


def python(code, *arguments, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True, text=True, check=False, env=dict(os.environ, **environment),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_fresh_process(tmp_path):
    """A loaded file gives the same bits in another process. Without fusion, and without profiling, which registered
    passes need, PyTorch's interpreter gives results of the same quality."""
    torch.manual_seed(0)
    model, x = Residual().eval(), images(3)[0]
    script = frozen(model, (x,))
    script.save(tmp_path / "model.pt")
    torch.save(x, tmp_path / "x.pt")
    ours = [called(script, x)[0] for _ in range(3)][-1]
    code = """
import sys, torch, intel_extension_for_pytorch as ipex
folder, how = sys.argv[1:]
if how == "no profiling":
    torch._C._jit_set_profiling_mode(False)
if how == "no fusion":
    ipex.enable_onednn_fusion(False)
script, x = torch.jit.load(folder + "/model.pt"), torch.load(folder + "/x.pt")
with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=how == "autocast"):
    for _ in range(3):
        y = script(x)
torch.save(y, folder + "/y.pt")
print(torch.ops.torch_ipex.compiled_graph_counts())
"""
    for how in ("as it is", "autocast", "no fusion", "no profiling"):
        done = python(code, tmp_path, how, OMP_NUM_THREADS=str(torch.get_num_threads()))
        theirs = torch.load(tmp_path / "y.pt")
        if how in ("as it is", "autocast"):
            assert done.stdout.split("\n")[0] == "(1, 2, 0)"
            assert torch.equal(theirs, ours)
        else:
            assert done.stdout.split("\n")[0] == "(0, 0, 0)"
            assert_as_good([theirs], model, (x,), torch.bfloat16)


def test_threads():
    """Threads call one model at once, with batch sizes that are new to it; the number of threads of a call changes."""
    torch.manual_seed(0)
    model = Residual().eval()
    script = frozen(model, images(2))
    called(script, *images(2))
    inputs = [images(batch)[0] for batch in (1, 2, 3, 4)]
    results = {}

    def work(number):
        for x in inputs[number:] + inputs[:number]:
            results[number, len(x)] = called(script, x)[0]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x in inputs:
        same = [results[number, len(x)] for number in range(4)]
        assert all(torch.equal(a, same[0]) for a in same)
        assert_as_good(same[:1], model, (x,), torch.bfloat16)
    before = torch.get_num_threads()
    try:
        for count in (1, 3, 2):
            torch.set_num_threads(count)
            torch.testing.assert_close(called(script, inputs[2])[0], results[0, 3], rtol=2e-2, atol=1e-3)
    finally:
        torch.set_num_threads(before)


class Branches(nn.Module):
    """Control flow that scripting keeps, with compiled parts inside and outside of it."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor, steps: int) -> torch.Tensor:
        x = self.first(x).relu()
        for _ in range(steps):
            x = self.second(x)
            if bool(x.sum() > 0):
                x = self.first(x.tanh())
                x = x * 0.5
            else:
                x = x.sigmoid() - 1
        x.add_(1)
        return self.last(x).relu()


def test_scripted_control_flow():
    torch.manual_seed(0)
    model = Branches().eval()
    script = saved_and_loaded(torch.jit.freeze(torch.jit.script(model)))
    before = counts()
    for steps in (3, 3, 3, 0, 5):
        x = torch.randn(4, 8)
        with torch.no_grad():
            torch.testing.assert_close(script(x, steps), model(x.clone(), steps))
    assert counts()[1] > before[1] and counts()[2] == before[2]


# ---- what the pass leaves alone ----


def test_enable_onednn_fusion():
    torch.manual_seed(0)
    model, x = Residual().eval(), images(2)[0]
    ipex.enable_onednn_fusion(False)
    try:
        script = frozen(model, (x,))
        results = [called(script, x)[0] for _ in range(3)]
        assert "ipex::CompiledGraph" not in kinds(script, x)
        assert_as_good(results[-1:], model, (x,), torch.bfloat16)
    finally:
        ipex.enable_onednn_fusion(True)
    script = frozen(model, (x,))
    for _ in range(2):
        called(script, x)
    assert "ipex::CompiledGraph" in kinds(script, x)


def test_a_model_that_is_not_frozen_is_left_alone():
    """IPEX issue 272: a trace that worked failed after a mere import. Bits and nodes are those without the pass."""
    torch.manual_seed(0)
    model, x = Residual().eval(), images(2)[0]

    def run(enabled):
        ipex.enable_onednn_fusion(enabled)
        try:
            script = torch.jit.trace(model, x)
            return [called(script, x)[0] for _ in range(3)], kinds(script, x)
        finally:
            ipex.enable_onednn_fusion(True)

    with_pass, without = run(True), run(False)
    assert with_pass[1] == without[1] and "ipex::CompiledGraph" not in with_pass[1]
    assert all(torch.equal(a, b) for a, b in zip(with_pass[0], without[0], strict=True))

    @torch.jit.script
    def scripted(a, b):
        return (a + b).relu() * torch.sigmoid(a)

    a, b = torch.randn(4), torch.randn(4)
    for _ in range(3):
        assert torch.equal(scripted(a, b), (a + b).relu() * torch.sigmoid(a))
    assert "ipex::CompiledGraph" not in kinds(scripted, a, b)


def test_training_a_traced_model():
    """IPEX issue 243: a traced model that was trained lost accuracy. Losses and weights are those of eager training."""
    torch.manual_seed(0)
    model, x, target = Residual().train(), images(8)[0], torch.randint(0, 10, (8,))
    traced = torch.jit.trace(copy.deepcopy(model), x, check_trace=False)
    traced.load_state_dict(model.state_dict())  # tracing has moved the running statistics
    losses = []
    for one in (model, traced):
        optimizer, own = torch.optim.SGD(one.parameters(), lr=0.05), []
        for _ in range(6):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(one(x), target)
            loss.backward()
            optimizer.step()
            own.append(loss.item())
        losses.append(own)
    assert losses[0] == pytest.approx(losses[1], rel=1e-4) and losses[1][-1] < losses[1][0]
    for name, value in model.state_dict().items():
        torch.testing.assert_close(traced.state_dict()[name], value, rtol=1e-3, atol=1e-4)


def test_an_input_that_needs_a_gradient():
    """The interpreter runs the call, and autograd records it. Calls without gradients are compiled."""
    torch.manual_seed(0)
    model, x = Residual().eval(), images(2)[0]
    script = frozen(model, (x,), torch.float32)
    for _ in range(2):
        called(script, x)
    before = counts()
    gradients = []
    for one in (script, model):
        leaf = x.clone().requires_grad_()
        one(leaf).square().sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
    assert counts()[1:] == (before[1], before[2] + 1)
    called(script, x)
    assert counts()[1] == before[1] + 1


# ---- constants ----


def constants(script):
    for node in script.graph.nodes():
        if node.kind() == "prim::Constant" and node.hasAttribute("value") and node.kindOf("value") == "t":
            yield node.t("value")


def test_folded_batch_norm_has_one_type():
    """PyTorch issue 76578: freeze folded fp32 batch norms into bf16 convolutions, which then had weights of two
    types."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval(), images(2)[0]
    nn.init.uniform_(model[1].running_var, 0.5, 2)
    for weights in (torch.float32, torch.bfloat16):
        one = copy.deepcopy(model)
        for layer in (one[0], one[3]):
            layer.to(weights)
        make_traceable_under_autocast(one)
        with torch.no_grad(), autocast(torch.bfloat16):
            script = torch.jit.freeze(torch.jit.trace(one, x))
        for result in [called(script, x) for _ in range(3)]:
            assert_as_good(result, model, (x,), torch.bfloat16)
    assert_as_good([called(s := frozen(model, (x,)), x) for _ in range(3)][-1], model, (x,), torch.bfloat16)
    assert all(t.dtype in (torch.bfloat16, torch.float32) for t in constants(s))


def test_saved_files_hold_plain_weights(tmp_path):
    """No packed layout, no object of ours, no compiled part, even after the model has run compiled."""
    torch.manual_seed(0)
    model, x = Residual().eval(), images(2)[0]
    script = frozen(model, (x,))
    for _ in range(3):
        called(script, x)
    assert "ipex::CompiledGraph" in kinds(script, x)
    script.save(tmp_path / "model.pt")
    with zipfile.ZipFile(tmp_path / "model.pt") as file:
        code = b"".join(file.read(name) for name in file.namelist() if "/code/" in name and name.endswith(".py"))
        assert b"CompiledGraph" not in code and b"__torch__.torch.classes" not in code
        weights = sum(file.getinfo(name).file_size for name in file.namelist() if "/constants/" in name)
    assert 0 < weights < 2.5 * sum(p.numel() * 2 for p in model.parameters())
    for tensor in constants(script):
        assert tensor.layout is torch.strided and not tensor.requires_grad


EXPECTED = [[-0.1574, -0.2342, 0.3260, -0.2053], [-0.1519, -0.2211, 0.3238, -0.1946]]  # in fp32


def test_a_file_of_an_earlier_release():
    """tests/data/frozen_cnn_bf16.pt was made by this release's first version and must load in all later ones."""
    script = torch.jit.load(DATA / "frozen_cnn_bf16.pt")
    x = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
    for _ in range(3):
        torch.testing.assert_close(called(script, x)[0].float(), torch.tensor(EXPECTED), rtol=2e-2, atol=4e-3)
    assert "ipex::CompiledGraph" in kinds(script, x)


# ---- errors ----


class ByVector(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.vector = nn.Linear(8, 8), nn.Parameter(torch.randn(8))

    def forward(self, x):
        return torch.matmul(self.layer(x).relu(), self.vector)


def test_what_has_no_native_code_is_named(monkeypatch):
    """The interpreter runs a part with an op that has no rule for these sizes; strict mode makes that an error."""
    torch.manual_seed(0)
    model, x = ByVector().eval(), torch.randn(4, 8)
    script = frozen(model, (x,), torch.float32)
    called(script, x)
    with pytest.warns(UserWarning, match="aten::matmul: a product with a vector"):
        result = called(script, x)
    torch.testing.assert_close(result[0], model(x).detach())
    torch.testing.assert_close(called(script, x)[0], model(x).detach())
    monkeypatch.setenv("IPEX_STRICT", "1")
    with pytest.raises(RuntimeError, match="aten::matmul: a product with a vector"):
        called(script, torch.randn(5, 8))


def test_an_index_out_of_range_is_an_error():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 8), nn.ReLU()).eval()
    script = frozen(model, (torch.tensor([1, 2]),), torch.float32)
    for _ in range(3):
        called(script, torch.tensor([1, 2]))
    assert "ipex::CompiledGraph" in kinds(script, torch.tensor([1, 2]))
    with pytest.raises(RuntimeError, match="index out of range"):
        called(script, torch.tensor([1, 10]))
    torch.testing.assert_close(called(script, torch.tensor([3, 4]))[0], model(torch.tensor([3, 4])).detach())
