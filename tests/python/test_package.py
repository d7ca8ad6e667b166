"""The installed package: entry points, exported symbols, and the cost of an import."""

from __future__ import annotations

import importlib.metadata
import json
import subprocess
import sys
from pathlib import Path

import pytest


def run_python(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


def installed() -> bool:
    try:
        importlib.metadata.distribution("intel_extension_for_pytorch")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


needs_wheel = pytest.mark.skipif(not installed(), reason="runs against the installed wheel (`make`)")


@needs_wheel
def test_metadata_and_entry_points():
    distribution = importlib.metadata.distribution("intel_extension_for_pytorch")
    assert distribution.version == "2.13.0+cpu"
    entries = {(e.group, e.name) for e in distribution.entry_points}
    assert ("torch_dynamo_backends", "ipex") in entries
    assert ("console_scripts", "ipexc") in entries
    requires = " ".join(distribution.requires or [])
    for dependency in ("torch==2.13.0", "onednn-cpu-gomp", "tbb"):
        assert dependency in requires


@needs_wheel
def test_backend_by_name_without_import():
    out = run_python(
        "import torch, sys\n"
        "assert 'intel_extension_for_pytorch' not in sys.modules\n"
        "f = torch.compile(lambda x: (x + 1).relu(), backend='ipex')\n"
        "x = torch.randn(5)\n"
        "torch.testing.assert_close(f(x), (x + 1).relu())\n"
        "print('intel_extension_for_pytorch._C' in sys.modules)"
    )
    assert out.strip() == "True"


def test_extension_exports_only_its_init():
    import intel_extension_for_pytorch._C as extension

    command = ["nm", "-D", "--defined-only", extension.__file__]
    table = subprocess.run(command, capture_output=True, text=True, check=True)
    names = {line.split()[-1] for line in table.stdout.splitlines()}
    assert names == {"PyInit__C"}


def test_import_is_light():
    """`import intel_extension_for_pytorch` loads neither the compiler nor torch's compiler stack."""
    out = run_python(
        "import torch, sys, time, json\n"
        "before = set(sys.modules)\n"
        "start = time.perf_counter()\n"
        "import intel_extension_for_pytorch\n"
        "seconds = time.perf_counter() - start\n"
        "new = sorted(m for m in set(sys.modules) - before)\n"
        "print(json.dumps({'seconds': seconds, 'new': new}))"
    )
    report = json.loads(out)
    assert report["seconds"] < 0.1
    assert not [m for m in report["new"] if m.startswith(("torch._dynamo", "torch._inductor", "transformers"))]


def test_no_module_hides_an_attribute():
    """Importing a module binds its name in the package, so an attribute of that name would depend on the import
    order."""
    import intel_extension_for_pytorch as ipex

    folder = Path(ipex.__file__).parent
    assert not {p.stem for p in folder.glob("*.py")} & set(ipex._LAZY)
