"""Scaled dot-product attention in our kernels: forward, backward, masks, grouped heads, sizes, dtypes.

f32 is compared with eager. For bf16, the errors of both against fp64 are compared.
"""

import pytest
import torch
from comparison import assert_close_to_eager, assert_error_within, assert_near_in_norm
from torch import nn
from torch.nn.functional import scaled_dot_product_attention as attention

# (batch, heads, queries, keys, columns): whole blocks; overlapping blocks; less than a block; columns that do not fill
# a panel; several blocks of keys; more queries than keys
SIZES = [
    (1, 2, 128, 128, 64),
    (2, 3, 197, 197, 64),
    (1, 2, 5, 7, 8),
    (1, 2, 20, 300, 80),
    (1, 1, 64, 600, 128),
    (1, 1, 100, 204, 64),
    (1, 1, 300, 40, 20),
]
DTYPES = [torch.float32, torch.bfloat16, torch.float64]
MASKS = ["none", "causal", "per key", "full"]


def tensors(sizes, dtype, heads_of_keys=None):
    torch.manual_seed(3)
    batch, heads, queries, keys, columns = sizes
    shared = heads_of_keys or heads
    q = torch.randn(batch, queries, heads, columns, dtype=dtype).transpose(1, 2)
    k = torch.randn(batch, shared, keys, columns, dtype=dtype)
    v = torch.randn(batch, keys, shared, columns, dtype=dtype).transpose(1, 2)
    return q, k, v


def options(kind, sizes, dtype):
    batch, _, queries, keys, _ = sizes
    if kind == "per key":  # as for a padded batch: booleans that exclude some keys of every row
        return {"attn_mask": torch.arange(keys) < keys - torch.arange(batch)[:, None, None, None] - 1}
    if kind == "full":
        return {"attn_mask": torch.randn(queries, keys, dtype=dtype)}
    return {"is_causal": kind == "causal"}


def doubled(values):
    return {
        name: value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in values.items()
    }


def gradients(fn, tensors, options, dtype):
    leaves = [t.detach().to(dtype).requires_grad_() for t in tensors]
    out = fn(*leaves, **options)
    torch.manual_seed(4)
    return [out, *torch.autograd.grad(out, leaves, torch.randn(out.shape, dtype=torch.float64).to(dtype))]


def check(ours, eager, exact, dtype):
    if dtype is torch.bfloat16:
        for a, b, c in zip(ours, eager, exact, strict=True):
            assert_error_within(a, b, c)
    else:
        assert_close_to_eager(ours, eager, strides=True)
        assert_near_in_norm(ours, [e.to(dtype) for e in exact], 2e-6)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention(compiled, strict, sizes, mask, dtype):
    inputs, settings = tensors(sizes, dtype), options(mask, sizes, dtype)
    with torch.no_grad():
        ours, eager = compiled(attention)(*inputs, **settings), attention(*inputs, **settings)
        exact = attention(*(t.double() for t in inputs), **doubled(settings))
    check([ours], [eager], [exact], dtype)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", [s for s in SIZES if s[2] != 5], ids=str)
def test_gradients(compiled, strict, sizes, mask, dtype):
    inputs, settings = tensors(sizes, dtype), options(mask, sizes, dtype)
    ours = gradients(compiled(attention), inputs, settings, dtype)
    eager = gradients(attention, inputs, settings, dtype)
    check(ours, eager, gradients(attention, inputs, doubled(settings), torch.float64), dtype)


@pytest.mark.parametrize("mask", ["none", "causal"])
@pytest.mark.parametrize("queries", [1, 40])
def test_shared_heads(compiled, strict, queries, mask):
    sizes = (2, 6, queries, 40, 16)
    inputs = tensors(sizes, torch.float32, heads_of_keys=2)
    settings = {**options(mask, sizes, torch.float32), "enable_gqa": True}
    ours = gradients(compiled(attention), inputs, settings, torch.float32)
    assert_close_to_eager(ours, gradients(attention, inputs, settings, torch.float32), strides=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mask", ["none", "per key", "full"])
@pytest.mark.parametrize("queries", [1, 3])
def test_few_queries(compiled, strict, queries, mask, dtype):
    sizes = (2, 4, queries, 129, 48)
    inputs, settings = tensors(sizes, dtype), options(mask, sizes, dtype)
    with torch.no_grad():
        ours, eager = compiled(attention)(*inputs, **settings), attention(*inputs, **settings)
        exact = attention(*(t.double() for t in inputs), **doubled(settings))
    check([ours], [eager], [exact], dtype)


def test_gradients_of_few_queries_with_large_scores(compiled, strict):
    """Probabilities in the gradient are those of the forward pass: rounding errors of the scores cancel."""
    inputs = [5 * t for t in tensors((4, 4, 3, 6, 8), torch.float32)]
    exact = gradients(attention, inputs, {}, torch.float64)[-1]
    ours, eager = (gradients(fn, inputs, {}, torch.float32)[-1] for fn in (compiled(attention), attention))
    assert (ours - exact).norm() <= 2 * (eager - exact).norm()


@pytest.mark.parametrize("queries", [2, 24])
def test_rows_that_see_nothing(compiled, strict, queries):
    inputs = tensors((1, 2, queries, 9, 8), torch.float32)
    mask = torch.zeros(queries, 9)
    mask[1] = -torch.inf
    ours = gradients(compiled(attention), inputs, {"attn_mask": mask}, torch.float32)
    assert (ours[0][:, :, 1] == 0).all() and (ours[1][:, :, 1] == 0).all()
    assert_close_to_eager(ours, gradients(attention, inputs, {"attn_mask": mask}, torch.float32))


def test_scores_far_apart(compiled, strict):
    q, k, v = tensors((1, 1, 64, 300, 16), torch.float32)
    q, k = q * 100, k * 100
    with torch.no_grad():
        exact = attention(q.double(), k.double(), v.double()).float()
        assert_near_in_norm(compiled(attention)(q, k, v), exact, 1e-4)
        k[0, 0, 5] = torch.nan
        assert compiled(attention)(q, k, v).isnan().all()


@pytest.mark.parametrize("scale", [0.3, 0.0, -1.0])
def test_scale(compiled, strict, scale):
    inputs = tensors((1, 2, 40, 40, 16), torch.float32)
    ours = gradients(compiled(attention), inputs, {"scale": scale}, torch.float32)
    assert_close_to_eager(ours, gradients(attention, inputs, {"scale": scale}, torch.float32))


@pytest.mark.parametrize("mask", ["none", "causal"])
def test_lengths_known_only_when_it_runs(compiled, strict, mask):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    fn = compiled(attention)
    for queries, keys in [(48, 60), (10, 200), (129, 128), (2, 5)]:
        sizes = (2, 2, queries, keys, 32)
        inputs, settings = tensors(sizes, torch.float32), options(mask, sizes, torch.float32)
        leaves = [t.requires_grad_() for t in inputs]
        for leaf in leaves:
            torch._dynamo.mark_dynamic(leaf, 2)
        out = fn(*leaves, **settings)
        weights = torch.randn(out.shape)
        ours = [out, *torch.autograd.grad(out, leaves, weights)]
        out = attention(*leaves, **settings)
        assert_close_to_eager(ours, [out, *torch.autograd.grad(out, leaves, weights)])
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1


@pytest.mark.needs_ipex
def test_is_one_kernel():
    import intel_extension_for_pytorch as ipex

    q, k, v = tensors((1, 2, 64, 64, 32), torch.float32)
    with torch.no_grad():
        (report,) = ipex.explain(attention, q, k, v).to_dict()["graphs"]
    (step,) = report["steps"]
    assert step["kind"] == "kernel" and step["flops"] == 4 * 2 * 64 * 64 * 32


# ---- the fast path of PyTorch's modules ----

KEYS_LEFT_OUT = torch.zeros(3, 5, dtype=torch.bool).index_fill(1, torch.tensor([3, 4]), True)
ALL_LEFT_OUT = torch.zeros(3, 5, dtype=torch.bool).index_fill(0, torch.tensor([2]), True)
LATER = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=["relu", "first", "gelu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dynamic", [False, True])
def test_encoder_layer(options, dtype, dynamic, compiled, strict):
    """In eval mode without gradients it is one ATen operator, where rows without keys are NaN."""
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **options).eval().to(dtype)

    def run(x):
        masks = [{}, {"src_mask": LATER}, {"src_key_padding_mask": ALL_LEFT_OUT}]
        masks.append({"src_mask": LATER, "src_key_padding_mask": KEYS_LEFT_OUT})
        return [layer(x, **given) for given in masks]

    x = torch.randn(3, 5, 16).to(dtype)
    with torch.inference_mode():
        eager = run(x)
        assert eager[2].isnan().any()
        found = compiled(run, dynamic=dynamic)(x)
        if dtype is torch.float32:
            return assert_close_to_eager(found, eager, scale=4.0)
        layer.double()
        for ours, theirs, exact in zip(found, eager, run(x.double()), strict=True):
            assert torch.equal(ours.isnan(), theirs.isnan())
            assert_error_within(ours.nan_to_num(), theirs.nan_to_num(), exact.nan_to_num())


@pytest.mark.parametrize("weights", [True, False])
@pytest.mark.parametrize("average", [True, False])
def test_multi_head_attention(weights, average, compiled, strict):
    torch.manual_seed(1)
    module = nn.MultiheadAttention(16, 2, batch_first=True).eval()
    options = {"need_weights": weights, "average_attn_weights": average}

    def run(x, y):
        return [
            module(x, x, x, **options),
            module(x, x, x, key_padding_mask=KEYS_LEFT_OUT, **options),
            module(x, x, x, attn_mask=LATER, **options),
            module(x, y, y, **options),
            module(x, y, y.cos(), **options),
        ]

    x, y = torch.randn(3, 5, 16), torch.randn(3, 7, 16)
    with torch.inference_mode():
        torch.testing.assert_close(compiled(run)(x, y), run(x, y), rtol=1e-4, atol=1e-5)
