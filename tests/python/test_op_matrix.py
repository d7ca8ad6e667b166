"""Compares every op of the tables with eager, in strict mode, in every dtype and layout that eager accepts."""

import functools

import op_cases
import pytest
import torch
from comparison import difference
from graphs import Call, assert_all


def names(ops):
    return {op._schema.name.removeprefix("aten::") for op in ops}


def test_matrix_covers_core_pointwise():
    core = core_names(torch.Tag.pointwise)
    assert len(core) >= 64
    assert core <= names(op_cases.pointwise_overloads())


def test_matrix_covers_core_reductions():
    core = op_cases.core_overloads(torch.Tag.reduction)
    assert len(core) >= 16
    assert set(core) <= set(op_cases.reduction_overloads())


def core_names(tag):
    return names(op_cases.core_overloads(tag))


@pytest.mark.needs_ipex
@pytest.mark.parametrize("kind", ["pointwise", "reduction", "scan"])
def test_matrix_covers_every_table_row(kind):
    """Fails for a row whose ATen name does not exist, or whose arguments the matrix cannot generate."""
    covered = names(getattr(op_cases, f"{kind}_overloads")())
    missing = [
        name for row in op_cases.table_rows(kind) for name in row["aten"].split() if name.split(".")[0] not in covered
    ]
    assert op_cases.table_rows(kind)
    assert not missing


@pytest.mark.one_in(3)
@pytest.mark.parametrize("op", op_cases.pointwise_overloads(), ids=op_cases.text_name)
def test_pointwise(op, strict):
    fixed = op._schema.name.removeprefix("aten::") not in op_cases.UNFIXED_ZERO_SIGN
    assert_all(list(op_cases.pointwise_calls(op)), functools.partial(difference, strides=True, zero_signs=fixed))


@pytest.mark.one_in(2)
@pytest.mark.parametrize("op", op_cases.reduction_overloads(), ids=op_cases.text_name)
def test_reduction(op, strict):
    # The rounding error of a sum grows with its length, in eager too.
    assert_all(list(op_cases.reduction_calls(op)), functools.partial(difference, scale=10.0), at_least=20)


@pytest.mark.parametrize("op", op_cases.scan_overloads(), ids=op_cases.text_name)
def test_scan(op, strict):
    assert_all(list(op_cases.reduction_calls(op)), difference, at_least=20)


@pytest.mark.parametrize("src", op_cases.DTYPES, ids=str)
def test_cast(src, strict):
    """Casts of every dtype to every dtype. A float that does not fit the integer type has no defined result."""
    calls = []
    for layout, (tensor,) in op_cases.layouts((src,)):
        for dst in op_cases.DTYPES:
            value = tensor
            if src.is_floating_point and dst in op_cases.INTEGERS:
                value = tensor.nan_to_num(0.0, 0.0, 0.0).clamp(0, 100)
            calls.append(Call(f"{src} to {dst} {layout}", torch.ops.aten._to_copy.default, (value,), {"dtype": dst}))
    assert_all(calls, functools.partial(difference, zero_signs=True), at_least=80)
