"""Writes all intermediate texts of a fixed list of models, so that two commits can be compared.

    python tests/python/replay.py                   writes the texts of this tree to build/replay/tree
    python tests/python/replay.py --against COMMIT  also builds a commit, and shows the differences

Every graph of every model is compiled for three ISAs by cross-compilation, on any machine. The texts are the imported
graph, the graph after all passes, its steps, and each kernel as lowered, as scheduled and as optimised LLVM IR, and
also the graph and kernels of a compilation for this machine. `digests.json` has a digest of each text, and `texts.zip`
has the texts. The idea is from tinygrad's process replay.
"""

import argparse
import difflib
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
OUTPUT = ROOT / "build" / "replay"
ISAS = ("avx2", "avx512", "avx512_bf16")
SHOWN_NAMES, SHOWN_LINES = 60, 80


# ---- the texts of this tree ----


def write_texts(folder, pattern):
    """Compiles the models whose name contains `pattern`, and writes digests.json and texts.zip to `folder`."""
    os.environ["IPEX_CACHE"] = "off"  # compile everything
    from replay_models import RUNS

    digests = {}
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / "texts.zip", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, run in RUNS.items():
            if pattern not in name:
                continue
            print(name, flush=True)
            for path, text in texts_of(run):
                digests[f"{name}/{path}"] = hashlib.sha256(text.encode()).hexdigest()[:16]
                archive.writestr(f"{name}/{path}", text)
    (folder / "digests.json").write_text(json.dumps(digests, indent=0))
    print(f"{len(digests)} texts in {folder}")


def texts_of(run):
    """(path, text) for every stage of every graph of a model."""
    import intel_extension_for_pytorch as ipex
    import torch

    torch._dynamo.reset()
    with ipex.record_reports() as reports:
        run(lambda model: torch.compile(model, backend="ipex", dynamic=False))
    for number, report in enumerate(reports):
        graph = f"{number}-{report['kind']}"
        yield f"{graph}/imported", report["imported"]
        yield f"{graph}/native/graph", report["graph"]
        yield f"{graph}/native/loops", report["loops"]
        if not report["imported"]:  # it runs in ATen
            continue
        parsed = ipex._C.Graph.parse(report["imported"])
        with ThreadPoolExecutor(len(ISAS)) as pool:
            hoist = report["kind"] == "inference"
            compiled = pool.map(lambda isa, parsed=parsed, hoist=hoist: parsed.compile_to_text(isa, hoist), ISAS)
        for isa, stages in zip(ISAS, compiled, strict=True):
            yield f"{graph}/{isa}/graph", stages["graph"]
            yield f"{graph}/{isa}/steps", "\n".join(f"{s['kind']} {s['name']} {s['detail']}" for s in stages["steps"])
            for kernel, forms in stages["kernels"].items():
                for form, text in forms.items():
                    yield f"{graph}/{isa}/{kernel}/{form}", text


# ---- the texts of a commit ----


def build_commit(commit):
    """Builds a commit in a separate worktree; returns the worktree and the folder of its package."""
    worktree = OUTPUT / "commits" / commit
    if not worktree.exists():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "--detach", worktree, commit], cwd=ROOT, check=True)
    package = worktree / "build" / "package"
    if not package.exists():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        options = ["--no-build-isolation", "--no-deps", "--target", package]
        subprocess.run([*pip, *options, worktree], cwd=worktree, check=True)
    return worktree, package


def write_texts_of_commit(commit, pattern):
    """Writes the texts of a commit and returns their folder."""
    worktree, package = build_commit(commit)
    script = worktree / "tests" / "python" / "replay.py"
    if not script.exists():
        sys.exit(f"{commit} has no tests/python/replay.py: choose a commit that has it")
    folder = OUTPUT / commit
    libraries = Path(sys.prefix) / "lib"  # oneDNN and oneTBB
    environment = {**os.environ, "PYTHONPATH": str(package), "LD_LIBRARY_PATH": str(libraries)}
    command = [sys.executable, script, "--output", folder, "--only", pattern]
    subprocess.run(command, env=environment, check=True)
    return folder


# ---- the comparison ----


def compare(before, after):
    """Prints the differences between two folders of texts; returns whether there are any."""
    old, new = (json.loads((folder / "digests.json").read_text()) for folder in (before, after))
    changed = [path for path in new if path in old and new[path] != old[path]]
    added, gone = [path for path in new if path not in old], [path for path in old if path not in new]
    print(f"{len(new)} texts, {len(changed)} changed, {len(added)} added, {len(gone)} gone")
    for what, paths in (("changed", changed), ("added", added), ("gone", gone)):
        forms = defaultdict(list)
        for path in paths:
            part, _, form = path.rpartition("/")
            forms[part].append(form)
        for part in list(forms)[:SHOWN_NAMES]:
            print(f"  {what} {part}: {', '.join(forms[part])}")
        if len(forms) > SHOWN_NAMES:
            print(f"  and {len(forms) - SHOWN_NAMES} more")
    if changed:
        texts = []
        for folder in (before, after):
            with zipfile.ZipFile(folder / "texts.zip") as archive:
                texts.append(archive.read(changed[0]).decode().splitlines())
        print(f"\n{changed[0]}:")
        for line in list(difflib.unified_diff(*texts, "before", "after", lineterm=""))[:SHOWN_LINES]:
            print(line)
    return bool(changed or added or gone)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", metavar="COMMIT", help="compare with this commit; exit code 1 where texts differ")
    parser.add_argument("--only", default="", help="models with this in their name")
    parser.add_argument("--output", type=Path, default=OUTPUT / "tree", help="where the texts go")
    arguments = parser.parse_args()
    before = None
    if arguments.against:
        resolved = ["git", "rev-parse", "--verify", "--short=12", f"{arguments.against}^{{commit}}"]
        found = subprocess.run(resolved, cwd=ROOT, capture_output=True, text=True, check=False)
        if found.returncode:
            sys.exit(f"--against: {arguments.against} is no commit: {found.stderr.strip()}")
        before = write_texts_of_commit(found.stdout.strip(), arguments.only)
    write_texts(arguments.output, arguments.only)
    return int(compare(before, arguments.output)) if before else 0


if __name__ == "__main__":
    sys.exit(main())
