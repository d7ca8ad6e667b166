"""The documentation: its code blocks run, its links are valid, and its generated tables are complete."""

from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import doc_blocks
import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]
sys.path.insert(0, str(DOCS))

import generate  # noqa: E402

# Parts of the generated texts that docs/architecture.md describes.
SAID_OF_WALK = {
    "fx.txt": ["aten.gelu"],
    "imported.txt": ["static", "value=1e-06", "expand"],
    "graph.txt": ['post=["gelu"]', "= group("],
    "steps.txt": ["onednn.pack", "once per weight", "onednn.matmul", "kernel"],
    "lowered.txt": ["reduce(", "yield(", "merge(", "t0*t0"],
    "scheduled.txt": ["parallel(grain=", "ramp(", ", 1, 64)"],
    "llvm.txt": ["define internal void"],
    "asm.txt": ["vmulps", "%zmm"],
}
TABLES = {"pointwise": ("pointwise", "POINTWISE"), "reductions": ("reduction", "REDUCTION"), "scans": ("scan", "SCAN")}


def runs_something(page):
    return any(b.language in doc_blocks.RUN and not b.why_not_run for b in doc_blocks.blocks(page.read_text()))


def tools(page):
    """Files of the CMake build that the page uses, and that the wheel does not contain."""
    return set(re.findall(r"build/release(?:/[\w-]+)?", page.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_block_runs_or_says_why_not(page):
    wrong = [b for b in doc_blocks.blocks(page.read_text()) if not b.is_accounted_for]
    lines = [f"{page}:{b.line}: {b.language or 'no language'}" for b in wrong]
    assert not lines, "neither run nor marked `<!-- not run: reason -->`:\n" + "\n".join(lines)


@pytest.mark.needs_ipex
def test_blocks_run(tmp_path):
    """A single test for all pages, so that they share the import of PyTorch."""
    pages = [page for page in PAGES if runs_something(page)]
    missing = {tool for page in pages for tool in tools(page) if not (ROOT / tool).exists()}
    if missing:
        pytest.skip(f"not built: {', '.join(sorted(missing))}")
    for page in pages:
        (tmp_path / page.stem / "build").mkdir(parents=True)
        (tmp_path / page.stem / "build" / "release").symlink_to(ROOT / "build" / "release")
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "torchinductor"),
        # The wheel of docs/distributed.md is optional, and not in the environment of the tests.
        "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT / "oneccl"), os.environ.get("PYTHONPATH")])),
    }
    command = [sys.executable, doc_blocks.__file__, tmp_path, *pages]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


# ---- generated pages ----


@pytest.mark.needs_ipex
def test_every_op_of_the_tables_is_listed():
    listed = generate.operators()
    for table, (file, macro) in TABLES.items():
        rows = list(generate.table_lines(f"backend/ops/{file}.def", macro))
        assert rows
        missing = [row[0] for row in rows if f"\n| `{row[0]}` |" not in listed[table]]
        assert not missing, f"of {file}.def"
    lines = re.findall(r"^OP\(", (ROOT / "backend/ops/structural.def").read_text(), re.M)
    assert lines and listed["graph"].count("\n| `") == len(lines)


@pytest.mark.needs_ipex
def test_every_knob_is_listed():
    page = generate.knobs()
    rows = list(generate.table_lines("runtime/env_knobs.def", "KNOB"))
    assert rows
    assert not [row[0] for row in rows if f"\n| `{row[0]}` |" not in page]


def test_every_option_is_listed():
    from intel_extension_for_pytorch.compiler.options import MODES, Options

    page = (DOCS / "options.md").read_text()
    assert not [f.name for f in dataclasses.fields(Options) if f"\n| `{f.name}` |" not in page]
    assert not [mode for mode in MODES if f"`{mode}`" not in page]


@pytest.mark.needs_ipex
def test_pages_include_what_is_generated(tmp_path):
    generate.write_all(tmp_path)
    included = {name for page in PAGES for name in re.findall(r"^```\{\w+\} generated/(\S+)", page.read_text(), re.M)}
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    assert included == written
    for path in tmp_path.rglob("*.txt"):
        assert path.read_text().strip(), path
        assert str(ROOT) not in path.read_text(), path
    for name, parts in SAID_OF_WALK.items():
        text = (tmp_path / "walk" / name).read_text()
        assert not [part for part in parts if part not in text], name


# ---- links ----


def slugs(path):
    """The anchors of a page's headings, as in GitHub and MyST."""
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", path.read_text(), flags=re.M | re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


def pages_with_links():
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    paths = [ROOT / name for name in listed.stdout.split()] or [*PAGES, *ROOT.glob("*/README.md")]
    return [path for path in paths if path.exists()]


@pytest.mark.parametrize("page", pages_with_links(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_dead_link(page):
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(), flags=re.M | re.S)
    dead = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if ":" in path:
            continue
        found = page.parent / path if path else page
        if not found.exists() or (anchor and found.suffix == ".md" and anchor not in slugs(found)):
            dead.append(target)
    assert not dead
