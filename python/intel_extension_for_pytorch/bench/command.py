"""The command `ipexc bench-kernels`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def bench_kernels(
    pattern: Annotated[
        str | None,
        typer.Option("--filter", help="regular expression for the names of the cases; default: the standard cases"),
    ] = None,
    rounds: Annotated[int, typer.Option(min=10, help="number of interleaved rounds")] = 10,
    variants: Annotated[str, typer.Option(help="variants to time, comma-separated")] = "eager,inductor,ipex",
    json: Annotated[Path | None, typer.Option(help="write all results to this file, after each kernel")] = None,
    csv: Annotated[Path | None, typer.Option(help="write one line per kernel to this file")] = None,
    html: Annotated[Path | None, typer.Option(help="write a page with a roofline and bars to this file")] = None,
    graphs: Annotated[Path | None, typer.Option(help="write each kernel's Graph text to this folder")] = None,
    compare: Annotated[
        Path | None, typer.Option(help="an earlier --json file; exit code 4 if a kernel is slower now")
    ] = None,
    worst: Annotated[int, typer.Option(help="show only this many kernels, slowest against Inductor; 0: all")] = 0,
    list_only: Annotated[bool, typer.Option("--list", help="only print the names of the cases")] = False,
) -> None:
    """Time single kernels in eager, Inductor and ipex, in one interleaved run.

    Examples: ipexc bench-kernels --filter fused/softmax; ipexc bench-kernels --json now.json --html now.html --worst 10
    """
    from rich.console import Console
    from rich.progress import Progress

    from . import (  # imported here because they import torch
        measure,
        report,
    )
    from .cases import all_cases, select

    if list_only:
        for case in select(pattern) if pattern else all_cases():
            typer.echo(case.name)
        return
    cases, wanted = select(pattern), variants.split(",")
    if unknown := set(wanted) - set(measure.VARIANTS):
        raise typer.BadParameter(f"unknown variant {', '.join(sorted(unknown))}: use {', '.join(measure.VARIANTS)}")
    if not cases:
        raise typer.BadParameter(f"no kernel's name matches {pattern!r}; --list prints all names")
    try:
        earlier = report.load(compare) if compare else None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    started, results = measure.conditions(), []
    with Progress(transient=True) as progress:
        task = progress.add_task("kernels", total=len(cases))
        for result in measure.measure(cases, rounds, wanted):
            results.append(result)
            progress.update(task, advance=1, description=result.name)
            run = measure.finish(results, rounds, started)
            if json:  # after each kernel, so that an interrupted run leaves results
                report.save_json(run, json)
    console = Console(width=None if Console().is_terminal else 150)
    ordered = report.slowest_first(results)
    console.print(report.table(run, ordered[:worst] if worst else ordered, "Kernels, slowest against Inductor first"))
    console.print(report.summary(run))
    for path, save in ((csv, report.save_csv), (graphs, report.save_graphs)):
        if path:
            save(run, path)
    if html:
        from .page import save as save_page

        save_page(run, html)
    if earlier:
        shown, regressions = report.compare(earlier, run)
        console.print(shown)
        if regressions:
            console.print(f"{regressions} kernels are slower than in {compare}")
            raise typer.Exit(4)
