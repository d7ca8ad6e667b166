"""ipex.optimize(release_weights=...): weights in a file, of which only packed copies are in memory."""

import copy
import gc
import io
import os
import pickle
import re
from pathlib import Path

import intel_extension_for_pytorch as ipex
import pytest
import torch
from torch import nn

pytestmark = pytest.mark.needs_ipex
DTYPES = [torch.float32, pytest.param(torch.bfloat16, marks=pytest.mark.needs_cpu("avx512f"))]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 64, 3)
        self.first = nn.Linear(64, 512)
        self.lstm = nn.LSTM(512, 128, batch_first=True)
        self.last = nn.Linear(128, 40)

    def forward(self, x):
        rows = self.conv(x).flatten(2).transpose(1, 2)
        return self.last(self.lstm(self.first(rows).relu())[0])


def net():
    torch.manual_seed(0)
    return Net().eval()


def images(batch=2):
    return torch.randn(batch, 3, 8, 8, generator=torch.Generator().manual_seed(batch))


def mapped(what):
    """Bytes of released weights in this process: their `Size`, or those in memory, `Rss`."""
    gc.collect()
    entries = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    released = [entry for entry in entries if "/ipex-weights-" in entry]
    return sum(int(re.search(rf"^{what}:\s+(\d+) kB", entry, re.MULTILINE)[1]) << 10 for entry in released)


@pytest.fixture
def folder(tmp_path):
    try:
        torch.ops.torch_ipex.weights_to_disk([torch.zeros(1)], str(tmp_path))
    except RuntimeError as error:
        if "in memory" in str(error):
            pytest.skip("the folder for temporary files is in memory")
        raise
    return tmp_path


def call(model, x, low):
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=low):
        return model(x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_packed_weights_leave_the_memory(folder, dtype):
    before = mapped("Size")
    layers = nn.Sequential(nn.Linear(512, 768), nn.ReLU(), nn.Linear(768, 768)).eval()
    released = ipex.optimize(layers, dtype=dtype, release_weights=folder)
    total = sum(p.nbytes for p in released.parameters() if p.dim() > 1)
    assert mapped("Size") - before >= total
    assert mapped("Rss") == 0
    low = dtype.itemsize == 2
    call(released, torch.randn(64, 512), low)
    assert mapped("Rss") < total / 2  # products of some sizes read the weight itself
    assert not os.listdir(folder)  # the file has no name
    del released
    assert mapped("Size") == before


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_are_the_same(folder, dtype):
    plain, released = ipex.optimize(net(), dtype=dtype), ipex.optimize(net(), dtype=dtype, release_weights=folder)
    low = dtype.itemsize == 2
    threads = torch.get_num_threads()
    try:
        for batch in range(1, 8):  # also the sizes that one program with symbols serves
            torch.set_num_threads(1 + batch % 2)
            assert torch.equal(call(released, images(batch), low), call(plain, images(batch), low))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("dtype", DTYPES)
def test_state_and_copies(folder, dtype):
    low = dtype.itemsize == 2
    plain, released = ipex.optimize(net(), dtype=dtype), ipex.optimize(net(), dtype=dtype, release_weights=folder)
    expected = call(plain, images(), low)
    assert torch.equal(call(released, images(), low), expected)
    for key, value in plain.state_dict().items():
        other = released.state_dict()[key]
        assert other.dtype is value.dtype and other.stride() == value.stride() and torch.equal(other, value)
    size = mapped("Size")
    file = io.BytesIO()
    torch.save(released, file)
    file.seek(0)
    copies = [
        copy.deepcopy(released), pickle.loads(pickle.dumps(released)), torch.load(file, weights_only=False),
        ipex.optimize(released, dtype=dtype),
    ]  # fmt: skip
    assert mapped("Size") == size
    for each in copies:
        assert torch.equal(call(each, images(), low), expected)
    assert torch.equal(call(ipex.optimize(released, dtype=dtype, release_weights=folder), images(), low), expected)


@pytest.mark.parametrize("dtype", DTYPES)
def test_new_weights_are_packed_and_released(folder, dtype):
    low = dtype.itemsize == 2
    released = ipex.optimize(net(), dtype=dtype, release_weights=folder)
    call(released, images(), low)
    torch.manual_seed(1)
    other = Net().eval()
    released.load_state_dict(other.state_dict())
    assert torch.equal(call(released, images(), low), call(ipex.optimize(other, dtype=dtype), images(), low))
    with torch.no_grad():
        released.last.weight.mul_(2)
        other.last.weight.mul_(2)
    assert torch.equal(call(released, images(), low), call(ipex.optimize(other, dtype=dtype), images(), low))


def test_compiled(folder, compiled, strict):
    released = ipex.optimize(net(), optimize_lstm=False, release_weights=folder)
    head = nn.Sequential(released.first, nn.ReLU())
    x = torch.randn(3, 64)
    run = compiled(head)
    with torch.no_grad():
        torch.testing.assert_close(run(x), head(x))


def test_in_place_and_gradients_of_the_input(folder):
    model, plain, x = net(), net(), images()
    assert ipex.optimize(model, inplace=True, release_weights=folder) is model
    grads = []
    for each in (model, plain):
        each.requires_grad_(False)
        each.lstm.train()  # backward needs the saved state of the layer
        given = x.clone().requires_grad_()
        each(given).square().mean().backward()
        grads.append(given.grad)
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-6)


def test_weights_that_others_read_stay(folder):
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(64, 64)
            self.middle = nn.Linear(64, 64)
            self.head = nn.Linear(64, 64, bias=False)
            self.head.weight = self.table.weight

        def forward(self, tokens):
            return self.head(self.middle(self.table(tokens)))

    model, tokens = Tied().eval(), torch.arange(5)
    before = mapped("Size")
    released = ipex.optimize(model, release_weights=folder)
    assert mapped("Size") - before == released.middle.weight.nbytes
    assert released.head.weight is released.table.weight
    torch.testing.assert_close(released(tokens), model(tokens))


def test_a_model_without_weights_to_move():
    model = nn.Sequential(nn.LayerNorm(4)).eval()
    x = torch.randn(2, 4)
    torch.testing.assert_close(ipex.optimize(model, release_weights=True)(x), model(x))


def test_refusals(folder):
    model = net().train()
    with pytest.raises(ValueError, match="release_weights is for inference"):
        ipex.optimize(model, optimizer=torch.optim.SGD(model.parameters()), release_weights=folder)
    with pytest.raises(ValueError, match="needs weights_prepack"):
        ipex.optimize(net(), level="O0", release_weights=folder)
    with pytest.raises(RuntimeError, match="cannot make a file in .*missing: No such file or directory"):
        ipex.optimize(net(), release_weights=folder / "missing")


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="no file system in memory at /dev/shm")
def test_a_folder_in_memory_is_refused():
    with pytest.raises(RuntimeError, match="/dev/shm is in memory; name a folder on a disk"):
        ipex.optimize(net(), release_weights="/dev/shm")
