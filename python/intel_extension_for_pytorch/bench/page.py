"""Results of the kernel benchmark as one self-contained HTML page: a roofline, bars and the whole table."""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import Any

from .measure import VARIANTS, Result, Run
from .report import slowest_first, summary

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; color: #1b1f24; padding: 0 1rem }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.5rem } p.note { color: #57606a }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
td, th { padding: .2rem .7rem; text-align: right }
td:first-child, th:first-child { text-align: left } tr:nth-child(even) { background: #f6f8fa }
.slower { color: #b42318 } .faster { color: #116329 }
"""


def save(run: Run, path: str | Path) -> None:
    """Writes the page. Raises ModuleNotFoundError if plotly (extra `bench`) is not installed."""
    import plotly.io

    def part(name: str, figure: Any, *, library: bool) -> str:
        return plotly.io.to_html(figure, full_html=False, include_plotlyjs=library, div_id=name)

    roofline = part("roofline", _roofline(run), library=True)
    Path(path).write_text(_page(run, roofline, part("bars", _bars(run), library=False)), encoding="utf-8")


def _roofline(run: Run) -> Any:
    """A roofline plot: FLOP/s over FLOP per byte of every kernel, below the machine's two limits."""
    import plotly.graph_objects as go

    figure = go.Figure()
    limits = run.limits["memory"]
    bandwidth = max(limits["copy_gbs"], limits["triad_gbs"])
    for dtype, peak in (("fp32", limits["f32_gflops"]), ("bf16", limits["bf16_gflops"])):
        if not peak:
            continue
        corner = peak / bandwidth
        reach = [0.01, corner, max(1000.0, 4 * corner)]
        figure.add_trace(go.Scatter(x=reach, y=[min(peak, x * bandwidth) for x in reach], name=f"limit, {dtype}"))
    for dtype in sorted({result.dtype for result in run.results}):
        shown = [r for r in run.results if r.dtype == dtype and r.flops and r.bytes and "ipex" in r.samples]
        figure.add_trace(
            go.Scatter(
                x=[r.flops / r.bytes for r in shown],
                y=[r.flops / r.samples["ipex"].median / 1e6 for r in shown],
                text=[r.name for r in shown],
                mode="markers",
                name=f"ipex, {dtype}",
            )
        )
    figure.update_xaxes(type="log", title="floating-point operations per byte")
    figure.update_yaxes(type="log", title="GFLOP/s")
    figure.update_layout(height=560, template="plotly_white", hovermode="closest")
    return figure


def _bars(run: Run) -> Any:
    """Each kernel's time relative to eager's, with the slowest against Inductor on top."""
    import plotly.graph_objects as go

    results = [r for r in reversed(slowest_first(run.results)) if "eager" in r.samples]
    figure = go.Figure()
    for variant in VARIANTS[1:]:
        shares = [_share(result, variant) for result in results]
        figure.add_trace(go.Bar(y=[r.name for r in results], x=shares, name=variant, orientation="h"))
    figure.add_vline(x=1, line_dash="dot")
    figure.update_xaxes(title="time relative to eager (shorter is faster)")
    figure.update_layout(height=160 + 26 * len(results), template="plotly_white", barmode="group")
    return figure


def _share(result: Result, variant: str) -> float | None:
    return result.samples[variant].median / result.samples["eager"].median if variant in result.samples else None


def _page(run: Run, roofline: str, bars: str) -> str:
    limits = run.limits["memory"]
    clock, load = run.conditions["start"]["cpu_mhz"], run.conditions["start"]["load"]
    machine = (
        f"{run.machine}; {clock:.0f} MHz, load {load:.1f} at the start; target {run.conditions['start']['target']}; "
        f"memory {limits['triad_gbs']:.1f} GB/s (triad), fp32 {limits['f32_gflops']:.0f} and bf16 "
        f"{limits['bf16_gflops']:.0f} GFLOP/s; medians of {run.rounds} interleaved rounds"
    )
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Kernels: eager, Inductor, ipex</title><style>{_STYLE}</style></head>
<body><h1>Kernels: eager, Inductor, ipex</h1>
<p id="summary">{html.escape(summary(run))}</p><p class="note">{html.escape(machine)}</p>
<h2>Compared with the machine's limits</h2>{roofline}
<h2>Compared with eager and Inductor</h2>{bars}
<h2>All kernels, slowest against Inductor first</h2>
<table id="kernels"><thead><tr><th>kernel</th><th>eager, us</th><th>Inductor, us</th><th>ipex, us</th><th>vs eager</th>
<th>vs Inductor</th><th></th><th>share of the limit</th></tr></thead><tbody>
{"".join(map(_row, slowest_first(run.results)))}</tbody></table></body></html>
"""


def _row(result: Result) -> str:
    times = [f"{s.median * 1e3:.1f}" if (s := result.samples.get(v)) else "-" for v in VARIANTS]
    ratios = ["-" if math.isnan(r) else f"{r:.2f}" for r in map(result.ratio, VARIANTS[:2])]
    verdict = result.verdict("inductor")
    share = "-" if math.isnan(result.roofline) else f"{result.roofline:.0%}"
    cells = "".join(
        f"<td>{cell}</td>" for cell in (*times, *ratios, f'<span class="{verdict}">{verdict}</span>', share)
    )
    return f"<tr><td>{html.escape(result.name)}</td>{cells}</tr>\n"
