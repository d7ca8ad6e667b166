"""A soak test: runs random models and shapes on several threads for a given time, and compares all results with eager.

    python tests/python/soak.py --minutes 30

Before the clock starts, everything is compiled and eager results are computed. Then threads run random cases: inference
with shared models, and training steps with a model per thread. It fails on a wrong result, on an exception, and if
resident memory grows after the first fifth of the time.
"""

import argparse
import copy
import gc
import os
import random
import sys
import threading
import time
from dataclasses import dataclass, field

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read once: threads of several teams would spin for each other

import psutil
import torch
from comparison import difference, tensors_of
from torch.utils import _pytree as pytree
from zoo_handwritten import MODELS
from zoo_transformers import FAMILIES

ALLOWED_GROWTH = 32 << 20  # bytes after the warm-up; a leak of 1 KB per call would be far more
MODELS_USED = ("mlp", "cnn", "dlrm", "gated_cell", "mlp_mixer", "transformer_encoder", "conv1d_stack", "bert", "llama")
BATCHES = (1, 2, 3, 5, 8)
STEPS = 3  # training steps before the model is reset


@dataclass
class Report:
    calls: int = 0
    wrong: list[str] = field(default_factory=list)
    resident: list[tuple[float, int]] = field(default_factory=list)  # seconds, bytes

    def growth(self, seconds):
        """Growth in bytes from the end of the warm-up to the end, between minima over a while."""
        warm = [size for at, size in self.resident if 0.2 * seconds <= at < 0.4 * seconds]
        late = [size for at, size in self.resident if at >= 0.8 * seconds]
        return min(late) - min(warm) if warm and late else 0


def resized(inputs, batch):
    def of_batch(value):
        if not isinstance(value, torch.Tensor) or value.dim() == 0:
            return value
        return torch.cat([value] * (batch // value.shape[0] + 1))[:batch].contiguous()

    return pytree.tree_map(of_batch, inputs)


def call(run, inputs):
    return run(**inputs) if isinstance(inputs, dict) else run(*inputs)


def compare(ours, expected, scale=20.0):
    for a, b in zip(tensors_of(ours), expected, strict=True):
        if message := difference(a, b, scale=scale):
            return message
    return None


class Inference:
    """A model that all threads call, at several batch sizes with known results."""

    def __init__(self, name, model, inputs, backend, dtype=None):
        self.name = name if dtype is None else f"{name} {dtype}"
        self.dtype = dtype
        self.model = model.eval()
        self.run = torch.compile(self.model, backend=backend, dynamic=True)
        self.inputs = [resized(inputs, batch) for batch in BATCHES]
        compiled = [tensors_of(self.answer(self.run, given)) for given in self.inputs]
        # Rounding to bf16 differs from eager's, but not between calls.
        eager = [tensors_of(self.answer(self.model, given)) for given in self.inputs] if dtype is None else compiled
        self.expected = eager

    def answer(self, run, inputs):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=self.dtype is not None):
            return call(run, inputs)

    def step(self, rng):
        which = rng.randrange(len(BATCHES))
        message = compare(self.answer(self.run, self.inputs[which]), self.expected[which])
        return message and f"batch {BATCHES[which]}: {message}"


class Training:
    """A model of one thread: compiled steps from the same start give the same weights as eager's."""

    def __init__(self, name, model, inputs, backend):
        self.name = f"{name} training"
        self.start = copy.deepcopy(model.train().state_dict())
        self.inputs = inputs
        self.model = model
        self.run = torch.compile(model, backend=backend)
        self.expected = self.trained(model)
        self.trained(self.run)

    def trained(self, run):
        self.model.load_state_dict(self.start)
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        for _ in range(STEPS):
            optimizer.zero_grad()
            torch.stack([t.square().mean() for t in tensors_of(call(run, self.inputs))]).sum().backward()
            optimizer.step()
        return [p.detach().clone() for p in self.model.parameters()]

    def step(self, rng):
        return compare(self.trained(self.run), self.expected, scale=1e3)


def build(name):
    torch.manual_seed(0)
    model, inputs = {**MODELS, **FAMILIES}[name]()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return model, inputs


def many_graphs():
    """Raises Dynamo's limit of graphs per code object, since models share code. The setting is per thread."""
    torch._dynamo.config.recompile_limit = 64


def soak(seconds, threads=4, seed=0, backend="ipex", names=MODELS_USED, log=print):
    """Runs the soak and returns a report."""
    many_graphs()
    shared = [Inference(name, *build(name), backend) for name in names]
    shared += [Inference(name, *build(name), backend, torch.bfloat16) for name in names[:2]]
    own = [[Training(name, *build(name), backend) for name in names[:2]] for _ in range(threads)]
    log(f"{len(shared)} models shared, {len(own[0])} in training by each of {threads} threads; compiled")
    report, lock, stop = Report(), threading.Lock(), threading.Event()

    def work(number):
        many_graphs()
        rng = random.Random(seed * 1000 + number)
        while not stop.is_set():
            case = rng.choice(shared + own[number])
            try:
                message = case.step(rng)
            except Exception as error:  # reported with the case that raised it
                message = f"{type(error).__name__}: {error}"
            with lock:
                report.calls += 1
                if message:
                    report.wrong.append(f"{case.name}: {message}")
                    stop.set()

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    process, begin = psutil.Process(), time.monotonic()
    for worker in workers:
        worker.start()
    said = 0.0
    while not stop.wait(min(1.0, seconds / 50)) and time.monotonic() - begin < seconds:
        gc.collect()
        report.resident.append((time.monotonic() - begin, process.memory_info().rss))
        if time.monotonic() - said > 60:
            said = time.monotonic()
            log(f"{said - begin:6.0f} s  {report.calls:8d} calls  {report.resident[-1][1] >> 20} MB")
    stop.set()
    for worker in workers:
        worker.join()
    return report


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--backend", default="ipex")
    parser.add_argument("--models", nargs="*", default=MODELS_USED, choices=[*MODELS, *FAMILIES], metavar="NAME")
    arguments = parser.parse_args()
    torch.backends.mha.set_fastpath_enabled(False)
    seconds = 60 * arguments.minutes
    report = soak(seconds, arguments.threads, arguments.seed, arguments.backend, arguments.models)
    growth = report.growth(seconds)
    print(f"{report.calls} calls in {arguments.minutes} min, {len(report.wrong)} wrong, "
          f"memory grew by {growth >> 10} KB (seed {arguments.seed})")  # fmt: skip
    for line in report.wrong:
        print(line)
    sys.exit(bool(report.wrong) or growth > ALLOWED_GROWTH)


if __name__ == "__main__":
    main()
