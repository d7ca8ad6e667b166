"""The command `ipexc`: compiles models ahead of time, runs, inspects and measures artifacts, and explains models.

Exit codes: 0 success, 1 internal error (please report it), 2 wrong command line, 3 unsuitable model, file or input (the
message says what to do), 4 `bench-kernels --compare` found a kernel that is slower than before.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from .bench.command import bench_kernels

USER_ERROR = 3

app = typer.Typer(
    help="The compiler of Intel Extension for PyTorch.\n\nExit codes: 0 success, 1 internal error, 2 wrong command "
    "line, 3 unsuitable model, file or input, 4 a kernel is slower than in --compare.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Model = Annotated[
    str, typer.Argument(help="MODEL.pt2, or module:factory or file.py:factory (see `ipexc compile --help`)")
]
Artifact = Annotated[Path, typer.Argument(help="file written by `ipexc compile`", exists=True, dir_okay=False)]
Json = Annotated[bool, typer.Option("--json", help="print JSON")]
Inputs = Annotated[
    list[str] | None,
    typer.Option("--input", help="[NAME=]DTYPE[SIZES], e.g. x=f32[1,3,224,224]; a size may be a name, or 2*n+1"),
]
Dynamic = Annotated[list[str] | None, typer.Option(help="NAME=LOW..HIGH: makes the size NAME dynamic, in this range")]


def main(arguments: list[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    try:
        app(arguments, prog_name="ipexc")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 0
    except Exception as error:
        from .errors import Unsupported, UserError

        if not isinstance(error, (UserError, Unsupported)):
            raise
        print(f"ipexc: {error}", file=sys.stderr)
        return USER_ERROR
    return 0


app.command("bench-kernels")(bench_kernels)


def _print(value: Any, as_json: bool, text: str) -> None:
    print(json.dumps(value, indent=2) if as_json else text)


@app.command()
def env(as_json: Json = False) -> None:
    """Show target, versions, threads and knobs."""
    from .machine import environment, environment_text

    _print(environment(), as_json, environment_text())


@app.command()
def compile(
    model: Model,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="the artifact to write")] = None,
    isa: Annotated[
        str | None, typer.Option(help="one or more of avx2,avx512,avx512_bf16; default: the best of this CPU")
    ] = None,
    dtype: Annotated[str, typer.Option(help="f32, or bf16 (as under autocast)")] = "f32",
    dynamic: Dynamic = None,
    inputs: Inputs = None,
    weights: Annotated[str, typer.Option(help="embed, or extern (in OUTPUT.weights)")] = "embed",
    no_extern_ops: Annotated[
        bool, typer.Option("--no-extern-ops", help="refuse ops that only ATen can compute")
    ] = False,
    emit: Annotated[
        str | None, typer.Option(help="also write every kernel as text next to OUTPUT: cpp, loop, llvm or asm")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compile a model to one file, an artifact, that runs without a compiler.

    MODEL is a torch.export archive (.pt2), or `module:factory`, where the factory is a function that returns a module,
    or a module and its inputs (a tuple, or a dict by name).

    Examples:

      ipexc compile resnet.pt2 -o resnet.ipex --isa avx2,avx512

      ipexc compile torchvision.models:resnet50 --input "f32[batch,3,224,224]" --dynamic batch=1..64 -o resnet.ipex

      ipexc compile model.py:bert -o bert.ipex --dtype bf16 --emit asm
    """
    from . import aot
    from .aot.model_source import exported
    from .errors import UserError

    if output is None and emit is None:
        raise typer.BadParameter("give --output, --emit, or both", param_hint="--output")
    if emit not in (None, "cpp", "loop", "llvm", "asm"):
        raise typer.BadParameter("must be cpp, loop, llvm or asm", param_hint="--emit")
    if weights not in ("embed", "extern"):
        raise typer.BadParameter("must be embed or extern", param_hint="--weights")
    dtypes = _dtypes("f32", "bf16")
    if dtype not in dtypes:
        raise typer.BadParameter("must be f32 or bf16", param_hint="--dtype")
    program, size_names = exported(model, inputs or [], dynamic or [])
    compilation = aot.Compilation(
        program,
        isa=isa,
        dtype=dtypes[dtype] if dtype != "f32" else None,
        extern_ops=not no_extern_ops,
        size_names=size_names,
    )
    written: dict[str, Any] = {}
    if emit is not None:
        stem = output or Path(Path(model.partition(":")[0]).stem)
        for name, text in compilation.kernels(emit).items():
            path = stem.with_suffix(f".{name}.{ {'cpp': 'cpp', 'loop': 'loop', 'llvm': 'll', 'asm': 's'}[emit] }")
            path.write_text(text)
            written.setdefault("kernels", {})[name] = str(path)
    if output is not None:
        try:
            report = compilation.write(output, embed=weights == "embed")
        except OSError as error:
            raise UserError(f"cannot write {output}: {error}") from error
        written |= {"path": report.path, "isas": report.isas, "bytes": report.bytes, "extern_ops": report.extern_ops}
    written["seconds"] = {stage: round(s, 3) for stage, s in compilation.seconds.items()}
    lines = [f"{key}: {value}" for key, value in written.items()]
    _print(written, as_json, "\n".join(lines))


@app.command()
def pack(artifact: Artifact, as_json: Json = False) -> None:
    """Write ARTIFACT.packed: its weights in the layout of this CPU's kernels, which later loads map and share.

    Without this file, every load packs the weights again, into memory of its own.

    Example: ipexc pack resnet.ipex
    """
    from . import aot

    path = aot.pack(artifact)
    written = {"path": str(path), "bytes": path.stat().st_size}
    _print(written, as_json, "\n".join(f"{key}: {value}" for key, value in written.items()))


@app.command()
def run(
    artifact: Artifact,
    inputs: Annotated[list[str] | None, typer.Option("--input", help="NAME=FILE.npy, once per input")] = None,
    output: Annotated[Path | None, typer.Option(help="directory for the results, one .npy file each")] = None,
    repeat: Annotated[int, typer.Option(min=1, help="number of runs; the times are printed")] = 1,
    as_json: Json = False,
) -> None:
    """Run an artifact on arrays from files.

    The .npy format has no bfloat16: 16-bit floats are read and written as float32.

    Example: ipexc run resnet.ipex --input x=image.npy --output results --repeat 10
    """
    import time

    import torch

    from . import aot

    model = aot.load(artifact)
    description = model.description()
    tensors = _read_arrays(description["inputs"], inputs or [])
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        results = model.run(tensors)
        times.append((time.perf_counter() - start) * 1e3)
    tensors_out = {n: r for n, r in zip(description["results"], results, strict=True) if isinstance(r, torch.Tensor)}
    if output is not None:
        _write_arrays(output, tensors_out)
    report = {
        "outputs": [{"name": n, "dtype": str(t.dtype), "shape": list(t.shape)} for n, t in tensors_out.items()],
        "ms": [round(t, 4) for t in times],
    }
    lines = [f"{o['name']}: {o['dtype']} {o['shape']}" for o in report["outputs"]]
    lines.append(f"{repeat} runs, fastest {min(times):.3f} ms, first {times[0]:.3f} ms")
    _print(report, as_json, "\n".join(lines))


@app.command()
def inspect(artifact: Artifact, as_json: Json = False) -> None:
    """Show the inputs, results and contents of an artifact.

    Example: ipexc inspect resnet.ipex --json
    """
    from . import _C, aot

    description = aot.describe(_C.LoadedModel(str(artifact), "", False, link=False))
    _print(description, as_json, _inspection(description))


@app.command()
def explain(
    model: Model,
    inputs: Inputs = None,
    gradients: Annotated[
        bool, typer.Option("--gradients/--no-gradients", help="run forward and backward, or only inference")
    ] = True,
    profile: Annotated[bool, typer.Option("--profile", help="also show the time of every step")] = False,
    trace: Annotated[Path | None, typer.Option(help="write the profile to this file, as a Chrome trace")] = None,
    as_json: Json = False,
) -> None:
    """Show how this backend compiles a model: kernels, library calls, and ops that stay in ATen.

    With --profile, also show the time, GB/s, GFLOP/s and share of the machine's limit of each step, most expensive
    first.

    Examples:

      ipexc explain model.py:bert

      ipexc explain model.py:bert --no-gradients --profile --trace bert.json
    """
    import torch

    from .aot.model_source import module_and_inputs
    from .errors import UserError
    from .explanation.report import explain as explain_model

    module, args, kwargs = module_and_inputs(model, inputs or [])
    with torch.set_grad_enabled(gradients):
        explanation = explain_model(module, *args, profile=profile or trace is not None, **kwargs)
    if trace is not None:
        try:
            explanation.profile.write_trace(trace)
        except OSError as error:
            raise UserError(f"cannot write {trace}: {error}") from error
    _print(explanation.to_dict(), as_json, str(explanation))


@app.command()
def bench(
    artifact: Artifact,
    threads: Annotated[str, typer.Option(help="numbers of threads, comma-separated; default: all cores")] = "",
    streams: Annotated[str, typer.Option(help="numbers of concurrent callers, comma-separated")] = "1",
    seconds: Annotated[float, typer.Option(min=0.01, help="time to measure each setting")] = 2.0,
    sizes: Annotated[
        list[str] | None, typer.Option("--size", help="NAME=N: value of a dynamic size; default: its minimum")
    ] = None,
    as_json: Json = False,
) -> None:
    """Measure latency percentiles and throughput of an artifact, for numbers of threads and concurrent streams.

    Example: ipexc bench resnet.ipex --threads 1,2,4 --streams 1,2 --json
    """
    from .bench.artifact import measure

    results = measure(artifact, _numbers(threads, "--threads"), _numbers(streams, "--streams"), seconds, sizes or [])
    lines = [f"{'threads':>7} {'streams':>7} {'p50 ms':>9} {'p90 ms':>9} {'p99 ms':>9} {'calls/s':>9}"]
    for r in results["settings"]:
        lines.append(
            f"{r['threads']:7} {r['streams']:7} {r['p50_ms']:9.3f} {r['p90_ms']:9.3f} {r['p99_ms']:9.3f} "
            f"{r['calls_per_second']:9.1f}"
        )
    _print(results, as_json, "\n".join(lines))


def _dtypes(*names: str) -> dict[str, Any]:
    from .compiler.values import DTYPE_NAMES

    return {name: dtype for dtype, name in DTYPE_NAMES.items() if name in names or not names}


def _numbers(text: str, option: str) -> list[int]:
    try:
        numbers = [int(part) for part in text.split(",") if part]
    except ValueError:
        numbers = [0]
    if any(n < 1 for n in numbers):
        raise typer.BadParameter(f"{text!r} is not a list of positive numbers", param_hint=option)
    return numbers


def _read_arrays(described: list[dict[str, Any]], given: list[str]) -> list[Any]:
    import numpy
    import torch

    from .errors import UserError

    files = dict(item.partition("=")[::2] for item in given)
    expected = [d["name"] for d in described]
    if set(files) != set(expected):
        raise UserError(f"the model needs the inputs {', '.join(expected)}; --input gives {', '.join(files) or 'none'}")
    tensors = []
    for item in described:
        try:
            array = numpy.load(files[item["name"]], allow_pickle=False)
        except (OSError, ValueError) as error:
            raise UserError(f"input {item['name']}: cannot read {files[item['name']]}: {error}") from error
        tensor = torch.from_numpy(numpy.ascontiguousarray(array))
        dtype = _dtypes()[item["dtype"]]
        tensors.append(tensor.to(dtype) if dtype in (torch.bfloat16, torch.float16) else tensor)
    return tensors


def _write_arrays(directory: Path, tensors: dict[str, Any]) -> None:
    import numpy
    import torch

    directory.mkdir(parents=True, exist_ok=True)
    for name, tensor in tensors.items():
        half = tensor.dtype in (torch.bfloat16, torch.float16)
        numpy.save(directory / f"{name}.npy", (tensor.float() if half else tensor).contiguous().numpy())


def _inspection(d: dict[str, Any]) -> str:
    def tensors(items: list[dict[str, Any]]) -> list[str]:
        return [f"  {t['name']}: {t['dtype']}[{', '.join(map(str, t['shape']))}]" for t in items]

    def mb(amount: int) -> str:
        return f"{amount / 1e6:.2f} MB"

    lines = ["inputs", *tensors(d["inputs"]), "outputs", *tensors(d["outputs"])]
    if d["state"]:
        lines += ["buffers that a call writes to", *tensors(d["state"])]
    if d["dims"]:
        lines += ["sizes", *(f"  {s['name']}: {s['low']} to {s['high']}" for s in d["dims"])]
    lines.append(f"ISAs {', '.join(d['isas'])}; steps for {d['isa']}:")
    for step in d["steps"]:
        detail = f"  [{step['detail']}]" if step["detail"] else ""
        lines.append(f"  {step['kind']:8} {step['name']}{detail}  {'; '.join(step['sources'][:2])}")
    lines.append("extern ops " + (", ".join(d["extern_ops"]) + f" (torch {d['torch']})" if d["extern_ops"] else "none"))
    held = sum(size for name, size in d["members"] if name.startswith("weights/"))
    code = sum(size for name, size in d["members"] if name.endswith(".so"))
    lines.append(f"weights {mb(held)} ({d['weights']}), kernels {mb(code)}, working memory {mb(d['arena_bytes'])}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
