"""The only package that uses private modules of PyTorch or patches PyTorch.

Each file covers one area. The names below are its whole interface.
"""

from __future__ import annotations

import torch
from torch.utils import _pytree as pytree  # noqa: F401

from .aot_autograd import (  # noqa: F401
    Cut,
    aot_backend,
    bytes_of,
    calls_need_no_wrapper,
    changed_in_data_and_geometry,
    default_partition,
    differentiates_forward,
    disable_dynamo,
    donate_nothing,
    draws,
    forward_metadata,
    min_cut_partition,
    numbers_passed_as_tensors,
    report_output_strides,
    reset_dynamo,
    static_input_positions,
    user_output_count,
    views_of_inputs,
    writes,
)
from .autograd_cache import (  # noqa: F401
    autograd_cache,
    autograd_cache_directories,
    cache_backward,
    cache_bypass,
    cacheable_compiler,
    output_code,
    specialized_float,
)
from .decompositions import (  # noqa: F401
    core_decompositions,
    fma_op,
    implicit_decompositions,
    linspace,
    logspace,
    onednn_on,
    registered_decompositions,
    without_dtype_checks,
)
from .module_calls import has_forward_hooks, module_call, replace_module_call  # noqa: F401
from .symbols import (  # noqa: F401
    bounds,
    convolution_shape,
    data_dependent_symbols,
    expression,
    guard_equal,
    is_known,
    known_factors,
    lower_bound,
    no_guards,
    positive,
    positive_symbol,
    relations_of_sizes,
    same_count,
    size_hint,
    symbol_of,
    symbolic_extrema,
    symbolic_function,
    symbolic_functions,
    symbols_in,
    without_empty_case,
)
from .tensors import (  # noqa: F401
    Batched,
    is_plain_tensor,
    memory_identity,
    memory_order,
    rng_state,
    rng_state_wrappers,
    suggested_memory_format,
    traced_object,
    value_of_call,
    without_modes,
    without_version_bump,
)
from .tracing import (  # noqa: F401
    decomposed,
    differentiated,
    functionalized,
    recurrent_layers,
    unused_random_ops_kept,
)

OpOverload = torch._ops.OpOverload
