"""The adapter for Hugging Face Accelerate: what enable() changes, what Accelerator.prepare then does, and that
disable() takes all of it back. test_accelerate_scripts.py runs whole scripts and the command line."""

import copy
import logging
import subprocess
import sys

import accelerate
import pytest
import torch
from accelerate.commands import launch
from accelerate.commands.config import config_args, config_utils
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import DynamoBackend, TorchDynamoPlugin
from accelerate_state import clean_state
from intel_extension_for_pytorch.integrations import accelerate as adapter
from intel_extension_for_pytorch.integrations.accelerate import _runtime
from intel_extension_for_pytorch.integrations.accelerate._settings import Settings, settings
from intel_extension_for_pytorch.nn.utils._weight_prepack import _IPEXConv2d, _IPEXLinear
from torch import nn

bf16_cpu = pytest.mark.needs_cpu("avx512bw")


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    yield from clean_state(monkeypatch)


@pytest.fixture
def enabled():
    adapter.enable()


def accelerator(**options):
    return accelerate.Accelerator(cpu=True, **options)


def net(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Dropout(0.5), nn.Linear(32, 4))


def image_net():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 4))
    return model


def step(accelerator, model, optimizer, seed=1):
    torch.manual_seed(seed)
    loss = nn.functional.cross_entropy(model(torch.randn(8, 16)), torch.randint(4, (8,)))
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    return loss.detach()


def is_optimized(model):
    return any(isinstance(module, _IPEXLinear | _IPEXConv2d) for module in model.modules()) or hasattr(
        model, "params_attr"
    )


# ---- enable and disable ----


def state_of_accelerate():
    owners = (accelerate.Accelerator, PartialState, config_args.BaseConfig, config_args.ClusterConfig, launch)
    entries = [dict(vars(owner)) for owner in owners]
    fields = dict(config_args.ClusterConfig.__dataclass_fields__)
    return entries, fields, list(DynamoBackend), dict(DynamoBackend.__members__), list(config_utils.DYNAMO_BACKENDS)


def test_disable_restores_everything():
    before = state_of_accelerate()
    adapter.disable()  # nothing to do
    adapter.enable()
    during = state_of_accelerate()
    adapter.enable()
    assert adapter.is_enabled() and state_of_accelerate() == during != before
    adapter.disable()
    assert not adapter.is_enabled() and state_of_accelerate() == before
    if "IPEX" not in DynamoBackend.__members__:  # it is gone since 1.13
        with pytest.raises(ValueError, match="not a valid DynamoBackend"):
            TorchDynamoPlugin(backend="ipex")


def test_import_changes_nothing():
    """A plain import, of the package or of the adapter, does not even import accelerate."""
    code = (
        "import sys, intel_extension_for_pytorch, intel_extension_for_pytorch.integrations.accelerate as adapter\n"
        "assert 'accelerate' not in sys.modules and not adapter.is_enabled()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_accelerate(monkeypatch):
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(ImportError, match="pip install accelerate"):
        adapter.enable()
    assert not adapter.is_enabled()


def test_release_that_differs(monkeypatch):
    """A step that finds something else than it needs is named, and the others are in effect."""
    monkeypatch.setattr(accelerate.Accelerator, "prepare", lambda self, *objects: objects)
    monkeypatch.setattr(accelerate, "__version__", "9.9")
    with pytest.raises(
        RuntimeError, match=r"accelerate 9.9 (?s:.)*prepare: Accelerator.prepare has no argument"
    ) as error:
        adapter.enable()
    assert "backend" not in str(error.value).split("Not in effect")[1].split("Install")[0]
    assert adapter.is_enabled() and DynamoBackend.IPEX == "IPEX"


def test_patch_of_somebody_else_stays(enabled, monkeypatch, caplog):
    other = accelerate.Accelerator.prepare
    monkeypatch.setattr(accelerate.Accelerator, "prepare", lambda self, *objects: other(self, *objects))
    mine = accelerate.Accelerator.prepare
    with caplog.at_level(logging.WARNING, "IPEX"):
        adapter.disable()
    assert accelerate.Accelerator.prepare is mine and "Accelerator.prepare was replaced after enable()" in caplog.text
    monkeypatch.undo()
    accelerate.Accelerator.prepare = other.__wrapped__


# ---- names ----


def test_dynamo_backend(enabled):
    assert DynamoBackend("IPEX") is DynamoBackend.IPEX and "IPEX" in DynamoBackend.list()
    assert TorchDynamoPlugin(backend=DynamoBackend.IPEX).to_kwargs()["backend"] == "ipex"
    it = accelerator(dynamo_backend="ipex", use_ipex=False)
    model = net()
    plain = copy.deepcopy(model)
    model, optimizer = it.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    plain_optimizer = torch.optim.SGD(plain.parameters(), 0.1)
    for _ in range(2):
        torch.testing.assert_close(step(it, model, optimizer), step(it, plain, plain_optimizer))
    assert isinstance(model, torch._dynamo.OptimizedModule)


def test_ccl_needs_ranks_and_a_package(enabled, monkeypatch):
    with pytest.raises(ValueError, match="several processes on CPUs"):
        PartialState(cpu=True, backend="ccl")
    AcceleratorState._reset_state(reset_partial_state=True)
    monkeypatch.setitem(sys.modules, "oneccl_bindings_for_pytorch", None)
    for name, value in (("PMI_SIZE", "2"), ("PMI_RANK", "0")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ImportError, match="needs the package oneccl_bind_pt"):
        PartialState(cpu=True, backend="ccl")


# ---- settings ----


@pytest.mark.parametrize(
    "variables, arguments, expected",
    [
        ({}, {}, (True, False)),
        ({"ACCELERATE_USE_IPEX": "false"}, {}, (False, False)),
        ({"IPEX_ENABLED": "no"}, {}, (False, False)),
        ({"ACCELERATE_USE_IPEX": "true", "IPEX_ENABLED": "false"}, {}, (True, False)),
        ({"ACCELERATE_USE_IPEX": "false"}, {"use": True}, (True, False)),
        ({"ACCELERATE_USE_IPEX_FUSION": "1"}, {}, (True, True)),
        ({"ACCELERATE_USE_IPEX_FUSION": "1"}, {"fusion": False}, (True, False)),
        ({"ACCELERATE_USE_IPEX_FUSION": "1"}, {"use": False}, (False, False)),
        ({}, {"use": True, "fusion": True}, (True, True)),
    ],
)
def test_settings(variables, arguments, expected, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert settings(**arguments) == Settings(*expected)


def test_bad_settings(enabled, monkeypatch):
    with pytest.raises(ValueError, match="turn on use_ipex"):
        accelerator(use_ipex=False, do_fusion=True)
    with pytest.raises(TypeError, match="use_ipex must be True, False or None, got 'yes'"):
        accelerator(use_ipex="yes")
    with pytest.raises(TypeError, match="unexpected keyword"):
        accelerator(use_xpu=True)
    monkeypatch.setenv("ACCELERATE_USE_IPEX", "perhaps")
    with pytest.raises(ValueError, match="environment variable ACCELERATE_USE_IPEX: expected true or false"):
        accelerator()


# ---- prepare: training ----


@pytest.mark.parametrize("precision", ["no", pytest.param("bf16", marks=bf16_cpu)])
def test_pair_keeps_identity(enabled, precision):
    it = accelerator(mixed_precision=precision)
    model = net()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    names = dict(model.named_parameters())
    data = torch.utils.data.DataLoader(torch.zeros(4, 16), batch_size=2)
    got, got_data, got_optimizer, got_scheduler = it.prepare(model, data, optimizer, scheduler)
    assert got is model and got_optimizer.optimizer is optimizer and got_scheduler.scheduler is scheduler
    assert isinstance(got_data, torch.utils.data.DataLoader) and len(list(got_data)) == 2
    assert all(p is names[name] for name, p in model.named_parameters()) and optimizer.fused is True
    stored = torch.bfloat16 if precision == "bf16" else torch.float32
    assert {p.dtype for p in model.parameters()} == {stored}
    assert {t.dtype for t in it.unwrap_model(got).state_dict().values()} == {torch.float32}
    losses = []
    for _ in range(4):
        losses.append(step(it, got, got_optimizer))
        got_scheduler.step()
    assert losses[-1] < losses[0] and got_scheduler.get_last_lr() == [0.1 / 16]
    assert it.prepare(got, got_optimizer) == (got, got_optimizer)  # again: nothing


@pytest.mark.parametrize("kind", ["SGD", "Adagrad", "Adam", "AdamW", "AdamW foreach", "AdamW fused", "Adafactor"])
def test_trains_as_without_ipex(enabled, kind):
    name, *how = kind.split()
    options = {"lr": 0.01} | dict.fromkeys(how, True)
    results = []
    for use in (False, True):
        AcceleratorState._reset_state(reset_partial_state=True)
        it = accelerator(use_ipex=use)
        model = net()
        model, optimizer = it.prepare(model, getattr(torch.optim, name)(model.parameters(), **options))
        assert hasattr(model, "params_attr") is use
        results.append([step(it, model, optimizer, seed) for seed in range(3)] + list(model.state_dict().values()))
    for plain, optimized in zip(*results, strict=True):
        torch.testing.assert_close(optimized, plain)


@bf16_cpu
@pytest.mark.parametrize("training", [True, False])
def test_mode_of_a_trained_model_stays(enabled, training):
    """Pretrained models come in eval mode."""
    it = accelerator(mixed_precision="bf16")
    model = net().train(training)
    model[0].train(not training)
    model, _ = it.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    assert hasattr(model, "params_attr") and isinstance(model[2], nn.Dropout)
    assert model.training is training and model[0].training is not training
    model.train()


@bf16_cpu
def test_several_pairs(enabled):
    it = accelerator(mixed_precision="bf16")
    a, b, c = net(0), net(1), net(2)
    of_a, of_c = torch.optim.AdamW(a.parameters()), torch.optim.SGD(c.parameters(), 0.1)
    of_b = [torch.optim.SGD(b[0].parameters(), 0.1), torch.optim.Adam(b[3].parameters())]
    got = it.prepare(of_c, a, b, *of_b, c, of_a)
    assert [getattr(o, "optimizer", o) for o in got] == [of_c, a, b, *of_b, c, of_a]
    for model in (a, b, c):
        assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    assert a[0].weight in of_a.params_attr and c[0].weight in of_c.params_attr
    assert b[0].weight in of_b[0].params_attr and b[3].weight in of_b[1].params_attr
    for model, optimizers in ((a, [got[6]]), (b, got[3:5]), (c, [got[0]])):
        before = [p.clone() for p in model.state_dict().values()]
        it.backward(model(torch.ones(2, 16)).sum())
        for optimizer in optimizers:
            optimizer.step()
        assert not any(map(torch.equal, before, model.state_dict().values()))


@pytest.mark.parametrize("precision", ["no", pytest.param("bf16", marks=bf16_cpu)])
def test_one_optimizer_of_two_models(enabled, precision):
    results = []
    for use in (False, True):
        AcceleratorState._reset_state(reset_partial_state=True)
        it = accelerator(mixed_precision=precision, use_ipex=use)
        first, second = nn.Linear(16, 16), nn.Linear(16, 4)
        for seed, layer in enumerate((first, second)):
            torch.manual_seed(seed)
            layer.reset_parameters()
        parameters = [*first.parameters(), *second.parameters()]
        first, second, optimizer = it.prepare(first, second, torch.optim.AdamW(parameters, lr=0.01))
        assert hasattr(first, "params_attr") is hasattr(second, "params_attr") is use
        for seed in range(3):
            step(it, lambda x: second(first(x)), optimizer, seed)  # noqa: B023
        results.append([*first.state_dict().values(), *second.state_dict().values()])
        assert {value.dtype for value in results[-1]} == {torch.float32}
    for plain, optimized in zip(*results, strict=True):
        torch.testing.assert_close(optimized, plain, rtol=0.01, atol=0.005 if precision == "bf16" else 1e-5)


@bf16_cpu
def test_tied_embeddings(enabled):
    from transformers import GPT2Config, GPT2LMHeadModel

    it = accelerator(mixed_precision="bf16")
    model = GPT2LMHeadModel(GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=2, n_positions=16))
    model, optimizer = it.prepare(model, torch.optim.AdamW(model.parameters(), lr=0.01))
    tokens = torch.arange(32).reshape(2, 16)
    losses = []
    for _ in range(3):
        loss = model(input_ids=tokens, labels=tokens).loss
        it.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert model.lm_head.weight is model.transformer.wte.weight
    state = it.unwrap_model(model).state_dict()
    assert state["lm_head.weight"].data_ptr() == state["transformer.wte.weight"].data_ptr()
    assert {value.dtype for value in state.values()} == {torch.float32}


@pytest.mark.parametrize("kind", ["SGD", "AdamW", "RMSprop"])
@pytest.mark.parametrize("precision", ["no", pytest.param("bf16", marks=bf16_cpu)])
def test_state_continues_in_bits(enabled, tmp_path, kind, precision):
    it = accelerator(mixed_precision=precision)

    def training():
        model = net()
        optimizer = getattr(torch.optim, kind)(model.parameters(), lr=0.01)
        return it.prepare(model, optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5))

    def run(seeds):
        model, optimizer, scheduler = it._models[-1], it._optimizers[-1], it._schedulers[-1]
        losses = []
        for seed in seeds:
            losses.append(step(it, model, optimizer, seed))
            scheduler.step()
        return torch.stack(losses), *(p.detach().clone() for p in model.state_dict().values())

    training()
    run((1, 2, 3))
    it.save_state(tmp_path)
    expected = run((4, 5))
    it.free_memory()
    model, optimizer, _ = training()
    it.load_state(tmp_path)
    assert all(map(torch.equal, run((4, 5)), expected))
    # Without accelerate's functions too.
    it.free_memory()
    other, other_optimizer, _ = training()
    other.load_state_dict(copy.deepcopy(model.state_dict()))
    other_optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    assert torch.equal(step(it, other, other_optimizer, 6), step(it, model, optimizer, 6))


# ---- prepare: inference ----


@pytest.mark.parametrize("precision", ["no", pytest.param("bf16", marks=bf16_cpu)])
@pytest.mark.parametrize("fusion", [False, True])
def test_inference(enabled, precision, fusion):
    it = accelerator(mixed_precision=precision, use_ipex=True, do_fusion=fusion)
    plain = image_net().eval()
    plain(torch.randn(4, 3, 8, 8))
    x = torch.randn(4, 3, 8, 8)
    with torch.no_grad():
        expected = plain(x)
    data = torch.utils.data.DataLoader([x], batch_size=None)
    model, data = it.prepare(plain, data)
    assert isinstance(model[0], _IPEXConv2d) and not any(isinstance(m, nn.BatchNorm2d) for m in model)
    with torch.no_grad():
        (found,) = [model(x) for x in data]
    assert found.dtype == torch.float32
    close = {"rtol": 0.02, "atol": 0.02} if precision == "bf16" else {"rtol": 1e-4, "atol": 1e-5}
    torch.testing.assert_close(found, expected, **close)
    forward = getattr(model, "_original_forward", model.forward)
    assert (type(forward).__name__ == "_CompiledForward") is fusion
    model.eval()
    with pytest.raises(RuntimeError, match="Sequential was in eval mode(?s:.)*pass it to prepare together with"):
        model.train()
    assert copy.deepcopy(model).eval().training is False


def test_fusion_where_accelerate_compiles(enabled):
    """One compilation, that of accelerate."""
    it = accelerator(dynamo_backend="ipex", do_fusion=True)
    model = net().eval()
    x = torch.randn(3, 16)
    with torch.no_grad():
        expected = model(x)
        compiled = it.prepare(model)
        torch.testing.assert_close(compiled(x), expected)
    assert isinstance(compiled, torch._dynamo.OptimizedModule)
    assert type(model.forward).__name__ != "_CompiledForward" and is_optimized(model)


def test_what_stays_as_it_is(enabled, caplog):
    it = accelerator()
    with caplog.at_level(logging.WARNING, "IPEX"):
        model = it.prepare(net())
    assert not is_optimized(model) and "leaves a Sequential as it is" in caplog.text
    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], 0.1)
    it.prepare(optimizer)
    assert not hasattr(optimizer, "fused")
    scripted = torch.jit.script(net().eval())
    assert it.prepare(scripted) is scripted


@pytest.mark.parametrize("switch", ["argument", "variable", "device", "strategy", "precision"])
def test_not_used(enabled, switch, monkeypatch):
    it = accelerator(use_ipex=False) if switch == "argument" else accelerator()
    if switch == "variable":
        monkeypatch.setenv("ACCELERATE_USE_IPEX", "false")
        it = accelerator()
    objects = net(), net().eval()
    objects = *objects, torch.optim.SGD(objects[0].parameters(), 0.1)
    if switch in ("argument", "variable"):
        found = it.prepare(*objects)
    else:
        # What a machine with a GPU, FSDP or fp8 would say; only the choice is tested.
        other = {
            "device": ("device", torch.device("meta")),
            "strategy": ("distributed_type", accelerate.DistributedType.FSDP),
            "precision": ("mixed_precision", "fp8"),
        }
        name, value = other[switch]
        monkeypatch.setattr(type(it), name, value)
        assert _runtime.prepared(it, objects, Settings(True, False)) is objects
        found = objects
    assert not is_optimized(found[0]) and not is_optimized(found[1])


def test_accelerator_made_before_enable():
    it = accelerator()
    adapter.enable()
    model = net()
    it.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    assert hasattr(model, "params_attr")


@pytest.mark.lacks_cpu("avx512bw")
def test_bf16_without_instructions(enabled, caplog):
    it = accelerator(mixed_precision="bf16")
    model = net()
    with caplog.at_level(logging.WARNING, "IPEX"):
        model, optimizer = it.prepare(model, torch.optim.SGD(model.parameters(), 0.1))
    assert "no bf16 instructions" in caplog.text
    assert step(it, model, optimizer).isfinite()
