"""The C++ text from `--emit cpp`, compiled by g++, gives the same results as the artifact's kernels."""

import ctypes
import re
import shutil
import subprocess

import intel_extension_for_pytorch as ipex
import pytest
import torch
from torch import nn

pytestmark = [pytest.mark.needs_ipex, pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")]


class Functions(nn.Module):
    """One kernel of each kind of loop: pointwise, row reduction, column reduction, index, integer, bf16, product."""

    def forward(self, x, i, b):
        rows = torch.softmax(x * 0.5, dim=-1)
        columns = x.amax(0)
        gathered = x[i] + torch.arange(x.shape[1])
        integers = (i * 3 // 2) % 5
        half = nn.functional.gelu(b) * 2
        return rows, columns, gathered, integers, half, torch.var(x, dim=1), x[:16, :32] @ x[:32, :48]


def test_cpp_kernels_are_the_ones_that_run(tmp_path):
    torch.manual_seed(0)
    inputs = torch.randn(37, 65), torch.randint(0, 37, (11,)), torch.randn(300).bfloat16()
    program = torch.export.export(Functions(), inputs)
    compilation = ipex.aot.Compilation(program)
    (text,) = compilation.kernels("cpp").values()
    assert "test_aot_emit.py" in text  # the model's source lines
    source = tmp_path / "kernels.cpp"
    source.write_text(text)
    library = tmp_path / "kernels.so"
    command = ["g++", "-std=c++20", "-O2", "-march=native", "-ffp-contract=off", "-Wall", "-Wno-unused-function",
               "-Wno-unknown-pragmas", "-shared", "-fPIC", source, "-o", library]  # fmt: skip
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    compiled = ctypes.CDLL(str(library))

    path = tmp_path / "model.ipex"
    compilation.write(path)
    model = ipex.aot.load(path)
    expected = model(*inputs)
    actual = run_program(path, compiled, inputs)
    assert len(actual) == len(expected)
    for a, e in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, e)


def run_program(path, library, inputs):
    """Runs the artifact's program, parsed from its text, with kernels from `library`."""
    import zipfile

    with zipfile.ZipFile(path) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith("program.txt")]
        text = archive.read(name).decode()
        constants = {n: archive.read(n) for n in archive.namelist() if n.startswith("constants/")}
    lines = {}
    for word in ("buffer", "input", "output", "kernel"):
        lines[word] = [line for line in text.splitlines() if line.startswith(word + " ")]
    dtypes = {"f32": torch.float32, "i64": torch.int64, "bf16": torch.bfloat16, "b1": torch.bool, "i32": torch.int32}
    memory, outputs = {}, {}
    for number, line in enumerate(lines["buffer"]):
        size = int(re.search(r"bytes=(\d+)", line)[1])
        member = re.search(r'member="([^"]+)"', line)
        data = constants[member[1]] if member else bytes(size)
        memory[number] = torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)
        taken = re.search(r"takes=(\d+)", line)
        if taken:
            memory[number] = memory[int(taken[1])]
    for i, line in enumerate(lines["input"]):
        memory[int(re.search(r"spec=%(\d+)", line)[1])] = inputs[i]
    for i, line in enumerate(lines["output"]):
        buffer, dtype, sizes = re.search(r"spec=%(\d+):(\w+)\[([\d,]*)\]", line).groups()
        outputs[i] = memory[int(buffer)] = torch.empty([int(s) for s in sizes.split(",")], dtype=dtypes[dtype])
    for line in lines["kernel"]:
        name = re.search(r'name="([^"]+)"', line)[1]
        lists = [re.search(rf"{part}=\[([\d,]*)\]", line)[1] for part in ("reads", "writes")]
        buffers = [int(b) for b in ",".join(lists).split(",") if b]
        pointers = (ctypes.c_void_p * len(buffers))(*[memory[b].data_ptr() for b in buffers])
        getattr(library, name)(pointers, None)
    return [outputs[i] for i in sorted(outputs)]
