"""Tries an installed wheel: python tests/wheel_smoke.py, with the Python of a fresh environment.

It compiles, trains, compiles ahead of time, runs the artifact, optimizes for eager mode and TorchScript, calls
`ipexc env`, and checks that each library that the package needs comes from the environment or from the C and C++
run-time libraries.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

SYSTEM = (
    "linux-vdso",
    "/lib64/ld-linux",
    "libc.so",
    "libm.so",
    "libdl.so",
    "libpthread.so",
    "librt.so",
    "libutil.so",
    "libgcc_s.so",
)


def check_libraries(package):
    for library in package.glob("*.so"):
        for line in subprocess.check_output(["ldd", library], text=True).splitlines():
            name, _, path = (part.strip() for part in line.partition("=>"))
            if not name.startswith((*SYSTEM, "libstdc++.so")):
                assert path.startswith(sys.prefix), (
                    f"{library.name} takes {line.strip()} from outside of the environment"
                )


def check_compiled():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(10))
    x = torch.randn(4, 3, 12, 12)
    model(x)
    compiled = torch.compile(model, backend="ipex", options={"fallback": False})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    optimizer, target = torch.optim.AdamW(model.parameters(), lr=0.01), torch.arange(4)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(compiled(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0], losses
    return model.eval(), x


def check_artifact(model, x):
    import intel_extension_for_pytorch as ipex

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.ipex"
        ipex.aot.compile(torch.export.export(model, (x,)), path)
        torch.testing.assert_close(ipex.aot.load(path)(x), model(x))


def check_optimized(model, x):
    """Eager mode, and a frozen TorchScript model."""
    import intel_extension_for_pytorch as ipex

    fast = ipex.optimize(model)
    assert (Path(ipex.cmake_prefix_path) / "IPEX" / "IPEXConfig.cmake").exists()
    with torch.no_grad():
        frozen = torch.jit.freeze(torch.jit.trace(fast, x))
        for run in (fast, frozen, frozen):
            torch.testing.assert_close(run(x), model(x))


def main():
    start = time.perf_counter()
    import intel_extension_for_pytorch as ipex

    seconds = time.perf_counter() - start
    check_libraries(Path(ipex.__file__).parent)
    model, x = check_compiled()
    with torch.no_grad():
        check_artifact(model, x)
        check_optimized(model, x)
    environment = subprocess.check_output([Path(sys.executable).parent / "ipexc", "env"], text=True)
    assert torch.__version__ in environment
    print(
        f"intel_extension_for_pytorch {ipex.__version__}, torch {torch.__version__}, Python {sys.version.split()[0]}: "
        f"works; import after torch {1000 * seconds:.0f} ms"
    )


if __name__ == "__main__":
    main()
