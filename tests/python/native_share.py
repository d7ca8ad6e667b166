"""Recorded counts of native and Extern ops, over OpInfo and over the models.

`check` fails if an Extern op runs that is not in the table, or more often than recorded. IPEX_UPDATE_GOLDEN=1 rewrites
the entries of the tests that run; read the diff before you commit it.
"""

import fcntl
import json
import os
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

TABLE = Path(__file__).parent / "native_share.json"


def check(part, name, native, extern):
    """`extern`: Extern op -> count; `part`: "opinfo" or "models"."""
    if os.environ.get("IPEX_UPDATE_GOLDEN", "0") != "0":
        _record(part, name, {"native": native, "extern": dict(sorted(extern.items()))})
        return
    recorded = json.loads(TABLE.read_text())[part].get(name)
    assert recorded is not None, f"{TABLE.name} has no {name}: run this test with IPEX_UPDATE_GOLDEN=1"
    more = Counter(extern) - Counter(recorded["extern"])
    assert not more, f"{name} runs more in ATen than {TABLE.name} says: {dict(more)}"


@contextmanager
def nothing_runs_eagerly(record_property, model=None):
    """Fails if a graph runs eagerly, which no comparison would show. Adds the op counts of a test to the summary.

    `model` is the entry of the table that the counts are checked against.
    """
    from intel_extension_for_pytorch.compiler.records import record_reports

    with record_reports() as reports:
        yield
    assert not [report["eager"] for report in reports if report["eager"]]
    extern = Counter(step["name"] for report in reports for step in report["steps"] if step["kind"] == "extern")
    native, kernels, library = (
        sum(report[key] for report in reports) for key in ("native_ops", "kernel_steps", "library_steps")
    )
    record_property("summary", f"{native} native ({kernels} + {library}), extern {dict(extern) or 0}")
    if model is not None:
        check("models", model, native, extern)


def text(native, extern):
    total = native + extern.total()
    return f"{native} of {total} ops native, {native / max(1, total):.2%}; Extern: {dict(extern.most_common())}"


def _record(part, name, row):
    with open(TABLE, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # several workers may write
        file.seek(0)
        table = json.loads(file.read() or "{}")
        table.setdefault(part, {})[name] = row
        file.truncate(0)
        file.write(json.dumps(table, indent=1, sort_keys=True) + "\n")


def of_case(case):
    """(native ops, Extern ops) of the graph that AOTAutograd traces from a case of OpInfo. It is compiled, not run."""
    import opinfo_check
    from intel_extension_for_pytorch.compiler.backend import ipex
    from intel_extension_for_pytorch.compiler.records import record_reports

    if not opinfo_check.accepted_by_eager(case):
        return 0, Counter()
    with record_reports() as reports:
        try:
            opinfo_check.compiled_together([case], [case.arguments()], ipex)
        except Exception:  # test_slice and test_everything say whether aot_eager can trace it
            return 0, Counter({"a call that is not compiled": 1})
    return opinfo_check.op_counts(reports)
