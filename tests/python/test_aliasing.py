"""Memory sharing: outputs that are views of inputs, of each other or of internal values; inputs that overlap; writes
through views. Compiled programs must share exactly the memory that eager shares."""

import copy

import pytest
import torch
from comparison import assert_close_to_eager, tensors_of
from torch import nn


def sharing(tensors):
    """For each tensor: the index of the first tensor with the same memory, and the offset and layout in it."""
    memories = [t.untyped_storage().data_ptr() for t in tensors]
    return [(memories.index(m), t.storage_offset(), t.stride()) for m, t in zip(memories, tensors, strict=True)]


def assert_shares_as_eager(compiled, function, *inputs, **arguments):
    """Requires the same values and sharing, and that a write through any output shows in the same other tensors."""
    run = compiled(function, **arguments)
    count = len(tensors_of(function(*copy.deepcopy(inputs))))
    for written in range(-1, count):
        ours_in, eager_in = copy.deepcopy(inputs), copy.deepcopy(inputs)
        ours, eager = tensors_of(run(*ours_in)), tensors_of(function(*eager_in))
        assert_close_to_eager(ours, eager, strides=True)
        assert sharing([*ours_in, *ours]) == sharing([*eager_in, *eager])
        if written < 0:
            continue
        before = [(a._version, b._version) for a, b in zip(ours, eager, strict=True)]
        with torch.no_grad():
            ours[written].fill_(7)
            eager[written].fill_(7)
        assert_close_to_eager([*ours_in, *ours], [*eager_in, *eager])
        for a, b, (ours_before, eager_before) in zip(ours, eager, before, strict=True):
            assert a._version - ours_before == b._version - eager_before


def base_and_views(x):
    y = x * 2
    return y, y[1:], y.view(-1), y.t()


def views_of_nothing_returned(x):
    y = x.exp()
    return y[1:], y[:2, ::2], y.t()[3]


def parts(x):
    return torch.split(x + 1, 2, dim=1)


def view_first(x):
    y = x.sin()
    return y.unsqueeze(0), y


def expanded(x):
    y = x.sum(1, keepdim=True)
    return y.expand(-1, 5), y


def two_memories(x):
    y, z = x + 1, x + 1
    return y, z, y[0], z[0]


def copies(x):
    y = x + 1
    return y, y.clone(), y.contiguous(), y[1:].clone(), y.t().contiguous()


def of_a_product(x):
    y = x @ x.t()
    return y, y.diagonal(), y[:, 0]


def of_a_sort(x):
    values, places = x.sort(dim=1)
    return values[:, :2], places[0], values


def as_other_type(x):
    y = x + 1
    return y, y.view(torch.int32)


VIEWS = [
    base_and_views, views_of_nothing_returned, parts, view_first, two_memories, copies, of_a_product, of_a_sort,
    as_other_type,
]  # fmt: skip


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", VIEWS, ids=lambda f: f.__name__)
def test_outputs_share_what_eagers_share(function, dynamic, compiled):
    assert_shares_as_eager(compiled, function, torch.randn(4, 6), dynamic=dynamic)


def test_expanded_output(compiled):
    """Writes through an expanded view are not allowed, so only sharing is tested."""
    x = torch.randn(4, 6)
    ours, eager = compiled(expanded)(x), expanded(x)
    assert_close_to_eager(ours, eager)
    assert sharing(ours) == sharing(eager)


def test_channels_last_intermediate(compiled):
    """The compiler chooses the layout of a convolution's result, but the user must see eager's."""
    layer = nn.Conv2d(3, 8, 3).requires_grad_(False)

    def function(x):
        y = layer(x)
        return y, y[:, 1], y.flatten(1)

    for memory_format in (torch.contiguous_format, torch.channels_last):
        x = torch.randn(2, 3, 8, 8).contiguous(memory_format=memory_format)
        ours, eager = compiled(function)(x), function(x)
        assert_close_to_eager(ours, eager, strides=True, scale=20.0)
        assert sharing(ours) == sharing(eager)


@pytest.mark.parametrize("function", [base_and_views, views_of_nothing_returned, parts], ids=lambda f: f.__name__)
def test_views_in_training(function, compiled):
    """Gradients flow through every view, also after a write to one of them."""

    def gradient(run):
        x = torch.linspace(-1, 1, 24).view(4, 6).requires_grad_()
        outputs = run(x)
        if function is base_and_views:
            outputs[0].mul_(3)
        sum(((i + 1) * o).sum() for i, o in enumerate(outputs)).backward()
        return x.grad, outputs

    (ours, a), (eager, b) = gradient(compiled(function)), gradient(function)
    assert_close_to_eager([ours, a], [eager, b])
    assert sharing(a) == sharing(b)


def test_write_to_a_saved_value_is_an_error(compiled):
    """exp saves its result: a write to it before the backward pass is refused, as in eager."""
    for run in (torch.exp, compiled(lambda x: x.exp())):
        y = run(torch.randn(4, requires_grad=True))
        y.mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()


# ---- inputs ----


def view_of_input(x, y):
    return x[1:], x.t(), x * y


def input_itself(x, y):
    return x, x.view(-1), y


def written_input(x, y):
    x[1:3, ::2] += y[:2, :3]
    x[0].mul_(2)
    x.t()[0].copy_(y[0, 0])
    return x.sum(), x[2:], x


def view_before_the_write(x, y):
    v = x[1]
    x.mul_(2)
    return v, v + y[1]


@pytest.mark.parametrize(
    "function", [view_of_input, input_itself, written_input, view_before_the_write], ids=lambda f: f.__name__
)
def test_outputs_share_inputs(function, compiled):
    assert_shares_as_eager(compiled, function, torch.randn(4, 6), torch.randn(4, 6))


COPIES = {
    "view": lambda x: torch.view_copy(x, (6,)),
    "squeeze": lambda x: torch.squeeze_copy(x[None], 0),
    "permute": lambda x: torch.permute_copy(x, (1, 0)),
    "transpose": lambda x: torch.transpose_copy(x, 0, 1),
    "t": torch.t_copy,
    "expand": lambda x: torch.expand_copy(x, (2, 3)),
    "slice": lambda x: torch.slice_copy(x, 0, 0, 1),
    "select": lambda x: torch.select_copy(x, 0, 1),
    "split": lambda x: torch.split_copy(x, 1)[1],
    "split by sizes": lambda x: torch.split_with_sizes_copy(x, (1, 1))[0],
    "unbind": lambda x: torch.unbind_copy(x)[1],
    "diagonal": torch.diagonal_copy,
    "as_strided": lambda x: torch.as_strided_copy(x, (6,), (1,)),
}


@pytest.mark.parametrize("name", COPIES)
def test_copies_of_views_are_copies(name, compiled, strict):
    x = torch.arange(6.0).view(2, 3)
    before = x.clone()
    expected, result = COPIES[name](x), compiled(COPIES[name])(x)
    assert_close_to_eager(result, expected)
    result.fill_(-1)
    assert torch.equal(x, before)


def test_a_lazy_clone_is_written_alone(compiled):
    base = torch.ones(4)
    x = torch._lazy_clone(base)
    with torch.no_grad():
        compiled(lambda t: t.add_(1))(x)
    assert base.tolist() == [1] * 4 and x.tolist() == [2] * 4


def test_view_of_a_larger_tensor_is_written(compiled):
    run = compiled(lambda v: (v.add_(1), v.t(), v[2:]))
    base = torch.randn(4, 6)
    ours, eager = base.clone(), base.clone()
    result = run(ours[:, 1:5:2])
    eager[:, 1:5:2].add_(1)
    assert_close_to_eager(ours, eager)
    assert result[1].data_ptr() == result[0].data_ptr()


@pytest.mark.parametrize("written", [False, True])
def test_input_becomes_a_view_that_begins_elsewhere(written, compiled):
    """AOTAutograd recreates it from the offset of the graph's output."""

    def function(x):
        return (x.mul_(2) if written else x).as_strided_((2, 2), (1, 2), 1) + 1

    ours, eager = torch.arange(9.0).view(3, 3), torch.arange(9.0).view(3, 3)
    assert torch.equal(compiled(function)(ours), function(eager))
    assert torch.equal(ours, eager)
    assert (ours.stride(), ours.storage_offset()) == (eager.stride(), eager.storage_offset())


@pytest.mark.parametrize("overlap", ["same", "shifted", "transposed"])
def test_inputs_that_overlap(overlap, compiled):
    """A write to one input shows in the other, in eager's order."""

    def function(a, b):
        a.mul_(2)
        b.add_(a.sum())
        return a + b

    def views(memory):
        a = memory[:16].view(4, 4)
        return a, {"same": a, "shifted": memory[4:].view(4, 4), "transposed": a.t()}[overlap]

    ours, eager = torch.arange(20.0), torch.arange(20.0)
    run = compiled(function)
    assert_close_to_eager(run(*views(ours)), function(*views(eager)))
    assert_close_to_eager(ours, eager)


def test_buffers_are_written(compiled):
    class Running(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("count", torch.zeros((), dtype=torch.int64))

        def forward(self, x):
            self.count += 1
            self.mean.lerp_(x.mean(0), 0.1)
            return x - self.mean, self.mean[1:]

    eager, x = Running(), torch.randn(3, 4)
    ours = copy.deepcopy(eager)
    run = compiled(ours)
    for _ in range(3):
        result = run(x)
        assert_close_to_eager(result, eager(x))
        assert result[1].data_ptr() == ours.mean[1:].data_ptr()
    assert_close_to_eager(list(ours.buffers()), list(eager.buffers()))


# ---- other kinds of results ----


def test_outputs_of_every_kind(compiled):
    def function(x):
        y = x * 2
        return y, y[1:], y, x, x[1], None, 3

    y, tail, again, x, row, nothing, three = compiled(function)(argument := torch.randn(3, 4))
    assert again is y
    assert x is argument
    assert row.data_ptr() == argument[1].data_ptr()
    assert tail.data_ptr() == y[1:].data_ptr()
    assert nothing is None
    assert three == 3
    assert_close_to_eager([y, tail], [x * 2, x[1:] * 2])


def test_nested_structures(compiled):
    def function(batch):
        return {"sum": batch["x"][0] + batch["x"][1], "rest": [batch["n"] * 2, (batch["x"][0].exp(),)]}

    batch = {"x": (torch.randn(3), torch.randn(3)), "n": 4}
    ours, eager = compiled(function)(batch), function(batch)
    assert ours["rest"][0] == eager["rest"][0] == 8
    assert_close_to_eager([ours["sum"], ours["rest"][1][0]], [eager["sum"], eager["rest"][1][0]])


def test_result_given_as_out(compiled):
    def function(x):
        y = torch.empty(0)
        torch.add(x, 1, out=y)
        return y * 2

    x = torch.randn(3, 4)
    assert_close_to_eager(compiled(function)(x), function(x))


# ---- graphs that are cut, and order of groups ----


def view_by_aten(x):
    s = torch.view_as_real(torch.view_as_complex(x)).sin()
    x.mul_(2)
    return s + 1


def rows_by_data(x):
    past = x[: (x[0] > -9).sum().item()].sin()
    x.mul_(2)
    return past + 1


def half_beside_aten(x):
    spectrum = torch.fft.fft(x.flatten()).abs()
    x.mul_(2)
    return x[x.shape[0] // 2 :], spectrum


@pytest.mark.parametrize("dynamic", (False, True))
@pytest.mark.parametrize("function", (view_by_aten, rows_by_data, half_beside_aten), ids=lambda f: f.__name__)
def test_changed_input_of_a_cut_graph(function, dynamic, compiled):
    """Part of the graph runs in ATen and creates views of an input that the rest overwrites."""
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        run = compiled(function, dynamic=dynamic)
        ours = torch.randn(6, 2)
        eager = ours.clone()
        assert_close_to_eager(run(ours), function(eager))
        assert_close_to_eager(ours, eager)


def test_updates_of_which_one_reads_what_the_other_writes(compiled, strict):
    """Two updates of one batch, the second transposed. It must not run before the first has read x."""

    def function(p, x, w, y, z):
        p.copy_(x + 2 * w)
        x.copy_(y + 2 * z)

    ours = [*(torch.randn(4, 6) for _ in range(4)), torch.randn(6, 4).t()]
    eager = [t.clone() for t in ours]
    compiled(function)(*ours)
    function(*eager)
    assert_close_to_eager(ours, eager)


BEYOND = {
    "before the operand": lambda x: x[2:5].as_strided((2,), (1,), 0) * 2,
    "more than the operand": lambda x: x[0:3].as_strided((4,), (1,), 0) * 2,
    "replaced before the operand": lambda x: torch.as_strided_scatter(x[2:5], torch.ones(2), (2,), (1,), 0) * 2,
}


@pytest.mark.parametrize("name", BEYOND)
def test_elements_of_the_storage_beyond_the_operand(name, compiled):
    x = torch.randn(8)
    assert_close_to_eager(compiled(BEYOND[name])(x), BEYOND[name](x))
