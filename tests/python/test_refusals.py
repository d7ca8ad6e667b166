"""Compiled code refuses what eager refuses, with the same exception type and text: values, indices and offsets out of
range, numbers that do not fit a type, incompatible types, reductions of no elements."""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

INF, NAN = float("inf"), float("nan")
ROWS, ONE_ROW = torch.randn(5, 4), torch.ones(1, 2)


def outcome(function, arguments):
    """(exception type, first line), or None. Arguments are copied, because some functions write to them."""
    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in arguments]
    try:
        function(*copies)
    except Exception as error:
        return type(error), str(error).strip().splitlines()[0]
    return None


def check_refused(compiled, function, *arguments, **options):
    torch._dynamo.reset()
    wanted = outcome(function, arguments)
    assert wanted, "eager accepts it"
    assert outcome(compiled(function, **options), arguments) == wanted


# ---- indices: the same program runs with valid ones first ----

INDEXED = {
    "gather": lambda x, i: x.gather(0, i[None]),
    "gather columns": lambda x, i: x.gather(1, i[None]) + 1,
    "take_along_dim": lambda x, i: x.take_along_dim(i[:, None], 0),
    "scatter": lambda x, i: x.scatter(0, i[None], ONE_ROW),
    "scatter number": lambda x, i: x.scatter(1, i[None], 7.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[None], ONE_ROW) * 2,
    "scatter multiply": lambda x, i: x.scatter(0, i[None], ONE_ROW, reduce="multiply"),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[None], ONE_ROW, "mean"),
    "scatter_reduce without self": lambda x, i: x.scatter_reduce(1, i[None], ONE_ROW, "amax", include_self=False),
    "index_select": lambda x, i: x.index_select(0, i),
    "index_select columns": lambda x, i: x.index_select(1, i),
    "embedding": lambda x, i: F.embedding(i, x),
    "index": lambda x, i: x[i * 9],
    "index columns": lambda x, i: x[:, i * 9],
    "index both": lambda x, i: x[i * 0, i * 9],
    "index_put": lambda x, i: x.index_put((i * 9,), x[:2]),
    "index_put columns": lambda x, i: x.index_put((i * 0, i * 9), x[0, :2], accumulate=True),
    "index_fill": lambda x, i: x.index_fill(1, i * 9, 3.0),
    "take": lambda x, i: x.take(i * 90),
    "put": lambda x, i: x.put(i * 90, x[0, :2]),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "index_add columns": lambda x, i: x.index_add(1, i, x[:, :2]),
    "index_add to a row": lambda x, i: x[0].index_add(0, i, x[1, :2]),
    "index_add scaled": lambda x, i: x.index_add(0, i, x[:2], alpha=2),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:2]),
    "index_reduce": lambda x, i: x.index_reduce(0, i, x[:2], "amax"),
    "nll_loss": lambda x, i: F.nll_loss(x[:2], i),
    "nll_loss of an image": lambda x, i: F.nll_loss(x[:2, :, None, None], i[:, None, None]),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:2], i, reduction="sum"),
    "cross_entropy with weights": lambda x, i: F.cross_entropy(x[:2], i, weight=x[2].abs()),
    "multi_margin_loss": lambda x, i: F.multi_margin_loss(x[:2], i),
    "multilabel_margin_loss": lambda x, i: F.multilabel_margin_loss(x[0, :2], i * 2),
    "embedding_bag": lambda x, i: F.embedding_bag(i, x, i[:1] * 0, mode="max"),
}


@pytest.mark.parametrize("name", INDEXED)
def test_index_out_of_range(name, compiled, strict):
    function = INDEXED[name]
    run = compiled(function)
    torch.testing.assert_close(run(ROWS, torch.tensor([0, 0])), function(ROWS, torch.tensor([0, 0])))
    for last in (7, -1, -9):
        arguments = ROWS, torch.tensor([0, last])
        wanted = outcome(function, arguments)
        assert outcome(run, arguments) == wanted, last


# ---- values ----


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_probabilities(dtype, compiled, strict):
    loss = compiled(F.binary_cross_entropy)
    good, bad = torch.tensor([0.25, 1.0], dtype=dtype), [torch.tensor([0.25, v], dtype=dtype) for v in (1.5, -0.5, NAN)]
    torch.testing.assert_close(loss(good, good), F.binary_cross_entropy(good, good))
    for b in bad:
        for arguments in ((b, good), (good, b)):
            assert outcome(loss, arguments) == outcome(F.binary_cross_entropy, arguments) is not None


def test_probabilities_in_training(compiled, strict):
    x, bad, target = torch.tensor([0.2, 0.8]), torch.tensor([0.2, 1.1]), torch.tensor([0.0, 1.0])

    def loss(x, target, weight):
        return F.binary_cross_entropy(x, target, weight, reduction="sum")

    run = compiled(loss)
    results = [[f(x.requires_grad_(), target, target + 1), x] for f in (run, loss)]
    ours, eager = (torch.autograd.grad(value, x) for value, x in results)
    torch.testing.assert_close(ours, eager)
    with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        run(bad.requires_grad_(), target, target + 1)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_offsets(mode, compiled, strict):
    table, indices = torch.randn(10, 3), torch.arange(10)

    def bags(indices, table, offsets):
        return F.embedding_bag(indices, table, offsets, mode=mode)

    def closed_bags(indices, table, offsets):
        return F.embedding_bag(indices, table, offsets, mode=mode, include_last_offset=True)

    for function, good, bad in (
        (bags, [0, 4, 7], ([2, 4, 7], [0, 4, 14])),
        (closed_bags, [0, 4, 10], ([2, 4, 10], [0, 4, 14])),
        (bags, [0], ([1], [14])),
        (bags, [0, 5], ([1, 5], [0, 11])),
    ):
        run = compiled(function)
        torch.testing.assert_close(
            run(indices, table, torch.tensor(good)), function(indices, table, torch.tensor(good))
        )
        for offsets in bad:
            arguments = indices, table, torch.tensor(offsets)
            assert outcome(run, arguments) == outcome(function, arguments) is not None


@pytest.mark.parametrize("dynamic", (False, True))
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_offsets_that_fall(mode, dynamic, compiled, strict):
    bags = partial(F.embedding_bag, mode=mode)

    def function(indices, table, offsets):
        return bags(indices, table, offsets)

    run, indices, table = compiled(function, dynamic=dynamic), torch.arange(10), torch.randn(10, 3)
    for offsets in ([0, 4, 7], [0, 7, 7]):
        arguments = indices, table, torch.tensor(offsets)
        torch.testing.assert_close(run(*arguments), function(*arguments))
    for offsets in ([0, 7, 4], [0, 5, 0]):
        arguments = indices, table, torch.tensor(offsets)
        assert outcome(run, arguments) == outcome(function, arguments) is not None


# ---- numbers that do not fit ----

FILLED = {
    "full": lambda x, v: torch.full((3,), v, dtype=x.dtype),
    "full_like": torch.full_like,
    "new_full": lambda x, v: x.new_full((2,), v),
    "scalar_tensor": lambda x, v: torch.scalar_tensor(v, dtype=x.dtype),
    "fill": lambda x, v: torch.fill(x, v),
    "fill_": lambda x, v: x.fill_(v) + 1,
    "masked_fill": lambda x, v: x.masked_fill(x > 1, v),
    "index_fill": lambda x, v: x.index_fill(0, torch.tensor([0, 2]), v),
    "where": lambda x, v: torch.where(x > 1, x, v),
    "clamp": lambda x, v: x.clamp(min=v),
    "clamp both": lambda x, v: x.clamp(0, v),
    "hardtanh": lambda x, v: F.hardtanh(x, 0, abs(v)),
    "threshold": lambda x, v: F.threshold(x, 1, v),
    "constant_pad_nd": lambda x, v: torch.constant_pad_nd(x, (1, 1), v),
    "scatter": lambda x, v: x.scatter(0, torch.tensor([0, 2]), v),
    "pow": lambda x, v: x**v,
    "add alpha": lambda x, v: torch.add(x, x, alpha=v),
    "index_add alpha": lambda x, v: x.index_add(0, torch.tensor([0, 2]), x[:2], alpha=v),
    "addcmul": lambda x, v: torch.addcmul(x, x, x, value=v),
    "greater": lambda x, v: x > v,
    "equal": lambda x, v: x == v,
    "add": lambda x, v: x + v,
}
UNFITTING = (
    (torch.uint8, (300, -1)),
    (torch.int8, (1e9,)),
    (torch.float16, (1e6,)),
    (torch.float32, (1e39,)),
)


def with_number(function, value):
    return lambda x: function(x.clone(), value)


@pytest.mark.parametrize("name", FILLED)
def test_numbers_that_do_not_fit(name, compiled):
    """Compiled code wraps around or promotes where eager does."""
    function = FILLED[name]
    for dtype, values in UNFITTING:
        x = torch.tensor([1, 2, 3]).to(dtype)
        for value in values:
            torch._dynamo.reset()
            fill = with_number(function, value)
            run, wanted = compiled(fill), outcome(fill, (x,))
            found = outcome(run, (x,))
            refused_by_dynamo = wanted and found and found[0] is torch._dynamo.exc.TorchRuntimeError
            assert found == wanted or refused_by_dynamo, (dtype, value)
            if wanted is None:
                torch.testing.assert_close(run(x), fill(x))


def test_size_that_does_not_fit(compiled):
    """A symbolic size, known only at a call."""
    run = compiled(lambda x: torch.full((2,), x.shape[0], dtype=torch.int8), dynamic=True)
    for count in (5, 127):
        assert run(torch.ones(count)).tolist() == [count] * 2
    with pytest.raises(RuntimeError, match="value cannot be converted to type int8_t without overflow"):
        run(torch.ones(128))


RANGES = {
    "float": lambda n: torch.linspace(0, 1e300, 5),
    "int": lambda n: torch.linspace(0, 2**33, 5, dtype=torch.int32),
    "infinite": lambda n: torch.linspace(0, math.inf, 3, dtype=torch.int32),
    "half": lambda n: torch.linspace(0, 1e5, 5, dtype=torch.float16),
    "from a size": lambda n: torch.linspace(0, n.shape[0] * 100, 4, dtype=torch.uint8),
    "bool": lambda n: torch.linspace(0, 5, 3, dtype=torch.bool),
    "powers": lambda n: torch.logspace(0, 2**33, 5, dtype=torch.int32),
    "powers of bool": lambda n: torch.logspace(0, 5, 5, dtype=torch.bool),
    "steps of bool": lambda n: torch.arange(2, dtype=torch.bool),
}


@pytest.mark.parametrize("dynamic", (False, True))
@pytest.mark.parametrize("name", RANGES)
def test_ranges(name, dynamic, compiled):
    arguments = (torch.ones(3),)
    assert outcome(compiled(RANGES[name], dynamic=dynamic), arguments) == outcome(RANGES[name], arguments) is not None


def test_negative_end_of_an_unsigned_range(compiled):
    function = partial(torch.linspace, -1, 30, 5, dtype=torch.uint8)
    assert compiled(lambda: function())().tolist() == function().tolist() == [255, 198, 142, 86, 30]


# ---- types ----

INTEGER = torch.arange(1, 5)[None]
IMAGE = torch.ones(1, 2, 4, 4, 4)
WITHOUT_KERNELS = {
    "log_softmax": (lambda x: x.log_softmax(1), INTEGER),
    "softmax": (lambda x: x.softmax(1), INTEGER.to(torch.uint8)),
    "cross_entropy": (lambda x: F.cross_entropy(x, x[:, 0] * 0), INTEGER),
    "glu": (F.glu, INTEGER),
    "adaptive_max_pool": (lambda x: F.adaptive_max_pool3d(x, 2), IMAGE.long()),
    "avg_pool": (lambda x: F.avg_pool3d(x, 2), IMAGE.half()),
    "unfold": (lambda x: F.unfold(x, 2), IMAGE[0].int()),
    "pad": (lambda x: F.pad(x, (1, 1), "reflect"), IMAGE[0, 0].bool()),
    "argmax": (torch.argmax, INTEGER.bool()),
    "topk": (lambda x: x.topk(2), INTEGER.bool()),
    "median": (torch.median, INTEGER.bool()),
    "dot": (lambda x: x[0] @ x[0], INTEGER.bool()),
    "cross": (lambda x: torch.linalg.cross(x[:, :3], x[:, :3]), INTEGER.bool()),
    "ndtri": (torch.special.ndtri, INTEGER.half()),
    "bessel": (torch.special.bessel_j0, INTEGER.bfloat16()),
    "zeta": (lambda x: torch.special.zeta(x, 2), INTEGER.half()),
    "number - boolean": (lambda x: 1 - x, INTEGER.bool()),
    "boolean - number": (lambda x: x - 1.5, INTEGER.bool()),
    "integer - boolean": (lambda x: x - x.bool(), INTEGER),
    "in place": (lambda x: x.clone().sub_(x.bool()), INTEGER),
    "a boolean factor": (lambda x: torch.add(x, x, alpha=True), INTEGER),
}


@pytest.mark.parametrize("name", WITHOUT_KERNELS)
def test_types_without_kernels(name, compiled):
    function, x = WITHOUT_KERNELS[name]
    assert outcome(compiled(function), (x,)) == outcome(function, (x,)) is not None


HALF_STEPS = (torch.float32, torch.bfloat16), (torch.bfloat16, torch.float16), (torch.float64, torch.float32)
NORMS = {
    "layer_norm": lambda x, w: F.layer_norm(x, (4,), w, w),
    "layer_norm's bias": lambda x, w: F.layer_norm(x, (4,), w.to(x.dtype), w),
    "group_norm": lambda x, w: F.group_norm(x, 2, w, w),
    "batch_norm": lambda x, w: F.batch_norm(x, w * 0, w * 1, w, w, True),
    "batch_norm in eval": lambda x, w: F.batch_norm(x, w * 0, w, w, w),
    "batch_norm without statistics": lambda x, w: F.batch_norm(x, None, None, w, w, True),
    "instance_norm": lambda x, w: F.instance_norm(x[..., None].expand(5, 4, 3), None, None, w, w),
}


@pytest.mark.parametrize("name", NORMS)
def test_norms_of_two_types(name, compiled):
    for x, w in HALF_STEPS:
        check_refused(compiled, NORMS[name], ROWS.to(x), torch.ones(4, dtype=w))
    if name == "layer_norm's bias":
        return
    x, w = ROWS.bfloat16(), torch.rand(4)  # eager accepts this
    torch.testing.assert_close(compiled(NORMS[name])(x, w), NORMS[name](x, w))


MIXED = {
    "mv": lambda x, w: x.mv(w[0]),
    "addmm": lambda x, w: torch.addmm(x, w[:, :3], w[:3], beta=2),
    "cross": lambda x, w: torch.linalg.cross(x[:, :3], w[:, :3]),
    "cdist": lambda x, w: torch.cdist(x, w),
    "grid_sample": lambda x, w: F.grid_sample(x[None, None], w[None, None, :, :2], align_corners=False),
    "heaviside": lambda x, w: torch.heaviside(x, w),
    "index_add": lambda x, w: x.index_add(0, torch.arange(5), w),
    "index_copy": lambda x, w: x.index_copy(0, torch.arange(5), w),
    "index_reduce": lambda x, w: x.index_reduce(0, torch.arange(5), w, "amax"),
    "index_put": lambda x, w: x.index_put((torch.arange(5),), w),
    "put": lambda x, w: x.put(torch.arange(4), w[0]),
    "embedding_bag": lambda x, w: F.embedding_bag(torch.arange(4)[None], x, per_sample_weights=w[:1], mode="sum"),
}


@pytest.mark.parametrize("name", MIXED)
def test_operands_of_two_types(name, compiled):
    for x, w in HALF_STEPS:
        check_refused(compiled, MIXED[name], torch.rand(5, 4).to(x), torch.rand(5, 4).to(w))


LOSSES = {  # whose result has the type of x, whatever the type of the other operand
    "huber": lambda x, w: F.huber_loss(x, w),
    "soft margin": lambda x, w: F.soft_margin_loss(x, w, reduction="none"),
    "weighted": lambda x, w: F.binary_cross_entropy(x, x * x, w),
}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_two_types(name, compiled):
    for x, w in ((torch.float32, torch.float64), (torch.bfloat16, torch.float32)):
        operands = torch.rand(5, 4).to(x), torch.rand(5, 4).to(w)
        ours, eager = compiled(LOSSES[name])(*operands), LOSSES[name](*operands)
        torch.testing.assert_close(ours, eager)
        torch._dynamo.reset()
    if name != "weighted":
        check_refused(compiled, LOSSES[name], torch.arange(4), torch.rand(4))


STATISTICS = {  # norms whose statistics have the type of the parameters
    "layer": lambda x, w: torch.native_layer_norm(x, (4,), w, w, 1e-5),
    "group": lambda x, w: torch.native_group_norm(x, w, w, 5, 4, 1, 2, 1e-5),
    "batch": lambda x, w: torch.ops.aten._native_batch_norm_legit.no_stats(x, w, w, True, 0.1, 1e-5),
}


@pytest.mark.parametrize("name", STATISTICS)
def test_statistics_of_two_types(name, compiled):
    x, w = torch.rand(5, 4).bfloat16(), torch.rand(4)
    torch.testing.assert_close(compiled(STATISTICS[name])(x, w), STATISTICS[name](x, w))


def test_index_types(compiled):
    index = torch.arange(5, dtype=torch.int8)
    check_refused(compiled, lambda x, i: x.index_add(0, i, x), ROWS, index)


def test_labels_of_other_types(compiled):
    labels = torch.tensor([0, 1], dtype=torch.int32)
    check_refused(compiled, F.cross_entropy, ROWS[:2], labels)
    check_refused(compiled, lambda x, y: F.nll_loss(x[..., None], y[:, None]), ROWS[:2], labels)


# ---- no elements ----

EXTREMES = {  # reductions without a neutral element whose shape functions do not refuse this
    "max": lambda x: x.max(),
    "min": lambda x: x.min() + 1,
    "max of columns": lambda x: x.max(0).values,
    "min of columns": lambda x: x.min(0, keepdim=True),
}


def test_batch_norm_of_nothing(compiled):
    def native(x):
        return torch.native_batch_norm(x, None, None, None, None, True, 0.0, 1.0)

    check_refused(compiled, native, torch.empty(0, 3, 4))
    x, w = torch.empty(0, 3, 4), torch.ones(3)  # eager's other batch norm op accepts this
    assert compiled(F.batch_norm)(x, w * 0, w, w, w, True).shape == x.shape


@pytest.mark.parametrize("dynamic", (False, True))
@pytest.mark.parametrize("rank", (2, 3))
def test_averages_of_nothing(rank, dynamic, compiled):
    pool = (F.adaptive_avg_pool2d, F.adaptive_avg_pool3d)[rank - 2]

    def function(x):
        return pool(x[..., 3:], 2)

    run, size = compiled(function, dynamic=dynamic), [2, *[4] * rank]
    for columns in (5, 6):
        x = torch.rand(*size, columns)
        torch.testing.assert_close(run(x), function(x))
    nothing = torch.rand(*size, 3)
    assert outcome(run, (nothing,)) == outcome(function, (nothing,)) is not None


def test_types_without_kernels_are_those_computed_in(compiled, strict):
    halves, x = torch.full((3,), 2.5).bfloat16(), torch.rand(3) + 1
    torch.testing.assert_close(compiled(torch.special.zeta)(halves, x), torch.special.zeta(halves, x))


@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_of_nothing(name, compiled):
    check_refused(compiled, EXTREMES[name], torch.empty(0, 3))


def test_extreme_of_what_a_mask_leaves(compiled):
    run = compiled(lambda x: x[x > 0].max())
    assert run(torch.tensor([-1.0, 2.0, 3.0])) == 3
    with pytest.raises(RuntimeError, match="Expected reduction dim to be specified for input.numel"):
        run(torch.tensor([-1.0, -2.0]))
