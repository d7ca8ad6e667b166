"""Runs Python with the extension module of a sanitizer's build, libtorch and everything else as they are.

    python tests/python/sanitized.py build/asan -m pytest tests/python/test_backend.py
    python tests/python/sanitized.py build/asan tests/python/fuzz.py --nodes 10000 --seed 1

Without arguments for Python: the smoke test, the suites of SMOKE.
"""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
# What crosses the border of C++ most: modes and layouts, calls into ATen, errors in the middle, views, artifacts.
SMOKE = [f"tests/python/test_{suite}.py" for suite in ("backend", "extern", "faults", "structural", "aot")]

OPTIONS = {
    # The interpreter and torch keep memory to the end; huge allocations fail as they do without the sanitizer.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    # Python's own allocator would hide its objects' ends.
    "PYTHONMALLOC": "malloc",
}


def library(name):
    """The compiler's own: the interpreter is not instrumented, so that it has to be loaded before everything else."""
    compiler = os.environ.get("CXX", "g++")
    return subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip()


def package_beside(build):
    """The folder to import from: the build's module with the sources' Python files beside it."""
    package = Path("intel_extension_for_pytorch")
    target = build / "python" / package
    if not list(target.glob("_C.*.so")):
        sys.exit(f"error: {target} has no extension module: cmake --build --preset {build.name} --target _C")
    for source in (SOURCE / "python" / package).glob("[!.]*"):
        link = target / source.name
        if not source.name.startswith("_C.") and source.name != "__pycache__" and not link.exists():
            link.symlink_to(source)
    return target.parent


def main():
    build, *arguments = sys.argv[1:]
    paths = [str(package_beside(Path(build).resolve())), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**OPTIONS, **os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    # libstdc++ too: the sanitizer looks up what throws when it is loaded itself.
    environment["LD_PRELOAD"] = f"{library('libasan.so')} {library('libstdc++.so')}"
    # --capture=sys: what the sanitizer writes before it ends the process is not for pytest to keep.
    arguments = arguments or ["-m", "pytest", "-q", "--capture=sys", "--timeout=1800", *SMOKE]
    os.execve(sys.executable, [sys.executable, *arguments], environment)


if __name__ == "__main__":
    main()
