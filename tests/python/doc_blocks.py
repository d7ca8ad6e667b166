"""Runs the code blocks of Markdown pages: `python tests/python/doc_blocks.py FOLDER PAGE...`.

Each page runs in its own process and folder, `FOLDER/<page>`, which stands for a checkout with a build. The processes
are forked from one that has imported PyTorch, because the import takes longer than most pages. The blocks of a page run
in order, and Python blocks share one namespace. A block whose first line is a comment with a file name (`# model.py`,
`// main.cpp`) is written to that file instead. Shell blocks run in bash, except calls of `ipexc`, `ipexrun` and of
Python files, which run in the page's process and need no import of PyTorch. Blocks of the language `text` are figures
and output. A block that cannot run in a test has a comment above it: `<!-- not run: installs packages -->`.
"""

from __future__ import annotations

import importlib
import os
import re
import runpy
import shlex
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

RUN = ("python", "bash")
NOT_CODE = ("text",)
IMPORTED_ONCE = ("torch.export", "torch._dynamo", "intel_extension_for_pytorch.compiler.backend")
_FENCE = re.compile(r"^(?P<fence>`{3,})(?P<language>\S*)[^\n]*\n(?P<text>.*?)^(?P=fence)[ \t]*$", re.M | re.S)
_REASON = re.compile(r"<!-- not run: (.+?) -->\s*\Z")
_SIMPLE = re.compile(r"(?P<variables>(?:\w+=\S+ )*)(?P<program>ipexc|ipexrun|python(?= \w+\.py)) (?P<arguments>.*)")
_FILE = re.compile(r"(?:#|//) ([\w.]+\.\w+)\n")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int  # of its first line of text in the page
    why_not_run: str  # empty: it runs

    @property
    def file(self) -> str:
        """The file that the block is, or empty."""
        match = _FILE.match(self.text)
        return match[1] if match else ""

    @property
    def is_directive(self) -> bool:
        return self.language.startswith("{")

    @property
    def is_accounted_for(self) -> bool:
        """Does the block run, say why it does not, or need not run?"""
        known = self.language in (*RUN, *NOT_CODE) or self.is_directive or self.file
        return bool(known or self.why_not_run)


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page's text."""
    for match in _FENCE.finditer(page):
        reason = _REASON.search(page, 0, match.start())
        line = page.count("\n", 0, match.start("text")) + 1
        yield Block(match["language"], match["text"], line, reason[1] if reason else "")


def run_pages(folder: Path, pages: list[Path], at_once: int = 2) -> list[Path]:
    """Runs the pages, and prints what the failing ones said; returns those."""
    for name in IMPORTED_ONCE:
        importlib.import_module(name)
    waiting, running, failed = list(reversed(pages)), {}, []
    while waiting or running:
        while waiting and len(running) < at_once:
            page = waiting.pop()
            running[_fork(folder / page.stem, page)] = page
        child, status = os.wait()
        page = running.pop(child)
        if status:
            failed.append(page)
            print((folder / page.stem / "output.txt").read_text(errors="replace"))
    return failed


def _fork(folder: Path, page: Path) -> int:
    """The process that runs a page."""
    sys.stdout.flush()
    if child := os.fork():
        return child
    status = 1
    try:
        os.chdir(folder)
        output = os.open("output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.path.insert(0, "")
        _run_blocks(page)
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _run_blocks(page: Path) -> None:
    namespace: dict[str, object] = {"__name__": "__main__"}
    start = time.monotonic()
    for block in blocks(page.read_text(encoding="utf-8")):
        if block.why_not_run or block.is_directive or block.language in NOT_CODE:
            continue
        print(f"---- {page.name}:{block.line} after {time.monotonic() - start:.1f} s", flush=True)
        if block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            # In a file of its own: messages show the source.
            source = Path(f"{page.stem}_{block.line}.py").resolve()
            source.write_text(block.text, encoding="utf-8")
            exec(compile(block.text, str(source), "exec"), namespace)
        else:
            _run_in_shell(block.text)


def _run_in_shell(text: str) -> None:
    """Runs calls of `ipexc`, `ipexrun` and Python files in this process, and what stands between them in bash."""
    rest: list[str] = []
    for line in [*text.replace("\\\n", " ").splitlines(), None]:
        simple = _SIMPLE.match(line) if line is not None and not re.search(r"[|<>$&;]", line) else None
        if line is not None and not simple:
            rest.append(line)
            continue
        if any(rest):
            subprocess.run(["bash", "-euo", "pipefail", "-c", "\n".join(rest)], check=True)
        rest = []
        if simple:
            _run_here(simple)


def _run_here(command: re.Match) -> None:
    from intel_extension_for_pytorch import cli
    from intel_extension_for_pytorch.cpu import launch

    arguments = shlex.split(command["arguments"], comments=True)
    variables = dict(word.split("=", 1) for word in command["variables"].split())
    print("$", command[0], flush=True)
    with mock.patch.dict(os.environ, variables):
        if command["program"] in ("ipexc", "ipexrun"):
            if status := (cli.main if command["program"] == "ipexc" else launch.main)(arguments):
                raise SystemExit(f"{command[0]}: status {status}")
        else:
            import torch

            torch.compiler.reset()
            runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    sys.exit(len(run_pages(Path(sys.argv[1]), [Path(page) for page in sys.argv[2:]])))
