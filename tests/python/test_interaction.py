"""ipex.nn.functional.interaction: values and gradients against the composition in f64, eager and compiled."""

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager

SIZES = [(1, 1, 4), (2, 3, 5), (27, 33, 128), (27, 4, 37), (9, 5, 64), (16, 8, 16), (33, 3, 20), (4, 1, 200)]

FLAGS = {"avx2": "avx2", "avx512": "avx512f", "avx512_bf16": "avx512_bf16"}
ISAS = [pytest.param(isa, marks=pytest.mark.needs_cpu(flag)) for isa, flag in FLAGS.items()]


def reference(*tensors):
    rows = torch.stack(tensors, 1)
    products = rows @ rows.transpose(1, 2)
    i, j = torch.tril_indices(len(tensors), len(tensors), -1)
    return torch.cat([tensors[0], products[:, i, j]], 1)


def make(count, batch, width, dtype=torch.float32):
    # Small integers over 8: products and their sums are exact in f32, and nearly so in bf16.
    return [(torch.randint(-8, 9, (batch, width)) / 8).to(dtype).requires_grad_() for _ in range(count)]


def values_and_gradients(function, tensors, weight):
    result = function(*tensors)
    return [result, *torch.autograd.grad(result, tensors, weight.to(result.dtype))]


@pytest.mark.parametrize("isa", ISAS[:2])
@pytest.mark.parametrize(("count", "batch", "width"), SIZES)
def test_float_is_exact(count, batch, width, isa, monkeypatch):
    monkeypatch.setenv("IPEX_TARGET", isa)
    tensors = make(count, batch, width)
    weight = torch.randint(-4, 5, reference(*tensors).shape) / 4
    exact = values_and_gradients(reference, [t.detach().double().requires_grad_() for t in tensors], weight)
    ours = values_and_gradients(ipex.nn.functional.interaction, tensors, weight)
    for got, expected in zip(ours, exact, strict=True):
        assert torch.equal(got, expected.float())


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("count", "batch", "width"), SIZES)
def test_bfloat16_is_rounded_once(count, batch, width, isa, monkeypatch):
    monkeypatch.setenv("IPEX_TARGET", isa)
    tensors = make(count, batch, width, torch.bfloat16)
    weight = torch.randint(-4, 5, reference(*tensors).shape) / 4
    exact = values_and_gradients(reference, [t.detach().double().requires_grad_() for t in tensors], weight)
    ours = values_and_gradients(ipex.nn.functional.interaction, tensors, weight)
    for got, expected in zip(ours, exact, strict=True):
        assert torch.equal(got, expected.float().bfloat16())


def test_rows_of_other_layouts():
    wide = torch.randn(6, 40)
    tensors = [wide[:, 3:13], torch.randn(10, 6).t(), torch.randn(1, 10).expand(6, 10)]
    assert_close_to_eager(ipex.nn.functional.interaction(*tensors), reference(*tensors))


def test_other_dtypes_and_empty_batches():
    for tensors in (make(3, 4, 5, torch.float64), make(3, 4, 5, torch.float16), make(3, 0, 5)):
        assert_close_to_eager(ipex.nn.functional.interaction(*tensors), reference(*tensors))


def test_gradients_of_gradients():
    tensors = make(3, 2, 4, torch.float64)
    assert torch.autograd.gradgradcheck(ipex.nn.functional.interaction, tensors)
    single = [t.detach().float().requires_grad_() for t in tensors]
    result = ipex.nn.functional.interaction(*single)
    (first,) = torch.autograd.grad(result.pow(2).sum(), single[:1], create_graph=True)
    (twice,) = torch.autograd.grad(first.pow(2).sum(), single[1:2])
    expected_result = reference(*tensors)
    (first,) = torch.autograd.grad(expected_result.pow(2).sum(), tensors[:1], create_graph=True)
    (expected,) = torch.autograd.grad(first.pow(2).sum(), tensors[1:2])
    torch.testing.assert_close(twice, expected.float())


def test_autocast():
    tensors = make(4, 3, 8)
    with torch.autocast("cpu", torch.bfloat16):
        result = ipex.nn.functional.interaction(*tensors)
    assert result.dtype == torch.bfloat16
    result.float().sum().backward()
    assert all(t.grad.dtype == torch.float32 for t in tensors)
    assert_close_to_eager(result, reference(*[t.bfloat16() for t in tensors]))


def test_meta_and_vmap():
    meta = ipex.nn.functional.interaction(*[torch.empty(7, 4, device="meta")] * 5)
    assert meta.shape == (7, 14)
    batches = torch.randn(3, 6, 2, 4)
    ours = torch.func.vmap(lambda t: ipex.nn.functional.interaction(*t.unbind(0)))(batches)
    assert_close_to_eager(ours, torch.stack([reference(*b.unbind(0)) for b in batches]))


def test_errors():
    with pytest.raises(RuntimeError, match="one size"):
        ipex.nn.functional.interaction(torch.ones(2, 3), torch.ones(2, 4))
    with pytest.raises(RuntimeError, match="one dtype"):
        ipex.nn.functional.interaction(torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64))
    with pytest.raises(RuntimeError, match=r"\[batch, width\]"):
        ipex.nn.functional.interaction(torch.ones(3))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic, compiled, strict):
    tensors = make(5, 6, 16)
    weight = torch.randn(6, 26)
    run = compiled(ipex.nn.functional.interaction, fullgraph=True, dynamic=dynamic)
    ours = values_and_gradients(run, tensors, weight)
    assert_close_to_eager(ours, values_and_gradients(reference, tensors, weight))


def test_threads_do_not_change_results():
    tensors = [torch.randn(101, 48, requires_grad=True) for _ in range(11)]
    weight = torch.randn(101, 48 + 55)
    threads = torch.get_num_threads()
    runs = []
    for count in (1, 2, 3):
        torch.set_num_threads(count)
        runs.append(values_and_gradients(ipex.nn.functional.interaction, tensors, weight))
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run, strict=True))
