"""nn.RNN, nn.GRU and nn.LSTM, which Dynamo compiles only with its option allow_rnn.

They are unrolled to products and pointwise ops. An LSTM whose input needs no gradient is one op per layer and
direction, and a library step if no gradients are needed at all.
"""

import copy

import intel_extension_for_pytorch as ipex
import pytest
import torch
from comparison import assert_close_to_eager, assert_error_within, assert_near_in_norm

CELLS = {"rnn": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}
LAYOUTS = {
    "one layer": {},
    "two layers, batch first": {"num_layers": 2, "batch_first": True},
    "bidirectional": {"bidirectional": True, "bias": False},
}


def layer(cell, layout):
    torch.manual_seed(5)
    return CELLS[cell](6, 10, **LAYOUTS[layout]), torch.randn(7, 3, 6)


@pytest.fixture(autouse=True)
def traced():
    with torch._dynamo.config.patch(allow_rnn=True):
        yield


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cell", CELLS)
def test_inference(compiled, strict, cell, layout):
    module, x = layer(cell, layout)
    with torch.no_grad():
        assert_close_to_eager(compiled(module)(x), module(x))


@pytest.mark.one_in(2)
@pytest.mark.needs_ipex  # other backends' tracing omits it
@pytest.mark.parametrize("layers", [{"num_layers": 3}, {"num_layers": 2, "batch_first": True, "bidirectional": True}])
@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("dropout", [0.5, 1.0])
def test_dropout_between_layers(compiled, strict, cell, layers, gradients, dropout):
    module = CELLS[cell](6, 10, dropout=dropout, **layers)
    x = torch.randn(7, 3, 6).requires_grad_(gradients)

    def results(call):
        torch.manual_seed(1)
        with torch.set_grad_enabled(gradients):
            y, state = call(x)
            grads = torch.autograd.grad(y.square().sum(), list(module.parameters())) if gradients else ()
        return y, state, grads, torch.rand(3)

    assert_close_to_eager(results(compiled(module)), results(module))
    assert not torch.equal(results(module.eval())[0], results(module.train())[0])


@pytest.mark.needs_ipex  # other backends trace oneDNN's layer, which saves nothing for gradients
@pytest.mark.parametrize("layout", LAYOUTS)
def test_lstm_training_with_an_input_without_gradients(compiled, strict, layout):
    module, x = layer("lstm", layout)

    def gradients(call):
        return torch.autograd.grad(call(x)[0].square().sum(), list(module.parameters()))

    assert_close_to_eager(gradients(compiled(module)), gradients(module))


def lstm(*sizes, **options):
    torch.manual_seed(7)
    return torch.nn.LSTM(*sizes, **options)


@pytest.mark.needs_ipex
def test_lstm_is_a_library_step():
    module, x = layer("lstm", "bidirectional")
    with torch.no_grad():
        (report,) = ipex.explain(module, x).to_dict()["graphs"]
    steps = [step for step in report["steps"] if step["kind"] == "library"]
    assert [step["name"] for step in steps] == ["onednn.pack", "onednn.lstm"] * 2
    assert ["reversed" in step["detail"] for step in steps[1::2]] == [False, True]
    assert all("packed weights" in step["detail"] and step["flops"] > 0 for step in steps[1::2])


@pytest.mark.parametrize("sizes", [(1, 1, 1, 1), (1, 3, 6, 10), (7, 1, 6, 10), (5, 2, 1, 16), (3, 20, 33, 48)])
@pytest.mark.parametrize("bias", [True, False])
def test_lstm_sizes(compiled, strict, sizes, bias):
    steps, batch, inputs, hidden = sizes
    module, x = lstm(inputs, hidden, bias=bias), torch.randn(steps, batch, inputs)
    state = torch.randn(1, batch, hidden), torch.randn(1, batch, hidden)
    with torch.no_grad():
        assert_close_to_eager(compiled(module)(x), module(x), strides=True)
        assert_close_to_eager(compiled(module)(x, state), module(x, state), strides=True)
        assert_close_to_eager(compiled(module)(x[:, 0]), module(x[:, 0]), strides=True)  # no batch


def test_lstm_last_states_only(compiled, strict):
    module, x = lstm(6, 10), torch.randn(7, 3, 6)
    with torch.no_grad():
        assert_close_to_eager(compiled(lambda x: module(x)[1][0] * 2)(x), module(x)[1][0] * 2)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.randn(3, 7, 6).transpose(0, 1),
        lambda: torch.randn(7, 3, 12)[..., 2:8],
        lambda: torch.randn(1, 3, 6).expand(7, 3, 6),
        lambda: torch.randn(3, 20).unfold(1, 6, 2).transpose(0, 1),  # windows that overlap
        lambda: torch.randn(6, 7, 3).permute(1, 2, 0),
    ],
    ids=["transposed", "part of the features", "repeated", "windows", "features first"],
)
def test_lstm_layouts(compiled, strict, make):
    module, x = lstm(6, 10), make()
    with torch.no_grad():
        assert_close_to_eager(compiled(module)(x), module(x))
        shifted = compiled(lambda x: module(x + 1))
        assert_close_to_eager(shifted(x), module(x + 1))


@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True}])
def test_lstm_dynamic_sizes(compiled, strict, options):
    module = lstm(6, 10, **options)
    run = compiled(module, dynamic=True)
    with torch.no_grad():
        for steps, batch in ((7, 3), (4, 9), (90, 2), (2, 70)):
            x = torch.randn(batch, steps, 6) if options else torch.randn(steps, batch, 6)
            assert_close_to_eager(run(x), module(x))


def test_lstm_weights_may_change(compiled, strict):
    module, x = lstm(6, 10), torch.randn(7, 3, 6)
    run = compiled(module)
    with torch.no_grad():
        for _ in range(3):
            assert_close_to_eager(run(x), module(x))
            for p in module.parameters():
                p.mul_(0.5)


def test_lstm_state_that_is_a_buffer(compiled, strict):
    class Stream(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = lstm(6, 10)
            self.register_buffer("h", torch.zeros(1, 3, 10))
            self.register_buffer("c", torch.zeros(1, 3, 10))

        def forward(self, x):
            y, (h, c) = self.lstm(x, (self.h, self.c))
            self.h.copy_(h)
            self.c.copy_(c)
            return y

    ours, eager = Stream(), Stream()
    run = compiled(ours)
    with torch.no_grad():
        for _ in range(3):
            x = torch.randn(4, 3, 6)
            assert_close_to_eager(run(x), eager(x))
            assert_close_to_eager([ours.h, ours.c], [eager.h, eager.c])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lstm_bf16(compiled, strict, layout):
    module, x = layer("lstm", layout)
    module, x = module.bfloat16(), x.bfloat16()
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(x.double())
        assert_error_within(compiled(module)(x), module(x), exact)


@pytest.mark.needs_ipex
def test_lstm_autocast(compiled, strict):
    torch.manual_seed(5)
    embed, module, x = torch.nn.Linear(6, 6), lstm(6, 10), torch.randn(7, 3, 6)
    with torch.no_grad():
        exact = copy.deepcopy(module).double()(copy.deepcopy(embed).double()(x.double()))
        with torch.autocast("cpu", torch.bfloat16):
            ours, eager = compiled(lambda x: module(embed(x)))(x), module(embed(x))
        assert [t.dtype for t in (ours[0], *ours[1])] == [t.dtype for t in (eager[0], *eager[1])]
        assert_error_within(ours, eager, exact)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("cell", CELLS)
def test_training(compiled, strict, cell, layout):
    module, x = layer(cell, layout)
    results = []
    for run in (module, compiled(module, fullgraph=True)):
        module.zero_grad()
        leaf = x.clone().requires_grad_()
        y = run(leaf)[0]
        y.square().sum().backward()
        results.append((y.detach(), [leaf.grad, *(p.grad.clone() for p in module.parameters())]))
    assert_close_to_eager(results[1][0], results[0][0])
    assert_near_in_norm(results[1][1], results[0][1])
