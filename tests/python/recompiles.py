"""Compares how often backend="eager", aot_eager and ipex compile each model while its batch size changes.

    python tests/python/recompiles.py --only bert

Each model runs with batch sizes 3, 5, 4, 7, 2. In mode "automatic", Dynamo makes the graph dynamic at the second size,
in mode "dynamic" at the first. Compilations with eager are required by Dynamo's guards, and additional ones with
aot_eager by AOTAutograd's tracing. Fails if ipex compiles more often than aot_eager.
"""

import argparse
import sys

import test_models
import torch

BATCHES = (3, 5, 4, 7, 2)
BACKENDS = ("eager", "aot_eager", "ipex")
MODES = {"automatic": None, "dynamic": True}


def compiled_graphs(name, backend, dynamic):
    """The number of graphs that Dynamo passed to the backend over all batch sizes."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    model, inputs = test_models.build(name)
    run = torch.compile(model, backend=backend, dynamic=dynamic)
    with torch.no_grad():
        for batch in BATCHES:
            test_models.call(run, test_models.resized(inputs, batch))
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def counted(name, dynamic):
    """Backend -> number of graphs, or None if one of PyTorch's own backends fails (aot_eager does on some views)."""
    counts = {}
    for backend in BACKENDS:
        try:
            counts[backend] = compiled_graphs(name, backend, dynamic)
        except RuntimeError:
            if backend == "ipex":
                raise
            counts[backend] = None
    return counts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="models whose name contains this")
    arguments = parser.parse_args()
    torch._dynamo.config.cache_size_limit = 64
    torch.backends.mha.set_fastpath_enabled(False)
    totals, more = dict.fromkeys(BACKENDS, 0), []
    print(f"graphs compiled for batch sizes {', '.join(map(str, BATCHES))}")
    row = "{:28} {:10} " + "{:>10} " * len(BACKENDS)
    print(row.format("model", "mode", *BACKENDS))
    for name in sorted(test_models.ALL):
        if arguments.only not in name:
            continue
        for mode, dynamic in MODES.items():
            counts = counted(name, dynamic)
            print(row.format(name, mode, *(str(count) for count in counts.values())), flush=True)
            allowed = counts["eager"] if counts["aot_eager"] is None else counts["aot_eager"]
            if None not in counts.values():
                for backend, count in counts.items():
                    totals[backend] += count
            if allowed is not None and counts["ipex"] > allowed:
                more.append(f"{name}, {mode}")
    print(row.format("all", "", *totals.values()))
    if more:
        print("ipex compiled more than aot_eager:", "; ".join(more))
    return 1 if more else 0


if __name__ == "__main__":
    sys.exit(main())
