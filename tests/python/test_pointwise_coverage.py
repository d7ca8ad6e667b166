"""Lists ATen's pointwise ops without native support: no row, no rule, and no decomposition into rows. Each has a
reason. The test fails if an op is missing from the list, or is supported in the meantime."""

import pytest
import torch
from comparison import assert_error_within
from op_cases import is_functional, overload

pytestmark = pytest.mark.needs_ipex

POLYNOMIALS = "its degree is data: a loop of its own for every element; native where the program says it"
STAYS_IN_ATEN = {
    "_conj_physical": "complex only",
    "igamma": "series whose length depends on the element",
    "igammac": "series whose length depends on the element",
    "special_chebyshev_polynomial_t": POLYNOMIALS,
    "special_chebyshev_polynomial_u": POLYNOMIALS,
    "special_chebyshev_polynomial_v": POLYNOMIALS,
    "special_chebyshev_polynomial_w": POLYNOMIALS,
    "special_hermite_polynomial_h": POLYNOMIALS,
    "special_hermite_polynomial_he": POLYNOMIALS,
    "special_laguerre_polynomial_l": POLYNOMIALS,
    "special_legendre_polynomial_p": POLYNOMIALS,
    "special_shifted_chebyshev_polynomial_t": POLYNOMIALS,
    "special_shifted_chebyshev_polynomial_u": POLYNOMIALS,
    "special_shifted_chebyshev_polynomial_v": POLYNOMIALS,
    "special_shifted_chebyshev_polynomial_w": POLYNOMIALS,
}


def pointwise_overloads():
    """Functional overloads with torch's tag pointwise."""
    found = []
    for qualified in sorted(torch._C._dispatch_get_all_op_names()):
        try:
            op = overload(qualified.removeprefix("aten::")) if qualified.startswith("aten::") else None
        except AttributeError:
            continue
        if op is not None and torch.Tag.pointwise in op.tags and is_functional(op):
            found.append(op)
    return found


def is_lowered(op):
    from intel_extension_for_pytorch.compiler.decompose import Decompositions
    from intel_extension_for_pytorch.compiler.rules import rule_for

    composite = op.has_kernel_for_dispatch_key(torch.DispatchKey.CompositeImplicitAutograd)
    return composite or op in Decompositions() or rule_for(op) is not None


def test_every_pointwise_op_is_lowered_or_listed(record_property):
    ops = pointwise_overloads()
    missing = [op for op in ops if not is_lowered(op)]
    record_property("summary", f"{len(ops) - len(missing)} of {len(ops)} pointwise overloads of ATen lowered natively")
    print(f"{len(missing)} pointwise overloads stay in ATen:", *missing, sep="\n  ")
    assert {op._schema.name.removeprefix("aten::") for op in missing} == STAYS_IN_ATEN.keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("activation", "op"),
    [("gelu_new", "gelu_tanh"), ("gelu_fast", "gelu_tanh"), ("gelu_python", "gelu"), ("gelu_accurate", None)],
)
def test_activations_written_out(activation, op, dtype, compiled, strict):
    """Activations that models write as formulas compile to one kernel, with the accuracy of the op."""
    import intel_extension_for_pytorch as ipex
    from transformers.activations import ACT2FN

    function, x = ACT2FN[activation], torch.randn(64, 96).to(dtype) * 2
    with torch.no_grad(), ipex.record_reports() as reports:
        ours = compiled(function)(x)
        assert_error_within(ours, function(x), function(x.double()))
    assert op is None or f"pointwise.{op}(" in reports[0]["graph"]
