"""All losses and normalisations of torch.nn in strict mode: values and gradients. fp32 is compared with eager. In bf16,
our error against fp64 (2-norm) must be at most 1.1 times eager's."""

import pytest
import torch
import torch.nn.functional as F
from comparison import assert_close_to_eager, assert_near_in_norm, relative_error
from torch import nn

CLASSES = 11
DRAWS = 8


def scores(*shape):
    return lambda: torch.randn(*shape)


def chances(*shape):
    return lambda: torch.rand(*shape) * 0.98 + 0.01


def labels(*shape, ignored=False):
    def draw():
        values = torch.randint(0, CLASSES, shape)
        return torch.where(torch.rand(shape) < 0.2, -100, values) if ignored else values

    return draw


def signs(*shape):
    return Fixed(lambda: torch.randint(0, 2, shape) * 2.0 - 1.0)


class Fixed:
    """Wraps an argument without a gradient."""

    def __init__(self, draw):
        self.draw = draw

    def __call__(self):
        return self.draw()


ROW, GRID = (9, 37), (4, CLASSES, 5, 6)
WEIGHT = torch.linspace(0.2, 2.0, CLASSES)
PAIR = (scores(*ROW), scores(*ROW))


def reductions(label, function, inputs, **options):
    return [
        (f"{label}-{r}", lambda *a, r=r: function(*a, reduction=r, **options), inputs) for r in ("mean", "sum", "none")
    ]


def weighted(function):
    """A loss with class weights in the dtype of the arguments."""
    return lambda x, *rest, **options: function(x, *rest, weight=WEIGHT.to(x.dtype), **options)


LOSSES = [
    *reductions("mse", F.mse_loss, PAIR),
    *reductions("l1", F.l1_loss, PAIR),
    *reductions("smooth_l1", F.smooth_l1_loss, PAIR, beta=0.7),
    *reductions("smooth_l1_beta_0", F.smooth_l1_loss, PAIR, beta=0.0),
    *reductions("huber", F.huber_loss, PAIR, delta=0.6),
    *reductions("bce", F.binary_cross_entropy, (chances(*ROW), chances(*ROW))),
    *reductions("bce_logits", F.binary_cross_entropy_with_logits, (scores(*ROW), chances(*ROW))),
    ("bce_logits-weights", lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, w, pos_weight=w[0]),
     (scores(*ROW), chances(*ROW), Fixed(chances(*ROW)))),
    *reductions("nll", F.nll_loss, (scores(9, CLASSES), labels(9, ignored=True))),
    *reductions("nll_weighted", weighted(F.nll_loss), (scores(9, CLASSES), labels(9))),
    *reductions("nll_2d", F.nll_loss, (scores(*GRID), labels(4, 5, 6, ignored=True))),
    *reductions("nll_2d_weighted", weighted(F.nll_loss), (scores(*GRID), labels(4, 5, 6))),
    *reductions("cross_entropy", F.cross_entropy, (scores(9, CLASSES), labels(9, ignored=True))),
    *reductions("cross_entropy_smooth", weighted(F.cross_entropy), (scores(9, CLASSES), labels(9)),
                label_smoothing=0.1),
    *reductions("cross_entropy_2d", F.cross_entropy, (scores(*GRID), labels(4, 5, 6)), ignore_index=3),
    *reductions("cross_entropy_soft", F.cross_entropy, (scores(9, CLASSES), chances(9, CLASSES)), label_smoothing=0.2),
    *reductions("kl_div", F.kl_div, (scores(*ROW), chances(*ROW))),
    *reductions("kl_div_log", F.kl_div, PAIR, log_target=True),
    *reductions("poisson_nll", F.poisson_nll_loss, (scores(*ROW), chances(*ROW)), full=True),
    *reductions("soft_margin", F.soft_margin_loss, (scores(*ROW), signs(*ROW))),
    *reductions("hinge_embedding", F.hinge_embedding_loss, (scores(*ROW), signs(*ROW))),
    *reductions("margin_ranking", F.margin_ranking_loss, (*PAIR, signs(*ROW)), margin=0.3),
    *reductions("cosine_embedding", F.cosine_embedding_loss, (*PAIR, signs(9)), margin=0.1),
    *reductions("triplet_margin", F.triplet_margin_loss, (*PAIR, scores(*ROW))),
    *reductions("multi_margin", F.multi_margin_loss, (scores(9, CLASSES), labels(9))),
    *reductions("multi_margin_weighted", weighted(F.multi_margin_loss), (scores(9, CLASSES), labels(9)), p=2),
    *reductions("multilabel_margin", F.multilabel_margin_loss, (scores(9, CLASSES), labels(9, CLASSES))),
    *reductions("multilabel_soft_margin", F.multilabel_soft_margin_loss, (scores(*ROW), chances(*ROW))),
]  # fmt: skip

# The module, and the shape of its argument.
NORMS = {
    "batch_norm_1d": (lambda: nn.BatchNorm1d(13), (6, 13)),
    "batch_norm_1d_length": (lambda: nn.BatchNorm1d(13, momentum=None), (6, 13, 17)),
    "batch_norm_2d": (lambda: nn.BatchNorm2d(8), (4, 8, 9, 7)),
    "batch_norm_2d_plain": (lambda: nn.BatchNorm2d(8, affine=False, track_running_stats=False), (4, 8, 9, 7)),
    "batch_norm_3d": (lambda: nn.BatchNorm3d(3), (2, 3, 4, 5, 6)),
    "instance_norm_1d": (lambda: nn.InstanceNorm1d(5, affine=True), (3, 5, 33)),
    "instance_norm_2d": (lambda: nn.InstanceNorm2d(5, track_running_stats=True), (3, 5, 8, 9)),
    "group_norm": (lambda: nn.GroupNorm(4, 12), (3, 12, 7, 5)),
    "group_norm_plain": (lambda: nn.GroupNorm(3, 12, affine=False), (3, 12, 19)),
    "layer_norm": (lambda: nn.LayerNorm(65), (6, 9, 65)),
    "layer_norm_2d": (lambda: nn.LayerNorm((9, 16), bias=False), (6, 9, 16)),
    "rms_norm": (lambda: nn.RMSNorm(65), (6, 9, 65)),
    "rms_norm_eps": (lambda: nn.RMSNorm((9, 16), eps=1e-3, elementwise_affine=False), (6, 9, 16)),
    "weight_norm": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(16, 8)), (5, 16)),
    "normalize": (lambda: Normalize(), (6, 33)),
}


class Normalize(nn.Module):
    def forward(self, x):
        return F.normalize(x, dim=1)


def cast(value, dtype):
    return value.to(dtype) if value.is_floating_point() else value


def results_and_gradients(function, inputs, dtype, parameters=()):
    """[result, gradients...], for gradients of the result times fixed numbers."""
    inputs = [cast(v, dtype).detach().clone().requires_grad_(v.requires_grad) for v in inputs]
    result = function(*inputs)
    weights = torch.linspace(0.5, 1.5, result.numel()).reshape(result.shape).to(result.dtype)
    wanted = [v for v in inputs if v.requires_grad] + list(parameters)
    gradients = torch.autograd.grad((result * weights).sum(), wanted, allow_unused=True)
    return [result, *(g for g in gradients if g is not None)]


def draw(makers, dtype):
    inputs = [cast(make(), dtype) for make in makers]
    for value, make in zip(inputs, makers, strict=True):
        value.requires_grad_(value.is_floating_point() and not isinstance(make, Fixed))
    return inputs


def assert_bf16_error(cases):
    """cases: (ours, eager, exact), each a list of tensors. For a single number, one rounding more or less is decisive.
    So the error is computed over all draws, with each tensor in units of its norm."""
    ours, eager = 0.0, 0.0
    for tensors in zip(*(zip(*case, strict=True) for case in cases), strict=True):
        for a, b, _ in tensors:
            assert a.dtype is b.dtype and a.shape == b.shape
        ours += relative_error([a for a, _, _ in tensors], [c for _, _, c in tensors]) ** 2
        eager += relative_error([b for _, b, _ in tensors], [c for _, _, c in tensors]) ** 2
    assert ours**0.5 <= 1.1 * eager**0.5, f"error {ours**0.5:.3e} against fp64, eager {eager**0.5:.3e}"


@pytest.mark.parametrize("name, function, makers", LOSSES, ids=[case[0] for case in LOSSES])
def test_loss(name, function, makers, compiled, strict):
    inputs = draw(makers, torch.float32)
    eager = results_and_gradients(function, inputs, torch.float32)
    ours = results_and_gradients(compiled(function), inputs, torch.float32)
    assert_close_to_eager(ours[0], eager[0], strides=True)
    assert_near_in_norm(ours[1:], eager[1:], bound=1e-5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name, function, makers", LOSSES, ids=[case[0] for case in LOSSES])
def test_loss_bf16(name, function, makers, compiled, strict):
    optimised = compiled(function)
    cases = []
    for _ in range(DRAWS):
        inputs = draw(makers, torch.bfloat16)
        try:
            eager = results_and_gradients(function, inputs, torch.bfloat16)
        except NotImplementedError:
            pytest.skip("eager has no bf16 form")
        ours = results_and_gradients(optimised, inputs, torch.bfloat16)
        cases.append((ours, eager, results_and_gradients(function, inputs, torch.float64)))
    assert_bf16_error(cases)


MARGINS = {
    "one label": (F.multi_margin_loss, [[2], [0], [4]]),
    "squares": (lambda x, y, reduction: F.multi_margin_loss(x, y, p=2, margin=2, reduction=reduction), [[2], [0], [4]]),
    "weighted": (
        lambda x, y, reduction: F.multi_margin_loss(x, y, weight=WEIGHT[:5].to(x), reduction=reduction),
        [[2], [0], [4]],
    ),
    "labels": (F.multilabel_margin_loss, [[3, 1, -1, 0, 0], [4, 4, 2, -1, -1], [0, 1, 2, 3, 4]]),
    "no labels": (F.multilabel_margin_loss, [[-1, 0, 1, 2, 3], [1, -1, -1, -1, -1], [-1, -1, -1, -1, -1]]),
}


@pytest.mark.one_in(3)
@pytest.mark.needs_ipex  # PyTorch's decompositions differ from its operators
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", MARGINS)
def test_margins(name, dtype, dynamic, compiled, strict):
    """Labels up to the first -1; margins that are met exactly; infinities and NaN; batches and single samples."""
    function, target = MARGINS[name][0], torch.tensor(MARGINS[name][1])
    target = target.squeeze(1) if target.shape[1] == 1 else target
    random = torch.randn(3, 5, dtype=dtype)
    edges = [
        [1.0, 2.0, 3.0, 2.0, 0.0],
        [float("inf"), 1.0, -float("inf"), 1.0, 1.0],
        [float("nan"), 1.0, 2.0, 0.5, 1.0],
    ]
    for reduction in ("mean", "sum", "none"):

        def run(x, y, reduction=reduction):
            return function(x, y, reduction=reduction)

        run_compiled = compiled(run, dynamic=dynamic)
        for x in (random, torch.tensor(edges, dtype=dtype)):
            for row, label in ((x, target), (x[0], target[0])):
                ours, eager = (
                    results_and_gradients(f, [row.requires_grad_(), label], dtype) for f in (run_compiled, run)
                )
                assert_close_to_eager(ours, eager)


def norm_run(name, training, dtype, x, wrap):
    """[result, gradients..., running statistics...] after one step."""
    make, _ = NORMS[name]
    torch.manual_seed(1)
    module = make().train(training)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3 + 1)
    module.to(dtype)
    values = results_and_gradients(wrap(module), [x], dtype, module.parameters())
    return values + [b.clone() for b in module.buffers() if b.is_floating_point()]


@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("name", NORMS)
def test_norm(name, training, compiled, strict):
    x = torch.randn(NORMS[name][1], requires_grad=True)
    eager = norm_run(name, training, torch.float32, x, lambda m: m)
    ours = norm_run(name, training, torch.float32, x, compiled)
    assert_close_to_eager(ours[0], eager[0], strides=True)
    assert_near_in_norm(ours[1:], eager[1:], bound=1e-5)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("name", NORMS)
def test_norm_bf16(name, training, compiled, strict):
    cases = []
    for _ in range(2):
        x = torch.randn(NORMS[name][1]).bfloat16().requires_grad_()
        eager = norm_run(name, training, torch.bfloat16, x, lambda m: m)
        exact = norm_run(name, training, torch.float64, x, lambda m: m)
        cases.append((norm_run(name, training, torch.bfloat16, x, compiled), eager, exact))
    assert_bf16_error(cases)


WIDE_PARAMETERS = {
    "batch": lambda x, w, b: torch.native_batch_norm(x, w, b, None, None, True, 0.1, 1e-5),
    "batch, running": lambda x, w, b: torch.native_batch_norm(x, w, b, w.detach() * 0, w.detach() + 1, True, 0.1, 1e-5),
    "batch in eval": lambda x, w, b: torch.native_batch_norm(x, w, b, w.detach() + 9, w.detach(), False, 0.1, 1e-5),
    "layer": lambda x, w, b: torch.native_layer_norm(x, (12,), w, b, 1e-5),
    "layer without bias": lambda x, w, b: torch.native_layer_norm(x, (12,), w, None, 1e-5),
    "group": lambda x, w, b: torch.native_group_norm(x, w, b, 8, 12, 144, 4, 1e-5),
    "instance": lambda x, w, b: (F.instance_norm(x, None, None, w, b),),
}


@pytest.mark.one_in(2)
@pytest.mark.needs_ipex
@pytest.mark.parametrize("recompute", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", WIDE_PARAMETERS)
def test_halves_with_wide_parameters(name, dtype, recompute, compiled, strict):
    """The statistics stay in fp32, so that gradients for inputs far from zero are as accurate as eager's."""
    function = WIDE_PARAMETERS[name]
    x, incoming = (torch.randn(8, 12, 12, 12) * 0.5 + 10).to(dtype), torch.randn(8, 12, 12, 12)
    weight, bias = torch.rand(12) + 0.5, torch.rand(12)

    def run(function, *inputs):
        inputs = [v.detach().clone().requires_grad_() for v in inputs]
        y, *statistics = function(*inputs)
        gradients = torch.autograd.grad(y, inputs, incoming.to(y.dtype), allow_unused=True)
        return [y.detach(), *(s.detach() for s in statistics), *(g for g in gradients if g is not None)]

    ours = run(compiled(function, options={"recompute": recompute}), x, weight, bias)
    eager, exact = run(function, x, weight, bias), run(function, x.double(), weight.double(), bias.double())
    for a, b, truth in zip(ours, eager, exact, strict=True):
        assert a.dtype is b.dtype and a.shape == b.shape
        assert not a.numel() or relative_error(a, truth) <= max(1.1 * relative_error(b, truth), 4e-7)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("length", [2, 24, 768])
def test_norms_of_one_value(length, dtype, compiled, strict):
    """Without variance, the mean must be exact: a rounding error of a sum would be multiplied by 1/sqrt(eps) = 316."""
    values = torch.tensor([-194.85, 1e3 / 3, 7e-3, 1e6 / 7, 0.1]).to(dtype)
    rows = values[:, None].expand(-1, length).contiguous()
    images = values[:, None, None].expand(4, -1, 12, 16).contiguous()

    def norms(rows, images):
        return F.layer_norm(rows, (length,)), F.batch_norm(images, None, None, training=True), rows.std(1)

    for result in compiled(norms, dynamic=False)(rows, images):
        assert result.abs().max() == 0


@pytest.mark.needs_ipex
def test_cross_entropy_scatters_nothing():
    """The gradient is computed by element: there are two kernels per pass, and none fills a tensor with zeros."""
    import intel_extension_for_pytorch as ipex

    x, target = torch.randn(64, 300, requires_grad=True), torch.randint(0, 300, (64,))
    graphs = ipex.explain(F.cross_entropy, x, target).to_dict()["graphs"]
    names = [step["name"] for graph in graphs for step in graph["steps"]]
    assert len(graphs) == 2 and not any("scatter" in name for name in names), names


@pytest.mark.parametrize("name", ["batch_norm_1d_length", "batch_norm_2d", "layer_norm_2d"])
def test_norm_of_changing_sizes(name, compiled, strict):
    """Symbolic numbers of elements are computed at each call."""
    module = NORMS[name][0]()
    state = {key: value.clone() for key, value in module.state_dict().items()}
    optimised = compiled(module, dynamic=True)

    def run(function, x):
        module.load_state_dict(state)
        values = results_and_gradients(function, [x], torch.float32, module.parameters())
        return values + [b.clone() for b in module.buffers() if b.is_floating_point()]

    for batch in (5, 3, 8):
        x = torch.randn(batch, *NORMS[name][1][1:], requires_grad=True)
        ours, eager = run(optimised, x), run(module, x)
        assert_close_to_eager(ours[0], eager[0])
        assert_near_in_norm(ours[1:], eager[1:], bound=1e-5)


@pytest.mark.needs_ipex
@pytest.mark.parametrize("make", [lambda: nn.BatchNorm2d(8), lambda: nn.LayerNorm((8, 9, 7))], ids=["batch", "layer"])
@pytest.mark.parametrize("training", [True, False], ids=["training", "inference"])
def test_norms_are_traced_whole(make, training):
    """Norms must not be decomposed in tracing, which takes seconds for a ResNet-50."""
    import intel_extension_for_pytorch as ipex

    module, x = make().train(training), torch.randn(4, 8, 9, 7, requires_grad=training)
    with torch.set_grad_enabled(training), ipex.record_reports() as reports:
        y = torch.compile(module, backend="ipex")(x)
        if training:
            y.sum().backward()
    assert len(reports) == 1 + training and all(report["nodes"] <= 5 for report in reports), reports
