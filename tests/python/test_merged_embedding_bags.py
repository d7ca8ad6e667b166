"""Merged embedding bags against a list of nn.EmbeddingBag, and their updates against torch.optim."""

import copy
import pickle

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager
from torch import nn

modules = ipex.nn.modules
ROWS, WIDTHS = [50, 3, 1000, 1], [1, 7, 16, 128, 200]
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]
ISAS = [
    pytest.param(isa, marks=pytest.mark.needs_cpu(flag)) for isa, flag in {"avx2": "avx2", "avx512": "avx512f"}.items()
]


def make_bags(width=16, mode="sum", dtype=torch.float32, last=False, sparse=False, rows=ROWS):
    return [
        nn.EmbeddingBag(count, width, mode=mode, dtype=dtype, include_last_offset=last, sparse=sparse) for count in rows
    ]


def make_input(batch=9, index=torch.int64, last=False, rows=ROWS, most=6):
    """Indices with duplicates, and offsets of bags of which some are empty."""
    indices, offsets = [], []
    for count in rows:
        lengths = torch.randint(0, most, (batch,))
        ends = lengths.cumsum(0)
        starts = torch.cat([torch.zeros(1, dtype=torch.int64), ends])
        indices.append(torch.randint(0, count, (int(ends[-1]),)).to(index))
        offsets.append((starts if last else starts[:-1]).to(index))
    return indices, offsets


def reference(bags, indices, offsets):
    return [bag(i, o) for bag, i, o in zip(bags, indices, offsets, strict=True)]


def weighted(results):
    """Different gradients for all bags."""
    return sum((r * torch.linspace(-1, 2, r.numel(), dtype=r.dtype).reshape(r.shape)).sum() for r in results)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("index", [torch.int64, torch.int32])
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_values_and_gradients(dtype, width, mode, index, last, isa, monkeypatch):
    monkeypatch.setenv("IPEX_TARGET", isa)
    bags = make_bags(width, mode, dtype, last)
    merged = modules.MergedEmbeddingBag.from_embeddingbag_list(copy.deepcopy(bags))
    indices, offsets = make_input(index=index, last=last)
    ours = merged(indices, offsets)
    weighted(ours).backward()
    # In f64, because eager adds gradients of 16 bits in 16 bits.
    exact = [copy.deepcopy(bag).double() for bag in bags]
    expected = [result.to(dtype) for result in reference(exact, indices, offsets)]
    weighted(expected).backward()
    for got, result in zip(ours, expected, strict=True):
        torch.testing.assert_close(got, result)
    for weight, bag in zip(merged.weights, exact, strict=True):
        torch.testing.assert_close(weight.grad, bag.weight.grad.to(dtype))


def test_bags_of_a_module_share_the_weights():
    bags = make_bags()
    merged = modules.MergedEmbeddingBag.from_embeddingbag_list(bags)
    assert all(w.data_ptr() == b.weight.data_ptr() for w, b in zip(merged.weights, bags, strict=True))
    assert list(merged.state_dict()) == [f"weights.{i}" for i in range(4)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True])
def test_cat(dtype, last):
    bags = make_bags(24, dtype=dtype, last=last)
    merged = modules.MergedEmbeddingBagWithCat.from_embeddingbag_list(bags)
    indices, offsets = make_input(last=last)
    for dense in (torch.randn(9, 24, dtype=dtype), torch.randn(5, 9).t(), torch.randn(9, 8, dtype=torch.float64)):
        with torch.no_grad():
            expected = torch.cat([dense, *reference(bags, indices, offsets)], 1)
            assert_close_to_eager(merged(indices, offsets, dense), expected)
    dense = torch.randn(9, 24, dtype=dtype, requires_grad=True)
    weighted([merged(indices, offsets, dense)]).backward()
    weight = torch.linspace(-1, 2, 9 * 120, dtype=dtype).reshape(9, 120)
    assert torch.equal(dense.grad, weight[:, :24])
    exact = [copy.deepcopy(bag).double() for bag in bags]  # eager adds gradients of bf16 in bf16
    torch.cat(reference(exact, indices, offsets), 1).backward(weight[:, 24:].double())
    for ours, bag in zip(merged.weights, exact, strict=True):
        torch.testing.assert_close(ours.grad, bag.weight.grad.to(dtype))


def make_updating(kind, bags, **settings):
    if kind == "sgd":
        settings = {"lr": 0.1, **settings}
        cls = modules.MergedEmbeddingBagWithSGD
    else:
        settings = {"lr": 0.1, "eps": 1e-8, **settings}
        cls = modules.MergedEmbeddingBagWithAdaGrad
    return cls.from_embeddingbag_list(copy.deepcopy(bags), **settings)


def make_optimizer(kind, bags, **settings):
    parameters = [bag.weight for bag in bags]
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=0.1, **settings)
    return torch.optim.Adagrad(parameters, lr=0.1, eps=1e-8, **settings)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("index", [torch.int64, torch.int32])
@pytest.mark.parametrize("mode", ["sum", "mean"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_updates(kind, dtype, width, mode, index, isa, monkeypatch):
    monkeypatch.setenv("IPEX_TARGET", isa)
    bags = make_bags(width, mode, dtype, sparse=True)
    merged, optimizer = make_updating(kind, bags), make_optimizer(kind, bags)
    for _ in range(3):
        indices, offsets = make_input(index=index)
        versions = [w._version for w in merged.weights]
        weighted(merged(indices, offsets)).backward()
        assert all(w._version > v for w, v in zip(merged.weights, versions, strict=True))
        assert all(w.grad is None for w in merged.weights)
        optimizer.zero_grad()
        weighted(reference(bags, indices, offsets)).backward()
        optimizer.step()
    for weight, bag in zip(merged.weights, bags, strict=True):
        torch.testing.assert_close(weight, bag.weight, rtol=1e-5, atol=1e-5)


def test_weight_decay_applies_to_the_rows_that_were_read():
    bags = make_bags()
    merged = make_updating("sgd", bags, weight_decay=0.3)
    indices, offsets = make_input()
    weighted(merged(indices, offsets)).backward()
    weighted(reference(bags, indices, offsets)).backward()
    for weight, bag, read in zip(merged.weights, bags, indices, strict=True):
        stepped = bag.weight - 0.1 * (bag.weight.grad + 0.3 * bag.weight)
        was_read = torch.zeros(len(weight), 1, dtype=torch.bool)
        was_read[read.long()] = True
        torch.testing.assert_close(weight.detach(), torch.where(was_read, stepped, bag.weight).detach())


def whole(merged):
    """The f32 values of split tables."""
    trails = merged.sgd_args if isinstance(merged, modules.MergedEmbeddingBagWithSGD) else merged.adagrad_args
    for weight, trail in zip(merged.weights, trails.bf16_trail, strict=True):
        bits = (weight.detach().view(torch.int16).int() << 16) | (trail.int() & 0xFFFF)
        yield bits.view(torch.float32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("width", [7, 128])
@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_split_tables_take_the_steps_of_float(kind, width, isa, monkeypatch):
    """Every bit of top half and trail is that of an f32 table that is fed the same gradients."""
    monkeypatch.setenv("IPEX_TARGET", isa)
    bags = make_bags(width)
    split, plain = make_updating(kind, bags), make_updating(kind, bags)
    split.to_bfloat16_train()
    assert all(torch.equal(a, b.detach()) for a, b in zip(whole(split), plain.weights, strict=True))
    for _ in range(100):
        indices, offsets = make_input(batch=4)
        ours, theirs = split(indices, offsets), plain(indices, offsets)
        assert all(o.dtype == torch.bfloat16 for o in ours)
        grads = [torch.randn_like(o) for o in ours]
        torch.autograd.backward(ours, grads)
        torch.autograd.backward(theirs, [g.float() for g in grads])
    assert all(torch.equal(a, b.detach()) for a, b in zip(whole(split), plain.weights, strict=True))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_updates_of_16_bits(kind, dtype):
    bags = make_bags(24, dtype=dtype)
    merged = make_updating(kind, bags)
    exact = make_updating(kind, [copy.deepcopy(bag).float() for bag in bags])
    indices, offsets = make_input()
    grads = [torch.randn(9, 24).to(dtype) for _ in bags]
    torch.autograd.backward(merged(indices, offsets), grads)
    torch.autograd.backward(exact(indices, offsets), [g.float() for g in grads])
    for weight, expected in zip(merged.weights, exact.weights, strict=True):
        torch.testing.assert_close(
            weight.float(), expected, rtol=1.6e-2 if dtype == torch.bfloat16 else 1e-3, atol=1e-3
        )


@pytest.mark.parametrize("kind", ["gradient", "sgd", "adagrad"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_threads_do_not_change_results(kind, dtype):
    rows = [20000, 7, 300, 100]
    bags = make_bags(32, "mean", dtype, rows=rows)
    indices, offsets = make_input(batch=700, rows=rows, most=9)
    threads, runs = torch.get_num_threads(), []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        if kind == "gradient":
            merged = modules.MergedEmbeddingBag.from_embeddingbag_list(copy.deepcopy(bags))
        else:
            merged = make_updating(kind, bags)
        results = merged(indices, offsets)
        weighted(results).backward()
        runs.append([*results, *[w.detach() if w.grad is None else w.grad for w in merged.weights]])
    torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for run in runs[1:] for a, b in zip(runs[0], run, strict=True))


def test_duplicates_are_summed_in_the_order_of_the_bags():
    bags = make_bags(16, rows=[2])
    merged = make_updating("sgd", bags, lr=1.0)
    grad = torch.tensor([1e8, 1.0, -1e8, 1.0] * 200).unsqueeze(1).expand(800, 16)
    before = merged.weights[0].detach().clone()
    (result,) = merged([torch.zeros(800, dtype=torch.int64)], [torch.arange(800)])
    result.backward(grad)
    total = torch.zeros(())
    for value in grad[:, 0]:
        total += value
    assert torch.equal(merged.weights[0][0], before[0] - total)
    assert torch.equal(merged.weights[0][1], before[1])


def test_unused_outputs_and_frozen_tables_are_left_alone():
    bags = make_bags()
    merged = make_updating("adagrad", bags)
    merged.weights[1].requires_grad_(False)
    indices, offsets = make_input(most=9)
    results = merged(indices, offsets)
    (results[0].sum() + results[1].sum()).backward()
    changed = [not torch.equal(w, b.weight) for w, b in zip(merged.weights, bags, strict=True)]
    assert changed == [True, False, False, False]
    assert [bool(h.any()) for h in merged.adagrad_args.hessian] == changed


def test_saved_and_copied():
    bags = make_bags()
    merged = make_updating("adagrad", bags)
    merged.to_bfloat16_train()
    indices, offsets = make_input()
    weighted(merged(indices, offsets)).backward()
    fresh = make_updating("adagrad", bags)
    fresh.to_bfloat16_train()
    fresh.load_state_dict(merged.state_dict())
    twins = [fresh, copy.deepcopy(merged), pickle.loads(pickle.dumps(merged))]
    for module in (merged, *twins):
        weighted(module(indices, offsets)).backward()
    for twin in twins:
        assert all(torch.equal(a, b) for a, b in zip(whole(twin), whole(merged), strict=True))


def test_gradients_of_gradients():
    bags = make_bags(5, "mean", torch.float64)
    merged = modules.MergedEmbeddingBag.from_embeddingbag_list(bags)
    for last in (False, True):
        merged.include_last_offset = last
        indices, offsets = make_input(last=last)
        grad = torch.randn(9, 5, dtype=torch.float64, requires_grad=True)
        (first,) = torch.autograd.grad(merged(indices, offsets)[0], merged.weights[:1], grad, create_graph=True)
        (twice,) = torch.autograd.grad(first.pow(2).sum(), grad)
        plain = nn.EmbeddingBag(50, 5, mode="mean", include_last_offset=last, _weight=2 * first.detach())
        torch.testing.assert_close(twice, plain(indices[0], offsets[0]).detach())


def test_empty():
    merged = make_updating("sgd", make_bags())
    empty = torch.zeros(0, dtype=torch.int64)
    results = merged([empty] * 4, [torch.zeros(2, dtype=torch.int64)] * 4)
    assert all(torch.equal(r, torch.zeros(2, 16)) for r in results)
    sum(r.sum() for r in results).backward()
    assert [r.shape for r in merged([empty] * 4, [empty] * 4)] == [(0, 16)] * 4


def test_errors():
    bags = make_bags()
    merged = modules.MergedEmbeddingBag.from_embeddingbag_list(bags)
    indices, offsets = make_input(most=9)
    with pytest.raises(IndexError, match="index 50 of table 0 is out of range: the table has 50 rows"):
        merged([torch.tensor([3, 50]), *indices[1:]], [torch.tensor([0, 1]), *offsets[1:]])
    with pytest.raises(IndexError, match="offsets of table 1 must ascend"):
        merged(indices, [offsets[0], torch.tensor([0, 2, 1]), *offsets[2:]])
    with pytest.raises(RuntimeError, match="indices and offsets for each of 4 tables, got 3 and 3"):
        merged(indices[:3], offsets[:3])
    with pytest.raises(RuntimeError, match="expects integers"):
        merged([i.float() for i in indices], offsets)
    with pytest.raises(ValueError, match="same embedding_dim"):
        modules.MergedEmbeddingBag.from_embeddingbag_list([nn.EmbeddingBag(2, 3, mode="sum"), *bags])
    with pytest.raises(ValueError, match="'sum' or 'mean', got 'max'"):
        modules.MergedEmbeddingBag.from_embeddingbag_list([nn.EmbeddingBag(2, 3, mode="max")])
    with pytest.raises(ValueError, match="sparse=False"):
        modules.MergedEmbeddingBag.from_embeddingbag_list(make_bags(sparse=True))(indices, offsets)
    with pytest.raises(ValueError, match="padding_idx"):
        modules.MergedEmbeddingBag.from_embeddingbag_list([nn.EmbeddingBag(2, 3, mode="sum", padding_idx=0)])
    with pytest.raises(ValueError, match="Invalid learning rate"):
        make_updating("sgd", bags, lr=-1.0)


def test_wrong_indices_change_nothing():
    """Indices that became wrong between the forward and the backward pass are noticed."""
    merged = make_updating("sgd", make_bags(rows=[50]))
    index = torch.tensor([1, 2])
    (result,) = merged([index], [torch.tensor([0])])
    before = merged.weights[0].detach().clone()
    index.data[1] = 50
    with pytest.raises(IndexError, match="index 50 of table 0"):
        result.sum().backward()
    assert torch.equal(merged.weights[0], before)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_compiled(mode, compiled, strict):
    bags = make_bags(16, mode)
    merged = modules.MergedEmbeddingBag.from_embeddingbag_list(copy.deepcopy(bags))
    run = compiled(merged, fullgraph=True)
    indices, offsets = make_input()
    ours = run(indices, offsets)
    weighted(ours).backward()
    expected = reference(bags, indices, offsets)
    weighted(expected).backward()
    assert_close_to_eager(ours, expected)
    assert_close_to_eager([w.grad for w in merged.weights], [b.weight.grad for b in bags], scale=4.0)


def test_cat_compiled(compiled, strict):
    merged = modules.MergedEmbeddingBagWithCat.from_embeddingbag_list(make_bags())
    indices, offsets = make_input()
    dense = torch.randn(9, 16)
    with torch.no_grad():
        assert_close_to_eager(
            compiled(merged, fullgraph=True)(indices, offsets, dense), merged(indices, offsets, dense)
        )


@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
def test_updates_in_a_compiled_model(kind, compiled, strict):
    class Model(nn.Module):
        def __init__(self, merged):
            super().__init__()
            self.merged = merged
            self.top = nn.Linear(16, 3)

        def forward(self, indices, offsets):
            return self.top(torch.stack(self.merged(indices, offsets)).sum(0).relu())

    plain = Model(make_updating(kind, make_bags()))
    twin = copy.deepcopy(plain)
    run = compiled(twin, fullgraph=True)
    for _ in range(3):
        indices, offsets = make_input()
        plain(indices, offsets).sum().backward()
        run(indices, offsets).sum().backward()
    for ours, expected in zip(twin.merged.weights, plain.merged.weights, strict=True):
        torch.testing.assert_close(ours, expected)
    torch.testing.assert_close(twin.top.weight.grad, plain.top.weight.grad)


def test_equal_calls_in_a_compiled_graph_are_two_updates(compiled, strict):
    plain = make_updating("sgd", make_bags())
    twin = copy.deepcopy(plain)

    def run(module, indices, offsets):
        return sum((a + b).sum() for a, b in zip(module(indices, offsets), module(indices, offsets), strict=True))

    indices, offsets = make_input()
    run(plain, indices, offsets).backward()
    compiled(run, fullgraph=True)(twin, indices, offsets).backward()
    for ours, expected in zip(twin.weights, plain.weights, strict=True):
        torch.testing.assert_close(ours, expected)


def test_each_copy_updates_its_own_tables():
    first = make_updating("sgd", make_bags())
    kept = [weight.detach().clone() for weight in first.weights]
    indices, offsets = make_input()
    for second in (copy.deepcopy(first), pickle.loads(pickle.dumps(first))):
        weighted(second(indices, offsets)).backward()
        assert all(torch.equal(a, b) for a, b in zip(first.weights, kept, strict=True))
        assert not torch.equal(second.weights[0], kept[0])


def test_the_module_must_live_until_the_backward_pass():
    module = make_updating("sgd", make_bags())
    loss = weighted(module(*make_input()))
    del module
    with pytest.raises(RuntimeError, match="was deleted"):
        loss.backward()


@pytest.mark.parametrize("kind", ["sgd", "adagrad"])
@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_split_and_frozen_tables_in_a_compiled_graph(mode, kind, compiled, strict):
    """One graph for two modules, each with a frozen table and an unused result; a new learning rate applies."""

    factors = [torch.randn(9, 16).bfloat16() for _ in ROWS[1:]]

    def run(module, indices, offsets):
        results = module(indices, offsets)
        return sum((result * factor).sum() for result, factor in zip(results[1:], factors, strict=True))

    compiled_run = compiled(run, fullgraph=True)
    for _ in range(2):
        plain = make_updating(kind, make_bags(mode=mode))
        plain.to_bfloat16_train()
        plain.weights[2].requires_grad_(False)
        twin = copy.deepcopy(plain)
        first = [weight.detach().clone() for weight in plain.weights]
        for lr in (0.1, 0.5):
            plain.lr = twin.lr = lr
            indices, offsets = make_input()
            run(plain, indices, offsets).backward()
            compiled_run(twin, indices, offsets).backward()
        for ours, expected in zip(twin.state_dict().items(), plain.state_dict().items(), strict=True):
            assert ours[0] == expected[0] and torch.equal(ours[1], expected[1]), ours[0]
        changed = [not torch.equal(a, b) for a, b in zip(twin.weights, first, strict=True)]
        assert changed == [False, True, False, True]
        assert all(weight.grad is None for weight in twin.weights)
