"""Writes the generated parts of the documentation: the op tables, the knobs, and every stage of one small model.

`python docs/generate.py` writes them into docs/generated/. The pages of docs/ include them. Everything comes from the
installed package, but for the list of graph ops, which is read from its .def file.
"""

from __future__ import annotations

import os
import re
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from unittest import mock

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
ISA = "avx512"  # of the texts in the walk; compiling for it needs no CPU that has it


def write_all(folder: Path) -> None:
    """Writes every generated file into `folder`."""
    files = {
        **{f"operators/{name}.md": text for name, text in operators().items()},
        "knobs.md": knobs(),
        "contributing.md": page_of_repository("CONTRIBUTING.md"),
        "results.md": page_of_repository("benchmarks/RESULTS.md"),
        **{f"walk/{name}": text for name, text in walk().items()},
    }
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.rstrip() + "\n", encoding="utf-8")


# ---- tables ----


def operators() -> dict[str, str]:
    """By name: the op tables, the import rules, and the ops that are decomposed or stay in ATen, as Markdown."""
    from intel_extension_for_pytorch import _C
    from intel_extension_for_pytorch.compiler.decompose import Decompositions
    from intel_extension_for_pytorch.compiler.extern import EXPECTED
    from intel_extension_for_pytorch.compiler.rules.registry import RULES

    decomposed = {op._schema.name.removeprefix("aten::") for op in Decompositions() if op.namespace == "aten"}
    return {
        "pointwise": _op_table(_C.pointwise_rows(), "arity"),
        "reductions": _op_table(_C.reduction_rows(), "results"),
        "scans": _op_table(_C.scan_rows(), "results"),
        "rules": _names(RULES),
        "decomposed": _names(decomposed),
        "random": _names(EXPECTED),
        "graph": _table(["op", "meaning"], ([f"`{name}`", _plain(meaning)] for name, meaning in graph_ops())),
    }


def graph_ops() -> Iterator[tuple[str, str]]:
    """(name, meaning) of each line of structural.def."""
    for _, name, *_, meaning in table_lines("backend/ops/structural.def", "OP"):
        yield name, meaning


def table_lines(path: str, macro: str) -> Iterator[list[str]]:
    """The arguments of each `macro(...)` of a .def file; strings without their quotes."""
    text = (ROOT / path).read_text(encoding="utf-8")
    for match in re.finditer(rf"^{macro}\(", text, re.MULTILINE):
        arguments, depth = [""], 1
        for token in re.finditer(r'"(?:[^"\\]|\\.)*"|//[^\n]*|.', text[match.end() :], re.DOTALL):
            depth += {"(": 1, ")": -1}.get(token[0], 0)
            if depth == 0:
                break
            if token[0] == "," and depth == 1:
                arguments.append("")
            elif not token[0].startswith("//"):
                arguments[-1] += token[0]
        yield [_unquoted(argument.strip()) for argument in arguments]


def _unquoted(argument: str) -> str:
    """A string literal's text, or that of several in a row; anything else as it is."""
    if not argument.startswith('"'):
        return argument
    return "".join(re.findall(r'"((?:[^"\\]|\\.)*)"', argument)).replace('\\"', '"')


_RESULT_TYPES = {
    "default": "promoted",
    "int_to_float": "promoted, integers to float32",
    "always_bool": "bool",
    "no_opmath": "promoted, exact",
}


def _op_table(rows: list[dict], count: str) -> str:
    def line(row: dict) -> list[str]:
        aten = ", ".join(f"`{name}`" for name in row["aten"].split())
        types = [name for key, name in (("booleans", "bool"), ("integers", "int"), ("floats", "float")) if row[key]]
        result = _RESULT_TYPES[row["promotion"]]
        return [f"`{row['name']}`", aten, str(row[count]), ", ".join(types), result, _plain(row["summary"])]

    return _table(["op", "ATen ops", count, "input types", "result type", "meaning"], map(line, rows))


def knobs() -> str:
    """Every IPEX_* environment variable as Markdown: what `ipexc env` prints."""
    from intel_extension_for_pytorch import _C

    rows = ([f"`{k['name']}`", f"`{k['default']}`" if k["default"] else "", _plain(k["help"])] for k in _C.knobs())
    return _table(["variable", "default", "meaning"], rows)


def _table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def _plain(text: str) -> str:
    """Text without meaning to Markdown."""
    return re.sub(r"([\\`*_{}\[\]<>|$~#])", r"\\\1", text)


# ---- pages that lie elsewhere in the repository ----


def page_of_repository(path: str) -> str:
    """A Markdown file from outside of docs/. Links to files that are not on the site become their names."""
    text = (ROOT / path).read_text(encoding="utf-8")
    return re.sub(r"\[([^\]]+)\]\((?!https?:)[^)#]+(?:#[^)]*)?\)", r"\1", text)


# ---- the walk of one model ----


def walk() -> dict[str, str]:
    """The texts of each stage of docs/walk_model.py, by file name."""
    with mock.patch.dict(os.environ, {"IPEX_CACHE": "off"}):
        return {name: text.replace(f"{DOCS}{os.sep}", "") for name, text in _walk().items()}


def _walk() -> dict[str, str]:
    import intel_extension_for_pytorch as ipex
    import torch
    from intel_extension_for_pytorch import _C
    from intel_extension_for_pytorch.compiler import backend
    from walk_model import model_and_input

    torch.manual_seed(0)
    model, inputs = model_and_input()
    fx_texts: list[str] = []
    import_graph = backend.import_graph

    def import_and_note(module, *args, **kwargs):
        fx_texts.append(module.print_readable(print_output=False))
        return import_graph(module, *args, **kwargs)

    torch._dynamo.reset()
    note = mock.patch.object(backend, "import_graph", import_and_note)
    with note, ipex.record_reports() as reports, torch.inference_mode():
        torch.compile(model, backend="ipex")(*inputs)
    torch._dynamo.reset()
    imported = reports[0]["imported"]
    with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, {"IPEX_DUMP": folder}):
        compiled = _C.Graph.parse(imported).compile_to_text(ISA, True)
        dumped = "\n".join(sorted(path.name for path in Path(folder).iterdir()))
    ((kernel, texts),) = compiled["kernels"].items()  # the product is a step of the library
    torch.set_num_threads(1)  # a busy machine shows one thread's times as they are
    with torch.no_grad():
        explained = ipex.explain(model, *inputs, profile=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of PyTorch about PyTorch
        assembly = ipex.aot.Compilation(torch.export.export(model, inputs), isa=ISA).kernels("asm")[ISA]
    return {
        "fx.txt": fx_texts[0],
        "imported.txt": imported,
        "graph.txt": compiled["graph"],
        "steps.txt": "\n".join(_step(step) for step in compiled["steps"]),
        "lowered.txt": texts["lowered"],
        "scheduled.txt": texts["scheduled"],
        "llvm.txt": _part(texts["llvm"], f"define internal void @{kernel}.parallel0", "}"),
        "asm.txt": _part(assembly, f"{kernel}.parallel0:", "\tretq"),
        "dump.txt": dumped,
        "explain.txt": str(explained).partition("\n\n")[0],
        "profile.txt": str(explained.profile),
    }


def _step(step: dict) -> str:
    once = "once per weight" if step["hoisted"] else "every call"
    return f"{step['kind']:8} {step['name']:28} {once:16} {step['detail']}".rstrip()


def _part(text: str, first: str, last: str) -> str:
    """From the line that begins with `first` to the next that is `last`."""
    lines = text.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(first))
    return "\n".join(lines[begin : lines.index(last, begin) + 1])


if __name__ == "__main__":
    write_all(DOCS / "generated")
