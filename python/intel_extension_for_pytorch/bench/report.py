"""Results of the kernel benchmark as a table, as JSON and CSV, and compared with an earlier run."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

from rich.table import Table

from .measure import VARIANTS, Result, Run

COLUMNS = ("name", "bytes", "flops", "bound_ms", "eager_ms", "inductor_ms", "ipex_ms", "ipex_spread", "against_eager",
           "against_inductor", "verdict", "roofline", "kernels", "library_steps", "extern_steps", "error")  # fmt: skip


def load(path: str | Path) -> Run:
    """A run saved with `save_json`. Raises ValueError for any other file."""
    try:
        return Run.from_dict(json.loads(Path(path).read_text(encoding="utf-8")))
    except (OSError, TypeError, KeyError, AttributeError, ValueError) as error:
        raise ValueError(f"{path} is not a result of the kernel benchmark: {error}") from error


def save_json(run: Run, path: str | Path) -> None:
    """Writes all results as JSON, which `load` reads."""
    Path(path).write_text(json.dumps(run.to_dict(), indent=1), encoding="utf-8")


def save_graphs(run: Run, folder: str | Path) -> None:
    """Writes one Graph text per kernel, for the C++ benchmark and ipex-opt."""
    for result in run.results:
        if result.graph:
            path = Path(folder) / f"{result.name.replace('/', '.')}.graph"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(result.graph, encoding="utf-8")


def save_csv(run: Run, path: str | Path) -> None:
    """Writes one line per kernel, with the columns COLUMNS."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(_row(result) for result in run.results)


def _row(result: Result) -> dict[str, object]:
    times = {f"{variant}_ms": sample.median for variant, sample in result.samples.items()}
    ours = result.samples.get("ipex")
    row = {name: getattr(result, name) for name in COLUMNS if hasattr(result, name)}
    return row | times | {
        "ipex_spread": ours.spread if ours else math.nan,
        "against_eager": result.ratio("eager"),
        "against_inductor": result.ratio("inductor"),
        "verdict": result.verdict("inductor"),
    }  # fmt: skip


def slowest_first(results: list[Result], peer: str = "inductor") -> list[Result]:
    """Sorted by the peer's time over ours; kernels that did not run come last."""
    return sorted(results, key=lambda r: (math.isnan(r.ratio(peer)), r.ratio(peer)))


def geometric_mean(ratios: list[float]) -> float:
    """The geometric mean without NaN entries; NaN if there are no others."""
    known = [math.log(r) for r in ratios if not math.isnan(r)]
    return math.exp(sum(known) / len(known)) if known else math.nan


def table(run: Run, results: list[Result], title: str) -> Table:
    """A table of microseconds per call. Ratios are the peer's time over ours."""
    shown = Table(title=f"{title}\n{run.machine}, {run.rounds} rounds")
    shown.add_column("kernel", no_wrap=True)
    for column in ("eager us", "Inductor us", "ipex us", "spread", "vs eager", "vs Inductor", "", "roofline"):
        shown.add_column(column, justify="right")
    for result in results:
        microseconds = [f"{s.median * 1e3:.1f}" if (s := result.samples.get(v)) else "-" for v in VARIANTS]
        ours = result.samples.get("ipex")
        shown.add_row(
            result.name,
            *microseconds,
            f"{ours.spread:.0%}" if ours else "-",
            f"{result.ratio('eager'):.2f}",
            f"{result.ratio('inductor'):.2f}",
            result.verdict("inductor"),
            f"{result.roofline:.0%}",
        )
    return shown


def summary(run: Run) -> str:
    """One line: the number of kernels, geometric means, and how many are faster, the same and slower."""
    verdicts = [result.verdict("inductor") for result in run.results]
    counts = ", ".join(f"{verdicts.count(v)} {v}" for v in ("faster", "same", "slower"))
    means = {peer: geometric_mean([r.ratio(peer) for r in run.results]) for peer in VARIANTS[:2]}
    said = [f"over {peer} {mean:.2f}x" for peer, mean in means.items() if not math.isnan(mean)]
    return f"{len(run.results)} kernels; geometric mean {', '.join(said) or 'unknown'}; against Inductor {counts}"


def compare(old: Run, new: Run) -> tuple[Table, int]:
    """A table of our times in two runs, in units of eager's time in the same run, and the number of kernels that became
    slower beyond the noise."""
    before = {result.name: result for result in old.results}
    shown = Table(title=f"ipex in units of eager's time, before and now\n{old.machine}\n{new.machine}")
    shown.add_column("kernel", no_wrap=True)
    for column in ("before", "now", "change", ""):
        shown.add_column(column, justify="right")
    regressions = 0
    for result in new.results:
        earlier = before.get(result.name)
        if earlier is None or math.isnan(earlier.ratio("eager") * result.ratio("eager")):
            continue
        then, now = 1 / earlier.ratio("eager"), 1 / result.ratio("eager")
        change, noise = now / then - 1, math.hypot(earlier.noise("eager"), result.noise("eager"))
        verdict = "same" if abs(change) <= noise else "slower" if change > 0 else "faster"
        regressions += verdict == "slower"
        shown.add_row(result.name, f"{then:.3f}", f"{now:.3f}", f"{change:+.0%}", verdict)
    return shown, regressions
