"""Tables of results: printed to the terminal, saved as Markdown, and inserted into documents.

python benchmarks/tables.py build/figures README.md benchmarks/RESULTS.md     replaces the text between the markers of
                                                                              each saved table
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table
from timing import machine


@dataclass
class ResultTable:
    """A titled table of text cells. `command` is the command that produces it."""

    name: str  # name of the saved file, and of the markers in documents
    title: str
    command: str
    columns: list[str]
    rows: list[list[str]] = field(default_factory=list)
    alignment: str = "right"  # alignment of all columns except the first

    def add(self, *cells: str) -> None:
        if len(cells) != len(self.columns):
            raise ValueError(f"{self.name}: {len(cells)} cells for {len(self.columns)} columns")
        self.rows.append(list(cells))

    def show(self, console: Console) -> None:
        table = Table(title=f"{self.title}\n{machine()}")
        for i, column in enumerate(self.columns):
            table.add_column(column, justify="left" if i == 0 else self.alignment, no_wrap=i == 0)
        for row in self.rows:
            table.add_row(*row)
        console.print(table)

    def markdown(self) -> str:
        lines = [
            self.columns,
            ["---"] + [":---" if self.alignment == "left" else "---:"] * (len(self.columns) - 1),
            *self.rows,
        ]
        body = "\n".join(f"| {' | '.join(line)} |" for line in lines)
        return f"{self.title} (`{self.command}`):\n\n{body}\n\n{machine()}.\n"

    def save(self, folder: str | None) -> None:
        """Writes NAME.md into `folder`, unless that is None."""
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{self.name}.md").write_text(self.markdown(), encoding="utf-8")


def replace_tables(folder: Path, document: Path) -> list[str]:
    """Puts each saved table between its markers `<!-- table NAME -->` and `<!-- end -->`; returns their names."""
    text = document.read_text(encoding="utf-8")
    replaced = []
    for path in sorted(folder.glob("*.md")):
        pattern = re.compile(rf"(<!-- table {path.stem} -->\n).*?(<!-- end -->)", re.DOTALL)
        table = path.read_text(encoding="utf-8")
        text, count = pattern.subn(lambda m, table=table: m[1] + table + m[2], text)
        if count:
            replaced.append(path.stem)
    document.write_text(text, encoding="utf-8")
    return replaced


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: tables.py FOLDER DOCUMENT...")
    for name in sys.argv[2:]:
        print(f"{name}:", ", ".join(replace_tables(Path(sys.argv[1]), Path(name))) or "nothing to replace")
