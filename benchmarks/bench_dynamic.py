"""What symbolic sizes cost: a BERT compiled once with dynamic=True beside its own static compile at each size.

Both run in the same interleaved rounds with the same weights. The goal is a ratio of at most 1.1 at every size.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import torch
import transformers
from rich.console import Console
from rich.table import Table
from timing import interleaved, machine

GRID = [(1, 8), (1, 64), (1, 128), (1, 511), (4, 33), (8, 128), (16, 512), (32, 100), (64, 8), (64, 64)]


def distinct_backend() -> Callable:
    """The backend under an identity of its own: Dynamo keeps what it compiled by the backend object."""
    return lambda module, inputs: torch._dynamo.lookup_backend("ipex")(module, inputs)


def sizes(text: str) -> list[tuple[int, int]]:
    """ "1x8,64x128" as [(1, 8), (64, 128)]."""
    return [(int(batch), int(length)) for batch, _, length in (part.partition("x") for part in text.split(","))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--sizes", type=sizes, default=GRID, help="batch x length, as in 1x8,64x128")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--bf16", action="store_true", help="under bf16 autocast")
    parser.add_argument("--json", help="also write the results to this file")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    config = transformers.BertConfig(num_hidden_layers=arguments.layers)
    model = transformers.BertModel(config).eval()
    torch._dynamo.config.cache_size_limit = 2 * len(arguments.sizes) + 2

    def call(target: Callable, batch: int, length: int) -> Callable[[], object]:
        ids = torch.randint(0, config.vocab_size, (batch, length))
        mask = torch.ones_like(ids)
        return lambda: target(input_ids=ids, attention_mask=mask)

    title = f"BERT, {arguments.layers} layers, {'bf16' if arguments.bf16 else 'fp32'}\n{machine()}"
    table = Table("batch x length", "static ms", "dynamic ms", "ratio", "first dynamic call ms", title=title)
    results = {}
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=arguments.bf16)
    with torch.inference_mode(), autocast:
        compiles = torch._dynamo.utils.counters["stats"]
        dynamic = torch.compile(model, backend=distinct_backend(), dynamic=True)
        call(dynamic, 2, 24)()
        for batch, length in arguments.sizes:
            run = call(dynamic, batch, length)
            start = time.perf_counter()
            run()
            first = (time.perf_counter() - start) * 1e3
            static = torch.compile(model, backend=distinct_backend(), dynamic=False)
            samples = interleaved({"static": call(static, batch, length), "dynamic": run}, rounds=arguments.rounds)
            ratio = samples["dynamic"].median / samples["static"].median
            name = f"{batch} x {length}"
            results[name] = {k: s.median for k, s in samples.items()} | {"ratio": ratio, "first_dynamic": first}
            table.add_row(name, f"{samples['static'].median:.2f}", f"{samples['dynamic'].median:.2f}",
                          f"{ratio:.2f}", f"{first:.0f}")  # fmt: skip
    Console(width=100).print(table)
    print(f"graphs compiled in all: {compiles['unique_graphs']}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as f:
            json.dump({"machine": machine(), "results": results}, f, indent=1)


if __name__ == "__main__":
    main()
