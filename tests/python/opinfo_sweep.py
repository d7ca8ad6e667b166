"""Runs all of PyTorch's OpInfo with `backend="ipex"` (every op, sample, dtype and form) and compares with eager.

    python tests/python/opinfo_sweep.py [--ops REGEX] [--dtypes fp32,bf16] [--forms forward,gradient,inplace,out]
                                        [--samples N] [--jobs N] [--json FILE] [--backend NAME]

A worker process runs one op in one dtype at a time, so that a crash or hang fails only that. FILE gets one line for
each. A run continues where an earlier one with the same file stopped; --again REGEX repeats matching ops.
"""

import argparse
import gc
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter, defaultdict
from pathlib import Path

import opinfo_exceptions

FORMS = ("forward", "gradient", "inplace", "out")
DTYPES = ("fp32", "bf16", "f16", "fp64", "int8", "int64", "bool")
TIMEOUT = 1200  # seconds for an op in one dtype
TASKS_PER_WORKER = 150  # then the process is replaced, because compiled code is never freed


# ---- in a worker ----


def work(backend, forms, samples):
    """Reads "op dtype" lines, and prints a line of JSON for each."""
    warnings.simplefilter("ignore")
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # redirect what ops print to standard error
    import opinfo_cases
    import opinfo_check
    import torch
    import torch._functorch.config

    torch._functorch.config.enable_autograd_cache = False
    torch.set_num_threads(1)
    # OpInfo sets the seed before every sample, which would record a stack trace for other devices each time.
    torch.cuda.manual_seed_all = torch.xpu.manual_seed_all = lambda seed: None
    infos = opinfo_cases.infos_by_name()
    gc.freeze()  # exclude PyTorch's objects from garbage collection
    for line in sys.stdin:
        name, dtype = line.split()
        start = time.perf_counter()
        found = {}
        for form in forms:
            tally = opinfo_check.Tally()
            torch.manual_seed(0)
            try:
                cases = opinfo_cases.cases(infos[name], opinfo_cases.DTYPES[dtype], form, samples)
                opinfo_check.check(cases, backend, tally)
            except Exception as error:
                tally.failed.append(("all", f"{type(error).__name__}: {error}"))
            found[form] = tally.as_dict()
        record = {"op": name, "dtype": dtype, "seconds": round(time.perf_counter() - start, 2), "forms": found}
        print(json.dumps(record), file=replies)


class Worker:
    def __init__(self, options):
        self.command = [sys.executable, __file__, "--work", "--backend", options.backend]
        self.command += ["--forms", ",".join(options.forms)]
        self.command += ["--samples", str(options.samples)] if options.samples else []
        self.process = None
        self.done = 0

    def run(self, name, dtype):
        """The record of an op in one dtype, or the process's failure if there is none."""
        if self.process is None or self.done >= TASKS_PER_WORKER:
            self.stop()
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
            )
            self.done = 0
        self.done += 1
        self.process.stdin.write(f"{name} {dtype}\n")
        self.process.stdin.flush()
        timer = threading.Timer(TIMEOUT, self.process.kill)
        timer.start()
        reply = self.process.stdout.readline()
        timer.cancel()
        if reply:
            return json.loads(reply)
        died = f"the process ended with {self.process.wait()}"
        self.process = None
        return {"op": name, "dtype": dtype, "seconds": 0.0, "forms": {"process": {"failed": [["all", died]]}}}

    def stop(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait()
            self.process = None


# ---- the run ----


def run(options):
    """Runs the sweep. Returns the records of all requested ops, from this run or an earlier one."""
    tasks = [
        (name, dtype) for name, dtypes in supported(options.ops).items() for dtype in options.dtypes if dtype in dtypes
    ]
    records = read_records(options.json)
    for task in [t for t in records if options.again and re.search(options.again, t[0])]:
        del records[task]
    left = [t for t in tasks if t not in records]
    lock, total, start = threading.Lock(), len(left), time.perf_counter()

    def serve():
        worker = Worker(options)
        while True:
            with lock:
                if not left:
                    break
                task = left.pop(0)
            record = worker.run(*task)
            with lock:
                records[task] = record
                if options.json:
                    with open(options.json, "a") as file:
                        print(json.dumps(record), file=file)
                if sys.stderr.isatty():
                    spent = time.perf_counter() - start
                    print(f"\r{total - len(left)}/{total} {spent:.0f} s {task[0]:60.60}", end="", file=sys.stderr)
        worker.stop()

    threads = [threading.Thread(target=serve) for _ in range(options.jobs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [records[t] for t in tasks]


def supported(pattern):
    """Op -> the dtypes that its OpInfo lists for CPU."""
    import opinfo_cases

    return {
        name: [d for d, dtype in opinfo_cases.DTYPES.items() if info.supports_dtype(dtype, "cpu")]
        for name, info in opinfo_cases.infos_by_name().items()
        if re.search(pattern, name)
    }


def read_records(path):
    if not path or not Path(path).exists():
        return {}
    lines = [json.loads(line) for line in Path(path).read_text().splitlines()]
    return {(record["op"], record["dtype"]): record for record in lines}


# ---- the report ----


def judge(records):
    """(failures that are not listed as exceptions, listed exceptions that pass), as lines."""
    failures, met, run = [], set(), set()
    for record in records:
        for form, tally in record["forms"].items():
            key = opinfo_exceptions.covering(record["op"], record["dtype"], form)
            run |= {key}
            if tally["failed"] and key is not None:
                met.add(key)
            elif tally["failed"]:
                where = f"{record['op']} {record['dtype']} {form}"
                failures += [f"{where} {label}: {message}" for label, message in tally["failed"]]
    stale = [f"{key}: {opinfo_exceptions.EXCEPTIONS[key]}" for key in run - met - {None}]
    return failures, sorted(stale)


def counts(records):
    """(dtype, form) -> Counter of outcomes."""
    table = defaultdict(Counter)
    for record in records:
        for form, tally in record["forms"].items():
            listed = opinfo_exceptions.covering(record["op"], record["dtype"], form) is not None
            row = table[record["dtype"], form]
            row["exceptions" if listed else "failed"] += len(tally["failed"])
            for key in ("passed", "refused", "native"):
                row[key] += tally.get(key, 0)
            for key in ("untraceable", "extern"):
                row[key] += sum(tally.get(key, {}).values())
    return table


def report(records, show=40):
    columns = ("passed", "failed", "exceptions", "untraceable", "refused", "native", "extern")
    titles = ("passed", "failed", "exceptions", "aot_eager fails", "eager refuses", "native ops", "Extern ops")
    lines = [f"{'dtype':8}{'form':10}" + "".join(f"{t:>16}" for t in titles) + f"{'native':>10}"]
    table = counts(records)
    table["all", ""] = sum(table.values(), Counter())
    for (dtype, form), row in table.items():
        share = row["native"] / max(1, row["native"] + row["extern"])
        lines.append(f"{dtype:8}{form:10}" + "".join(f"{row[c]:16}" for c in columns) + f"{share:10.2%}")
    failures, stale = judge(records)
    lines += [f"\n{len(failures)} failures", *(f"  {line}" for line in failures[:show])]
    lines += [f"\n{len(stale)} exceptions that pass: take them off the list", *(f"  {line}" for line in stale)]
    far = accuracy(records)
    lines += [f"\n{len(far)} ops whose fp32 error is above twice eager's", *(f"  {line}" for line in far)]
    return "\n".join(lines)


def accuracy(records):
    """For fp32 forward: our error and eager's against fp64, in the 2-norm over all cases, beyond one rounding."""
    lines = []
    for record in records:
        ours, eager, scale = record["forms"].get("forward", {}).get("errors", (0, 0, 0))
        if record["dtype"] == "fp32" and ours > 4 * max(eager, scale * 2.0**-46):
            lines.append(f"{record['op']}: {_root(ours, scale):.1e}, eager {_root(eager, scale):.1e}")
    return lines


def _root(square, scale):
    return (square / scale) ** 0.5 if scale else float("inf")


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", default="", help="regular expression over op names")
    parser.add_argument("--dtypes", default=",".join(DTYPES), type=lambda text: text.split(","))
    parser.add_argument("--forms", default=",".join(FORMS), type=lambda text: text.split(","))
    parser.add_argument("--samples", type=int, help="so many samples of each op, evenly spread (default: every one)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", help="file of records")
    parser.add_argument("--again", help="regular expression over ops to repeat although FILE has them")
    parser.add_argument("--backend", default="ipex")
    parser.add_argument("--show", type=int, default=40, help="failures to print")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    for given, known in ((options.dtypes, DTYPES), (options.forms, FORMS)):
        if unknown := set(given) - set(known):
            parser.error(f"unknown: {', '.join(unknown)}; there are {', '.join(known)}")
    return options


def main():
    options = parse()
    if options.work:
        work(options.backend, options.forms, options.samples)
        return 0
    with tempfile.TemporaryDirectory(prefix="ipex-opinfo-cache-") as cache:
        os.environ.setdefault("IPEX_CACHE", cache)
        records = run(options)
    print(report(records, options.show))
    failures, stale = judge(records)
    return 1 if failures or stale else 0


if __name__ == "__main__":
    sys.exit(main())
