"""Private names of PyTorch may change with any version. Without one of them, compiled programs still compute the right
values: natively, or eagerly with a warning."""

import ast
import importlib
import logging
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
from intel_extension_for_pytorch import record_reports, torch_private

FOLDER = Path(torch_private.__file__).parent


def private_names():
    """The dotted names that the files of torch_private/ use and of which a part is private."""
    found = set()
    for path in FOLDER.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and (node.module or "").startswith("torch"):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
            elif isinstance(node, ast.Attribute) and (name := ast.unparse(node)).startswith("torch."):
                found.add(name)
    found |= {
        f"torch._functorch.partitioners.{n}" for n in ("min_cut_rematerialization_partition", "default_partition")
    }
    found |= {f"torch._functorch.partitioners.{n}" for n in ("choose_saved_values_set", "_size_of", "fx_graph_cse")}
    found |= {"torch._functorch.compile_utils.rand_ops", "torch._decomp.decompositions._rnn_helper"}
    found |= {f"torch._inductor.codecache.{n}" for n in ("torch_key", "init_backend_registration")}
    found |= {f"torch.ops.aten.bernoulli_.float.{n}" for n in ("_op_dk", "py_kernels", "_dispatch_cache")}
    return sorted(name for name in found if re.search(r"\._[a-z]|aten", name, re.IGNORECASE))


def owner_of(name):
    """The object that has the last component of a dotted name, or None if this PyTorch does not have the name."""
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:split]))
        except ImportError:
            continue
        for part in parts[split:-1]:
            owner = getattr(owner, part, None)
        return owner if hasattr(owner, parts[-1]) else None
    return None


def program(x, w, table):
    y = torch.nn.functional.dropout(torch.nn.functional.layer_norm(x @ w, (16,)), 0.25)
    return torch.softmax(y + table[torch.arange(y.shape[0]) % 3], -1)


def run(backend):
    torch._dynamo.reset()
    torch.manual_seed(0)
    x, w, table = torch.randn(6, 8), torch.randn(8, 16, requires_grad=True), torch.randn(3, 16)
    function = torch.compile(program, backend=backend, dynamic=True)
    torch.manual_seed(1)
    y = function(x, w, table)
    y.square().sum().backward()
    with torch.no_grad():
        return [y.detach(), w.grad, function(x[:5], w.detach(), table)]


def check(name):
    """Removes a name and compares. Returns what happened, and does not put the name back."""
    owner = owner_of(name)
    if owner is None:
        return "skipped: this PyTorch does not have it"
    expected = run("eager")
    delattr(owner, name.rpartition(".")[2])
    try:
        run("eager"), run("aot_eager")
    except Exception:
        return "skipped: no backend works without it"
    with record_reports() as reports:
        results = run("ipex")
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result, value)
    return "eager" if any(report["eager"] for report in reports) else "native"


def modules_of_a_run(_):
    run("eager"), run("aot_eager")
    return " ".join(module for module in sys.modules if module.startswith("torch."))


def in_a_child(function, argument):
    """What the function returns in a child process: PyTorch without a name cannot be mended in the same process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = function(argument)
        except BaseException as error:
            result = f"failed: {type(error).__name__}: {error}"
        with os.fdopen(write, "w") as pipe:
            pipe.write(result)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return result


def main():
    torch.set_num_threads(1)  # a child of fork has no thread pool
    logging.getLogger("ipex").setLevel(logging.ERROR)
    # A child cannot use autograd if the parent did, so that the parent only imports what a run imports.
    for module in in_a_child(modules_of_a_run, None).split():
        importlib.import_module(module)
    for name in private_names()[:: int(sys.argv[1])]:
        with tempfile.TemporaryDirectory() as folder:
            os.environ.update(IPEX_CACHE=f"{folder}/ipex", TORCHINDUCTOR_CACHE_DIR=f"{folder}/torch")
            print(name, in_a_child(check, name), sep="\t", flush=True)


@pytest.mark.parametrize("one_in", [4, pytest.param(1, marks=pytest.mark.nightly)])
def test_names_that_are_missing(one_in):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    out = subprocess.check_output([sys.executable, __file__, str(one_in)], env=environment, text=True)
    results = dict(line.split("\t") for line in out.splitlines())
    assert results.keys() == set(private_names()[::one_in])
    wrong = {name: result for name, result in results.items() if result not in ("eager", "native")}
    assert not {name: result for name, result in wrong.items() if not result.startswith("skipped: ")}
    # Without these, the compiler works in another way.
    for name in ("torch._inductor.codecache.torch_key", "torch._inductor.output_code.OutputCode"):
        assert results.get(name, "native") == "native"
    assert len(wrong) <= len(results) / 2


if __name__ == "__main__":
    main()
