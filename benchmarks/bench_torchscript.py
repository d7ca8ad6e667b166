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

SCRIPTS = ("script", "any size")
MODELS = ("resnet50", "bert_base", "dlrm", "vit_base")


# With four other batches before, a script compiles the next size for any size.
OTHER_BATCHES = (2, 3, 4, 5, 6)


def arguments_of(case: models.Case) -> tuple[tuple, dict]:
    if not isinstance(case.inputs, dict):
        return case.inputs, {}
    return (), {k: v for k, v in case.inputs.items() if k != "labels"}


def variants(name: str, batch: int) -> dict[str, Callable[[], object]]:
    case = models.build(name, batch=batch)
    model = case.model.eval()
    inputs, keywords = arguments_of(case)

    def call(function: Callable, enabled: bool = True, given: tuple[tuple, dict] = (inputs, keywords)) -> object:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            return function(*given[0], **given[1])

    def traced() -> torch.jit.ScriptModule:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            examples = {"example_kwarg_inputs": keywords} if keywords else {"example_inputs": inputs}
            ours = ipex.optimize(model, dtype=torch.bfloat16)
            return torch.jit.freeze(torch.jit.trace(ours, strict=False, check_trace=False, **examples))

    script, any_size = traced(), traced()
    compiled = torch.compile(model, backend="ipex", dynamic=False)
    for _ in range(3):
        call(script, enabled=False)
    for other in [other for other in OTHER_BATCHES if other != batch][:4]:
        given = arguments_of(models.build(name, batch=other))
        for _ in range(3):
            call(any_size, enabled=False, given=given)
    before = torch.ops.torch_ipex.compiled_graph_counts()
    call(script, enabled=False)
    _, native, interpreted = (b - a for a, b in zip(before, torch.ops.torch_ipex.compiled_graph_counts(), strict=True))
    if not native or interpreted:
        raise RuntimeError(f"{name}: {native} compiled parts, {interpreted} interpreted parts")
    return {
        "eager": lambda: call(model),
        "compile": lambda: call(compiled),
        "script": lambda: call(script, enabled=False),
        **({"any size": lambda: call(any_size, enabled=False)} if batch > 1 else {}),  # one row has its own program
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
    columns = ["case", "eager", "compile", "script", "any size", "script/compile", "any size/compile"]
    title = "Frozen TorchScript in bf16 beside torch.compile, milliseconds per call"
    table = ResultTable("torchscript", title, "bench_torchscript.py", columns)
    found = {}
    for name in arguments.only:
        for batch in arguments.batches:
            torch._dynamo.reset()
            samples = interleaved(variants(name, batch), rounds=arguments.rounds)
            case = f"{name}, batch {batch}"
            found[case] = {variant: sample.median for variant, sample in samples.items()}
            times = {v: f"{samples[v].median:.2f}" if v in samples else "-" for v in ("eager", "compile", *SCRIPTS)}
            base = samples["compile"].median
            ratios = (f"{samples[v].median / base:.2f}x" if v in samples else "-" for v in SCRIPTS)
            table.add(case, *times.values(), *ratios)
    if arguments.json:
        print(json.dumps(found | {"version": ipex.__version__}))
        return
    table.show(Console(width=110))
    table.save(arguments.tables)


if __name__ == "__main__":
    main()
