"""Runs PyTorch's samples (OpInfo) of every op of the tables: values, dtypes, strides, and gradients in fp32."""

import functools
import itertools

import op_cases
import pytest
import torch
from comparison import difference
from graphs import Call, assert_all
from opinfo_cases import op_db

FORWARD_DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.bool)
SAMPLES_IN_CI = 8
GRADIENT_SAMPLES = 4

# Ops whose formulas multiply by a complex exponential, or need second-order terms that no model uses.
NO_GRADIENT_CHECK = {"float_power"}


@functools.cache
def infos():
    """OpInfos whose ATen name is a row of the tables or a core pointwise or reduction op."""
    rows = {op._schema.name.removeprefix("aten::") for op in op_cases.pointwise_overloads()}
    rows |= {op._schema.name.removeprefix("aten::") for op in op_cases.reduction_overloads()}
    return [info for info in op_db if {info.name, info.aten_name, getattr(info, "ref", None)} & rows]


# Ops that draw random numbers or return uninitialised memory, so that no two runs agree.
UNDEFINED_RESULTS = {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"}


@functools.cache
def structural_infos():
    """OpInfos of ops with import rules beyond the tables. Some of their samples may be Extern."""
    names = op_cases.importer_names() - UNDEFINED_RESULTS
    return [info for info in op_db if {info.name, info.aten_name} & names and info not in infos()]


def label(info):
    return info.formatted_name


def samples(info, dtype, limit, requires_grad=False):
    """Calls with the first `limit` samples of one dtype, each contiguous and strided."""
    generated = info.sample_inputs("cpu", dtype, requires_grad=requires_grad)
    for position, sample in enumerate(itertools.islice(generated, limit)):
        yield Call(
            f"{label(info)} [{dtype}] sample {position}", info.op, (sample.input, *sample.args), dict(sample.kwargs)
        )


def forward_calls(info, limit):
    for dtype in FORWARD_DTYPES:
        if info.supports_dtype(dtype, "cpu"):
            yield from samples(info, dtype, limit)


def check_forward(info, limit):
    reduction = info.aten_name in {"sum", "mean", "var", "std", "prod", "std_mean", "var_mean"}
    compare = functools.partial(difference, strides=True, scale=10.0 if reduction else 1.0)
    assert_all(list(forward_calls(info, limit)), compare)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("info", infos(), ids=label)
def test_forward(info, strict):
    check_forward(info, SAMPLES_IN_CI)


@pytest.mark.nightly
@pytest.mark.parametrize("info", infos(), ids=label)
def test_forward_all_samples(info, strict):
    check_forward(info, None)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("info", structural_infos(), ids=label)
def test_structural(info):
    check_forward(info, SAMPLES_IN_CI)


@pytest.mark.nightly
@pytest.mark.parametrize("info", structural_infos(), ids=label)
def test_structural_all_samples(info):
    check_forward(info, None)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("info", [i for i in structural_infos() if i.supports_autograd], ids=label)
def test_structural_gradients(info):
    calls = list(samples(info, torch.float32, GRADIENT_SAMPLES, requires_grad=True))
    assert_all(calls, functools.partial(difference, strides=True, scale=10.0), gradients=True)


def gradient_infos():
    differentiable = [i for i in infos() if i.supports_autograd and i.supports_dtype(torch.float32, "cpu")]
    return [i for i in differentiable if i.name not in NO_GRADIENT_CHECK]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("info", gradient_infos(), ids=label)
def test_gradients(info, strict):
    calls = list(samples(info, torch.float32, GRADIENT_SAMPLES, requires_grad=True))
    assert_all(calls, functools.partial(difference, strides=True, scale=10.0), gradients=True)


# Ops that formulas/ decomposes.
FORMULAS = {"addbmm", "cdist", "narrow_copy", "nn.functional.bilinear", "nn.functional.pdist"}


@pytest.mark.parametrize("info", [i for i in op_db if i.name in FORMULAS], ids=label)
def test_formulas(info, strict):
    compare = functools.partial(difference, strides=True, scale=10.0)
    calls, with_gradients = (list(samples(info, torch.float32, None, requires_grad=g)) for g in (False, True))
    step = 1 + len(calls) // 50
    assert_all(calls[::step], compare)
    assert_all(with_gradients[::step], compare, gradients=True)
