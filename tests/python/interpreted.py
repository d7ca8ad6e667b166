"""The backend with results from the reference interpreter instead of compiled code, as a third result to compare.

The interpreter lowers each node of the optimised graph separately and executes its loops. It shares the importer, the
graph passes and the lowering with the compiler, but not fusion, layouts, schedules, vector code or oneDNN.
"""

from unittest import mock

import torch
from intel_extension_for_pytorch.compiler.derived import read_source


class Interpreted:
    """A compiled graph whose calls return the interpreter's results."""

    def __init__(self, compiled, state):
        from intel_extension_for_pytorch import _C

        self.compiled = compiled
        self.state = state
        self.graph = _C.Graph.parse(compiled.report()["graph"])

    def run(self, arguments):
        values = list(arguments)
        symbols = [read_source(values, *source) for source in self.state["symbols"]]
        tensors = [v for v, kind in zip(values, self.state["arguments"], strict=True) if kind[0] == "tensor"]
        outputs, changed = self.graph.evaluate([as_bytes(t) for t in tensors], symbols)
        results = self.compiled.run(arguments)  # allocates, with the strides that are due
        for kind, result in zip(self.state["outputs"], results, strict=True):
            if kind[0] == "tensor":
                overwrite(result, outputs[kind[1]])
        for position, data in changed:
            overwrite(tensors[position], data)
        return results

    def __getattr__(self, name):
        return getattr(self.compiled, name)


def as_bytes(tensor):
    stored = torch.empty(tensor.shape, dtype=tensor.dtype).copy_(tensor)  # zeros without memory have none to read
    return stored.reshape(-1).view(torch.uint8).numpy().tobytes()


def overwrite(tensor, data):
    """Writes the stored elements of `tensor` (a dimension of stride 0 is stored once)."""
    if not data:
        return
    stored = tensor[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in tensor.stride())]
    stored.copy_(torch.frombuffer(bytearray(data), dtype=tensor.dtype).view(stored.shape))


def by_interpreter():
    """A context in which compiled graphs run in the interpreter."""
    from intel_extension_for_pytorch.compiler import native

    compile_graph = native.compile_graph

    def interpreted(graph, state):
        return Interpreted(compile_graph(graph, state), state)

    return mock.patch.multiple(native, compile_graph=interpreted, _load_saved=lambda saved, state: None)
