"""Training of a ResNet-50, tuned step by step: images per second of tests/scripts/resnet50_training.py, each step in a
process of its own, in turns.

python benchmarks/bench_resnet_training.py                       batches of 32 images of 224 x 224
python benchmarks/bench_resnet_training.py --quick               a small network on small images: tries the command out
python benchmarks/bench_resnet_training.py --only ipex           the first step, and those whose name contains the text
python benchmarks/bench_resnet_training.py --tables build/figures    also save the table as Markdown (see tables.py)
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from tables import ResultTable

ROOT = Path(__file__).resolve().parents[1]
SCRIPT = ROOT / "tests" / "scripts" / "resnet50_training.py"
ONECCL = ROOT / "oneccl"
STEPS = {  # the first is what the others are compared with
    "PyTorch, fp32": [],
    "channels_last": ["--channels-last"],
    "bf16 autocast": ["--autocast"],
    "bf16 autocast, channels_last": ["--autocast", "--channels-last"],
    "bf16, channels_last, torch.compile": ["--autocast", "--channels-last", "--compile", "inductor"],
    "bf16, channels_last, torch.compile(backend=ipex)": ["--autocast", "--channels-last", "--compile", "ipex"],
    "ipex.optimize, fp32": ["--ipex-optimize"],
    "ipex.optimize, bf16": ["--autocast", "--ipex-optimize"],
    "ipex.optimize, bf16, torch.compile(backend=ipex)": ["--autocast", "--ipex-optimize", "--compile", "ipex"],
    "the same, by run_cpu": ["--autocast", "--ipex-optimize", "--compile", "ipex"],
    "the same, two ranks by ipexrun": ["--autocast", "--ipex-optimize", "--compile", "ipex", "--ddp", "ccl"],
}
LAUNCHERS = {
    "the same, by run_cpu": ["-m", "torch.backends.xeon.run_cpu", "--disable-iomp", "--ninstances", "1"],
    "the same, two ranks by ipexrun": [
        *("-m", "intel_extension_for_pytorch.cpu.launch", "--nnodes", "1", "--nprocs-per-node", "2")
    ],
}
QUICK = ["--small", "--size", "32", "--steps", "2", "--warm-up", "1"]


def images_per_second(step: str, batch: int, options: list[str]) -> float:
    """Of all processes of the step, which share the batch."""
    launcher, ranks = LAUNCHERS.get(step, []), 2 if "--ddp" in STEPS[step] else 1
    command = [*launcher, SCRIPT, *STEPS[step], *options, "--batch", str(batch // ranks)]
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(ONECCL)]))
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"(\S+) images/s", done.stdout)
    if done.returncode != 0 or found is None:
        raise RuntimeError(f"{' '.join(map(str, command))} failed:\n{done.stderr[-3000:]}")
    return float(found[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="run the first step, and those whose name contains this")
    parser.add_argument("--rounds", type=int, default=3, help="processes for each step; the table shows the median")
    parser.add_argument("--steps", type=int, default=10, help="training steps that each process times")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tables", help="also save the table as Markdown in this folder")
    arguments = parser.parse_args()

    first = next(iter(STEPS))
    steps = {name: options for name, options in STEPS.items() if name == first or arguments.only in name}
    settings = QUICK if arguments.quick else ["--steps", str(arguments.steps)]
    batch = 4 if arguments.quick else arguments.batch
    samples: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(1 if arguments.quick else arguments.rounds):
        for name in steps:
            samples[name].append(images_per_second(name, batch, settings))

    model = "a small ResNet" if arguments.quick else f"ResNet-50, batches of {arguments.batch}"
    command = "bench_resnet_training.py" + (" --quick" if arguments.quick else "")
    columns = ["step", "images/s", f"times {first}", "options of the script"]
    table = ResultTable("resnet_training", f"Training of {model}, SGD", command, columns)
    base = statistics.median(samples[first])
    for name, options in steps.items():
        rate = statistics.median(samples[name])
        table.add(name, f"{rate:.1f}", f"{rate / base:.2f}x", " ".join(options))
    table.show(Console(width=140))
    table.save(arguments.tables)


if __name__ == "__main__":
    main()
