"""Embedding bags, native in forward and backward: bags that are the rows of a matrix, and bags of any length."""

import copy

import pytest
import torch
from comparison import assert_close_to_eager, assert_error_within
from torch import nn

ROWS, WIDTH = 30, 8


def gradients(run, bag, arguments):
    bag.zero_grad()
    output = run(*arguments)
    weight = torch.linspace(-1, 1, output.numel(), dtype=torch.float64).reshape(output.shape).to(output.dtype)
    (output * weight).sum().backward()
    given = [a.grad for a in arguments if isinstance(a, torch.Tensor) and a.is_floating_point() and a.requires_grad]
    return [output.detach(), bag.weight.grad, *given]


def fresh(arguments):
    return [a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a for a in arguments]


def check(compiled, bag, *arguments, **options):
    twin = copy.deepcopy(bag)
    eager = gradients(bag, bag, fresh(arguments))
    ours = gradients(compiled(twin, **options), twin, fresh(arguments))
    assert_close_to_eager(ours, eager, scale=4.0)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("index", [torch.int64, torch.int32])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_rows_of_a_matrix(mode, index, dynamic, compiled, strict):
    bag = nn.EmbeddingBag(ROWS, WIDTH, mode=mode)
    check(compiled, bag, torch.randint(0, ROWS, (6, 4), dtype=index), dynamic=dynamic)


def test_weights_of_samples(compiled, strict):
    bag = nn.EmbeddingBag(ROWS, WIDTH, mode="sum")
    check(compiled, bag, torch.randint(0, ROWS, (6, 4)), None, torch.rand(6, 4, requires_grad=True))


def test_other_batch_sizes(compiled, strict):
    bag = nn.EmbeddingBag(ROWS, WIDTH, mode="sum")
    run = compiled(bag)
    for batch in (3, 5, 1, 8):
        indices = torch.randint(0, ROWS, (batch, 4))
        assert_close_to_eager(run(indices), bag(indices))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bfloat16(mode, compiled, strict):
    bag = nn.EmbeddingBag(ROWS, WIDTH, mode=mode, dtype=torch.bfloat16)
    twin, exact = copy.deepcopy(bag), copy.deepcopy(bag).double()
    run = compiled(twin)
    ours, eager, reference = [], [], []
    for _ in range(8):
        indices = torch.randint(0, ROWS, (16, 5))
        ours += gradients(run, twin, [indices])
        eager += gradients(bag, bag, [indices])
        reference += gradients(exact, exact, [indices])
    assert_error_within(ours, eager, reference)


@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "sum"},
        {"mode": "mean"},
        {"mode": "max"},
        {"mode": "sum", "padding_idx": 3},
        {"mode": "mean", "padding_idx": 3},
        {"mode": "max", "padding_idx": 3},
    ],
    ids=str,
)
@pytest.mark.parametrize("dynamic", [False, True])
def test_bags_of_any_length(settings, dynamic, compiled, strict):
    bag = nn.EmbeddingBag(ROWS, WIDTH, **settings)
    indices = torch.randint(0, 8, (12,))  # rows meet, and the padding row is among them
    check(compiled, bag, indices, torch.tensor([0, 3, 3, 7, 8]), dynamic=dynamic)  # one bag is empty


@pytest.mark.parametrize("padding", [None, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_largest_of_bags_with_specials(dtype, padding, compiled, strict):
    """A NaN is the maximum only if it is the first element."""
    nan, inf = float("nan"), float("inf")
    bags = [[1, nan, 2], [nan, 1, nan], [-inf, nan], [-inf, -inf], [nan], [2, nan, inf, inf], [nan, nan], [-1, nan, -2]]
    rows, offsets, index = [0, -inf, nan, 7], [], []
    for bag in bags:
        offsets.append(len(index))
        index += [3, *range(len(rows), len(rows) + len(bag)), 3] if padding else range(len(rows), len(rows) + len(bag))
        rows += bag
    layer = nn.EmbeddingBag(len(rows), 1, mode="max", padding_idx=padding, dtype=dtype)
    layer.weight.data = torch.tensor(rows, dtype=dtype).unsqueeze(1)
    check(compiled, layer, torch.tensor(index), torch.tensor(offsets))


def test_gradient_by_frequency(compiled):
    """This gradient stays in ATen, which uses the counts of other rows than those that it scales."""
    bag = nn.EmbeddingBag(ROWS, WIDTH, mode="sum", scale_grad_by_freq=True)
    check(compiled, bag, torch.randint(0, 8, (12,)), torch.tensor([0, 3, 3, 7, 8]))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_last_offset_included(mode, dynamic, compiled, strict):
    bag = nn.EmbeddingBag(ROWS, WIDTH, mode=mode, include_last_offset=True)
    arguments = torch.randint(0, ROWS, (9,)), torch.tensor([0, 2, 5, 9])
    check(compiled, bag, *arguments, dynamic=dynamic)
    with torch.no_grad():
        assert_close_to_eager(compiled(bag, dynamic=dynamic)(*arguments), bag(*arguments))


def test_weights_in_bags_of_any_length(compiled, strict):
    bag = nn.EmbeddingBag(ROWS, WIDTH, mode="sum")
    indices, offsets = torch.randint(0, ROWS, (9,), dtype=torch.int32), torch.tensor([0, 2, 5, 5], dtype=torch.int32)
    check(compiled, bag, indices, offsets, torch.rand(9, requires_grad=True))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_no_index_and_one_bag(mode, compiled, strict):
    bag = nn.EmbeddingBag(ROWS, WIDTH, mode=mode)
    none = torch.empty(0, dtype=torch.int64)
    with torch.no_grad():
        assert_close_to_eager(compiled(bag)(none, torch.tensor([0, 0])), bag(none, torch.tensor([0, 0])))
        assert_close_to_eager(compiled(bag)(none + 1, torch.tensor([0])), bag(none + 1, torch.tensor([0])))


def test_many_long_bags_in_bfloat16(compiled, strict):
    bag = nn.EmbeddingBag(1000, 70, mode="mean", dtype=torch.bfloat16)
    indices, lengths = torch.randint(0, 1000, (6000,)), torch.randint(0, 30, (400,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)[:-1]])
    with torch.no_grad():
        exact = copy.deepcopy(bag).double()(indices, offsets)
        assert_error_within([compiled(bag)(indices, offsets)], [bag(indices, offsets)], [exact])


def test_index_out_of_range(compiled, strict):
    bag = nn.EmbeddingBag(ROWS, WIDTH, mode="sum")
    with torch.no_grad(), pytest.raises(RuntimeError, match=f"found idx to be {ROWS}"):
        compiled(bag)(torch.full((2, 3), ROWS))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("offsets", [[0, 9], [0, 9, 3], [0, -2, 3]])
def test_offsets_beyond_the_indices_are_an_error(mode, offsets, compiled, strict):
    bag = nn.EmbeddingBag(ROWS, WIDTH, mode=mode)
    run, indices = compiled(bag), torch.randint(0, ROWS, (6,))
    assert_close_to_eager(run(indices, torch.tensor([0, 2, 6][: len(offsets)])),
                          bag(indices, torch.tensor([0, 2, 6][: len(offsets)])))  # fmt: skip
    with pytest.raises((IndexError, RuntimeError), match="out of bounds|can not be greater|Expected i < index_size"):
        run(indices, torch.tensor(offsets))


@pytest.mark.parametrize(
    ("mode", "sparse"), [("sum", False), ("sum", True), ("mean", False), ("mean", True), ("max", False)]
)
def test_gradients_where_compilation_fails(compiled, monkeypatch, mode, sparse):
    """The traced graph, whose unused operands are removed, then runs in ATen."""
    from intel_extension_for_pytorch.compiler import backend

    def fail(*args, **options):
        raise RuntimeError("not compiled")

    monkeypatch.setenv("IPEX_STRICT", "0")
    monkeypatch.setattr(backend, "_compile_native", fail)
    table, index, offsets = torch.randn(30, 8), torch.randint(30, (50,)), torch.tensor([0, 4, 4, 20, 33])

    def loss(t):
        return nn.functional.embedding_bag(index, t, offsets, mode=mode, sparse=sparse).square().sum()

    gradients = []
    for function in (loss, compiled(loss)):
        t = table.clone().requires_grad_()
        function(t).backward()
        gradients.append(t.grad.to_dense())
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("operator", ["_embedding_bag", "_embedding_bag_forward_only"])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_results_beside_the_sums(operator, mode, compiled, strict):
    """Sizes of bags and positions of maxima. They are zero for sums and for empty bags."""
    weight = torch.linspace(-1, 1, ROWS * WIDTH).view(ROWS, WIDTH).sin()
    indices = torch.tensor([1, 2, 2, 5, 5, 1, 7])
    offsets = torch.tensor([0, 2, 2, 5])
    ends = torch.tensor([0, 2, 2, 5, 7])
    weights = torch.linspace(0.5, 1, 7) if mode == 0 else None
    take = getattr(torch.ops.aten, operator)

    def run(weight, indices, offsets, ends):
        found = []
        for padding in (-1, 5):
            for given, last in ((offsets, False), (ends, True)):
                for scale in (None, weights):
                    results = take(weight, indices, given, False, mode, False, scale, last, padding)
                    found.append(results)
        matrix = indices[:6].view(2, 3)
        results = torch.embedding_bag(weight, matrix.reshape(-1), torch.arange(0, 6, 3), False, min(mode, 1))
        return found, results[0], results[2], results[3]

    arguments = (weight, indices, offsets, ends)
    for dtype in (torch.int64, torch.int32):
        given = [a if a is weight else a.to(dtype) for a in arguments]
        torch.testing.assert_close(compiled(run)(*given), run(*given))
