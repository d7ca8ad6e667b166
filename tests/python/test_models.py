"""Compares whole models with eager: inference and training, fp32 within its tolerance, bf16 by its error against fp64.

A compiled call must not change anything that the user owns. After inference, all parameters and buffers, and a second
eager run, are compared bit for bit.
"""

import copy
import warnings
from statistics import geometric_mean

import native_share
import pytest
import torch
from comparison import (
    apart_by_rounding,
    assert_as_near,
    assert_as_near_as_eager,
    assert_close_to_eager,
    assert_error_within,
    assert_near_in_norm,
    difference,
    squares,
    tensors_of,
)
from conftest import BACKEND
from torch.utils import _pytree as pytree
from zoo_handwritten import MODELS
from zoo_more_transformers import FAMILIES as MORE
from zoo_transformers import FAMILIES
from zoo_vision import FAMILIES as VISION

ALL = {**MODELS, **FAMILIES, **MORE, **VISION}
# The reference for low precision is fp64, except for models whose code requires fp32 (their masks would overflow).
REFERENCE_DTYPES = {"canine": torch.float32, "longformer": torch.float32}
DRAWS = 12  # number of inputs whose errors are combined, because the error of a few logits is mostly luck
TRAINING_DRAWS = 6
MORE_TRAINING_DRAWS = {"audio_spectrogram": 24, "levit": 40}
# A change of 1e-3 in the input changes these gradients by a tenth, in fp64 too. The error of one batch is luck, and the
# largest error would dominate a norm, so the geometric mean is used.
ILL_CONDITIONED = {"levit"}
# Eager's fp32 gradients are 3.5e-3 from fp64 (batch norms of few values), ours 9e-6.
EAGER_IS_FAR = {"mobilenet_v2"}
# Eager's fp32 gradients are up to 3e-2 from fp64, and change by as much when the input changes by a rounding.
ROUNDING_DECIDES = {
    "torchvision_resnet50", "torchvision_densenet121", "torchvision_shufflenet_v2_x0_5", "torchvision_fcn_resnet50",
    "timm_resnet50", "timm_efficientnet_b0", "timm_resnetv2_50x1_bit", "timm_hgnetv2_b0",
}  # fmt: skip

# Models for the nightly run: variations of architectures that another model covers, and others by mode.
VARIATIONS = {"roberta", "electra", "deit", "mistral", "qwen2", "phi", "beit", "mpnet"}
HEAVY = {"gpt_neox", "gemma", "clip", "segformer", "whisper", "mobilenet_v2", "distilbert", "opt"}
NIGHTLY = {
    "inference_fp32": VARIATIONS | {"segformer"},
    "inference_bf16": VARIATIONS | {"distilbert", "opt", "mobilenet_v2", "segformer", "bart", "whisper", "wav2vec2"},
    "inference_autocast": VARIATIONS | HEAVY | {"bart", "albert", "swin", "t5"},
    "training_fp32": VARIATIONS | HEAVY | {"bart", "swin", "wav2vec2"},
    "training_bf16": VARIATIONS | HEAVY | {"t5", "bart", "swin", "wav2vec2"},
    "dynamic": (set(FAMILIES) - {"llama"}) | {"unet", "mlp_mixer", "cnn_channels_last"},
}
VISION_MODES = {"inference_fp32", "inference_bf16", "training_fp32", "training_bf16"}


def models(mode):
    late = NIGHTLY[mode] | set(MORE) | set(VISION)
    names = [name for name in ALL if name not in VISION or mode in VISION_MODES]

    def marks(name):
        missing = VISION[name].missing if name in VISION else None
        skip = [pytest.mark.skip(reason=missing)] if missing else []
        return [pytest.mark.nightly, *skip] if name in late else skip

    return pytest.mark.parametrize("name", [pytest.param(name, marks=marks(name)) for name in names])


@pytest.fixture(autouse=True)
def plain_attention():
    """Turns off the fused inference path of nn.TransformerEncoder, whose result dtypes differ, and that Dynamo never
    uses."""
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(True)


@pytest.fixture(autouse=True)
def nothing_runs_eagerly(request, record_property):
    """Fails if a graph runs eagerly. The op counts of two modes are compared with the recorded ones."""
    if BACKEND != "ipex":
        yield
        return
    counted = request.node.originalname in ("test_inference_fp32", "test_training_fp32")
    entry = request.node.name.removeprefix("test_") if counted else None
    with native_share.nothing_runs_eagerly(record_property, entry):
        yield


def build(name, *, training=False, dropout=False, seed=0):
    torch.manual_seed(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, inputs = ALL[name]()
    model.train(training)
    if not dropout:
        silence_dropout(model)
    return model, inputs


def inputs_of(name, seed):
    """The inputs that a seed gives, without another model where making one takes long."""
    if name not in VISION:
        return build(name, seed=seed)[1]
    torch.manual_seed(seed)
    return VISION[name].inputs()


def silence_dropout(model):
    """Sets all dropout rates to zero: in modules, in attributes of attention layers and in configurations."""
    for module in model.modules():
        for key, value in vars(module).items():
            drops = any(kind in type(module).__name__ for kind in ("Dropout", "StochasticDepth"))
            if isinstance(value, float) and ("drop" in key or (key == "p" and drops)):
                setattr(module, key, 0.0)
        config = getattr(module, "config", None)
        for key in [k for k in vars(config) if "drop" in k] if config is not None else []:
            if isinstance(getattr(config, key), float):
                setattr(config, key, 0.0)


def call(model, inputs):
    torch.manual_seed(7)  # some models select patches at random
    return model(**inputs) if isinstance(inputs, dict) else model(*inputs)


def in_dtype(inputs, dtype):
    def convert(value):
        return value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    return pytree.tree_map(convert, inputs)


def copy_in(model, dtype):
    return copy.deepcopy(model).to(dtype)


def reference_dtype(name):
    return REFERENCE_DTYPES.get(name, torch.float64)


def state_of(model):
    return {key: value.detach().clone() for key, value in [*model.named_parameters(), *model.named_buffers()]}


def assert_state_unchanged(model, before):
    for key, value in [*model.named_parameters(), *model.named_buffers()]:
        assert torch.equal(bits(value), bits(before[key])), key


def bits(tensor):
    return tensor.detach().reshape(-1).view(torch.uint8)


def loss_of(outputs):
    """A scalar that depends on every output: a fixed random projection. (A mean square of normalised rows is
    constant.)"""
    generator = torch.Generator().manual_seed(1)
    total = 0.0
    for t in tensors_of(outputs):
        if t.is_floating_point() and t.requires_grad:
            weights = torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype)
            total = total + (t * weights).sum(dtype=torch.float64 if t.dtype == torch.float64 else torch.float32)
    return total


def train_step(run, model, inputs):
    """Runs forward and backward; returns the loss, and the gradients of all parameters that it depends on."""
    model.zero_grad(set_to_none=True)
    torch.manual_seed(7)
    loss = loss_of(call(run, inputs))
    loss.backward()
    gradients = {key: p.grad for key, p in model.named_parameters() if p.grad is not None}
    assert gradients
    return loss.detach(), gradients


@models("inference_fp32")
def test_inference_fp32(name, compiled):
    model, inputs = build(name)
    before = state_of(model)
    with torch.no_grad():
        eager = call(model, inputs)
        run = compiled(model)
        for _ in range(2):
            assert_close_to_eager(call(run, inputs), eager, scale=20.0)
        again = call(model, inputs)
    assert_state_unchanged(model, before)
    assert all(torch.equal(bits(a), bits(b)) for a, b in zip(tensors_of(again), tensors_of(eager), strict=True))


@pytest.mark.one_in(2)
@models("inference_bf16")
def test_inference_bf16(name, compiled):
    model = build(name)[0]
    low_model = copy_in(model, torch.bfloat16)
    # The reference uses the same rounded weights, so that only the error of the arithmetic is measured.
    exact = reference_dtype(name)
    exact_model = copy_in(low_model, exact)
    before = state_of(low_model)
    run = compiled(low_model)
    ours, eager, reference = [], [], []
    with torch.no_grad():
        for seed in range(DRAWS):
            low_inputs = in_dtype(inputs_of(name, seed), torch.bfloat16)
            reference.append(call(exact_model, in_dtype(low_inputs, exact)))
            eager.append(call(low_model, low_inputs))
            ours.append(call(run, low_inputs))
    assert_same_structure(ours, eager)
    assert_error_within(ours, eager, reference)
    assert_state_unchanged(low_model, before)


def reached_by_eager(ours, eager):
    """Our gradients by name, without the zeros that AOTAutograd returns for parameters that do not affect the loss."""
    assert not [key for key in ours.keys() - eager.keys() if ours[key].any()]
    return {key: ours[key] for key in eager}


def assert_same_structure(ours, eager):
    for a, b in zip(tensors_of(ours), tensors_of(eager), strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)


def resized(inputs, batch):
    """Inputs with another batch size, by repeating or dropping rows."""

    def of_batch(value):
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return value
        return torch.cat([value] * (batch // value.shape[0] + 1))[:batch].contiguous()

    return pytree.tree_map(of_batch, inputs)


@models("dynamic")
def test_inference_dynamic(name, compiled):
    """A second batch size causes one dynamic graph. No size compiles more than backend="eager" does."""
    model, inputs = build(name)
    torch._dynamo.reset()

    def frames(run):
        torch._dynamo.utils.counters.clear()
        results = [call(run, resized(inputs, batch)) for batch in (3, 5, 4, 7)]
        return results, torch._dynamo.utils.counters["stats"]["unique_graphs"]

    with torch.no_grad():
        _, expected = frames(torch.compile(model, backend="eager"))
        torch._dynamo.reset()
        ours, graphs = frames(compiled(model))
        for batch, result in zip((3, 5, 4, 7), ours, strict=True):
            assert_close_to_eager(result, call(model, resized(inputs, batch)), scale=20.0)
    assert graphs <= expected


@pytest.mark.one_in(2)
@models("training_fp32")
def test_training_fp32(name, compiled):
    """With dropout: masks come from the same generator state, so they equal eager's bit for bit."""
    model, inputs = build(name, training=True, dropout=True)
    twin = copy.deepcopy(model)
    eager_loss, eager = train_step(model, model, inputs)
    loss, ours = train_step(compiled(twin), twin, inputs)
    ours = reached_by_eager(ours, eager)
    if name in ROUNDING_DECIDES:
        exact = copy.deepcopy(model).double()
        exact_loss, reference = train_step(exact, exact, in_dtype(inputs, torch.float64))
        torch.testing.assert_close(loss.double(), exact_loss, rtol=1e-4, atol=1e-4)
        other = copy.deepcopy(model)  # keeps its own running statistics
        runs = [eager, *(train_step(other, other, moved)[1] for moved in apart_by_rounding(inputs))]
        assert_as_near_as_eager(ours, runs, reference)
    elif name in EAGER_IS_FAR:
        torch.testing.assert_close(loss, eager_loss, rtol=1e-4, atol=1e-4)
        exact = copy.deepcopy(model).double()
        reference = train_step(exact, exact, in_dtype(inputs, torch.float64))[1]
        assert_error_within(list(ours.values()), list(eager.values()), list(reference.values()), factor=1.0)
    else:
        torch.testing.assert_close(loss, eager_loss, rtol=1e-4, atol=1e-4)
        assert_near_in_norm(list(ours.values()), list(eager.values()))
    for (key, a), (_, b) in zip(twin.named_buffers(), model.named_buffers(), strict=True):
        message = difference(a, b, scale=20.0)
        assert message is None, f"buffer {key}: {message}"


@pytest.mark.one_in(2)
@models("training_bf16")
def test_training_bf16(name, compiled):
    """bf16 training by autocast with fp32 parameters. All gradients of several batches are compared as one vector."""
    model, _ = build(name, training=True)
    exact = reference_dtype(name)
    twin, exact_model = copy.deepcopy(model), copy_in(model, exact)
    run = compiled(twin)

    def autocast(run):
        def step(*args, **kwargs):
            with torch.autocast("cpu", torch.bfloat16):
                return run(*args, **kwargs)

        return step

    ours, eager = [], []  # by batch: what `squares` gives. Gradients of all batches may need more memory than there is.
    for seed in range(MORE_TRAINING_DRAWS.get(name, TRAINING_DRAWS)):
        inputs = inputs_of(name, seed)
        expected = train_step(autocast(model), model, inputs)[1]
        given = reached_by_eager(train_step(autocast(run), twin, inputs)[1], expected)
        reference = list(train_step(exact_model, exact_model, in_dtype(inputs, exact))[1].values())
        assert_same_structure(list(given.values()), list(expected.values()))
        ours.append(squares(list(given.values()), reference))
        eager.append(squares(list(expected.values()), reference))
    if name in ILL_CONDITIONED:
        means = [geometric_mean((error / total) ** 0.5 for error, total in batches) for batches in (ours, eager)]
    else:
        means = [
            (sum(error for error, _ in batches) / sum(total for _, total in batches)) ** 0.5
            for batches in (ours, eager)
        ]
    assert_as_near(*means)


@pytest.mark.one_in(2)
@models("inference_autocast")
def test_inference_autocast(name, compiled):
    model = build(name)[0]
    exact = reference_dtype(name)
    exact_model, run = copy_in(model, exact), compiled(model)
    ours, eager, reference = [], [], []
    with torch.no_grad():
        for seed in range(DRAWS):
            inputs = inputs_of(name, seed)
            reference.append(call(exact_model, in_dtype(inputs, exact)))
            with torch.autocast("cpu", torch.bfloat16):
                eager.append(call(model, inputs))
                ours.append(call(run, inputs))
    assert_same_structure(ours, eager)
    assert_error_within(ours, eager, reference)


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_dropout_masks_are_bit_equal(p, compiled):
    x = torch.randn(64, 65)

    def dropped(x):
        return torch.nn.functional.dropout(x.exp(), p) * 2, torch.rand_like(x) + torch.randn(5)[0]

    torch.manual_seed(3)
    eager = dropped(x)
    after_eager = torch.get_rng_state()
    torch.manual_seed(3)
    ours = compiled(dropped)(x)
    assert torch.equal(ours[0] == 0, eager[0] == 0)
    assert torch.equal(ours[1], eager[1])
    assert torch.equal(torch.get_rng_state(), after_eager)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_grad_modes(mode, compiled):
    model, inputs = build("mlp")
    with mode():
        assert_close_to_eager(call(compiled(model), inputs), call(model, inputs), strides=True)


def test_channels_last_strides(compiled):
    model, inputs = build("cnn_channels_last")
    with torch.no_grad():
        ours, eager = compiled(model.features)(*inputs), model.features(*inputs)
    assert_close_to_eager(ours, eager, strides=True, scale=20.0)


def test_weight_update_is_seen(compiled):
    """Hoisted and packed values follow an in-place update, load_state_dict and a replacement of .data."""
    model, inputs = build("mlp")
    run = compiled(model)
    with torch.no_grad():
        assert_close_to_eager(call(run, inputs), call(model, inputs))
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.1)
        assert_close_to_eager(call(run, inputs), call(model, inputs))
        model.load_state_dict({key: value * 0.5 for key, value in model.state_dict().items()})
        assert_close_to_eager(call(run, inputs), call(model, inputs))
        model[0].weight.data = torch.randn_like(model[0].weight)
        assert_close_to_eager(call(run, inputs), call(model, inputs))


def test_training_loop_follows_eager(compiled):
    """Twenty SGD steps with momentum, batch norm and dropout give the same losses and running statistics."""
    model, (x,) = build("cnn", training=True, dropout=True)
    twin = copy.deepcopy(model)
    target = torch.randint(0, 10, (x.shape[0],))

    def losses(run, model):
        torch.manual_seed(11)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        curve = []
        for _ in range(20):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(run(x), target)
            loss.backward()
            optimizer.step()
            curve.append(loss.item())
        return torch.tensor(curve)

    torch.testing.assert_close(losses(compiled(twin), twin), losses(model, model), rtol=1e-2, atol=1e-3)
    for a, b in zip(twin.buffers(), model.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-2, atol=1e-3)
