"""The installed package: entry points, exported symbols, and the cost of an import."""

from __future__ import annotations

import importlib.metadata
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch


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
    series = ".".join(torch.__version__.split(".")[:2])
    assert distribution.version == f"{series}.0+cpu"
    entries = {(e.group, e.name) for e in distribution.entry_points}
    assert ("torch_dynamo_backends", "ipex") in entries
    assert entries >= {("console_scripts", "ipexc"), ("console_scripts", "ipexrun")}
    requires = " ".join(distribution.requires or [])
    for dependency in (f"torch=={series}.*", "onednn-cpu-gomp", "tbb"):
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


def test_the_compiler_does_not_depend_on_pytorch():
    """libipex_compiler.so holds everything but the interface to PyTorch's tensors, and exports only our own names."""
    import intel_extension_for_pytorch._C as extension

    (library,) = (
        line.split("=>")[1].split()[0]
        for line in subprocess.check_output(["ldd", extension.__file__], text=True).splitlines()
        if "libipex_compiler.so" in line
    )
    table = subprocess.check_output(["nm", "-DC", library], text=True).splitlines()
    assert not [line for line in table if re.search(r" U (c10|at|torch|caffe2)::|_?THP|aoti_torch", line)]
    exported = [line for line in table if re.match(r"[0-9a-f]+ [A-TV-Zuw-z] ", line)]
    assert exported
    assert not [line for line in exported if "ipex::" not in line]


def fake_torch(folder: Path, version: str) -> str:
    """A package torch that cannot be used, with metadata of this version."""
    (folder / "torch").mkdir()
    (folder / "torch/__init__.py").write_text(f"__version__ = {version!r}\n")
    (folder / f"torch-{version}.dist-info").mkdir()
    (folder / f"torch-{version}.dist-info/METADATA").write_text(
        f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
    )
    return f"import sys; sys.path.insert(0, {str(folder)!r})\n"


@pytest.mark.parametrize("before", ["", "import torch\n"])
def test_another_torch_is_refused_in_one_line(tmp_path, before):
    setup = fake_torch(tmp_path, "2.7.1+cpu")
    out = run_python(
        f"{setup}{before}try:\n    import intel_extension_for_pytorch\nexcept ImportError as error:\n    print(error)\n"
        "try:\n    import intel_extension_for_pytorch\nexcept ImportError as error:\n    print('again')"
    )
    line, again = out.splitlines()
    assert "needs torch 2.1" in line and "but torch is 2.7.1+cpu" in line
    assert "install torch==2.1" in line and "or the intel_extension_for_pytorch that is built for your torch" in line
    assert again == "again"
