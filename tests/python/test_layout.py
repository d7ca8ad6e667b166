"""The layout of the package: there are no import circles, and only one folder uses private names of PyTorch."""

import ast
import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "python" / "intel_extension_for_pytorch"
FILES = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__").replace("__init__", ""): path
    for path in PACKAGE.rglob("*.py")
}
PRIVATE = re.compile(r"\btorch(?:\.(?!ops\b)\w+)*\._[a-z]\w*|from torch[\w.]* import (?:\w+, )*_\w+")
MAX_LINES = 600


def package_of(module):
    return module if FILES[module].name == "__init__.py" else module.rpartition(".")[0]


def imported_by(module):
    """The modules of the package that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(FILES[module].read_text())):
        if not isinstance(node, ast.ImportFrom) or node.level == 0:
            continue
        base = package_of(module).split(".") if package_of(module) else []
        base = base[: len(base) - node.level + 1] + (node.module.split(".") if node.module else [])
        for alias in node.names:
            found = [*base, alias.name] if ".".join([*base, alias.name]) in FILES else base
            # Importing a module also imports its parent packages, except those that contain the importing file.
            parts = range(1, len(found) + 1)
            yield from (name for n in parts if not is_within(module, name := ".".join(found[:n])))


def is_within(module, package):
    return module == package or module.startswith(f"{package}.")


def test_no_circle_of_imports():
    graph = {module: set(imported_by(module)) for module in FILES}
    assert graph["compiler.backend"] >= {"compiler.importer", "torch_private"}
    try:
        list(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(f"these import each other: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("module", [m for m in FILES if not m.startswith("torch_private")])
def test_private_names_of_pytorch(module):
    lines = enumerate(FILES[module].read_text().splitlines(), 1)
    found = [f"{FILES[module]}:{number}: {line.strip()}" for number, line in lines if PRIVATE.search(line)]
    assert not found, "private names of PyTorch belong in torch_private/:\n" + "\n".join(found)


def test_files_are_short():
    long = {module: n for module, path in FILES.items() if (n := len(path.read_text().splitlines())) > MAX_LINES}
    assert not long
