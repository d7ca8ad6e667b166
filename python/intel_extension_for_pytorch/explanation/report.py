"""`ipex.explain(model, *inputs)`: reports how a model is compiled, as text and as a dict."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from .. import torch_private
from ..compiler.records import record_reports
from . import step_profile


@dataclass(frozen=True)
class Explanation:
    """The result of `explain`: one report per graph, in order of compilation. Print it, or use `to_dict()`.

    Attributes: `graphs`, the reports (see `record_reports` for their keys); `profile`, a Profile or None.
    """

    graphs: list[dict[str, Any]]
    profile: step_profile.Profile | None = None

    def to_dict(self) -> dict[str, Any]:
        """All data as a dict: {"graphs": [...], "native_ops": n, "extern_ops": {op: count}, "profile": ...}."""
        externs: Counter[str] = Counter()
        for report in self.graphs:
            externs.update(s["name"] for s in report["steps"] if s["kind"] == "extern")
        return {
            "graphs": self.graphs,
            "native_ops": sum(r["native_ops"] for r in self.graphs),
            "extern_ops": dict(externs),
            "profile": self.profile.to_dict() if self.profile else None,
        }

    def __str__(self) -> str:
        if not self.graphs:
            return "nothing was compiled"
        texts = [_graph_text(i, r) for i, r in enumerate(self.graphs)]
        return "\n\n".join([*texts, str(self.profile)] if self.profile else texts)

    __repr__ = __str__


def explain(
    model: Callable, *inputs: Any, profile: bool = False, options: dict[str, Any] | None = None, **named: Any
) -> Explanation:
    """Compiles `model` for the given inputs, runs it once, and reports how it was compiled.

    The backward pass runs too if a result requires gradients; under `torch.no_grad()` it is inference. Parameters and
    their gradients do not change. Buffers that a training step updates (batch norm's statistics) are restored.

    :param model: a module or function.
    :param inputs: its positional arguments; `named` are its keyword arguments.
    :param profile: also run the model for another second and measure every step, with its share of what this machine
        allows. The result is in `Explanation.profile`; its `write_trace(path)` writes a Chrome trace.
    :param options: those of `torch.compile(model, backend="ipex", options=...)`.
    :returns: an Explanation.
    :raises UserError: for invalid options.

    Example::

        print(ipex.explain(model, torch.randn(8, 64), profile=True))
    """
    torch_private.reset_dynamo()
    state = _saved_state(model)
    compiled = torch.compile(model, backend="ipex", options=options)
    leaves = [p for p in _leaves(model, inputs, named) if p.requires_grad]

    def call() -> None:
        wanting = [t for t in _tensors(compiled(*inputs, **named)) if t.requires_grad]
        if wanting and leaves:
            torch.autograd.grad([t.float().sum() for t in wanting], leaves, allow_unused=True)

    graphs: list[Any] = []
    try:
        with record_reports(graphs) as reports:
            call()
            if profile:
                call()  # warm up; models that change their state in the first call are compiled again
        measured = step_profile.measure(call, reports, graphs) if profile else None
    finally:
        for buffer, value in state:
            with torch.no_grad():
                buffer.copy_(value)
        torch_private.reset_dynamo()
    return Explanation(reports, measured)


def _saved_state(model: Any) -> list[tuple[torch.Tensor, torch.Tensor]]:
    if not isinstance(model, torch.nn.Module):
        return []
    return [(b, b.detach().clone()) for b in model.buffers()]


def _leaves(model: Any, inputs: tuple, named: dict[str, Any]) -> list[torch.Tensor]:
    parameters = list(model.parameters()) if isinstance(model, torch.nn.Module) else []
    return parameters + [t for t in _tensors((inputs, named)) if t.is_leaf]


def _tensors(tree: Any) -> list[torch.Tensor]:
    leaves = torch_private.pytree.tree_leaves(tree)
    return [t for t in leaves if isinstance(t, torch.Tensor) and t.dtype.is_floating_point]


# ---- as text ----


def _graph_text(index: int, report: dict[str, Any]) -> str:
    lines = [f"graph {index} ({report['kind']}): {report['nodes']} ops"]
    if report["eager"]:
        return "\n".join([*lines, f"  runs eagerly: {report['eager']}"])
    lines[0] += (
        f", {report['kernel_steps']} kernels, {report['library_steps']} library calls, {report['extern_steps']} extern"
    )
    hoisted = sum(step["hoisted"] for step in report["steps"])
    if hoisted:
        lines[0] += f"; {hoisted} of them run once, because they depend only on parameters and buffers"
    for step in report["steps"]:
        detail = f"  [{step['detail']}]" if step["detail"] else ""
        work = _quantity(step["bytes"], "B") + (f", {_quantity(step['flops'], 'flop')}" if step["flops"] else "")
        lines.append(f"  {step['kind']:8} {step['name']}{detail}  {'once, ' if step['hoisted'] else ''}{work}")
        sources = step["sources"]
        lines += [f"             {source}" for source in sources[:6]]
        if len(sources) > 6:
            lines.append(f"             and {len(sources) - 6} more")
    for op, why in report["extern_why"].items():
        lines.append(f"  extern because: {op}: {why}")
    lines += [f"  chosen   {line}" for line in report["choices"]]
    lines += [f"  measured {line}" for line in report["measured"]]
    naive, planned = report["naive_bytes"], report["arena_bytes"]
    lines.append(f"  memory   {_quantity(planned, 'B')} planned, {_quantity(naive, 'B')} naive")
    stages = ", ".join(f"{name} {ms:.1f}" for name, ms in report["times"] if ms >= 0.05)
    lines.append(f"  compiled in {report['total_ms']:.0f} ms: import {report['import_ms']:.1f}, {stages}")
    return "\n".join(lines)


def _quantity(amount: int, unit: str) -> str:
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if amount >= factor:
            return f"{amount / factor:.1f} {prefix}{unit}"
    return f"{amount} {unit}"


class _CallableModule(type(sys)):
    """Makes this module callable, so that `ipex.explain(...)` works even if a module has replaced the function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Explanation:
        return explain(*args, **kwargs)


sys.modules[__name__].__class__ = _CallableModule
