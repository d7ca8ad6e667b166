"""Dynamic shapes: one compilation serves all sizes within its guards, without recompilations that eager does not need.

Every program runs over a sequence of inputs with backend="eager", with aot_eager and with the backend under test, and
the compiled graphs are counted. Where AOTAutograd's tracing adds a guard, the count of aot_eager is the limit.
"""

import intel_extension_for_pytorch as ipex
import pytest
import torch
import torch.nn.functional as F
import transformers
from comparison import assert_close_to_eager
from conftest import BACKEND
from torch import nn


class Counting:
    """A backend that counts the graphs it compiles."""

    def __init__(self, name):
        self.compile = torch._dynamo.lookup_backend(name)
        self.graphs = 0

    def __call__(self, module, inputs):
        self.graphs += 1
        return self.compile(module, inputs)


def run_all(function, inputs, backend, dynamic, grad=False):
    """Results (and gradients of the inputs) for the sequence, and the number of graphs. Backend None: not compiled."""
    torch._dynamo.reset()
    counting = Counting(backend) if backend else None
    run = torch.compile(function, backend=counting, dynamic=dynamic) if backend else function
    results = []
    for arguments in inputs:
        given = [a.clone().requires_grad_(grad) if is_float(a) else a for a in arguments]
        result = run(*given)
        if grad:
            result = (result, torch.autograd.grad(result.sum(), [a for a in given if is_float(a)]))
        results.append(result)
    return results, counting and counting.graphs


def is_float(value):
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def check(function, inputs, *, dynamic=True, grad=False, aot_guards=False, tolerance=1e-4):
    expected, _ = run_all(function, inputs, None, dynamic, grad)
    _, aot = run_all(function, inputs, "aot_eager", dynamic, grad)
    _, eager = run_all(function, inputs, "eager", dynamic, grad)
    with ipex.record_reports() as reports:
        found, ours = run_all(function, inputs, BACKEND, dynamic, grad)
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
    assert [r["eager"] for r in reports if r["eager"]] == []
    assert ours == aot
    if not aot_guards:
        assert ours == eager
    return ours


def matrices(*shapes):
    return [(torch.randn(*shape),) for shape in shapes]


SHAPES = matrices((3, 5), (4, 7), (17, 33), (1, 5), (0, 4), (64, 1), (2, 2), (5, 130))
FULL = matrices((3, 5), (4, 7), (17, 33), (1, 5), (64, 2), (5, 130))  # nothing empty

PROGRAMS = {
    "softmax": lambda x: torch.softmax(x, -1) * x.shape[0],
    "flatten": lambda x: x.t().reshape(-1)[1::2].cos(),
    "cat": lambda x: torch.cat([x, x * 2, x[:1]], 0),
    "matmul": lambda x: x @ x.t(),
    "floor division and modulo": lambda x: x[: x.shape[0] // 2] + x.shape[1] % 3,
    "max and min": lambda x: x.new_zeros(max(x.shape), min(x.shape)) + 1,
    "a float of sizes": lambda x: x * (x.shape[0] / 2.5) + x.shape[1] ** 0.5,
    "a bool of sizes": lambda x: torch.where(torch.tensor(x.shape[0] > 3), x, -x),
    "a size through float": lambda x: x.new_ones(int(x.shape[0] * 1.5), 2) * 3,
    "arange": lambda x: torch.arange(x.shape[0])[:, None] * x,
    "roll and flip": lambda x: x.roll(1, 0).flip(1),
    "repeat": lambda x: x.repeat(2, x.shape[0]),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "cumsum": lambda x: x.cumsum(1),
    "broadcast": lambda x: x[:, None, :] + x[:, :, None],
    "the last rows": lambda x: x[-5:] * 2,
    "rows before the last": lambda x: x[-4:-1] * 2,
    "rows that a size counts from the end": lambda x: x[-x.shape[1] :] + 1,
    "the last rows replaced": lambda x: torch.slice_scatter(x, x[-5:] * 2, 0, -5),
    "rows replaced that there may not be": lambda x: torch.slice_scatter(x, x[3:] * 2, 0, 3),
    "causal mask": lambda x: torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).triu(1).float() @ x.t(),
}
ROW_PROGRAMS = {
    "variance": lambda x: x.var(1),
    "layer norm": lambda x: F.layer_norm(x, (x.shape[-1],)),
    "argmax": lambda x: x.argmax(1),
    "column sums": lambda x: (x.sum(0), x.amax(0)),
    "a slice of one row, repeated": lambda x: x[x.shape[0] // 2 :][:1].expand(3, -1).sin(),
    "a dimension that a guard says is 1": lambda x: x[:, x.shape[1] - 1 :].expand(-1, 3) * 2,
    "transposed": lambda x: (x.t() * 2, x.t().contiguous() + 1),
}


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes(name):
    check(PROGRAMS[name], SHAPES)


@pytest.mark.parametrize("name", ROW_PROGRAMS)
def test_rows(name):
    check(ROW_PROGRAMS[name], FULL)


@pytest.mark.needs_ipex
def test_one_graph_serves_every_size():
    inputs = matrices(*((rows, columns) for rows in (2, 15, 16, 17, 63, 200) for columns in (3, 7, 64, 65, 129)))
    assert check(lambda x: F.gelu(x @ x.t()).softmax(-1) + x.sum(1), inputs) == 1


@pytest.mark.parametrize("grad", (False, True))
def test_views_of_a_changed_input(grad):
    """AOTAutograd recreates the views from the input, by the geometry of the graph's outputs."""

    def function(x):
        x = x * 2 if grad else x
        x.exp_()
        return x[x.shape[0] // 2 :, x.shape[1] // 3 :].t(), x[1:], x

    for x, _ in zip(FULL[:3], range(3), strict=True):
        given = [x[0].clone().requires_grad_(grad) for _ in range(2)]
        ours, eager = torch.compile(function, backend=BACKEND, dynamic=True)(given[0]), function(given[1])
        for a, b in zip(ours, eager, strict=True):
            torch.testing.assert_close(a, b)
            assert (a.stride(), a.storage_offset()) == (b.stride(), b.storage_offset())
        torch.testing.assert_close(given[0], given[1])
        with torch.no_grad():
            ours[0].zero_()
            eager[0].zero_()
        torch.testing.assert_close(ours[2], eager[2])  # shared memory


def test_automatic_dynamic():
    assert check(lambda x: (x.sin() + 1).sum(0), FULL[:3], dynamic=None) == 2


def test_mark_dynamic():
    def marked(x):
        torch._dynamo.mark_dynamic(x, 0, min=2, max=40)
        return x

    results = []
    for backend in ("eager", BACKEND):
        torch._dynamo.reset()
        counting = Counting(backend)
        run = torch.compile(lambda x: x.softmax(0), backend=counting)
        for rows in (3, 7, 40):
            x = torch.randn(rows, 6)
            torch.testing.assert_close(run(marked(x)), x.softmax(0))
        outside = torch.randn(41, 6)
        torch.testing.assert_close(run(outside), outside.softmax(0))  # another graph, not this one with a wrong size
        results.append(counting.graphs)
    assert results[0] == results[1] == 2


def test_a_range_that_does_not_hold():
    torch._dynamo.reset()
    x = torch.randn(50, 6)
    torch._dynamo.mark_dynamic(x, 0, min=2, max=40)
    with pytest.raises(Exception, match="out of range|not in range|Constraints violated|max"):
        torch.compile(lambda x: x.softmax(0), backend=BACKEND)(x)


def test_integer_arguments():
    """An integer argument, which may be negative."""
    x = torch.randn(3, 4)
    inputs = [(x, n) for n in (5, -3, -7, 9, 2, 0)]
    check(lambda x, n: x * max(n, 0) + torch.full((2, 1), min(n, 3)).sum() + x // n if n else x, inputs, dynamic=None)


# ---- sizes that depend on data ----


def halves(x):
    kept = x[x > 0]
    return kept.sin() * 2, kept.sum() + x, (x > 0).nonzero() * x.shape[0]


def counted(x):
    n = (x > 0).sum().item()
    torch._check(n <= x.shape[0])
    return x[:n] * 2, torch.ones(n) + n


DATA_PROGRAMS = {
    "masks": (halves, FULL),
    "unique": (lambda x: torch.unique(x) * 2 + 1, FULL),
    "repeat_interleave": (lambda x: x.repeat_interleave(torch.arange(x.shape[0]), 0) * 2, FULL),
    "item as a size": (counted, matrices((5,), (8,), (30,))),
    "item as a number": (lambda x: x * x.sum().item(), SHAPES),
}


@pytest.mark.parametrize("name", DATA_PROGRAMS)
def test_sizes_from_data(name, strict):
    with torch._dynamo.config.patch(capture_scalar_outputs=True, capture_dynamic_output_shape_ops=True):
        check(*DATA_PROGRAMS[name])


def test_gradient_of_sizes_from_data(strict):
    """The size of the gradient depends on data too. The backward pass gets it as an argument."""
    x = torch.linspace(-1, 1, 12).view(3, 4).requires_grad_()

    def gradient(function):
        return torch.autograd.grad(function(x).sum(), x)[0]

    def chosen(x):
        return torch.masked_select(x, x > 0) ** 2

    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        assert torch.equal(gradient(torch.compile(chosen, backend=BACKEND, fullgraph=True)), gradient(chosen))


def test_an_assertion_about_data_fails():
    def function(x):
        n = x.sum().item()
        torch._check(n <= 4)
        return torch.zeros(n) + 1

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        run = torch.compile(function, backend=BACKEND, fullgraph=True)
        assert run(torch.tensor([1, 2])).shape == (3,)
        with pytest.raises(RuntimeError, match="u0 <= 4|<= 4"):
            run(torch.tensor([3, 2]))


# ---- networks ----


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.ReLU(),
        )  # fmt: skip
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.features(x).mean((2, 3)))


IMAGES = [(torch.randn(n, 3, h, w),) for n, h, w in ((2, 16, 20), (3, 17, 16), (5, 8, 40), (2, 33, 21))]


def test_conv_net(strict):
    model = Net().eval().requires_grad_(False)
    check(model, IMAGES, aot_guards=True)


def test_conv_net_trains():
    check(Net().eval(), IMAGES, grad=True, aot_guards=True, tolerance=1e-3)


def bert(layers=2, **options):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=200, hidden_size=32, num_hidden_layers=layers, num_attention_heads=4, intermediate_size=64,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, num_labels=3,
        problem_type="single_label_classification",
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


TEXTS = [(torch.randint(0, 200, (b, n)),) for b, n in ((2, 8), (3, 17), (64, 8), (5, 130), (7, 512))]


def test_bert():
    model = bert().eval().requires_grad_(False)
    counting = Counting(BACKEND)
    run = torch.compile(model, backend=counting, dynamic=True)
    first = 0
    for (ids,) in TEXTS:
        arguments = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        torch.testing.assert_close(run(**arguments).logits, model(**arguments).logits, rtol=1e-4, atol=1e-4)
        first = first or counting.graphs  # AOTAutograd may have Dynamo trace the first call once more
    assert counting.graphs == first


def test_bert_trains():
    """Forward and backward are compiled once, and give eager's gradients at each size."""
    model = bert()
    counting = Counting(BACKEND)
    run = torch.compile(model, backend=counting, dynamic=True)
    first = 0
    for (ids,) in TEXTS[:4]:
        labels = torch.arange(len(ids)) % 3
        gradients = []
        for call in (model, run):
            model.zero_grad()
            call(ids, attention_mask=torch.ones_like(ids), labels=labels).loss.backward()
            gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        for ours, eager in zip(gradients[1], gradients[0], strict=True):
            torch.testing.assert_close(ours, eager, rtol=1e-3, atol=1e-5)
        first = first or counting.graphs
    assert counting.graphs == first


# ---- generation ----


def generated(cache, dtype, backend):
    """Greedy tokens for prompts of several sizes, and the number of compiled graphs."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=128, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, initializer_range=0.3, pad_token_id=0, bos_token_id=1,
        eos_token_id=None,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config).to(dtype).eval()
    counting = None
    if backend:
        counting = Counting(backend)
        model.forward = torch.compile(model.forward, backend=counting)
    tokens = []
    with torch.no_grad():
        for batch, length in ((2, 7), (2, 9), (1, 12)):
            prompt = torch.randint(2, 128, (batch, length), generator=torch.Generator().manual_seed(length))
            tokens.append(
                model.generate(
                    prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=10,
                    cache_implementation=cache, disable_compile=True,
                )
            )  # fmt: skip
    return tokens, counting and counting.graphs, model


@pytest.mark.parametrize(
    ("cache", "dtype"),
    [
        pytest.param("dynamic", torch.float32, marks=pytest.mark.nightly),
        pytest.param("static", torch.float32, marks=pytest.mark.nightly),
        pytest.param("dynamic", torch.bfloat16, marks=pytest.mark.nightly),
        pytest.param("static", torch.bfloat16, marks=pytest.mark.nightly),
    ],
)
def test_generate(cache, dtype):
    """In bf16, rounding may decide ties differently. Each token's logit in eager must then be within four rounding
    steps of the best one."""
    expected, _, model = generated(cache, dtype, None)
    found, ours, _ = generated(cache, dtype, BACKEND)
    _, eager, _ = generated(cache, dtype, "eager")
    for tokens, reference in zip(found, expected, strict=True):
        if dtype is torch.float32:
            assert tokens.tolist() == reference.tolist()
            continue
        with torch.no_grad():
            logits = model(tokens).logits[:, -11:-1].float()  # the logits that determined each new token
        best, chosen = logits.amax(-1), logits.gather(2, tokens[:, -10:, None])[..., 0]
        assert (best - chosen <= 4 * torch.finfo(dtype).eps * best.abs()).all()
    assert ours == eager


# ---- large ----


@pytest.mark.nightly
def test_more_elements_than_32_bits_count():
    count = 2**31 + 40
    x = torch.zeros(count, dtype=torch.int8)
    x[-1], x[2**31], x[7] = 3, 5, 1
    run = torch.compile(lambda x, i: (x + 1, x[i], x.view(8, -1).amax(1)), backend=BACKEND, dynamic=True)
    moved, picked, largest = run(x, torch.tensor([count - 1, 2**31, 7, 0]))
    assert picked.tolist() == [3, 5, 1, 0]
    assert [moved[i].item() for i in (count - 1, 2**31, 7, 0, count - 2)] == [4, 6, 2, 1, 1]
    assert moved.sum(dtype=torch.int64).item() == count + 9
    assert largest.tolist() == [1, 0, 0, 0, 0, 0, 0, 5]


def test_update_through_a_view_whose_size_is_spelled_otherwise(compiled, strict):
    """[n] viewed as [n // m, m] and back has size n // m * m. A guard says that this is n, so it is not a broadcast."""

    def update(x, like):
        x.view(-1, like.shape[0]).reciprocal_()
        return like + 1

    run = compiled(update, dynamic=True)
    for rows, columns in ((3, 5), (4, 7), (2, 9)):
        x, like = torch.arange(1.0, rows * columns + 1), torch.zeros(columns)
        expected = 1 / x
        assert torch.equal(run(x, like), like + 1)
        torch.testing.assert_close(x, expected)


def test_padding_row_known_at_run_time(compiled, strict):
    """The row's gradient is 0, whether padding_idx is negative or a symbolic size."""
    run = compiled(lambda i, w, p: F.embedding(i, w, padding_idx=p).sum(), dynamic=True)
    for padding, indices in ((3, [1, 3, 3, 5]), (-1, [9, 2, 9, 0]), (5, [5, 1, 3, 3])):
        weight = torch.randn(10, 4, requires_grad=True)
        run(torch.tensor(indices), weight, padding).backward()
        counts = torch.bincount(torch.tensor(indices), minlength=10)
        counts[padding] = 0
        assert torch.equal(weight.grad, counts[:, None].expand(10, 4).float())


@pytest.mark.parametrize("kind", ["mm", "bmm", "addmm", "conv2d", "conv2d backward"])
def test_strides_that_the_library_cannot_describe(kind, strict):
    """Every third column of rows of 8: the library takes rows of 3 with a stride of 3 only if they are 9 apart."""
    weight = torch.randn(4, 2, 1, 1)

    def product(x, y):
        if kind.startswith("conv"):
            return torch.nn.functional.conv2d(x[:, :, :, 1::3], weight)
        a, b = x[..., 1::3], y[..., 1::3].transpose(-1, -2)
        return torch.addmm(y[0, : b.shape[-1]], a, b) if kind == "addmm" else a @ b

    run = torch.compile(product, backend="ipex", dynamic=True)
    for rows, columns in [(16, 8), (128, 64), (130, 65), (62, 31), (9, 8)]:
        leading = {"bmm": (3,), "conv2d": (2, 2), "conv2d backward": (2, 2)}.get(kind, ())
        x, y = torch.randn(*leading, rows, columns), torch.randn(*leading, 5, columns)
        x.requires_grad_(kind.endswith("backward"))
        ours, eager = run(x, y), product(x, y)
        assert_close_to_eager(ours, eager, scale=20)
        if x.requires_grad:
            assert_close_to_eager(*(torch.autograd.grad(r.sum(), x) for r in (ours, eager)), scale=20)
