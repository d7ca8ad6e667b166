"""Times frozen TorchScript models in bf16 beside `torch.compile(backend="ipex")` and eager, interleaved: what scripts
for IPEX do (optimize, trace, freeze) against what they could do."""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable

import intel_extension_for_pytorch as ipex
import models
import torch
from rich.console import Console
from tables import ResultTable
from timing import interleaved

MODELS = ("resnet50", "bert_base", "dlrm", "vit_base")


def variants(name: str, batch: int) -> dict[str, Callable[[], object]]:
    case = models.build(name, batch=batch)
    model = case.model.eval()
    keywords = {k: v for k, v in case.inputs.items() if k != "labels"} if isinstance(case.inputs, dict) else {}
    inputs = () if keywords else case.inputs

    def call(function: Callable, enabled: bool = True) -> object:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            return function(*inputs, **keywords)

    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        examples = {"example_kwarg_inputs": keywords} if keywords else {"example_inputs": inputs}
        ours = ipex.optimize(model, dtype=torch.bfloat16)
        script = torch.jit.freeze(torch.jit.trace(ours, strict=False, check_trace=False, **examples))
    compiled = torch.compile(model, backend="ipex", dynamic=False)
    for _ in range(3):
        call(script, enabled=False)
    before = torch.ops.torch_ipex.compiled_graph_counts()
    call(script, enabled=False)
    _, native, interpreted = (b - a for a, b in zip(before, torch.ops.torch_ipex.compiled_graph_counts(), strict=True))
    if not native or interpreted:
        raise RuntimeError(f"{name}: {native} compiled parts, {interpreted} interpreted parts")
    return {
        "eager": lambda: call(model),
        "compile": lambda: call(compiled),
        "script": lambda: call(script, enabled=False),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*", choices=MODELS, default=MODELS)
    parser.add_argument("--batches", nargs="*", type=int, default=[1, 16])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument("--tables", help="also save the table as Markdown in this folder")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # of the tracer
    table = ResultTable("torchscript", "Frozen TorchScript in bf16 beside torch.compile, milliseconds per call",
                        "bench_torchscript.py", ["case", "eager", "compile", "script", "script/compile"])  # fmt: skip
    found = {}
    for name in arguments.only:
        for batch in arguments.batches:
            torch._dynamo.reset()
            samples = interleaved(variants(name, batch), rounds=arguments.rounds)
            case = f"{name}, batch {batch}"
            found[case] = {variant: sample.median for variant, sample in samples.items()}
            ratio = samples["script"].median / samples["compile"].median
            table.add(case, *(f"{s.median:.2f}" for s in samples.values()), f"{ratio:.2f}x")
    if arguments.json:
        print(json.dumps(found | {"version": ipex.__version__}))
        return
    table.show(Console(width=110))
    table.save(arguments.tables)


if __name__ == "__main__":
    main()
