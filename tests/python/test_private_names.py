"""Private names of PyTorch may change with any version. Without one of them, compiled programs still compute the right
values: natively, or eagerly with a warning."""

import ast
import importlib
import logging
from pathlib import Path

import pytest
import torch
from intel_extension_for_pytorch import torch_private

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
    found |= {f"torch._ops.OpOverload.{n}" for n in ("_op_dk",)}
    return sorted(name for name in found if any(part.startswith("_") for part in name.split(".")[1:]))


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


@pytest.fixture
def no_hidden_faults():
    """Here the errors are what is tested."""


@pytest.mark.parametrize("name", private_names())
def test_a_name_that_is_missing(name, monkeypatch, caplog):
    owner = owner_of(name)
    if owner is None:
        pytest.skip("this PyTorch does not have the name")
    expected = run("eager")
    caplog.set_level(logging.ERROR, "ipex")
    with monkeypatch.context() as patch:
        patch.delattr(owner, name.rpartition(".")[2])
        try:
            run("eager"), run("aot_eager")
        except Exception:
            pytest.skip("no backend works without it")
        results = run("ipex")
    torch._dynamo.reset()
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result, value)
