"""Shows where the time of a compilation goes, by the size of the graph: each stage of the compiler, and PyTorch's part.

    python benchmarks/bench_compile.py                                 a Llama of 1, 2, 4, 8, 16 layers, inference
    python benchmarks/bench_compile.py --mode train --layers 4,8,16    its forward and backward graphs

Layers differ only in their weights, so kernels of the second layer come from the object cache: `kernels` is the cost
for the model, not LLVM's time times the number of layers. The last line shows the growth of each stage as a power of
the number of ops. 1 is linear; no stage may be above 2.
"""

from __future__ import annotations

import argparse
import json
import math
import tempfile
from collections import defaultdict

from rich.console import Console
from rich.progress import track
from tables import ResultTable
from timing import in_fresh_process

STAGES = {  # column -> names in the times of a report
    "graph passes": (
        "canonicalize",
        "fold_constants",
        "fuse_library",
        "gather_early",
        "split_variance",
        "plan_layouts",
        "place_outputs",
        "eliminate_bounds_checks",
        "form_groups",
        "batch_groups",
    ),
    "lowering": ("lower",),
    "primitives": ("choose_implementations", "primitives"),
    "kernels": ("kernels",),
}

COMPILE = """
import json, time, torch, transformers
import torch._dynamo, torch._functorch.aot_autograd
from intel_extension_for_pytorch.compiler.records import record_reports

layers, train = {layers}, {train}
torch.manual_seed(0)
config = transformers.LlamaConfig(
    vocab_size=1000, hidden_size=256, intermediate_size=704, num_hidden_layers=layers, num_attention_heads=8,
    use_cache=False,
)
model = transformers.LlamaForCausalLM(config).train(train)
ids = torch.randint(0, 1000, (2, 64))
net = torch.compile(model, backend="ipex", dynamic=False)
with record_reports() as reports, torch.set_grad_enabled(train):
    start = time.perf_counter()
    loss = net(input_ids=ids, labels=ids).loss
    if train:
        loss.backward()
    total = (time.perf_counter() - start) * 1e3
times = [t for r in reports for t in r["times"]]
print(json.dumps({{
    "ops": sum(r["nodes"] for r in reports), "first call": total, "import": sum(r["import_ms"] for r in reports),
    "ours": sum(r["total_ms"] for r in reports), "times": times,
}}))
"""


def measured(layers: int, *, train: bool) -> dict[str, float]:
    """The number of ops, and ms by stage, of a first call in a fresh process with empty caches."""
    with tempfile.TemporaryDirectory() as cache:
        env = {"IPEX_CACHE": f"{cache}/ipex", "TORCHINDUCTOR_CACHE_DIR": f"{cache}/inductor"}
        found = in_fresh_process(COMPILE.format(layers=layers, train=train), env)
    by_name: dict[str, float] = defaultdict(float)
    for name, ms in found["times"]:
        by_name[name] += ms
    row = {"ops": found["ops"], "PyTorch": found["first call"] - found["ours"], "import": found["import"]}
    row |= {stage: sum(by_name[name] for name in names) for stage, names in STAGES.items()}
    return row | {"ours": found["ours"], "first call": found["first call"]}


def growth(rows: list[dict[str, float]], column: str) -> float:
    """The slope of log(ms) over log(ops), from the smallest graph to the largest."""
    first, last = rows[0], rows[-1]
    if min(first[column], last[column]) <= 0 or first["ops"] == last["ops"]:
        return math.nan
    return math.log(last[column] / first[column]) / math.log(last["ops"] / first["ops"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", default="1,2,4,8,16", help="numbers of layers, comma-separated")
    parser.add_argument("--mode", choices=("infer", "train"), default="infer")
    parser.add_argument("--json", help="also write the results to this file")
    parser.add_argument("--tables", help="also save the table as Markdown in this folder")
    arguments = parser.parse_args()
    console = Console(width=140)
    sizes = [int(n) for n in arguments.layers.split(",")]
    rows = [
        measured(n, train=arguments.mode == "train") for n in track(sizes, "compiling", console=console, transient=True)
    ]
    columns = list(rows[0])
    command = "bench_compile.py" if arguments.mode == "infer" else "bench_compile.py --mode train"
    title = f"Compiling a Llama ({arguments.mode}), milliseconds by stage"
    table = ResultTable(f"compile_{arguments.mode}", title, command, ["layers", *columns])
    for n, row in zip(sizes, rows, strict=True):
        table.add(str(n), str(row["ops"]), *(f"{row[c]:.1f}" for c in columns[1:]))
    if len(rows) > 1:
        table.add("growth", "", *(f"{growth(rows, c):.2f}" for c in columns[1:]))
    table.show(console)
    table.save(arguments.tables)
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump(dict(zip(sizes, rows, strict=True)), f, indent=1)


if __name__ == "__main__":
    main()
