"""A process of bench_peers.py: runs a model under one compiler or runtime, one turn at a time.

python worker.py PEER MODEL BATCH PRECISION [THREADS]      with the folder of models.py on PYTHONPATH

The first line of standard output is JSON: the seconds of the first call (conversion, compilation and the call) and the
relative error of its result against eager in float32. For each line of standard input, a number of calls, it then
prints the milliseconds that these calls took.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator

import torch
from models import Case, build
from torch.utils import _pytree as pytree

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}


class FirstTensor(torch.nn.Module):
    """A model that returns only the first tensor of its output, which every exporter supports."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        output = self.model(**dict(zip(self.names, inputs, strict=True))) if self.names else self.model(*inputs)
        return next(leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor))


def model_of(name: str, batch: int, dtype: torch.dtype) -> tuple[FirstTensor, tuple[torch.Tensor, ...]]:
    """The case's model in evaluation mode and its inputs by position, without labels."""
    case: Case = build(name, **({"batch": batch} if batch else {}))
    given = case.inputs
    if isinstance(given, dict):
        given = {key: value for key, value in given.items() if key != "labels"}
    names = list(given) if isinstance(given, dict) else []
    inputs = tuple(given.values() if isinstance(given, dict) else given)
    model = FirstTensor(case.model, names).eval().to(dtype)
    return model, tuple(t.to(dtype) if t.is_floating_point() else t for t in inputs)


# ---- peers: functions of (model, inputs, threads) that return a callable, which runs the compiled model ----


def eager(model: torch.nn.Module, inputs: tuple, threads: int) -> Callable[[], object]:
    return lambda: model(*inputs)


def compiled(**options: object) -> Callable:
    def peer(model: torch.nn.Module, inputs: tuple, threads: int) -> Callable[[], object]:
        net = torch.compile(model, dynamic=False, **options)
        return lambda: net(*inputs)

    return peer


def artifact(model: torch.nn.Module, inputs: tuple, threads: int) -> Callable[[], object]:
    """An artifact, whose calls do not evaluate the guards of torch.compile."""
    import tempfile

    import intel_extension_for_pytorch as ipex

    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.ipex")
        ipex.aot.compile(torch.export.export(model, inputs), path)
        loaded = ipex.aot.load(path)
    return lambda: loaded(*inputs)


def zentorch(model: torch.nn.Module, inputs: tuple, threads: int) -> Callable[[], object]:
    import zentorch  # noqa: F401

    return compiled(backend="zentorch")(model, inputs, threads)


def _openvino_settings(model: torch.nn.Module, threads: int) -> dict[str, str]:
    """Settings for latency, with arithmetic in the model's dtype. (OpenVINO's default for fp32 models is bf16.)"""
    types = {torch.float32: "f32", torch.bfloat16: "bf16"}
    kind = types[next((p.dtype for p in model.parameters()), torch.float32)]
    return {"INFERENCE_PRECISION_HINT": kind, "INFERENCE_NUM_THREADS": str(threads), "PERFORMANCE_HINT": "LATENCY"}


def openvino_compile(model: torch.nn.Module, inputs: tuple, threads: int) -> Callable[[], object]:
    import openvino.torch  # noqa: F401

    options = {"device": "CPU", "config": _openvino_settings(model, threads)}
    return compiled(backend="openvino", options=options)(model, inputs, threads)


def openvino(model: torch.nn.Module, inputs: tuple, threads: int) -> Callable[[], object]:
    import openvino as ov

    converted = ov.convert_model(torch.export.export(model, inputs))
    for parameter, tensor in zip(converted.inputs, inputs, strict=True):
        parameter.get_node().set_partial_shape(ov.PartialShape(list(tensor.shape)))
    converted.validate_nodes_and_infer_types()
    request = ov.Core().compile_model(converted, "CPU", _openvino_settings(model, threads)).create_infer_request()
    for i, tensor in enumerate(inputs):
        request.set_input_tensor(i, _openvino_tensor(tensor))

    def call() -> object:
        request.infer()
        return request.get_output_tensor(0)

    return call


def _openvino_tensor(tensor: torch.Tensor) -> object:
    import openvino as ov

    if tensor.dtype is torch.bfloat16:
        return ov.Tensor(tensor.view(torch.int16).numpy(), list(tensor.shape), ov.Type.bf16)
    return ov.Tensor(tensor.numpy(), shared_memory=True)


def onnxruntime(model: torch.nn.Module, inputs: tuple, threads: int) -> Callable[[], object]:
    import tempfile

    import onnxruntime as ort

    settings = ort.SessionOptions()
    settings.intra_op_num_threads = threads
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.onnx")
        torch.onnx.export(model, inputs, path, dynamo=True, external_data=True, verbose=False)
        session = ort.InferenceSession(path, settings, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for parameter, tensor in zip(session.get_inputs(), inputs, strict=True):
        binding.bind_cpu_input(parameter.name, tensor.numpy())
    binding.bind_output(session.get_outputs()[0].name)

    def call() -> object:
        session.run_with_iobinding(binding)
        return binding.get_outputs()[0]

    return call


def xla(model: torch.nn.Module, inputs: tuple, threads: int) -> Callable[[], object]:
    import jax

    with _tolerating_missing_overloads():
        from torchax.export import exported_program_to_jax
    weights, function = exported_program_to_jax(torch.export.export(model, inputs))
    given = tuple(jax.dlpack.from_dlpack(t) for t in inputs)
    jitted = jax.jit(function)
    return lambda: jax.block_until_ready(jitted(weights, given))


@contextlib.contextmanager
def _tolerating_missing_overloads() -> Iterator[None]:
    """Ignores missing overloads: torchax registers some that PyTorch 2.13 no longer has, and no model uses them."""
    packet = torch._ops.OpOverloadPacket
    lookup = packet.__getattr__

    def tolerant(self: object, name: str) -> object:
        try:
            return lookup(self, name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return None

    packet.__getattr__ = tolerant
    try:
        yield
    finally:
        packet.__getattr__ = lookup


PEERS: dict[str, Callable[[torch.nn.Module, tuple, int], Callable[[], object]]] = {
    "eager": eager,
    "inductor": compiled(backend="inductor"),
    "frozen": compiled(backend="inductor", options={"freezing": True}),
    "max_autotune": compiled(backend="inductor", options={"freezing": True, "max_autotune": True}),
    "ipex": compiled(backend="ipex"),
    "ipex_artifact": artifact,
    "openvino": openvino,
    "openvino_compile": openvino_compile,
    "onnxruntime": onnxruntime,
    "xla": xla,
    "zentorch": zentorch,
}


EXPORTED = ("openvino", "onnxruntime", "xla", "ipex_artifact")


def as_torch(result: object) -> torch.Tensor:
    """The result of any peer as a float32 tensor."""
    result = next(iter(pytree.tree_leaves(result)))
    if isinstance(result, torch.Tensor):
        return result.detach().float().clone()
    if type(result).__module__.startswith("openvino"):
        data = torch.from_numpy(result.data.copy())
        if result.get_element_type().to_string() == "bf16":
            data = data.view(torch.bfloat16)
        return data.reshape(list(result.shape)).float()
    if hasattr(result, "numpy"):
        return torch.from_numpy(result.numpy().copy()).float()
    return torch.utils.dlpack.from_dlpack(result).float().clone()


def main() -> None:
    name, model_name, batch, precision = sys.argv[1:5]
    threads = int(sys.argv[5]) if len(sys.argv) > 5 else os.cpu_count()
    torch.set_num_threads(threads)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # redirect what libraries print to standard error
    reference_model, reference_inputs = model_of(model_name, int(batch), torch.float32)
    model, inputs = model_of(model_name, int(batch), DTYPES[precision])
    # Exporters cannot trace inference tensors.
    with torch.no_grad() if name in EXPORTED else torch.inference_mode():
        expected = reference_model(*reference_inputs)
        del reference_model
        start = time.perf_counter()
        call = PEERS[name](model, inputs, threads)
        result = call()
        seconds = time.perf_counter() - start
        error = ((as_torch(result) - expected).norm() / expected.norm()).item()
        print(json.dumps({"first_call_s": seconds, "error": error}), file=answers)
        for line in sys.stdin:
            count = int(line)
            call()  # not counted: other processes used the CPU caches in the meantime
            start = time.perf_counter()
            for _ in range(count):
                call()
            print((time.perf_counter() - start) * 1e3, file=answers)


if __name__ == "__main__":
    main()
