"""Values that inference derives from weights (packed, cast, folded) follow writes to the weights, even those that
PyTorch does not count. kernels/torch_ops/input_version.h lists writes that are not noticed."""

import io
import multiprocessing
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from conftest import BACKEND
from torch import distributed, nn
from torch.profiler import ProfilerActivity, profile

SIZE = 256


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(SIZE, SIZE), nn.ReLU(), nn.Linear(SIZE, SIZE)).eval()


def nothing(module):
    return None


def data_of_all(module):
    return [p.data for p in module.parameters()]


def data_of_all_and_state(module):
    return data_of_all(module), module.state_dict()


def a_storage(module):
    return module[0].weight.untyped_storage()


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


def loaded_by_assignment(module):
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    module.load_state_dict(torch.load(file), assign=True)


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


def write_kept_data_beside_a_state(module, kept):
    write_kept_data(module, kept[0])


def fill_storage(module, kept):
    kept[7] += 1


def write_kept_array(module, kept):
    kept[1] *= 1.5


def write_fresh_array(module, kept):
    module[0].weight.detach().numpy()[0, 0] += 3


def write_state(module, kept):
    kept["0.weight"].mul_(1.1)


def write_vector(module, kept):
    kept[:100] += 1


def write_in_inference_mode(module, kept):
    with torch.inference_mode():
        module[0].weight.mul_(1.1)


def add_in_place(parameter):
    parameter.data[0, 0] += 3


def step_fused(module, kept):
    for p in module.parameters():
        p.grad = torch.randn_like(p)
    torch.optim.AdamW(module.parameters(), lr=0.1, fused=True).step()


def write_and_set_the_counter_back(module, kept):
    """As FSDP2 does."""
    weight = module[0].weight
    with torch.no_grad(), torch.autograd._unsafe_preserve_version_counter(weight):
        weight.mul_(1.1)


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
    (nothing, write_in_inference_mode),
    (nothing, step_fused),
    (nothing, write_and_set_the_counter_back),
    (loaded_by_assignment, write_fresh_array),
    (data_of_all, write_kept_data),
    (data_of_all_and_state, write_kept_data_beside_a_state),
    (a_storage, fill_storage),
    (nn.Module.state_dict, write_state),
    (nn.Module.state_dict, multiply_data),
    (a_numpy_view, write_kept_array),
    (of_a_numpy_array, write_kept_array),
    (in_one_storage, write_vector),
    (in_one_storage, multiply_data),
    (in_shared_memory, write_in_another_process),
]


def steps_of_a_call(call):
    """Names of the steps that a call runs, including steps that compute hoisted values."""
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
    """Weights are packed again only after a write."""
    module, x = model(), torch.randn(8, SIZE)
    kept = prepare(module)
    compiled = torch.compile(module, backend=BACKEND)
    with torch.no_grad():
        first, second, third = (steps_of_a_call(lambda: compiled(x)) for _ in range(3))
        multiply_data(module, kept)
        fourth = steps_of_a_call(lambda: compiled(x))
    assert len(second) == len(third) < len(first) and len(third) < len(fourth)


@pytest.mark.needs_ipex
def test_modules_that_share_a_graph_keep_their_own():
    """Equal layers that are compiled separately: values of one layer are kept while the others run."""
    layers, x = [model() for _ in range(4)], torch.randn(8, SIZE)
    compiled = torch.compile(lambda layer, x: layer(x), backend=BACKEND)
    with torch.no_grad():
        first = [steps_of_a_call(lambda layer=layer: compiled(layer, x)) for layer in layers]
        second = [steps_of_a_call(lambda layer=layer: compiled(layer, x)) for layer in layers]
        multiply_data(layers[2], None)
        third = [steps_of_a_call(lambda layer=layer: compiled(layer, x)) for layer in layers]
        for layer in layers:
            torch.testing.assert_close(compiled(layer, x), layer(x))
    assert all(len(again) < len(before) for before, again in zip(first[1:], second[1:], strict=True))
    made_again = [len(again) > len(before) for before, again in zip(second, third, strict=True)]
    assert made_again == [False, False, True, False]


def look_at_data(module):
    module[0].weight.data.norm()


alive = []


def look_through_an_alias(module):
    """Uses an alias that exists during one call and not in the next."""
    if alive:
        alive.clear()
    else:
        alive.append(module[0].weight.data)


@pytest.mark.needs_ipex
@pytest.mark.parametrize("look", [look_at_data, look_through_an_alias], ids=lambda function: function.__name__)
def test_looking_is_not_writing(look):
    """Possible writers that do not write cost a checksum per call, as long as they exist."""
    module, x = model(), torch.randn(8, SIZE)
    compiled = torch.compile(lambda x: module[2](module[0](x).relu()), backend=BACKEND)
    with torch.no_grad():
        compiled(x)
        kept = steps_of_a_call(lambda: compiled(x))
        for _ in range(6):
            look(module)
            steps = steps_of_a_call(lambda: compiled(x))
            assert [step for step in steps if step != "ipex::checksum"] == kept and steps != kept
        assert steps_of_a_call(lambda: compiled(x)) == kept


def test_written_through_an_alias_that_goes():
    module, x = model(), torch.randn(8, SIZE)
    compiled = torch.compile(module, backend=BACKEND)
    with torch.no_grad():
        for _ in range(3):
            alias = module[0].weight.data
            compiled(x)
            alias.mul_(-1.5)
            del alias
            torch.testing.assert_close(compiled(x), module(x))


@pytest.mark.parametrize("optimizer", [torch.optim.Adam, torch.optim.SGD, torch.optim.Adagrad])
@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)], ids=["number", "tensor"])
def test_fused_optimizers_write(optimizer, rate):
    module, x = model(), torch.randn(8, SIZE)
    compiled = torch.compile(module, backend=BACKEND)
    steps = optimizer(module.parameters(), lr=rate, fused=True)
    for _ in range(3):
        compiled(x).sum().backward()
        steps.step()
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), module(x))


@pytest.mark.parametrize("grad", [False, True], ids=["no_grad", "grad"])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d, nn.SyncBatchNorm])
def test_batch_norm_of_eager_mode_writes(norm, grad):
    """The running statistics of batch norm are folded into the convolution, and eager mode updates them."""
    module, x = nn.Sequential(nn.Conv2d(3, 8, 3), norm(8), nn.ReLU()).eval(), torch.randn(2, 3, 8, 8)
    compiled = torch.compile(module, backend=BACKEND)
    for _ in range(3):
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), module(x))
        module.train()
        with torch.set_grad_enabled(grad):
            module(5 * x)
        module.eval()


@pytest.mark.needs_ipex
def test_eager_evaluation_writes_nothing():
    module, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval(), torch.randn(2, 3, 8, 8)
    compiled = torch.compile(module, backend=BACKEND)
    with torch.no_grad():
        compiled(x)
        kept = steps_of_a_call(lambda: compiled(x))
        module(x)
        assert steps_of_a_call(lambda: compiled(x)) == kept


@pytest.fixture
def process_group():
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.needs_ipex
@pytest.mark.parametrize(
    "collective",
    [
        lambda weight: distributed.broadcast(weight, 0),
        distributed.all_reduce,
        lambda weight: distributed.reduce(weight, 0),
        lambda weight: distributed.all_gather([weight], torch.ones(SIZE, SIZE)),
        lambda weight: distributed.scatter(weight, [torch.ones(SIZE, SIZE)], 0),
        lambda weight: distributed.all_to_all_single(weight, torch.ones(SIZE, SIZE)),
    ],
    ids=["broadcast", "all_reduce", "reduce", "all_gather", "scatter", "all_to_all"],
)
def test_collectives_write(process_group, collective):
    module, x = model(), torch.randn(8, SIZE)
    compiled = torch.compile(module, backend=BACKEND)
    with torch.no_grad():
        compiled(x)
        kept = steps_of_a_call(lambda: compiled(x))
        collective(module[0].weight)
        packed_again = steps_of_a_call(lambda: compiled(x))
        torch.testing.assert_close(compiled(x), module(x))
    assert len(kept) < len(packed_again)


def a_graph(module):
    return module(torch.randn(4, SIZE))


def a_view(module):
    return module[0].weight[2:]


def storages(module):
    for p in module.parameters():
        p.untyped_storage().nbytes()


@pytest.mark.needs_ipex
@pytest.mark.parametrize("prepare", [nothing, loaded_by_assignment, nn.Module.state_dict, a_graph, a_view, storages])
def test_contents_are_not_read_where_writes_are_counted(prepare):
    module, x = model(), torch.randn(8, SIZE)
    kept = prepare(module)
    compiled = torch.compile(module, backend=BACKEND)
    with torch.no_grad():
        compiled(x)
        for _ in range(3):
            assert "ipex::checksum" not in steps_of_a_call(lambda: compiled(x))
        kept = kept, data_of_all(module)
        assert "ipex::checksum" in steps_of_a_call(lambda: compiled(x))


@pytest.mark.needs_ipex
def test_tensors_of_inference_mode():
    """Inference tensors have no version counter."""
    with torch.inference_mode():
        module, x = model(), torch.randn(8, SIZE)
        compiled = torch.compile(module, backend=BACKEND)
        first, second = (steps_of_a_call(lambda: compiled(x)) for _ in range(2))
        module[0].weight.mul_(1.1)
        torch.testing.assert_close(compiled(x), module(x))
    assert len(second) < len(first)


@pytest.mark.needs_ipex
def test_written_without_watching():
    """Contents are compared in each call instead."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{__file__}::test_written"]
    run = subprocess.run(
        command, env={**os.environ, "IPEX_WATCH_WRITES": "0"}, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout
    assert f"{len(CASES)} passed" in run.stdout


PROGRAM = """
import torch
import intel_extension_for_pytorch as ipex

def watched():
    return torch._C._dispatch_has_kernel_for_dispatch_key("aten::_fused_sgd_", "ADInplaceOrView")

ipex.environment()
model = torch.compile(torch.nn.Linear(64, 64), backend="ipex")
model(torch.randn(4, 64)).sum().backward()
print(watched())
with torch.no_grad():
    model(torch.randn(4, 64))
print(watched())
"""


@pytest.mark.needs_ipex
@pytest.mark.parametrize("watch", ["1", "0"])
def test_pytorch_is_changed_when_weights_are_kept(watch):
    """Neither the import nor training changes PyTorch; inference does, unless it is told not to."""
    environment = {**os.environ, "IPEX_WATCH_WRITES": watch}
    out = subprocess.check_output([sys.executable, "-c", PROGRAM], env=environment, text=True)
    assert out.split() == ["False", str(watch == "1")]
