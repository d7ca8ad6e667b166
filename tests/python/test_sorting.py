"""Sorting, selection, searching and scans: native, with eager's values and positions, for any size and stride."""

import itertools

import op_cases
import pytest
import torch
from comparison import assert_close_to_eager

SHAPES = ((7,), (5, 33), (3, 1, 70), (2, 65, 9), (1, 4097), (0, 4), (4, 1))


def values_of(dtype, shape, seed=0):
    """Small numbers with many ties, and NaN, infinities and both zeros for floats."""
    generator = torch.Generator().manual_seed(seed)
    x = op_cases.random_values(dtype, shape, generator)
    if dtype.is_floating_point:
        x = x.round()
        for part, special in enumerate((float("nan"), float("inf"), float("-inf"), -0.0, 0.0)):
            x.view(-1)[part::23] = special
    return x


def inputs(dtype):
    for shape in SHAPES:
        yield values_of(dtype, shape)
    yield values_of(dtype, (6, 40)).t()
    yield values_of(dtype, (8, 30))[::2, 1::3]
    yield values_of(dtype, (5, 1)).expand(5, 6)
    yield values_of(dtype, ())


def check(compiled, fn, *args, **options):
    expected = fn(*args)
    torch._dynamo.reset()
    assert_close_to_eager(compiled(fn, **options)(*args), expected, strides=True)


def dims_of(x):
    return (*range(x.dim()), -1) if x.dim() else (0, -1)


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", op_cases.DTYPES, ids=str)
def test_sort_every_dtype(compiled, strict, dtype):
    """Also the positions of equal values are the same as in eager."""

    def fn(tensors):
        results = []
        for x in tensors:
            for dim, descending in itertools.product(dims_of(x), (False, True)):
                results += [
                    *torch.sort(x, dim, descending),
                    *torch.sort(x, dim=dim, descending=descending, stable=True),
                ]
                results.append(torch.argsort(x, dim, descending))
        return results

    check(compiled, fn, list(inputs(dtype)))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("dtype", op_cases.DTYPES, ids=str)
def test_topk_every_dtype(compiled, strict, dtype):
    if dtype is torch.bool:
        pytest.skip("eager has no topk of bool")

    def fn(tensors):
        results = []
        for x in tensors:
            for dim, largest, ordered in itertools.product(dims_of(x), (False, True), (False, True)):
                extent = x.shape[dim] if x.dim() else 1
                for k in sorted({0, min(1, extent), extent // 3, extent}):
                    results += torch.topk(x, k, dim, largest, ordered)
        return results

    check(compiled, fn, list(inputs(dtype)))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("dtype", [d for d in op_cases.DTYPES if d != torch.bool], ids=str)
def test_selection_every_dtype(compiled, strict, dtype):
    """Without rows of stride 0, where eager's median reads out of bounds."""

    def fn(tensors):
        results = []
        for x in tensors:
            if x.numel():
                results += [x.median(), x.nanmedian()]
            for dim, keepdim in itertools.product(dims_of(x), (False, True)):
                extent = x.shape[dim] if x.dim() else 1
                if extent == 0:
                    continue
                results += [*x.median(dim, keepdim), *x.nanmedian(dim, keepdim)]
                for k in sorted({1, (extent + 1) // 2, extent}):
                    results += x.kthvalue(k, dim, keepdim)
        return results

    check(compiled, fn, [x for x in inputs(dtype) if 0 not in x.stride()])


@pytest.mark.one_in(4)
@pytest.mark.parametrize("dtype", op_cases.DTYPES, ids=str)
def test_mode(compiled, strict, dtype):
    """Without NaN, which eager does not count."""
    tensors = [x.nan_to_num(3.0) if dtype.is_floating_point else x for x in inputs(dtype) if x.numel()]

    def fn(tensors):
        return [x.mode(dim, keepdim) for x in tensors for dim in dims_of(x) for keepdim in (False, True)]

    check(compiled, fn, tensors)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float64, torch.int64), ids=str)
def test_long_rows(compiled, strict, dtype):
    """Rows that are long enough for radix sort, with digits that are equal everywhere. Positions for stable sorts."""
    generator = torch.Generator().manual_seed(2)
    x = (torch.randn(3, 70001, generator=generator, dtype=torch.float64) * 1000).to(dtype)

    def fn(x):
        return x.sort(stable=True), x.sort(stable=True, descending=True), x.sort().values, x.topk(50), x.median(-1)

    check(compiled, fn, x)


def test_large_and_small_integers(compiled, strict):
    info = torch.iinfo(torch.int64)
    x = torch.tensor([info.max, info.min, 0, -1, 1, info.min, info.max - 1] * 100)
    check(compiled, lambda x: (x.sort(stable=True), x.sort(descending=True, stable=True), x.topk(9, largest=False)), x)


@pytest.mark.parametrize("dtype", [d for d in op_cases.DTYPES if d != torch.bool], ids=str)
def test_search(compiled, strict, dtype):
    row = values_of(dtype, (50,)).sort().values
    rows = values_of(dtype, (3, 21)).sort().values
    values = values_of(dtype, (3, 17), seed=1)
    shuffled = values_of(dtype, (3, 21), seed=2)

    def fn(row, rows, values, shuffled):
        results = [torch.bucketize(3, row), torch.searchsorted(row, 2), torch.searchsorted(row[:0], values)]
        results += [torch.bucketize(2.5, row), torch.searchsorted(row, 2.5)]
        for right in (False, True):
            results += [
                torch.searchsorted(row, values, right=right),
                torch.searchsorted(rows, values, side="right" if right else "left", out_int32=True),
                torch.searchsorted(rows, values.t().contiguous().t(), right=right),
                torch.searchsorted(shuffled, values, sorter=shuffled.argsort(), right=right),
                torch.bucketize(values[:, ::2], row, right=right),
                torch.bucketize(values, row, out_int32=True, right=right),
            ]
        return results

    check(compiled, fn, row, rows, values, shuffled)


@pytest.mark.parametrize("length", [1, 2, 3, 5, 8, 100])
@pytest.mark.parametrize("right", [False, True])
def test_search_in_rows_of_every_length(compiled, strict, length, right):
    """Equal elements; values before, between and after them; infinities and NaN; more values than a vector."""
    row = torch.arange(length).div(2, rounding_mode="floor").float()
    ends = torch.tensor([float("inf"), -float("inf"), float("nan")])
    values = torch.cat((torch.arange(-2, 2 * length + 3) / 4, ends))
    for given in (row, torch.cat((row, torch.tensor([float("inf"), float("nan")]))), row.bfloat16(), row.long()):
        value = values.to(given.dtype) if given.dtype.is_floating_point else values[:-3].long()
        check(compiled, lambda v, r: torch.searchsorted(r, v, right=right), value, given)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int8, torch.int64], ids=str)
@pytest.mark.parametrize("largest", [False, True])
def test_the_few_first_of_long_rows(compiled, strict, dtype, largest):
    """By a heap, with ATen's order of ties, NaN, both zeros, and rows that are not multiples of a block."""
    x = torch.randn(40, 777).mul(20).to(dtype)
    x[:3] = 5
    if dtype.is_floating_point:
        x[3] = -0.0
        x[3, ::3] = 0.0
        x[4, 100::7] = float("nan")
        x[5] = float("inf")
    for k in (1, 2, 5, 12):
        check(compiled, lambda t, k=k: t.topk(k, 1, largest), x)
        check(compiled, lambda t, k=k: t.topk(k, 0, largest), x.t().contiguous())


@pytest.mark.parametrize("rows", [256, 258, 259])  # at once: four, two, one
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
def test_scans_of_many_rows(compiled, strict, monkeypatch, rows, dtype):
    monkeypatch.setenv("IPEX_VERIFY", "1")
    x = torch.randn(rows, 300, generator=torch.Generator().manual_seed(5)).mul(3).to(dtype)
    check(compiled, lambda t: t.cumsum(1), x)
    check(compiled, lambda t: t.flip(1).cummax(1), x)
    if dtype.is_floating_point:
        check(compiled, lambda t: t.logcumsumexp(1), x)
    if dtype is torch.float32:  # values that are fused into a scan are not rounded to bf16
        check(compiled, lambda t: (t * t[:, :1]).cumsum(1) + 1, x)
        check(compiled, lambda t: t.sigmoid().mul(1.5).cumprod(1), x)
        check(compiled, lambda t: t.softmax(1).cumsum(1) < 0.9, x)


def test_sorter_out_of_range(compiled, strict):
    row = torch.randn(5)
    fn = compiled(lambda row, x, order: torch.searchsorted(row, x, sorter=order))
    with pytest.raises(RuntimeError, match="sorter index out of range"):
        fn(row, torch.randn(9), torch.tensor([0, 1, 9, 3, 4]))


def test_sizes_at_run_time(compiled, strict):
    def fn(x, k):
        half = x.shape[1] // 2
        return (
            x.sort(0), x.topk(k, 1), x.topk(half), x.kthvalue(half, 1), x.median(0), x.median(),
            torch.searchsorted(x.sort().values, x), x.cumsum(1), x.cummax(0),
        )  # fmt: skip

    compiled_fn = compiled(fn, dynamic=True, fullgraph=True)
    for rows, columns, k in ((4, 9, 3), (7, 33, 2), (3, 4097, 11), (5, 12, 5)):
        x = torch.randn(rows, columns)
        assert_close_to_eager(compiled_fn(x, k), fn(x, k), strides=True)


def test_fused_around(compiled, strict):
    """Producers and consumers of a sort are kernels, and only one of its results is used."""
    x = torch.randn(6, 50, dtype=torch.bfloat16)
    check(compiled, lambda x: (x * 2 + 1).sort(-1).values.float().exp().sum(-1), x)
    check(compiled, lambda x: x.t().argsort(0) * 2, x)
    check(compiled, lambda x: torch.quantile(x.float(), 0.3, dim=1), x)


def test_nucleus_sampling(compiled, strict):
    """The filter of logits in text generation: softmax, sort, cumulative sum, scatter."""

    def fn(logits):
        top = logits.topk(20).values[:, -1:]
        logits = logits.masked_fill(logits < top, float("-inf"))
        ordered, positions = logits.sort(descending=False)
        remove = ordered.softmax(-1).cumsum(-1) <= 0.1
        remove[..., -1:] = False
        return logits.masked_fill(remove.scatter(1, positions, remove), float("-inf")).softmax(-1)

    check(compiled, fn, torch.randn(3, 500))


GRADIENTS = {
    "sort": lambda x: x.sort(1, descending=True).values,
    "topk": lambda x: x.topk(4, 0).values,
    "kthvalue": lambda x: x.kthvalue(2, 1).values,
    "median": lambda x: x.median(),
    "median of rows": lambda x: x.median(1).values,
    "nanmedian": lambda x: x.nanmedian(0, True).values,
    "mode": lambda x: x.mode(1).values,
    "cumsum": lambda x: x.cumsum(0),
    "cumprod": lambda x: x.cumprod(1),
    "cummax": lambda x: x.cummax(1).values,
    "cummin": lambda x: x.cummin(0).values,
    "logcumsumexp": lambda x: x.logcumsumexp(1),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient(compiled, strict, name):
    fn = GRADIENTS[name]
    weight = torch.randn(5, 9)
    gradients = []
    for run in (fn, compiled(fn)):
        x = torch.randn(5, 9, generator=torch.Generator().manual_seed(1)).requires_grad_()
        y = run(x)
        (y * weight[: y.shape[0], : y.shape[1]] if y.dim() == 2 else y * 1.5).sum().backward()
        gradients.append(x.grad)
    assert_close_to_eager(gradients[1], gradients[0], scale=10.0)
