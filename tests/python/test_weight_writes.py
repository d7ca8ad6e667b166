"""What inference keeps of weights (packed, cast, folded) follows writes to them that PyTorch does not count. Those that
are not noticed either stand in python/input_version.h."""

import multiprocessing

import numpy as np
import pytest
import torch
from conftest import BACKEND
from torch import nn
from torch.profiler import ProfilerActivity, profile

SIZE = 256


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE)).eval()


def nothing(module):
    return None


def data_of_all(module):
    return [p.data for p in module.parameters()]


def in_shared_memory(module):
    module.share_memory()


def a_numpy_view(module):
    return module[0].weight.detach().numpy()


def of_a_numpy_array(module):
    array = np.random.default_rng(0).normal(size=(SIZE, SIZE)).astype(np.float32)
    module[0].weight = nn.Parameter(torch.from_numpy(array))
    return array


def in_one_storage(module):
    nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(module.parameters()), module.parameters())
    return torch.empty(0).set_(module[0].weight.untyped_storage())


def multiply_data(module, kept):
    module[0].weight.data.mul_(1.1)


def clip_data(module, kept):
    module[0].weight.data.clamp_(-0.05, 0.05)
    module[0].weight.data[3, 5] = torch.randn(())


def add_to_data(module, kept):
    module[2].weight.data += 0.1 * torch.ones(SIZE, SIZE).tril()


def move_average(module, kept):
    for p in module.parameters():
        p.data.mul_(0.9).add_(torch.full_like(p, 0.01))


def initialize_data(module, kept):
    nn.init.normal_(module[0].weight.data)


def multiply_all_data(module, kept):
    torch._foreach_mul_([p.data for p in module.parameters()], 1.05)


def write_kept_data(module, kept):
    kept[0][7] += 0.5


def write_kept_array(module, kept):
    kept[1] *= 1.5


def write_fresh_array(module, kept):
    module[0].weight.detach().numpy()[0, 0] += 3


def write_state(module, kept):
    kept["0.weight"].mul_(1.1)


def write_storage(module, kept):
    module[0].weight.untyped_storage().copy_(torch.randn(SIZE, SIZE).untyped_storage())


def write_vector(module, kept):
    kept[:100] += 1


def write_in_inference_mode(module, kept):
    with torch.inference_mode():
        module[0].weight.mul_(1.1)


def add_in_place(parameter):
    parameter.data[0, 0] += 3


def write_in_another_process(module, kept):
    process = multiprocessing.get_context("fork").Process(target=add_in_place, args=(module[0].weight,))
    process.start()
    process.join(60)
    assert process.exitcode == 0


CASES = [
    (nothing, multiply_data),
    (nothing, clip_data),
    (nothing, add_to_data),
    (nothing, move_average),
    (nothing, initialize_data),
    (nothing, multiply_all_data),
    (nothing, write_fresh_array),
    (nothing, write_storage),
    (nothing, write_in_inference_mode),
    (data_of_all, write_kept_data),
    (nn.Module.state_dict, write_state),
    (nn.Module.state_dict, multiply_data),
    (a_numpy_view, write_kept_array),
    (of_a_numpy_array, write_kept_array),
    (in_one_storage, write_vector),
    (in_one_storage, multiply_data),
    (in_shared_memory, write_in_another_process),
]


def steps_of_a_call(call):
    """Names of the steps, those that make kept values among them when they run."""
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        call()
    return [event.name for event in seen.events() if event.name.startswith("ipex::")]


@pytest.mark.parametrize("prepare, write", CASES, ids=lambda function: function.__name__)
def test_written(prepare, write):
    module, x = model(), torch.randn(8, SIZE)
    kept = prepare(module)
    compiled = torch.compile(module, backend=BACKEND)
    with torch.no_grad():
        before = compiled(x)
        for _ in range(3):
            write(module, kept)
            after = compiled(x)
            assert not torch.equal(before, after)
            torch.testing.assert_close(after, module(x))
            torch.testing.assert_close(compiled(x), after)
            before = after


@pytest.mark.needs_ipex
@pytest.mark.parametrize("prepare", [nothing, a_numpy_view, in_shared_memory, nn.Module.state_dict, data_of_all])
def test_kept_while_nothing_is_written(prepare):
    """However little PyTorch counts, weights are packed again for a write alone."""
    module, x = model(), torch.randn(8, SIZE)
    kept = prepare(module)
    compiled = torch.compile(module, backend=BACKEND)
    with torch.no_grad():
        first, second, third = (steps_of_a_call(lambda: compiled(x)) for _ in range(3))
        multiply_data(module, kept)
        fourth = steps_of_a_call(lambda: compiled(x))
    assert len(second) == len(third) < len(first) and len(third) < len(fourth)


@pytest.mark.needs_ipex
def test_tensors_of_inference_mode():
    """They have no counter of writes."""
    with torch.inference_mode():
        module, x = model(), torch.randn(8, SIZE)
        compiled = torch.compile(module, backend=BACKEND)
        first, second = (steps_of_a_call(lambda: compiled(x)) for _ in range(2))
        module[0].weight.mul_(1.1)
        torch.testing.assert_close(compiled(x), module(x))
    assert len(second) < len(first)
