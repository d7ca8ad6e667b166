"""Prepared optimizers beside fused dense steps: sparse gradients, steps of other classes on float32 masters, closures,
several optimizers of a model, copies, and the classes Lamb and Lars by themselves."""

import copy
import logging

import intel_extension_for_pytorch as ipex
import pytest
import torch
from intel_extension_for_pytorch.nn.utils._parameter_wrapper import ParameterWrapper, cast, get_shared_parameter_status
from intel_extension_for_pytorch.optim import Lamb, Lars, _optimizer_utils, create_optimizer_lars
from intel_extension_for_pytorch.optim._fused import PreparedOptimizer, fuse
from torch import nn
from torch.optim import SGD, Adagrad, Adam, AdamW

LOW = {"split": torch.bfloat16, "bf16 master": torch.bfloat16, "fp16 master": torch.float16}
every_mode = pytest.mark.parametrize("mode", ["plain", *LOW])


def cast_all(model, mode):
    if mode == "plain":
        return {}
    return {p: cast(p, LOW[mode], training=True, split=mode == "split") for p in model.parameters()}


def values(model, optimizer):
    attr = getattr(optimizer, "params_attr", {})
    return [attr[p].public_value() if p in attr else p.detach().clone() for p in model.parameters()]


def mlp():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3))


def set_gradients(model, seed):
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        p.grad = (torch.randn(p.shape, generator=generator) / 4).bfloat16().half().to(p.dtype)


def embedding_gradient(table, seed, coalesced):
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randint(len(table), (1, 30), generator=generator)
    values = (torch.randn(30, table.shape[1], generator=generator) / 4).bfloat16().half().to(table.dtype)
    grad = torch.sparse_coo_tensor(rows, values, table.shape, check_invariants=True)
    return grad.coalesce() if coalesced else grad


SPARSE = [
    (SGD, {"lr": 0.1}),
    (SGD, {"lr": 0.1, "maximize": True}),
    (SGD, {"lr": 0.1, "momentum": 0.9}),
    (SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    (Adagrad, {"lr": 0.1, "eps": 1e-6}),
    (Adagrad, {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.1, "maximize": True}),
]


@pytest.mark.parametrize(("kind", "options"), SPARSE)
@pytest.mark.parametrize("coalesced", [True, False])
@every_mode
def test_sparse_gradients(kind, options, coalesced, mode):
    """As the class itself on float32 parameters with the same gradients, and dense ones in the same group."""
    torch.manual_seed(1)
    base = nn.ModuleList([nn.Embedding(50, 16), nn.Linear(4, 4)])
    plain, model = copy.deepcopy(base), base
    theirs = kind(plain.parameters(), **options)
    ours = kind(model.parameters(), **options)
    fuse(ours, cast_all(model, mode))
    for seed in range(5):
        set_gradients(model, seed)
        model[0].weight.grad = embedding_gradient(model[0].weight, seed, coalesced)
        for p, q in zip(plain.parameters(), model.parameters(), strict=True):
            p.grad = q.grad.float()
        theirs.step()
        ours.step()
    for a, b in zip(values(model, ours), plain.parameters(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=2e-6, atol=2e-6)
    ours_states, theirs_states = ours.state_dict()["state"], theirs.state_dict()["state"]
    assert ours_states.keys() == theirs_states.keys()
    for i, b in theirs_states.items():
        a = ours_states[i]
        for key in b:
            torch.testing.assert_close(a[key], b[key], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("kind", [SGD, Adagrad])
@pytest.mark.parametrize("mode", list(LOW))
def test_sparse_gradients_give_the_bits_of_float32(kind, mode):
    torch.manual_seed(2)
    plain, model = (base := nn.Embedding(50, 24)), copy.deepcopy(base)
    expected, ours = kind(plain.parameters(), lr=0.1), kind(model.parameters(), lr=0.1)
    fuse(expected, {})
    fuse(ours, cast_all(model, mode))
    for seed in range(100):
        model.weight.grad = embedding_gradient(model.weight, seed, False)
        plain.weight.grad = model.weight.grad.float()
        expected.step()
        ours.step()
    assert torch.equal(values(model, ours)[0], plain.weight.detach())


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Adam, {}, "Adam does not support sparse gradients, please consider SparseAdam instead"),
        (AdamW, {}, "Adam does not support sparse gradients, please consider SparseAdam instead"),
        (Lamb, {}, "Lamb does not support sparse gradients"),
        (Lars, {}, "Lars does not support sparse gradients"),
        (Adagrad, {"weight_decay": 0.1}, "weight_decay option is not compatible with sparse gradients"),
        (SGD, {"weight_decay": 0.1}, "add"),
    ],
)
@every_mode
def test_sparse_gradients_that_are_refused(kind, options, message, mode):
    model = nn.Embedding(50, 16)
    optimizer = kind(model.parameters(), lr=0.1, **options)
    fuse(optimizer, cast_all(model, mode))
    before = values(model, optimizer)
    model.weight.grad = embedding_gradient(model.weight, 0, True)
    with pytest.raises(RuntimeError, match=message):
        optimizer.step()
    assert torch.equal(values(model, optimizer)[0], before[0])
    assert optimizer.param_groups[0]["params"] == [model.weight]
    assert set(optimizer.state) <= {model.weight}


class Signs(torch.optim.Optimizer):
    """An optimizer that this package does not know, with a state and an argument of its own."""

    def __init__(self, params, lr=0.01):
        super().__init__(params, {"lr": lr})

    def step(self, closure=None, *, twice=False):
        loss = closure() if closure is not None else None
        with torch.no_grad():
            for group in self.param_groups:
                for p in group["params"]:
                    if p.grad is not None:
                        assert p.dtype is p.grad.dtype is torch.float32
                        state = self.state[p]
                        state["mean"] = 0.5 * state.get("mean", torch.zeros_like(p)) + p.grad
                        p.sub_(state["mean"].sign(), alpha=group["lr"] * (2 if twice else 1))
        return loss


OTHERS = [
    (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5}),
    (torch.optim.Adafactor, {"lr": 0.01}),
    (torch.optim.Adadelta, {"lr": 0.5}),
    (torch.optim.Adamax, {"lr": 0.01, "foreach": True}),
    (torch.optim.NAdam, {"lr": 0.01}),
    (torch.optim.ASGD, {"lr": 0.01}),
    (torch.optim.Rprop, {"lr": 0.01}),
    (Signs, {}),
    (Adam, {"lr": 0.01}),  # with fused=False
    (AdamW, {"lr": 0.01, "fused": True}),
    (Lamb, {"lr": 0.01}),
]


@pytest.mark.parametrize(("kind", "options"), OTHERS, ids=[k.__name__ for k, _ in OTHERS])
@every_mode
def test_own_step(kind, options, mode):
    """The step of the class, on masters: the bits of float32 parameters with the same gradients; states, too, also
    after a round trip in the middle."""
    plain, model = mlp(), mlp()
    theirs, ours = kind(plain.parameters(), **options), kind(model.parameters(), **options)
    wrappers = cast_all(model, mode)
    fuse(ours, wrappers, fused=False)
    assert ours.fused is False
    for seed in range(6):
        if seed == 3:
            state = copy.deepcopy(ours.state_dict())
            ours = kind(model.parameters(), **options)
            fuse(ours, wrappers, fused=False)
            ours.load_state_dict(state)
        for each, optimizer in ((plain, theirs), (model, ours)):
            set_gradients(each, seed)
            optimizer.step()
        assert list(ours.state) == [p for p in model.parameters() if p in ours.state]
        assert all(w.master_parameter is None or w.master_parameter.grad is None for w in wrappers.values())
    for a, b in zip(values(model, ours), plain.parameters(), strict=True):
        assert torch.equal(a, b)
    ours_state, theirs_state = ours.state_dict()["state"], theirs.state_dict()["state"]
    assert ours_state.keys() == theirs_state.keys()
    for i, state in theirs_state.items():
        for key, value in state.items():
            assert (torch.equal if isinstance(value, torch.Tensor) else lambda a, b: a == b)(ours_state[i][key], value)


def test_parameters_without_gradient_are_not_written():
    """So that weights that are packed stay packed."""
    model = mlp()
    optimizer = torch.optim.RMSprop(model.parameters())
    fuse(optimizer, cast_all(model, "bf16 master"))
    set_gradients(model, 0)
    model[0].weight.grad = None
    before = [p._version for p in model.parameters()]
    optimizer.step()
    assert [p._version == v for p, v in zip(model.parameters(), before, strict=True)] == [True, False, False, False]


def test_arguments_of_the_own_step():
    plain, model = mlp(), mlp()
    theirs, ours = Signs(plain.parameters()), Signs(model.parameters())
    fuse(ours, cast_all(model, "bf16 master"))
    for each, optimizer in ((plain, theirs), (model, ours)):
        set_gradients(each, 0)
        optimizer.step(twice=True)
    for a, b in zip(values(model, ours), plain.parameters(), strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("mode", ["bf16 master", "fp16 master"])
def test_own_step_with_grad_scaler(mode):
    """A parameter that is not cast is in the same optimizer."""
    plain, model = mlp(), mlp()
    theirs, ours = torch.optim.RMSprop(plain.parameters()), torch.optim.RMSprop(model.parameters())
    fuse(ours, {p: w for p, w in ((p, cast(p, LOW[mode], training=True)) for p in model[0].parameters())})
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    assert scaler.scale(torch.ones(())) == 8
    for seed in range(3):
        set_gradients(plain, seed)
        theirs.step()
        set_gradients(model, seed)
        for p in model.parameters():
            p.grad = p.grad * 8
        if seed == 2:
            model[0].weight.grad[0, 0] = float("nan")
        expected = values(model, ours) if seed == 2 else values(plain, theirs)
        scaler.step(ours)
        scaler.update(8.0)
        for a, b in zip(values(model, ours), expected, strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("mode", ["plain", "bf16 master", "split"])
@pytest.mark.parametrize("kind", [torch.optim.LBFGS, Signs, SGD], ids=lambda k: k.__name__)
def test_closures(kind, mode):
    """The closure computes with the parameters of the model, several times in a step of LBFGS, and the loss falls."""
    model = mlp()
    x, y = torch.randn(32, 6), torch.randn(32, 3)
    optimizer = kind(model.parameters(), lr=0.1 if kind is not Signs else 0.002)
    fuse(optimizer, cast_all(model, mode))
    calls = []

    def closure():
        assert torch.is_grad_enabled()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=mode != "plain"):
            loss = nn.functional.mse_loss(model(x).float(), y)
        loss.backward()
        assert all(p.grad.dtype is p.dtype for p in model.parameters())
        calls.append(loss.item())
        return loss

    returned = [optimizer.step(closure).item() for _ in range(10)]
    assert returned[-1] < 0.95 * returned[0]
    assert returned[0] == calls[0]
    assert len(calls) > 20 if kind is torch.optim.LBFGS else len(calls) == 10


def test_several_optimizers():
    """A DLRM's: each has its parameters and its step, and a parameter may have one only."""
    model = nn.ModuleList([nn.Embedding(50, 16), nn.Linear(4, 4), nn.Linear(4, 4)])
    attr = cast_all(model, "split")
    sparse, dense = Adagrad(model[0].parameters(), lr=0.1), AdamW(model[1].parameters(), lr=0.1)
    other = torch.optim.RMSprop(model[2].parameters())
    _optimizer_utils.prepare([sparse, dense, other], attr, fuse=True)
    assert [o.fused for o in (sparse, dense, other)] == [True, True, False]
    assert all(o.params_attr is attr for o in (sparse, dense, other))
    for stepped, optimizer in enumerate((sparse, dense, other)):
        set_gradients(model, stepped)
        before = values(model, optimizer)
        optimizer.step()
        changed = [not torch.equal(a, b) for a, b in zip(before, values(model, optimizer), strict=True)]
        assert changed == [stepped == 0, *[stepped == 1] * 2, *[stepped == 2] * 2]
    with pytest.raises(ValueError, match="belongs to optimizer 0 and to optimizer 1"):
        _optimizer_utils.prepare([sparse, SGD(model.parameters(), lr=0.1)], attr, fuse=True)


def test_prepare_leaves_what_it_can():
    model = mlp()
    other, fusable = torch.optim.RMSprop(model.parameters()), SGD(model.parameters(), lr=0.1)
    _optimizer_utils.prepare(other, {}, fuse=True)
    assert type(other) is torch.optim.RMSprop
    _optimizer_utils.prepare(fusable, {}, fuse=False)
    assert type(fusable) is SGD
    assert other.params_attr == fusable.params_attr == {}
    _optimizer_utils.prepare(fusable, {}, fuse=True)
    assert isinstance(fusable, PreparedOptimizer)
    _optimizer_utils.prepare(None, {}, fuse=True)


def test_can_split(caplog):
    model = mlp()
    known, other = Lamb(model.parameters()), torch.optim.Adamax(model.parameters())
    assert _optimizer_utils.can_split(known, explicit=True)
    assert _optimizer_utils.can_split((known, AdamW(model.parameters())))
    assert not _optimizer_utils.can_split([known, other])
    assert not caplog.records
    with caplog.at_level(logging.WARNING, logger="IPEX"):
        assert not _optimizer_utils.can_split(other, explicit=True)
    assert "[NotSupported]split_master_weight_for_bf16 needs one of the optimizers SGD" in caplog.text
    fuse(known, {})
    assert _optimizer_utils.can_split(known)


@every_mode
@pytest.mark.parametrize("kind", [AdamW, torch.optim.RMSprop, torch.optim.LBFGS], ids=lambda k: k.__name__)
def test_copy_model_and_optimizer(kind, mode, caplog):
    model = mlp()
    model.tied = model[0].weight
    optimizer = kind(model.parameters(), lr=0.01)
    model.params_attr = cast_all(model, mode)
    _optimizer_utils.prepare(optimizer, model.params_attr, fuse=True)
    calls = []
    optimizer.register_step_post_hook(lambda *_: calls.append(1))
    closure = (lambda: torch.tensor(1.0)) if kind is torch.optim.LBFGS else None
    set_gradients(model, 0)
    optimizer.step(closure)
    before = values(model, optimizer)
    new, (copied,) = _optimizer_utils.copy_model_and_optimizer(model, (optimizer,))
    assert type(copied) is type(optimizer)
    assert new.tied is new[0].weight
    assert copied.params_attr is new.params_attr
    assert all(p is q for p, q in zip(copied.param_groups[0]["params"], new.parameters(), strict=True))
    set_gradients(new, 1)
    copied.step(closure)
    assert calls == [1, 1]
    assert all(torch.equal(a, b) for a, b in zip(values(model, optimizer), before, strict=True))
    set_gradients(model, 1)
    optimizer.step(closure)
    assert all(torch.equal(a, b) for a, b in zip(values(model, optimizer), values(new, copied), strict=True))
    assert not caplog.records
    torch.optim.lr_scheduler.StepLR(optimizer, 1)
    _optimizer_utils.copy_model_and_optimizer(model, optimizer)
    assert "[WrongArgument]a scheduler of the learning rate follows the given optimizer" in caplog.text


def test_step_that_was_replaced():
    optimizer = SGD(mlp().parameters(), lr=0.1)
    optimizer.step = lambda: None
    with pytest.raises(ValueError, match=r"optimizer.step was replaced by .*<lambda>: prepare the optimizer first"):
        fuse(optimizer, {})


def test_differentiable_and_complex_parameters_have_the_own_step():
    p, q = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3, dtype=torch.complex64))
    optimizer, plain = SGD([p, q], lr=0.1), SGD([r := p.detach().clone(), s := q.detach().clone()], lr=0.1)
    fuse(optimizer, {})
    p.grad, q.grad = torch.ones(3), torch.ones(3, dtype=torch.complex64) * 1j
    r.grad, s.grad = p.grad, q.grad
    optimizer.step()
    plain.step()
    assert torch.equal(p, r)
    assert torch.equal(q, s)
    optimizer.param_groups[0]["differentiable"] = True
    optimizer.step()
    plain.step()
    assert torch.equal(p, r)


def test_model_cast_back_to_float32():
    """`model.float()` ends the cast: the optimizer goes on with the parameters as they are."""
    model = mlp()
    optimizer = SGD(model.parameters(), lr=0.1)
    fuse(optimizer, cast_all(model, "split"))
    model.float()
    set_gradients(model, 0)
    expected = [p.detach() - 0.1 * p.grad for p in model.parameters()]
    optimizer.step()
    for p, value in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(p.detach(), value)
        assert torch.equal(optimizer.params_attr[p].public_value(), p.detach())


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("split", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_wrapper(training, split, dtype):
    if training and split and dtype is torch.float16:
        with pytest.raises(ValueError, match="only bfloat16 parameters can be split"):
            cast(nn.Parameter(torch.ones(2)), dtype, training=True, split=True)
        return
    p = nn.Parameter(torch.randn(4, 5).t())
    value, strides = p.detach().clone(), p.stride()
    wrapper = cast(p, dtype, training=training, split=split)
    assert wrapper.parameter is p
    assert p.dtype is dtype
    assert p.stride() == strides
    assert p.requires_grad
    shown = wrapper.public_value()
    assert shown.dtype is torch.float32
    assert torch.equal(shown, value if training else value.to(dtype).float())
    version = p._version
    wrapper.load_public(2 * value.double())
    assert p._version > version
    assert torch.equal(wrapper.public_value(), 2 * value if training else (2 * value).to(dtype).float())
    before = wrapper.public_value().clone()
    (wrapper.cast_for_training(dtype, split) if training else wrapper.cast_for_inference(dtype))
    assert torch.equal(wrapper.public_value(), before)
    with pytest.raises(ValueError, match="only float32 parameters are cast for training"):
        cast(nn.Parameter(torch.ones(2).double()), dtype, training=True)


def test_shared_parameter_status():
    class Custom(nn.Module):
        def __init__(self, weight):
            super().__init__()
            self.weight = weight
            self.listed = nn.ParameterList([torch.ones(2)])

    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)])
    model[1].weight = model[0].weight
    model.append(Custom(model[2].weight))
    shared = {}
    get_shared_parameter_status(model, shared)
    assert set(shared) == set(model.parameters())
    assert all(isinstance(w, ParameterWrapper) and w.parameter is p for p, w in shared.items())
    assert shared[model[0].weight].num_modules == 2
    assert shared[model[0].bias].modules_cls == {nn.Linear}
    assert shared[model[2].weight].modules_cls == {nn.Linear, Custom}
    assert shared[model[2].weight].num_modules == 2
    assert Custom in shared[model[3].listed[0]].modules_cls


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_lamb_and_lars_alone(dtype):
    """Without preparation they are plain optimizers, which train; Lamb(fused=True) agrees."""
    x, y = torch.randn(32, 6, dtype=dtype), torch.randn(32, 3, dtype=dtype)
    results = []
    for make in (
        lambda p: Lamb(p, lr=0.02),
        lambda p: Lamb(p, lr=0.02, fused=True),
        lambda p: Lars(p, lr=2.0, eeta=0.01, momentum=0.9),
    ):
        model = mlp().to(dtype)
        optimizer = make(model.parameters())
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)
        losses = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(float(loss))
        assert losses[-1] < 0.9 * losses[0]
        results.append(losses)
        again = copy.deepcopy(optimizer)
        assert again.fused == optimizer.fused
        assert again.state_dict()["param_groups"] == optimizer.state_dict()["param_groups"]
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)
    for kind, options in (
        (Lamb, {"betas": (0.9, 1.0)}),
        (Lamb, {"lr": -1.0}),
        (Lars, {"eeta": 2.0}),
        (Lars, {"lr": -1}),
    ):
        with pytest.raises(ValueError, match="Invalid"):
            kind(mlp().parameters(), **options)


def test_create_optimizer_lars():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Linear(4, 4))
    separate = create_optimizer_lars(model, 0.1, 0.9, 1e-4, True, 1e-6)
    names = {p: n for n, p in model.named_parameters()}
    assert [[names[p] for p in g["params"]] for g in separate.param_groups] == [
        ["0.weight", "2.weight"],
        ["1.weight", "1.bias"],
        ["0.bias", "2.bias"],
    ]
    assert [(g["lars"], g["weight_decay"]) for g in separate.param_groups] == [(True, 1e-4), (False, 0), (False, 0)]
    together = create_optimizer_lars(model, 0.1, 0.9, 1e-4, False, 1e-6)
    assert len(together.param_groups) == 1
    results = []
    for fused in (False, True):
        optimizer = create_optimizer_lars(copied := copy.deepcopy(model), 0.1, 0.9, 1e-4, True, 1e-6)
        if fused:
            fuse(optimizer, {})
        for seed in range(3):
            set_gradients(copied, seed)
            optimizer.step()
        results.append(values(copied, optimizer))
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def test_lazy_access():
    assert ipex.optim.Lamb is Lamb
