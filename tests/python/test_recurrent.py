"""nn.RNN, nn.GRU and nn.LSTM, which Dynamo leaves to eager unless its option allow_rnn is set.

Then they arrive unrolled as products and pointwise ops, all native, except the LSTM without gradients: one call into
ATen, where oneDNN computes it.
"""

import pytest
import torch
from comparison import assert_close_to_eager, assert_near_in_norm

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
@pytest.mark.parametrize("cell", ["rnn", "gru"])
def test_inference(compiled, strict, cell, layout):
    module, x = layer(cell, layout)
    with torch.no_grad():
        assert_close_to_eager(compiled(module)(x), module(x))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_lstm_inference(compiled, layout):
    module, x = layer("lstm", layout)
    with torch.no_grad():
        assert_close_to_eager(compiled(module)(x), module(x))


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
