"""Runs Python with the extension module of a sanitizer build. libtorch and everything else are not instrumented.

    python tests/python/sanitized.py build/asan -m pytest tests/python/test_backend.py
    python tests/python/sanitized.py build/asan tests/python/fuzz.py --nodes 10000 --seed 1

Without arguments for Python, it runs the smoke test: the suites in SMOKE.
"""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parents[2]
# Suites that exercise the interface to C++ most: modes, layouts, ATen calls, errors, views, artifacts.
SMOKE = [f"tests/python/test_{suite}.py" for suite in ("backend", "extern", "faults", "structural", "aot")]

OPTIONS = {
    # The interpreter and torch never free some memory. Huge allocations must fail as without the sanitizer.
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    # Python's own allocator would hide out-of-bounds accesses.
    "PYTHONMALLOC": "malloc",
}


def library(name):
    """The compiler's sanitizer library. It must be preloaded, because the interpreter is not instrumented."""
    compiler = os.environ.get("CXX", "g++")
    return subprocess.check_output([compiler, f"-print-file-name={name}"], text=True).strip()


def package_beside(build):
    """The folder to import from, with the build's extension module and the Python sources."""
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
    # Also preload libstdc++: the sanitizer looks up the exception functions when it is loaded.
    environment["LD_PRELOAD"] = f"{library('libasan.so')} {library('libstdc++.so')}"
    # --capture=sys, so that pytest does not swallow the sanitizer's report before the process ends.
    arguments = arguments or ["-m", "pytest", "-q", "--capture=sys", "--timeout=1800", *SMOKE]
    os.execve(sys.executable, [sys.executable, *arguments], environment)


if __name__ == "__main__":
    main()
